/* What the MPI tests of io share. A failed check ends the run at once: a rank that only left its
 * test would keep the others waiting in a collective call. */
#ifndef WANAMAKER_TESTS_IO_MPI_H
#define WANAMAKER_TESTS_IO_MPI_H

#include "../unit/test_io_common.h"

#include "wanamaker/io/files.h"
#include "wanamaker/io/hdf5.h"
#include "wanamaker/par/comm.h"

#include <mpi.h>

static wm_comm_t *comm;
static char dir[PATH]; /* the same on all ranks */

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, comm->rank, #condition);         \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                \
    }                                                                                              \
  } while (0)

#define CHECK_OK(call)                                                                             \
  do {                                                                                             \
    if ((call) != WM_OK) {                                                                         \
      fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, comm->rank, err.message);        \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                \
    }                                                                                              \
  } while (0)

/* `call` must fail with `status` on every rank, with a message that holds `part`. */
#define CHECK_FAILS(call, kind, part)                                                              \
  do {                                                                                             \
    wm_status_t got = (call);                                                                      \
    if (got != (kind) || err.status != got || strstr(err.message, (part)) == NULL) {               \
      fprintf(stderr, "%s:%d: rank %d: status %d, \"%s\"; expected %d and \"%s\"\n", __FILE__,     \
              __LINE__, comm->rank, (int)got, err.message, (int)(kind), (part));                   \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                \
    }                                                                                              \
  } while (0)

static inline int run_mpi_tests(const struct CMUnitTest *tests, size_t n) {
  wm_error_t err = {0};
  wm_h5_environment();
  MPI_Init(NULL, NULL);
  if (wm_comm_create(MPI_COMM_WORLD, &comm, &err) != WM_OK)
    MPI_Abort(MPI_COMM_WORLD, 1);
  if (comm->rank == 0)
    make_directory(dir);
  wm_broadcast(comm->world, 0, dir, sizeof dir);
  int failed = _cmocka_run_group_tests("io", tests, n, NULL, NULL);
  if (failed != 0)
    MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Barrier(comm->world);
  if (comm->rank == 0)
    remove_directory(dir);
  wm_comm_free(comm);
  MPI_Finalize();
  return 0;
}

#endif
