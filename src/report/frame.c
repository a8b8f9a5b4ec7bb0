#include "wanamaker/report/frame.h"

#include "wanamaker/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- columns --------------------------------------------------------------------------------- */

void wm_frame_destroy(wm_frame_t *frame) {
  for (int c = 0; c < frame->n_columns; c++) {
    free(frame->columns[c].numbers);
    free(frame->columns[c].texts);
  }
  free(frame->columns);
  *frame = (wm_frame_t){0};
}

static const wm_frame_column_t *find(const wm_frame_t *frame, int64_t row, const char *name) {
  if (row < 0 || row >= frame->n)
    return NULL;
  for (int c = 0; c < frame->n_columns; c++)
    if (strcmp(frame->columns[c].name, name) == 0)
      return &frame->columns[c];
  return NULL;
}

double wm_frame_number(const wm_frame_t *frame, int64_t row, const char *name) {
  const wm_frame_column_t *c = find(frame, row, name);
  return c != NULL && c->numbers != NULL ? c->numbers[row] : NAN;
}

const char *wm_frame_text(const wm_frame_t *frame, int64_t row, const char *name) {
  const wm_frame_column_t *c = find(frame, row, name);
  return c != NULL && c->texts != NULL ? c->texts + (size_t)row * c->width : "";
}

const double *wm_frame_numbers(const wm_frame_t *frame, const char *name) {
  const wm_frame_column_t *c = find(frame, 0, name);
  return c != NULL ? c->numbers : NULL;
}

