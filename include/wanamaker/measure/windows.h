/* Protocols, ranges and windows: which tokens of a corpus are read together and which of them are
 * predicted (method.md, section 3).
 *
 * A window is a run of consecutive ids that the model sees as one sequence. Position i of a window
 * (0-based) predicts the id at position i + 1, so a window of n ids has at most n - 1 predictions.
 *
 *   documents  Every row that is not blank is a document. Its first `window` tokens are kept; a
 *              document of fewer than `min_length` kept tokens is skipped. A window per document.
 *   stream     A run of tokens cut into consecutive windows; the last one may be shorter (a last
 *              window of one token predicts nothing).
 *   sliding    Windows that start `stride` tokens apart; a window's predictions are those whose
 *              targets lie in no earlier window.
 *
 *     ids      0 1 2 3 4 5 6 7 8 9      window 6, stride 2
 *     first    . * * * * *              . seen, not predicted; * predicted (as a target)
 *     second       . . . . * *
 *     third            . . . . * *
 *
 * Nothing here is collective. Time is O(rows + windows); counts are int64_t.
 */
#ifndef WANAMAKER_MEASURE_WINDOWS_H
#define WANAMAKER_MEASURE_WINDOWS_H

#include "wanamaker/base/status.h"
#include "wanamaker/measure/inference.h"
#include "wanamaker/measure/ranges.h"

#include <stdbool.h>
#include <stdint.h>

/* A tokenised corpus (io/tokens.h explains the arrays). All pointers are borrowed. */
typedef struct {
  const char *name;     /* for messages */
  const char *encoding; /* "documents", "stream" or "ids" */
  int64_t n_tokens, n_rows;
  const int32_t *ids;       /* [n_tokens]; not read here */
  const int64_t *row_first; /* [n_rows + 1]: first token that begins in the row or later */
  const uint8_t *row_flags; /* [n_rows]: WM_ROW_* */
} wm_token_view_t;

enum { WM_LABEL_SIZE = 96 };

/* The windows of a range, in corpus order. Caller-owned: wm_windows_destroy. */
typedef struct {
  char label[WM_LABEL_SIZE]; /* e.g. "evaluation: tokens [50000, 100000), at most 12000" */
  wm_protocol_t protocol;
  int64_t n;                /* W windows */
  int64_t *first;           /* [W] index into the corpus's ids */
  int64_t *length;          /* [W] tokens */
  int64_t *first_new;       /* [W] positions first_new .. length - 1 are in no earlier window */
  int64_t *first_predicted; /* [W] positions first_predicted .. length - 2 predict: max(0, first_new
                               - 1) */
  int64_t *position_offset; /* [W + 1] new positions before the window (fits use every one) */
  int64_t *predicted_offset; /* [W + 1] predictions before the window: index into NLL arrays */
  int64_t *row;              /* [W] row in which the window begins; -1 in a corpus without rows */
  int64_t *document;         /* [W] kept documents before it; -1 unless protocol documents */
  int64_t *article;          /* [W] level-1 headings at or before `row` */
  int64_t n_positions;       /* position_offset[W] */
  int64_t n_predicted;       /* predicted_offset[W] */
  int64_t max_length;        /* longest window */
} wm_windows_t;

/* Makes the windows of `range`; on failure *out is zeroed. WM_USAGE: protocol or range out of order
 * (stride > window, end <= begin, an absent range), a kind of range that the protocol or encoding
 * lacks, a protocol that does not fit the encoding. WM_INPUT: the range ends beyond the corpus (the
 * message says how many tokens, documents or rows there are), it predicts nothing, or the row table
 * is malformed. */
wm_status_t wm_windows_create(const wm_token_view_t *corpus, const wm_protocol_t *protocol,
                              const wm_range_t *range, wm_windows_t *out, wm_error_t *err);
/* Windows index[0 .. n - 1] of `from`, in that order; label, protocol and max_length stay. On
 * failure *out is zeroed. */
wm_status_t wm_windows_select(const wm_windows_t *from, const int64_t *index, int64_t n,
                              wm_windows_t *out, wm_error_t *err);
/* Harmless on a zeroed object. */
void wm_windows_destroy(wm_windows_t *windows);

/* Overlap of two ranges of one tokens.h5, in tokens of the corpus that both sets of windows read.
 */
typedef struct {
  int64_t tokens;     /* how many; 0: disjoint */
  int64_t begin, end; /* from the first of them to past the last */
} wm_overlap_t;

wm_overlap_t wm_windows_overlap(const wm_windows_t *a, const wm_windows_t *b);
/* WM_USAGE naming both ranges and the overlap, unless they are disjoint. */
wm_status_t wm_windows_disjoint(const wm_windows_t *a, const wm_windows_t *b, wm_error_t *err);

/* What is drawn together by the bootstrap. */
typedef enum {
  WM_UNIT_AUTO, /* article if the windows lie in WM_MIN_UNITS or more, else line (documents) or
                   window: an interval from a handful of units says little */
  WM_UNIT_ARTICLE,
  WM_UNIT_LINE, /* row in which the window begins */
  WM_UNIT_WINDOW
} wm_unit_kind_t;

/* "auto", "article", "line", "window"; unknown: false. */
bool wm_unit_parse(const char *name, wm_unit_kind_t *out);
const char *wm_unit_name(wm_unit_kind_t kind);

/* AUTO becomes what it stands for on these windows, others stay. */
wm_unit_kind_t wm_unit_resolve(const wm_windows_t *windows, wm_unit_kind_t kind);

/* units[p] of every prediction p: [n_predicted], numbered 0.. *n_units - 1 in corpus order without
 * gaps (a window without predictions has no unit). WM_USAGE: lines of a corpus without rows;
 * WM_INPUT: more than 2^31 - 1 units. */
wm_status_t wm_windows_units(const wm_windows_t *windows, wm_unit_kind_t kind, int32_t *units,
                             int64_t *n_units, wm_error_t *err);

#endif
