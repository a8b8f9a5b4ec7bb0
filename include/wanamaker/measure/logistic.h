/* L2-regularised logistic regression on rows that ranks hold, to its optimum (method.md, section
 * 4).
 *
 * Minimises over w and b, the intercept unpenalised,
 *     F = C sum_i [ log(1 + exp(s_i)) - y_i s_i ] + |w|^2 / 2,    s_i = w . z_i + b
 * by Newton's method: gradient and Hessian are summed over ranks, the step solves
 *     (C Z1' diag(p (1 - p)) Z1 + diag(1, .., 1, 0)) step = -gradient,    Z1 = [Z, 1]
 * by ScaLAPACK's Cholesky factorisation. From w = 0 and b = the log-odds of the labels.
 *
 * How far a step is taken, and when it is the last, follows from |p''| <= p' (Bach, Self-concordant
 * analysis for logistic regression, 2010): where no margin s_i has changed by more than D since the
 * Hessian was taken, it has changed by factors between e^-D and e^D. With L^2 = -gradient . step,
 *   - F falls along a whole step that changes no margin by more than 1/2: no look at F, whose
 *     rounding errors would be larger than what the last steps gain. Of a longer step the part is
 *     taken at which F's slope is between half of what it was and none;
 *   - after a whole step what is left is, in the Hessian's norm and so in w's, at most
 *     (e^D - 1) L. Done where that is 1e-9 of the largest coefficient, or 1e-12;
 *   - with the same Hessian every further step leaves (e^D - 1) of the last. It is kept where three
 *     such steps, which take the gradient alone, will do.
 */
#ifndef WANAMAKER_MEASURE_LOGISTIC_H
#define WANAMAKER_MEASURE_LOGISTIC_H

#include "wanamaker/base/status.h"
#include "wanamaker/measure/design.h"

#include <mpi.h>
#include <stdint.h>

enum { WM_LOGISTIC_ITERATIONS = 100 };

typedef struct {
  int64_t iterations; /* steps */
  int64_t hessians;   /* that were computed for them */
  double loss;        /* mean log-loss at the optimum, nats */
  double left;        /* bound of what the optimum is away, in the Hessian's norm */
} wm_logistic_t;

/* Collective over `comm`. label[n] of this rank's rows, 0 or 1, both of which must occur somewhere.
 * coefficient: [k], intercept: the same bits on every rank. Memory: (k + 1)^2 and two doubles a
 * row, and a tile. WM_NUMERICAL if the Hessian can't be factored or WM_LOGISTIC_ITERATIONS do not
 * suffice. */
wm_status_t wm_logistic_fit(MPI_Comm comm, const wm_design_t *design, const int8_t *label, double C,
                            int block, double *coefficient, double *intercept, wm_logistic_t *out,
                            wm_error_t *err);

/* Bytes that a fit of k columns takes on a rank with so many rows. */
int64_t wm_logistic_bytes(int64_t rows, int64_t k);

#endif
