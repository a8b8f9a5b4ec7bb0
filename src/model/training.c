/* A training pass as a whole: creation, and the order of its parts. */
#include "wanamaker/model/training.h"

#include "training_state.h"
#include "wanamaker/base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static wm_status_t create_surrogate(wm_training_t *t, wm_layer_pass_t *l,
                                    const wm_layer_path_t *path, wm_error_t *err) {
  int64_t d = t->model->arch.d_model;
  wm_status_t status;
  assert(path->weight != NULL && path->bias != NULL);
  if (t->options.train_surrogates) {
    l->line_weight = (float *)path->weight;
    l->line_bias = (float *)path->bias;
  }
  WM_TRY(
      wm_training_linear(t, d, d, path->weight, WM_WEIGHT_IN_OUT, path->bias, &l->surrogate, err));
  WM_TRY(wm_training_linear(t, d, d, path->weight, WM_WEIGHT_OUT_IN, NULL, &l->surrogate_backward,
                            err));
  if (t->options.train_surrogates)
    WM_TRY(wm_weight_gradient_create(&l->surrogate_gradient, d, d, WM_WEIGHT_IN_OUT,
                                     t->options.max_length, t->options.compute, &t->scratch, err));
cleanup:
  return status;
}

/* Surrogates are borrowed and may be anything: one that is not finite is named. */
static wm_status_t check_surrogate(const wm_layer_path_t *path, int64_t layer, int64_t d,
                                   wm_error_t *err) {
  for (int64_t i = 0; i < d * d + d; i++) {
    float x = i < d * d ? path->weight[i] : path->bias[i - d * d];
    if (!(x - x == 0))
      return wm_fail(err, WM_INPUT, "the surrogate of layer %lld is not finite", (long long)layer);
  }
  return WM_OK;
}

static wm_status_t check_rates(const wm_training_options_t *o, wm_error_t *err) {
  const double rates[] = {o->drop_embedding, o->drop_attention, o->drop_residual};
  for (int i = 0; i < 3; i++)
    if (!(rates[i] >= 0 && rates[i] < 1))
      return wm_fail(err, WM_INPUT, "a rate of dropout must be in [0, 1), but is %g", rates[i]);
  return WM_OK;
}

static wm_status_t create_layer(wm_training_t *t, int64_t layer, const wm_layer_path_t *path,
                                wm_error_t *err) {
  const wm_layer_t *of = &t->model->layers[layer];
  wm_layer_pass_t *l = &t->layers[layer];
  wm_status_t status;
  WM_TRY(wm_dense_pass_create(t, &of->qkv, WM_KERNEL_QKV, WM_KERNEL_QKV_INPUT, &l->qkv, err));
  WM_TRY(wm_dense_pass_create(t, &of->project, WM_KERNEL_PROJECT, WM_KERNEL_PROJECT_INPUT,
                              &l->project, err));
  WM_TRY(wm_dense_pass_create(t, &of->up, WM_KERNEL_UP, WM_KERNEL_UP_INPUT, &l->up, err));
  WM_TRY(wm_dense_pass_create(t, &of->down, WM_KERNEL_DOWN, WM_KERNEL_DOWN_INPUT, &l->down, err));
  if (path != NULL && path->path != WM_MLP_FULL) {
    WM_TRY(check_surrogate(path, layer, t->model->arch.d_model, err));
    WM_TRY(create_surrogate(t, l, path, err));
  }
cleanup:
  return status;
}

static wm_status_t create_head_tile(wm_training_t *t, int64_t tile, wm_error_t *err) {
  const wm_model_t *m = t->model;
  const int64_t d = m->arch.d_model, width = wm_head_width(m, tile);
  const float *weight = (const float *)m->head.data + tile * m->options.tile_vocab * d;
  wm_head_pass_t *h = &t->head[tile];
  wm_status_t status;
  h->forward = m->head_tiles[tile];
  if (t->options.compute != WM_COMPUTE_F32) {
    WM_TRY(wm_training_linear(t, d, width, weight, WM_WEIGHT_OUT_IN, NULL, &h->own, err));
    h->forward = h->own;
  }
  WM_TRY(wm_training_linear(t, width, d, weight, WM_WEIGHT_IN_OUT, NULL, &h->backward, err));
  const int64_t rows =
      m->options.tile_rows < t->options.max_length ? m->options.tile_rows : t->options.max_length;
  WM_TRY(wm_weight_gradient_create(&h->gradient, d, width, WM_WEIGHT_OUT_IN, rows,
                                   t->options.compute, &t->scratch, err));
cleanup:
  return status;
}

