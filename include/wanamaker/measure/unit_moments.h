/* Correlations, R^2 and means with bootstrap intervals over units (method.md, section 6).
 *
 * Of a unit only the moments of its pairs matter: count, sums of x, y, x x, y y, x y. Draws are
 * those of statistics.h: as many of the units that hold a pair as there are, on each resample.
 */
#ifndef WANAMAKER_MEASURE_UNIT_MOMENTS_H
#define WANAMAKER_MEASURE_UNIT_MOMENTS_H

#include "wanamaker/base/status.h"
#include "wanamaker/measure/statistics.h"

#include <mpi.h>
#include <stdint.h>

typedef struct {
  double n, x, y, xx, yy, xy;
} wm_moments_t;

typedef enum {
  WM_MOMENT_CORRELATION, /* of x and y */
  WM_MOMENT_R2,          /* of y predicted by x: 1 - sum (y - x)^2 / sum (y - mean y)^2 */
  WM_MOMENT_MEAN         /* of y */
} wm_moment_kind_t;

/* NaN where it is not defined (constant sides, no pairs). Not collective. */
double wm_moments_statistic(const wm_moments_t *m, wm_moment_kind_t kind);

/* A statistic of pairs, with its interval (interval.h; the units are those that hold a pair); NaN
 * from fewer than two. */
typedef struct {
  double value, low, high;
  wm_moments_t all; /* about the means of all pairs that are used */
  double mean_x, mean_y;
} wm_unit_statistic_t;

/* Collective over `comm`; equal arrays [n] on all ranks, which share out the resamples. Pairs with
 * used[i] != 0 count (NULL: all). The same bits for any number of ranks. */
wm_status_t wm_unit_statistic(MPI_Comm comm, wm_moment_kind_t kind, const double *x,
                              const double *y, const uint8_t *used, const int32_t *unit, int64_t n,
                              int64_t n_units, const wm_bootstrap_t *bootstrap,
                              wm_unit_statistic_t *out, wm_error_t *err);

#endif
