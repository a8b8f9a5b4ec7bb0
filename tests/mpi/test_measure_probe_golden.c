/* Probes of a small planted layer against numpy, scipy and scikit-learn
 * (tests/oracle/probes_golden.py): every table, what is drawn included, on any number of ranks. */
#include "test_measure_fixture.h"
#include "wanamaker/measure/design.h"
#include "wanamaker/measure/hidden_probe.h"
#include "wanamaker/measure/kmeans.h"
#include "wanamaker/measure/labels.h"
#include "wanamaker/measure/probe.h"
#include "wanamaker/measure/probe_pairs.h"

#include <math.h>

enum { D = 16, BLOCK = 20, TRAIN_PERCENT = 70, COMPONENTS = 6, K = 5, LEAST = 10, ARRAYS = 64 };

/* Sums of some hundred float64 numbers in another order. */
static const double EXACT = 1e-9;
/* Features are rounded to float32 behind other float64 sums: 6e-8 of a norm, some units. */
static const double ROUNDED = 1e-6;
/* The Newton iteration ends at a gradient of 1e-8 or so; scores behind the file are 5e-8 apart, so
 * that AUC, accuracy and F1 come out exactly; a loss is quadratic in what is left. */
static const double FITTED = 1e-8;

static struct { wm_comm_t *world; } S;

/* --- golden file --------------------------------------------------------------------------------
 */

static struct {
  char name[ARRAYS][32];
  double *values[ARRAYS];
  long count[ARRAYS];
  int n;
} G;

static void read_golden(void) {
  const char *dir = getenv("WM_TEST_DATA");
  char path[4096];
  snprintf(path, sizeof path, "%s/probes/golden.txt", dir != NULL ? dir : "tests/data");
  FILE *f = fopen(path, "r");
  if (f == NULL)
    fail_msg("cannot open %s", path);
  for (; G.n < ARRAYS && fscanf(f, "%31s %ld", G.name[G.n], &G.count[G.n]) == 2; G.n++) {
    G.values[G.n] = zeroed(G.count[G.n], sizeof(double));
    for (long i = 0; i < G.count[G.n]; i++)
      assert_int_equal(fscanf(f, "%lf", &G.values[G.n][i]), 1);
  }
  fclose(f);
}

static const double *golden(const char *name, int64_t *count) {
  if (count != NULL)
    *count = 0;
  for (int i = 0; i < G.n; i++)
    if (strcmp(G.name[i], name) == 0) {
      if (count != NULL)
        *count = G.count[i];
      return G.values[i];
    }
  fail_msg("the golden file has no %s", name);
  return NULL;
}

static void expect(double got, double wanted, double tolerance, const char *what, int64_t row,
                   const char *column) {
  if (isnan(wanted) ? !isnan(got) : !(fabs(got - wanted) <= tolerance * (1 + fabs(wanted))))
    fail_msg("%s, row %lld, %s: %.12g, not %.12g", what, (long long)row, column, got, wanted);
}

/* The members of rows [first, first + rows) are the golden array's, row by row. */
typedef struct {
  const char *member;
  double tolerance;
} member_t;
static void expect_rows(const wm_probe_table_t *t, const char *name, const member_t *members,
                        int64_t n_members) {
  int64_t count;
  const double *wanted = golden(name, &count);
  assert_int_equal(t->n, count / n_members);
  for (int64_t i = 0; i < t->n; i++)
    for (int64_t m = 0; m < n_members; m++)
      expect(wm_probe_number_at(t, i, members[m].member), wanted[i * n_members + m],
             members[m].tolerance, name, i, members[m].member);
}

/* --- corpora ------------------------------------------------------------------------------------
 */

typedef struct {
  int64_t n;
  wm_probe_text_t text;
  const double *delta;
  uint8_t *used;
} corpus_t;

