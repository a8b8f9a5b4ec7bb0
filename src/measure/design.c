#include "wanamaker/measure/design.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/linalg/eigen.h"
#include "wanamaker/linalg/gram.h"
#include "wanamaker/linalg/grid.h"
#include "wanamaker/par/comm.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* --- rows ---------------------------------------------------------------------------------------
 */

static const float *row_of(const wm_design_t *d, int64_t i) {
  return d->x + (d->index != NULL ? d->index[i] : i) * d->k;
}

/* As it is given, not standardised. */
static double raw(const wm_design_t *d, int64_t i, int64_t j) {
  return d->x != NULL ? (double)row_of(d, i)[j] : d->z[i * d->k + j];
}

void wm_design_tile(const wm_design_t *d, int64_t first, int64_t count, double *tile, int64_t ld) {
  for (int64_t i = 0; i < count; i++) {
    double *to = tile + i * ld;
    if (d->x == NULL) {
      memcpy(to, d->z + (first + i) * d->k, (size_t)d->k * sizeof *to);
      continue;
    }
    const float *from = row_of(d, first + i);
    for (int64_t j = 0; j < d->k; j++)
      to[j] = ((double)from[j] - d->mean[j]) / d->scale[j];
  }
}

static int64_t tile_rows(const wm_design_t *d, int64_t first) {
  return d->n - first < WM_DESIGN_TILE ? d->n - first : WM_DESIGN_TILE;
}

/* --- standardisation ----------------------------------------------------------------------------
 */

/* shift <- the first row of the first rank that has one. Collective. */
static void find_shift(MPI_Comm comm, const wm_design_t *d, double *shift) {
  int rank, size, first;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  first = d->n > 0 ? rank : size;
  MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, comm);
  for (int64_t j = 0; j < d->k; j++)
    shift[j] = d->n > 0 ? raw(d, 0, j) : 0;
  if (first < size)
    wm_broadcast(comm, first, shift, d->k * (int64_t)sizeof *shift);
}

/* Sums are equal on every rank to the last bit only by the grace of MPI. Collective. */
static void sum_for_all(MPI_Comm comm, double *values, int64_t n) {
  wm_sum_f64(comm, values, n);
  wm_broadcast(comm, 0, values, n * (int64_t)sizeof *values);
}

/* The rule of scikit-learn: a variance within the rounding errors of its computation. */
static bool is_constant(double variance, double mean, double n) {
  double noise = n * mean * DBL_EPSILON;
  return variance <= n * DBL_EPSILON * variance + noise * noise;
}

void wm_design_standardize(MPI_Comm comm, const wm_design_t *d, double *mean, double *scale,
                           int64_t *constant, int64_t *total) {
  const int64_t k = d->k;
  *total = d->n;
  wm_sum_i64(comm, total, 1);
  const double n = *total > 0 ? (double)*total : 1;
  find_shift(comm, d, scale);
  memset(mean, 0, (size_t)k * sizeof *mean);
  for (int64_t i = 0; i < d->n; i++)
    for (int64_t j = 0; j < k; j++)
      mean[j] += raw(d, i, j) - scale[j];
  sum_for_all(comm, mean, k);
  for (int64_t j = 0; j < k; j++)
    mean[j] = scale[j] + mean[j] / n;
  memset(scale, 0, (size_t)k * sizeof *scale);
  for (int64_t i = 0; i < d->n; i++)
    for (int64_t j = 0; j < k; j++) {
      double t = raw(d, i, j) - mean[j];
      scale[j] += t * t;
    }
  sum_for_all(comm, scale, k);
  *constant = 0;
  for (int64_t j = 0; j < k; j++) {
    double variance = scale[j] / n;
    bool still = is_constant(variance, mean[j], n);
    *constant += still;
    scale[j] = still ? 1 : sqrt(variance);
  }
}

/* --- principal components -----------------------------------------------------------------------
 */

