/* What the probes of some layers need of a text: one pass of the model and of every layer's
 * surrogate alone (method.md, section 7).
 *
 * Block b of the text is computed by rank b mod P, which keeps what is D wide of its predicted
 * rows; one number a position is gathered on every rank. Entropy, Kullback-Leibler divergence and
 * agreement come from logits a tile of the vocabulary at a time, which are never stored.
 */
#ifndef WANAMAKER_MEASURE_PROBE_ROWS_H
#define WANAMAKER_MEASURE_PROBE_ROWS_H

#include "wanamaker/base/progress.h"
#include "wanamaker/base/status.h"
#include "wanamaker/measure/blocks.h"
#include "wanamaker/measure/surrogates.h"
#include "wanamaker/model/model.h"
#include "wanamaker/par/comm.h"

#include <stdint.h>

typedef struct {
  int64_t d, n;               /* width; rows of this rank */
  int64_t total;              /* N positions of all ranks */
  int64_t *place;             /* [n] position of each, ascending */
  int64_t *block;             /* [n] block of each */
  float *e;                   /* [n, D] embeddings, with positions' where the family adds them */
  int64_t capacity, n_layers; /* most layers; held now */
  const int64_t *layers;      /* [n_layers] borrowed from wm_probe_rows_collect */
  float *x;                   /* [n_layers, n, D] MLP inputs */
  /* whole and equal on every rank */
  double *full, *entropy; /* [N] loss and entropy of the full model's prediction, nats */
  double *linear;         /* [capacity, N] loss with the layer's surrogate */
  double *divergence;     /* [capacity, N] KL(full || linear), nats */
  double *agreed;         /* [capacity, N] 1: the same most likely token */
  double *factor;         /* [capacity, N] 1 / sigma(h), h the input of the MLP's layer norm */
  double *memory;         /* of these */
} wm_probe_rows_t;

/* Bytes of a rank for `rows` rows of `layers` layers, in a text of `positions`. */
int64_t wm_probe_rows_bytes(int64_t rows, int64_t positions, int64_t layers, int64_t d);

/* Most of `layers` whose rows and what probes of one of them need (three more of its size) take no
 * more than memory_bytes; 0 of those: all. */
int64_t wm_probe_rows_group(int64_t rows, int64_t positions, int64_t layers, int64_t d,
                            int64_t memory_bytes);

/* Room for `capacity` layers. Not collective: agree afterwards; destroy also after a failure,
 * harmless on a zeroed object. */
wm_status_t wm_probe_rows_create(const wm_comm_t *comm, const wm_blocks_t *blocks, int64_t d,
                                 int64_t capacity, wm_probe_rows_t *out, wm_error_t *err);
void wm_probe_rows_destroy(wm_probe_rows_t *rows);

/* How branches are stacked (evaluate.h). */
typedef struct {
  int64_t max_variants, stack_rows;
  int64_t memory_bytes; /* 0: any */
} wm_probe_stack_t;

/* Collective over comm->world. Everything for layers[n_layers], ascending, each of which has a
 * surrogate. Positions that are through are added to `progress`. WM_STOPPED after a stop request,
 * WM_NUMERICAL if a loss of the full model is not finite. */
wm_status_t wm_probe_rows_collect(wm_probe_rows_t *rows, const wm_comm_t *comm, wm_model_t *model,
                                  const wm_surrogates_t *surrogates, const wm_blocks_t *blocks,
                                  const int32_t *ids, const int64_t *layers, int64_t n_layers,
                                  const wm_probe_stack_t *stack, wm_progress_t *progress,
                                  wm_error_t *err);

#endif
