/* The forward pass of training: the kernels of block.c in their order, keeping what the backward
 * pass needs. */
#include "training_state.h"

#include "wanamaker/base/control.h"
#include "wanamaker/linalg/activation.h"

#include <stddef.h>
#include <string.h>

int64_t wm_training_rows(const wm_pass_t *pass) {
  return pass->batch->rows.starts[pass->batch->rows.n_sequences];
}

wm_dropout_t wm_training_dropout(const wm_training_t *t, const wm_pass_t *pass, int64_t layer,
                                 wm_dropout_site_t site) {
  const wm_training_options_t *o = &t->options;
  double rate = site == WM_DROP_EMBEDDING   ? o->drop_embedding
                : site == WM_DROP_ATTENTION ? o->drop_attention
                                            : o->drop_residual;
  return wm_dropout_make(pass->dropout ? rate : 0, o->seed, pass->batch->step, layer, site);
}

/* --- kernels, counted ---------------------------------------------------------------------------
 */

void wm_training_drop(const wm_training_t *t, const wm_pass_t *pass, int64_t layer,
                      wm_dropout_site_t site, float *x) {
  const wm_dropout_t d = wm_training_dropout(t, pass, layer, site);
  const double start = wm_profile_start(t->model->profile);
  wm_dropout_rows(&d, &pass->batch->rows, pass->batch->sequences, t->model->arch.d_model, x);
  wm_profile_stop(t->model->profile, WM_KERNEL_DROPOUT, start, 0,
                  8.0 * (double)(wm_training_rows(pass) * t->model->arch.d_model));
}

wm_status_t wm_training_dense(const wm_training_t *t, wm_kernel_t kernel, wm_linear_t *linear,
                              float *x, int64_t rows, int64_t in, int64_t out, float *y,
                              wm_error_t *err) {
  const double start = wm_profile_start(t->model->profile);
  wm_block_pad(t->model, x, rows, in);
  wm_status_t status = wm_linear_apply_padded(linear, x, rows, y, err);
  wm_profile_stop(t->model->profile, kernel, start, 2.0 * (double)rows * (double)(in * out), 0);
  return status;
}

double wm_training_attention_flops(const wm_training_t *t, const wm_batch_t *batch) {
  double sum = 0;
  for (int64_t s = 0; s < batch->n_sequences; s++) {
    const double n = (double)(batch->starts[s + 1] - batch->starts[s]);
    sum += n * wm_arch_flops_attention(&t->model->arch, (n + 1) / 2);
  }
  return sum;
}

void wm_training_copy(const wm_training_t *t, float *to, const float *from, int64_t count) {
  const double start = wm_profile_start(t->model->profile);
  memcpy(to, from, (size_t)count * sizeof *to);
  wm_profile_stop(t->model->profile, WM_KERNEL_COPY, start, 0, 8.0 * (double)count);
}

void wm_training_add(const wm_training_t *t, float *h, const float *y, int64_t count) {
  const double start = wm_profile_start(t->model->profile);
  wm_add_rows(h, y, count);
  wm_profile_stop(t->model->profile, WM_KERNEL_ADD, start, 0, 12.0 * (double)count);
}

void wm_training_activate(const wm_training_t *t, const wm_dense_t *up, const float *pre,
                          int64_t rows) {
  const double start = wm_profile_start(t->model->profile);
  wm_activation_forward(up->activation, pre, rows, up->out, t->buffers.hidden);
  wm_profile_stop(t->model->profile, WM_KERNEL_ACTIVATION, start, 0,
                  8.0 * (double)(rows * up->out));
}

/* --- passes -------------------------------------------------------------------------------------
 */

static void number_rows(const wm_batch_t *batch, int32_t *positions) {
  for (int64_t s = 0; s < batch->n_sequences; s++)
    for (int64_t row = batch->starts[s]; row < batch->starts[s + 1]; row++)
      positions[row] = (int32_t)(row - batch->starts[s]);
}

/* y <- dense layer of x. */
static wm_status_t dense(const wm_training_t *t, const wm_dense_pass_t *pass, float *x,
                         int64_t rows, float *y, wm_error_t *err) {
  return wm_training_dense(t, pass->kernel, pass->forward, x, rows, pass->dense->in,
                           pass->dense->out, y, err);
}

static wm_status_t surrogate(const wm_training_t *t, const wm_layer_pass_t *l, int64_t rows,
                             float *y, wm_error_t *err) {
  const int64_t d = t->model->arch.d_model;
  return wm_training_dense(t, WM_KERNEL_SURROGATE, l->surrogate, t->buffers.x, rows, d, d, y, err);
}

/* buffers.y <- what attention adds to the residual stream. */
static wm_status_t attend(wm_training_t *t, int64_t layer, const wm_pass_t *pass,
                          const wm_saved_t *saved, wm_error_t *err) {
  const wm_model_t *m = t->model;
  const wm_pass_buffers_t *b = &t->buffers;
  const wm_layer_pass_t *l = &t->layers[layer];
  const wm_batch_t *batch = &pass->batch->rows;
  const wm_qkv_layout_t layout = m->family->qkv_layout(&m->arch);
  int64_t rows = wm_training_rows(pass);
  wm_status_t status;
  wm_block_norm(m, &m->layers[layer].attention_norm, b->h, NULL, rows, b->x);
  WM_TRY(dense(t, &l->qkv, b->x, rows, saved->qkv, err));
  double start = wm_profile_start(m->profile);
  if (m->rotary.dims > 0) {
    wm_rotary_apply(&m->rotary, &layout, b->positions, rows, saved->qkv);
    wm_profile_stop(m->profile, WM_KERNEL_ROTARY, start, 0,
                    16.0 * (double)(rows * m->arch.n_heads * m->rotary.dims));
  }
  const wm_attention_dropout_t dropout = {wm_training_dropout(t, pass, layer, WM_DROP_ATTENTION),
                                          pass->batch->sequences, m->arch.max_positions};
  start = wm_profile_start(m->profile);
  int64_t n_blocks = wm_query_blocks(batch->n_sequences, batch->starts, b->blocks);
  wm_attention_apply_dropout(&layout, saved->qkv, b->blocks, n_blocks,
                             m->family->score_scale(&m->arch, layer), t->options.max_length,
                             &dropout, b->attention, saved->attended);
  wm_profile_stop(m->profile, WM_KERNEL_ATTENTION, start, wm_training_attention_flops(t, batch), 0);
  WM_TRY(dense(t, &l->project, saved->attended, rows, b->y, err));
  wm_training_drop(t, pass, layer, WM_DROP_PROJECTED, b->y);
cleanup:
  return status;
}

