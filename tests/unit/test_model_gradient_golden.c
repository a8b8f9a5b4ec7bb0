/* Gradients of the golden models against transformers' autograd (tests/oracle/gradient_golden.py).
 *
 * The bound that the program promises is 1e-4 of a tensor's norm; for these small models rounding
 * leaves a tenth of that (test_model_gradients.c says why). */
#include "training_fixture.h"

#include <dirent.h>

static const double bound = 1e-5, penalty = 0.3;
enum { GATE_HIDDEN = 5 };

/* A case: CASE = MODEL[.PATHS[.study]]. */
typedef struct {
  const char *name;
  char model[64], paths[16];
  bool study;
  wm_tensors_t *golden, *expected;
} golden_t;

static golden_t parse(const char *name) {
  golden_t g = {.name = name};
  const char *dot = strchr(name, '.');
  size_t length = dot != NULL ? (size_t)(dot - name) : strlen(name);
  assert_true(length < sizeof g.model);
  memcpy(g.model, name, length);
  if (dot != NULL)
    snprintf(g.paths, sizeof g.paths, "%.*s", (int)strcspn(dot + 1, "."), dot + 1);
  g.study = strstr(name, ".study") != NULL;
  return g;
}

static wm_tensors_t *open_tensors(const char *format, const char *name) {
  char *inner = wm_format(format, name), *dir = golden_path(inner);
  wm_tensors_t *tensors;
  wm_error_t err = {0};
  check(wm_tensors_open(dir, &tensors, &err), &err);
  free(inner), free(dir);
  return tensors;
}

/* A copy of a tensor's data, on the heap: in the file it may lie unaligned. */
static void *copy_of(const wm_tensors_t *store, wm_dtype_t dtype, const char *format,
                     const char *name) {
  char *full = wm_format(format, name);
  const wm_tensor_t *t = wm_tensors_find(store, full);
  if (t == NULL)
    fail_msg("no tensor %s", full);
  assert_int_equal(t->dtype, dtype);
  void *copy = array(t->bytes, 1);
  memcpy(copy, t->data, (size_t)t->bytes);
  free(full);
  return copy;
}

static wm_layer_path_t *golden_paths(const golden_t *g, int64_t layers) {
  wm_layer_path_t *paths = array(layers, sizeof *paths);
  char number[8];
  for (int64_t i = 0; i < layers; i++) {
    if (g->paths[0] == '\0' || g->paths[i] == 'f')
      continue;
    snprintf(number, sizeof number, "%d", (int)i);
    paths[i].path = g->paths[i] == 's' ? WM_MLP_SURROGATE : WM_MLP_GATED;
    paths[i].weight = copy_of(g->golden, WM_DTYPE_F32, "surrogate.%s.weight", number);
    paths[i].bias = copy_of(g->golden, WM_DTYPE_F32, "surrogate.%s.bias", number);
  }
  return paths;
}

static void free_paths(wm_layer_path_t *paths, int64_t layers) {
  for (int64_t i = 0; i < layers; i++) {
    free((void *)paths[i].weight);
    free((void *)paths[i].bias);
  }
  free(paths);
}

static void set_gates(const golden_t *g, const wm_training_t *training) {
  int64_t count;
  const wm_parameter_t *p = wm_training_parameters(training, &count);
  for (int64_t i = 0; i < count; i++)
    if (p[i].group == WM_GROUP_GATES) {
      float *value = copy_of(g->golden, WM_DTYPE_F32, "value.%s", p[i].name);
      memcpy(p[i].value, value, (size_t)p[i].elements * sizeof *value);
      free(value);
    }
}

/* Every next token within the sequences is a target. */
static test_batch_t golden_batch(const golden_t *g) {
  test_batch_t b = {.starts = copy_of(g->expected, WM_DTYPE_I64, "%s", "starts"),
                    .ids = copy_of(g->expected, WM_DTYPE_I32, "%s", "ids")};
  int64_t n = wm_tensors_find(g->expected, "starts")->elements - 1, predicted = 0;
  b.sequences = array(n, sizeof *b.sequences);
  b.targets = array(b.starts[n], sizeof *b.targets);
  for (int64_t s = 0; s < n; s++)
    for (int64_t i = b.starts[s]; i < b.starts[s + 1]; i++) {
      b.targets[i] = i + 1 < b.starts[s + 1] ? b.ids[i + 1] : -1;
      predicted += b.targets[i] >= 0;
    }
  b.batch = (wm_training_batch_t){.rows = {n, b.starts},
                                  .ids = b.ids,
                                  .targets = b.targets,
                                  .sequences = b.sequences,
                                  .nll_scale = 1 / (double)predicted,
                                  .gate_scale = penalty / (double)b.starts[n]};
  return b;
}

