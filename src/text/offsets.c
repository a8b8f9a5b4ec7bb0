#include "offsets.h"

#include "wanamaker/base/mem.h"

void wm_offset_map_clear(wm_offset_map_t *map) {
  map->count = 0;
  map->cursor = 0;
}

wm_status_t wm_offset_map_add(wm_offset_map_t *map, int64_t output, int64_t source, bool copied,
                              wm_error_t *err) {
  wm_status_t status = wm_grow((void **)&map->spans, &map->capacity, map->count, map->count + 1,
                               sizeof *map->spans, "map of text offsets", err);
  if (status == WM_OK)
    map->spans[map->count++] = (wm_offset_span_t){output, source, copied};
  return status;
}

int64_t wm_offset_map_source(wm_offset_map_t *map, int64_t output) {
  if (map->count == 0)
    return output;
  while (map->cursor + 1 < map->count && map->spans[map->cursor + 1].output <= output)
    map->cursor++;
  const wm_offset_span_t *span = &map->spans[map->cursor];
  return span->copied ? span->source + (output - span->output) : span->source;
}
