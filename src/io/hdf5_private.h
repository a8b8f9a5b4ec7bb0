/* What the parts of the HDF5 wrapper share: hdf5.c (files), hdf5_attribute.c, hdf5_data.c,
 * hdf5_attribute_sum.c, hdf5_slab.c, hdf5_reserve.c, hdf5_verify.c, hdf5_error.c. */
#ifndef WANAMAKER_SRC_IO_HDF5_PRIVATE_H
#define WANAMAKER_SRC_IO_HDF5_PRIVATE_H

#include "wanamaker/io/hdf5.h"

/* A dataset of a file that is being written. */
typedef struct {
  char *path;
  hid_t id, type; /* type: as stored */
  int n_dims;
  int64_t dims[WM_H5_MAX_DIMS];
  int64_t written; /* elements, by this rank */
  uint64_t sum;    /* checksum of what this rank wrote */
} wm_h5_dataset_t;

struct wm_h5 {
  MPI_Comm comm; /* borrowed */
  int rank, size;
  char *path, *temporary; /* temporary is NULL when the file is open for reading */
  hid_t id, transfer;
  wm_h5_dataset_t *datasets; /* being written */
  int64_t n_datasets, capacity;
};

/* Where wm_h5_align leaves the bytes. */
#define WM_H5_ALIGNMENT "WM_H5_ALIGNMENT"

/* The path that HDF5 works on. */
const char *wm_h5_working_path(const wm_h5_t *file);

/* Fails with "file: object: cannot `what`: " and the outermost and innermost message on HDF5's
 * error stack. To be called directly after the call that failed. `object` may be NULL. */
wm_status_t wm_h5_fail(wm_error_t *err, wm_status_t status, const char *path, const char *object,
                       const char *what);

/* Leaves for `cleanup` when an HDF5 call has returned a negative value. Needs `status` and `err`.
 */
#define WM_H5_TRY(call, kind, path, object, what)                                                  \
  do {                                                                                             \
    if ((call) < 0) {                                                                              \
      status = wm_h5_fail(err, kind, path, object, what);                                          \
      goto cleanup;                                                                                \
    }                                                                                              \
  } while (0)

/* Sets what all objects are created with: no times of their own, and attributes in the object's
 * header, which has a checksum. The other place, a heap, has none, and HDF5 1.10 may crash where
 * one is damaged; links stay out of it likewise (H5Pset_link_phase_change). Negative: failed. */
enum { WM_H5_MOST_COMPACT = 65535 };
herr_t wm_h5_keep_plain(hid_t properties);

/* Not collective; agree afterwards. Reserves the disk space for what the file holds, `more` bytes
 * of data and room for metadata, so that the disk is not found to be full later. */
wm_status_t wm_h5_reserve(const wm_h5_t *file, int64_t more, wm_error_t *err);

/* Of the elements; INT64_MAX when they pass it. */
int64_t wm_h5_dataset_bytes(const wm_h5_dataset_t *dataset);

/* A slab of extents count[n_dims], cut into pieces that are slabs and contiguous when packed. */
typedef struct {
  int n_dims, cut; /* the dimension that is cut into blocks; those before it go one by one */
  int64_t count[WM_H5_MAX_DIMS];
  int64_t block, pieces;
} wm_h5_cut_t;

wm_h5_cut_t wm_h5_cut(int n_dims, const int64_t *count, int64_t max_elements);
/* Piece k: offset and extent inside the slab; returns the number of the packed slab's elements that
 * lie before it. */
int64_t wm_h5_piece(const wm_h5_cut_t *cut, int64_t k, int64_t *offset, int64_t *extent);

/* Dataspaces of one transfer: file_space's selection becomes [offset, offset + extent),
 * *memory_space a packed array of as many elements. With extent == NULL both select nothing. */
wm_status_t wm_h5_select(const wm_h5_t *file, const char *object, hid_t file_space, int n_dims,
                         const int64_t *offset, const int64_t *extent, hid_t *memory_space,
                         wm_error_t *err);

int64_t wm_h5_elements(int n_dims, const int64_t *extents);

/* Extents of the dataset `id`; *n_dims is -1 when it has more than WM_H5_MAX_DIMS or none. */
wm_status_t wm_h5_extents(const wm_h5_t *file, const char *object, hid_t id, int *n_dims,
                          int64_t *dims, wm_error_t *err);

/* Whether every value of `from` can be held by `to`: see wm_h5_read. */
bool wm_h5_type_fits(hid_t from, hid_t to);

/* Collective. Checks one dataset against its attribute "checksum". */
wm_status_t wm_h5_verify_dataset(wm_h5_t *file, const char *path, wm_error_t *err);

/* Collective. Sets the checksum of all attributes so far; checks it, if the file has one. */
wm_status_t wm_h5_sum_attributes(wm_h5_t *file, wm_error_t *err);
wm_status_t wm_h5_verify_attributes(wm_h5_t *file, wm_error_t *err);

#endif
