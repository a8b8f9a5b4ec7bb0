/* One rank's part of the stream: rows joined with "\n", encoded as if the whole corpus were at
 * hand.
 *
 * The rank reads the rows of its share, and on into those that follow. In the text so joined it
 * encodes from `begin` to `end`, piece by piece:
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
 * of a row (what precedes it is "\n") and whether one is allowed depends on the character before it
 * and the byte behind it, and no character reaches over the beginning of a row. A row belongs to
 * the rank in whose part its first byte lies.
 *
 * Only the text of the piece at hand is kept, and of a row only what has been joined to it.
 */
#include "shard.h"

#include "wanamaker/base/mem.h"

#include <string.h>

enum { CHARACTER_BYTES = 4 }; /* that wm_tokenizer_can_cut looks at before a place, at most */

/* Position behind the text at hand. */
static int64_t text_end(const wm_stream_t *t) {
  return t->start + t->text.bytes;
}

/* Begins the next row of the corpus. */
static wm_status_t begin_row(wm_shard_t *s, wm_error_t *err) {
  wm_stream_t *t = &s->stream;
  int64_t replaced = s->cursor.replaced;
  bool more;
  wm_status_t status;
  WM_TRY(wm_row_cursor_next(&s->cursor, &s->row, &more, err));
  s->row_taken = 0;
  t->exhausted = !more;
  if (!more)
    goto cleanup;
  if (t->first_row_read)
    WM_TRY(wm_string_append(&t->text, "\n", 1, err));
  t->first_row_read = true;
  if (t->border < 0 && s->row.position >= s->share.end)
    t->border = text_end(t);
  WM_TRY(wm_grow((void **)&t->rows, &t->capacity, t->n_rows, t->n_rows + 1, sizeof *t->rows,
                 "rows of a corpus", err));
  t->rows[t->n_rows++] =
      (wm_stream_row_t){text_end(t), s->cursor.replaced - replaced, s->row.blank, s->row.heading};
cleanup:
  return status;
}

/* Joins more text, at most piece_bytes of a row. */
static wm_status_t read_more(wm_shard_t *s, wm_error_t *err) {
  wm_stream_t *t = &s->stream;
  wm_status_t status = WM_OK;
  if (s->row_taken == s->row.bytes)
    WM_TRY(begin_row(s, err));
  int64_t left = s->row.bytes - s->row_taken, n = left < s->piece_bytes ? left : s->piece_bytes;
  if (t->exhausted)
    n = 0;
  WM_TRY(wm_string_append(&t->text, s->row.text + s->row_taken, n, err));
  s->row_taken += n;
cleanup:
  return status;
}

/* Forgets the text before `position`. */
static void drop_text(wm_stream_t *t, int64_t position) {
  int64_t n = position - t->start;
  t->text.bytes -= n;
  if (t->text.bytes > 0)
    memmove(t->text.data, t->text.data + n, (size_t)t->text.bytes);
  t->start = position;
}

/* Forgets the first n rows. */
static void drop_rows(wm_stream_t *t, int64_t n) {
  t->n_rows -= n;
  if (t->n_rows > 0)
    memmove(t->rows, t->rows + n, (size_t)t->n_rows * sizeof *t->rows);
}

/* Rows that begin before `position`. */
static int64_t rows_before(const wm_stream_t *t, int64_t position) {
  int64_t n = 0;
  while (n < t->n_rows && t->rows[n].start < position)
    n++;
  return n;
}

/* Position of the first cut at or after `from` in the text at hand, or -1. */
static int64_t find_cut(const wm_shard_t *s, int64_t from) {
  const wm_stream_t *t = &s->stream;
  int64_t at = from > t->scanned ? from : t->scanned;
  if (at >= text_end(t))
    return -1;
  at = t->start + wm_next_cut(s->tokenizer, t->text.data, t->text.bytes, at - t->start);
  return at < text_end(t) ? at : -1;
}

/* The text at hand has been looked through from `from` on, in vain. */
static void note_scanned(wm_stream_t *t, int64_t from) {
  if (from <= text_end(t))
    t->scanned = text_end(t);
}

/* Goes to the place at which this rank begins; finishes the shard if there is none. */
static wm_status_t seek_begin(wm_shard_t *s, wm_error_t *err) {
  wm_stream_t *t = &s->stream;
  int64_t begin;
  while ((begin = find_cut(s, 1)) < 0) {
    if (t->exhausted || t->border >= 0) {
      s->finished = true;
      return WM_OK;
    }
    note_scanned(t, 1);
    drop_rows(t, t->n_rows);
    if (t->text.bytes > CHARACTER_BYTES)
      drop_text(t, text_end(t) - CHARACTER_BYTES);
    wm_status_t status = read_more(s, err);
    if (status != WM_OK)
      return status;
  }
  s->finished = t->border >= 0 && begin >= t->border;
  drop_rows(t, rows_before(t, begin));
  drop_text(t, begin);
  t->begun = true;
  return WM_OK;
}

/* Enters the first n rows, with the first token that begins in each or later. */
static wm_status_t take_rows(wm_shard_t *s, int64_t n, wm_error_t *err) {
  int64_t token = 0;
  for (int64_t r = 0; r < n; r++) {
    const wm_stream_row_t *row = &s->stream.rows[r];
    while (token < s->tokens.count && s->tokens.starts[token] < row->start)
      token++;
    wm_status_t status = wm_shard_add_row(s, row->blank, row->heading, token, err);
    if (status != WM_OK)
      return status;
    s->replaced += row->replaced;
  }
  drop_rows(&s->stream, n);
  return WM_OK;
}

/* End of the piece that begins with the text at hand. */
static wm_status_t find_end(wm_shard_t *s, int64_t *end, wm_error_t *err) {
  wm_stream_t *t = &s->stream;
  while (true) {
    int64_t from = t->start + s->piece_bytes;
    if (t->border >= 0 && t->border + 1 < from)
      from = t->border + 1;
    *end = find_cut(s, from);
    if (*end >= 0) {
      s->finished = t->border >= 0 && *end > t->border;
      return WM_OK;
    }
    if (t->exhausted) {
      *end = text_end(t);
      s->finished = true;
      return WM_OK;
    }
    note_scanned(t, from);
    wm_status_t status = read_more(s, err);
    if (status != WM_OK)
      return status;
  }
}

wm_status_t wm_shard_next_stream(wm_shard_t *s, wm_error_t *err) {
  wm_stream_t *t = &s->stream;
  wm_status_t status = WM_OK;
  int64_t end;
  if (!t->begun)
    return seek_begin(s, err);
  WM_TRY(find_end(s, &end, err));
  if (end > t->start)
    WM_TRY(
        wm_tokenizer_encode(s->tokenizer, t->text.data, end - t->start, t->start, &s->tokens, err));
  /* At the corpus's end empty rows may begin behind the last byte. */
  WM_TRY(take_rows(s, end == text_end(t) ? t->n_rows : rows_before(t, end), err));
  drop_text(t, end);
cleanup:
  return status;
}
