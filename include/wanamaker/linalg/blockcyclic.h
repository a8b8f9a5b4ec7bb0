/* Float64 matrices in ScaLAPACK's two-dimensional block-cyclic layout, square blocks, first block
 * on process (0, 0). Block (I, J) lies on process (I mod prows, J mod pcols); a process keeps its
 * blocks side by side in one column-major array.
 *
 *   global, 2 x 2 processes        on (0, 0)
 *   +----+----+----+               +----+----+
 *   | 00 | 01 | 02 |               | 00 | 02 |
 *   +----+----+----+               +----+----+
 *   | 10 | 11 | 12 |
 *   +----+----+----+
 */
#ifndef WANAMAKER_LINALG_BLOCKCYCLIC_H
#define WANAMAKER_LINALG_BLOCKCYCLIC_H

#include "wanamaker/base/status.h"
#include "wanamaker/linalg/grid.h"

#include <stdint.h>

typedef struct {
  const wm_grid_t *grid; /* borrowed */
  int rows, cols, block;
  int local_rows, local_cols; /* 0 outside the grid */
  int ld;                     /* of the local array: max(1, local_rows) */
  int descriptor[9];
  double *local; /* owned */
} wm_blockcyclic_t;

/* A zeroed matrix. Not collective: agree afterwards. Local arrays of more than 2^31 - 1 elements
 * are refused, as the library counts in 32 bits. Ranks outside the grid get an empty one. */
wm_status_t wm_blockcyclic_init(wm_blockcyclic_t *m, const wm_grid_t *grid, int64_t rows,
                                int64_t cols, int block, const char *what, wm_error_t *err);
/* Harmless on a zeroed object. Not collective. */
void wm_blockcyclic_destroy(wm_blockcyclic_t *m);

/* Index in the whole matrix of a local row or column, and the local element. */
int wm_blockcyclic_row(const wm_blockcyclic_t *m, int local);
int wm_blockcyclic_col(const wm_blockcyclic_t *m, int local);
static inline double *wm_blockcyclic_at(const wm_blockcyclic_t *m, int local_row, int local_col) {
  return m->local + (int64_t)local_col * m->ld + local_row;
}

/* Takes this rank's blocks from `a`: [rows, cols] row-major, whole on every member. Not
 * collective. */
void wm_blockcyclic_fill(wm_blockcyclic_t *m, const double *a);

/* Collective over the grid's communicator. `a`: [rows, cols] row-major, filled on rank 0, ignored
 * elsewhere. Every rank gets the same status. */
wm_status_t wm_blockcyclic_gather(const wm_blockcyclic_t *m, double *a, wm_error_t *err);

/* c = alpha op(a) op(b) + beta c by pdgemm; nothing outside the grid. Collective over the grid's
 * members. The inner sizes must agree. */
void wm_blockcyclic_multiply(char trans_a, char trans_b, double alpha, const wm_blockcyclic_t *a,
                             const wm_blockcyclic_t *b, double beta, wm_blockcyclic_t *c);

/* sums[i] = sum over j of a[i, j] b[i, j], for matrices of one shape and layout. Collective over
 * the grid's communicator; filled on every rank of it. sums: [rows]. */
void wm_blockcyclic_row_dots(const wm_blockcyclic_t *a, const wm_blockcyclic_t *b, double *sums);

#endif
