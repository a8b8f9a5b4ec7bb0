/* A training pass as a whole: creation, and the order of its parts. */
#include "wanamaker/model/training.h"

#include "training_state.h"
#include "wanamaker/base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static wm_status_t create_surrogate(wm_training_t *t, wm_layer_pass_t *l,
                                    const wm_layer_path_t *path, wm_error_t *err) {
  int64_t d = t->model->arch.d_model, tile = t->model->options.tile_rows;
  wm_status_t status;
  assert(path->weight != NULL && path->bias != NULL);
  if (t->options.train_surrogates) {
    l->line_weight = (float *)path->weight;
    l->line_bias = (float *)path->bias;
  }
  WM_TRY(wm_linear_create(&l->surrogate, d, d, path->weight, WM_WEIGHT_IN_OUT, path->bias,
                          WM_ACT_NONE, tile, err));
  WM_TRY(wm_linear_create(&l->surrogate_backward, d, d, path->weight, WM_WEIGHT_OUT_IN, NULL,
                          WM_ACT_NONE, tile, err));
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
  WM_TRY(wm_dense_pass_create(t->model, &of->qkv, &l->qkv, err));
  WM_TRY(wm_dense_pass_create(t->model, &of->project, &l->project, err));
  WM_TRY(wm_dense_pass_create(t->model, &of->up, &l->up, err));
  WM_TRY(wm_dense_pass_create(t->model, &of->down, &l->down, err));
  if (path != NULL && path->path != WM_MLP_FULL) {
    WM_TRY(check_surrogate(path, layer, t->model->arch.d_model, err));
    WM_TRY(create_surrogate(t, l, path, err));
  }
cleanup:
  return status;
}

static wm_status_t create_head(wm_training_t *t, wm_error_t *err) {
  const wm_model_t *m = t->model;
  int64_t width = m->options.tile_vocab, d = m->arch.d_model;
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, m->n_head_tiles, sizeof(wm_linear_t *), "tiles of the head", err));
  t->head_backward = memory;
  for (int64_t i = 0; i < m->n_head_tiles; i++) {
    int64_t first = i * width, rest = m->arch.vocab_size - first;
    WM_TRY(wm_linear_create(&t->head_backward[i], rest < width ? rest : width, d,
                            (const float *)m->head.data + first * d, WM_WEIGHT_IN_OUT, NULL,
                            WM_ACT_NONE, m->options.tile_rows, err));
  }
cleanup:
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
  wm_gate_pass_destroy(&l->gate);
}

void wm_training_free(wm_training_t *t) {
  if (t == NULL)
    return;
  wm_training_release(t);
  for (int64_t i = 0; t->layers != NULL && i < t->model->arch.n_layers; i++)
    free_layer(&t->layers[i]);
  for (int64_t i = 0; t->head_backward != NULL && i < t->model->n_head_tiles; i++)
    wm_linear_free(t->head_backward[i]);
  free(t->head_backward);
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
  memcpy(t->buffers.h, l->saved.input, (size_t)floats * sizeof(float));
  return wm_training_layer_forward(t, layer, pass, &t->shared, err);
}

static void embeddings_backward(wm_training_t *t, const wm_pass_t *pass) {
  const wm_pass_buffers_t *b = &t->buffers;
  int64_t rows = wm_training_rows(pass), d = t->model->arch.d_model;
  const wm_dropout_t dropout = wm_training_dropout(t, pass, 0, WM_DROP_EMBEDDING);
  wm_dropout_rows(&dropout, &pass->batch->rows, pass->batch->sequences, d, b->dh);
  if (t->dtokens != NULL)
    wm_scatter_rows(b->dh, pass->batch->ids, rows, d, t->dtokens);
  if (t->dpositions != NULL)
    wm_scatter_rows(b->dh, b->positions, rows, d, t->dpositions);
}

wm_status_t wm_training_accumulate(wm_training_t *t, const wm_training_batch_t *batch,
                                   const wm_training_hook_t *hook, wm_training_result_t *result,
                                   wm_error_t *err) {
  const wm_pass_t pass = {.batch = batch, .dropout = true};
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
