#include "weights.h"

#include "random.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

wm_status_t wm_weights_open(wm_weights_t *weights, const char *dir, wm_error_t *err) {
  *weights = (wm_weights_t){0};
  return wm_tensors_open(dir, &weights->tensors, err);
}

void wm_weights_open_random(wm_weights_t *weights, uint64_t seed) {
  *weights = (wm_weights_t){.seed = seed};
}

uint64_t wm_weights_fingerprint(const wm_weights_t *w) {
  return w->tensors != NULL ? wm_tensors_fingerprint(w->tensors)
                            : wm_hash(&w->seed, sizeof w->seed, 0);
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

wm_status_t wm_weights_want_rows(wm_weights_t *weights, wm_rows_t *rows, int64_t n0, int64_t n1,
                                 wm_error_t *err, const char *name) {
  wm_status_t status = wm_weights_want(weights, NULL, n0, n1, err, "%s", name);
  if (status == WM_OK)
    weights->wants[weights->count - 1].rows = rows;
  return status;
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

static wm_status_t find_all(wm_weights_t *w, const wm_weights_rules_t *rules, wm_error_t *err) {
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

/* Gives a place in the window to every tensor that can't be used as the file holds it. */
static void plan_window(wm_weights_t *w) {
  enum { ALIGN = 16 }; /* floats */
  for (int64_t i = 0; i < w->count; i++) {
    wm_want_t *want = &w->wants[i];
    const void *data = want->tensor->data; /* NULL: random */
    bool mapped = want->tensor->dtype == WM_DTYPE_F32 && (uintptr_t)data % 4 == 0;
    want->offset = -1;
    if (data != NULL && (mapped || want->rows != NULL))
      continue;
    want->offset = w->window_floats;
    w->window_floats += (want->tensor->elements + ALIGN - 1) / ALIGN * ALIGN;
  }
}

/* Index of the first element that is not finite, -1 if all are. */
static int64_t first_not_finite(const float *x, int64_t n) {
  int64_t first = n;
#pragma omp parallel for reduction(min : first) schedule(static)
  for (int64_t block = 0; block < n; block += 4096) {
    int64_t end = block + 4096 < n ? block + 4096 : n;
    int bad = 0;
#pragma omp simd reduction(| : bad)
    for (int64_t i = block; i < end; i++)
      bad |= !(fabsf(x[i]) <= 0x1.fffffep127f);
    for (int64_t i = block; bad && i < end; i++)
      if (!isfinite(x[i]) && i < first)
        first = i;
  }
  return first < n ? first : -1;
}

/* The same for elements that are not float32 in memory, converted piece by piece. */
static int64_t first_not_finite_in_file(const wm_tensor_t *t, int64_t first, int64_t n) {
  enum { PIECE = 16384 };
  static _Thread_local float piece[PIECE];
  for (int64_t i = 0; i < n; i += PIECE) {
    int64_t count = n - i < PIECE ? n - i : PIECE;
    wm_to_f32(t->dtype, (const char *)t->data + (first + i) * wm_dtype_size(t->dtype), count,
              piece);
    int64_t bad = first_not_finite(piece, count);
    if (bad >= 0)
      return i + bad;
  }
  return -1;
}

/* This rank's part of one tensor: conversion, and the check that it is finite. */
static wm_status_t take_part(wm_weights_t *w, const wm_want_t *want, const wm_comm_t *comm,
                             wm_error_t *err) {
  const wm_tensor_t *t = want->tensor;
  int64_t first, n, bad;
  wm_pulse();
  wm_partition(t->elements, comm->node_size, comm->node_rank, &first, &n);
  if (want->offset >= 0) {
    float *out = (float *)w->window.data + want->offset + first;
    if (t->data == NULL)
      wm_random_fill(w->seed, want, first, n, out);
    else
      wm_to_f32(t->dtype, (const char *)t->data + first * wm_dtype_size(t->dtype), n, out);
    bad = first_not_finite(out, n);
  } else if (want->rows != NULL) {
    bad = first_not_finite_in_file(t, first, n);
  } else {
    bad = first_not_finite((const float *)t->data + first, n);
  }
  if (bad >= 0)
    return wm_fail(err, WM_INPUT, "%s: tensor \"%s\": element %lld is not finite in float32",
                   t->file, t->name, (long long)(first + bad));
  return WM_OK;
}

static void set_slots(wm_weights_t *w) {
  for (int64_t i = 0; i < w->count; i++) {
    wm_want_t *want = &w->wants[i];
    const float *converted = (const float *)w->window.data + want->offset;
    if (want->rows != NULL && want->offset >= 0)
      *want->rows = (wm_rows_t){WM_DTYPE_F32, (const char *)converted, want->shape[1]};
    else if (want->rows != NULL)
      *want->rows = (wm_rows_t){want->tensor->dtype, want->tensor->data, want->shape[1]};
    else if (want->offset >= 0)
      *want->slot = converted;
    else
      *want->slot = want->tensor->data;
  }
}

wm_status_t wm_weights_resolve(wm_weights_t *weights, const wm_comm_t *comm,
                               const wm_weights_rules_t *rules, wm_error_t *err) {
  wm_status_t status = find_all(weights, rules, err);
  WM_TRY(wm_agree(comm->world, status, err));
  plan_window(weights);
  if (weights->window_floats > 0)
    status = wm_shared_create(comm, weights->window_floats * (int64_t)sizeof(float),
                              "the float32 copy of the model's weights", &weights->window, err);
  WM_TRY(wm_agree(comm->world, status, err));
  for (int64_t i = 0; status == WM_OK && i < weights->count; i++)
    status = take_part(weights, &weights->wants[i], comm, err);
  WM_TRY(wm_agree(comm->world, status, err));
  if (weights->window_floats > 0)
    wm_shared_sync(&weights->window);
  set_slots(weights);
cleanup:
  return status;
}
