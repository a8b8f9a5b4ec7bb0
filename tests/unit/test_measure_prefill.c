/* The prefill against the model's own functions and the evaluator, bit for bit, and routed layers
 * against the blended computation. */
#include "model_fixture.h"

#include "row_order.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/measure/evaluate.h"
#include "wanamaker/measure/prefill.h"

#include <math.h>

enum { TILE = 48, SEQUENCES = 3, ROWS = 130, MOST_LAYERS = 16 };
static const int64_t starts[SEQUENCES + 1] = {0, 1, 66, ROWS};
static const wm_batch_t batch = {SEQUENCES, starts};

typedef struct {
  wm_model_t *model;
  wm_surrogates_t *surrogates;
  wm_gates_t *gates; /* two a layer: linear, random */
  wm_prefill_t *prefill;
  int64_t layers, d, v;
  int32_t ids[ROWS], targets[ROWS];
  int64_t token[ROWS];
  wm_layer_path_t paths[MOST_LAYERS];
} case_t;

static void add_gates(case_t *c, int64_t layer, double *weight) {
  wm_error_t err = {0};
  check(wm_gates_add_layer(c->gates, &(wm_gate_layer_t){.layer = layer, .selected = -1}, &err),
        &err);
  for (int64_t i = 0; i < c->d; i++)
    weight[i] = wm_rng_normal((wm_rng_t){8, (uint64_t)layer}, (uint64_t)i) / sqrt((double)c->d);
  const wm_gate_t linear = {
      .layer = layer, .kind = WM_GATE_LINEAR, .weight = weight, .bias = 0.1, .threshold = 0.5};
  const wm_gate_t random = {
      .layer = layer, .kind = WM_GATE_RANDOM, .fraction = 0.3, .seed = 4, .threshold = 0.5};
  check(wm_gates_add(c->gates, &linear, &err), &err);
  check(wm_gates_add(c->gates, &random, &err), &err);
}

static case_t make_case(void **state, const char *name) {
  wm_error_t err = {0};
  char *path = wm_format("%s/%s", golden_root(), name);
  case_t c = {.model = open_model(*state, path, TILE, 512)};
  const wm_arch_t *a = wm_model_arch(c.model);
  c.layers = a->n_layers;
  c.d = a->d_model;
  c.v = a->vocab_size;
  assert_true(c.layers <= MOST_LAYERS);
  check(wm_surrogates_create_random(*state, c.layers, c.d, TILE, WM_COMPUTE_F32, 3, &c.surrogates,
                                    &err),
        &err);
  check(wm_gates_create(c.layers, c.d, 0, &c.gates, &err), &err);
  double *weight = array(c.d, sizeof *weight);
  for (int64_t l = 0; l < c.layers; l++)
    add_gates(&c, l, weight);
  check(wm_prefill_create(c.model, c.surrogates, c.gates, ROWS, SEQUENCES, ROWS, &c.prefill, &err),
        &err);
  for (int s = 0; s < SEQUENCES; s++)
    for (int64_t i = starts[s]; i < starts[s + 1]; i++) {
      c.ids[i] = (int32_t)wm_rng_below((wm_rng_t){5, 1}, (uint64_t)i, (uint64_t)c.v);
      c.token[i] = 1000 + i;
      if (i > starts[s])
        c.targets[i - 1] = c.ids[i];
      c.targets[i] = -1;
    }
  free(weight);
  free(path);
  return c;
}

static void free_case(case_t *c) {
  wm_prefill_free(c->prefill);
  wm_gates_free(c->gates);
  wm_surrogates_close(c->surrogates);
  wm_model_close(c->model);
}

static void run(case_t *c, const wm_layer_path_t *paths, float *logits, double *nll) {
  wm_error_t err = {0};
  check(wm_prefill_run(c->prefill, &batch, c->ids, c->token, paths, &err), &err);
  check(wm_prefill_last(c->prefill, logits, &err), &err);
  check(wm_prefill_losses(c->prefill, c->targets, nll, &err), &err);
}

/* Both paths of every row and each row's picked; returns the rows that took a surrogate. */
static int64_t blend(case_t *c, float *logits, double *nll) {
  wm_error_t err = {0};
  const int64_t size = ROWS * c->d;
  float *h = array(size, sizeof *h), *x = array(size, sizeof *x), *full = array(size, sizeof *full);
  float *linear = array(size, sizeof *linear), *all = array(ROWS * c->v, sizeof *all);
  uint8_t route[ROWS];
  int64_t routed = 0;
  wm_workspace_t *ws;
  check(wm_workspace_create(c->model, ROWS, ROWS, &ws, &err), &err);
  check(wm_model_embed(c->model, &batch, c->ids, h, &err), &err);
  for (int64_t l = 0; l < c->layers; l++) {
    const wm_layer_path_t *path = &c->paths[l];
    memset(route, path->kind == WM_LAYER_SURROGATE, sizeof route);
    check(wm_model_attend(c->model, l, &batch, h, x, ws, &err), &err);
    check(wm_model_mlp(c->model, l, x, ROWS, full, ws, &err), &err);
    check(wm_surrogates_apply(c->surrogates, l, x, ROWS, linear, &err), &err);
    if (path->kind == WM_LAYER_GATED)
      wm_gates_route(c->gates, path->gate, path->threshold, x, c->token, NULL, ROWS, route);
    for (int64_t i = 0; i < size; i++)
      h[i] += (route[i / c->d] ? linear : full)[i];
    for (int r = 0; r < ROWS; r++)
      routed += route[r];
  }
  check(wm_model_logits(c->model, h, ROWS, all, ws, &err), &err);
  check(wm_model_nll(c->model, h, ROWS, c->targets, nll, ws, &err), &err);
  for (int s = 0; s < SEQUENCES; s++)
    memcpy(logits + s * c->v, all + (starts[s + 1] - 1) * c->v, (size_t)c->v * sizeof *all);
  wm_workspace_free(ws);
  free(h), free(x), free(full), free(linear), free(all);
  return routed;
}

