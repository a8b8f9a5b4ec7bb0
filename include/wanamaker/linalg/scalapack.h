/* The routines of BLACS and ScaLAPACK that linalg calls (none comes with a C header), their error
 * handlers and the check of their `info`. Private to linalg.
 *
 * Linking this module replaces the libraries' pxerbla_ and xerbla_, which print (or not) and return
 * into a caller that then hangs or computes on: ours report and end the run with code 5. */
#ifndef WANAMAKER_LINALG_SCALAPACK_H
#define WANAMAKER_LINALG_SCALAPACK_H

#include "wanamaker/base/status.h"

#include <mpi.h>

int Csys2blacs_handle(MPI_Comm comm);
void Cfree_blacs_system_handle(int handle);
void Cblacs_gridinit(int *context, const char *order, int prows, int pcols);
void Cblacs_gridinfo(int context, int *prows, int *pcols, int *row, int *col);
void Cblacs_gridexit(int context);

int numroc_(const int *n, const int *block, const int *coordinate, const int *source,
            const int *count);
void descinit_(int *desc, const int *m, const int *n, const int *mb, const int *nb,
               const int *row_source, const int *col_source, const int *context, const int *lld,
               int *info);
void pdpotrf_(const char *uplo, const int *n, double *a, const int *ia, const int *ja,
              const int *desca, int *info);
void pdpotrs_(const char *uplo, const int *n, const int *nrhs, const double *a, const int *ia,
              const int *ja, const int *desca, double *b, const int *ib, const int *jb,
              const int *descb, int *info);
void pdsyev_(const char *jobz, const char *uplo, const int *n, double *a, const int *ia,
             const int *ja, const int *desca, double *w, double *z, const int *iz, const int *jz,
             const int *descz, double *work, const int *lwork, int *info);
void pdgemm_(const char *transa, const char *transb, const int *m, const int *n, const int *k,
             const double *alpha, const double *a, const int *ia, const int *ja, const int *desca,
             const double *b, const int *ib, const int *jb, const int *descb, const double *beta,
             double *c, const int *ic, const int *jc, const int *descc);

/* WM_OK for info = 0. A positive one is the failure `meaning`, a negative one an illegal argument;
 * both are WM_NUMERICAL and name the routine. */
wm_status_t wm_scalapack_check(int info, const char *routine, const char *meaning, wm_error_t *err);

#endif
