/* What the files of the job gate share: settings (gate_settings.c), stages (gate.c), what is
 * printed (gate_table.c). */
#ifndef WANAMAKER_JOBS_GATE_H
#define WANAMAKER_JOBS_GATE_H

#include "inputs.h"
#include "losses.h"
#include "wanamaker/measure/gate_pass.h"

enum { WM_GATE_SPECS = 64 };

typedef struct {
  const wm_inputs_t *in;
  wm_role_t choice; /* range on which gates are chosen, and held out from their fit */
  const wm_text_t *fit, *heldout;
  wm_surrogates_t *surrogates;
  int64_t *layers, n_layers; /* that get gates */
  wm_gate_spec_t specs[WM_GATE_SPECS];
  wm_gate_pass_options_t options;
  const double *thresholds; /* of the curve */
  int64_t n_thresholds;
  double least_routed;
  wm_variants_t single;                            /* every layer's surrogate alone */
  wm_losses_stage_t fit_losses, heldout_losses;    /* of them */
  char heldout_name[32], routed_name[32];          /* of stages */
  char fit_path[WM_PATH_SIZE], path[WM_PATH_SIZE]; /* gates.fit.h5, gates.h5 */
  char fit_parts[WM_PATH_SIZE];                    /* kept layers of the first */
  uint64_t fit_key, key;                           /* of the two */
  bool fit_complete, complete;                     /* are they there? */
  wm_gates_t *gates;
  wm_gate_ends_t *ends; /* [n_layers] */
  wm_variants_t routed; /* the gates as variants */
  wm_losses_stage_t routed_losses;
  int64_t *selected; /* [n_layers] variant, -1: none */
} wm_gate_job_t;

/* Not collective. Everything that the settings say; `where`: the file of the surrogates. */
wm_status_t wm_gate_settings(wm_gate_job_t *job, const char *where, wm_error_t *err);
/* Not collective. job->specs of the settings. */
wm_status_t wm_gate_specs(wm_gate_job_t *job, const wm_config_t *config, const wm_arch_t *arch,
                          wm_error_t *err);
/* Not collective. Into job->gates, which is empty, gates that say nothing in the place of those
 * that are not fitted yet: evaluating them costs the same. */
wm_status_t wm_gate_stand_in(wm_gate_job_t *job, wm_error_t *err);
/* Not collective. job->routed from job->gates: for every layer its gates at their own threshold and
 * at those of the curve; oracles last, for they need the losses of the others. */
wm_status_t wm_gate_variants(wm_gate_job_t *job, wm_error_t *err);
/* Not collective. Thresholds at which a gate is measured into thresholds[1 + job->n_thresholds],
 * its own first, each once; returns how many. */
int64_t wm_gate_curve(const wm_gate_job_t *job, const wm_gate_t *gate, double *thresholds);
/* Not collective. Hashes of the settings that the fit, and the choice, depend on. */
uint64_t wm_gate_fit_key(const wm_gate_job_t *job, uint64_t seed);
uint64_t wm_gate_choice_key(const wm_gate_job_t *job, uint64_t seed);

/* On rank 0. heldout: losses of job->single; routed: of job->routed. */
wm_status_t wm_gate_print(const wm_gate_job_t *job, const wm_sweep_t *heldout,
                          const wm_sweep_t *routed, wm_error_t *err);
/* On rank 0. Token types at the ends of the linear gates' directions. */
wm_status_t wm_gate_print_ends(const wm_gate_job_t *job, wm_error_t *err);

#endif