static wm_status_t create_head(wm_training_t *t, wm_error_t *err) {
  void *memory;
  wm_status_t status =
      wm_alloc(&memory, t->model->n_head_tiles, sizeof *t->head, "tiles of the head", err);
  t->head = memory;
  for (int64_t i = 0; i < t->model->n_head_tiles && status == WM_OK; i++)
    status = create_head_tile(t, i, err);
  return status;
}

/* Not collective. The passes' products come before the table, which then finds where gradients go,
 * and the gates' after it. */
static wm_status_t create_layers(wm_training_t *t, const wm_layer_path_t *paths, wm_error_t *err) {
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, t->model->arch.n_layers, sizeof(wm_layer_pass_t), "layers", err));
  t->layers = memory;
  for (int64_t i = 0; i < t->model->arch.n_layers; i++)
    WM_TRY(create_layer(t, i, paths != NULL ? &paths[i] : NULL, err));
  WM_TRY(create_head(t, err));
cleanup:
  return status;
}

static wm_status_t create_gates(wm_training_t *t, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int64_t i = 0; i < t->model->arch.n_layers && status == WM_OK; i++)
    if (t->layers[i].path == WM_MLP_GATED)
      status = wm_gate_pass_create(t, &t->layers[i].gate, err);
  return status;
}

wm_status_t wm_training_create(wm_model_t *model, const wm_training_options_t *options,
                               wm_training_t **out, wm_error_t *err) {
  assert(model->options.writable && options->max_rows > 0 && options->max_length > 0);
  void *memory;
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_training_t), "training pass", err);
  *out = NULL;
  if (status == WM_OK)
    status = check_rates(options, err);
  if (status == WM_OK)
    status = wm_compute_check(options->compute, err);
  status = wm_agree(model->comm->world, status, err);
  if (status != WM_OK) {
    free(memory);
    return status;
  }
  wm_training_t *t = memory;
  t->model = model;
  t->options = *options;
  WM_TRY(wm_agree(model->comm->world, create_layers(t, options->paths, err), err));
  WM_TRY(wm_training_make_table(t, options->paths, err));
  status = create_gates(t, err);
  if (status == WM_OK)
    status = wm_training_reserve(t, err);
  WM_TRY(wm_agree(model->comm->world, status, err));
  t->options.paths = NULL;
  t->options.frozen_mlps = NULL;
  *out = t;
  return WM_OK;
cleanup:
  wm_training_free(t);
  return status;
}

static void free_layer(wm_layer_pass_t *l) {
  wm_dense_pass_destroy(&l->qkv);
  wm_dense_pass_destroy(&l->project);
  wm_dense_pass_destroy(&l->up);
  wm_dense_pass_destroy(&l->down);
  wm_linear_free(l->surrogate);
  wm_linear_free(l->surrogate_backward);
  wm_weight_gradient_free(l->surrogate_gradient);
  wm_gate_pass_destroy(&l->gate);
}

void wm_training_free(wm_training_t *t) {
  if (t == NULL)
    return;
  wm_training_release(t);
  for (int64_t i = 0; t->layers != NULL && i < t->model->arch.n_layers; i++)
    free_layer(&t->layers[i]);
  for (int64_t i = 0; t->head != NULL && i < t->model->n_head_tiles; i++) {
    wm_linear_free(t->head[i].own);
    wm_linear_free(t->head[i].backward);
    wm_weight_gradient_free(t->head[i].gradient);
  }
  free(t->head);
  wm_gemm_scratch_destroy(&t->scratch);
  free(t->layers);
  wm_training_free_table(t);
  free(t);
}

