/* Layout of a safetensors file:
 *
 *   byte 0            8              8 + H                             end of file
 *        | H, u64 LE  | JSON header  | data of the tensors, no gaps    |
 *
 * The header maps each name to {"dtype", "shape", "data_offsets": [begin, end)}, offsets counted
 * from 8 + H; "__metadata__" is free text. Reference: the format section of
 * https://github.com/huggingface/safetensors. */
#include "safetensors_file.h"

#include "wanamaker/base/json.h"
#include "wanamaker/base/mem.h"

#include <string.h>

enum { LENGTH_BYTES = 8, HEADER_LIMIT = 100000000 /* the reference implementation's */ };

static wm_status_t tensor_fail(wm_error_t *err, const wm_tensor_t *t, const char *what) {
  return wm_fail(err, WM_INPUT, "%s: tensor \"%s\": %s", t->file, t->name, what);
}

static wm_status_t parse_dtype(const json_t *entry, wm_tensor_t *t, wm_error_t *err) {
  const json_t *value = json_object_get(entry, "dtype");
  if (!json_is_string(value))
    return tensor_fail(err, t, "\"dtype\" must be a string");
  const char *name = json_string_value(value);
  for (int d = WM_DTYPE_F64; d <= WM_DTYPE_BOOL; d++)
    if (strcmp(name, wm_dtype_name((wm_dtype_t)d)) == 0) {
      t->dtype = (wm_dtype_t)d;
      return WM_OK;
    }
  return wm_fail(err, WM_INPUT,
                 "%s: tensor \"%s\": dtype %s is not supported (expected F64, F32, F16, BF16, I64, "
                 "I32, I16, I8, U8 or BOOL)",
                 t->file, t->name, name);
}

static wm_status_t parse_shape(const json_t *entry, wm_tensor_t *t, wm_error_t *err) {
  const json_t *shape = json_object_get(entry, "shape");
  if (!json_is_array(shape))
    return tensor_fail(err, t, "\"shape\" must be an array");
  size_t n = json_array_size(shape);
  if (n > WM_TENSOR_MAX_DIMS)
    return wm_fail(err, WM_INPUT, "%s: tensor \"%s\": has %zu dimensions, at most %d are supported",
                   t->file, t->name, n, WM_TENSOR_MAX_DIMS);
  t->n_dims = (int)n;
  t->elements = 1;
  for (size_t i = 0; i < n; i++) {
    const json_t *extent = json_array_get(shape, i);
    if (!json_is_integer(extent) || json_integer_value(extent) < 0)
      return tensor_fail(err, t, "\"shape\" must hold integers that are not negative");
    t->shape[i] = (int64_t)json_integer_value(extent);
    if (__builtin_mul_overflow(t->elements, t->shape[i], &t->elements))
      return tensor_fail(err, t, "the number of elements passes 2^63");
  }
  if (__builtin_mul_overflow(t->elements, wm_dtype_size(t->dtype), &t->bytes))
    return tensor_fail(err, t, "the number of bytes passes 2^63");
  return WM_OK;
}

/* Sets t->data. `data` is the file's data section of `bytes` bytes. */
static wm_status_t parse_offsets(const json_t *entry, const char *data, int64_t bytes,
                                 wm_tensor_t *t, wm_error_t *err) {
  const json_t *offsets = json_object_get(entry, "data_offsets");
  const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
  if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
    return tensor_fail(err, t, "\"data_offsets\" must be an array of two integers");
  int64_t begin = (int64_t)json_integer_value(first), end = (int64_t)json_integer_value(last);
  if (begin < 0 || end < begin || end > bytes)
    return wm_fail(err, WM_INPUT,
                   "%s: tensor \"%s\": data_offsets [%lld, %lld) must lie in order inside the %lld "
                   "bytes of data%s",
                   t->file, t->name, (long long)begin, (long long)end, (long long)bytes,
                   end > bytes ? " (is the file complete?)" : "");
  if (end - begin != t->bytes)
    return wm_fail(err, WM_INPUT,
                   "%s: tensor \"%s\": shape and dtype %s make %lld bytes, but data_offsets span "
                   "%lld",
                   t->file, t->name, wm_dtype_name(t->dtype), (long long)t->bytes,
                   (long long)(end - begin));
  t->data = data + begin;
  return WM_OK;
}

static wm_status_t parse_tensor(const json_t *entry, const char *data, int64_t bytes,
                                wm_tensor_t *t, wm_error_t *err) {
  if (!json_is_object(entry))
    return tensor_fail(err, t, "its entry in the header must be an object");
  wm_status_t status = parse_dtype(entry, t, err);
  if (status == WM_OK)
    status = parse_shape(entry, t, err);
  if (status == WM_OK)
    status = parse_offsets(entry, data, bytes, t, err);
  return status;
}

static int by_extent(const void *a, const void *b) {
  const wm_tensor_t *x = a, *y = b;
  if (x->data != y->data)
    return (const char *)x->data < (const char *)y->data ? -1 : 1;
  return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty tensors before the full one */
}

