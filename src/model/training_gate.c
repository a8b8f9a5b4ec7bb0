/* Gates between a layer's MLP and its surrogate (method.md, section 8). */
#include "training_state.h"

#include <math.h>
#include <stddef.h>

wm_status_t wm_gate_pass_create(wm_training_t *t, wm_gate_pass_t *gate, wm_error_t *err) {
  int64_t d = t->model->arch.d_model, h = t->options.gate_hidden;
  int64_t tile = t->model->options.tile_rows;
  wm_status_t status;
  WM_TRY(wm_linear_create(&gate->hidden, d, h, gate->w1, WM_WEIGHT_OUT_IN, gate->b1, WM_ACT_RELU,
                          tile, err));
  WM_TRY(wm_linear_create(&gate->backward, h, d, gate->w1, WM_WEIGHT_IN_OUT, NULL, WM_ACT_NONE,
                          tile, err));
cleanup:
  return status;
}

void wm_gate_pass_destroy(wm_gate_pass_t *gate) {
  wm_linear_free(gate->hidden);
  wm_linear_free(gate->backward);
}

/* By a float64 sum in a fixed order: a row's g depends on that row alone. */
static float open_gate(const wm_gate_pass_t *gate, const float *hidden, int64_t h) {
  double score = (double)gate->b2[0];
  for (int64_t j = 0; j < h; j++)
    score += (double)gate->w2[j] * (double)hidden[j];
  return (float)(1 / (1 + exp(-score)));
}

static void blend(const wm_saved_t *s, bool hard, int64_t rows, int64_t d, float *y) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < rows; i++) {
    float g = s->gate[i];
    if (hard)
      g = g >= 0.5f ? 1.0f : 0.0f;
    const float *mlp = s->mlp + i * d, *line = s->line + i * d;
    for (int64_t j = 0; j < d; j++)
      y[i * d + j] = g * mlp[j] + (1.0f - g) * line[j];
  }
}

wm_status_t wm_gate_pass_forward(wm_training_t *t, const wm_layer_pass_t *layer,
                                 const wm_pass_t *pass, const wm_saved_t *saved, wm_error_t *err) {
  int64_t rows = wm_training_rows(pass), d = t->model->arch.d_model, h = t->options.gate_hidden;
  const wm_gate_pass_t *gate = &layer->gate;
  const double start = wm_profile_start(t->model->profile);
  wm_block_pad(t->model, t->buffers.x, rows, d);
  wm_status_t status =
      wm_linear_apply_padded(gate->hidden, t->buffers.x, rows, saved->gate_hidden, err);
  if (status != WM_OK)
    return status;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < rows; i++)
    saved->gate[i] = open_gate(gate, saved->gate_hidden + i * h, h);
  blend(saved, pass->hard, rows, d, t->buffers.y);
  wm_profile_stop(t->model->profile, WM_KERNEL_GATE, start, 2.0 * (double)(rows * d * h), 0);
  return WM_OK;
}

void wm_gate_scale(const float *gate, bool rest, const float *x, int64_t rows, int64_t d,
                   float *y) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < rows; i++) {
    float factor = rest ? 1.0f - gate[i] : gate[i];
    for (int64_t j = 0; j < d; j++)
      y[i * d + j] = factor * x[i * d + j];
  }
}

/* dscore[i]: the derivative with respect to the gate's argument. */
static void score_gradients(const wm_training_t *t, const wm_pass_t *pass, const wm_saved_t *s,
                            float *dscore) {
  int64_t rows = wm_training_rows(pass), d = t->model->arch.d_model;
  double penalty = pass->batch->gate_scale / (double)t->n_gated;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < rows; i++) {
    const float *dy = t->buffers.dh + i * d, *mlp = s->mlp + i * d, *line = s->line + i * d;
    double sum = penalty, g = (double)s->gate[i];
    for (int64_t j = 0; j < d; j++)
      sum += (double)dy[j] * ((double)mlp[j] - (double)line[j]);
    dscore[i] = (float)(sum * g * (1 - g));
  }
}

/* dhidden[i, j] = dscore[i] w2[j] where relu was open. */
static void hidden_gradients(const wm_gate_pass_t *gate, const float *dscore, const float *hidden,
                             int64_t rows, int64_t h, float *dhidden) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < h; j++)
      dhidden[i * h + j] = hidden[i * h + j] > 0 ? dscore[i] * gate->w2[j] : 0.0f;
}

/* w2 and b2 of one sequence. */
static void output_gradients(const wm_gate_pass_t *gate, const float *dscore, const float *hidden,
                             int64_t n, int64_t h) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += (double)dscore[i];
  gate->db2[0] += (float)sum;
  for (int64_t j = 0; j < h; j++) {
    sum = 0;
    for (int64_t i = 0; i < n; i++)
      sum += (double)dscore[i] * (double)hidden[i * h + j];
    gate->dw2[j] += (float)sum;
  }
}

static wm_status_t parameter_gradients(const wm_training_t *t, const wm_gate_pass_t *gate,
                                       const wm_batch_t *batch, const wm_saved_t *saved,
                                       wm_error_t *err) {
  const wm_pass_buffers_t *b = &t->buffers;
  int64_t d = t->model->arch.d_model, h = t->options.gate_hidden;
  wm_status_t status = WM_OK;
  for (int64_t s = 0; s < batch->n_sequences && status == WM_OK; s++) {
    int64_t first = batch->starts[s], n = batch->starts[s + 1] - first;
    output_gradients(gate, b->dscore + first, saved->gate_hidden + first * h, n, h);
    wm_column_sums(b->dgate + first * h, n, h, gate->db1);
    status = wm_linear_weight_gradient(d, h, WM_WEIGHT_OUT_IN, b->x + first * d,
                                       b->dgate + first * h, n, gate->dw1, err);
  }
  return status;
}

wm_status_t wm_gate_pass_backward(wm_training_t *t, const wm_layer_pass_t *layer,
                                  const wm_pass_t *pass, const wm_saved_t *saved, bool need_dx,
                                  wm_error_t *err) {
  const wm_pass_buffers_t *b = &t->buffers;
  const wm_gate_pass_t *gate = &layer->gate;
  int64_t rows = wm_training_rows(pass), d = t->model->arch.d_model, h = t->options.gate_hidden;
  const double start = wm_profile_start(t->model->profile);
  wm_status_t status = WM_OK;
  score_gradients(t, pass, saved, b->dscore);
  hidden_gradients(gate, b->dscore, saved->gate_hidden, rows, h, b->dgate);
  if (gate->dw1 != NULL)
    WM_TRY(parameter_gradients(t, gate, &pass->batch->rows, saved, err));
  if (!need_dx)
    goto cleanup;
  wm_block_pad(t->model, b->dgate, rows, h);
  WM_TRY(wm_linear_apply_padded(gate->backward, b->dgate, rows, b->spare, err));
  wm_add_rows(b->dx, b->spare, rows * d);
cleanup:
  wm_profile_stop(t->model->profile, WM_KERNEL_GATE, start,
                  2.0 * (double)(rows * d * h) * ((gate->dw1 != NULL) + need_dx), 0);
  return status;
}
