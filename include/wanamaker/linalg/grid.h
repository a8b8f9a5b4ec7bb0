/* BLACS process grids over any MPI communicator. */
#ifndef WANAMAKER_LINALG_GRID_H
#define WANAMAKER_LINALG_GRID_H

#include "wanamaker/base/status.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

/* Ranks 0 .. prows * pcols - 1 of `comm` are members, rank r at (r / pcols, r % pcols). The others
 * hold the object too: they skip the library's calls and take part in agreement. */
typedef struct {
  MPI_Comm comm; /* borrowed */
  int prows, pcols;
  bool member;
  int row, col; /* -1 outside */
  int context;  /* BLACS's; -1 outside */
  int handle;   /* of comm in BLACS's table */
} wm_grid_t;

/* Collective over `comm`. WM_USAGE on every rank when the grid has no process or more than comm. */
wm_status_t wm_grid_init(wm_grid_t *grid, MPI_Comm comm, int prows, int pcols, wm_error_t *err);

/* Shape of a grid over at most all ranks of `comm` for a square matrix of `width`: about 512
 * columns for each process, as square as their number allows. Not collective. */
void wm_grid_choose(MPI_Comm comm, int64_t width, int *prows, int *pcols);
/* The same for `size` ranks. Not collective. */
void wm_grid_shape(int size, int64_t width, int *prows, int *pcols);

/* Allows the step that begins (wm_pulse_allow) what `flops` take a slow machine on this grid, and
 * two minutes at least; 0 ends the allowance. ScaLAPACK's routines can't pulse. Not collective. */
void wm_grid_allow(const wm_grid_t *grid, double flops);

/* Collective over the grid's communicator. Harmless on a zeroed object. */
void wm_grid_destroy(wm_grid_t *grid);

#endif
