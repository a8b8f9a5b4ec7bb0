/* The parts of a GPT block that the families share.
 *
 * Matrix products get whole tiles of rows, padded here: a wm_linear_t that is given a part of a
 * tile keeps buffers of its own for it, which for all layers would be gigabytes. */
#include "family.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

wm_status_t wm_block_declare_tokens(wm_model_t *model, const char *embedding, const char *head,
                                    wm_error_t *err) {
  int64_t v = model->arch.vocab_size, d = model->arch.d_model;
  bool tied = model->arch.tied_head;
  model->head.layout = WM_WEIGHT_OUT_IN;
  wm_status_t status = wm_weights_want_rows(&model->weights, &model->tokens,
                                            tied ? &model->head : NULL, v, d, err, embedding);
  if (status != WM_OK || tied)
    return status;
  return wm_weights_want_matrix(&model->weights, &model->head, v, d, err, head);
}

wm_status_t wm_block_declare_dense(wm_model_t *model, wm_dense_t *dense, wm_dense_t shape,
                                   bool bias, wm_error_t *err, const char *name, ...) {
  char text[WM_WANT_NAME], full[WM_WANT_NAME + 8];
  va_list args;
  va_start(args, name);
  vsnprintf(text, sizeof text, name, args);
  va_end(args);
  snprintf(full, sizeof full, "%s.weight", text);
  *dense = shape;
  bool transposed = shape.weight.layout == WM_WEIGHT_OUT_IN;
  wm_status_t status =
      wm_weights_want_matrix(&model->weights, &dense->weight, transposed ? shape.out : shape.in,
                             transposed ? shape.in : shape.out, err, full);
  if (status == WM_OK && bias)
    status = wm_weights_want(&model->weights, &dense->bias, shape.out, 0, err, "%s.bias", text);
  return status;
}

wm_status_t wm_block_declare_norm(wm_model_t *model, wm_norm_t *norm, wm_error_t *err,
                                  const char *name, ...) {
  char text[WM_WANT_NAME];
  va_list args;
  va_start(args, name);
  vsnprintf(text, sizeof text, name, args);
  va_end(args);
  int64_t d = model->arch.d_model;
  *norm = (wm_norm_t){.width = d, .eps = model->arch.layer_norm_eps};
  wm_status_t status = wm_weights_want(&model->weights, &norm->gamma, d, 0, err, "%s.weight", text);
  if (status == WM_OK)
    status = wm_weights_want(&model->weights, &norm->beta, d, 0, err, "%s.bias", text);
  return status;
}

static wm_status_t create_linear(wm_model_t *m, wm_dense_t *d, wm_error_t *err) {
  return wm_linear_create_typed(&d->linear, d->in, d->out, &d->weight, d->bias, d->activation,
                                m->options.tile_rows, m->options.compute, &m->scratch, err);
}

wm_status_t wm_block_create_linears(wm_model_t *model, wm_layer_t *layer, wm_error_t *err) {
  wm_status_t status;
  WM_TRY(create_linear(model, &layer->qkv, err));
  WM_TRY(create_linear(model, &layer->project, err));
  WM_TRY(create_linear(model, &layer->up, err));
  WM_TRY(create_linear(model, &layer->down, err));
cleanup:
  return status;
}

wm_status_t wm_block_set_tiles(wm_layer_t *layer, wm_tiles_t tiles, wm_error_t *err) {
  wm_status_t status;
  WM_TRY(wm_linear_set_tiles(layer->qkv.linear, tiles, err));
  WM_TRY(wm_linear_set_tiles(layer->project.linear, tiles, err));
  WM_TRY(wm_linear_set_tiles(layer->up.linear, tiles, err));
  WM_TRY(wm_linear_set_tiles(layer->down.linear, tiles, err));
cleanup:
  return status;
}

void wm_block_free_linears(wm_layer_t *layer) {
  wm_linear_free(layer->qkv.linear);
  wm_linear_free(layer->project.linear);
  wm_linear_free(layer->up.linear);
  wm_linear_free(layer->down.linear);
}

/* Place of every row in its sequence. */
static void number_rows(const wm_batch_t *batch, int32_t *positions) {
  for (int64_t s = 0; s < batch->n_sequences; s++)
    for (int64_t row = batch->starts[s]; row < batch->starts[s + 1]; row++)
      positions[row] = (int32_t)(row - batch->starts[s]);
}

void wm_block_norm(const wm_model_t *model, const wm_norm_t *norm, const float *x,
                   const int64_t *index, int64_t rows, float *out) {
  double start = wm_profile_start(model->profile);
  wm_norm_apply(norm, x, index, rows, out);
  wm_profile_stop(model->profile, WM_KERNEL_NORM, start, 0, 8.0 * (double)(rows * norm->width));
}

/* y[rows, out] <- dense layer of x[rows, in], both with room for padding. */
static wm_status_t dense(const wm_model_t *model, wm_kernel_t kernel, const wm_dense_t *d,
                         const float *x, int64_t rows, float *y, wm_error_t *err) {
  double start = wm_profile_start(model->profile);
  wm_status_t status = wm_linear_apply_padded(d->linear, x, rows, y, err);
  wm_profile_stop(model->profile, kernel, start, 2.0 * (double)rows * (double)(d->in * d->out), 0);
  return status;
}

