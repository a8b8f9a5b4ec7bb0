/* A model's tensors in files of training (results/README.md, finetune.model.h5). */
#ifndef WANAMAKER_TRAIN_STATE_H
#define WANAMAKER_TRAIN_STATE_H

#include "wanamaker/io/hdf5.h"
#include "wanamaker/model/training.h"
#include "wanamaker/par/comm.h"

/* Collective. Writes every parameter of the table: the model's tensors as /weights/NAME, gates as
 * /gates/LAYER/PART. `gates`: those alone, or all others. */
wm_status_t wm_state_save(const wm_comm_t *comm, const wm_training_t *training, bool gates,
                          wm_h5_t *file, wm_error_t *err);
/* Collective. The inverse, on any number of ranks; values are the same bits. WM_INPUT if a tensor
 * is missing or of another shape. */
wm_status_t wm_state_load(const wm_comm_t *comm, wm_training_t *training, bool gates, wm_h5_t *file,
                          wm_error_t *err);

#endif
