/* OpenBLAS's kernels for CPUs without AVX-512 sum a product's rows in an order that depends on
 * their place. Tests of bits that no place may change have nothing to find there: the CBLAS backend
 * does not promise them on such a CPU (gemm.h). oneDNN, the default, promises them everywhere. */
#ifndef WANAMAKER_TESTS_ROW_ORDER_H
#define WANAMAKER_TESTS_ROW_ORDER_H

#include "wanamaker/linalg/gemm.h"

#include <stdbool.h>
#include <string.h>

/* Whether equal rows of a product of the CBLAS backend get different bits. */
static bool blas_tells_rows_apart(void) {
  enum { M = 48, N = 33, K = 17 };
  float a[M * K], b[K * N], c[M * N];
  wm_error_t err = {0};
  bool differs = false;
  for (int i = 0; i < M * K; i++)
    a[i] = (float)(i % K * 37 % 19) / 7 - 1;
  for (int i = 0; i < K * N; i++)
    b[i] = (float)(i * 53 % 101) / 13 - 3;
  assert_int_equal(WM_OK, wm_sgemm_serial('N', 'N', M, N, K, 1, a, K, b, N, 0, c, N, &err));
  for (int i = N; i < M * N; i++)
    differs |= c[i] != c[i % N];
  return differs;
}

static inline bool rows_are_told_apart(void) {
  return strcmp(wm_gemm_backend(), "CBLAS") == 0 && blas_tells_rows_apart();
}

static inline void skip_if_blas_tells_rows_apart(void) {
  if (rows_are_told_apart()) {
    print_message("skipped: this CBLAS sums equal rows in different orders\n");
    skip();
  }
}

#endif
