/* Statistics against golden values (tests/oracle/statistics_golden.py), hand-computed cases and
 * what theory says of simulated data. */
#include "wanamaker/measure/statistics.h"

#include "wanamaker/base/rng.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* delta in percent: both sides take a mean of losses of about 3 (rounding of some 2 eps each), an
 * exponential and a ratio, times 100: about 1e-15 * 100. Ten times that is allowed. */
static const double TOLERANCE = 1e-12;

static void expect_close(double got, double expected, double tolerance, const char *what) {
  if (!(fabs(got - expected) <= tolerance))
    fail_msg("%s: %.17g, expected %.17g within %g", what, got, expected, tolerance);
}

/* ---- Golden file ----------------------------------------------------------------------------- */

enum { N = 700, U = 41, V = 4, R = 300, MAX_ARRAYS = 32 };

typedef struct {
  char name[MAX_ARRAYS][32];
  double *values[MAX_ARRAYS];
  long count[MAX_ARRAYS];
  int n;
} golden_t;

static void golden_read(golden_t *g) {
  const char *dir = getenv("WM_TEST_DATA");
  char path[4096];
  snprintf(path, sizeof path, "%s/statistics/golden.txt", dir != NULL ? dir : "tests/data");
  FILE *f = fopen(path, "r");
  if (f == NULL)
    fail_msg("cannot open %s", path);
  for (g->n = 0; g->n < MAX_ARRAYS; g->n++) {
    if (fscanf(f, "%31s %ld", g->name[g->n], &g->count[g->n]) != 2)
      break;
    double *values = malloc((size_t)g->count[g->n] * sizeof *values);
    assert_non_null(values);
    for (long i = 0; i < g->count[g->n]; i++)
      assert_int_equal(fscanf(f, "%lf", &values[i]), 1);
    g->values[g->n] = values;
  }
  fclose(f);
}

static void golden_free(golden_t *g) {
  for (int i = 0; i < g->n; i++)
    free(g->values[i]);
}

static const double *golden(const golden_t *g, const char *name, long count) {
  for (int i = 0; i < g->n; i++) {
    if (strcmp(g->name[i], name) == 0) {
      assert_int_equal(g->count[i], count);
      return g->values[i];
    }
  }
  fail_msg("golden file has no %s", name);
  return NULL;
}

typedef struct {
  golden_t golden;
  float full[N], variants[V][N];
  int32_t units[N];
  wm_unit_sums_t sums;
  wm_bootstrap_t bootstrap;
} data_t;

static int load(void **state) {
  data_t *d = calloc(1, sizeof *d);
  assert_non_null(d);
  *state = d;
  golden_read(&d->golden);
  const double *units = golden(&d->golden, "units", N), *full = golden(&d->golden, "full", N);
  const double *variants = golden(&d->golden, "variants", (long)V * N);
  for (int i = 0; i < N; i++) {
    d->units[i] = (int32_t)units[i];
    d->full[i] = (float)full[i];
    for (int v = 0; v < V; v++)
      d->variants[v][i] = (float)variants[v * N + i];
  }
  d->bootstrap = (wm_bootstrap_t){.resamples = R, .seed = 20260, .confidence = 0.9};
  wm_error_t err = {0};
  assert_int_equal(wm_unit_sums_create(d->full, d->units, N, U, V, &d->sums, &err), WM_OK);
  for (int v = V - 1; v >= 0; v--) /* in any order */
    assert_int_equal(
        wm_unit_sums_add(&d->sums, v, "variant", d->variants[v], d->full, d->units, &err), WM_OK);
  return 0;
}

static int unload(void **state) {
  data_t *d = *state;
  golden_free(&d->golden);
  wm_unit_sums_destroy(&d->sums);
  free(d);
  return 0;
}

static void golden_resamples(void **state) {
  data_t *d = *state;
  static double delta[V * R];
  wm_error_t err = {0};
  assert_int_equal(d->sums.n_occupied, U - 2);
  assert_int_equal(wm_bootstrap_run(&d->sums, &d->bootstrap, 0, R, delta, &err), WM_OK);
  const double *expected = golden(&d->golden, "delta", (long)V * R);
  for (int i = 0; i < V * R; i++)
    expect_close(delta[i], expected[i], TOLERANCE, "delta");
}

