/* Distributed solution with one symmetric positive definite matrix, float64. */
#ifndef WANAMAKER_LINALG_SPD_H
#define WANAMAKER_LINALG_SPD_H

#include "wanamaker/base/status.h"

#include <mpi.h>
#include <stdint.h>

/* Collective over `comm`. Solves a x = b by pdpotrf/pdpotrs (operations.md, rule 10) on a process
 * grid chosen by width. a: [n, n] row-major, of which the lower triangle is read, and b: [n], equal
 * on every rank. x: [n], filled on every rank with the same bits; it may be b. `block`: rows of a
 * block of the layout. A matrix that is not positive definite, or a solution that is not finite, is
 * WM_NUMERICAL on every rank. */
wm_status_t wm_spd_solve(MPI_Comm comm, int block, int64_t n, const double *a, const double *b,
                         double *x, wm_error_t *err);

#endif
