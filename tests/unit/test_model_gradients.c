/* Gradients: the naive float64 ones against finite differences of the objective, and the fast ones
 * against the naive ones. */
#include "training_fixture.h"

#include <omp.h>

static const training_spec_t tiny[] = {
    {WM_FAMILY_GPT2, "f", 3, 6, 9, 11, 5, true, false, "gelu_new"},
    {WM_FAMILY_GPT2, "fs", 1, 5, 7, 13, 6, false, false, "silu"},
    {WM_FAMILY_GPT2, "gfg", 2, 6, 7, 11, 5, true, false, "tanh"},
    {WM_FAMILY_GPT_NEOX, "ff", 1, 8, 7, 11, 5, false, true, "gelu"},
    {WM_FAMILY_GPT_NEOX, "gs", 2, 8, 5, 11, 5, false, true, "mish"},
    {WM_FAMILY_GPT_NEOX, "fg", 3, 12, 5, 9, 5, true, false, "relu"},
};
enum { N_TINY = sizeof tiny / sizeof *tiny };

static double objective(const trainee_t *t, const test_batch_t *b, double **gradients) {
  double value;
  wm_error_t err = {0};
  check(wm_reference_objective(t->training, t->paths, &b->batch, gradients, &value, &err), &err);
  return value;
}

/* Derivative by the five-point rule: its error is h^4 f^(5) / 30, 3e-14 f^(5), where layer norms of
 * rows of little variance make f^(5) large, and 1e-16 f / h = 1e-12. 1e-7 leaves room for that; the
 * draws are such that no step crosses a corner of relu. */
static double difference(const trainee_t *t, const test_batch_t *b, float *x) {
  const float h = 0x1p-10f, middle = *x;
  double sum = 0;
  const double weights[] = {1, -8, 8, -1};
  for (int i = 0; i < 4; i++) {
    *x = middle + (float)(i < 2 ? i - 2 : i - 1) * h;
    sum += weights[i] * objective(t, b, NULL);
  }
  *x = middle;
  return sum / (12 * (double)h);
}

static void check_differences(const wm_comm_t *comm, const training_spec_t *spec, double rate) {
  const wm_training_options_t options = {.trainable = EVERYTHING,
                                         .gate_hidden = 3,
                                         .drop_embedding = rate,
                                         .drop_attention = rate,
                                         .drop_residual = rate,
                                         .max_rows = 16,
                                         .max_length = 6};
  const int64_t lengths[] = {spec->positions, 1, 2, 3};
  trainee_t t = make_trainee(comm, spec, options, 16, 16);
  test_batch_t b = make_batch(4, lengths, 0, spec->v);
  double **g = make_gradients(t.training);
  int64_t count;
  const wm_parameter_t *p = wm_training_parameters(t.training, &count);
  assert_true(objective(&t, &b, g) > 0);
  for (int64_t i = 0; i < count; i++) {
    double error = 0, size = norm_of(g[i], p[i].elements);
    for (int64_t j = 0; j < p[i].elements; j++)
      error = fmax(error, fabs(difference(&t, &b, p[i].value + j) - g[i][j]));
    /* Parameters of an MLP that a surrogate replaces have none. */
    bool used = p[i].group != WM_GROUP_MLP || spec->paths[p[i].layer] != 's';
    if (!(error <= 1e-7) || (size == 0) == used)
      fail_msg("%s (%s): norm %.3g, error %.3g", p[i].name, spec->paths, size, error);
  }
  free_gradients(t.training, g);
  free_batch(&b);
  free_trainee(&t);
}

static void naive_gradients_are_derivatives(void **state) {
  for (int i = 0; i < N_TINY; i++)
    check_differences(*state, &tiny[i], i % 2 == 0 ? 0 : 0.25);
}

