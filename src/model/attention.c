/* Causal attention by blocks of queries: scores of at most WM_QUERY_BLOCK queries of one head exist
 * per thread. The products' shapes follow from the block's place in its sequence alone. */
#include "vector.h"
#include "wanamaker/linalg/gemm.h"
#include "wanamaker/model/kernels.h"

#include <assert.h>
#include <omp.h>

void wm_exp_rows(const float *x, int64_t count, float *out) {
#pragma omp simd
  for (int64_t i = 0; i < count; i++)
    out[i] = wm_exp_f32(x[i]);
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

static float row_max(const float *x, int64_t n) {
  float max = x[0];
#pragma omp simd reduction(max : max)
  for (int64_t i = 0; i < n; i++)
    max = x[i] > max ? x[i] : max;
  return max;
}

/* x[0 .. n - 1] <- softmax of itself; x[n .. width - 1] <- 0. */
static void softmax_row(float *x, int64_t n, int64_t width) {
  float max = row_max(x, n);
#pragma omp simd
  for (int64_t i = 0; i < n; i++)
    x[i] = wm_exp_f32(x[i] - max);
  wm_lanes_t lanes = {0};
  int64_t i = 0;
  for (; i + WM_LANES <= n; i += WM_LANES)
    lanes += wm_lanes_load(x + i);
  if (i < n)
    lanes += wm_lanes_load_part(x + i, n - i, 0);
  float factor = (float)(1.0 / wm_lanes_sum(lanes));
#pragma omp simd
  for (int64_t j = 0; j < n; j++)
    x[j] *= factor;
  memset(x + n, 0, (size_t)(width - n) * sizeof *x);
}

static wm_status_t attend_block(const wm_qkv_layout_t *l, const float *qkv,
                                const wm_query_block_t *block, int64_t head, float scale,
                                int64_t stride, float *scores, float *out, wm_error_t *err) {
  int64_t keys = block->first_query + block->n;
  const float *first = qkv + block->first_row * l->row_stride + head * l->head_stride;
  const float *query = first + block->first_query * l->row_stride;
  const float *key = first + l->part_stride, *value = key + l->part_stride;
  int64_t width = l->n_heads * l->d_head;
  wm_status_t status = wm_sgemm_serial('N', 'T', block->n, keys, l->d_head, scale, query,
                                       l->row_stride, key, l->row_stride, 0, scores, stride, err);
  if (status != WM_OK)
    return status;
  for (int64_t i = 0; i < block->n; i++)
    softmax_row(scores + i * stride, block->first_query + i + 1, keys);
  float *target = out + (block->first_row + block->first_query) * width + head * l->d_head;
  return wm_sgemm_serial('N', 'N', block->n, l->d_head, keys, 1, scores, stride, value,
                         l->row_stride, 0, target, width, err);
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
