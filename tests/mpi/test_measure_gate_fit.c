/* Gates of one layer against scikit-learn (tests/oracle/gates_golden.py), rows dealt out to the
 * ranks; and what degenerate losses and features make of them. */
#include "test_measure_fixture.h"

#include "wanamaker/measure/auc.h"
#include "wanamaker/measure/gate_fit.h"
#include "wanamaker/measure/inference.h"
#include "wanamaker/measure/labels.h"

#include <math.h>

/* --- golden files -------------------------------------------------------------------------------
 */

enum { MAX_ARRAYS = 128, SEED = 5 };

typedef struct {
  int n;
  char name[MAX_ARRAYS][32];
  long count[MAX_ARRAYS];
  double *values[MAX_ARRAYS];
  int64_t fit, heldout, d;
  float *x, *full, *linear; /* [fit + heldout, D], [fit + heldout] twice */
} golden_t;

static FILE *open_data(const char *name, const char *ending) {
  char path[512];
  assert_non_null(getenv("WM_TEST_DATA"));
  snprintf(path, sizeof path, "%s/gates/%s.%s", getenv("WM_TEST_DATA"), name, ending);
  FILE *f = fopen(path, "rb");
  if (f == NULL)
    fail_msg("cannot open %s", path);
  return f;
}

static const double *golden(const golden_t *g, const char *name, long count) {
  for (int i = 0; i < g->n; i++)
    if (strcmp(g->name[i], name) == 0) {
      assert_int_equal(g->count[i], count);
      return g->values[i];
    }
  fail_msg("golden file has no %s", name);
  return NULL;
}

static golden_t *read_golden(const char *name) {
  golden_t *g = zeroed(1, sizeof *g);
  FILE *f = open_data(name, "txt");
  for (; g->n < MAX_ARRAYS && fscanf(f, "%31s %ld", g->name[g->n], &g->count[g->n]) == 2; g->n++) {
    g->values[g->n] = zeroed(g->count[g->n], sizeof(double));
    for (long i = 0; i < g->count[g->n]; i++)
      assert_int_equal(fscanf(f, "%lf", &g->values[g->n][i]), 1);
  }
  fclose(f);
  const double *sizes = golden(g, "sizes", 3);
  g->fit = (int64_t)sizes[0];
  g->heldout = (int64_t)sizes[1];
  g->d = (int64_t)sizes[2];
  const size_t n = (size_t)(g->fit + g->heldout), floats = n * (size_t)(g->d + 2);
  g->x = zeroed((int64_t)floats, sizeof(float));
  g->full = g->x + n * (size_t)g->d;
  g->linear = g->full + n;
  f = open_data(name, "f32");
  assert_int_equal(fread(g->x, sizeof(float), floats, f), floats);
  fclose(f);
  return g;
}

static void free_golden(golden_t *g) {
  for (int i = 0; i < g->n; i++)
    free(g->values[i]);
  free(g->x);
  free(g);
}

/* --- rows ---------------------------------------------------------------------------------------
 */

static wm_comm_t *world, *self;

/* Rows first .. first + count - 1 of a case: every rank has some, in chunks of three, and the last
 * rank of several the fewest. Free x and place. */
static wm_gate_rows_t deal(const wm_comm_t *comm, const golden_t *g, int64_t first, int64_t count) {
  float *x = zeroed(count * g->d, sizeof(float));
  int64_t *place = zeroed(count, sizeof(int64_t)), n = 0;
  for (int64_t i = 0; i < count; i++) {
    if (i / 3 % (2 * comm->size - 1) % comm->size != comm->rank)
      continue;
    memcpy(x + n * g->d, g->x + (first + i) * g->d, (size_t)g->d * sizeof *x);
    place[n++] = i;
  }
  return (wm_gate_rows_t){.n = n,
                          .x = x,
                          .place = place,
                          .total = count,
                          .full = g->full + first,
                          .linear = g->linear + first};
}

