/* Stages that jobs share: `run` does them one after another on the same inputs. */
#ifndef WANAMAKER_JOBS_STAGES_H
#define WANAMAKER_JOBS_STAGES_H

#include "inputs.h"

/* Collective. Each skips what is complete for the same inputs; in a dry run it says what it would
 * do. */
wm_status_t wm_stage_tokenize(const wm_run_t *run, wm_error_t *err);
wm_status_t wm_stage_fit(const wm_inputs_t *inputs, wm_error_t *err);
wm_status_t wm_stage_sweep(const wm_inputs_t *inputs, wm_error_t *err);

/* An estimate of how long `flops` operations, shared out over all ranks, take, e.g. "4 min", from
 * the rate of a short product on this rank. */
void wm_stage_duration(const wm_run_t *run, double flops, char *text, size_t size);

#endif
