/* What attention's forward and backward pass share: rows of scores and their softmax. */
#ifndef WANAMAKER_SRC_MODEL_SOFTMAX_H
#define WANAMAKER_SRC_MODEL_SOFTMAX_H

#include "vector.h"

/* Rows of scores start on whole vectors. */
static inline int64_t wm_scores_stride(int64_t max_length) {
  return (max_length + WM_LANES - 1) / WM_LANES * WM_LANES;
}

/* x[0 .. n - 1] <- e^(x - max), x[n .. width - 1] <- 0; returns 1 / sum. Up to the next whole
 * vector x is ours to write. */
static inline float wm_softmax_row(float *x, int64_t n, int64_t width) {
  float max = wm_row_max(x, n);
  int64_t whole = (n + WM_LANES - 1) / WM_LANES * WM_LANES;
  for (int64_t i = n; i < whole; i++)
    x[i] = -INFINITY;
  wm_lanes_t sum = {0};
  for (int64_t i = 0; i < whole; i += WM_LANES) {
    wm_lanes_t e = wm_lanes_exp(wm_lanes_load(x + i) - max);
    wm_lanes_store(x + i, e);
    sum += e;
  }
  if (whole < width)
    memset(x + whole, 0, (size_t)(width - whole) * sizeof *x);
  return (float)(1.0 / wm_lanes_sum(sum));
}

#endif
