/* Backward pass of causal attention, by blocks of queries of one head. With P the probabilities, m
 * the multipliers of dropout (1 without), O = (P m) V:
 *   dV += (P m)' dO     dP = m (dO V')     dS = P (dP - rowsum(P dP))     rowsum(P dP) = dO . O
 *   dQ = scale dS K     dK += scale dS' Q
 * Blocks of a head are taken in order on one thread, so sums over queries have one order. */
#include "softmax.h"
#include "wanamaker/linalg/gemm.h"
#include "wanamaker/model/gradients.h"

#include <assert.h>
#include <omp.h>
#include <stddef.h>

enum { QUERY_BLOCK = 64 };

/* Everything that a head of a sequence works with. */
typedef struct {
  const wm_qkv_layout_t *layout;
  const wm_attention_dropout_t *dropout; /* NULL: none */
  int64_t head, sequence;
  float scale;
  int64_t stride;          /* of the rows of p and dp */
  const float *query;      /* of the sequence's first row; key and value follow */
  const float *out, *dout; /* of the sequence's first row and the head */
  float *dquery;
  float *p, *dp;      /* [QUERY_BLOCK, stride] */
  float *multipliers; /* [stride] */
} task_t;

int64_t wm_attention_backward_scratch(int64_t max_length) {
  return (2 * QUERY_BLOCK + 1) * wm_scores_stride(max_length);
}

static double dot(const float *a, const float *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += (double)a[i] * (double)b[i];
  return sum;
}

/* Row of query `position`: p holds e^(score - max) and becomes P m, dp holds dO V' and becomes
 * scale dS. */
static void differentiate_row(const task_t *t, int64_t position, float factor, int64_t keys,
                              float *p, float *dp) {
  int64_t n = position + 1, width = t->layout->n_heads * t->layout->d_head;
  float along =
      (float)dot(t->dout + position * width, t->out + position * width, t->layout->d_head);
  if (t->dropout != NULL) {
    const wm_attention_dropout_t *d = t->dropout;
    wm_dropout_draw(&d->dropout, d->sequences[t->sequence], position,
                    wm_dropout_head_unit(d->max_positions, t->head), n, t->multipliers);
    for (int64_t j = 0; j < n; j++) {
      float probability = p[j] * factor;
      dp[j] = t->scale * probability * (dp[j] * t->multipliers[j] - along);
      p[j] = probability * t->multipliers[j];
    }
  } else {
    for (int64_t j = 0; j < n; j++) {
      p[j] *= factor;
      dp[j] = t->scale * p[j] * (dp[j] - along);
    }
  }
  memset(dp + n, 0, (size_t)(keys - n) * sizeof *dp);
}

static wm_status_t backward_block(const task_t *t, int64_t first, int64_t n, wm_error_t *err) {
  const wm_qkv_layout_t *l = t->layout;
  int64_t keys = first + n, width = l->n_heads * l->d_head, row = l->row_stride, dh = l->d_head;
  const float *query = t->query + first * row, *key = t->query + l->part_stride;
  const float *value = key + l->part_stride, *dout = t->dout + first * width;
  float *dkey = t->dquery + l->part_stride, *dvalue = dkey + l->part_stride;
  wm_status_t status;
  WM_TRY(wm_sgemm_serial('N', 'T', n, keys, dh, t->scale, query, row, key, row, 0, t->p, t->stride,
                         err));
  WM_TRY(
      wm_sgemm_serial('N', 'T', n, keys, dh, 1, dout, width, value, row, 0, t->dp, t->stride, err));
  for (int64_t i = 0; i < n; i++) {
    float *p = t->p + i * t->stride;
    float factor = wm_softmax_row(p, first + i + 1, keys);
    differentiate_row(t, first + i, factor, keys, p, t->dp + i * t->stride);
  }
  WM_TRY(
      wm_sgemm_serial('T', 'N', keys, dh, n, 1, t->p, t->stride, dout, width, 1, dvalue, row, err));
  WM_TRY(wm_sgemm_serial('N', 'N', n, dh, keys, 1, t->dp, t->stride, key, row, 0,
                         t->dquery + first * row, row, err));
  WM_TRY(
      wm_sgemm_serial('T', 'N', keys, dh, n, 1, t->dp, t->stride, query, row, 1, dkey, row, err));
cleanup:
  return status;
}

static wm_status_t backward_head(const task_t *t, int64_t length, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int64_t q = 0; q < length && status == WM_OK; q += QUERY_BLOCK)
    status = backward_block(t, q, length - q < QUERY_BLOCK ? length - q : QUERY_BLOCK, err);
  return status;
}

wm_status_t wm_attention_backward(const wm_qkv_layout_t *layout, const float *qkv,
                                  const wm_batch_t *batch, float scale, int64_t max_length,
                                  const wm_attention_dropout_t *dropout, const float *out,
                                  const float *dout, float *scratch, float *dqkv, wm_error_t *err) {
  int64_t width = layout->n_heads * layout->d_head, stride = wm_scores_stride(max_length);
  memset(dqkv, 0, (size_t)(batch->starts[batch->n_sequences] * layout->row_stride) * sizeof *dqkv);
  if (dropout != NULL && dropout->dropout.rate == 0)
    dropout = NULL;
  wm_status_t result = WM_OK;
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int64_t s = 0; s < batch->n_sequences; s++)
    for (int64_t h = 0; h < layout->n_heads; h++) {
      int64_t first = batch->starts[s], length = batch->starts[s + 1] - first;
      assert(length <= max_length);
      float *own = scratch + omp_get_thread_num() * wm_attention_backward_scratch(max_length);
      int64_t at = first * layout->row_stride + h * layout->head_stride;
      int64_t place = first * width + h * layout->d_head;
      const task_t task = {.layout = layout,
                           .dropout = dropout,
                           .head = h,
                           .sequence = s,
                           .scale = scale,
                           .stride = stride,
                           .query = qkv + at,
                           .out = out + place,
                           .dout = dout + place,
                           .dquery = dqkv + at,
                           .p = own,
                           .dp = own + QUERY_BLOCK * stride,
                           .multipliers = own + 2 * QUERY_BLOCK * stride};
      wm_error_t failure = {0};
      wm_status_t status = backward_head(&task, length, &failure);
      if (status != WM_OK) {
#pragma omp critical(wm_attention_backward_error)
        {
          result = status;
          *err = failure;
        }
      }
    }
  return result;
}
