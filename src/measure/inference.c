#include "wanamaker/measure/inference.h"

#include "wanamaker/base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

/* ---- Quantiles ------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double wm_quantile_sorted(const double *sorted, int64_t n, double q) {
  assert(q >= 0 && q <= 1);
  if (n == 0)
    return NAN;
  double position = q * (double)(n - 1);
  int64_t below = (int64_t)position;
  double fraction = position - (double)below;
  if (fraction == 0 || sorted[below] == sorted[below + 1]) /* also keeps inf - inf out */
    return sorted[below];
  return sorted[below] + fraction * (sorted[below + 1] - sorted[below]);
}

double wm_median(double *x, int64_t n) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++)
    if (!isnan(x[i]))
      x[count++] = x[i];
  if (count > 0) /* qsort takes no NULL */
    qsort(x, (size_t)count, sizeof *x, compare_doubles);
  return wm_quantile_sorted(x, count, 0.5);
}

bool wm_sort_numbers(double *x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (isnan(x[i]))
      return false;
  if (n > 0) /* qsort takes no NULL */
    qsort(x, (size_t)n, sizeof *x, compare_doubles);
  return true;
}

void wm_percentile_interval(double *x, int64_t n, double confidence, double *low, double *high) {
  *low = *high = NAN;
  if (n == 0 || !wm_sort_numbers(x, n))
    return;
  *low = wm_quantile_sorted(x, n, 0.5 * (1.0 - confidence));
  *high = wm_quantile_sorted(x, n, 0.5 * (1.0 + confidence));
}

/* ---- Multiple testing ------------------------------------------------------------------------ */

typedef struct {
  double p;
  int64_t index;
} ranked_t;

static int compare_ranked(const void *a, const void *b) {
  const ranked_t *x = a, *y = b;
  if (x->p != y->p)
    return x->p > y->p ? 1 : -1;
  return (x->index > y->index) - (x->index < y->index);
}

/* The family, ascending: entries of p[n] that are numbers. The others go straight to adjusted. */
static wm_status_t rank_family(const double *p, int64_t n, double *adjusted, ranked_t **family,
                               int64_t *count, wm_error_t *err) {
  void *memory;
  *count = 0;
  wm_status_t status = wm_alloc(&memory, n, sizeof(ranked_t), "p-values", err);
  if (status != WM_OK)
    return status;
  *family = memory;
  for (int64_t i = 0; i < n; i++) {
    if (isnan(p[i]))
      adjusted[i] = NAN;
    else
      (*family)[(*count)++] = (ranked_t){p[i], i};
  }
  qsort(*family, (size_t)*count, sizeof **family, compare_ranked);
  return WM_OK;
}

wm_status_t wm_adjust_holm(const double *p, int64_t n, double *adjusted, wm_error_t *err) {
  ranked_t *family;
  int64_t m;
  wm_status_t status = rank_family(p, n, adjusted, &family, &m, err);
  if (status != WM_OK)
    return status;
  double largest = 0;
  for (int64_t k = 0; k < m; k++) {
    largest = fmax(largest, (double)(m - k) * family[k].p);
    adjusted[family[k].index] = fmin(1.0, largest);
  }
  free(family);
  return WM_OK;
}

wm_status_t wm_adjust_bh(const double *p, int64_t n, double *adjusted, wm_error_t *err) {
  ranked_t *family;
  int64_t m;
  wm_status_t status = rank_family(p, n, adjusted, &family, &m, err);
  if (status != WM_OK)
    return status;
  double smallest = 1;
  for (int64_t k = m - 1; k >= 0; k--) {
    smallest = fmin(smallest, (double)m / (double)(k + 1) * family[k].p);
    adjusted[family[k].index] = smallest;
  }
  free(family);
  return WM_OK;
}

/* ---- Fit and correlation --------------------------------------------------------------------- */

double wm_r_squared(double sse, double total) {
  return total > 0 ? 1.0 - sse / total : NAN;
}

static double mean(const double *x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += x[i];
  return sum / (double)n;
}

/* A constant's mean may be off by a rounding, so deviations can't tell. */
static bool is_constant(const double *x, int64_t n) {
  for (int64_t i = 1; i < n; i++)
    if (x[i] != x[0])
      return false;
  return true;
}

double wm_pearson(const double *x, const double *y, int64_t n) {
  if (n < 2 || is_constant(x, n) || is_constant(y, n))
    return NAN;
  double mx = mean(x, n), my = mean(y, n), xx = 0, yy = 0, xy = 0;
  for (int64_t i = 0; i < n; i++) {
    double dx = x[i] - mx, dy = y[i] - my;
    xx += dx * dx;
    yy += dy * dy;
    xy += dx * dy;
  }
  return xy / (sqrt(xx) * sqrt(yy));
}
