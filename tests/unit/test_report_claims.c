/* Verdicts of claims on made-up results: whole ones, and what those lack that are not tested. */
#include "report_fixture.h"

static wm_error_t err;

/* A sweep with gates: layers [0, costs) alone, layers [first, last] by their gates, and layers
 * 1..joint by gates together. All of a kind have the same value, with an interval of +- half. */
typedef struct {
  const char *family, *layers, *width, *parameters;
  int costs, first, last, joint;
  double cost, gain, auc, larger, half;
} shape_t;

static const shape_t medium = {"GPT-2", "24", "1024", "350000000", 24,   1,    23,
                               23,      1,    -1,     0.57,        0.56, 0.005};
static const shape_t large = {"GPT-2", "36", "1280", "770000000", 36,   0,    35,
                              35,      1,    -1,     0.57,        0.56, 0.005};
static const shape_t pythia = {"GPT-NeoX", "32", "2560", "2800000000", 32,   0,    31,
                               0,          3,    -1,     0.57,         0.56, 0.005};

static double *numbers(wm_frame_t *f, const char *name) {
  for (int c = 0; c < f->n_columns; c++)
    if (strcmp(f->columns[c].name, name) == 0)
      return f->columns[c].numbers;
  fail_msg("no column %s", name);
  return NULL;
}

static void add_gates(wm_results_t *r, const shape_t *s, int64_t n) {
  r->gate_layers.n = n;
  r->gates.n = 2 * n;
  double *layer = column(&r->gate_layers, "layer"), *gate = column(&r->gate_layers, "gate");
  column(&r->gate_layers, "selected_threshold");
  double *of = column(&r->gates, "layer"), *components = column(&r->gates, "components");
  double *auc = column(&r->gates, "auc_heldout"), *low = column(&r->gates, "auc_low");
  double *high = column(&r->gates, "auc_high");
  char *kind = words(&r->gates, "kind");
  for (int64_t g = 0; g < 2 * n; g++) {
    layer[g / 2] = of[g] = (double)(s->first + g / 2);
    gate[g / 2] = (double)(g / 2 * 2);
    components[g] = g % 2 == 0 ? 0 : 3;
    strcpy(kind + 16 * g, g % 2 == 0 ? "linear" : "pca");
    auc[g] = g % 2 == 0 ? s->auc : s->larger;
    low[g] = auc[g] - s->half;
    high[g] = auc[g] + s->half;
  }
}

static wm_results_t build(const shape_t *s) {
  wm_results_t r = {.tolerance = 3, .n_units = 50};
  const int64_t gates = s->last - s->first + 1;
  attribute(&r, "model_family", s->family);
  attribute(&r, "model_layers", s->layers);
  attribute(&r, "model_width", s->width);
  attribute(&r, "model_parameters", s->parameters);
  r.variants.n = 1 + s->costs + gates + (s->joint > 0);
  r.changes.n = gates + s->joint;
  double *delta = column(&r.variants, "delta_pct"), *low = column(&r.variants, "low");
  double *high = column(&r.variants, "high"), *beats = column(&r.variants, "beats_full");
  double *routed = column(&r.variants, "routed_fraction"),
         *saved = column(&r.variants, "saved_pct");
  double *ppl = column(&r.variants, "ppl");
  char *layers = words(&r.variants, "layers"), *path = words(&r.variants, "path");
  double *variant = column(&r.changes, "variant"), *layer = column(&r.changes, "layer");
  double *gate = column(&r.changes, "gate");
  column(&r.changes, "threshold");
  for (int64_t v = 0; v < r.variants.n; v++) {
    const bool alone = v > 0 && v <= s->costs;
    strcpy(path + 16 * v, v == 0 ? "full" : alone ? "surrogate" : "gate");
    if (alone)
      snprintf(layers + 16 * v, 16, "%d", (int)v - 1);
    ppl[v] = 20;
    delta[v] = v == 0 ? 0 : alone ? s->cost : s->gain;
    low[v] = delta[v] - s->half;
    high[v] = delta[v] + s->half;
    beats[v] = v > s->costs && s->gain < 0;
    routed[v] = 0.4;
    saved[v] = 21;
  }
  for (int64_t c = 0; c < r.changes.n; c++) {
    variant[c] = (double)(1 + s->costs + (c < gates ? c : gates));
    layer[c] = (double)(c < gates ? s->first + c : c - gates + 1);
    gate[c] = (double)(2 * (c < gates ? c : 0));
  }
  add_gates(&r, s, gates);
  assert_int_equal(wm_results_derive(&r, &err), WM_OK);
  return r;
}

