/* Probes on texts whose truth is planted: deltas that depend on the input token alone, on the
 * target token alone, on the context alone, or on nothing; any number of ranks against one;
 * degenerate texts. */
#include "test_measure_fixture.h"
#include "wanamaker/measure/probe.h"
#include "wanamaker/measure/probe_pairs.h"

#include <math.h>

enum { N = 4000, D = 12, TYPES = 50, BLOCK = 50, UNIT = 40, LAYER = 3 };

typedef enum { INPUT, TARGET, CONTEXT, NOTHING, TRUTHS } truth_t;
static const char *const truth_names[TRUTHS] = {"the input token", "the target token",
                                                "the context", "nothing"};

static struct { wm_comm_t *world, *self; } S;

/* A text with everything that a layer's probes need, whole on every rank. */
typedef struct {
  wm_probe_text_t text;
  wm_token_traits_t traits;
  double delta[N], entropy[N], divergence[N], agreed[N], factor[N];
  uint8_t classes[N], used[N];
  float x[N * D], e[N * D];
  float gamma[D], beta[D];
  int32_t cluster[N];
} planted_t;

static double normal(uint64_t stream, int64_t i) {
  return wm_rng_normal((wm_rng_t){99, stream}, (uint64_t)i);
}

static void plant_rows(planted_t *p, uint64_t corpus, const int32_t *input) {
  for (int64_t j = 0; j < D; j++) {
    p->gamma[j] = (float)(1 + 0.3 * normal(1, j));
    p->beta[j] = (float)(0.2 * normal(2, j));
  }
  for (int64_t i = 0; i < N; i++) {
    double mean = 0;
    p->factor[i] = 0.7 + 0.2 * wm_rng_uniform((wm_rng_t){5, corpus}, (uint64_t)i);
    for (int64_t j = 0; j < D; j++) {
      p->e[i * D + j] =
          (float)(normal(3, input[i] * D + j) + 0.01 * normal(20 + corpus, i * D + j));
      mean += (double)p->e[i * D + j] / D;
    }
    for (int64_t j = 0; j < D; j++)
      p->x[i * D + j] =
          (float)((double)p->gamma[j] * ((double)p->e[i * D + j] - mean) * p->factor[i] +
                  (double)p->beta[j] + normal(30 + corpus, i * D + j));
  }
}

/* Of the input: linear in its embedding. */
static double effect(truth_t truth, uint64_t corpus, int64_t i, int32_t input, int32_t target) {
  double sum = 0;
  if (truth == TARGET)
    return normal(8, target);
  for (int64_t j = 0; truth != NOTHING && j < D; j++)
    sum += truth == INPUT ? normal(3, input * D + j) * normal(7, j)
                          : normal(30 + corpus, i * D + j) * normal(9, j);
  return sum / sqrt(D);
}

static void make_traits(wm_token_traits_t *t) {
  char text[TYPES][8];
  const char *texts[TYPES];
  int64_t length[TYPES], count[TYPES];
  for (int i = 0; i < TYPES; i++) {
    length[i] = snprintf(text[i], sizeof text[i],
                         i % 3 == 0   ? " w%c%c"
                         : i % 3 == 1 ? "%c%c"
                                      : ".%d",
                         'a' + i % 26, 'a' + i % 7);
    if (i == 0)
      length[i] = snprintf(text[i], sizeof text[i], " the");
    texts[i] = text[i];
    count[i] = i == TYPES - 1 ? 0 : 1 + i; /* one never occurs */
  }
  OK(wm_token_traits_make(TYPES, texts, length, "[function]\nthe of\n[other]\nwah # comment\n",
                          "words", t, err));
  OK(wm_token_traits_count(t, count, err));
}

