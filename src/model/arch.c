#include "wanamaker/model/arch.h"

#include "arch_keys.h"
#include "wanamaker/base/json.h"
#include "wanamaker/base/mem.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* What transformers assumes for absent keys. */
static const wm_arch_t defaults[] = {
    [WM_FAMILY_GPT2] = {.family = WM_FAMILY_GPT2,
                        .n_layers = 12,
                        .n_heads = 12,
                        .d_model = 768,
                        .vocab_size = 50257,
                        .max_positions = 1024,
                        .layer_norm_eps = 1e-5,
                        .activation = WM_ACT_GELU_TANH,
                        .tied_head = true,
                        .drop_embedding = 0.1,
                        .drop_attention = 0.1,
                        .drop_residual = 0.1,
                        .initializer_range = 0.02,
                        .scale_attn_weights = true},
    [WM_FAMILY_GPT_NEOX] = {.family = WM_FAMILY_GPT_NEOX,
                            .n_layers = 44,
                            .n_heads = 64,
                            .d_model = 6144,
                            .d_mlp = 24576,
                            .vocab_size = 50432,
                            .max_positions = 2048,
                            .layer_norm_eps = 1e-5,
                            .activation = WM_ACT_GELU,
                            .initializer_range = 0.02,
                            .parallel_residual = true,
                            .attention_bias = true},
};

const char *wm_family_name(wm_family_t family) {
  return family == WM_FAMILY_GPT2 ? "GPT-2" : "GPT-NeoX";
}

static wm_status_t read_family(const json_t *config, const char *file, wm_family_t *out,
                               wm_error_t *err) {
  const char *type = NULL;
  wm_status_t status = wm_json_get_string(config, file, "model_type", true, &type, err);
  if (status != WM_OK)
    return status;
  if (strcmp(type, "gpt2") == 0)
    *out = WM_FAMILY_GPT2;
  else if (strcmp(type, "gpt_neox") == 0)
    *out = WM_FAMILY_GPT_NEOX;
  else
    return wm_fail(err, WM_INPUT,
                   "%s: \"model_type\": \"%s\" is not supported (supported: gpt2, gpt_neox)", file,
                   type);
  return WM_OK;
}

/* The language model, or its bare trunk when the head is tied; other heads mean other outputs. */
static wm_status_t check_architectures(const json_t *config, const char *file, wm_family_t family,
                                       wm_error_t *err) {
  static const char *const accepted[][2] = {
      [WM_FAMILY_GPT2] = {"GPT2LMHeadModel", "GPT2Model"},
      [WM_FAMILY_GPT_NEOX] = {"GPTNeoXForCausalLM", "GPTNeoXModel"}};
  const json_t *list = json_object_get(config, "architectures");
  if (list == NULL || json_is_null(list))
    return WM_OK;
  if (!json_is_array(list))
    return wm_fail(err, WM_INPUT, "%s: \"architectures\" must be an array", file);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const char *name = json_string_value(json_array_get(list, i));
    if (name == NULL ||
        (strcmp(name, accepted[family][0]) != 0 && strcmp(name, accepted[family][1]) != 0))
      return wm_fail(err, WM_INPUT,
                     "%s: \"architectures\": \"%s\" is not supported (supported: %s, %s)", file,
                     name != NULL ? name : "(no string)", accepted[family][0], accepted[family][1]);
  }
  return WM_OK;
}

static bool is_empty(const json_t *value) {
  return (json_is_object(value) && json_object_size(value) == 0) ||
         (json_is_array(value) && json_array_size(value) == 0);
}

static wm_status_t check_rules(const json_t *config, const char *file, wm_error_t *err) {
  for (const wm_arch_rule_t *r = wm_arch_rules; r->key != NULL; r++) {
    const json_t *value = json_object_get(config, r->key);
    if (value == NULL || json_is_null(value))
      continue;
    bool fine = r->rule == WM_MUST_BE_EMPTY   ? is_empty(value)
                : r->rule == WM_MUST_BE_FALSE ? json_is_false(value)
                                              : json_is_true(value);
    static const char *const wanted[] = {
        [WM_MUST_BE_EMPTY] = "empty", [WM_MUST_BE_FALSE] = "false", [WM_MUST_BE_TRUE] = "true"};
    if (!fine)
      return wm_fail(err, WM_INPUT, "%s: \"%s\" must be %s: anything else is not supported", file,
                     r->key, wanted[r->rule]);
  }
  return WM_OK;
}

/* A value of any of the key types, as it lies in wm_arch_t. */
typedef union {
  int64_t size;
  double number;
  bool flag;
  wm_activation_t activation;
} value_t;

