#include "wanamaker/measure/trunk.h"

#include "wanamaker/base/mem.h"

#include <string.h>

wm_status_t wm_trunk_create(wm_model_t *model, const wm_blocks_t *blocks, wm_trunk_t *t,
                            wm_error_t *err) {
  const int64_t elements = blocks->max_rows * wm_model_arch(model)->d_model;
  wm_status_t status;
  void *memory;
  *t = (wm_trunk_t){.model = model, .blocks = blocks};
  WM_TRY(wm_alloc(&memory, elements, sizeof(float), "hidden states", err));
  t->h = memory;
  WM_TRY(wm_alloc(&memory, elements, sizeof(float), "hidden states", err));
  t->x = memory;
  WM_TRY(wm_alloc(&memory, elements, sizeof(float), "hidden states", err));
  t->y = memory;
  WM_TRY(wm_block_create(blocks, &t->block, err));
  WM_TRY(wm_workspace_create(model, blocks->max_rows, blocks->windows->max_length, &t->workspace,
                             err));
cleanup:
  return status;
}

wm_status_t wm_trunk_modify(wm_trunk_t *t, const wm_base_t *base, wm_error_t *err) {
  void *memory;
  wm_status_t status = WM_OK;
  if (base == NULL)
    return WM_OK;
  WM_TRY(wm_alloc(&memory, t->blocks->max_rows, sizeof(uint8_t), "routes", err));
  t->route = memory;
  WM_TRY(wm_routing_create(t->model, t->blocks->max_rows, &t->routing, err));
  t->base = base;
cleanup:
  return status;
}

void wm_trunk_destroy(wm_trunk_t *t) {
  wm_routing_free(t->routing);
  free(t->route);
  free(t->h);
  free(t->x);
  free(t->y);
  wm_block_destroy(&t->block);
  wm_workspace_free(t->workspace);
  memset(t, 0, sizeof *t);
}

int64_t wm_trunk_bytes(const wm_model_t *model, int64_t rows, int64_t max_length) {
  return 3 * rows * wm_model_arch(model)->d_model * (int64_t)sizeof(float) +
         wm_workspace_bytes(model, rows, max_length) + wm_model_scratch_bytes(model);
}

wm_status_t wm_trunk_begin(wm_trunk_t *t, const int32_t *ids, int64_t index, wm_error_t *err) {
  wm_block_load(t->blocks, ids, index, &t->block);
  return wm_model_embed(t->model, &t->block.batch, t->block.ids, t->h, err);
}

wm_status_t wm_trunk_last_input(wm_trunk_t *t, int64_t layer, wm_error_t *err) {
  return wm_model_attend(t->model, layer, &t->block.batch, t->h, t->x, t->workspace, err);
}

/* y <- what the base has in the place of the layer's MLP. */
static wm_status_t apply_change(wm_trunk_t *t, const wm_change_t *change, wm_error_t *err) {
  const wm_base_t *b = t->base;
  const int64_t rows = t->block.rows;
  if (change->gate < 0)
    return wm_routing_surrogate(t->model, b->surrogates, change->layer, t->x, rows, t->y, err);
  wm_gates_route(b->variants->gates, change->gate, change->threshold, t->x, t->block.tokens, NULL,
                 rows, t->route);
  return wm_routing_apply(t->routing, t->model, b->surrogates, change->layer, t->x, t->route, rows,
                          t->y, t->workspace, err);
}

wm_status_t wm_trunk_layer(wm_trunk_t *t, int64_t layer, wm_error_t *err) {
  const int64_t rows = t->block.rows, d = wm_model_arch(t->model)->d_model;
  const wm_change_t *change =
      t->base != NULL ? wm_variants_change(t->base->variants, t->base->variant, layer) : NULL;
  wm_status_t status;
  WM_TRY(wm_trunk_last_input(t, layer, err));
  if (change != NULL)
    WM_TRY(apply_change(t, change, err));
  else if (t->replaced != NULL && wm_surrogates_has(t->replaced, layer))
    WM_TRY(wm_surrogates_apply(t->replaced, layer, t->x, rows, t->y, err));
  else
    WM_TRY(wm_model_mlp(t->model, layer, t->x, rows, t->y, t->workspace, err));
  wm_model_add(t->model, t->h, t->y, rows * d);
cleanup:
  return status;
}
