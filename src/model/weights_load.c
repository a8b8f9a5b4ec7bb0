/* The contents of a model's tensors: where they lie, conversion, and the check that they are
 * finite.
 */
#include "random.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "weights.h"

#include <math.h>
#include <string.h>

enum {
  PIECE = 1 << 14, /* elements that are converted at a time when they are not kept */
  SLICE = 1 << 22  /* elements between pulses: many nodes may share a slow disk */
};

/* --- places -------------------------------------------------------------------------------------
 */

static bool aligned(const wm_tensor_t *t) {
  return (uintptr_t)t->data % (uintptr_t)wm_dtype_size(t->dtype) == 0;
}

static wm_dtype_t stored_type(const wm_weights_t *w, const wm_want_t *want) {
  const wm_tensor_t *t = want->tensor;
  bool half = t->dtype == WM_DTYPE_F16 || t->dtype == WM_DTYPE_BF16;
  if (want->matrix == NULL || w->matrices == WM_MATRICES_F32)
    return WM_DTYPE_F32;
  if (w->matrices == WM_MATRICES_BF16)
    return WM_DTYPE_BF16;
  return half && aligned(t) ? t->dtype : WM_DTYPE_F32;
}

static int64_t take_room(wm_weights_t *w, int64_t elements, wm_dtype_t dtype) {
  enum { ALIGN = 64 };
  int64_t offset = w->window_bytes;
  w->window_bytes += (elements * wm_dtype_size(dtype) + ALIGN - 1) / ALIGN * ALIGN;
  return offset;
}

/* Gives a place in the window to every tensor that can't be used as the file holds it. */
static void plan_window(wm_weights_t *w) {
  for (int64_t i = 0; i < w->count; i++) {
    wm_want_t *want = &w->wants[i];
    const wm_tensor_t *t = want->tensor; /* data NULL: random */
    want->stored = stored_type(w, want);
    want->offset = want->rows_offset = -1;
    bool mapped = !w->writable && t->data != NULL && t->dtype == want->stored && aligned(t);
    if ((want->slot != NULL || want->matrix != NULL) && !mapped)
      want->offset = take_room(w, t->elements, want->stored);
    if (want->rows == NULL || (t->data != NULL && !w->writable))
      continue;
    bool shared = want->offset >= 0 && want->stored == WM_DTYPE_F32; /* a tied head's rows */
    want->rows_offset = shared ? want->offset : take_room(w, t->elements, WM_DTYPE_F32);
  }
}

/* --- contents -----------------------------------------------------------------------------------
 */

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

/* The same for any type, converted piece by piece. */
static int64_t first_not_finite_of(wm_dtype_t dtype, const void *data, int64_t n) {
  int64_t first = n;
  if (dtype == WM_DTYPE_F32 && (uintptr_t)data % sizeof(float) == 0)
    return first_not_finite(data, n);
#pragma omp parallel for reduction(min : first) schedule(static)
  for (int64_t i = 0; i < n; i += PIECE) {
    float piece[PIECE];
    int64_t count = n - i < PIECE ? n - i : PIECE;
    wm_to_f32(dtype, (const char *)data + i * wm_dtype_size(dtype), count, piece);
    int64_t bad = first_not_finite(piece, count);
    if (bad >= 0 && i + bad < first)
      first = i + bad;
  }
  return first < n ? first : -1;
}

/* out <- elements first .. first + n - 1 of the wanted tensor, as `dtype` (F32 or BF16). */
static void fill(const wm_weights_t *w, const wm_want_t *want, wm_dtype_t dtype, int64_t first,
                 int64_t n, void *out) {
  const wm_tensor_t *t = want->tensor;
  const char *data =
      t->data != NULL ? (const char *)t->data + first * wm_dtype_size(t->dtype) : NULL;
  if (data != NULL && dtype == WM_DTYPE_BF16)
    wm_to_bf16(t->dtype, data, n, out);
  else if (data != NULL)
    wm_to_f32(t->dtype, data, n, out);
  else if (dtype == WM_DTYPE_F32)
    wm_random_fill(&w->random, want, first, n, out);
  else {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i += PIECE) {
      float piece[PIECE];
      int64_t count = n - i < PIECE ? n - i : PIECE;
      wm_random_fill(&w->random, want, first + i, count, piece);
      wm_to_bf16(WM_DTYPE_F32, piece, count, (uint16_t *)out + i);
    }
  }
}

