#include "wanamaker/linalg/blockcyclic.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/linalg/scalapack.h"
#include "wanamaker/par/comm.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

enum { SOURCE = 0, TAG = 0, PIECE = 1 << 25 /* elements of a message: 256 MiB */ };

/* Rows or columns of `n` that process `coordinate` of `count` keeps. */
static int share(int n, int block, int coordinate, int count) {
  const int source = SOURCE;
  return numroc_(&n, &block, &coordinate, &source, &count);
}

static int global_index(int local, int block, int coordinate, int count) {
  return (local / block * count + coordinate) * block + local % block;
}

wm_status_t wm_blockcyclic_init(wm_blockcyclic_t *m, const wm_grid_t *grid, int64_t rows,
                                int64_t cols, int block, const char *what, wm_error_t *err) {
  memset(m, 0, sizeof *m);
  m->grid = grid;
  m->ld = 1;
  if (block < 1)
    return wm_fail(err, WM_USAGE, "%s: blocks of %d rows", what, block);
  m->block = block;
  wm_status_t status = wm_to_int(rows, what, &m->rows, err);
  if (status == WM_OK)
    status = wm_to_int(cols, what, &m->cols, err);
  if (status != WM_OK)
    return status;
  if (grid->member) {
    m->local_rows = share(m->rows, block, grid->row, grid->prows);
    m->local_cols = share(m->cols, block, grid->col, grid->pcols);
    m->ld = m->local_rows > 1 ? m->local_rows : 1;
  }
  int64_t elements = (int64_t)m->ld * (m->local_cols > 1 ? m->local_cols : 1);
  if (elements > INT_MAX)
    return wm_fail(err, WM_ENVIRONMENT,
                   "%s: %lld elements on one process exceed ScaLAPACK's 32-bit integers; "
                   "use a larger process grid",
                   what, (long long)elements);
  void *memory;
  status = wm_alloc(&memory, elements, sizeof(double), what, err);
  if (status != WM_OK)
    return status;
  m->local = memory;
  if (!grid->member)
    return WM_OK;
  const int source = SOURCE;
  int info;
  descinit_(m->descriptor, &m->rows, &m->cols, &block, &block, &source, &source, &grid->context,
            &m->ld, &info);
  return wm_scalapack_check(info, "descinit", "failed", err);
}

void wm_blockcyclic_destroy(wm_blockcyclic_t *m) {
  free(m->local);
  memset(m, 0, sizeof *m);
}

int wm_blockcyclic_row(const wm_blockcyclic_t *m, int local) {
  return global_index(local, m->block, m->grid->row, m->grid->prows);
}

int wm_blockcyclic_col(const wm_blockcyclic_t *m, int local) {
  return global_index(local, m->block, m->grid->col, m->grid->pcols);
}

void wm_blockcyclic_fill(wm_blockcyclic_t *m, const double *a) {
  /* By blocks: the source is read along rows, the target written along columns. */
  for (int c0 = 0; c0 < m->local_cols; c0 += m->block) {
    int c1 = c0 + m->block < m->local_cols ? c0 + m->block : m->local_cols;
    int first_col = wm_blockcyclic_col(m, c0);
    for (int r = 0; r < m->local_rows; r++) {
      const double *source = a + (int64_t)wm_blockcyclic_row(m, r) * m->cols + first_col;
      for (int c = c0; c < c1; c++)
        *wm_blockcyclic_at(m, r, c) = source[c - c0];
    }
  }
}

/* Puts the local array of process (row, col) into its places in `a`. */
static void place(const wm_blockcyclic_t *m, int row, int col, const double *local, int local_rows,
                  int local_cols, double *a) {
  const wm_grid_t *g = m->grid;
  for (int r = 0; r < local_rows; r++) {
    double *target = a + (int64_t)global_index(r, m->block, row, g->prows) * m->cols;
    for (int c = 0; c < local_cols; c++)
      target[global_index(c, m->block, col, g->pcols)] = local[(int64_t)c * local_rows + r];
  }
}

static void receive(const wm_blockcyclic_t *m, int from, double *buffer, double *a) {
  const wm_grid_t *g = m->grid;
  int row = from / g->pcols, col = from % g->pcols;
  int rows = share(m->rows, m->block, row, g->prows);
  int cols = share(m->cols, m->block, col, g->pcols);
  int64_t count = (int64_t)rows * cols;
  for (int64_t i = 0; i < count; i += PIECE)
    MPI_Recv(buffer + i, (int)(count - i < PIECE ? count - i : PIECE), MPI_DOUBLE, from, TAG,
             g->comm, MPI_STATUS_IGNORE);
  place(m, row, col, buffer, rows, cols, a);
}

static void send(const wm_blockcyclic_t *m) {
  int64_t count = (int64_t)m->local_rows * m->local_cols;
  for (int64_t i = 0; i < count; i += PIECE)
    MPI_Send(m->local + i, (int)(count - i < PIECE ? count - i : PIECE), MPI_DOUBLE, 0, TAG,
             m->grid->comm);
}

wm_status_t wm_blockcyclic_gather(const wm_blockcyclic_t *m, double *a, wm_error_t *err) {
  const wm_grid_t *g = m->grid;
  int rank;
  MPI_Comm_rank(g->comm, &rank);
  void *buffer = NULL;
  wm_status_t status = WM_OK;
  if (rank == 0) /* no process keeps more than the first */
    status = wm_alloc(&buffer, (int64_t)m->local_rows * m->local_cols, sizeof(double),
                      "a process's part of a matrix", err);
  status = wm_agree(g->comm, status, err);
  if (status == WM_OK && rank == 0) {
    place(m, 0, 0, m->local, m->local_rows, m->local_cols, a);
    for (int from = 1; from < g->prows * g->pcols; from++)
      receive(m, from, buffer, a);
  } else if (status == WM_OK && g->member) {
    send(m);
  }
  free(buffer);
  return status;
}

void wm_blockcyclic_multiply(char trans_a, char trans_b, double alpha, const wm_blockcyclic_t *a,
                             const wm_blockcyclic_t *b, double beta, wm_blockcyclic_t *c) {
  int inner = trans_a == 'N' ? a->cols : a->rows;
  assert(inner == (trans_b == 'N' ? b->rows : b->cols));
  if (!c->grid->member)
    return;
  wm_pulse();
  const int one = 1;
  pdgemm_(&trans_a, &trans_b, &c->rows, &c->cols, &inner, &alpha, a->local, &one, &one,
          a->descriptor, b->local, &one, &one, b->descriptor, &beta, c->local, &one, &one,
          c->descriptor);
}

void wm_blockcyclic_row_dots(const wm_blockcyclic_t *a, const wm_blockcyclic_t *b, double *sums) {
  memset(sums, 0, (size_t)a->rows * sizeof *sums);
  for (int c = 0; c < a->local_cols; c++)
    for (int r = 0; r < a->local_rows; r++)
      sums[wm_blockcyclic_row(a, r)] += *wm_blockcyclic_at(a, r, c) * *wm_blockcyclic_at(b, r, c);
  wm_sum_f64(a->grid->comm, sums, a->rows);
}
