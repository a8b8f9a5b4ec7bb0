#include "shard.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/io/tokens.h"
#include "wanamaker/par/comm.h"

#include <stdlib.h>

enum { PROGRESS_BYTES = 1 << 20 };

void wm_shard_destroy(wm_shard_t *shard) {
  wm_token_list_destroy(&shard->tokens);
  free(shard->first_token);
  free(shard->flags);
  *shard = (wm_shard_t){0};
}

wm_share_t wm_share_of(const wm_corpus_t *corpus, int index, int count) {
  int64_t first, length;
  wm_partition(wm_corpus_bytes(corpus), count, index, &first, &length);
  return (wm_share_t){wm_corpus_line_at(corpus, first), wm_corpus_line_at(corpus, first + length)};
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

wm_status_t wm_shard_documents(const wm_corpus_t *corpus, wm_tokenizer_t *tokenizer, int index,
                               int count, const wm_encode_request_t *request, wm_shard_t *shard,
                               wm_error_t *err) {
  const wm_share_t share = wm_share_of(corpus, index, count);
  wm_row_cursor_t cursor;
  wm_row_t row;
  bool more = true;
  int64_t told = share.begin;
  wm_status_t status = WM_OK;
  wm_row_cursor_init(&cursor, corpus, share.begin);
  while (cursor.next < share.end) {
    int64_t replaced = cursor.replaced;
    WM_TRY(wm_row_cursor_next(&cursor, &row, &more, err));
    if (!more || row.position >= share.end)
      break;
    WM_TRY(wm_shard_add_row(shard, row.blank, row.heading, shard->tokens.count, err));
    shard->replaced += cursor.replaced - replaced;
    if (!row.blank)
      WM_TRY(wm_tokenizer_encode(tokenizer, row.text, row.bytes, 0, &shard->tokens, err));
    if (request->progress != NULL && cursor.next - told >= PROGRESS_BYTES) {
      told = cursor.next;
      request->progress(request->context, told - share.begin, share.end - share.begin);
    }
  }
  if (request->progress != NULL)
    request->progress(request->context, share.end - share.begin, share.end - share.begin);
cleanup:
  shard->replaced += shard->tokens.replaced;
  wm_row_cursor_destroy(&cursor);
  return status;
}

wm_status_t wm_shard_ids(const wm_corpus_t *corpus, int index, int count, wm_shard_t *shard,
                         wm_error_t *err) {
  int64_t first, length;
  wm_status_t status = WM_OK;
  wm_partition(wm_corpus_token_count(corpus), count, index, &first, &length);
  WM_TRY(wm_alloc((void **)&shard->tokens.ids, length, sizeof *shard->tokens.ids, "tokens", err));
  WM_TRY(wm_corpus_tokens(corpus, first, length, shard->tokens.ids, err));
  shard->tokens.count = length;
  if (index == 0)
    WM_TRY(wm_shard_add_row(shard, false, false, 0, err));
cleanup:
  return status;
}
