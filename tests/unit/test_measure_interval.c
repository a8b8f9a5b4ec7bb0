/* Expanded percentile intervals and their p-values: levels against SciPy's numbers, agreement of
 * interval and p-value over random resamples, and what is beyond the resamples' resolution. */
#include "wanamaker/measure/interval.h"

#include "wanamaker/base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST = 9999 };

/* x[n] = 1, 2, ... so that a bound is its own rank. */
static void ranks(double *x, int n) {
  for (int i = 0; i < n; i++)
    x[i] = n - i;
}

static void bounds_are_ranks(void **state) {
  (void)state;
  /* floor(10 000 Phi(sqrt(U / (U - 1)) t)), from SciPy's levels; plain: 250, of U whatever it is */
  static const struct {
    wm_interval_kind_t kind;
    int n, units;
    double confidence;
    int rank;
  } cases[] = {
      {WM_INTERVAL_EXPANDED, 9999, 4, 0.95, 1},     /* 0.000119031 */
      {WM_INTERVAL_EXPANDED, 9999, 5, 0.95, 9},     /* 0.000954101 */
      {WM_INTERVAL_EXPANDED, 9999, 10, 0.95, 85},   /* 0.00855064 */
      {WM_INTERVAL_EXPANDED, 9999, 20, 0.95, 158},  /* 0.0158808 */
      {WM_INTERVAL_EXPANDED, 9999, 30, 0.95, 187},  /* 0.0187539 */
      {WM_INTERVAL_EXPANDED, 9999, 120, 0.95, 233}, /* 0.0233836 */
      {WM_INTERVAL_EXPANDED, 999, 20, 0.95, 15},
      {WM_INTERVAL_PERCENTILE, 9999, 10, 0.95, 250},
      {WM_INTERVAL_PERCENTILE, 999, 10, 0.95, 25},
      {WM_INTERVAL_PERCENTILE, 1000, 10, 0.95, 25},
      {WM_INTERVAL_PERCENTILE, 99, 10, 0.9, 4},
      /* in float64 1 - 0.9 < 0.1, p of rank 5 */ {WM_INTERVAL_PERCENTILE, 999, 2, 0.5, 250},
  };
  static double x[MOST];
  double low, high;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const int n = cases[i].n;
    ranks(x, n);
    assert_true(wm_bootstrap_interval(cases[i].kind, x, n, cases[i].units, cases[i].confidence,
                                      &low, &high));
    if (low != cases[i].rank || high != n + 1 - cases[i].rank)
      fail_msg("case %zu: [%g, %g], expected rank %d", i, low, high, cases[i].rank);
  }
}

/* Two-sided, k = 0 of R = 10 000; SciPy. */
static void smallest_p(void **state) {
  (void)state;
  static const double table[][2] = {{2, 0.231333},   {3, 0.09349},     {5, 0.029203},
                                    {10, 0.006432},  {20, 0.001803},   {30, 0.001008},
                                    {100, 0.000354}, {1000000, 0.0002}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    const double p = 2 * wm_bootstrap_p(WM_INTERVAL_EXPANDED, 0, 10000, (int64_t)table[i][0]);
    if (!(fabs(p - table[i][1]) < 6e-7))
      fail_msg("%g units: p = %.9g, expected %g", table[i][0], p, table[i][1]);
  }
  assert_true(wm_bootstrap_p(WM_INTERVAL_PERCENTILE, 0, 999, 10) == 0.001);
  for (int kind = 0; kind < 2; kind++) {
    assert_true(wm_bootstrap_p((wm_interval_kind_t)kind, 100, 100, 10) == 1);
    for (int k = 1; k <= 100; k++)
      assert_true(wm_bootstrap_p((wm_interval_kind_t)kind, k, 100, 10) >
                  wm_bootstrap_p((wm_interval_kind_t)kind, k - 1, 100, 10));
  }
}

/* Never narrower than the plain interval, and the same in the limit. */
static void expands(void **state) {
  (void)state;
  static double x[MOST];
  double low, high, plain_low, plain_high;
  for (int units = 2; units < 3000; units += 1 + units / 4) {
    ranks(x, MOST);
    wm_bootstrap_interval(WM_INTERVAL_EXPANDED, x, MOST, units, 0.95, &low, &high);
    wm_bootstrap_interval(WM_INTERVAL_PERCENTILE, x, MOST, units, 0.95, &plain_low, &plain_high);
    assert_true(low <= plain_low && high >= plain_high);
    assert_true(units > 400 || low < plain_low);
  }
  wm_bootstrap_interval(WM_INTERVAL_EXPANDED, x, MOST, 1000000, 0.95, &low, &high);
  assert_true(fabs(low - plain_low) <= 1);
}

/* Resamples about a shift, rounded so that many are tied and some are zero. */
static void draw(wm_rng_t rng, double *x, int n) {
  const double shift = 4 * wm_rng_normal(rng, (uint64_t)n);
  for (int i = 0; i < n; i++)
    x[i] = round(4 * (shift + 2 * wm_rng_normal(rng, (uint64_t)i))) / 4 + 0.0;
}

