/* The backward pass of a layer. Products that only frozen parameters would need are left out; the
 * gradient with respect to a layer's input is computed where something below it is trained. */
#include "training_state.h"

#include "wanamaker/base/control.h"
#include "wanamaker/linalg/activation.h"

#include <stddef.h>
#include <string.h>

/* What of a layer's backward pass is needed. */
typedef struct {
  bool below;     /* something under the layer is trained */
  bool attention; /* something of attention and its norm, or below */
  bool mlp_input; /* the gradient with respect to the MLP's input */
} needs_t;

static needs_t needs_of(const wm_training_t *t, int64_t layer) {
  needs_t n = {.below = layer > t->lowest || t->to_embeddings};
  n.attention = n.below || t->attention || t->norms;
  n.mlp_input = t->norms || (t->model->arch.parallel_residual ? n.below : n.attention);
  return n;
}

/* dh += the norm's part, and gradients of its parameters, where dx is that of its output and x its
 * input. */
static void norm_backward(const wm_training_t *t, const wm_norm_t *norm, const wm_norm_pass_t *to,
                          const wm_batch_t *batch, const float *x, bool need_dx) {
  const wm_pass_buffers_t *b = &t->buffers;
  int64_t rows = batch->starts[batch->n_sequences], d = norm->width;
  const double start = wm_profile_start(t->model->profile);
  if (need_dx)
    wm_norm_backward(norm, x, NULL, rows, b->dx, b->dh, b->norms);
  else
    wm_norm_statistics(norm, x, NULL, rows, b->norms);
  for (int64_t s = 0; s < batch->n_sequences && to->dgamma != NULL; s++) {
    int64_t first = batch->starts[s], n = batch->starts[s + 1] - first;
    wm_norm_parameters(norm, x + first * d, NULL, n, b->dx + first * d, b->norms + first,
                       to->dgamma, to->dbeta);
  }
  wm_profile_stop(t->model->profile, WM_KERNEL_NORM_BACKWARD, start, 0,
                  (need_dx ? 16.0 : 8.0) * (double)(rows * d));
}

static void activation_backward(const wm_training_t *t, const wm_dense_t *up, const float *pre,
                                int64_t rows) {
  const double start = wm_profile_start(t->model->profile);
  wm_activation_backward(up->activation, pre, rows, up->out, t->buffers.dhidden);
  wm_profile_stop(t->model->profile, WM_KERNEL_ACTIVATION_BACKWARD, start, 0,
                  12.0 * (double)(rows * up->out));
}

static void go_between(const wm_pass_t *pass) {
  if (pass->hook != NULL && pass->hook->between != NULL)
    pass->hook->between(pass->hook->context);
}

/* From the gradient dy of the MLP's output (after dropout; overwritten) to its parameters' and, if
 * needed, to dx. */
static wm_status_t mlp_backward(wm_training_t *t, int64_t layer, const wm_pass_t *pass,
                                const wm_saved_t *saved, float *dy, bool need_dx, wm_error_t *err) {
  const wm_layer_pass_t *l = &t->layers[layer];
  const wm_pass_buffers_t *b = &t->buffers;
  const wm_batch_t *batch = &pass->batch->rows;
  int64_t rows = wm_training_rows(pass);
  bool trained = l->up.dweight != NULL;
  wm_status_t status;
  if (!trained && !need_dx)
    return WM_OK;
  wm_training_drop(t, pass, layer, WM_DROP_MLP, dy);
  if (trained)
    wm_training_activate(t, l->up.dense, saved->pre, rows);
  WM_TRY(wm_dense_pass_backward(t, &l->down, batch, b->hidden, dy, b->dhidden, err));
  activation_backward(t, l->up.dense, saved->pre, rows);
  go_between(pass);
  WM_TRY(wm_dense_pass_backward(t, &l->up, batch, b->x, b->dhidden, need_dx ? b->dx : NULL, err));
  go_between(pass);
cleanup:
  return status;
}

