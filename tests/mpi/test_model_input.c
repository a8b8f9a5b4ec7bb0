/* Bad models: each is WM_INPUT on every rank, with a message that names the thing, and no rank
 * hangs. Good ones: equal results on every rank. */
#include "../unit/model_writer.h"

#include <math.h>

static const wm_comm_t *comm;

/* Changes of one tensor of the base model. */
static void drop(writer_t *w, const char *name) {
  wm_tensor_t *t = writer_find(w, name);
  free((void *)t->name);
  free((void *)t->data);
  *t = w->tensors[--w->count];
}

static void transpose(writer_t *w, const char *name) {
  wm_tensor_t *t = writer_find(w, name);
  int64_t rows = t->shape[0];
  t->shape[0] = t->shape[1];
  t->shape[1] = rows;
}

static void flatten(writer_t *w, const char *name) {
  wm_tensor_t *t = writer_find(w, name);
  t->shape[0] = t->elements;
  t->n_dims = 1;
}

static void put_nan(writer_t *w, const char *name) {
  wm_tensor_t *t = writer_find(w, name);
  ((float *)t->data)[t->elements - 1] = NAN;
}

static void put_infinity(writer_t *w, const char *name) {
  wm_tensor_t *t = writer_find(w, name);
  ((float *)t->data)[0] = -INFINITY;
}

static void put_half_infinity(writer_t *w, const char *name) {
  wm_tensor_t *t = writer_find(w, name);
  assert_int_equal(t->dtype, WM_DTYPE_F16);
  ((uint16_t *)t->data)[3] = 0x7c00;
}

static void make_integer(writer_t *w, const char *name) {
  writer_find(w, name)->dtype = WM_DTYPE_I32;
}

static void add_surplus(writer_t *w, const char *name) {
  const int64_t shape[] = {3};
  writer_add(w, name, WM_DTYPE_F32, 1, shape);
}

/* A head that is not the embedding. */
static void add_head(writer_t *w, const char *name) {
  const wm_tensor_t *embedding =
      writer_find(w, name[0] == 'l' ? "transformer.wte.weight" : "gpt_neox.embed_in.weight");
  wm_tensor_t *head = writer_add(w, name, WM_DTYPE_F32, 2, embedding->shape);
  memcpy((void *)head->data, embedding->data, (size_t)head->bytes);
  ((float *)head->data)[7] += 1;
}

static void duplicate(writer_t *w, const char *name) {
  wm_tensor_t *t = writer_find(w, name);
  writer_add(w, strchr(name, '.') + 1, t->dtype, t->n_dims, t->shape);
}

typedef struct {
  const char *base;   /* golden model */
  const char *config; /* JSON object: keys to be set; null removes */
  void (*change)(writer_t *, const char *);
  const char *tensor;
  const char *expected[2]; /* parts of the message */
} case_t;

