/* Dense layers in tiles of fixed height (gemm.h), on top of one of the backends. */
#include "wanamaker/base/control.h"
#include "wanamaker/base/dtype.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/linalg/activation.h"
#include "wanamaker/linalg/gemm.h"
#include "wanamaker/linalg/gemm_backend.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

struct wm_linear {
  int64_t in, out, tile; /* tile: rows of one product, a multiple of wm_gemm_row_block() */
  wm_weight_t weight;    /* borrowed data */
  const float *bias;     /* borrowed, or NULL */
  wm_activation_t act;
  wm_compute_t compute;
  wm_gemm_scratch_t *scratch; /* borrowed; NULL: nothing is converted */
  wm_gemm_plan_t *plan;
  wm_tiles_t tiles;
  wm_gemm_plan_t **fitted; /* [tile / block] of each height, made when first needed; NULL: none */
  float *x_tail, *y_tail; /* [tile, in], [tile, out]: a last tile, padded; made when first needed */
};

int64_t wm_gemm_tile_rows(int64_t rows) {
  int64_t block = wm_gemm_row_block();
  return (rows + block - 1) / block * block;
}

enum { JOINED = 4 }; /* tiles: more gain nothing, and their results leave the cache */

int64_t wm_gemm_padded(wm_tiles_t tiles, int64_t tile, int64_t rows) {
  int64_t block = tiles == WM_TILES_FITTED ? wm_gemm_fitted_block() : tile;
  return (rows + block - 1) / block * block;
}

int64_t wm_gemm_most_rows(wm_tiles_t tiles, int64_t tile, int64_t rows) {
  if (tiles == WM_TILES_FITTED || !wm_gemm_joins() || rows <= tile)
    return tile;
  int64_t padded = wm_gemm_padded(tiles, tile, rows);
  return padded < JOINED * tile ? padded : JOINED * tile;
}

int64_t wm_gemm_whole(wm_tiles_t tiles, int64_t tile, int64_t rows) {
  return rows == wm_gemm_padded(tiles, tile, rows)
             ? rows
             : rows - rows % wm_gemm_share(tiles, tile, tile, rows);
}

int64_t wm_gemm_share(wm_tiles_t tiles, int64_t tile, int64_t most, int64_t rows) {
  if (tiles == WM_TILES_FIXED || rows <= 0)
    return most;
  int64_t count = (rows + most - 1) / most;
  return wm_gemm_padded(tiles, tile, (rows + count - 1) / count);
}

/* Is a copy of the weights, as the product reads them, made when the layer is applied? */
static bool converts_weight(const wm_linear_t *l) {
  return l->weight.dtype != (l->compute == WM_COMPUTE_BF16 ? WM_DTYPE_BF16 : WM_DTYPE_F32) ||
         l->compute == WM_COMPUTE_BF16_EMULATED;
}

/* That copy. */
static const void *convert_weight(const wm_linear_t *l) {
  const int64_t n = l->in * l->out;
  void *copy = l->scratch->weight;
  if (l->compute == WM_COMPUTE_BF16)
    wm_to_bf16(l->weight.dtype, l->weight.data, n, copy);
  else if (l->compute == WM_COMPUTE_BF16_EMULATED && l->weight.dtype == WM_DTYPE_F32)
    wm_round_to_bf16(l->weight.data, n, copy);
  else
    wm_to_f32(l->weight.dtype, l->weight.data, n, copy);
  return copy;
}

static wm_status_t reserve(void **buffer, int64_t *elements, int64_t needed, const char *what,
                           wm_error_t *err) {
  if (needed <= *elements)
    return WM_OK;
  free(*buffer);
  *elements = 0;
  wm_status_t status = wm_alloc(buffer, needed, sizeof(float), what, err);
  if (status == WM_OK)
    *elements = needed;
  return status;
}

static wm_status_t reserve_scratch(wm_linear_t *l, wm_error_t *err) {
  wm_gemm_scratch_t *s = l->scratch;
  wm_status_t status = WM_OK;
  void *weight = s->weight;
  if (converts_weight(l))
    status = reserve(&weight, &s->weight_elements, l->in * l->out,
                     "a converted copy of a layer's weights", err);
  s->weight = weight;
  if (status == WM_OK && l->compute != WM_COMPUTE_F32)
    status = reserve(&s->rows, &s->row_elements, l->tile * l->in, "rounded rows", err);
  return status;
}

void wm_gemm_scratch_destroy(wm_gemm_scratch_t *scratch) {
  free(scratch->weight);
  free(scratch->rows);
  free(scratch->panel);
  *scratch = (wm_gemm_scratch_t){0};
}

