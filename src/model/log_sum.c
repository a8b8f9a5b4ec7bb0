#include "vector.h"
#include "wanamaker/model/kernels.h"

void wm_log_sum_init(wm_log_sum_t *state, int64_t rows) {
  for (int64_t i = 0; i < rows; i++)
    state[i] = (wm_log_sum_t){.max = -INFINITY};
}

/* Sum of x[n] in float64, in a fixed order. */
static double sum_f64(const float *x, int64_t n) {
  wm_half_lanes_t low = {0}, high = {0};
  int64_t i = 0;
  for (; i + WM_LANES <= n; i += WM_LANES)
    for (int j = 0; j < WM_LANES / 2; j++) {
      low[j] += (double)x[i + j];
      high[j] += (double)x[i + WM_LANES / 2 + j];
    }
  double sum = 0;
  for (; i < n; i++)
    sum += (double)x[i];
  for (int j = 0; j < WM_LANES / 2; j++)
    sum += low[j] + high[j];
  return sum;
}

static void add_row(wm_log_sum_t *state, float *x, int64_t width) {
  float max = (float)state->max;
#pragma omp simd reduction(max : max)
  for (int64_t i = 0; i < width; i++)
    max = x[i] > max ? x[i] : max;
#pragma omp simd
  for (int64_t i = 0; i < width; i++)
    x[i] = wm_exp_f32(x[i] - max);
  double earlier = state->sum > 0 ? state->sum * exp(state->max - (double)max) : state->sum;
  state->sum = earlier + sum_f64(x, width);
  state->max = (double)max;
}

void wm_log_sum_add(wm_log_sum_t *state, float *logits, int64_t rows, int64_t first, int64_t width,
                    const int32_t *targets) {
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; row++) {
    float *x = logits + row * width;
    if (targets[row] >= first && targets[row] < first + width)
      state[row].target_logit = (double)x[targets[row] - first];
    add_row(&state[row], x, width);
  }
}

double wm_log_sum_nll(const wm_log_sum_t *state) {
  return log(state->sum) + state->max - state->target_logit;
}