static const case_t cases[] = {
    /* config.json alone */
    {"gpt2_base", "{\"model_type\": \"llama\"}", NULL, NULL, {"model_type", "llama"}},
    {"gpt2_base", "{\"model_type\": null}", NULL, NULL, {"model_type", "missing"}},
    {"gpt2_base", "{\"model_type\": 3}", NULL, NULL, {"model_type", "string"}},
    {"gpt2_base",
     "{\"activation_function\": \"prelu\"}",
     NULL,
     NULL,
     {"activation_function", "prelu"}},
    {"neox_base", "{\"hidden_act\": \"xielu\"}", NULL, NULL, {"hidden_act", "xielu"}},
    {"gpt2_base",
     "{\"architectures\": [\"GPT2DoubleHeadsModel\"]}",
     NULL,
     NULL,
     {"architectures", "GPT2DoubleHeadsModel"}},
    {"gpt2_base", "{\"add_cross_attention\": true}", NULL, NULL, {"add_cross_attention", "false"}},
    {"gpt2_base", "{\"is_encoder_decoder\": true}", NULL, NULL, {"is_encoder_decoder", "false"}},
    {"neox_base", "{\"is_causal\": false}", NULL, NULL, {"is_causal", "true"}},
    {"gpt2_base", "{\"pruned_heads\": {\"0\": [1]}}", NULL, NULL, {"pruned_heads", "empty"}},
    {"gpt2_base",
     "{\"quantization_config\": {\"bits\": 4}}",
     NULL,
     NULL,
     {"quantization_config", "not supported"}},
    {"gpt2_base", "{\"auto_map\": {\"AutoModel\": \"m.M\"}}", NULL, NULL, {"auto_map", "empty"}},
    {"gpt2_base", "{\"n_head\": 5}", NULL, NULL, {"12", "5 heads"}},
    {"gpt2_base", "{\"n_layer\": 0}", NULL, NULL, {"n_layer", "0"}},
    {"gpt2_base", "{\"n_layer\": 1.5}", NULL, NULL, {"n_layer", "integer"}},
    {"gpt2_base", "{\"n_head\": -3}", NULL, NULL, {"n_head", "-3"}},
    {"gpt2_base", "{\"vocab_size\": 4294967296}", NULL, NULL, {"vocab_size", "4294967296"}},
    {"gpt2_base",
     "{\"layer_norm_epsilon\": \"small\"}",
     NULL,
     NULL,
     {"layer_norm_epsilon", "number"}},
    {"gpt2_base", "{\"layer_norm_epsilon\": -1}", NULL, NULL, {"epsilon", "-1"}},
    {"gpt2_base", "{\"hidden_size\": 24}", NULL, NULL, {"hidden_size", "n_embd"}},
    {"gpt2_base",
     "{\"layer_norm_eps\": 0.1}",
     NULL,
     NULL,
     {"layer_norm_eps", "layer_norm_epsilon"}},
    {"gpt2_base", "{\"hidden_act\": \"relu\"}", NULL, NULL, {"hidden_act", "activation_function"}},
    {"neox_base", "{\"rotary_pct\": 0.2}", NULL, NULL, {"rotary dimensions", "even"}},
    {"neox_base", "{\"rotary_pct\": 1.5}", NULL, NULL, {"rotary", "1.5"}},
    {"neox_base", "{\"rotary_emb_base\": 0}", NULL, NULL, {"rotary base", "positive"}},
    {"neox_base",
     "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}}",
     NULL,
     NULL,
     {"rope_scaling", "linear"}},
    {"neox_rope_parameters",
     "{\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 100.0}}",
     NULL,
     NULL,
     {"rope_parameters", "yarn"}},
    {"neox_base", "{\"rope_theta\": 500.0}", NULL, NULL, {"rope_theta", "rotary_emb_base"}},
    {"neox_base", "{\"rope_parameters\": 3}", NULL, NULL, {"rope_parameters", "object"}},
    /* config.json against the weights */
    {"gpt2_base", "{\"vocab_size\": 24}", NULL, NULL, {"wte.weight", "[24, 12]"}},
    {"gpt2_base", "{\"n_positions\": 10}", NULL, NULL, {"wpe.weight", "[9, 12]"}},
    {"gpt2_base", "{\"n_inner\": null}", NULL, NULL, {"mlp.c_fc.weight", "[12, 48]"}},
    {"gpt2_base", "{\"n_layer\": 2}", NULL, NULL, {"h.1.ln_1.weight", "missing"}},
    {"gpt2_inverse_layer", "{\"n_layer\": 1}", NULL, NULL, {"transformer.h.1.", "no part"}},
    {"gpt2_base", "{\"tie_word_embeddings\": false}", NULL, NULL, {"lm_head.weight", "missing"}},
    {"gpt2_untied",
     "{\"tie_word_embeddings\": true}",
     NULL,
     NULL,
     {"lm_head.weight", "tie_word_embeddings"}},
    {"neox_base",
     "{\"tie_word_embeddings\": true}",
     NULL,
     NULL,
     {"embed_out.weight", "tie_word_embeddings"}},
    {"neox_tied", "{\"tie_word_embeddings\": null}", NULL, NULL, {"embed_out.weight", "missing"}},
    {"neox_base", "{\"attention_bias\": false}", NULL, NULL, {"attention.", "bias"}},
    {"neox_no_bias",
     "{\"attention_bias\": null}",
     NULL,
     NULL,
     {"attention.query_key_value.bias", "missing"}},
    {"gpt2_base",
     "{\"model_type\": \"gpt_neox\", \"architectures\": null, \"n_inner\": null, "
     "\"activation_function\": null, \"layer_norm_epsilon\": null}",
     NULL,
     NULL,
     {"embed_in.weight", "missing"}},
    /* the weights */
    {"gpt2_base", "{}", drop, "transformer.h.0.mlp.c_fc.bias", {"h.0.mlp.c_fc.bias", "missing"}},
    {"gpt2_base",
     "{}",
     transpose,
     "transformer.h.0.mlp.c_fc.weight",
     {"transformer.h.0.mlp.c_fc.weight",
      "[12, 20] is expected from config.json, but it has [20, 12]"}},
    {"neox_base",
     "{}",
     transpose,
     "gpt_neox.layers.0.attention.query_key_value.weight",
     {"query_key_value.weight", "[24, 72]"}},
    {"gpt2_base",
     "{}",
     flatten,
     "transformer.h.0.attn.c_proj.weight",
     {"attn.c_proj.weight", "[144]"}},
    {"gpt2_base", "{}", put_nan, "transformer.ln_f.bias", {"transformer.ln_f.bias", "element 11"}},
    {"gpt2_base", "{}", put_infinity, "transformer.wte.weight", {"wte.weight", "element 0"}},
    {"neox_base", "{}", put_nan, "gpt_neox.embed_in.weight", {"embed_in.weight", "element 551"}},
    {"neox_f16",
     "{}",
     put_half_infinity,
     "gpt_neox.layers.0.mlp.dense_4h_to_h.weight",
     {"dense_4h_to_h.weight", "element 3"}},
    {"neox_f16",
     "{}",
     put_half_infinity,
     "gpt_neox.embed_in.weight",
     {"embed_in.weight", "element 3"}},
    {"gpt2_base", "{}", make_integer, "transformer.ln_f.bias", {"transformer.ln_f.bias", "I32"}},
    {"gpt2_base",
     "{}",
     add_surplus,
     "transformer.h.0.attn.scale",
     {"transformer.h.0.attn.scale", "no part"}},
    {"gpt2_base", "{}", add_surplus, "score.weight", {"score.weight", "no part"}},
    {"gpt2_base", "{}", add_surplus, "transformer.h.x.attn.bias", {"h.x.attn.bias", "no part"}},
    {"gpt2_base", "{}", add_head, "lm_head.weight", {"lm_head.weight", "wte.weight"}},
    {"gpt2_base", "{}", duplicate, "transformer.ln_f.bias", {"ln_f.bias", "no part"}},
};