static void copy_ints(const char *prefix, const char *name, int64_t n, int32_t *out) {
  char key[32];
  int64_t count;
  snprintf(key, sizeof key, "%s%s", prefix, name);
  const double *from = golden(key, &count);
  assert_int_equal(count, n);
  for (int64_t i = 0; i < n; i++)
    out[i] = (int32_t)from[i];
}

static void copy_bytes(const char *prefix, const char *name, int64_t n, uint8_t *out) {
  int32_t *wide = zeroed(n, sizeof *wide);
  copy_ints(prefix, name, n, wide);
  for (int64_t i = 0; i < n; i++)
    out[i] = (uint8_t)wide[i];
  free(wide);
}

/* The held-out units that the text draws are the golden file's. */
static void open_corpus(const char *prefix, const wm_probe_options_t *o, corpus_t *c) {
  char key[32];
  snprintf(key, sizeof key, "%sdelta", prefix);
  c->delta = golden(key, &c->n);
  const int64_t n = c->n;
  int32_t *ints = zeroed(4 * n, sizeof *ints);
  uint8_t *test = zeroed(n, 1);
  copy_ints(prefix, "input", n, ints);
  copy_ints(prefix, "target", n, ints + n);
  copy_ints(prefix, "position", n, ints + 2 * n);
  copy_ints(prefix, "unit", n, ints + 3 * n);
  OK(wm_probe_text_make(n, ints, ints + n, ints + 2 * n, ints + 3 * n, 1 + ints[4 * n - 1],
                        TRAIN_PERCENT / 100.0, o->seed, &c->text, err));
  copy_bytes(prefix, "test", n, test);
  assert_memory_equal(c->text.test, test, (size_t)n);
  c->used = zeroed(n, 1);
  copy_bytes(prefix, "used", n, c->used);
  free(ints);
  free(test);
}

static void close_corpus(corpus_t *c) {
  wm_probe_text_destroy(&c->text);
  free(c->used);
}

/* Spellings lie one behind the other in the file, as bytes. */
static void open_traits(wm_token_traits_t *t) {
  int64_t n, bytes, words;
  const double *given = golden("spelling_length", &n), *letters = golden("spelling", &bytes);
  const double *list = golden("words", &words), *counts = golden("count", NULL);
  char *text = zeroed(bytes + words + 1, 1), *file = text + bytes;
  const char **spelling = zeroed(n, sizeof *spelling);
  int64_t *length = zeroed(2 * n, sizeof *length), *count = length + n, at = 0;
  for (int64_t i = 0; i < bytes; i++)
    text[i] = (char)(uint8_t)letters[i];
  for (int64_t i = 0; i < words; i++)
    file[i] = (char)(uint8_t)list[i];
  for (int64_t i = 0; i < n; i++) {
    spelling[i] = text + at;
    at += length[i] = (int64_t)given[i];
    count[i] = (int64_t)counts[i];
  }
  OK(wm_token_traits_make(n, spelling, length, file, "words", t, err));
  OK(wm_token_traits_count(t, count, err));
  free(text);
  free(spelling);
  free(length);
}

static wm_probe_options_t options(void) {
  return (wm_probe_options_t){.C = 1,
                              .alpha = 1,
                              .block = 8,
                              .seed = 3,
                              .bootstrap = {.resamples = 60, .seed = 5, .confidence = 0.9},
                              .views = {true, true, true},
                              .first_positions = 4,
                              .high_norm = 4,
                              .excluded = WM_CLASS_POSITION0,
                              .least_count = LEAST,
                              .least_found = 3,
                              .no_fly_delta = 0.05,
                              .no_fly_share = 0.6,
                              .halvings = 10,
                              .components = COMPONENTS,
                              .k = K,
                              .restarts = 3,
                              .iterations = 300,
                              .consistent = 0.6,
                              .hidden = 0};
}

/* --- the layer ----------------------------------------------------------------------------------
 */

/* Rows of this rank, which holds blocks in turn. */
typedef struct {
  int64_t n, *place, *block;
  float *x, *e, *work, gamma[D], beta[D];
  double *factor, *score;
  int8_t *label;
  uint8_t *classes;
  int32_t *cluster;
} rows_t;

