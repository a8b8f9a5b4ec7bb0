/* What every result file says of its making. */
#ifndef WANAMAKER_IO_PROVENANCE_H
#define WANAMAKER_IO_PROVENANCE_H

#include "wanamaker/base/status.h"
#include "wanamaker/io/hdf5.h"
#include "wanamaker/par/comm.h"

#include <stdint.h>

/* Fixed at start-up, borrowed by whoever writes results. */
typedef struct {
  const char *version, *commit; /* of the program */
  const char *configuration;    /* full resolved text */
  int ranks, threads;
  const char *backend; /* wm_gemm_backend() */
  const char *compute; /* element type of the network's products; NULL: "float32" */
  double start;        /* seconds since the epoch */
} wm_provenance_t;

/* Collective. Root attributes: program, version, commit, configuration, ranks, threads, nodes,
 * compute, mpi, hdf5, blas, gemm, host, start, end (ISO 8601, UTC). Times and host are rank 0's;
 * `end` is the time of this call. */
wm_status_t wm_provenance_write(wm_h5_t *file, const wm_comm_t *comm, const wm_provenance_t *p,
                                wm_error_t *err);

#endif
