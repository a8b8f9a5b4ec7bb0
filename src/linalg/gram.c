#include "wanamaker/linalg/gram.h"

#include <cblas.h>
#include <limits.h>

wm_status_t wm_gram_update(const double *x, const double *y, int64_t rows, int64_t d, int parts,
                           int part, double *xx, double *xy, wm_error_t *err) {
  if (rows > INT_MAX || d > INT_MAX)
    return wm_fail(err, WM_ENVIRONMENT, "Gram matrix: %lld rows of width %lld exceed 32 bits",
                   (long long)rows, (long long)d);
  int n = (int)rows, width = (int)d;
  if (n == 0)
    return WM_OK;
  for (int64_t p = part; p * WM_GRAM_PANEL < d; p += parts) {
    int64_t first = p * WM_GRAM_PANEL;
    int height = (int)(d - first < WM_GRAM_PANEL ? d - first : WM_GRAM_PANEL);
    int columns = (int)first + height;
    cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, height, columns, n, 1.0, x + first, width,
                x, width, 1.0, xx + first * d, width);
    cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, height, width, n, 1.0, x + first, width, y,
                width, 1.0, xy + first * d, width);
  }
  return WM_OK;
}

wm_status_t wm_gram_square(const double *z, int64_t rows, int64_t k, int64_t ld, double *a,
                           wm_error_t *err) {
  if (rows > INT_MAX || ld > INT_MAX)
    return wm_fail(err, WM_ENVIRONMENT, "Gram matrix: %lld rows of width %lld exceed 32 bits",
                   (long long)rows, (long long)ld);
  if (rows > 0)
    cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, (int)k, (int)rows, 1.0, z, (int)ld, 1.0, a,
                (int)k);
  return WM_OK;
}

void wm_gram_mirror(int64_t d, int parts, int part, double *xx) {
  for (int64_t p = part; p * WM_GRAM_PANEL < d; p += parts) {
    int64_t first = p * WM_GRAM_PANEL;
    int64_t last = first + WM_GRAM_PANEL < d ? first + WM_GRAM_PANEL : d;
    for (int64_t i = first; i < last; i++)
      for (int64_t j = i + 1; j < d; j++)
        xx[i * d + j] = xx[j * d + i];
  }
}
