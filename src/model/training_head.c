/* Loss and its gradient, for tiles of rows of one sequence and tiles of the vocabulary. Logits of
 * a tile of rows are kept from their log-sum-exp to their gradient, or computed twice. */
#include "training_state.h"

#include "wanamaker/base/control.h"

#include <string.h>

/* Rows of a tile: buffers.rows and buffers.targets of the batch's rows from *next to `end`. */
static int64_t gather(const wm_training_t *t, const int32_t *targets, int64_t end, int64_t *next) {
  int64_t n = 0;
  for (; *next < end && n < t->model->options.tile_rows; (*next)++)
    if (targets[*next] >= 0) {
      t->buffers.rows[n] = *next;
      t->buffers.targets[n++] = targets[*next];
    }
  return n;
}

static int64_t tile_width(const wm_model_t *m, int64_t tile) {
  int64_t rest = m->arch.vocab_size - tile * m->options.tile_vocab;
  return rest < m->options.tile_vocab ? rest : m->options.tile_vocab;
}

/* Where the logits of a tile of the vocabulary go. */
static float *logits_of(const wm_training_t *t, int64_t tile, bool keep) {
  const wm_model_t *m = t->model;
  return t->buffers.logits + (keep ? tile * m->options.tile_rows * m->options.tile_vocab : 0);
}

/* A product of a tile of the vocabulary with a whole tile of rows, of which n are wanted. */
static wm_status_t head_product(const wm_training_t *t, wm_kernel_t kernel, int64_t tile,
                                wm_linear_t *linear, const float *x, int64_t n, float *y,
                                wm_error_t *err) {
  const wm_model_t *m = t->model;
  const double start = wm_profile_start(m->profile);
  wm_status_t status = wm_linear_apply(linear, x, m->options.tile_rows, y, err);
  wm_profile_stop(m->profile, kernel, start,
                  2.0 * (double)n * (double)(tile_width(m, tile) * m->arch.d_model), 0);
  return status;
}

static wm_status_t losses(wm_training_t *t, int64_t n, bool keep, wm_error_t *err) {
  const wm_model_t *m = t->model;
  const wm_pass_buffers_t *b = &t->buffers;
  wm_status_t status = WM_OK;
  wm_log_sum_init(b->log_sums, n);
  for (int64_t tile = 0; tile < m->n_head_tiles; tile++) {
    float *logits = logits_of(t, tile, keep);
    WM_TRY(head_product(t, WM_KERNEL_HEAD, tile, t->head[tile].forward, b->final, n, logits, err));
    const double start = wm_profile_start(m->profile);
    wm_log_sum_add(b->log_sums, logits, n, tile * m->options.tile_vocab, tile_width(m, tile),
                   b->targets);
    wm_profile_stop(m->profile, WM_KERNEL_LOG_SUM, start, 0,
                    4.0 * (double)(n * tile_width(m, tile)));
  }
  for (int64_t i = 0; i < n; i++)
    b->nll[i] = wm_log_sum_nll(&b->log_sums[i]);
cleanup:
  return status;
}

/* dfinal <- gradient with respect to the normalised rows; adds to that of the head. */
static wm_status_t logits_backward(wm_training_t *t, int64_t n, double scale, bool keep,
                                   wm_error_t *err) {
  const wm_model_t *m = t->model;
  const wm_pass_buffers_t *b = &t->buffers;
  int64_t d = m->arch.d_model;
  wm_status_t status = WM_OK;
  memset(b->dfinal, 0, (size_t)(n * d) * sizeof *b->dfinal);
  for (int64_t tile = 0; tile < m->n_head_tiles; tile++) {
    int64_t first = tile * m->options.tile_vocab, width = tile_width(m, tile);
    float *logits = logits_of(t, tile, keep);
    if (!keep)
      WM_TRY(
          head_product(t, WM_KERNEL_HEAD, tile, t->head[tile].forward, b->final, n, logits, err));
    const double start = wm_profile_start(m->profile);
    wm_softmax_gradient(b->log_sums, b->targets, n, first, width, (float)scale, logits);
    wm_profile_stop(m->profile, WM_KERNEL_SOFTMAX_BACKWARD, start, 0, 8.0 * (double)(n * width));
    if (t->dhead != NULL)
      WM_TRY(wm_training_weight_gradient(t, WM_KERNEL_HEAD_WEIGHT, t->head[tile].gradient, d, width,
                                         b->final, logits, n, t->dhead + first * d, err));
    WM_TRY(head_product(t, WM_KERNEL_HEAD_INPUT, tile, t->head[tile].backward, logits, n, b->part,
                        err));
    wm_add_rows(b->dfinal, b->part, n * d);
  }
cleanup:
  return status;
}

static wm_status_t tile_backward(wm_training_t *t, int64_t n, double scale, bool keep,
                                 wm_error_t *err) {
  const wm_pass_buffers_t *b = &t->buffers;
  const wm_norm_t *norm = &t->model->final_norm;
  wm_status_t status = logits_backward(t, n, scale, keep, err);
  if (status != WM_OK)
    return status;
  const double start = wm_profile_start(t->model->profile);
  wm_norm_backward(norm, b->h, b->rows, n, b->dfinal, b->dh, b->norms);
  if (t->final_norm.dgamma != NULL)
    wm_norm_parameters(norm, b->h, b->rows, n, b->dfinal, b->norms, t->final_norm.dgamma,
                       t->final_norm.dbeta);
  wm_profile_stop(t->model->profile, WM_KERNEL_NORM_BACKWARD, start, 0,
                  16.0 * (double)(n * norm->width));
  return WM_OK;
}

wm_status_t wm_training_head(wm_training_t *t, const wm_pass_t *pass, bool backward, double *sums,
                             double *nll, wm_error_t *err) {
  const wm_model_t *m = t->model;
  const wm_batch_t *batch = &pass->batch->rows;
  const wm_pass_buffers_t *b = &t->buffers;
  const bool keep = backward && wm_training_keeps_logits(m, &t->options);
  int64_t d = m->arch.d_model, n;
  wm_status_t status = WM_OK;
  if (backward)
    memset(b->dh, 0, (size_t)(wm_training_rows(pass) * d) * sizeof *b->dh);
  for (int64_t s = 0; s < batch->n_sequences; s++) {
    int64_t next = batch->starts[s];
    double sum = 0;
    while ((n = gather(t, pass->batch->targets, batch->starts[s + 1], &next)) > 0) {
      wm_pulse();
      wm_block_norm(m, &m->final_norm, b->h, b->rows, n, b->final);
      wm_block_pad(m, b->final, n, d);
      WM_TRY(losses(t, n, keep, err));
      for (int64_t i = 0; i < n; i++)
        sum += b->nll[i];
      for (int64_t i = 0; i < n && nll != NULL; i++)
        nll[b->rows[i]] = b->nll[i];
      if (backward)
        WM_TRY(tile_backward(t, n, pass->batch->nll_scale, keep, err));
    }
    if (sums != NULL)
      sums[s] = sum;
  }
cleanup:
  return status;
}
