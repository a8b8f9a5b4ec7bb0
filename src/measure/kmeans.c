#include "wanamaker/measure/kmeans.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/par/comm.h"

#include <math.h>
#include <string.h>

static double distance(const double *a, const double *b, int64_t d) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < d; j++)
    sum += (a[j] - b[j]) * (a[j] - b[j]);
  return sum;
}

/* --- seeds --------------------------------------------------------------------------------------
 */

typedef struct {
  double time;
  int rank;
} first_t;

/* Coordinates of the point with the least time, on every rank; false: all times are infinite.
 * Collective. */
static bool choose(MPI_Comm comm, const double *points, int64_t d, double time, int64_t point,
                   double *out) {
  first_t first = {time, 0};
  MPI_Comm_rank(comm, &first.rank);
  MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_DOUBLE_INT, MPI_MINLOC, comm);
  if (isinf(first.time))
    return false;
  if (point >= 0)
    memcpy(out, points + point * d, (size_t)d * sizeof *out);
  wm_broadcast(comm, first.rank, out, d * (int64_t)sizeof *out);
  return true;
}

/* Number of seeds that there are, at most k. nearest: [n] scratch. Collective. */
static int64_t plant(MPI_Comm comm, const double *points, const int64_t *number, int64_t n,
                     int64_t d, int64_t k, uint64_t seed, uint64_t stream, double *nearest,
                     double *centre) {
  for (int64_t i = 0; i < n; i++)
    nearest[i] = 1;
  for (int64_t c = 0; c < k; c++) {
    const wm_rng_t rng = {seed, stream + (uint64_t)c};
    double best = INFINITY;
    int64_t point = -1;
    wm_pulse();
    for (int64_t i = 0; i < n; i++) {
      const double u = 1 - wm_rng_uniform(rng, (uint64_t)number[i]);
      const double time = nearest[i] > 0 ? -log(u) / nearest[i] : INFINITY;
      if (time < best) {
        best = time;
        point = i;
      }
    }
    if (!choose(comm, points, d, best, point, centre + c * d))
      return c;
    for (int64_t i = 0; i < n; i++) {
      const double to = distance(points + i * d, centre + c * d, d);
      nearest[i] = c == 0 || to < nearest[i] ? to : nearest[i];
    }
  }
  return k;
}

/* --- Lloyd's iterations -------------------------------------------------------------------------
 */

/* Nearest centre of every point, the first of equals; how many moved. distances: [n]. */
static int64_t assign(const double *points, int64_t n, int64_t d, int64_t k, const double *centre,
                      int32_t *cluster, double *distances) {
  int64_t moved = 0;
#pragma omp parallel for schedule(static) reduction(+ : moved)
  for (int64_t i = 0; i < n; i++) {
    int32_t best = 0;
    double least = INFINITY;
    for (int64_t c = 0; c < k; c++) {
      const double to = distance(points + i * d, centre + c * d, d);
      if (to < least) {
        least = to;
        best = (int32_t)c;
      }
    }
    moved += cluster[i] != best;
    cluster[i] = best;
    distances[i] = least;
  }
  return moved;
}

/* sums: [k, d + 1] and the inertia: of points and their number. Collective. */
static void sum_clusters(MPI_Comm comm, const double *points, int64_t n, int64_t d, int64_t k,
                         const int32_t *cluster, const double *distances, double *sums) {
  memset(sums, 0, (size_t)(k * (d + 1) + 1) * sizeof *sums);
  for (int64_t i = 0; i < n; i++) {
    double *to = sums + cluster[i] * (d + 1);
    for (int64_t j = 0; j < d; j++)
      to[j] += points[i * d + j];
    to[d]++;
    sums[k * (d + 1)] += distances[i];
  }
  wm_sum_f64(comm, sums, k * (d + 1) + 1);
  wm_broadcast(comm, 0, sums, (k * (d + 1) + 1) * (int64_t)sizeof *sums);
}

wm_status_t wm_kmeans_lloyd(MPI_Comm comm, const double *points, int64_t n, int64_t d, int64_t k,
                            int64_t iterations, int32_t *cluster, double *centre, wm_kmeans_t *out,
                            wm_error_t *err) {
  void *distances = NULL, *memory = NULL;
  *out = (wm_kmeans_t){.k = k};
  wm_status_t status = wm_alloc(&distances, n, sizeof(double), "distances to centres", err);
  if (status == WM_OK)
    status = wm_alloc(&memory, k * (d + 1) + 1, sizeof(double), "sums of clusters", err);
  WM_TRY(wm_agree(comm, status, err));
  double *sums = memory;
  for (int64_t i = 0; i < n; i++)
    cluster[i] = -1;
  for (out->iterations = 0; k > 0 && !out->converged && out->iterations <= iterations;
       out->iterations++) {
    int64_t moved = assign(points, n, d, k, centre, cluster, distances);
    wm_pulse();
    wm_sum_i64(comm, &moved, 1);
    sum_clusters(comm, points, n, d, k, cluster, distances, sums);
    out->inertia = sums[k * (d + 1)];
    out->converged = moved == 0;
    for (int64_t c = 0; c < k; c++)
      for (int64_t j = 0; j < d && sums[c * (d + 1) + d] > 0; j++)
        centre[c * d + j] = sums[c * (d + 1) + j] / sums[c * (d + 1) + d];
  }
cleanup:
  free(distances);
  free(memory);
  return status;
}

/* --- best of several starts ---------------------------------------------------------------------
 */

wm_status_t wm_kmeans(MPI_Comm comm, const double *points, const int64_t *number, int64_t n,
                      int64_t d, const wm_kmeans_options_t *o, int32_t *cluster, double *centre,
                      wm_kmeans_t *out, wm_error_t *err) {
  void *nearest = NULL, *own = NULL, *trial = NULL;
  *out = (wm_kmeans_t){.inertia = INFINITY};
  wm_status_t status = wm_alloc(&nearest, n, sizeof(double), "distances to seeds", err);
  if (status == WM_OK)
    status = wm_alloc(&own, n, sizeof(int32_t), "clusters", err);
  if (status == WM_OK)
    status = wm_alloc(&trial, o->k * d, sizeof(double), "centres", err);
  WM_TRY(wm_agree(comm, status, err));
  for (int64_t r = 0; r < o->restarts; r++) {
    wm_kmeans_t one;
    const int64_t k = plant(comm, points, number, n, d, o->k, o->seed,
                            o->stream + (uint64_t)(r * o->k), nearest, trial);
    WM_TRY(wm_kmeans_lloyd(comm, points, n, d, k, o->iterations, own, trial, &one, err));
    if (one.inertia < out->inertia || r == 0) {
      *out = one;
      memcpy(cluster, own, (size_t)n * sizeof *cluster);
      memcpy(centre, trial, (size_t)(k * d) * sizeof *centre);
    }
  }
cleanup:
  free(nearest);
  free(own);
  free(trial);
  return status;
}