static void free_rows(wm_gate_rows_t *rows) {
  free((void *)rows->x);
  free((void *)rows->place);
}

static const wm_gate_spec_t SPECS[] = {
    {WM_GATE_RANDOM, 0}, /* before the linear gate: it has nothing to go by */
    {WM_GATE_LINEAR, 0},    {WM_GATE_PCA, 2},    {WM_GATE_PCA, 6},     {WM_GATE_PCA, 12},
    {WM_GATE_COMPONENT, 2}, {WM_GATE_NORM, 0},   {WM_GATE_MAX_ABS, 0}, {WM_GATE_KURTOSIS, 0},
    {WM_GATE_RANDOM, 0},    {WM_GATE_ORACLE, 0},
};
enum { N_SPECS = sizeof SPECS / sizeof SPECS[0], FIRST_SCORED = 1, LAST_SCORED = 8 };

static wm_gate_fit_options_t all_gates(void) {
  return (wm_gate_fit_options_t){
      .specs = SPECS, .n_specs = N_SPECS, .C = 1, .threshold = 0.5, .seed = SEED, .block = 8};
}

static wm_gates_t *fit(const wm_comm_t *comm, const golden_t *g, bool heldout, double *scores) {
  wm_gate_fit_options_t o = all_gates();
  wm_gates_t *gates = NULL;
  wm_gate_rows_t rows = deal(comm, g, 0, g->fit), held = deal(comm, g, g->fit, g->heldout);
  OK(wm_gates_create(4, g->d, wm_gate_fit_components(&o, g->d), &gates, err));
  OK(wm_gate_fit_layer(comm, 2, &rows, heldout ? &held : NULL, &o, gates, scores, err));
  assert_int_equal(gates->n, N_SPECS);
  assert_int_equal(gates->n_described, 1);
  free_rows(&rows);
  free_rows(&held);
  return gates;
}

/* --- against scikit-learn -----------------------------------------------------------------------
 */

/* Largest difference, relative to the largest element. */
static double difference(const double *a, const double *b, int64_t n) {
  double worst = 0, size = 0;
  for (int64_t i = 0; i < n; i++) {
    worst = fmax(worst, isnan(a[i]) ? INFINITY : fabs(a[i] - b[i]));
    size = fmax(size, fabs(b[i]));
  }
  return worst / size;
}

/* Both solve to the optimum; what is left is rounding, multiplied by the condition of a 13-digit
 * golden file: far below the 1e-4 that is asked for. */
static const double COEFFICIENTS = 1e-8, AUC = 1e-12;

static void expect(double got, double expected, double tolerance, const char *what) {
  if (!(fabs(got - expected) <= tolerance))
    fail_msg("%s: %.17g, expected %.17g within %g", what, got, expected, tolerance);
}

static double value(const golden_t *g, const char *gate, const char *member) {
  char name[96];
  snprintf(name, sizeof name, "%s.%s", gate, member);
  return *golden(g, name, 1);
}

/* Scores of all positions, and how many are on the other side of 0. */
static void check_scores(const golden_t *g, const wm_gates_t *gates, int64_t gate,
                         const char *label) {
  const int64_t n = g->fit + g->heldout;
  double *score = zeroed(n, sizeof *score);
  char name[96];
  snprintf(name, sizeof name, "%s.score", label);
  const double *expected = golden(g, name, (long)n);
  wm_gates_score(gates, gate, g->x, n, score);
  int64_t flipped = 0;
  for (int64_t i = 0; i < n; i++)
    flipped += (score[i] > 0) != (expected[i] > 0);
  assert_int_equal(flipped, 0);
  assert_true(difference(score, expected, n) < COEFFICIENTS);
  free(score);
}

