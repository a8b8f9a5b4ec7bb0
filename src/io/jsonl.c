/* One line of JSON Lines. jansson refuses lone surrogates ("\ud800") and ill-formed UTF-8, which
 * real corpora hold; both are replaced by U+FFFD in a copy of the line before it is parsed. */
#include "corpus_formats.h"

#include "wanamaker/base/mem.h"

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

static const char replacement[] = "\xef\xbf\xbd";

/* Length of the well-formed UTF-8 sequence at text[0], or 0; then *part is the length of the
 * maximal ill-formed part (Unicode 15, section 3.9, table 3-7). */
static int64_t utf8_length(const unsigned char *text, int64_t bytes, int64_t *part) {
  unsigned char c = text[0], low = 0x80, high = 0xbf;
  int64_t n;
  *part = 1;
  if (c < 0x80)
    return 1;
  if (c >= 0xc2 && c <= 0xdf) {
    n = 2;
  } else if (c >= 0xe0 && c <= 0xef) {
    n = 3;
    low = c == 0xe0 ? 0xa0 : low;
    high = c == 0xed ? 0x9f : high;
  } else if (c >= 0xf0 && c <= 0xf4) {
    n = 4;
    low = c == 0xf0 ? 0x90 : low;
    high = c == 0xf4 ? 0x8f : high;
  } else {
    return 0;
  }
  for (int64_t i = 1; i < n; i++, low = 0x80, high = 0xbf) {
    if (i >= bytes || text[i] < low || text[i] > high)
      return 0;
    *part = i + 1;
  }
  return n;
}

/* Value of four hexadecimal digits, or -1. */
static int hex4(const char *text) {
  int value = 0;
  for (int i = 0; i < 4; i++) {
    char c = text[i];
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit < 0)
      return -1;
    value = value << 4 | digit;
  }
  return value;
}

/* Code unit of the escape "\uXXXX" at text[0], or -1. */
static int unicode_escape(const char *text, int64_t bytes) {
  return bytes >= 6 && text[0] == '\\' && text[1] == 'u' ? hex4(text + 2) : -1;
}

/* Length of the escape at text[0], a backslash; *lone is set when it is half a surrogate pair. */
static int64_t escape_length(const char *text, int64_t bytes, bool *lone) {
  int unit = unicode_escape(text, bytes);
  *lone = false;
  if (unit < 0)
    return bytes < 2 ? 1 : 2;
  if (unit < 0xd800 || unit > 0xdfff)
    return 6;
  int next = unicode_escape(text + 6, bytes - 6);
  if (unit <= 0xdbff && next >= 0xdc00 && next <= 0xdfff)
    return 12;
  *lone = true;
  return 6;
}

/* Copies line[0, bytes) to out, which has room for three times as much, with the replacements. */
static int64_t repair(const char *line, int64_t bytes, char *out, int64_t *replaced) {
  int64_t used = 0;
  for (int64_t i = 0; i < bytes;) {
    int64_t first = i, part, n;
    while (i < bytes && (unsigned char)line[i] < 0x80 && line[i] != '\\')
      i++;
    memcpy(out + used, line + first, (size_t)(i - first));
    used += i - first;
    if (i == bytes)
      break;
    bool bad;
    if (line[i] == '\\') {
      n = part = escape_length(line + i, bytes - i, &bad);
    } else {
      n = utf8_length((const unsigned char *)line + i, bytes - i, &part);
      bad = n == 0;
    }
    if (bad) {
      memcpy(out + used, replacement, 3);
      used += 3;
      (*replaced)++;
      i += part;
    } else {
      memcpy(out + used, line + i, (size_t)n);
      used += n;
      i += n;
    }
  }
  return used;
}

static wm_status_t extract(json_t *object, const char *field, const char *where, char *buffer,
                           int64_t *row_bytes, wm_error_t *err) {
  const json_t *value = json_object_get(object, field);
  if (!json_is_object(object))
    return wm_fail(err, WM_INPUT, "%s: must be a JSON object", where);
  if (value == NULL)
    return wm_fail(err, WM_INPUT, "%s: has no member \"%s\"", where, field);
  if (!json_is_string(value))
    return wm_fail(err, WM_INPUT, "%s: member \"%s\" must be a string", where, field);
  *row_bytes = (int64_t)json_string_length(value);
  memcpy(buffer, json_string_value(value), (size_t)*row_bytes);
  return WM_OK;
}

wm_status_t wm_jsonl_decode(const char *line, int64_t bytes, const char *field, const char *where,
                            char **buffer, int64_t *capacity, int64_t *row_bytes, int64_t *replaced,
                            wm_error_t *err) {
  void *memory = *buffer;
  wm_status_t status = wm_grow(&memory, capacity, 0, 3 * bytes + 1, 1, where, err);
  *buffer = memory;
  if (status != WM_OK)
    return status;
  int64_t length = repair(line, bytes, *buffer, replaced);
  /* Integers as reals: a huge one in another member is no reason to refuse the line. */
  json_error_t e;
  json_t *object = json_loadb(
      *buffer, (size_t)length,
      JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL | JSON_DECODE_ANY, &e);
  if (object == NULL)
    return wm_fail(err, WM_INPUT, "%s: not valid JSON at column %d: %s", where, e.column, e.text);
  /* A decoded string is never longer than its source, so the buffer can be used again. */
  status = extract(object, field, where, *buffer, row_bytes, err);
  json_decref(object);
  return status;
}
