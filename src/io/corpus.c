#include "wanamaker/io/corpus.h"

#include "corpus_formats.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/io/files.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const int64_t HASH_BYTES = 64 << 20; /* a block of the fingerprint */

struct wm_corpus {
  char *path, *field;
  wm_corpus_format_t format;
  bool keep_newline;
  wm_map_t map;
  wm_npy_t array; /* npy only */
};

static wm_corpus_format_t format_of_name(const char *path) {
  static const struct {
    const char *ending;
    wm_corpus_format_t format;
  } endings[] = {
      {".jsonl", WM_CORPUS_JSONL}, {".ndjson", WM_CORPUS_JSONL}, {".npy", WM_CORPUS_NPY}};
  size_t length = strlen(path);
  for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
    size_t n = strlen(endings[i].ending);
    if (length >= n && strcasecmp(path + length - n, endings[i].ending) == 0)
      return endings[i].format;
  }
  return WM_CORPUS_TEXT;
}

/* All ranks read the file, from any place: no pipe can be a corpus. */
static wm_status_t open_map(wm_corpus_t *c, wm_error_t *err) {
  if (strcmp(c->path, "-") == 0)
    return wm_fail(
        err, WM_INPUT,
        "-: standard input cannot be a corpus, which all ranks read at once: give a file");
  return wm_map_open(c->path, &c->map, err);
}

wm_status_t wm_corpus_open(const wm_corpus_spec_t *spec, wm_corpus_t **out, wm_error_t *err) {
  void *memory = NULL;
  wm_status_t status;
  *out = NULL;
  WM_TRY(wm_alloc(&memory, 1, sizeof(wm_corpus_t), "corpus", err));
  wm_corpus_t *c = memory;
  c->format = spec->format == WM_CORPUS_AUTO ? format_of_name(spec->path) : spec->format;
  c->keep_newline = spec->keep_newline;
  WM_TRY(wm_strdup(&c->path, spec->path, err));
  WM_TRY(wm_strdup(&c->field, spec->field != NULL ? spec->field : "text", err));
  WM_TRY(open_map(c, err));
  if (c->map.bytes == 0)
    status = wm_fail(err, WM_INPUT, "%s: the corpus is empty", spec->path);
  else if (c->format == WM_CORPUS_NPY)
    status = wm_npy_parse(c->path, c->map.data, c->map.bytes, &c->array, err);
cleanup:
  if (status == WM_OK)
    *out = memory;
  else
    wm_corpus_close(memory);
  return status;
}

void wm_corpus_close(wm_corpus_t *corpus) {
  if (corpus == NULL)
    return;
  wm_map_close(&corpus->map);
  free(corpus->path);
  free(corpus->field);
  free(corpus);
}

wm_corpus_format_t wm_corpus_format(const wm_corpus_t *corpus) {
  return corpus->format;
}

int64_t wm_corpus_bytes(const wm_corpus_t *corpus) {
  return corpus->map.bytes;
}

uint64_t wm_corpus_stamp(const wm_corpus_t *corpus) {
  return wm_map_stamp(&corpus->map);
}

wm_status_t wm_corpus_unchanged(const wm_corpus_t *corpus, wm_error_t *err) {
  return wm_map_unchanged(&corpus->map, err);
}

/* Not collective. Hash of block k of the file. */
static uint64_t block_hash(const wm_corpus_t *c, int64_t k) {
  int64_t begin = k * HASH_BYTES, left = c->map.bytes - begin;
  return wm_hash((const char *)c->map.data + begin, (size_t)(left < HASH_BYTES ? left : HASH_BYTES),
                 0);
}

/* Collective. The ranks take the blocks in turn and meet after each, so that a request to stop on
 * one of them stops all. */
static wm_status_t hash_blocks(const wm_comm_t *comm, const wm_corpus_t *c, int64_t blocks,
                               uint64_t *hashes, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int64_t k = comm->rank; k - comm->rank < blocks; k += comm->size) {
    if (wm_stop_requested())
      status = wm_fail(err, WM_STOPPED, "%s: stopped by %s while it was fingerprinted", c->path,
                       wm_stop_reason());
    else if (k < blocks)
      hashes[k] = block_hash(c, k);
    wm_pulse();
    WM_TRY(wm_agree(comm->world, status, err));
  }
