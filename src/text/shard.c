#include "shard.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/par/comm.h"

#include <assert.h>
#include <stdlib.h>

wm_share_t wm_share_of(const wm_corpus_t *corpus, int index, int count) {
  int64_t first, length;
  wm_partition(wm_corpus_bytes(corpus), count, index, &first, &length);
  return (wm_share_t){wm_corpus_line_at(corpus, first), wm_corpus_line_at(corpus, first + length)};
}

wm_status_t wm_shard_init(wm_shard_t *shard, const wm_corpus_t *corpus, wm_tokenizer_t *tokenizer,
                          wm_encode_mode_t mode, int index, int count, int64_t piece_bytes,
                          wm_error_t *err) {
  assert(piece_bytes > 0);
  *shard = (wm_shard_t){
      .corpus = corpus, .tokenizer = tokenizer, .mode = mode, .piece_bytes = piece_bytes};
  if (wm_corpus_format(corpus) == WM_CORPUS_NPY) {
    int64_t first, length;
    wm_partition(wm_corpus_token_count(corpus), count, index, &first, &length);
    shard->share = (wm_share_t){first, first + length};
    return index == 0 ? wm_shard_add_row(shard, false, false, 0, err) : WM_OK;
  }
  shard->share = wm_share_of(corpus, index, count);
  shard->stream.border = -1;
  shard->stream.begun = index == 0;
  shard->finished = index > 0 && shard->share.begin == shard->share.end;
  wm_row_cursor_init(&shard->cursor, corpus, shard->share.begin);
  return WM_OK;
}

void wm_shard_destroy(wm_shard_t *shard) {
  wm_row_cursor_destroy(&shard->cursor);
  free(shard->stream.text.data);
  free(shard->stream.rows);
  wm_token_list_destroy(&shard->tokens);
  free(shard->first_token);
  free(shard->flags);
  *shard = (wm_shard_t){0};
}

wm_status_t wm_shard_add_row(wm_shard_t *shard, bool blank, bool heading, int64_t first_token,
                             wm_error_t *err) {
  wm_status_t status = WM_OK;
  WM_TRY(wm_grow((void **)&shard->first_token, &shard->first_capacity, shard->rows, shard->rows + 1,
                 sizeof *shard->first_token, "rows of a corpus", err));
  WM_TRY(wm_grow((void **)&shard->flags, &shard->flags_capacity, shard->rows, shard->rows + 1,
                 sizeof *shard->flags, "rows of a corpus", err));
  shard->first_token[shard->rows] = first_token;
  shard->flags[shard->rows++] =
      (uint8_t)((blank ? WM_ROW_BLANK : 0) | (heading ? WM_ROW_ARTICLE : 0));
  shard->documents += !blank;
cleanup:
  return status;
}

int64_t wm_next_cut(const wm_tokenizer_t *tokenizer, const char *text, int64_t bytes,
                    int64_t from) {
  while (from < bytes && !wm_tokenizer_can_cut(tokenizer, text, bytes, from))
    from++;
  return from < bytes ? from : bytes;
}

/* ---- documents ---- */

/* Takes the next row of the share; false in *more when there is none. */
static wm_status_t take_row(wm_shard_t *s, bool *more, wm_error_t *err) {
  int64_t replaced = s->cursor.replaced;
  *more = false;
  if (s->cursor.next >= s->share.end)
    return WM_OK;
  wm_status_t status = wm_row_cursor_next(&s->cursor, &s->row, more, err);
  if (status != WM_OK || !*more)
    return status;
  *more = s->row.position < s->share.end;
  if (!*more)
    return WM_OK;
  s->row_taken = s->row.blank ? s->row.bytes : 0;
  s->replaced += s->cursor.replaced - replaced;
  return wm_shard_add_row(s, s->row.blank, s->row.heading, s->tokens.count, err);
}

static wm_status_t next_documents(wm_shard_t *s, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int64_t left = s->piece_bytes; left > 0;) {
    if (s->row_taken == s->row.bytes) {
      bool more;
      WM_TRY(take_row(s, &more, err));
      s->finished = !more;
      if (!more)
        break;
      left--; /* a corpus of empty lines, too, comes in pieces */
      continue;
    }
    int64_t at = s->row_taken, end = s->row.bytes;
    if (end - at > s->piece_bytes)
      end = wm_next_cut(s->tokenizer, s->row.text, s->row.bytes, at + s->piece_bytes);
    WM_TRY(wm_tokenizer_encode(s->tokenizer, s->row.text + at, end - at, 0, &s->tokens, err));
    s->row_taken = end;
    left -= end - at;
  }
cleanup:
  return status;
}

/* ---- ids ---- */

static wm_status_t next_ids(wm_shard_t *s, wm_error_t *err) {
  int64_t first = s->share.begin + s->done, left = s->share.end - first;
  int64_t n = left < s->piece_bytes ? left : s->piece_bytes;
  wm_status_t status;
  WM_TRY(wm_grow((void **)&s->tokens.ids, &s->tokens.capacity, 0, n, sizeof *s->tokens.ids,
                 "tokens", err));
  WM_TRY(wm_corpus_tokens(s->corpus, first, n, s->tokens.ids, err));
  s->tokens.count = n;
  s->done += n;
  s->finished = n == left;
cleanup:
  return status;
}

/* ---- pieces ---- */

/* Bytes of the share that have been passed. */
static int64_t passed(const wm_shard_t *s) {
  int64_t at = s->cursor.next;
  if (s->row_taken < s->row.bytes) /* in the midst of a row */
    at = s->row.position + s->row_taken;
  if (s->finished || at > s->share.end)
    at = s->share.end;
  return at - s->share.begin;
}

wm_status_t wm_shard_next(wm_shard_t *shard, wm_token_part_t *piece, wm_error_t *err) {
  const bool ids = wm_corpus_format(shard->corpus) == WM_CORPUS_NPY;
  *piece = (wm_token_part_t){0};
  if (shard->finished)
    return WM_OK;
  if (!ids || shard->done > 0) /* the array's one row comes with its first piece */
    shard->rows = 0;
  shard->tokens.count = 0;
  shard->tokens.replaced = 0;
  wm_status_t status = ids                               ? next_ids(shard, err)
                       : shard->mode == WM_ENCODE_STREAM ? wm_shard_next_stream(shard, err)
                                                         : next_documents(shard, err);
  if (status != WM_OK)
    return status;
  shard->replaced += shard->tokens.replaced;
  if (!ids && passed(shard) > shard->done)
    shard->done = passed(shard);
  *piece = (wm_token_part_t){shard->tokens.count, shard->rows, shard->tokens.ids,
                             shard->first_token, shard->flags};
  return WM_OK;
}
