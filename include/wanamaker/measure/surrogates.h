/* Linear surrogates of MLPs: surrogates.h5 and their use (method.md, section 1).
 *
 *   /layers              [n] int64           layers that have a surrogate, ascending
 *   /weight              [n, D, D] float64   W, [in, out]: prediction y = x W + b
 *   /bias                [n, D] float64      b
 *   /fit/r2              [n] float64         1 - SSE / total on the fit rows
 *   /fit/r2_heldout      [n] float64         the same on held-out rows (NaN: none)
 *   /fit/weight_norm     [n] float64         Frobenius norm of W
 *   /fit/condition       [n] float64         (e_max + lambda) / (e_min + lambda), e of Xc'Xc
 *   /fit/effective_rank  [n] float64         exp(entropy of the normalised eigenvalues)
 *   /spectrum/eigenvalues [n, D] float64     of Xc'Xc, ascending
 *   /path/lambda         [K] float64
 *   /path/{r2,r2_heldout,weight_norm} [n, K] float64
 * Without fit.spectrum the last seven are absent or NaN.
 */
#ifndef WANAMAKER_MEASURE_SURROGATES_H
#define WANAMAKER_MEASURE_SURROGATES_H

#include "wanamaker/base/status.h"
#include "wanamaker/linalg/gemm.h"
#include "wanamaker/par/comm.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct wm_surrogates wm_surrogates_t;

/* Collective. Reads `path` into node-shared memory and prepares the products, which are of the type
 * `compute` like the network's (gemm.h): weights rounded to bfloat16, biases float32. WM_INPUT if
 * the file is not of a model of width d with n_layers layers. */
wm_status_t wm_surrogates_open(const wm_comm_t *comm, const char *path, int64_t n_layers, int64_t d,
                               int64_t tile_rows, wm_compute_t compute, wm_surrogates_t **out,
                               wm_error_t *err);
/* Collective. Surrogates of all layers with weights drawn from `seed`, normal(0, 0.02), and biases
 * 0, for measurements that need no text. R^2 is NaN. */
wm_status_t wm_surrogates_create_random(const wm_comm_t *comm, int64_t n_layers, int64_t d,
                                        int64_t tile_rows, wm_compute_t compute, uint64_t seed,
                                        wm_surrogates_t **out, wm_error_t *err);
/* Collective. Room for surrogates of layers[n]; none of them has one yet. */
wm_status_t wm_surrogates_create_empty(const wm_comm_t *comm, const int64_t *layers, int64_t n,
                                       int64_t n_layers, int64_t d, int64_t tile_rows,
                                       wm_compute_t compute, wm_surrogates_t **out,
                                       wm_error_t *err);
/* Collective. Gives `layer`, for which there is room, its surrogate: world rank 0's weight[D, D]
 * ([in, out]) and bias[D]; other ranks' are not read. R^2 is NaN. */
wm_status_t wm_surrogates_put(wm_surrogates_t *surrogates, const wm_comm_t *comm, int64_t layer,
                              const double *weight, const double *bias, wm_error_t *err);
/* Collective. The same with the surrogate that the file `path` has for the layer; WM_INPUT if it
 * has none. */
wm_status_t wm_surrogates_put_filed(wm_surrogates_t *surrogates, const wm_comm_t *comm,
                                    const char *path, int64_t layer, wm_error_t *err);
/* Collective. NULL is allowed. */
void wm_surrogates_close(wm_surrogates_t *surrogates);

/* Layers that have one, ascending. Borrowed. */
const int64_t *wm_surrogates_layers(const wm_surrogates_t *surrogates, int64_t *count);
/* Has `layer` a surrogate? */
bool wm_surrogates_has(const wm_surrogates_t *surrogates, int64_t layer);
/* R^2 on the fit and the held-out rows (NaN: none). */
double wm_surrogates_r2(const wm_surrogates_t *surrogates, int64_t layer);
double wm_surrogates_r2_heldout(const wm_surrogates_t *surrogates, int64_t layer);
/* Fingerprint of weights and biases, as the products take them. */
uint64_t wm_surrogates_fingerprint(const wm_surrogates_t *surrogates);

/* W [D, D] as [in, out] and b [D] in node-shared memory, of objects with float32 products.
 * Borrowed. Who changes them (training) synchronises with wm_surrogates_sync, which is collective
 * over the node. */
float *wm_surrogates_weight(const wm_surrogates_t *surrogates, int64_t layer);
float *wm_surrogates_bias(const wm_surrogates_t *surrogates, int64_t layer);
void wm_surrogates_sync(wm_surrogates_t *surrogates);

/* As wm_model_tiles and wm_model_set_tiles. */
wm_tiles_t wm_surrogates_tiles(const wm_surrogates_t *surrogates);
wm_status_t wm_surrogates_set_tiles(wm_surrogates_t *surrogates, wm_tiles_t tiles, wm_error_t *err);

/* y[rows, D] <- x[rows, D] W + b. Not collective; one caller at a time. */
wm_status_t wm_surrogates_apply(const wm_surrogates_t *surrogates, int64_t layer, const float *x,
                                int64_t rows, float *y, wm_error_t *err);
/* The same without copies: rows is at most what wm_gemm_most_rows joins, and x and y have room for
 * wm_gemm_padded rows, which are overwritten. */
wm_status_t wm_surrogates_apply_padded(const wm_surrogates_t *surrogates, int64_t layer, float *x,
                                       int64_t rows, float *y, wm_error_t *err);
int64_t wm_surrogates_tile_rows(const wm_surrogates_t *surrogates);

#endif