bool wm_frame_has(const wm_frame_t *frame, const char *name) {
  return find(frame, 0, name) != NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

bool wm_h5_has(wm_h5_t *file, const char *path) {
  char prefix[256];
  for (const char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
    size_t length = slash != NULL ? (size_t)(slash - path) : strlen(path);
    if (length >= sizeof prefix)
      return false;
    memcpy(prefix, path, length);
    prefix[length] = '\0';
    if (H5Lexists(wm_h5_id(file), prefix, H5P_DEFAULT) <= 0)
      return false;
    if (slash == NULL)
      return true;
  }
}

/* What a column takes from rows of `stride` bytes. */
typedef struct {
  const char *name;
  hid_t type; /* of the member, native */
  size_t offset, stride;
} member_t;

static double number_at(H5T_class_t class, hid_t type, const char *at) {
  const size_t size = H5Tget_size(type);
  const bool is_signed = class == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2;
  double real;
  float single;
  int64_t integer = 0;
  if (class == H5T_FLOAT && size == sizeof real) {
    memcpy(&real, at, sizeof real);
    return real;
  }
  if (class == H5T_FLOAT && size == sizeof single) {
    memcpy(&single, at, sizeof single);
    return (double)single;
  }
  if (class != H5T_INTEGER || size > sizeof integer)
    return NAN;
  if (is_signed && (at[size - 1] & 0x80) != 0)
    integer = -1;             /* the bytes above are the sign's */
  memcpy(&integer, at, size); /* little-endian, as all machines that this is built for */
  return is_signed ? (double)integer : (double)(uint64_t)integer;
}

static wm_status_t add_column(wm_frame_t *frame, const member_t *m, const char *rows,
                              wm_error_t *err) {
  void *memory = frame->columns;
  wm_status_t status = wm_grow(&memory, &frame->capacity, frame->n_columns, frame->n_columns + 1,
                               sizeof(wm_frame_column_t), "columns", err);
  frame->columns = memory;
  if (status != WM_OK)
    return status;
  wm_frame_column_t *column = &frame->columns[frame->n_columns];
  *column = (wm_frame_column_t){0};
  snprintf(column->name, sizeof column->name, "%s", m->name);
  H5T_class_t class = H5Tget_class(m->type);
  size_t size = H5Tget_size(m->type);
  column->width = class == H5T_STRING ? size + 1 : sizeof(double);
  status = wm_alloc(&memory, frame->n, column->width, "column", err);
  if (status != WM_OK)
    return status;
  frame->n_columns++;
  if (class == H5T_STRING)
    column->texts = memory;
  else
    column->numbers = memory;
  for (int64_t i = 0; i < frame->n; i++) {
    const char *at = rows + (size_t)i * m->stride + m->offset;
    if (class == H5T_STRING)
      memcpy(column->texts + (size_t)i * column->width, at, size);
    else
      column->numbers[i] = number_at(class, m->type, at);
  }
  return WM_OK;
}

static wm_status_t add_members(wm_frame_t *frame, hid_t type, const char *rows, wm_error_t *err) {
  wm_status_t status = WM_OK;
  int n = H5Tget_nmembers(type);
  for (int i = 0; i < n && status == WM_OK; i++) {
    char *name = H5Tget_member_name(type, (unsigned)i);
    member_t m = {.name = name,
                  .type = H5Tget_member_type(type, (unsigned)i),
                  .offset = H5Tget_member_offset(type, (unsigned)i),
                  .stride = H5Tget_size(type)};
    if (name == NULL || m.type < 0)
      status = wm_fail(err, WM_ENVIRONMENT, "cannot read the members of a compound type");
    else if (H5Tis_variable_str(m.type) <= 0)
      status = add_column(frame, &m, rows, err);
    if (m.type >= 0)
      H5Tclose(m.type);
    H5free_memory(name);
  }
  return status;
}

/* The type in memory of a dataset; negative if there is none. */
static hid_t native_type(wm_h5_t *file, const char *path) {
  hid_t native = H5I_INVALID_HID, dataset = H5Dopen2(wm_h5_id(file), path, H5P_DEFAULT);
  hid_t type = dataset >= 0 ? H5Dget_type(dataset) : H5I_INVALID_HID;
  if (type >= 0)
    native = H5Tget_native_type(type, H5T_DIR_ASCEND);
  if (type >= 0)
    H5Tclose(type);
  if (dataset >= 0)
    H5Dclose(dataset);
  return native;
}

wm_status_t wm_frame_read(wm_h5_t *file, const char *path, const char *name, wm_frame_t *frame,
                          wm_error_t *err) {
  void *rows = NULL;
  hid_t type = H5I_INVALID_HID;
  int64_t n, zero = 0;
  wm_status_t status;
  if (!wm_h5_has(file, path))
    return wm_fail(err, WM_INPUT, "%s: there is no %s", wm_h5_path(file), path);
  WM_TRY(wm_h5_dims(file, path, 1, &n, err));
  if (frame->n_columns > 0 && n != frame->n) {
    status = wm_fail(err, WM_INPUT, "%s: %s has %lld rows instead of %lld", wm_h5_path(file), path,
                     (long long)n, (long long)frame->n);
    goto cleanup;
  }
  frame->n = n;
  type = native_type(file, path);
  if (type < 0) {
    status = wm_fail(err, WM_INPUT, "%s: %s: cannot read its type", wm_h5_path(file), path);
    goto cleanup;
  }
  WM_TRY(wm_alloc(&rows, n + 1, H5Tget_size(type), path, err));
  WM_TRY(wm_h5_read(file, path, type, &zero, &n, rows, err));
  const member_t whole = {.name = name, .type = type, .stride = H5Tget_size(type)};
  if (H5Tget_class(type) == H5T_COMPOUND)
    status = add_members(frame, type, rows, err);
  else
    status = add_column(frame, &whole, rows, err);
cleanup:
  free(rows);
  if (type >= 0)
    H5Tclose(type);
  return status;
}

wm_status_t wm_frame_read_group(wm_h5_t *file, const char *group, int n, const char *const *names,
                                wm_frame_t *frame, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int i = 0; i < n && status == WM_OK; i++) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", group, names[i]);
    if (wm_h5_has(file, path))
      status = wm_frame_read(file, path, names[i], frame, err);
  }
  return status;
}

