/* Writing tokens.h5 from parts.
 *
 * Where a rank's tokens lie in the file is known only when all ranks have counted theirs. Until
 * then each keeps them in spills; then all copy from the spills, block by block, in as many
 * collective rounds as the rank with most blocks needs. */
#include "wanamaker/base/hash.h"
#include "wanamaker/io/tokens.h"

#include "spill.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/io/hdf5.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK_BYTES = 4 << 20 };

struct wm_tokens_writer {
  char *path;
  wm_spill_t ids, row_first, row_flags; /* row_first: counted from the rank's first token */
  int64_t n_tokens, n_rows;
};

wm_status_t wm_tokens_writer_create(const char *path, int64_t block_bytes, wm_tokens_writer_t **out,
                                    wm_error_t *err) {
  assert(block_bytes % (int64_t)sizeof(int64_t) == 0);
  const int64_t bytes = block_bytes > 0 ? block_bytes : BLOCK_BYTES;
  void *memory;
  *out = NULL;
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_tokens_writer_t), "tokens", err);
  if (status != WM_OK)
    return status;
  wm_tokens_writer_t *w = memory;
  WM_TRY(wm_strdup(&w->path, path, err));
  WM_TRY(wm_spill_init(&w->ids, w->path, "token ids", bytes, err));
  WM_TRY(wm_spill_init(&w->row_first, w->path, "rows", bytes, err));
  WM_TRY(wm_spill_init(&w->row_flags, w->path, "row flags", bytes, err));
  *out = w;
  w = NULL;
cleanup:
  wm_tokens_writer_free(w);
  return status;
}

void wm_tokens_writer_free(wm_tokens_writer_t *writer) {
  if (writer == NULL)
    return;
  wm_spill_destroy(&writer->ids);
  wm_spill_destroy(&writer->row_first);
  wm_spill_destroy(&writer->row_flags);
  free(writer->path);
  free(writer);
}

wm_status_t wm_tokens_append(wm_tokens_writer_t *w, const wm_token_part_t *part, wm_error_t *err) {
  wm_status_t status;
  WM_TRY(wm_spill_append(&w->ids, part->ids, part->n_tokens * (int64_t)sizeof *part->ids, err));
  WM_TRY(wm_spill_append(&w->row_flags, part->row_flags, part->n_rows, err));
  for (int64_t r = 0; r < part->n_rows; r++) {
    assert(part->row_first_token[r] >= (r > 0 ? part->row_first_token[r - 1] : 0) &&
           part->row_first_token[r] <= part->n_tokens);
    int64_t first = w->n_tokens + part->row_first_token[r];
    WM_TRY(wm_spill_append(&w->row_first, &first, sizeof first, err));
  }
  w->n_tokens += part->n_tokens;
  w->n_rows += part->n_rows;
cleanup:
  return status;
}

void wm_tokens_appended(const wm_tokens_writer_t *writer, int64_t *tokens, int64_t *rows) {
  *tokens = writer->n_tokens;
  *rows = writer->n_rows;
}

/* Where this rank's tokens and rows lie in the corpus. */
typedef struct {
  int64_t first_token, first_row; /* of this rank */
  int64_t tokens, rows;           /* of the corpus */
} place_t;

/* Collective. */
static place_t find_place(const wm_comm_t *comm, const wm_tokens_writer_t *w) {
  int64_t own[2] = {w->n_tokens, w->n_rows}, before[2] = {0, 0};
  MPI_Exscan(own, before, 2, MPI_INT64_T, MPI_SUM, comm->world);
  if (comm->rank == 0) /* what it receives there is not defined */
    before[0] = before[1] = 0;
  wm_sum_i64(comm->world, own, 2);
  return (place_t){before[0], before[1], own[0], own[1]};
}

/* Not collective. Ends the spills; the last rank's rows get the final entry. */
static wm_status_t finish_spills(const wm_comm_t *comm, wm_tokens_writer_t *w, wm_error_t *err) {
  wm_status_t status = WM_OK;
  if (comm->rank == comm->size - 1)
    WM_TRY(wm_spill_append(&w->row_first, &w->n_tokens, sizeof w->n_tokens, err));
  WM_TRY(wm_spill_finish(&w->ids, err));
  WM_TRY(wm_spill_finish(&w->row_first, err));
  WM_TRY(wm_spill_finish(&w->row_flags, err));
cleanup:
  return status;
}

/* Collective. */
static wm_status_t write_attributes(wm_h5_t *file, const wm_tokens_info_t *info, wm_error_t *err) {
  char corpus_hash[17], tokenizer_hash[17];
  wm_hash_text(info->corpus_fingerprint, corpus_hash);
  wm_hash_text(info->tokenizer_fingerprint, tokenizer_hash);
  wm_status_t status;
  WM_TRY(wm_h5_set_string(file, "/", "encoding", info->encoding, err));
  WM_TRY(wm_h5_set_string(file, "/", "corpus", info->corpus, err));
  WM_TRY(wm_h5_set_string(file, "/", "corpus_fingerprint", corpus_hash, err));
  WM_TRY(wm_h5_set_string(file, "/", "tokenizer_fingerprint", tokenizer_hash, err));
  WM_TRY(wm_h5_set_int(file, "/", "vocab_size", info->vocab_size, err));
  WM_TRY(wm_h5_set_int(file, "/", "replaced", info->replaced, err));
  WM_TRY(wm_h5_set_string(file, "/", "configuration", info->configuration, err));
cleanup:
  return status;
}

