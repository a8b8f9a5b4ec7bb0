/* Normal and Student's distribution against values computed with 60 digits (mpmath), known closed
 * forms, and each function against its inverse. */
#include "wanamaker/base/distribution.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* Relative; what the header promises. */
static const double TOLERANCE = 1e-12;

static void expect_ratio(double got, double expected, double x, double df) {
  const bool same = got == expected || fabs(got / expected - 1) <= TOLERANCE;
  if (!same)
    fail_msg("at %g (%g degrees of freedom): %.17g, expected %.17g", x, df, got, expected);
}

static void normal_values(void **state) {
  (void)state;
  static const double table[][2] = {
      {-20, 2.7536241186062337e-89},    {-8, 6.2209605742717841e-16},
      {-5.27, 6.8211879411862432e-8},   {-3.719, 1.0000652593416145e-4},
      {-2.3846, 8.5488502305156262e-3}, {-1, 0.15865525393145705},
      {-0.1, 0.46017216272297102},      {0, 0.50000000000000000},
      {0.5, 0.69146246127401310},       {2, 0.97724986805182079},
      {6, 0.99999999901341235},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    const double x = table[i][0], p = table[i][1];
    expect_ratio(wm_normal_cdf(x), p, x, INFINITY);
    if (p < 0.6) /* above, p does not have the digits */
      expect_ratio(wm_normal_quantile(p) + 1, x + 1, p, INFINITY);
    else
      assert_true(fabs(wm_normal_quantile(p) - x) < 1e-7);
  }
  assert_true(isinf(wm_normal_quantile(0)) && wm_normal_quantile(0) < 0);
  assert_true(isinf(wm_normal_quantile(1)) && wm_normal_quantile(1) > 0);
}