static void golden_unpaired(void **state) {
  data_t *d = *state;
  const golden_t *g = &d->golden;
  static double delta[V * R];
  double ratio[V];
  wm_effect_t e[V];
  wm_error_t err = {0};
  assert_int_equal(wm_bootstrap_run(&d->sums, &d->bootstrap, 0, R, delta, &err), WM_OK);
  assert_int_equal(wm_bootstrap_effects(&d->sums, &d->bootstrap, delta, e, &err), WM_OK);
  assert_true(isnan(e[0].unpaired_low) && isnan(e[V - 1].unpaired_high)); /* not asked for */
  const int64_t cuts[] = {0, 113, 114, R};
  for (int i = 0; i < 3; i++)
    assert_int_equal(
        wm_bootstrap_run_unpaired(&d->sums, &d->bootstrap, cuts[i], cuts[i + 1], delta, &err),
        WM_OK);
  for (int i = 0; i < V * R; i++)
    expect_close(delta[i], golden(g, "unpaired", (long)V * R)[i], TOLERANCE, "unpaired delta");
  assert_int_equal(wm_bootstrap_effects_unpaired(&d->sums, &d->bootstrap, delta, e, &err), WM_OK);
  for (int v = 0; v < V; v++) {
    expect_close(e[v].unpaired_low, golden(g, "unpaired_low", V)[v], TOLERANCE, "low");
    expect_close(e[v].unpaired_high, golden(g, "unpaired_high", V)[v], TOLERANCE, "high");
    ratio[v] = wm_effect_width_ratio(&e[v]);
    expect_close(ratio[v] / golden(g, "ratio", V)[v], 1, 1e-10, "ratio of widths");
    expect_close(e[v].mean_nll, golden(g, "mean_nll", V)[v], 1e-14, "mean loss");
    assert_int_equal(strlen(wm_effect_stars(&e[v])), golden(g, "stars", V)[v]);
  }
  expect_close(wm_median(ratio, V) / golden(g, "median_ratio", 1)[0], 1, 1e-10, "median");
}

static void golden_effects(void **state) {
  data_t *d = *state;
  static double delta[V * R];
  wm_effect_t e[V];
  wm_error_t err = {0};
  assert_int_equal(wm_bootstrap_run(&d->sums, &d->bootstrap, 0, R, delta, &err), WM_OK);
  assert_int_equal(wm_bootstrap_effects(&d->sums, &d->bootstrap, delta, e, &err), WM_OK);
  const golden_t *g = &d->golden;
  for (int v = 0; v < V; v++) {
    expect_close(e[v].perplexity, golden(g, "ppl", V)[v], 1e-13, "perplexity");
    expect_close(wm_perplexity(d->variants[v], N), golden(g, "ppl", V)[v], 1e-13, "perplexity");
    expect_close(e[v].delta, golden(g, "point", V)[v], TOLERANCE, "delta");
    expect_close(e[v].low, golden(g, "low", V)[v], TOLERANCE, "low");
    expect_close(e[v].high, golden(g, "high", V)[v], TOLERANCE, "high");
    expect_close(e[v].p_better, golden(g, "p_better", V)[v], 1e-12, "p_better");
    expect_close(e[v].p_worse, golden(g, "p_worse", V)[v], 1e-12, "p_worse");
    expect_close(e[v].p_two_sided, golden(g, "p_two_sided", V)[v], 1e-12, "p_two_sided");
    expect_close(e[v].p_holm, golden(g, "p_holm", V)[v], 1e-12, "p_holm");
    expect_close(e[v].p_bh, golden(g, "p_bh", V)[v], 1e-12, "p_bh");
    assert_false(e[v].unresolved);
  }
  expect_close(wm_unit_sums_perplexity(&d->sums), golden(g, "ppl_full", 1)[0], 1e-13, "full");
  /* Layers 1 and 3 are better and clear; 0 is clear and worse; 2 is not clear. */
  assert_true(!e[0].beats_full && e[1].beats_full && !e[2].beats_full && e[3].beats_full);
}

