/* The three products of a dense layer: Y = X W, dX = dY W', dW = X' dY. */
#include "training_state.h"

#include <assert.h>
#include <stddef.h>

static wm_weight_layout_t flipped(wm_weight_layout_t layout) {
  return layout == WM_WEIGHT_IN_OUT ? WM_WEIGHT_OUT_IN : WM_WEIGHT_IN_OUT;
}

wm_status_t wm_training_linear(wm_training_t *t, int64_t in, int64_t out_width, const float *weight,
                               wm_weight_layout_t layout, const float *bias, wm_linear_t **out,
                               wm_error_t *err) {
  const wm_weight_t master = {WM_DTYPE_F32, layout, weight};
  return wm_linear_create_typed(out, in, out_width, &master, bias, WM_ACT_NONE,
                                t->model->options.tile_rows, t->options.compute, &t->scratch, err);
}

wm_status_t wm_dense_pass_create(wm_training_t *t, const wm_dense_t *dense, wm_kernel_t kernel,
                                 wm_kernel_t input_kernel, wm_dense_pass_t *out, wm_error_t *err) {
  const float *weight = dense->weight.data;
  const wm_weight_layout_t layout = dense->weight.layout;
  wm_status_t status;
  *out = (wm_dense_pass_t){.kernel = kernel,
                           .input_kernel = input_kernel,
                           .weight_kernel = input_kernel + 1,
                           .dense = dense,
                           .forward = dense->linear};
  if (dense->activation != WM_ACT_NONE || t->options.compute != WM_COMPUTE_F32) {
    WM_TRY(wm_training_linear(t, dense->in, dense->out, weight, layout, dense->bias, &out->plain,
                              err));
    out->forward = out->plain;
  }
  WM_TRY(wm_training_linear(t, dense->out, dense->in, weight, flipped(layout), NULL, &out->backward,
                            err));
  WM_TRY(wm_weight_gradient_create(&out->gradient, dense->in, dense->out, layout,
                                   t->options.max_length, t->options.compute, &t->scratch, err));
cleanup:
  return status;
}

void wm_dense_pass_destroy(wm_dense_pass_t *pass) {
  wm_linear_free(pass->plain);
  wm_linear_free(pass->backward);
  wm_weight_gradient_free(pass->gradient);
}

wm_status_t wm_training_weight_gradient(const wm_training_t *t, wm_kernel_t kernel,
                                        wm_weight_gradient_t *gradient, int64_t in, int64_t out,
                                        const float *x, const float *dy, int64_t rows, float *sum,
                                        wm_error_t *err) {
  const double start = wm_profile_start(t->model->profile);
  wm_status_t status = wm_weight_gradient_add(gradient, x, dy, rows, sum, err);
  wm_profile_stop(t->model->profile, kernel, start, 2.0 * (double)rows * (double)(in * out), 0);
  return status;
}

static void bias_gradient(const wm_training_t *t, const float *dy, int64_t rows, int64_t out,
                          float *gradient) {
  const double start = wm_profile_start(t->model->profile);
  wm_column_sums(dy, rows, out, gradient);
  wm_profile_stop(t->model->profile, WM_KERNEL_BIAS, start, 0, 4.0 * (double)(rows * out));
}

wm_status_t wm_dense_pass_backward(const wm_training_t *t, const wm_dense_pass_t *pass,
                                   const wm_batch_t *batch, const float *x, float *dy, float *dx,
                                   wm_error_t *err) {
  const wm_dense_t *d = pass->dense;
  wm_status_t status = WM_OK;
  for (int64_t s = 0; s < batch->n_sequences; s++) {
    int64_t first = batch->starts[s], n = batch->starts[s + 1] - first;
    if (pass->dweight != NULL)
      WM_TRY(wm_training_weight_gradient(t, pass->weight_kernel, pass->gradient, d->in, d->out,
                                         x + first * d->in, dy + first * d->out, n, pass->dweight,
                                         err));
    if (pass->dbias != NULL)
      bias_gradient(t, dy + first * d->out, n, d->out, pass->dbias);
  }
  if (dx != NULL)
    status = wm_training_dense(t, pass->input_kernel, pass->backward, dy,
                               batch->starts[batch->n_sequences], d->out, d->in, dx, err);
cleanup:
  return status;
}
