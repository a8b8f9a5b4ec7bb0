#include "wanamaker/measure/features.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/measure/trunk.h"

#include <string.h>

/* --- rows ---------------------------------------------------------------------------------------
 */

static int64_t first_prediction(const wm_blocks_t *b, int64_t block) {
  return b->windows->predicted_offset[b->first_window[block]];
}

static int64_t rows_of(const wm_blocks_t *blocks, int64_t rank, int64_t size) {
  int64_t rows = 0;
  for (int64_t b = rank; b < blocks->n; b += size)
    rows += first_prediction(blocks, b + 1) - first_prediction(blocks, b);
  return rows;
}

int64_t wm_features_rows(const wm_comm_t *comm, const wm_blocks_t *blocks, int64_t *most) {
  *most = 0;
  for (int64_t r = 0; r < comm->size; r++) {
    int64_t rows = rows_of(blocks, r, comm->size);
    *most = rows > *most ? rows : *most;
  }
  return rows_of(blocks, comm->rank, comm->size);
}

int64_t wm_features_bytes(int64_t rows, int64_t layers, int64_t d) {
  return rows * (layers * d * (int64_t)sizeof(float) + (int64_t)sizeof(int64_t));
}

wm_status_t wm_features_create(const wm_comm_t *comm, const wm_blocks_t *blocks, int64_t d,
                               int64_t capacity, wm_features_t *f, wm_error_t *err) {
  *f = (wm_features_t){.d = d, .capacity = capacity};
  wm_status_t status;
  void *memory;
  int64_t most, i = 0;
  f->n = wm_features_rows(comm, blocks, &most);
  WM_TRY(wm_alloc(&memory, f->n, sizeof(int64_t), "places of features", err));
  f->place = memory;
  for (int64_t b = comm->rank; b < blocks->n; b += comm->size)
    for (int64_t p = first_prediction(blocks, b); p < first_prediction(blocks, b + 1); p++)
      f->place[i++] = p;
  WM_TRY(wm_alloc(&memory, capacity * f->n * d, sizeof(float), "features of gates", err));
  f->x = memory;
cleanup:
  return status;
}

void wm_features_destroy(wm_features_t *f) {
  free(f->place);
  free(f->x);
  memset(f, 0, sizeof *f);
}

const float *wm_features_layer(const wm_features_t *f, int64_t index) {
  return f->x + index * f->n * f->d;
}

/* --- pass ---------------------------------------------------------------------------------------
 */

/* The predicted rows of the trunk's block into layer `index`, from row `first` on. */
static void keep_rows(wm_features_t *f, int64_t index, int64_t first, const wm_trunk_t *t) {
  float *to = f->x + (index * f->n + first) * f->d;
  for (int64_t r = 0; r < t->block.rows; r++)
    if (t->block.targets[r] >= 0) {
      memcpy(to, t->x + r * f->d, (size_t)f->d * sizeof *to);
      to += f->d;
    }
}

/* One block; its rows begin at `first`. */
static wm_status_t take_block(wm_features_t *f, wm_trunk_t *t, const int32_t *ids, int64_t block,
                              int64_t first, wm_error_t *err) {
  const int64_t last = f->layers[f->n_layers - 1];
  wm_status_t status;
  WM_TRY(wm_trunk_begin(t, ids, block, err));
  for (int64_t l = 0, next = 0; l <= last; l++) {
    if (wm_stop_requested())
      return wm_fail(err, WM_STOPPED, "stopped on request");
    WM_TRY(l < last ? wm_trunk_layer(t, l, err) : wm_trunk_last_input(t, l, err));
    if (f->layers[next] == l)
      keep_rows(f, next++, first, t);
  }
cleanup:
  return status;
}

wm_status_t wm_features_collect(wm_features_t *f, const wm_comm_t *comm, wm_model_t *model,
                                const wm_base_t *base, const wm_blocks_t *blocks,
                                const int32_t *ids, const int64_t *layers, int64_t n_layers,
                                wm_progress_t *progress, wm_error_t *err) {
  const int64_t before = progress->done, tokens = blocks->windows->n_positions;
  wm_trunk_t t = {0};
  f->layers = layers;
  f->n_layers = n_layers;
  int64_t row = 0;
  wm_status_t status = wm_trunk_create(model, blocks, &t, err);
  if (status == WM_OK)
    status = wm_trunk_modify(&t, base, err);
  for (int64_t b = comm->rank; b < blocks->n && status == WM_OK; b += comm->size) {
    status = take_block(f, &t, ids, b, row, err);
    row += t.block.n_predictions;
    wm_progress_update(progress, before + tokens * (b + 1) / blocks->n);
  }
  wm_trunk_destroy(&t);
  status = wm_agree(comm->world, status, err);
  wm_progress_update(progress, before + tokens);
  return status;
}

/* --- file ---------------------------------------------------------------------------------------
 */

wm_status_t wm_features_write(const wm_features_t *f, const wm_comm_t *comm,
                              const wm_blocks_t *blocks, const char *path, int64_t first,
                              wm_h5_t *file, wm_error_t *err) {
  const int64_t rounds = (blocks->n + comm->size - 1) / comm->size;
  for (int64_t l = 0; l < f->n_layers; l++) {
    int64_t row = 0;
    for (int64_t i = 0; i < rounds; i++) {
      const int64_t b = i * comm->size + comm->rank, mine = b < blocks->n;
      const int64_t begin = mine ? first_prediction(blocks, b) : 0;
      const int64_t rows = mine ? first_prediction(blocks, b + 1) - begin : 0;
      const int64_t offset[3] = {first + l, begin, 0}, count[3] = {mine, rows, f->d};
      wm_status_t status = wm_h5_write(file, path, H5T_NATIVE_FLOAT, offset, count,
                                       wm_features_layer(f, l) + row * f->d, err);
      if (status != WM_OK)
        return status;
      row += rows;
    }
  }
  return WM_OK;
}
