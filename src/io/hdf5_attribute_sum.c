/* Attributes against their checksum, which hdf5.h defines. */
#include "hdf5_private.h"

#include "checksum.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/par/comm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char sum_name[] = "attributes_checksum";

/* The bytes that are summed, and the object whose attributes come next. */
typedef struct {
  FILE *stream;
  const char *object;
} bytes_t;

/* The value as it is stored; what has no fixed length counts by its name alone. */
static herr_t add_attribute(hid_t object, const char *name, const H5A_info_t *info, void *client) {
  bytes_t *b = client;
  hid_t id = H5Aopen(object, name, H5P_DEFAULT);
  hid_t type = id >= 0 ? H5Aget_type(id) : H5I_INVALID_HID;
  const size_t bytes = (size_t)info->data_size;
  wm_error_t ignored = {0};
  void *value = NULL;
  bool done = false;
  if (strcmp(b->object, ".") == 0 && strcmp(name, sum_name) == 0) {
    done = true;
  } else if (type >= 0) {
    fwrite(b->object, 1, strlen(b->object) + 1, b->stream);
    fwrite(name, 1, strlen(name) + 1, b->stream);
    if (H5Tdetect_class(type, H5T_VLEN) > 0 || H5Tis_variable_str(type) > 0) {
      done = true;
    } else if (wm_alloc(&value, (int64_t)bytes, 1, "attribute", &ignored) == WM_OK &&
               H5Aread(id, type, value) >= 0) {
      fwrite(value, 1, bytes, b->stream);
      done = true;
    }
  }
  free(value);
  if (type >= 0)
    H5Tclose(type);
  if (id >= 0)
    H5Aclose(id);
  return done ? 0 : -1;
}

static herr_t add_object(hid_t root, const char *name, const H5O_info_t *info, void *client) {
  bytes_t *b = client;
  hsize_t at = 0;
  (void)info;
  b->object = name;
  wm_pulse();
  return H5Aiterate_by_name(root, name, H5_INDEX_NAME, H5_ITER_INC, &at, add_attribute, b,
                            H5P_DEFAULT);
}

/* Not collective. */
static wm_status_t sum_attributes(const wm_h5_t *f, char text[17], wm_error_t *err) {
  char *data = NULL;
  size_t bytes = 0;
  bytes_t b = {.stream = open_memstream(&data, &bytes)};
  wm_status_t status = WM_OK;
  if (b.stream == NULL)
    return wm_fail(err, WM_ENVIRONMENT, "cannot allocate attributes");
  if (H5Ovisit2(f->id, H5_INDEX_NAME, H5_ITER_INC, add_object, &b, H5O_INFO_BASIC) < 0)
    status = wm_h5_fail(err, WM_INPUT, wm_h5_working_path(f), NULL, "read the attributes");
  if (fclose(b.stream) != 0 && status == WM_OK)
    status = wm_fail(err, WM_ENVIRONMENT, "cannot allocate attributes");
  if (status == WM_OK)
    snprintf(text, 17, "%016" PRIx64, wm_checksum_run(data, 1, 0, (int64_t)bytes));
  free(data);
  return status;
}

wm_status_t wm_h5_sum_attributes(wm_h5_t *file, wm_error_t *err) {
  char text[17];
  wm_status_t status = wm_agree(file->comm, sum_attributes(file, text, err), err);
  return status == WM_OK ? wm_h5_set_string(file, "/", sum_name, text, err) : status;
}

wm_status_t wm_h5_verify_attributes(wm_h5_t *file, wm_error_t *err) {
  char found[17], *expected = NULL;
  wm_status_t status;
  if (!wm_h5_has_attribute(file, "/", sum_name))
    return WM_OK; /* of an earlier version */
  WM_TRY(wm_h5_get_string(file, "/", sum_name, &expected, err));
  WM_TRY(wm_agree(file->comm, sum_attributes(file, found, err), err));
  if (strcmp(found, expected) != 0)
    status = wm_fail(err, WM_INPUT, "%s: attributes: checksum %s expected, they have %s",
                     wm_h5_working_path(file), expected, found);
cleanup:
  free(expected);
  return status;
}