static void check_weights(const golden_t *g, const wm_gate_t *gate, const char *label) {
  char name[96];
  if (gate->weight != NULL) {
    snprintf(name, sizeof name, "%s.weight", label);
    /* Features of all sizes: each weight times its scale. */
    const double *expected = golden(g, name, (long)g->d), *scale = golden(g, "scale", (long)g->d);
    double *a = zeroed(2 * g->d, sizeof *a), *b = a + g->d;
    for (int64_t j = 0; j < g->d; j++) {
      a[j] = gate->weight[j] * scale[j];
      b[j] = expected[j] * scale[j];
    }
    assert_true(difference(a, b, g->d) < COEFFICIENTS);
    free(a);
  } else {
    double scale = value(g, label, "scale"), bias = value(g, label, "bias");
    expect(gate->scale, scale, COEFFICIENTS * fabs(scale), label);
    expect(gate->bias, bias, COEFFICIENTS * fmax(fabs(bias), 1), label);
  }
  if (gate->kind == WM_GATE_PCA) {
    snprintf(name, sizeof name, "%s.coefficient", label);
    assert_true(difference(gate->coefficient, golden(g, name, (long)gate->components),
                           gate->components) < COEFFICIENTS);
  }
}

static void check_gate(const golden_t *g, const wm_gates_t *gates, int64_t index) {
  const wm_gate_t *gate = &gates->gates[index];
  const wm_gate_report_t *r = &gate->report;
  char label[32];
  wm_gate_label(gate, label, sizeof label);
  check_weights(g, gate, label);
  check_scores(g, gates, index, label);
  expect(r->auc, value(g, label, "auc"), AUC, label);
  expect(r->auc_heldout, value(g, label, "auc_heldout"), AUC, label);
  expect(r->accuracy, value(g, label, "accuracy"), AUC, label);
  expect(r->accuracy_heldout, value(g, label, "accuracy_heldout"), AUC, label);
  expect(r->r_delta, value(g, label, "r"), 1e-7, label);
  expect(r->r_delta_heldout, value(g, label, "r_heldout"), 1e-7, label);
  assert_true(r->iterations > 2 && r->iterations < 20);
  assert_true(r->loss > 0 && r->loss < log(2));
}

static void agrees_with_scikit_learn(void **state) {
  golden_t *g = read_golden(*state);
  const long most = g->d < 24 ? 6 : 12; /* components of the golden file */
  wm_gates_t *gates = fit(world, g, true, NULL);
  const wm_gate_layer_t *l = wm_gates_layer(gates, 2);
  expect(l->label_threshold, *golden(g, "threshold", 1), 1e-12, "threshold");
  assert_int_equal(llround(l->label_share * (double)l->positions), *golden(g, "ones", 1));
  assert_int_equal(l->label_quartile, strcmp(*state, "quartile") == 0);
  assert_int_equal(l->dropped, strcmp(*state, "plain") == 0 ? 3 : 0);
  assert_int_equal(l->dropped_heldout, strcmp(*state, "plain") == 0 ? 1 : 0);
  assert_int_equal(l->positions + l->dropped, g->fit);
  assert_int_equal(l->positions_heldout + l->dropped_heldout, g->heldout);
  assert_true(difference(l->mean, golden(g, "mean", (long)g->d), g->d) < 1e-12);
  assert_true(difference(l->scale, golden(g, "scale", (long)g->d), g->d) < 1e-12);
  assert_true(difference(l->variance, golden(g, "variance", most), most) < 1e-10);
  const double *components = golden(g, "components", most * (long)g->d);
  for (int64_t c = 0; c < most; c++)
    assert_true(difference(l->components + c * g->d, components + c * g->d, g->d) < 1e-9);
  for (int64_t i = FIRST_SCORED; i <= LAST_SCORED; i++)
    if (gates->gates[i].components <= most)
      check_gate(g, gates, i);
  wm_gates_free(gates);
  free_golden(g);
}

/* --- ranks and references -----------------------------------------------------------------------
 */

