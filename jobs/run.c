/* run: tokenize, fit, gate (if gate.enabled), sweep and report in one go; a stage that is complete
 * for the same inputs is skipped.
 */
#include "inputs.h"
#include "stages.h"
#include "sweep_variants.h"

#include <stddef.h>

enum { ROLES = 1 << WM_ROLE_FIT | 1 << WM_ROLE_VALIDATION | 1 << WM_ROLE_EVALUATION };

static bool fits_gates(const wm_run_t *run) {
  return wm_config_bool(run->config, "gate.enabled");
}

/* Ranges that the settings call for, as bits; and those of them that must be there. */
static unsigned roles_of(const wm_run_t *run, unsigned *required) {
  const unsigned gates = 1u << WM_ROLE_GATES;
  *required = 1u << WM_ROLE_FIT | 1u << WM_ROLE_EVALUATION;
  if (!fits_gates(run))
    return wm_sweep_has_gates(run) ? ROLES | gates : ROLES;
  *required |= gates | 1u << wm_gate_choice(run);
  return ROLES | gates;
}

/* In a dry run a stage can be explained only if the earlier ones are complete. */
static wm_status_t later_stages(const wm_run_t *run, wm_error_t *err) {
  wm_inputs_t inputs;
  bool complete = false;
  unsigned required, roles = roles_of(run, &required);
  wm_status_t status = wm_inputs_open(run, roles, required, &inputs, err);
  if (status == WM_OK)
    status = wm_stage_fit(&inputs, &complete, err);
  if (status == WM_OK && run->dry_run && !complete) {
    if (run->comm->rank == 0)
      fprintf(run->out, "%ssweep: can be planned when the surrogates are fitted\n",
              fits_gates(run) ? "gate, " : "");
  } else if (status == WM_OK) {
    if (fits_gates(run))
      status = wm_stage_gate(&inputs, err);
    if (status == WM_OK)
      status = wm_stage_sweep(&inputs, err);
  }
  wm_inputs_close(&inputs);
  return status;
}

/* Settings that only a later stage would find wrong. Collective. */
static wm_status_t check_settings(const wm_run_t *run, wm_error_t *err) {
  wm_arch_t arch;
  unsigned required, roles = roles_of(run, &required);
  wm_status_t status = wm_arch_read(wm_config_string(run->config, "model.path"), &arch, err);
  if (status == WM_OK)
    status = wm_inputs_check(run, &arch, roles, err);
  if (status == WM_OK && fits_gates(run))
    status = wm_gate_check(run, &arch, err);
  if (status == WM_OK)
    status = wm_sweep_check(run, &arch, err);
  return wm_agree(run->comm->world, status, err);
}

/* What a dry run can do without tokens. Collective. */
static wm_status_t check_model(const wm_run_t *run, wm_error_t *err) {
  wm_model_t *model = NULL;
  wm_status_t status = wm_inputs_open_model(run, &model, err);
  wm_model_close(model);
  if (status == WM_OK && run->comm->rank == 0)
    fprintf(run->out, "fit, sweep: can be planned when the corpora are tokenised\n");
  return status;
}

wm_status_t wm_job_run(const wm_run_t *run, wm_error_t *err) {
  bool complete = false;
  wm_status_t status = check_settings(run, err);
  if (status == WM_OK)
    status = wm_output_ready(run, err);
  if (status == WM_OK)
    status = wm_stage_tokenize(run, &complete, err);
  if (status != WM_OK)
    return status;
  status = complete ? later_stages(run, err) : check_model(run, err);
  if (status == WM_OK && wm_config_bool(run->config, "report.enabled") && !run->dry_run)
    status = wm_stage_report(run, err);
  return status;
}
