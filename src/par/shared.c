#include "wanamaker/par/shared.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/base/memory_room.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

enum {
  SLACK = 64,        /* bytes, to align the array */
  OVERHEAD = 1 << 20 /* of a segment: MPI's headers, whole pages */
};

/* MPI's own failure here is fatal, so that what can be foreseen is checked first. A backing
 * directory other than /dev/shm can be chosen by an MCA parameter; then this check is not ours. */
static wm_status_t check_room(int64_t bytes, const char *what, wm_error_t *err) {
  struct statvfs fs;
  wm_status_t status = wm_memory_room_check(bytes, what, err);
  if (status != WM_OK)
    return status;
  if (getenv("OMPI_MCA_osc_sm_backing_directory") != NULL || statvfs("/dev/shm", &fs) != 0)
    return WM_OK;
  int64_t room = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
  if (room - OVERHEAD < bytes)
    return wm_fail(err, WM_ENVIRONMENT,
                   "%s needs %.2f GiB of node-shared memory, but /dev/shm has room for %.2f GiB; "
                   "enlarge it or name another directory with "
                   "OMPI_MCA_osc_sm_backing_directory",
                   what, (double)bytes / 0x1p30, (double)room / 0x1p30);
  return WM_OK;
}

wm_status_t wm_shared_create(const wm_comm_t *comm, int64_t bytes, const char *what,
                             wm_shared_t *out, wm_error_t *err) {
  memset(out, 0, sizeof *out);
  out->window = MPI_WIN_NULL;
  out->node = comm->node;
  out->bytes = bytes;
  wm_status_t status = WM_OK;
  if (comm->node_size == 1) { /* needs no segment, nor a /dev/shm that holds it */
    status = wm_memory_room_check(bytes, what, err);
    return status == WM_OK ? wm_alloc(&out->data, bytes, 1, what, err) : status;
  }
  if (comm->node_rank == 0)
    status = check_room(bytes, what, err);
  status = wm_agree(comm->node, status, err);
  if (status != WM_OK)
    return status;
  void *own;
  MPI_Win_allocate_shared(comm->node_rank == 0 ? (MPI_Aint)(bytes + SLACK) : 0, 1, MPI_INFO_NULL,
                          comm->node, &own, &out->window);
  MPI_Aint size;
  int unit;
  void *base;
  MPI_Win_shared_query(out->window, 0, &size, &unit, &base);
  uintptr_t address = (uintptr_t)base;
  out->data = (void *)((address + SLACK - 1) / SLACK * SLACK);
  MPI_Win_lock_all(MPI_MODE_NOCHECK, out->window);
  if (comm->node_rank == 0)
    memset(out->data, 0, (size_t)bytes);
  wm_shared_sync(out);
  return WM_OK;
}

void wm_shared_sync(wm_shared_t *shared) {
  if (shared->window == MPI_WIN_NULL)
    return;
  MPI_Win_sync(shared->window);
  MPI_Barrier(shared->node);
  MPI_Win_sync(shared->window);
}

void wm_shared_destroy(wm_shared_t *shared) {
  if (shared->data == NULL)
    return;
  if (shared->window == MPI_WIN_NULL) {
    free(shared->data);
  } else {
    MPI_Win_unlock_all(shared->window);
    MPI_Win_free(&shared->window);
  }
  memset(shared, 0, sizeof *shared);
}