/* `given` are the paths that the prefill is told, c->paths those of the blended computation. */
static int64_t compare(case_t *c, const wm_layer_path_t *given) {
  float *logits = array(SEQUENCES * c->v, sizeof *logits);
  float *wanted = array(SEQUENCES * c->v, sizeof *wanted);
  double nll[ROWS] = {0}, wanted_nll[ROWS] = {0};
  run(c, given, logits, nll);
  const int64_t routed = blend(c, wanted, wanted_nll);
  assert_memory_equal(logits, wanted, (size_t)(SEQUENCES * c->v) * sizeof *logits);
  assert_memory_equal(nll, wanted_nll, sizeof nll);
  assert_int_equal(wm_prefill_routed(c->prefill), routed);
  free(logits), free(wanted);
  return routed;
}

static void check_model(void **state, const char *name) {
  case_t c = make_case(state, name);
  const int64_t all = c.layers * ROWS;
  assert_int_equal(compare(&c, NULL), 0); /* zeroed paths: the full model */
  for (int64_t l = 0; l < c.layers; l++)
    c.paths[l].kind = WM_LAYER_SURROGATE;
  assert_int_equal(compare(&c, c.paths), all);
  for (int64_t l = 0; l < c.layers; l++) /* full, surrogate, linear and random gates in turns */
    c.paths[l] = (wm_layer_path_t){.kind = l % 4 < 2 ? (wm_layer_kind_t)(l % 4) : WM_LAYER_GATED,
                                   .gate = 2 * l + l % 2,
                                   .threshold = 0.5};
  int64_t routed = compare(&c, c.paths);
  assert_true(routed > all / 4 + all / 20 && routed < all / 4 + all / 2);
  free_case(&c);
}

static void test_gpt2(void **state) {
  skip_if_blas_tells_rows_apart();
  check_model(state, "demo_gpt2");
}

static void test_gpt_neox(void **state) {
  skip_if_blas_tells_rows_apart();
  check_model(state, "demo_gpt_neox");
}

/* Variants of every kind, in the evaluator's order: by the first layer that they change. */
enum { VARIANTS = 4 };
static const struct {
  int64_t count;
  wm_change_t changes[4]; /* gate: of add_gates, two a layer */
} variant_list[VARIANTS] = {{2, {{0, 0, 0.55}, {1, 2, 0.45}}},
                            {3, {{0, 1, NAN}, {2, -1, NAN}, {7, 14, 0.5}}},
                            {1, {{3, 6, 0.4}}},
                            {4, {{4, -1, NAN}, {5, 11, NAN}, {6, 12, 0.6}, {7, -1, NAN}}}};

/* paths[L] of a variant of the evaluator. */
static void translate(const wm_variants_t *variants, int64_t variant, int64_t layers,
                      wm_layer_path_t *paths) {
  memset(paths, 0, (size_t)layers * sizeof *paths);
  for (int64_t l = 0; l < layers; l++) {
    const wm_change_t *change = wm_variants_change(variants, variant, l);
    if (change != NULL)
      paths[l] = (wm_layer_path_t){change->gate < 0 ? WM_LAYER_SURROGATE : WM_LAYER_GATED,
                                   change->gate, change->threshold};
  }
}

/* Windows of one length, as the evaluator's blocks hold them: linearised and routed variants have
 * the losses there that the prefill has. */