/* Elements first .. first + n - 1 of one tensor: their copy, where there is one, and the check that
 * they are finite, in the file and in the copy's type, whose range may be smaller. */
static wm_status_t take_slice(const wm_weights_t *w, const wm_want_t *want, int64_t first,
                              int64_t n, wm_error_t *err) {
  const wm_tensor_t *t = want->tensor;
  int64_t bad = -1;
  wm_dtype_t dtype = WM_DTYPE_F32;
  char *window = w->window.data;
  if (want->rows_offset >= 0 && want->rows_offset != want->offset)
    fill(w, want, WM_DTYPE_F32, first, n,
         window + want->rows_offset + first * (int64_t)sizeof(float));
  if (want->offset >= 0) {
    dtype = want->stored;
    void *out = window + want->offset + first * wm_dtype_size(dtype);
    fill(w, want, dtype, first, n, out);
    bad = first_not_finite_of(dtype, out, n);
  } else if (t->data != NULL) {
    bad = first_not_finite_of(t->dtype, (const char *)t->data + first * wm_dtype_size(t->dtype), n);
  }
  if (bad >= 0)
    return wm_fail(err, WM_INPUT, "%s: tensor \"%s\": element %lld is not finite in %s", t->file,
                   t->name, (long long)(first + bad),
                   dtype == WM_DTYPE_BF16 ? "bfloat16" : "float32");
  return WM_OK;
}

/* This rank's part of one tensor. */
static wm_status_t take_part(const wm_weights_t *w, const wm_want_t *want, const wm_comm_t *comm,
                             wm_error_t *err) {
  int64_t first, n;
  wm_status_t status = WM_OK;
  wm_partition(want->tensor->elements, comm->node_size, comm->node_rank, &first, &n);
  for (int64_t done = 0; done < n && status == WM_OK; done += SLICE) {
    wm_pulse();
    status = take_slice(w, want, first + done, n - done < SLICE ? n - done : SLICE, err);
  }
  return status;
}

static void set_pointers(const wm_weights_t *w, const wm_want_t *want) {
  const wm_tensor_t *t = want->tensor;
  const char *window = w->window.data;
  const void *data = want->offset >= 0 ? window + want->offset : t->data;
  if (want->slot != NULL)
    *want->slot = data;
  if (want->matrix != NULL) {
    want->matrix->dtype = want->stored;
    want->matrix->data = data;
  }
  if (want->rows != NULL && want->rows_offset >= 0)
    *want->rows = (wm_rows_t){WM_DTYPE_F32, window + want->rows_offset, want->shape[1]};
  else if (want->rows != NULL)
    *want->rows = (wm_rows_t){t->dtype, t->data, want->shape[1]};
}

wm_status_t wm_weights_resolve(wm_weights_t *weights, const wm_comm_t *comm,
                               const wm_weights_rules_t *rules, wm_error_t *err) {
  wm_status_t status = wm_weights_find(weights, rules, err);
  WM_TRY(wm_agree(comm->world, status, err));
  plan_window(weights);
  if (weights->window_bytes > 0)
    status = wm_shared_create(comm, weights->window_bytes,
                              "the converted copy of the model's weights", &weights->window, err);
  WM_TRY(wm_agree(comm->world, status, err));
  for (int64_t i = 0; status == WM_OK && i < weights->count; i++)
    status = take_part(weights, &weights->wants[i], comm, err);
  WM_TRY(wm_agree(comm->world, status, err));
  if (weights->window_bytes > 0)
    wm_shared_sync(&weights->window);
  for (int64_t i = 0; i < weights->count; i++)
    set_pointers(weights, &weights->wants[i]);
cleanup:
  return status;
}

float *wm_weights_writable(const wm_weights_t *w, const void *place, const wm_want_t **want) {
  for (int64_t i = 0; i < w->count; i++) {
    const wm_want_t *c = &w->wants[i];
    bool here = c->slot == place || c->matrix == place || c->rows == place;
    if (!w->writable || place == NULL || !here)
      continue;
    *want = c;
    char *window = w->window.data;
    void *tensor = window + (c->offset >= 0 ? c->offset : c->rows_offset);
    return tensor;
  }
  return NULL;
}

void wm_weights_release_files(const wm_weights_t *w) {
  for (int64_t i = 0; i < w->count; i++)
    if (w->wants[i].offset >= 0 && (w->wants[i].rows == NULL || w->writable) &&
        w->wants[i].tensor->data != NULL)
      wm_tensor_release(w->wants[i].tensor);
}