int64_t wm_gemm_scratch_bytes(const wm_gemm_scratch_t *scratch) {
  return (scratch->weight_elements + scratch->row_elements + scratch->panel_elements) *
         (int64_t)sizeof(float);
}

/* A product of `rows` rows. */
static wm_status_t create_plan(const wm_linear_t *l, int64_t rows, wm_tiles_t tiles,
                               wm_gemm_plan_t **out, wm_error_t *err) {
  wm_dtype_t operands = l->compute == WM_COMPUTE_BF16 ? WM_DTYPE_BF16 : WM_DTYPE_F32;
  return wm_gemm_plan_create(out, rows, l->in, l->out, operands, l->weight.layout, tiles, err);
}

static wm_status_t prepare(wm_linear_t *l, wm_error_t *err) {
  wm_status_t status = l->scratch != NULL ? reserve_scratch(l, err) : WM_OK;
  if (status == WM_OK)
    status = create_plan(l, l->tile, WM_TILES_FIXED, &l->plan, err);
  if (status != WM_OK)
    wm_error_prefix(err, "a dense layer of %lld inputs and %lld outputs", (long long)l->in,
                    (long long)l->out);
  return status;
}

wm_status_t wm_linear_create_typed(wm_linear_t **out, int64_t in, int64_t out_width,
                                   const wm_weight_t *weight, const float *bias,
                                   wm_activation_t act, int64_t tile_rows, wm_compute_t compute,
                                   wm_gemm_scratch_t *scratch, wm_error_t *err) {
  assert(in > 0 && out_width > 0 && tile_rows > 0 && weight->data != NULL);
  assert(compute == WM_COMPUTE_F32 || weight->dtype != WM_DTYPE_F16);
  *out = NULL;
  void *memory;
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_linear_t), "a dense layer", err);
  if (status != WM_OK)
    return status;
  wm_linear_t *l = memory;
  *l = (wm_linear_t){.in = in,
                     .out = out_width,
                     .tile = wm_gemm_tile_rows(tile_rows),
                     .weight = *weight,
                     .bias = bias,
                     .act = act,
                     .compute = compute,
                     .scratch = scratch};
  assert(scratch != NULL || (compute == WM_COMPUTE_F32 && weight->dtype == WM_DTYPE_F32));
  status = prepare(l, err);
  if (status != WM_OK) {
    wm_linear_free(l);
    return status;
  }
  *out = l;
  return WM_OK;
}

wm_status_t wm_linear_create(wm_linear_t **out, int64_t in, int64_t out_width, const float *weight,
                             wm_weight_layout_t layout, const float *bias, wm_activation_t act,
                             int64_t tile_rows, wm_error_t *err) {
  const wm_weight_t plain = {WM_DTYPE_F32, layout, weight};
  return wm_linear_create_typed(out, in, out_width, &plain, bias, act, tile_rows, WM_COMPUTE_F32,
                                NULL, err);
}

/* Heights that a fitted tile may have. */
static int64_t heights_of(const wm_linear_t *l) {
  return l->tile / wm_gemm_fitted_block();
}

void wm_linear_free(wm_linear_t *linear) {
  if (linear == NULL)
    return;
  wm_gemm_plan_free(linear->plan);
  for (int64_t i = 0; linear->fitted != NULL && i < heights_of(linear); i++)
    wm_gemm_plan_free(linear->fitted[i]);
  free(linear->fitted);
  free(linear->x_tail);
  free(linear->y_tail);
  free(linear);
}

int64_t wm_linear_tile_rows(const wm_linear_t *linear) {
  return linear->tile;
}

wm_status_t wm_linear_set_tiles(wm_linear_t *l, wm_tiles_t tiles, wm_error_t *err) {
  wm_status_t status = WM_OK;
  void *memory;
  assert(tiles == WM_TILES_FIXED || l->scratch != NULL);
  if (tiles == WM_TILES_FITTED && l->fitted == NULL) {
    WM_TRY(wm_alloc(&memory, heights_of(l), sizeof(wm_gemm_plan_t *), "matrix products", err));
    l->fitted = memory;
  }
  if (tiles == WM_TILES_FITTED) { /* the highest one: its scratch is as large as any's */
    wm_gemm_plan_t **whole = &l->fitted[heights_of(l) - 1];
    if (*whole == NULL)
      WM_TRY(create_plan(l, l->tile, WM_TILES_FITTED, whole, err));
    memory = l->scratch->panel;
    status = reserve(&memory, &l->scratch->panel_elements, wm_gemm_plan_panel(*whole),
                     "a panel of a layer's weights", err);
    l->scratch->panel = memory;
  }
  if (status == WM_OK)
    l->tiles = tiles;
cleanup:
  return status;
}

