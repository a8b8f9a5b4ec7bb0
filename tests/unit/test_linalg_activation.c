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

/* The float64 derivatives against differences of the float64 activations, away from corners. */
static void test_derivative_is_a_derivative(void **state) {
  (void)state;
  const double h = 1e-3;
  for (int act = 0; act < WM_ACT_COUNT; act++)
    for (double x = -8.0043; x < 12; x += 0.01) {
      if (fabs(x) < 3 * h || fabs(x - 6) < 3 * h || fabs(x - 10) < 3 * h)
        continue;
      double sum = 0;
      const double weights[] = {1, -8, 8, -1}, places[] = {-2, -1, 1, 2};
      for (int i = 0; i < 4; i++)
        sum += weights[i] * wm_activation_reference((wm_activation_t)act, x + places[i] * h);
      double slope = wm_activation_derivative_reference((wm_activation_t)act, x);
      if (!(fabs(sum / (12 * h) - slope) < 1e-8))
        fail_msg("activation %d at %g: %.12g, %.12g", act, x, slope, sum / (12 * h));
    }
}

static float slope_of(wm_activation_t act, float x) {
  float dy = 1;
  wm_activation_backward(act, &x, 1, 1, &dy);
  return dy;
}

static void test_fast_derivative(void **state) {
  (void)state;
  enum { COUNT = 24001 };
  static float x[COUNT], dy[COUNT];
  const float far[] = {25, 50, 88, 100, 1e3f, 1e10f};
  for (int act = 0; act < WM_ACT_COUNT; act++) {
    double bound = act == WM_ACT_LAPLACE ? 1e-5 : 2e-6; /* activation.h */
    for (int i = 0; i < COUNT; i++) {
      x[i] = (float)(i - COUNT / 2) * 1e-3f;
      dy[i] = 1;
    }
    wm_activation_backward((wm_activation_t)act, x, 1, COUNT, dy);
    for (int i = 0; i < COUNT; i++) {
      double slope = wm_activation_derivative_reference((wm_activation_t)act, (double)x[i]);
      double error = fabs((double)dy[i] - slope);
      if (!(error <= bound * (1 + fabs(slope))))
        fail_msg("activation %d at %g: slope %g, error %.3g", act, (double)x[i], slope, error);
    }
    for (int i = 0; i < 12; i++) {
      float place = i < 6 ? far[i] : -far[i - 6];
      double slope = wm_activation_derivative_reference((wm_activation_t)act, (double)place);
      if (isfinite(slope)) /* sums of infinities are left out */
        assert_true(fabs((double)slope_of((wm_activation_t)act, place) - slope) <=
                    bound * (1 + fabs(slope)));
    }
  }
}

/* What torch 1.13 gives at corners. */
static void test_derivative_at_corners(void **state) {
  (void)state;
  const struct {
    wm_activation_t act;
    float x, slope;
  } known[] = {{WM_ACT_RELU, 0, 0},           {WM_ACT_RELU6, 0, 0}, {WM_ACT_RELU6, 6, 0},
               {WM_ACT_LEAKY_RELU, 0, 0.01f}, {WM_ACT_RELU2, 0, 0}, {WM_ACT_GELU_CLIP10, 11, 0}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    assert_true(slope_of(known[i].act, known[i].x) == known[i].slope);
    assert_true((float)wm_activation_derivative_reference(known[i].act, (double)known[i].x) ==
                known[i].slope);
  }
}

/* Rows of odd widths: y as the activation in place gives it, dy multiplied. */
static void test_rows(void **state) {
  (void)state;
  enum { ROWS = 3, COLS = 37 };
  float x[ROWS * COLS], y[ROWS * COLS], dy[ROWS * COLS];
  for (int i = 0; i < ROWS * COLS; i++) {
    x[i] = 4 * sinf((float)(i * i));
    dy[i] = (float)(i - 50);
  }
  wm_activation_forward(WM_ACT_GELU, x, ROWS, COLS, y);
  wm_activation_backward(WM_ACT_GELU, x, ROWS, COLS, dy);
  for (int i = 0; i < ROWS * COLS; i++) {
    assert_true(y[i] == apply(WM_ACT_GELU, x[i]));
    double expected = (i - 50) * wm_activation_derivative_reference(WM_ACT_GELU, (double)x[i]);
    assert_true(fabs((double)dy[i] - expected) <= 1e-6 * fabs((double)(i - 50)) * 2);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_range),
      cmocka_unit_test(test_accuracy_near_the_data),
      cmocka_unit_test(test_extremes),
      cmocka_unit_test(test_known_values),
      cmocka_unit_test(test_bits_do_not_depend_on_place),
      cmocka_unit_test(test_bias),
      cmocka_unit_test(test_derivative_is_a_derivative),
      cmocka_unit_test(test_fast_derivative),
      cmocka_unit_test(test_derivative_at_corners),
      cmocka_unit_test(test_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
