/* Ridge regression from sufficient statistics, distributed (method.md, section 1).
 *
 * Statistics of N rows x: [Dx], y: [Dy], shifted by provisional means sx, sy (so that float64 sums
 * keep their digits at condition numbers of 1e8):
 *   xx[i, j] = sum (x_i - sx_i)(x_j - sx_j)     [Dx, Dx] row-major, symmetric
 *   xy[i, j] = sum (x_i - sx_i)(y_j - sy_j)     [Dx, Dy] row-major
 *   yy[j]    = sum (y_j - sy_j)^2               [Dy]
 *   x_sum[i] = sum (x_i - sx_i), y_sum[j] = sum (y_j - sy_j)
 * wm_ridge_centre turns them into centred ones in place. Then
 *   (Xc'Xc + lambda I) W = Xc'Yc,   b = mean(y) - W' mean(x),   prediction y ~ W' x + b
 * with W: [Dx, Dy] row-major, that is [in, out], lambda on the sum of squares.
 */
#ifndef WANAMAKER_LINALG_RIDGE_H
#define WANAMAKER_LINALG_RIDGE_H

#include "wanamaker/base/status.h"

#include <mpi.h>
#include <stdint.h>

/* A view of one layer's statistics; owns nothing. All arrays may lie in node-shared memory. */
typedef struct {
  int64_t dx, dy;
  double count;
  double *xx, *xy, *yy, *x_sum, *y_sum;
  const double *x_shift, *y_shift;
} wm_moments_t;

/* Centres xx, xy, yy in place (subtracting the rank-one terms count * mean mean') and replaces
 * x_sum, y_sum by the true means of x and y (shift added back). count must be > 0. Rows are cut
 * over `parts`, this call doing part `part`: with parts ranks sharing the arrays each calls it with
 * its own part for the matrices, after which (and a barrier) wm_ridge_centre_means is called by
 * one. Not collective. */
void wm_ridge_centre(const wm_moments_t *m, int parts, int part);
void wm_ridge_centre_means(const wm_moments_t *m);

/* Collective over `comm`. Solves for W by pdpotrf/pdpotrs on a prows x pcols BLACS grid over the
 * first prows * pcols ranks of `comm` with square blocks `block`. `m` is centred and must be
 * readable, with equal contents, on every rank of the grid (each takes its own blocks: no
 * communication). On rank 0 of comm: weight [dx, dy] and bias [dy] are filled (elsewhere may be
 * NULL). A matrix that is not positive definite, or only by its rounding errors, is WM_NUMERICAL,
 * on every rank. */
wm_status_t wm_ridge_solve(MPI_Comm comm, int prows, int pcols, int block, const wm_moments_t *m,
                           double lambda, double *weight, double *bias, wm_error_t *err);

/* Collective over `comm`. Eigenvalues (ascending, [dx]) of xx and the whole lambda path from one
 * distributed eigendecomposition (pdsyev, rule 10), xx = Q diag(e) Q':
 * for lambda k of lambdas[n_lambdas]:
 *   W_k = Q diag(1 / (e + lambda_k)) Q' xy.
 * sse_fit[k] = sum of squared errors on the fit rows; sse_heldout[k] the same on the rows of
 * `heldout` (centred moments of other rows, with its own true means; NULL: not computed), where the
 * prediction uses the fit's means; norms[k] = Frobenius norm of W_k. Outputs are filled on every
 * rank of `comm`. The residual |xx Q - Q diag(e)|_F is checked: beyond dx * eps * |xx| times a
 * stated factor it is WM_NUMERICAL. */
wm_status_t wm_ridge_path(MPI_Comm comm, int prows, int pcols, int block, const wm_moments_t *m,
                          const wm_moments_t *heldout, const double *lambdas, int n_lambdas,
                          double *eigenvalues, double *sse_fit, double *sse_heldout, double *norms,
                          wm_error_t *err);

/* Sum of squared errors of (weight, bias) on the rows that `m` (centred) describes:
 *   sum_j [ yy_j - 2 w_j' xy_j + w_j' xx w_j ] + count * sum_j (w_j' mean_x + b_j - mean_y_j)^2
 * Not collective; one process (threaded BLAS). */
wm_status_t wm_ridge_sse(const wm_moments_t *m, const double *weight, const double *bias,
                         double *sse, wm_error_t *err);

/* exp(entropy) of the normalised eigenvalues: the effective rank of Roy and Vetterli (2007).
 * Negative rounding is taken as zero. */
double wm_effective_rank(const double *eigenvalues, int64_t n);

#endif