/* Gradients of a surrogate that trains, from dy, that of its output. */
static wm_status_t line_gradients(const wm_training_t *t, const wm_layer_pass_t *l,
                                  const wm_batch_t *batch, wm_error_t *err) {
  const wm_pass_buffers_t *b = &t->buffers;
  const int64_t d = t->model->arch.d_model;
  wm_status_t status = WM_OK;
  for (int64_t s = 0; s < batch->n_sequences && l->dline_weight != NULL && status == WM_OK; s++) {
    int64_t first = batch->starts[s], n = batch->starts[s + 1] - first;
    wm_column_sums(b->dy + first * d, n, d, l->dline_bias);
    status =
        wm_training_weight_gradient(t, WM_KERNEL_SURROGATE_WEIGHT, l->surrogate_gradient, d, d,
                                    b->x + first * d, b->dy + first * d, n, l->dline_weight, err);
  }
  return status;
}

/* dx += (1 - g) dh W' of a gated layer, if needed, and gradients of the surrogate if it trains. */
static wm_status_t line_backward(wm_training_t *t, const wm_layer_pass_t *l,
                                 const wm_saved_t *saved, const wm_batch_t *batch, bool need_dx,
                                 wm_error_t *err) {
  const wm_pass_buffers_t *b = &t->buffers;
  int64_t rows = batch->starts[batch->n_sequences], d = t->model->arch.d_model;
  wm_gate_scale(saved->gate, true, b->dh, rows, d, b->dy);
  wm_status_t gradients = line_gradients(t, l, batch, err);
  if (gradients != WM_OK || !need_dx)
    return gradients;
  wm_status_t status = wm_training_dense(t, WM_KERNEL_SURROGATE_INPUT, l->surrogate_backward, b->dy,
                                         rows, d, d, b->spare, err);
  if (status == WM_OK)
    wm_training_add(t, b->dx, b->spare, rows * d);
  return status;
}

static wm_status_t gated_backward(wm_training_t *t, int64_t layer, const wm_pass_t *pass,
                                  const wm_saved_t *saved, bool need_dx, wm_error_t *err) {
  const wm_layer_pass_t *l = &t->layers[layer];
  const wm_pass_buffers_t *b = &t->buffers;
  int64_t rows = wm_training_rows(pass), d = t->model->arch.d_model;
  wm_status_t status;
  memset(b->dx, 0, (size_t)(rows * d) * sizeof *b->dx);
  if (!t->options.study_gradients) {
    wm_gate_scale(saved->gate, false, b->dh, rows, d, b->dy);
    WM_TRY(mlp_backward(t, layer, pass, saved, b->dy, need_dx, err));
  }
  if (need_dx || l->dline_weight != NULL)
    WM_TRY(line_backward(t, l, saved, &pass->batch->rows, need_dx, err));
  WM_TRY(wm_gate_pass_backward(t, l, pass, saved, need_dx, err));
cleanup:
  return status;
}

/* From dh, the gradient with respect to the layer's output, to dx. */
static wm_status_t path_backward(wm_training_t *t, int64_t layer, const wm_pass_t *pass,
                                 const wm_saved_t *saved, bool need_dx, wm_error_t *err) {
  const wm_layer_pass_t *l = &t->layers[layer];
  const wm_pass_buffers_t *b = &t->buffers;
  int64_t rows = wm_training_rows(pass), d = t->model->arch.d_model;
  if (l->path == WM_MLP_GATED)
    return gated_backward(t, layer, pass, saved, need_dx, err);
  wm_training_copy(t, b->dy, b->dh, rows * d);
  if (l->path == WM_MLP_FULL)
    return mlp_backward(t, layer, pass, saved, b->dy, need_dx, err);
  wm_status_t status = line_gradients(t, l, &pass->batch->rows, err);
  if (status != WM_OK || !need_dx)
    return status;
  return wm_training_dense(t, WM_KERNEL_SURROGATE_INPUT, l->surrogate_backward, b->dy, rows, d, d,
                           b->dx, err);
}

