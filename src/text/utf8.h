/* UTF-8: decoding, and the repair of ill-formed text. */
#ifndef WM_TEXT_UTF8_H
#define WM_TEXT_UTF8_H

#include "offsets.h"
#include "wanamaker/base/status.h"

#include <stdint.h>

/* Decodes the character at text[0]; *length is its number of bytes (1 to 4). The text must be well
 * formed. */
static inline uint32_t wm_utf8_get(const char *text, int *length) {
  const unsigned char *t = (const unsigned char *)text;
  if (t[0] < 0x80) {
    *length = 1;
    return t[0];
  }
  if (t[0] < 0xE0) {
    *length = 2;
    return (t[0] & 0x1Fu) << 6 | (t[1] & 0x3Fu);
  }
  if (t[0] < 0xF0) {
    *length = 3;
    return (t[0] & 0x0Fu) << 12 | (t[1] & 0x3Fu) << 6 | (t[2] & 0x3Fu);
  }
  *length = 4;
  return (t[0] & 0x07u) << 18 | (t[1] & 0x3Fu) << 12 | (t[2] & 0x3Fu) << 6 | (t[3] & 0x3Fu);
}

/* Writes `c` to out[0..3] and returns the number of bytes. */
int wm_utf8_put(uint32_t c, char *out);

/* Length of the longest prefix of text[bytes] that is well-formed UTF-8 (no surrogates, no overlong
 * forms, nothing above U+10FFFF). */
int64_t wm_utf8_well_formed(const char *text, int64_t bytes);

/* A growing string; zero-initialise, free(data). */
typedef struct {
  char *data;
  int64_t bytes, capacity;
} wm_string_t;

wm_status_t wm_string_append(wm_string_t *string, const char *text, int64_t bytes, wm_error_t *err);

/* Puts U+FFFD in place of each maximal subpart of an ill-formed sequence (Unicode 3.9, table 3-8;
 * what Python's errors="replace" does). `out` and `map` (out -> text) are overwritten; *replaced is
 * increased by the number of replacements. */
wm_status_t wm_utf8_repair(const char *text, int64_t bytes, wm_string_t *out, wm_offset_map_t *map,
                           int64_t *replaced, wm_error_t *err);

#endif