/* The verdict of one claim on these results and, where it is not tested, the reason. */
static void expect_all(wm_results_t *r, int64_t n, const char *id, wm_claim_verdict_t verdict,
                       const char *reason) {
  wm_published_t p;
  wm_claim_t claims[WM_CLAIMS];
  assert_int_equal(wm_published_read(&p, &err), WM_OK);
  for (int64_t i = 0; i < n; i++)
    assert_int_equal(wm_results_derive(&r[i], &err), WM_OK);
  assert_int_equal(wm_ledger(&p, r, n, claims, &err), WM_OK);
  const wm_claim_t *c = claim(claims, &p, id);
  if (c->verdict != verdict || strcmp(c->reason, reason) != 0)
    fail_msg("%s is %s (%s) instead of %s (%s)", id, wm_claim_verdict_name(c->verdict), c->reason,
             wm_claim_verdict_name(verdict), reason);
  assert_true(c->same_model);
  wm_published_destroy(&p);
}

static void expect(wm_results_t *r, const char *id, wm_claim_verdict_t verdict,
                   const char *reason) {
  expect_all(r, 1, id, verdict, reason);
}

static void expect_shape(shape_t s, const char *id, wm_claim_verdict_t verdict,
                         const char *reason) {
  wm_results_t r = build(&s);
  expect(&r, id, verdict, reason);
  wm_results_destroy(&r);
}

/* A part of the layers is no count or share of all. */
static void test_part_of_layers(void **state) {
  (void)state;
  static const char *const whole[] = {"C01", "C02", "C08", "C09", "C13", "C18"};
  for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
    expect_shape(medium, whole[i], WM_REPRODUCED, "");
  shape_t s = medium;
  s.costs = 1;
  expect_shape(s, "C01", WM_NOT_TESTED, "measured on 1 of 24 layers");
  s.costs = 23;
  expect_shape(s, "C01", WM_NOT_TESTED, "measured on 23 of 24 layers");
  s = medium;
  s.first = 0;
  s.last = 1;
  s.gain = 1; /* both are worse, but two can never be four */
  expect_shape(s, "C02", WM_NOT_TESTED, "a gate is measured on 2 of 24 layers");
  expect_shape(s, "C08", WM_NOT_TESTED, "a gate is measured on 2 of 24 layers");
  expect_shape(s, "C09", WM_NOT_TESTED, "a linear gate is fitted on 2 of 24 layers");
  expect_shape(s, "C18", WM_NOT_TESTED, "both kinds of gates are fitted on 2 of 24 layers");
  s = medium;
  s.last = 22;
  expect_shape(s, "C02", WM_NOT_TESTED, "a gate is measured on 22 of 23 layers (1 to 23)");
  s = medium;
  s.costs = 3;
  s.joint = 2;
  expect_shape(s, "C13", WM_NOT_TESTED, "gates route 2 of 24 layers together");
  s.joint = 22;
  expect_shape(s, "C13", WM_NOT_TESTED, "gates route 22 of 24 layers together");
  s.joint = 23;
  expect_shape(s, "C13", WM_REPRODUCED, "");
  expect_shape(large, "C03", WM_REPRODUCED, "");
  expect_shape(large, "C04", WM_REPRODUCED, "");
  s = large;
  s.first = 1;
  expect_shape(s, "C03", WM_NOT_TESTED, "a gate is measured on 35 of 36 layers");
  s.costs = 35;
  s.cost = 9;
  expect_shape(s, "C04", WM_NOT_TESTED, "measured on 35 of 36 layers");
  expect_shape(pythia, "C05", WM_CONTRADICTED, "");
  expect_shape(pythia, "C06", WM_REPRODUCED, "");
  expect_shape(pythia, "C07", WM_REPRODUCED, "");
  s = pythia;
  s.costs = 9;
  expect_shape(s, "C06", WM_NOT_TESTED, "measured on 2 of 9 layers (7 to 15)");
}

