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
 * A rank's share is encoded in pieces that end at such places too.
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
  uint64_t corpus_fingerprint; /* of wm_corpus_fingerprint; the caller has seen the corpus */
  uint64_t corpus_stamp; /* of wm_corpus_stamp on rank 0 then; the file may not change until its
                            tokens are written (WM_INPUT). 0: not looked at */
  int64_t piece_bytes;   /* of text encoded at once; 0: 1 MiB. The file does not depend on it */
  /* Called on every rank now and then with the bytes of text (npy: ids) encoded and to encode on
   * all ranks; with the steps done and to do of writing the file. May be NULL. */
  void (*encoded)(void *context, int64_t done, int64_t total);
  void (*written)(void *context, int64_t done, int64_t total);
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
 * a wm_tokens_writer_t. Memory depends neither on the corpus's size nor on the number of ranks: a
 * few pieces' worth, or what the longest part takes that cannot be divided (text without a place to
 * cut; a JSON line, several times over). A corpus without a token is WM_INPUT; a request to stop
 * (base/control.h) on any rank is WM_STOPPED within about a second, with nothing left of the work;
 * replaced text is a warning. `log` may be NULL. */
wm_status_t wm_encode_corpus(const wm_comm_t *comm, const wm_encode_request_t *request,
                             const wm_log_t *log, wm_encode_stats_t *stats, wm_error_t *err);

#endif
