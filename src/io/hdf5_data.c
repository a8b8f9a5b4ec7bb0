/* Datasets: creation, and transfers of hyperslabs.
 *
 * A transfer is cut into pieces. The ranks make as many collective calls as the one with most
 * pieces needs, the others with nothing selected, and agree on the status after each; so that a
 * rank whose own preparation fails still takes part in the call of the others. */
#include "hdf5_private.h"

#include "checksum.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/par/comm.h"

#include <assert.h>
#include <string.h>

enum {
  CALL_BYTES = 1 << 30,    /* operations.md, rule 6 */
  CONVERT_BYTES = 32 << 20 /* of scratch memory, where types differ */
};

bool wm_h5_type_fits(hid_t from, hid_t to) {
  H5T_class_t class = H5Tget_class(from);
  if (class != H5Tget_class(to))
    return false;
  if (class != H5T_INTEGER)
    return true;
  bool from_signed = H5Tget_sign(from) == H5T_SGN_2, to_signed = H5Tget_sign(to) == H5T_SGN_2;
  size_t from_bits = H5Tget_precision(from), to_bits = H5Tget_precision(to);
  return from_signed == to_signed ? from_bits <= to_bits : to_signed && from_bits < to_bits;
}

herr_t wm_h5_keep_plain(hid_t properties) {
  const herr_t times = H5Pset_obj_track_times(properties, 0);
  return times < 0 ? times : H5Pset_attr_phase_change(properties, WM_H5_MOST_COMPACT, 0);
}

