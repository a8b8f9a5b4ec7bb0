/* Which tokens a training step sees, and proof of it (method.md, section 8).
 *
 * A step has `sequences` sequences of `length` tokens, numbered q = step * sequences + s. In order
 * `fresh` sequence q holds the tokens that follow those of q - 1, so that no token is seen twice
 * before the range is used up; what is left then, less than a sequence, is not used, and either the
 * training ends (stop: with the last whole step) or begins again at the range's start (wrap). In
 * order `random` every sequence starts anywhere in the range, drawn by (seed, q) alone.
 *
 * A sequence predicts its tokens 1 .. length - 1, as a window does (windows.h).
 *
 * Chain. Steps that have seen equal tokens in equal order have equal chains: with h_s the hash of
 * the ids of a step's sequence s (as little-endian int32),
 *     chain_0 = 0,     chain_(k + 1) = hash(h_0 h_1 ... , chained to chain_k)
 * whatever the number of ranks. */
#ifndef WANAMAKER_TRAIN_DATA_ORDER_H
#define WANAMAKER_TRAIN_DATA_ORDER_H

#include "wanamaker/base/status.h"
#include "wanamaker/par/comm.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum { WM_STARTS_FRESH, WM_STARTS_RANDOM } wm_starts_t;

typedef struct {
  int64_t begin, end; /* range of the corpus's tokens, half-open */
  int64_t length, sequences;
  wm_starts_t starts;
  bool wrap;
  uint64_t seed; /* of random starts */
} wm_data_order_t;

/* Steps that there are; INT64_MAX: any number. 0: the range is shorter than a step (with wrap or
 * random starts: than a sequence). Not collective. */
int64_t wm_data_order_steps(const wm_data_order_t *order);
/* First token of sequence q. Not collective. */
int64_t wm_data_order_first(const wm_data_order_t *order, int64_t q);

/* A tokens.h5 (io/tokens.h) read a step at a time: each rank reads the sequences that it works on,
 * all ranks together, in memory of one step's part. */
typedef struct wm_data wm_data_t;

typedef struct {
  int64_t tokens;
  uint64_t corpus_fingerprint, tokenizer_fingerprint;
  const char *encoding, *corpus; /* borrowed from the object */
} wm_data_info_t;

/* Collective over comm->world (borrowed). Opens `path` and verifies its checksums, piece by piece.
 * Ids must be below `rows`, the rows of the model's embedding: WM_INPUT, when one is met. */
wm_status_t wm_data_open(const wm_comm_t *comm, const char *path, int64_t rows, wm_data_t **out,
                         wm_error_t *err);
/* Collective. NULL is allowed. */
void wm_data_close(wm_data_t *data);
const wm_data_info_t *wm_data_info(const wm_data_t *data);

/* This rank's sequences of every step: the first and how many. Not collective. */
void wm_data_part(const wm_comm_t *comm, const wm_data_order_t *order, int64_t *first,
                  int64_t *count);
/* Collective. ids[count, length] <- this rank's sequences of `step`; *chain goes on by the step. */
wm_status_t wm_data_load(wm_data_t *data, const wm_data_order_t *order, int64_t step, int32_t *ids,
                         uint64_t *chain, wm_error_t *err);
/* Seconds spent in wm_data_load, and tokens read there by this rank. */
void wm_data_rate(const wm_data_t *data, double *seconds, int64_t *tokens);

#endif
