#include "wanamaker/par/comm.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"

#include <limits.h>
#include <stddef.h>

enum { PIECE_BYTES = 256 << 20 };

wm_status_t wm_comm_create(MPI_Comm parent, wm_comm_t **out, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_comm_t), "communicators", err);
  status = wm_agree(parent, status, err);
  *out = memory;
  if (status != WM_OK) {
    free(memory);
    *out = NULL;
    return status;
  }
  wm_comm_t *c = *out;
  MPI_Comm_dup(parent, &c->world);
  MPI_Comm_rank(c->world, &c->rank);
  MPI_Comm_size(c->world, &c->size);
  MPI_Comm_split_type(c->world, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &c->node);
  MPI_Comm_rank(c->node, &c->node_rank);
  MPI_Comm_size(c->node, &c->node_size);
  MPI_Comm_split(c->world, c->node_rank == 0 ? 0 : MPI_UNDEFINED, c->rank, &c->leaders);
  int place[2] = {0, 0};
  if (c->leaders != MPI_COMM_NULL) {
    MPI_Comm_rank(c->leaders, &place[0]);
    MPI_Comm_size(c->leaders, &place[1]);
  }
  MPI_Bcast(place, 2, MPI_INT, 0, c->node);
  c->node_index = place[0];
  c->node_count = place[1];
  return WM_OK;
}

void wm_comm_free(wm_comm_t *comm) {
  if (comm == NULL)
    return;
  if (comm->leaders != MPI_COMM_NULL)
    MPI_Comm_free(&comm->leaders);
  MPI_Comm_free(&comm->node);
  MPI_Comm_free(&comm->world);
  free(comm);
}

bool wm_threads_served(const wm_comm_t *comm) {
  int provided;
  MPI_Query_thread(&provided);
  MPI_Allreduce(MPI_IN_PLACE, &provided, 1, MPI_INT, MPI_MIN, comm->world);
  return provided == MPI_THREAD_MULTIPLE;
}

wm_status_t wm_agree(MPI_Comm comm, wm_status_t status, wm_error_t *err) {
  int rank, size;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  int first = status == WM_OK ? size : rank;
  MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, comm);
  if (first == size)
    return WM_OK;
  if (rank == first)
    err->status = status;
  MPI_Bcast(err, (int)sizeof *err, MPI_BYTE, first, comm);
  return err->status;
}

void wm_sum_f64(MPI_Comm comm, double *values, int64_t count) {
  const int64_t piece = PIECE_BYTES / (int64_t)sizeof *values;
  for (int64_t i = 0; i < count; i += piece) {
    MPI_Allreduce(MPI_IN_PLACE, values + i, (int)(count - i < piece ? count - i : piece),
                  MPI_DOUBLE, MPI_SUM, comm);
    wm_pulse();
  }
}

void wm_sum_i64(MPI_Comm comm, int64_t *values, int64_t count) {
  const int64_t piece = PIECE_BYTES / (int64_t)sizeof *values;
  for (int64_t i = 0; i < count; i += piece) {
    MPI_Allreduce(MPI_IN_PLACE, values + i, (int)(count - i < piece ? count - i : piece),
                  MPI_INT64_T, MPI_SUM, comm);
    wm_pulse();
  }
}

void wm_broadcast(MPI_Comm comm, int root, void *data, int64_t bytes) {
  char *at = data;
  for (int64_t i = 0; i < bytes; i += PIECE_BYTES) {
    MPI_Bcast(at + i, (int)(bytes - i < PIECE_BYTES ? bytes - i : PIECE_BYTES), MPI_BYTE, root,
              comm);
    wm_pulse();
  }
}

bool wm_all_equal(MPI_Comm comm, const void *data, int64_t bytes) {
  uint64_t own = wm_hash(data, (size_t)bytes, (uint64_t)bytes);
  uint64_t bounds[2] = {own, ~own}; /* the minimum of ~x is ~(the maximum of x) */
  MPI_Allreduce(MPI_IN_PLACE, bounds, 2, MPI_UINT64_T, MPI_MIN, comm);
  return bounds[0] == ~bounds[1];
}

void wm_partition(int64_t count, int64_t parts, int64_t index, int64_t *first, int64_t *length) {
  int64_t base = count / parts, longer = count % parts;
  *length = base + (index < longer);
  *first = index * base + (index < longer ? index : longer);
}

wm_status_t wm_to_int(int64_t value, const char *what, int *out, wm_error_t *err) {
  if (value < INT_MIN || value > INT_MAX)
    return wm_fail(err, WM_ENVIRONMENT, "%s: %lld does not fit a 32-bit integer", what,
                   (long long)value);
  *out = (int)value;
  return WM_OK;
}
