#include "wanamaker/linalg/grid.h"

#include "scalapack.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/par/comm.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* The libraries' own handlers print and return, after which processes wait for each other for ever
 * (rule 12). An illegal argument is a bug of ours: say which and end the run. These definitions
 * take the place of the libraries', being in the executable. */
void pxerbla_(const int *context, const char *routine, const int *info, size_t length);
void xerbla_(const char *routine, const int *info, size_t length);

void pxerbla_(const int *context, const char *routine, const int *info, size_t length) {
  fprintf(stderr, "ScaLAPACK: %.*s: argument %d is illegal\n", (int)length, routine, *info);
  Cblacs_abort(*context, WM_NUMERICAL);
}

void xerbla_(const char *routine, const int *info, size_t length) {
  fprintf(stderr, "LAPACK: %.*s: argument %d is illegal\n", (int)length, routine, *info);
  assert(!"a LAPACK or BLAS routine was called with an illegal argument");
}

void wm_grid_init(MPI_Comm comm, int rows, int columns, wm_grid_t *out) {
  int size;
  MPI_Comm_size(comm, &size);
  assert(rows > 0 && columns > 0 && rows * columns <= size);
  *out = (wm_grid_t){.comm = comm, .rows = rows, .columns = columns, .row = -1, .column = -1};
  out->handle = Csys2blacs_handle(comm);
  out->context = out->handle;
  Cblacs_gridinit(&out->context, "Row", rows, columns);
  if (out->context >= 0) {
    int r, c;
    Cblacs_gridinfo(out->context, &r, &c, &out->row, &out->column);
    out->member = out->row >= 0;
  }
}

void wm_grid_destroy(wm_grid_t *grid) {
  if (grid->rows == 0)
    return;
  if (grid->context >= 0)
    Cblacs_gridexit(grid->context);
  Cfree_blacs_system_handle(grid->handle);
  memset(grid, 0, sizeof *grid);
}

wm_status_t wm_dmatrix_create(const wm_grid_t *grid, int64_t m, int64_t n, int block,
                              wm_dmatrix_t *out, wm_error_t *err) {
  const int zero = 0;
  int info;
  assert(grid->member && block > 0);
  memset(out, 0, sizeof *out);
  out->grid = grid;
  out->block = block;
  wm_status_t status;
  WM_TRY(wm_to_int(m, "rows of a distributed matrix", &out->m, err));
  WM_TRY(wm_to_int(n, "columns of a distributed matrix", &out->n, err));
  out->local_m = numroc_(&out->m, &block, &grid->row, &zero, &grid->rows);
  out->local_n = numroc_(&out->n, &block, &grid->column, &zero, &grid->columns);
  int64_t elements = (int64_t)out->local_m * out->local_n;
  int checked;
  /* ScaLAPACK indexes the local array with 32-bit integers. */
  WM_TRY(wm_to_int(elements, "elements of a process's part of a matrix", &checked, err));
  int leading = out->local_m > 1 ? out->local_m : 1;
  descinit_(out->descriptor, &out->m, &out->n, &block, &block, &zero, &zero, &grid->context,
            &leading, &info);
  assert(info == 0);
  void *memory;
  WM_TRY(
      wm_alloc(&memory, elements > 0 ? elements : 1, sizeof(double), "a distributed matrix", err));
  out->data = memory;
cleanup:
  return status;
}

void wm_dmatrix_destroy(wm_dmatrix_t *matrix) {
  free(matrix->data);
  memset(matrix, 0, sizeof *matrix);
}

static int global_index(int local, int block, int process, int processes) {
  return (local / block * processes + process) * block + local % block;
}

int wm_dmatrix_row(const wm_dmatrix_t *a, int local) {
  return global_index(local, a->block, a->grid->row, a->grid->rows);
}

int wm_dmatrix_column(const wm_dmatrix_t *a, int local) {
  return global_index(local, a->block, a->grid->column, a->grid->columns);
}

void wm_dmatrix_fill(wm_dmatrix_t *a, const double *full) {
  for (int j = 0; j < a->local_n; j++) {
    int64_t column = wm_dmatrix_column(a, j);
    for (int i = 0; i < a->local_m; i++)
      a->data[(int64_t)j * a->local_m + i] = full[(int64_t)wm_dmatrix_row(a, i) * a->n + column];
  }
}

/* Puts the part of process (row, column) into place. */
static void place(const wm_dmatrix_t *a, int row, int column, int local_m, int local_n,
                  const double *part, double *full) {
  for (int j = 0; j < local_n; j++) {
    int64_t gj = global_index(j, a->block, column, a->grid->columns);
    for (int i = 0; i < local_m; i++) {
      int64_t gi = global_index(i, a->block, row, a->grid->rows);
      full[gi * a->n + gj] = part[(int64_t)j * local_m + i];
    }
  }
}

/* Rank 0 takes the parts one after another. */
static void receive_parts(const wm_grid_t *grid, const wm_dmatrix_t *a, double *part,
                          double *full) {
  const int zero = 0;
  place(a, 0, 0, a->local_m, a->local_n, a->data, full);
  for (int r = 1; r < grid->rows * grid->columns; r++) {
    int row = r / grid->columns, column = r % grid->columns;
    int m = numroc_(&a->m, &a->block, &row, &zero, &grid->rows);
    int n = numroc_(&a->n, &a->block, &column, &zero, &grid->columns);
    MPI_Recv(part, m * n, MPI_DOUBLE, r, 0, grid->comm, MPI_STATUS_IGNORE);
    place(a, row, column, m, n, part, full);
  }
}

wm_status_t wm_dmatrix_gather(const wm_grid_t *grid, const wm_dmatrix_t *matrix, double *full,
                              wm_error_t *err) {
  int rank;
  void *part = NULL;
  wm_status_t status = WM_OK;
  MPI_Comm_rank(grid->comm, &rank);
  if (rank == 0) /* process (0, 0) has the largest part */
    status = wm_alloc(&part, (int64_t)matrix->local_m * matrix->local_n, sizeof(double),
                      "a distributed matrix", err);
  status = wm_agree(grid->comm, status, err);
  if (status == WM_OK && rank == 0)
    receive_parts(grid, matrix, part, full);
  else if (status == WM_OK && grid->member)
    MPI_Send(matrix->data, matrix->local_m * matrix->local_n, MPI_DOUBLE, 0, 0, grid->comm);
  free(part);
  return status;
}
