/* Surrogates that train. An MLP whose activation is the identity, with first matrix I, is the
 * surrogate of its second one, so that one model can be written in two ways that must have the same
 * losses and gradients; a gated layer likewise, with MLP and surrogate exchanged and the gate's
 * sign turned. */
#include "training_fixture.h"

enum { D = 24, ROWS = 68, SEQUENCES = 3 };

static training_spec_t spec_of(const char *paths) {
  return (training_spec_t){WM_FAMILY_GPT2, paths, 3, D, D, 53, 40, true, false, "linear"};
}

static const wm_parameter_t *find(const trainee_t *t, const char *name) {
  int64_t count;
  const wm_parameter_t *p = wm_training_parameters(t->training, &count);
  for (int64_t i = 0; i < count; i++)
    if (strcmp(p[i].name, name) == 0)
      return &p[i];
  fail_msg("no parameter %s", name);
  return NULL;
}

static trainee_t make(const wm_comm_t *comm, const char *paths, bool surrogates) {
  const training_spec_t spec = spec_of(paths);
  const wm_training_options_t options = {.trainable = EVERYTHING,
                                         .train_surrogates = surrogates,
                                         .gate_hidden = 7,
                                         .max_rows = ROWS,
                                         .max_length = 40};
  return make_trainee(comm, &spec, options, 48, 32);
}

/* The MLP of layer 1 becomes x W + b. */
static void set_mlp(const trainee_t *t, const float *weight, const float *bias) {
  float *first = find(t, "h.1.mlp.c_fc.weight")->value;
  memset(first, 0, D * D * sizeof *first);
  for (int i = 0; i < D; i++)
    first[i * D + i] = 1;
  memset(find(t, "h.1.mlp.c_fc.bias")->value, 0, D * sizeof(float));
  memcpy(find(t, "h.1.mlp.c_proj.weight")->value, weight, D * D * sizeof *weight);
  memcpy(find(t, "h.1.mlp.c_proj.bias")->value, bias, D * sizeof *bias);
}

static double run(trainee_t *t) {
  static const int64_t lengths[SEQUENCES] = {40, 1, 27};
  double nll[SEQUENCES], gate[SEQUENCES], sum = 0;
  wm_error_t err = {0};
  test_batch_t b = make_batch(SEQUENCES, lengths, 5, t->spec.v);
  b.batch.gate_scale = 0;
  wm_training_result_t result = {nll, gate};
  wm_training_zero(t->training);
  check(wm_training_accumulate(t->training, &b.batch, NULL, &result, &err), &err);
  for (int s = 0; s < SEQUENCES; s++)
    sum += nll[s];
  free_batch(&b);
  return sum;
}

static void same_gradient(const trainee_t *a, const char *name, const trainee_t *b,
                          const char *other) {
  const wm_parameter_t *p = find(a, name), *q = find(b, other);
  double error = 0, size = 0;
  assert_non_null(p->gradient);
  assert_non_null(q->gradient);
  assert_int_equal(p->elements, q->elements);
  for (int64_t i = 0; i < p->elements; i++) {
    error += pow((double)p->gradient[i] - (double)q->gradient[i], 2);
    size += pow((double)q->gradient[i], 2);
  }
  if (!(sqrt(error) <= 2e-5 * sqrt(size)) || size == 0) /* as in test_model_gradients.c */
    fail_msg("%s and %s: norm %.3g, relative error %.3g", name, other, sqrt(size),
             sqrt(error / size));
}

static void a_surrogate_trains_as_its_mlp(void **state) {
  trainee_t line = make(*state, "fs", true), full = make(*state, "ff", false);
  set_mlp(&full, line.paths[1].weight, line.paths[1].bias);
  double a = run(&line), b = run(&full);
  assert_true(fabs(a - b) <= 1e-6 * b);
  same_gradient(&line, "surrogate.1.weight", &full, "h.1.mlp.c_proj.weight");
  same_gradient(&line, "surrogate.1.bias", &full, "h.1.mlp.c_proj.bias");
  same_gradient(&line, "h.0.mlp.c_fc.weight", &full, "h.0.mlp.c_fc.weight");
  free_trainee(&line);
  free_trainee(&full);
}

/* g MLP + (1 - g) line = (1 - g') MLP + g' line with g' = 1 - g. */
static void a_gated_layers_does_too(void **state) {
  trainee_t one = make(*state, "fg", true), other = make(*state, "fg", true);
  float weight[D * D], bias[D];
  for (int i = 0; i < D * D; i++)
    weight[i] = (float)(i * 37 % 19) / 80;
  for (int i = 0; i < D; i++)
    bias[i] = (float)(i % 5) / 4;
  set_mlp(&one, weight, bias);
  set_mlp(&other, other.paths[1].weight, other.paths[1].bias);
  memcpy(find(&other, "surrogate.1.weight")->value, weight, sizeof weight);
  memcpy(find(&other, "surrogate.1.bias")->value, bias, sizeof bias);
  float *w2 = find(&other, "gate.1.w2")->value;
  for (int i = 0; i < 7; i++)
    w2[i] = -w2[i];
  find(&other, "gate.1.b2")->value[0] *= -1;
  double a = run(&one), b = run(&other);
  assert_true(fabs(a - b) <= 1e-6 * b);
  same_gradient(&one, "surrogate.1.weight", &other, "h.1.mlp.c_proj.weight");
  same_gradient(&one, "surrogate.1.bias", &other, "h.1.mlp.c_proj.bias");
  same_gradient(&other, "surrogate.1.weight", &one, "h.1.mlp.c_proj.weight");
  same_gradient(&one, "h.0.attn.c_attn.weight", &other, "h.0.attn.c_attn.weight");
  free_trainee(&one);
  free_trainee(&other);
}

/* Nothing else trains: the backward pass goes down to the layer all the same. */
static void a_surrogate_trains_alone(void **state) {
  const training_spec_t spec = spec_of("fs");
  const wm_training_options_t options = {
      .train_surrogates = true, .gate_hidden = 7, .max_rows = ROWS, .max_length = 40};
  trainee_t all = make(*state, "fs", true), alone = make_trainee(*state, &spec, options, 48, 32);
  int64_t count;
  run(&all);
  run(&alone);
  same_gradient(&alone, "surrogate.1.weight", &all, "surrogate.1.weight");
  wm_training_gradients(alone.training, &count);
  assert_int_equal(count, D * D + (D + 15) / 16 * 16);
  free_trainee(&all);
  free_trainee(&alone);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_surrogate_trains_as_its_mlp),
      cmocka_unit_test(a_gated_layers_does_too),
      cmocka_unit_test(a_surrogate_trains_alone),
  };
  return cmocka_run_group_tests(tests, fixture_start, fixture_stop);
}
