/* Float64 accumulation of Gram matrices, in row panels that ranks share out. */
#ifndef WANAMAKER_LINALG_GRAM_H
#define WANAMAKER_LINALG_GRAM_H

#include "wanamaker/base/status.h"

#include <stdint.h>

/* Rows of a panel; panel p covers rows p * WM_GRAM_PANEL up to the next panel or d. */
enum { WM_GRAM_PANEL = 128 };

/* xx[d, d] += X'X (lower triangle only) and xy[d, d] += X'Y for the rows of xx and xy that lie in
 * panels p with p % parts == part. X, Y: [rows, d] row-major. Threaded BLAS; not collective. */
wm_status_t wm_gram_update(const double *x, const double *y, int64_t rows, int64_t d, int parts,
                           int part, double *xx, double *xy, wm_error_t *err);

/* a[k, k] += Z'Z (lower triangle only), Z: [rows, k] row-major with rows of `ld` elements. Threaded
 * BLAS; not collective. */
wm_status_t wm_gram_square(const double *z, int64_t rows, int64_t k, int64_t ld, double *a,
                           wm_error_t *err);

/* Copies the lower triangle of xx[d, d] to the upper one, for rows of the given share of panels (as
 * targets). Call after a barrier. */
void wm_gram_mirror(int64_t d, int parts, int part, double *xx);

#endif
