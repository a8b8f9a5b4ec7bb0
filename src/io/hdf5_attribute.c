/* Attributes: scalars of the types that hdf5.h lists. */
#include "hdf5_private.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/par/comm.h"

#include <assert.h>
#include <string.h>

/* Text of `bytes` bytes with the terminating zero. */
static hid_t text_type(size_t bytes) {
  hid_t type = H5Tcopy(H5T_C_S1);
  if (type >= 0 && (H5Tset_size(type, bytes) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0 ||
                    H5Tset_strpad(type, H5T_STR_NULLTERM) < 0)) {
    H5Tclose(type);
    return H5I_INVALID_HID;
  }
  return type;
}

static wm_status_t write_attribute(wm_h5_t *f, const char *object, const char *name, hid_t stored,
                                   hid_t type, hid_t space, const void *value, wm_error_t *err) {
  const char *path = wm_h5_working_path(f);
  wm_status_t status = WM_OK;
  hid_t attribute = H5I_INVALID_HID;
  htri_t exists = H5Aexists_by_name(f->id, object, name, H5P_DEFAULT);
  WM_H5_TRY(exists, WM_ENVIRONMENT, path, object, "look up an attribute");
  if (exists)
    WM_H5_TRY(H5Adelete_by_name(f->id, object, name, H5P_DEFAULT), WM_ENVIRONMENT, path, object,
              "replace an attribute");
  attribute =
      H5Acreate_by_name(f->id, object, name, stored, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  WM_H5_TRY(attribute, WM_ENVIRONMENT, path, object, "create an attribute");
  WM_H5_TRY(H5Awrite(attribute, type, value), WM_ENVIRONMENT, path, object, "write an attribute");
cleanup:
  if (attribute >= 0 && H5Aclose(attribute) < 0 && status == WM_OK)
    status = wm_h5_fail(err, WM_ENVIRONMENT, path, object, "close an attribute");
  if (status != WM_OK)
    wm_error_prefix(err, "attribute \"%s\"", name);
  return status;
}

/* Collective. `bytes` is the value's size. */
static wm_status_t set(wm_h5_t *f, const char *object, const char *name, hid_t stored, hid_t type,
                       const void *value, int64_t bytes, wm_error_t *err) {
  assert(f->temporary != NULL);
  assert(wm_all_equal(f->comm, value, bytes)); /* else the ranks' metadata would differ */
  hid_t space = H5Screate(H5S_SCALAR);
  wm_status_t status = WM_OK;
  if (stored < 0 || space < 0)
    status = wm_h5_fail(err, WM_ENVIRONMENT, f->temporary, object, "make a type");
  WM_TRY(wm_agree(f->comm, status, err));
  status = write_attribute(f, object, name, stored, type, space, value, err);
  status = wm_agree(f->comm, status, err);
cleanup:
  if (space >= 0)
    H5Sclose(space);
  return status;
}

wm_status_t wm_h5_set_string(wm_h5_t *file, const char *object, const char *name, const char *value,
                             wm_error_t *err) {
  size_t bytes = strlen(value) + 1;
  hid_t type = text_type(bytes);
  wm_status_t status = set(file, object, name, type, type, value, (int64_t)bytes, err);
  if (type >= 0)
    H5Tclose(type);
  return status;
}

wm_status_t wm_h5_set_int(wm_h5_t *file, const char *object, const char *name, int64_t value,
                          wm_error_t *err) {
  return set(file, object, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value, sizeof value, err);
}

wm_status_t wm_h5_set_float(wm_h5_t *file, const char *object, const char *name, double value,
                            wm_error_t *err) {
  return set(file, object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value, sizeof value, err);
}

bool wm_h5_has_attribute(wm_h5_t *file, const char *object, const char *name) {
  return H5Aexists_by_name(file->id, object, name, H5P_DEFAULT) > 0;
}

/* Opens a scalar attribute. */
static wm_status_t open_attribute(const wm_h5_t *f, const char *object, const char *name,
                                  hid_t *attribute, hid_t *type, wm_error_t *err) {
  const char *path = wm_h5_working_path(f);
  wm_status_t status = WM_OK;
  hid_t space = H5I_INVALID_HID;
  *attribute = *type = H5I_INVALID_HID;
  const htri_t exists = H5Aexists_by_name(f->id, object, name, H5P_DEFAULT);
  if (exists < 0) /* a damaged header, too */
    return wm_h5_fail(err, WM_INPUT, path, object, "look up an attribute");
  if (!exists)
    return wm_fail(err, WM_INPUT, "%s: %s: attribute \"%s\" is missing", path, object, name);
  *attribute = H5Aopen_by_name(f->id, object, name, H5P_DEFAULT, H5P_DEFAULT);
  WM_H5_TRY(*attribute, WM_INPUT, path, object, "open an attribute");
  *type = H5Aget_type(*attribute);
  WM_H5_TRY(*type, WM_INPUT, path, object, "get an attribute's type");
  space = H5Aget_space(*attribute);
  WM_H5_TRY(space, WM_INPUT, path, object, "get an attribute's extent");
  if (H5Sget_simple_extent_npoints(space) != 1)
    status =
        wm_fail(err, WM_INPUT, "%s: %s: attribute \"%s\" must be one value", path, object, name);
cleanup:
  if (space >= 0)
    H5Sclose(space);
  return status;
}

static void close_attribute(hid_t attribute, hid_t type) {
  if (type >= 0)
    H5Tclose(type);
  if (attribute >= 0)
    H5Aclose(attribute);
}

static wm_status_t read_number(const wm_h5_t *f, const char *object, const char *name, hid_t wanted,
                               const char *what, void *out, wm_error_t *err) {
  const char *path = wm_h5_working_path(f);
  hid_t attribute, type;
  wm_status_t status;
  WM_TRY(open_attribute(f, object, name, &attribute, &type, err));
  if (!wm_h5_type_fits(type, wanted))
    status =
        wm_fail(err, WM_INPUT, "%s: %s: attribute \"%s\" must be %s", path, object, name, what);
  else
    WM_H5_TRY(H5Aread(attribute, wanted, out), WM_INPUT, path, object, "read an attribute");
cleanup:
  close_attribute(attribute, type);
  return status;
}

static wm_status_t read_string(const wm_h5_t *f, const char *object, const char *name, char **out,
                               wm_error_t *err) {
  const char *path = wm_h5_working_path(f);
  hid_t attribute, type, wanted = H5I_INVALID_HID;
  void *memory = NULL;
  wm_status_t status;
  WM_TRY(open_attribute(f, object, name, &attribute, &type, err));
  if (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) != 0) {
    status = wm_fail(err, WM_INPUT, "%s: %s: attribute \"%s\" must be a string of fixed length",
                     path, object, name);
    goto cleanup;
  }
  size_t bytes = H5Tget_size(type);
  WM_TRY(wm_alloc(&memory, (int64_t)bytes + 1, 1, name, err));
  wanted = H5Tcopy(type);
  WM_H5_TRY(wanted, WM_ENVIRONMENT, path, object, "copy an attribute's type");
  WM_H5_TRY(H5Aread(attribute, wanted, memory), WM_INPUT, path, object, "read an attribute");
cleanup:
  if (wanted >= 0)
    H5Tclose(wanted);
  close_attribute(attribute, type);
  *out = memory;
  return status;
}

wm_status_t wm_h5_get_string(wm_h5_t *file, const char *object, const char *name, char **out,
                             wm_error_t *err) {
  wm_status_t status = wm_agree(file->comm, read_string(file, object, name, out, err), err);
  if (status != WM_OK) {
    free(*out);
    *out = NULL;
  }
  return status;
}

wm_status_t wm_h5_get_int(wm_h5_t *file, const char *object, const char *name, int64_t *out,
                          wm_error_t *err) {
  wm_status_t status =
      read_number(file, object, name, H5T_NATIVE_INT64, "an integer of 64 bits", out, err);
  return wm_agree(file->comm, status, err);
}

wm_status_t wm_h5_get_float(wm_h5_t *file, const char *object, const char *name, double *out,
                            wm_error_t *err) {
  wm_status_t status =
      read_number(file, object, name, H5T_NATIVE_DOUBLE, "a floating-point number", out, err);
  return wm_agree(file->comm, status, err);
}
