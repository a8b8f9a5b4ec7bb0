/* Hard routing against the blended computation: both paths of all rows, and each row's picked. */
#include "model_fixture.h"

#include "row_order.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/measure/routing.h"

#include <omp.h>

enum { TILE = 48, MOST = 3 * TILE + 5 };

typedef struct {
  wm_model_t *model;
  wm_surrogates_t *surrogates;
  wm_workspace_t *workspace;
  wm_routing_t *routing;
  int64_t d;
  float *x, *full, *linear, *y; /* [MOST, d] */
  uint8_t route[MOST];
} case_t;

static case_t make_case(void **state, const char *name, wm_compute_t compute) {
  wm_error_t err = {0};
  char *path = wm_format("%s/%s", golden_root(), name);
  const wm_model_options_t options = {.tile_rows = TILE, .tile_vocab = 16, .compute = compute};
  case_t c = {0};
  check(wm_model_open(*state, path, &options, NULL, &c.model, &err), &err);
  const wm_arch_t *a = wm_model_arch(c.model);
  c.d = a->d_model;
  check(
      wm_surrogates_create_random(*state, a->n_layers, c.d, TILE, compute, 3, &c.surrogates, &err),
      &err);
  check(wm_workspace_create(c.model, MOST, 16, &c.workspace, &err), &err);
  check(wm_routing_create(c.model, MOST, &c.routing, &err), &err);
  c.x = array(MOST * c.d, sizeof(float));
  c.full = array(MOST * c.d, sizeof(float));
  c.linear = array(MOST * c.d, sizeof(float));
  c.y = array(MOST * c.d, sizeof(float));
  wm_rng_normals((wm_rng_t){5, 1}, 0, MOST * c.d, c.x);
  free(path);
  return c;
}

static void free_case(case_t *c) {
  free(c->x), free(c->full), free(c->linear), free(c->y);
  wm_routing_free(c->routing);
  wm_workspace_free(c->workspace);
  wm_surrogates_close(c->surrogates);
  wm_model_close(c->model);
}

/* Both paths of all rows at `layer`. */
static void compute_both(case_t *c, int64_t layer) {
  wm_error_t err = {0};
  check(wm_model_mlp(c->model, layer, c->x, MOST, c->full, c->workspace, &err), &err);
  check(wm_surrogates_apply(c->surrogates, layer, c->x, MOST, c->linear, &err), &err);
}

/* The first `rows` rows, routed as c->route says, have the bits of the path that they ask for;
 * nothing behind them is written to. */
static void check_routed(case_t *c, int64_t layer, int64_t rows) {
  wm_error_t err = {0};
  const size_t bytes = (size_t)c->d * sizeof(float);
  for (int64_t i = 0; i < MOST * c->d; i++)
    c->y[i] = 12345;
  check(wm_routing_apply(c->routing, c->model, c->surrogates, layer, c->x, c->route, rows, c->y,
                         c->workspace, &err),
        &err);
  for (int64_t r = 0; r < rows; r++)
    if (memcmp(c->y + r * c->d, (c->route[r] ? c->linear : c->full) + r * c->d, bytes) != 0)
      fail_msg("layer %d: row %d of %d on route %d differs", (int)layer, (int)r, (int)rows,
               c->route[r]);
  for (int64_t i = rows * c->d; i < MOST * c->d; i++)
    assert_true(c->y[i] == 12345);
}

static void draw_routes(case_t *c, double fraction, uint64_t stream) {
  for (int64_t r = 0; r < MOST; r++)
    c->route[r] = wm_rng_uniform((wm_rng_t){9, stream}, (uint64_t)r) < fraction;
}

static void check_model(void **state, const char *name, wm_compute_t compute) {
  static const int64_t sizes[] = {0, 1, 2, 17, TILE - 1, TILE, TILE + 1, 2 * TILE + 1, MOST};
  static const double fractions[] = {0, 0.01, 0.25, 0.5, 0.97, 1};
  case_t c = make_case(state, name, compute);
  for (int64_t layer = 0; layer < 2; layer++) {
    compute_both(&c, layer);
    assert_memory_not_equal(c.full, c.linear, (size_t)c.d * sizeof(float));
    for (size_t f = 0; f < sizeof fractions / sizeof fractions[0]; f++)
      for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        draw_routes(&c, fractions[f], f);
        check_routed(&c, layer, sizes[s]);
      }
  }
  free_case(&c);
}

static void test_bits_are_those_of_the_paths(void **state) {
  skip_if_blas_tells_rows_apart();
  for (int threads = 1; threads <= 3; threads++) {
    omp_set_num_threads(threads);
    check_model(state, "demo_gpt2", WM_COMPUTE_F32);
    check_model(state, "demo_gpt_neox", WM_COMPUTE_F32);
  }
  omp_set_num_threads(1);
  check_model(state, "demo_gpt2", WM_COMPUTE_BF16_EMULATED);
}

/* Whole tiles of either route, alternating rows and blocks of rows. */
static void test_patterns(void **state) {
  skip_if_blas_tells_rows_apart();
  case_t c = make_case(state, "demo_gpt2", WM_COMPUTE_F32);
  compute_both(&c, 0);
  for (int64_t period = 1; period <= 2 * TILE; period++) {
    for (int64_t r = 0; r < MOST; r++)
      c.route[r] = r / period % 2 ? 255 : 0; /* any byte but 0 is the surrogate */
    check_routed(&c, 0, MOST);
    check_routed(&c, 0, 2 * period < MOST ? 2 * period : MOST);
  }
  free_case(&c);
}

