#include "wanamaker/measure/prefill.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/measure/routing.h"

#include <assert.h>
#include <string.h>

struct wm_prefill {
  wm_model_t *model;
  const wm_surrogates_t *surrogates;
  const wm_gates_t *gates;
  int64_t d, max_rows, max_sequences;
  float *h, *x, *y; /* [max_rows, d] */
  float *last;      /* [max_sequences, d] */
  uint8_t *route;   /* [max_rows] */
  wm_routing_t *routing;
  wm_workspace_t *workspace;
  /* the pass under way */
  const wm_batch_t *batch;
  const int64_t *token;
  int64_t rows, routed;
};

int64_t wm_prefill_bytes(const wm_model_t *model, int64_t max_rows, int64_t max_sequences,
                         int64_t max_length) {
  const int64_t d = wm_model_arch(model)->d_model;
  return (3 * max_rows + max_sequences) * d * (int64_t)sizeof(float) + max_rows +
         wm_routing_bytes(model, max_rows) + wm_workspace_bytes(model, max_rows, max_length);
}

wm_status_t wm_prefill_create(wm_model_t *model, const wm_surrogates_t *surrogates,
                              const wm_gates_t *gates, int64_t max_rows, int64_t max_sequences,
                              int64_t max_length, wm_prefill_t **out, wm_error_t *err) {
  const int64_t d = wm_model_arch(model)->d_model;
  wm_status_t status;
  void *memory;
  *out = NULL;
  WM_TRY(wm_alloc(&memory, 1, sizeof(wm_prefill_t), "prefill", err));
  wm_prefill_t *p = *out = memory;
  *p = (wm_prefill_t){.model = model,
                      .surrogates = surrogates,
                      .gates = gates,
                      .d = d,
                      .max_rows = max_rows,
                      .max_sequences = max_sequences};
  float **const arrays[] = {&p->h, &p->x, &p->y};
  for (int i = 0; i < 3; i++) {
    WM_TRY(wm_alloc(&memory, max_rows * d, sizeof(float), "hidden states of a batch", err));
    *arrays[i] = memory;
  }
  WM_TRY(wm_alloc(&memory, max_sequences * d, sizeof(float), "last hidden states", err));
  p->last = memory;
  WM_TRY(wm_alloc(&memory, max_rows, sizeof *p->route, "routes", err));
  p->route = memory;
  WM_TRY(wm_routing_create(model, max_rows, &p->routing, err));
  WM_TRY(wm_workspace_create(model, max_rows, max_length, &p->workspace, err));
cleanup:
  if (status != WM_OK) {
    wm_prefill_free(*out);
    *out = NULL;
  }
  return status;
}

void wm_prefill_free(wm_prefill_t *p) {
  if (p == NULL)
    return;
  wm_workspace_free(p->workspace);
  wm_routing_free(p->routing);
  free(p->h);
  free(p->x);
  free(p->y);
  free(p->last);
  free(p->route);
  free(p);
}

/* --- layers -------------------------------------------------------------------------------------
 */

wm_status_t wm_prefill_begin(wm_prefill_t *p, const wm_batch_t *batch, const int32_t *ids,
                             const int64_t *token, wm_error_t *err) {
  p->batch = batch;
  p->token = token;
  p->rows = batch->starts[batch->n_sequences];
  p->routed = 0;
  assert(p->rows <= p->max_rows && batch->n_sequences <= p->max_sequences);
  return wm_model_embed(p->model, batch, ids, p->h, err);
}

wm_status_t wm_prefill_attend(wm_prefill_t *p, int64_t layer, const float **x, wm_error_t *err) {
  *x = p->x;
  return wm_model_attend(p->model, layer, p->batch, p->h, p->x, p->workspace, err);
}

static wm_status_t route_rows(wm_prefill_t *p, int64_t layer, const wm_layer_path_t *path,
                              wm_error_t *err) {
  wm_profile_t *profile = wm_model_profile(p->model);
  assert(p->gates->gates[path->gate].layer == layer);
  double start = wm_profile_start(profile);
  wm_gates_route(p->gates, path->gate, path->threshold, p->x, p->token, NULL, p->rows, p->route);
  for (int64_t i = 0; i < p->rows; i++)
    p->routed += p->route[i] != WM_ROUTE_MLP;
  wm_profile_stop(profile, WM_KERNEL_ROUTE, start,
                  (double)p->rows * wm_gate_flops(&p->gates->gates[path->gate], p->d), 0);
  return wm_routing_apply(p->routing, p->model, p->surrogates, layer, p->x, p->route, p->rows, p->y,
                          p->workspace, err);
}

wm_status_t wm_prefill_mlp(wm_prefill_t *p, int64_t layer, const wm_layer_path_t *path,
                           wm_error_t *err) {
  wm_status_t status;
  if (path->kind == WM_LAYER_FULL)
    status = wm_model_mlp(p->model, layer, p->x, p->rows, p->y, p->workspace, err);
  else if (path->kind == WM_LAYER_SURROGATE)
    status = wm_routing_surrogate(p->model, p->surrogates, layer, p->x, p->rows, p->y, err);
  else
    status = route_rows(p, layer, path, err);
  if (status != WM_OK)
    return status;
  p->routed += path->kind == WM_LAYER_SURROGATE ? p->rows : 0;
  wm_model_add(p->model, p->h, p->y, p->rows * p->d);
  return WM_OK;
}

wm_status_t wm_prefill_run(wm_prefill_t *p, const wm_batch_t *batch, const int32_t *ids,
                           const int64_t *token, const wm_layer_path_t *paths, wm_error_t *err) {
  static const wm_layer_path_t full = {.kind = WM_LAYER_FULL};
  const int64_t layers = wm_model_arch(p->model)->n_layers;
  const float *x;
  wm_status_t status;
  WM_TRY(wm_prefill_begin(p, batch, ids, token, err));
  for (int64_t l = 0; l < layers; l++) {
    WM_TRY(wm_prefill_attend(p, l, &x, err));
    WM_TRY(wm_prefill_mlp(p, l, paths != NULL ? &paths[l] : &full, err));
  }
cleanup:
  return status;
}

int64_t wm_prefill_routed(const wm_prefill_t *p) {
  return p->routed;
}

/* --- the head -----------------------------------------------------------------------------------
 */

wm_status_t wm_prefill_last(wm_prefill_t *p, float *logits, wm_error_t *err) {
  for (int64_t s = 0; s < p->batch->n_sequences; s++)
    memcpy(p->last + s * p->d, p->h + (p->batch->starts[s + 1] - 1) * p->d,
           (size_t)p->d * sizeof *p->last);
  return wm_model_logits(p->model, p->last, p->batch->n_sequences, logits, p->workspace, err);
}

wm_status_t wm_prefill_losses(wm_prefill_t *p, const int32_t *targets, double *nll,
                              wm_error_t *err) {
  return wm_model_nll(p->model, p->h, p->rows, targets, nll, p->workspace, err);
}
