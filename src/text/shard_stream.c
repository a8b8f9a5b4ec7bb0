/* One rank's part of the stream: rows joined with "\n", encoded as if the whole corpus were at
 * hand.
 *
 * The rank reads the rows of its share, and on into those that follow. In the text so joined it
 * encodes from `begin` to `end`:
 *
 *      own share                          | following shares
 *   ..row..\n..row..word| word..\n..row..\n ..row..wo| rd...
 *                       ^ begin           ^ border   ^ end
 *
 * begin  the first place in the own share where the text may be cut; 0 on the first rank. A rank
 *        without one encodes nothing: its text belongs to a rank before it.
 * end    the first such place behind the border, or the corpus's end.
 *
 * The rank that goes on from `end` finds the same place, because no cut is ever at the first byte
 * of a row (what precedes it is "\n") and whether one is allowed depends on the two bytes around
 * it. A row belongs to the rank in whose part its first byte lies.
 */
#include "shard.h"
#include "utf8.h"

#include "wanamaker/base/mem.h"

#include <stdlib.h>

enum { CHUNK_BYTES = 1 << 20 }; /* encoded at once: bounds the tokenizer's scratch memory */

typedef struct {
  int64_t start; /* in the text */
  int64_t replaced;
  bool blank, heading;
} stream_row_t;

typedef struct {
  wm_tokenizer_t *tokenizer;
  wm_string_t text;
  stream_row_t *rows;
  int64_t n_rows, capacity;
  int64_t begin, border, end; /* -1: not found yet */
} stream_t;

static wm_status_t add_row(stream_t *s, const wm_row_t *row, int64_t replaced, wm_error_t *err) {
  wm_status_t status = WM_OK;
  if (s->n_rows > 0)
    WM_TRY(wm_string_append(&s->text, "\n", 1, err));
  WM_TRY(wm_grow((void **)&s->rows, &s->capacity, s->n_rows, s->n_rows + 1, sizeof *s->rows,
                 "rows of a corpus", err));
  s->rows[s->n_rows++] = (stream_row_t){s->text.bytes, replaced, row->blank, row->heading};
  WM_TRY(wm_string_append(&s->text, row->text, row->bytes, err));
cleanup:
  return status;
}

/* First place at or after `from` where the text may be cut; its end if there is none so far. */
static int64_t next_cut(const stream_t *s, int64_t from) {
  while (from < s->text.bytes &&
         !wm_tokenizer_can_cut(s->tokenizer, s->text.data, s->text.bytes, from))
    from++;
  return from;
}

/* Reads the rows of the share and on to `end`. */
static wm_status_t read_rows(stream_t *s, const wm_corpus_t *corpus, wm_share_t share,
                             wm_error_t *err) {
  wm_row_cursor_t cursor;
  wm_row_t row;
  wm_status_t status = WM_OK;
  int64_t seen = 0; /* no place before it is the end */
  wm_row_cursor_init(&cursor, corpus, share.begin);
  while (s->end < 0) {
    bool more;
    int64_t replaced = cursor.replaced;
    WM_TRY(wm_row_cursor_next(&cursor, &row, &more, err));
    if (!more) {
      s->end = s->text.bytes;
      break;
    }
    WM_TRY(add_row(s, &row, cursor.replaced - replaced, err));
    if (row.position < share.end)
      continue;
    if (s->border < 0) {
      s->border = s->rows[s->n_rows - 1].start;
      if (s->begin < 0) {
        s->begin = next_cut(s, 1);
        if (s->begin >= s->border)
          break; /* nothing to encode */
      }
      seen = s->border + 1;
    }
    seen = next_cut(s, seen);
    if (seen < s->text.bytes)
      s->end = seen;
  }
  if (s->begin < 0)
    s->begin = next_cut(s, 1);
cleanup:
  wm_row_cursor_destroy(&cursor);
  return status;
}

static wm_status_t encode_text(const stream_t *s, const wm_encode_request_t *request,
                               wm_shard_t *shard, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int64_t at = s->begin; at < s->end;) {
    int64_t next = s->end - at > CHUNK_BYTES ? next_cut(s, at + CHUNK_BYTES) : s->end;
    if (next > s->end)
      next = s->end;
    WM_TRY(
        wm_tokenizer_encode(s->tokenizer, s->text.data + at, next - at, at, &shard->tokens, err));
    at = next;
    if (request->progress != NULL)
      request->progress(request->context, at - s->begin, s->end - s->begin);
  }
cleanup:
  return status;
}

/* Enters the rows that begin in the part, with the first token that begins in each or later. */
static wm_status_t take_rows(const stream_t *s, wm_shard_t *shard, wm_error_t *err) {
  const bool to_the_end = s->end == s->text.bytes; /* empty rows may begin there */
  int64_t token = 0;
  for (int64_t r = 0; r < s->n_rows; r++) {
    const stream_row_t *row = &s->rows[r];
    if (row->start < s->begin || (row->start >= s->end && !to_the_end))
      continue;
    while (token < shard->tokens.count && shard->tokens.starts[token] < row->start)
      token++;
    wm_status_t status = wm_shard_add_row(shard, row->blank, row->heading, token, err);
    if (status != WM_OK)
      return status;
    shard->replaced += row->replaced;
  }
  shard->replaced += shard->tokens.replaced;
  return WM_OK;
}

wm_status_t wm_shard_stream(const wm_corpus_t *corpus, wm_tokenizer_t *tokenizer, int index,
                            int count, const wm_encode_request_t *request, wm_shard_t *shard,
                            wm_error_t *err) {
  const wm_share_t share = wm_share_of(corpus, index, count);
  stream_t s = {.tokenizer = tokenizer, .begin = index == 0 ? 0 : -1, .border = -1, .end = -1};
  wm_status_t status = WM_OK;
  if (index > 0 && share.begin == share.end)
    return WM_OK;
  WM_TRY(read_rows(&s, corpus, share, err));
  if (s.end >= 0 && (index == 0 || s.begin < s.end)) {
    WM_TRY(encode_text(&s, request, shard, err));
    WM_TRY(take_rows(&s, shard, err));
  }
cleanup:
  free(s.text.data);
  free(s.rows);
  return status;
}
