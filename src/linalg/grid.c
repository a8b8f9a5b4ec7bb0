#include "wanamaker/linalg/grid.h"

#include "wanamaker/base/control.h"
#include "wanamaker/linalg/scalapack.h"
#include "wanamaker/par/comm.h"

#include <string.h>

wm_status_t wm_grid_init(wm_grid_t *grid, MPI_Comm comm, int prows, int pcols, wm_error_t *err) {
  memset(grid, 0, sizeof *grid);
  int rank, size;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  wm_status_t status = WM_OK;
  if (prows < 1 || pcols < 1 || (int64_t)prows * pcols > size)
    status = wm_fail(err, WM_USAGE, "a process grid of %d x %d does not fit %d ranks", prows, pcols,
                     size);
  status = wm_agree(comm, status, err);
  if (status != WM_OK)
    return status;
  grid->comm = comm;
  grid->prows = prows;
  grid->pcols = pcols;
  grid->member = rank < prows * pcols;
  grid->row = grid->member ? rank / pcols : -1;
  grid->col = grid->member ? rank % pcols : -1;
  grid->handle = Csys2blacs_handle(comm);
  grid->context = grid->handle;
  Cblacs_gridinit(&grid->context, "Row", prows, pcols);
  /* (Also what links our error handlers into every program that has a grid.) */
  status = wm_scalapack_check(grid->member && grid->context < 0, "Cblacs_gridinit",
                              "made no context", err);
  return wm_agree(comm, status, err);
}

void wm_grid_shape(int size, int64_t width, int *prows, int *pcols) {
  enum { WIDTH_PER_RANK = 512 }; /* keeps one rank busy */
  int64_t wanted = width / WIDTH_PER_RANK;
  int use = (int)(wanted < 1 ? 1 : wanted < size ? wanted : size);
  *prows = 1;
  for (int r = 1; r * r <= use; r++)
    if (use % r == 0)
      *prows = r;
  *pcols = use / *prows;
}

void wm_grid_choose(MPI_Comm comm, int64_t width, int *prows, int *pcols) {
  int size;
  MPI_Comm_size(comm, &size);
  wm_grid_shape(size, width, prows, pcols);
}

void wm_grid_allow(const wm_grid_t *grid, double flops) {
  const double slow = 2e8 /* per second and rank */, least = 120; /* seconds */
  double seconds = flops / (slow * grid->prows * grid->pcols);
  wm_pulse_allow(flops > 0 && seconds < least ? least : seconds);
}

void wm_grid_destroy(wm_grid_t *grid) {
  if (grid->prows == 0)
    return;
  /* An exit for each init: a context that is left over costs 27 kB and a place in BLACS's table. */
  if (grid->member)
    Cblacs_gridexit(grid->context);
  Cfree_blacs_system_handle(grid->handle);
  memset(grid, 0, sizeof *grid);
}