static void test_evaluator_agrees(void **state) {
  skip_if_blas_tells_rows_apart();
  enum { LENGTH = 40, WINDOWS = 3, N = LENGTH * WINDOWS };
  static const int64_t even[WINDOWS + 1] = {0, LENGTH, 2 * LENGTH, N};
  const wm_batch_t windows_batch = {WINDOWS, even};
  const wm_token_view_t view = {.name = "ids", .encoding = "ids", .n_tokens = N};
  const wm_protocol_t protocol = {WM_PROTOCOL_STREAM, LENGTH, LENGTH, 2};
  const wm_range_t range = {.name = "test", .kind = WM_RANGE_TOKENS, .end = N};
  case_t c = make_case(state, "demo_gpt2");
  wm_error_t err = {0};
  wm_windows_t windows;
  wm_blocks_t blocks;
  wm_block_t block;
  wm_variants_t variants;
  wm_evaluator_t *evaluator;
  float *nll = array((1 + VARIANTS) * N, sizeof *nll);
  check(wm_windows_create(&view, &protocol, &range, &windows, &err), &err);
  check(wm_blocks_create(&windows, N, &blocks, &err), &err);
  check(wm_block_create(&blocks, &block, &err), &err);
  check(wm_variants_create(&variants, &err), &err);
  variants.gates = c.gates;
  for (int v = 0; v < VARIANTS; v++)
    check(wm_variants_add_changes(&variants, variant_list[v].changes, variant_list[v].count,
                                  c.layers, &err),
          &err);
  check(wm_evaluator_create(c.model, c.surrogates, &variants, &blocks, VARIANTS, N, false,
                            &evaluator, &err),
        &err);
  wm_block_load(&blocks, c.ids, 0, &block);
  assert_int_equal(block.rows, N);
  check(wm_evaluate_block(evaluator, &block, 1, VARIANTS, nll, NULL, &err), &err);
  for (int v = 0; v <= VARIANTS; v++) {
    double own[N];
    translate(&variants, v, c.layers, c.paths);
    check(wm_prefill_run(c.prefill, &windows_batch, c.ids, block.tokens, c.paths, &err), &err);
    check(wm_prefill_losses(c.prefill, block.targets, own, &err), &err);
    const float *wanted = nll + v * block.n_predictions;
    for (int i = 0; i < N; i++)
      if (block.targets[i] >= 0)
        assert_true((float)own[i] == *wanted++);
    assert_int_equal(wanted - nll, (v + 1) * block.n_predictions);
    const int64_t routed = wm_prefill_routed(c.prefill);
    assert_true(v == 0 ? routed == 0 : routed > 0 && routed < variant_list[v - 1].count * N);
  }
  wm_evaluator_free(evaluator);
  wm_variants_destroy(&variants);
  wm_block_destroy(&block);
  wm_blocks_destroy(&blocks);
  wm_windows_destroy(&windows);
  free(nll);
  free_case(&c);
}

/* A gate that always says "full" gives the full model's bits, one that always says "linear" those
 * of the surrogates. */
static void test_gates_that_never_differ(void **state) {
  skip_if_blas_tells_rows_apart();
  case_t c = make_case(state, "demo_gpt2");
  wm_layer_path_t given[MOST_LAYERS];
  for (int linear = 0; linear < 2; linear++) {
    for (int64_t l = 0; l < c.layers; l++) {
      given[l] = (wm_layer_path_t){WM_LAYER_GATED, 2 * l, linear ? 0.0 : 1.0};
      c.paths[l].kind = linear ? WM_LAYER_SURROGATE : WM_LAYER_FULL;
    }
    assert_int_equal(compare(&c, given), linear ? c.layers * ROWS : 0);
  }
  free_case(&c);
}

/* With fitted tiles the losses are the same to rounding. Gates might flip: none here. */
static void test_fitted_tiles(void **state) {
  case_t c = make_case(state, "demo_gpt2");
  wm_error_t err = {0};
  float *logits = array(SEQUENCES * c.v, sizeof *logits);
  float *wanted = array(SEQUENCES * c.v, sizeof *wanted);
  double nll[ROWS] = {0}, wanted_nll[ROWS] = {0};
  for (int64_t l = 0; l < c.layers; l++)
    c.paths[l] = (wm_layer_path_t){l % 2 ? WM_LAYER_GATED : WM_LAYER_FULL, 2 * l + 1, 0.5};
  run(&c, c.paths, wanted, wanted_nll);
  const int64_t routed = wm_prefill_routed(c.prefill);
  check(wm_model_set_tiles(c.model, WM_TILES_FITTED, &err), &err);
  check(wm_surrogates_set_tiles(c.surrogates, WM_TILES_FITTED, &err), &err);
  run(&c, c.paths, logits, nll);
  assert_int_equal(wm_prefill_routed(c.prefill), routed);
  assert_true(relative_difference(logits, wanted, SEQUENCES * c.v) < 1e-5);
  for (int i = 0; i < ROWS; i++)
    assert_true(fabs(nll[i] - wanted_nll[i]) < 1e-4);
  free(logits), free(wanted);
  free_case(&c);
}

static void test_bytes(void **state) {
  case_t c = make_case(state, "demo_gpt2");
  assert_true(wm_prefill_bytes(c.model, 2 * ROWS, SEQUENCES, ROWS) -
                  wm_prefill_bytes(c.model, ROWS, SEQUENCES, ROWS) >=
              ROWS * (3 * c.d * 4 + 9));
  free_case(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gpt2),
      cmocka_unit_test(test_gpt_neox),
      cmocka_unit_test(test_evaluator_agrees),
      cmocka_unit_test(test_gates_that_never_differ),
      cmocka_unit_test(test_fitted_tiles),
      cmocka_unit_test(test_bytes),
  };
  return cmocka_run_group_tests(tests, fixture_start, fixture_stop);
}
