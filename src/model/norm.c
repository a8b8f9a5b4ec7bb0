#include "vector.h"
#include "wanamaker/model/gradients.h"

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

/* The rounded mean misses the exact one by e, the shift; the squares then sum to
 * n (variance + e^2), and e is known from the remaining sum. */
static wm_norm_row_t row_statistics(const wm_norm_t *norm, const float *x) {
  int64_t n = norm->width;
  float mean = (float)(sum_shifted(x, n, 0) / (double)n);
  double rest = sum_shifted(x, n, mean) / (double)n;
  double variance = sum_squares_shifted(x, n, mean) / (double)n - rest * rest;
  return (wm_norm_row_t){mean, (float)rest, (float)(1.0 / sqrt(variance + norm->eps))};
}

static void norm_row(const wm_norm_t *norm, const float *x, float *out) {
  const float *gamma = norm->gamma, *beta = norm->beta;
  const wm_norm_row_t s = row_statistics(norm, x);
#pragma omp simd
  for (int64_t i = 0; i < norm->width; i++)
    out[i] = ((x[i] - s.mean) - s.shift) * s.factor * gamma[i] + beta[i];
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

static const float *row_at(const float *x, const int64_t *index, int64_t i, int64_t width) {
  return x + (index != NULL ? index[i] : i) * width;
}

/* With g = gamma dy and means over the row: dx = factor (g - mean(g) - xhat mean(g xhat)). */
static void backward_row(const wm_norm_t *norm, const float *x, const float *dy,
                         const wm_norm_row_t *s, float *dx) {
  int64_t n = norm->width, i = 0;
  const float *gamma = norm->gamma;
  wm_lanes_t sums = {0}, products = {0};
  for (; i + WM_LANES <= n; i += WM_LANES) {
    wm_lanes_t g = wm_lanes_load(gamma + i) * wm_lanes_load(dy + i);
    sums += g;
    products += g * ((wm_lanes_load(x + i) - s->mean) - s->shift);
  }
  if (i < n) {
    wm_lanes_t g = wm_lanes_load_part(gamma + i, n - i, 0) * wm_lanes_load_part(dy + i, n - i, 0);
    sums += g;
    products += g * ((wm_lanes_load_part(x + i, n - i, s->mean) - s->mean) - s->shift);
  }
  float mean = (float)(wm_lanes_sum(sums) / (double)n);
  float along = (float)(wm_lanes_sum(products) * (double)s->factor / (double)n);
#pragma omp simd
  for (i = 0; i < n; i++) {
    float xhat = ((x[i] - s->mean) - s->shift) * s->factor;
    dx[i] += s->factor * (gamma[i] * dy[i] - mean - xhat * along);
  }
}

void wm_norm_statistics(const wm_norm_t *norm, const float *x, const int64_t *index, int64_t rows,
                        wm_norm_row_t *statistics) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < rows; i++)
    statistics[i] = row_statistics(norm, row_at(x, index, i, norm->width));
}

void wm_norm_backward(const wm_norm_t *norm, const float *x, const int64_t *index, int64_t rows,
                      const float *dy, float *dx, wm_norm_row_t *statistics) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < rows; i++) {
    const float *row = row_at(x, index, i, norm->width);
    statistics[i] = row_statistics(norm, row);
    backward_row(norm, row, dy + i * norm->width, &statistics[i], dx + (row - x));
  }
}

enum { COLUMNS = 32 }; /* that a thread sums at a time */

void wm_norm_parameters(const wm_norm_t *norm, const float *x, const int64_t *index, int64_t rows,
                        const float *dy, const wm_norm_row_t *statistics, float *dgamma,
                        float *dbeta) {
  int64_t d = norm->width;
#pragma omp parallel for schedule(static)
  for (int64_t first = 0; first < d; first += COLUMNS) {
    double gamma[COLUMNS] = {0}, beta[COLUMNS] = {0};
    int64_t n = d - first < COLUMNS ? d - first : COLUMNS;
    for (int64_t i = 0; i < rows; i++) {
      const float *row = row_at(x, index, i, d) + first, *g = dy + i * d + first;
      const wm_norm_row_t s = statistics[i];
      for (int64_t j = 0; j < n; j++) {
        gamma[j] += (double)(((row[j] - s.mean) - s.shift) * s.factor) * (double)g[j];
        beta[j] += (double)g[j];
      }
    }
    for (int64_t j = 0; j < n; j++) {
      dgamma[first + j] += (float)gamma[j];
      dbeta[first + j] += (float)beta[j];
    }
  }
}

void wm_column_sums(const float *x, int64_t rows, int64_t cols, float *sums) {
#pragma omp parallel for schedule(static)
  for (int64_t first = 0; first < cols; first += COLUMNS) {
    double sum[COLUMNS] = {0};
    int64_t n = cols - first < COLUMNS ? cols - first : COLUMNS;
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < n; j++)
        sum[j] += (double)x[i * cols + first + j];
    for (int64_t j = 0; j < n; j++)
      sums[first + j] += (float)sum[j];
  }
}

void wm_scatter_rows(const float *x, const int32_t *ids, int64_t n, int64_t width, float *table) {
#pragma omp parallel for schedule(static)
  for (int64_t first = 0; first < width; first += COLUMNS) {
    int64_t count = width - first < COLUMNS ? width - first : COLUMNS;
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = first; j < first + count; j++)
        table[ids[i] * width + j] += x[i * width + j];
  }
}