/* The product of that height. */
static wm_status_t plan_for(wm_linear_t *l, int64_t height, wm_gemm_plan_t **out, wm_error_t *err) {
  if (l->tiles == WM_TILES_FIXED) {
    *out = l->plan;
    return WM_OK;
  }
  wm_gemm_plan_t **plan = &l->fitted[height / wm_gemm_fitted_block() - 1];
  wm_status_t status = *plan == NULL ? create_plan(l, height, WM_TILES_FITTED, plan, err) : WM_OK;
  *out = *plan;
  return status;
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

/* Most rows that a product may take, of `rows`. */
static int64_t most_of(const wm_linear_t *l, int64_t rows) {
  bool joins = l->compute == WM_COMPUTE_F32 && wm_gemm_plan_joins(l->plan);
  return joins ? wm_gemm_most_rows(l->tiles, l->tile, rows) : l->tile;
}

/* Y of `height` rows; `weight` as the product reads it. */
static wm_status_t run_tile(wm_linear_t *l, const float *x, const void *weight, int64_t height,
                            float *y, wm_error_t *err) {
  const void *operand = x;
  wm_gemm_plan_t *plan;
  wm_status_t status = plan_for(l, height, &plan, err);
  if (status != WM_OK)
    return status;
  if (l->compute == WM_COMPUTE_BF16)
    wm_to_bf16(WM_DTYPE_F32, x, height * l->in, l->scratch->rows);
  else if (l->compute == WM_COMPUTE_BF16_EMULATED)
    wm_round_to_bf16(x, height * l->in, l->scratch->rows);
  if (l->compute != WM_COMPUTE_F32)
    operand = l->scratch->rows;
  return wm_gemm_plan_run(plan, operand, height, weight,
                          l->scratch != NULL ? l->scratch->panel : NULL, y, err);
}

/* The last `rows` < height rows, padded with zeros. */
static wm_status_t run_tail(wm_linear_t *l, const float *x, const void *weight, int64_t rows,
                            int64_t height, float *y, wm_error_t *err) {
  wm_status_t status = reserve_tail(l, err);
  if (status != WM_OK)
    return status;
  memcpy(l->x_tail, x, (size_t)(rows * l->in) * sizeof *x);
  memset(l->x_tail + rows * l->in, 0, (size_t)((height - rows) * l->in) * sizeof *x);
  status = run_tile(l, l->x_tail, weight, height, l->y_tail, err);
  if (status == WM_OK)
    memcpy(y, l->y_tail, (size_t)(rows * l->out) * sizeof *y);
  return status;
}

/* All of `rows` rows; x and y have room for wm_gemm_padded. */
static wm_status_t run_shares(wm_linear_t *l, const float *x, const void *weight, int64_t rows,
                              float *y, wm_error_t *err) {
  const int64_t share = wm_gemm_share(l->tiles, l->tile, most_of(l, rows), rows);
  for (int64_t first = 0; first < rows; first += share) {
    int64_t count = rows - first < share ? rows - first : share;
    int64_t height =
        count > l->tile ? wm_gemm_tile_rows(count) : wm_gemm_padded(l->tiles, l->tile, count);
    float *part = y + first * l->out;
    wm_pulse();
    wm_status_t status = run_tile(l, x + first * l->in, weight, height, part, err);
    if (status != WM_OK)
      return status;
    wm_bias_activation(l->bias, l->act, count, l->out, part);
  }
  return WM_OK;
}

static const void *operand_of(const wm_linear_t *l, int64_t rows) {
  return rows > 0 && converts_weight(l) ? convert_weight(l) : l->weight.data;
}

wm_status_t wm_linear_apply_padded(wm_linear_t *linear, const float *x, int64_t rows, float *y,
                                   wm_error_t *err) {
  assert(rows >= 0);
  return run_shares(linear, x, operand_of(linear, rows), rows, y, err);
}

wm_status_t wm_linear_apply(wm_linear_t *linear, const float *x, int64_t rows, float *y,
                            wm_error_t *err) {
  assert(rows >= 0);
  const void *weight = operand_of(linear, rows);
  const int64_t whole = wm_gemm_whole(linear->tiles, linear->tile, rows), rest = rows - whole;
  wm_status_t status = run_shares(linear, x, weight, whole, y, err);
  if (status != WM_OK || rest == 0)
    return status;
  float *tail = y + whole * linear->out;
  wm_pulse();
  status = run_tail(linear, x + whole * linear->in, weight, rest,
                    wm_gemm_padded(linear->tiles, linear->tile, rest), tail, err);
  if (status == WM_OK)
    wm_bias_activation(linear->bias, linear->act, rest, linear->out, tail);
  return status;
}

wm_status_t wm_linear_weight_gradient(int64_t in, int64_t out, wm_weight_layout_t layout,
                                      const float *x, const float *dy, int64_t rows,
                                      float *gradient, wm_error_t *err) {
  assert(in > 0 && out > 0 && rows >= 0);
  if (rows == 0)
    return WM_OK;
  wm_pulse();
  return layout == WM_WEIGHT_IN_OUT ? wm_gemm_add_outer(in, out, rows, x, dy, gradient, err)
                                    : wm_gemm_add_outer(out, in, rows, dy, x, gradient, err);
}

/* --- gradients of weights, typed ----------------------------------------------------------------
 */

struct wm_weight_gradient {
  int64_t in, out;
  wm_weight_layout_t layout;
  wm_compute_t compute;
  wm_gemm_scratch_t *scratch; /* borrowed */
  wm_gemm_outer_t *outer;     /* for `rows` rows; NULL: none yet */
  int64_t rows;
};

wm_status_t wm_weight_gradient_create(wm_weight_gradient_t **out, int64_t in, int64_t out_width,
                                      wm_weight_layout_t layout, int64_t max_rows,
                                      wm_compute_t compute, wm_gemm_scratch_t *scratch,
                                      wm_error_t *err) {
  assert(in > 0 && out_width > 0 && max_rows > 0);
  assert(scratch != NULL || compute == WM_COMPUTE_F32);
  *out = NULL;
  void *memory;
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_weight_gradient_t), "a gradient", err);
  if (status == WM_OK && compute != WM_COMPUTE_F32)
    status = reserve(&scratch->rows, &scratch->row_elements, max_rows * (in + out_width),
                     "rounded rows", err);
  if (status != WM_OK) {
    free(memory);
    return status;
  }
  *out = memory;
  **out = (wm_weight_gradient_t){
      .in = in, .out = out_width, .layout = layout, .compute = compute, .scratch = scratch};
  return WM_OK;
}

