/* Gates: scores and routes against plain statements, and what may not be added. */
#include "wanamaker/base/rng.h"
#include "wanamaker/measure/gates.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { D = 37, ROWS = 51, LAYERS = 6, K = 4 };

static float x[ROWS * D];
static double weight[D];

static wm_gates_t *new_set(void) {
  wm_gates_t *gates;
  wm_error_t err = {0};
  wm_rng_normals((wm_rng_t){7, 0}, 0, ROWS * D, x);
  for (int i = 0; i < D; i++)
    weight[i] = wm_rng_normal((wm_rng_t){7, 1}, (uint64_t)i);
  assert_int_equal(wm_gates_create(LAYERS, D, K, &gates, &err), WM_OK);
  wm_gate_layer_t layer = {.layer = 1, .selected = -1};
  assert_int_equal(wm_gates_add_layer(gates, &layer, &err), WM_OK);
  layer.layer = 4;
  assert_int_equal(wm_gates_add_layer(gates, &layer, &err), WM_OK);
  return gates;
}

static int64_t add(wm_gates_t *gates, wm_gate_t gate) {
  wm_error_t err = {0};
  if (wm_gates_add(gates, &gate, &err) != WM_OK)
    fail_msg("%s", err.message);
  return gates->n - 1;
}

static wm_gate_t of_kind(wm_gate_kind_t kind) {
  wm_gate_t g = {.layer = 4, .kind = kind, .bias = -0.25, .scale = 0.5, .threshold = 0.5};
  g.weight = wm_gate_has_weight(kind) ? weight : NULL;
  g.components = kind == WM_GATE_PCA ? 2 : kind == WM_GATE_COMPONENT ? 3 : 0;
  g.fraction = 0.3;
  g.seed = 11;
  return g;
}

/* In long double, straight from the definitions. */
static double naive_score(const wm_gate_t *g, const float *row) {
  long double dot = 0, square = 0, max = 0, mean = 0, m2 = 0, m4 = 0;
  for (int i = 0; i < D; i++) {
    dot += (long double)weight[i] * (long double)row[i];
    square += (long double)row[i] * (long double)row[i];
    max = fabsl((long double)row[i]) > max ? fabsl((long double)row[i]) : max;
    mean += (long double)row[i] / D;
  }
  for (int i = 0; i < D; i++) {
    long double t = (long double)row[i] - mean;
    m2 += t * t / D;
    m4 += t * t * t * t / D;
  }
  long double f = g->kind == WM_GATE_NORM      ? sqrtl(square)
                  : g->kind == WM_GATE_MAX_ABS ? max
                                               : m4 / (m2 * m2) - 3;
  return (double)(wm_gate_has_weight(g->kind) ? dot - 0.25L : 0.5L * f - 0.25L);
}

static void test_scores(void **state) {
  (void)state;
  wm_gates_t *gates = new_set();
  double score[ROWS];
  for (int kind = 0; kind < WM_GATE_KINDS; kind++)
    add(gates, of_kind((wm_gate_kind_t)kind));
  for (int64_t g = 0; g < gates->n; g++) {
    if (!wm_gate_has_score(gates->gates[g].kind))
      continue;
    wm_gates_score(gates, g, x, ROWS, score);
    for (int i = 0; i < ROWS; i++) {
      double expected = naive_score(&gates->gates[g], x + i * D);
      assert_true(fabs(score[i] - expected) <= 1e-12 * (1 + fabs(expected)));
      double alone;
      wm_gates_score(gates, g, x + i * D, 1, &alone);
      assert_true(memcmp(&alone, &score[i], sizeof alone) == 0);
    }
  }
  wm_gates_free(gates);
}

static int routed(const wm_gates_t *gates, int64_t g, double threshold, const float *rows,
                  uint8_t *route) {
  int64_t token[ROWS];
  float delta[ROWS];
  int n = 0;
  for (int i = 0; i < ROWS; i++) {
    token[i] = 1000 + 3 * i;
    delta[i] = i % 5 == 0 ? NAN : (float)(i % 3) - 1;
  }
  wm_gates_route(gates, g, threshold, rows, token, delta, ROWS, route);
  for (int i = 0; i < ROWS; i++)
    n += route[i];
  return n;
}

/* Scored kinds by p_linear > threshold; thresholds 0 and 1 are always and never. */
static void test_thresholds(void **state) {
  (void)state;
  wm_gates_t *gates = new_set();
  uint8_t route[ROWS];
  double score[ROWS];
  for (int kind = 0; kind < WM_GATE_RANDOM; kind++) {
    int64_t g = add(gates, of_kind((wm_gate_kind_t)kind));
    assert_int_equal(routed(gates, g, 0, x, route), ROWS);
    assert_int_equal(routed(gates, g, 1, x, route), 0);
    wm_gates_score(gates, g, x, ROWS, score);
    for (double t = 0.1; t < 1; t += 0.2) {
      routed(gates, g, t, x, route);
      for (int i = 0; i < ROWS; i++)
        assert_int_equal(route[i], 1 / (1 + exp(-score[i])) > t);
    }
  }
  wm_gates_free(gates);
}

static void test_nan_takes_the_mlp(void **state) {
  (void)state;
  wm_gates_t *gates = new_set();
  uint8_t route[ROWS];
  x[3 * D + 5] = NAN;
  for (int kind = 0; kind < WM_GATE_RANDOM; kind++) {
    int64_t g = add(gates, of_kind((wm_gate_kind_t)kind));
    assert_int_equal(routed(gates, g, 0, x, route), ROWS - 1);
    assert_int_equal(route[3], 0);
  }
  wm_gates_free(gates);
}