static void ranks_agree(void **state) {
  golden_t *g = read_golden(*state);
  double *sa = zeroed(2 * g->fit, sizeof *sa), *sb = sa + g->fit;
  wm_gates_t *a = fit(world, g, true, sa), *b = fit(self, g, true, sb);
  uint64_t fingerprint = wm_gates_fingerprint(a);
  assert_true(wm_all_equal(world->world, &fingerprint, sizeof fingerprint));
  if (world->size == 1)
    assert_true(fingerprint == wm_gates_fingerprint(b));
  for (int64_t i = 0; i < g->fit; i++) {
    assert_int_equal(sa[i] > 0, sb[i] > 0);
    assert_true(fabs(sa[i] - sb[i]) <= 1e-9);
  }
  for (int64_t i = 0; i < N_SPECS; i++)
    if (a->gates[i].weight != NULL)
      assert_true(difference(a->gates[i].weight, b->gates[i].weight, g->d) < 1e-9);
  wm_gates_free(a);
  wm_gates_free(b);
  free(sa);
  free_golden(g);
}

static void random_and_oracle(void **state) {
  golden_t *g = read_golden(*state);
  wm_gates_t *held = fit(world, g, true, NULL), *without = fit(world, g, false, NULL);
  const wm_gate_t *random = &held->gates[N_SPECS - 2], *linear = &held->gates[FIRST_SCORED];
  assert_true(random->fraction == linear->report.routed_heldout && random->seed == SEED);
  linear = &without->gates[FIRST_SCORED];
  assert_true(without->gates[N_SPECS - 2].fraction == linear->report.routed);
  assert_true(isnan(linear->report.auc_heldout) && isnan(linear->report.routed_heldout));
  assert_true(held->gates[0].fraction == 0.5);
  assert_string_equal(held->gates[0].report.note, "no linear gate: one half");
  const wm_gate_layer_t *l = wm_gates_layer(held, 2);
  assert_true(fabs(held->gates[N_SPECS - 1].report.routed * (double)g->fit -
                   l->better_share * (double)l->positions) < 1e-6);
  wm_gates_free(held);
  wm_gates_free(without);
  free_golden(g);
}

/* --- degenerate cases ---------------------------------------------------------------------------
 */

static void expect_note(const wm_gates_t *gates, const char *part) {
  for (int64_t i = FIRST_SCORED; i <= LAST_SCORED; i++)
    if (strstr(gates->gates[i].report.note, part) == NULL)
      fail_msg("gate %d says \"%s\", not \"%s\"", (int)i, gates->gates[i].report.note, part);
}

/* Every gate's score is the same everywhere. */
static void expect_constant(const golden_t *g, const wm_gates_t *gates, double score) {
  double *s = zeroed(g->fit, sizeof *s);
  for (int64_t i = FIRST_SCORED; i <= LAST_SCORED; i++) {
    wm_gates_score(gates, i, g->x, g->fit, s);
    for (int64_t p = 0; p < g->fit; p++)
      assert_true(s[p] == score);
    assert_true(isnan(gates->gates[i].report.auc));
  }
  free(s);
}

static void equal_deltas(void **state) {
  (void)state;
  golden_t *g = read_golden("plain");
  memcpy(g->linear, g->full, (size_t)(g->fit + g->heldout) * sizeof *g->full);
  wm_gates_t *gates = fit(world, g, true, NULL);
  expect_note(gates, "one class: all deltas are equal");
  const double n = (double)g->fit - 1; /* a loss is infinite */
  expect_constant(g, gates, log((n + 0.5) / 0.5));
  assert_true(gates->gates[FIRST_SCORED].report.routed == 1);
  wm_gates_free(gates);
  free_golden(g);
}

static void one_class(void **state) {
  (void)state;
  golden_t *g = read_golden("plain");
  for (int64_t i = 0; i < g->fit; i++)
    g->linear[i] = g->full[i] + (i % 3 == 0 ? -1.0f : 0.0f); /* the median is the maximum */
  wm_gates_t *gates = fit(world, g, true, NULL);
  expect_note(gates, "one class: no delta is above the threshold");
  wm_gates_free(gates);
  free_golden(g);
}