/* The tensors must tile the data section. Sorts them by place. */
static wm_status_t check_tiling(wm_st_file_t *f, const char *data, int64_t bytes, wm_error_t *err) {
  if (f->count > 0)
    qsort(f->tensors, (size_t)f->count, sizeof *f->tensors, by_extent);
  int64_t reached = 0;
  for (int64_t i = 0; i < f->count; i++) {
    const wm_tensor_t *t = &f->tensors[i];
    int64_t begin = (const char *)t->data - data;
    if (begin != reached)
      return wm_fail(err, WM_INPUT,
                     "%s: tensor \"%s\": begins at byte %lld of the data, where %lld is expected "
                     "(%s)",
                     f->path, t->name, (long long)begin, (long long)reached,
                     begin > reached ? "a gap" : "tensors overlap");
    reached += t->bytes;
  }
  if (reached != bytes)
    return wm_fail(err, WM_INPUT, "%s: %lld bytes follow the last tensor", f->path,
                   (long long)(bytes - reached));
  return WM_OK;
}

/* Reads the length of the header and parses it. */
static wm_status_t parse_header(wm_st_file_t *f, int64_t *length, wm_error_t *err) {
  if (f->map.bytes < LENGTH_BYTES)
    return wm_fail(err, WM_INPUT, "%s: holds %lld bytes; a safetensors file has at least 8",
                   f->path, (long long)f->map.bytes);
  const unsigned char *bytes = f->map.data;
  uint64_t announced = 0;
  for (int i = LENGTH_BYTES; i-- > 0;)
    announced = announced << 8 | bytes[i];
  if (announced > HEADER_LIMIT)
    return wm_fail(err, WM_INPUT,
                   "%s: announces a header of %llu bytes, at most %d are allowed (is it a "
                   "safetensors file?)",
                   f->path, (unsigned long long)announced, HEADER_LIMIT);
  if ((int64_t)announced > f->map.bytes - LENGTH_BYTES)
    return wm_fail(err, WM_INPUT,
                   "%s: announces a header of %llu bytes, but only %lld follow (is the file "
                   "complete?)",
                   f->path, (unsigned long long)announced, (long long)f->map.bytes - LENGTH_BYTES);
  *length = (int64_t)announced;
  const char *text = (const char *)bytes + LENGTH_BYTES;
  if (announced == 0 || text[0] != '{')
    return wm_fail(err, WM_INPUT, "%s: byte 8: the header must begin with '{'", f->path);
  return wm_json_parse(text, (size_t)announced, f->path, &f->header, err);
}

static wm_status_t check_metadata(const wm_st_file_t *f, const json_t *metadata, wm_error_t *err) {
  const char *key;
  json_t *value;
  if (!json_is_object(metadata))
    return wm_fail(err, WM_INPUT, "%s: \"__metadata__\" must be an object", f->path);
  json_object_foreach((json_t *)metadata, key, value) {
    if (!json_is_string(value))
      return wm_fail(err, WM_INPUT, "%s: \"__metadata__\": \"%s\" must be a string", f->path, key);
  }
  return WM_OK;
}

static wm_status_t parse_entries(wm_st_file_t *f, const char *data, int64_t bytes,
                                 wm_error_t *err) {
  const char *key;
  json_t *entry;
  json_object_foreach(f->header, key, entry) {
    wm_status_t status;
    if (strcmp(key, "__metadata__") == 0) {
      status = check_metadata(f, entry, err);
    } else {
      wm_tensor_t *t = &f->tensors[f->count++];
      t->name = key;
      t->file = f->path;
      status = parse_tensor(entry, data, bytes, t, err);
    }
    if (status != WM_OK)
      return status;
  }
  return WM_OK;
}

wm_status_t wm_st_file_open(const char *path, wm_st_file_t *out, wm_error_t *err) {
  *out = (wm_st_file_t){0};
  wm_status_t status;
  int64_t length = 0;
  void *memory = NULL;
  WM_TRY(wm_strdup(&out->path, path, err));
  WM_TRY(wm_map_open(path, &out->map, err));
  WM_TRY(parse_header(out, &length, err));
  WM_TRY(wm_alloc(&memory, (int64_t)json_object_size(out->header), sizeof(wm_tensor_t), path, err));
  out->tensors = memory;
  const char *data = (const char *)out->map.data + LENGTH_BYTES + length;
  int64_t bytes = out->map.bytes - LENGTH_BYTES - length;
  WM_TRY(parse_entries(out, data, bytes, err));
  WM_TRY(check_tiling(out, data, bytes, err));
cleanup:
  if (status != WM_OK)
    wm_st_file_close(out);
  return status;
}

void wm_st_file_close(wm_st_file_t *file) {
  free(file->tensors);
  json_decref(file->header);
  wm_map_close(&file->map);
  free(file->path);
  *file = (wm_st_file_t){0};
}
