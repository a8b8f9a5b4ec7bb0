/* Sets of layers, their labels, their cost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wanamaker/measure/evaluate.h"
#include "wanamaker/measure/variants.h"

#include <string.h>

static void holds_sorted_sets(void **state) {
  (void)state;
  wm_error_t err = {0};
  wm_variants_t v;
  char label[64];
  assert_int_equal(wm_variants_create(&v, &err), WM_OK);
  assert_int_equal(v.n, 1);
  assert_int_equal(wm_variants_add(&v, (int64_t[]){7}, 1, 12, &err), WM_OK);
  assert_int_equal(wm_variants_add(&v, (int64_t[]){9, 4, 5, 6, 11, 10}, 6, 12, &err), WM_OK);
  assert_int_equal(v.n, 3);
  wm_variants_label(&v, 0, label, sizeof label);
  assert_string_equal(label, "full");
  wm_variants_label(&v, 1, label, sizeof label);
  assert_string_equal(label, "7");
  wm_variants_label(&v, 2, label, sizeof label);
  assert_string_equal(label, "4-6,9-11");
  assert_int_equal(wm_variants_first_layer(&v, 0, 12), 12);
  assert_int_equal(wm_variants_first_layer(&v, 2, 12), 4);
  assert_int_equal(wm_variants_path(&v, 2, 8), WM_PATH_FULL);
  assert_int_equal(wm_variants_path(&v, 2, 10), WM_PATH_SURROGATE);
  wm_variants_label(&v, 2, label, 5); /* cut, never overrun */
  assert_int_equal(strlen(label), 4);
  wm_variants_destroy(&v);
}

static void refuses_bad_sets(void **state) {
  (void)state;
  wm_error_t err = {0};
  wm_variants_t v;
  assert_int_equal(wm_variants_create(&v, &err), WM_OK);
  assert_int_equal(wm_variants_add(&v, (int64_t[]){3, 12}, 2, 12, &err), WM_USAGE);
  assert_non_null(strstr(err.message, "layer 12"));
  assert_int_equal(wm_variants_add(&v, (int64_t[]){-1}, 1, 12, &err), WM_USAGE);
  assert_int_equal(wm_variants_add(&v, (int64_t[]){3, 4, 3}, 3, 12, &err), WM_USAGE);
  assert_int_equal(wm_variants_add(&v, (int64_t[]){3, 4}, 2, 12, &err), WM_OK);
  assert_int_equal(wm_variants_add(&v, (int64_t[]){4, 3}, 2, 12, &err), WM_USAGE);
  assert_int_equal(v.n, 2);
  wm_variants_destroy(&v);
}

/* method.md, section 5: an MLP costs 4 d d_ff, a surrogate 2 d^2 operations a position. */
static void counts_operations(void **state) {
  (void)state;
  wm_error_t err = {0};
  wm_variants_t v;
  wm_arch_t arch = {
      .n_layers = 3, .d_model = 10, .d_mlp = 40, .n_heads = 2, .d_head = 5, .vocab_size = 100};
  assert_int_equal(wm_variants_create(&v, &err), WM_OK);
  assert_int_equal(wm_variants_add(&v, (int64_t[]){0, 2}, 2, 3, &err), WM_OK);
  assert_true(wm_variants_mlp_flops(&v, 0, &arch, 0) == 3 * 4.0 * 10 * 40);
  assert_true(wm_variants_mlp_flops(&v, 1, &arch, 1) == 4.0 * 10 * 40 + 2 * 2.0 * 10 * 10);
  assert_true(wm_variants_flops(&v, 0, &arch, 4, 0) - wm_variants_flops(&v, 1, &arch, 4, 1) ==
              2 * (4.0 * 10 * 40 - 2.0 * 10 * 10));
  wm_variants_destroy(&v);
}

/* design.md: L + L (L - 1) / 2 layer passes for all layers one at a time. */
static void counts_layer_passes(void **state) {
  (void)state;
  wm_error_t err = {0};
  wm_variants_t v;
  enum { L = 24 };
  assert_int_equal(wm_variants_create(&v, &err), WM_OK);
  for (int64_t l = 0; l < L; l++)
    assert_int_equal(wm_variants_add(&v, &l, 1, L, &err), WM_OK);
  assert_true(wm_evaluate_layer_passes(&v, 1, L, L) == L + L * (L - 1) / 2);
  wm_variants_destroy(&v);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(holds_sorted_sets),
      cmocka_unit_test(refuses_bad_sets),
      cmocka_unit_test(counts_operations),
      cmocka_unit_test(counts_layer_passes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