static void no_finite_delta(void **state) {
  (void)state;
  golden_t *g = read_golden("plain");
  for (int64_t i = 0; i < g->fit; i++)
    g->linear[i] = i % 2 ? NAN : INFINITY;
  wm_gates_t *gates = fit(world, g, true, NULL);
  const wm_gate_layer_t *l = wm_gates_layer(gates, 2);
  assert_int_equal(l->positions, 0);
  assert_int_equal(l->dropped, g->fit);
  expect_note(gates, "no delta is finite");
  expect_constant(g, gates, 0);
  assert_true(gates->gates[FIRST_SCORED].report.routed == 0);
  wm_gates_free(gates);
  free_golden(g);
}

/* One position of each class; then features that are all the same. */
static void hardly_any_positions(void **state) {
  (void)state;
  golden_t *g = read_golden("plain");
  g->fit = 2;
  g->linear[0] = g->full[0] - 1;
  g->linear[1] = g->full[1] + 1;
  wm_gates_t *gates = fit(world, g, true, NULL);
  const wm_gate_t *linear = &gates->gates[FIRST_SCORED];
  assert_non_null(strstr(linear->report.note, "2 positions for 24 features"));
  assert_true(linear->report.auc == 1);
  assert_non_null(strstr(gates->gates[LAST_SCORED - 4].report.note, "2 components, not 12"));
  wm_gates_free(gates);
  g->fit = 60;
  for (int64_t i = 1; i < g->fit + g->heldout; i++)
    memcpy(g->x + i * g->d, g->x, (size_t)g->d * sizeof *g->x);
  gates = fit(world, g, true, NULL);
  linear = &gates->gates[FIRST_SCORED];
  assert_non_null(strstr(linear->report.note, "24 constant features"));
  assert_true(linear->report.auc == 0.5 && isnan(linear->report.r_delta));
  assert_non_null(strstr(gates->gates[LAST_SCORED].report.note, "the feature is constant"));
  wm_gates_free(gates);
  free_golden(g);
}

/* --- labels -------------------------------------------------------------------------------------
 */

static void labels_by_hand(void **state) {
  (void)state;
  const double delta[] = {3, -1, NAN, 2, 2, INFINITY, 5, -INFINITY};
  wm_labels_t l;
  OK(wm_labels_find(delta, 8, &l, err));
  assert_true(l.threshold == 2 && !l.quartile);
  assert_int_equal(l.positions, 5);
  assert_int_equal(l.dropped, 3);
  assert_int_equal(l.ones, 3);
  assert_int_equal(l.better, 1);
  OK(wm_labels_find(delta + 3, 2, &l, err)); /* none is better */
  assert_true(l.threshold == 2 && l.quartile && l.ones == 2);
  OK(wm_labels_find(delta, 0, &l, err));
  assert_true(isnan(l.threshold) && l.positions == 0);
}

static void auc_by_hand(void **state) {
  (void)state;
  /* pairs of a one and a zero: 3 of 4 in order, one tie of them counts half */
  const double score[] = {1, 2, 2, 5, 9};
  const int8_t label[] = {0, 1, 0, 1, WM_LABEL_NONE}, same[] = {1, 1, 1, 1, 1};
  double auc;
  OK(wm_auc(score, label, 5, &auc, err));
  assert_true(auc == 3.5 / 4);
  OK(wm_auc(score, same, 5, &auc, err));
  assert_true(isnan(auc));
  const double unknown[] = {1, NAN, 3, 4, 5};
  OK(wm_auc(unknown, label, 5, &auc, err));
  assert_true(isnan(auc));
  assert_true(wm_accuracy(score, label, 5, 1.5) == 0.75);
  assert_true(isnan(wm_accuracy(score, label, 0, 0)));
}

