#include "wanamaker/linalg/eigen.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/linalg/scalapack.h"
#include "wanamaker/par/comm.h"

#include <float.h>
#include <math.h>

/* |m|_F over the whole grid, on every rank. Collective over the grid's communicator. */
static double frobenius(const wm_blockcyclic_t *m) {
  double sum = 0;
  for (int c = 0; c < m->local_cols; c++)
    for (int r = 0; r < m->local_rows; r++)
      sum += *wm_blockcyclic_at(m, r, c) * *wm_blockcyclic_at(m, r, c);
  wm_sum_f64(m->grid->comm, &sum, 1);
  return sqrt(sum);
}

/* Not collective beyond the members: each of them calls. `a` is destroyed. */
static wm_status_t run_pdsyev(wm_blockcyclic_t *a, wm_blockcyclic_t *vectors, double *values,
                              wm_error_t *err) {
  const int one = 1, query = -1;
  double wanted[2] = {0};
  int info = 0, size = 0;
  pdsyev_("V", "L", &a->rows, a->local, &one, &one, a->descriptor, values, vectors->local, &one,
          &one, vectors->descriptor, wanted, &query, &info);
  wm_status_t status = wm_scalapack_check(info, "pdsyev (workspace)", "failed", err);
  if (status != WM_OK)
    return status;
  status = wm_to_int((int64_t)wanted[0] + 1, "workspace of pdsyev", &size, err);
  if (status != WM_OK)
    return status;
  void *work;
  status = wm_alloc(&work, size, sizeof(double), "workspace of pdsyev", err);
  if (status != WM_OK)
    return status;
  pdsyev_("V", "L", &a->rows, a->local, &one, &one, a->descriptor, values, vectors->local, &one,
          &one, vectors->descriptor, work, &size, &info);
  free(work);
  return wm_scalapack_check(info, "pdsyev", "eigenvalues did not converge, or processes disagree",
                            err);
}

static wm_status_t check(double error, double bound, const char *what, wm_error_t *err) {
  if (error <= bound) /* false for NaN */
    return WM_OK;
  return wm_fail(err, WM_NUMERICAL, "pdsyev: %s is %.3g, but at most %.3g is allowed", what, error,
                 bound);
}

/* `a` holds the matrix again; `scratch` is overwritten. Collective over the grid's communicator. */
static wm_status_t verify(const wm_blockcyclic_t *a, const wm_blockcyclic_t *vectors,
                          const double *values, wm_blockcyclic_t *scratch, wm_error_t *err) {
  double n = a->rows, size = frobenius(a);
  wm_blockcyclic_multiply('N', 'N', 1, a, vectors, 0, scratch);
  for (int c = 0; c < scratch->local_cols; c++) {
    double e = values[wm_blockcyclic_col(scratch, c)];
    for (int r = 0; r < scratch->local_rows; r++)
      *wm_blockcyclic_at(scratch, r, c) -= *wm_blockcyclic_at(vectors, r, c) * e;
  }
  wm_status_t status = check(frobenius(scratch), 8 * n * DBL_EPSILON * size, "|A Q - Q E|", err);
  if (status != WM_OK)
    return status; /* the same on every rank */
  wm_blockcyclic_multiply('T', 'N', 1, vectors, vectors, 0, scratch);
  for (int c = 0; c < scratch->local_cols; c++)
    for (int r = 0; r < scratch->local_rows; r++)
      if (wm_blockcyclic_row(scratch, r) == wm_blockcyclic_col(scratch, c))
        *wm_blockcyclic_at(scratch, r, c) -= 1;
  return check(frobenius(scratch), 8 * n * DBL_EPSILON * sqrt(n), "|Q'Q - I|", err);
}

wm_status_t wm_eigen_symmetric(const double *a, wm_blockcyclic_t *vectors, double *values,
                               wm_error_t *err) {
  const wm_grid_t *grid = vectors->grid;
  const int n = vectors->rows;
  wm_blockcyclic_t work = {0}, scratch = {0};
  wm_grid_allow(grid, 9.0 * n * n * n); /* reduction, QR iteration on the vectors */
  wm_status_t status = wm_blockcyclic_init(&work, grid, n, n, vectors->block, "a matrix", err);
  if (status == WM_OK)
    status = wm_blockcyclic_init(&scratch, grid, n, n, vectors->block, "a residual", err);
  WM_TRY(wm_agree(grid->comm, status, err));
  wm_blockcyclic_fill(&work, a);
  if (grid->member)
    status = run_pdsyev(&work, vectors, values, err);
  WM_TRY(wm_agree(grid->comm, status, err));
  /* One rank's values for all: computed redundantly, they may differ in the last bit. */
  wm_broadcast(grid->comm, 0, values, (int64_t)n * (int64_t)sizeof *values);
  wm_blockcyclic_fill(&work, a);
  WM_TRY(verify(&work, vectors, values, &scratch, err));
cleanup:
  wm_grid_allow(grid, 0);
  wm_blockcyclic_destroy(&work);
  wm_blockcyclic_destroy(&scratch);
  return status;
}