static void interval_and_p_agree(void **state) {
  (void)state;
  enum { CASES = 20000 };
  static const int sizes[] = {10, 19, 99, 100, 199, 400, 999};
  static const double levels[] = {0.5, 0.8, 0.9, 0.95, 0.99, 0.999};
  static double x[MOST];
  int excluded = 0, unresolved = 0, close = 0;
  for (int i = 0; i < CASES; i++) {
    const wm_rng_t rng = {17, (uint64_t)i}, choice = {18, (uint64_t)i};
    const int n = sizes[wm_rng_below(choice, 0, 7)];
    const double confidence = levels[wm_rng_below(choice, 1, 6)];
    const int64_t units =
        2 + (int64_t)wm_rng_below(choice, 2, wm_rng_below(choice, 3, 2) ? 12 : 300);
    const wm_interval_kind_t kind = (wm_interval_kind_t)wm_rng_below(choice, 4, 2);
    int64_t not_below = 0, not_above = 0;
    double low, high;
    draw(rng, x, n);
    for (int r = 0; r < n; r++) {
      not_below += x[r] >= 0;
      not_above += x[r] <= 0;
    }
    const double p = 2 * fmin(wm_bootstrap_p(kind, not_below, n, units),
                              wm_bootstrap_p(kind, not_above, n, units));
    const bool resolved = wm_bootstrap_interval(kind, x, n, units, confidence, &low, &high);
    const bool excludes = low > 0 || high < 0, significant = p <= 1 - confidence;
    if (resolved ? excludes != significant : significant)
      fail_msg("case %d: [%g, %g], p = %.17g at confidence %g from %d resamples", i, low, high, p,
               confidence, n);
    excluded += excludes;
    unresolved += !resolved;
    close += fabs(p - (1 - confidence)) < 0.05 * (1 - confidence);
  }
  assert_true(excluded > CASES / 10 && excluded < CASES * 9 / 10);
  assert_true(unresolved > CASES / 50 && close > CASES / 100); /* the cases that matter occur */
}

/* p = 1 - confidence to the last bit, with (k + 1) / (R + 1) = alpha / 2: zero is excluded. */
static void on_the_edge(void **state) {
  (void)state;
  static double x[MOST];
  double low, high;
  for (int r = 0; r < 199; r++)
    x[r] = r < 4 ? -1 : 1; /* (4 + 1) / 200 = 0.025 */
  assert_true(2 * wm_bootstrap_p(WM_INTERVAL_PERCENTILE, 4, 199, 30) <= 1 - 0.95);
  wm_bootstrap_interval(WM_INTERVAL_PERCENTILE, x, 199, 30, 0.95, &low, &high);
  assert_true(low == 1 && high == 1);
  x[4] = -1;
  wm_bootstrap_interval(WM_INTERVAL_PERCENTILE, x, 199, 30, 0.95, &low, &high);
  assert_true(low == -1 && high == 1);
}

static void beyond_resolution(void **state) {
  (void)state;
  static double x[MOST];
  double low, high;
  for (int units = 2; units <= 3; units++) { /* levels of 1.7e-72 and 6.8e-8 */
    ranks(x, MOST);
    assert_false(wm_bootstrap_interval(WM_INTERVAL_EXPANDED, x, MOST, units, 0.95, &low, &high));
    assert_true(low == 1 && high == MOST);
    wm_bootstrap_bounds(WM_INTERVAL_EXPANDED, x, MOST, units, 0.95, &low, &high);
    assert_true(isnan(low) && isnan(high));
    assert_true(2 * wm_bootstrap_p(WM_INTERVAL_EXPANDED, 0, MOST, units) > 0.05);
  }
  ranks(x, 100);
  assert_false(wm_bootstrap_interval(WM_INTERVAL_EXPANDED, x, 100, 10, 0.95, &low, &high));
  ranks(x, 100);
  assert_false(wm_bootstrap_interval(WM_INTERVAL_PERCENTILE, x, 38, 10, 0.95, &low, &high));
  assert_true(wm_bootstrap_interval(WM_INTERVAL_PERCENTILE, x, 39, 10, 0.95, &low, &high));
}

static void degenerate(void **state) {
  (void)state;
  double equal[50], with_nan[] = {1, NAN, 3}, infinite[60], low, high;
  for (int i = 0; i < 60; i++)
    infinite[i] = i < 30 ? i : INFINITY;
  for (int i = 0; i < 50; i++)
    equal[i] = 0.25;
  wm_bootstrap_interval(WM_INTERVAL_EXPANDED, equal, 50, 2, 0.95, &low, &high);
  assert_true(low == 0.25 && high == 0.25);
  wm_bootstrap_interval(WM_INTERVAL_EXPANDED, with_nan, 3, 9, 0.95, &low, &high);
  assert_true(isnan(low) && isnan(high));
  wm_bootstrap_interval(WM_INTERVAL_EXPANDED, equal, 0, 9, 0.95, &low, &high);
  assert_true(isnan(low) && isnan(high));
  wm_bootstrap_interval(WM_INTERVAL_EXPANDED, infinite, 60, 100, 0.9, &low, &high);
  assert_true(low == 1 && isinf(high)); /* floor(61 * 0.0473) = 2 */
}

static void names(void **state) {
  (void)state;
  wm_interval_kind_t kind;
  for (int i = 0; i < 2; i++) {
    assert_true(wm_interval_parse(wm_interval_name((wm_interval_kind_t)i), &kind));
    assert_int_equal(kind, i);
  }
  assert_false(wm_interval_parse("bca", &kind));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bounds_are_ranks), cmocka_unit_test(smallest_p),
      cmocka_unit_test(expands),          cmocka_unit_test(interval_and_p_agree),
      cmocka_unit_test(on_the_edge),      cmocka_unit_test(beyond_resolution),
      cmocka_unit_test(degenerate),       cmocka_unit_test(names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
