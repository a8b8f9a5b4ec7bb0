/* Buffers of a training pass: what is kept for the backward pass, and what is scratch. */
#include "training_state.h"

#include "wanamaker/base/mem.h"

#include <omp.h>
#include <stddef.h>
#include <stdlib.h>

enum { N_SAVED = 9, N_BUFFERS = 24, ALIGN = 64, DEFAULT_LOGITS = 256 << 20 };

/* An array's place in a block of memory: where its pointer goes, and its size. */
typedef struct {
  void *pointer;
  int64_t bytes;
} part_t;

/* Rounds sizes up to whole cache lines; returns their sum. */
static int64_t align_parts(part_t *parts, int count) {
  int64_t total = 0;
  for (int i = 0; i < count; i++) {
    parts[i].bytes = (parts[i].bytes + ALIGN - 1) / ALIGN * ALIGN;
    total += parts[i].bytes;
  }
  return total;
}

static void place_parts(const part_t *parts, int count, char *memory) {
  for (int i = 0; i < count; i++) {
    *(void **)parts[i].pointer = parts[i].bytes > 0 ? memory : NULL;
    memory += parts[i].bytes;
  }
}

static int64_t whole_tiles(const wm_model_t *model, int64_t rows) {
  int64_t tile = model->options.tile_rows;
  return rows > 0 ? (rows + tile - 1) / tile * tile : tile;
}

/* What a layer keeps. */
typedef struct {
  bool input, rest; /* the input alone with checkpointing; the rest in the shared one */
  bool mlp, gated;  /* the layer's path computes an MLP, a gate */
} keep_t;

static int64_t list_saved(const wm_model_t *model, const wm_training_options_t *options,
                          keep_t keep, wm_saved_t *s, part_t *parts) {
  const int64_t rows = whole_tiles(model, options->max_rows) * (int64_t)sizeof(float);
  const int64_t d = rows * model->arch.d_model, rest = keep.rest, gated = rest && keep.gated;
  const part_t list[N_SAVED] = {
      {&s->input, keep.input ? d : 0},
      {&s->middle, rest && !model->arch.parallel_residual ? d : 0},
      {&s->qkv, rest * 3 * d},
      {&s->attended, rest * d},
      {&s->pre, rest && keep.mlp ? rows * model->arch.d_mlp : 0},
      {&s->mlp, gated * d},
      {&s->line, gated * d},
      {&s->gate_hidden, gated * rows * options->gate_hidden},
      {&s->gate, gated * rows},
  };
  for (int i = 0; i < N_SAVED; i++)
    parts[i] = list[i];
  return align_parts(parts, N_SAVED);
}

static wm_status_t reserve_saved(const wm_model_t *model, const wm_training_options_t *options,
                                 keep_t keep, wm_saved_t *saved, void **memory, wm_error_t *err) {
  part_t parts[N_SAVED];
  int64_t bytes = list_saved(model, options, keep, saved, parts);
  wm_status_t status = wm_alloc(memory, bytes, 1, "activations of a layer", err);
  if (status == WM_OK)
    place_parts(parts, N_SAVED, *memory);
  return status;
}

static int64_t largest(int64_t a, int64_t b) {
  return a > b ? a : b;
}

bool wm_training_keeps_logits(const wm_model_t *m, const wm_training_options_t *o) {
  const int64_t bytes =
      m->n_head_tiles * m->options.tile_rows * m->options.tile_vocab * (int64_t)sizeof(float);
  return bytes <= (o->logits_bytes > 0 ? o->logits_bytes : DEFAULT_LOGITS);
}

static int64_t list_buffers(const wm_model_t *m, const wm_training_options_t *o,
                            wm_pass_buffers_t *b, part_t *parts) {
  const int64_t f = sizeof(float), rows = whole_tiles(m, o->max_rows) * f, d = m->arch.d_model;
  const int64_t tile = m->options.tile_rows, width = m->options.tile_vocab;
  const int64_t plain = whole_tiles(m, o->max_rows);
  const int64_t attention = largest(wm_attention_scratch(o->max_length, m->arch.d_head),
                                    wm_attention_backward_scratch(o->max_length, m->arch.d_head));
  const part_t list[N_BUFFERS] = {
      {&b->h, rows * d},
      {&b->dh, rows * d},
      {&b->x, rows * d},
      {&b->dx, rows * d},
      {&b->y, rows * d},
      {&b->dy, rows * d},
      {&b->spare, rows * d},
      {&b->dqkv, rows * 3 * d},
      {&b->hidden, rows * m->arch.d_mlp},
      {&b->dhidden, rows * m->arch.d_mlp},
      {&b->dgate, rows * o->gate_hidden},
      {&b->dscore, rows},
      {&b->attention, omp_get_max_threads() * attention * f},
      {&b->final, tile * d * f},
      {&b->dfinal, tile * d * f},
      {&b->part, tile * d * f},
      {&b->logits, tile * width * f * (wm_training_keeps_logits(m, o) ? m->n_head_tiles : 1)},
      {&b->nll, tile * (int64_t)sizeof *b->nll},
      {&b->norms, plain * (int64_t)sizeof *b->norms},
      {&b->blocks, plain * (int64_t)sizeof *b->blocks},
      {&b->positions, plain * (int64_t)sizeof *b->positions},
      {&b->log_sums, tile * (int64_t)sizeof *b->log_sums},
      {&b->rows, tile * (int64_t)sizeof *b->rows},
      {&b->targets, tile * (int64_t)sizeof *b->targets},
  };
  for (int i = 0; i < N_BUFFERS; i++)
    parts[i] = list[i];
  return align_parts(parts, N_BUFFERS);
}