static wm_status_t read_value(const json_t *config, const char *file, const wm_arch_key_t *k,
                              value_t *out, wm_error_t *err) {
  const char *name = NULL;
  wm_status_t status = WM_OK;
  switch (k->type) {
  case WM_KEY_SIZE:
    status = wm_json_get_int(config, file, k->key, true, &out->size, err);
    if (status == WM_OK && (out->size < 1 || out->size > INT32_MAX))
      return wm_fail(err, WM_INPUT, "%s: \"%s\" must be in 1 .. 2^31 - 1, but is %lld", file,
                     k->key, (long long)out->size);
    return status;
  case WM_KEY_FLOAT:
    return wm_json_get_float(config, file, k->key, true, &out->number, err);
  case WM_KEY_BOOL:
    return wm_json_get_bool(config, file, k->key, true, &out->flag, err);
  case WM_KEY_ACTIVATION:
    status = wm_json_get_string(config, file, k->key, true, &name, err);
    return status != WM_OK ? status : wm_arch_activation(file, k->key, name, &out->activation, err);
  }
  return status;
}

/* Stores the value in its field; returns whether the field had another one. */
static bool store(const value_t *value, const wm_arch_key_t *k, wm_arch_t *arch) {
  static const size_t sizes[] = {[WM_KEY_SIZE] = sizeof(int64_t),
                                 [WM_KEY_FLOAT] = sizeof(double),
                                 [WM_KEY_BOOL] = sizeof(bool),
                                 [WM_KEY_ACTIVATION] = sizeof(wm_activation_t)};
  char *field = (char *)arch + k->field;
  bool changed = memcmp(field, value, sizes[k->type]) != 0;
  memcpy(field, value, sizes[k->type]);
  return changed;
}

static bool is_given(const json_t *config, const char *key) {
  const json_t *value = json_object_get(config, key);
  return value != NULL && !json_is_null(value);
}

/* The first key of the same field, of those that config.json gives or of all; NULL: none. */
static const char *earlier_key(const json_t *config, const wm_arch_key_t *k, int mask, bool given) {
  for (const wm_arch_key_t *e = wm_arch_keys; e != k; e++)
    if (e->field == k->field && (e->families & mask) != 0 && !e->foreign &&
        (!given || is_given(config, e->key)))
      return e->key;
  return NULL;
}

/* Own names first, foreign ones in a second pass over completed fields. */
static wm_status_t read_keys(const json_t *config, const char *file, bool foreign, wm_arch_t *arch,
                             wm_error_t *err) {
  int mask = wm_arch_family_mask(arch->family);
  for (const wm_arch_key_t *k = wm_arch_keys; k->key != NULL; k++) {
    if ((k->families & mask) == 0 || k->foreign != foreign || !is_given(config, k->key))
      continue;
    value_t value;
    wm_status_t status = read_value(config, file, k, &value, err);
    if (status != WM_OK)
      return status;
    const char *earlier = earlier_key(config, k, mask, !foreign);
    if (store(&value, k, arch) && earlier != NULL)
      return wm_fail(err, WM_INPUT, "%s: \"%s\" contradicts \"%s\" (or its default)", file, k->key,
                     earlier);
  }
  return WM_OK;
}

static wm_status_t check_consistency(const char *file, wm_arch_t *arch, wm_error_t *err) {
  if (arch->d_model % arch->n_heads != 0)
    return wm_fail(err, WM_INPUT, "%s: width %lld is not a multiple of %lld heads", file,
                   (long long)arch->d_model, (long long)arch->n_heads);
  enum { MAX_LAYERS = 1 << 16, MAX_POSITIONS = 1 << 22 };
  if (arch->d_model > INT32_MAX / 3 || arch->d_mlp > INT32_MAX || arch->n_layers > MAX_LAYERS ||
      arch->max_positions > MAX_POSITIONS)
    return wm_fail(err, WM_INPUT,
                   "%s: width %lld (MLP %lld), %lld layers or %lld positions are too many", file,
                   (long long)arch->d_model, (long long)arch->d_mlp, (long long)arch->n_layers,
                   (long long)arch->max_positions);
  if (!(arch->layer_norm_eps >= 0 && arch->layer_norm_eps < 1))
    return wm_fail(err, WM_INPUT, "%s: the layer norm's epsilon must be in [0, 1), but is %g", file,
                   arch->layer_norm_eps);
  arch->d_head = arch->d_model / arch->n_heads;
  return WM_OK;
}

static wm_status_t read_arch(const json_t *config, const char *file, wm_arch_t *out,
                             wm_error_t *err) {
  wm_family_t family = WM_FAMILY_GPT2;
  wm_status_t status;
  WM_TRY(read_family(config, file, &family, err));
  WM_TRY(check_architectures(config, file, family, err));
  WM_TRY(check_rules(config, file, err));
  *out = defaults[family];
  WM_TRY(read_keys(config, file, false, out, err));
  if (out->d_mlp == 0)
    out->d_mlp = 4 * out->d_model;
  WM_TRY(read_keys(config, file, true, out, err));
  WM_TRY(check_consistency(file, out, err));
  if (family == WM_FAMILY_GPT_NEOX)
    WM_TRY(wm_arch_read_rotary(config, file, out, err));
cleanup:
  return status;
}

