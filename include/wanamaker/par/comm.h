/* Communicators of a run, agreement on failure, and reductions of any size.
 *
 *   world   every rank (a duplicate that the object owns)
 *   node    the ranks that share memory with this one
 *   leaders rank 0 of every node; MPI_COMM_NULL on the others
 *
 * MPI errors end the run through MPI's default handler (operations.md, rule 19): a rank whose MPI
 * has failed can't tell the others in any other way.
 */
#ifndef WANAMAKER_PAR_COMM_H
#define WANAMAKER_PAR_COMM_H

#include "wanamaker/base/status.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
  MPI_Comm world;
  MPI_Comm node;
  MPI_Comm leaders;
  int rank, size;           /* in world */
  int node_rank, node_size; /* in node */
  int node_index, node_count;
} wm_comm_t;

/* Collective over `parent`. Duplicates and splits it; the caller frees with wm_comm_free. */
wm_status_t wm_comm_create(MPI_Comm parent, wm_comm_t **out, wm_error_t *err);

/* Collective. NULL is allowed. */
void wm_comm_free(wm_comm_t *comm);

/* Collective over comm->world. Does MPI on every rank serve several threads at once
 * (MPI_THREAD_MULTIPLE)? */
bool wm_threads_served(const wm_comm_t *comm);

/* Collective over `comm`. Every rank passes the status of its own work; all return the worst one
 * found: WM_OK if all are WM_OK, else the status and message of the lowest failed rank, copied to
 * every rank's `err`. To be called before each collective phase, so that no rank stays behind. */
wm_status_t wm_agree(MPI_Comm comm, wm_status_t status, wm_error_t *err);

/* Collective over `comm`. In-place element-wise sum of values[count], in pieces of at most 256 MiB.
 */
void wm_sum_f64(MPI_Comm comm, double *values, int64_t count);
void wm_sum_i64(MPI_Comm comm, int64_t *values, int64_t count);

/* Collective over `comm`. Broadcast of any size. */
void wm_broadcast(MPI_Comm comm, int root, void *data, int64_t bytes);

/* Collective over `comm`. True when all ranks pass equal bytes (compared by hash). */
bool wm_all_equal(MPI_Comm comm, const void *data, int64_t bytes);

/* Part `index` of `count` items cut into `parts` contiguous parts whose sizes differ by at most 1
 * (the first count % parts parts are the longer ones). Not collective. */
void wm_partition(int64_t count, int64_t parts, int64_t index, int64_t *first, int64_t *length);

/* `value` as an int, for MPI and BLAS arguments; WM_ENVIRONMENT naming `what` if it does not fit.
 */
wm_status_t wm_to_int(int64_t value, const char *what, int *out, wm_error_t *err);

#endif
