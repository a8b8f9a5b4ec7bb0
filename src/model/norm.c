#include "vector.h"
#include "wanamaker/model/kernels.h"

#include <stddef.h>

/* Sum of (x[i] - shift) to the power of one or two. */
static double sum_shifted(const float *x, int64_t n, float shift) {
  wm_lanes_t sum = {0};
  int64_t i = 0;
  for (; i + WM_LANES <= n; i += WM_LANES)
    sum += wm_lanes_load(x + i) - shift;
  if (i < n)
    sum += wm_lanes_load_part(x + i, n - i, shift) - shift;
  return wm_lanes_sum(sum);
}

static double sum_squares_shifted(const float *x, int64_t n, float shift) {
  wm_lanes_t sum = {0};
  int64_t i = 0;
  for (; i + WM_LANES <= n; i += WM_LANES) {
    wm_lanes_t v = wm_lanes_load(x + i) - shift;
    sum += v * v;
  }
  if (i < n) {
    wm_lanes_t v = wm_lanes_load_part(x + i, n - i, shift) - shift;
    sum += v * v;
  }
  return wm_lanes_sum(sum);
}

static void norm_row(const wm_norm_t *norm, const float *x, float *out) {
  int64_t n = norm->width;
  const float *gamma = norm->gamma, *beta = norm->beta;
  float mean = (float)(sum_shifted(x, n, 0) / (double)n);
  /* The rounded mean misses the exact one by e; the squares then sum to n (variance + e^2), and e
   * is known from the remaining sum. */
  double rest = sum_shifted(x, n, mean) / (double)n;
  double variance = sum_squares_shifted(x, n, mean) / (double)n - rest * rest;
  float factor = (float)(1.0 / sqrt(variance + norm->eps));
  float shift = (float)rest;
#pragma omp simd
  for (int64_t i = 0; i < n; i++)
    out[i] = ((x[i] - mean) - shift) * factor * gamma[i] + beta[i];
}

void wm_norm_apply(const wm_norm_t *norm, const float *x, const int64_t *index, int64_t rows,
                   float *out) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < rows; i++)
    norm_row(norm, x + (index != NULL ? index[i] : i) * norm->width, out + i * norm->width);
}

void wm_add_rows(float *a, const float *b, int64_t count) {
#pragma omp parallel for simd schedule(static)
  for (int64_t i = 0; i < count; i++)
    a[i] += b[i];
}
