/* Model weights in safetensors files (read-only, memory-mapped).
 *
 * A directory holds model.safetensors, or model.safetensors.index.json and the shards it names.
 * Every offset is checked against the file before a pointer is given out: header length, JSON,
 * dtype, shape times size equal to the extent, extents inside the file, without overlaps or gaps.
 */
#ifndef WANAMAKER_IO_SAFETENSORS_H
#define WANAMAKER_IO_SAFETENSORS_H

#include "wanamaker/base/dtype.h"
#include "wanamaker/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { WM_TENSOR_MAX_DIMS = 8 };

typedef struct {
  const char *name; /* borrowed from the store */
  const char *file; /* path of the shard, for messages; borrowed */
  wm_dtype_t dtype;
  int n_dims;
  int64_t shape[WM_TENSOR_MAX_DIMS];
  int64_t elements, bytes;
  const void *data; /* mapped; may be unaligned for its type: check before casting */
} wm_tensor_t;

typedef struct wm_tensors wm_tensors_t;

/* Not collective. `dir` is a model directory. */
wm_status_t wm_tensors_open(const char *dir, wm_tensors_t **out, wm_error_t *err);
/* Not collective. WM_INPUT if a file was written to or shortened since it was opened. */
wm_status_t wm_tensors_unchanged(const wm_tensors_t *tensors, wm_error_t *err);
void wm_tensors_close(wm_tensors_t *tensors);

int64_t wm_tensors_count(const wm_tensors_t *tensors);
const wm_tensor_t *wm_tensors_at(const wm_tensors_t *tensors, int64_t index); /* sorted by name */
/* NULL if absent. */
const wm_tensor_t *wm_tensors_find(const wm_tensors_t *tensors, const char *name);

/* Tells the system that the tensor's part of the file won't be read for now: its pages leave this
 * process's memory, and come back from the file if they are read after all. */
void wm_tensor_release(const wm_tensor_t *tensor);

/* Fingerprint of all names, types and shapes and of every byte of data: an edited row of one matrix
 * makes another model. */
uint64_t wm_tensors_fingerprint(const wm_tensors_t *tensors);

#endif
