/* What the MPI tests of par share. A failed check ends the run at once: a rank that only left its
 * test would keep the others waiting in a collective call. */
#ifndef WANAMAKER_TESTS_PAR_COMMON_H
#define WANAMAKER_TESTS_PAR_COMMON_H

#include "wanamaker/par/comm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static wm_comm_t *comm;

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, comm->rank, #condition);         \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                \
    }                                                                                              \
  } while (0)

static inline int run_threaded_mpi_tests(int threads, const struct CMUnitTest *tests, size_t n) {
  wm_error_t err = {0};
  int provided;
  MPI_Init_thread(NULL, NULL, threads, &provided);
  if (provided < threads || wm_comm_create(MPI_COMM_WORLD, &comm, &err) != WM_OK)
    MPI_Abort(MPI_COMM_WORLD, 1);
  int failed = _cmocka_run_group_tests("par", tests, n, NULL, NULL);
  if (failed != 0)
    MPI_Abort(MPI_COMM_WORLD, 1);
  wm_comm_free(comm);
  MPI_Finalize();
  return 0;
}

static inline int run_mpi_tests(const struct CMUnitTest *tests, size_t n) {
  return run_threaded_mpi_tests(MPI_THREAD_SINGLE, tests, n);
}

#endif
