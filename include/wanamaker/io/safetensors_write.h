/* Writing a safetensors file piece by piece: any size in bounded memory. Not collective. */
#ifndef WANAMAKER_IO_SAFETENSORS_WRITE_H
#define WANAMAKER_IO_SAFETENSORS_WRITE_H

#include "wanamaker/base/status.h"
#include "wanamaker/io/safetensors.h"

#include <stdint.h>

typedef struct wm_st_writer wm_st_writer_t;

/* Starts `path` as "path.tmp" with the header for tensors[count]: their names (distinct), types and
 * shapes; the rest of a wm_tensor_t is not read. Data begin at a multiple of 64 bytes. On failure
 * *out is NULL and no file is left. */
wm_status_t wm_st_create(const char *path, const wm_tensor_t *tensors, int64_t count,
                         wm_st_writer_t **out, wm_error_t *err);

/* Appends `bytes` bytes of the tensors' data, which follow one another in the order given. */
wm_status_t wm_st_append(wm_st_writer_t *writer, const void *data, int64_t bytes, wm_error_t *err);

/* Syncs and renames. All data must have come (assertion). The object is gone afterwards, and on
 * failure the temporary file too. */
wm_status_t wm_st_publish(wm_st_writer_t *writer, wm_error_t *err);

/* Gives up: removes the temporary file. NULL is allowed. */
void wm_st_discard(wm_st_writer_t *writer);

#endif
