/* Fifty steps of AdamW with clipping and a cosine on golden models: losses and gradient norms as
 * torch has them in float64 (tests/oracle/optimiser_golden.py). Here weights are float32: fifty
 * roundings of 6e-8 each, magnified by training, stay far below the promised 1e-4. */
#include "training_fixture.h"
#include "wanamaker/train/adamw.h"
#include "wanamaker/train/schedule.h"

enum { STEPS = 50 };

static void *copy_of(const wm_tensors_t *store, wm_dtype_t dtype, const char *name, int64_t *n) {
  const wm_tensor_t *t = wm_tensors_find(store, name);
  assert_non_null(t);
  assert_int_equal(t->dtype, dtype);
  void *copy = array(t->bytes, 1);
  memcpy(copy, t->data, (size_t)t->bytes);
  *n = t->elements;
  return copy;
}

static wm_tensors_t *open_store(const char *format, const char *name) {
  char *inner = wm_format(format, name), *dir = wm_format("%s/%s", golden_root(), inner);
  wm_tensors_t *store;
  wm_error_t err = {0};
  check(wm_tensors_open(dir, &store, &err), &err);
  free(inner), free(dir);
  return store;
}

/* The model's sequences, every next token a target. */
static test_batch_t golden_batch(const char *name) {
  int64_t n, rows, predicted = 0;
  wm_tensors_t *store = open_store("model/%s/expected", name);
  test_batch_t b = {.starts = copy_of(store, WM_DTYPE_I64, "starts", &n),
                    .ids = copy_of(store, WM_DTYPE_I32, "ids", &rows)};
  b.sequences = array(--n, sizeof *b.sequences);
  b.targets = array(rows, sizeof *b.targets);
  for (int64_t s = 0; s < n; s++)
    for (int64_t i = b.starts[s]; i < b.starts[s + 1]; i++) {
      b.targets[i] = i + 1 < b.starts[s + 1] ? b.ids[i + 1] : -1;
      predicted += b.targets[i] >= 0;
    }
  b.batch = (wm_training_batch_t){.rows = {n, b.starts},
                                  .ids = b.ids,
                                  .targets = b.targets,
                                  .sequences = b.sequences,
                                  .nll_scale = 1 / (double)predicted};
  wm_tensors_close(store);
  return b;
}

static wm_training_t *start(const wm_comm_t *comm, const char *name, const test_batch_t *b,
                            wm_compute_t compute, wm_model_t **model) {
  const wm_model_options_t kind = {.tile_rows = 16, .tile_vocab = 10, .writable = true};
  int64_t rows = b->starts[b->batch.rows.n_sequences];
  const wm_training_options_t options = {
      .trainable = EVERYTHING, .compute = compute, .max_rows = rows, .max_length = rows};
  wm_training_t *training;
  wm_error_t err = {0};
  char *dir = golden_path(name);
  check(wm_model_open(comm, dir, &kind, NULL, model, &err), &err);
  check(wm_training_create(*model, &options, &training, &err), &err);
  free(dir);
  return training;
}

/* Moments lie as gradients do. */
static void update(wm_training_t *training, int64_t step, double factor, float *m, float *v) {
  static const wm_schedule_t cosine = {WM_SCHEDULE_COSINE, 1e-2, 1e-3, 0, STEPS};
  static const wm_adamw_t adamw = {0.9, 0.999, 1e-8, 0.01};
  int64_t count, n;
  const float *g = wm_training_gradients(training, &n);
  const wm_parameter_t *p = wm_training_parameters(training, &count);
  for (int64_t i = 0; i < count; i++)
    wm_adamw_step(&adamw, step + 1, wm_schedule_rate(&cosine, step), factor, p[i].gradient,
                  p[i].elements, p[i].value, m + (p[i].gradient - g), v + (p[i].gradient - g));
  wm_training_sync(training);
}

static void check_trajectory(const wm_comm_t *comm, const char *name, wm_compute_t compute,
                             double loss_bound, double norm_bound) {
  wm_tensors_t *store = open_store("train/%s", "trajectory");
  char *loss_name = wm_format("%s.loss", name), *norm_name = wm_format("%s.norm", name);
  int64_t n, count;
  double *losses = copy_of(store, WM_DTYPE_F64, loss_name, &n);
  double *norms = copy_of(store, WM_DTYPE_F64, norm_name, &n), nll[8];
  assert_int_equal(n, STEPS);
  test_batch_t b = golden_batch(name);
  wm_model_t *model;
  wm_training_t *training = start(comm, name, &b, compute, &model);
  const float *g = wm_training_gradients(training, &count);
  float *m = array(count, sizeof *m), *v = array(count, sizeof *v);
  wm_training_result_t result = {nll, NULL};
  wm_error_t err = {0};
  double apart = 0;
  for (int64_t step = 0; step < STEPS; step++) {
    double loss = 0;
    wm_training_zero(training);
    check(wm_training_accumulate(training, &b.batch, NULL, &result, &err), &err);
    for (int64_t s = 0; s < b.batch.rows.n_sequences; s++)
      loss += b.batch.nll_scale * nll[s];
    double norm = sqrt(wm_sum_squares(g, count));
    const double scale = compute == WM_COMPUTE_F32 ? losses[step] : losses[0];
    if (!(fabs(loss - losses[step]) <= loss_bound * scale) ||
        !(fabs(norm - norms[step]) <=
          norm_bound * (compute == WM_COMPUTE_F32 ? norms[step] : norms[0])))
      fail_msg("%s: step %d: loss %.9g, expected %.9g; norm %.9g, expected %.9g", name, (int)step,
               loss, losses[step], norm, norms[step]);
    apart = fmax(apart, fabs(loss - losses[step]) / losses[step]);
    update(training, step, wm_clip_factor(norm, 1), m, v);
  }
  assert_true(compute == WM_COMPUTE_F32 || apart > 1e-5); /* something was rounded */
  assert_true(losses[STEPS - 1] < losses[0] / 2);
  free(losses), free(norms), free(loss_name), free(norm_name), free(m), free(v);
  free_batch(&b);
  wm_training_free(training);
  wm_model_close(model);
  wm_tensors_close(store);
}

static void fifty_steps_are_torchs(void **state) {
  check_trajectory(*state, "gpt2_inverse_layer", WM_COMPUTE_F32, 1e-5, 1e-4);
  check_trajectory(*state, "neox_sequential", WM_COMPUTE_F32, 1e-5, 1e-4);
}

/* Products of rounded operands with float32 master weights follow torch's trajectory in float64.
 * The losses fall by a factor of some tens in these steps, so that differences are told as parts of
 * where they begin. Weights kept in bfloat16 would stand still once a step is below 2^-9 of them.
 */
static void rounded_products_follow(void **state) {
  check_trajectory(*state, "gpt2_inverse_layer", WM_COMPUTE_BF16_EMULATED, 5e-3, 3e-2);
  check_trajectory(*state, "neox_sequential", WM_COMPUTE_BF16_EMULATED, 5e-3, 3e-2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(fifty_steps_are_torchs),
                                     cmocka_unit_test(rounded_products_follow)};
  return cmocka_run_group_tests(tests, fixture_start, fixture_stop);
}
