/* One safetensors file: private to safetensors.c and safetensors_file.c. */
#ifndef WANAMAKER_SRC_IO_SAFETENSORS_FILE_H
#define WANAMAKER_SRC_IO_SAFETENSORS_FILE_H

#include "wanamaker/io/files.h"
#include "wanamaker/io/safetensors.h"

#include <jansson.h>

typedef struct {
  char *path;
  wm_map_t map;
  json_t *header; /* owns the tensors' names */
  wm_tensor_t *tensors;
  int64_t count;
} wm_st_file_t;

/* Maps and checks the file at `path`. On failure *out is zeroed. */
wm_status_t wm_st_file_open(const char *path, wm_st_file_t *out, wm_error_t *err);
/* Harmless on a zeroed object. */
void wm_st_file_close(wm_st_file_t *file);

#endif
