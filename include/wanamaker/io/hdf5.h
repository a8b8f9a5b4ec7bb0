/* Result files: checked, collective HDF5 (operations.md, rules 1 to 9).
 *
 * A file is written under a temporary name and appears under its own by rename after every dataset
 * has been read back and compared with the checksum of what was written. Whatever fails on one
 * rank fails on all: every function marked Collective agrees on the status over the file's
 * communicator before it returns.
 *
 * Disk space is reserved when the file and its datasets are created: a full disk, a quota or a
 * limit (ulimit -f) shows there, before anything has been computed. Where the file system has no
 * fallocate(), it shows in wm_h5_write.
 *
 * Paths inside a file are absolute ("/rows/first_token"); groups on the way are made as needed.
 * Files carry no times of their own: equal contents, made by the same calls, are equal bytes for
 * any number of ranks.
 *
 * Checksum. Every dataset has a string attribute "checksum", 16 hexadecimal digits. Let element k
 * (counted row-major from 0 over the whole dataset) have s bytes, as stored in the file; they are
 * cut into W = ceil(s / 8) words of 8 bytes, the last one filled up with zero bytes, read as
 * little-endian integers w[k, j], j = 0 .. W-1. Then, modulo 2^64,
 *
 *     checksum = sum over k, j of mix((k W + j + 1) * 0x9e3779b97f4a7c15 XOR w[k, j])
 *     mix(x):  x ^= x >> 30;  x *= 0xbf58476d1ce4e5b9;
 *              x ^= x >> 27;  x *= 0x94d049bb133111eb;  x ^= x >> 31
 *
 * A sum over elements depends neither on how the ranks share them out nor on the order of the
 * writes, and can be taken from the whole array by anyone.
 *
 * The root has "attributes_checksum", that of all other attributes of the file: of the array of
 * bytes "PATH\0NAME\0VALUE", one after the other, for each object by name ("." is the root, others
 * without a slash in front) and each of its attributes by name, the value as the file stores it.
 */
#ifndef WANAMAKER_IO_HDF5_H
#define WANAMAKER_IO_HDF5_H

#include "wanamaker/base/status.h"

#include <hdf5.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct wm_h5 wm_h5_t;

/* Sets the MPI-IO parameters that keep Open MPI's defaults from losing data. Call before MPI_Init;
 * does nothing to what the user has set. */
void wm_h5_environment(void);

/* Not collective; the same on all ranks. Datasets of at least so many bytes begin at multiples of
 * them in files made from now on, for file systems with stripes; 0: anywhere. It is kept in the
 * environment of the process. */
void wm_h5_align(int64_t bytes);

/* Not collective. After MPI_Init: WM_ENVIRONMENT if the parameters of rule 1 are not in force. */
wm_status_t wm_h5_check_environment(wm_error_t *err);

/* Collective. Starts `path` as "path.tmp" (an older one is replaced). */
wm_status_t wm_h5_create(MPI_Comm comm, const char *path, wm_h5_t **out, wm_error_t *err);

/* Collective. Opens `path` for reading; a missing file is WM_INPUT. Also refuses a file whose root
 * attribute "complete" is not 1. The data are not verified: see wm_h5_verify. In both cases `comm`
 * is borrowed until the file is closed. */
wm_status_t wm_h5_open(MPI_Comm comm, const char *path, wm_h5_t **out, wm_error_t *err);

/* Collective. Reads all attributes, and every dataset that has a "checksum", and compares: WM_INPUT
 * naming the dataset that differs. For files that must be trusted after a crash (checkpoints,
 * parts). */
wm_status_t wm_h5_verify(wm_h5_t *file, wm_error_t *err);

/* Collective. Sets "complete" = 1 and the checksums, flushes, closes, verifies, syncs and renames.
 * Every element of every dataset must have been written exactly once. The object is gone
 * afterwards, whatever the result; on failure so is the temporary file, and an older file under the
 * final name is untouched. */
wm_status_t wm_h5_publish(wm_h5_t *file, wm_error_t *err);

/* Collective. Closes; a file being written is removed. NULL is allowed. */
void wm_h5_close(wm_h5_t *file);

const char *wm_h5_path(const wm_h5_t *file); /* the final name */
hid_t wm_h5_id(const wm_h5_t *file);         /* for what is not wrapped here */

/* Collective; all ranks pass equal values. `object` is a path; attributes are scalar: strings are
 * fixed-length UTF-8 null-terminated, integers int64, floats float64. */
wm_status_t wm_h5_set_string(wm_h5_t *file, const char *object, const char *name, const char *value,
                             wm_error_t *err);
wm_status_t wm_h5_set_int(wm_h5_t *file, const char *object, const char *name, int64_t value,
                          wm_error_t *err);
wm_status_t wm_h5_set_float(wm_h5_t *file, const char *object, const char *name, double value,
                            wm_error_t *err);
/* Collective. *out is a heap string. Absent or of another type: WM_INPUT. */
wm_status_t wm_h5_get_string(wm_h5_t *file, const char *object, const char *name, char **out,
                             wm_error_t *err);
wm_status_t wm_h5_get_int(wm_h5_t *file, const char *object, const char *name, int64_t *out,
                          wm_error_t *err);
wm_status_t wm_h5_get_float(wm_h5_t *file, const char *object, const char *name, double *out,
                            wm_error_t *err);
bool wm_h5_has_attribute(wm_h5_t *file, const char *object, const char *name);

enum { WM_H5_MAX_DIMS = 4 };

/* Collective. Creates a dataset of HDF5 type `type` (a file type such as H5T_IEEE_F32LE or a
 * compound, which is packed; nothing of variable length), contiguous, without fill. The
 * "description" attribute says what it holds, with shape and units. 1 <= n_dims <= WM_H5_MAX_DIMS;
 * a dimension may be 0. */
wm_status_t wm_h5_dataset(wm_h5_t *file, const char *path, hid_t type, int n_dims,
                          const int64_t *dims, const char *description, wm_error_t *err);

/* Collective. Writes the hyperslab [offset, offset + count) from `data` (memory type `type`,
 * row-major, packed); a rank with nothing passes a count of 0 in any dimension. Slabs of different
 * ranks or calls may not overlap. Cut into calls of at most 1 GiB. Contributes to the dataset's
 * checksum. Only for datasets that wm_h5_dataset made since wm_h5_create. */
wm_status_t wm_h5_write(wm_h5_t *file, const char *path, hid_t type, const int64_t *offset,
                        const int64_t *count, const void *data, wm_error_t *err);

/* Collective. Reads a hyperslab likewise; slabs may overlap. WM_INPUT when the dataset is absent,
 * has another number of dimensions or is too small, or when its elements would not fit `type`
 * (another class, or an integer that is wider or of another sign; floats may be rounded). */
wm_status_t wm_h5_read(wm_h5_t *file, const char *path, hid_t type, const int64_t *offset,
                       const int64_t *count, void *data, wm_error_t *err);

/* Not collective. Byte of the file at which the elements of a dataset begin, if they lie there one
 * after the other, stored as `type` is in memory, so that the file may be mapped; else -1. */
int64_t wm_h5_place(wm_h5_t *file, const char *path, hid_t type);

/* Not collective in effect (all ranks call it). Extent of a dataset; WM_INPUT if it is absent or
 * has another rank than n_dims. */
wm_status_t wm_h5_dims(wm_h5_t *file, const char *path, int n_dims, int64_t *dims, wm_error_t *err);

#endif
