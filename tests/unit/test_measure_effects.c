/* What intervals promise: coverage, what pairing gains, stars that are earned, and words where
 * numbers end. */
#include "wanamaker/measure/effects.h"

#include "wanamaker/base/rng.h"
#include "wanamaker/measure/statistics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Standard normal numbers, one after the other. */
typedef struct {
  wm_rng_t rng;
  uint64_t next;
} normal_t;

static double draw(normal_t *n) {
  return wm_rng_normal(n->rng, n->next++);
}

/* Losses of a full model and n_variants variants, in units. */
typedef struct {
  int64_t n, n_units, n_variants;
  int32_t *units;        /* [n] */
  float *full, *variant; /* [n], [n_variants, n] */
} losses_t;

static losses_t losses_create(int64_t n, int64_t n_units, int64_t n_variants) {
  losses_t l = {.n = n, .n_units = n_units, .n_variants = n_variants};
  l.units = calloc((size_t)n, sizeof *l.units);
  l.full = calloc((size_t)n, sizeof *l.full);
  l.variant = calloc((size_t)(n * n_variants), sizeof *l.variant);
  assert_true(l.units != NULL && l.full != NULL && l.variant != NULL);
  return l;
}

static void losses_destroy(losses_t *l) {
  free(l->units);
  free(l->full);
  free(l->variant);
}

/* Effects with paired and, if asked for, unpaired intervals. */
static void judge(const losses_t *l, const wm_bootstrap_t *b, wm_effect_t *effects) {
  wm_unit_sums_t sums;
  wm_error_t err = {0};
  double *delta = calloc((size_t)(l->n_variants * b->resamples), sizeof *delta);
  assert_non_null(delta);
  assert_int_equal(
      wm_unit_sums_create(l->full, l->units, l->n, l->n_units, l->n_variants, &sums, &err), WM_OK);
  for (int64_t v = 0; v < l->n_variants; v++) {
    wm_status_t status =
        wm_unit_sums_add(&sums, v, "v", l->variant + v * l->n, l->full, l->units, &err);
    assert_true(status == WM_OK || status == WM_NUMERICAL);
  }
  assert_int_equal(wm_bootstrap_run(&sums, b, 0, b->resamples, delta, &err), WM_OK);
  assert_int_equal(wm_bootstrap_effects(&sums, b, delta, effects, &err), WM_OK);
  if (b->unpaired) {
    assert_int_equal(wm_bootstrap_run_unpaired(&sums, b, 0, b->resamples, delta, &err), WM_OK);
    assert_int_equal(wm_bootstrap_effects_unpaired(&sums, b, delta, effects, &err), WM_OK);
  }
  wm_unit_sums_destroy(&sums);
  free(delta);
}

/* ---- Pairing at the study's spread ----------------------------------------------------------- */

/* GPT-2 Medium, layers 1 to 23, 35 839 evaluated tokens, as published: cost of linearising the
 * layer in percent, and the width of its unpaired 95 % interval in percentage points. */
enum { LAYERS = 23, PUBLISHED_TOKENS = 35839 };
static const double PUBLISHED_DELTA[LAYERS] = {3.59, 2.18, 2.20, 2.19, 2.81, 2.27, 2.36, 1.58,
                                               1.99, 1.79, 1.87, 2.08, 2.09, 2.08, 2.82, 2.96,
                                               4.38, 2.86, 3.45, 4.19, 4.90, 5.19, 12.58};
static const double PUBLISHED_WIDTH[LAYERS] = {
    11.17, 10.85, 10.94, 10.97, 11.11, 10.97, 11.00, 10.89, 10.98, 10.91, 10.98, 10.96,
    10.84, 10.91, 10.92, 10.96, 11.10, 10.98, 11.07, 11.21, 11.30, 11.26, 12.43};

/* Tokens' losses with sd 2.9 and lines' means with sd 0.2 give the published widths. The published
 * delta is the mean difference m of log-probabilities; of two models that nearly agree, its
 * variance is 2 m (the second order of their Kullback-Leibler divergence), of which the lines hold
 * the same part as of the losses. */
