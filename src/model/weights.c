#include "weights.h"

#include "random.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

wm_status_t wm_weights_open(wm_weights_t *weights, const char *dir, wm_error_t *err) {
  *weights = (wm_weights_t){0};
  return wm_tensors_open(dir, &weights->tensors, err);
}

void wm_weights_open_random(wm_weights_t *weights, wm_random_t random) {
  *weights = (wm_weights_t){.random = random};
}

void wm_weights_filed_name(const wm_weights_rules_t *rules, const wm_want_t *want,
                           char out[WM_FILED_NAME]) {
  const bool head = strcmp(want->name, rules->copy) == 0;
  snprintf(out, WM_FILED_NAME, "%s%s", head ? "" : rules->prefix, want->name);
}

wm_status_t wm_weights_unchanged(const wm_weights_t *w, wm_error_t *err) {
  return w->tensors != NULL ? wm_tensors_unchanged(w->tensors, err) : WM_OK;
}

uint64_t wm_weights_fingerprint(const wm_weights_t *w) {
  return w->tensors != NULL ? wm_tensors_fingerprint(w->tensors)
                            : wm_hash(&w->random, sizeof w->random, 0);
}

void wm_weights_close(wm_weights_t *weights) {
  wm_shared_destroy(&weights->window);
  if (weights->tensors != NULL)
    wm_tensors_close(weights->tensors);
  free(weights->wants);
  free(weights->drawn);
  *weights = (wm_weights_t){0};
}

static wm_status_t add_want(wm_weights_t *w, wm_want_t **out, int64_t n0, int64_t n1,
                            wm_error_t *err) {
  void *memory = w->wants;
  wm_status_t status = wm_grow(&memory, &w->capacity, w->count, w->count + 1, sizeof *w->wants,
                               "list of tensors", err);
  if (status != WM_OK)
    return status;
  w->wants = memory;
  *out = &w->wants[w->count++];
  **out = (wm_want_t){.n_dims = n1 > 0 ? 2 : 1, .shape = {n0, n1}};
  return WM_OK;
}

wm_status_t wm_weights_want(wm_weights_t *weights, const float **slot, int64_t n0, int64_t n1,
                            wm_error_t *err, const char *name, ...) {
  wm_want_t *want;
  wm_status_t status = add_want(weights, &want, n0, n1, err);
  if (status != WM_OK)
    return status;
  va_list args;
  va_start(args, name);
  int length = vsnprintf(want->name, sizeof want->name, name, args);
  va_end(args);
  assert(length > 0 && length < WM_WANT_NAME);
  (void)length;
  want->slot = slot;
  return WM_OK;
}

wm_status_t wm_weights_want_matrix(wm_weights_t *weights, wm_weight_t *matrix, int64_t n0,
                                   int64_t n1, wm_error_t *err, const char *name) {
  return wm_weights_want_rows(weights, NULL, matrix, n0, n1, err, name);
}

wm_status_t wm_weights_want_rows(wm_weights_t *weights, wm_rows_t *rows, wm_weight_t *matrix,
                                 int64_t n0, int64_t n1, wm_error_t *err, const char *name) {
  wm_status_t status = wm_weights_want(weights, NULL, n0, n1, err, "%s", name);
  if (status != WM_OK)
    return status;
  weights->wants[weights->count - 1].rows = rows;
  weights->wants[weights->count - 1].matrix = matrix;
  return WM_OK;
}

int64_t wm_weights_elements(const wm_weights_t *weights) {
  int64_t sum = 0;
  for (int64_t i = 0; i < weights->count; i++)
    sum += weights->wants[i].tensor->elements;
  return sum;
}

static const wm_tensor_t *find(const wm_weights_t *w, const char *prefix, const char *name) {
  char full[2 * WM_WANT_NAME];
  snprintf(full, sizeof full, "%s%s", prefix, name);
  const wm_tensor_t *tensor = wm_tensors_find(w->tensors, full);
  return tensor != NULL ? tensor : wm_tensors_find(w->tensors, name);
}

/* "[2, 3]" */
static const char *shape_text(const int64_t *shape, int n_dims, char *text, size_t size) {
  int used = snprintf(text, size, "[");
  for (int i = 0; i < n_dims && used >= 0 && (size_t)used < size; i++)
    used += snprintf(text + used, size - (size_t)used, "%s%lld", i > 0 ? ", " : "",
                     (long long)shape[i]);
  if (used >= 0 && (size_t)used < size)
    snprintf(text + used, size - (size_t)used, "]");
  return text;
}

