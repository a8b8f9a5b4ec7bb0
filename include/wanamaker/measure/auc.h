/* Bootstrap interval of an area under the ROC curve (method.md, section 6). */
#ifndef WANAMAKER_MEASURE_AUC_H
#define WANAMAKER_MEASURE_AUC_H

#include "wanamaker/base/status.h"
#include "wanamaker/measure/statistics.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

/* Collective over `comm`; all ranks pass equal arrays and share out the resamples. Interval
 * (interval.h) of wm_auc(score, label) from resamples of units: unit[n] in [0, n_units), of which
 * those that hold a labelled position are drawn, as many as there are, like in statistics.h. A
 * position of a unit that is drawn k times counts k times. NaN from fewer than two units, and if a
 * resample lacks a class. The same bits for any number of ranks. A resample takes as many steps as
 * there are positions, or pairs of units where those are fewer. */
wm_status_t wm_auc_interval(MPI_Comm comm, const double *score, const int8_t *label,
                            const int32_t *unit, int64_t n, int64_t n_units,
                            const wm_bootstrap_t *bootstrap, double *low, double *high,
                            wm_error_t *err);

/* Are pairs of units fewer than (labelled) positions? For who plans the work. */
bool wm_auc_is_paired(int64_t positions, int64_t units);

#endif