static void golden_plain(void **state) {
  const golden_t *g = &((data_t *)*state)->golden;
  data_t *d = *state;
  double x[N], y[N], out[8];
  wm_error_t err = {0};
  for (int i = 0; i < N; i++) {
    x[i] = (double)d->full[i];
    y[i] = (double)d->variants[0][i] * (double)d->variants[0][i];
  }
  expect_close(wm_pearson(x, y, N), golden(g, "pearson", 1)[0], 1e-14, "pearson");
  assert_int_equal(wm_adjust_holm(golden(g, "raw_p", 8), 8, out, &err), WM_OK);
  for (int i = 0; i < 8; i++)
    expect_close(out[i], golden(g, "raw_holm", 8)[i], 1e-15, "Holm");
  assert_int_equal(wm_adjust_bh(golden(g, "raw_p", 8), 8, out, &err), WM_OK);
  for (int i = 0; i < 8; i++)
    expect_close(out[i], golden(g, "raw_bh", 8)[i], 1e-15, "Benjamini-Hochberg");
  double sorted[R], low, high;
  memcpy(sorted, golden(g, "delta", (long)V * R), sizeof sorted);
  wm_percentile_interval(sorted, R, 0.9, &low, &high); /* sorts */
  expect_close(low, golden(g, "plain", 2)[0], 1e-14, "plain percentile");
  expect_close(high, golden(g, "plain", 2)[1], 1e-14, "plain percentile");
  for (int i = 0; i < 7; i++)
    expect_close(wm_quantile_sorted(sorted, R, golden(g, "q", 7)[i]), golden(g, "quantiles", 7)[i],
                 1e-14, "quantile");
}

/* Any split over ranks, and any number of threads, gives the same bits. */
static void split_does_not_matter(void **state) {
  data_t *d = *state;
  static double whole[V * R], parts[V * R];
  wm_error_t err = {0};
  omp_set_num_threads(1);
  assert_int_equal(wm_bootstrap_run(&d->sums, &d->bootstrap, 0, R, whole, &err), WM_OK);
  omp_set_num_threads(3);
  const int64_t cuts[] = {0, 1, 1, 107, 299, R};
  for (int i = 0; i < 5; i++)
    assert_int_equal(wm_bootstrap_run(&d->sums, &d->bootstrap, cuts[i], cuts[i + 1], parts, &err),
                     WM_OK);
  omp_set_num_threads(1);
  assert_memory_equal(whole, parts, sizeof whole);
  wm_bootstrap_t other = d->bootstrap;
  other.seed++;
  assert_int_equal(wm_bootstrap_run(&d->sums, &other, 0, R, parts, &err), WM_OK);
  assert_memory_not_equal(whole, parts, sizeof whole);
}

/* ---- Simulated data -------------------------------------------------------------------------- */

enum { SIM_UNITS = 400, SIM_LENGTH = 5, SIM_N = SIM_UNITS * SIM_LENGTH, SIM_R = 10000 };

typedef struct {
  float full[SIM_N], variant[SIM_N], zero[SIM_N];
  int32_t units[SIM_N];
} simulation_t;

/* Losses that differ by sd 1 between units; the variant adds shift + spread * noise to each unit.
 */
static simulation_t *simulate(double shift, double spread) {
  simulation_t *s = calloc(1, sizeof *s);
  assert_non_null(s);
  wm_rng_t rng = {99, 0};
  for (int i = 0; i < SIM_N; i++) {
    uint64_t u = (uint64_t)(i / SIM_LENGTH);
    s->units[i] = (int32_t)u;
    s->full[i] = (float)(3 + wm_rng_normal(rng, 2 * u));
    s->variant[i] = (float)((double)s->full[i] + shift + spread * wm_rng_normal(rng, 2 * u + 1));
  }
  return s;
}

static void run(const simulation_t *s, const float *variant, const float *full, uint64_t seed,
                double *delta, wm_effect_t *effect) {
  wm_unit_sums_t sums;
  wm_error_t err = {0};
  wm_bootstrap_t b = {.resamples = SIM_R, .seed = seed, .confidence = 0.95};
  assert_int_equal(wm_unit_sums_create(full, s->units, SIM_N, SIM_UNITS, 1, &sums, &err), WM_OK);
  assert_int_equal(wm_unit_sums_add(&sums, 0, "v", variant, full, s->units, &err), WM_OK);
  assert_int_equal(wm_bootstrap_run(&sums, &b, 0, SIM_R, delta, &err), WM_OK);
  assert_int_equal(wm_bootstrap_effects(&sums, &b, delta, effect, &err), WM_OK);
  wm_unit_sums_destroy(&sums);
}