/* corpus: 0 or 1, of other texts with the same types and effects. */
static planted_t *plant(truth_t truth, uint64_t corpus) {
  planted_t *p = zeroed(1, sizeof *p);
  int32_t *ids = zeroed(4 * N, sizeof *ids), *input = ids, *target = ids + N;
  int32_t *position = ids + 2 * N, *unit = ids + 3 * N;
  for (int64_t i = 0; i < N; i++) {
    input[i] = (int32_t)wm_rng_below((wm_rng_t){11, corpus}, (uint64_t)i, TYPES - 1);
    target[i] = (int32_t)wm_rng_below((wm_rng_t){12, corpus}, (uint64_t)i, TYPES - 1);
    position[i] = (int32_t)(i % UNIT);
    unit[i] = (int32_t)(i / UNIT);
  }
  OK(wm_probe_text_make(N, input, target, position, unit, N / UNIT, 0.7, 1, &p->text, err));
  make_traits(&p->traits);
  plant_rows(p, corpus, input);
  for (int64_t i = 0; i < N; i++) {
    p->delta[i] =
        0.1 + 0.2 * effect(truth, corpus, i, input[i], target[i]) + 0.1 * normal(40 + corpus, i);
    p->entropy[i] = wm_rng_uniform((wm_rng_t){13, corpus}, (uint64_t)i);
    p->divergence[i] = wm_rng_uniform((wm_rng_t){14, corpus}, (uint64_t)i);
    p->agreed[i] = i % 3 == 0;
    p->classes[i] = position[i] == 0;
    p->used[i] = 1;
  }
  free(ids);
  return p;
}

static void uproot(planted_t *p) {
  wm_probe_text_destroy(&p->text);
  wm_token_traits_destroy(&p->traits);
  free(p);
}

static wm_probe_options_t options(void) {
  return (wm_probe_options_t){.C = 1,
                              .alpha = 1,
                              .block = 8,
                              .seed = 1,
                              .bootstrap = {.resamples = 50, .seed = 1, .confidence = 0.95},
                              .views = {true, true, true},
                              .first_positions = 4,
                              .high_norm = 4,
                              .least_count = 10,
                              .least_found = 3,
                              .no_fly_delta = 0.05,
                              .no_fly_share = 0.6,
                              .halvings = 10,
                              .components = 6,
                              .k = 5,
                              .restarts = 2,
                              .iterations = 100,
                              .consistent = 0.6,
                              .hidden = 4,
                              .hidden_iterations = 30,
                              .hidden_penalty = 1};
}

/* All probes of the text on the ranks of `comm`, which hold blocks in turn. */
static void run(const wm_comm_t *comm, planted_t *p, const wm_probe_options_t *o,
                wm_probe_tables_t *tables) {
  const int64_t n = p->text.n;
  int64_t *place = zeroed(2 * n, sizeof *place), *block = place + n, rows = 0;
  float *x = zeroed(5 * n * D, sizeof *x), *e = x + n * D;
  double *score = zeroed(2 * n, sizeof *score), *factor = score + n;
  int8_t *label = zeroed(n, 1);
  for (int64_t i = 0; i < n; i++)
    if (i / BLOCK % comm->size == comm->rank) {
      memcpy(x + rows * D, p->x + i * D, D * sizeof *x);
      memcpy(e + rows * D, p->e + i * D, D * sizeof *x);
      factor[rows] = p->factor[i];
      block[rows] = i / BLOCK;
      place[rows++] = i;
    }
  wm_progress_t progress = {0};
  wm_progress_start(&progress, NULL, "probes", "steps", wm_probe_steps(o, false));
  const wm_probe_layer_t l = {.comm = comm,
                              .options = o,
                              .text = &p->text,
                              .traits = &p->traits,
                              .corpus = "planted",
                              .surrogates = "own",
                              .layer = LAYER,
                              .d = D,
                              .delta = p->delta,
                              .entropy = p->entropy,
                              .divergence = p->divergence,
                              .agreed = p->agreed,
                              .classes = p->classes,
                              .used = p->used,
                              .n = rows,
                              .place = place,
                              .block = block,
                              .x = x,
                              .e = e,
                              .factor = factor,
                              .gamma = p->gamma,
                              .beta = p->beta,
                              .eps = 1e-5,
                              .work = x + 2 * n * D,
                              .score = score,
                              .label = label,
                              .cluster = p->cluster,
                              .progress = &progress};
  wm_probe_tables_init(tables);
  OK(wm_probe_layer(&l, tables, err));
  assert_int_equal(progress.done, progress.total);
  free(place);
  free(x);
  free(score);
  free(label);
}

