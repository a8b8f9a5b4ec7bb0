/* The three products of a dense layer: Y = X W, dX = dY W', dW = X' dY. */
#include "training_state.h"

#include <assert.h>
#include <stddef.h>

static wm_weight_layout_t flipped(wm_weight_layout_t layout) {
  return layout == WM_WEIGHT_IN_OUT ? WM_WEIGHT_OUT_IN : WM_WEIGHT_IN_OUT;
}

wm_status_t wm_dense_pass_create(wm_model_t *model, const wm_dense_t *dense, wm_dense_pass_t *out,
                                 wm_error_t *err) {
  int64_t tile = model->options.tile_rows;
  const float *weight = dense->weight.data;
  wm_status_t status;
  *out = (wm_dense_pass_t){.dense = dense, .forward = dense->linear};
  if (dense->activation != WM_ACT_NONE) {
    WM_TRY(wm_linear_create(&out->plain, dense->in, dense->out, weight, dense->weight.layout,
                            dense->bias, WM_ACT_NONE, tile, err));
    out->forward = out->plain;
  }
  WM_TRY(wm_linear_create(&out->backward, dense->out, dense->in, weight,
                          flipped(dense->weight.layout), NULL, WM_ACT_NONE, tile, err));
cleanup:
  return status;
}

void wm_dense_pass_destroy(wm_dense_pass_t *pass) {
  wm_linear_free(pass->plain);
  wm_linear_free(pass->backward);
}

wm_status_t wm_dense_pass_backward(const wm_training_t *t, const wm_dense_pass_t *pass,
                                   const wm_batch_t *batch, const float *x, float *dy, float *dx,
                                   wm_error_t *err) {
  const wm_dense_t *d = pass->dense;
  wm_status_t status = WM_OK;
  for (int64_t s = 0; s < batch->n_sequences; s++) {
    int64_t first = batch->starts[s], n = batch->starts[s + 1] - first;
    if (pass->dweight != NULL)
      WM_TRY(wm_linear_weight_gradient(d->in, d->out, d->weight.layout, x + first * d->in,
                                       dy + first * d->out, n, pass->dweight, err));
    if (pass->dbias != NULL)
      wm_column_sums(dy + first * d->out, n, d->out, pass->dbias);
  }
  if (dx == NULL)
    return WM_OK;
  int64_t padded = wm_block_pad(t->model, dy, batch->starts[batch->n_sequences], d->out);
  WM_TRY(wm_linear_apply(pass->backward, dy, padded, dx, err));
cleanup:
  return status;
}