static wm_status_t check_batch(const wm_training_t *t, const wm_training_batch_t *batch,
                               wm_error_t *err) {
  const wm_batch_t *rows = &batch->rows;
  int64_t n = rows->starts[rows->n_sequences], v = t->model->arch.vocab_size;
  assert(rows->starts[0] == 0 && t->model->tiles == WM_TILES_FIXED);
  if (n > t->options.max_rows)
    return wm_fail(err, WM_INPUT, "a batch of %lld positions exceeds the training pass's %lld",
                   (long long)n, (long long)t->options.max_rows);
  for (int64_t s = 0; s < rows->n_sequences; s++)
    if (rows->starts[s + 1] - rows->starts[s] > t->options.max_length)
      return wm_fail(err, WM_INPUT, "a sequence of %lld tokens exceeds the training pass's %lld",
                     (long long)(rows->starts[s + 1] - rows->starts[s]),
                     (long long)t->options.max_length);
  for (int64_t i = 0; i < n; i++)
    if (batch->targets[i] >= v)
      return wm_fail(err, WM_INPUT, "target %lld is token %d, but the model has %lld tokens",
                     (long long)i, (int)batch->targets[i], (long long)v);
  return WM_OK;
}

static wm_status_t finish(const wm_training_t *t, const wm_training_hook_t *hook, int64_t segment,
                          wm_error_t *err) {
  int64_t first, count;
  if (hook == NULL || hook->finished == NULL)
    return WM_OK;
  wm_training_segment(t, segment, &first, &count);
  return hook->finished(hook->context, segment, t->gradients + first, count, err);
}

/* The layer's activations, computed anew if they were not kept. */
static wm_status_t activations(wm_training_t *t, int64_t layer, const wm_pass_t *pass,
                               const wm_saved_t **out, wm_error_t *err) {
  const wm_layer_pass_t *l = &t->layers[layer];
  int64_t floats = wm_training_rows(pass) * t->model->arch.d_model;
  *out = t->options.checkpointing ? &t->shared : &l->saved;
  if (!t->options.checkpointing)
    return WM_OK;
  wm_training_copy(t, t->buffers.h, l->saved.input, floats);
  return wm_training_layer_forward(t, layer, pass, &t->shared, err);
}

static void embeddings_backward(wm_training_t *t, const wm_pass_t *pass) {
  const wm_pass_buffers_t *b = &t->buffers;
  int64_t rows = wm_training_rows(pass), d = t->model->arch.d_model;
  wm_training_drop(t, pass, 0, WM_DROP_EMBEDDING, b->dh);
  const double start = wm_profile_start(t->model->profile);
  if (t->dtokens != NULL)
    wm_scatter_rows(b->dh, pass->batch->ids, rows, d, t->dtokens);
  if (t->dpositions != NULL)
    wm_scatter_rows(b->dh, b->positions, rows, d, t->dpositions);
  wm_profile_stop(t->model->profile, WM_KERNEL_EMBED_BACKWARD, start, 0, 12.0 * (double)(rows * d));
}

wm_status_t wm_training_accumulate(wm_training_t *t, const wm_training_batch_t *batch,
                                   const wm_training_hook_t *hook, wm_training_result_t *result,
                                   wm_error_t *err) {
  const wm_pass_t pass = {.batch = batch, .dropout = true, .hook = hook};
  int64_t layers = t->model->arch.n_layers;
  wm_status_t status;
  WM_TRY(check_batch(t, batch, err));
  WM_TRY(wm_training_forward(t, &pass, true, NULL, result->gate, err));
  WM_TRY(wm_training_head(t, &pass, true, result->nll, NULL, err));
  WM_TRY(finish(t, hook, 0, err));
  for (int64_t layer = layers - 1; layer >= 0; layer--) {
    const wm_saved_t *saved;
    if (layer >= t->lowest) {
      WM_TRY(activations(t, layer, &pass, &saved, err));
      WM_TRY(wm_training_layer_backward(t, layer, &pass, saved, err));
    }
    WM_TRY(finish(t, hook, layers - layer, err));
  }
  if (t->to_embeddings)
    embeddings_backward(t, &pass);
  WM_TRY(finish(t, hook, layers + 1, err));
cleanup:
  return status;
}

wm_status_t wm_training_evaluate(wm_training_t *t, const wm_training_batch_t *batch, bool hard,
                                 double *nll, float *g, wm_error_t *err) {
  const wm_training_batch_t plain = {
      .rows = batch->rows, .ids = batch->ids, .targets = batch->targets};
  const wm_pass_t pass = {.batch = &plain, .hard = hard};
  wm_status_t status;
  WM_TRY(check_batch(t, batch, err));
  WM_TRY(wm_training_forward(t, &pass, false, g, NULL, err));
  WM_TRY(wm_training_head(t, &pass, false, NULL, nll, err));
cleanup:
  return status;
}
