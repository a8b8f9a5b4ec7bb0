/* sweep.h5: what was counted in the cells, and what each variant changes. */
#include "sweep_internal.h"
#include "wanamaker/base/mem.h"

#include <inttypes.h>
#include <string.h>

/* --- cells --------------------------------------------------------------------------------------
 */

static const struct {
  const char *path, *description;
  size_t offset;
} columns[] = {
    {"/cells/routed",
     "[variant, block] predicted positions that took the surrogate, summed over the layers that "
     "the variant changes",
     offsetof(wm_cell_t, routed)},
    {"/cells/agreed",
     "[variant, block] predicted positions at which the most likely token is the full model's; "
     "NaN: not measured",
     offsetof(wm_cell_t, agreed)},
    {"/cells/divergence",
     "[variant, block] sum over the predicted positions of KL(full || variant), nats; NaN: not "
     "measured",
     offsetof(wm_cell_t, divergence)},
};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static double *member(wm_cell_t *cell, int column) {
  return (double *)(void *)((char *)cell + columns[column].offset);
}

static int64_t n_cells(const wm_sweep_t *s) {
  return s->variants->n * s->blocks->n;
}

wm_status_t wm_sweep_read_cells(wm_sweep_t *s, wm_h5_t *file, wm_error_t *err) {
  const int64_t expected[2] = {s->variants->n, s->blocks->n}, zero[2] = {0, 0};
  int64_t dims[2];
  void *memory = NULL;
  wm_status_t status = wm_alloc(&memory, n_cells(s), sizeof(double), "cells", err);
  WM_TRY(wm_agree(s->comm->world, status, err));
  for (int k = 0; k < COLUMNS; k++) {
    WM_TRY(wm_h5_dims(file, columns[k].path, 2, dims, err));
    if (dims[0] != expected[0] || dims[1] != expected[1]) {
      status =
          wm_fail(err, WM_INPUT,
                  "%s: %s is [%" PRId64 ", %" PRId64 "], expected [%" PRId64 ", %" PRId64 "]",
                  wm_h5_path(file), columns[k].path, dims[0], dims[1], expected[0], expected[1]);
      goto cleanup;
    }
    WM_TRY(wm_h5_read(file, columns[k].path, H5T_NATIVE_DOUBLE, zero, dims, memory, err));
    for (int64_t i = 0; i < n_cells(s) && s->comm->node_rank == 0; i++)
      *member((wm_cell_t *)s->cells.data + i, k) = ((double *)memory)[i];
  }
  wm_shared_sync(&s->cells);
cleanup:
  free(memory);
  return status;
}

/* Rank 0 writes it all. */
static wm_status_t put(const wm_sweep_t *s, wm_h5_t *file, const char *path, hid_t stored,
                       hid_t type, int n_dims, const int64_t *dims, const void *data,
                       const char *description, wm_error_t *err) {
  const int64_t zero[2] = {0, 0};
  const int64_t count[2] = {s->comm->rank == 0 ? dims[0] : 0, n_dims > 1 ? dims[1] : 0};
  wm_status_t status = wm_h5_dataset(file, path, stored, n_dims, dims, description, err);
  return status == WM_OK ? wm_h5_write(file, path, type, zero, count, data, err) : status;
}

static wm_status_t write_cells(const wm_sweep_t *s, wm_h5_t *file, double *buffer,
                               wm_error_t *err) {
  const int64_t dims[2] = {s->variants->n, s->blocks->n};
  wm_status_t status = WM_OK;
  for (int k = 0; k < COLUMNS && status == WM_OK; k++) {
    for (int64_t i = 0; i < n_cells(s); i++)
      buffer[i] = *member((wm_cell_t *)s->cells.data + i, k);
    status = put(s, file, columns[k].path, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 2, dims, buffer,
                 columns[k].description, err);
  }
  return status;
}

/* --- changes ------------------------------------------------------------------------------------
 */

static int64_t n_changes(const wm_sweep_t *s) {
  return s->variants->offsets[s->variants->n];
}

/* The change's variant, layer or gate. */
static int64_t number_of(const wm_sweep_t *s, int64_t change, int what) {
  const wm_change_t *c = &s->variants->changes[change];
  int64_t v = 0;
  while (s->variants->offsets[v + 1] <= change)
    v++;
  return what == 0 ? v : what == 1 ? c->layer : c->gate;
}

static wm_status_t write_changes(const wm_sweep_t *s, wm_h5_t *file, double *buffer,
                                 wm_error_t *err) {
  static const char *const numbers[][2] = {
      {"/changes/variant", "[change] variant that makes it"},
      {"/changes/layer", "[change] layer that is changed"},
      {"/changes/gate", "[change] gate that routes there: index of gates.h5; -1: the surrogate at "
                        "every position"}};
  int64_t n = n_changes(s), *integers = (int64_t *)(void *)buffer;
  wm_status_t status = WM_OK;
  for (int k = 0; k < 3 && status == WM_OK; k++) {
    for (int64_t i = 0; i < n; i++)
      integers[i] = number_of(s, i, k);
    status = put(s, file, numbers[k][0], H5T_STD_I64LE, H5T_NATIVE_INT64, 1, &n, integers,
                 numbers[k][1], err);
  }
  for (int64_t i = 0; i < n; i++)
    buffer[i] = s->variants->changes[i].threshold;
  return status == WM_OK
             ? put(s, file, "/changes/threshold", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, &n, buffer,
                   "[change] surrogate where p_linear > threshold; NaN: no scored gate", err)
             : status;
}

wm_status_t wm_sweep_write_cells(const wm_sweep_t *s, wm_h5_t *file, wm_error_t *err) {
  const int64_t n = n_cells(s) > n_changes(s) ? n_cells(s) : n_changes(s);
  void *buffer = NULL;
  wm_status_t status = wm_alloc(&buffer, n, sizeof(double), "cells", err);
  WM_TRY(wm_agree(s->comm->world, status, err));
  WM_TRY(write_cells(s, file, buffer, err));
  WM_TRY(write_changes(s, file, buffer, err));
cleanup:
  free(buffer);
  return status;
}