static losses_t published_losses(void) {
  enum { LINES = 300 };
  losses_t l = losses_create(PUBLISHED_TOKENS, LINES, LAYERS);
  normal_t normal = {.rng = {7, 0}};
  const double token = 2.9, line = 0.2, share = line / token;
  double line_full = 0, line_delta[LAYERS];
  for (int64_t i = 0; i < l.n; i++) {
    l.units[i] = (int32_t)(i * LINES / l.n);
    bool begins = i == 0 || l.units[i] != l.units[i - 1];
    line_full = begins ? line * draw(&normal) : line_full;
    l.full[i] = (float)(3.56 + line_full + token * draw(&normal));
    for (int v = 0; v < LAYERS; v++) {
      double mean = log1p(PUBLISHED_DELTA[v] / 100), sd = sqrt(2 * mean);
      line_delta[v] = begins ? share * sd * draw(&normal) : line_delta[v];
      l.variant[v * l.n + i] =
          (float)((double)l.full[i] + mean + line_delta[v] + sd * draw(&normal));
    }
  }
  return l;
}

static void pairing_at_the_published_spread(void **state) {
  (void)state;
  losses_t l = published_losses();
  const wm_bootstrap_t b = {.resamples = 4000, .seed = 1, .confidence = 0.95, .unpaired = true};
  wm_effect_t e[LAYERS];
  double ratio[LAYERS];
  judge(&l, &b, e);
  for (int v = 0; v < LAYERS; v++) {
    double width = e[v].unpaired_high - e[v].unpaired_low;
    if (!(fabs(width / PUBLISHED_WIDTH[v] - 1) < 0.12))
      fail_msg("layer %d: unpaired width %g, published %g", v + 1, width, PUBLISHED_WIDTH[v]);
    assert_true(e[v].unpaired_low < e[v].low && e[v].high < e[v].unpaired_high);
    ratio[v] = wm_effect_width_ratio(&e[v]);
  }
  double median = wm_median(ratio, LAYERS);
  print_message("unpaired intervals are %.1f times as wide, median over %d layers\n", median,
                LAYERS);
  if (!(median >= 10))
    fail_msg("the paired interval is only %g times narrower", median);
  losses_destroy(&l);
}

/* ---- Coverage -------------------------------------------------------------------------------- */

enum { LONGEST_UNIT = 24 };
static const double TRUE_SHIFT = 0.01;

/* Units of 5 to 24 tokens, whose cost varies with sd 0.05 between units and 0.1 between tokens. */
static losses_t dependent_losses(uint64_t seed, int units) {
  losses_t l = losses_create(units * LONGEST_UNIT, units, 1);
  normal_t normal = {.rng = {seed, 1}};
  const wm_rng_t lengths = {seed, 2};
  l.n = 0;
  for (int u = 0; u < units; u++) {
    double level = 3 + draw(&normal), cost = TRUE_SHIFT + 0.05 * draw(&normal);
    int64_t length = 5 + (int64_t)wm_rng_below(lengths, (uint64_t)u, LONGEST_UNIT - 4);
    for (int64_t i = 0; i < length; i++, l.n++) {
      l.units[l.n] = u;
      l.full[l.n] = (float)(level + draw(&normal));
      l.variant[l.n] = (float)((double)l.full[l.n] + cost + 0.1 * draw(&normal));
    }
  }
  return l;
}

/* Part of the repetitions whose 95 % interval holds the true cost. */
static double coverage(int repetitions, int units, wm_interval_kind_t interval, bool by_token) {
  const double truth = 100 * expm1(TRUE_SHIFT);
  int covered = 0;
  for (int i = 0; i < repetitions; i++) {
    losses_t l = dependent_losses((uint64_t)i + 1, units);
    if (by_token)
      for (int64_t t = 0; t < l.n; t++)
        l.units[t] = (int32_t)t;
    l.n_units = by_token ? l.n : l.n_units;
    const wm_bootstrap_t b = {.resamples = units > 100 ? 399 : 999,
                              .seed = (uint64_t)i,
                              .confidence = 0.95,
                              .interval = interval};
    wm_effect_t e;
    judge(&l, &b, &e);
    covered += e.low <= truth && truth <= e.high;
    losses_destroy(&l);
  }
  return (double)covered / repetitions;
}

/* 2000 repetitions: one standard error is 0.5 %. Drawing tokens as if they were independent, on
 * data like these, would cover some 70 %. */
