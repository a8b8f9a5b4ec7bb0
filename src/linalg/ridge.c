#include "wanamaker/linalg/ridge.h"

#include "scalapack.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/linalg/grid.h"
#include "wanamaker/par/comm.h"

#include <assert.h>
#include <cblas.h>
#include <math.h>
#include <string.h>

static const int ONE = 1;

/* --- moments ------------------------------------------------------------------------------------
 */

void wm_ridge_centre(const wm_moments_t *m, int parts, int part) {
  int64_t first, length;
  assert(m->count > 0);
  wm_partition(m->dx, parts, part, &first, &length);
#pragma omp parallel for schedule(static)
  for (int64_t i = first; i < first + length; i++) {
    double scale = m->x_sum[i] / m->count;
    for (int64_t j = 0; j < m->dx; j++)
      m->xx[i * m->dx + j] -= scale * m->x_sum[j];
    for (int64_t j = 0; j < m->dy; j++)
      m->xy[i * m->dy + j] -= scale * m->y_sum[j];
  }
  wm_partition(m->dy, parts, part, &first, &length);
  for (int64_t j = first; j < first + length; j++)
    m->yy[j] -= m->y_sum[j] / m->count * m->y_sum[j];
}

void wm_ridge_centre_means(const wm_moments_t *m) {
  for (int64_t i = 0; i < m->dx; i++)
    m->x_sum[i] = m->x_sum[i] / m->count + m->x_shift[i];
  for (int64_t j = 0; j < m->dy; j++)
    m->y_sum[j] = m->y_sum[j] / m->count + m->y_shift[j];
}

wm_status_t wm_ridge_sse(const wm_moments_t *m, const double *weight, const double *bias,
                         double *sse, wm_error_t *err) {
  int dx, dy;
  void *memory = NULL;
  wm_status_t status;
  WM_TRY(wm_to_int(m->dx, "inputs of a surrogate", &dx, err));
  WM_TRY(wm_to_int(m->dy, "outputs of a surrogate", &dy, err));
  WM_TRY(wm_alloc(&memory, m->dx * m->dy, sizeof(double), "a product", err));
  double *xxw = memory, sum = 0;
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, dx, dy, dx, 1.0, m->xx, dx, weight, dy,
              0.0, xxw, dy);
  for (int64_t i = 0; i < m->dx * m->dy; i++)
    sum += weight[i] * (xxw[i] - 2 * m->xy[i]);
  for (int64_t j = 0; j < m->dy; j++) {
    double error = bias[j] - m->y_sum[j];
    for (int64_t i = 0; i < m->dx; i++)
      error += weight[i * m->dy + j] * m->x_sum[i];
    sum += m->yy[j] + m->count * error * error;
  }
  *sse = sum;
cleanup:
  free(memory);
  return status;
}

double wm_effective_rank(const double *eigenvalues, int64_t n) {
  double total = 0, entropy = 0;
  for (int64_t i = 0; i < n; i++)
    total += eigenvalues[i] > 0 ? eigenvalues[i] : 0;
  for (int64_t i = 0; i < n; i++) {
    double p = eigenvalues[i] > 0 ? eigenvalues[i] / total : 0;
    entropy -= p > 0 ? p * log(p) : 0;
  }
  return total > 0 ? exp(entropy) : 0;
}

/* --- solution -----------------------------------------------------------------------------------
 */

/* On members: a <- the Cholesky factor of xx + lambda I, b <- W. */
static wm_status_t factor_and_solve(wm_dmatrix_t *a, wm_dmatrix_t *b, double lambda,
                                    wm_error_t *err) {
  int info;
  for (int j = 0; j < a->local_n; j++)
    for (int i = 0; i < a->local_m; i++)
      if (wm_dmatrix_row(a, i) == wm_dmatrix_column(a, j))
        a->data[(int64_t)j * a->local_m + i] += lambda;
  pdpotrf_("L", &a->n, a->data, &ONE, &ONE, a->descriptor, &info);
  if (info > 0)
    return wm_fail(err, WM_NUMERICAL,
                   "ridge: the Gram matrix plus lambda = %g is not positive definite (leading "
                   "minor %d of %d): more fit tokens or a larger fit.lambda are needed",
                   lambda, info, a->n);
  assert(info == 0);
  pdpotrs_("L", &a->n, &b->n, a->data, &ONE, &ONE, a->descriptor, b->data, &ONE, &ONE,
           b->descriptor, &info);
  assert(info == 0);
  return WM_OK;
}

static void intercept(const wm_moments_t *m, const double *weight, double *bias) {
  for (int64_t j = 0; j < m->dy; j++)
    bias[j] = m->y_sum[j];
  for (int64_t i = 0; i < m->dx; i++)
    for (int64_t j = 0; j < m->dy; j++)
      bias[j] -= weight[i * m->dy + j] * m->x_sum[i];
}

wm_status_t wm_ridge_solve(MPI_Comm comm, int prows, int pcols, int block, const wm_moments_t *m,
                           double lambda, double *weight, double *bias, wm_error_t *err) {
  wm_grid_t grid;
  wm_dmatrix_t a = {0}, b = {0};
  int rank;
  wm_status_t status = WM_OK;
  MPI_Comm_rank(comm, &rank);
  wm_grid_init(comm, prows, pcols, &grid);
  if (grid.member) {
    status = wm_dmatrix_create(&grid, m->dx, m->dx, block, &a, err);
    if (status == WM_OK)
      status = wm_dmatrix_create(&grid, m->dx, m->dy, block, &b, err);
  }
  WM_TRY(wm_agree(comm, status, err));
  if (grid.member) {
    wm_dmatrix_fill(&a, m->xx);
    wm_dmatrix_fill(&b, m->xy);
    status = factor_and_solve(&a, &b, lambda, err);
  }
  WM_TRY(wm_agree(comm, status, err));
  WM_TRY(wm_dmatrix_gather(&grid, &b, weight, err));
  if (rank == 0)
    intercept(m, weight, bias);
cleanup:
  wm_dmatrix_destroy(&b);
  wm_dmatrix_destroy(&a);
  wm_grid_destroy(&grid);
  return status;
}
