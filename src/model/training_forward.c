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

static void drop_rows(const wm_training_t *t, const wm_pass_t *pass, int64_t layer,
                      wm_dropout_site_t site, float *x) {
  const wm_dropout_t d = wm_training_dropout(t, pass, layer, site);
  wm_dropout_rows(&d, &pass->batch->rows, pass->batch->sequences, t->model->arch.d_model, x);
}

static void number_rows(const wm_batch_t *batch, int32_t *positions) {
  for (int64_t s = 0; s < batch->n_sequences; s++)
    for (int64_t row = batch->starts[s]; row < batch->starts[s + 1]; row++)
      positions[row] = (int32_t)(row - batch->starts[s]);
}

/* y <- dense layer of x, whose rows are padded here. */
static wm_status_t dense(const wm_training_t *t, wm_linear_t *linear, float *x, int64_t rows,
                         int64_t in, float *y, wm_error_t *err) {
  return wm_linear_apply(linear, x, wm_block_pad(t->model, x, rows, in), y, err);
}

/* buffers.y <- what attention adds to the residual stream. */
static wm_status_t attend(wm_training_t *t, int64_t layer, const wm_pass_t *pass,
                          const wm_saved_t *saved, wm_error_t *err) {
  const wm_model_t *m = t->model;
  const wm_pass_buffers_t *b = &t->buffers;
  const wm_layer_pass_t *l = &t->layers[layer];
  const wm_batch_t *batch = &pass->batch->rows;
  const wm_qkv_layout_t layout = m->family->qkv_layout(&m->arch);
  int64_t rows = wm_training_rows(pass), d = m->arch.d_model;
  wm_status_t status;
  wm_norm_apply(&m->layers[layer].attention_norm, b->h, NULL, rows, b->x);
  WM_TRY(dense(t, l->qkv.forward, b->x, rows, d, saved->qkv, err));
  if (m->rotary.dims > 0)
    wm_rotary_apply(&m->rotary, &layout, b->positions, rows, saved->qkv);
  const wm_attention_dropout_t dropout = {wm_training_dropout(t, pass, layer, WM_DROP_ATTENTION),
                                          pass->batch->sequences, m->arch.max_positions};
  int64_t n_blocks = wm_query_blocks(batch->n_sequences, batch->starts, b->blocks);
  wm_attention_apply_dropout(&layout, saved->qkv, b->blocks, n_blocks,
                             m->family->score_scale(&m->arch, layer), t->options.max_length,
                             &dropout, b->attention, saved->attended);
  WM_TRY(dense(t, l->project.forward, saved->attended, rows, d, b->y, err));
  drop_rows(t, pass, layer, WM_DROP_PROJECTED, b->y);
cleanup:
  return status;
}

/* out <- MLP(x) with its dropout. */
static wm_status_t run_mlp(wm_training_t *t, int64_t layer, const wm_pass_t *pass,
                           const wm_saved_t *saved, float *out, wm_error_t *err) {
  const wm_layer_pass_t *l = &t->layers[layer];
  const wm_pass_buffers_t *b = &t->buffers;
  int64_t rows = wm_training_rows(pass), d = t->model->arch.d_model, f = t->model->arch.d_mlp;
  wm_status_t status;
  WM_TRY(dense(t, l->up.forward, b->x, rows, d, saved->pre, err));
  wm_activation_forward(l->up.dense->activation, saved->pre, rows, f, b->hidden);
  WM_TRY(dense(t, l->down.forward, b->hidden, rows, f, out, err));
  drop_rows(t, pass, layer, WM_DROP_MLP, out);
cleanup:
  return status;
}

/* buffers.y <- what the layer's path makes of x. */
static wm_status_t run_path(wm_training_t *t, int64_t layer, const wm_pass_t *pass,
                            const wm_saved_t *saved, wm_error_t *err) {
  const wm_layer_pass_t *l = &t->layers[layer];
  const wm_pass_buffers_t *b = &t->buffers;
  int64_t rows = wm_training_rows(pass), d = t->model->arch.d_model;
  wm_status_t status;
  if (l->path == WM_MLP_FULL)
    return run_mlp(t, layer, pass, saved, b->y, err);
  if (l->path == WM_MLP_SURROGATE)
    return dense(t, l->surrogate, b->x, rows, d, b->y, err);
  WM_TRY(run_mlp(t, layer, pass, saved, saved->mlp, err));
  WM_TRY(dense(t, l->surrogate, b->x, rows, d, saved->line, err));
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
    wm_norm_apply(norm, b->h, NULL, rows, b->x);
  wm_add_rows(b->h, b->y, rows * d);
  if (!parallel) {
    memcpy(saved->middle, b->h, (size_t)(rows * d) * sizeof *b->h);
    wm_norm_apply(norm, b->h, NULL, rows, b->x);
  }
  WM_TRY(run_path(t, layer, pass, saved, err));
  wm_add_rows(b->h, b->y, rows * d);
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
  drop_rows(t, pass, 0, WM_DROP_EMBEDDING, b->h);
  number_rows(batch, b->positions);
  for (int64_t s = 0; s < batch->n_sequences && gate_sums != NULL; s++)
    gate_sums[s] = 0;
  for (int64_t layer = 0; layer < t->model->arch.n_layers; layer++) {
    const wm_layer_pass_t *l = &t->layers[layer];
    bool own = keep && layer >= t->lowest;
    const wm_saved_t *saved = own && !t->options.checkpointing ? &l->saved : &t->shared;
    if (own)
      memcpy(l->saved.input, b->h, (size_t)(rows * d) * sizeof *b->h);
    WM_TRY(wm_training_layer_forward(t, layer, pass, saved, err));
    if (gates != NULL && l->path == WM_MLP_GATED)
      memcpy(gates + l->gated * rows, saved->gate, (size_t)rows * sizeof *gates);
    if (gate_sums != NULL && l->path == WM_MLP_GATED)
      add_gates(t, batch, saved->gate, gate_sums);
  }
cleanup:
  return status;
}
