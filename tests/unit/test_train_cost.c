/* What a training pass costs: operations against a count by hand, trained parameters against those
 * of the pass itself. */
#include "training_fixture.h"
#include "wanamaker/train/cost.h"

static const uint32_t study = 1u << WM_GROUP_TOKENS | 1u << WM_GROUP_ATTENTION |
                              1u << WM_GROUP_MLP | 1u << WM_GROUP_NORMS | 1u << WM_GROUP_FINAL_NORM;

/* Three layers of width 8: of a row, attention's dense layers take 512 operations, its scores 272
 * (a mean of 8.5 of 16 positions), an MLP 1024, a surrogate 128, a gate's hidden layer 64, the head
 * 1600. */
static const wm_arch_t arch = {.family = WM_FAMILY_GPT2,
                               .n_layers = 3,
                               .n_heads = 2,
                               .d_model = 8,
                               .d_head = 4,
                               .d_mlp = 32,
                               .vocab_size = 100,
                               .max_positions = 16,
                               .tied_head = true,
                               .drop_attention = 0.1,
                               .drop_residual = 0.1};

static wm_pass_shape_t shape(wm_phase_t *phase) {
  return (wm_pass_shape_t){.arch = &arch,
                           .phase = phase,
                           .sequences = 2,
                           .length = 16,
                           .tile_rows = 32,
                           .gate_hidden = 4};
}

static void check_work(wm_pass_work_t w, double forward, double backward, double draws) {
  assert_true(w.forward == forward);
  assert_true(w.backward == backward);
  assert_true(w.draws == draws);
}

/* 32 rows, a tile of them; the head takes each sequence's 15 in a tile of their own. */
static void test_linear_layer(void **state) {
  (void)state;
  wm_layer_mode_t modes[] = {WM_MODE_FULL, WM_MODE_LINEAR, WM_MODE_FULL};
  wm_phase_t phase = {.modes = modes, .groups = study, .steps = 100};
  const double head = 64 * 1600, full = 32 * (512 + 1024 + 272), linear = 32 * (512 + 128 + 272);
  const double attention = 32 * (2 * 512 + 2.5 * 272); /* dX, dW; five products against two */
  const double backward = 2 * (attention + 32 * 2 * 1024) + attention + 32 * 128;
  wm_pass_shape_t s = shape(&phase);
  check_work(wm_pass_work(&s), 2 * full + linear + head, backward + head + 30 * 1600, 0);
  s.recompute = true;
  s.dropout =
      true; /* of two residuals and two heads, of one residual in the linear layer; thrice */
  check_work(wm_pass_work(&s), 2 * full + linear + head,
             backward + 2 * full + linear + head + 30 * 1600, 3 * 32 * (2 * (16 + 17) + (8 + 17)));
  s.phase = NULL;
  s.dropout = false;
  check_work(wm_pass_work(&s), 3 * full + head, 0, 0);
  assert_int_equal(wm_phase_evaluations(&phase, NULL, 3, 40), 1 + 2 + 1);
  assert_int_equal(wm_phase_evaluations(&phase, NULL, 3, 0), 2);
  assert_true(wm_phase_trained(&arch, &phase, 4, false) ==
              800 + 16 + 3 * (4 * 72 + 32) + 2 * (2 * 256 + 40));
}

/* Only the gate of layer 1 trains: nothing is computed below it, and above it no dW. */
static void test_gates_alone(void **state) {
  (void)state;
  wm_layer_mode_t modes[] = {WM_MODE_FULL, WM_MODE_GATED, WM_MODE_FULL};
  wm_layer_mode_t linear[] = {WM_MODE_FULL, WM_MODE_LINEAR, WM_MODE_FULL};
  wm_phase_t phase = {.modes = modes, .groups = 1u << WM_GROUP_GATES, .steps = 100};
  const wm_phase_t before = {.modes = linear};
  const double head = 64 * 1600, full = 32 * (512 + 1024 + 272);
  const wm_pass_shape_t s = shape(&phase);
  check_work(wm_pass_work(&s), 3 * full + 32 * (128 + 64) + head,
             32 * (512 + 2.5 * 272 + 1024) + 32 * 64 + head, 0);
  assert_true(wm_phase_trained(&arch, &phase, 4, false) == 41);
  assert_int_equal(wm_phase_evaluations(&phase, &before, 3, 0), 4); /* and with gates that decide */
  assert_int_equal(wm_phase_evaluations(&phase, &phase, 3, 0), 2);
}

static void test_parameters(void **state) {
  static const training_spec_t specs[] = {
      {WM_FAMILY_GPT2, "fgsf", 3, 39, 41, 97, 70, true, false, "gelu_new"},
      {WM_FAMILY_GPT_NEOX, "fsgf", 3, 36, 41, 97, 70, false, true, "gelu"}};
  const uint32_t groups[] = {EVERYTHING, study, 1u << WM_GROUP_GATES, 1u << WM_GROUP_HEAD,
                             1u << WM_GROUP_MLP | 1u << WM_GROUP_POSITIONS};
  for (int i = 0; i < 2; i++)
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++)
      for (int lines = 0; lines < 2; lines++) {
        const wm_training_options_t options = {.trainable = groups[g],
                                               .train_surrogates = lines,
                                               .gate_hidden = 7,
                                               .max_rows = 8,
                                               .max_length = 8};
        trainee_t t = make_trainee(*state, &specs[i], options, 16, 32);
        int64_t count, trained = 0;
        wm_layer_mode_t modes[4];
        for (int l = 0; l < 4; l++)
          modes[l] = specs[i].paths[l] == 'f'   ? WM_MODE_FULL
                     : specs[i].paths[l] == 's' ? WM_MODE_LINEAR
                                                : WM_MODE_GATED;
        const wm_phase_t phase = {.modes = modes, .groups = groups[g]};
        const wm_parameter_t *p = wm_training_parameters(t.training, &count);
        for (int64_t k = 0; k < count; k++)
          trained += p[k].gradient != NULL ? p[k].elements : 0;
        assert_true(wm_phase_trained(wm_model_arch(t.model), &phase, 7, lines) == (double)trained);
        free_trainee(&t);
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_linear_layer),
                                     cmocka_unit_test(test_gates_alone),
                                     cmocka_unit_test(test_parameters)};
  return cmocka_run_group_tests(tests, fixture_start, fixture_stop);
}
