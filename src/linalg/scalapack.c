#include "wanamaker/linalg/scalapack.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

enum { ABORT_CODE = 5, NAME_SIZE = 32 };

wm_status_t wm_scalapack_check(int info, const char *routine, const char *meaning,
                               wm_error_t *err) {
  if (info == 0)
    return WM_OK;
  if (info < 0)
    return wm_fail(err, WM_NUMERICAL, "%s: illegal argument (info = %d)", routine, info);
  return wm_fail(err, WM_NUMERICAL, "%s: %s (info = %d)", routine, meaning, info);
}

/* `name` comes from Fortran, with its length and no terminator, or from C, with a terminator and a
 * length that means nothing. */
static void copy_name(char out[NAME_SIZE], const char *name, size_t length) {
  size_t n = 0;
  while (n < length && n < NAME_SIZE - 1 && (isalnum((unsigned char)name[n]) || name[n] == '_')) {
    out[n] = name[n];
    n++;
  }
  out[n] = '\0';
}

/* These are called from inside the libraries, which have no way to hand on an error and go on with
 * wrong data if we return; and they are given no communicator. Hence, here alone, the end of the
 * run and MPI_COMM_WORLD. */
static void end_run(const char *name, size_t length, int info) {
  char routine[NAME_SIZE];
  copy_name(routine, name, length);
  int started = 0, rank = 0;
  MPI_Initialized(&started);
  if (started)
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  fprintf(stderr, "error: [rank %d] %s: argument %d is illegal\n", rank, routine, abs(info));
  if (started)
    MPI_Abort(MPI_COMM_WORLD, ABORT_CODE);
  exit(ABORT_CODE);
}

void pxerbla_(const int *context, const char *name, const int *info, size_t length);
void xerbla_(const char *name, const int *info, size_t length);

void pxerbla_(const int *context, const char *name, const int *info, size_t length) {
  (void)context;
  end_run(name, length, *info);
}

void xerbla_(const char *name, const int *info, size_t length) {
  end_run(name, length, *info);
}