static wm_status_t find_want(const wm_weights_t *w, const wm_weights_rules_t *rules,
                             wm_want_t *want, wm_error_t *err) {
  const wm_tensor_t *t = find(w, rules->prefix, want->name);
  if (t == NULL)
    return wm_fail(err, WM_INPUT, "tensor \"%s\" (or \"%s%s\") is missing", want->name,
                   rules->prefix, want->name);
  bool same = t->n_dims == want->n_dims;
  for (int i = 0; same && i < t->n_dims; i++)
    same = t->shape[i] == want->shape[i];
  char expected[64], found[192];
  if (!same)
    return wm_fail(
        err, WM_INPUT, "%s: tensor \"%s\": shape %s is expected from config.json, but it has %s",
        t->file, t->name, shape_text(want->shape, want->n_dims, expected, sizeof expected),
        shape_text(t->shape, t->n_dims, found, sizeof found));
  if (t->dtype > WM_DTYPE_BF16)
    return wm_fail(err, WM_INPUT,
                   "%s: tensor \"%s\": weights must be floating-point, but it has type %s", t->file,
                   t->name, wm_dtype_name(t->dtype));
  want->tensor = t;
  return WM_OK;
}

/* "#" in the pattern stands for decimal digits. */
static bool matches(const char *pattern, const char *name) {
  while (*pattern != '\0') {
    if (*pattern == '#') {
      if (!isdigit((unsigned char)*name))
        return false;
      while (isdigit((unsigned char)*name))
        name++;
    } else if (*pattern != *name++) {
      return false;
    }
    pattern++;
  }
  return *name == '\0';
}

static bool is_buffer(const wm_weights_rules_t *rules, const char *name) {
  size_t n = strlen(rules->prefix);
  if (strncmp(name, rules->prefix, n) == 0)
    name += n;
  for (const char *const *b = rules->buffers; *b != NULL; b++)
    if (matches(*b, name))
      return true;
  return false;
}

static bool is_wanted(const wm_weights_t *w, const wm_tensor_t *tensor) {
  for (int64_t i = 0; i < w->count; i++)
    if (w->wants[i].tensor == tensor)
      return true;
  return false;
}

static wm_status_t check_surplus(const wm_weights_t *w, const wm_weights_rules_t *rules,
                                 wm_error_t *err) {
  for (int64_t i = 0; i < wm_tensors_count(w->tensors); i++) {
    const wm_tensor_t *t = wm_tensors_at(w->tensors, i);
    bool copy = rules->copy != NULL && strcmp(t->name, rules->copy) == 0;
    if (!is_wanted(w, t) && !copy && !is_buffer(rules, t->name))
      return wm_fail(err, WM_INPUT,
                     "%s: tensor \"%s\" is no part of the %s model that config.json describes",
                     t->file, t->name, rules->family);
  }
  return WM_OK;
}

/* A tied head may also be stored, but not with other values: transformers' versions differ in which
 * of the two they then use. */
static wm_status_t check_copy(const wm_weights_t *w, const wm_weights_rules_t *rules,
                              wm_error_t *err) {
  const wm_tensor_t *copy = rules->copy != NULL ? wm_tensors_find(w->tensors, rules->copy) : NULL;
  if (copy == NULL)
    return WM_OK;
  const wm_tensor_t *original = find(w, rules->prefix, rules->copy_original);
  if (copy->dtype != original->dtype || copy->bytes != original->bytes ||
      memcmp(copy->data, original->data, (size_t)copy->bytes) != 0)
    return wm_fail(
        err, WM_INPUT,
        "%s: tensor \"%s\" differs from \"%s\", but config.json ties them (tie_word_embeddings)",
        copy->file, copy->name, original->name);
  return WM_OK;
}

/* Describes what is wanted as files would. */
static wm_status_t draw_all(wm_weights_t *w, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, w->count, sizeof *w->drawn, "list of tensors", err);
  if (status != WM_OK)
    return status;
  w->drawn = memory;
  for (int64_t i = 0; i < w->count; i++) {
    w->drawn[i] = wm_random_tensor(&w->wants[i]);
    w->wants[i].tensor = &w->drawn[i];
  }
  return WM_OK;
}

wm_status_t wm_weights_find(wm_weights_t *w, const wm_weights_rules_t *rules, wm_error_t *err) {
  if (w->tensors == NULL)
    return draw_all(w, err);
  for (int64_t i = 0; i < w->count; i++) {
    wm_status_t status = find_want(w, rules, &w->wants[i], err);
    if (status != WM_OK)
      return status;
  }
  wm_status_t status = check_surplus(w, rules, err);
  return status != WM_OK ? status : check_copy(w, rules, err);
}
