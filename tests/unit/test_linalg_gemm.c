/* Dense layers and small products against plain loops, and the promise that a row's bits depend on
 * that row alone. */
#include "wanamaker/base/control.h"
#include "wanamaker/base/dtype.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/linalg/cpu.h"
#include "wanamaker/linalg/gemm.h"
#include "wanamaker/linalg/gemm_backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "row_order.h"

static float *random_array(int64_t n, uint64_t stream) {
  float *x = malloc((size_t)(n + 1) * sizeof *x);
  assert_non_null(x);
  const wm_rng_t rng = {20, stream};
  for (int64_t i = 0; i < n; i++)
    x[i] = (float)wm_rng_normal(rng, (uint64_t)i);
  return x;
}

static wm_linear_t *make_layer(int64_t in, int64_t out, const float *w, wm_weight_layout_t layout,
                               const float *bias, wm_activation_t act, int64_t tile,
                               wm_gemm_scratch_t *scratch) {
  const wm_weight_t weight = {WM_DTYPE_F32, layout, w};
  wm_error_t err = {0};
  wm_linear_t *layer;
  if (wm_linear_create_typed(&layer, in, out, &weight, bias, act, tile, WM_COMPUTE_F32, scratch,
                             &err) != WM_OK)
    fail_msg("%s", err.message);
  return layer;
}

static void set_tiles(wm_linear_t *layer, wm_tiles_t tiles) {
  wm_error_t err = {0};
  if (tiles != WM_TILES_FIXED && wm_linear_set_tiles(layer, tiles, &err) != WM_OK)
    fail_msg("%s", err.message);
}

static void apply(wm_linear_t *layer, const float *x, int64_t rows, float *y) {
  wm_error_t err = {0};
  if (wm_linear_apply(layer, x, rows, y, &err) != WM_OK)
    fail_msg("%s", err.message);
}

static void apply_padded(wm_linear_t *layer, const float *x, int64_t rows, float *y) {
  wm_error_t err = {0};
  if (wm_linear_apply_padded(layer, x, rows, y, &err) != WM_OK)
    fail_msg("%s", err.message);
}

/* |fl(x'w) - x'w| <= in eps |x|'|w| for any order of the sums (eps = 2^-24, so FLT_EPSILON leaves a
 * factor of two for the bias and the rounding of the result). Activations have slopes below 1.2. */
static double row_bound(const float *x, const float *w, int64_t in, int64_t stride, double bias) {
  double sum = fabs(bias);
  for (int64_t i = 0; i < in; i++)
    sum += fabs((double)x[i] * (double)w[i * stride]);
  return 1.2 * (double)(in + 8) * FLT_EPSILON * sum;
}

static void compare(int64_t rows, int64_t in, int64_t out, wm_weight_layout_t layout, bool biased,
                    wm_activation_t act, wm_tiles_t tiles) {
  float *x = random_array(rows * in, 1), *w = random_array(in * out, 2);
  float *bias = random_array(out, 3), *y = random_array(rows * out, 4);
  float *expected = random_array(rows * out, 5);
  wm_gemm_scratch_t scratch = {0};
  wm_linear_t *layer = make_layer(in, out, w, layout, biased ? bias : NULL, act, 64, &scratch);
  set_tiles(layer, tiles);
  y[rows * out] = 12345; /* nothing beyond the last row may be written */
  apply(layer, x, rows, y);
  assert_true(y[rows * out] == 12345);
  wm_linear_apply_reference(x, rows, in, out, w, layout, biased ? bias : NULL, act, expected);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t o = 0; o < out; o++) {
      bool plain = layout == WM_WEIGHT_IN_OUT;
      double bound = row_bound(x + r * in, w + (plain ? o : o * in), in, plain ? out : 1,
                               biased ? (double)bias[o] : 0);
      double difference = fabs((double)y[r * out + o] - (double)expected[r * out + o]);
      if (!(difference <= bound))
        fail_msg("rows %d in %d out %d layout %d act %d: [%d, %d] differs by %g, bound %g",
                 (int)rows, (int)in, (int)out, (int)layout, (int)act, (int)r, (int)o, difference,
                 bound);
    }
  wm_linear_free(layer);
  wm_gemm_scratch_destroy(&scratch);
  free(x);
  free(w);
  free(bias);
  free(y);
  free(expected);
}

static void test_linear_against_reference(void **state) {
  (void)state;
  const int64_t ins[] = {1, 3, 17, 48, 65}, outs[] = {1, 5, 33, 100};
  const int64_t rows[] = {0, 1, 2, 63, 64, 65, 200};
  for (int i = 0; i < 5; i++)
    for (int o = 0; o < 4; o++)
      for (int r = 0; r < 7; r++)
        for (int layout = 0; layout < 2; layout++)
          for (int biased = 0; biased < 2; biased++)
            for (int tiles = 0; tiles < 2; tiles++)
              compare(rows[r], ins[i], outs[o], (wm_weight_layout_t)layout, biased,
                      (r + o) % 2 ? WM_ACT_GELU : WM_ACT_NONE, (wm_tiles_t)tiles);
}

