/* Model directories written by tests: random models, and golden ones with something changed. */
#ifndef WANAMAKER_TESTS_MODEL_WRITER_H
#define WANAMAKER_TESTS_MODEL_WRITER_H

#include "model_fixture.h"
#include "wanamaker/base/rng.h"

#include <jansson.h>
#include <unistd.h>

enum { WRITER_MAX = 128 };

/* Tensors to be written; their data are on the heap. */
typedef struct {
  wm_tensor_t tensors[WRITER_MAX];
  int count;
} writer_t;

static inline void writer_free(writer_t *w) {
  for (int i = 0; i < w->count; i++) {
    free((void *)w->tensors[i].name);
    free((void *)w->tensors[i].data);
  }
  w->count = 0;
}

static inline wm_tensor_t *writer_add(writer_t *w, const char *name, wm_dtype_t dtype, int n_dims,
                                      const int64_t *shape) {
  assert_true(w->count < WRITER_MAX);
  wm_tensor_t *t = &w->tensors[w->count++];
  *t = (wm_tensor_t){.name = strdup(name), .dtype = dtype, .n_dims = n_dims, .elements = 1};
  for (int i = 0; i < n_dims; i++) {
    t->shape[i] = shape[i];
    t->elements *= shape[i];
  }
  t->bytes = t->elements * wm_dtype_size(dtype);
  t->data = array(t->bytes, 1);
  return t;
}

static inline wm_tensor_t *writer_find(writer_t *w, const char *name) {
  for (int i = 0; i < w->count; i++)
    if (strcmp(w->tensors[i].name, name) == 0)
      return &w->tensors[i];
  fail_msg("no tensor %s", name);
  return NULL;
}

/* Takes over all tensors of the model in `dir`. */
static inline void writer_read(writer_t *w, const char *dir) {
  wm_error_t err = {0};
  wm_tensors_t *store;
  check(wm_tensors_open(dir, &store, &err), &err);
  for (int64_t i = 0; i < wm_tensors_count(store); i++) {
    const wm_tensor_t *from = wm_tensors_at(store, i);
    wm_tensor_t *t = writer_add(w, from->name, from->dtype, from->n_dims, from->shape);
    memcpy((void *)t->data, from->data, (size_t)from->bytes);
  }
  wm_tensors_close(store);
}

static inline FILE *open_in(const char *dir, const char *name) {
  char *path = wm_format("%s/%s", dir, name);
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  free(path);
  return f;
}

/* dir/model.safetensors. `shift` bytes (0 to 7) of padding misalign the data. */
static inline void writer_write(const writer_t *w, const char *dir, int shift) {
  json_t *header = json_object();
  int64_t offset = 0;
  for (int i = 0; i < w->count; i++) {
    const wm_tensor_t *t = &w->tensors[i];
    json_t *shape = json_array();
    for (int k = 0; k < t->n_dims; k++)
      json_array_append_new(shape, json_integer(t->shape[k]));
    json_object_set_new(header, t->name,
                        json_pack("{s:s, s:o, s:[I, I]}", "dtype", wm_dtype_name(t->dtype), "shape",
                                  shape, "data_offsets", (json_int_t)offset,
                                  (json_int_t)(offset + t->bytes)));
    offset += t->bytes;
  }
  char *text = json_dumps(header, 0);
  uint64_t length = (strlen(text) + 7) / 8 * 8 + (uint64_t)shift;
  FILE *f = open_in(dir, "model.safetensors");
  fwrite(&length, sizeof length, 1, f);
  fprintf(f, "%-*s", (int)length, text);
  for (int i = 0; i < w->count; i++)
    fwrite(w->tensors[i].data, 1, (size_t)w->tensors[i].bytes, f);
  assert_int_equal(fclose(f), 0);
  free(text);
  json_decref(header);
}

static inline void write_config(const char *dir, const char *text) {
  FILE *f = open_in(dir, "config.json");
  fputs(text, f);
  assert_int_equal(fclose(f), 0);
}

/* A new directory; remove_model_directory() frees the name. */
static inline char *model_directory(void) {
  const char *root = getenv("TMPDIR");
  char *path = wm_format("%s/wanamaker_model_XXXXXX", root != NULL ? root : "/tmp");
  assert_non_null(mkdtemp(path));
  return path;
}

static inline void remove_model_directory(char *dir) {
  static const char *const names[] = {"config.json", "model.safetensors"};
  for (int i = 0; i < 2; i++) {
    char *path = wm_format("%s/%s", dir, names[i]);
    unlink(path);
    free(path);
  }
  rmdir(dir);
  free(dir);
}

