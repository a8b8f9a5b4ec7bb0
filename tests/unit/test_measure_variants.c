/* Sets of layers, their labels, their cost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wanamaker/measure/evaluate.h"
#include "wanamaker/measure/variants.h"

#include <math.h>
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

/* A set of gates for layers 1 and 2: linear, random and oracle of each. */
static wm_gates_t *make_gates(void) {
  static const wm_gate_kind_t kinds[3] = {WM_GATE_LINEAR, WM_GATE_RANDOM, WM_GATE_ORACLE};
  static const double weight[10] = {1};
  wm_error_t err = {0};
  wm_gates_t *gates;
  assert_int_equal(wm_gates_create(3, 10, 0, &gates, &err), WM_OK);
  for (int64_t l = 1; l < 3; l++) {
    wm_gate_layer_t layer = {.layer = l, .selected = -1};
    assert_int_equal(wm_gates_add_layer(gates, &layer, &err), WM_OK);
    for (int k = 0; k < 3; k++) {
      wm_gate_t g = {.layer = l, .kind = kinds[k], .threshold = 0.5, .fraction = 0.25};
      g.weight = k == 0 ? weight : NULL;
      assert_int_equal(wm_gates_add(gates, &g, &err), WM_OK);
    }
  }
  return gates;
}

static void check_label(const wm_variants_t *v, int64_t variant, const char *layers,
                        const char *gate) {
  char text[32];
  wm_variants_label(v, variant, text, sizeof text);
  assert_string_equal(text, layers);
  wm_variants_gate_label(v, variant, text, sizeof text);
  assert_string_equal(text, gate);
}

static void holds_gates(void **state) {
  (void)state;
  wm_error_t err = {0};
  wm_variants_t v;
  wm_gates_t *gates = make_gates();
  assert_int_equal(wm_variants_create(&v, &err), WM_OK);
  v.gates = gates;
  const wm_change_t sets[5][2] = {{{1, 0, 0.5}, {2, 3, 0.5}},
                                  {{2, 3, 0.25}, {1, 0, 0.5}},
                                  {{1, 0, 0.5}, {2, -1, 7}},
                                  {{1, 1, 7}, {2, 4, -3}},
                                  {{2, 5, 0}, {1, 0, 1}}};
  for (int i = 0; i < 5; i++)
    assert_int_equal(wm_variants_add_changes(&v, sets[i], 2, 3, &err), WM_OK);
  assert_int_equal(wm_variants_add(&v, (int64_t[]){2}, 1, 3, &err), WM_OK);
  check_label(&v, 0, "full", "none");
  check_label(&v, 1, "1,2", "linear");
  check_label(&v, 2, "1,2", "linear");
  check_label(&v, 3, "1,2", "mixed");
  check_label(&v, 4, "1,2", "random25");
  check_label(&v, 5, "1,2", "mixed");
  check_label(&v, 6, "2", "none");
  assert_true(wm_variants_threshold(&v, 1) == 0.5 && isnan(wm_variants_threshold(&v, 2)) &&
              isnan(wm_variants_threshold(&v, 4)));
  assert_int_equal(wm_variants_path(&v, 3, 1), WM_PATH_GATE);
  assert_int_equal(wm_variants_path(&v, 3, 2), WM_PATH_SURROGATE);
  assert_true(wm_variants_is_routed(&v, 3) && !wm_variants_is_routed(&v, 6));
  assert_true(wm_variants_needs_losses(&v, 5) && !wm_variants_needs_losses(&v, 4));
  assert_int_equal(wm_variants_linear(&v, 2), 6);
  assert_int_equal(wm_variants_linear(&v, 1), -1);
  uint64_t h = wm_variants_fingerprint(&v, 0);
  v.changes[0].threshold = 0.75;
  assert_true(wm_variants_fingerprint(&v, 0) != h);
  v.changes[0].threshold = 0.5;
  assert_true(wm_variants_fingerprint(&v, 0) == h && wm_variants_fingerprint(&v, 1) != h);
  wm_variants_destroy(&v);
  wm_gates_free(gates);
}

static void refuses_bad_gates(void **state) {
  (void)state;
  wm_error_t err = {0};
  wm_variants_t v;
  wm_gates_t *gates = make_gates();
  assert_int_equal(wm_variants_create(&v, &err), WM_OK);
  const wm_change_t good = {1, 1, 0.5}, bad[] = {{1, 6, 0.5}, {1, -2, 0.5}, {1, 3, 0.5},
                                                 {1, 0, 1.5}, {1, 0, NAN},  {1, 1, 0.75}};
  assert_int_equal(wm_variants_add_changes(&v, &good, 1, 3, &err), WM_USAGE); /* no gates at all */
  v.gates = gates;
  assert_int_equal(wm_variants_add_changes(&v, &good, 1, 3, &err), WM_OK);
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) /* the last one is there already */
    assert_int_equal(wm_variants_add_changes(&v, &bad[i], 1, 3, &err), WM_USAGE);
  assert_int_equal(v.n, 2);
  wm_variants_destroy(&v);
  wm_gates_free(gates);
}

/* method.md, section 5: (1 - f) 4 d d_ff + f 2 d^2 + gate. */
static void counts_operations_of_routes(void **state) {
  (void)state;
  wm_error_t err = {0};
  wm_variants_t v;
  wm_gates_t *gates = make_gates();
  wm_arch_t arch = {
      .n_layers = 3, .d_model = 10, .d_mlp = 40, .n_heads = 2, .d_head = 5, .vocab_size = 100};
  const double mlp = 4.0 * 10 * 40, surrogate = 2.0 * 10 * 10;
  assert_int_equal(wm_variants_create(&v, &err), WM_OK);
  v.gates = gates;
  const wm_change_t set[2] = {{1, 0, 0.5}, {2, 4, 0}};
  assert_int_equal(wm_variants_add_changes(&v, set, 2, 3, &err), WM_OK);
  assert_true(wm_variants_mlp_flops(&v, 1, &arch, 0.25) ==
              mlp + 2 * (0.75 * mlp + 0.25 * surrogate) + 2 * 10);
  /* The group's cost: trunk, one branch from layer 1 on, whose last layer is half routed. */
  const double layer = wm_arch_flops_layer(&arch) + wm_arch_flops_attention(&arch, 4);
  assert_true(wm_evaluate_flops(&v, 1, 1, &arch, 4) ==
              4 * layer + 2 * wm_arch_flops_head(&arch) + 20 + 0.5 * (surrogate - mlp) + surrogate);
  wm_variants_destroy(&v);
  wm_gates_free(gates);
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
      cmocka_unit_test(holds_sorted_sets),   cmocka_unit_test(refuses_bad_sets),
      cmocka_unit_test(counts_operations),   cmocka_unit_test(holds_gates),
      cmocka_unit_test(refuses_bad_gates),   cmocka_unit_test(counts_operations_of_routes),
      cmocka_unit_test(counts_layer_passes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
