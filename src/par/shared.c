#include "wanamaker/par/shared.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/memory_room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
  SLACK = 64,        /* bytes, to align the array */
  OVERHEAD = 1 << 20 /* of a segment: MPI's headers, whole pages */
};

/* MPI's own failure here is fatal or leaves ranks waiting, so that what can be foreseen is checked
 * first. On the rank that makes the segment: file size, room in its directory, and memory. Another
 * than /dev/shm can be chosen by an MCA parameter; then its room is not ours to check. */
static wm_status_t check_node(int64_t bytes, const char *what, wm_error_t *err) {
  struct statvfs fs;
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < (rlim_t)bytes + OVERHEAD)
    return wm_fail(err, WM_ENVIRONMENT,
                   "%s needs a segment of %llu bytes, but this process may write files of %llu "
                   "bytes only (ulimit -f)",
                   what, (unsigned long long)bytes + OVERHEAD, (unsigned long long)limit.rlim_cur);
  bool ours = getenv("OMPI_MCA_osc_sm_backing_directory") == NULL && statvfs("/dev/shm", &fs) == 0;
  int64_t room = ours ? (int64_t)fs.f_bavail * (int64_t)fs.f_frsize : 0;
  if (ours && room - OVERHEAD < bytes)
    return wm_fail(err, WM_ENVIRONMENT,
                   "%s needs %.2f GiB of node-shared memory, but /dev/shm has room for %.2f GiB; "
                   "enlarge it or name another directory with "
                   "OMPI_MCA_osc_sm_backing_directory",
                   what, (double)bytes / 0x1p30, (double)room / 0x1p30);
  return wm_memory_room_check(bytes, what, err);
}

/* On every rank: a descriptor and the addresses to attach the segment with. */
static wm_status_t check_rank(int64_t bytes, const char *what, wm_error_t *err) {
  int fds[2] = {open("/dev/null", O_RDONLY | O_CLOEXEC), open("/dev/null", O_RDONLY | O_CLOEXEC)};
  int reason = errno;
  for (int i = 0; i < 2; i++)
    if (fds[i] >= 0)
      close(fds[i]);
  if (fds[0] < 0 || fds[1] < 0)
    return wm_fail(err, WM_ENVIRONMENT, "%s: no file can be opened: %s (ulimit -n)", what,
                   strerror(reason));
  size_t size = (size_t)bytes + OVERHEAD;
  void *probe = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (probe == MAP_FAILED)
    return wm_fail(err, WM_ENVIRONMENT, "%s: cannot map %zu bytes: %s (ulimit -v)", what, size,
                   strerror(errno));
  munmap(probe, size);
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
    status = check_node(bytes, what, err);
  if (status == WM_OK)
    status = check_rank(bytes, what, err);
  status = wm_agree(comm->node, status, err);
  if (status != WM_OK)
    return status;
  void *own;
  const double slow_memory = 1e8; /* bytes per second that the system clears; no rank can pulse */
  wm_pulse_allow((double)bytes / slow_memory);
  MPI_Win_allocate_shared(comm->node_rank == 0 ? (MPI_Aint)(bytes + SLACK) : 0, 1, MPI_INFO_NULL,
                          comm->node, &own, &out->window);
  wm_pulse_allow(0);
  MPI_Aint size;
  int unit;
  void *base;
  MPI_Win_shared_query(out->window, 0, &size, &unit, &base);
  uintptr_t address = (uintptr_t)base;
  out->data = (void *)((address + SLACK - 1) / SLACK * SLACK);
  MPI_Win_lock_all(MPI_MODE_NOCHECK, out->window);
  if (comm->node_rank == 0)
    wm_zero(out->data, (size_t)bytes);
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
