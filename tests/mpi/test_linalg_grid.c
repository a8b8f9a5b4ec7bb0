/* Process grids and block-cyclic matrices. */
#include "wanamaker/linalg/blockcyclic.h"
#include "wanamaker/linalg/grid.h"
#include "wanamaker/par/comm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static int world_size(void) {
  int size;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

static void make_grid(wm_grid_t *grid, MPI_Comm comm, int prows, int pcols) {
  wm_error_t err = {0};
  if (wm_grid_init(grid, comm, prows, pcols, &err) != WM_OK)
    fail_msg("%s", err.message);
}

static void make_matrix(wm_blockcyclic_t *m, const wm_grid_t *grid, int rows, int cols, int block) {
  wm_error_t err = {0};
  if (wm_blockcyclic_init(m, grid, rows, cols, block, "a test matrix", &err) != WM_OK)
    fail_msg("%s", err.message);
}

/* BLACS numbers its contexts by the first free place: a leak would show as a growing number. */
static void test_contexts_are_given_back(void **state) {
  (void)state;
  for (int i = 0; i < 200; i++) {
    wm_grid_t grid;
    int pcols = 1 + i % world_size();
    make_grid(&grid, MPI_COMM_WORLD, 1, pcols);
    assert_int_equal(grid.context, grid.member ? 0 : -1);
    wm_grid_destroy(&grid);
  }
}

/* The communicators live on, so that each would need its own place in BLACS's table. */
static void test_handles_are_given_back(void **state) {
  (void)state;
  enum { COMMS = 50 };
  MPI_Comm comms[COMMS];
  int first = -1;
  for (int i = 0; i < COMMS; i++) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    wm_grid_t grid;
    make_grid(&grid, comms[i], 1, 1);
    first = i == 0 ? grid.handle : first;
    assert_int_equal(grid.handle, first);
    wm_grid_destroy(&grid);
  }
  for (int i = 0; i < COMMS; i++)
    MPI_Comm_free(&comms[i]);
}

/* Two disjoint communicators work on their own grids at the same time. */
static void test_grids_of_parts(void **state) {
  (void)state;
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  int size;
  MPI_Comm_size(half, &size);
  wm_grid_t grid;
  make_grid(&grid, half, size, 1);
  assert_true(grid.member);
  assert_int_equal(grid.row, rank / 2);
  wm_blockcyclic_t a, c;
  make_matrix(&a, &grid, 11, 11, 4);
  make_matrix(&c, &grid, 11, 11, 4);
  double values[121] = {0};
  for (int i = 0; i < 11; i++)
    values[i * 11 + i] = 2 + rank % 2;
  wm_blockcyclic_fill(&a, values);
  wm_blockcyclic_multiply('N', 'N', 1, &a, &a, 0, &c);
  double dots[11];
  wm_blockcyclic_row_dots(&c, &c, dots);
  for (int i = 0; i < 11; i++)
    assert_true(dots[i] == pow(2 + rank % 2, 4));
  wm_blockcyclic_destroy(&a);
  wm_blockcyclic_destroy(&c);
  wm_grid_destroy(&grid);
  MPI_Comm_free(&half);
}

static void test_too_large(void **state) {
  (void)state;
  wm_grid_t grid;
  wm_error_t err = {0};
  assert_int_equal(WM_USAGE, wm_grid_init(&grid, MPI_COMM_WORLD, world_size(), 2, &err));
  assert_int_equal(WM_USAGE, wm_grid_init(&grid, MPI_COMM_WORLD, 0, 1, &err));
  wm_grid_destroy(&grid);
  make_grid(&grid, MPI_COMM_WORLD, 1, 1);
  wm_blockcyclic_t m;
  wm_status_t status = wm_blockcyclic_init(&m, &grid, 50000, 50000, 64, "a large matrix", &err);
  assert_int_equal(status, grid.member ? WM_ENVIRONMENT : WM_OK);
  wm_blockcyclic_destroy(&m);
  assert_int_equal(WM_ENVIRONMENT,
                   wm_blockcyclic_init(&m, &grid, INT64_C(1) << 32, 1, 64, "a long matrix", &err));
  wm_blockcyclic_destroy(&m);
  wm_grid_destroy(&grid);
}