/* Units vary by 1, the effect by 0.02: on the same draws the interval is some 70 times narrower
 * (sqrt(2) / 0.02) than on draws of their own, which the study takes. */
static void pairing_narrows(void **state) {
  (void)state;
  simulation_t *s = simulate(0.01, 0.02);
  static double delta[SIM_R], full[SIM_R], variant[SIM_R];
  wm_effect_t paired, other;
  run(s, s->variant, s->full, 5, delta, &paired);
  run(s, s->full, s->zero, 5, full, &other); /* against zero, delta is the perplexity itself */
  run(s, s->variant, s->zero, 6, variant, &other);
  for (int r = 0; r < SIM_R; r++)
    full[r] = 100 * ((100 + variant[r]) / (100 + full[r]) - 1);
  double low, high;
  wm_percentile_interval(full, SIM_R, 0.95, &low, &high);
  double ratio = (high - low) / (paired.high - paired.low);
  if (!(ratio > 50 && ratio < 100))
    fail_msg("unpaired interval is %g times as wide", ratio);
  free(s);
}

/* For equal units and small effects the interval is 1.96 standard errors of the units' mean. A
 * quantile of 10 000 resamples has an error of sqrt(0.025 * 0.975 / 10 000) / 0.058 = 2.7 % of the
 * standard error, 1.4 % of 1.96; the half-width's is 1 %. Allowed: 5 %. */
static void width_by_theory(void **state) {
  (void)state;
  simulation_t *s = simulate(0.01, 0.02);
  static double delta[SIM_R];
  wm_effect_t e;
  run(s, s->variant, s->full, 7, delta, &e);
  double mean = 0, square = 0;
  for (int u = 0; u < SIM_UNITS; u++) {
    double x = (double)s->variant[u * SIM_LENGTH] - (double)s->full[u * SIM_LENGTH];
    mean += x / SIM_UNITS;
    square += x * x / SIM_UNITS;
  }
  double half = 100 * exp(mean) * 1.95996 * sqrt((square - mean * mean) / SIM_UNITS);
  expect_close((e.high - e.low) / 2 / half, 1, 0.05, "half-width by theory");
  expect_close(e.delta, 100 * expm1(mean), 1e-9, "delta");
  assert_true(e.low < e.delta && e.delta < e.high);
  free(s);
}

static void no_effect(void **state) {
  (void)state;
  simulation_t *s = simulate(0, 0);
  static double delta[SIM_R];
  wm_effect_t e;
  run(s, s->full, s->full, 1, delta, &e);
  assert_true(e.delta == 0 && e.low == 0 && e.high == 0);
  assert_true(e.p_better == 1 && e.p_worse == 1 && e.p_two_sided == 1 && !e.beats_full);
  free(s);
}

/* Of plain percentiles, the smallest p-value is 2 / (R + 1); Holm multiplies it by V = 3, so even a
 * clear gain can't be claimed at R = 118 (6 / 119 > 0.05), but can at R = 120. The same of
 * expanded ones at R = 122 and 124; their p-values are SciPy's. */
static void resamples_bound_what_can_be_claimed(void **state) {
  (void)state;
  simulation_t *s = simulate(-0.5, 0.01);
  wm_unit_sums_t sums;
  wm_error_t err = {0};
  wm_effect_t e[3];
  double delta[3 * 124];
  assert_int_equal(wm_unit_sums_create(s->full, s->units, SIM_N, SIM_UNITS, 3, &sums, &err), WM_OK);
  for (int v = 0; v < 3; v++)
    assert_int_equal(wm_unit_sums_add(&sums, v, "v", s->variant, s->full, s->units, &err), WM_OK);
  const struct {
    int resamples;
    wm_interval_kind_t interval;
    double p;
  } cases[] = {{118, WM_INTERVAL_PERCENTILE, 2.0 / 119},
               {120, WM_INTERVAL_PERCENTILE, 2.0 / 121},
               {122, WM_INTERVAL_EXPANDED, 0.01685174467719988},
               {124, WM_INTERVAL_EXPANDED, 0.01658662755402174}};
  for (int i = 0; i < 4; i++) {
    const int resamples = cases[i].resamples;
    wm_bootstrap_t b = {
        .resamples = resamples, .seed = 3, .confidence = 0.95, .interval = cases[i].interval};
    assert_int_equal(wm_bootstrap_run(&sums, &b, 0, resamples, delta, &err), WM_OK);
    assert_int_equal(wm_bootstrap_effects(&sums, &b, delta, e, &err), WM_OK);
    expect_close(e[0].p_two_sided, cases[i].p, 1e-14, "p");
    expect_close(e[2].p_holm, 3 * cases[i].p, 1e-14, "Holm");
    assert_int_equal(e[2].beats_full, 3 * cases[i].p < 0.05);
  }
  wm_unit_sums_destroy(&sums);
  free(s);
}

