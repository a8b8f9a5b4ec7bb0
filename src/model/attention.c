/* Causal attention by blocks of queries: scores of at most WM_QUERY_BLOCK queries of one head exist
 * per thread. The products' shapes follow from the block's place in its sequence alone. */
#include "vector.h"
#include "wanamaker/linalg/gemm.h"
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
          starts[s], q, length - q < WM_QUERY_BLOCK ? length - q : WM_QUERY_BLOCK};
  }
  return count;
}

/* Rows of scores start on whole vectors. */
static int64_t scores_stride(int64_t max_length) {
  return (max_length + WM_LANES - 1) / WM_LANES * WM_LANES;
}

int64_t wm_attention_scratch(int64_t max_length) {
  return WM_QUERY_BLOCK * scores_stride(max_length);
}

/* x[0 .. n - 1] <- e^(x - max), x[n .. width - 1] <- 0; returns 1 / sum. Up to the next whole
 * vector x is ours to write. */
static float softmax_row(float *x, int64_t n, int64_t width) {
  float max = wm_row_max(x, n);
  int64_t whole = (n + WM_LANES - 1) / WM_LANES * WM_LANES;
  for (int64_t i = n; i < whole; i++)
    x[i] = -INFINITY;
  wm_lanes_t sum = {0};
  for (int64_t i = 0; i < whole; i += WM_LANES) {
    wm_lanes_t e = wm_lanes_exp(wm_lanes_load(x + i) - max);
    wm_lanes_store(x + i, e);
    sum += e;
  }
  if (whole < width)
    memset(x + whole, 0, (size_t)(width - whole) * sizeof *x);
  return (float)(1.0 / wm_lanes_sum(sum));
}

static wm_status_t attend_block(const wm_qkv_layout_t *l, const float *qkv,
                                const wm_query_block_t *block, int64_t head, float scale,
                                int64_t stride, float *scores, float *out, wm_error_t *err) {
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
  for (int64_t i = 0; i < block->n; i++)
    factors[i] = softmax_row(scores + i * stride, block->first_query + i + 1, keys);
  float *target = out + (block->first_row + block->first_query) * width + head * l->d_head;
  status = wm_sgemm_serial('N', 'N', block->n, l->d_head, keys, 1, scores, stride, value,
                           l->row_stride, 0, target, width, err);
  for (int64_t i = 0; status == WM_OK && i < block->n; i++)
    for (int64_t j = 0; j < l->d_head; j++)
      target[i * width + j] *= factors[i];
  return status;
}

wm_status_t wm_attention_apply(const wm_qkv_layout_t *layout, const float *qkv,
                               const wm_query_block_t *blocks, int64_t n_blocks, float scale,
                               int64_t max_length, float *scratch, float *out, wm_error_t *err) {
  int64_t stride = scores_stride(max_length);
  wm_status_t result = WM_OK;
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int64_t b = 0; b < n_blocks; b++)
    for (int64_t h = 0; h < layout->n_heads; h++) {
      assert(blocks[b].first_query + blocks[b].n <= max_length);
      float *scores = scratch + omp_get_thread_num() * wm_attention_scratch(max_length);
      wm_error_t own = {0};
      wm_status_t status =
          attend_block(layout, qkv, &blocks[b], h, scale, stride, scores, out, &own);
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