/* Long sums, which fitted tiles may take in several panels, on one thread and shared out. */
static void test_fitted_against_reference(void **state) {
  (void)state;
  for (int threads = 1; threads <= 3; threads++) {
    omp_set_num_threads(threads);
    for (int layout = 0; layout < 2; layout++)
      for (int64_t rows = 5; rows <= 155; rows += 50)
        compare(rows, 600, 133, (wm_weight_layout_t)layout, true, WM_ACT_NONE, WM_TILES_FITTED);
  }
  omp_set_num_threads(1);
}

static void test_every_activation(void **state) {
  (void)state;
  for (int act = 0; act < WM_ACT_COUNT; act++)
    if (act != WM_ACT_RELU2 && act != WM_ACT_LAPLACE) /* steeper than row_bound allows */
      compare(70, 48, 33, WM_WEIGHT_IN_OUT, true, (wm_activation_t)act, WM_TILES_FIXED);
}

/* --- products in bfloat16 and with converted weights --------------------------------------------
 */

/* A layer of any kind on weights that are exact in `dtype`, and what it owns. */
typedef struct {
  int64_t in, out;
  wm_weight_layout_t layout;
  float *weight; /* float32 values of the stored ones */
  void *stored;
  float *bias;
  wm_gemm_scratch_t scratch;
  wm_linear_t *layer;
} typed_t;

/* In place: the layer keeps the address of its scratch memory. */
static void typed_make(typed_t *t, int64_t in, int64_t out, wm_weight_layout_t layout,
                       wm_dtype_t dtype, wm_compute_t compute, int64_t tile) {
  *t = (typed_t){.in = in, .out = out, .layout = layout};
  t->weight = random_array(in * out, 2);
  t->bias = random_array(out, 3);
  t->stored = malloc((size_t)(in * out) * sizeof(float));
  assert_non_null(t->stored);
  if (dtype == WM_DTYPE_BF16)
    wm_to_bf16(WM_DTYPE_F32, t->weight, in * out, t->stored);
  else if (dtype == WM_DTYPE_F16)
    for (int64_t i = 0; i < in * out; i++) /* normal numbers of 1 to 2, either sign */
      ((uint16_t *)t->stored)[i] = (uint16_t)(0x3c00u | (i * 2654435761u >> 7 & 0x83ffu));
  else
    memcpy(t->stored, t->weight, (size_t)(in * out) * sizeof(float));
  wm_to_f32(dtype, t->stored, in * out, t->weight);
  const wm_weight_t w = {dtype, layout, t->stored};
  wm_error_t err = {0};
  if (wm_linear_create_typed(&t->layer, in, out, &w, t->bias, WM_ACT_GELU, tile, compute,
                             &t->scratch, &err) != WM_OK)
    fail_msg("%s", err.message);
}

static void typed_free(typed_t *t) {
  wm_linear_free(t->layer);
  wm_gemm_scratch_destroy(&t->scratch);
  free(t->weight);
  free(t->stored);
  free(t->bias);
}

/* Against float64 sums of the operands that the type of product says: for bfloat16 both are rounded
 * once, and the products of two are exact in float32, so that row_bound's derivation holds. */
static void compare_typed(int64_t rows, int64_t in, int64_t out, wm_weight_layout_t layout,
                          wm_dtype_t dtype, wm_compute_t compute) {
  typed_t t;
  typed_make(&t, in, out, layout, dtype, compute, 64);
  float *x = random_array(rows * in, 1), *y = random_array(rows * out, 4);
  float *expected = random_array(rows * out, 5);
  apply(t.layer, x, rows, y);
  if (compute != WM_COMPUTE_F32)
    wm_round_to_bf16(x, rows * in, x);
  if (compute != WM_COMPUTE_F32)
    wm_round_to_bf16(t.weight, in * out, t.weight);
  wm_linear_apply_reference(x, rows, in, out, t.weight, layout, t.bias, WM_ACT_GELU, expected);
  bool plain = layout == WM_WEIGHT_IN_OUT;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t o = 0; o < out; o++) {
      double bound = row_bound(x + r * in, t.weight + (plain ? o : o * in), in, plain ? out : 1,
                               (double)t.bias[o]);
      double difference = fabs((double)y[r * out + o] - (double)expected[r * out + o]);
      if (!(difference <= bound))
        fail_msg("%s, rows %d in %d out %d layout %d: [%d, %d] differs by %g, bound %g",
                 wm_compute_name(compute), (int)rows, (int)in, (int)out, (int)layout, (int)r,
                 (int)o, difference, bound);
    }
  free(x), free(y), free(expected);
  typed_free(&t);
}

static bool machine_has_bf16(void) {
  wm_error_t err = {0};
  return wm_compute_check(WM_COMPUTE_BF16, &err) == WM_OK;
}

