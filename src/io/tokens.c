#include "wanamaker/io/tokens.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/io/files.h"
#include "wanamaker/io/hdf5.h"
#include "wanamaker/par/shared.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

bool wm_tokens_known_encoding(const char *encoding) {
  static const char *const known[] = {"documents", "stream", "ids"};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (strcmp(encoding, known[i]) == 0)
      return true;
  return false;
}

/* Ids are many: they are mapped, so that what is never looked at takes no memory. The rows are read
 * into memory (in the file they need not be aligned), as are ids that are not stored as int32. */
struct wm_tokens {
  int64_t count, rows;
  wm_map_t map;       /* the file; data is NULL when the ids are in `shared` */
  int64_t ids_at;     /* byte of the map or of `shared` */
  wm_shared_t shared; /* first_token[rows + 1] | ids[count] unless mapped | flags[rows] */
  int64_t flags_at;   /* byte of `shared` */
  char *path, *encoding, *corpus, *configuration;
  wm_tokens_info_t info;
};

static int64_t *row_first(const wm_tokens_t *t) {
  return t->shared.data;
}

static int32_t *ids(const wm_tokens_t *t) {
  char *base = t->map.data != NULL ? t->map.data : t->shared.data;
  return (int32_t *)(base + t->ids_at);
}

static uint8_t *flags(const wm_tokens_t *t) {
  return (uint8_t *)t->shared.data + t->flags_at;
}

/* Collective. A fingerprint: 16 hexadecimal digits. */
static wm_status_t read_fingerprint(wm_h5_t *file, const char *name, uint64_t *out,
                                    wm_error_t *err) {
  char *text = NULL;
  wm_status_t status = wm_h5_get_string(file, "/", name, &text, err);
  if (status != WM_OK)
    return status;
  if (strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16)
    *out = strtoull(text, NULL, 16);
  else
    status = wm_fail(err, WM_INPUT, "%s: attribute \"%s\": 16 hexadecimal digits expected, not %s",
                     wm_h5_path(file), name, text);
  free(text);
  return status;
}

/* Collective. */
static wm_status_t read_attributes(wm_h5_t *file, wm_tokens_t *t, wm_error_t *err) {
  wm_status_t status;
  WM_TRY(wm_h5_get_string(file, "/", "encoding", &t->encoding, err));
  WM_TRY(wm_h5_get_string(file, "/", "corpus", &t->corpus, err));
  WM_TRY(wm_h5_get_string(file, "/", "configuration", &t->configuration, err));
  t->info.encoding = t->encoding;
  t->info.corpus = t->corpus;
  t->info.configuration = t->configuration;
  WM_TRY(read_fingerprint(file, "corpus_fingerprint", &t->info.corpus_fingerprint, err));
  WM_TRY(read_fingerprint(file, "tokenizer_fingerprint", &t->info.tokenizer_fingerprint, err));
  WM_TRY(wm_h5_get_int(file, "/", "vocab_size", &t->info.vocab_size, err));
  WM_TRY(wm_h5_get_int(file, "/", "replaced", &t->info.replaced, err));
  if (!wm_tokens_known_encoding(t->encoding))
    status = wm_fail(err, WM_INPUT,
                     "%s: attribute \"encoding\" is \"%s\"; expected documents, stream or ids",
                     t->path, t->encoding);
  else if (t->info.vocab_size < 1 || t->info.vocab_size > INT32_MAX)
    status = wm_fail(err, WM_INPUT, "%s: attribute \"vocab_size\" is %" PRId64, t->path,
                     t->info.vocab_size);
cleanup:
  return status;
}

/* Collective. */
static wm_status_t read_extents(wm_h5_t *file, wm_tokens_t *t, wm_error_t *err) {
  int64_t entries;
  wm_status_t status;
  WM_TRY(wm_h5_dims(file, "/tokens", 1, &t->count, err));
  WM_TRY(wm_h5_dims(file, "/rows/flags", 1, &t->rows, err));
  WM_TRY(wm_h5_dims(file, "/rows/first_token", 1, &entries, err));
  if (entries != t->rows + 1)
    status = wm_fail(err, WM_INPUT,
                     "%s: /rows/first_token has %" PRId64 " entries, but there are %" PRId64
                     " rows; expected one more than rows",
                     t->path, entries, t->rows);
  else if (t->count < 1 || t->count > INT64_MAX / 64 || t->rows > INT64_MAX / 64)
    status = wm_fail(err, WM_INPUT, "%s: holds %" PRId64 " tokens and %" PRId64 " rows", t->path,
                     t->count, t->rows);
cleanup:
  return status;
}

/* Not collective. Maps the file if its ids can be used as they lie there. */
static wm_status_t map_ids(wm_h5_t *file, wm_tokens_t *t, wm_error_t *err) {
  int64_t at = wm_h5_place(file, "/tokens", H5T_NATIVE_INT32);
  if (at < 0 || at % (int64_t)sizeof(int32_t) != 0)
    return WM_OK;
  wm_status_t status = wm_map_open(t->path, &t->map, err);
  if (status == WM_OK && t->count > (t->map.bytes - at) / (int64_t)sizeof(int32_t))
    status = wm_fail(err, WM_INPUT, "%s: /tokens: ends behind the end of the file", t->path);
  t->ids_at = at;
  return status;
}

/* Collective. Memory for what is not mapped, once per node. */
static wm_status_t make_room(const wm_comm_t *comm, wm_tokens_t *t, wm_error_t *err) {
  int64_t bytes = (t->rows + 1) * (int64_t)sizeof(int64_t);
  if (t->map.data == NULL) {
    t->ids_at = bytes;
    bytes += t->count * (int64_t)sizeof(int32_t);
  }
  t->flags_at = bytes;
  bytes += t->rows;
  return wm_agree(comm->world, wm_shared_create(comm, bytes, "the tokens", &t->shared, err), err);
}

