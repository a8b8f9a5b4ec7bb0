/* What corpus.c shares with the readers of its formats, jsonl.c and npy.c. */
#ifndef WANAMAKER_SRC_IO_CORPUS_FORMATS_H
#define WANAMAKER_SRC_IO_CORPUS_FORMATS_H

#include "wanamaker/base/status.h"

#include <stdint.h>

/* Decodes one line of JSON Lines: the string member `field` of the object in line[0, bytes).
 * *buffer (grown, *capacity bytes) receives the row, *row_bytes its length; there is room for one
 * byte more. *replaced is increased by the number of lone surrogates and of maximal ill-formed
 * parts of UTF-8 that became U+FFFD, in the whole line. `where` names file and place. */
wm_status_t wm_jsonl_decode(const char *line, int64_t bytes, const char *field, const char *where,
                            char **buffer, int64_t *capacity, int64_t *row_bytes, int64_t *replaced,
                            wm_error_t *err);

typedef enum { WM_NPY_U2, WM_NPY_I4, WM_NPY_U4, WM_NPY_I8 } wm_npy_type_t;

typedef struct {
  wm_npy_type_t type;
  int64_t count;
  const void *data; /* borrowed from the map, any alignment */
} wm_npy_t;

/* Checks the array file in data[0, bytes), called `path` in messages. */
wm_status_t wm_npy_parse(const char *path, const void *data, int64_t bytes, wm_npy_t *out,
                         wm_error_t *err);
/* Elements [first, first + count) as int32. */
wm_status_t wm_npy_ids(const char *path, const wm_npy_t *array, int64_t first, int64_t count,
                       int32_t *out, wm_error_t *err);

#endif