/* Without an interval, or from three units, nobody can say. */
static void test_intervals(void **state) {
  (void)state;
  static const struct {
    const char *id, *reason; /* of undefined intervals in all rows */
    const shape_t *shape;
  } cases[] = {{"C01", "24 of 24 layers have no interval", &medium},
               {"C02", "23 of 23 layers (1 to 23) have no interval", &medium},
               {"C03", "36 of 36 layers have no interval", &large},
               {"C04", "36 of 36 layers have no interval", &large},
               {"C05", "the interval is undefined", &pythia},
               {"C06", "9 of 9 layers (7 to 15) have no interval", &pythia},
               {"C07", "the interval is undefined", &pythia},
               {"C08", "23 of 23 layers (1 to 23) have no interval", &medium},
               {"C20", "32 of 32 layers have no interval", &pythia}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    wm_results_t r = build(cases[i].shape);
    for (int64_t v = 0; v < r.variants.n; v++)
      numbers(&r.variants, "low")[v] = numbers(&r.variants, "high")[v] = NAN;
    expect(&r, cases[i].id, WM_NOT_TESTED, cases[i].reason);
    wm_results_destroy(&r);
    r = build(cases[i].shape);
    r.n_units = 3;
    expect(&r, cases[i].id, WM_NOT_TESTED, "fewer than ten units to resample: 3");
    wm_results_destroy(&r);
  }
  wm_results_t r = build(&medium);
  numbers(&r.variants, "high")[7] = NAN; /* one end of one layer */
  expect(&r, "C01", WM_NOT_TESTED, "1 of 24 layers have no interval");
  expect(&r, "C02", WM_REPRODUCED, "");
  wm_results_destroy(&r);
  static const char *const members[] = {"auc_heldout", "auc_low", "auc_high"};
  for (int m = 0; m < 3; m++) {
    r = build(&medium);
    for (int64_t g = 0; g < r.gates.n; g++)
      numbers(&r.gates, members[m])[g] = NAN;
    expect(&r, "C09", WM_NOT_TESTED, "23 of 23 layers (1 to 23) have no interval");
    expect(&r, "C18", WM_NOT_TESTED, "23 of 23 layers (1 to 23) have no interval");
    wm_results_destroy(&r);
  }
}

static wm_results_t sized(const char *layers, const char *width, const char *parameters,
                          double cost) {
  shape_t s = pythia;
  s.layers = layers;
  s.width = width;
  s.parameters = parameters;
  s.costs = s.last = (int)strtol(layers, NULL, 10);
  s.last--;
  s.cost = cost;
  return build(&s);
}

/* Every pair of different sizes is compared, and there must be one. */
static void test_sizes(void **state) {
  (void)state;
  static const char one[] = "1 size of Pythia with all its layers is here, and two are compared";
  static const struct {
    double costs[3]; /* of 410M, 1B and 2.8B; 0: not there */
    wm_claim_verdict_t verdict;
  } cases[] = {{{3, 2, 1}, WM_REPRODUCED},
               {{3, 0, 1}, WM_REPRODUCED},
               {{3, 3.005, 1}, WM_NOT_REPRODUCED},
               {{3, 1, 2}, WM_CONTRADICTED},
               {{1, 0, 3}, WM_CONTRADICTED}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    wm_results_t r[3];
    int n = 0;
    if (cases[i].costs[2] > 0) /* in no order of sizes */
      r[n++] = sized("32", "2560", "2800000000", cases[i].costs[2]);
    if (cases[i].costs[0] > 0)
      r[n++] = sized("24", "1024", "400000000", cases[i].costs[0]);
    if (cases[i].costs[1] > 0)
      r[n++] = sized("16", "2048", "1000000000", cases[i].costs[1]);
    expect_all(r, n, "C20", cases[i].verdict, "");
    for (int k = 0; k < n; k++)
      wm_results_destroy(&r[k]);
  }
  wm_results_t twice[] = {sized("32", "2560", "2800000000", 3),
                          sized("32", "2560", "2800000000", 1),
                          sized("16", "2048", "1000000000", 9)};
  expect_all(twice, 2, "C20", WM_NOT_TESTED, one);
  expect_all(twice, 3, "C20", WM_REPRODUCED, "");
  twice[2].n_units = 9; /* then it is none to compare with */
  expect_all(twice, 3, "C20", WM_NOT_TESTED, one);
  for (int k = 0; k < 3; k++)
    wm_results_destroy(&twice[k]);
}

