/* Models of odd sizes and long sequences: the fast forward pass against the reference one, and
 * bit for bit against itself in other company. */
#include "model_writer.h"
#include "row_order.h"

#include "wanamaker/model/reference.h"

#include <math.h>
#include <omp.h>

static const random_spec_t specs[] = {
    {WM_FAMILY_GPT2, 2, 3, 36, 211, 200, false},
    {WM_FAMILY_GPT2, 1, 1, 21, 50, 200, false},
    {WM_FAMILY_GPT_NEOX, 2, 3, 60, 211, 200, true},
    {WM_FAMILY_GPT_NEOX, 2, 5, 60, 101, 200, false},
};
enum { N_SPECS = sizeof specs / sizeof *specs };

static int32_t *random_ids(int64_t n, uint64_t stream, int64_t v) {
  int32_t *ids = array(n, sizeof *ids);
  for (int64_t i = 0; i < n; i++)
    ids[i] = (int32_t)wm_rng_below((wm_rng_t){5, stream}, (uint64_t)i, (uint64_t)v);
  return ids;
}

/* Bound: as in test_model_golden.c. */
static void compare_with_reference(const wm_comm_t *comm, const random_spec_t *spec, int64_t n,
                                   wm_tiles_t tiles) {
  char *dir = model_directory();
  write_random_model(dir, spec);
  wm_error_t err = {0};
  wm_model_t *model = open_model(comm, dir, 50, 64);
  check(wm_model_set_tiles(model, tiles, &err), &err);
  assert_int_equal(wm_model_tiles(model), tiles);
  int32_t *ids = random_ids(n, 1, spec->v);
  int64_t starts[] = {0, n}, size = spec->layers * n * spec->d;
  wm_batch_t batch = {1, starts};
  pass_t pass = run_model(model, &batch, ids);
  double *x = array(size, sizeof *x), *y = array(size, sizeof *y);
  double *logits = array(n * spec->v, sizeof *logits);
  float *rounded = array(size > n * spec->v ? size : n * spec->v, sizeof *rounded);
  check(wm_reference_forward(model, ids, n, x, y, logits, &err), &err);
  for (int64_t i = 0; i < n * spec->v; i++)
    rounded[i] = (float)logits[i];
  assert_true(relative_difference(pass.logits, rounded, n * spec->v) < 1e-5);
  for (int64_t i = 0; i < size; i++)
    rounded[i] = (float)x[i];
  assert_true(relative_difference(pass.x, rounded, size) < 1e-5);
  for (int64_t i = 0; i < size; i++)
    rounded[i] = (float)y[i];
  assert_true(relative_difference(pass.y, rounded, size) < 1e-5);
  for (int64_t i = 0; i + 1 < n; i++)
    assert_true(fabs(pass.nll[i] - wm_reference_nll(logits + i * spec->v, spec->v, ids[i + 1])) <
                5e-5);
  free(x), free(y), free(logits), free(rounded), free(ids);
  pass_free(&pass);
  wm_model_close(model);
  remove_model_directory(dir);
}

static void agrees_with_reference(void **state) {
  static const int64_t lengths[] = {1, 2, 64, 65, 200};
  for (int i = 0; i < N_SPECS; i++)
    for (int k = 0; k < 5; k++)
      for (int tiles = 0; tiles < 2; tiles++)
        compare_with_reference(*state, &specs[i], lengths[k], (wm_tiles_t)tiles);
}

/* Runs sequences of the given lengths and returns results; ids of sequence i come from streams[i].
 */
static pass_t run_sequences(wm_model_t *model, int count, const int64_t *lengths,
                            const uint64_t *streams, int64_t *starts) {
  int64_t v = wm_model_arch(model)->vocab_size;
  starts[0] = 0;
  for (int i = 0; i < count; i++)
    starts[i + 1] = starts[i] + lengths[i];
  int32_t *ids = array(starts[count], sizeof *ids);
  for (int i = 0; i < count; i++) {
    int32_t *own = random_ids(lengths[i], streams[i], v);
    memcpy(ids + starts[i], own, (size_t)lengths[i] * sizeof *ids);
    free(own);
  }
  wm_batch_t batch = {count, starts};
  pass_t pass = run_model(model, &batch, ids);
  free(ids);
  return pass;
}