static void open_rows(int64_t n, rows_t *r) {
  const double *x = golden("x", NULL), *e = golden("e", NULL), *factor = golden("factor", NULL);
  r->place = zeroed(2 * n, sizeof *r->place);
  r->block = r->place + n;
  r->x = zeroed(5 * n * D, sizeof *r->x);
  r->e = r->x + n * D;
  r->work = r->e + n * D;
  r->factor = zeroed(2 * n, sizeof *r->factor);
  r->score = r->factor + n;
  r->label = zeroed(n, 1);
  r->classes = zeroed(n, 1);
  r->cluster = zeroed(n, sizeof *r->cluster);
  copy_bytes("", "classes", n, r->classes);
  for (int64_t i = 0; i < n; i++)
    if (i / BLOCK % S.world->size == S.world->rank) {
      for (int64_t j = 0; j < D; j++) {
        r->x[r->n * D + j] = (float)x[i * D + j];
        r->e[r->n * D + j] = (float)e[i * D + j];
      }
      r->factor[r->n] = factor[i];
      r->block[r->n] = i / BLOCK;
      r->place[r->n++] = i;
    }
  for (int j = 0; j < D; j++) {
    r->gamma[j] = (float)golden("gamma", NULL)[j];
    r->beta[j] = (float)golden("beta", NULL)[j];
  }
}

static void close_rows(rows_t *r) {
  free(r->place);
  free(r->x);
  free(r->factor);
  free(r->label);
  free(r->classes);
  free(r->cluster);
}

static void run(const corpus_t *c, const wm_probe_options_t *o, wm_probe_tables_t *tables,
                rows_t *r) {
  wm_token_traits_t traits;
  open_traits(&traits);
  open_rows(c->n, r);
  const wm_probe_layer_t l = {.comm = S.world,
                              .options = o,
                              .text = &c->text,
                              .traits = &traits,
                              .corpus = "planted",
                              .surrogates = "own",
                              .d = D,
                              .delta = c->delta,
                              .entropy = golden("entropy", NULL),
                              .divergence = golden("divergence", NULL),
                              .agreed = golden("agreed", NULL),
                              .classes = r->classes,
                              .used = c->used,
                              .n = r->n,
                              .place = r->place,
                              .block = r->block,
                              .x = r->x,
                              .e = r->e,
                              .factor = r->factor,
                              .gamma = r->gamma,
                              .beta = r->beta,
                              .eps = 1e-5,
                              .work = r->work,
                              .score = r->score,
                              .label = r->label,
                              .cluster = r->cluster};
  wm_probe_tables_init(tables);
  OK(wm_probe_layer(&l, tables, err));
  wm_token_traits_destroy(&traits);
}

/* --- tables -------------------------------------------------------------------------------------
 */

static int64_t find_gate(const wm_probe_table_t *t, const double *key) {
  static const char *const gates[] = {
      "x", "e", "c", "e * c", "|c|", "type's mean e", "type's mean delta", "random"};
  static const char *const labels[] = {"median", "quartile"};
  const char *view = key[1] < 0 ? "" : wm_probe_view_name((wm_probe_view_t)key[1]);
  const char *by = key[3] < 0 ? "" : wm_probe_key_name((wm_probe_key_t)key[3]);
  for (int64_t i = 0; i < t->n; i++)
    if (strcmp(wm_probe_text_at(t, i, "label"), labels[(int)key[0]]) == 0 &&
        strcmp(wm_probe_text_at(t, i, "view"), view) == 0 &&
        strcmp(wm_probe_text_at(t, i, "gate"), gates[(int)key[2]]) == 0 &&
        strcmp(wm_probe_text_at(t, i, "key"), by) == 0)
      return i;
  fail_msg("no gate on %s, %s, by %s", gates[(int)key[2]], view, by);
  return -1;
}