cleanup:
  return status;
}

wm_status_t wm_corpus_fingerprint(const wm_comm_t *comm, const wm_corpus_t *c, uint64_t *out,
                                  wm_error_t *err) {
  const int64_t blocks = (c->map.bytes + HASH_BYTES - 1) / HASH_BYTES;
  int64_t settings[2] = {c->format, c->format != WM_CORPUS_NPY && c->keep_newline};
  void *memory;
  wm_status_t status = wm_alloc(&memory, blocks, sizeof(uint64_t), c->path, err);
  uint64_t *hashes = memory;
  WM_TRY(wm_agree(comm->world, status, err));
  WM_TRY(hash_blocks(comm, c, blocks, hashes, err));
  wm_sum_i64(comm->world, memory, blocks); /* every block is hashed by one rank, 0 on the others */
  *out = wm_hash(settings, sizeof settings, 0);
  if (c->format == WM_CORPUS_JSONL)
    *out = wm_hash(c->field, strlen(c->field), *out);
  *out = wm_hash(&c->map.bytes, sizeof c->map.bytes, *out);
  *out = wm_hash(hashes, (size_t)blocks * sizeof *hashes, *out);
cleanup:
  free(memory);
  return status;
}

/* Position behind the line that holds `byte`. */
static int64_t line_end(const wm_corpus_t *c, int64_t byte) {
  const char *data = c->map.data;
  const char *end = memchr(data + byte, '\n', (size_t)(c->map.bytes - byte));
  return end != NULL ? end - data + 1 : c->map.bytes;
}

int64_t wm_corpus_line_at(const wm_corpus_t *c, int64_t byte) {
  assert(c->format != WM_CORPUS_NPY);
  if (byte <= 0)
    return 0;
  if (byte >= c->map.bytes)
    return c->map.bytes;
  return line_end(c, byte - 1);
}

/* Bytes of the white-space character that begins at text[0], or 0. The set is that of Python's
 * str.strip(). */
static int64_t space_length(const unsigned char *text, int64_t bytes) {
  unsigned char c = text[0];
  if (c < 0x80)
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
  if (c == 0xc2 && bytes >= 2) /* U+0085, U+00A0 */
    return text[1] == 0x85 || text[1] == 0xa0 ? 2 : 0;
  if (bytes < 3 || c < 0xe1 || c > 0xe3)
    return 0;
  unsigned code = (c & 0x0fu) << 12 | (text[1] & 0x3fu) << 6 | (text[2] & 0x3fu);
  bool formed = (text[1] & 0xc0) == 0x80 && (text[2] & 0xc0) == 0x80;
  bool space = code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
               code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
  return formed && space ? 3 : 0;
}

static bool is_blank(const char *text, int64_t bytes) {
  for (int64_t i = 0; i < bytes;) {
    int64_t n = space_length((const unsigned char *)text + i, bytes - i);
    if (n == 0)
      return false;
    i += n;
  }
  return true;
}

static bool ascii_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

/* "= Title =" between white space; deeper levels are "= = Title = =". */
static bool is_heading(const char *text, int64_t bytes) {
  while (bytes > 0 && ascii_space(text[bytes - 1]))
    bytes--;
  while (bytes > 0 && ascii_space(text[0]))
    text++, bytes--;
  if (bytes < 5 || text[0] != '=' || text[1] != ' ' || text[bytes - 1] != '=' ||
      text[bytes - 2] != ' ')
    return false;
  text += 2, bytes -= 4;
  return text[0] != '=' && text[bytes - 1] != '=' && !is_blank(text, bytes);
}

void wm_row_cursor_init(wm_row_cursor_t *cursor, const wm_corpus_t *corpus, int64_t byte) {
  assert(corpus->format != WM_CORPUS_NPY);
  *cursor = (wm_row_cursor_t){.corpus = corpus, .next = byte};
}

void wm_row_cursor_destroy(wm_row_cursor_t *cursor) {
  free(cursor->buffer);
  *cursor = (wm_row_cursor_t){0};
}

