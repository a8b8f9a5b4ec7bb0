#include "wanamaker/measure/records.h"

#include "wanamaker/base/mem.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

void wm_records_init(wm_records_t *records, const wm_record_layout_t *layout) {
  *records = (wm_records_t){.layout = layout};
}

void wm_records_destroy(wm_records_t *records) {
  free(records->labels);
  free(records->values);
  *records = (wm_records_t){0};
}

wm_status_t wm_records_add(wm_records_t *r, const char *label, const double *values,
                           wm_error_t *err) {
  const size_t columns = (size_t)r->layout->n_columns;
  void *memory = r->labels;
  wm_status_t status =
      wm_grow(&memory, &r->label_capacity, r->n, r->n + 1, WM_RECORD_LABEL, "measurements", err);
  r->labels = memory;
  if (status != WM_OK)
    return status;
  memory = r->values;
  status =
      wm_grow(&memory, &r->capacity, r->n, r->n + 1, columns * sizeof *values, "measurements", err);
  r->values = memory;
  if (status != WM_OK)
    return status;
  snprintf(r->labels + r->n * WM_RECORD_LABEL, WM_RECORD_LABEL, "%s", label);
  memcpy(r->values + r->n * (int64_t)columns, values, columns * sizeof *values);
  r->n++;
  return WM_OK;
}

void wm_records_note(wm_records_t *records, const char *format, ...) {
  size_t used = strlen(records->note);
  if (used > 0 && used + 1 < sizeof records->note) {
    records->note[used++] = ' ';
    records->note[used] = '\0';
  }
  va_list args;
  va_start(args, format);
  vsnprintf(records->note + used, sizeof records->note - used, format, args);
  va_end(args);
}

static size_t row_size(const wm_records_t *r) {
  return WM_RECORD_LABEL + (size_t)r->layout->n_columns * sizeof(double);
}

/* {"name": string, column: float64, ...}; negative on failure. */
static hid_t row_type(const wm_records_t *r, hid_t number) {
  hid_t type = H5Tcreate(H5T_COMPOUND, row_size(r)), text = H5Tcopy(H5T_C_S1);
  bool fine = type >= 0 && text >= 0 && H5Tset_size(text, WM_RECORD_LABEL) >= 0 &&
              H5Tset_cset(text, H5T_CSET_UTF8) >= 0 && H5Tinsert(type, "name", 0, text) >= 0;
  for (int c = 0; c < r->layout->n_columns && fine; c++)
    fine = H5Tinsert(type, r->layout->columns[c].member,
                     WM_RECORD_LABEL + (size_t)c * sizeof(double), number) >= 0;
  if (text >= 0)
    H5Tclose(text);
  if (fine)
    return type;
  if (type >= 0)
    H5Tclose(type);
  return -1;
}

static void pack(const wm_records_t *r, char *rows) {
  const int64_t columns = r->layout->n_columns;
  for (int64_t i = 0; i < r->n; i++) {
    char *row = rows + i * (int64_t)row_size(r);
    memcpy(row, r->labels + i * WM_RECORD_LABEL, WM_RECORD_LABEL);
    memcpy(row + WM_RECORD_LABEL, r->values + i * columns, (size_t)columns * sizeof(double));
  }
}

wm_status_t wm_records_write(const wm_records_t *r, wm_h5_t *file, bool writer, wm_error_t *err) {
  const char *path = r->layout->path;
  hid_t stored = row_type(r, H5T_IEEE_F64LE), type = row_type(r, H5T_NATIVE_DOUBLE);
  void *rows = NULL;
  wm_status_t status = WM_OK;
  if (stored < 0 || type < 0)
    status = wm_fail(err, WM_ENVIRONMENT, "%s: HDF5 can't make its type", path);
  if (status == WM_OK)
    status = wm_alloc(&rows, r->n, row_size(r), "measurements", err);
  WM_TRY(status);
  pack(r, rows);
  int64_t zero = 0, count = writer ? r->n : 0;
  WM_TRY(wm_h5_dataset(file, path, stored, 1, &r->n, r->layout->description, err));
  WM_TRY(wm_h5_write(file, path, type, &zero, &count, rows, err));
  if (r->note[0] != '\0')
    WM_TRY(wm_h5_set_string(file, path, "note", r->note, err));
cleanup:
  free(rows);
  if (stored >= 0)
    H5Tclose(stored);
  if (type >= 0)
    H5Tclose(type);
  return status;
}

/* A row's label and one of its numbers. */
typedef struct {
  char label[WM_RECORD_LABEL];
  double value;
} cell_t;

static hid_t cell_type(const char *member) {
  hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(cell_t)), text = H5Tcopy(H5T_C_S1);
  bool fine = type >= 0 && text >= 0 && H5Tset_size(text, WM_RECORD_LABEL) >= 0 &&
              H5Tset_cset(text, H5T_CSET_UTF8) >= 0 && H5Tinsert(type, "name", 0, text) >= 0 &&
              H5Tinsert(type, member, offsetof(cell_t, value), H5T_NATIVE_DOUBLE) >= 0;
  if (text >= 0)
    H5Tclose(text);
  if (fine)
    return type;
  if (type >= 0)
    H5Tclose(type);
  return -1;
}

wm_status_t wm_records_read(wm_h5_t *file, const char *path, const char *label, const char *member,
                            double *out, wm_error_t *err) {
  int64_t zero = 0, n;
  hid_t type = cell_type(member);
  void *memory = NULL;
  wm_status_t status = wm_h5_dims(file, path, 1, &n, err);
  if (status == WM_OK && type < 0)
    status = wm_fail(err, WM_ENVIRONMENT, "%s: HDF5 can't make its type", path);
  if (status == WM_OK)
    status = wm_alloc(&memory, n, sizeof(cell_t), "measurements", err);
  const cell_t *cells = memory;
  *out = NAN;
  WM_TRY(status);
  WM_TRY(wm_h5_read(file, path, type, &zero, &n, memory, err));
  for (int64_t i = 0; i < n && isnan(*out); i++)
    if (strncmp(cells[i].label, label, strlen(label)) == 0)
      *out = cells[i].value;
  if (isnan(*out))
    status =
        wm_fail(err, WM_INPUT, "%s: %s has no %s of \"%s\"", wm_h5_path(file), path, member, label);
cleanup:
  free(memory);
  if (type >= 0)
    H5Tclose(type);
  return status;
}
