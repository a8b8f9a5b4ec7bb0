/* Quantiles, adjusted p-values and measures of fit: plain functions of arrays, not collective. */
#ifndef WANAMAKER_MEASURE_INFERENCE_H
#define WANAMAKER_MEASURE_INFERENCE_H

#include "wanamaker/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Fewest units from which a bootstrap interval is taken seriously: below, "beats the full model" is
 * never said. */
enum { WM_MIN_UNITS = 10 };

/* Quantile q in [0, 1] of sorted[n] by linear interpolation between order statistics: position
 * q (n - 1), NumPy's default ("type 7"). n = 0: NaN. */
double wm_quantile_sorted(const double *sorted, int64_t n, double q);

/* Median of those of x[n] that are no NaN (x is reordered); NaN if there are none. */
double wm_median(double *x, int64_t n);

/* Sorts x[n] in place, ascending; false, and nothing done, if one of them is NaN. */
bool wm_sort_numbers(double *x, int64_t n);

/* Central part of x[n] by interpolated quantiles, as NumPy and the study have it; x is sorted in
 * place. NaN if any x is NaN. What is claimed of effects rests on intervals that allow for few
 * units (interval.h). */
void wm_percentile_interval(double *x, int64_t n, double confidence, double *low, double *high);

/* Adjusted p-values of p[n]: Holm (family-wise error) and Benjamini-Hochberg (false discovery
 * rate). NaN entries stay NaN and are not counted in the family. `adjusted` may be `p`. */
wm_status_t wm_adjust_holm(const double *p, int64_t n, double *adjusted, wm_error_t *err);
wm_status_t wm_adjust_bh(const double *p, int64_t n, double *adjusted, wm_error_t *err);

/* 1 - sse / total; NaN unless total > 0. */
double wm_r_squared(double sse, double total);

/* Pearson correlation of x[n] and y[n]; NaN for n < 2 or a constant side. */
double wm_pearson(const double *x, const double *y, int64_t n);

#endif