/* Creates the groups above `object`. */
static wm_status_t make_groups(const wm_h5_t *f, const char *object, wm_error_t *err) {
  wm_status_t status = WM_OK;
  char *name = NULL;
  hid_t properties = H5Pcreate(H5P_GROUP_CREATE);
  WM_H5_TRY(properties, WM_ENVIRONMENT, f->temporary, object, "make a property list");
  WM_H5_TRY(wm_h5_keep_plain(properties), WM_ENVIRONMENT, f->temporary, object, "choose the form");
  WM_H5_TRY(H5Pset_link_phase_change(properties, WM_H5_MOST_COMPACT, 0), WM_ENVIRONMENT,
            f->temporary, object, "choose the form of links");
  WM_TRY(wm_strdup(&name, object, err));
  for (char *slash = strchr(name + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    htri_t exists = H5Lexists(f->id, name, H5P_DEFAULT);
    WM_H5_TRY(exists, WM_ENVIRONMENT, f->temporary, name, "look up the group");
    if (!exists) {
      hid_t group = H5Gcreate2(f->id, name, H5P_DEFAULT, properties, H5P_DEFAULT);
      WM_H5_TRY(group, WM_ENVIRONMENT, f->temporary, name, "create the group");
      WM_H5_TRY(H5Gclose(group), WM_ENVIRONMENT, f->temporary, name, "close the group");
    }
    *slash = '/';
  }
cleanup:
  free(name);
  if (properties >= 0)
    H5Pclose(properties);
  return status;
}

static wm_status_t creation_properties(const wm_h5_t *f, const char *object, hid_t *out,
                                       wm_error_t *err) {
  wm_status_t status = WM_OK;
  hid_t p = *out = H5Pcreate(H5P_DATASET_CREATE);
  if (p < 0 || H5Pset_layout(p, H5D_CONTIGUOUS) < 0 ||
      H5Pset_alloc_time(p, H5D_ALLOC_TIME_EARLY) < 0 ||
      H5Pset_fill_time(p, H5D_FILL_TIME_NEVER) < 0 || wm_h5_keep_plain(p) < 0)
    status = wm_h5_fail(err, WM_ENVIRONMENT, f->temporary, object, "set the dataset's properties");
  return status;
}

/* The type as stored: a compound without gaps, whose bytes would be anyone's guess. */
static wm_status_t stored_type(const wm_h5_t *f, const char *object, hid_t type, hid_t *out,
                               wm_error_t *err) {
  wm_status_t status = WM_OK;
  assert(H5Tdetect_class(type, H5T_VLEN) == 0 && H5Tdetect_class(type, H5T_REFERENCE) == 0 &&
         H5Tis_variable_str(type) == 0);
  *out = H5Tcopy(type);
  if (*out < 0 || (H5Tget_class(type) == H5T_COMPOUND && H5Tpack(*out) < 0))
    status = wm_h5_fail(err, WM_ENVIRONMENT, f->temporary, object, "copy the type");
  return status;
}

/* A new entry of the table; it counts once the dataset exists. */
static wm_status_t new_entry(wm_h5_t *f, const char *object, int n_dims, const int64_t *dims,
                             wm_h5_dataset_t **out, wm_error_t *err) {
  void *table = f->datasets;
  wm_status_t status = wm_grow(&table, &f->capacity, f->n_datasets, f->n_datasets + 1,
                               sizeof(wm_h5_dataset_t), object, err);
  f->datasets = table;
  if (status != WM_OK)
    return status;
  wm_h5_dataset_t *d = *out = &f->datasets[f->n_datasets];
  *d = (wm_h5_dataset_t){.id = H5I_INVALID_HID, .type = H5I_INVALID_HID, .n_dims = n_dims};
  memcpy(d->dims, dims, (size_t)n_dims * sizeof *dims);
  return wm_strdup(&d->path, object, err);
}

wm_status_t wm_h5_dataset(wm_h5_t *file, const char *path, hid_t type, int n_dims,
                          const int64_t *dims, const char *description, wm_error_t *err) {
  assert(file->temporary != NULL && path[0] == '/' && n_dims >= 1 && n_dims <= WM_H5_MAX_DIMS);
  wm_h5_dataset_t *d = NULL;
  hid_t properties = H5I_INVALID_HID, space = H5I_INVALID_HID;
  hsize_t extents[WM_H5_MAX_DIMS];
  for (int i = 0; i < n_dims; i++)
    extents[i] = (hsize_t)dims[i];
  wm_status_t status = new_entry(file, path, n_dims, dims, &d, err);
  if (status == WM_OK)
    status = stored_type(file, path, type, &d->type, err);
  if (status == WM_OK)
    status = creation_properties(file, path, &properties, err);
  if (status == WM_OK && (space = H5Screate_simple(n_dims, extents, NULL)) < 0)
    status = wm_h5_fail(err, WM_ENVIRONMENT, file->temporary, path, "describe the extent");
  if (status == WM_OK)
    status = wm_h5_reserve(file, wm_h5_dataset_bytes(d), err);
  WM_TRY(wm_agree(file->comm, status, err));
  WM_TRY(wm_agree(file->comm, make_groups(file, path, err), err));
  d->id = H5Dcreate2(file->id, path, d->type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
  if (d->id < 0)
    status = wm_h5_fail(err, WM_ENVIRONMENT, file->temporary, path, "create the dataset");
  WM_TRY(wm_agree(file->comm, status, err));
  file->n_datasets++;
  d = NULL; /* the table has it */
  status = wm_h5_set_string(file, path, "description", description, err);
cleanup:
  if (d != NULL && d->type >= 0)
    H5Tclose(d->type);
  if (d != NULL)
    free(d->path);
  if (properties >= 0)
    H5Pclose(properties);
  if (space >= 0)
    H5Sclose(space);
  return status;
}

wm_status_t wm_h5_extents(const wm_h5_t *file, const char *object, hid_t id, int *n_dims,
                          int64_t *dims, wm_error_t *err) {
  wm_status_t status = WM_OK;
  hsize_t extents[WM_H5_MAX_DIMS] = {0};
  hid_t space = H5Dget_space(id);
  WM_H5_TRY(space, WM_INPUT, wm_h5_working_path(file), object, "get the extent");
  *n_dims = H5Sget_simple_extent_ndims(space);
  if (*n_dims < 1 || *n_dims > WM_H5_MAX_DIMS)
    *n_dims = -1;
  else
    WM_H5_TRY(H5Sget_simple_extent_dims(space, extents, NULL), WM_INPUT, wm_h5_working_path(file),
              object, "get the extent");
  for (int d = 0; d < *n_dims; d++)
    dims[d] = (int64_t)extents[d];
cleanup:
  if (space >= 0)
    H5Sclose(space);
  return status;
}

/* Not collective. Opens a dataset for reading and looks at its extent. */
static wm_status_t open_dataset(const wm_h5_t *f, const char *object, hid_t *id, int *n_dims,
                                int64_t *dims, wm_error_t *err) {
  wm_status_t status = WM_OK;
  *id = H5Dopen2(f->id, object, H5P_DEFAULT);
  WM_H5_TRY(*id, WM_INPUT, wm_h5_working_path(f), object, "open the dataset");
  status = wm_h5_extents(f, object, *id, n_dims, dims, err);
cleanup:
  return status;
}

wm_status_t wm_h5_dims(wm_h5_t *file, const char *path, int n_dims, int64_t *dims,
                       wm_error_t *err) {
  hid_t id;
  int found;
  int64_t extents[WM_H5_MAX_DIMS];
  wm_status_t status = open_dataset(file, path, &id, &found, extents, err);
  if (id >= 0)
    H5Dclose(id);
  if (status == WM_OK && found != n_dims)
    status = wm_fail(err, WM_INPUT, "%s: %s: must have %d dimension%s", wm_h5_working_path(file),
                     path, n_dims, n_dims == 1 ? "" : "s");
  if (status == WM_OK)
    memcpy(dims, extents, (size_t)n_dims * sizeof *dims);
  return wm_agree(file->comm, status, err);
}

/* One rank's side of a transfer of the slab [offset, offset + count). */
typedef struct {
  wm_h5_t *file;
  const char *object;
  hid_t id, space, type; /* of the dataset; its file space; of the elements in `data` */
  int n_dims;
  const int64_t *offset;
  wm_h5_cut_t cut;
  size_t element; /* bytes in memory */
  char *scratch, *background;
} transfer_t;

/* Collective. Number of calls that all ranks make. */
static int64_t rounds(const transfer_t *t) {
  int64_t n = t->cut.pieces;
  MPI_Allreduce(MPI_IN_PLACE, &n, 1, MPI_INT64_T, MPI_MAX, t->file->comm);
  return n;
}

/* Piece k of the slab, or nothing when there are fewer: selects it in t->space and *memory_space.
 * *extent_or_null becomes `extent`, or NULL. `start` is counted in the dataset. */
static wm_status_t select_piece(const transfer_t *t, int64_t k, int64_t *start, int64_t *extent,
                                int64_t *before, hid_t *memory_space, wm_error_t *err) {
  if (k >= t->cut.pieces) {
    for (int d = 0; d < t->n_dims; d++)
      extent[d] = 0;
    return wm_h5_select(t->file, t->object, t->space, t->n_dims, NULL, NULL, memory_space, err);
  }
  *before = wm_h5_piece(&t->cut, k, start, extent);
  for (int d = 0; d < t->n_dims; d++)
    start[d] += t->offset[d];
  return wm_h5_select(t->file, t->object, t->space, t->n_dims, start, extent, memory_space, err);
}

/* ---- writing ---- */

static wm_h5_dataset_t *find_dataset(const wm_h5_t *f, const char *path) {
  for (int64_t i = 0; i < f->n_datasets; i++)
    if (strcmp(f->datasets[i].path, path) == 0)
      return &f->datasets[i];
  return NULL;
}

/* `n` elements at `data` as they are stored: `data` itself, or converted in t->scratch. */
static wm_status_t convert(const transfer_t *t, const wm_h5_dataset_t *d, const char *data,
                           int64_t n, const void **out, wm_error_t *err) {
  wm_status_t status = WM_OK;
  *out = data;
  if (t->scratch == NULL)
    return WM_OK;
  memcpy(t->scratch, data, (size_t)n * t->element);
  memset(t->background, 0, (size_t)n * H5Tget_size(d->type));
  *out = t->scratch;
  WM_H5_TRY(H5Tconvert(t->type, d->type, (size_t)n, t->scratch, t->background, H5P_DEFAULT),
            WM_ENVIRONMENT, t->file->temporary, t->object, "convert");
cleanup:
  return status;
}

/* Collective. Writes piece k and adds it to the checksum. */
static wm_status_t write_piece(const transfer_t *t, wm_h5_dataset_t *d, int64_t k, const char *data,
                               wm_error_t *err) {
  int64_t start[WM_H5_MAX_DIMS], extent[WM_H5_MAX_DIMS], before = 0;
  hid_t memory = H5I_INVALID_HID;
  const void *stored = NULL;
  wm_pulse();
  wm_status_t status = select_piece(t, k, start, extent, &before, &memory, err);
  int64_t n = wm_h5_elements(t->n_dims, extent);
  if (status == WM_OK && n > 0)
    status = convert(t, d, data + before * (int64_t)t->element, n, &stored, err);
  status = wm_agree(t->file->comm, status, err);
  if (status == WM_OK) {
    if (H5Dwrite(t->id, d->type, memory, t->space, t->file->transfer, stored) < 0)
      status = wm_h5_fail(err, WM_ENVIRONMENT, t->file->temporary, t->object, "write");
    status = wm_agree(t->file->comm, status, err);
  }
  if (status == WM_OK && n > 0) {
    d->sum +=
        wm_checksum_slab(stored, (int64_t)H5Tget_size(d->type), t->n_dims, d->dims, start, extent);
    d->written += n;
  }
  if (memory >= 0)
    H5Sclose(memory);
  return status;
}

/* Not collective. Memory to convert in, unless the types are the same. */
static wm_status_t prepare_conversion(transfer_t *t, const wm_h5_dataset_t *d, const int64_t *count,
                                      wm_error_t *err) {
  size_t stored = H5Tget_size(d->type), larger = stored > t->element ? stored : t->element;
  bool same = H5Tequal(t->type, d->type) > 0;
  int64_t most = (same ? CALL_BYTES : CONVERT_BYTES) / (int64_t)larger;
  t->cut = wm_h5_cut(t->n_dims, count, most < 1 ? 1 : most);
  if (same || t->cut.pieces == 0)
    return WM_OK;
  int64_t n = wm_h5_elements(t->n_dims, count);
  n = n < most ? n : most < 1 ? 1 : most;
  void *scratch = NULL, *background = NULL;
  wm_status_t status = wm_alloc(&scratch, n, larger, t->object, err);
  if (status == WM_OK)
    status = wm_alloc(&background, n, stored, t->object, err);
  t->scratch = scratch;
  t->background = background;
  return status;
}

wm_status_t wm_h5_write(wm_h5_t *file, const char *path, hid_t type, const int64_t *offset,
                        const int64_t *count, const void *data, wm_error_t *err) {
  wm_h5_dataset_t *d = find_dataset(file, path);
  assert(d != NULL && wm_h5_type_fits(type, d->type));
  for (int i = 0; i < d->n_dims && wm_h5_elements(d->n_dims, count) > 0; i++)
    assert(offset[i] >= 0 && count[i] >= 0 && offset[i] <= d->dims[i] - count[i]);
  transfer_t t = {.file = file,
                  .object = path,
                  .id = d->id,
                  .type = type,
                  .n_dims = d->n_dims,
                  .offset = offset,
                  .element = H5Tget_size(type)};
  wm_status_t status = prepare_conversion(&t, d, count, err);
  t.space = H5Dget_space(d->id);
  if (status == WM_OK && t.space < 0)
    status = wm_h5_fail(err, WM_ENVIRONMENT, file->temporary, path, "get the extent");
  WM_TRY(wm_agree(file->comm, status, err));
  int64_t n = rounds(&t);
  for (int64_t k = 0; k < n; k++)
    WM_TRY(write_piece(&t, d, k, data, err));
cleanup:
  if (t.space >= 0)
    H5Sclose(t.space);
  free(t.scratch);
  free(t.background);
  return status;
}

/* ---- reading ---- */

static wm_status_t read_piece(const transfer_t *t, int64_t k, char *data, wm_error_t *err) {
  int64_t start[WM_H5_MAX_DIMS], extent[WM_H5_MAX_DIMS], before = 0;
  hid_t memory = H5I_INVALID_HID;
  wm_pulse();
  wm_status_t status = select_piece(t, k, start, extent, &before, &memory, err);
  status = wm_agree(t->file->comm, status, err);
  if (status == WM_OK) {
    char *to = data == NULL ? NULL : data + before * (int64_t)t->element;
    if (H5Dread(t->id, t->type, memory, t->space, t->file->transfer, to) < 0)
      status = wm_h5_fail(err, WM_INPUT, wm_h5_working_path(t->file), t->object, "read");
    status = wm_agree(t->file->comm, status, err);
  }
  if (memory >= 0)
    H5Sclose(memory);
  return status;
}

/* Not collective. Whether the slab lies in the dataset and its elements fit the type wanted. */
static wm_status_t check_read(const transfer_t *t, const int64_t *dims, const int64_t *count,
                              wm_error_t *err) {
  const char *path = wm_h5_working_path(t->file);
  if (t->n_dims < 0)
    return wm_fail(err, WM_INPUT, "%s: %s: must have 1 to %d dimensions", path, t->object,
                   WM_H5_MAX_DIMS);
  for (int d = 0; d < t->n_dims && wm_h5_elements(t->n_dims, count) > 0; d++)
    if (t->offset[d] < 0 || count[d] < 0 || t->offset[d] > dims[d] - count[d])
      return wm_fail(err, WM_INPUT,
                     "%s: %s: indices [%lld, %lld) of dimension %d are wanted, but its extent is "
                     "%lld",
                     path, t->object, (long long)t->offset[d], (long long)(t->offset[d] + count[d]),
                     d, (long long)dims[d]);
  hid_t stored = H5Dget_type(t->id);
  bool fits = stored >= 0 && wm_h5_type_fits(stored, t->type);
  if (stored >= 0)
    H5Tclose(stored);
  if (!fits)
    return wm_fail(err, WM_INPUT, "%s: %s: its elements do not fit the type that is expected", path,
                   t->object);
  return WM_OK;
}

wm_status_t wm_h5_read(wm_h5_t *file, const char *path, hid_t type, const int64_t *offset,
                       const int64_t *count, void *data, wm_error_t *err) {
  int64_t dims[WM_H5_MAX_DIMS];
  transfer_t t = {.file = file,
                  .object = path,
                  .space = H5I_INVALID_HID,
                  .type = type,
                  .offset = offset,
                  .element = H5Tget_size(type)};
  wm_status_t status = open_dataset(file, path, &t.id, &t.n_dims, dims, err);
  if (status == WM_OK)
    status = check_read(&t, dims, count, err);
  if (status == WM_OK && (t.space = H5Dget_space(t.id)) < 0)
    status = wm_h5_fail(err, WM_INPUT, wm_h5_working_path(file), path, "get the extent");
  WM_TRY(wm_agree(file->comm, status, err));
  /* Elements are at least a byte in the file, so that a call stays below the bound there too. */
  int64_t most = CALL_BYTES / (int64_t)(t.element < 8 ? 8 : t.element);
  t.cut = wm_h5_cut(t.n_dims, count, most < 1 ? 1 : most);
  int64_t n = rounds(&t);
  for (int64_t k = 0; k < n; k++)
    WM_TRY(read_piece(&t, k, data, err));
cleanup:
  if (t.space >= 0)
    H5Sclose(t.space);
  if (t.id >= 0)
    H5Dclose(t.id);
  return status;
}
