#include "wanamaker/text/encode.h"

#include "shard.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/io/tokens.h"

#include <stddef.h>

enum { PIECE_BYTES = 1 << 20 };
static const double ROUND_SECONDS = 0.5; /* between the ranks' meetings */

/* Not collective. */
static wm_status_t open_inputs(const wm_encode_request_t *request, wm_corpus_t **corpus,
                               wm_tokenizer_t **tokenizer, wm_error_t *err) {
  wm_status_t status = wm_corpus_open(&request->corpus, corpus, err);
  if (status != WM_OK)
    return status;
  if (request->tokenizer_dir != NULL)
    return wm_tokenizer_open(request->tokenizer_dir, tokenizer, err);
  if (wm_corpus_format(*corpus) != WM_CORPUS_NPY)
    return wm_fail(err, WM_USAGE, "%s: a corpus of text needs a tokenizer", request->corpus.path);
  return WM_OK;
}

/* Not collective. Works through this rank's share for a while. */
static wm_status_t encode_for_a_while(const wm_encode_request_t *request, wm_shard_t *shard,
                                      wm_tokens_writer_t *writer, int32_t *largest,
                                      wm_error_t *err) {
  const double until = wm_seconds() + ROUND_SECONDS;
  wm_status_t status = WM_OK;
  while (status == WM_OK && !shard->finished && wm_seconds() < until) {
    wm_token_part_t piece;
    WM_TRY(wm_shard_next(shard, &piece, err));
    WM_TRY(wm_tokens_append(writer, &piece, err));
    for (int64_t i = 0; request->tokenizer_dir == NULL && i < piece.n_tokens; i++)
      *largest = piece.ids[i] > *largest ? piece.ids[i] : *largest;
    wm_pulse();
    if (wm_stop_requested())
      status = wm_fail(err, WM_STOPPED, "%s: stopped by %s while it was tokenised",
                       request->corpus.path, wm_stop_reason());
  }
cleanup:
  return status;
}

/* Collective. The ranks meet after every while: a failure or a request to stop on one of them ends
 * the work of all, and progress is that of all. */
static wm_status_t encode_shares(const wm_comm_t *comm, const wm_encode_request_t *request,
                                 wm_shard_t *shard, wm_tokens_writer_t *writer, int32_t *largest,
                                 wm_error_t *err) {
  int64_t left;
  do {
    wm_status_t status = encode_for_a_while(request, shard, writer, largest, err);
    status = wm_agree(comm->world, status, err);
    if (status != WM_OK)
      return status;
    int64_t sums[3] = {shard->done, shard->share.end - shard->share.begin, !shard->finished};
    wm_sum_i64(comm->world, sums, 3);
    left = sums[2];
    if (request->encoded != NULL)
      request->encoded(request->context, sums[0], sums[1]);
  } while (left > 0);
  return WM_OK;
}

/* Collective. */
static wm_encode_stats_t sum_up(const wm_comm_t *comm, const wm_corpus_t *corpus,
                                const wm_shard_t *shard, const wm_tokens_writer_t *writer) {
  int64_t sums[4] = {0, 0, shard->documents, shard->replaced};
  wm_tokens_appended(writer, &sums[0], &sums[1]);
  wm_sum_i64(comm->world, sums, 4);
  return (wm_encode_stats_t){sums[0], sums[1], sums[2], sums[3], wm_corpus_bytes(corpus)};
}

/* Collective. */
static wm_status_t publish(const wm_comm_t *comm, const wm_encode_request_t *request,
                           const wm_corpus_t *corpus, const wm_tokenizer_t *tokenizer,
                           wm_tokens_writer_t *writer, int64_t replaced, int32_t largest,
                           wm_error_t *err) {
  const bool ids = wm_corpus_format(corpus) == WM_CORPUS_NPY;
  const char *text_mode = request->mode == WM_ENCODE_DOCUMENTS ? "documents" : "stream";
  const wm_tokens_progress_t written = {request->written, request->context};
  wm_tokens_info_t info = {.encoding = ids ? "ids" : text_mode,
                           .corpus = request->corpus.path,
                           .corpus_fingerprint = request->corpus_fingerprint,
                           .replaced = replaced,
                           .configuration = request->configuration};
  if (tokenizer != NULL) {
    info.tokenizer_fingerprint = wm_tokenizer_fingerprint(tokenizer);
    info.vocab_size = wm_tokenizer_vocab_size(tokenizer);
  } else {
    MPI_Allreduce(MPI_IN_PLACE, &largest, 1, MPI_INT32_T, MPI_MAX, comm->world);
    info.vocab_size = (int64_t)largest + 1;
  }
  return wm_tokens_publish(comm, writer, &info, written.call != NULL ? &written : NULL, err);
}

/* Not collective. Is the corpus what its fingerprint was taken of, and has it stayed so? */
static wm_status_t check_corpus(const wm_comm_t *comm, const wm_encode_request_t *request,
                                const wm_corpus_t *corpus, wm_error_t *err) {
  if (comm->rank == 0 && request->corpus_stamp != 0 &&
      request->corpus_stamp != wm_corpus_stamp(corpus))
    return wm_fail(err, WM_INPUT, "%s: changed while it was read", request->corpus.path);
  return wm_corpus_unchanged(corpus, err);
}

/* Collective. From opened inputs to the file. */
static wm_status_t encode(const wm_comm_t *comm, const wm_encode_request_t *request,
                          const wm_corpus_t *corpus, wm_tokenizer_t *tokenizer, const wm_log_t *log,
                          wm_encode_stats_t *stats, wm_error_t *err) {
  wm_shard_t shard = {0};
  wm_tokens_writer_t *writer = NULL;
  int32_t largest = -1;
  const int64_t piece = request->piece_bytes > 0 ? request->piece_bytes : PIECE_BYTES;
  wm_status_t status =
      wm_shard_init(&shard, corpus, tokenizer, request->mode, comm->rank, comm->size, piece, err);
  if (status == WM_OK) /* small pieces, where they are asked for, go through small blocks too */
    status = wm_tokens_writer_create(request->out_path, 8 * request->piece_bytes, &writer, err);
  WM_TRY(wm_agree(comm->world, status, err));
  WM_TRY(encode_shares(comm, request, &shard, writer, &largest, err));
  WM_TRY(wm_agree(comm->world, check_corpus(comm, request, corpus, err), err));
  *stats = sum_up(comm, corpus, &shard, writer);
  wm_shard_destroy(&shard); /* its memory is not needed while the file is written */
  if (stats->replaced > 0)
    wm_log(log, WM_LOG_WARN, "%s: %lld ill-formed parts of its text became U+FFFD",
           request->corpus.path, (long long)stats->replaced);
  WM_TRY(publish(comm, request, corpus, tokenizer, writer, stats->replaced, largest, err));
cleanup:
  wm_tokens_writer_free(writer);
  wm_shard_destroy(&shard);
  return status;
}

wm_status_t wm_encode_corpus(const wm_comm_t *comm, const wm_encode_request_t *request,
                             const wm_log_t *log, wm_encode_stats_t *stats, wm_error_t *err) {
  wm_corpus_t *corpus = NULL;
  wm_tokenizer_t *tokenizer = NULL;
  *stats = (wm_encode_stats_t){0};
  wm_status_t status = open_inputs(request, &corpus, &tokenizer, err);
  status = wm_agree(comm->world, status, err);
  if (status == WM_OK)
    status = encode(comm, request, corpus, tokenizer, log, stats, err);
  wm_tokenizer_close(tokenizer);
  wm_corpus_close(corpus);
  return status;
}