/* Collective. The ranks of a node read a share each. */
static wm_status_t read_arrays(wm_h5_t *file, const wm_comm_t *comm, wm_tokens_t *t,
                               wm_error_t *err) {
  int64_t first, n;
  wm_status_t status;
  wm_partition(t->rows + 1, comm->node_size, comm->node_rank, &first, &n);
  WM_TRY(wm_h5_read(file, "/rows/first_token", H5T_NATIVE_INT64, &first, &n, row_first(t) + first,
                    err));
  if (t->map.data == NULL) {
    wm_partition(t->count, comm->node_size, comm->node_rank, &first, &n);
    WM_TRY(wm_h5_read(file, "/tokens", H5T_NATIVE_INT32, &first, &n, ids(t) + first, err));
  }
  wm_partition(t->rows, comm->node_size, comm->node_rank, &first, &n);
  WM_TRY(wm_h5_read(file, "/rows/flags", H5T_NATIVE_UINT8, &first, &n, flags(t) + first, err));
  wm_shared_sync(&t->shared);
cleanup:
  return status;
}

static wm_status_t check_rows(const wm_tokens_t *t, int64_t first, int64_t n, wm_error_t *err) {
  const int64_t *begin = row_first(t);
  if (begin[t->rows] != t->count || (t->rows > 0 && begin[0] != 0))
    return wm_fail(err, WM_INPUT,
                   "%s: /rows/first_token runs from %" PRId64 " to %" PRId64
                   "; expected 0 to %" PRId64,
                   t->path, begin[0], begin[t->rows], t->count);
  for (int64_t r = first; r < first + n; r++) {
    if (begin[r] > begin[r + 1])
      return wm_fail(err, WM_INPUT, "%s: /rows/first_token decreases behind row %" PRId64, t->path,
                     r);
    if ((flags(t)[r] & ~(WM_ROW_BLANK | WM_ROW_ARTICLE)) != 0)
      return wm_fail(err, WM_INPUT, "%s: /rows/flags: row %" PRId64 " has unknown flags 0x%02x",
                     t->path, r, flags(t)[r]);
  }
  return WM_OK;
}

static wm_status_t check_ids(const wm_tokens_t *t, int64_t first, int64_t n, wm_error_t *err) {
  enum { PULSE = 1 << 24 };
  for (int64_t i = first; i < first + n; i++) {
    if (ids(t)[i] < 0 || ids(t)[i] >= t->info.vocab_size)
      return wm_fail(err, WM_INPUT,
                     "%s: /tokens: token %" PRId64 " has id %d, outside of [0, %" PRId64 ")",
                     t->path, i, (int)ids(t)[i], t->info.vocab_size);
    if (i % PULSE == 0)
      wm_pulse();
  }
  return WM_OK;
}

/* Collective. Each rank of a node checks its share of what the node holds. */
static wm_status_t check_arrays(const wm_comm_t *comm, const wm_tokens_t *t, wm_error_t *err) {
  int64_t first, n;
  wm_partition(t->rows, comm->node_size, comm->node_rank, &first, &n);
  wm_status_t status = check_rows(t, first, n, err);
  wm_partition(t->count, comm->node_size, comm->node_rank, &first, &n);
  if (status == WM_OK)
    status = check_ids(t, first, n, err);
  return wm_agree(comm->world, status, err);
}

wm_status_t wm_tokens_open(const wm_comm_t *comm, const char *path, wm_tokens_t **out,
                           wm_error_t *err) {
  wm_h5_t *file = NULL;
  void *memory;
  *out = NULL;
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_tokens_t), "tokens", err);
  wm_tokens_t *t = memory;
  if (status == WM_OK)
    status = wm_strdup(&t->path, path, err);
  WM_TRY(wm_agree(comm->world, status, err));
  WM_TRY(wm_h5_open(comm->world, path, &file, err));
  WM_TRY(wm_h5_verify(file, err));
  WM_TRY(read_attributes(file, t, err));
  WM_TRY(read_extents(file, t, err));
  WM_TRY(wm_agree(comm->world, map_ids(file, t, err), err));
  WM_TRY(make_room(comm, t, err));
  WM_TRY(read_arrays(file, comm, t, err));
  WM_TRY(check_arrays(comm, t, err));
cleanup:
  wm_h5_close(file);
  if (status == WM_OK)
    *out = t;
  else
    wm_tokens_close(t);
  return status;
}

void wm_tokens_close(wm_tokens_t *tokens) {
  if (tokens == NULL)
    return;
  wm_shared_destroy(&tokens->shared);
  wm_map_close(&tokens->map);
  free(tokens->path);
  free(tokens->encoding);
  free(tokens->corpus);
  free(tokens->configuration);
  free(tokens);
}

int64_t wm_tokens_count(const wm_tokens_t *tokens) {
  return tokens->count;
}

int64_t wm_tokens_rows(const wm_tokens_t *tokens) {
  return tokens->rows;
}

const int32_t *wm_tokens_ids(const wm_tokens_t *tokens) {
  return ids(tokens);
}

const int64_t *wm_tokens_row_first(const wm_tokens_t *tokens) {
  return row_first(tokens);
}

const uint8_t *wm_tokens_row_flags(const wm_tokens_t *tokens) {
  return flags(tokens);
}

const wm_tokens_info_t *wm_tokens_info(const wm_tokens_t *tokens) {
  return &tokens->info;
}
