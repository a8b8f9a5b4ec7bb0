/* L2-regularised logistic regression on rows that ranks hold, to its optimum (method.md, section
 * 4).
 *
 * Minimises over w and b, the intercept unpenalised,
 *     F = C sum_i [ log(1 + exp(s_i)) - y_i s_i ] + |w|^2 / 2,    s_i = w . z_i + b
 * by Newton's method: gradient and Hessian are summed over ranks, the step solves
 *     (C Z1' diag(p (1 - p)) Z1 + diag(1, .., 1, 0)) step = -gradient,    Z1 = [Z, 1]
 * by ScaLAPACK's Cholesky factorisation. From w = 0 and b = the log-odds of the labels.
 *
 * A step is halved until F falls by a ten-thousandth of what the gradient promises (Armijo), but
 * for rounding. Done when no component of an undamped step exceeds 1e-9 of the largest coefficient,
 * or 1e-12: F is at least 1-strongly convex in w, steps near its minimum shrink quadratically, and
 * so what is left is far below the step.
 */
#ifndef WANAMAKER_MEASURE_LOGISTIC_H
#define WANAMAKER_MEASURE_LOGISTIC_H

#include "wanamaker/base/status.h"
#include "wanamaker/measure/design.h"

#include <mpi.h>
#include <stdint.h>

enum { WM_LOGISTIC_ITERATIONS = 100 };

typedef struct {
  int64_t iterations;
  double loss;     /* mean log-loss at the optimum, nats */
  double step;     /* largest component of the last step */
  double gradient; /* largest component of the gradient of F / N, where it was taken */
} wm_logistic_t;

/* Collective over `comm`. label[n] of this rank's rows, 0 or 1, both of which must occur somewhere.
 * coefficient: [k], intercept: the same bits on every rank. Memory: (k + 1)^2 doubles and a tile.
 * WM_NUMERICAL if the Hessian can't be factored or WM_LOGISTIC_ITERATIONS do not suffice. */
wm_status_t wm_logistic_fit(MPI_Comm comm, const wm_design_t *design, const int8_t *label, double C,
                            int block, double *coefficient, double *intercept, wm_logistic_t *out,
                            wm_error_t *err);

/* Bytes that a fit of k columns takes on a rank. */
int64_t wm_logistic_bytes(int64_t k);

#endif