static void intervals_cover(void **state) {
  (void)state;
  static const int counts[] = {10, 20, 30, 120};
  for (int i = 0; i < 4; i++) {
    const double units = coverage(2000, counts[i], WM_INTERVAL_EXPANDED, false);
    print_message("95 %% intervals from %d units cover %.2f %%\n", counts[i], 100 * units);
    if (!(units >= 0.93 && units <= 0.97))
      fail_msg("95 %% intervals from %d units cover %g %%", counts[i], 100 * units);
  }
  const double plain = coverage(2000, 10, WM_INTERVAL_PERCENTILE, false),
               tokens = coverage(150, 120, WM_INTERVAL_EXPANDED, true);
  print_message("plain ones from 10 units %.2f %%; from 120, if tokens are drawn, %.1f %%\n",
                100 * plain, 100 * tokens);
  if (!(plain < 0.91))
    fail_msg("plain intervals from 10 units cover %g %%: nothing needs expanding", 100 * plain);
  if (!(tokens < 0.85))
    fail_msg("intervals from tokens cover %g %%: the data are not dependent", 100 * tokens);
}

/* ---- Stars ----------------------------------------------------------------------------------- */

/* Of 20 variants, 19 differ by chance alone (one in 20 then has p < 0.05) and one is better. */
static void stars_are_earned(void **state) {
  (void)state;
  enum { VARIANTS = 20, UNITS = 200, BETTER = 11 };
  losses_t l = losses_create(UNITS, UNITS, VARIANTS);
  normal_t normal = {.rng = {2, 0}};
  for (int u = 0; u < UNITS; u++) {
    l.units[u] = u;
    l.full[u] = (float)(3 + draw(&normal));
    for (int v = 0; v < VARIANTS; v++)
      l.variant[v * l.n + u] =
          (float)((double)l.full[u] + 0.1 * draw(&normal) - (v == BETTER ? 0.05 : 0));
  }
  const wm_bootstrap_t b = {.resamples = 10000, .seed = 1, .confidence = 0.95};
  wm_effect_t e[VARIANTS];
  judge(&l, &b, e);
  int uncorrected = 0;
  for (int v = 0; v < VARIANTS; v++) {
    uncorrected += v != BETTER && e[v].p_two_sided < 0.05;
    assert_string_equal(wm_effect_stars(&e[v]), v == BETTER ? "**" : "");
    assert_int_equal(e[v].beats_full, v == BETTER);
  }
  assert_true(uncorrected > 0); /* so the correction is what keeps their stars away */
  losses_destroy(&l);
}

static void stars_follow_holm(void **state) {
  (void)state;
  wm_effect_t e = wm_effect_undefined();
  assert_string_equal(wm_effect_stars(&e), "");
  e.units = WM_MIN_UNITS;
  assert_string_equal(wm_effect_stars(&e), "");
  const double p[] = {0.05, 0.049, 0.01, 0.009, 0.001, 0.0009};
  const char *const stars[] = {"", "*", "*", "**", "**", "***"};
  for (int i = 0; i < 6; i++) {
    e.p_two_sided = 1e-6; /* does not matter */
    e.p_holm = p[i];
    assert_string_equal(wm_effect_stars(&e), stars[i]);
  }
  e.units = WM_MIN_UNITS - 1;
  assert_string_equal(wm_effect_stars(&e), "");
}

/* ---- Words ----------------------------------------------------------------------------------- */

static void expect_note(const wm_effect_t *e, const char *expected) {
  char text[128] = "untouched";
  wm_effect_note(e, 40, text, sizeof text);
  assert_string_equal(text, expected);
}

static void expect_interval(double low, double high, const char *expected) {
  char text[96];
  wm_interval_text(low, high, text, sizeof text);
  assert_string_equal(text, expected);
}

/* Variants, in order: usual, equal to the full model, moved by the same amount everywhere, beyond
 * float32, beyond float64, with losses that are not finite. */
