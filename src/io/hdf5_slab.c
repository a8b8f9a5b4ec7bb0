/* Cutting hyperslabs into pieces of bounded size, the dataspaces of one piece, and where a dataset
 * lies. */
#include "hdf5_private.h"

#include <assert.h>
#include <stddef.h>

int64_t wm_h5_elements(int n_dims, const int64_t *extents) {
  int64_t n = 1;
  for (int d = 0; d < n_dims; d++)
    n *= extents[d];
  return n;
}

wm_h5_cut_t wm_h5_cut(int n_dims, const int64_t *count, int64_t max_elements) {
  assert(max_elements >= 1);
  wm_h5_cut_t c = {.n_dims = n_dims, .cut = n_dims - 1};
  for (int d = 0; d < n_dims; d++)
    c.count[d] = count[d];
  if (wm_h5_elements(n_dims, count) == 0)
    return c;        /* no pieces */
  int64_t inner = 1; /* elements in one step of dimension c.cut */
  for (; c.cut > 0 && count[c.cut] <= max_elements / inner; c.cut--)
    inner *= count[c.cut];
  c.block = max_elements / inner;
  if (c.block > count[c.cut])
    c.block = count[c.cut];
  c.pieces = (count[c.cut] + c.block - 1) / c.block * wm_h5_elements(c.cut, count);
  return c;
}

int64_t wm_h5_piece(const wm_h5_cut_t *c, int64_t k, int64_t *offset, int64_t *extent) {
  int64_t blocks = (c->count[c->cut] + c->block - 1) / c->block, outer = k / blocks;
  for (int d = 0; d < c->n_dims; d++) {
    offset[d] = 0;
    extent[d] = c->count[d];
  }
  int64_t rest = c->count[c->cut] - k % blocks * c->block;
  offset[c->cut] = k % blocks * c->block;
  extent[c->cut] = rest < c->block ? rest : c->block;
  for (int d = c->cut - 1; d >= 0; d--) {
    offset[d] = outer % c->count[d];
    extent[d] = 1;
    outer /= c->count[d];
  }
  int64_t before = 0;
  for (int d = 0; d < c->n_dims; d++)
    before = before * c->count[d] + offset[d];
  return before;
}

wm_status_t wm_h5_select(const wm_h5_t *file, const char *object, hid_t file_space, int n_dims,
                         const int64_t *offset, const int64_t *extent, hid_t *memory_space,
                         wm_error_t *err) {
  wm_status_t status = WM_OK;
  const char *path = wm_h5_working_path(file);
  hsize_t start[WM_H5_MAX_DIMS], count[WM_H5_MAX_DIMS], elements = 1;
  for (int d = 0; d < n_dims && extent != NULL; d++) {
    start[d] = (hsize_t)offset[d];
    count[d] = (hsize_t)extent[d];
    elements *= count[d];
  }
  *memory_space = H5Screate_simple(1, &elements, NULL);
  WM_H5_TRY(*memory_space, WM_ENVIRONMENT, path, object, "describe the memory");
  if (extent == NULL) {
    WM_H5_TRY(H5Sselect_none(*memory_space), WM_ENVIRONMENT, path, object, "select nothing");
    WM_H5_TRY(H5Sselect_none(file_space), WM_ENVIRONMENT, path, object, "select nothing");
  } else {
    WM_H5_TRY(H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, NULL, count, NULL),
              WM_ENVIRONMENT, path, object, "select a slab");
  }
cleanup:
  return status;
}

int64_t wm_h5_place(wm_h5_t *file, const char *path, hid_t type) {
  hid_t id = H5Dopen2(file->id, path, H5P_DEFAULT);
  if (id < 0)
    return -1;
  hid_t stored = H5Dget_type(id);
  haddr_t at = H5Dget_offset(id); /* undefined unless contiguous and allocated */
  bool same = stored >= 0 && H5Tequal(stored, type) > 0;
  if (stored >= 0)
    H5Tclose(stored);
  H5Dclose(id);
  return same && at != HADDR_UNDEF ? (int64_t)at : -1;
}