static void expect_context(const wm_probe_table_t *t) {
  static const char *const members[] = {"auc", "low", "high", "accuracy"};
  int64_t count;
  const double *wanted = golden("context", &count);
  assert_int_equal(t->n, count / 8);
  for (int64_t i = 0; i < t->n; i++) {
    const int64_t row = find_gate(t, wanted + 8 * i);
    for (int m = 0; m < 4; m++)
      expect(wm_probe_number_at(t, row, members[m]), wanted[8 * i + 4 + m], EXACT, "context", row,
             members[m]);
  }
}

static void expect_types(const wm_probe_table_t *t) {
  static const member_t members[] = {{"id", 0},
                                     {"n", 0},
                                     {"mean", EXACT},
                                     {"positive", EXACT},
                                     {"first_half", EXACT},
                                     {"second_half", EXACT},
                                     {"no_fly", 0}};
  int64_t count;
  const double *wanted = golden("types", &count);
  assert_int_equal(t->n, count / 8);
  for (int64_t i = 0; i < t->n; i++, wanted += 8) {
    assert_string_equal(wm_probe_text_at(t, i, "key"), wm_probe_key_name((wm_probe_key_t)*wanted));
    for (int m = 0; m < 7; m++)
      expect(wm_probe_number_at(t, i, members[m].member), wanted[1 + m], members[m].tolerance,
             "types", i, members[m].member);
  }
}

#define ROWS(table, name, ...)                                                                     \
  do {                                                                                             \
    static const member_t members[] = {__VA_ARGS__};                                               \
    expect_rows(&(table), name, members, (int64_t)(sizeof members / sizeof members[0]));           \
  } while (0)

static void expect_clusters(const wm_probe_tables_t *t, const rows_t *r) {
  static const char *const verdicts[] = {"linear", "", "nonlinear"};
  const wm_probe_table_t *clusters = &t->table[WM_PROBE_CLUSTERS];
  const double *wanted = golden("clusters", NULL), *own;
  int64_t n;
  ROWS(t->table[WM_PROBE_CLUSTERINGS], "clustering", {"components", 0}, {"variance", EXACT},
       {"k", 0}, {"inertia", EXACT}, {"iterations", 0}, {"between", EXACT}, {"auc", EXACT},
       {"low", EXACT}, {"high", EXACT}, {"linear", 0}, {"nonlinear", 0});
  assert_int_equal(clusters->n, K);
  for (int64_t i = 0; i < K; i++, wanted += 8) {
    static const char *const members[] = {"n", "share", "mean", "low", "high", "sd", "positive"};
    for (int m = 0; m < 7; m++)
      expect(wm_probe_number_at(clusters, i, members[m]), wanted[m], EXACT, "clusters", i,
             members[m]);
    assert_string_equal(wm_probe_text_at(clusters, i, "verdict"), verdicts[(int)wanted[7] + 1]);
  }
  own = golden("cluster", &n);
  for (int64_t i = 0; i < n; i++)
    assert_int_equal(r->cluster[i], (int32_t)own[i]);
}