/* The sequence of stream 1 alone and at several places of several batches: identical bits. */
static void compare_bits(const wm_comm_t *comm, const random_spec_t *spec, int threads) {
  enum { LENGTH = 131 };
  static const int64_t lengths[][4] = {
      {LENGTH, 7, 1, 2}, {3, LENGTH, 64, 1}, {200, 1, LENGTH, 5}, {64, 13, 199, LENGTH}};
  omp_set_num_threads(threads);
  char *dir = model_directory();
  write_random_model(dir, spec);
  wm_model_t *model = open_model(comm, dir, 50, 64);
  int64_t starts[5], n_alone = LENGTH, d = spec->d;
  const uint64_t stream_alone = 1;
  pass_t alone = run_sequences(model, 1, &n_alone, &stream_alone, starts);
  for (int place = 0; place < 4; place++) {
    uint64_t streams[4] = {10, 11, 12, 13};
    streams[place] = 1;
    pass_t p = run_sequences(model, 4, lengths[place], streams, starts);
    int64_t first = starts[place];
    assert_memory_equal(p.nll + first, alone.nll, LENGTH * sizeof(double));
    assert_memory_equal(p.logits + first * spec->v, alone.logits,
                        (size_t)(LENGTH * spec->v) * sizeof(float));
    for (int64_t l = 0; l < spec->layers; l++)
      assert_memory_equal(p.y + (l * p.n + first) * d, alone.y + l * LENGTH * d,
                          (size_t)(LENGTH * d) * sizeof(float));
    pass_free(&p);
  }
  pass_free(&alone);
  wm_model_close(model);
  remove_model_directory(dir);
  omp_set_num_threads(1);
}

static void results_depend_on_the_sequence_alone(void **state) {
  skip_if_blas_tells_rows_apart();
  for (int i = 0; i < N_SPECS; i++)
    for (int threads = 1; threads <= 3; threads++)
      compare_bits(*state, &specs[i], threads);
}

/* Rows without a target are skipped, and their values do not change the others' bits. */
static void nll_skips_rows_without_target(void **state) {
  enum { N = 120 };
  skip_if_blas_tells_rows_apart();
  char *dir = model_directory();
  write_random_model(dir, &specs[0]);
  wm_model_t *model = open_model(*state, dir, 50, 64);
  wm_workspace_t *ws;
  wm_error_t err = {0};
  check(wm_workspace_create(model, N, N, &ws, &err), &err);
  float *h = array(N * 36, sizeof *h);
  for (int64_t i = 0; i < N * 36; i++)
    h[i] = (float)wm_rng_normal((wm_rng_t){1, 1}, (uint64_t)i);
  int32_t targets[N];
  double all[N], some[N];
  for (int i = 0; i < N; i++)
    targets[i] = i % 211;
  check(wm_model_nll(model, h, N, targets, all, ws, &err), &err);
  for (int i = 0; i < N; i++) {
    some[i] = -7;
    if (i % 3 == 0) {
      targets[i] = -1;
      h[i * 36] = NAN;
    }
  }
  check(wm_model_nll(model, h, N, targets, some, ws, &err), &err);
  for (int i = 0; i < N; i++)
    assert_true(some[i] == (i % 3 == 0 ? -7 : all[i]));
  targets[5] = 211;
  assert_int_equal(wm_model_nll(model, h, N, targets, some, ws, &err), WM_INPUT);
  assert_non_null(strstr(err.message, "211"));
  free(h);
  wm_workspace_free(ws);
  wm_model_close(model);
  remove_model_directory(dir);
}

static void embedding_refuses_bad_input(void **state) {
  char *dir = model_directory();
  write_random_model(dir, &specs[0]);
  wm_model_t *model = open_model(*state, dir, 50, 64);
  float *h = array(201 * 36, sizeof *h);
  int32_t *ids = array(201, sizeof *ids);
  wm_error_t err = {0};
  int64_t starts[] = {0, 201};
  wm_batch_t batch = {1, starts};
  assert_int_equal(wm_model_embed(model, &batch, ids, h, &err), WM_INPUT);
  assert_non_null(strstr(err.message, "201 tokens exceeds the model's 200"));
  starts[1] = 200;
  check(wm_model_embed(model, &batch, ids, h, &err), &err);
  ids[17] = 211;
  assert_int_equal(wm_model_embed(model, &batch, ids, h, &err), WM_INPUT);
  assert_non_null(strstr(err.message, "211"));
  ids[17] = -1;
  assert_int_equal(wm_model_embed(model, &batch, ids, h, &err), WM_INPUT);
  free(h), free(ids);
  wm_model_close(model);
  remove_model_directory(dir);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(agrees_with_reference),
      cmocka_unit_test(results_depend_on_the_sequence_alone),
      cmocka_unit_test(nll_skips_rows_without_target),
      cmocka_unit_test(embedding_refuses_bad_input),
  };
  return cmocka_run_group_tests(tests, fixture_start, fixture_stop);
}
