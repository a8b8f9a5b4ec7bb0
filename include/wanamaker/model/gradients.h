/* Backward kernels of the network other than matrix products, float32; reference_gradients.h has a
 * plain float64 statement of the whole. Each adds to gradients of parameters in the order of the
 * rows, whatever the number of threads. Not collective; all use the process's OpenMP threads. */
#ifndef WANAMAKER_MODEL_GRADIENTS_H
#define WANAMAKER_MODEL_GRADIENTS_H

#include "wanamaker/base/status.h"
#include "wanamaker/model/dropout.h"
#include "wanamaker/model/kernels.h"
#include "wanamaker/model/model.h"

#include <stdint.h>

/* What a row was normalised by: xhat = ((x - mean) - shift) factor. */
typedef struct {
  float mean, shift, factor;
} wm_norm_row_t;

/* dx[row, :] += J' dy[i, :], J the layer norm's Jacobian at x[row, :], row = index[i] (i when index
 * is NULL), i < rows. Fills statistics[rows] for wm_norm_parameters. */
void wm_norm_backward(const wm_norm_t *norm, const float *x, const int64_t *index, int64_t rows,
                      const float *dy, float *dx, wm_norm_row_t *statistics);
/* The statistics alone. */
void wm_norm_statistics(const wm_norm_t *norm, const float *x, const int64_t *index, int64_t rows,
                        wm_norm_row_t *statistics);
/* dgamma += sum over i of dy[i, :] xhat[row, :], dbeta += sum of dy[i, :]; sums in float64. */
void wm_norm_parameters(const wm_norm_t *norm, const float *x, const int64_t *index, int64_t rows,
                        const float *dy, const wm_norm_row_t *statistics, float *dgamma,
                        float *dbeta);

/* sums[c] += sum over rows of x[rows, cols], in float64. */
void wm_column_sums(const float *x, int64_t rows, int64_t cols, float *sums);

/* table[ids[i], :] += x[i, :], i < n in order; x: [n, width]. */
void wm_scatter_rows(const float *x, const int32_t *ids, int64_t n, int64_t width, float *table);

/* Turns gradients of turned queries and keys back: the transpose of wm_rotary_apply. */
void wm_rotary_backward(const wm_rotary_t *rotary, const wm_qkv_layout_t *layout,
                        const int32_t *positions, int64_t rows, float *dqkv);

/* wm_attention_apply with dropout of the probabilities. `sequences`: numbers of the batch's
 * sequences, for the draws; `max_positions`: of the model (wm_dropout_head_unit). */
typedef struct {
  wm_dropout_t dropout;
  const int64_t *sequences;
  int64_t max_positions;
} wm_attention_dropout_t;
void wm_attention_apply_dropout(const wm_qkv_layout_t *layout, const float *qkv,
                                const wm_query_block_t *blocks, int64_t n_blocks, float scale,
                                int64_t max_length, const wm_attention_dropout_t *dropout,
                                float *scratch, float *out);

/* Floats of scratch per thread. */
int64_t wm_attention_backward_scratch(int64_t max_length, int64_t d_head);

/* dqkv[rows, 3 D] <- gradient with respect to (turned) queries, keys and values of attention, whose
 * output out[rows, D] has the gradient dout. Probabilities are computed anew for one block of
 * queries of one head per thread; a head of a sequence is one thread's. `dropout` NULL: none. */
void wm_attention_backward(const wm_qkv_layout_t *layout, const float *qkv, const wm_batch_t *batch,
                           float scale, int64_t max_length, const wm_attention_dropout_t *dropout,
                           const float *out, const float *dout, float *scratch, float *dqkv);

/* logits[i, :] <- nll_scale (softmax(logits[i, :]) - onehot(targets[i])), the part of vocabulary
 * entries first .. first + width - 1; `state` is complete. */
void wm_softmax_gradient(const wm_log_sum_t *state, const int32_t *targets, int64_t rows,
                         int64_t first, int64_t width, float nll_scale, float *logits);

#endif