/* Scores and weighted sums of all positions up to each row's own, one layer. */
static double attention_flops(const wm_arch_t *arch, const wm_batch_t *batch) {
  double sum = 0;
  for (int64_t s = 0; s < batch->n_sequences; s++) {
    double n = (double)(batch->starts[s + 1] - batch->starts[s]);
    sum += n * wm_arch_flops_attention(arch, (n + 1) / 2);
  }
  return sum;
}

static void turn(const wm_model_t *model, const wm_qkv_layout_t *layout, const wm_batch_t *batch,
                 int64_t rows, wm_workspace_t *ws) {
  double start = wm_profile_start(model->profile);
  number_rows(batch, ws->positions);
  wm_rotary_apply(&model->rotary, layout, ws->positions, rows, ws->qkv);
  wm_profile_stop(model->profile, WM_KERNEL_ROTARY, start, 0,
                  16.0 * (double)(rows * model->arch.n_heads * model->rotary.dims));
}

static void mix(const wm_model_t *model, int64_t layer, const wm_qkv_layout_t *layout,
                const wm_batch_t *batch, wm_workspace_t *ws) {
  double start = wm_profile_start(model->profile);
  int64_t n_blocks = wm_query_blocks(batch->n_sequences, batch->starts, ws->blocks);
  wm_attention_apply(layout, ws->qkv, ws->blocks, n_blocks,
                     model->family->score_scale(&model->arch, layer), ws->max_length, ws->scores,
                     ws->normed);
  wm_profile_stop(model->profile, WM_KERNEL_ATTENTION, start, attention_flops(&model->arch, batch),
                  0);
}

void wm_block_pad(const wm_model_t *model, float *x, int64_t rows, int64_t width) {
  int64_t padded = wm_gemm_padded(model->tiles, model->options.tile_rows, rows);
  memset(x + rows * width, 0, (size_t)((padded - rows) * width) * sizeof *x);
}

wm_status_t wm_block_attention(wm_model_t *model, int64_t layer, const wm_batch_t *batch,
                               const float *h, wm_workspace_t *ws, wm_error_t *err) {
  wm_layer_t *l = &model->layers[layer];
  const wm_qkv_layout_t layout = model->family->qkv_layout(&model->arch);
  int64_t rows = batch->starts[batch->n_sequences];
  assert(batch->starts[0] == 0 && rows <= ws->max_rows);
  wm_block_norm(model, &l->attention_norm, h, NULL, rows, ws->normed);
  wm_block_pad(model, ws->normed, rows, model->arch.d_model);
  wm_status_t status;
  WM_TRY(dense(model, WM_KERNEL_QKV, &l->qkv, ws->normed, rows, ws->qkv, err));
  if (model->rotary.dims > 0)
    turn(model, &layout, batch, rows, ws);
  mix(model, layer, &layout, batch, ws);
  WM_TRY(dense(model, WM_KERNEL_PROJECT, &l->project, ws->normed, rows, ws->qkv, err));
cleanup:
  return status;
}

/* x and y have room for padding. */
static wm_status_t mlp_rows(wm_model_t *model, int64_t layer, const float *x, int64_t rows,
                            float *y, wm_workspace_t *ws, wm_error_t *err) {
  wm_layer_t *l = &model->layers[layer];
  assert(rows <= wm_workspace_together(model, ws));
  wm_status_t status = dense(model, WM_KERNEL_UP, &l->up, x, rows, ws->hidden, err);
  if (status == WM_OK)
    status = dense(model, WM_KERNEL_DOWN, &l->down, ws->hidden, rows, y, err);
  return status;
}

wm_status_t wm_model_mlp_padded(wm_model_t *model, int64_t layer, float *x, int64_t rows, float *y,
                                wm_workspace_t *ws, wm_error_t *err) {
  wm_block_pad(model, x, rows, model->arch.d_model);
  return mlp_rows(model, layer, x, rows, y, ws, err);
}

wm_status_t wm_block_mlp(wm_model_t *model, int64_t layer, const float *x, int64_t rows, float *y,
                         wm_workspace_t *ws, wm_error_t *err) {
  const int64_t d = model->arch.d_model, tile = model->options.tile_rows;
  const int64_t share = wm_gemm_share(model->tiles, tile, wm_workspace_together(model, ws), rows);
  wm_status_t status = WM_OK;
  for (int64_t first = 0; first < rows; first += share) {
    const int64_t n = rows - first < share ? rows - first : share;
    const float *xt = x + first * d;
    float *yt = y + first * d;
    if (n == wm_gemm_padded(model->tiles, tile, n)) {
      WM_TRY(mlp_rows(model, layer, xt, n, yt, ws, err));
      continue;
    }
    memcpy(ws->final, xt, (size_t)(n * d) * sizeof *x);
    WM_TRY(wm_model_mlp_padded(model, layer, ws->final, n, ws->normed, ws, err));
    memcpy(yt, ws->normed, (size_t)(n * d) * sizeof *y);
  }
cleanup:
  return status;
}
