/* From a corpus to tokens.h5, on all ranks at once.
 *
 *   documents  every row that is not blank is encoded alone; blank rows have no tokens
 *   stream     the rows' texts are joined with "\n" and encoded as if at once; a token belongs to
 *              the row in which its first byte lies, the joining "\n" to the row that it ends
 *   ids        npy corpora: the ids pass through, as one row
 *
 * Ranks share out the corpus by bytes. In stream mode each begins and ends at a place where text
 * may be cut without changing ids (wm_tokenizer_can_cut); a rank that finds none in its share
 * leaves it to the rank before it, so the file's bytes are the same for any number of ranks.
 */
#ifndef WANAMAKER_TEXT_ENCODE_H
#define WANAMAKER_TEXT_ENCODE_H

#include "wanamaker/base/log.h"
#include "wanamaker/base/status.h"
#include "wanamaker/io/corpus.h"
#include "wanamaker/par/comm.h"

#include <stdint.h>

typedef enum { WM_ENCODE_DOCUMENTS, WM_ENCODE_STREAM } wm_encode_mode_t;

typedef struct {
  wm_corpus_spec_t corpus;
  wm_encode_mode_t mode;     /* of no account for npy */
  const char *tokenizer_dir; /* may be NULL for npy: then any id is taken and the vocabulary ends at
                                the largest one */
  const char *out_path;      /* tokens.h5 */
  const char *configuration; /* full text, for provenance */
  /* Called now and then with the bytes of text encoded and to encode on this rank; may be NULL. */
  void (*progress)(void *context, int64_t done_bytes, int64_t total_bytes);
  void *context;
} wm_encode_request_t;

/* Of the whole corpus, equal on all ranks. */
typedef struct {
  int64_t tokens, rows;
  int64_t documents; /* rows that aren't blank */
  int64_t replaced;  /* ill-formed UTF-8 parts and lone surrogates that became U+FFFD */
  int64_t bytes;     /* of the corpus file */
} wm_encode_stats_t;

/* Collective over comm->world; every rank passes the same request. Writes request->out_path through
 * wm_tokens_write. Each rank holds the text (stream), tokens and rows of its share. A corpus
 * without a token is WM_INPUT; replaced text is a warning. `log` may be NULL. */
wm_status_t wm_encode_corpus(const wm_comm_t *comm, const wm_encode_request_t *request,
                             const wm_log_t *log, wm_encode_stats_t *stats, wm_error_t *err);

#endif
