/* What the tests of the training pass share: random models of any shape, surrogates, batches. */
#ifndef WANAMAKER_TESTS_TRAINING_FIXTURE_H
#define WANAMAKER_TESTS_TRAINING_FIXTURE_H

#include "model_writer.h"
#include "wanamaker/model/dropout.h"
#include "wanamaker/model/reference_gradients.h"
#include "wanamaker/model/training.h"

#include <math.h>

/* A model and its paths, "f" (full), "s" (surrogate) or "g" (gated) for every layer. */
typedef struct {
  wm_family_t family;
  const char *paths;
  int64_t heads, d, f, v, positions;
  bool tied, parallel;
  const char *activation;
} training_spec_t;

enum { EVERYTHING = (1u << WM_GROUP_COUNT) - 1 };

/* Values are multiples of 2^-12 below 4, so that small steps away from them are exact in float32.
 */
static inline void coarsen(writer_t *w) {
  for (int i = 0; i < w->count; i++)
    for (int64_t j = 0; j < w->tensors[i].elements; j++) {
      float *x = (float *)w->tensors[i].data + j;
      *x = rintf(*x * 4096) / 4096;
    }
}

static inline void training_layer(writer_t *w, const training_spec_t *s, int64_t i) {
  const bool gpt2 = s->family == WM_FAMILY_GPT2;
  const random_spec_t kind = {.family = s->family};
  add_norm(w, gpt2 ? "h.%d.ln_1" : "layers.%d.input_layernorm", i, s->d);
  add_norm(w, gpt2 ? "h.%d.ln_2" : "layers.%d.post_attention_layernorm", i, s->d);
  add_dense(w, &kind, gpt2 ? "h.%d.attn.c_attn" : "layers.%d.attention.query_key_value", i, s->d,
            3 * s->d);
  add_dense(w, &kind, gpt2 ? "h.%d.attn.c_proj" : "layers.%d.attention.dense", i, s->d, s->d);
  add_dense(w, &kind, gpt2 ? "h.%d.mlp.c_fc" : "layers.%d.mlp.dense_h_to_4h", i, s->d, s->f);
  add_dense(w, &kind, gpt2 ? "h.%d.mlp.c_proj" : "layers.%d.mlp.dense_4h_to_h", i, s->f, s->d);
}

static inline void write_training_model(const char *dir, const training_spec_t *s) {
  static writer_t w;
  bool gpt2 = s->family == WM_FAMILY_GPT2;
  add_random(&w, gpt2 ? "wte.weight" : "embed_in.weight", 0, 0.5, s->v, s->d);
  if (!s->tied)
    add_random(&w, gpt2 ? "lm_head.weight" : "embed_out.weight", 0, 0.3, s->v, s->d);
  if (gpt2)
    add_random(&w, "wpe.weight", 0, 0.3, s->positions, s->d);
  for (int64_t i = 0; i < (int64_t)strlen(s->paths); i++)
    training_layer(&w, s, i);
  add_norm(&w, gpt2 ? "ln_f" : "final_layer_norm", 0, s->d);
  coarsen(&w);
  writer_write(&w, dir, 0);
  writer_free(&w);
  char *config = wm_format(
      "{\"model_type\": \"%s\", \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
      "\"hidden_size\": %d, \"%s\": %d, \"vocab_size\": %d, \"max_position_embeddings\": %d, "
      "\"%s\": \"%s\", \"tie_word_embeddings\": %s%s}",
      gpt2 ? "gpt2" : "gpt_neox", (int)strlen(s->paths), (int)s->heads, (int)s->d,
      gpt2 ? "n_inner" : "intermediate_size", (int)s->f, (int)s->v, (int)s->positions,
      gpt2 ? "activation_function" : "hidden_act", s->activation, s->tied ? "true" : "false",
      gpt2          ? ""
      : s->parallel ? ", \"rotary_pct\": 0.5"
                    : ", \"rotary_pct\": 0.5, \"use_parallel_residual\": false");
  write_config(dir, config);
  free(config);
}

/* A model that can be trained, with everything that belongs to it. */
typedef struct {
  training_spec_t spec;
  char *dir;
  wm_model_t *model;
  wm_layer_path_t *paths;
  float *surrogates;
  wm_training_t *training;
  wm_compute_t compute;
} trainee_t;

