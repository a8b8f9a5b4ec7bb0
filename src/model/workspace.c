#include "family.h"
#include "wanamaker/base/mem.h"

#include <assert.h>
#include <omp.h>
#include <stddef.h>

enum { N_PARTS = 11, ALIGN = 64 };

/* Where an array's pointer is kept and how many bytes it takes. */
typedef struct {
  void *pointer;
  int64_t bytes;
} part_t;

static int64_t list_parts(const wm_model_t *model, wm_workspace_t *ws, part_t *parts) {
  const int64_t f = sizeof(float), d = model->arch.d_model;
  const int64_t rows = ws->max_rows;
  const int64_t most = wm_gemm_most_rows(WM_TILES_FIXED, model->options.tile_rows, rows);
  const part_t list[N_PARTS] = {
      {&ws->qkv, rows * 3 * d * f},
      {&ws->normed, rows * d * f},
      {&ws->hidden, most * model->arch.d_mlp * f},
      {&ws->scores,
       omp_get_max_threads() * wm_attention_scratch(ws->max_length, model->arch.d_head) * f},
      {&ws->final, most * d * f},
      {&ws->logits, most * model->options.tile_vocab * f},
      {&ws->blocks, rows * (int64_t)sizeof *ws->blocks},
      {&ws->positions, rows * (int64_t)sizeof *ws->positions},
      {&ws->log_sums, most * (int64_t)sizeof *ws->log_sums},
      {&ws->rows, most * (int64_t)sizeof *ws->rows},
      {&ws->targets, most * (int64_t)sizeof *ws->targets},
  };
  int64_t total = 0;
  for (int i = 0; i < N_PARTS; i++) {
    parts[i] = list[i];
    parts[i].bytes = (parts[i].bytes + ALIGN - 1) / ALIGN * ALIGN;
    total += parts[i].bytes;
  }
  return total;
}

/* At least one tile: the MLP's last tile needs it. */
static int64_t whole_tiles(const wm_model_t *model, int64_t rows) {
  int64_t tile = model->options.tile_rows;
  return rows > 0 ? (rows + tile - 1) / tile * tile : tile;
}

int64_t wm_workspace_together(const wm_model_t *model, const wm_workspace_t *ws) {
  return wm_gemm_most_rows(model->tiles, model->options.tile_rows, ws->max_rows);
}

int64_t wm_workspace_bytes(const wm_model_t *model, int64_t max_rows, int64_t max_length) {
  wm_workspace_t ws = {.max_rows = whole_tiles(model, max_rows), .max_length = max_length};
  part_t parts[N_PARTS];
  return list_parts(model, &ws, parts);
}

wm_status_t wm_workspace_create(const wm_model_t *model, int64_t max_rows, int64_t max_length,
                                wm_workspace_t **out, wm_error_t *err) {
  assert(max_rows >= 0 && max_length >= 0);
  void *memory;
  *out = NULL;
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_workspace_t), "workspace", err);
  if (status != WM_OK)
    return status;
  wm_workspace_t *ws = memory;
  ws->max_rows = whole_tiles(model, max_rows);
  ws->max_length = max_length;
  part_t parts[N_PARTS];
  int64_t total = list_parts(model, ws, parts);
  status = wm_alloc(&ws->memory, total, 1, "workspace of the forward pass", err);
  if (status != WM_OK) {
    free(ws);
    return status;
  }
  char *next = ws->memory;
  for (int i = 0; i < N_PARTS; i++) {
    *(void **)parts[i].pointer = next;
    next += parts[i].bytes;
  }
  *out = ws;
  return WM_OK;
}

void wm_workspace_free(wm_workspace_t *workspace) {
  if (workspace == NULL)
    return;
  free(workspace->memory);
  free(workspace);
}
