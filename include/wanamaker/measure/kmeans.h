/* k-means on points that ranks hold: seeds by k-means++, Lloyd's iterations, the best of several
 * starts.
 *
 * A point is known by a number that is its own among all ranks' points, and all that is drawn
 * depends on that number: seeds are the same for any distribution of the points, as far as
 * distances are. A seed is the point whose exponential race, -log(u) / (squared distance to the
 * nearest seed), ends first, which chooses it with probability proportional to that distance.
 */
#ifndef WANAMAKER_MEASURE_KMEANS_H
#define WANAMAKER_MEASURE_KMEANS_H

#include "wanamaker/base/status.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
  int64_t k;             /* clusters; there are fewer if there are fewer distinct points */
  int64_t restarts;      /* starts, at least 1 */
  int64_t iterations;    /* most of Lloyd's for a start */
  uint64_t seed, stream; /* draws: streams stream .. stream + restarts k - 1 */
} wm_kmeans_options_t;

typedef struct {
  int64_t k;          /* clusters that have points */
  int64_t iterations; /* of the best start */
  double inertia;     /* sum of squared distances to the own centre */
  bool converged;     /* no point changed its cluster in the last iteration */
} wm_kmeans_t;

/* Collective over `comm`. points: [n, d] of this rank, number: [n]. cluster: [n] <- 0 .. k - 1;
 * centre: [options.k, d] <- the first out->k are filled, the same bits on every rank. No points at
 * all: k = 0. Every rank's memory: [n] twice, and [k, d] four times. */
wm_status_t wm_kmeans(MPI_Comm comm, const double *points, const int64_t *number, int64_t n,
                      int64_t d, const wm_kmeans_options_t *options, int32_t *cluster,
                      double *centre, wm_kmeans_t *out, wm_error_t *err);

/* Collective. Lloyd's iterations alone, from centre[k, d]. Clusters that lose all points keep their
 * centre. */
wm_status_t wm_kmeans_lloyd(MPI_Comm comm, const double *points, int64_t n, int64_t d, int64_t k,
                            int64_t iterations, int32_t *cluster, double *centre, wm_kmeans_t *out,
                            wm_error_t *err);

#endif