static void test_random_and_oracle(void **state) {
  (void)state;
  wm_gates_t *gates = new_set();
  uint8_t route[ROWS], other[ROWS];
  int64_t random = add(gates, of_kind(WM_GATE_RANDOM)),
          oracle = add(gates, of_kind(WM_GATE_ORACLE));
  routed(gates, random, 0.9, NULL, route);
  for (int i = 0; i < ROWS; i++)
    assert_int_equal(route[i], wm_rng_uniform((wm_rng_t){11, 4}, (uint64_t)(1000 + 3 * i)) < 0.3);
  wm_gate_t g = of_kind(WM_GATE_RANDOM);
  g.layer = 1;
  routed(gates, add(gates, g), 0.9, NULL, other);
  assert_true(memcmp(route, other, sizeof route) != 0); /* another layer, other draws */
  g.fraction = 0;
  assert_int_equal(routed(gates, add(gates, g), 0.5, NULL, other), 0);
  g.fraction = 1;
  assert_int_equal(routed(gates, add(gates, g), 0.5, NULL, other), ROWS);
  routed(gates, oracle, 0.5, NULL, route);
  for (int i = 0; i < ROWS; i++)
    assert_int_equal(route[i], i % 5 != 0 && i % 3 == 0);
  wm_gates_free(gates);
}

static void test_constant_row(void **state) {
  (void)state;
  float flat[D];
  for (int i = 0; i < D; i++)
    flat[i] = 0.5f;
  assert_true(wm_gate_feature(WM_GATE_KURTOSIS, flat, D) == 0);
  assert_true(wm_gate_feature(WM_GATE_MAX_ABS, flat, D) == 0.5);
}

static void test_refused(void **state) {
  (void)state;
  wm_gates_t *gates = new_set();
  double bad[D];
  memcpy(bad, weight, sizeof bad);
  bad[D - 1] = INFINITY;
  wm_gate_t g[12];
  const char *const words[12] = {
      "not described",    "components",           "components", "components", "lacks its weight",
      "lacks its weight", "weight is not finite", "bias",       "scale",      "threshold",
      "fraction",         "no known kind"};
  for (int i = 0; i < 12; i++)
    g[i] = of_kind(WM_GATE_LINEAR);
  g[0].layer = 2;
  g[1].components = 1;
  g[2] = of_kind(WM_GATE_PCA);
  g[2].components = K + 1;
  g[3] = of_kind(WM_GATE_COMPONENT);
  g[3].components = 0;
  g[4].weight = NULL;
  g[5] = of_kind(WM_GATE_NORM);
  g[5].weight = weight;
  g[6].weight = bad;
  g[7].bias = NAN;
  g[8] = of_kind(WM_GATE_NORM);
  g[8].scale = INFINITY;
  g[9].threshold = 1.5;
  g[10] = of_kind(WM_GATE_RANDOM);
  g[10].fraction = NAN;
  g[11].kind = WM_GATE_KINDS;
  for (int i = 0; i < 12; i++) {
    wm_error_t err = {0};
    assert_int_equal(wm_gates_add(gates, &g[i], &err), WM_USAGE);
    if (strstr(err.message, words[i]) == NULL)
      fail_msg("case %d: %s", i, err.message);
  }
  assert_int_equal(gates->n, 0);
  for (int64_t l = 3; l <= LAYERS; l += 3) {
    wm_error_t err = {0};
    wm_gate_layer_t layer = {.layer = l};
    assert_int_equal(wm_gates_add_layer(gates, &layer, &err), WM_USAGE);
  }
  wm_gates_free(gates);
}

static void test_labels_and_cost(void **state) {
  (void)state;
  const char *const labels[WM_GATE_KINDS] = {"linear",  "pca2",     "pc3",      "norm",
                                             "max_abs", "kurtosis", "random30", "oracle"};
  const double flops[WM_GATE_KINDS] = {2 * D, 4 * D + 4, 2 * D, 2 * D, 2 * D, 2 * D, 0, 0};
  for (int k = 0; k < WM_GATE_KINDS; k++) {
    wm_gate_t g = of_kind((wm_gate_kind_t)k);
    wm_gate_kind_t parsed;
    char text[32];
    wm_gate_label(&g, text, sizeof text);
    assert_string_equal(text, labels[k]);
    assert_true(wm_gate_flops(&g, D) == flops[k]);
    assert_true(wm_gate_kind_parse(wm_gate_kind_name(g.kind), &parsed));
    assert_int_equal(parsed, g.kind);
  }
}

/* Everything that routes depend on changes the fingerprint, what is reported does not. */
static void test_fingerprint(void **state) {
  (void)state;
  wm_gates_t *gates = new_set();
  add(gates, of_kind(WM_GATE_LINEAR));
  wm_gate_t *g = &gates->gates[0], before = *g;
  uint64_t h = wm_gates_fingerprint(gates);
  g->report.auc = 0.75;
  assert_true(wm_gates_fingerprint(gates) == h);
  g->bias += 1e-15;
  assert_true(wm_gates_fingerprint(gates) != h);
  *g = before;
  g->layer = 1;
  assert_true(wm_gates_fingerprint(gates) != h);
  *g = before;
  ((double *)g->weight)[D - 1] += 1e-9;
  assert_true(wm_gates_fingerprint(gates) != h);
  wm_gates_free(gates);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_scores),
      cmocka_unit_test(test_thresholds),
      cmocka_unit_test(test_nan_takes_the_mlp),
      cmocka_unit_test(test_random_and_oracle),
      cmocka_unit_test(test_constant_row),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_labels_and_cost),
      cmocka_unit_test(test_fingerprint),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
