/* Rows of a regression's inputs, held by the ranks that computed them, as regressions and PCA see
 * them: a tile of float64 rows at a time.
 *
 *     x [n of this rank, D] float32  --select, standardise-->  z [n, k] float64, a tile at a time
 *
 * Standardisation is scikit-learn's StandardScaler: z = (x - mean) / scale with the population's
 * standard deviation; a feature that is constant to rounding keeps scale 1 and so is all but 0.
 */
#ifndef WANAMAKER_MEASURE_DESIGN_H
#define WANAMAKER_MEASURE_DESIGN_H

#include "wanamaker/base/status.h"

#include <mpi.h>
#include <stdint.h>

enum { WM_DESIGN_TILE = 256 }; /* most rows of a tile */

/* Rows of one of two forms; all pointers are borrowed. */
typedef struct {
  int64_t n; /* rows of this rank */
  int64_t k; /* columns, equal on all ranks */
  /* standardised: z = (x[index] - mean) / scale */
  const float *x;       /* [*, k]; NULL: the other form */
  const int64_t *index; /* [n] rows of x that are used; NULL: the first n */
  const double *mean, *scale;
  /* as they are */
  const double *z; /* [n, k] */
} wm_design_t;

/* tile[count, ld], ld >= k: rows first .. first + count - 1. */
void wm_design_tile(const wm_design_t *design, int64_t first, int64_t count, double *tile,
                    int64_t ld);

/* Collective over `comm`. mean[k] and scale[k] of all ranks' rows as they are given (mean and scale
 * of the design are not read): sums are taken of what is left after a shift by the first row of
 * all, and squares about the mean, so that nothing cancels. *constant: features that are. *total:
 * rows of all ranks; 0 leaves mean 0 and scale 1. The same bits on every rank. */
void wm_design_standardize(MPI_Comm comm, const wm_design_t *design, double *mean, double *scale,
                           int64_t *constant, int64_t *total);

/* Collective over `comm`. Principal components: the `count` eigenvectors of Z'Z / N with the
 * largest eigenvalues, by a distributed eigensolver with blocks of `block` rows. components:
 * [count, k] row-major, each of length 1 and with its largest element (the first of equals)
 * positive; variance: [count] descending. The columns of Z must have mean 0. count <= k. The same
 * bits on every rank. */
wm_status_t wm_design_pca(MPI_Comm comm, const wm_design_t *design, int64_t count, int block,
                          double *components, double *variance, wm_error_t *err);

/* out[n, count] = Z components'. Not collective. */
wm_status_t wm_design_project(const wm_design_t *design, const double *components, int64_t count,
                              double *out, wm_error_t *err);

#endif