/* a[k, k] <- Z'Z / N, whole. Collective. */
static wm_status_t correlate(MPI_Comm comm, const wm_design_t *d, double *a, wm_error_t *err) {
  const int64_t k = d->k;
  int64_t total = d->n;
  void *tile;
  wm_status_t status =
      wm_alloc(&tile, WM_DESIGN_TILE * k, sizeof(double), "standardised rows", err);
  for (int64_t i = 0; i < d->n && status == WM_OK; i += WM_DESIGN_TILE) {
    wm_pulse();
    wm_design_tile(d, i, tile_rows(d, i), tile, k);
    status = wm_gram_square(tile, tile_rows(d, i), k, k, a, err);
  }
  free(tile);
  status = wm_agree(comm, status, err);
  if (status != WM_OK)
    return status;
  wm_sum_i64(comm, &total, 1);
  wm_sum_f64(comm, a, k * k);
  for (int64_t i = 0; i < k; i++)
    for (int64_t j = 0; j <= i; j++)
      a[i * k + j] = a[j * k + i] = a[i * k + j] / (double)(total > 0 ? total : 1);
  return WM_OK;
}

/* On rank 0: the last columns of vectors[k, k] as rows, sign fixed. */
static void take_components(const double *vectors, int64_t k, int64_t count, double *components) {
  for (int64_t c = 0; c < count; c++) {
    double *to = components + c * k, largest = 0;
    for (int64_t j = 0; j < k; j++) {
      to[j] = vectors[j * k + k - 1 - c];
      if (fabs(to[j]) > fabs(largest))
        largest = to[j];
    }
    for (int64_t j = 0; j < k && largest < 0; j++)
      to[j] = -to[j];
  }
}

wm_status_t wm_design_pca(MPI_Comm comm, const wm_design_t *d, int64_t count, int block,
                          double *components, double *variance, wm_error_t *err) {
  const int64_t k = d->k;
  wm_grid_t grid = {0};
  wm_blockcyclic_t vectors = {0};
  void *a = NULL, *values = NULL;
  int rank, prows, pcols;
  MPI_Comm_rank(comm, &rank);
  wm_status_t status = wm_alloc(&a, k * k, sizeof(double), "a correlation matrix", err);
  if (status == WM_OK)
    status = wm_alloc(&values, k, sizeof(double), "eigenvalues", err);
  WM_TRY(wm_agree(comm, status, err));
  WM_TRY(correlate(comm, d, a, err));
  wm_grid_choose(comm, k, &prows, &pcols);
  WM_TRY(wm_grid_init(&grid, comm, prows, pcols, err));
  WM_TRY(
      wm_agree(comm, wm_blockcyclic_init(&vectors, &grid, k, k, block, "eigenvectors", err), err));
  WM_TRY(wm_eigen_symmetric(a, &vectors, values, err));
  WM_TRY(wm_blockcyclic_gather(&vectors, a, err)); /* the matrix is no longer needed */
  if (rank == 0)
    take_components(a, k, count, components);
  wm_broadcast(comm, 0, components, count * k * (int64_t)sizeof *components);
  for (int64_t c = 0; c < count; c++)
    variance[c] = ((double *)values)[k - 1 - c];
cleanup:
  wm_blockcyclic_destroy(&vectors);
  wm_grid_destroy(&grid);
  free(a);
  free(values);
  return status;
}

wm_status_t wm_design_project(const wm_design_t *d, const double *components, int64_t count,
                              double *out, wm_error_t *err) {
  const int64_t k = d->k;
  void *memory;
  wm_status_t status =
      wm_alloc(&memory, WM_DESIGN_TILE * k, sizeof(double), "standardised rows", err);
  if (status != WM_OK)
    return status;
  const double *tile = memory;
  for (int64_t first = 0; first < d->n; first += WM_DESIGN_TILE) {
    const int64_t rows = tile_rows(d, first);
    wm_pulse();
    wm_design_tile(d, first, rows, memory, k);
    for (int64_t i = 0; i < rows; i++)
      for (int64_t c = 0; c < count; c++) {
        double sum = 0;
        for (int64_t j = 0; j < k; j++)
          sum += tile[i * k + j] * components[c * k + j];
        out[(first + i) * count + c] = sum;
      }
  }
  free(memory);
  return WM_OK;
}
