#include "unicode.h"

#include "wanamaker/base/mem.h"

wm_status_t wm_unicode_table(uint8_t **out, wm_error_t *err) {
  static const uint8_t flags[WM_UNICODE_SETS] = {
      [WM_UNICODE_LETTER] = WM_CLASS_LETTER, [WM_UNICODE_NUMBER] = WM_CLASS_NUMBER,
      [WM_UNICODE_SPACE] = WM_CLASS_SPACE,   [WM_UNICODE_TRIGGER] = WM_NFC_TRIGGER,
      [WM_UNICODE_TOUCHED] = WM_NFC_TOUCHED,
  };
  wm_status_t status =
      wm_alloc((void **)out, WM_CODE_POINTS, sizeof **out, "table of character classes", err);
  if (status != WM_OK)
    return status;
  for (int set = 0; set < WM_UNICODE_SETS; set++)
    for (uint64_t r = 0; r < wm_unicode_sets[set].count; r++) {
      const wm_unicode_range_t range = wm_unicode_sets[set].ranges[r];
      for (uint32_t c = range.first; c <= range.last; c++)
        (*out)[c] |= flags[set];
    }
  return WM_OK;
}