/* A training of so many linear layers, and its control, that end at `change` +- half percent. */
static wm_results_t trained(wm_file_kind_t kind, const char *plan, const char *tokens,
                            double layers, double change, double half) {
  wm_results_t r = build(&medium);
  wm_training_result_t *t = kind == WM_FILE_FINETUNE ? &r.training : &r.control;
  attribute_of(&r, kind, "plan", plan);
  attribute_of(&r, kind, "tokens_seen", tokens);
  t->n = 1;
  snprintf(t->ranges[0].name, sizeof t->ranges[0].name, "evaluation");
  wm_frame_t *table = &t->ranges[0].table;
  table->n = 2;
  t->phases.n = 1;
  column(&t->phases, "linear")[0] = layers;
  column(table, "hard");
  column(table, "delta_pct")[1] = change;
  column(table, "low")[1] = change - half;
  column(table, "high")[1] = change + half;
  return r;
}

static void test_trainings(void **state) {
  (void)state;
  static const struct {
    const char *id, *plan, *tokens, *reason;
    double layers, change, half;
    wm_claim_verdict_t verdict;
  } cases[] = {
      {"C15", "linearize", "512000", "", 4, -12, 1, WM_REPRODUCED},
      {"C15", "linearize", "512000", "", 4, -8, 1, WM_NOT_REPRODUCED},
      {"C15", "linearize", "512000", "", 4, 2, 1, WM_CONTRADICTED},
      {"C15", "linearize", "512000", "trained with 2 layers linear, in the study with 4", 2, -12, 1,
       WM_NOT_TESTED},
      {"C15", "linearize", "512000", "trained with 8 layers linear, in the study with 4", 8, -12, 1,
       WM_NOT_TESTED},
      {"C15", "linearize", "1280000", "trained on 1280000 tokens, in the study on 512000", 4, -12,
       1, WM_NOT_TESTED},
      {"C15", "linearize", "512000", "the interval is undefined", 4, -12, NAN, WM_NOT_TESTED},
      {"C16", "two_phase", "1280000", "", 4, -17, 1, WM_REPRODUCED},
      {"C16", "two_phase", "1280000", "trained with 8 layers linear, in the study with 4", 8, -17,
       1, WM_NOT_TESTED},
      {"C16", "two_phase", "512000", "trained on 512000 tokens, in the study on 1280000", 4, -17, 1,
       WM_NOT_TESTED},
      {"C16", "two_phase", "1280000", "the interval is undefined", 4, -17, NAN, WM_NOT_TESTED},
      {"C17", "control", "102400", "", 0, -16, 2, WM_REPRODUCED},
      {"C17", "control", "512000", "", 0, -16, 2, WM_NOT_REPRODUCED}, /* -20.6 by then */
      {"C17", "control", "512000", "", 0, -20, 2, WM_REPRODUCED},
      {"C17", "control", "256000", "trained on 256000 tokens, in the study on 102400 or 512000", 0,
       -20, 2, WM_NOT_TESTED},
      {"C17", "control", "512000", "the interval is undefined", 0, -20, NAN, WM_NOT_TESTED}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const bool control = strcmp(cases[i].plan, "control") == 0;
    wm_results_t r = trained(control ? WM_FILE_CONTROL : WM_FILE_FINETUNE, cases[i].plan,
                             cases[i].tokens, cases[i].layers, cases[i].change, cases[i].half);
    expect(&r, cases[i].id, cases[i].verdict, cases[i].reason);
    (control ? &r.control : &r.training)->n_units = 9;
    expect(&r, cases[i].id, WM_NOT_TESTED,
           cases[i].verdict != WM_NOT_TESTED || isnan(cases[i].half)
               ? "fewer than ten units to resample: 9"
               : cases[i].reason);
    wm_results_destroy(&r);
  }
}

/* --- probes --- */

/* A row for each of `n` layers from `first` on, every `step`: `value` +- half. */
static void fill(wm_frame_t *f, int64_t n, int first, int step, const char *member, double value,
                 double half) {
  f->n = n;
  double *layer = column(f, "layer"), *x = column(f, member), *low = column(f, "low");
  double *high = column(f, "high");
  for (int64_t i = 0; i < n; i++) {
    layer[i] = (double)(first + step * i);
    x[i] = value;
    low[i] = value - half;
    high[i] = value + half;
  }
}