static void student_values(void **state) {
  (void)state;
  static const double table[][3] = {
      {-1e9, 1, 3.1830988618379067e-10},
      {-40, 1, 7.9560899120258133e-3},
      {-6.5, 1, 0.048589790347528939},
      {-2.2621571627409915, 1, 0.13248949819493705},
      {-1.7, 1, 0.16925302733033267},
      {-0.3, 1, 0.40722642092225766},
      {0, 1, 0.50000000000000000},
      {1.25, 1, 0.78522328747727727},
      {-1e9, 2, 5.0000000000000000e-19},
      {-40, 2, 3.1220733609237032e-4},
      {-6.5, 2, 0.011430081798161245},
      {-2.2621571627409915, 2, 0.076031624061962517},
      {-1e9, 9, 2.5458970371070178e-78},
      {-40, 9, 9.4914992246699132e-12},
      {-6.5, 9, 5.5725393684307647e-5},
      {-2.2621571627409915, 9, 0.025000000002337862},
      {-1.7, 9, 0.061673831071911954},
      {-0.3, 9, 0.38549535187076245},
      {0, 9, 0.50000000000000000},
      {1.25, 9, 0.87858786272782946},
      {-40, 19, 4.1538785996692150e-20},
      {-6.5, 19, 1.5784231889062965e-6},
      {-2.2621571627409915, 19, 0.017800780719712946},
      {-40, 38, 5.7138013340806538e-33},
      {-6.5, 38, 5.8831504962898334e-8},
      {-2.2621571627409915, 38, 0.014744696579995805},
      {-1.7, 38, 0.048651717235763473},
      {-0.3, 38, 0.38290608899390351},
      {0, 38, 0.50000000000000000},
      {1.25, 38, 0.89052841766358786},
      {-40, 99.5, 1.9813553391485622e-63},
      {-6.5, 99.5, 1.6129507388011205e-9},
      {-2.2621571627409915, 99.5, 0.012931180932928038},
      {-1.7, 99.5, 0.046127469782922442},
      {-0.3, 99.5, 0.38240150262988424},
      {0, 99.5, 0.50000000000000000},
      {1.25, 99.5, 0.89288421519591546},
      {-40, 101, 4.7682865679636612e-64},
      {-6.5, 101, 1.5441742402316964e-9},
      {-2.2621571627409915, 101, 0.012914838563861975},
      {-6.5, 1000, 6.3271412660035814e-11},
      {-2.2621571627409915, 1000, 0.011950821288652784},
      {-1.7, 1000, 0.044720943479620021},
      {-0.3, 1000, 0.38211975208362202},
      {0, 1000, 0.50000000000000000},
      {1.25, 1000, 0.89420400351664843},
      {-6.5, 5e6, 4.0163758388506962e-11},
      {-2.2621571627409915, 5e6, 0.011843868819445576},
      {-1.7, 5e6, 0.044565493855870245},
      {-0.3, 5e6, 0.38208858404673798},
      {0, 5e6, 0.50000000000000000},
      {1.25, 5e6, 0.89435019708075373},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    expect_ratio(wm_student_cdf(table[i][0], table[i][1]), table[i][2], table[i][0], table[i][1]);
}

/* t_{0.025} and t_{0.001} of the tables, from SciPy. */
static void student_quantiles(void **state) {
  (void)state;
  static const double table[][3] = {
      {1e-9, 3, -1033.1096745038078},    {0.001, 4, -7.1731822197823085},
      {0.025, 1, -12.706204736174705},   {0.025, 2, -4.3026527297494637},
      {0.025, 9, -2.2621571627982053},   {0.025, 19, -2.0930240544083101},
      {0.025, 29, -2.0452296421327039},  {0.025, 119, -1.98009987645694},
      {1e-9, 1000, -6.0536902720798338}, {0.025, 5e6, -1.9599644589944132},
      {0.3, 38, -0.52882845341989793},   {0.8, 100, 0.84523042449101626},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    expect_ratio(wm_student_quantile(table[i][0], table[i][1]), table[i][2], table[i][0],
                 table[i][1]);
  assert_true(wm_student_quantile(0.5, 7) == 0);
  assert_true(isinf(wm_student_quantile(0, 7)) && isinf(wm_student_quantile(1, 7)));
}

/* One degree of freedom is Cauchy's, t = -cot(pi p); two have t = (2p - 1) / sqrt(2 p (1 - p)). */
static void closed_forms(void **state) {
  (void)state;
  for (double p = 1e-100; p < 0.5; p *= 7) {
    expect_ratio(wm_student_quantile(p, 1), -1 / tan(M_PI * p), p, 1);
    expect_ratio(wm_student_quantile(p, 2), (2 * p - 1) / sqrt(2 * p * (1 - p)), p, 2);
  }
}

/* Quantile and cdf undo one another over tails and degrees of freedom; an error of the quantile by
 * e moves the tail by up to e t^2, or e df far out. */
static void inverses(void **state) {
  (void)state;
  static const double dfs[] = {0.5, 1, 2.5, 9, 49, 99.9, 100.1, 3000, 1e5, 1e7};
  for (double p = 1e-15; p < 0.5; p *= 3) {
    expect_ratio(wm_normal_cdf(wm_normal_quantile(p)), p, p, INFINITY);
    for (size_t i = 0; i < sizeof dfs / sizeof *dfs; i++)
      expect_ratio(wm_student_cdf(wm_student_quantile(p, dfs[i]), dfs[i]), p, p, dfs[i]);
  }
}

/* The tail falls where its two ways of computing meet, and the limits are exact. */
static void monotone(void **state) {
  (void)state;
  static const double dfs[] = {1, 9, 99, 1e4};
  for (size_t i = 0; i < sizeof dfs / sizeof *dfs; i++) {
    double last = 0;
    for (double t = -30; t <= 30; t += 0.01) {
      const double p = wm_student_cdf(t, dfs[i]);
      assert_true(p >= last && p <= 1);
      assert_true(fabs(p + wm_student_cdf(-t, dfs[i]) - 1) < 1e-15);
      last = p;
    }
    assert_true(wm_student_cdf(-INFINITY, dfs[i]) == 0 && wm_student_cdf(INFINITY, dfs[i]) == 1);
    assert_true(wm_student_cdf(0, dfs[i]) == 0.5);
  }
  assert_true(fabs(wm_student_cdf(-2.5, 1e9) / wm_normal_cdf(-2.5) - 1) < 1e-7);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(normal_values),     cmocka_unit_test(student_values),
      cmocka_unit_test(student_quantiles), cmocka_unit_test(closed_forms),
      cmocka_unit_test(inverses),          cmocka_unit_test(monotone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
