/* Maps byte positions of a changed text back to the text it was made from.
 *
 *   source:  |---- copied ----|..replaced..|-- copied --|
 *   output:  |---- copied ----|.new.|-- copied --|
 *
 * A span says where a part of the output begins and which source byte that is; inside a copied span
 * positions advance together, inside a replaced one all output bytes map to the span's source byte.
 * Positions never decrease. A map without spans is the identity.
 */
#ifndef WM_TEXT_OFFSETS_H
#define WM_TEXT_OFFSETS_H

#include "wanamaker/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
  int64_t output, source;
  bool copied;
} wm_offset_span_t;

/* Zero-initialise, free(spans). */
typedef struct {
  wm_offset_span_t *spans;
  int64_t count, capacity;
  int64_t cursor; /* span of the last look-up: look-ups go forward */
} wm_offset_map_t;

void wm_offset_map_clear(wm_offset_map_t *map);

/* Appends a span; `output` may not be less than that of the span before. */
wm_status_t wm_offset_map_add(wm_offset_map_t *map, int64_t output, int64_t source, bool copied,
                              wm_error_t *err);

/* Source position of output byte `output`, which may not be less than in the call before. */
int64_t wm_offset_map_source(wm_offset_map_t *map, int64_t output);

#endif
