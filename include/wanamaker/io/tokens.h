/* Tokenised corpora: tokens.h5.
 *
 *   /tokens            [N] int32     ids, in corpus order
 *   /rows/first_token  [R + 1] int64 index of the first token that begins in row r or later; the
 *                                    last entry is N
 *   /rows/flags        [R] uint8     WM_ROW_* bits
 * Root attributes: encoding ("documents": every row encoded alone; "stream": rows joined by "\n"
 * and encoded at once; "ids": an array was given), corpus, corpus_fingerprint,
 * tokenizer_fingerprint (hexadecimal), vocab_size, replaced (ill-formed UTF-8), configuration.
 */
#ifndef WANAMAKER_IO_TOKENS_H
#define WANAMAKER_IO_TOKENS_H

#include "wanamaker/base/status.h"
#include "wanamaker/par/comm.h"

#include <stdint.h>

enum { WM_ROW_BLANK = 1, WM_ROW_ARTICLE = 2 /* a level-1 heading: an article begins */ };

typedef struct wm_tokens wm_tokens_t;

/* What a shard contributes; arrays are borrowed. Rows and tokens are in corpus order, rank after
 * rank. */
typedef struct {
  int64_t n_tokens, n_rows;
  const int32_t *ids;
  const int64_t *row_first_token; /* [n_rows], counted from the shard's first token */
  const uint8_t *row_flags;       /* [n_rows] */
} wm_token_shard_t;

typedef struct {
  const char *encoding, *corpus;
  uint64_t corpus_fingerprint, tokenizer_fingerprint;
  int64_t vocab_size, replaced; /* replaced: of the whole corpus, equal on all ranks */
  const char *configuration;    /* full text, for provenance */
} wm_tokens_info_t;

/* Collective over comm->world. Writes and publishes `path` from all ranks' shards; the bytes of the
 * file are the same for any number of ranks (so it carries no date, rank count or host). A row's
 * first token may lie beyond the shard's last one (its tokens begin in the next shard): then
 * row_first_token = n_tokens. A corpus without tokens is WM_INPUT, as is an id outside of the
 * vocabulary. */
wm_status_t wm_tokens_write(const wm_comm_t *comm, const char *path, const wm_token_shard_t *shard,
                            const wm_tokens_info_t *info, wm_error_t *err);

/* Collective. Reads `path` into node-shared memory, once per node, and verifies its checksums, rows
 * and ids. */
wm_status_t wm_tokens_open(const wm_comm_t *comm, const char *path, wm_tokens_t **out,
                           wm_error_t *err);
/* Collective. */
void wm_tokens_close(wm_tokens_t *tokens);

int64_t wm_tokens_count(const wm_tokens_t *tokens);
int64_t wm_tokens_rows(const wm_tokens_t *tokens);
const int32_t *wm_tokens_ids(const wm_tokens_t *tokens);
const int64_t *wm_tokens_row_first(const wm_tokens_t *tokens); /* [rows + 1] */
const uint8_t *wm_tokens_row_flags(const wm_tokens_t *tokens);
/* Strings are borrowed from the object. */
const wm_tokens_info_t *wm_tokens_info(const wm_tokens_t *tokens);

#endif