/* AUC of a gate, view "" or normalised, for the median label. */
static double auc_of(const wm_probe_tables_t *tables, const char *gate, const char *key) {
  const wm_probe_table_t *t = &tables->table[WM_PROBE_CONTEXT];
  for (int64_t i = 0; i < t->n; i++) {
    const char *view = wm_probe_text_at(t, i, "view");
    if (strcmp(wm_probe_text_at(t, i, "gate"), gate) == 0 &&
        strcmp(wm_probe_text_at(t, i, "key"), key) == 0 &&
        strcmp(wm_probe_text_at(t, i, "label"), "median") == 0 &&
        (view[0] == '\0' || strcmp(view, "normalised") == 0))
      return wm_probe_number_at(t, i, "auc");
  }
  fail_msg("no gate on %s, %s", gate, key);
  return NAN;
}

/* --- planted truths -----------------------------------------------------------------------------
 */

enum { SEEN = 7 };
static const char *const seen[SEEN][2] = {{"x", ""},
                                          {"e", ""},
                                          {"c", ""},
                                          {"type's mean e", "input"},
                                          {"type's mean delta", "input"},
                                          {"type's mean delta", "target"},
                                          {"random", ""}};
/* Which of them tell each truth. */
static const bool tells[TRUTHS][SEEN] = {{true, true, false, true, true, false, false},
                                         {false, false, false, false, false, true, false},
                                         {true, false, true, false, false, false, false},
                                         {false, false, false, false, false, false, false}};

static void check_pair(truth_t truth, planted_t *a, planted_t *b, const wm_probe_options_t *o) {
  const wm_probe_side_t x = {"a", &a->text, a->delta, a->used};
  const wm_probe_side_t y = {"b", &b->text, b->delta, b->used};
  for (int k = 0; k < WM_KEYS; k++) {
    wm_probe_agreement_t g;
    OK(wm_probe_agreement(S.world->world, &x, &y, (wm_probe_key_t)k, o, &g, err));
    assert_int_equal(g.types, TYPES - 1);
    assert_true(g.low < g.r && g.r < g.high);
    const bool same =
        (truth == INPUT && k == WM_KEY_INPUT) || (truth == TARGET && k == WM_KEY_TARGET);
    if (S.world->rank == 0)
      print_message("  %-6s r = %.3f [%.3f, %.3f], reliability %.3f %.3f, corrected %.3f\n",
                    wm_probe_key_name((wm_probe_key_t)k), g.r, g.low, g.high, g.reliability[0],
                    g.reliability[1], g.corrected);
    if (same) {
      assert_true(g.r > 0.9 && g.low > 0.85 && fabs(g.corrected - 1) < 0.05);
      assert_true(g.reliability[0] > 0.9);
    } else {
      assert_true(fabs(g.r) < 0.45); /* 3 / sqrt(types) */
      assert_true(g.reliability[0] < 0.6 && g.reliability[1] < 0.6);
    }
  }
}

static void truths_are_recognised(void **state) {
  (void)state;
  wm_probe_options_t o = options();
  o.views[WM_VIEW_STUDY] = o.views[WM_VIEW_NORMED] = false;
  for (int truth = 0; truth < TRUTHS; truth++) {
    planted_t *a = plant((truth_t)truth, 0), *b = plant((truth_t)truth, 1);
    wm_probe_tables_t tables;
    run(S.world, a, &o, &tables);
    if (S.world->rank == 0)
      print_message("delta depends on %s: AUC of gates, held out\n", truth_names[truth]);
    for (int g = 0; g < SEEN; g++) {
      const double auc = auc_of(&tables, seen[g][0], seen[g][1]);
      if (S.world->rank == 0)
        print_message("  %-18s %-6s %.3f\n", seen[g][0], seen[g][1], auc);
      if (tells[truth][g])
        assert_true(auc > 0.65);
      else
        assert_true(fabs(auc - 0.5) < 0.06); /* three standard errors of 1200 positions */
    }
    check_pair((truth_t)truth, a, b, &o);
    wm_probe_tables_destroy(&tables);
    uproot(a);
    uproot(b);
  }
}

