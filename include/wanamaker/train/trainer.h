/* A training step shared out over ranks (method.md, section 8).
 *
 * The batch of a step is a number of sequences, the same for any number of ranks, which are dealt
 * out in runs (wm_data_part). Each rank puts its own through the training pass, a few at a time
 * (gradient accumulation); when the last pass has finished a segment of the gradients, its sum over
 * the ranks begins while the next layer is computed (par/shards.h). Every rank then has the sums of
 * its shard, keeps AdamW's moments of that shard alone, and updates those parameters where they lie
 * in the node's memory; nodes exchange what their ranks have changed.
 *
 * The loss of a step is summed over the sequences in their order, so that it is the same bits for
 * any number of ranks while weights are; gradients, and with them weights, agree to rounding. */
#ifndef WANAMAKER_TRAIN_TRAINER_H
#define WANAMAKER_TRAIN_TRAINER_H

#include "wanamaker/io/hdf5.h"
#include "wanamaker/model/training.h"
#include "wanamaker/par/comm.h"
#include "wanamaker/train/adamw.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
  wm_adamw_t adamw;
  double clip; /* global norm; 0: none */
  int64_t sequences, length;
  int64_t pass_sequences; /* most sequences of a pass */
  int64_t piece;          /* of messages, see wm_shards_create; 0: chosen */
} wm_trainer_options_t;

/* What a step is run with. */
typedef struct {
  int64_t number;     /* 0, 1, ... since the moments were zero */
  int64_t draw;       /* keys dropout */
  double rate;        /* of learning */
  double penalty;     /* on the mean of g over positions and gated layers */
  const int32_t *ids; /* [own sequences, length] */
} wm_trainer_step_t;

typedef struct {
  double loss;    /* mean NLL of the predicted tokens, nats */
  double gate;    /* mean of g; 0 without gated layers */
  double norm;    /* of the gradient, before clipping */
  double exposed; /* seconds in messages while nothing was computed: of the sums of gradients (mean
                   * of the ranks), and of the exchange of what was changed (this rank's) */
} wm_trainer_result_t;

typedef struct wm_trainer wm_trainer_t;

/* Collective over comm->world. Borrows comm and training. */
wm_status_t wm_trainer_create(const wm_comm_t *comm, wm_training_t *training,
                              const wm_trainer_options_t *options, wm_trainer_t **out,
                              wm_error_t *err);
/* Collective. NULL is allowed. */
void wm_trainer_free(wm_trainer_t *trainer);

/* Bytes of a rank's gradients and moments of `elements` trained parameters, and of those of `ranks`
 * ranks together. Not collective. */
int64_t wm_trainer_bytes(int64_t elements, int ranks);

/* Collective. One step. WM_NUMERICAL, with parameters and moments as they were before, if the loss
 * or the norm is not finite: *out says which. */
wm_status_t wm_trainer_step(wm_trainer_t *trainer, const wm_trainer_step_t *step,
                            wm_trainer_result_t *out, wm_error_t *err);

/* Collective. Writes the moments into `file` (being written) as /moments/first and /moments/second,
 * [G] float32 in the order of wm_training_gradients; the inverse, on any number of ranks. WM_INPUT
 * if the file's are of another number of parameters. */
wm_status_t wm_trainer_save(const wm_trainer_t *trainer, wm_h5_t *file, wm_error_t *err);
wm_status_t wm_trainer_load(wm_trainer_t *trainer, wm_h5_t *file, wm_error_t *err);

#endif