static void test_typed_products(void **state) {
  (void)state;
  const int64_t shapes[][3] = {{1, 1, 1}, {5, 3, 7}, {64, 17, 33}, {65, 48, 5}, {200, 65, 100}};
  for (int s = 0; s < 5; s++)
    for (int layout = 0; layout < 2; layout++) {
      const int64_t *n = shapes[s];
      wm_weight_layout_t l = (wm_weight_layout_t)layout;
      compare_typed(n[0], n[1], n[2], l, WM_DTYPE_BF16, WM_COMPUTE_BF16_EMULATED);
      compare_typed(n[0], n[1], n[2], l, WM_DTYPE_F32, WM_COMPUTE_BF16_EMULATED);
      compare_typed(n[0], n[1], n[2], l, WM_DTYPE_BF16, WM_COMPUTE_F32);
      compare_typed(n[0], n[1], n[2], l, WM_DTYPE_F16, WM_COMPUTE_F32);
      compare_typed(n[0], n[1], n[2], l, WM_DTYPE_F32, WM_COMPUTE_F32);
      if (machine_has_bf16())
        for (int stored = 0; stored < 2; stored++)
          compare_typed(n[0], n[1], n[2], l, stored ? WM_DTYPE_BF16 : WM_DTYPE_F32,
                        WM_COMPUTE_BF16);
    }
  if (!machine_has_bf16())
    print_message("not tested on this machine: products by bf16 instructions\n");
}

/* Rounding must matter beyond the bound of the test above, or that could not tell the types apart.
 * 1 + 2^-8 lies half-way between two bfloat16 numbers and goes to the even one, 1. */
static void test_operands_are_rounded(void **state) {
  (void)state;
  enum { IN = 32 };
  float x[IN], y[1];
  for (int i = 0; i < IN; i++)
    x[i] = i % 2 ? 1 + 0x1p-8f : 1 + 0x1.8p-7f; /* to 1 and to 1 + 2^-6 */
  for (int emulated = 0; emulated < 2; emulated++) {
    if (!emulated && !machine_has_bf16())
      continue;
    uint16_t w[IN];
    for (int i = 0; i < IN; i++)
      w[i] = 0x3f80; /* 1 */
    const wm_weight_t weight = {WM_DTYPE_BF16, WM_WEIGHT_OUT_IN, w};
    wm_gemm_scratch_t scratch = {0};
    wm_error_t err = {0};
    wm_linear_t *layer;
    assert_int_equal(wm_linear_create_typed(&layer, IN, 1, &weight, NULL, WM_ACT_NONE, 16,
                                            emulated ? WM_COMPUTE_BF16_EMULATED : WM_COMPUTE_BF16,
                                            &scratch, &err),
                     WM_OK);
    apply(layer, x, 1, y);
    assert_true(y[0] == IN + IN / 2 * 0x1p-6f);
    wm_linear_free(layer);
    wm_gemm_scratch_destroy(&scratch);
  }
}

/* Layers that share scratch memory leave each other's results alone, whatever their sizes. */
static void test_scratch_is_shared(void **state) {
  (void)state;
  enum { ROWS = 50 };
  typed_t small, large;
  typed_make(&small, 17, 9, WM_WEIGHT_OUT_IN, WM_DTYPE_BF16, WM_COMPUTE_BF16_EMULATED, 64);
  typed_make(&large, 80, 70, WM_WEIGHT_IN_OUT, WM_DTYPE_BF16, WM_COMPUTE_BF16_EMULATED, 64);
  float *x = random_array(ROWS * 80, 1), *y = random_array(ROWS * 70, 4);
  float *alone = random_array(ROWS * 70, 5);
  apply(large.layer, x, ROWS, alone);
  const wm_weight_t w = {WM_DTYPE_BF16, WM_WEIGHT_OUT_IN, small.stored};
  wm_error_t err = {0};
  wm_linear_t *first, *second;
  wm_gemm_scratch_t scratch = {0};
  assert_int_equal(WM_OK, wm_linear_create_typed(&first, 17, 9, &w, NULL, WM_ACT_NONE, 64,
                                                 WM_COMPUTE_BF16_EMULATED, &scratch, &err));
  const wm_weight_t v = {WM_DTYPE_BF16, WM_WEIGHT_IN_OUT, large.stored};
  assert_int_equal(WM_OK, wm_linear_create_typed(&second, 80, 70, &v, large.bias, WM_ACT_GELU, 64,
                                                 WM_COMPUTE_BF16_EMULATED, &scratch, &err));
  assert_int_equal(wm_gemm_scratch_bytes(&scratch),
                   (80 * 70 + wm_linear_tile_rows(second) * 80) * (int64_t)sizeof(float));
  apply(first, x, ROWS, y);
  apply(second, x, ROWS, y);
  assert_memory_equal(y, alone, ROWS * 70 * sizeof *y);
  wm_linear_free(first);
  wm_linear_free(second);
  wm_gemm_scratch_destroy(&scratch);
  typed_free(&small);
  typed_free(&large);
  free(x), free(y), free(alone);
}

