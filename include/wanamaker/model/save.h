/* Writing a model as an ordinary checkpoint, with linear layers in the place of MLPs (method.md,
 * section 9).
 *
 * For an activation with act(t) - act(-t) = t, y = x W + b is exactly an MLP of hidden width
 * F >= 2 D: the first matrix has the columns (I, -I, 0) and the bias 0, the second one the rows
 * (W, -W, 0) and the bias b. Stock tools load it like any other.
 */
#ifndef WANAMAKER_MODEL_SAVE_H
#define WANAMAKER_MODEL_SAVE_H

#include "wanamaker/base/log.h"
#include "wanamaker/base/status.h"
#include "wanamaker/model/arch.h"
#include "wanamaker/model/model.h"
#include "wanamaker/par/comm.h"

#include <stdbool.h>
#include <stdint.h>

/* Rows first .. first + rows - 1 of the tensor `name` (without the family's prefix; shape[n_dims])
 * as float32 into world rank 0's `out`, which is NULL elsewhere. Collective: all ranks call it with
 * equal arguments and return the same status. */
typedef wm_status_t (*wm_save_read_t)(void *context, const char *name, int n_dims,
                                      const int64_t *shape, int64_t first, int64_t rows, float *out,
                                      wm_error_t *err);

/* Where the tensors come from. All is borrowed. */
typedef struct {
  const char *config;      /* model directory or config.json: the architecture */
  const wm_model_t *model; /* opened from files of that architecture: its tensors; or NULL and */
  wm_save_read_t read;     /* what reads them, with */
  void *context;
  const bool *linear;         /* [L]: these layers become linear */
  const float *const *weight; /* [L]: W [D, D] as [in, out] of those */
  const float *const *bias;   /* [L]: b [D] */
} wm_save_t;

/* Not collective. WM_INPUT, with the reason, if the architecture's MLPs can't be linear: another
 * activation, or a hidden width below 2 D. */
wm_status_t wm_save_can_be_linear(const wm_arch_t *arch, wm_error_t *err);

/* Collective. Writes the model's tensors, float32, under the names that transformers gives them to
 * the file `path`, on rank 0, in bounded memory. WM_INPUT for a value that is not finite;
 * WM_STOPPED after a stop request. On failure there is no file. */
wm_status_t wm_model_save(const wm_comm_t *comm, const wm_save_t *save, const char *path,
                          const wm_log_t *log, wm_error_t *err);

#endif
