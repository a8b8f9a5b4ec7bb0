/* Text falls into segments: a character that begins one has combining class 0 and never composes
 * with what precedes it (it's no WM_NFC_TRIGGER), so that segments can be normalised apart. Those
 * of one character are normal; the others are decomposed, ordered and composed (UAX 15). */
#include "nfc.h"

#include "unicode.h"
#include "wanamaker/base/mem.h"

#include <stdlib.h>
#include <utf8proc.h>

enum { MAX_DECOMPOSED = 16 }; /* of one character; Unicode needs 4 */

void wm_nfc_destroy(wm_nfc_t *nfc) {
  free(nfc->points);
  free(nfc->source);
  free(nfc->keys);
  *nfc = (wm_nfc_t){0};
}

static bool is_trigger(const uint8_t *flags, const char *text, int *length) {
  return flags[wm_utf8_get(text, length)] & WM_NFC_TRIGGER;
}

/* The next segment of several characters at or after `at`; false if there is none. */
static bool next_segment(const uint8_t *flags, const char *text, int64_t bytes, int64_t at,
                         int64_t *first, int64_t *end) {
  int length;
  int64_t i = *first = at;
  while (i < bytes && !is_trigger(flags, text + i, &length)) {
    *first = i;
    i += length;
  }
  if (i >= bytes)
    return false;
  while (i < bytes && is_trigger(flags, text + i, &length))
    i += length;
  *end = i;
  return true;
}

static int combining_class(const uint8_t *flags, int32_t c) {
  return flags[c] & WM_NFC_TRIGGER ? utf8proc_get_property(c)->combining_class : 0;
}