/* The interval, stated anew: whole positions of the drawn units, the AUC of all of them. */
static void interval_by_repetition(int of_unit) {
  enum { MOST = 480, UNITS = 15, R = 200 };
  const int N = UNITS * of_unit;
  const wm_bootstrap_t b = {.resamples = R, .seed = 3, .confidence = 0.9};
  const wm_rng_t rng = {8, 1};
  static double score[MOST], drawn_score[MOST * UNITS];
  static int8_t label[MOST], drawn_label[MOST * UNITS];
  static int32_t unit[MOST];
  double auc[R], low, high, expected_low, expected_high;
  assert_true(N <= MOST);
  for (int i = 0; i < N; i++) {
    score[i] = floor(8 * wm_rng_uniform(rng, (uint64_t)i)); /* with ties */
    label[i] =
        i % 11 == 0 ? WM_LABEL_NONE : score[i] + 3 * wm_rng_normal(rng, 1000 + (uint64_t)i) > 4;
    unit[i] = i / of_unit;
    if (unit[i] == 4) /* of a unit without labels nothing is drawn */
      label[i] = WM_LABEL_NONE;
  }
  for (int r = 0; r < R; r++) {
    int64_t n = 0;
    for (int j = 0; j < UNITS - 1; j++) {
      int32_t u = (int32_t)wm_rng_below((wm_rng_t){b.seed, (uint64_t)r}, (uint64_t)j, UNITS - 1);
      u += u >= 4;
      for (int i = 0; i < N; i++)
        if (unit[i] == u) {
          drawn_score[n] = score[i];
          drawn_label[n++] = label[i];
        }
    }
    OK(wm_auc(drawn_score, drawn_label, n, &auc[r], err));
  }
  /* 14 units: the level is Phi(sqrt(14 / 13) t_{0.05, 13}) = 0.033047 (SciPy), 6.64 of 201 */
  assert_true(wm_sort_numbers(auc, R));
  expected_low = auc[6 - 1];
  expected_high = auc[R - 6];
  OK(wm_auc_interval(world->world, score, label, unit, N, UNITS, &b, &low, &high, err));
  assert_true(fabs(low - expected_low) < 1e-14 && fabs(high - expected_high) < 1e-14);
  assert_true(low > 0.5 && high < 1 && high - low > 0.03);
  score[0] = score[1] = NAN;
  OK(wm_auc_interval(world->world, score, label, unit, N, UNITS, &b, &low, &high, err));
  assert_true(isnan(low) && isnan(high));
  memset(unit, 0, sizeof unit);
  OK(wm_auc_interval(world->world, score + 8, label + 8, unit, N - 8, 1, &b, &low, &high, err));
  assert_true(isnan(low) && isnan(high));
}

/* By the positions, and by pairs of units where those are fewer. */
static void auc_interval_by_repetition(void **state) {
  (void)state;
  assert_false(wm_auc_is_paired(14 * 8, 14));
  interval_by_repetition(8);
  assert_true(wm_auc_is_paired(14 * 32 * 10 / 11, 14));
  interval_by_repetition(32);
}

int main(int argc, char **argv) {
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  OK(wm_comm_create(MPI_COMM_WORLD, &world, err));
  OK(wm_comm_create(MPI_COMM_SELF, &self, err));
#define CASE(test, name)                                                                           \
  { #test " " name, test, NULL, NULL, (void *)name }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(labels_by_hand),
      cmocka_unit_test(auc_by_hand),
      cmocka_unit_test(auc_interval_by_repetition),
      CASE(agrees_with_scikit_learn, "plain"),
      CASE(agrees_with_scikit_learn, "quartile"),
      CASE(agrees_with_scikit_learn, "wide"),
      CASE(ranks_agree, "plain"),
      CASE(ranks_agree, "wide"),
      CASE(random_and_oracle, "plain"),
      cmocka_unit_test(equal_deltas),
      cmocka_unit_test(one_class),
      cmocka_unit_test(no_finite_delta),
      cmocka_unit_test(hardly_any_positions),
  };
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  wm_comm_free(self);
  wm_comm_free(world);
  MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return failures;
}
