/* References: the incomplete beta function by the continued fraction of Didonato and Morris (ACM
 * TOMS 18, 1992, equation 9), evaluated by Lentz's method in Thompson and Barnett's form (1986);
 * the normal quantile starts from Hastings' approximation (Abramowitz and Stegun 26.2.23) and is
 * refined by Halley's steps; ratios of gamma functions far out by their asymptotic series. */
#include "wanamaker/base/distribution.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>

static const double LOG_SQRT_2PI = 0.91893853320467274178;
static const double LOG_SQRT_PI = 0.57236494292470008707;

/* ---- Normal ---------------------------------------------------------------------------------- */

double wm_normal_cdf(double x) {
  return 0.5 * erfc(-x * M_SQRT1_2);
}

/* For 0 < p <= 1/2. Hastings' error is below 4.5e-4 and a step of Halley's cubes it, about: two
 * reach rounding, the third costs nothing. */
static double lower_normal_quantile(double p) {
  const double s = sqrt(-2 * log(p));
  double x = (2.515517 + s * (0.802853 + s * 0.010328)) /
                 (1 + s * (1.432788 + s * (0.189269 + s * 0.001308))) -
             s;
  for (int i = 0; i < 3; i++) {
    const double step = (wm_normal_cdf(x) - p) * exp(0.5 * x * x + LOG_SQRT_2PI);
    x -= step / (1 + 0.5 * x * step);
  }
  return x;
}

double wm_normal_quantile(double p) {
  assert(p >= 0 && p <= 1);
  if (p == 0 || p == 1)
    return p == 0 ? -INFINITY : INFINITY;
  return p <= 0.5 ? lower_normal_quantile(p) : -lower_normal_quantile(1 - p);
}

/* ---- Student's t ----------------------------------------------------------------------------- */

/* log(gamma(a + 1/2) / gamma(a)). The series' first term left out is 869 / (4194304 a^6), 1.4e-14
 * at 50; a difference of two lgamma, some a log a each, would lose its digits as a grows. */
static double log_gamma_step(double a) {
  if (a < 50)
    return log(tgamma(a + 0.5) / tgamma(a));
  const double r = 1 / a;
  const double series =
      r *
      (-1.0 / 8 + r * (1.0 / 128 + r * (5.0 / 1024 + r * (-21.0 / 32768 + r * (-399.0 / 262144)))));
  return 0.5 * log(a) + log1p(series);
}

/* Keeps a divisor of Lentz's method away from zero. */
static double not_zero(double x) {
  return fabs(x) < DBL_MIN / DBL_EPSILON ? DBL_MIN / DBL_EPSILON : x;
}

/* I_x(a, b) B(a, b) / (x^a y^b), y = 1 - x, for x < (a + 1) / (a + b + 2): some sqrt(max(a, b))
 * terms near that bound, few well below it. In terms of lambda and y instead of x alone nothing
 * cancels where one of x and y is close to 1, as for many degrees of freedom. */
static double beta_fraction(double a, double b, double x, double y) {
  const double lambda = x < y ? a - (a + b) * x : (a + b) * y - b;
  double f = not_zero((lambda + 1) * a / (a + 1)), c = f, d = 0;
  for (int n = 1; n < 1000000; n++) {
    const double s = a + 2 * n - 1;
    const double alpha = (a + n - 1) / s * ((a + b + n - 1) / s) * n * (b - n) * x * x;
    const double beta = n + n * (b - n) * x / s + (a + n) / (s + 2) * (lambda + 1 + n * (1 + y));
    d = 1 / not_zero(beta + alpha * d);
    c = not_zero(beta + alpha / c);
    f *= c * d;
    if (fabs(c * d - 1) <= DBL_EPSILON)
      break;
  }
  return 1 / f;
}

/* P(T <= -t), t >= 0: I_x(df/2, 1/2) / 2 with x = df / (df + t^2), or half of what the other side
 * of the same function leaves of 1. */
static double student_lower_tail(double t, double df) {
  const double a = 0.5 * df, ratio = t * t / df;
  if (isinf(ratio))
    return 0;
  const double x = 1 / (1 + ratio), y = ratio / (1 + ratio);
  /* x^a (1 - x)^(1/2) / B(a, 1/2) */
  const double front = exp(log_gamma_step(a) - LOG_SQRT_PI - a * log1p(ratio)) * sqrt(y);
  if (x < (a + 1) / (a + 2.5))
    return 0.5 * front * beta_fraction(a, 0.5, x, y);
  return 0.5 - 0.5 * front * beta_fraction(0.5, a, y, x);
}

double wm_student_cdf(double t, double df) {
  assert(df > 0);
  return t <= 0 ? student_lower_tail(-t, df) : 1 - student_lower_tail(t, df);
}

static double log_student_density(double t, double df) {
  return log_gamma_step(0.5 * df) - LOG_SQRT_PI - 0.5 * log(df) -
         0.5 * (df + 1) * log1p(t * t / df);
}

/* For 0 < p < 1/2: u = log t > solves log P(T <= -t) = log p. In these coordinates a far tail is a
 * straight line of slope -df, so that Newton's step lands; one that leaves the bracket is replaced
 * by the bracket's middle. */
static double lower_student_quantile(double p, double df) {
  double low = log(DBL_MIN), high = 0.5 * log(DBL_MAX) - 1; /* t^2 is finite */
  double u = log(-lower_normal_quantile(p));
  if (student_lower_tail(exp(high), df) > p)
    return -INFINITY;
  for (int i = 0; i < 200; i++) {
    const double t = exp(u), tail = student_lower_tail(t, df);
    if (tail > p)
      low = u;
    else
      high = u;
    const double slope = -exp(log_student_density(t, df) + u) / tail;
    double next = u - (log(tail) - log(p)) / slope;
    const bool inside = next > low && next < high;
    next = inside ? next : 0.5 * (low + high);
    if (fabs(next - u) <= 2 * DBL_EPSILON * fmax(1, fabs(u)))
      return -exp(next);
    u = next;
  }
  return -exp(u);
}

double wm_student_quantile(double p, double df) {
  assert(p >= 0 && p <= 1 && df > 0);
  if (p == 0 || p == 1)
    return p == 0 ? -INFINITY : INFINITY;
  if (p == 0.5)
    return 0;
  return p < 0.5 ? lower_student_quantile(p, df) : -lower_student_quantile(1 - p, df);
}