static const training_spec_t odd[] = {
    {WM_FAMILY_GPT2, "f", 3, 21, 50, 211, 70, true, false, "gelu_new"},
    {WM_FAMILY_GPT2, "fgsf", 3, 39, 41, 97, 150, false, false, "gelu"},
    {WM_FAMILY_GPT2, "f", 1, 5, 3, 7, 130, true, false, "laplace"},
    {WM_FAMILY_GPT2, "f", 2, 80, 30, 97, 130, true, false, "gelu_new"},
    {WM_FAMILY_GPT_NEOX, "f", 3, 36, 50, 211, 70, false, true, "gelu"},
    {WM_FAMILY_GPT_NEOX, "gfsg", 3, 60, 41, 97, 150, true, true, "quick_gelu"},
    {WM_FAMILY_GPT_NEOX, "sfg", 5, 60, 77, 101, 70, false, false, "relu2"},
};
enum { N_ODD = sizeof odd / sizeof *odd };

/* A gradient is a sum of products whose operands err by some 1e-6 of their size after a few layers
 * in float32 (see test_model_golden.c); one that is the small difference of large parts keeps the
 * error of the parts. 2e-5 of a tensor's norm leaves a factor of five over what is seen. */
static const double bound = 2e-5;

/* With operands rounded to bfloat16 a number that errs by 1e-6 falls to the other side of a
 * boundary once in some thousand times, and then by 2^-8 of its size: 1e-4 of the operands of one
 * product, more with every product on a gradient's way: twice with every layer, by what is seen. A
 * kind of operand that is not rounded makes 2^-9 / sqrt(3) = 1.1e-3 of difference, which the
 * gradients of the head and the final norm tell. */
static double bound_of(const trainee_t *t, const wm_parameter_t *p) {
  const int64_t layers = (int64_t)strlen(t->spec.paths);
  if (t->compute == WM_COMPUTE_F32)
    return bound;
  return p->layer == layers ? 4e-4
                            : 1.5e-3 * exp2((double)(layers - 1 - (p->layer > 0 ? p->layer : 0)));
}

static void compare_gradients(const trainee_t *t, double **expected, bool all) {
  int64_t count;
  const wm_parameter_t *p = wm_training_parameters(t->training, &count);
  for (int64_t i = 0; i < count; i++) {
    if (p[i].gradient == NULL) {
      assert_false(all && p[i].group != WM_GROUP_MLP);
      continue;
    }
    double size = norm_of(expected[i], p[i].elements), error = 0;
    for (int64_t j = 0; j < p[i].elements; j++) {
      double e = (double)p[i].gradient[j] - expected[i][j];
      error += e * e;
    }
    if (!(sqrt(error) <= bound_of(t, &p[i]) * size) || size == 0)
      fail_msg("%s of %s: norm %.3g, relative error %.3g", p[i].name, t->spec.paths, size,
               sqrt(error) / size);
  }
}

static void run(const trainee_t *t, const test_batch_t *b, double *nll, double *gate) {
  wm_error_t err = {0};
  wm_training_result_t result = {nll, gate};
  wm_training_zero(t->training);
  check(wm_training_accumulate(t->training, &b->batch, NULL, &result, &err), &err);
}

static void compare_fast(const wm_comm_t *comm, const training_spec_t *spec,
                         wm_training_options_t options) {
  const int64_t lengths[] = {1, 2, 33, spec->positions};
  options.gate_hidden = 7;
  options.max_rows = 36 + spec->positions;
  options.max_length = spec->positions;
  trainee_t t = make_trainee(comm, spec, options, 48, 32);
  test_batch_t b = make_batch(4, lengths, 5, spec->v);
  double **g = make_gradients(t.training), nll[4], gate[4], sum = 0, expected;
  expected = objective(&t, &b, g);
  run(&t, &b, nll, gate);
  for (int i = 0; i < 4; i++)
    sum += b.batch.nll_scale * nll[i] + b.batch.gate_scale * gate[i];
  assert_true(fabs(sum - expected) <=
              (options.compute == WM_COMPUTE_F32 ? 1e-5 : 1e-4) * fabs(expected));
  compare_gradients(&t, g, options.trainable == EVERYTHING);
  free_gradients(t.training, g);
  free_batch(&b);
  free_trainee(&t);
}

static void fast_gradients_agree_with_naive(void **state) {
  for (int i = 0; i < N_ODD; i++)
    compare_fast(*state, &odd[i], (wm_training_options_t){.trainable = EVERYTHING});
}