static void degenerate_variants_in_words(void **state) {
  (void)state;
  enum { VARIANTS = 6, N = 40 };
  losses_t l = losses_create(N, 20, VARIANTS);
  normal_t normal = {.rng = {3, 0}};
  for (int i = 0; i < N; i++) {
    l.units[i] = i / 2;
    l.full[i] = (float)(1 + i % 7) / 4;
    const float values[VARIANTS] = {l.full[i] + (float)(0.1 * draw(&normal)),
                                    l.full[i],
                                    l.full[i] + 0.25F,
                                    l.full[i] + 100,
                                    l.full[i] + 1000 + (float)(i % 3),
                                    i % 19 == 3 ? INFINITY
                                    : i == 5    ? NAN
                                                : 1};
    for (int v = 0; v < VARIANTS; v++)
      l.variant[v * N + i] = values[v];
  }
  const wm_bootstrap_t b = {.resamples = 200, .seed = 1, .confidence = 0.95, .unpaired = true};
  wm_effect_t e[VARIANTS];
  char text[96];
  judge(&l, &b, e);
  expect_note(&e[0], "");
  expect_note(&e[1], "no loss differs from the full model's");
  assert_true(e[1].p_holm == 1 && e[1].low == 0 && e[1].high == 0);
  expect_note(&e[2], "all units agree: no spread to judge by");
  expect_interval(e[2].low, e[2].high, "[28.403, 28.403]"); /* 100 (exp(0.25) - 1) */
  assert_true(isnan(wm_effect_width_ratio(&e[2])) && e[2].unpaired_low < e[2].unpaired_high);
  assert_true(e[3].perplexity > 1e43 && isfinite(e[3].perplexity)); /* float32 ends at 3.4e38 */
  expect_note(&e[3], "all units agree: no spread to judge by");
  assert_true(isinf(e[4].perplexity) && isinf(e[4].delta) && !e[4].beats_full);
  assert_true(fabs(e[4].mean_nll - 1001.9) < 0.2 && e[4].p_better > e[4].p_worse);
  expect_note(&e[4], "perplexity overflows: 1002 nats a token");
  expect_interval(e[4].low, e[4].high, "[overflow, overflow]");
  expect_interval(e[4].unpaired_low, e[4].unpaired_high, "[overflow, overflow]");
  assert_true(isnan(wm_effect_width_ratio(&e[4])));
  assert_int_equal(e[5].non_finite, 3);
  expect_note(&e[5], "3 of 40 losses are not finite");
  wm_interval_text(e[5].low, e[5].high, text, sizeof text);
  assert_string_equal(text, "-");
  assert_true(isnan(e[5].unpaired_low) && wm_effect_stars(&e[5])[0] == '\0');
  losses_destroy(&l);
}

static void few_units_in_words(void **state) {
  (void)state;
  losses_t l = losses_create(3, 1, 1);
  for (int i = 0; i < 3; i++)
    l.variant[i] = l.full[i] + 1;
  const wm_bootstrap_t b = {.resamples = 100, .seed = 1, .confidence = 0.95, .unpaired = true};
  wm_effect_t e;
  judge(&l, &b, &e);
  expect_note(&e, "one unit: no interval");
  expect_interval(e.low, e.high, "-");
  assert_true(isnan(e.unpaired_low) && isnan(wm_effect_width_ratio(&e)) && isfinite(e.delta));
  losses_destroy(&l);
}

static void intervals_as_text(void **state) {
  (void)state;
  expect_interval(-0.1234, 4.5, "[-0.123, 4.500]");
  expect_interval(12, INFINITY, "[12.000, overflow]");
  expect_interval(1e12, 2.5e40, "[1.000e+12, 2.500e+40]");
  expect_interval(NAN, 1, "-");
}

static void medians(void **state) {
  (void)state;
  double x[] = {NAN, 3, 1, NAN, 10}, even[] = {4, 1, 2, 3}, none[] = {NAN};
  assert_true(wm_median(x, 5) == 3 && wm_median(even, 4) == 2.5);
  assert_true(isnan(wm_median(none, 1)) && isnan(wm_median(NULL, 0)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pairing_at_the_published_spread),
      cmocka_unit_test(intervals_cover),
      cmocka_unit_test(stars_are_earned),
      cmocka_unit_test(stars_follow_holm),
      cmocka_unit_test(degenerate_variants_in_words),
      cmocka_unit_test(few_units_in_words),
      cmocka_unit_test(intervals_as_text),
      cmocka_unit_test(medians),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