static int compare_keys(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* Sorts points[n], all of combining class above 0, by class; stable, as the place is in the key. */
static wm_status_t order_marks(wm_nfc_t *nfc, const uint8_t *flags, int32_t *points, int64_t n,
                               wm_error_t *err) {
  if (n < 2)
    return WM_OK;
  /* key: class (8 bits), place (35 bits), code point (21 bits) */
  wm_status_t status = wm_grow((void **)&nfc->keys, &nfc->keys_capacity, 0, n, sizeof *nfc->keys,
                               "combining marks", err);
  if (status != WM_OK)
    return status;
  for (int64_t i = 0; i < n; i++)
    nfc->keys[i] =
        (uint64_t)combining_class(flags, points[i]) << 56 | (uint64_t)i << 21 | (uint64_t)points[i];
  qsort(nfc->keys, (size_t)n, sizeof *nfc->keys, compare_keys);
  for (int64_t i = 0; i < n; i++)
    points[i] = (int32_t)(nfc->keys[i] & 0x1FFFFF);
  return WM_OK;
}

static wm_status_t canonical_order(wm_nfc_t *nfc, const uint8_t *flags, int64_t n,
                                   wm_error_t *err) {
  for (int64_t i = 0; i < n;) {
    int64_t first = i;
    while (i < n && combining_class(flags, nfc->points[i]) != 0)
      i++;
    wm_status_t status = order_marks(nfc, flags, nfc->points + first, i - first, err);
    if (status != WM_OK)
      return status;
    i += i == first;
  }
  return WM_OK;
}

/* Decodes the segment into nfc->source[*n_source] and its decomposition into nfc->points[*n]. */
static wm_status_t decompose(wm_nfc_t *nfc, const uint8_t *flags, const char *text, int64_t bytes,
                             int64_t *n_source, int64_t *n, wm_error_t *err) {
  wm_status_t status = WM_OK;
  *n_source = *n = 0;
  for (int64_t i = 0; i < bytes;) {
    int length;
    int32_t c = (int32_t)wm_utf8_get(text + i, &length);
    i += length;
    WM_TRY(wm_grow((void **)&nfc->source, &nfc->source_capacity, *n_source, *n_source + 1,
                   sizeof *nfc->source, "characters", err));
    nfc->source[(*n_source)++] = c;
    WM_TRY(wm_grow((void **)&nfc->points, &nfc->points_capacity, *n, *n + MAX_DECOMPOSED,
                   sizeof *nfc->points, "characters", err));
    nfc->points[*n] = c;
    utf8proc_ssize_t parts = 1;
    int boundary = 0;
    if (flags[c] & WM_NFC_TOUCHED)
      parts = utf8proc_decompose_char(c, nfc->points + *n, MAX_DECOMPOSED, UTF8PROC_DECOMPOSE,
                                      &boundary);
    if (parts < 0 || parts > MAX_DECOMPOSED)
      return wm_fail(err, WM_ENVIRONMENT, "utf8proc cannot decompose U+%04X: %s", (unsigned)c,
                     parts < 0 ? utf8proc_errmsg(parts) : "too long");
    *n += parts;
  }
cleanup:
  return status;
}

/* Appends points[n] to `out`. */
static wm_status_t append_points(wm_string_t *out, const int32_t *points, int64_t n,
                                 wm_error_t *err) {
  for (int64_t i = 0; i < n; i++) {
    char utf8[4];
    wm_status_t status = wm_string_append(out, utf8, wm_utf8_put((uint32_t)points[i], utf8), err);
    if (status != WM_OK)
      return status;
  }
  return WM_OK;
}

static int64_t utf8_bytes(const int32_t *points, int64_t n) {
  char utf8[4];
  int64_t bytes = 0;
  for (int64_t i = 0; i < n; i++)
    bytes += wm_utf8_put((uint32_t)points[i], utf8);
  return bytes;
}

/* Appends the normal form points[n] of the segment text[bytes], which begins at `at` in the whole
 * text. The characters that it shares with the source at its start and end map one to one. */
static wm_status_t append_segment(const wm_nfc_t *nfc, int64_t n_source, int64_t n, int64_t at,
                                  int64_t bytes, wm_string_t *out, wm_offset_map_t *map,
                                  wm_error_t *err) {
  wm_status_t status = WM_OK;
  int64_t shorter = n < n_source ? n : n_source, head = 0, tail = 0;
  while (head < shorter && nfc->points[head] == nfc->source[head])
    head++;
  while (tail < shorter - head && nfc->points[n - 1 - tail] == nfc->source[n_source - 1 - tail])
    tail++;
  WM_TRY(wm_offset_map_add(map, out->bytes, at, true, err));
  WM_TRY(append_points(out, nfc->points, head, err));
  WM_TRY(wm_offset_map_add(map, out->bytes, at + utf8_bytes(nfc->source, head), false, err));
  WM_TRY(append_points(out, nfc->points + head, n - head - tail, err));
  int64_t tail_at = at + bytes - utf8_bytes(nfc->source + n_source - tail, tail);
  WM_TRY(wm_offset_map_add(map, out->bytes, tail_at, true, err));
  WM_TRY(append_points(out, nfc->points + n - tail, tail, err));
cleanup:
  return status;
}

/* Puts the normal form of the segment text[bytes] into nfc->points[*n]. */
static wm_status_t normalise_segment(wm_nfc_t *nfc, const uint8_t *flags, const char *text,
                                     int64_t bytes, int64_t *n_source, int64_t *n,
                                     wm_error_t *err) {
  wm_status_t status = decompose(nfc, flags, text, bytes, n_source, n, err);
  if (status != WM_OK)
    return status;
  status = canonical_order(nfc, flags, *n, err);
  if (status != WM_OK)
    return status;
  /* A first character that the reference's normaliser does not know composes with nothing. */
  int64_t apart = flags[nfc->points[0]] & WM_NFC_TOUCHED ? 0 : 1;
  utf8proc_ssize_t composed =
      utf8proc_normalize_utf32(nfc->points + apart, *n - apart, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  if (composed < 0)
    return wm_fail(err, WM_ENVIRONMENT, "utf8proc: %s", utf8proc_errmsg(composed));
  *n = apart + composed;
  return WM_OK;
}

wm_status_t wm_nfc(wm_nfc_t *nfc, const uint8_t *flags, const char *text, int64_t bytes,
                   wm_string_t *out, wm_offset_map_t *map, bool *changed, wm_error_t *err) {
  wm_status_t status = WM_OK;
  int64_t at = 0, first, end, n_source, n;
  *changed = next_segment(flags, text, bytes, at, &first, &end);
  if (!*changed)
    return WM_OK;
  out->bytes = 0;
  wm_offset_map_clear(map);
  while (next_segment(flags, text, bytes, at, &first, &end)) {
    WM_TRY(wm_offset_map_add(map, out->bytes, at, true, err));
    WM_TRY(wm_string_append(out, text + at, first - at, err));
    WM_TRY(normalise_segment(nfc, flags, text + first, end - first, &n_source, &n, err));
    WM_TRY(append_segment(nfc, n_source, n, first, end - first, out, map, err));
    at = end;
  }
  WM_TRY(wm_offset_map_add(map, out->bytes, at, true, err));
  WM_TRY(wm_string_append(out, text + at, bytes - at, err));
cleanup:
  return status;
}