static void fast_gradients_agree_under_dropout(void **state) {
  for (int i = 0; i < N_ODD; i++)
    compare_fast(*state, &odd[i],
                 (wm_training_options_t){.trainable = EVERYTHING,
                                         .seed = 77,
                                         .drop_embedding = 0.1,
                                         .drop_attention = 0.2,
                                         .drop_residual = 0.3});
}

static void study_gradients_cut_the_mlp(void **state) {
  compare_fast(*state, &odd[1],
               (wm_training_options_t){.trainable = EVERYTHING, .study_gradients = true});
  compare_fast(*state, &odd[4],
               (wm_training_options_t){.trainable = EVERYTHING, .study_gradients = true});
}

/* Whatever else is frozen, a trained group's gradients are the same. */
static void frozen_groups_change_nothing_else(void **state) {
  for (int i = 0; i < N_ODD; i++)
    for (int group = 0; group < WM_GROUP_COUNT; group++)
      compare_fast(*state, &odd[i], (wm_training_options_t){.trainable = 1u << group});
}

static const wm_compute_t rounding[] = {WM_COMPUTE_BF16_EMULATED, WM_COMPUTE_BF16};

/* Is that type of products there? */
static bool has(wm_compute_t compute) {
  wm_error_t err = {0};
  const bool there = wm_compute_check(compute, &err) == WM_OK;
  if (!there)
    print_message("not tested on this machine: %s\n", wm_compute_name(compute));
  return there;
}

/* The naive pass rounds the same operands. */
static void rounded_gradients_agree_with_naive(void **state) {
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < N_ODD && has(rounding[k]); i++) {
      compare_fast(*state, &odd[i],
                   (wm_training_options_t){.trainable = EVERYTHING, .compute = rounding[k]});
      compare_fast(*state, &odd[i],
                   (wm_training_options_t){.trainable = EVERYTHING,
                                           .compute = rounding[k],
                                           .checkpointing = true,
                                           .logits_bytes = 1,
                                           .seed = 77,
                                           .drop_embedding = 0.1,
                                           .drop_attention = 0.2,
                                           .drop_residual = 0.3});
    }
}

/* Relative difference of all gradients of two passes. */
static double difference_of(wm_training_t *a, wm_training_t *b) {
  int64_t n, m;
  const float *x = wm_training_gradients(a, &n), *y = wm_training_gradients(b, &m);
  double error = 0, size = 0;
  assert_int_equal(n, m);
  for (int64_t i = 0; i < n; i++) {
    error += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    size += (double)y[i] * (double)y[i];
  }
  return sqrt(error / size);
}

/* What rounding does to the whole gradient: 2^-9 / sqrt(3) = 1.1e-3 an operand, of which a gradient
 * has some tens on its way, that add up as independent errors do. */
static void rounding_changes_gradients_little(void **state) {
  for (int i = 0; i < N_ODD; i++) {
    const int64_t lengths[] = {33, odd[i].positions};
    wm_training_options_t o = {.trainable = EVERYTHING,
                               .gate_hidden = 7,
                               .max_rows = 33 + odd[i].positions,
                               .max_length = odd[i].positions};
    trainee_t exact = make_trainee(*state, &odd[i], o, 48, 32);
    o.compute = WM_COMPUTE_BF16_EMULATED;
    trainee_t rounded = make_trainee(*state, &odd[i], o, 48, 32);
    test_batch_t b = make_batch(2, lengths, 5, odd[i].v);
    double nll[2], gate[2];
    run(&exact, &b, nll, gate);
    run(&rounded, &b, nll, gate);
    const double difference = difference_of(rounded.training, exact.training);
    if (!(difference > 1e-3 && difference < 3e-2))
      fail_msg("%s: gradients differ by %.3g", odd[i].paths, difference);
    free_batch(&b);
    free_trainee(&exact);
    free_trainee(&rounded);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rounded_gradients_agree_with_naive),
      cmocka_unit_test(rounding_changes_gradients_little),
      cmocka_unit_test(naive_gradients_are_derivatives),
      cmocka_unit_test(fast_gradients_agree_with_naive),
      cmocka_unit_test(fast_gradients_agree_under_dropout),
      cmocka_unit_test(study_gradients_cut_the_mlp),
      cmocka_unit_test(frozen_groups_change_nothing_else),
  };
  return cmocka_run_group_tests(tests, fixture_start, fixture_stop);
}
