/* Sets of layers that are changed together, beside what their layers cost alone. */
#ifndef WANAMAKER_JOBS_JOINT_H
#define WANAMAKER_JOBS_JOINT_H

#include "inputs.h"
#include "wanamaker/measure/sweep.h"
#include "wanamaker/measure/variants.h"

/* Costs, in percent, of the variants that make one of the variant's changes each, added up; NaN for
 * a variant with one change, and where one of them was not measured. */
double wm_joint_sum_of_singles(const wm_sweep_t *sweep, int64_t variant);

/* Collective. With fit.sequential: measures each set of sweep.joint with the surrogates, and each
 * set of sweep.routed with the surrogates and gates (gate_sequential.h), that were fitted for it
 * one after the other (losses.joint-K.h5, losses.routed-K.h5) and prints it beside the sweep's own
 * number, for which they were fitted on the untouched model. `sweep` holds all these sets;
 * untouched: its surrogates. */
wm_status_t wm_joint_compare(const wm_inputs_t *inputs, const wm_surrogates_t *untouched,
                             const wm_sweep_t *sweep, wm_error_t *err);

#endif
