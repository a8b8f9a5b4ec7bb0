#include "wanamaker/measure/blocks.h"

#include "wanamaker/base/mem.h"

#include <string.h>

wm_status_t wm_blocks_create(const wm_windows_t *windows, int64_t block_tokens, wm_blocks_t *out,
                             wm_error_t *err) {
  memset(out, 0, sizeof *out);
  out->windows = windows;
  void *memory;
  wm_status_t status = wm_alloc(&memory, windows->n + 1, sizeof(int64_t), "blocks of windows", err);
  if (status != WM_OK)
    return status;
  out->first_window = memory;
  int64_t rows = 0;
  for (int64_t w = 0; w < windows->n; w++) {
    if (w > 0 && rows + windows->length[w] > block_tokens) {
      out->first_window[++out->n] = w;
      rows = 0;
    }
    rows += windows->length[w];
    if (rows > out->max_rows)
      out->max_rows = rows;
    if (w + 1 - out->first_window[out->n] > out->max_sequences)
      out->max_sequences = w + 1 - out->first_window[out->n];
  }
  if (windows->n > 0)
    out->first_window[++out->n] = windows->n;
  return WM_OK;
}

void wm_blocks_destroy(wm_blocks_t *blocks) {
  free(blocks->first_window);
  memset(blocks, 0, sizeof *blocks);
}

wm_status_t wm_block_create(const wm_blocks_t *blocks, wm_block_t *out, wm_error_t *err) {
  memset(out, 0, sizeof *out);
  wm_status_t status;
  void *memory;
  WM_TRY(wm_alloc(&memory, blocks->max_sequences + 1, sizeof(int64_t), "a block", err));
  out->starts = memory;
  WM_TRY(wm_alloc(&memory, blocks->max_rows, sizeof(int32_t), "a block", err));
  out->ids = memory;
  WM_TRY(wm_alloc(&memory, blocks->max_rows, sizeof(int32_t), "a block", err));
  out->targets = memory;
  WM_TRY(wm_alloc(&memory, blocks->max_rows, sizeof(int64_t), "a block", err));
  out->tokens = memory;
  WM_TRY(wm_alloc(&memory, blocks->max_rows, sizeof(int64_t), "a block", err));
  out->kept = memory;
  out->batch.starts = out->starts;
cleanup:
  if (status != WM_OK)
    wm_block_destroy(out);
  return status;
}

void wm_block_destroy(wm_block_t *block) {
  free(block->starts);
  free(block->ids);
  free(block->targets);
  free(block->tokens);
  free(block->kept);
  memset(block, 0, sizeof *block);
}

static void load_window(const wm_windows_t *w, int64_t index, const int32_t *ids, wm_block_t *b) {
  int64_t length = w->length[index];
  const int32_t *from = ids + w->first[index];
  memcpy(b->ids + b->rows, from, (size_t)length * sizeof *from);
  for (int64_t i = 0; i < length; i++) {
    bool predicts = i >= w->first_predicted[index] && i + 1 < length;
    b->targets[b->rows + i] = predicts ? from[i + 1] : -1;
    b->tokens[b->rows + i] = w->first[index] + i;
    if (i >= w->first_new[index])
      b->kept[b->n_kept++] = b->rows + i;
  }
  b->rows += length;
}

void wm_block_load(const wm_blocks_t *blocks, const int32_t *ids, int64_t index,
                   wm_block_t *block) {
  const wm_windows_t *w = blocks->windows;
  int64_t first = blocks->first_window[index], last = blocks->first_window[index + 1];
  block->rows = 0;
  block->n_kept = 0;
  for (int64_t i = first; i < last; i++) {
    block->starts[i - first] = block->rows;
    load_window(w, i, ids, block);
  }
  block->starts[last - first] = block->rows;
  block->batch.n_sequences = last - first;
  block->first_prediction = w->predicted_offset[first];
  block->n_predictions = w->predicted_offset[last] - w->predicted_offset[first];
}