/* A tall product of a large layer may take minutes: it pulses at every tile. */
static void test_tiles_pulse(void **state) {
  (void)state;
  float *x = random_array(200 * 5, 1), *w = random_array(5 * 6, 2), *y = random_array(200 * 6, 3);
  wm_linear_t *layer = make_layer(5, 6, w, WM_WEIGHT_IN_OUT, NULL, WM_ACT_NONE, 48, NULL);
  const int64_t tile = wm_linear_tile_rows(layer);
  uint64_t before = wm_pulse_count();
  apply(layer, x, 200, y);
  assert_int_equal(wm_pulse_count() - before, (200 + tile - 1) / tile);
  wm_linear_free(layer);
  free(x), free(w), free(y);
}

static void test_refusal_names_what_is_missing(void **state) {
  (void)state;
  wm_error_t err = {0};
  assert_int_equal(wm_compute_check(WM_COMPUTE_F32, &err), WM_OK);
  assert_int_equal(wm_compute_check(WM_COMPUTE_BF16_EMULATED, &err), WM_OK);
  if (machine_has_bf16())
    return;
  assert_int_equal(wm_compute_check(WM_COMPUTE_BF16, &err), WM_ENVIRONMENT);
  assert_non_null(strstr(err.message, "bf16"));
  assert_non_null(strstr(err.message, wm_cpu_features()));
  assert_non_null(strstr(err.message, wm_gemm_backend()));
  assert_non_null(strstr(err.message, "bf16_emulated"));
}

static void test_compute_names(void **state) {
  (void)state;
  wm_compute_t c = WM_COMPUTE_F32;
  for (int i = 0; i < 3; i++) {
    assert_true(wm_compute_parse(wm_compute_name((wm_compute_t)i), &c));
    assert_int_equal((int)c, i);
  }
  assert_false(wm_compute_parse("float32", &c));
}

/* One row at each place of a tile, among equal and among other rows, gives the same bits. */
static void check_places(int64_t in, int64_t out, wm_weight_layout_t layout, int64_t tile,
                         wm_compute_t compute) {
  int64_t rows = 2 * tile + 3;
  float *row = random_array(in, 6), *first = random_array(out, 5);
  float *x = random_array(rows * in, 1), *y = random_array(rows * out, 4);
  typed_t t;
  typed_make(&t, in, out, layout, compute == WM_COMPUTE_F32 ? WM_DTYPE_F32 : WM_DTYPE_BF16, compute,
             tile);
  wm_linear_t *layer = t.layer;
  apply(layer, row, 1, first);
  for (int64_t r = 0; r < rows; r++)
    memcpy(x + r * in, row, (size_t)in * sizeof *x);
  apply(layer, x, rows, y);
  for (int64_t r = 0; r < rows; r++)
    assert_memory_equal(first, y + r * out, (size_t)out * sizeof *y);
  const int64_t step = tile > 64 ? 37 : 5;
  for (int64_t r = 0; r < rows; r += step) {
    for (int64_t i = 0; i < rows * in; i++)
      x[i] = i / in == r ? row[i % in] : (float)((i + r) % 13) * 1e3f - 5e3f;
    apply(layer, x, rows, y);
    assert_memory_equal(first, y + r * out, (size_t)out * sizeof *y);
  }
  typed_free(&t);
  free(row), free(x), free(y), free(first);
}

static void test_rows_are_independent(void **state) {
  (void)state;
  skip_if_blas_tells_rows_apart();
  const int64_t shapes[][2] = {{1, 1}, {3, 5}, {17, 33}, {48, 5}, {65, 100}, {256, 96}, {768, 384}};
  const int64_t tiles[] = {1, 13, 64, 100};
  for (int threads = 1; threads <= 3; threads++) {
    omp_set_num_threads(threads);
    for (int s = 0; s < 7; s++)
      for (int t = 0; t < 4; t++)
        for (int layout = 0; layout < 2; layout++)
          check_places(shapes[s][0], shapes[s][1], (wm_weight_layout_t)layout, tiles[t],
                       WM_COMPUTE_F32);
    for (int layout = 0; layout < 2; layout++) {
      wm_weight_layout_t l = (wm_weight_layout_t)layout;
      check_places(384, 1536, l, 512, WM_COMPUTE_F32);
      check_places(256, 96, l, 100, WM_COMPUTE_BF16_EMULATED);
      if (machine_has_bf16()) {
        check_places(65, 100, l, 100, WM_COMPUTE_BF16);
        check_places(384, 1536, l, 512, WM_COMPUTE_BF16);
      }
    }
  }
  omp_set_num_threads(1);
}

