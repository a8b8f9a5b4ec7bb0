#include "pretokenize.h"

#include "unicode.h"
#include "utf8.h"

static inline int class_at(const uint8_t *flags, const char *text, int *length) {
  return flags[wm_utf8_get(text, length)] & WM_CLASS_MASK;
}

/* End of the run of characters of class `class` that begins at `at`. */
static int64_t run_end(const uint8_t *flags, const char *text, int64_t bytes, int64_t at,
                       int class) {
  int length;
  while (at < bytes && class_at(flags, text + at, &length) == class)
    at += length;
  return at;
}

/* Bytes of the contraction at text[0] = "'", 0 if there is none. */
static int contraction(const char *text, int64_t left) {
  if (left < 2)
    return 0;
  switch (text[1]) {
  case 's':
  case 't':
  case 'm':
  case 'd':
    return 2;
  case 'r':
  case 'v':
    return left > 2 && text[2] == 'e' ? 3 : 0;
  case 'l':
    return left > 2 && text[2] == 'l' ? 3 : 0;
  default:
    return 0;
  }
}

/* \s+(?!\S)|\s+ : white space before something else leaves its last character to what follows,
 * unless it has but one. */
static int64_t space_end(const uint8_t *flags, const char *text, int64_t bytes, int64_t at) {
  int64_t end = at, last = at;
  int length;
  while (end < bytes && class_at(flags, text + end, &length) == WM_CLASS_SPACE) {
    last = end;
    end += length;
  }
  return end < bytes && last > at ? last : end;
}

int64_t wm_word_end(const uint8_t *flags, const char *text, int64_t bytes, int64_t at) {
  int length;
  int class = class_at(flags, text + at, &length);
  if (text[at] == '\'') {
    int matched = contraction(text + at, bytes - at);
    if (matched > 0)
      return at + matched;
  }
  if (class != WM_CLASS_SPACE)
    return run_end(flags, text, bytes, at + length, class);
  if (text[at] == ' ' && at + 1 < bytes) {
    class = class_at(flags, text + at + 1, &length);
    if (class != WM_CLASS_SPACE)
      return run_end(flags, text, bytes, at + 1 + length, class);
  }
  return space_end(flags, text, bytes, at);
}