/* Shape of a random model; f = 4 d + 3, so that nothing divides. */
typedef struct {
  wm_family_t family;
  int64_t layers, heads, d, v, positions;
  bool parallel;
} random_spec_t;

static inline void add_random(writer_t *w, const char *name, double mean, double scale, int64_t n0,
                              int64_t n1) {
  const int64_t shape[] = {n0, n1};
  wm_tensor_t *t = writer_add(w, name, WM_DTYPE_F32, n1 > 0 ? 2 : 1, shape);
  float *x = (float *)t->data;
  for (int64_t i = 0; i < t->elements; i++)
    x[i] = (float)(mean + scale * wm_rng_normal((wm_rng_t){3, (uint64_t)w->count}, (uint64_t)i));
}

static inline void add_random_layer(writer_t *w, const char *format, int64_t layer, double mean,
                                    double scale, int64_t n0, int64_t n1) {
  char name[128];
  snprintf(name, sizeof name, format, (int)layer);
  add_random(w, name, mean, scale, n0, n1);
}

/* Weights by 1 / sqrt(inputs), so that every activation is of order one. */
static inline void add_dense(writer_t *w, const random_spec_t *s, const char *format, int64_t layer,
                             int64_t in, int64_t out) {
  char name[128];
  snprintf(name, sizeof name, "%s.weight", format);
  bool gpt2 = s->family == WM_FAMILY_GPT2;
  double scale = 1.0 / (double)(in < 16 ? 4 : in < 64 ? 8 : in < 256 ? 16 : 32);
  add_random_layer(w, name, layer, 0, scale, gpt2 ? in : out, gpt2 ? out : in);
  snprintf(name, sizeof name, "%s.bias", format);
  add_random_layer(w, name, layer, 0, 0.3, out, 0);
}

static inline void add_norm(writer_t *w, const char *format, int64_t layer, int64_t d) {
  char name[128];
  snprintf(name, sizeof name, "%s.weight", format);
  add_random_layer(w, name, layer, 1, 0.2, d, 0);
  snprintf(name, sizeof name, "%s.bias", format);
  add_random_layer(w, name, layer, 0, 0.2, d, 0);
}

static inline void write_random_model(const char *dir, const random_spec_t *s) {
  static writer_t w;
  bool gpt2 = s->family == WM_FAMILY_GPT2;
  int64_t d = s->d, f = 4 * d + 3;
  add_random(&w, gpt2 ? "wte.weight" : "embed_in.weight", 0, 0.5, s->v, d);
  add_random(&w, gpt2 ? "wpe.weight" : "embed_out.weight", 0, 0.3, gpt2 ? s->positions : s->v, d);
  for (int64_t i = 0; i < s->layers; i++) {
    add_norm(&w, gpt2 ? "h.%d.ln_1" : "layers.%d.input_layernorm", i, d);
    add_norm(&w, gpt2 ? "h.%d.ln_2" : "layers.%d.post_attention_layernorm", i, d);
    add_dense(&w, s, gpt2 ? "h.%d.attn.c_attn" : "layers.%d.attention.query_key_value", i, d,
              3 * d);
    add_dense(&w, s, gpt2 ? "h.%d.attn.c_proj" : "layers.%d.attention.dense", i, d, d);
    add_dense(&w, s, gpt2 ? "h.%d.mlp.c_fc" : "layers.%d.mlp.dense_h_to_4h", i, d, f);
    add_dense(&w, s, gpt2 ? "h.%d.mlp.c_proj" : "layers.%d.mlp.dense_4h_to_h", i, f, d);
  }
  add_norm(&w, gpt2 ? "ln_f" : "final_layer_norm", 0, d);
  writer_write(&w, dir, 0);
  writer_free(&w);
  char *config =
      wm_format("{\"model_type\": \"%s\", \"%s\": %d, \"%s\": %d, \"%s\": %d, \"%s\": %d,"
                " \"vocab_size\": %d, \"max_position_embeddings\": %d%s%s}",
                gpt2 ? "gpt2" : "gpt_neox", gpt2 ? "n_layer" : "num_hidden_layers", (int)s->layers,
                gpt2 ? "n_head" : "num_attention_heads", (int)s->heads,
                gpt2 ? "n_embd" : "hidden_size", (int)d, gpt2 ? "n_inner" : "intermediate_size",
                (int)f, (int)s->v, (int)s->positions, gpt2 ? "" : ", \"rotary_pct\": 0.5",
                gpt2 || s->parallel ? "" : ", \"use_parallel_residual\": false");
  write_config(dir, config);
  free(config);
}

#endif