/* Makes sure that the row ends in "\n", in the buffer unless the map has it in place. */
static wm_status_t end_in_newline(wm_row_cursor_t *cursor, wm_row_t *row, wm_error_t *err) {
  const char *map_end = (const char *)cursor->corpus->map.data + cursor->corpus->map.bytes;
  bool mapped = row->text != cursor->buffer;
  if (row->bytes > 0 && row->text[row->bytes - 1] == '\n')
    return WM_OK;
  if (mapped && row->text + row->bytes < map_end && row->text[row->bytes] == '\n') {
    row->bytes++;
    return WM_OK;
  }
  if (mapped) {
    void *buffer = cursor->buffer;
    wm_status_t status =
        wm_grow(&buffer, &cursor->capacity, 0, row->bytes + 1, 1, "row of a corpus", err);
    cursor->buffer = buffer;
    if (status != WM_OK)
      return status;
    memcpy(cursor->buffer, row->text, (size_t)row->bytes);
    row->text = cursor->buffer;
  }
  cursor->buffer[row->bytes++] = '\n'; /* wm_jsonl_decode leaves room for it */
  return WM_OK;
}

static wm_status_t decode_json(wm_row_cursor_t *cursor, const char *line, int64_t bytes,
                               wm_row_t *row, wm_error_t *err) {
  const wm_corpus_t *c = cursor->corpus;
  char where[WM_MESSAGE_SIZE / 2];
  snprintf(where, sizeof where, "%s: line at byte %lld", c->path, (long long)row->position);
  wm_status_t status = wm_jsonl_decode(line, bytes, c->field, where, &cursor->buffer,
                                       &cursor->capacity, &row->bytes, &cursor->replaced, err);
  row->text = cursor->buffer;
  return status;
}

/* Takes the next line, without its end; JSON Lines without a byte order mark. False at the end. */
static bool next_line(wm_row_cursor_t *cursor, const char **line, int64_t *bytes,
                      int64_t *position) {
  const wm_corpus_t *c = cursor->corpus;
  if (cursor->next >= c->map.bytes)
    return false;
  *position = cursor->next;
  *line = (const char *)c->map.data + cursor->next;
  cursor->next = line_end(c, cursor->next);
  cursor->line++;
  *bytes = cursor->next - *position;
  if ((*line)[*bytes - 1] == '\n') {
    (*bytes)--;
    if (*bytes > 0 && (*line)[*bytes - 1] == '\r')
      (*bytes)--;
  }
  static const char mark[] = "\xef\xbb\xbf";
  if (c->format == WM_CORPUS_JSONL && *position == 0 && *bytes >= 3 && memcmp(*line, mark, 3) == 0)
    *line += 3, *bytes -= 3;
  return true;
}

wm_status_t wm_row_cursor_next(wm_row_cursor_t *cursor, wm_row_t *row, bool *more,
                               wm_error_t *err) {
  const wm_corpus_t *c = cursor->corpus;
  const char *line;
  int64_t bytes;
  *row = (wm_row_t){0};
  do {
    *more = next_line(cursor, &line, &bytes, &row->position);
    if (!*more)
      return WM_OK;
  } while (c->format == WM_CORPUS_JSONL && is_blank(line, bytes));
  wm_status_t status = WM_OK;
  if (c->format == WM_CORPUS_JSONL) {
    status = decode_json(cursor, line, bytes, row, err);
    if (status != WM_OK)
      return status;
  } else {
    row->text = line;
    row->bytes = bytes;
  }
  row->blank = is_blank(row->text, row->bytes);
  row->heading = is_heading(row->text, row->bytes);
  if (c->keep_newline && row->blank)
    row->bytes = 0;
  else if (c->keep_newline)
    status = end_in_newline(cursor, row, err);
  return status;
}

int64_t wm_corpus_token_count(const wm_corpus_t *corpus) {
  assert(corpus->format == WM_CORPUS_NPY);
  return corpus->array.count;
}

wm_status_t wm_corpus_tokens(const wm_corpus_t *corpus, int64_t first, int64_t count, int32_t *out,
                             wm_error_t *err) {
  assert(corpus->format == WM_CORPUS_NPY);
  assert(first >= 0 && count >= 0 && first <= corpus->array.count - count);
  return wm_npy_ids(corpus->path, &corpus->array, first, count, out, err);
}