/* The golden model `base` with config.json and tensors changed. */
static void write_changed(const char *dir, const case_t *c) {
  static writer_t w;
  char *from = golden_path(c->base), *path = wm_format("%s/config.json", from);
  json_t *config = json_load_file(path, 0, NULL), *value;
  json_t *changes = json_loads(c->config, 0, NULL);
  assert_true(config != NULL && changes != NULL);
  const char *key;
  json_object_foreach(changes, key, value) {
    if (json_is_null(value))
      json_object_del(config, key);
    else
      json_object_set(config, key, value);
  }
  char *text = json_dumps(config, 0);
  write_config(dir, text);
  writer_read(&w, from);
  if (c->change != NULL)
    c->change(&w, c->tensor);
  writer_write(&w, dir, 0);
  writer_free(&w);
  free(text);
  json_decref(changes);
  json_decref(config);
  free(path);
  free(from);
}

/* Rank 0 makes the directory for all. */
static char *shared_directory(void) {
  char name[256] = {0};
  if (comm->rank == 0) {
    char *dir = model_directory();
    assert_true(strlen(dir) < sizeof name);
    strcpy(name, dir);
    free(dir);
  }
  MPI_Bcast(name, sizeof name, MPI_CHAR, 0, comm->world);
  return strdup(name);
}

static void remove_shared_directory(char *dir) {
  MPI_Barrier(comm->world);
  if (comm->rank == 0)
    remove_model_directory(dir);
  else
    free(dir);
}

static wm_status_t try_open(const char *dir, wm_error_t *err) {
  wm_model_options_t options = {.tile_rows = 16, .tile_vocab = 16};
  wm_model_t *model;
  wm_status_t status = wm_model_open(comm, dir, &options, NULL, &model, err);
  if (status == WM_OK)
    wm_model_close(model);
  else
    assert_null(model);
  return status;
}

static void bad_models_are_refused_by_name(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const case_t *c = &cases[i];
    char *dir = shared_directory();
    if (comm->rank == 0)
      write_changed(dir, c);
    MPI_Barrier(comm->world);
    wm_error_t err = {0};
    wm_status_t status = try_open(dir, &err);
    const char *tensor = c->tensor != NULL ? c->tensor : "";
    if (status != WM_INPUT)
      fail_msg("%s %s %s: status %d: %s", c->base, c->config, tensor, status, err.message);
    for (int k = 0; k < 2; k++)
      if (strstr(err.message, c->expected[k]) == NULL)
        fail_msg("%s %s %s: \"%s\" is not in: %s", c->base, c->config, tensor, c->expected[k],
                 err.message);
    assert_non_null(strstr(err.message, dir));
    remove_shared_directory(dir);
  }
}

static void missing_files_are_refused(void **state) {
  (void)state;
  wm_error_t err = {0};
  char *dir = shared_directory();
  assert_int_equal(try_open(dir, &err), WM_INPUT);
  assert_non_null(strstr(err.message, "config.json"));
  MPI_Barrier(comm->world);
  if (comm->rank == 0)
    write_config(dir, "{\"model_type\": \"gpt2\"}");
  MPI_Barrier(comm->world);
  assert_int_equal(try_open(dir, &err), WM_INPUT);
  assert_non_null(strstr(err.message, "model.safetensors"));
  MPI_Barrier(comm->world);
  if (comm->rank == 0)
    write_config(dir, "{\"model_type\": ");
  MPI_Barrier(comm->world);
  assert_int_equal(try_open(dir, &err), WM_INPUT);
  assert_non_null(strstr(err.message, "not valid JSON"));
  remove_shared_directory(dir);
}

