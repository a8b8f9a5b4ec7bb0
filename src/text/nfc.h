/* Normal form C, with the Unicode version of the reference: characters that its normaliser does not
 * know stay as they are. utf8proc has the decompositions and compositions, the tables of unicode.h
 * say to which characters they are applied. */
#ifndef WM_TEXT_NFC_H
#define WM_TEXT_NFC_H

#include "offsets.h"
#include "utf8.h"
#include "wanamaker/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Scratch memory; zero-initialise. */
typedef struct {
  int32_t *points, *source;
  uint64_t *keys;
  int64_t points_capacity, source_capacity, keys_capacity;
} wm_nfc_t;

void wm_nfc_destroy(wm_nfc_t *nfc);

/* Normalises text[bytes] (well formed). *changed = false: the text is normal, `out` and `map` are
 * not touched. Else they are overwritten with the result and the map result -> text, in which what
 * was composed or reordered maps to the first source character of the part that changed. */
wm_status_t wm_nfc(wm_nfc_t *nfc, const uint8_t *flags, const char *text, int64_t bytes,
                   wm_string_t *out, wm_offset_map_t *map, bool *changed, wm_error_t *err);

#endif