/* --- any number of ranks ------------------------------------------------------------------------
 */

static void expect_equal(const wm_probe_tables_t *a, const wm_probe_tables_t *b) {
  for (int id = 0; id < WM_PROBE_TABLES; id++) {
    const wm_probe_table_t *x = &a->table[id], *y = &b->table[id];
    assert_int_equal(x->n, y->n);
    for (int64_t i = 0; i < x->n; i++)
      for (int64_t c = 0; c < x->n_columns; c++) {
        const wm_probe_column_t *column = &x->layout->columns[c];
        if (column->size > 0) {
          assert_string_equal(wm_probe_text_at(x, i, column->name),
                              wm_probe_text_at(y, i, column->name));
          continue;
        }
        const double u = wm_probe_number_at(x, i, column->name);
        const double v = wm_probe_number_at(y, i, column->name);
        if (isnan(u) != isnan(v) || fabs(u - v) > 1e-9 * (1 + fabs(u)))
          fail_msg("%s, row %lld, %s: %.17g and %.17g", x->layout->path, (long long)i, column->name,
                   u, v);
      }
  }
}

static void ranks_agree(void **state) {
  (void)state;
  const wm_probe_options_t o = options();
  planted_t *p = plant(CONTEXT, 0);
  wm_probe_tables_t all, one;
  run(S.world, p, &o, &all);
  run(S.self, p, &o, &one);
  assert_true(all.table[WM_PROBE_CLUSTERS].n == 5 && all.table[WM_PROBE_FORENSICS].n == 26);
  expect_equal(&all, &one);
  wm_probe_tables_destroy(&all);
  wm_probe_tables_destroy(&one);
  uproot(p);
}

/* --- degenerate texts ---------------------------------------------------------------------------
 */

static const char *note_of(const wm_probe_tables_t *t, wm_probe_table_id_t id) {
  assert_true(t->table[id].n > 0);
  return wm_probe_text_at(&t->table[id], 0, "note");
}

/* Whatever does not exist is told: a number is missing only where there is a note. */
static void expect_words(const wm_probe_tables_t *tables) {
  static const wm_probe_table_id_t noted[] = {
      WM_PROBE_CONTEXT,      WM_PROBE_GEOMETRY,     WM_PROBE_FORENSICS,
      WM_PROBE_REGRESSION,   WM_PROBE_CATEGORIES,   WM_PROBE_CLUSTERINGS,
      WM_PROBE_SEPARABILITY, WM_PROBE_DISTRIBUTION, WM_PROBE_CORRELATIONS};
  for (unsigned k = 0; k < sizeof noted / sizeof noted[0]; k++) {
    const wm_probe_table_t *t = &tables->table[noted[k]];
    for (int64_t i = 0; i < t->n; i++)
      for (int64_t c = 0; c < t->n_columns; c++) {
        const wm_probe_column_t *column = &t->layout->columns[c];
        const bool exists = column->size > 0 || !isnan(wm_probe_number_at(t, i, column->name));
        if (!exists && strcmp(column->name, "accuracy") != 0 && /* some gates have no threshold */
            wm_probe_text_at(t, i, "note")[0] == '\0')
          fail_msg("%s, row %lld: no %s, and no word of it", t->layout->path, (long long)i,
                   column->name);
      }
  }
}

/* One unit: nothing is held out and nothing has an interval. */
static void one_unit(void **state) {
  (void)state;
  const wm_probe_options_t o = options();
  planted_t *p = plant(INPUT, 0);
  wm_probe_tables_t t;
  for (int64_t i = 0; i < N; i++) {
    p->text.unit[i] = 0;
    p->text.test[i] = 0;
  }
  p->text.n_units = 1;
  run(S.world, p, &o, &t);
  assert_string_equal(note_of(&t, WM_PROBE_CONTEXT), "no held-out positions");
  assert_true(isnan(wm_probe_number_at(&t.table[WM_PROBE_CONTEXT], 0, "auc")));
  assert_true(isnan(wm_probe_number_at(&t.table[WM_PROBE_GEOMETRY], 0, "low")));
  assert_false(isnan(wm_probe_number_at(&t.table[WM_PROBE_GEOMETRY], 0, "r")));
  assert_string_equal(note_of(&t, WM_PROBE_GEOMETRY), "too few units or resamples for an interval");
  assert_string_equal(note_of(&t, WM_PROBE_REGRESSION), "no held-out positions");
  expect_words(&t);
  wm_probe_tables_destroy(&t);
  uproot(p);
}

