/* A corpus of random documents whose lengths are distributed as WikiText-103's: for measurements
 * and plans before any text is there. */
#ifndef WANAMAKER_MEASURE_TYPICAL_H
#define WANAMAKER_MEASURE_TYPICAL_H

#include "wanamaker/base/status.h"
#include "wanamaker/measure/windows.h"

#include <stdint.h>

/* Quantile u in [0, 1] of the tokens of a row of WikiText-103's test split, its newline included,
 * under GPT-2's tokenizer (2891 rows that are not blank). Not collective. */
int64_t wm_typical_length(double u);

/* Rows of such lengths, none of them blank or a heading: at least so many tokens and rows. */
typedef struct {
  wm_token_view_t view; /* ids = NULL; its arrays are this object's */
} wm_typical_t;

/* `encoding` as in wm_token_view_t, borrowed. Not collective; destroy also after a failure. */
wm_status_t wm_typical_create(const char *encoding, int64_t tokens, int64_t rows, wm_typical_t *out,
                              wm_error_t *err);
void wm_typical_destroy(wm_typical_t *corpus);

#endif