/* The lowest layer that the backward pass goes down to. */
static int64_t lowest_layer(const wm_model_t *model, const wm_training_options_t *o) {
  const uint32_t every = 1u << WM_GROUP_TOKENS | 1u << WM_GROUP_POSITIONS |
                         1u << WM_GROUP_ATTENTION | 1u << WM_GROUP_NORMS;
  for (int64_t i = 0; i < model->arch.n_layers; i++) {
    wm_mlp_path_t path = o->paths != NULL ? o->paths[i].path : WM_MLP_FULL;
    bool frozen = o->frozen_mlps != NULL && o->frozen_mlps[i];
    bool mlp = !frozen && (path == WM_MLP_FULL || (path == WM_MLP_GATED && !o->study_gradients));
    uint32_t own = every;
    if (mlp)
      own |= 1u << WM_GROUP_MLP;
    if (path == WM_MLP_GATED)
      own |= 1u << WM_GROUP_GATES;
    bool line = o->train_surrogates && path != WM_MLP_FULL;
    if (line || (o->trainable & own) != 0)
      return i;
  }
  return model->arch.n_layers;
}

static keep_t keep_of(const wm_training_options_t *o, int64_t layer, int64_t lowest) {
  wm_mlp_path_t path = o->paths != NULL ? o->paths[layer].path : WM_MLP_FULL;
  return (keep_t){.input = layer >= lowest,
                  .rest = layer >= lowest && !o->checkpointing,
                  .mlp = path != WM_MLP_SURROGATE,
                  .gated = path == WM_MLP_GATED};
}

static keep_t keep_shared(const wm_model_t *m, const wm_training_options_t *o) {
  keep_t keep = {.rest = true, .mlp = true};
  for (int64_t i = 0; i < m->arch.n_layers && o->paths != NULL; i++)
    keep.gated |= o->paths[i].path == WM_MLP_GATED;
  return keep;
}

int64_t wm_training_saved_bytes(const wm_model_t *model, const wm_training_options_t *options) {
  int64_t total = 0, lowest = lowest_layer(model, options);
  wm_saved_t saved;
  part_t parts[N_SAVED];
  for (int64_t i = 0; i < model->arch.n_layers; i++)
    total += list_saved(model, options, keep_of(options, i, lowest), &saved, parts);
  return total;
}

/* Of products that are not float32: the largest matrix, and the rows of the widest layer's gradient
 * or tile. */
static int64_t conversion_bytes(const wm_model_t *m, const wm_training_options_t *o) {
  const int64_t d = m->arch.d_model, f = m->arch.d_mlp;
  const int64_t widths[] = {3 * d, f,
                            m->options.tile_vocab < m->arch.vocab_size ? m->options.tile_vocab
                                                                       : m->arch.vocab_size};
  int64_t widest = 0;
  if (o->compute == WM_COMPUTE_F32)
    return 0;
  for (int i = 0; i < 3; i++)
    widest = largest(widest, widths[i]);
  return (d * widest + largest(o->max_length * (d + widest), m->options.tile_rows * widest)) *
         (int64_t)sizeof(float);
}

int64_t wm_training_scratch_bytes(const wm_model_t *model, const wm_training_options_t *options) {
  wm_pass_buffers_t buffers;
  wm_saved_t saved;
  part_t parts[N_BUFFERS];
  int64_t total = list_buffers(model, options, &buffers, parts);
  return total + list_saved(model, options, keep_shared(model, options), &saved, parts) +
         conversion_bytes(model, options);
}

wm_status_t wm_training_reserve(wm_training_t *t, wm_error_t *err) {
  const wm_training_options_t *o = &t->options;
  part_t parts[N_BUFFERS];
  wm_status_t status;
  t->whole = whole_tiles(t->model, o->max_rows);
  t->lowest = lowest_layer(t->model, o);
  for (int64_t i = 0; i < t->model->arch.n_layers; i++) {
    wm_layer_pass_t *l = &t->layers[i];
    WM_TRY(reserve_saved(t->model, o, keep_of(o, i, t->lowest), &l->saved, &l->memory, err));
  }
  WM_TRY(reserve_saved(t->model, o, keep_shared(t->model, o), &t->shared, &t->shared_memory, err));
  int64_t bytes = list_buffers(t->model, o, &t->buffers, parts);
  WM_TRY(wm_alloc(&t->buffers.memory, bytes, 1, "buffers of the training pass", err));
  place_parts(parts, N_BUFFERS, t->buffers.memory);
cleanup:
  return status;
}

void wm_training_release(wm_training_t *t) {
  for (int64_t i = 0; t->layers != NULL && i < t->model->arch.n_layers; i++)
    free(t->layers[i].memory);
  free(t->shared_memory);
  free(t->buffers.memory);
}
