/* A model with bfloat16 products, and the check of a sweep against float32: the check's losses are
 * those that a float32 sweep of everything has at the same places, and its effects follow from
 * them. Ranks are two nodes. */
#include "test_measure_fixture.h"

#include "wanamaker/measure/check.h"
#include "wanamaker/measure/fit.h"

#include <math.h>

enum { N_TOKENS = 1400, BLOCK = 150, WANTED = 400, LAYERS = 2 };

typedef struct {
  wm_comm_t *comm;
  int32_t ids[N_TOKENS];
  wm_windows_t windows;
  wm_blocks_t blocks;
  wm_variants_t variants;
} shared_t;

static shared_t S;

static wm_model_t *open_model(wm_compute_t compute, bool as_filed) {
  return open_demo(S.comm, "demo_gpt2", compute, as_filed);
}

static wm_surrogates_t *make_surrogates(const wm_model_t *model) {
  const wm_arch_t *a = wm_model_arch(model);
  wm_surrogates_t *s = NULL;
  OK(wm_surrogates_create_random(S.comm, a->n_layers, a->d_model, TILE, wm_model_compute(model), 5,
                                 &s, err));
  return s;
}

static int set_up(void **state) {
  (void)state;
  wm_comm_t *world = NULL;
  OK(wm_comm_create(MPI_COMM_WORLD, &world, err));
  S.comm = two_nodes(world);
  wm_comm_free(world);
  draw_ids(S.ids, N_TOKENS);
  cut_tokens(S.ids, N_TOKENS, 0, N_TOKENS, BLOCK, "evaluation", &S.windows, &S.blocks);
  OK(wm_variants_create(&S.variants, err));
  for (int64_t l = 0; l < LAYERS; l++)
    OK(wm_variants_add(&S.variants, &l, 1, 6, err));
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  wm_variants_destroy(&S.variants);
  wm_blocks_destroy(&S.blocks);
  wm_windows_destroy(&S.windows);
  wm_comm_free(S.comm);
  return 0;
}

static const wm_sweep_options_t options = {
    .stack_rows = 400,
    .unit = WM_UNIT_WINDOW,
    .bootstrap = {.resamples = 100, .seed = 1, .confidence = 0.95}};

static void sweep(wm_model_t *model, const wm_surrogates_t *surrogates, wm_sweep_t *out) {
  OK(wm_sweep_run(S.comm, model, surrogates, &S.variants, &S.blocks, S.ids, &options, NULL, out,
                  err));
}

/* Sum and mean by the simplest of ways. */
static double mean_at(const wm_sweep_t *s, int64_t v, const wm_check_t *c, int64_t begin,
                      int64_t end) {
  const float *nll = (const float *)s->nll.data + v * S.windows.n_predicted;
  double sum = 0;
  for (int64_t i = begin; i < end; i++)
    sum += (double)nll[c->token[i]];
  return sum / (double)(end - begin);
}

static double delta(const wm_sweep_t *s, int64_t v, const wm_check_t *c) {
  return 100 * (exp(mean_at(s, v, c, 0, c->n) - mean_at(s, 0, c, 0, c->n)) - 1);
}

/* The difference without window w, for a jackknife. */
static double difference_without(const wm_sweep_t *b, const wm_sweep_t *f, int64_t v,
                                 const wm_check_t *c, int64_t w) {
  double means[4];
  const int64_t begin = c->windows.predicted_offset[w], end = c->windows.predicted_offset[w + 1];
  const wm_sweep_t *of[4] = {b, b, f, f};
  const int64_t variant[4] = {v, 0, v, 0};
  for (int k = 0; k < 4; k++) {
    double all = mean_at(of[k], variant[k], c, 0, c->n) * (double)c->n;
    double part = mean_at(of[k], variant[k], c, begin, end) * (double)(end - begin);
    means[k] = (all - part) / (double)(c->n - (end - begin));
  }
  return 100 * (exp(means[0] - means[1]) - exp(means[2] - means[3]));
}

static void check_effect(const wm_sweep_t *b, const wm_sweep_t *f, int64_t v, const wm_check_t *c) {
  const wm_check_effect_t *e = &c->effects[v];
  const double close = 1e-9, windows = (double)c->windows.n;
  assert_true(fabs(e->delta - delta(b, v, c)) < close);
  assert_true(fabs(e->delta_f32 - delta(f, v, c)) < close);
  assert_true(fabs(e->difference - (delta(b, v, c) - delta(f, v, c))) < close);
  assert_true(e->difference != 0);
  double mean = 0, squares = 0;
  for (int64_t w = 0; w < c->windows.n; w++)
    mean += difference_without(b, f, v, c, w) / windows;
  for (int64_t w = 0; w < c->windows.n; w++)
    squares += pow(difference_without(b, f, v, c, w) - mean, 2);
  double jackknife = sqrt(squares * (windows - 1) / windows);
  /* The two agree to the order of 1 / windows. */
  assert_true(fabs(e->standard_error / jackknife - 1) < 2 / windows);
}

