/* What stages that measure losses of variants share: sweep and gate. */
#ifndef WANAMAKER_JOBS_LOSSES_H
#define WANAMAKER_JOBS_LOSSES_H

#include "inputs.h"
#include "wanamaker/measure/surrogates.h"
#include "wanamaker/measure/sweep.h"
#include "wanamaker/measure/variants.h"

#include <stdbool.h>
#include <stdint.h>

/* Options of a sweep as the settings say; parts and keep_whole are left to the caller. Collective
 * (it measures the machine's rate). */
wm_sweep_options_t wm_losses_options(const wm_run_t *run);

/* Not collective. Hash of all that the losses of `variants` on `text` depend on. */
uint64_t wm_losses_key(const wm_inputs_t *in, const wm_text_t *text,
                       const wm_surrogates_t *surrogates, const wm_variants_t *variants,
                       const wm_sweep_plan_t *plan);
/* Collective. The same for parts: losses of another backend, build, kind of CPU or number of
 * threads have other last digits, and a result is of one of each. Rank 0's, equal on all ranks. */
uint64_t wm_losses_parts_key(const wm_run_t *run, uint64_t losses_key);
/* Hash of the settings that statistics of losses depend on, chained to `seed`. */
uint64_t wm_losses_statistics_key(const wm_text_t *text, const wm_sweep_options_t *options,
                                  uint64_t seed);

/* A stage whose result is the losses of some variants on a range: NAME.h5 in output.dir, in the
 * form of sweep.h5, with parts in NAME.parts while it is under way. */
typedef struct {
  /* set by the caller; borrowed */
  const wm_inputs_t *in;
  const wm_text_t *text;
  const wm_surrogates_t *surrogates;
  const wm_variants_t *variants;
  const char *name;
  const wm_sweep_t
      *known; /* of the same text, see sweep.h; NULL: none. To be set before obtaining */
  bool plain; /* losses alone, whatever sweep.divergence says */
  /* set by wm_losses_prepare */
  wm_sweep_options_t options;
  wm_sweep_plan_t plan;
  char path[WM_PATH_SIZE], parts[WM_PATH_SIZE];
  uint64_t key;
  bool complete;
} wm_losses_stage_t;

/* Collective. */
wm_status_t wm_losses_prepare(wm_losses_stage_t *stage, wm_error_t *err);
/* On rank 0: what would be done, with estimates. */
void wm_losses_explain(const wm_losses_stage_t *stage);
/* Collective. Evaluates and publishes, or reads what is complete. Destroy *out also after a
 * failure. */
wm_status_t wm_losses_obtain(const wm_losses_stage_t *stage, wm_sweep_t *out, wm_error_t *err);

#endif
