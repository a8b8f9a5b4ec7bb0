/* Small dense products of attention: some rows, whose operands come from memory one by one, times a
 * panel of columns, which lie side by side. An element of the result is one chain of multiply-adds
 * in the order of the sum, whatever the tile's shape, so that it does not depend on the machine's
 * registers, the row's place or its neighbours. */
#ifndef WANAMAKER_SRC_MODEL_ATTENTION_TILE_H
#define WANAMAKER_SRC_MODEL_ATTENTION_TILE_H

#include "vector.h"

/* Rows and vectors of columns whose sums fit the machine's registers, with room for the operands.
 */
#if defined(__AVX512F__)
enum { WM_TILE_ROWS = 12, WM_TILE_VECTORS = 2 };
#elif defined(__AVX__)
enum { WM_TILE_ROWS = 6, WM_TILE_VECTORS = 1 };
#else
enum { WM_TILE_ROWS = 2, WM_TILE_VECTORS = 1 };
#endif
enum { WM_TILE_COLUMNS = WM_TILE_VECTORS * WM_LANES };

static inline int64_t wm_tile_panels(int64_t columns) {
  return (columns + WM_TILE_COLUMNS - 1) / WM_TILE_COLUMNS;
}

/* c[i, :] <- sum over k < depth of a[i, k] b[k, :], i < WM_TILE_ROWS; rows of a and c are
 * `a_stride` and `c_stride` floats apart, b is a panel [depth, WM_TILE_COLUMNS]. */
static inline void wm_tile_product(int64_t depth, const float *a, int64_t a_stride, const float *b,
                                   float *c, int64_t c_stride) {
  wm_lanes_t sums[WM_TILE_ROWS][WM_TILE_VECTORS] = {0};
  for (int64_t k = 0; k < depth; k++) {
    wm_lanes_t columns[WM_TILE_VECTORS];
#pragma GCC unroll 16
    for (int v = 0; v < WM_TILE_VECTORS; v++)
      columns[v] = wm_lanes_load(b + k * WM_TILE_COLUMNS + v * WM_LANES);
#pragma GCC unroll 16
    for (int i = 0; i < WM_TILE_ROWS; i++) {
      float factor = a[i * a_stride + k];
#pragma GCC unroll 16
      for (int v = 0; v < WM_TILE_VECTORS; v++)
        sums[i][v] += factor * columns[v];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < WM_TILE_ROWS; i++)
#pragma GCC unroll 16
    for (int v = 0; v < WM_TILE_VECTORS; v++)
      wm_lanes_store(c + i * c_stride + v * WM_LANES, sums[i][v]);
}

typedef float wm_eight_t __attribute__((vector_size(32)));
typedef int32_t wm_eight_places_t __attribute__((vector_size(32)));

/* out[c * out_stride + r] <- in[r * in_stride + c], r and c < 8: every step exchanges, between rows
 * that are 1, 2, 4 apart, elements that are as far apart. */
static inline void wm_transpose_eight(const float *in, int64_t in_stride, float *out,
                                      int64_t out_stride) {
  wm_eight_t rows[8];
#pragma GCC unroll 8
  for (int r = 0; r < 8; r++)
    memcpy(&rows[r], in + r * in_stride, sizeof rows[r]);
#define WM_EXCHANGE(i, j, low, high)                                                               \
  do {                                                                                             \
    wm_eight_t first_ = rows[i];                                                                   \
    rows[i] = __builtin_shuffle(first_, rows[j], low);                                             \
    rows[j] = __builtin_shuffle(first_, rows[j], high);                                            \
  } while (0)
  const wm_eight_places_t low1 = {0, 8, 2, 10, 4, 12, 6, 14}, high1 = {1, 9, 3, 11, 5, 13, 7, 15};
  const wm_eight_places_t low2 = {0, 1, 8, 9, 4, 5, 12, 13}, high2 = {2, 3, 10, 11, 6, 7, 14, 15};
  const wm_eight_places_t low4 = {0, 1, 2, 3, 8, 9, 10, 11}, high4 = {4, 5, 6, 7, 12, 13, 14, 15};
#pragma GCC unroll 8
  for (int r = 0; r < 8; r += 2)
    WM_EXCHANGE(r, r + 1, low1, high1);
#pragma GCC unroll 8
  for (int r = 0; r < 4; r++)
    WM_EXCHANGE(r + r / 2 * 2, r + r / 2 * 2 + 2, low2, high2);
#pragma GCC unroll 8
  for (int r = 0; r < 4; r++)
    WM_EXCHANGE(r, r + 4, low4, high4);
#undef WM_EXCHANGE
#pragma GCC unroll 8
  for (int r = 0; r < 8; r++)
    memcpy(out + r * out_stride, &rows[r], sizeof rows[r]);
}

#endif
