/* The BLAS behind float64 algebra. */
#ifndef WANAMAKER_LINALG_BLAS_H
#define WANAMAKER_LINALG_BLAS_H

/* Name and build of the library, e.g. "OpenBLAS 0.3.21 ... SkylakeX". Static. */
const char *wm_blas_name(void);

/* Sets the threads of this process for OpenMP and for a BLAS with a pool of its own. */
void wm_set_threads(int threads);

/* Threads that a parallel region started now would have. */
int wm_threads(void);

#endif