/* Three different rows of x, k = 5; all deltas equal. */
static void few_points(void **state) {
  (void)state;
  const wm_probe_options_t o = options();
  planted_t *p = plant(INPUT, 0);
  wm_probe_tables_t t;
  for (int64_t i = 0; i < N; i++) {
    memcpy(p->x + i * D, p->x + i % 3 * D, D * sizeof(float));
    p->delta[i] = 0.25;
  }
  run(S.world, p, &o, &t);
  assert_string_equal(note_of(&t, WM_PROBE_CLUSTERINGS),
                      "3 clusters, not 5: too few distinct points");
  assert_int_equal(t.table[WM_PROBE_CLUSTERS].n, 3);
  assert_true(wm_probe_number_at(&t.table[WM_PROBE_CLUSTERINGS], 0, "inertia") < 1e-9 * N);
  assert_non_null(strstr(note_of(&t, WM_PROBE_CONTEXT), "one class"));
  assert_string_equal(note_of(&t, WM_PROBE_SEPARABILITY), "one class");
  assert_string_equal(note_of(&t, WM_PROBE_GEOMETRY), "it or delta is constant");
  assert_string_equal(note_of(&t, WM_PROBE_REGRESSION), "delta is constant");
  assert_string_equal(note_of(&t, WM_PROBE_DISTRIBUTION), "all deltas are equal");
  assert_true(isnan(wm_probe_number_at(&t.table[WM_PROBE_DISTRIBUTION], 0, "skew")));
  expect_words(&t);
  wm_probe_tables_destroy(&t);
  uproot(p);
}

/* Nothing is used at all. */
static void no_positions(void **state) {
  (void)state;
  const wm_probe_options_t o = options();
  planted_t *p = plant(INPUT, 0), *q = plant(INPUT, 1);
  const wm_probe_side_t a = {"a", &p->text, p->delta, p->used};
  const wm_probe_side_t b = {"b", &q->text, q->delta, q->used};
  wm_probe_tables_t t;
  memset(p->used, 0, sizeof p->used);
  run(S.world, p, &o, &t);
  assert_non_null(strstr(note_of(&t, WM_PROBE_CONTEXT), "no held-out positions"));
  expect_words(&t);
  OK(wm_probe_pair(S.world, &o, LAYER, "own", &a, &b, &t, err));
  assert_string_equal(note_of(&t, WM_PROBE_FATES), "no type has enough observations");
  assert_string_equal(note_of(&t, WM_PROBE_CORRELATIONS), "fewer than 3 types are on both sides");
  wm_probe_tables_destroy(&t);
  uproot(p);
  uproot(q);
}

/* A surrogate that overflows at some positions, or at all of them. */
static void infinite_deltas(void **state) {
  (void)state;
  const wm_probe_options_t o = options();
  for (int all = 0; all < 2; all++) {
    planted_t *p = plant(INPUT, 0);
    wm_probe_tables_t t;
    for (int64_t i = 0; i < N; i++)
      if (all || i % 7 == 0) {
        p->delta[i] = i % 2 == 0 ? INFINITY : NAN;
        p->divergence[i] = NAN;
        p->used[i] = 0;
      }
    run(S.world, p, &o, &t);
    const wm_probe_table_t *d = &t.table[WM_PROBE_DISTRIBUTION];
    assert_int_equal(wm_probe_number_at(d, 0, "dropped"), all ? N : (N + 6) / 7);
    assert_int_equal(wm_probe_number_at(d, 0, "n"), all ? 0 : N - (N + 6) / 7);
    assert_non_null(strstr(note_of(&t, WM_PROBE_DISTRIBUTION), "deltas are not finite: left out"));
    assert_true(isfinite(wm_probe_number_at(d, 0, "mean")) == !all);
    assert_true(isfinite(auc_of(&t, "x", "")) == !all);
    expect_words(&t);
    wm_probe_tables_destroy(&t);
    uproot(p);
  }
}

