/* Classes of code points, as the reference's tokenizers see them.
 *
 * They come from the reference itself (src/text/unicode_ranges.c is generated), not from PCRE2 or
 * utf8proc, whose Unicode version changes with the installation and differs from the reference's:
 * its regular expressions know newer letters than its normaliser.
 */
#ifndef WM_TEXT_UNICODE_H
#define WM_TEXT_UNICODE_H

#include "wanamaker/base/status.h"

#include <stdint.h>

enum { WM_CODE_POINTS = 0x110000 };

typedef struct {
  uint32_t first, last; /* inclusive */
} wm_unicode_range_t;

typedef struct {
  const wm_unicode_range_t *ranges;
  uint64_t count;
} wm_unicode_set_t;

enum {
  WM_UNICODE_LETTER,
  WM_UNICODE_NUMBER,
  WM_UNICODE_SPACE,
  WM_UNICODE_TRIGGER,
  WM_UNICODE_TOUCHED,
  WM_UNICODE_SETS
};

extern const wm_unicode_set_t wm_unicode_sets[WM_UNICODE_SETS];

/* Flags of a code point. The low two bits are its class in the GPT-2 pattern. */
enum {
  WM_CLASS_OTHER = 0,
  WM_CLASS_LETTER = 1,
  WM_CLASS_NUMBER = 2,
  WM_CLASS_SPACE = 3,
  WM_CLASS_MASK = 3,
  WM_NFC_TRIGGER = 4, /* text without such characters is in normal form C */
  WM_NFC_TOUCHED = 8  /* NFC may reorder, decompose or compose it */
};

/* *out is a table of WM_CODE_POINTS flags on the heap (free). Not collective. */
wm_status_t wm_unicode_table(uint8_t **out, wm_error_t *err);

#endif
