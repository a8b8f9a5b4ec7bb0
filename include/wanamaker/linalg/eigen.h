/* Distributed eigendecompositions of symmetric matrices, float64. */
#ifndef WANAMAKER_LINALG_EIGEN_H
#define WANAMAKER_LINALG_EIGEN_H

#include "wanamaker/base/status.h"
#include "wanamaker/linalg/blockcyclic.h"

/* a = Q diag(e) Q' by pdsyev (operations.md, rule 10). `a`: [n, n] row-major, symmetric, whole on
 * every member of the grid. Outputs: `values` [n], ascending, on every rank of the grid's
 * communicator; `vectors`, initialised by the caller to n x n.
 *
 * ScaLAPACK has returned wrong vectors with info = 0, so both |a Q - Q diag(e)|_F <= 8 n eps |a|_F
 * and |Q'Q - I|_F <= 8 n eps sqrt(n) are checked (a backward stable method stays below n eps times
 * a small constant); beyond them the status is WM_NUMERICAL. Collective over the grid's
 * communicator; every rank gets the same status. */
wm_status_t wm_eigen_symmetric(const double *a, wm_blockcyclic_t *vectors, double *values,
                               wm_error_t *err);

#endif
