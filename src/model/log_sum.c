#include "vector.h"
#include "wanamaker/model/gradients.h"

void wm_log_sum_init(wm_log_sum_t *state, int64_t rows) {
  for (int64_t i = 0; i < rows; i++)
    state[i] = (wm_log_sum_t){.max = -INFINITY};
}

static void add_row(wm_log_sum_t *state, const float *x, int64_t n) {
  double max = (double)wm_row_max(x, n);
  max = state->max > max ? state->max : max;
  wm_half_f64_t sums = {0};
  int64_t i = 0;
  for (; i + WM_LANES <= n; i += WM_LANES)
    sums = wm_lanes_add_f64(sums, wm_lanes_exp(wm_lanes_load(x + i) - (float)max));
  if (i < n) {
    wm_lanes_t rest = wm_lanes_load_part(x + i, n - i, -INFINITY);
    sums = wm_lanes_add_f64(sums, wm_lanes_exp(rest - (float)max));
  }
  double sum = state->sum > 0 ? state->sum * exp(state->max - max) : state->sum;
  for (int k = 0; k < WM_LANES / 2; k++)
    sum += sums[k];
  state->sum = sum;
  state->max = max;
}

void wm_log_sum_add(wm_log_sum_t *state, const float *logits, int64_t rows, int64_t first,
                    int64_t width, const int32_t *targets) {
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; row++) {
    const float *x = logits + row * width;
    if (targets[row] >= first && targets[row] < first + width)
      state[row].target_logit = (double)x[targets[row] - first];
    add_row(&state[row], x, width);
  }
}

double wm_log_sum_nll(const wm_log_sum_t *state) {
  return log(state->sum) + state->max - state->target_logit;
}

static void gradient_row(const wm_log_sum_t *state, int64_t n, float scale, float *x) {
  float max = (float)state->max, factor = (float)((double)scale / state->sum);
  int64_t i = 0;
  for (; i + WM_LANES <= n; i += WM_LANES)
    wm_lanes_store(x + i, wm_lanes_exp(wm_lanes_load(x + i) - max) * factor);
  if (i < n) {
    wm_lanes_t rest = wm_lanes_exp(wm_lanes_load_part(x + i, n - i, max) - max) * factor;
    memcpy(x + i, &rest, (size_t)(n - i) * sizeof *x);
  }
}

void wm_softmax_gradient(const wm_log_sum_t *state, const int32_t *targets, int64_t rows,
                         int64_t first, int64_t width, float nll_scale, float *logits) {
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; row++) {
    float *x = logits + row * width;
    gradient_row(&state[row], width, nll_scale, x);
    if (targets[row] >= first && targets[row] < first + width)
      x[targets[row] - first] -= nll_scale;
  }
}
