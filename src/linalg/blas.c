#include "wanamaker/linalg/blas.h"

#include <cblas.h>
#include <omp.h>

const char *wm_blas_name(void) {
#ifdef OPENBLAS_VERSION
  return openblas_get_config();
#else
  return "BLAS (not OpenBLAS)";
#endif
}

void wm_set_threads(int threads) {
  omp_set_num_threads(threads);
#ifdef OPENBLAS_VERSION
  openblas_set_num_threads(threads);
#endif
}

int wm_threads(void) {
  return omp_get_max_threads();
}