/* ---- Degenerate and hand-computed ------------------------------------------------------------ */

static void one_unit(void **state) {
  (void)state;
  const float full[] = {1, 2, 3}, variant[] = {1, 2, 4};
  const int32_t units[] = {2, 2, 2}; /* of four, three of them empty */
  wm_unit_sums_t sums;
  wm_error_t err = {0};
  wm_bootstrap_t b = {.resamples = 10, .seed = 1, .confidence = 0.95};
  double delta[10] = {0};
  wm_effect_t e;
  assert_int_equal(wm_unit_sums_create(full, units, 3, 4, 1, &sums, &err), WM_OK);
  assert_int_equal(sums.n_occupied, 1);
  assert_int_equal(wm_unit_sums_add(&sums, 0, "v", variant, full, units, &err), WM_OK);
  assert_int_equal(wm_bootstrap_run(&sums, &b, 0, 10, delta, &err), WM_OK);
  assert_true(isnan(delta[0]) && isnan(delta[9]));
  assert_int_equal(wm_bootstrap_effects(&sums, &b, delta, &e, &err), WM_OK);
  expect_close(e.perplexity, exp(7.0 / 3), 1e-14, "perplexity");
  expect_close(e.delta, 100 * (exp(1.0 / 3) - 1), 1e-13, "delta");
  assert_true(isnan(e.low) && isnan(e.high) && isnan(e.p_two_sided) && isnan(e.p_holm));
  assert_false(e.beats_full);
  wm_unit_sums_destroy(&sums);
}

static void not_finite(void **state) {
  (void)state;
  const float good[] = {1, 2, 3, 4}, bad[] = {1, INFINITY, 3, NAN};
  const int32_t units[] = {0, 0, 1, 1};
  wm_unit_sums_t sums;
  wm_error_t err = {0};
  assert_int_equal(wm_unit_sums_create(bad, units, 4, 2, 1, &sums, &err), WM_NUMERICAL);
  assert_non_null(strstr(err.message, "full model: 2 of 4"));
  assert_null(sums.tokens);
  assert_int_equal(wm_unit_sums_create(good, units, 0, 2, 1, &sums, &err), WM_INPUT);
  assert_int_equal(wm_unit_sums_create(good, units, 4, 2, 1, &sums, &err), WM_OK);
  assert_int_equal(wm_unit_sums_add(&sums, 0, "layer 3", bad, good, units, &err), WM_NUMERICAL);
  assert_non_null(strstr(err.message, "layer 3: 2 of 4"));
  assert_non_null(strstr(err.message, "prediction 1"));
  wm_unit_sums_destroy(&sums);
}

/* A variant that failed is NaN throughout and leaves the family of tests. */
static void failed_variant(void **state) {
  (void)state;
  const float full[] = {1, 2, 3, 4}, bad[] = {1, 2, 3, NAN}, worse[] = {1.5F, 2.5F, 3.25F, 4.5F};
  const int32_t units[] = {0, 0, 1, 1};
  wm_unit_sums_t sums;
  wm_error_t err = {0};
  wm_bootstrap_t b = {.resamples = 99, .seed = 1, .confidence = 0.95};
  double delta[2 * 99];
  wm_effect_t e[2];
  assert_int_equal(wm_unit_sums_create(full, units, 4, 2, 2, &sums, &err), WM_OK);
  assert_int_equal(wm_unit_sums_add(&sums, 0, "bad", bad, full, units, &err), WM_NUMERICAL);
  assert_int_equal(wm_unit_sums_add(&sums, 1, "worse", worse, full, units, &err), WM_OK);
  assert_int_equal(wm_bootstrap_run(&sums, &b, 0, 99, delta, &err), WM_OK);
  assert_int_equal(wm_bootstrap_effects(&sums, &b, delta, e, &err), WM_OK);
  assert_true(isnan(e[0].perplexity) && isnan(e[0].delta) && isnan(e[0].low));
  assert_true(isnan(e[0].p_better) && isnan(e[0].p_two_sided) && isnan(e[0].p_holm));
  assert_true(isnan(e[0].p_bh) && !e[0].beats_full);
  /* a family of one; two units are too few for any number of resamples */
  expect_close(e[1].p_holm, 2 * wm_bootstrap_p(WM_INTERVAL_EXPANDED, 0, 99, 2), 1e-15, "Holm");
  assert_true(e[1].p_holm > 0.3 && e[1].unresolved);
  wm_unit_sums_destroy(&sums);
}

