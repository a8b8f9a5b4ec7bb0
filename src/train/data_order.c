#include "wanamaker/train/data_order.h"

#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/io/hdf5.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int64_t wm_data_order_steps(const wm_data_order_t *o) {
  int64_t whole = (o->end - o->begin) / o->length;
  if (o->wrap || o->starts == WM_STARTS_RANDOM)
    return whole > 0 ? INT64_MAX : 0;
  return whole / o->sequences;
}

int64_t wm_data_order_first(const wm_data_order_t *o, int64_t q) {
  if (o->starts == WM_STARTS_RANDOM) {
    const wm_rng_t rng = {o->seed, 0x64617461}; /* a stream of its own */
    return o->begin +
           (int64_t)wm_rng_below(rng, (uint64_t)q, (uint64_t)(o->end - o->begin - o->length + 1));
  }
  return o->begin + q % ((o->end - o->begin) / o->length) * o->length;
}

struct wm_data {
  const wm_comm_t *comm;
  wm_h5_t *file;
  wm_data_info_t info;
  char *encoding, *corpus;
  int64_t rows;
  double seconds;
  int64_t read;
  int64_t *hashes; /* [hashes_capacity] of a step's sequences */
  int64_t hashes_capacity;
};

/* Collective. */
static wm_status_t get_hash(wm_h5_t *file, const char *name, uint64_t *out, wm_error_t *err) {
  char *text = NULL;
  wm_status_t status = wm_h5_get_string(file, "/", name, &text, err);
  if (status == WM_OK && sscanf(text, "%" SCNx64, out) != 1)
    status = wm_fail(err, WM_INPUT, "%s: attribute %s is no fingerprint", wm_h5_path(file), name);
  free(text);
  return status;
}

wm_status_t wm_data_open(const wm_comm_t *comm, const char *path, int64_t rows, wm_data_t **out,
                         wm_error_t *err) {
  void *memory;
  wm_data_t *d = NULL;
  wm_status_t status = wm_alloc(&memory, 1, sizeof *d, "training data", err);
  *out = NULL;
  WM_TRY(wm_agree(comm->world, status, err));
  d = memory;
  d->comm = comm;
  d->rows = rows;
  WM_TRY(wm_h5_open(comm->world, path, &d->file, err));
  WM_TRY(wm_h5_verify(d->file, err));
  WM_TRY(wm_h5_dims(d->file, "/tokens", 1, &d->info.tokens, err));
  WM_TRY(wm_h5_get_string(d->file, "/", "encoding", &d->encoding, err));
  WM_TRY(wm_h5_get_string(d->file, "/", "corpus", &d->corpus, err));
  WM_TRY(get_hash(d->file, "corpus_fingerprint", &d->info.corpus_fingerprint, err));
  WM_TRY(get_hash(d->file, "tokenizer_fingerprint", &d->info.tokenizer_fingerprint, err));
  d->info.encoding = d->encoding;
  d->info.corpus = d->corpus;
  *out = d;
  return WM_OK;
cleanup:
  wm_data_close(d);
  return status;
}

void wm_data_close(wm_data_t *d) {
  if (d == NULL)
    return;
  wm_h5_close(d->file);
  free(d->encoding);
  free(d->corpus);
  free(d->hashes);
  free(d);
}

const wm_data_info_t *wm_data_info(const wm_data_t *d) {
  return &d->info;
}

void wm_data_part(const wm_comm_t *comm, const wm_data_order_t *o, int64_t *first, int64_t *count) {
  wm_partition(o->sequences, comm->size, comm->rank, first, count);
}

/* Collective. Sequences q .. q + count - 1 in as few reads as their places allow; all ranks take
 * part in `most` reads. */
static wm_status_t read_runs(wm_data_t *d, const wm_data_order_t *o, int64_t q, int64_t count,
                             int64_t most, int32_t *ids, wm_error_t *err) {
  int64_t done = 0;
  wm_status_t status = WM_OK;
  for (int64_t k = 0; k < most && status == WM_OK; k++) {
    int64_t run = 0, first = done < count ? wm_data_order_first(o, q + done) : 0;
    while (done + run < count && wm_data_order_first(o, q + done + run) == first + run * o->length)
      run++;
    int64_t tokens = run * o->length;
    status = wm_h5_read(d->file, "/tokens", H5T_NATIVE_INT32, &first, &tokens,
                        ids + done * o->length, err);
    done += run;
  }
  return status;
}

/* Reads that sequences q .. q + count - 1 take. */
static int64_t count_runs(const wm_data_order_t *o, int64_t q, int64_t count) {
  int64_t runs = count > 0;
  for (int64_t i = 1; i < count; i++)
    runs += wm_data_order_first(o, q + i) != wm_data_order_first(o, q + i - 1) + o->length;
  return runs;
}

static wm_status_t check_ids(const wm_data_t *d, const wm_data_order_t *o, int64_t q, int64_t count,
                             const int32_t *ids, wm_error_t *err) {
  for (int64_t i = 0; i < count * o->length; i++)
    if (ids[i] < 0 || ids[i] >= d->rows)
      return wm_fail(err, WM_INPUT,
                     "%s: token %" PRId64 " has id %" PRId32
                     ", but the model's embedding has %" PRId64
                     " rows: the tokenizer is not this model's",
                     wm_h5_path(d->file), wm_data_order_first(o, q + i / o->length) + i % o->length,
                     ids[i], d->rows);
  return WM_OK;
}

/* Collective. */
static void extend_chain(wm_data_t *d, const wm_data_order_t *o, int64_t first, int64_t count,
                         const int32_t *ids, uint64_t *chain) {
  const size_t bytes = (size_t)o->length * sizeof *ids;
  memset(d->hashes, 0, (size_t)o->sequences * sizeof *d->hashes);
  for (int64_t i = 0; i < count; i++) {
    uint64_t h = wm_hash(ids + i * o->length, bytes, 0);
    memcpy(&d->hashes[first + i], &h, sizeof h);
  }
  wm_sum_i64(d->comm->world, d->hashes, o->sequences); /* each has one term that is not 0 */
  *chain = wm_hash(d->hashes, (size_t)o->sequences * sizeof *d->hashes, *chain);
}

wm_status_t wm_data_load(wm_data_t *d, const wm_data_order_t *o, int64_t step, int32_t *ids,
                         uint64_t *chain, wm_error_t *err) {
  const double start = wm_seconds();
  const int64_t q = step * o->sequences;
  int64_t first, count, most = 0;
  void *memory = d->hashes;
  wm_status_t status;
  wm_data_part(d->comm, o, &first, &count);
  for (int r = 0; r < d->comm->size; r++) {
    int64_t begin, length;
    wm_partition(o->sequences, d->comm->size, r, &begin, &length);
    int64_t runs = count_runs(o, q + begin, length);
    most = runs > most ? runs : most;
  }
  status = o->sequences <= d->hashes_capacity
               ? WM_OK
               : wm_grow(&memory, &d->hashes_capacity, 0, o->sequences, sizeof *d->hashes,
                         "fingerprints of sequences", err);
  d->hashes = memory;
  WM_TRY(wm_agree(d->comm->world, status, err));
  WM_TRY(read_runs(d, o, q + first, count, most, ids, err));
  WM_TRY(wm_agree(d->comm->world, check_ids(d, o, q + first, count, ids, err), err));
  extend_chain(d, o, first, count, ids, chain);
  d->seconds += wm_seconds() - start;
  d->read += count * o->length;
cleanup:
  return status;
}

void wm_data_rate(const wm_data_t *d, double *seconds, int64_t *tokens) {
  *seconds = d->seconds;
  *tokens = d->read;
}
