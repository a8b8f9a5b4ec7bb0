/* Centring, the distributed solve, and figures of a fit (ridge.h). */
#include "wanamaker/linalg/ridge.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/linalg/blockcyclic.h"
#include "wanamaker/linalg/grid.h"
#include "wanamaker/linalg/scalapack.h"
#include "wanamaker/par/comm.h"

#include <assert.h>
#include <cblas.h>
#include <float.h>
#include <math.h>
#include <stddef.h>

enum { PANEL = 256 };

void wm_ridge_centre(const wm_moments_t *m, int parts, int part) {
  assert(m->count > 0 && parts > 0 && part >= 0 && part < parts);
  int64_t first, length;
  wm_partition(m->dx, parts, part, &first, &length);
  for (int64_t i = first; i < first + length; i++) {
    double *xx = m->xx + i * m->dx, *xy = m->xy + i * m->dy;
    for (int64_t j = 0; j < m->dx; j++) /* the product first: the result stays symmetric */
      xx[j] -= m->x_sum[i] * m->x_sum[j] / m->count;
    for (int64_t j = 0; j < m->dy; j++)
      xy[j] -= m->x_sum[i] * m->y_sum[j] / m->count;
  }
  wm_partition(m->dy, parts, part, &first, &length);
  for (int64_t j = first; j < first + length; j++) {
    m->yy[j] -= m->y_sum[j] * m->y_sum[j] / m->count;
    if (m->yy[j] < 0) /* a constant output, by rounding */
      m->yy[j] = 0;
  }
}

void wm_ridge_centre_means(const wm_moments_t *m) {
  assert(m->count > 0);
  for (int64_t i = 0; i < m->dx; i++)
    m->x_sum[i] = m->x_sum[i] / m->count + m->x_shift[i];
  for (int64_t j = 0; j < m->dy; j++)
    m->y_sum[j] = m->y_sum[j] / m->count + m->y_shift[j];
}

/* b = mean(y) - W' mean(x), after a look at W: pdpotrf lets NaN pass as positive. */
static wm_status_t finish(const wm_moments_t *m, const double *weight, double *bias,
                          wm_error_t *err) {
  for (int64_t j = 0; j < m->dy; j++)
    bias[j] = m->y_sum[j];
  for (int64_t i = 0; i < m->dx; i++)
    for (int64_t j = 0; j < m->dy; j++)
      bias[j] -= weight[i * m->dy + j] * m->x_sum[i];
  for (int64_t i = 0; i < m->dx * m->dy; i++)
    if (!isfinite(weight[i]))
      return wm_fail(err, WM_NUMERICAL, "ridge: weight [%lld, %lld] is not finite",
                     (long long)(i / m->dy), (long long)(i % m->dy));
  for (int64_t j = 0; j < m->dy; j++)
    if (!isfinite(bias[j]))
      return wm_fail(err, WM_NUMERICAL, "ridge: bias [%lld] is not finite", (long long)j);
  return WM_OK;
}

static void add_to_diagonal(wm_blockcyclic_t *a, double value) {
  for (int c = 0; c < a->local_cols; c++)
    for (int r = 0; r < a->local_rows; r++)
      if (wm_blockcyclic_row(a, r) == wm_blockcyclic_col(a, c))
        *wm_blockcyclic_at(a, r, c) += value;
}

/* Of a singular matrix, too, rounding leaves pivots that may be positive. The factor's backward
 * error is at most (n + 1) u (L L')_ii in the diagonal (Higham, Accuracy and Stability, theorem
 * 10.3): a squared pivot of that size is noise, and so is all that is divided by it. Not
 * collective. */
static wm_status_t check_pivots(const wm_blockcyclic_t *factor, const wm_moments_t *m,
                                double lambda, wm_error_t *err) {
  const double noise = (double)(factor->rows + 1) * DBL_EPSILON;
  for (int c = 0; c < factor->local_cols; c++)
    for (int r = 0; r < factor->local_rows; r++) {
      int64_t i = wm_blockcyclic_row(factor, r);
      if (i != wm_blockcyclic_col(factor, c))
        continue;
      double pivot = *wm_blockcyclic_at(factor, r, c), whole = m->xx[i * m->dx + i] + lambda;
      if (pivot * pivot <= noise * whole)
        return wm_fail(err, WM_NUMERICAL,
                       "ridge of width %d, lambda %g: xx + lambda I is singular to rounding (pivot "
                       "%lld is %.1e of its diagonal); more rows or a larger lambda are needed",
                       factor->rows, lambda, (long long)i, pivot * pivot / whole);
    }
  return WM_OK;
}

