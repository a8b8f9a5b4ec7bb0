/* Every golden model (tests/oracle/model_golden.py) against what transformers computed from it.
 *
 * Bound: a sum of K float32 products errs by at most K eps of the sum of magnitudes (eps = 6e-8),
 * in practice by sqrt(K) eps; with K <= 144, two layers of four products each, norms that magnify
 * by a factor of a few, and values compared to the largest one, 1e-5 leaves a factor of ten over
 * what is seen. A wrong activation, scale, bias, rotation or order of the residual gives 1e-3 or
 * far more. */
#include "model_fixture.h"

#include <dirent.h>
#include <math.h>

static const double bound = 1e-5;

static const float *expected_f32(const wm_tensors_t *t, const char *name, int64_t elements) {
  const wm_tensor_t *tensor = wm_tensors_find(t, name);
  assert_non_null(tensor);
  assert_int_equal(tensor->dtype, WM_DTYPE_F32);
  assert_int_equal(tensor->elements, elements);
  float *copy = array(elements, sizeof *copy);
  memcpy(copy, tensor->data, (size_t)tensor->bytes);
  return copy;
}

static void compare(const char *what, const char *name, const float *found, const wm_tensors_t *t,
                    int64_t elements) {
  const float *expected = expected_f32(t, what, elements);
  double difference = relative_difference(found, expected, elements);
  if (!(difference <= bound))
    fail_msg("%s: %s differs by %.3g of its largest value", name, what, difference);
  free((void *)expected);
}

/* Copies an integer or float64 tensor out of the file, where it may lie unaligned. */
static void *copy_of(const wm_tensors_t *t, const char *name, wm_dtype_t dtype, int64_t *count) {
  const wm_tensor_t *tensor = wm_tensors_find(t, name);
  assert_non_null(tensor);
  assert_int_equal(tensor->dtype, dtype);
  void *copy = array(tensor->bytes, 1);
  memcpy(copy, tensor->data, (size_t)tensor->bytes);
  *count = tensor->elements;
  return copy;
}

static void compare_nll(const char *name, const pass_t *pass, const wm_tensors_t *t) {
  int64_t n;
  double *nll = copy_of(t, "nll", WM_DTYPE_F64, &n), largest = 0, sum = 0;
  assert_int_equal(n, pass->n);
  for (int64_t i = 0; i < n; i++) {
    largest = fmax(largest, fabs(nll[i] - pass->nll[i]));
    sum += nll[i] - pass->nll[i];
    assert_true(isfinite(pass->nll[i]));
  }
  if (largest > 3e-5 || fabs(sum / (double)n) > 3e-6)
    fail_msg("%s: NLL differs by %.3g, on average by %.3g", name, largest, sum / (double)n);
  free(nll);
}

static void check_model(const wm_comm_t *comm, const char *name, int64_t tile_rows,
                        int64_t tile_vocab) {
  wm_error_t err = {0};
  wm_tensors_t *expected;
  char *dir = golden_path(name), *expected_dir = wm_format("%s/expected", dir);
  check(wm_tensors_open(expected_dir, &expected, &err), &err);
  int64_t n, n_starts;
  int32_t *ids = copy_of(expected, "ids", WM_DTYPE_I32, &n);
  int64_t *starts = copy_of(expected, "starts", WM_DTYPE_I64, &n_starts);
  wm_model_t *model = open_model(comm, dir, tile_rows, tile_vocab);
  const wm_arch_t *a = wm_model_arch(model);
  wm_batch_t batch = {n_starts - 1, starts};
  pass_t pass = run_model(model, &batch, ids);
  compare("logits", name, pass.logits, expected, n * a->vocab_size);
  compare_nll(name, &pass, expected);
  if (wm_tensors_find(expected, "x") != NULL) {
    compare("x", name, pass.x, expected, a->n_layers * n * a->d_model);
    compare("y", name, pass.y, expected, a->n_layers * n * a->d_model);
  }
  pass_free(&pass);
  wm_model_close(model);
  wm_tensors_close(expected);
  free(starts);
  free(ids);
  free(expected_dir);
  free(dir);
}

static int is_model(const struct dirent *entry) {
  return strncmp(entry->d_name, "gpt2_", 5) == 0 || strncmp(entry->d_name, "neox_", 5) == 0;
}

/* Tiles that do and don't divide 17 rows and 23 or 61 tokens. */
static void all_models_agree_with_transformers(void **state) {
  char *root = golden_path("");
  struct dirent **entries;
  int count = scandir(root, &entries, is_model, alphasort);
  assert_true(count >= 57);
  for (int i = 0; i < count; i++) {
    check_model(*state, entries[i]->d_name, 512, 4096);
    check_model(*state, entries[i]->d_name, 4, 7);
    free(entries[i]);
  }
  free(entries);
  free(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_models_agree_with_transformers)};
  return cmocka_run_group_tests(tests, fixture_start, fixture_stop);
}
