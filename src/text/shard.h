/* A rank's share of a corpus, encoded. */
#ifndef WM_TEXT_SHARD_H
#define WM_TEXT_SHARD_H

#include "wanamaker/io/corpus.h"
#include "wanamaker/text/encode.h"
#include "wanamaker/text/tokenizer.h"

#include <stdint.h>

/* Zero-initialise; wm_shard_destroy. */
typedef struct {
  wm_token_list_t tokens;
  int64_t *first_token; /* [rows] */
  uint8_t *flags;       /* [rows] */
  int64_t rows, first_capacity, flags_capacity;
  int64_t documents, replaced;
} wm_shard_t;

void wm_shard_destroy(wm_shard_t *shard);

/* The bytes [begin, end) of the corpus file in which the lines of share `index` of `count` begin.
 */
typedef struct {
  int64_t begin, end;
} wm_share_t;

wm_share_t wm_share_of(const wm_corpus_t *corpus, int index, int count);

/* The three modes of encode.h. Not collective: what a rank encodes follows from the corpus, `index`
 * and `count` alone. `request` gives progress. */
wm_status_t wm_shard_documents(const wm_corpus_t *corpus, wm_tokenizer_t *tokenizer, int index,
                               int count, const wm_encode_request_t *request, wm_shard_t *shard,
                               wm_error_t *err);
wm_status_t wm_shard_stream(const wm_corpus_t *corpus, wm_tokenizer_t *tokenizer, int index,
                            int count, const wm_encode_request_t *request, wm_shard_t *shard,
                            wm_error_t *err);
wm_status_t wm_shard_ids(const wm_corpus_t *corpus, int index, int count, wm_shard_t *shard,
                         wm_error_t *err);

/* Appends a row whose first token is `first_token`. */
wm_status_t wm_shard_add_row(wm_shard_t *shard, bool blank, bool heading, int64_t first_token,
                             wm_error_t *err);

#endif
