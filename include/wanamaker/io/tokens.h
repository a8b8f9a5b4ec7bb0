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

#include <stdbool.h>
#include <stdint.h>

enum { WM_ROW_BLANK = 1, WM_ROW_ARTICLE = 2 /* a level-1 heading: an article begins */ };

typedef struct wm_tokens wm_tokens_t;

/* A run of a rank's tokens and rows, in corpus order; arrays are borrowed. A row's first token may
 * lie beyond the part's last one (its tokens begin in the next part): then row_first_token =
 * n_tokens. */
typedef struct {
  int64_t n_tokens, n_rows;
  const int32_t *ids;
  const int64_t *row_first_token; /* [n_rows], counted from the part's first token */
  const uint8_t *row_flags;       /* [n_rows] */
} wm_token_part_t;

typedef struct {
  const char *encoding, *corpus;
  uint64_t corpus_fingerprint, tokenizer_fingerprint;
  int64_t vocab_size, replaced; /* replaced: of the whole corpus, equal on all ranks */
  const char *configuration;    /* full text, for provenance */
} wm_tokens_info_t;

/* Writes a tokens.h5 from the parts of all ranks, rank after rank, in memory that does not depend
 * on how many there are: what a rank appends beyond a few MiB goes to temporary files without a
 * name in the directory of the result, which needs twice the room of the result until it is
 * published. */
typedef struct wm_tokens_writer wm_tokens_writer_t;

/* Not collective. block_bytes: memory for each of three arrays, a multiple of 8; 0: 4 MiB. */
wm_status_t wm_tokens_writer_create(const char *path, int64_t block_bytes, wm_tokens_writer_t **out,
                                    wm_error_t *err);
/* Not collective. NULL is allowed. */
void wm_tokens_writer_free(wm_tokens_writer_t *writer);

/* Not collective. A full disk is WM_ENVIRONMENT naming the file and its directory. */
wm_status_t wm_tokens_append(wm_tokens_writer_t *writer, const wm_token_part_t *part,
                             wm_error_t *err);

/* Not collective. Tokens and rows appended so far. */
void wm_tokens_appended(const wm_tokens_writer_t *writer, int64_t *tokens, int64_t *rows);

/* Told now and then how much of the writing is done, on every rank. */
typedef struct {
  void (*call)(void *context, int64_t done, int64_t total);
  void *context;
} wm_tokens_progress_t;

/* Collective over comm->world; once. Publishes the file; its bytes are the same for any number of
 * ranks and parts (so it carries no date, rank count or host). A corpus without tokens is WM_INPUT,
 * as is an id outside of the vocabulary; a request to stop is WM_STOPPED. `written` may be NULL. */
wm_status_t wm_tokens_publish(const wm_comm_t *comm, wm_tokens_writer_t *writer,
                              const wm_tokens_info_t *info, const wm_tokens_progress_t *written,
                              wm_error_t *err);

/* "documents", "stream" or "ids"? */
bool wm_tokens_known_encoding(const char *encoding);

/* Collective. Opens `path` and verifies its checksums, rows and ids, piece by piece. The row table
 * is read into node-shared memory; the ids are mapped from the file, so that of a large file only
 * the page cache of the ranges in use matters. The file must stay as it is until it is closed (a
 * newer one may take its name). */
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