/* From dy, the gradient of what attention adds to the residual stream (overwritten), to that of its
 * parameters and to dx, the gradient of LN1's output. */
static wm_status_t attention_backward(wm_training_t *t, int64_t layer, const wm_pass_t *pass,
                                      const wm_saved_t *saved, float *dy, wm_error_t *err) {
  const wm_model_t *m = t->model;
  const wm_layer_pass_t *l = &t->layers[layer];
  const wm_pass_buffers_t *b = &t->buffers;
  const wm_batch_t *batch = &pass->batch->rows;
  const wm_qkv_layout_t layout = m->family->qkv_layout(&m->arch);
  int64_t rows = wm_training_rows(pass);
  wm_status_t status;
  wm_training_drop(t, pass, layer, WM_DROP_PROJECTED, dy);
  WM_TRY(wm_dense_pass_backward(t, &l->project, batch, saved->attended, dy, b->dx, err));
  go_between(pass);
  const wm_attention_dropout_t dropout = {wm_training_dropout(t, pass, layer, WM_DROP_ATTENTION),
                                          pass->batch->sequences, m->arch.max_positions};
  double start = wm_profile_start(m->profile);
  wm_attention_backward(&layout, saved->qkv, batch, m->family->score_scale(&m->arch, layer),
                        t->options.max_length, &dropout, saved->attended, b->dx, b->attention,
                        b->dqkv);
  wm_profile_stop(m->profile, WM_KERNEL_ATTENTION_BACKWARD, start,
                  2 * wm_training_attention_flops(t, batch), 0);
  go_between(pass);
  start = wm_profile_start(m->profile);
  if (m->rotary.dims > 0) {
    wm_rotary_backward(&m->rotary, &layout, b->positions, rows, b->dqkv);
    wm_profile_stop(m->profile, WM_KERNEL_ROTARY_BACKWARD, start, 0,
                    16.0 * (double)(rows * m->arch.n_heads * m->rotary.dims));
  }
  if (l->qkv.dweight != NULL)
    wm_block_norm(m, &m->layers[layer].attention_norm, l->saved.input, NULL, rows, b->x);
  bool need_dx = t->norms || needs_of(t, layer).below;
  WM_TRY(wm_dense_pass_backward(t, &l->qkv, batch, b->x, b->dqkv, need_dx ? b->dx : NULL, err));
cleanup:
  return status;
}

wm_status_t wm_training_layer_backward(wm_training_t *t, int64_t layer, const wm_pass_t *pass,
                                       const wm_saved_t *saved, wm_error_t *err) {
  const wm_layer_t *of = &t->model->layers[layer];
  const wm_layer_pass_t *l = &t->layers[layer];
  const wm_pass_buffers_t *b = &t->buffers;
  const wm_batch_t *batch = &pass->batch->rows;
  const needs_t need = needs_of(t, layer);
  bool parallel = t->model->arch.parallel_residual;
  const float *mlp_norm_input = parallel ? l->saved.input : saved->middle;
  int64_t rows = wm_training_rows(pass), d = t->model->arch.d_model;
  wm_status_t status;
  wm_pulse();
  wm_block_norm(t->model, &of->mlp_norm, mlp_norm_input, NULL, rows, b->x);
  WM_TRY(path_backward(t, layer, pass, saved, need.mlp_input, err));
  if (parallel) /* attention's output has the gradient of the layer's own */
    wm_training_copy(t, b->y, b->dh, rows * d);
  if (need.mlp_input)
    norm_backward(t, &of->mlp_norm, &l->mlp_norm, batch, mlp_norm_input,
                  parallel ? need.below : need.attention);
  if (!need.attention)
    return WM_OK;
  if (!parallel)
    wm_training_copy(t, b->y, b->dh, rows * d);
  WM_TRY(attention_backward(t, layer, pass, saved, b->y, err));
  if (t->norms || need.below)
    norm_backward(t, &of->attention_norm, &l->attention_norm, batch, l->saved.input, need.below);
cleanup:
  return status;
}