/* Rows done together have the bits of tile after tile, whatever their number. */
static void check_joined(int64_t in, int64_t out, wm_weight_layout_t layout, int64_t wanted) {
  const int64_t tile = wm_gemm_tile_rows(wanted), block = wm_gemm_row_block(), most = 5 * tile;
  const int64_t numbers[] = {tile + block, 2 * tile, 4 * tile + block, 5 * tile - 7, most};
  float *w = random_array(in * out, 2), *x = random_array(most * in, 1);
  float *alone = calloc((size_t)(2 * most * out), sizeof *alone), *together = alone + most * out;
  assert_non_null(alone);
  wm_linear_t *layer = make_layer(in, out, w, layout, NULL, WM_ACT_NONE, wanted, NULL);
  for (int64_t first = 0; first < most; first += tile)
    apply(layer, x + first * in, tile, alone + first * out);
  for (int i = 0; i < 5; i++) {
    memset(together, 0, (size_t)(most * out) * sizeof *together);
    apply(layer, x, numbers[i], together);
    assert_memory_equal(alone, together, (size_t)(numbers[i] * out) * sizeof *alone);
    memset(together, 0, (size_t)(most * out) * sizeof *together);
    apply_padded(layer, x, numbers[i], together);
    assert_memory_equal(alone, together, (size_t)(numbers[i] * out) * sizeof *alone);
  }
  wm_linear_free(layer);
  free(w), free(x), free(alone);
}

static void test_joined_tiles(void **state) {
  (void)state;
  skip_if_blas_tells_rows_apart();
  const int64_t shapes[][2] = {{100, 1100}, {500, 640}, {192, 768},
                               {300, 300},  {48, 560},  {70, 1105}};
  for (int threads = 1; threads <= 3; threads++) {
    omp_set_num_threads(threads);
    for (int s = 0; s < 6; s++)
      for (int layout = 0; layout < 2; layout++) {
        check_joined(shapes[s][0], shapes[s][1], (wm_weight_layout_t)layout, 100);
        if (threads == 1 || s < 2)
          check_joined(shapes[s][0], shapes[s][1], (wm_weight_layout_t)layout, 512);
      }
  }
  omp_set_num_threads(1);
}

/* --- tiles that fit the rows --------------------------------------------------------------------
 */

/* Tiles cover the rows, are no higher than the fixed ones, and waste less than a block each. */
static void test_cut_into_tiles(void **state) {
  (void)state;
  const int64_t block = wm_gemm_fitted_block();
  assert_int_equal(wm_gemm_row_block() % block, 0);
  for (int64_t wanted = 1; wanted <= 600; wanted += 97) {
    const int64_t tile = wm_gemm_tile_rows(wanted);
    const int64_t most = wm_gemm_most_rows(WM_TILES_FIXED, tile, 9 * tile);
    assert_int_equal(most, wm_gemm_joins() ? 4 * tile : tile);
    assert_int_equal(wm_gemm_most_rows(WM_TILES_FITTED, tile, 9 * tile), tile);
    assert_int_equal(wm_gemm_most_rows(WM_TILES_FIXED, tile, 1), tile);
    assert_int_equal(wm_gemm_most_rows(WM_TILES_FIXED, tile, tile + 1),
                     wm_gemm_joins() ? 2 * tile : tile);
    assert_int_equal(wm_gemm_share(WM_TILES_FIXED, tile, most, 3 * tile + 1), most);
    assert_int_equal(wm_gemm_padded(WM_TILES_FIXED, tile, 3 * tile + 1), 4 * tile);
    for (int64_t rows = 1; rows < 4 * tile; rows++) {
      const int64_t share = wm_gemm_share(WM_TILES_FITTED, tile, tile, rows);
      const int64_t tiles = (rows + share - 1) / share;
      assert_true(share > 0 && share <= tile && share % block == 0);
      assert_true(tiles <= (rows + tile - 1) / tile);
      assert_true(tiles == 1 || share < rows / tiles + 2 * block);
      const int64_t padded = wm_gemm_padded(WM_TILES_FITTED, tile, rows);
      assert_true(padded >= rows && padded < rows + block && padded % block == 0);
      /* what is padded so is cut without a remainder that would have to be copied */
      assert_int_equal(padded % wm_gemm_share(WM_TILES_FITTED, tile, tile, padded) % block, 0);
    }
  }
}

/* Among the same number of rows a row's bits don't depend on its place. */
static void check_fitted_places(int64_t in, int64_t out, wm_weight_layout_t layout, int64_t rows,
                                wm_compute_t compute) {
  float *row = random_array(in, 6), *x = random_array(rows * in, 1);
  float *y = random_array(rows * out, 4), *first = random_array(out, 5);
  typed_t t;
  typed_make(&t, in, out, layout, compute == WM_COMPUTE_F32 ? WM_DTYPE_F32 : WM_DTYPE_BF16, compute,
             96);
  set_tiles(t.layer, WM_TILES_FITTED);
  for (int64_t r = 0; r < rows; r += 11) {
    for (int64_t i = 0; i < rows * in; i++)
      x[i] = i / in == r ? row[i % in] : (float)((i + r) % 13) * 1e3f - 5e3f;
    apply(t.layer, x, rows, y);
    if (r == 0)
      memcpy(first, y, (size_t)out * sizeof *y);
    assert_memory_equal(first, y + r * out, (size_t)out * sizeof *y);
  }
  typed_free(&t);
  free(row), free(x), free(y), free(first);
}

