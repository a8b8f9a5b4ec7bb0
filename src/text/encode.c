#include "wanamaker/text/encode.h"

#include "shard.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/io/tokens.h"

#include <stdlib.h>

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

/* Not collective. */
static wm_status_t encode_share(const wm_comm_t *comm, const wm_encode_request_t *request,
                                const wm_corpus_t *corpus, wm_tokenizer_t *tokenizer,
                                wm_shard_t *shard, wm_error_t *err) {
  if (wm_corpus_format(corpus) == WM_CORPUS_NPY)
    return wm_shard_ids(corpus, comm->rank, comm->size, shard, err);
  if (request->mode == WM_ENCODE_DOCUMENTS)
    return wm_shard_documents(corpus, tokenizer, comm->rank, comm->size, request, shard, err);
  return wm_shard_stream(corpus, tokenizer, comm->rank, comm->size, request, shard, err);
}

/* Collective. */
static wm_encode_stats_t sum_up(const wm_comm_t *comm, const wm_corpus_t *corpus,
                                const wm_shard_t *shard) {
  int64_t sums[4] = {shard->tokens.count, shard->rows, shard->documents, shard->replaced};
  wm_sum_i64(comm->world, sums, 4);
  return (wm_encode_stats_t){sums[0], sums[1], sums[2], sums[3], wm_corpus_bytes(corpus)};
}

/* Collective. Largest id in all shards, -1 if there are no tokens. */
static wm_status_t largest_id(const wm_comm_t *comm, const wm_shard_t *shard, int64_t *largest,
                              wm_error_t *err) {
  int64_t *of_rank = NULL;
  wm_status_t status = wm_alloc((void **)&of_rank, comm->size, sizeof *of_rank, "largest ids", err);
  WM_TRY(wm_agree(comm->world, status, err));
  of_rank[comm->rank] = -1;
  for (int64_t i = 0; i < shard->tokens.count; i++)
    if (shard->tokens.ids[i] > of_rank[comm->rank])
      of_rank[comm->rank] = shard->tokens.ids[i];
  wm_sum_i64(comm->world, of_rank, comm->size);
  *largest = -1;
  for (int i = 0; i < comm->size; i++)
    if (of_rank[i] > *largest)
      *largest = of_rank[i];
cleanup:
  free(of_rank);
  return status;
}

/* Collective. The corpus is read for its fingerprint on one rank only. */
static uint64_t corpus_fingerprint(const wm_comm_t *comm, const wm_corpus_t *corpus) {
  uint64_t fingerprint = comm->rank == 0 ? wm_corpus_fingerprint(corpus) : 0;
  wm_broadcast(comm->world, 0, &fingerprint, sizeof fingerprint);
  return fingerprint;
}

/* Collective. */
static wm_status_t write_tokens(const wm_comm_t *comm, const wm_encode_request_t *request,
                                const wm_corpus_t *corpus, const wm_tokenizer_t *tokenizer,
                                const wm_shard_t *shard, int64_t replaced, wm_error_t *err) {
  const bool ids = wm_corpus_format(corpus) == WM_CORPUS_NPY;
  const char *text_mode = request->mode == WM_ENCODE_DOCUMENTS ? "documents" : "stream";
  wm_tokens_info_t info = {.encoding = ids ? "ids" : text_mode,
                           .corpus = request->corpus.path,
                           .corpus_fingerprint = corpus_fingerprint(comm, corpus),
                           .replaced = replaced,
                           .configuration = request->configuration};
  const wm_token_shard_t part = {shard->tokens.count, shard->rows, shard->tokens.ids,
                                 shard->first_token, shard->flags};
  wm_status_t status = WM_OK;
  if (tokenizer != NULL) {
    info.tokenizer_fingerprint = wm_tokenizer_fingerprint(tokenizer);
    info.vocab_size = wm_tokenizer_vocab_size(tokenizer);
  } else {
    int64_t largest;
    WM_TRY(largest_id(comm, shard, &largest, err));
    info.vocab_size = largest + 1;
  }
  WM_TRY(wm_tokens_write(comm, request->out_path, &part, &info, err));
cleanup:
  return status;
}

wm_status_t wm_encode_corpus(const wm_comm_t *comm, const wm_encode_request_t *request,
                             const wm_log_t *log, wm_encode_stats_t *stats, wm_error_t *err) {
  wm_corpus_t *corpus = NULL;
  wm_tokenizer_t *tokenizer = NULL;
  wm_shard_t shard = {0};
  *stats = (wm_encode_stats_t){0};
  wm_status_t status = open_inputs(request, &corpus, &tokenizer, err);
  WM_TRY(wm_agree(comm->world, status, err));
  status = encode_share(comm, request, corpus, tokenizer, &shard, err);
  WM_TRY(wm_agree(comm->world, status, err));
  *stats = sum_up(comm, corpus, &shard);
  if (stats->tokens == 0) {
    status = wm_fail(err, WM_INPUT, "%s: the corpus has no tokens", request->corpus.path);
    goto cleanup;
  }
  if (stats->replaced > 0)
    wm_log(log, WM_LOG_WARN, "%s: %lld ill-formed parts of its text became U+FFFD",
           request->corpus.path, (long long)stats->replaced);
  WM_TRY(write_tokens(comm, request, corpus, tokenizer, &shard, stats->replaced, err));
cleanup:
  wm_shard_destroy(&shard);
  wm_tokenizer_close(tokenizer);
  wm_corpus_close(corpus);
  return status;
}
