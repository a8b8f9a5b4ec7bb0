/* The positions of a text that is probed, and their token types (method.md, section 7): whole on
 * every rank and equal there. Not collective.
 *
 * Every token-keyed quantity exists twice: keyed by the input token, at whose position the MLP is
 * replaced, and by the target token that is predicted there.
 */
#ifndef WANAMAKER_MEASURE_PROBE_TEXT_H
#define WANAMAKER_MEASURE_PROBE_TEXT_H

#include "wanamaker/base/status.h"
#include "wanamaker/measure/windows.h"

#include <stdint.h>

typedef enum { WM_KEY_INPUT, WM_KEY_TARGET, WM_KEYS } wm_probe_key_t;

/* "input", "target" */
const char *wm_probe_key_name(wm_probe_key_t key);

/* Token types of one key, numbered by ascending id. */
typedef struct {
  int64_t n;       /* types */
  int32_t *id;     /* [n] token */
  int64_t *count;  /* [n] positions */
  int32_t *number; /* [N] type of each position */
} wm_probe_types_t;

typedef struct {
  int64_t n;         /* N predicted positions */
  int32_t *position; /* [N] place in the window */
  int32_t *unit;     /* [N] bootstrap unit */
  int64_t n_units;
  wm_unit_kind_t unit_kind;       /* resolved */
  uint8_t *test;                  /* [N] 1: held out */
  wm_probe_types_t type[WM_KEYS]; /* by key */
} wm_probe_text_t;

/* Predicted positions of `windows` in the corpus ids. Whole units are held out: in an order drawn
 * from `seed`, units are taken for training until they hold `train_share` of the positions or more;
 * what is left is held out. With one unit nothing is. */
wm_status_t wm_probe_text_create(const wm_windows_t *windows, const int32_t *ids,
                                 wm_unit_kind_t unit, double train_share, uint64_t seed,
                                 wm_probe_text_t *out, wm_error_t *err);
/* The same from arrays [n] (copied), for texts that are no corpus's. */
wm_status_t wm_probe_text_make(int64_t n, const int32_t *input, const int32_t *target,
                               const int32_t *position, const int32_t *unit, int64_t n_units,
                               double train_share, uint64_t seed, wm_probe_text_t *out,
                               wm_error_t *err);
/* Harmless on a zeroed object. */
void wm_probe_text_destroy(wm_probe_text_t *text);

/* Token of position i by key. */
static inline int32_t wm_probe_token(const wm_probe_text_t *text, wm_probe_key_t key, int64_t i) {
  return text->type[key].id[text->type[key].number[i]];
}

#endif
