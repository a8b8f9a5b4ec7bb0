/* The profile of a forward pass: the operations counted are those that method.md's formulas give,
 * whatever the tiles, and without a profile nothing is counted. */
#include "model_fixture.h"

enum { SEQUENCES = 3, ROWS = 17 };
static const int64_t starts[SEQUENCES + 1] = {0, 9, 10, ROWS};

static wm_profile_t profile_of(wm_model_t *model) {
  int32_t ids[ROWS];
  for (int i = 0; i < ROWS; i++)
    ids[i] = (7 * i + 3) % (int)wm_model_arch(model)->vocab_size;
  wm_batch_t batch = {SEQUENCES, starts};
  wm_profile_t profile = {0};
  wm_model_set_profile(model, &profile);
  assert_ptr_equal(wm_model_profile(model), &profile);
  pass_t pass = run_model(model, &batch, ids);
  wm_profile_t once = profile;
  wm_model_set_profile(model, NULL);
  pass_free(&pass);
  pass = run_model(model, &batch, ids);
  assert_memory_equal(&profile, &once, sizeof once);
  pass_free(&pass);
  return profile;
}

static double flops(const wm_profile_t *p, wm_kernel_t kernel) {
  return p->kernels[kernel].flops;
}

static void check_model(void **state, const char *name, bool rotary) {
  char *path = golden_path(name);
  wm_model_t *model = open_model(*state, path, 16, 8);
  const wm_arch_t *a = wm_model_arch(model);
  wm_profile_t p = profile_of(model);
  const double layers = (double)a->n_layers, rows = ROWS;
  double attention = 0;
  for (int s = 0; s < SEQUENCES; s++)
    for (int64_t i = 1; i <= starts[s + 1] - starts[s]; i++)
      attention += wm_arch_flops_attention(a, (double)i);
  assert_true(flops(&p, WM_KERNEL_ATTENTION) == layers * attention);
  assert_true(flops(&p, WM_KERNEL_UP) + flops(&p, WM_KERNEL_DOWN) ==
              layers * rows * wm_arch_flops_mlp(a));
  assert_true(flops(&p, WM_KERNEL_QKV) + flops(&p, WM_KERNEL_PROJECT) ==
              layers * rows * (wm_arch_flops_layer(a) - wm_arch_flops_mlp(a)));
  /* run_model takes the losses of all rows but the sequences' last ones, then all rows' logits */
  assert_true(flops(&p, WM_KERNEL_HEAD) == (2 * rows - SEQUENCES) * wm_arch_flops_head(a));
  assert_int_equal(p.kernels[WM_KERNEL_EMBED].calls, 1);
  assert_int_equal(p.kernels[WM_KERNEL_ROTARY].calls, rotary ? a->n_layers : 0);
  /* two norms a layer, and the head's: for each tile of losses and of logits */
  int64_t tile = wm_gemm_tile_rows(16);
  int64_t tiles = (ROWS - SEQUENCES + tile - 1) / tile + (ROWS + tile - 1) / tile;
  assert_int_equal(p.kernels[WM_KERNEL_NORM].calls, 2 * a->n_layers + tiles);
  assert_true(wm_profile_seconds(&p) > 0);
  wm_model_close(model);
  free(path);
}

static void test_gpt2(void **state) {
  check_model(state, "gpt2_base", false);
}

static void test_gpt_neox(void **state) {
  check_model(state, "neox_base", true);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gpt2),
      cmocka_unit_test(test_gpt_neox),
  };
  return cmocka_run_group_tests(tests, fixture_start, fixture_stop);
}
