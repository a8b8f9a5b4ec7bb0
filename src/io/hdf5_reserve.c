/* Reservation of disk space.
 *
 * When a write of metadata fails on some ranks alone, as on a full disk, HDF5 1.10 leaves them
 * waiting for each other in H5Fflush or H5Fclose, and a file that could not be closed makes it
 * crash in MPI_Finalize. Space is therefore reserved before anything is created: a full disk, a
 * quota or a limit then shows as an ordinary error with nothing yet begun. File systems without
 * fallocate() are left to the other precautions (wm_h5_close makes room by truncation before it
 * closes). */
#include "hdf5_private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* More than superblock, groups, headers and attributes take. (HDF5 itself does not tell how long
 * the file will be: its MPI-IO driver forgets the end of the file with the first write.) */
enum { METADATA_BYTES = 1 << 20, METADATA_PER_DATASET = 16 << 10 };

static wm_status_t check_limit(const char *path, int64_t bytes, wm_error_t *err) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      limit.rlim_cur >= (rlim_t)bytes)
    return WM_OK;
  return wm_fail(err, WM_ENVIRONMENT,
                 "%s: needs up to %lld bytes, but this process may write files of %llu bytes only "
                 "(ulimit -f)",
                 path, (long long)bytes, (unsigned long long)limit.rlim_cur);
}

static wm_status_t allocate(const char *path, int64_t bytes, wm_error_t *err) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0)
    return wm_fail(err, WM_ENVIRONMENT, "%s: cannot open: %s", path, strerror(errno));
  int failed;
  do
    failed = fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes);
  while (failed != 0 && errno == EINTR);
  int reason = failed != 0 ? errno : 0;
  close(fd);
  if (reason == 0 || reason == EOPNOTSUPP || reason == ENOSYS || reason == EINVAL)
    return WM_OK;
  return wm_fail(err, WM_ENVIRONMENT, "%s: cannot reserve %lld bytes: %s", path, (long long)bytes,
                 strerror(reason));
}

int64_t wm_h5_dataset_bytes(const wm_h5_dataset_t *d) {
  int64_t bytes = (int64_t)H5Tget_size(d->type);
  for (int i = 0; i < d->n_dims; i++)
    if (__builtin_mul_overflow(bytes, d->dims[i], &bytes))
      return INT64_MAX; /* which no disk has */
  return bytes;
}

wm_status_t wm_h5_reserve(const wm_h5_t *file, int64_t more, wm_error_t *err) {
  int64_t bytes = METADATA_BYTES + METADATA_PER_DATASET * (file->n_datasets + 1);
  for (int64_t i = 0; i < file->n_datasets; i++)
    bytes += wm_h5_dataset_bytes(&file->datasets[i]);
  if (__builtin_add_overflow(bytes, more, &bytes))
    return wm_fail(err, WM_ENVIRONMENT, "%s: would pass 2^63 bytes", file->temporary);
  wm_status_t status = check_limit(file->temporary, bytes, err);
  if (status == WM_OK && file->rank == 0)
    status = allocate(file->temporary, bytes, err);
  return status;
}
