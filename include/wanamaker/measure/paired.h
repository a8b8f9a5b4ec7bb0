/* Paired effects of several sets of losses of the same predictions. */
#ifndef WANAMAKER_MEASURE_PAIRED_H
#define WANAMAKER_MEASURE_PAIRED_H

#include "wanamaker/base/status.h"
#include "wanamaker/measure/effects.h"
#include "wanamaker/measure/statistics.h"
#include "wanamaker/par/comm.h"

#include <stdint.h>

/* Collective over comm->world; equal arrays on all ranks, which share out the resamples. losses:
 * [rows, n] float32, row 0 the one that the others are compared with; units: [n] in 0 .. n_units -
 * 1 (windows.h). effects: [rows]; entry 0 has a delta of 0. WM_NUMERICAL if a loss of row 0 is not
 * finite; a row with such losses is NaN. */
wm_status_t wm_paired_effects(const wm_comm_t *comm, const float *losses, int64_t rows, int64_t n,
                              const int32_t *units, int64_t n_units,
                              const wm_bootstrap_t *bootstrap, wm_effect_t *effects,
                              wm_error_t *err);

#endif
