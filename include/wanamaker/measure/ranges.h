/* Protocols, ranges and presets of ranges, as settings (method.md, section 3); windows.h applies
 * them to a corpus.
 *
 * Ranges are half-open, [begin, end):
 *   tokens     documents: the kept tokens of kept documents are numbered 0.. in corpus order; the
 *              documents whose first token's number lies in the range, the last one cut at `end`.
 *              Otherwise the corpus's tokens.
 *   documents  kept documents, counted from 0 (protocol documents only).
 *   rows       rows of the corpus, blank ones counted; in a stream, the tokens that begin in them.
 * max_tokens, if not 0, ends the range after that many (kept) tokens. A document that a range or
 * max_tokens cuts to fewer than min_length tokens is dropped.
 *
 * Nothing here is collective.
 */
#ifndef WANAMAKER_MEASURE_RANGES_H
#define WANAMAKER_MEASURE_RANGES_H

#include "wanamaker/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum { WM_PROTOCOL_DOCUMENTS, WM_PROTOCOL_STREAM, WM_PROTOCOL_SLIDING } wm_protocol_kind_t;

typedef struct {
  wm_protocol_kind_t kind;
  int64_t window;     /* most tokens of a window, >= 2 */
  int64_t stride;     /* sliding: 1..window */
  int64_t min_length; /* documents: 1..window */
} wm_protocol_t;

/* documents, 512, 2 (stride 256, if it is made sliding). */
wm_protocol_t wm_protocol_default(void);
/* "documents", "stream", "sliding"; unknown: false. */
bool wm_protocol_parse(const char *name, wm_protocol_kind_t *out);
const char *wm_protocol_name(wm_protocol_kind_t kind);

typedef enum {
  WM_RANGE_ABSENT,
  WM_RANGE_TOKENS,
  WM_RANGE_DOCUMENTS,
  WM_RANGE_ROWS
} wm_range_kind_t;

typedef struct {
  const char *name; /* "fit", "evaluation", ...: for messages; borrowed */
  wm_range_kind_t kind;
  int64_t begin, end;
  int64_t max_tokens; /* 0: no limit */
} wm_range_t;

/* Presets of ranges. */
typedef enum {
  WM_ROLE_FIT,
  WM_ROLE_GATES,
  WM_ROLE_VALIDATION,
  WM_ROLE_EVALUATION,
  WM_ROLES
} wm_role_t;

typedef struct {
  const char *name, *help;
  bool overlaps;               /* nominal ranges overlap: the user has to say allow_overlap */
  wm_range_t ranges[WM_ROLES]; /* kind WM_RANGE_ABSENT where the preset has none */
} wm_preset_t;

/* "default", "study_scale", "study_paper". NULL if unknown. */
const wm_preset_t *wm_preset_find(const char *name);
/* The table, *count entries. */
const wm_preset_t *wm_preset_table(int *count);
const char *wm_role_name(wm_role_t role);

#endif
