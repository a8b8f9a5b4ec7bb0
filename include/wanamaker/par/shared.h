/* Arrays that exist once per node, in memory that all ranks of the node see
 * (MPI_Win_allocate_shared; the segment lies in /dev/shm and is gone with the processes). On a node
 * with a single rank it is that rank's private memory. */
#ifndef WANAMAKER_PAR_SHARED_H
#define WANAMAKER_PAR_SHARED_H

#include "wanamaker/base/status.h"
#include "wanamaker/par/comm.h"

#include <mpi.h>
#include <stdint.h>

typedef struct {
  MPI_Comm node;  /* borrowed */
  MPI_Win window; /* MPI_WIN_NULL on a node with a single rank */
  void *data;     /* same memory on every rank of the node, page-aligned at least to 64 bytes */
  int64_t bytes;
} wm_shared_t;

/* Collective over comm->node; every rank of the node passes the same `bytes`. The memory is zeroed
 * and owned by the window. When the node lacks the memory (base/memory_room.h) or the room in
 * /dev/shm for it, or limits of a rank forbid it (open files, size of a file, addresses), every
 * rank of the node gets WM_ENVIRONMENT with the figures. Agree over world afterwards. */
wm_status_t wm_shared_create(const wm_comm_t *comm, int64_t bytes, const char *what,
                             wm_shared_t *out, wm_error_t *err);

/* Collective over the node. Writes made before it on any rank are seen after it on all. */
void wm_shared_sync(wm_shared_t *shared);

/* Collective over the node. Harmless on a zeroed object. */
void wm_shared_destroy(wm_shared_t *shared);

#endif