/* No type occurs on both corpora. */
static void nothing_in_common(void **state) {
  (void)state;
  const wm_probe_options_t o = options();
  planted_t *p = plant(INPUT, 0), *q = plant(INPUT, 1);
  const wm_probe_side_t a = {"a", &p->text, p->delta, p->used};
  const wm_probe_side_t b = {"b", &q->text, q->delta, q->used};
  wm_probe_tables_t t;
  for (int k = 0; k < WM_KEYS; k++)
    for (int64_t i = 0; i < q->text.type[k].n; i++)
      q->text.type[k].id[i] += TYPES;
  wm_probe_tables_init(&t);
  OK(wm_probe_pair(S.world, &o, LAYER, "own", &a, &b, &t, err));
  const wm_probe_table_t *f = &t.table[WM_PROBE_FATES], *c = &t.table[WM_PROBE_CORRELATIONS];
  for (int64_t i = 0; i < f->n; i++) {
    assert_true(wm_probe_number_at(f, i, "listed") > 0);
    assert_int_equal(wm_probe_number_at(f, i, "found"), 0);
    assert_string_equal(wm_probe_text_at(f, i, "note"), "fewer than 3 found: r says nothing");
  }
  assert_int_equal(wm_probe_number_at(c, 0, "types"), 0);
  assert_string_equal(note_of(&t, WM_PROBE_CORRELATIONS), "fewer than 3 types are on both sides");
  expect_words(&t);
  wm_probe_tables_destroy(&t);
  uproot(p);
  uproot(q);
}

/* --- the study's construction -------------------------------------------------------------------
 */

/* Three types with ten observations each on both sides: one stays No-Fly, one flips, one is not
 * listed; a fourth is listed and not found. */
static void fates_are_counted(void **state) {
  (void)state;
  enum { M = 40 };
  static const double here[4] = {0.5, 0.4, -0.3, 0.6}, there[4] = {0.7, -0.2, 0.9, 0.1};
  const wm_probe_options_t o = options();
  int32_t id[M], zero[M] = {0};
  uint8_t used[M], used_there[M];
  double delta[M], other[M];
  wm_probe_text_t text;
  for (int i = 0; i < M; i++) {
    id[i] = 7 * (i % 4);
    used[i] = 1;
    used_there[i] = i % 4 != 3 || i < 8; /* two observations of the fourth */
    delta[i] = here[i % 4] + 0.01 * (i / 4);
    other[i] = there[i % 4] + 0.01 * (i / 4);
  }
  OK(wm_probe_text_make(M, id, zero, zero, zero, 1, 0.7, 1, &text, err));
  const wm_probe_side_t a = {"a", &text, delta, used}, b = {"b", &text, other, used_there};
  wm_probe_fate_t f;
  OK(wm_probe_fate(&a, &b, WM_KEY_INPUT, &o, &f, err));
  assert_int_equal(f.types, 4);
  assert_int_equal(f.listed, 3);
  assert_int_equal(f.found, 2);
  assert_int_equal(f.still, 1);
  assert_int_equal(f.flipped, 1);
  assert_true(fabs(f.r - 1) < 1e-12);
  wm_probe_text_destroy(&text);
}

static int open_all(void **state) {
  (void)state;
  OK(wm_comm_create(MPI_COMM_WORLD, &S.world, err));
  OK(wm_comm_create(MPI_COMM_SELF, &S.self, err));
  return 0;
}

static int close_all(void **state) {
  (void)state;
  wm_comm_free(S.self);
  wm_comm_free(S.world);
  return 0;
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(truths_are_recognised),
                                     cmocka_unit_test(ranks_agree),
                                     cmocka_unit_test(one_unit),
                                     cmocka_unit_test(few_points),
                                     cmocka_unit_test(no_positions),
                                     cmocka_unit_test(infinite_deltas),
                                     cmocka_unit_test(nothing_in_common),
                                     cmocka_unit_test(fates_are_counted)};
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int failed = cmocka_run_group_tests(tests, open_all, close_all);
  MPI_Finalize();
  return failed;
}