wm_status_t wm_h5_read_array(wm_h5_t *file, const char *path, int n_dims, int64_t *dims,
                             double **out, wm_error_t *err) {
  const int64_t zero[WM_H5_MAX_DIMS] = {0};
  int64_t n = 1;
  void *memory = NULL;
  *out = NULL;
  if (!wm_h5_has(file, path))
    return wm_fail(err, WM_INPUT, "%s: there is no %s", wm_h5_path(file), path);
  wm_status_t status = wm_h5_dims(file, path, n_dims, dims, err);
  for (int d = 0; d < n_dims && status == WM_OK; d++)
    n *= dims[d];
  if (status == WM_OK)
    status = wm_alloc(&memory, n, sizeof(double), path, err);
  if (status == WM_OK)
    status = wm_h5_read(file, path, H5T_NATIVE_DOUBLE, zero, dims, memory, err);
  if (status != WM_OK) {
    free(memory);
    memory = NULL;
  }
  *out = memory;
  return status;
}

/* ---- attributes ------------------------------------------------------------------------------ */

typedef struct {
  wm_h5_t *file;
  wm_attributes_t *out;
  wm_error_t *err;
} visit_t;

/* An attribute's value as text; NULL if it is of another kind. */
static wm_status_t attribute_text(wm_h5_t *file, const char *name, H5T_class_t class, char **out,
                                  wm_error_t *err) {
  int64_t integer;
  double real;
  wm_status_t status = WM_OK;
  *out = NULL;
  if (class == H5T_STRING)
    return wm_h5_get_string(file, "/", name, out, err);
  if (class == H5T_INTEGER && (status = wm_h5_get_int(file, "/", name, &integer, err)) == WM_OK)
    *out = wm_format("%lld", (long long)integer);
  else if (class == H5T_FLOAT && (status = wm_h5_get_float(file, "/", name, &real, err)) == WM_OK)
    *out = wm_format("%.17g", real);
  return status;
}

static herr_t visit(hid_t object, const char *name, const H5A_info_t *info, void *context) {
  visit_t *v = context;
  (void)info;
  hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
  hid_t type = attribute >= 0 ? H5Aget_type(attribute) : H5I_INVALID_HID;
  H5T_class_t class = type >= 0 ? H5Tget_class(type) : H5T_NO_CLASS;
  if (type >= 0)
    H5Tclose(type);
  if (attribute >= 0)
    H5Aclose(attribute);
  char *value = NULL, *copy = NULL;
  void *memory = v->out->all;
  wm_status_t status = attribute_text(v->file, name, class, &value, v->err);
  if (status == WM_OK && value == NULL)
    return 0; /* of a kind that reports do not show */
  if (status == WM_OK)
    status = wm_strdup(&copy, name, v->err);
  if (status == WM_OK) {
    status = wm_grow(&memory, &v->out->capacity, v->out->n, v->out->n + 1, sizeof *v->out->all,
                     "attributes", v->err);
    v->out->all = memory;
  }
  if (status != WM_OK) {
    free(value);
    free(copy);
    return -1;
  }
  v->out->all[v->out->n++] = (struct wm_attribute){copy, value};
  return 0;
}

wm_status_t wm_attributes_read(wm_h5_t *file, wm_attributes_t *out, wm_error_t *err) {
  visit_t v = {file, out, err};
  hsize_t at = 0;
  *out = (wm_attributes_t){0};
  err->status = WM_OK;
  if (H5Aiterate2(wm_h5_id(file), H5_INDEX_NAME, H5_ITER_INC, &at, visit, &v) >= 0)
    return WM_OK;
  return err->status != WM_OK
             ? err->status
             : wm_fail(err, WM_INPUT, "%s: cannot read its attributes", wm_h5_path(file));
}

void wm_attributes_destroy(wm_attributes_t *a) {
  for (int i = 0; i < a->n; i++) {
    free(a->all[i].name);
    free(a->all[i].value);
  }
  free(a->all);
  *a = (wm_attributes_t){0};
}

const char *wm_attribute(const wm_attributes_t *a, const char *name) {
  for (int i = 0; i < a->n; i++)
    if (strcmp(a->all[i].name, name) == 0)
      return a->all[i].value;
  return "";
}

double wm_attribute_number(const wm_attributes_t *a, const char *name) {
  const char *text = wm_attribute(a, name);
  char *rest;
  const double value = strtod(text, &rest);
  return rest != text ? value : NAN;
}
