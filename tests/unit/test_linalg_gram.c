/* Gram matrices by panels against three plain loops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/linalg/gram.h"

#include <float.h>
#include <math.h>

static double *matrix(int64_t n, uint64_t stream) {
  void *memory;
  wm_error_t err = {0};
  assert_int_equal(wm_alloc(&memory, n, sizeof(double), "test", &err), WM_OK);
  double *a = memory;
  for (int64_t i = 0; i < n; i++)
    a[i] = wm_rng_normal((wm_rng_t){1, stream}, (uint64_t)i);
  return a;
}

/* Shares of any number of parts add up to X'X and X'Y; sums of `rows` products err by at most
 * rows * eps * sum of the products' sizes. */
static void compare(int64_t rows, int64_t d, int parts) {
  double *x = matrix(rows * d, 1), *y = matrix(rows * d, 2);
  double *xx = matrix(d * d, 3), *xy = matrix(d * d, 4);
  double *old_xx = matrix(d * d, 3), *old_xy = matrix(d * d, 4);
  wm_error_t err = {0};
  for (int p = 0; p < parts; p++)
    assert_int_equal(wm_gram_update(x, y, rows, d, parts, p, xx, xy, &err), WM_OK);
  for (int p = 0; p < parts; p++)
    wm_gram_mirror(d, parts, p, xx);
  for (int64_t i = 0; i < d; i++)
    for (int64_t j = 0; j < d; j++) {
      double a = j <= i ? old_xx[i * d + j] : old_xx[j * d + i], b = old_xy[i * d + j];
      double size_a = fabs(a), size_b = fabs(b);
      for (int64_t r = 0; r < rows; r++) {
        a += x[r * d + i] * x[r * d + j];
        size_a += fabs(x[r * d + i] * x[r * d + j]);
        b += x[r * d + i] * y[r * d + j];
        size_b += fabs(x[r * d + i] * y[r * d + j]);
      }
      assert_true(fabs(xx[i * d + j] - a) <= (double)(rows + 1) * DBL_EPSILON * size_a);
      assert_true(fabs(xy[i * d + j] - b) <= (double)(rows + 1) * DBL_EPSILON * size_b);
    }
  free(x);
  free(y);
  free(xx);
  free(xy);
  free(old_xx);
  free(old_xy);
}

static void panels_make_the_whole(void **state) {
  (void)state;
  static const int64_t widths[] = {1, 7, WM_GRAM_PANEL, WM_GRAM_PANEL + 1, 2 * WM_GRAM_PANEL + 37};
  for (int w = 0; w < 5; w++)
    for (int parts = 1; parts <= 4; parts++)
      compare(19, widths[w], parts);
  compare(1, 5, 2);
}

static void no_rows_change_nothing(void **state) {
  (void)state;
  double xx[4] = {1, 2, 3, 4}, xy[4] = {5, 6, 7, 8};
  wm_error_t err = {0};
  assert_int_equal(wm_gram_update(xx, xy, 0, 2, 1, 0, xx, xy, &err), WM_OK);
  assert_true(xx[0] == 1 && xx[3] == 4 && xy[0] == 5 && xy[3] == 8);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(panels_make_the_whole),
      cmocka_unit_test(no_rows_change_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
