/* Dense layers in tiles of fixed height (gemm.h), on top of one of the backends. */
#include "wanamaker/base/mem.h"
#include "wanamaker/linalg/activation.h"
#include "wanamaker/linalg/gemm.h"
#include "wanamaker/linalg/gemm_backend.h"

#include <assert.h>
#include <string.h>

struct wm_linear {
  int64_t in, out, tile; /* tile: rows of one product, see wm_gemm_row_block */
  const float *bias;     /* borrowed, or NULL */
  wm_activation_t act;
  wm_gemm_plan_t *plan;
  float *x_tail, *y_tail; /* [tile, in], [tile, out]: a last tile, padded; made when first needed */
};

int64_t wm_gemm_tile_rows(int64_t tile_rows) {
  int64_t block = wm_gemm_row_block();
  return (tile_rows + block - 1) / block * block;
}

wm_status_t wm_linear_create(wm_linear_t **out, int64_t in, int64_t out_width, const float *weight,
                             wm_weight_layout_t layout, const float *bias, wm_activation_t act,
                             int64_t tile_rows, wm_error_t *err) {
  assert(in > 0 && out_width > 0 && tile_rows > 0 && weight != NULL);
  *out = NULL;
  void *memory;
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_linear_t), "a dense layer", err);
  if (status != WM_OK)
    return status;
  wm_linear_t *l = memory;
  l->in = in;
  l->out = out_width;
  l->tile = wm_gemm_tile_rows(tile_rows);
  l->bias = bias;
  l->act = act;
  status = wm_gemm_plan_create(&l->plan, l->tile, in, out_width, weight, layout, err);
  if (status != WM_OK) {
    wm_linear_free(l);
    return wm_error_prefix(err, "a dense layer of %lld inputs and %lld outputs", (long long)in,
                           (long long)out_width);
  }
  *out = l;
  return WM_OK;
}

void wm_linear_free(wm_linear_t *linear) {
  if (linear == NULL)
    return;
  wm_gemm_plan_free(linear->plan);
  free(linear->x_tail);
  free(linear->y_tail);
  free(linear);
}

int64_t wm_linear_tile_rows(const wm_linear_t *linear) {
  return linear->tile;
}

static wm_status_t reserve_tail(wm_linear_t *l, wm_error_t *err) {
  if (l->y_tail != NULL)
    return WM_OK;
  void *x, *y;
  wm_status_t status = wm_alloc(&x, l->tile * l->in, sizeof(float), "a tile's input", err);
  if (status != WM_OK)
    return status;
  status = wm_alloc(&y, l->tile * l->out, sizeof(float), "a tile's output", err);
  if (status != WM_OK) {
    free(x);
    return status;
  }
  l->x_tail = x;
  l->y_tail = y;
  return WM_OK;
}

/* The last `rows` < tile rows, padded with zeros to a full tile. */
static wm_status_t apply_tail(wm_linear_t *l, const float *x, int64_t rows, float *y,
                              wm_error_t *err) {
  wm_status_t status = reserve_tail(l, err);
  if (status != WM_OK)
    return status;
  memcpy(l->x_tail, x, (size_t)(rows * l->in) * sizeof *x);
  memset(l->x_tail + rows * l->in, 0, (size_t)((l->tile - rows) * l->in) * sizeof *x);
  status = wm_gemm_plan_run(l->plan, l->x_tail, l->y_tail, err);
  if (status == WM_OK)
    memcpy(y, l->y_tail, (size_t)(rows * l->out) * sizeof *y);
  return status;
}

wm_status_t wm_linear_apply(wm_linear_t *linear, const float *x, int64_t rows, float *y,
                            wm_error_t *err) {
  assert(rows >= 0);
  for (int64_t first = 0; first < rows; first += linear->tile) {
    int64_t count = rows - first < linear->tile ? rows - first : linear->tile;
    const float *xt = x + first * linear->in;
    float *yt = y + first * linear->out;
    wm_status_t status = count == linear->tile ? wm_gemm_plan_run(linear->plan, xt, yt, err)
                                               : apply_tail(linear, xt, count, yt, err);
    if (status != WM_OK)
      return status;
    wm_bias_activation(linear->bias, linear->act, count, linear->out, yt);
  }
  return WM_OK;
}
