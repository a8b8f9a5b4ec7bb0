/* The forward pass's entry points; the families' own steps are behind wm_family_ops_t. */
#include "family.h"
#include "wanamaker/base/control.h"

#include <assert.h>
#include <string.h>

static wm_status_t check_ids(const wm_model_t *m, const wm_batch_t *batch, const int32_t *ids,
                             wm_error_t *err) {
  for (int64_t s = 0; s < batch->n_sequences; s++) {
    int64_t length = batch->starts[s + 1] - batch->starts[s];
    if (length > m->arch.max_positions)
      return wm_fail(err, WM_INPUT, "a sequence of %lld tokens exceeds the model's %lld positions",
                     (long long)length, (long long)m->arch.max_positions);
  }
  for (int64_t i = 0; i < batch->starts[batch->n_sequences]; i++)
    if (ids[i] < 0 || ids[i] >= m->arch.vocab_size)
      return wm_fail(err, WM_INPUT, "token id %d at position %lld: the model has %lld tokens",
                     (int)ids[i], (long long)i, (long long)m->arch.vocab_size);
  return WM_OK;
}

wm_status_t wm_model_embed(wm_model_t *model, const wm_batch_t *batch, const int32_t *ids, float *h,
                           wm_error_t *err) {
  wm_status_t status = check_ids(model, batch, ids, err);
  if (status != WM_OK)
    return status;
  double start = wm_profile_start(model->profile);
  const wm_rows_t *rows = &model->tokens;
  int64_t d = model->arch.d_model, bytes = d * wm_dtype_size(rows->dtype);
  for (int64_t s = 0; s < batch->n_sequences; s++)
    for (int64_t i = batch->starts[s]; i < batch->starts[s + 1]; i++) {
      wm_to_f32(rows->dtype, rows->data + ids[i] * bytes, d, h + i * d);
      if (model->positions == NULL)
        continue;
      const float *position = model->positions + (i - batch->starts[s]) * d;
      for (int64_t j = 0; j < d; j++)
        h[i * d + j] += position[j];
    }
  double elements = (double)(batch->starts[batch->n_sequences] * d);
  double position_bytes = model->positions != NULL ? sizeof(float) : 0;
  wm_profile_stop(model->profile, WM_KERNEL_EMBED, start, 0,
                  elements * ((double)wm_dtype_size(rows->dtype) + position_bytes + sizeof(float)));
  return WM_OK;
}

wm_status_t wm_model_attend(wm_model_t *model, int64_t layer, const wm_batch_t *batch, float *h,
                            float *x, wm_workspace_t *workspace, wm_error_t *err) {
  assert(layer >= 0 && layer < model->arch.n_layers);
  wm_pulse();
  return model->family->attend(model, layer, batch, h, x, workspace, err);
}

wm_status_t wm_model_mlp(wm_model_t *model, int64_t layer, const float *x, int64_t rows, float *y,
                         wm_workspace_t *workspace, wm_error_t *err) {
  assert(layer >= 0 && layer < model->arch.n_layers);
  return model->family->mlp(model, layer, x, rows, y, workspace, err);
}

void wm_model_add(const wm_model_t *model, float *h, const float *y, int64_t count) {
  double start = wm_profile_start(model->profile);
  wm_add_rows(h, y, count);
  wm_profile_stop(model->profile, WM_KERNEL_ADD, start, 0, 12.0 * (double)count);
}
