/* The normal distribution and Student's t: what intervals and p-values from few units need.
 *
 * Lower tails keep their digits: a relative error below 1e-12 for those of 1e-150 or more, which
 * the tests hold against values computed with 50 digits. Not collective.
 */
#ifndef WANAMAKER_BASE_DISTRIBUTION_H
#define WANAMAKER_BASE_DISTRIBUTION_H

/* P(Z <= x). */
double wm_normal_cdf(double x);

/* x with P(Z <= x) = p, 0 <= p <= 1; -INFINITY at 0, INFINITY at 1. The digits of 1 - p that p
 * itself does not have are lost: for an upper tail take the negative of the lower one's. */
double wm_normal_quantile(double p);

/* P(T <= t) for Student's t with df > 0 degrees of freedom; t may be infinite. Tails beyond
 * |t| = 1e154 sqrt(df) are 0. */
double wm_student_cdf(double t, double df);

/* t with P(T <= t) = p, 0 <= p <= 1; infinite at 0 and 1, and where |t| would exceed 1e153. The
 * upper tail as with wm_normal_quantile. */
double wm_student_quantile(double p, double df);

#endif