/* Whole input and context part of layers [0, layers). */
static wm_results_t context(int64_t layers, double gap, double half) {
  wm_results_t r = build(&medium);
  fill(&r.context, 2 * layers, 0, 0, "auc", 0.57, half);
  char *label = words(&r.context, "label"), *gate = words(&r.context, "gate");
  char *view = words(&r.context, "view");
  for (int64_t i = 0; i < r.context.n; i++) {
    numbers(&r.context, "layer")[i] = (double)(i / 2);
    numbers(&r.context, "auc")[i] += i % 2 == 0 ? 0 : gap;
    numbers(&r.context, "low")[i] += i % 2 == 0 ? 0 : gap;
    numbers(&r.context, "high")[i] += i % 2 == 0 ? 0 : gap;
    strcpy(label + 16 * i, "median");
    strcpy(gate + 16 * i, i % 2 == 0 ? "x" : "c");
    strcpy(view + 16 * i, i % 2 == 0 ? "" : "normalised");
  }
  return r;
}

static void expect_context(int64_t layers, double gap, double half, wm_claim_verdict_t verdict,
                           const char *reason) {
  wm_results_t r = context(layers, gap, half);
  expect(&r, "C10", verdict, reason);
  wm_results_destroy(&r);
}

static void expect_probe(const char *id, int64_t n, int first, int step, double value, double half,
                         wm_claim_verdict_t verdict, const char *reason) {
  wm_results_t r = build(&medium);
  if (strcmp(id, "C11") == 0) {
    fill(&r.correlations, n, first, step, "r", value, half);
    char *key = words(&r.correlations, "key");
    for (int64_t i = 0; i < n; i++)
      strcpy(key + 16 * i, "target");
  } else if (strcmp(id, "C12") == 0) {
    fill(&r.regression, n, first, step, "r2_heldout", value, half);
  } else {
    fill(&r.clusterings, n, first, step, "linear", value, half);
    column(&r.clusterings, "nonlinear");
  }
  expect(&r, id, verdict, reason);
  wm_results_destroy(&r);
}

static void test_probes(void **state) {
  (void)state;
  expect_context(24, 0.003, 0.01, WM_REPRODUCED, "");
  expect_context(24, 0.008, 0.01, WM_NOT_REPRODUCED, "");
  expect_context(24, 0.03, 0.01, WM_CONTRADICTED, "");
  expect_context(3, 0.03, 0.01, WM_NOT_TESTED, "probed on 3 of 24 layers");
  expect_context(24, 0.003, NAN, WM_NOT_TESTED, "24 of 24 layers have no interval");
  expect_probe("C11", 3, 1, 11, 0.01, 0.05, WM_REPRODUCED, "");
  expect_probe("C11", 3, 1, 11, 0.3, 0.05, WM_CONTRADICTED, "");
  expect_probe("C11", 1, 4, 1, 0.01, 0.05, WM_NOT_TESTED,
               "of layer 4, the claim is about layer 12");
  expect_probe("C11", 3, 1, 11, 0.01, NAN, WM_NOT_TESTED, "the interval is undefined");
  expect_probe("C12", 3, 1, 11, 0.01, 0.005, WM_REPRODUCED, "");
  expect_probe("C12", 24, 0, 1, 0.04, 0.005, WM_CONTRADICTED, "");
  expect_probe("C12", 2, 1, 11, 0.01, 0.005, WM_NOT_TESTED,
               "probed on 2 of the layers 1, 12 and 23, which the claim is about");
  expect_probe("C12", 3, 1, 11, 0.01, NAN, WM_NOT_TESTED, "layer 1 has no interval");
  expect_probe("C19", 3, 1, 11, 0, 0, WM_REPRODUCED, "");
  expect_probe("C19", 3, 1, 11, 2, 0, WM_CONTRADICTED, "");
  expect_probe("C19", 1, 12, 1, 0, 0, WM_NOT_TESTED,
               "probed on 1 of the layers 1, 12 and 23, which the claim is about");
  wm_results_t r = build(&medium); /* other layers than the study's do not count */
  fill(&r.regression, 24, 0, 1, "r2_heldout", 0.01, 0.005);
  fill(&r.clusterings, 24, 0, 1, "linear", 0, 0);
  column(&r.clusterings, "nonlinear");
  numbers(&r.regression, "r2_heldout")[5] = 0.4;
  numbers(&r.regression, "low")[5] = numbers(&r.regression, "high")[5] = NAN;
  numbers(&r.clusterings, "linear")[5] = 3;
  expect(&r, "C12", WM_REPRODUCED, "");
  expect(&r, "C19", WM_REPRODUCED, "");
  wm_results_destroy(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_part_of_layers),
                                     cmocka_unit_test(test_intervals), cmocka_unit_test(test_sizes),
                                     cmocka_unit_test(test_trainings),
                                     cmocka_unit_test(test_probes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
