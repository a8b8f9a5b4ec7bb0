/* Causal attention by blocks of queries: scores of at most WM_QUERY_BLOCK queries of one head exist
 * per thread. The products' shapes follow from the block's place in its sequence alone. */
#include "softmax.h"
#include "vector.h"
#include "wanamaker/linalg/gemm.h"
#include "wanamaker/model/gradients.h"
#include "wanamaker/model/kernels.h"

#include <assert.h>
#include <omp.h>
#include <stddef.h>

void wm_exp_rows(const float *x, int64_t count, float *out) {
  int64_t i = 0;
  for (; i + WM_LANES <= count; i += WM_LANES)
    wm_lanes_store(out + i, wm_lanes_exp(wm_lanes_load(x + i)));
  if (i < count) {
    wm_lanes_t rest = wm_lanes_exp(wm_lanes_load_part(x + i, count - i, 0));
    memcpy(out + i, &rest, (size_t)(count - i) * sizeof *out);
  }
}

int64_t wm_query_blocks(int64_t n_sequences, const int64_t *starts, wm_query_block_t *blocks) {
  int64_t count = 0;
  for (int64_t s = 0; s < n_sequences; s++) {
    int64_t length = starts[s + 1] - starts[s];
    for (int64_t q = 0; q < length; q += WM_QUERY_BLOCK)
      blocks[count++] = (wm_query_block_t){
          starts[s], q, length - q < WM_QUERY_BLOCK ? length - q : WM_QUERY_BLOCK, s};
  }
  return count;
}

int64_t wm_attention_scratch(int64_t max_length) {
  return WM_QUERY_BLOCK * wm_scores_stride(max_length);
}

/* Drops probabilities of the query in row i of a block, which are x[0 .. n - 1] but for a factor.
 */
static void drop(const wm_attention_dropout_t *d, const wm_query_block_t *block, int64_t i,
                 int64_t head, float *x) {
  enum { PIECE = 256 };
  float multipliers[PIECE];
  int64_t position = block->first_query + i, n = position + 1;
  int64_t unit = wm_dropout_head_unit(d->max_positions, head);
  for (int64_t j = 0; j < n; j += PIECE) {
    int64_t count = n - j < PIECE ? n - j : PIECE;
    wm_dropout_draw(&d->dropout, d->sequences[block->sequence], position, unit + j, count,
                    multipliers);
    for (int64_t k = 0; k < count; k++)
      x[j + k] *= multipliers[k];
  }
}

static wm_status_t attend_block(const wm_qkv_layout_t *l, const float *qkv,
                                const wm_query_block_t *block, int64_t head, float scale,
                                int64_t stride, const wm_attention_dropout_t *dropout,
                                float *scores, float *out, wm_error_t *err) {
  int64_t keys = block->first_query + block->n;
  const float *first = qkv + block->first_row * l->row_stride + head * l->head_stride;
  const float *query = first + block->first_query * l->row_stride;
  const float *key = first + l->part_stride, *value = key + l->part_stride;
  int64_t width = l->n_heads * l->d_head;
  float factors[WM_QUERY_BLOCK];
  wm_status_t status = wm_sgemm_serial('N', 'T', block->n, keys, l->d_head, scale, query,
                                       l->row_stride, key, l->row_stride, 0, scores, stride, err);
  if (status != WM_OK)
    return status;
  for (int64_t i = 0; i < block->n; i++) {
    factors[i] = wm_softmax_row(scores + i * stride, block->first_query + i + 1, keys);
    if (dropout != NULL)
      drop(dropout, block, i, head, scores + i * stride);
  }
  float *target = out + (block->first_row + block->first_query) * width + head * l->d_head;
  status = wm_sgemm_serial('N', 'N', block->n, l->d_head, keys, 1, scores, stride, value,
                           l->row_stride, 0, target, width, err);
  for (int64_t i = 0; status == WM_OK && i < block->n; i++)
    for (int64_t j = 0; j < l->d_head; j++)
      target[i * width + j] *= factors[i];
  return status;
}

wm_status_t wm_attention_apply_dropout(const wm_qkv_layout_t *layout, const float *qkv,
                                       const wm_query_block_t *blocks, int64_t n_blocks,
                                       float scale, int64_t max_length,
                                       const wm_attention_dropout_t *dropout, float *scratch,
                                       float *out, wm_error_t *err) {
  int64_t stride = wm_scores_stride(max_length);
  if (dropout != NULL && dropout->dropout.rate == 0)
    dropout = NULL;
  wm_status_t result = WM_OK;
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int64_t b = 0; b < n_blocks; b++)
    for (int64_t h = 0; h < layout->n_heads; h++) {
      assert(blocks[b].first_query + blocks[b].n <= max_length);
      float *scores = scratch + omp_get_thread_num() * wm_attention_scratch(max_length);
      wm_error_t own = {0};
      wm_status_t status =
          attend_block(layout, qkv, &blocks[b], h, scale, stride, dropout, scores, out, &own);
      if (status != WM_OK) {
#pragma omp critical(wm_attention_error)
        {
          result = status;
          *err = own;
        }
      }
    }
  return result;
}

wm_status_t wm_attention_apply(const wm_qkv_layout_t *layout, const float *qkv,
                               const wm_query_block_t *blocks, int64_t n_blocks, float scale,
                               int64_t max_length, float *scratch, float *out, wm_error_t *err) {
  return wm_attention_apply_dropout(layout, qkv, blocks, n_blocks, scale, max_length, NULL, scratch,
                                    out, err);
}
