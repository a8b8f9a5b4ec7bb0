#include "hdf5_private.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/io/files.h"
#include "wanamaker/par/comm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *wm_h5_working_path(const wm_h5_t *file) {
  return file->temporary != NULL ? file->temporary : file->path;
}

const char *wm_h5_path(const wm_h5_t *file) {
  return file->path;
}

hid_t wm_h5_id(const wm_h5_t *file) {
  return file->id;
}

/* Not collective. Frees what is left when the file itself is closed. */
static void release(wm_h5_t *f) {
  if (f == NULL)
    return;
  if (f->transfer >= 0)
    H5Pclose(f->transfer);
  for (int64_t i = 0; i < f->n_datasets; i++)
    free(f->datasets[i].path);
  free(f->datasets);
  free(f->path);
  free(f->temporary);
  free(f);
}

/* Not collective. A wm_h5_t without a file. */
static wm_status_t prepare(MPI_Comm comm, const char *path, bool writing, wm_h5_t **out,
                           wm_error_t *err) {
  void *memory;
  wm_status_t status;
  *out = NULL;
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* HDF5 keeps silent: its messages go into ours */
  WM_TRY(wm_alloc(&memory, 1, sizeof(wm_h5_t), path, err));
  wm_h5_t *f = *out = memory;
  f->comm = comm;
  f->id = f->transfer = H5I_INVALID_HID;
  MPI_Comm_rank(comm, &f->rank);
  MPI_Comm_size(comm, &f->size);
  WM_TRY(wm_strdup(&f->path, path, err));
  if (writing) {
    f->temporary = wm_format("%s.tmp", path);
    if (f->temporary == NULL)
      return wm_fail(err, WM_ENVIRONMENT, "%s: no memory for a file name", path);
  }
  f->transfer = H5Pcreate(H5P_DATASET_XFER);
  WM_H5_TRY(f->transfer, WM_ENVIRONMENT, path, NULL, "make a property list");
  /* The calls are collective, the transfers under them independent: when a collective transfer
   * fails on one rank, HDF5 1.10 returns there before it has reset the file's view, while the
   * others wait for that rank in MPI_File_set_view (a hang with MPICH). */
  WM_H5_TRY(H5Pset_dxpl_mpio(f->transfer, H5FD_MPIO_INDEPENDENT), WM_ENVIRONMENT, path, NULL,
            "ask for independent transfers");
cleanup:
  return status;
}

static wm_status_t access_properties(const wm_h5_t *f, hid_t *out, wm_error_t *err) {
  wm_status_t status = WM_OK;
  *out = H5Pcreate(H5P_FILE_ACCESS);
  WM_H5_TRY(*out, WM_ENVIRONMENT, f->path, NULL, "make a property list");
  WM_H5_TRY(H5Pset_fapl_mpio(*out, f->comm, MPI_INFO_NULL), WM_ENVIRONMENT, f->path, NULL,
            "select MPI-IO");
  WM_H5_TRY(H5Pset_coll_metadata_write(*out, 1), WM_ENVIRONMENT, f->path, NULL,
            "ask for collective metadata writes");
  /* The format of HDF5 1.8: metadata carry checksums of their own, and an attribute may be longer
   * than 64 KiB (configurations). */
  WM_H5_TRY(H5Pset_libver_bounds(*out, H5F_LIBVER_V18, H5F_LIBVER_V18), WM_ENVIRONMENT, f->path,
            NULL, "choose the file format");
  const char *alignment = getenv(WM_H5_ALIGNMENT);
  const long long bytes = alignment != NULL ? atoll(alignment) : 0;
  if (bytes > 1)
    WM_H5_TRY(H5Pset_alignment(*out, (hsize_t)bytes, (hsize_t)bytes), WM_ENVIRONMENT, f->path, NULL,
              "set the alignment");
  /* No handle that somebody forgot may keep the file from being closed before it is renamed. */
  WM_H5_TRY(H5Pset_fclose_degree(*out, H5F_CLOSE_STRONG), WM_ENVIRONMENT, f->path, NULL,
            "set the close degree");
cleanup:
  return status;
}

/* Makes an empty temporary file on rank 0, for an error message that MPI-IO does not give, and
 * because HDF5 cannot get rid of a file whose first bytes do not fit the disk. */
static wm_status_t make_temporary(const wm_h5_t *f, wm_error_t *err) {
  if (f->rank != 0)
    return WM_OK;
  if (unlink(f->temporary) != 0 && errno != ENOENT)
    return wm_fail(err, WM_ENVIRONMENT, "%s: cannot remove the old file: %s", f->temporary,
                   strerror(errno));
  int fd = open(f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0)
    return wm_fail(err, WM_ENVIRONMENT, "%s: cannot create: %s", f->temporary, strerror(errno));
  close(fd);
  return WM_OK;
}