void wm_weight_gradient_free(wm_weight_gradient_t *gradient) {
  if (gradient == NULL)
    return;
  wm_gemm_outer_free(gradient->outer);
  free(gradient);
}

/* The first `m` columns are X's with weights [in, out], else dY's. */
static wm_status_t run_outer(wm_weight_gradient_t *g, int64_t m, int64_t n, const void *a,
                             const void *b, int64_t rows, float *out, wm_error_t *err) {
  if (g->outer == NULL || g->rows != rows) {
    wm_gemm_outer_free(g->outer);
    wm_status_t status = wm_gemm_outer_create(&g->outer, m, n, rows, WM_DTYPE_BF16, err);
    if (status != WM_OK)
      return status;
    g->rows = rows;
  }
  return wm_gemm_outer_run(g->outer, a, b, out, err);
}

wm_status_t wm_weight_gradient_add(wm_weight_gradient_t *g, const float *x, const float *dy,
                                   int64_t rows, float *out, wm_error_t *err) {
  if (g->compute == WM_COMPUTE_F32 || rows == 0)
    return wm_linear_weight_gradient(g->in, g->out, g->layout, x, dy, rows, out, err);
  assert(rows * (g->in + g->out) <= g->scratch->row_elements);
  if (g->compute == WM_COMPUTE_BF16_EMULATED) {
    float *a = g->scratch->rows, *b = a + rows * g->in;
    wm_round_to_bf16(x, rows * g->in, a);
    wm_round_to_bf16(dy, rows * g->out, b);
    return wm_linear_weight_gradient(g->in, g->out, g->layout, a, b, rows, out, err);
  }
  uint16_t *a = g->scratch->rows, *b = a + rows * g->in;
  wm_to_bf16(WM_DTYPE_F32, x, rows * g->in, a);
  wm_to_bf16(WM_DTYPE_F32, dy, rows * g->out, b);
  wm_pulse();
  return g->layout == WM_WEIGHT_IN_OUT ? run_outer(g, g->in, g->out, a, b, rows, out, err)
                                       : run_outer(g, g->out, g->in, b, a, rows, out, err);
}
