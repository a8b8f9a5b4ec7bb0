#include "vector.h"
#include "wanamaker/model/gradients.h"

void wm_log_sum_init(wm_log_sum_t *state, int64_t rows) {
  for (int64_t i = 0; i < rows; i++)
    state[i] = (wm_log_sum_t){.max = -INFINITY};
}

static double sum_of(wm_half_f64_t sums, double start) {
  for (int k = 0; k < WM_LANES / 2; k++)
    start += sums[k];
  return start;
}

static void store_part(float *to, wm_lanes_t v, int64_t count) {
  memcpy(to, &v, (size_t)count * sizeof *to);
}

/* Takes in x[n], whose largest element is `largest`; weights (NULL: not wanted) <- e^(x - max). */
static void add_row(wm_log_sum_t *state, const float *x, int64_t n, float largest, float *weights) {
  double max = state->max > (double)largest ? state->max : (double)largest;
  wm_half_f64_t sums = {0};
  int64_t i = 0;
  for (; i + WM_LANES <= n; i += WM_LANES) {
    wm_lanes_t e = wm_lanes_exp(wm_lanes_load(x + i) - (float)max);
    sums = wm_lanes_add_f64(sums, e);
    if (weights != NULL)
      wm_lanes_store(weights + i, e);
  }
  if (i < n) {
    wm_lanes_t rest = wm_lanes_load_part(x + i, n - i, -INFINITY);
    wm_lanes_t e = wm_lanes_exp(rest - (float)max);
    sums = wm_lanes_add_f64(sums, e);
    if (weights != NULL)
      store_part(weights + i, e, n - i);
  }
  double sum = state->sum > 0 ? state->sum * exp(state->max - max) : state->sum;
  state->sum = sum_of(sums, sum);
  state->max = max;
}

static void take_target(wm_log_sum_t *state, const float *x, int64_t first, int64_t width,
                        int32_t target) {
  if (target >= first && target < first + width)
    state->target_logit = (double)x[target - first];
}

void wm_log_sum_add(wm_log_sum_t *state, const float *logits, int64_t rows, int64_t first,
                    int64_t width, const int32_t *targets) {
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; row++) {
    const float *x = logits + row * width;
    take_target(&state[row], x, first, width, targets[row]);
    add_row(&state[row], x, width, wm_row_max(x, width), NULL);
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

/* --- comparison ---------------------------------------------------------------------------------
 */

void wm_compare_init(wm_compare_t *state, int64_t rows) {
  for (int64_t i = 0; i < rows; i++)
    state[i] = (wm_compare_t){.loss = {.max = -INFINITY}, .best = -INFINITY, .top = -1};
}

/* The first of equals is the best. */
static void take_best(wm_compare_t *s, const float *x, int64_t first, int64_t n, float largest) {
  if (!(largest > s->best))
    return;
  int64_t i = 0;
  while (i + 1 < n && x[i] != largest)
    i++;
  s->best = largest;
  s->top = (int32_t)(first + i);
}

/* S <- factor S + sum of weights (x - max). */
static void add_cross(wm_compare_t *s, const float *x, int64_t n, const float *weights,
                      const wm_compare_move_t *move) {
  const float max = (float)move->max;
  wm_half_f64_t sums = {0};
  int64_t i = 0;
  for (; i + WM_LANES <= n; i += WM_LANES)
    sums = wm_lanes_add_f64(sums, wm_lanes_load(weights + i) * (wm_lanes_load(x + i) - max));
  if (i < n)
    sums = wm_lanes_add_f64(sums, wm_lanes_load_part(weights + i, n - i, 0) *
                                      (wm_lanes_load_part(x + i, n - i, max) - max));
  s->cross = sum_of(sums, move->factor * s->cross);
}

void wm_compare_lead(wm_compare_t *leader, const float *logits, int64_t first, int64_t width,
                     int32_t target, float *weights, wm_compare_move_t *move) {
  const double before = leader->loss.max, sum = leader->loss.sum;
  const float largest = wm_row_max(logits, width);
  take_target(&leader->loss, logits, first, width, target);
  add_row(&leader->loss, logits, width, largest, weights);
  *move = (wm_compare_move_t){leader->loss.max, exp(before - leader->loss.max)};
  take_best(leader, logits, first, width, largest);
  const double kept = move->factor * leader->cross;
  add_cross(leader, logits, width, weights, move);
  if (sum > 0) /* what was summed at the earlier maximum */
    leader->own = move->factor * (leader->own + (before - move->max) * sum);
  leader->own += leader->cross - kept;
}

void wm_compare_follow(wm_compare_t *follower, const float *logits, int64_t first, int64_t width,
                       int32_t target, const float *weights, const wm_compare_move_t *move) {
  const float largest = wm_row_max(logits, width);
  take_target(&follower->loss, logits, first, width, target);
  add_row(&follower->loss, logits, width, largest, NULL);
  take_best(follower, logits, first, width, largest);
  add_cross(follower, logits, width, weights, move);
}

double wm_compare_entropy(const wm_compare_t *leader) {
  return log(leader->loss.sum) - leader->own / leader->loss.sum;
}

double wm_compare_divergence(const wm_compare_t *leader, const wm_compare_t *follower) {
  const wm_log_sum_t *f = &leader->loss, *g = &follower->loss;
  return (leader->cross - follower->cross) / f->sum + (log(g->sum) + g->max) -
         (log(f->sum) + f->max);
}