char *wm_arch_path(const char *dir) {
  size_t length = strlen(dir);
  bool file = length >= 5 && strcmp(dir + length - 5, ".json") == 0;
  return wm_format(file ? "%s" : "%s/config.json", dir);
}

/* Reads dir/config.json; *path is its name for messages; the caller frees both. */
static wm_status_t load_config(const char *dir, char **path, json_t **config, wm_error_t *err) {
  *config = NULL;
  *path = wm_arch_path(dir);
  if (*path == NULL)
    return wm_fail(err, WM_ENVIRONMENT, "no memory for a file name");
  wm_status_t status = wm_json_load(*path, config, err);
  if (status == WM_OK && !json_is_object(*config))
    status = wm_fail(err, WM_INPUT, "%s: an object is expected", *path);
  return status;
}

wm_status_t wm_arch_read(const char *dir, wm_arch_t *out, wm_error_t *err) {
  char *path;
  json_t *config;
  wm_status_t status = load_config(dir, &path, &config, err);
  if (status == WM_OK)
    status = read_arch(config, path, out, err);
  json_decref(config);
  free(path);
  return status;
}

wm_status_t wm_arch_check_dropout(const char *dir, const wm_arch_t *arch, wm_error_t *err) {
  static const size_t rates[] = {offsetof(wm_arch_t, drop_embedding),
                                 offsetof(wm_arch_t, drop_attention),
                                 offsetof(wm_arch_t, drop_residual)};
  const int mask = wm_arch_family_mask(arch->family);
  for (const wm_arch_key_t *k = wm_arch_keys; k->key != NULL; k++)
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
      double rate;
      if (k->field != rates[i] || (k->families & mask) == 0)
        continue;
      memcpy(&rate, (const char *)arch + k->field, sizeof rate);
      if (rate >= 0 && rate < 1)
        continue;
      char *path = wm_arch_path(dir);
      wm_fail(err, WM_INPUT,
              "%s: \"%s\" must be in [0, 1) to train with dropout, but is %g; see "
              "finetune.dropout",
              path != NULL ? path : dir, k->key, rate);
      free(path);
      return WM_INPUT;
    }
  return WM_OK;
}

static wm_status_t append_name(char **list, const char *name, wm_error_t *err) {
  char *longer = wm_format("%s%s%s", *list, **list != '\0' ? ", " : "", name);
  if (longer == NULL)
    return wm_fail(err, WM_ENVIRONMENT, "no memory for a list of keys");
  free(*list);
  *list = longer;
  return WM_OK;
}

wm_status_t wm_arch_unknown_keys(const char *dir, char **out, wm_error_t *err) {
  char *path;
  json_t *config, *value;
  const char *key;
  wm_family_t family = WM_FAMILY_GPT2;
  *out = NULL;
  wm_status_t status;
  WM_TRY(load_config(dir, &path, &config, err));
  WM_TRY(read_family(config, path, &family, err));
  WM_TRY(wm_strdup(out, "", err));
  json_object_foreach(config, key, value) {
    if (!wm_arch_key_known(family, key))
      WM_TRY(append_name(out, key, err));
  }
cleanup:
  if (status != WM_OK) {
    free(*out);
    *out = NULL;
  }
  json_decref(config);
  free(path);
  return status;
}

double wm_arch_flops_mlp(const wm_arch_t *arch) {
  return 4.0 * (double)arch->d_model * (double)arch->d_mlp;
}

int64_t wm_arch_parameters(const wm_arch_t *arch) {
  const int64_t d = arch->d_model, m = arch->d_mlp;
  const bool gpt2 = arch->family == WM_FAMILY_GPT2;
  const int64_t biases = gpt2 || arch->attention_bias ? 4 * d : 0;
  const int64_t layer = 4 * d * d + biases + 2 * d * m + m + d + 4 * d;
  const int64_t heads = arch->tied_head ? 1 : 2;
  return heads * arch->vocab_size * d + (gpt2 ? arch->max_positions * d : 0) +
         arch->n_layers * layer + 2 * d;
}

double wm_arch_flops_layer(const wm_arch_t *arch) {
  return 8.0 * (double)arch->d_model * (double)arch->d_model + wm_arch_flops_mlp(arch);
}

double wm_arch_flops_surrogate(const wm_arch_t *arch) {
  return 2.0 * (double)arch->d_model * (double)arch->d_model;
}

double wm_arch_flops_head(const wm_arch_t *arch) {
  return 2.0 * (double)arch->d_model * (double)arch->vocab_size;
}

double wm_arch_flops_attention(const wm_arch_t *arch, double n) {
  return 4.0 * (double)arch->d_model * n;
}