static wm_profile_t count(case_t *c, int64_t rows) {
  wm_profile_t profile = {0};
  wm_model_set_profile(c->model, &profile);
  check_routed(c, 0, rows);
  wm_model_set_profile(c->model, NULL);
  return profile;
}

/* Operations are those of the rows of each path; one route alone moves no row. */
static void test_only_what_is_needed(void **state) {
  skip_if_blas_tells_rows_apart();
  case_t c = make_case(state, "demo_gpt2", WM_COMPUTE_F32);
  const wm_arch_t *a = wm_model_arch(c.model);
  compute_both(&c, 0);
  static const int counts[] = {0, 1, TILE, TILE + 1, MOST - 1, MOST};
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
    const int linear = counts[i];
    for (int r = 0; r < MOST; r++)
      c.route[r] = r < linear;
    wm_profile_t p = count(&c, MOST);
    assert_true(p.kernels[WM_KERNEL_UP].flops + p.kernels[WM_KERNEL_DOWN].flops ==
                (MOST - linear) * wm_arch_flops_mlp(a));
    assert_true(p.kernels[WM_KERNEL_SURROGATE].flops == linear * wm_arch_flops_surrogate(a));
    const bool one_route = linear == 0 || linear == MOST;
    assert_true(p.kernels[WM_KERNEL_ROUTE].bytes == (one_route ? 0 : 16.0 * (double)(MOST * c.d)));
  }
  free_case(&c);
}

/* Fitted tiles: the same to rounding, for any number of rows of either route; |y| is of order 1. */
static void check_fitted(void **state, const char *name, wm_compute_t compute, double bound) {
  wm_error_t err = {0};
  case_t c = make_case(state, name, compute);
  compute_both(&c, 0);
  check(wm_model_set_tiles(c.model, WM_TILES_FITTED, &err), &err);
  check(wm_surrogates_set_tiles(c.surrogates, WM_TILES_FITTED, &err), &err);
  for (int64_t linear = 0; linear <= MOST; linear += 7) {
    for (int64_t r = 0; r < MOST; r++) {
      c.route[r] = r * linear / MOST != (r + 1) * linear / MOST; /* `linear` rows, spread */
      for (int64_t i = 0; i < c.d; i++)
        c.y[r * c.d + i] = 12345;
    }
    const int64_t rows = MOST - linear % 5;
    check(wm_routing_apply(c.routing, c.model, c.surrogates, 0, c.x, c.route, rows, c.y,
                           c.workspace, &err),
          &err);
    for (int64_t r = 0; r < rows; r++)
      assert_true(relative_difference(c.y + r * c.d, (c.route[r] ? c.linear : c.full) + r * c.d,
                                      c.d) < bound);
    for (int64_t i = rows * c.d; i < MOST * c.d; i++)
      assert_true(c.y[i] == 12345);
  }
  free_case(&c);
}

/* float32 sums of 4 d products of either sign; a hidden unit that another order of its sum rounds
 * to another bfloat16 number moves by 2^-8. */
static void test_fitted_tiles_round_alike(void **state) {
  for (int threads = 1; threads <= 3; threads++) {
    omp_set_num_threads(threads);
    check_fitted(state, "demo_gpt2", WM_COMPUTE_F32, 4e-6);
    check_fitted(state, "demo_gpt_neox", WM_COMPUTE_F32, 4e-6);
  }
  omp_set_num_threads(1);
  check_fitted(state, "demo_gpt2", WM_COMPUTE_BF16_EMULATED, 4e-3);
}

/* Without rows for it, a path need not exist. */
static void test_needs_no_surrogate_for_the_mlp(void **state) {
  wm_error_t err = {0};
  case_t c = make_case(state, "demo_gpt_neox", WM_COMPUTE_F32);
  compute_both(&c, 1);
  memset(c.route, 0, sizeof c.route);
  check(wm_routing_apply(c.routing, c.model, NULL, 1, c.x, c.route, MOST, c.y, c.workspace, &err),
        &err);
  assert_memory_equal(c.y, c.full, (size_t)(MOST * c.d) * sizeof(float));
  free_case(&c);
}

static void test_bytes(void **state) {
  case_t c = make_case(state, "demo_gpt2", WM_COMPUTE_F32);
  const int64_t tile = wm_model_tile_rows(c.model);
  const int64_t most = wm_gemm_most_rows(WM_TILES_FIXED, tile, 1000);
  assert_int_equal(wm_routing_bytes(c.model, 1000), 1000 * 8 + 2 * most * c.d * 4);
  assert_int_equal(wm_routing_bytes(c.model, 3), 3 * 8 + 2 * tile * c.d * 4);
  free_case(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bits_are_those_of_the_paths),
      cmocka_unit_test(test_patterns),
      cmocka_unit_test(test_only_what_is_needed),
      cmocka_unit_test(test_fitted_tiles_round_alike),
      cmocka_unit_test(test_needs_no_surrogate_for_the_mlp),
      cmocka_unit_test(test_bytes),
  };
  return cmocka_run_group_tests(tests, fixture_start, fixture_stop);
}