static void test_fitted_rows_are_independent(void **state) {
  (void)state;
  skip_if_blas_tells_rows_apart();
  const int64_t shapes[][2] = {{3, 5}, {300, 96}, {520, 368}};
  for (int threads = 1; threads <= 3; threads++) {
    omp_set_num_threads(threads);
    for (int s = 0; s < 3; s++)
      for (int layout = 0; layout < 2; layout++)
        for (int64_t rows = 1; rows <= 133; rows += 66)
          check_fitted_places(shapes[s][0], shapes[s][1], (wm_weight_layout_t)layout, rows,
                              WM_COMPUTE_F32);
    check_fitted_places(300, 96, WM_WEIGHT_IN_OUT, 50, WM_COMPUTE_BF16_EMULATED);
    if (machine_has_bf16())
      check_fitted_places(300, 96, WM_WEIGHT_OUT_IN, 50, WM_COMPUTE_BF16);
  }
  omp_set_num_threads(1);
}

/* Back at fixed tiles a layer gives the bits that it gave before. */
static void test_tiles_can_be_changed(void **state) {
  (void)state;
  enum { ROWS = 100, IN = 300, OUT = 96 };
  float *x = random_array(ROWS * IN, 1), *before = random_array(ROWS * OUT, 4);
  float *y = random_array(ROWS * OUT, 5);
  wm_error_t err = {0};
  typed_t t;
  typed_make(&t, IN, OUT, WM_WEIGHT_IN_OUT, WM_DTYPE_F32, WM_COMPUTE_F32, 96);
  apply(t.layer, x, ROWS, before);
  const int64_t bytes = wm_gemm_scratch_bytes(&t.scratch);
  assert_int_equal(wm_linear_set_tiles(t.layer, WM_TILES_FITTED, &err), WM_OK);
  assert_true(wm_gemm_scratch_bytes(&t.scratch) >= bytes);
  apply(t.layer, x, ROWS, y);
  assert_int_equal(wm_linear_set_tiles(t.layer, WM_TILES_FIXED, &err), WM_OK);
  apply(t.layer, x, ROWS, y);
  assert_memory_equal(y, before, ROWS * OUT * sizeof *y);
  typed_free(&t);
  free(x), free(before), free(y);
}

static void test_nan_stays_in_its_row(void **state) {
  (void)state;
  enum { ROWS = 70, IN = 48, OUT = 33, BAD = 37 };
  float *x = random_array(ROWS * IN, 1), *w = random_array(IN * OUT, 2);
  float *y = random_array(ROWS * OUT, 4);
  x[BAD * IN + 5] = NAN;
  for (int layout = 0; layout < 2; layout++) {
    wm_linear_t *layer =
        make_layer(IN, OUT, w, (wm_weight_layout_t)layout, NULL, WM_ACT_RELU, 64, NULL);
    apply(layer, x, ROWS, y);
    for (int i = 0; i < ROWS * OUT; i++)
      assert_true(isnan(y[i]) == (i / OUT == BAD));
    wm_linear_free(layer);
  }
  free(x);
  free(w);
  free(y);
}

/* op(A) op(B) with leading dimensions beyond the widths; the padding stays untouched. */
static void check_sgemm(char ta, char tb, int m, int n, int k, float beta) {
  int lda = (ta == 'N' ? k : m) + 3, ldb = (tb == 'N' ? n : k) + 5, ldc = n + 2;
  int64_t a_size = (int64_t)lda * (ta == 'N' ? m : k), b_size = (int64_t)ldb * (tb == 'N' ? k : n);
  float *a = random_array(a_size, 7), *b = random_array(b_size, 8);
  float *c = random_array((int64_t)m * ldc, 9), *before = random_array((int64_t)m * ldc, 9);
  wm_error_t err = {0};
  assert_int_equal(WM_OK,
                   wm_sgemm_serial(ta, tb, m, n, k, 0.125f, a, lda, b, ldb, beta, c, ldc, &err));
  for (int i = 0; i < m; i++)
    for (int j = 0; j < ldc; j++) {
      double old = (double)before[i * ldc + j], sum = 0, size = 0;
      if (j >= n) {
        assert_true((double)c[i * ldc + j] == old);
        continue;
      }
      for (int l = 0; l < k; l++) {
        double term = (double)(ta == 'N' ? a[i * lda + l] : a[l * lda + i]) *
                      (double)(tb == 'N' ? b[l * ldb + j] : b[j * ldb + l]);
        sum += term;
        size += fabs(term);
      }
      double expected = 0.125 * sum + (double)beta * old;
      double bound = (k + 4) * FLT_EPSILON * (0.125 * size + fabs((double)beta * old));
      assert_true(fabs((double)c[i * ldc + j] - expected) <= bound);
    }
  free(a);
  free(b);
  free(c);
  free(before);
}

