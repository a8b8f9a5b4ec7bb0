/* Blocks of windows: the unit in which windows go through the model.
 *
 * The cut into blocks depends on the windows and the setting alone, never on the number of ranks,
 * so that a block's numbers don't either.
 */
#ifndef WANAMAKER_MEASURE_BLOCKS_H
#define WANAMAKER_MEASURE_BLOCKS_H

#include "wanamaker/base/status.h"
#include "wanamaker/measure/windows.h"
#include "wanamaker/model/model.h"

#include <stdint.h>

/* Block b holds windows first_window[b] .. first_window[b + 1] - 1. */
typedef struct {
  const wm_windows_t *windows; /* borrowed */
  int64_t n;
  int64_t *first_window; /* [n + 1] */
  int64_t max_rows, max_sequences;
} wm_blocks_t;

/* Cuts windows, in order, into blocks of at most `block_tokens` rows (a longer window is a block of
 * its own). Not collective. */
wm_status_t wm_blocks_create(const wm_windows_t *windows, int64_t block_tokens, wm_blocks_t *out,
                             wm_error_t *err);
void wm_blocks_destroy(wm_blocks_t *blocks);

/* One block, loaded. */
typedef struct {
  int64_t rows;
  wm_batch_t batch;
  int64_t *starts;  /* [sequences + 1], what batch.starts points to */
  int32_t *ids;     /* [rows] */
  int32_t *targets; /* [rows] id predicted at the row, or -1 where nothing is */
  int64_t *tokens;  /* [rows] the row's token: its index into the corpus's ids */
  int64_t *kept;    /* [n_kept] rows of new positions: those that a fit uses */
  int64_t n_kept;
  int64_t first_prediction, n_predictions; /* the block's place among all predictions */
} wm_block_t;

/* Room for any block of `blocks`. */
wm_status_t wm_block_create(const wm_blocks_t *blocks, wm_block_t *out, wm_error_t *err);
void wm_block_destroy(wm_block_t *block);

/* Loads block `index`; ids: the corpus's ids. */
void wm_block_load(const wm_blocks_t *blocks, const int32_t *ids, int64_t index, wm_block_t *block);

#endif
