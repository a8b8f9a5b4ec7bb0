#include "wanamaker/measure/interval.h"

#include "wanamaker/base/distribution.h"
#include "wanamaker/measure/inference.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const char *const names[] = {"expanded", "percentile"};

bool wm_interval_parse(const char *name, wm_interval_kind_t *out) {
  for (int i = 0; i <= WM_INTERVAL_PERCENTILE; i++) {
    if (strcmp(name, names[i]) == 0) {
      *out = (wm_interval_kind_t)i;
      return true;
    }
  }
  return false;
}

const char *wm_interval_name(wm_interval_kind_t kind) {
  return names[kind];
}

double wm_bootstrap_p(wm_interval_kind_t kind, int64_t beyond, int64_t n, int64_t units) {
  assert(units >= 2 && beyond >= 0 && beyond <= n);
  const double level = (double)(beyond + 1) / (double)(n + 1), u = (double)units;
  if (kind == WM_INTERVAL_PERCENTILE)
    return level;
  return wm_student_cdf(sqrt((u - 1) / u) * wm_normal_quantile(level), u - 1);
}

/* Part of the resamples that each bound leaves out. */
static double tail_level(wm_interval_kind_t kind, int64_t units, double confidence) {
  const double half = 0.5 * (1 - confidence), u = (double)units;
  if (kind == WM_INTERVAL_PERCENTILE)
    return half;
  return wm_normal_cdf(sqrt(u / (u - 1)) * wm_student_quantile(half, u - 1));
}

/* The bounds are the rank-th resamples from both ends, 0: none are far enough out. It is the
 * largest k with 2 wm_bootstrap_p(k - 1) <= 1 - confidence; the level gives it up to rounding. */
static int64_t tail_rank(wm_interval_kind_t kind, int64_t n, int64_t units, double confidence) {
  const double alpha = 1 - confidence;
  int64_t rank = (int64_t)(tail_level(kind, units, confidence) * (double)(n + 1));
  while (rank > 0 && 2 * wm_bootstrap_p(kind, rank - 1, n, units) > alpha)
    rank--;
  while (rank < n && 2 * wm_bootstrap_p(kind, rank, n, units) <= alpha)
    rank++;
  return rank;
}

bool wm_bootstrap_interval(wm_interval_kind_t kind, double *x, int64_t n, int64_t units,
                           double confidence, double *low, double *high) {
  assert(units >= 2 && confidence > 0 && confidence < 1);
  *low = *high = NAN;
  if (n == 0 || !wm_sort_numbers(x, n))
    return true;
  const int64_t rank = tail_rank(kind, n, units, confidence), k = rank > 0 ? rank : 1;
  *low = x[k - 1];
  *high = x[n - k];
  return rank > 0;
}

void wm_bootstrap_bounds(wm_interval_kind_t kind, double *x, int64_t n, int64_t units,
                         double confidence, double *low, double *high) {
  if (!wm_bootstrap_interval(kind, x, n, units, confidence, low, high))
    *low = *high = NAN;
}