static void sums_are_compensated(void **state) {
  (void)state;
  const float x[] = {1e20F, 1, -1e20F}, uniform[] = {1.3862944F, 1.3862944F};
  assert_true(wm_sum_nll(x, 3) == 1);
  expect_close(wm_perplexity(uniform, 2), 4, 4e-7, "perplexity of a fair choice of four");
  assert_true(isnan(wm_perplexity(x, 0)));
}

static void quantiles(void **state) {
  (void)state;
  const double x[] = {1, 2, 4, 8}, infinite[] = {1, INFINITY, INFINITY};
  assert_true(wm_quantile_sorted(x, 4, 0) == 1 && wm_quantile_sorted(x, 4, 1) == 8);
  assert_true(wm_quantile_sorted(x, 4, 0.5) == 3);
  assert_true(wm_quantile_sorted(x, 1, 0.3) == 1 && isnan(wm_quantile_sorted(x, 0, 0.3)));
  assert_true(isinf(wm_quantile_sorted(infinite, 3, 0.75)));
  double with_nan[] = {1, NAN, 3}, low, high;
  wm_percentile_interval(with_nan, 3, 0.95, &low, &high);
  assert_true(isnan(low) && isnan(high));
}

static void adjusting(void **state) {
  (void)state;
  wm_error_t err = {0};
  double p[] = {0.03, NAN, 0.01, 0.5}, bh[4];
  assert_int_equal(wm_adjust_bh(p, 4, bh, &err), WM_OK); /* a family of three */
  expect_close(bh[2], 0.03, 1e-16, "BH");
  expect_close(bh[0], 0.045, 1e-16, "BH");
  expect_close(bh[3], 0.5, 1e-16, "BH");
  assert_true(isnan(bh[1]));
  assert_int_equal(wm_adjust_holm(p, 4, p, &err), WM_OK); /* in place */
  expect_close(p[2], 0.03, 1e-16, "Holm");
  expect_close(p[0], 0.06, 1e-16, "Holm");
  expect_close(p[3], 0.5, 1e-16, "Holm");
  assert_true(isnan(p[1]));
  assert_int_equal(wm_adjust_holm(p, 0, p, &err), WM_OK);
}

static void fit_and_correlation(void **state) {
  (void)state;
  const double x[] = {1, 2, 3, 4}, y[] = {-1, -3, -5, -7}, flat[] = {0.1, 0.1, 0.1, 0.1};
  expect_close(wm_pearson(x, y, 4), -1, 1e-15, "pearson");
  assert_true(isnan(wm_pearson(x, flat, 4)) && isnan(wm_pearson(x, y, 1)));
  assert_true(wm_r_squared(1, 4) == 0.75 && wm_r_squared(5, 4) == -0.25);
  assert_true(isnan(wm_r_squared(0, 0)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(golden_resamples, load, unload),
      cmocka_unit_test_setup_teardown(golden_effects, load, unload),
      cmocka_unit_test_setup_teardown(golden_unpaired, load, unload),
      cmocka_unit_test_setup_teardown(golden_plain, load, unload),
      cmocka_unit_test_setup_teardown(split_does_not_matter, load, unload),
      cmocka_unit_test(pairing_narrows),
      cmocka_unit_test(width_by_theory),
      cmocka_unit_test(no_effect),
      cmocka_unit_test(resamples_bound_what_can_be_claimed),
      cmocka_unit_test(one_unit),
      cmocka_unit_test(not_finite),
      cmocka_unit_test(failed_variant),
      cmocka_unit_test(sums_are_compensated),
      cmocka_unit_test(quantiles),
      cmocka_unit_test(adjusting),
      cmocka_unit_test(fit_and_correlation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