static wm_status_t make_file(wm_h5_t *f, hid_t access, hid_t creation, wm_error_t *err) {
  wm_status_t status = WM_OK;
  f->id = H5Fcreate(f->temporary, H5F_ACC_TRUNC, creation, access);
  WM_H5_TRY(f->id, WM_ENVIRONMENT, f->temporary, NULL, "create");
cleanup:
  return status;
}

/* Collective. The file, on a disk that has room for its beginning. */
static wm_status_t begin_file(wm_h5_t *f, hid_t access, hid_t creation, wm_error_t *err) {
  wm_status_t status;
  WM_TRY(wm_agree(f->comm, make_temporary(f, err), err));
  WM_TRY(wm_agree(f->comm, wm_h5_reserve(f, 0, err), err));
  WM_TRY(wm_agree(f->comm, make_file(f, access, creation, err), err));
  /* Again: the creation has truncated the file. */
  WM_TRY(wm_agree(f->comm, wm_h5_reserve(f, 0, err), err));
cleanup:
  return status;
}

wm_status_t wm_h5_create(MPI_Comm comm, const char *path, wm_h5_t **out, wm_error_t *err) {
  wm_h5_t *f = NULL;
  hid_t access = H5I_INVALID_HID, creation = H5I_INVALID_HID;
  *out = NULL;
  wm_status_t status = prepare(comm, path, true, &f, err);
  if (status == WM_OK)
    status = access_properties(f, &access, err);
  if (status == WM_OK) {
    creation = H5Pcreate(H5P_FILE_CREATE);
    if (creation < 0 || wm_h5_keep_plain(creation) < 0 ||
        H5Pset_link_phase_change(creation, WM_H5_MOST_COMPACT, 0) < 0)
      status = wm_h5_fail(err, WM_ENVIRONMENT, path, NULL, "make a property list");
  }
  status = wm_agree(comm, status, err);
  if (status == WM_OK) {
    status = begin_file(f, access, creation, err);
    if (status == WM_OK)
      *out = f;
    else
      wm_h5_close(f);
  } else {
    release(f);
  }
  if (access >= 0)
    H5Pclose(access);
  if (creation >= 0)
    H5Pclose(creation);
  return status;
}

/* Rank 0 looks at the file first, for a better message than HDF5's. */
static wm_status_t look_at(const wm_h5_t *f, wm_error_t *err) {
  if (f->rank != 0)
    return WM_OK;
  wm_map_t map;
  wm_status_t status = wm_map_open(wm_h5_working_path(f), &map, err);
  wm_map_close(&map);
  return status;
}

/* Collective. Opens the working file read-only. */
static wm_status_t open_file(wm_h5_t *f, wm_error_t *err) {
  hid_t access = H5I_INVALID_HID;
  wm_status_t status = access_properties(f, &access, err);
  if (status == WM_OK)
    status = look_at(f, err);
  WM_TRY(wm_agree(f->comm, status, err));
  f->id = H5Fopen(wm_h5_working_path(f), H5F_ACC_RDONLY, access);
  if (f->id < 0)
    status = wm_h5_fail(err, WM_INPUT, wm_h5_working_path(f), NULL, "open");
  status = wm_agree(f->comm, status, err);
cleanup:
  if (access >= 0)
    H5Pclose(access);
  return status;
}

wm_status_t wm_h5_open(MPI_Comm comm, const char *path, wm_h5_t **out, wm_error_t *err) {
  wm_h5_t *f = NULL;
  int64_t complete;
  wm_status_t status;
  *out = NULL;
  WM_TRY(wm_agree(comm, prepare(comm, path, false, &f, err), err));
  WM_TRY(open_file(f, err));
  WM_TRY(wm_h5_get_int(f, "/", "complete", &complete, err));
  if (complete != 1)
    status = wm_fail(err, WM_INPUT, "%s: is not complete (attribute \"complete\" is %lld)", path,
                     (long long)complete);
cleanup:
  if (status == WM_OK)
    *out = f;
  else
    wm_h5_close(f);
  return status;
}

/* Collective. */
static wm_status_t close_file(wm_h5_t *f, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int64_t i = 0; i < f->n_datasets; i++) {
    wm_h5_dataset_t *d = &f->datasets[i];
    if (d->type >= 0)
      H5Tclose(d->type);
    if (d->id >= 0 && H5Dclose(d->id) < 0 && status == WM_OK)
      status = wm_h5_fail(err, WM_ENVIRONMENT, wm_h5_working_path(f), d->path, "close");
    d->id = d->type = H5I_INVALID_HID;
  }
  if (f->id >= 0 && H5Fclose(f->id) < 0 && status == WM_OK)
    status = wm_h5_fail(err, WM_ENVIRONMENT, wm_h5_working_path(f), NULL, "close");
  f->id = H5I_INVALID_HID;
  return wm_agree(f->comm, status, err);
}

