/* Small dense products of attention: some rows, whose operands come from memory one by one, times a
 * panel of columns, which lie side by side. An element of the result is one chain of multiply-adds
 * in the order of the sum, whatever the tile's shape, so that it does not depend on the machine's
 * registers, the row's place or its neighbours. */
#ifndef WANAMAKER_SRC_MODEL_ATTENTION_TILE_H
#define WANAMAKER_SRC_MODEL_ATTENTION_TILE_H

#include "vector.h"

#include <stdbool.h>

/* Rows and vectors of columns whose sums fit the machine's registers, with room for the operands.
 */
#if defined(__AVX512F__)
enum { WM_TILE_ROWS = 12, WM_TILE_VECTORS = 2 };
#elif defined(__AVX__)
enum { WM_TILE_ROWS = 6, WM_TILE_VECTORS = 2 };
#else
enum { WM_TILE_ROWS = 2, WM_TILE_VECTORS = 4 };
#endif
enum { WM_TILE_COLUMNS = WM_TILE_VECTORS * WM_LANES };

static inline int64_t wm_tile_panels(int64_t columns) {
  return (columns + WM_TILE_COLUMNS - 1) / WM_TILE_COLUMNS;
}

/* c[i, :] <- (c[i, :] if `add`, else 0) + sum over k < depth of a[i * row + k * step] b[k, :],
 * i < WM_TILE_ROWS; rows of c are `c_stride` floats apart, b is a panel [depth, WM_TILE_COLUMNS].
 */
static inline __attribute__((always_inline)) void wm_tile_multiply(int64_t depth, const float *a,
                                                                   int64_t row, int64_t step,
                                                                   const float *b, bool add,
                                                                   float *c, int64_t c_stride) {
  wm_lanes_t sums[WM_TILE_ROWS][WM_TILE_VECTORS] = {0};
  if (add)
#pragma GCC unroll 16
    for (int i = 0; i < WM_TILE_ROWS; i++)
#pragma GCC unroll 16
      for (int v = 0; v < WM_TILE_VECTORS; v++)
        sums[i][v] = wm_lanes_load(c + i * c_stride + v * WM_LANES);
  for (int64_t k = 0; k < depth; k++) {
    wm_lanes_t columns[WM_TILE_VECTORS];
#pragma GCC unroll 16
    for (int v = 0; v < WM_TILE_VECTORS; v++)
      columns[v] = wm_lanes_load(b + k * WM_TILE_COLUMNS + v * WM_LANES);
#pragma GCC unroll 16
    for (int i = 0; i < WM_TILE_ROWS; i++) {
      float factor = a[i * row + k * step];
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

/* C <- A B for rows a[i, 0 .. depth - 1], `a_stride` apart. */
static inline void wm_tile_product(int64_t depth, const float *a, int64_t a_stride, const float *b,
                                   float *c, int64_t c_stride) {
  wm_tile_multiply(depth, a, a_stride, 1, b, false, c, c_stride);
}

/* C += A' B for columns of rows a[k, i], `a_stride` apart. */
static inline void wm_tile_add_transposed(int64_t depth, const float *a, int64_t a_stride,
                                          const float *b, float *c, int64_t c_stride) {
  wm_tile_multiply(depth, a, 1, a_stride, b, true, c, c_stride);
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

/* Panels [d, WM_TILE_COLUMNS] of rows x[0 .. n - 1, d], `stride` apart, side by side; zeros fill
 * the last panel. They take wm_tile_panels(n) * WM_TILE_COLUMNS * d floats. */
static inline void wm_tile_transpose(const float *x, int64_t stride, int64_t n, int64_t d,
                                     float *panels) {
  for (int64_t j = 0; j < wm_tile_panels(n) * WM_TILE_COLUMNS; j += 8) {
    float *target = panels + j / WM_TILE_COLUMNS * WM_TILE_COLUMNS * d + j % WM_TILE_COLUMNS;
    int64_t i = 0;
    for (; j + 8 <= n && i + 8 <= d; i += 8)
      wm_transpose_eight(x + j * stride + i, stride, target + i * WM_TILE_COLUMNS, WM_TILE_COLUMNS);
    for (; i < d; i++)
      for (int64_t k = 0; k < 8; k++)
        target[i * WM_TILE_COLUMNS + k] = j + k < n ? x[(j + k) * stride + i] : 0;
  }
}

/* Panels [n, WM_TILE_COLUMNS] of the same rows' columns, `panel` floats from one to the next; zeros
 * fill the last one. */
static inline void wm_tile_copy(const float *x, int64_t stride, int64_t n, int64_t d, int64_t panel,
                                float *panels) {
  for (int64_t i = 0; i < d; i += WM_TILE_COLUMNS, panels += panel) {
    int64_t count = d - i < WM_TILE_COLUMNS ? d - i : WM_TILE_COLUMNS;
    if (count < WM_TILE_COLUMNS)
      memset(panels, 0, (size_t)(n * WM_TILE_COLUMNS) * sizeof *panels);
    for (int64_t j = 0; j < n; j++)
      if (count == WM_TILE_COLUMNS) /* a size that the compiler knows */
        memcpy(panels + j * WM_TILE_COLUMNS, x + j * stride + i, WM_TILE_COLUMNS * sizeof *panels);
      else
        memcpy(panels + j * WM_TILE_COLUMNS, x + j * stride + i, (size_t)count * sizeof *panels);
  }
}

/* rows[i, d] <- scale x[i, d], i < n, and zeros after them, WM_TILE_ROWS rows in all. */
static inline void wm_tile_scale(const float *x, int64_t stride, int64_t n, int64_t d, float scale,
                                 float *restrict rows) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < d; j++)
      rows[i * d + j] = scale * x[i * stride + j];
  memset(rows + n * d, 0, (size_t)((WM_TILE_ROWS - n) * d) * sizeof *rows);
}

enum { WM_CACHE_LINE = 16 }; /* floats */

/* Parts of a thread's scratch: rounds their sizes up to whole cache lines, returns the sum. */
static inline int64_t wm_tile_round_sizes(int64_t *sizes, int n) {
  int64_t total = 0;
  for (int i = 0; i < n; i++) {
    sizes[i] = (sizes[i] + WM_CACHE_LINE - 1) / WM_CACHE_LINE * WM_CACHE_LINE;
    total += sizes[i];
  }
  return total;
}

/* Where they lie from `memory` on. */
static inline void wm_tile_place(float *memory, const int64_t *sizes, int n, float **const *parts) {
  for (int i = 0; i < n; memory += sizes[i++])
    *parts[i] = memory;
}

#endif