/* out <- MLP(x) with its dropout. */
static wm_status_t run_mlp(wm_training_t *t, int64_t layer, const wm_pass_t *pass,
                           const wm_saved_t *saved, float *out, wm_error_t *err) {
  const wm_layer_pass_t *l = &t->layers[layer];
  const wm_pass_buffers_t *b = &t->buffers;
  int64_t rows = wm_training_rows(pass);
  wm_status_t status;
  WM_TRY(dense(t, &l->up, b->x, rows, saved->pre, err));
  wm_training_activate(t, l->up.dense, saved->pre, rows);
  WM_TRY(dense(t, &l->down, b->hidden, rows, out, err));
  wm_training_drop(t, pass, layer, WM_DROP_MLP, out);
cleanup:
  return status;
}

/* buffers.y <- what the layer's path makes of x. */
static wm_status_t run_path(wm_training_t *t, int64_t layer, const wm_pass_t *pass,
                            const wm_saved_t *saved, wm_error_t *err) {
  const wm_layer_pass_t *l = &t->layers[layer];
  const wm_pass_buffers_t *b = &t->buffers;
  int64_t rows = wm_training_rows(pass);
  wm_status_t status;
  if (l->path == WM_MLP_FULL)
    return run_mlp(t, layer, pass, saved, b->y, err);
  if (l->path == WM_MLP_SURROGATE)
    return surrogate(t, l, rows, b->y, err);
  WM_TRY(run_mlp(t, layer, pass, saved, saved->mlp, err));
  WM_TRY(surrogate(t, l, rows, saved->line, err));
  WM_TRY(wm_gate_pass_forward(t, l, pass, saved, err));
cleanup:
  return status;
}

wm_status_t wm_training_layer_forward(wm_training_t *t, int64_t layer, const wm_pass_t *pass,
                                      const wm_saved_t *saved, wm_error_t *err) {
  const wm_model_t *m = t->model;
  const wm_pass_buffers_t *b = &t->buffers;
  const wm_norm_t *norm = &m->layers[layer].mlp_norm;
  int64_t rows = wm_training_rows(pass), d = m->arch.d_model;
  bool parallel = m->arch.parallel_residual;
  wm_status_t status;
  wm_pulse();
  WM_TRY(attend(t, layer, pass, saved, err));
  if (parallel)
    wm_block_norm(m, norm, b->h, NULL, rows, b->x);
  wm_training_add(t, b->h, b->y, rows * d);
  if (!parallel) {
    wm_training_copy(t, saved->middle, b->h, rows * d);
    wm_block_norm(m, norm, b->h, NULL, rows, b->x);
  }
  WM_TRY(run_path(t, layer, pass, saved, err));
  wm_training_add(t, b->h, b->y, rows * d);
cleanup:
  return status;
}

/* sums[s] += the sequence's sum of g over the number of gated layers. */
static void add_gates(const wm_training_t *t, const wm_batch_t *batch, const float *gate,
                      double *sums) {
  for (int64_t s = 0; s < batch->n_sequences; s++) {
    double sum = 0;
    for (int64_t i = batch->starts[s]; i < batch->starts[s + 1]; i++)
      sum += (double)gate[i];
    sums[s] += sum / (double)t->n_gated;
  }
}

wm_status_t wm_training_forward(wm_training_t *t, const wm_pass_t *pass, bool keep, float *gates,
                                double *gate_sums, wm_error_t *err) {
  const wm_batch_t *batch = &pass->batch->rows;
  const wm_pass_buffers_t *b = &t->buffers;
  int64_t rows = wm_training_rows(pass), d = t->model->arch.d_model;
  wm_status_t status;
  WM_TRY(wm_model_embed(t->model, batch, pass->batch->ids, b->h, err));
  wm_training_drop(t, pass, 0, WM_DROP_EMBEDDING, b->h);
  number_rows(batch, b->positions);
  for (int64_t s = 0; s < batch->n_sequences && gate_sums != NULL; s++)
    gate_sums[s] = 0;
  for (int64_t layer = 0; layer < t->model->arch.n_layers; layer++) {
    const wm_layer_pass_t *l = &t->layers[layer];
    bool own = keep && layer >= t->lowest;
    const wm_saved_t *saved = own && !t->options.checkpointing ? &l->saved : &t->shared;
    if (own)
      wm_training_copy(t, l->saved.input, b->h, rows * d);
    WM_TRY(wm_training_layer_forward(t, layer, pass, saved, err));
    if (gates != NULL && l->path == WM_MLP_GATED)
      memcpy(gates + l->gated * rows, saved->gate, (size_t)rows * sizeof *gates);
    if (gate_sums != NULL && l->path == WM_MLP_GATED)
      add_gates(t, batch, saved->gate, gate_sums);
  }
cleanup:
  return status;
}