static void test_sgemm_serial(void **state) {
  (void)state;
  const int shapes[][3] = {{1, 1, 1}, {5, 7, 3}, {64, 64, 64}, {64, 200, 48}, {33, 65, 129}};
  for (int s = 0; s < 5; s++)
    for (int t = 0; t < 4; t++)
      for (int b = 0; b < 2; b++)
        check_sgemm(t & 1 ? 'T' : 'N', t & 2 ? 'T' : 'N', shapes[s][0], shapes[s][1], shapes[s][2],
                    b ? 0.5f : 0);
}

static int thread_count(void) {
  DIR *tasks = opendir("/proc/self/task");
  if (tasks == NULL)
    return -1;
  int count = 0;
  while (readdir(tasks) != NULL)
    count++;
  closedir(tasks);
  return count;
}

/* Must run before anything else has started a team of threads. */
static void test_sgemm_serial_starts_no_threads(void **state) {
  (void)state;
  int before = thread_count();
  omp_set_num_threads(4);
  check_sgemm('N', 'N', 512, 512, 256, 0);
  assert_int_equal(thread_count(), before);
  omp_set_num_threads(1);
}

/* The same bits outside and inside a parallel region, on each thread, at any number of threads. */
static void test_sgemm_serial_in_parallel(void **state) {
  (void)state;
  enum { M = 64, N = 512, K = 64, LD = 3 * 768, CALLS = 8 };
  float *a = random_array(M * LD, 7), *b = random_array(N * LD, 8);
  float *alone = random_array(M * N, 9), *c = random_array((int64_t)CALLS * M * N, 10);
  wm_error_t err = {0};
  assert_int_equal(WM_OK, wm_sgemm_serial('N', 'T', M, N, K, 1, a, LD, b, LD, 0, alone, N, &err));
  for (int threads = 1; threads <= 4; threads++) {
    omp_set_num_threads(threads);
    int failures = 0, limit = 0;
#pragma omp parallel for reduction(+ : failures) reduction(max : limit)
    for (int i = 0; i < CALLS; i++) {
      wm_error_t own = {0};
      failures +=
          wm_sgemm_serial('N', 'T', M, N, K, 1, a, LD, b, LD, 0, c + i * M * N, N, &own) != WM_OK;
      limit = omp_get_max_threads();
    }
    assert_int_equal(failures, 0);
    assert_int_equal(limit, threads); /* the thread's own limit is given back */
    for (int i = 0; i < CALLS; i++)
      assert_memory_equal(alone, c + i * M * N, M * N * sizeof *c);
    assert_int_equal(omp_get_max_threads(), threads);
    assert_int_equal(WM_OK, wm_sgemm_serial('N', 'T', M, N, K, 1, a, LD, b, LD, 0, c, N, &err));
    assert_memory_equal(alone, c, M * N * sizeof *c);
  }
  omp_set_num_threads(1);
  free(a);
  free(b);
  free(alone);
  free(c);
}

/* Bound as row_bound's, over rows. */
static void check_weight_gradient(int64_t in, int64_t out, wm_weight_layout_t layout,
                                  int64_t rows) {
  float *x = random_array(rows * in, 31), *dy = random_array(rows * out, 32);
  float *fast = random_array(in * out, 33), *again = random_array(in * out, 33);
  float *slow = random_array(in * out, 33);
  wm_error_t err = {0};
  assert_int_equal(wm_linear_weight_gradient(in, out, layout, x, dy, rows, fast, &err), WM_OK);
  assert_int_equal(wm_linear_weight_gradient(in, out, layout, x, dy, rows, again, &err), WM_OK);
  wm_linear_weight_gradient_reference(in, out, layout, x, dy, rows, slow);
  assert_memory_equal(fast, again, (size_t)(in * out) * sizeof *fast);
  for (int64_t i = 0; i < in * out; i++) /* |x| |dy| is below 20 here */
    assert_true(fabs((double)fast[i] - (double)slow[i]) <= 20 * (double)(rows + 8) * FLT_EPSILON);
  free(x), free(dy), free(fast), free(again), free(slow);
}

static void test_weight_gradient(void **state) {
  (void)state;
  const int64_t shapes[][3] = {{1, 1, 1}, {5, 3, 2}, {48, 64, 33}, {37, 300, 129}, {300, 37, 512}};
  for (int threads = 1; threads <= 3; threads++) {
    omp_set_num_threads(threads);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
      for (int layout = WM_WEIGHT_IN_OUT; layout <= WM_WEIGHT_OUT_IN; layout++)
        check_weight_gradient(shapes[i][0], shapes[i][1], (wm_weight_layout_t)layout, shapes[i][2]);
  }
  omp_set_num_threads(1);
}

/* The primitive that adds A' B, in float32 on any machine: in bfloat16 it is the same but for the
 * operands' type. */