static inline wm_layer_path_t *make_paths(const training_spec_t *s, float **memory) {
  int64_t layers = (int64_t)strlen(s->paths), size = s->d * s->d + s->d;
  wm_layer_path_t *paths = array(layers, sizeof *paths);
  *memory = array(layers * size, sizeof **memory);
  for (int64_t i = 0; i < layers * size; i++)
    (*memory)[i] = (float)(0.5 / sqrt((double)s->d) * wm_rng_normal((wm_rng_t){8, 1}, (uint64_t)i));
  for (int64_t i = 0; i < layers; i++)
    if (s->paths[i] != 'f')
      paths[i] = (wm_layer_path_t){s->paths[i] == 's' ? WM_MLP_SURROGATE : WM_MLP_GATED,
                                   *memory + i * size, *memory + i * size + s->d * s->d};
  return paths;
}

/* Gates that are open to different degrees. */
static inline void open_gates(wm_training_t *training) {
  int64_t count;
  const wm_parameter_t *p = wm_training_parameters(training, &count);
  for (int64_t i = 0; i < count; i++)
    for (int64_t j = 0; p[i].group == WM_GROUP_GATES && j < p[i].elements; j++) {
      double x = wm_rng_normal((wm_rng_t){9, (uint64_t)i}, (uint64_t)j);
      p[i].value[j] = rintf((float)(x / 2) * 4096) / 4096;
    }
}

static inline trainee_t make_trainee(const wm_comm_t *comm, const training_spec_t *spec,
                                     wm_training_options_t options, int64_t tile_rows,
                                     int64_t tile_vocab) {
  trainee_t t = {.spec = *spec, .dir = model_directory(), .compute = options.compute};
  wm_error_t err = {0};
  const wm_model_options_t kind = {
      .tile_rows = tile_rows, .tile_vocab = tile_vocab, .writable = true};
  write_training_model(t.dir, spec);
  check(wm_model_open(comm, t.dir, &kind, NULL, &t.model, &err), &err);
  t.paths = make_paths(spec, &t.surrogates);
  options.paths = t.paths;
  check(wm_training_create(t.model, &options, &t.training, &err), &err);
  open_gates(t.training);
  return t;
}

static inline void free_trainee(trainee_t *t) {
  wm_training_free(t->training);
  wm_model_close(t->model);
  remove_model_directory(t->dir);
  free(t->paths);
  free(t->surrogates);
}

/* Sequences of the given lengths, drawn from their numbers; every fifth position but one has the
 * next token as its target. */
typedef struct {
  wm_training_batch_t batch;
  int64_t *starts, *sequences;
  int32_t *ids, *targets;
} test_batch_t;

static inline test_batch_t make_batch(int count, const int64_t *lengths, int64_t first_number,
                                      int64_t v) {
  test_batch_t b = {.starts = array(count + 1, sizeof *b.starts),
                    .sequences = array(count, sizeof *b.sequences)};
  for (int i = 0; i < count; i++)
    b.starts[i + 1] = b.starts[i] + lengths[i];
  b.ids = array(b.starts[count], sizeof *b.ids);
  b.targets = array(b.starts[count], sizeof *b.targets);
  for (int i = 0; i < count; i++) {
    b.sequences[i] = first_number + i;
    for (int64_t j = 0; j < lengths[i]; j++) {
      const wm_rng_t rng = {11, (uint64_t)b.sequences[i]};
      int64_t at = b.starts[i] + j;
      b.ids[at] = (int32_t)wm_rng_below(rng, (uint64_t)j, (uint64_t)v);
      b.targets[at] = (int32_t)wm_rng_below(rng, (uint64_t)j + 1, (uint64_t)v);
      if (j % 5 == 3)
        b.targets[at] = -1;
    }
  }
  b.batch = (wm_training_batch_t){.rows = {count, b.starts},
                                  .ids = b.ids,
                                  .targets = b.targets,
                                  .step = 3,
                                  .sequences = b.sequences,
                                  .nll_scale = 1.0 / 16,
                                  .gate_scale = 0.01};
  return b;
}

static inline void free_batch(test_batch_t *b) {
  free(b->starts), free(b->sequences), free(b->ids), free(b->targets);
}

/* Arrays for the gradient of every parameter. */
static inline double **make_gradients(const wm_training_t *training) {
  int64_t count;
  const wm_parameter_t *p = wm_training_parameters(training, &count);
  double **g = array(count, sizeof *g);
  for (int64_t i = 0; i < count; i++)
    g[i] = array(p[i].elements, sizeof **g);
  return g;
}

static inline void free_gradients(const wm_training_t *training, double **g) {
  int64_t count;
  wm_training_parameters(training, &count);
  for (int64_t i = 0; i < count; i++)
    free(g[i]);
  free(g);
}

static inline double norm_of(const double *x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += x[i] * x[i];
  return sqrt(sum);
}

#endif
