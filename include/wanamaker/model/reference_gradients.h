/* The training objective and its gradients in plain float64 loops, for tests: one statement of the
 * equations of training.h, a sequence at a time, without tiles, blocks or shared code with the fast
 * kernels. Dropout's multipliers are drawn by dropout.h; parameters are the training pass's own
 * values; nothing else is rounded but, where the pass's products are in bfloat16, their operands.
 */
#ifndef WANAMAKER_MODEL_REFERENCE_GRADIENTS_H
#define WANAMAKER_MODEL_REFERENCE_GRADIENTS_H

#include "wanamaker/model/training.h"

/* *objective <- the batch's. `paths` are those that the training pass was made with. `gradients`
 * (NULL: not wanted): for every parameter of the table an array of its elements, to which its
 * gradient is added whether it is trained or not; entries may be NULL. With study_gradients the
 * gradients are what that option says, and no derivatives of the objective. */
wm_status_t wm_reference_objective(const wm_training_t *training, const wm_layer_path_t *paths,
                                   const wm_training_batch_t *batch, double **gradients,
                                   double *objective, wm_error_t *err);

#endif