/* Settings and tensors that change no number are accepted. */
static void harmless_settings_are_accepted(void **state) {
  (void)state;
  static const case_t fine[] = {
      {"gpt2_base",
       "{\"n_ctx\": 1024, \"some_hub_key\": [1], \"pruned_heads\": {}}",
       NULL,
       NULL,
       {NULL}},
      {"gpt2_base",
       "{\"hidden_act\": \"gelu_fast\", \"intermediate_size\": 20}",
       NULL,
       NULL,
       {NULL}},
      {"gpt2_bare",
       "{\"architectures\": [\"GPT2Model\"], \"quantization_config\": null}",
       NULL,
       NULL,
       {NULL}},
      {"gpt2_base", "{\"is_decoder\": true}", add_surplus, "h.0.attn.masked_bias", {NULL}},
      {"neox_base",
       "{\"rope_scaling\": {\"rope_type\": \"default\", \"rope_theta\": 10000}}",
       add_surplus,
       "gpt_neox.rotary_emb.inv_freq",
       {NULL}},
  };
  for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
    char *dir = shared_directory();
    if (comm->rank == 0)
      write_changed(dir, &fine[i]);
    MPI_Barrier(comm->world);
    wm_error_t err = {0};
    if (try_open(dir, &err) != WM_OK)
      fail_msg("%s", err.message);
    remove_shared_directory(dir);
  }
}

static pass_t golden_pass(const char *dir, wm_model_t **model) {
  static const int32_t ids[] = {3, 1, 4, 1, 5, 9, 2, 6, 5};
  static const int64_t starts[] = {0, 9};
  wm_batch_t batch = {1, starts};
  *model = open_model(comm, dir, 16, 16);
  return run_model(*model, &batch, ids);
}

/* The converted weights are one copy per node, the same numbers whoever converted which part. */
static void ranks_compute_the_same(void **state) {
  (void)state;
  static const char *const names[] = {"gpt2_base", "gpt2_f16", "neox_bf16", "gpt2_sharded"};
  for (int i = 0; i < 4; i++) {
    char *dir = golden_path(names[i]);
    wm_model_t *model;
    pass_t p = golden_pass(dir, &model);
    const wm_arch_t *a = wm_model_arch(model);
    assert_true(wm_all_equal(comm->world, p.logits, 9 * a->vocab_size * 4));
    assert_true(wm_all_equal(comm->world, p.nll, 9 * 8));
    uint64_t fingerprint = wm_model_fingerprint(model);
    assert_true(wm_all_equal(comm->world, &fingerprint, sizeof fingerprint));
    bool converted = i == 1 || i == 2;
    assert_true((wm_model_shared_bytes(model) > 0) == converted);
    pass_free(&p);
    wm_model_close(model);
    free(dir);
  }
}

/* float32 data that do not lie on a multiple of four bytes are copied instead of mapped. */
static void unaligned_weights_are_copied(void **state) {
  (void)state;
  char *golden = golden_path("gpt2_base"), *dir = shared_directory();
  static const case_t same = {"gpt2_base", "{}", NULL, NULL, {NULL}};
  static writer_t w;
  if (comm->rank == 0) {
    write_changed(dir, &same);
    writer_read(&w, golden);
    writer_write(&w, dir, 3);
    writer_free(&w);
  }
  MPI_Barrier(comm->world);
  wm_model_t *model, *mapped;
  pass_t p = golden_pass(dir, &model), q = golden_pass(golden, &mapped);
  assert_true(wm_model_shared_bytes(model) > 0 && wm_model_shared_bytes(mapped) == 0);
  assert_memory_equal(p.nll, q.nll, 9 * sizeof(double));
  pass_free(&p);
  pass_free(&q);
  wm_model_close(model);
  wm_model_close(mapped);
  remove_shared_directory(dir);
  free(golden);
}

static int start(void **state) {
  int result = fixture_start(state);
  comm = *state;
  return result;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bad_models_are_refused_by_name), cmocka_unit_test(missing_files_are_refused),
      cmocka_unit_test(harmless_settings_are_accepted), cmocka_unit_test(ranks_compute_the_same),
      cmocka_unit_test(unaligned_weights_are_copied),
  };
  return cmocka_run_group_tests(tests, start, fixture_stop);
}