static void tables_are_golden(void **state) {
  (void)state;
  const wm_probe_options_t o = options();
  corpus_t c = {0};
  rows_t r = {0};
  wm_probe_tables_t t;
  open_corpus("", &o, &c);
  run(&c, &o, &t, &r);
  expect_context(&t.table[WM_PROBE_CONTEXT]);
  ROWS(t.table[WM_PROBE_GEOMETRY], "geometry", {"n", 0}, {"mean", ROUNDED}, {"sd", ROUNDED},
       {"r", ROUNDED}, {"low", ROUNDED}, {"high", ROUNDED});
  ROWS(t.table[WM_PROBE_FORENSICS], "forensics", {"mean", EXACT}, {"sd", EXACT},
       {"coefficient", EXACT}, {"r2", EXACT}, {"r", EXACT}, {"low", EXACT}, {"high", EXACT});
  ROWS(t.table[WM_PROBE_REGRESSION], "regression", {"train", 0}, {"test", 0}, {"r2", EXACT},
       {"r2_heldout", EXACT}, {"low", EXACT}, {"high", EXACT});
  ROWS(t.table[WM_PROBE_CATEGORIES], "categories", {"n", 0}, {"share", EXACT}, {"mean", EXACT},
       {"low", EXACT}, {"high", EXACT}, {"sd", EXACT}, {"median", EXACT}, {"positive", EXACT});
  expect_types(&t.table[WM_PROBE_TYPES]);
  expect_clusters(&t, &r);
  ROWS(t.table[WM_PROBE_SEPARABILITY], "separability", {"train", 0}, {"test", 0},
       {"accuracy", EXACT}, {"f1", EXACT}, {"auc", EXACT}, {"low", EXACT}, {"high", EXACT},
       {"auc_train", EXACT}, {"loss", FITTED});
  ROWS(t.table[WM_PROBE_DISTRIBUTION], "distribution", {"n", 0}, {"mean", EXACT}, {"sd", EXACT},
       {"skew", EXACT}, {"kurtosis", EXACT}, {"positive", EXACT}, {"q01", EXACT}, {"q05", EXACT},
       {"q25", EXACT}, {"q50", EXACT}, {"q75", EXACT}, {"q95", EXACT}, {"q99", EXACT},
       {"top_1", EXACT}, {"top_5", EXACT}, {"top_10", EXACT}, {"net_10", EXACT});
  ROWS(t.table[WM_PROBE_POSITIONS], "positions", {"n", 0}, {"mean", EXACT}, {"sd", EXACT},
       {"positive", EXACT}, {"share", EXACT});
  wm_probe_tables_destroy(&t);
  close_rows(&r);
  close_corpus(&c);
}

/* Both versions of the correlation across corpora. */
static void pairs_are_golden(void **state) {
  (void)state;
  const wm_probe_options_t o = options();
  corpus_t a = {0}, b = {0};
  wm_probe_tables_t t;
  open_corpus("", &o, &a);
  open_corpus("other_", &o, &b);
  const wm_probe_side_t one = {"one", &a.text, a.delta, a.used};
  const wm_probe_side_t other = {"other", &b.text, b.delta, b.used};
  wm_probe_tables_init(&t);
  OK(wm_probe_pair(S.world, &o, 0, "own", &one, &other, &t, err));
  ROWS(t.table[WM_PROBE_FATES], "fates", {"types", 0}, {"listed", 0}, {"found", 0},
       {"insufficient", 0}, {"still", 0}, {"flipped", 0}, {"r", EXACT});
  ROWS(t.table[WM_PROBE_CORRELATIONS], "correlations", {"types", 0}, {"r", EXACT}, {"low", EXACT},
       {"high", EXACT}, {"reliability", EXACT}, {"reliability_other", EXACT}, {"corrected", EXACT},
       {"corrected_low", EXACT}, {"corrected_high", EXACT});
  wm_probe_tables_destroy(&t);
  close_corpus(&a);
  close_corpus(&b);
}

/* --- parts of probes ----------------------------------------------------------------------------
 */

/* Lloyd's iterations from the first K points, as scikit-learn goes from them. */
static void lloyd_is_golden(void **state) {
  (void)state;
  enum { C = COMPONENTS };
  int64_t count, n = 0;
  const double *points = golden("points", &count), *wanted = golden("lloyd", NULL);
  const double *clusters = golden("lloyd_cluster", NULL), *centres = golden("lloyd_centre", NULL);
  const int64_t total = count / C;
  double *own = zeroed(count, sizeof *own), centre[K * C];
  int64_t *number = zeroed(total, sizeof *number);
  int32_t *cluster = zeroed(total, sizeof *cluster);
  wm_kmeans_t k;
  for (int64_t i = 0; i < total; i++)
    if (i / BLOCK % S.world->size == S.world->rank) {
      memcpy(own + n * C, points + i * C, C * sizeof *own);
      number[n++] = i;
    }
  memcpy(centre, points, sizeof centre);
  OK(wm_kmeans_lloyd(S.world->world, own, n, C, K, 300, cluster, centre, &k, err));
  assert_true(k.converged);
  expect(k.inertia, wanted[0], EXACT, "Lloyd", 0, "inertia");
  assert_int_equal(k.iterations, (int64_t)wanted[1]);
  for (int64_t i = 0; i < n; i++)
    assert_int_equal(cluster[i], (int32_t)clusters[number[i]]);
  for (int64_t i = 0; i < K * C; i++)
    expect(centre[i], centres[i], EXACT, "Lloyd", i / C, "centre");
  free(own);
  free(number);
  free(cluster);
}