/* Collective. */
static wm_status_t make_datasets(wm_h5_t *file, const place_t *at, wm_error_t *err) {
  const int64_t entries = at->rows + 1;
  wm_status_t status;
  WM_TRY(wm_h5_dataset(file, "/tokens", H5T_STD_I32LE, 1, &at->tokens,
                       "[tokens] token ids in corpus order", err));
  WM_TRY(wm_h5_dataset(file, "/rows/first_token", H5T_STD_I64LE, 1, &entries,
                       "[rows + 1] index of the first token that begins in the row or later; the "
                       "last entry is the number of tokens",
                       err));
  WM_TRY(wm_h5_dataset(file, "/rows/flags", H5T_STD_U8LE, 1, &at->rows,
                       "[rows] bit 0: blank; bit 1: an article begins (level-1 heading)", err));
cleanup:
  return status;
}

static wm_status_t check_ids(const int32_t *ids, int64_t n, int64_t first,
                             const wm_tokens_info_t *info, wm_error_t *err) {
  for (int64_t i = 0; i < n; i++)
    if (ids[i] < 0 || ids[i] >= info->vocab_size)
      return wm_fail(err, WM_INPUT, "%s: token %" PRId64 " has id %d, outside of [0, %" PRId64 ")",
                     info->corpus, first + i, (int)ids[i], info->vocab_size);
  return WM_OK;
}

/* One of the three arrays on its way from spill to file. */
typedef struct {
  wm_spill_t *spill;
  const char *dataset;
  hid_t type;
  int64_t size, at; /* bytes of an element; index of the rank's next one in the dataset */
} copy_t;

/* Not collective. Block k, if there is one, made ready to be written. */
static wm_status_t next_block(const copy_t *c, int64_t k, const place_t *place,
                              const wm_tokens_info_t *info, void **data, int64_t *count,
                              wm_error_t *err) {
  int64_t bytes = 0;
  *data = NULL;
  *count = 0;
  if (wm_stop_requested())
    return wm_fail(err, WM_STOPPED, "%s: stopped by %s before the tokens were written whole",
                   info->corpus, wm_stop_reason());
  if (k >= wm_spill_blocks(c->spill))
    return WM_OK;
  wm_status_t status = wm_spill_block(c->spill, k, data, &bytes, err);
  if (status != WM_OK)
    return status;
  *count = bytes / c->size;
  if (c->type == H5T_NATIVE_INT32)
    return check_ids(*data, *count, c->at, info, err);
  if (c->type == H5T_NATIVE_INT64)
    for (int64_t i = 0; i < *count; i++)
      ((int64_t *)*data)[i] += place->first_token;
  return WM_OK;
}

/* Collective. Copies an array in `rounds` rounds. */
static wm_status_t copy(const wm_comm_t *comm, wm_h5_t *file, copy_t *c, int64_t rounds,
                        const place_t *place, const wm_tokens_info_t *info,
                        const wm_tokens_progress_t *written, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int64_t k = 0; k < rounds; k++) {
    int64_t count;
    void *data;
    status = next_block(c, k, place, info, &data, &count, err);
    WM_TRY(wm_agree(comm->world, status, err));
    WM_TRY(wm_h5_write(file, c->dataset, c->type, &c->at, &count, data, err));
    c->at += count;
    wm_pulse();
    if (written != NULL)
      written->call(written->context, k + 1, rounds);
  }
cleanup:
  return status;
}

/* Collective. */
static wm_status_t copy_all(const wm_comm_t *comm, wm_h5_t *file, wm_tokens_writer_t *w,
                            const place_t *at, const wm_tokens_info_t *info,
                            const wm_tokens_progress_t *written, wm_error_t *err) {
  copy_t arrays[] = {
      {&w->row_flags, "/rows/flags", H5T_NATIVE_UINT8, 1, at->first_row},
      {&w->row_first, "/rows/first_token", H5T_NATIVE_INT64, sizeof(int64_t), at->first_row},
      {&w->ids, "/tokens", H5T_NATIVE_INT32, sizeof(int32_t), at->first_token},
  };
  enum { N = sizeof arrays / sizeof arrays[0] };
  int64_t rounds[N];
  wm_status_t status = WM_OK;
  for (int i = 0; i < N; i++)
    rounds[i] = wm_spill_blocks(arrays[i].spill);
  MPI_Allreduce(MPI_IN_PLACE, rounds, N, MPI_INT64_T, MPI_MAX, comm->world);
  for (int i = 0; i < N; i++) /* the ids, which take longest, are what progress tells of */
    WM_TRY(copy(comm, file, &arrays[i], rounds[i], at, info, i == N - 1 ? written : NULL, err));
cleanup:
  return status;
}

wm_status_t wm_tokens_publish(const wm_comm_t *comm, wm_tokens_writer_t *writer,
                              const wm_tokens_info_t *info, const wm_tokens_progress_t *written,
                              wm_error_t *err) {
  assert(wm_tokens_known_encoding(info->encoding));
  wm_h5_t *file = NULL;
  place_t at = find_place(comm, writer);
  wm_status_t status = finish_spills(comm, writer, err);
  if (status == WM_OK && at.tokens == 0)
    status = wm_fail(err, WM_INPUT, "%s: the corpus has no tokens", info->corpus);
  WM_TRY(wm_agree(comm->world, status, err));
  WM_TRY(wm_h5_create(comm->world, writer->path, &file, err));
  WM_TRY(write_attributes(file, info, err));
  WM_TRY(make_datasets(file, &at, err));
  WM_TRY(copy_all(comm, file, writer, &at, info, written, err));
  wm_h5_t *finished = file;
  file = NULL; /* gone after this, whatever comes of it */
  status = wm_h5_publish(finished, err);
cleanup:
  wm_h5_close(file);
  return status;
}
