#include "utf8.h"

#include "wanamaker/base/mem.h"

#include <string.h>

int wm_utf8_put(uint32_t c, char *out) {
  if (c < 0x80) {
    out[0] = (char)c;
    return 1;
  }
  if (c < 0x800) {
    out[0] = (char)(0xC0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3F));
    return 2;
  }
  if (c < 0x10000) {
    out[0] = (char)(0xE0 | c >> 12);
    out[1] = (char)(0x80 | (c >> 6 & 0x3F));
    out[2] = (char)(0x80 | (c & 0x3F));
    return 3;
  }
  out[0] = (char)(0xF0 | c >> 18);
  out[1] = (char)(0x80 | (c >> 12 & 0x3F));
  out[2] = (char)(0x80 | (c >> 6 & 0x3F));
  out[3] = (char)(0x80 | (c & 0x3F));
  return 4;
}

/* The sequence that begins at t[0], of which `left` bytes are at hand: returns true and its length
 * if it is well formed, else false and the length of its maximal subpart (at least 1). */
static bool sequence(const unsigned char *t, int64_t left, int *length) {
  unsigned char low = 0x80, high = 0xBF; /* bounds of the second byte, Unicode table 3-7 */
  int wanted;
  *length = 1;
  if (t[0] < 0x80)
    return true;
  if (t[0] < 0xC2 || t[0] > 0xF4)
    return false;
  if (t[0] < 0xE0) {
    wanted = 2;
  } else if (t[0] < 0xF0) {
    wanted = 3;
    low = t[0] == 0xE0 ? 0xA0 : 0x80;
    high = t[0] == 0xED ? 0x9F : 0xBF;
  } else {
    wanted = 4;
    low = t[0] == 0xF0 ? 0x90 : 0x80;
    high = t[0] == 0xF4 ? 0x8F : 0xBF;
  }
  for (; *length < wanted; (*length)++) {
    if (*length >= left || t[*length] < low || t[*length] > high)
      return false;
    low = 0x80;
    high = 0xBF;
  }
  return true;
}

int64_t wm_utf8_well_formed(const char *text, int64_t bytes) {
  const unsigned char *t = (const unsigned char *)text;
  int64_t i = 0;
  while (i < bytes) {
    uint64_t eight;
    if (bytes - i >= 8) { /* ASCII, eight bytes at once */
      memcpy(&eight, t + i, 8);
      if ((eight & 0x8080808080808080u) == 0) {
        i += 8;
        continue;
      }
    }
    int length;
    if (!sequence(t + i, bytes - i, &length))
      return i;
    i += length;
  }
  return bytes;
}

wm_status_t wm_string_append(wm_string_t *string, const char *text, int64_t bytes,
                             wm_error_t *err) {
  wm_status_t status = wm_grow((void **)&string->data, &string->capacity, string->bytes,
                               string->bytes + bytes, 1, "text", err);
  if (status != WM_OK)
    return status;
  if (bytes > 0)
    memcpy(string->data + string->bytes, text, (size_t)bytes);
  string->bytes += bytes;
  return WM_OK;
}

wm_status_t wm_utf8_repair(const char *text, int64_t bytes, wm_string_t *out, wm_offset_map_t *map,
                           int64_t *replaced, wm_error_t *err) {
  wm_status_t status = WM_OK;
  out->bytes = 0;
  wm_offset_map_clear(map);
  for (int64_t i = 0; i < bytes;) {
    int64_t good = wm_utf8_well_formed(text + i, bytes - i);
    if (good > 0) {
      WM_TRY(wm_offset_map_add(map, out->bytes, i, true, err));
      WM_TRY(wm_string_append(out, text + i, good, err));
      i += good;
    }
    if (i < bytes) {
      int length;
      sequence((const unsigned char *)text + i, bytes - i, &length);
      WM_TRY(wm_offset_map_add(map, out->bytes, i, false, err));
      WM_TRY(wm_string_append(out, "\xEF\xBF\xBD", 3, err));
      i += length;
      (*replaced)++;
    }
  }
cleanup:
  return status;
}
