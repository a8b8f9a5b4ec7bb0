/* Matrix products by CBLAS, where oneDNN is not at hand.
 *
 * Threads take whole panels of Y's columns, each by a serial product: left to itself, OpenBLAS cuts
 * the rows over threads at places that depend on their number. A row's bits then depend on that
 * row alone with OpenBLAS's kernels for AVX-512 and for SSE, but *not* with its kernel for AVX2
 * (Haswell, Zen), which sums rows 6 to 11 of each 12 in another order than rows 0 to 5. There
 * results are as accurate, but bitwise equality over ranks is lost; oneDNN has no such kernel. */
#ifndef WM_GEMM_ONEDNN

#include "wanamaker/base/mem.h"
#include "wanamaker/linalg/gemm.h"
#include "wanamaker/linalg/gemm_backend.h"
#include "wanamaker/par/comm.h"

#include <cblas.h>
#include <omp.h>
#include <stddef.h>

struct wm_gemm_plan {
  int rows, in, out;
  wm_weight_layout_t layout;
};

enum { PANEL = 256 };

wm_status_t wm_gemm_plan_create(wm_gemm_plan_t **out, int64_t rows, int64_t in, int64_t out_width,
                                wm_dtype_t operands, wm_weight_layout_t layout, wm_tiles_t tiles,
                                wm_error_t *err) {
  (void)tiles; /* OpenBLAS copies weights at any height */
  *out = NULL;
  void *memory = NULL;
  wm_status_t status;
  if (operands != WM_DTYPE_F32)
    return wm_fail(err, WM_ENVIRONMENT, "CBLAS has no %s products", wm_dtype_name(operands));
  WM_TRY(wm_alloc(&memory, 1, sizeof(wm_gemm_plan_t), "a matrix product", err));
  wm_gemm_plan_t *p = memory;
  WM_TRY(wm_to_int(rows, "rows of a matrix product", &p->rows, err));
  WM_TRY(wm_to_int(in, "inputs of a matrix product", &p->in, err));
  WM_TRY(wm_to_int(out_width, "outputs of a matrix product", &p->out, err));
  p->layout = layout;
  *out = p;
  return WM_OK;
cleanup:
  free(memory);
  return status;
}

void wm_gemm_plan_free(wm_gemm_plan_t *plan) {
  free(plan);
}

bool wm_gemm_joins(void) {
  return false;
}

bool wm_gemm_plan_joins(const wm_gemm_plan_t *plan) {
  (void)plan;
  return false;
}

static void run_panel(const wm_gemm_plan_t *plan, const float *x, const float *weight, int first,
                      float *y) {
  int in_out = plan->layout == WM_WEIGHT_IN_OUT;
  int cols = plan->out - first < PANEL ? plan->out - first : PANEL;
  const float *w = weight + (in_out ? first : (int64_t)first * plan->in);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, in_out ? CblasNoTrans : CblasTrans, plan->rows, cols,
              plan->in, 1.0f, x, plan->in, w, in_out ? plan->out : plan->in, 0.0f, y + first,
              plan->out);
}

int64_t wm_gemm_plan_panel(const wm_gemm_plan_t *plan) {
  (void)plan;
  return 0;
}

wm_status_t wm_gemm_plan_run(wm_gemm_plan_t *plan, const void *x, int64_t rows, const void *weight,
                             float *panel, float *y, wm_error_t *err) {
  (void)err;
  (void)rows; /* the plan's */
  (void)panel;
#pragma omp parallel
  {
    int threads = omp_get_max_threads();
    omp_set_num_threads(1); /* for a team of one, which is no parallel region to OpenBLAS */
#pragma omp for schedule(static)
    for (int first = 0; first < plan->out; first += PANEL)
      run_panel(plan, x, weight, first, y);
    omp_set_num_threads(threads);
  }
  return WM_OK;
}

/* So that the kernels' registers are full: rows left over are summed in another order. */
int64_t wm_gemm_row_block(void) {
  return 16;
}

int64_t wm_gemm_fitted_block(void) {
  return wm_gemm_row_block();
}

static CBLAS_TRANSPOSE transpose_flag(char trans) {
  return trans == 'T' ? CblasTrans : CblasNoTrans;
}

wm_status_t wm_sgemm_serial(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k,
                            float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                            float beta, float *c, int64_t ldc, wm_error_t *err) {
  int shape[6];
  const int64_t wide[6] = {m, n, k, lda, ldb, ldc};
  for (int i = 0; i < 6; i++) {
    wm_status_t status = wm_to_int(wide[i], "a size of a matrix product", &shape[i], err);
    if (status != WM_OK)
      return status;
  }
  /* OpenBLAS built with OpenMP stays on the calling thread inside a parallel region; outside one
   * it asks for the calling thread's limit, which is not that of any other thread. */
  int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  cblas_sgemm(CblasRowMajor, transpose_flag(trans_a), transpose_flag(trans_b), shape[0], shape[1],
              shape[2], alpha, a, shape[3], b, shape[4], beta, c, shape[5]);
  omp_set_num_threads(threads);
  return WM_OK;
}

/* Threads take panels of C's rows. */
wm_status_t wm_gemm_add_outer(int64_t m, int64_t n, int64_t k, const float *a, const float *b,
                              float *c, wm_error_t *err) {
  int shape[3];
  const int64_t wide[3] = {m, n, k};
  for (int i = 0; i < 3; i++) {
    wm_status_t status = wm_to_int(wide[i], "a size of a matrix product", &shape[i], err);
    if (status != WM_OK)
      return status;
  }
#pragma omp parallel
  {
    int threads = omp_get_max_threads();
    omp_set_num_threads(1); /* for a team of one, which is no parallel region to OpenBLAS */
#pragma omp for schedule(static)
    for (int first = 0; first < shape[0]; first += PANEL) {
      int rows = shape[0] - first < PANEL ? shape[0] - first : PANEL;
      cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, rows, shape[1], shape[2], 1.0f,
                  a + first, shape[0], b, shape[1], 1.0f, c + (int64_t)first * n, shape[1]);
    }
    omp_set_num_threads(threads);
  }
  return WM_OK;
}

struct wm_gemm_outer {
  int64_t m, n, k;
};

wm_status_t wm_gemm_outer_create(wm_gemm_outer_t **out, int64_t m, int64_t n, int64_t k,
                                 wm_dtype_t operands, wm_error_t *err) {
  *out = NULL;
  void *memory = NULL;
  if (operands != WM_DTYPE_F32)
    return wm_fail(err, WM_ENVIRONMENT, "CBLAS has no %s products", wm_dtype_name(operands));
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_gemm_outer_t), "a matrix product", err);
  if (status != WM_OK)
    return status;
  *out = memory;
  **out = (wm_gemm_outer_t){m, n, k};
  return WM_OK;
}

void wm_gemm_outer_free(wm_gemm_outer_t *outer) {
  free(outer);
}

wm_status_t wm_gemm_outer_run(wm_gemm_outer_t *outer, const void *a, const void *b, float *c,
                              wm_error_t *err) {
  return wm_gemm_add_outer(outer->m, outer->n, outer->k, a, b, c, err);
}

const char *wm_gemm_backend(void) {
  return "CBLAS";
}

#endif