/* Each element lands where row and col say, and all come back. */
static void round_trip(const wm_grid_t *grid, int rows, int cols, int block) {
  int64_t n = (int64_t)rows * cols;
  double *a = malloc((size_t)n * sizeof *a), *back = calloc((size_t)n, sizeof *back);
  assert_non_null(a);
  assert_non_null(back);
  for (int64_t i = 0; i < n; i++)
    a[i] = (double)(i + 1);
  wm_blockcyclic_t m;
  make_matrix(&m, grid, rows, cols, block);
  wm_blockcyclic_fill(&m, a);
  for (int r = 0; r < m.local_rows; r++)
    for (int c = 0; c < m.local_cols; c++)
      assert_true(*wm_blockcyclic_at(&m, r, c) ==
                  a[(int64_t)wm_blockcyclic_row(&m, r) * cols + wm_blockcyclic_col(&m, c)]);
  int64_t kept = (int64_t)m.local_rows * m.local_cols;
  wm_sum_i64(MPI_COMM_WORLD, &kept, 1);
  assert_int_equal(kept, n);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  wm_error_t err = {0};
  assert_int_equal(WM_OK, wm_blockcyclic_gather(&m, rank == 0 ? back : NULL, &err));
  if (rank == 0)
    assert_memory_equal(a, back, (size_t)n * sizeof *a);
  wm_blockcyclic_destroy(&m);
  free(a);
  free(back);
}

/* C = A' B against plain loops, with integers, so that sums are exact in any order. */
static void product(const wm_grid_t *grid, int rows, int cols, int block) {
  double *a = malloc((size_t)(rows * cols) * sizeof *a), *c = calloc((size_t)(cols * cols), 8);
  assert_non_null(a);
  assert_non_null(c);
  for (int i = 0; i < rows * cols; i++)
    a[i] = i % 17 - 8;
  wm_blockcyclic_t m, t;
  make_matrix(&m, grid, rows, cols, block);
  make_matrix(&t, grid, cols, cols, block);
  wm_blockcyclic_fill(&m, a);
  wm_blockcyclic_multiply('T', 'N', 2, &m, &m, 0, &t);
  wm_error_t err = {0};
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  assert_int_equal(WM_OK, wm_blockcyclic_gather(&t, c, &err));
  for (int i = 0; rank == 0 && i < cols; i++)
    for (int j = 0; j < cols; j++) {
      double sum = 0;
      for (int r = 0; r < rows; r++)
        sum += 2 * a[r * cols + i] * a[r * cols + j];
      assert_true(c[i * cols + j] == sum);
    }
  wm_blockcyclic_destroy(&m);
  wm_blockcyclic_destroy(&t);
  free(a);
  free(c);
}

static void test_matrices(void **state) {
  (void)state;
  const int grids[][2] = {{1, 1}, {1, 2}, {2, 1}, {1, 3}, {2, 2}};
  const int shapes[][2] = {{1, 1}, {5, 3}, {37, 64}, {100, 37}};
  for (int g = 0; g < 5; g++) {
    if (grids[g][0] * grids[g][1] > world_size())
      continue;
    wm_grid_t grid;
    make_grid(&grid, MPI_COMM_WORLD, grids[g][0], grids[g][1]);
    for (int s = 0; s < 4; s++)
      for (int block = 8; block <= 64; block += 56) {
        round_trip(&grid, shapes[s][0], shapes[s][1], block);
        product(&grid, shapes[s][0], shapes[s][1], block);
      }
    wm_grid_destroy(&grid);
  }
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_contexts_are_given_back),
      cmocka_unit_test(test_handles_are_given_back),
      cmocka_unit_test(test_grids_of_parts),
      cmocka_unit_test(test_too_large),
      cmocka_unit_test(test_matrices),
  };
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  if (failures != 0)
    MPI_Abort(MPI_COMM_WORLD, 1); /* the other ranks may wait in a collective call */
  MPI_Finalize();
  return 0;
}
