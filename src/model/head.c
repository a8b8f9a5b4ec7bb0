/* The language-model head: final norm once per row, then logits in tiles of rows x vocabulary. */
#include "family.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"

#include <assert.h>
#include <string.h>

int64_t wm_head_width(const wm_model_t *m, int64_t tile) {
  int64_t rest = m->arch.vocab_size - tile * m->options.tile_vocab;
  return rest < m->options.tile_vocab ? rest : m->options.tile_vocab;
}

/* Fills ws->rows with the next rows that have a target, and ws->targets with it. */
static int64_t gather_targets(const int32_t *targets, int64_t rows, int64_t most, int64_t *next,
                              wm_workspace_t *ws) {
  int64_t n = 0;
  for (; *next < rows && n < most; (*next)++)
    if (targets[*next] >= 0) {
      ws->rows[n] = *next;
      ws->targets[n++] = targets[*next];
    }
  return n;
}

wm_status_t wm_head_check_targets(const wm_model_t *m, const int32_t *targets, int64_t rows,
                                  wm_error_t *err) {
  for (int64_t i = 0; i < rows; i++)
    if (targets[i] >= m->arch.vocab_size)
      return wm_fail(err, WM_INPUT, "target %lld is token %d, but the model has %lld tokens",
                     (long long)i, (int)targets[i], (long long)m->arch.vocab_size);
  return WM_OK;
}

wm_status_t wm_head_logits(wm_model_t *m, int64_t t, const float *x, int64_t rows,
                           wm_workspace_t *ws, wm_error_t *err) {
  double start = wm_profile_start(m->profile);
  wm_status_t status = wm_linear_apply_padded(m->head_tiles[t], x, rows, ws->logits, err);
  wm_profile_stop(m->profile, WM_KERNEL_HEAD, start,
                  2.0 * (double)rows * (double)(wm_head_width(m, t) * m->arch.d_model), 0);
  return status;
}

wm_status_t wm_model_nll(wm_model_t *model, const float *h, int64_t rows, const int32_t *targets,
                         double *nll, wm_workspace_t *ws, wm_error_t *err) {
  wm_status_t status;
  const int64_t most = wm_workspace_together(model, ws);
  int64_t next = 0, n;
  WM_TRY(wm_head_check_targets(model, targets, rows, err));
  while ((n = gather_targets(targets, rows, most, &next, ws)) > 0) {
    wm_block_norm(model, &model->final_norm, h, ws->rows, n, ws->final);
    wm_block_pad(model, ws->final, n, model->arch.d_model);
    wm_log_sum_init(ws->log_sums, n);
    for (int64_t t = 0; t < model->n_head_tiles; t++) {
      wm_pulse();
      WM_TRY(wm_head_logits(model, t, ws->final, n, ws, err));
      double start = wm_profile_start(model->profile);
      wm_log_sum_add(ws->log_sums, ws->logits, n, t * model->options.tile_vocab,
                     wm_head_width(model, t), ws->targets);
      wm_profile_stop(model->profile, WM_KERNEL_LOG_SUM, start, 0,
                      4.0 * (double)(n * wm_head_width(model, t)));
    }
    for (int64_t i = 0; i < n; i++)
      nll[ws->rows[i]] = wm_log_sum_nll(&ws->log_sums[i]);
  }
cleanup:
  return status;
}

wm_status_t wm_model_logits(wm_model_t *model, const float *h, int64_t rows, float *logits,
                            wm_workspace_t *ws, wm_error_t *err) {
  int64_t d = model->arch.d_model, v = model->arch.vocab_size;
  const int64_t most = wm_workspace_together(model, ws);
  wm_status_t status = WM_OK;
  for (int64_t first = 0; first < rows; first += most) {
    int64_t n = rows - first < most ? rows - first : most;
    wm_block_norm(model, &model->final_norm, h + first * d, NULL, n, ws->final);
    wm_block_pad(model, ws->final, n, d);
    for (int64_t t = 0; t < model->n_head_tiles; t++) {
      int64_t width = wm_head_width(model, t);
      WM_TRY(wm_head_logits(model, t, ws->final, n, ws, err));
      for (int64_t i = 0; i < n; i++)
        memcpy(logits + (first + i) * v + t * model->options.tile_vocab, ws->logits + i * width,
               (size_t)width * sizeof *logits);
    }
  }
cleanup:
  return status;
}

wm_status_t wm_head_create(wm_model_t *model, wm_error_t *err) {
  int64_t width = model->options.tile_vocab, d = model->arch.d_model;
  int64_t count = (model->arch.vocab_size + width - 1) / width;
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, count, sizeof(wm_linear_t *), "tiles of the head", err));
  model->head_tiles = memory;
  model->n_head_tiles = count;
  for (int64_t t = 0; t < count; t++) {
    wm_weight_t weight = model->head;
    weight.data = (const char *)weight.data + t * width * d * wm_dtype_size(weight.dtype);
    WM_TRY(wm_linear_create_typed(&model->head_tiles[t], d, wm_head_width(model, t), &weight, NULL,
                                  WM_ACT_NONE, model->options.tile_rows, model->options.compute,
                                  &model->scratch, err));
  }
cleanup:
  return status;
}

void wm_head_free(wm_model_t *model) {
  for (int64_t t = 0; t < model->n_head_tiles; t++)
    wm_linear_free(model->head_tiles[t]);
  free(model->head_tiles);
}
