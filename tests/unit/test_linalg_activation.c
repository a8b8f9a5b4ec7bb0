/* Activations: vector loops against the float64 definitions. */
#include "wanamaker/linalg/activation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static float apply(wm_activation_t act, float x) {
  wm_activation_apply(act, &x, 1);
  return x;
}

/* Relative rounding of the fast version at x. exp(-x^2 / 2) and its like turn a relative error
 * eps / 2 of their argument into x^2 eps / 2; gelu_tanh's argument 1.6 (x + 0.045 x^3) grows
 * faster, mish's and the sigmoids' as |x|, laplace's is (x - 0.7) / 0.28 with x's own rounding. */
static double relative_bound(wm_activation_t act, double x) {
  double a = fabs(x), argument = a;
  switch (act) {
  case WM_ACT_GELU:
  case WM_ACT_GELU_CLIP10:
    argument = x < 0 ? x * x : 0;
    break;
  case WM_ACT_GELU_TANH:
    argument = x < 0 ? 2 * 1.6 * (a + 0.044715 * a * a * a) : 0;
    break;
  case WM_ACT_LAPLACE:
    argument = x < 1 ? 2 * pow((x - 0.707107) / 0.282095, 2) : 0;
    break;
  case WM_ACT_QUICK_GELU:
    argument = 2 * a;
    break;
  default:
    break;
  }
  return (6 + argument) * FLT_EPSILON;
}

static void check_close(wm_activation_t act, float x) {
  double expected = wm_activation_reference(act, (double)x), got = (double)apply(act, x);
  /* Results below FLT_MIN lose digits one by one; factors may underflow before the result. */
  double bound = relative_bound(act, (double)x) * fabs(expected) + (1 + fabs((double)x)) * FLT_MIN;
  if (!(fabs(got - expected) <= bound))
    fail_msg("activation %d at %.9g: %.9g, expected %.9g, bound %.3g", (int)act, (double)x, got,
             expected, bound);
}

static void test_range(void **state) {
  (void)state;
  for (int act = 0; act < WM_ACT_COUNT; act++) {
    for (int i = -200000; i <= 200000; i++)
      check_close((wm_activation_t)act, (float)i * 1e-4f);
    for (float x = 1e-44f; x < 1; x *= 1.7f) {
      check_close((wm_activation_t)act, x);
      check_close((wm_activation_t)act, -x);
    }
  }
}

static void test_accuracy_near_the_data(void **state) {
  (void)state;
  for (int act = 0; act < WM_ACT_COUNT; act++)
    for (int i = -3000; i <= 3000; i++) {
      float x = (float)i * 1e-3f;
      double expected = wm_activation_reference((wm_activation_t)act, (double)x);
      if (act == WM_ACT_LAPLACE && x < 0)
        continue; /* (x - 0.7) / 0.28 is far left of the centre there */
      double error = fabs((double)apply((wm_activation_t)act, x) - expected);
      assert_true(error <= 1e-6 * fabs(expected));
    }
}

static void test_extremes(void **state) {
  (void)state;
  const float far[] = {25, 50, 88, 89, 100, 1e3f, 1e10f, 1e18f, FLT_MAX};
  for (int act = 0; act < WM_ACT_COUNT; act++) {
    for (size_t i = 0; i < sizeof far / sizeof far[0]; i++) {
      check_close((wm_activation_t)act, -far[i]);
      if (act == WM_ACT_RELU2 && far[i] > 1e18f)
        assert_true(isinf(apply(WM_ACT_RELU2, far[i]))); /* the square is out of range */
      else
        check_close((wm_activation_t)act, far[i]);
    }
    assert_true(isnan(apply((wm_activation_t)act, NAN)));
    const float infinite[] = {INFINITY, -INFINITY};
    for (int i = 0; i < 2; i++) {
      double expected = wm_activation_reference((wm_activation_t)act, (double)infinite[i]);
      float got = apply((wm_activation_t)act, infinite[i]);
      assert_true(isnan(expected) ? isnan(got) : (double)got == expected);
    }
  }
}

/* Hand-computed values, so that a mistake shared by both versions shows. */
static void test_known_values(void **state) {
  (void)state;
  const struct {
    wm_activation_t act;
    double x, y;
  } known[] = {
      {WM_ACT_NONE, -3, -3},
      {WM_ACT_GELU, 1, 0.841344746068543},
      {WM_ACT_GELU, -2, -0.045500263896358},
      {WM_ACT_GELU_TANH, 1, 0.841191990607477},
      {WM_ACT_GELU_CLIP10, 11, 10},
      {WM_ACT_QUICK_GELU, 1, 0.845795765932826},
      {WM_ACT_RELU, -1, 0},
      {WM_ACT_RELU2, 3, 9},
      {WM_ACT_RELU6, 7, 6},
      {WM_ACT_LEAKY_RELU, -2, -0.02},
      {WM_ACT_SIGMOID, 1, 0.731058578630005},
      {WM_ACT_SILU, -1, -0.268941421369995},
      {WM_ACT_TANH, 0.5, 0.462117157260010},
      {WM_ACT_MISH, 1, 0.865098388267310},
      {WM_ACT_LAPLACE, 0.707107, 0.5},
  };
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    assert_true(fabs(wm_activation_reference(known[i].act, known[i].x) - known[i].y) < 1e-12);
    assert_true(fabs((double)apply(known[i].act, (float)known[i].x) - known[i].y) <
                1e-6 * (1 + fabs(known[i].y)));
  }
}

/* The vector body and the scalar remainder of a loop round alike. */
static void test_bits_do_not_depend_on_place(void **state) {
  (void)state;
  enum { LENGTH = 75 };
  float values[LENGTH], whole[LENGTH], part[LENGTH];
  for (int i = 0; i < LENGTH; i++)
    values[i] = 9 * sinf((float)(i * i));
  for (int act = 0; act < WM_ACT_COUNT; act++) {
    memcpy(whole, values, sizeof whole);
    wm_activation_apply((wm_activation_t)act, whole, LENGTH);
    for (int first = 0; first < 20; first++)
      for (int n = 1; first + n <= LENGTH; n++) {
        memcpy(part, values + first, (size_t)n * sizeof *part);
        wm_activation_apply((wm_activation_t)act, part, n);
        assert_memory_equal(part, whole + first, (size_t)n * sizeof *part);
      }
  }
}

static void test_bias(void **state) {
  (void)state;
  enum { ROWS = 5, COLS = 37 };
  float y[ROWS * COLS], bias[COLS], plain[ROWS * COLS];
  for (int i = 0; i < ROWS * COLS; i++)
    y[i] = plain[i] = (float)i * 0.02f - 1;
  for (int c = 0; c < COLS; c++)
    bias[c] = (float)c;
  wm_bias_activation(bias, WM_ACT_TANH, ROWS, COLS, y);
  for (int i = 0; i < ROWS * COLS; i++)
    assert_true(y[i] == apply(WM_ACT_TANH, plain[i] + bias[i % COLS]));
  memcpy(y, plain, sizeof y);
  wm_bias_activation(NULL, WM_ACT_NONE, ROWS, COLS, y);
  assert_memory_equal(y, plain, sizeof y);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_range),
      cmocka_unit_test(test_accuracy_near_the_data),
      cmocka_unit_test(test_extremes),
      cmocka_unit_test(test_known_values),
      cmocka_unit_test(test_bits_do_not_depend_on_place),
      cmocka_unit_test(test_bias),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
