#include "wanamaker/measure/gate_ends.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/par/comm.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* --- search -------------------------------------------------------------------------------------
 */

typedef struct {
  int32_t token;
  int64_t place;
  double count, score, delta; /* of a position, or means of a type */
} type_t;

/* Positions of a token in their order, so that sums have one. */
static int by_token(const void *a, const void *b) {
  const type_t *x = a, *y = b;
  return x->token != y->token ? (x->token > y->token ? 1 : -1)
                              : (x->place > y->place) - (x->place < y->place);
}

/* Descending; equal means in the order of ids. */
static int by_score(const void *a, const void *b) {
  const type_t *x = a, *y = b;
  return x->score != y->score ? (x->score < y->score ? 1 : -1) : by_token(a, b);
}

/* From one entry per position to one per type that occurs often enough, with means. */
static int64_t merge_types(type_t *types, int64_t n, int64_t least) {
  int64_t kept = 0;
  qsort(types, (size_t)n, sizeof *types, by_token);
  for (int64_t begin = 0, end; begin < n; begin = end) {
    type_t sum = {.token = types[begin].token};
    for (end = begin; end < n && types[end].token == sum.token; end++) {
      sum.count++;
      sum.score += types[end].score;
      sum.delta += types[end].delta;
    }
    sum.score /= sum.count;
    sum.delta /= sum.count;
    if (sum.count >= (double)least)
      types[kept++] = sum;
  }
  qsort(types, (size_t)kept, sizeof *types, by_score);
  return kept;
}

static void set_ends(const type_t *types, int64_t n, wm_gate_ends_t *out) {
  for (int e = 0; e < 2; e++)
    for (int64_t i = 0; i < WM_GATE_ENDS; i++) {
      const type_t none = {-1, -1, 0, NAN, NAN};
      /* A type is at one end only. */
      const bool there = e == 0 ? i < (n + 1) / 2 : i < n / 2;
      const type_t *t = !there ? &none : e == 0 ? &types[i] : &types[n - 1 - i];
      out->token[e][i] = t->token;
      out->count[e][i] = t->count;
      out->score[e][i] = t->score;
      out->delta[e][i] = t->delta;
    }
}

wm_status_t wm_gate_ends_find(const wm_windows_t *w, const int32_t *ids, const float *full,
                              const float *linear, const double *scores, int64_t least_count,
                              wm_gate_ends_t *out, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, w->n_predicted, sizeof(type_t), "token types", err);
  if (status != WM_OK)
    return status;
  type_t *types = memory;
  int64_t n = 0;
  for (int64_t i = 0, place = 0; i < w->n; i++)
    for (int64_t r = w->first_predicted[i]; r + 1 < w->length[i]; r++, place++) {
      const double delta = (double)linear[place] - (double)full[place];
      if (isfinite(delta) && isfinite(scores[place]))
        types[n++] = (type_t){ids[w->first[i] + r], place, 1, scores[place], delta};
    }
  n = merge_types(types, n, least_count);
  set_ends(types, n, out);
  free(memory);
  return WM_OK;
}

/* --- file ---------------------------------------------------------------------------------------
 */

/* Members of the ends as datasets. */
static const struct {
  const char *path;
  size_t offset;
  bool integer;
  const char *description;
} members[] = {
    {"/ends/token", offsetof(wm_gate_ends_t, token), true,
     "[layer of /layers, high and low end, rank] input token types with the most extreme mean "
     "score "
     "of the linear gate on the fit's positions, outermost first; -1: none"},
    {"/ends/count", offsetof(wm_gate_ends_t, count), false,
     "[layer of /layers, high and low end, rank] positions of the type"},
    {"/ends/score", offsetof(wm_gate_ends_t, score), false,
     "[layer of /layers, high and low end, rank] their mean score, log-odds"},
    {"/ends/delta", offsetof(wm_gate_ends_t, delta), false,
     "[layer of /layers, high and low end, rank] their mean delta, nats"},
};
enum { MEMBERS = sizeof members / sizeof members[0] };

static size_t bytes_of(int member) {
  return 2 * WM_GATE_ENDS * (members[member].integer ? sizeof(int32_t) : sizeof(double));
}

wm_status_t wm_gate_ends_write(const wm_gate_ends_t *ends, int64_t n_layers, const wm_comm_t *comm,
                               wm_h5_t *file, wm_error_t *err) {
  const int64_t dims[3] = {n_layers, 2, WM_GATE_ENDS}, zero[3] = {0};
  const int64_t count[3] = {comm->rank == 0 ? n_layers : 0, 2, WM_GATE_ENDS};
  void *buffer;
  wm_status_t status = wm_alloc(&buffer, n_layers, sizeof *ends, "ends of directions", err);
  WM_TRY(wm_agree(comm->world, status, err));
  for (int m = 0; m < MEMBERS; m++) {
    const bool integer = members[m].integer;
    for (int64_t i = 0; i < n_layers; i++)
      memcpy((char *)buffer + (size_t)i * bytes_of(m), (const char *)&ends[i] + members[m].offset,
             bytes_of(m));
    WM_TRY(wm_h5_dataset(file, members[m].path, integer ? H5T_STD_I32LE : H5T_IEEE_F64LE, 3, dims,
                         members[m].description, err));
    WM_TRY(wm_h5_write(file, members[m].path, integer ? H5T_NATIVE_INT32 : H5T_NATIVE_DOUBLE, zero,
                       count, buffer, err));
  }
cleanup:
  free(buffer);
  return status;
}

wm_status_t wm_gate_ends_read(wm_gate_ends_t *ends, int64_t n_layers, wm_h5_t *file,
                              wm_error_t *err) {
  const int64_t zero[3] = {0}, count[3] = {n_layers, 2, WM_GATE_ENDS};
  void *buffer;
  wm_status_t status = wm_alloc(&buffer, n_layers, sizeof *ends, "ends of directions", err);
  for (int m = 0; m < MEMBERS && status == WM_OK; m++) {
    status =
        wm_h5_read(file, members[m].path, members[m].integer ? H5T_NATIVE_INT32 : H5T_NATIVE_DOUBLE,
                   zero, count, buffer, err);
    for (int64_t i = 0; i < n_layers && status == WM_OK; i++)
      memcpy((char *)&ends[i] + members[m].offset, (const char *)buffer + (size_t)i * bytes_of(m),
             bytes_of(m));
  }
  free(buffer);
  return status;
}