/* Labels of the training positions: delta at most their median. */
static int8_t *training_labels(const corpus_t *c) {
  double *train = zeroed(c->n, sizeof *train);
  int8_t *label = zeroed(c->n, 1);
  wm_labels_t found;
  int64_t n = 0;
  for (int64_t i = 0; i < c->n; i++)
    if (c->used[i] && !c->text.test[i])
      train[n++] = c->delta[i];
  OK(wm_labels_find(train, n, &found, err));
  for (int64_t i = 0; i < c->n; i++)
    label[i] = wm_label_of(c->delta[i], found.threshold);
  free(train);
  return label;
}

/* float32 products and tanhf of numbers of about 1: 1e-7, times some. */
static void hidden_objective_is_golden(void **state) {
  (void)state;
  static const double SINGLE = 2e-6;
  const wm_probe_options_t o = options();
  int64_t count, n = 0, constant, total;
  const double *parameters = golden("hidden_parameters", &count);
  const double *wanted = golden("hidden_gradient", NULL);
  const int64_t hidden = (count - 1) / (D + 2);
  corpus_t c = {0};
  rows_t r = {0};
  double mean[D], scale[D], objective, *gradient = zeroed(count, sizeof *gradient);
  float mean32[D], scale32[D];
  open_corpus("", &o, &c);
  open_rows(c.n, &r);
  int64_t *index = zeroed(2 * c.n, sizeof *index), *block = index + c.n;
  int8_t *all = training_labels(&c), *label = zeroed(c.n, 1);
  for (int64_t i = 0; i < r.n; i++)
    if (c.used[r.place[i]] && !c.text.test[r.place[i]]) {
      index[n] = i;
      block[n] = r.block[i];
      label[n++] = all[r.place[i]];
    }
  const wm_design_t design = {.n = n, .k = D, .x = r.x, .index = index};
  wm_design_standardize(S.world->world, &design, mean, scale, &constant, &total);
  for (int j = 0; j < D; j++) {
    mean32[j] = (float)mean[j];
    scale32[j] = (float)scale[j];
  }
  const wm_hidden_rows_t rows = {n, D, r.x, index, block, label, mean32, scale32};
  const wm_hidden_options_t h = {hidden, 1, 2, o.seed, 0};
  OK(wm_hidden_objective(S.world->world, &rows, &h, parameters, gradient, &objective, err));
  expect(objective, golden("hidden_objective", NULL)[0], SINGLE, "hidden probe", 0, "objective");
  for (int64_t i = 0; i < count; i++)
    expect(gradient[i], wanted[i], SINGLE, "hidden probe", i, "gradient");
  free(gradient);
  free(index);
  free(all);
  free(label);
  close_rows(&r);
  close_corpus(&c);
}

static int open_all(void **state) {
  (void)state;
  OK(wm_comm_create(MPI_COMM_WORLD, &S.world, err));
  read_golden();
  return 0;
}

static int close_all(void **state) {
  (void)state;
  for (int i = 0; i < G.n; i++)
    free(G.values[i]);
  wm_comm_free(S.world);
  return 0;
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tables_are_golden), cmocka_unit_test(pairs_are_golden),
      cmocka_unit_test(lloyd_is_golden), cmocka_unit_test(hidden_objective_is_golden)};
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int failed = cmocka_run_group_tests(tests, open_all, close_all);
  MPI_Finalize();
  return failed;
}
