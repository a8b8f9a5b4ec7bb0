/* BLACS process grids and block-cyclic matrices on them (ScaLAPACK, operations.md 10 to 14).
 *
 * A grid of rows x columns takes the first rows * columns ranks of a communicator, row-major. The
 * other ranks hold a grid without membership and skip the algebra.
 *
 * A matrix [m, n] is cut into square blocks, dealt to the grid in turn both ways; a process keeps
 * its blocks as one column-major array, as ScaLAPACK wants them:
 *
 *     block (i, j) -> process (i % rows, j % columns), its block (i / rows, j / columns)
 */
#ifndef WANAMAKER_LINALG_GRID_H
#define WANAMAKER_LINALG_GRID_H

#include "wanamaker/base/status.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
  MPI_Comm comm; /* borrowed */
  int handle, context;
  int rows, columns;
  int row, column; /* this process's place; -1: not a member */
  bool member;
} wm_grid_t;

/* Collective over `comm`. rows * columns must not exceed its size (assertion). Pair with
 * wm_grid_destroy: a context that is not given back costs memory until the end (rule 13). */
void wm_grid_init(MPI_Comm comm, int rows, int columns, wm_grid_t *out);
/* Collective. Harmless on a zeroed object. */
void wm_grid_destroy(wm_grid_t *grid);

enum { WM_DESCRIPTOR_SIZE = 9 };

/* A member's part of a distributed matrix. */
typedef struct {
  const wm_grid_t *grid; /* borrowed */
  int m, n, block;
  int local_m, local_n;               /* of this process */
  int descriptor[WM_DESCRIPTOR_SIZE]; /* ScaLAPACK's */
  double *data;                       /* [local_n][local_m]: column-major */
} wm_dmatrix_t;

/* Not collective; members only. Zeroed. WM_ENVIRONMENT: memory, or sizes beyond 32 bits. */
wm_status_t wm_dmatrix_create(const wm_grid_t *grid, int64_t m, int64_t n, int block,
                              wm_dmatrix_t *out, wm_error_t *err);
void wm_dmatrix_destroy(wm_dmatrix_t *matrix);

/* Global row or column of a local one. */
int wm_dmatrix_row(const wm_dmatrix_t *matrix, int local);
int wm_dmatrix_column(const wm_dmatrix_t *matrix, int local);

/* Takes this process's blocks from `full`: [m, n] row-major, equal on every member. */
void wm_dmatrix_fill(wm_dmatrix_t *matrix, const double *full);

/* Collective over the grid's communicator (members and others; the others pass a zeroed matrix).
 * full[m, n] row-major on rank 0; others pass NULL. */
wm_status_t wm_dmatrix_gather(const wm_grid_t *grid, const wm_dmatrix_t *matrix, double *full,
                              wm_error_t *err);

#endif
