/* Counters of kernels: what is added up, and that nothing happens without a profile. */
#include "wanamaker/base/profile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_counts(void **state) {
  (void)state;
  wm_profile_t p = {0};
  double begin = wm_seconds();
  for (int i = 1; i <= 3; i++) {
    double start = wm_profile_start(&p);
    assert_true(start >= begin);
    while (wm_seconds() - start < 1e-3) {
    }
    wm_profile_stop(&p, WM_KERNEL_HEAD, start, i, 10.0 * i);
  }
  wm_profile_stop(&p, WM_KERNEL_IO, wm_profile_start(&p), 0, 5);
  double all = wm_seconds() - begin;
  const wm_counter_t *head = &p.kernels[WM_KERNEL_HEAD];
  assert_int_equal(head->calls, 3);
  assert_true(head->flops == 6 && head->bytes == 60);
  assert_true(head->seconds >= 3e-3 && head->seconds <= all);
  assert_int_equal(p.kernels[WM_KERNEL_IO].calls, 1);
  assert_int_equal(p.kernels[WM_KERNEL_EMBED].calls, 0);
  double sum = head->seconds + p.kernels[WM_KERNEL_IO].seconds;
  assert_true(wm_profile_seconds(&p) == sum);
}

static void test_off(void **state) {
  (void)state;
  assert_true(wm_profile_start(NULL) == 0);
  wm_profile_stop(NULL, WM_KERNEL_HEAD, 0, 1, 1);
}

static void test_names(void **state) {
  (void)state;
  for (int k = 0; k < WM_KERNELS; k++) {
    assert_non_null(wm_kernel_name((wm_kernel_t)k));
    for (int other = 0; other < k; other++)
      assert_string_not_equal(wm_kernel_name((wm_kernel_t)k), wm_kernel_name((wm_kernel_t)other));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_counts),
      cmocka_unit_test(test_off),
      cmocka_unit_test(test_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
