#include "wanamaker/io/safetensors_write.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/io/files.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH_BYTES = 8, ALIGN = 64 };

struct wm_st_writer {
  char *path, *temporary;
  FILE *file;
  int64_t left; /* bytes of data still to come */
};

static int64_t bytes_of(const wm_tensor_t *t) {
  int64_t bytes = wm_dtype_size(t->dtype);
  for (int i = 0; i < t->n_dims; i++)
    bytes *= t->shape[i];
  return bytes;
}

/* {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}; a new reference or NULL. */
static json_t *describe(const wm_tensor_t *t, int64_t begin) {
  json_t *shape = json_array();
  for (int i = 0; i < t->n_dims; i++)
    json_array_append_new(shape, json_integer(t->shape[i]));
  return json_pack("{s:s, s:o, s:[I, I]}", "dtype", wm_dtype_name(t->dtype), "shape", shape,
                   "data_offsets", (json_int_t)begin, (json_int_t)(begin + bytes_of(t)));
}

/* The header's text, free(); NULL when memory is exhausted. *data: bytes of all tensors. */
static char *make_header(const wm_tensor_t *tensors, int64_t count, int64_t *data) {
  json_t *header = json_object();
  bool made = header != NULL && /* without it transformers refuses the file */
              json_object_set_new(header, "__metadata__", json_pack("{s:s}", "format", "pt")) == 0;
  *data = 0;
  for (int64_t i = 0; i < count && made; i++) {
    made = json_object_set_new(header, tensors[i].name, describe(&tensors[i], *data)) == 0;
    *data += bytes_of(&tensors[i]);
  }
  char *text = made ? json_dumps(header, JSON_COMPACT) : NULL;
  json_decref(header);
  return text;
}

static wm_status_t write_bytes(wm_st_writer_t *w, const void *data, size_t bytes, wm_error_t *err) {
  if (fwrite(data, 1, bytes, w->file) != bytes)
    return wm_fail(err, WM_ENVIRONMENT, "%s: cannot write: %s", w->temporary, strerror(errno));
  return WM_OK;
}

/* The length, little-endian, and the text with blanks up to where data may begin. */
static wm_status_t write_header(wm_st_writer_t *w, const char *text, wm_error_t *err) {
  size_t length = strlen(text);
  size_t padded = (LENGTH_BYTES + length + ALIGN - 1) / ALIGN * ALIGN - LENGTH_BYTES;
  unsigned char bytes[LENGTH_BYTES];
  for (int i = 0; i < LENGTH_BYTES; i++)
    bytes[i] = (unsigned char)((uint64_t)padded >> 8 * i);
  char blanks[ALIGN];
  memset(blanks, ' ', sizeof blanks);
  wm_status_t status = write_bytes(w, bytes, sizeof bytes, err);
  if (status == WM_OK)
    status = write_bytes(w, text, length, err);
  return status == WM_OK ? write_bytes(w, blanks, padded - length, err) : status;
}

wm_status_t wm_st_create(const char *path, const wm_tensor_t *tensors, int64_t count,
                         wm_st_writer_t **out, wm_error_t *err) {
  *out = NULL;
  void *memory;
  char *text = NULL;
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_st_writer_t), "a file of weights", err);
  if (status != WM_OK)
    return status;
  wm_st_writer_t *w = memory;
  WM_TRY(wm_strdup(&w->path, path, err));
  w->temporary = wm_format("%s.tmp", path);
  text = make_header(tensors, count, &w->left);
  if (w->temporary == NULL || text == NULL) {
    status = wm_fail(err, WM_ENVIRONMENT, "%s: no memory for its header", path);
    goto cleanup;
  }
  w->file = fopen(w->temporary, "wb");
  if (w->file == NULL) {
    status = wm_fail(err, WM_ENVIRONMENT, "%s: cannot be made: %s", w->temporary, strerror(errno));
    goto cleanup;
  }
  WM_TRY(write_header(w, text, err));
  *out = w;
cleanup:
  free(text);
  if (status != WM_OK)
    wm_st_discard(w);
  return status;
}

wm_status_t wm_st_append(wm_st_writer_t *writer, const void *data, int64_t bytes, wm_error_t *err) {
  assert(bytes >= 0 && bytes <= writer->left);
  writer->left -= bytes;
  return write_bytes(writer, data, (size_t)bytes, err);
}

static void writer_free(wm_st_writer_t *w) {
  free(w->path);
  free(w->temporary);
  free(w);
}

wm_status_t wm_st_publish(wm_st_writer_t *w, wm_error_t *err) {
  assert(w->left == 0);
  wm_status_t status = WM_OK;
  if (fclose(w->file) != 0)
    status = wm_fail(err, WM_ENVIRONMENT, "%s: cannot write: %s", w->temporary, strerror(errno));
  w->file = NULL;
  if (status == WM_OK)
    status = wm_publish(w->temporary, w->path, err);
  if (status != WM_OK) {
    unlink(w->temporary);
  }
  writer_free(w);
  return status;
}

void wm_st_discard(wm_st_writer_t *w) {
  if (w == NULL)
    return;
  if (w->file != NULL) {
    fclose(w->file);
    unlink(w->temporary);
  }
  writer_free(w);
}