void wm_h5_close(wm_h5_t *file) {
  if (file == NULL)
    return;
  wm_error_t ignored = {0};
  if (file->id >= 0) {
    /* A full disk must not keep HDF5 from closing: give back what the file takes. */
    if (file->temporary != NULL && file->rank == 0 && truncate(file->temporary, 0) != 0)
      wm_fail(&ignored, WM_ENVIRONMENT, "%s: cannot truncate", file->temporary);
    close_file(file, &ignored);
  }
  if (file->temporary != NULL) {
    if (file->rank == 0)
      unlink(file->temporary);
    MPI_Barrier(file->comm); /* it is gone for all */
  }
  release(file);
}

/* Collective. Adds up the ranks' shares of the checksums and checks that all was written. */
static wm_status_t sum_up(wm_h5_t *f, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, 2 * f->n_datasets, sizeof(uint64_t), "checksums", err);
  uint64_t *totals = memory;
  WM_TRY(wm_agree(f->comm, status, err));
  for (int64_t i = 0; i < f->n_datasets; i++) {
    totals[2 * i] = f->datasets[i].sum;
    totals[2 * i + 1] = (uint64_t)f->datasets[i].written;
    MPI_Allreduce(MPI_IN_PLACE, totals + 2 * i, 2, MPI_UINT64_T, MPI_SUM, f->comm);
  }
  for (int64_t i = 0; i < f->n_datasets; i++) {
    wm_h5_dataset_t *d = &f->datasets[i];
    int64_t elements = wm_h5_elements(d->n_dims, d->dims);
    if (totals[2 * i + 1] != (uint64_t)elements) {
      status = wm_fail(err, WM_ENVIRONMENT, "%s: %s: %" PRIu64 " of %" PRId64 " elements written",
                       f->temporary, d->path, totals[2 * i + 1], elements);
      goto cleanup;
    }
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, totals[2 * i]);
    WM_TRY(wm_h5_set_string(f, d->path, "checksum", text, err));
  }
cleanup:
  free(memory);
  return status;
}

/* Gives back the reserved space behind the end. */
static wm_status_t trim(const wm_h5_t *f, wm_error_t *err) {
  struct stat st;
  if (f->rank == 0 && (stat(f->temporary, &st) != 0 || truncate(f->temporary, st.st_size) != 0))
    return wm_fail(err, WM_ENVIRONMENT, "%s: cannot truncate: %s", f->temporary, strerror(errno));
  return WM_OK;
}

/* Collective. Closes the file that was written and compares what can be read with its checksums. */
static wm_status_t finish_and_verify(wm_h5_t *f, wm_error_t *err) {
  wm_status_t status = wm_agree(f->comm, wm_h5_reserve(f, 0, err), err);
  if (status != WM_OK)
    return status;
  if (H5Fflush(f->id, H5F_SCOPE_GLOBAL) < 0)
    status = wm_h5_fail(err, WM_ENVIRONMENT, f->temporary, NULL, "flush");
  status = wm_agree(f->comm, status, err);
  if (status != WM_OK)
    return status;
  status = close_file(f, err);
  if (status != WM_OK)
    return status;
  status = open_file(f, err);
  if (status == WM_OK)
    status = wm_h5_verify_attributes(f, err);
  for (int64_t i = 0; i < f->n_datasets && status == WM_OK; i++)
    status = wm_h5_verify_dataset(f, f->datasets[i].path, err);
  if (status != WM_OK) {
    err->status = WM_ENVIRONMENT; /* what was just written is no input */
    wm_error_prefix(err, "what was written cannot be read back");
    return WM_ENVIRONMENT;
  }
  return close_file(f, err);
}

wm_status_t wm_h5_publish(wm_h5_t *file, wm_error_t *err) {
  wm_h5_t *f = file;
  const double slow_disk = 1e7; /* bytes per second; flush and fsync can't pulse */
  double bytes = 0;
  wm_status_t status;
  for (int64_t i = 0; i < f->n_datasets; i++)
    bytes += (double)wm_h5_dataset_bytes(&f->datasets[i]);
  wm_pulse_allow(bytes / slow_disk);
  WM_TRY(sum_up(f, err));
  WM_TRY(wm_h5_set_int(f, "/", "complete", 1, err));
  WM_TRY(wm_h5_sum_attributes(f, err));
  WM_TRY(finish_and_verify(f, err));
  WM_TRY(wm_agree(f->comm, trim(f, err), err));
  /* On every node; the agreement is the barrier before the rename. */
  WM_TRY(wm_agree(f->comm, wm_file_sync(f->temporary, err), err));
  if (f->rank == 0)
    status = wm_publish(f->temporary, f->path, err);
  status = wm_agree(f->comm, status, err);
cleanup:
  wm_pulse_allow(0);
  wm_h5_close(f); /* removes the temporary file if it is still there */
  return status;
}