static void test_outer_products(void **state) {
  (void)state;
  const int64_t shapes[][3] = {{1, 1, 1}, {5, 3, 2}, {48, 64, 33}, {37, 300, 129}};
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
    const int64_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
    float *a = random_array(k * m, 41), *b = random_array(k * n, 42), *c = random_array(m * n, 43);
    float *expected = random_array(m * n, 43);
    wm_error_t err = {0};
    wm_gemm_outer_t *outer;
    assert_int_equal(wm_gemm_outer_create(&outer, m, n, k, WM_DTYPE_F32, &err), WM_OK);
    assert_int_equal(wm_gemm_outer_run(outer, a, b, c, &err), WM_OK);
    assert_int_equal(wm_gemm_outer_run(outer, a, b, c, &err), WM_OK);
    for (int i = 0; i < 2; i++)
      wm_linear_weight_gradient_reference(m, n, WM_WEIGHT_IN_OUT, a, b, k, expected);
    for (int64_t i = 0; i < m * n; i++)
      assert_true(fabs((double)c[i] - (double)expected[i]) <=
                  20 * (double)(2 * k + 8) * FLT_EPSILON);
    wm_gemm_outer_free(outer);
    free(a), free(b), free(c), free(expected);
  }
}

/* Against float64 sums of rounded operands, for different numbers of rows of one object; and far
 * from what operands give that are not rounded. */
static void check_typed_gradient(int64_t in, int64_t out, wm_weight_layout_t layout, int64_t most,
                                 wm_compute_t compute) {
  wm_gemm_scratch_t scratch = {0};
  wm_weight_gradient_t *gradient;
  wm_error_t err = {0};
  double apart = 0;
  assert_int_equal(
      wm_weight_gradient_create(&gradient, in, out, layout, most, compute, &scratch, &err), WM_OK);
  for (int64_t rows = most; rows > 0; rows /= 3) {
    float *x = random_array(rows * in, 31), *dy = random_array(rows * out, 32);
    float *fast = random_array(in * out, 33), *again = random_array(in * out, 33);
    float *slow = random_array(in * out, 33), *plain = random_array(in * out, 33);
    assert_int_equal(wm_weight_gradient_add(gradient, x, dy, rows, fast, &err), WM_OK);
    assert_int_equal(wm_weight_gradient_add(gradient, x, dy, rows, again, &err), WM_OK);
    assert_memory_equal(fast, again, (size_t)(in * out) * sizeof *fast);
    wm_linear_weight_gradient_reference(in, out, layout, x, dy, rows, plain);
    wm_round_to_bf16(x, rows * in, x);
    wm_round_to_bf16(dy, rows * out, dy);
    wm_linear_weight_gradient_reference(in, out, layout, x, dy, rows, slow);
    const double bound = 20 * (double)(rows + 8) * FLT_EPSILON;
    for (int64_t i = 0; i < in * out; i++) {
      assert_true(fabs((double)fast[i] - (double)slow[i]) <= bound);
      apart = fmax(apart, fabs((double)plain[i] - (double)slow[i]) / bound);
    }
    free(x), free(dy), free(fast), free(again), free(slow), free(plain);
  }
  assert_true(apart > 10);
  wm_weight_gradient_free(gradient);
  wm_gemm_scratch_destroy(&scratch);
}

static void test_typed_gradients(void **state) {
  (void)state;
  const int64_t shapes[][3] = {{5, 3, 2}, {48, 64, 33}, {37, 300, 129}};
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
    for (int layout = 0; layout < 2; layout++) {
      const int64_t *n = shapes[s];
      check_typed_gradient(n[0], n[1], (wm_weight_layout_t)layout, n[2], WM_COMPUTE_BF16_EMULATED);
      if (machine_has_bf16())
        check_typed_gradient(n[0], n[1], (wm_weight_layout_t)layout, n[2], WM_COMPUTE_BF16);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_outer_products),
      cmocka_unit_test(test_typed_gradients),
      cmocka_unit_test(test_sgemm_serial_starts_no_threads),
      cmocka_unit_test(test_linear_against_reference),
      cmocka_unit_test(test_fitted_against_reference),
      cmocka_unit_test(test_every_activation),
      cmocka_unit_test(test_typed_products),
      cmocka_unit_test(test_operands_are_rounded),
      cmocka_unit_test(test_scratch_is_shared),
      cmocka_unit_test(test_tiles_pulse),
      cmocka_unit_test(test_refusal_names_what_is_missing),
      cmocka_unit_test(test_compute_names),
      cmocka_unit_test(test_rows_are_independent),
      cmocka_unit_test(test_joined_tiles),
      cmocka_unit_test(test_cut_into_tiles),
      cmocka_unit_test(test_fitted_rows_are_independent),
      cmocka_unit_test(test_tiles_can_be_changed),
      cmocka_unit_test(test_nan_stays_in_its_row),
      cmocka_unit_test(test_sgemm_serial),
      cmocka_unit_test(test_sgemm_serial_in_parallel),
      cmocka_unit_test(test_weight_gradient),
  };
  print_message("backend: %s\n", wm_gemm_backend());
  return cmocka_run_group_tests(tests, NULL, NULL);
}
