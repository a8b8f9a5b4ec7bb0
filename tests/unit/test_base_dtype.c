/* Rounding to bfloat16 against its definition. */
#include "wanamaker/base/dtype.h"
#include "wanamaker/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static float value_of(uint16_t b) {
  uint32_t bits = (uint32_t)b << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Of the two bfloat16 numbers around x the nearer one, of two equally near ones the even one; what
 * lies half a step or more beyond the largest is infinite. In float64, where all of them and their
 * differences are exact; the number after the largest stands for infinity. */
static uint16_t nearest(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  uint16_t below = (uint16_t)(bits >> 16), above = (uint16_t)(below + 1);
  double low = fabs((double)value_of(below)), at = fabs((double)x);
  double high = (above & 0x7fff) == 0x7f80 ? 0x1p128 : fabs((double)value_of(above));
  if (at - low != high - at)
    return at - low < high - at ? below : above;
  return below % 2 == 0 ? below : above;
}

static void test_every_bf16_stays(void **state) {
  (void)state;
  for (uint32_t b = 0; b < 0x10000; b++) {
    float x = value_of((uint16_t)b);
    if (isnan(x))
      assert_true(isnan(value_of(wm_bf16_of(x))));
    else
      assert_int_equal(wm_bf16_of(x), b);
  }
}

static void test_nearest_even(void **state) {
  (void)state;
  const uint32_t rests[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  for (uint32_t b = 0; b < 0x10000; b++)
    for (int r = 0; r < 6; r++) {
      float x = float_of(b << 16 | rests[r]);
      if (isfinite(x))
        assert_int_equal(wm_bf16_of(x), nearest(x));
    }
  assert_int_equal(wm_bf16_of(INFINITY), 0x7f80);
  assert_int_equal(wm_bf16_of(-INFINITY), 0xff80);
  assert_true(isnan(value_of(wm_bf16_of(float_of(0x7f800001))))); /* not rounded to infinity */
}

/* Arrays longer than a thread's piece, at any address, from every type. */
static void test_arrays(void **state) {
  (void)state;
  enum { N = 70001 };
  const wm_rng_t rng = {3, 1};
  float *x = malloc(N * sizeof *x), *rounded = malloc(N * sizeof *rounded);
  double *wide = malloc(N * sizeof *wide);
  char *bytes = malloc(N * sizeof(float) + 1);
  uint16_t *out = malloc(N * sizeof *out), *expected = malloc(N * sizeof *out);
  assert_true(x && rounded && wide && bytes && out && expected);
  for (int i = 0; i < N; i++) {
    wide[i] = wm_rng_normal(rng, (uint64_t)i);
    x[i] = (float)wide[i];
    expected[i] = nearest(x[i]);
  }
  memcpy(bytes + 1, x, N * sizeof *x);
  wm_to_bf16(WM_DTYPE_F32, bytes + 1, N, out);
  assert_memory_equal(out, expected, N * sizeof *out);
  wm_to_bf16(WM_DTYPE_F64, wide, N, out);
  assert_memory_equal(out, expected, N * sizeof *out);
  wm_to_bf16(WM_DTYPE_BF16, expected, N, out);
  assert_memory_equal(out, expected, N * sizeof *out);
  wm_round_to_bf16(x, N, rounded);
  for (int i = 0; i < N; i++)
    assert_true(rounded[i] == value_of(expected[i]));
  wm_round_to_bf16(x, N, x);
  assert_memory_equal(x, rounded, N * sizeof *x);
  const uint16_t halves[] = {0x3c00, 0x3c03, 0x3c04, 0x3c0c, 0x0001, 0xfbff}; /* ties and ends */
  const float values[] = {1,     1 + 3 * 0x1p-10f, 1 + 4 * 0x1p-10f, 1 + 12 * 0x1p-10f, 0x1p-24f,
                          -65504};
  wm_to_bf16(WM_DTYPE_F16, halves, 6, out);
  for (int i = 0; i < 6; i++)
    assert_int_equal(out[i], nearest(values[i]));
  free(x), free(rounded), free(wide), free(bytes), free(out), free(expected);
}

/* Halves stay what they are, and between two neighbours the nearer one is taken, or the even one.
 */
static void test_to_f16(void **state) {
  (void)state;
  for (uint32_t h = 0; h < 0x7c00; h++) {
    uint16_t pair[2] = {(uint16_t)h, (uint16_t)(h + 1)}, out[4];
    float value[2];
    wm_to_f32(WM_DTYPE_F16, pair, 2, value);
    double high = h + 1 == 0x7c00 ? 65536 : (double)value[1];
    float middle = (float)(((double)value[0] + high) / 2);
    const float x[4] = {value[0], nextafterf(middle, 0), middle, nextafterf(middle, INFINITY)};
    wm_from_f32(WM_DTYPE_F16, x, 4, out);
    assert_int_equal(out[0], h);
    assert_int_equal(out[1], h);
    assert_int_equal(out[2], h % 2 == 0 ? h : h + 1);
    assert_int_equal(out[3], h + 1);
    const float negative[1] = {-x[3]};
    wm_from_f32(WM_DTYPE_F16, negative, 1, out);
    assert_int_equal(out[0], 0x8000u | (h + 1));
  }
  const float ends[3] = {INFINITY, 1e30f, float_of(0x7f800001)};
  uint16_t out[3];
  float nan;
  wm_from_f32(WM_DTYPE_F16, ends, 3, out);
  assert_int_equal(out[0], 0x7c00);
  assert_int_equal(out[1], 0x7c00);
  wm_to_f32(WM_DTYPE_F16, &out[2], 1, &nan);
  assert_true(isnan(nan));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_bf16_stays),
      cmocka_unit_test(test_nearest_even),
      cmocka_unit_test(test_arrays),
      cmocka_unit_test(test_to_f16),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