/* Number of parameters that were compared. */
static int compare(const golden_t *g, const wm_training_t *training) {
  int64_t count;
  int compared = 0;
  const wm_parameter_t *p = wm_training_parameters(training, &count);
  for (int64_t i = 0; i < count; i++) {
    char *name = wm_format("gradient.%s", p[i].name);
    bool golden = wm_tensors_find(g->golden, name) != NULL;
    free(name);
    /* Of activations the golden file has one tensor; of a replaced MLP it has none. */
    if (!golden || p[i].gradient == NULL)
      continue;
    float *expected = copy_of(g->golden, WM_DTYPE_F32, "gradient.%s", p[i].name);
    double error = 0, size = 0;
    for (int64_t j = 0; j < p[i].elements; j++) {
      error += pow((double)p[i].gradient[j] - (double)expected[j], 2);
      size += pow((double)expected[j], 2);
    }
    if (!(sqrt(error) <= bound * sqrt(size)))
      fail_msg("%s: %s: relative error %.3g", g->name, p[i].name, sqrt(error / size));
    compared++;
    free(expected);
  }
  return compared;
}

static int golden_gradients(const golden_t *g) {
  int count = 0;
  for (int64_t i = 0; i < wm_tensors_count(g->golden); i++)
    count += strncmp(wm_tensors_at(g->golden, i)->name, "gradient.", 9) == 0;
  return count;
}

static int run_case(const wm_comm_t *comm, const golden_t *g, wm_model_t *model, uint32_t groups) {
  (void)comm;
  int64_t layers = wm_model_arch(model)->n_layers;
  wm_layer_path_t *paths = golden_paths(g, layers);
  test_batch_t b = golden_batch(g);
  int64_t n = b.batch.rows.n_sequences;
  const wm_training_options_t options = {.trainable = groups,
                                         .paths = paths,
                                         .gate_hidden = GATE_HIDDEN,
                                         .study_gradients = g->study,
                                         .max_rows = b.starts[n],
                                         .max_length = b.starts[n]};
  wm_training_t *training;
  wm_error_t err = {0};
  check(wm_training_create(model, &options, &training, &err), &err);
  set_gates(g, training);
  double *nll = array(n, sizeof *nll), *gate = array(n, sizeof *gate), loss = 0;
  double *expected = copy_of(g->golden, WM_DTYPE_F64, "%s", "loss");
  wm_training_result_t result = {nll, gate};
  check(wm_training_accumulate(training, &b.batch, NULL, &result, &err), &err);
  for (int64_t s = 0; s < n; s++)
    loss += b.batch.nll_scale * nll[s] + b.batch.gate_scale * gate[s];
  if (!(fabs(loss - *expected) <= 3e-6))
    fail_msg("%s: loss %.9g, expected %.9g", g->name, loss, *expected);
  int compared = compare(g, training);
  free(nll), free(gate), free(expected);
  wm_training_free(training);
  free_paths(paths, layers);
  free_batch(&b);
  return compared;
}

static void check_case(const wm_comm_t *comm, const char *name) {
  golden_t g = parse(name);
  g.golden = open_tensors("gradients/%s", name);
  g.expected = open_tensors("%s/expected", g.model);
  char *dir = golden_path(g.model);
  const wm_model_options_t options = {.tile_rows = 16, .tile_vocab = 10, .writable = true};
  wm_model_t *model;
  wm_error_t err = {0};
  check(wm_model_open(comm, dir, &options, NULL, &model, &err), &err);
  assert_int_equal(run_case(comm, &g, model, EVERYTHING), golden_gradients(&g));
  int sum = 0;
  for (int group = 0; group < WM_GROUP_COUNT; group++)
    sum += run_case(comm, &g, model, 1u << group);
  assert_int_equal(sum, golden_gradients(&g));
  wm_model_close(model);
  wm_tensors_close(g.golden);
  wm_tensors_close(g.expected);
  free(dir);
}

static void gradients_agree_with_autograd(void **state) {
  char *path = golden_path("gradients");
  struct dirent **entries;
  int n = scandir(path, &entries, NULL, alphasort), cases = 0;
  for (int i = 0; i < n; i++) {
    if (entries[i]->d_name[0] != '.') {
      check_case(*state, entries[i]->d_name);
      cases++;
    }
    free(entries[i]);
  }
  assert_true(cases >= 27);
  free(entries);
  free(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_agree_with_autograd)};
  return cmocka_run_group_tests(tests, fixture_start, fixture_stop);
}
