/* Datasets against their checksums. */
#include "hdf5_private.h"

#include "checksum.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/par/comm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PIECE_BYTES = 32 << 20 };

typedef struct {
  hid_t id, type, space;
  int n_dims;
  int64_t dims[WM_H5_MAX_DIMS];
  wm_h5_cut_t cut;
  void *buffer;
  uint64_t sum; /* of this rank's pieces */
} check_t;

/* Not collective. */
static wm_status_t begin(const wm_h5_t *f, const char *object, check_t *c, wm_error_t *err) {
  const char *path = wm_h5_working_path(f);
  wm_status_t status;
  *c = (check_t){.type = H5I_INVALID_HID, .space = H5I_INVALID_HID};
  c->id = H5Dopen2(f->id, object, H5P_DEFAULT);
  WM_H5_TRY(c->id, WM_INPUT, path, object, "open the dataset");
  c->type = H5Dget_type(c->id);
  WM_H5_TRY(c->type, WM_INPUT, path, object, "get the type");
  c->space = H5Dget_space(c->id);
  WM_H5_TRY(c->space, WM_INPUT, path, object, "get the extent");
  WM_TRY(wm_h5_extents(f, object, c->id, &c->n_dims, c->dims, err));
  if (c->n_dims < 0) {
    status = wm_fail(err, WM_INPUT, "%s: %s: must have 1 to %d dimensions", path, object,
                     WM_H5_MAX_DIMS);
    goto cleanup;
  }
  int64_t size = (int64_t)H5Tget_size(c->type), most = PIECE_BYTES / size;
  c->cut = wm_h5_cut(c->n_dims, c->dims, most < 1 ? 1 : most);
  int64_t elements = wm_h5_elements(c->n_dims, c->dims);
  elements = elements < most ? elements : most < 1 ? 1 : most;
  status = wm_alloc(&c->buffer, elements, (size_t)size, object, err);
cleanup:
  return status;
}

static void end(check_t *c) {
  if (c->space >= 0)
    H5Sclose(c->space);
  if (c->type >= 0)
    H5Tclose(c->type);
  if (c->id >= 0)
    H5Dclose(c->id);
  free(c->buffer);
}

/* Collective. Reads piece k, or nothing if there is no such piece. */
static wm_status_t add_piece(const wm_h5_t *f, const char *object, check_t *c, int64_t k,
                             wm_error_t *err) {
  int64_t start[WM_H5_MAX_DIMS], extent[WM_H5_MAX_DIMS];
  bool some = k < c->cut.pieces;
  wm_pulse();
  if (some)
    wm_h5_piece(&c->cut, k, start, extent);
  hid_t memory = H5I_INVALID_HID;
  wm_status_t status =
      wm_h5_select(f, object, c->space, c->n_dims, start, some ? extent : NULL, &memory, err);
  status = wm_agree(f->comm, status, err);
  if (status == WM_OK) {
    if (H5Dread(c->id, c->type, memory, c->space, f->transfer, c->buffer) < 0)
      status = wm_h5_fail(err, WM_INPUT, wm_h5_working_path(f), object, "read");
    status = wm_agree(f->comm, status, err);
  }
  if (status == WM_OK && some)
    c->sum += wm_checksum_slab(c->buffer, (int64_t)H5Tget_size(c->type), c->n_dims, c->dims, start,
                               extent);
  if (memory >= 0)
    H5Sclose(memory);
  return status;
}

wm_status_t wm_h5_verify_dataset(wm_h5_t *file, const char *path, wm_error_t *err) {
  check_t c;
  char *expected = NULL, found[17];
  wm_status_t status;
  WM_TRY(wm_agree(file->comm, begin(file, path, &c, err), err));
  WM_TRY(wm_h5_get_string(file, path, "checksum", &expected, err));
  for (int64_t k = 0; k < c.cut.pieces; k += file->size) /* the ranks take pieces in turn */
    WM_TRY(add_piece(file, path, &c, k + file->rank, err));
  MPI_Allreduce(MPI_IN_PLACE, &c.sum, 1, MPI_UINT64_T, MPI_SUM, file->comm);
  snprintf(found, sizeof found, "%016" PRIx64, c.sum);
  if (strcmp(found, expected) != 0)
    status = wm_fail(err, WM_INPUT, "%s: %s: checksum %s expected, the data have %s",
                     wm_h5_working_path(file), path, expected, found);
cleanup:
  free(expected);
  end(&c);
  return status;
}

typedef struct {
  char **names;
  int64_t count, capacity;
  wm_status_t status;
  wm_error_t *err;
} list_t;

static herr_t note_dataset(hid_t root, const char *name, const H5O_info_t *info, void *client) {
  list_t *list = client;
  if (info->type != H5O_TYPE_DATASET || H5Aexists_by_name(root, name, "checksum", H5P_DEFAULT) <= 0)
    return 0;
  void *names = list->names;
  list->status = wm_grow(&names, &list->capacity, list->count, list->count + 1, sizeof(char *),
                         "list of datasets", list->err);
  list->names = names;
  if (list->status == WM_OK)
    list->status = wm_strdup(&list->names[list->count], name, list->err);
  if (list->status != WM_OK)
    return -1;
  list->count++;
  return 0;
}

wm_status_t wm_h5_verify(wm_h5_t *file, wm_error_t *err) {
  list_t list = {.status = WM_OK, .err = err};
  wm_status_t status;
  WM_TRY(wm_h5_verify_attributes(file, err));
  /* By name: all ranks see the same order. */
  if (H5Ovisit2(file->id, H5_INDEX_NAME, H5_ITER_INC, note_dataset, &list, H5O_INFO_BASIC) < 0)
    status = list.status != WM_OK
                 ? list.status
                 : wm_h5_fail(err, WM_INPUT, wm_h5_working_path(file), NULL, "list the datasets");
  WM_TRY(wm_agree(file->comm, status, err));
  for (int64_t i = 0; i < list.count; i++)
    WM_TRY(wm_h5_verify_dataset(file, list.names[i], err));
cleanup:
  for (int64_t i = 0; i < list.count; i++)
    free(list.names[i]);
  free(list.names);
  return status;
}
