#include "wanamaker/linalg/spd.h"

#include "wanamaker/linalg/blockcyclic.h"
#include "wanamaker/linalg/grid.h"
#include "wanamaker/linalg/scalapack.h"
#include "wanamaker/par/comm.h"

#include <math.h>

/* Solves a w = w in place. Called by the members of the grid. */
static wm_status_t factor_and_solve(wm_blockcyclic_t *a, wm_blockcyclic_t *w, wm_error_t *err) {
  const int one = 1;
  int info;
  pdpotrf_("L", &a->rows, a->local, &one, &one, a->descriptor, &info);
  wm_status_t status = wm_scalapack_check(info, "pdpotrf", "not positive definite", err);
  if (status != WM_OK)
    return status;
  pdpotrs_("L", &a->rows, &w->cols, a->local, &one, &one, a->descriptor, w->local, &one, &one,
           w->descriptor, &info);
  return wm_scalapack_check(info, "pdpotrs", "failed", err);
}

/* pdpotrf lets NaN pass as positive. */
static wm_status_t check(const double *x, int64_t n, wm_error_t *err) {
  for (int64_t i = 0; i < n; i++)
    if (!isfinite(x[i]))
      return wm_fail(err, WM_NUMERICAL, "pdpotrs: element %lld of the solution is not finite",
                     (long long)i);
  return WM_OK;
}

wm_status_t wm_spd_solve(MPI_Comm comm, int block, int64_t n, const double *a, const double *b,
                         double *x, wm_error_t *err) {
  wm_grid_t grid = {0};
  wm_blockcyclic_t matrix = {0}, vector = {0};
  wm_status_t status;
  int rank, prows, pcols;
  MPI_Comm_rank(comm, &rank);
  wm_grid_choose(comm, n, &prows, &pcols);
  WM_TRY(wm_grid_init(&grid, comm, prows, pcols, err));
  status = wm_blockcyclic_init(&matrix, &grid, n, n, block, "a matrix to solve with", err);
  if (status == WM_OK)
    status = wm_blockcyclic_init(&vector, &grid, n, 1, block, "a right-hand side", err);
  WM_TRY(wm_agree(comm, status, err));
  wm_grid_allow(&grid, (double)n * (double)n * (double)n / 3);
  if (grid.member) {
    wm_blockcyclic_fill(&matrix, a);
    wm_blockcyclic_fill(&vector, b);
    status = factor_and_solve(&matrix, &vector, err);
  }
  status = wm_agree(comm, status, err);
  wm_grid_allow(&grid, 0);
  WM_TRY(status);
  WM_TRY(wm_blockcyclic_gather(&vector, x, err));
  wm_broadcast(comm, 0, x, n * (int64_t)sizeof *x);
  status = check(x, n, err); /* the same on every rank */
cleanup:
  wm_blockcyclic_destroy(&matrix);
  wm_blockcyclic_destroy(&vector);
  wm_grid_destroy(&grid);
  return status;
}
