/* What gemm.h needs from a library of matrix products; implemented once by gemm_onednn.c and once
 * by gemm_cblas.c, of which the build takes one. Private to linalg. */
#ifndef WANAMAKER_LINALG_GEMM_BACKEND_H
#define WANAMAKER_LINALG_GEMM_BACKEND_H

#include "wanamaker/base/dtype.h"
#include "wanamaker/base/status.h"
#include "wanamaker/linalg/gemm.h"

#include <stdbool.h>
#include <stdint.h>

/* One product of fixed shape: Y[rows, out] = X[rows, in] W, W as in wm_linear_create. */
typedef struct wm_gemm_plan wm_gemm_plan_t;

/* `operands` is the type of X and W: F32, or BF16, which a backend or CPU may lack: then
 * WM_ENVIRONMENT. Y is float32. `rows` is a multiple of wm_gemm_row_block(), or with fitted
 * tiles of wm_gemm_fitted_block(): then the product is done in whatever order is fast for its
 * height. On failure *out is NULL. Not collective. */
wm_status_t wm_gemm_plan_create(wm_gemm_plan_t **out, int64_t rows, int64_t in, int64_t out_width,
                                wm_dtype_t operands, wm_weight_layout_t layout, wm_tiles_t tiles,
                                wm_error_t *err);
/* May a run take more rows than the plan's: has each the same bits then, with the present number of
 * threads? */
bool wm_gemm_plan_joins(const wm_gemm_plan_t *plan);
/* Floats of scratch that a run takes with the present number of threads. */
int64_t wm_gemm_plan_panel(const wm_gemm_plan_t *plan);
/* NULL is allowed. */
void wm_gemm_plan_free(wm_gemm_plan_t *plan);

/* With all threads of the process; one caller at a time per plan. Row r of Y depends, bit for bit,
 * on row r of X alone (and on the number of threads). rows: the plan's, or with
 * wm_gemm_plan_joins a larger multiple of wm_gemm_row_block(). panel: wm_gemm_plan_panel floats. */
wm_status_t wm_gemm_plan_run(wm_gemm_plan_t *plan, const void *x, int64_t rows, const void *weight,
                             float *panel, float *y, wm_error_t *err);

/* C[m, n] += A' B for A: [k, m] and B: [k, n], all row-major and dense, with all threads of the
 * process. */
wm_status_t wm_gemm_add_outer(int64_t m, int64_t n, int64_t k, const float *a, const float *b,
                              float *c, wm_error_t *err);

/* The same of one shape, for A and B of the type `operands`: F32, or BF16, which may be lacking as
 * above. C is float32. */
typedef struct wm_gemm_outer wm_gemm_outer_t;
wm_status_t wm_gemm_outer_create(wm_gemm_outer_t **out, int64_t m, int64_t n, int64_t k,
                                 wm_dtype_t operands, wm_error_t *err);
/* NULL is allowed. */
void wm_gemm_outer_free(wm_gemm_outer_t *outer);
wm_status_t wm_gemm_outer_run(wm_gemm_outer_t *outer, const void *a, const void *b, float *c,
                              wm_error_t *err);

#endif