/* Solves a w = w in place. Called by the members of the grid. */
static wm_status_t cholesky_solve(wm_blockcyclic_t *a, wm_blockcyclic_t *w, double lambda,
                                  wm_error_t *err) {
  const int one = 1;
  const double n = a->rows;
  int info;
  wm_grid_allow(a->grid, n * n * (n / 3 + 2.0 * w->cols));
  pdpotrf_("L", &a->rows, a->local, &one, &one, a->descriptor, &info);
  wm_status_t status =
      wm_scalapack_check(info, "pdpotrf", "xx + lambda I is not positive definite", err);
  if (status != WM_OK)
    return wm_error_prefix(err, "ridge of width %d, lambda %g", a->rows, lambda);
  pdpotrs_("L", &a->rows, &w->cols, a->local, &one, &one, a->descriptor, w->local, &one, &one,
           w->descriptor, &info);
  return wm_scalapack_check(info, "pdpotrs", "failed", err);
}

wm_status_t wm_ridge_solve(MPI_Comm comm, int prows, int pcols, int block, const wm_moments_t *m,
                           double lambda, double *weight, double *bias, wm_error_t *err) {
  wm_grid_t grid = {0};
  wm_blockcyclic_t a = {0}, w = {0};
  wm_status_t status;
  WM_TRY(wm_grid_init(&grid, comm, prows, pcols, err));
  status = wm_blockcyclic_init(&a, &grid, m->dx, m->dx, block, "Gram matrix of a fit", err);
  if (status == WM_OK)
    status = wm_blockcyclic_init(&w, &grid, m->dx, m->dy, block, "weights of a fit", err);
  WM_TRY(wm_agree(comm, status, err));
  if (grid.member) {
    wm_blockcyclic_fill(&a, m->xx);
    wm_blockcyclic_fill(&w, m->xy);
    add_to_diagonal(&a, lambda);
    status = cholesky_solve(&a, &w, lambda, err);
    if (status == WM_OK)
      status = check_pivots(&a, m, lambda, err);
  }
  status = wm_agree(comm, status, err);
  wm_grid_allow(&grid, 0);
  WM_TRY(status);
  WM_TRY(wm_blockcyclic_gather(&w, weight, err));
  int rank;
  MPI_Comm_rank(comm, &rank);
  if (rank == 0)
    status = finish(m, weight, bias, err);
  WM_TRY(wm_agree(comm, status, err));
cleanup:
  wm_blockcyclic_destroy(&a);
  wm_blockcyclic_destroy(&w);
  wm_grid_destroy(&grid);
  return status;
}

/* sum_j (w_j' mean_x + b_j - mean_y_j)^2 */
static double mean_error(const wm_moments_t *m, const double *weight, const double *bias,
                         double *difference) {
  for (int64_t j = 0; j < m->dy; j++)
    difference[j] = bias[j] - m->y_sum[j];
  for (int64_t i = 0; i < m->dx; i++)
    for (int64_t j = 0; j < m->dy; j++)
      difference[j] += weight[i * m->dy + j] * m->x_sum[i];
  double sum = 0;
  for (int64_t j = 0; j < m->dy; j++)
    sum += difference[j] * difference[j];
  return sum;
}

wm_status_t wm_ridge_sse(const wm_moments_t *m, const double *weight, const double *bias,
                         double *sse, wm_error_t *err) {
  void *panel = NULL, *difference = NULL;
  int dx, dy;
  wm_status_t status;
  WM_TRY(wm_to_int(m->dx, "width of a fit", &dx, err));
  WM_TRY(wm_to_int(m->dy, "outputs of a fit", &dy, err));
  WM_TRY(wm_alloc(&panel, m->dx * PANEL, sizeof(double), "a panel of a fit", err));
  WM_TRY(wm_alloc(&difference, m->dy, sizeof(double), "mean errors of a fit", err));
  double sum = m->count * mean_error(m, weight, bias, difference);
  for (int j = 0; j < dy; j++)
    sum += m->yy[j];
  for (int first = 0; first < dy; first += PANEL) {
    int cols = dy - first < PANEL ? dy - first : PANEL;
    double *xxw = panel;
    wm_pulse();
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, dx, cols, dx, 1.0, m->xx, dx,
                weight + first, dy, 0.0, xxw, cols);
    for (int64_t i = 0; i < dx; i++) {
      const double *w = weight + i * dy + first, *xy = m->xy + i * dy + first;
      for (int j = 0; j < cols; j++)
        sum += w[j] * (xxw[i * cols + j] - 2 * xy[j]);
    }
  }
  *sse = sum;
cleanup:
  free(panel);
  free(difference);
  return status;
}

double wm_effective_rank(const double *eigenvalues, int64_t n) {
  double sum = 0, entropy = 0;
  for (int64_t i = 0; i < n; i++)
    sum += eigenvalues[i] > 0 ? eigenvalues[i] : 0;
  if (!(sum > 0))
    return 0;
  for (int64_t i = 0; i < n; i++) {
    double p = eigenvalues[i] / sum;
    if (p > 0) /* p log p -> 0 */
      entropy -= p * log(p);
  }
  return exp(entropy);
}