static void test_check_is_a_part_of_a_float32_sweep(void **state) {
  (void)state;
  wm_model_t *rounded = open_model(WM_COMPUTE_BF16_EMULATED, false);
  wm_model_t *filed = open_model(WM_COMPUTE_F32, true), *plain = open_model(WM_COMPUTE_F32, false);
  wm_surrogates_t *rounded_s = make_surrogates(rounded), *plain_s = make_surrogates(plain);
  wm_sweep_t b = {0}, f = {0};
  wm_check_t c = {0}, all = {0};
  sweep(rounded, rounded_s, &b);
  sweep(plain, plain_s, &f);
  OK(wm_check_run(&b, filed, plain_s, S.ids, WANTED, &options, NULL, &c, err));
  assert_true(c.n >= WANTED - BLOCK && c.n <= WANTED + BLOCK && c.n < S.windows.n_predicted);
  assert_true(c.token[0] > 0 && c.token[c.n - 1] < S.windows.n_predicted - 1); /* spread */
  double share = wm_check_share(&S.blocks, WANTED);
  assert_true(fabs(share - (double)c.windows.n_positions / (double)S.windows.n_positions) < 1e-12);
  for (int64_t v = 0; v < c.n_variants; v++)
    for (int64_t i = 0; i < c.n; i++) {
      const float *expected = (const float *)f.nll.data + v * S.windows.n_predicted + c.token[i];
      assert_memory_equal((const float *)c.nll.data + v * c.n + i, expected, sizeof *expected);
    }
  for (int64_t v = 1; v < c.n_variants; v++)
    check_effect(&b, &f, v, &c);
  double full = mean_at(&b, 0, &c, 0, c.n) - mean_at(&f, 0, &c, 0, c.n);
  assert_true(fabs(c.effects[0].difference - 100 * (exp(full) - 1)) < 1e-9);
  assert_true(c.effects[0].delta == 0 && c.effects[0].standard_error > 0);
  OK(wm_check_run(&b, filed, plain_s, S.ids, INT64_C(1) << 40, &options, NULL, &all, err));
  assert_int_equal(all.n, S.windows.n_predicted);
  assert_true(wm_check_share(&S.blocks, INT64_C(1) << 40) == 1);
  for (int64_t i = 0; i < all.n; i++)
    assert_int_equal(all.token[i], i);
  wm_check_destroy(&all);
  wm_check_destroy(&c);
  wm_sweep_destroy(&b);
  wm_sweep_destroy(&f);
  wm_surrogates_close(rounded_s);
  wm_surrogates_close(plain_s);
  wm_model_close(rounded);
  wm_model_close(filed);
  wm_model_close(plain);
}

/* Matrices of products in 2 bytes; the file is float16, so that vectors and positions become
 * float32, and the embedding, which is the head too, stays for its rows. */
static void test_rounded_weights_take_half(void **state) {
  (void)state;
  wm_model_t *model = open_model(WM_COMPUTE_BF16_EMULATED, false);
  const wm_arch_t *a = wm_model_arch(model);
  const int64_t d = a->d_model, f = a->d_mlp, l = a->n_layers, v = a->vocab_size;
  const int64_t matrices = l * (4 * d * d + 2 * d * f) + v * d;
  const int64_t floats = l * (9 * d + f) + 2 * d + a->max_positions * d;
  const int64_t padding = 64 * (12 * l + 4); /* every tensor begins on a line */
  assert_in_range(wm_model_shared_bytes(model), 2 * matrices + 4 * floats,
                  2 * matrices + 4 * floats + padding);
  int64_t largest = 512 > f ? 512 * d : f * d, rows = wm_gemm_tile_rows(TILE) * f;
  assert_int_equal(wm_model_scratch_bytes(model), (largest + rows) * (int64_t)sizeof(float));
  /* The fit's plan counts what the products convert in. */
  wm_model_t *plain = open_model(WM_COMPUTE_F32, false);
  const wm_fit_options_t any = {0};
  int64_t rounded_bytes, plain_bytes;
  OK(wm_fit_scratch(model, &S.blocks, NULL, &any, &rounded_bytes, err));
  OK(wm_fit_scratch(plain, &S.blocks, NULL, &any, &plain_bytes, err));
  assert_int_equal(wm_model_scratch_bytes(plain), 0);
  assert_int_equal(rounded_bytes - plain_bytes, wm_model_scratch_bytes(model));
  wm_model_close(plain);
  wm_model_close(model);
  model = open_model(WM_COMPUTE_F32, true);
  assert_in_range(wm_model_shared_bytes(model), 4 * floats, 4 * floats + padding);
  wm_model_close(model);
}

int main(int argc, char **argv) {
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_check_is_a_part_of_a_float32_sweep),
      cmocka_unit_test(test_rounded_weights_take_half),
  };
  int failures = cmocka_run_group_tests(tests, set_up, tear_down);
  MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return failures;
}
