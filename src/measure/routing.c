#include "wanamaker/measure/routing.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/base/profile.h"

#include <assert.h>
#include <string.h>

struct wm_routing {
  int64_t max_rows, d;
  int64_t
      *index;   /* [max_rows] rows of the MLP, ascending, and behind them those of the surrogate */
  float *x, *y; /* [most_rows, d] of one route */
};

/* --- life ---------------------------------------------------------------------------------------
 */

/* Rows gathered at a time: what the products take together. */
static int64_t most_rows(const wm_model_t *model, wm_tiles_t tiles, int64_t max_rows) {
  return wm_gemm_most_rows(tiles, wm_model_tile_rows(model), max_rows);
}

int64_t wm_routing_bytes(const wm_model_t *model, int64_t max_rows) {
  const int64_t d = wm_model_arch(model)->d_model;
  return max_rows * (int64_t)sizeof(int64_t) +
         2 * most_rows(model, WM_TILES_FIXED, max_rows) * d * (int64_t)sizeof(float);
}

wm_status_t wm_routing_create(const wm_model_t *model, int64_t max_rows, wm_routing_t **out,
                              wm_error_t *err) {
  assert(max_rows >= 0);
  wm_status_t status;
  void *memory;
  *out = NULL;
  WM_TRY(wm_alloc(&memory, 1, sizeof(wm_routing_t), "routing", err));
  wm_routing_t *r = *out = memory;
  *r = (wm_routing_t){.max_rows = max_rows, .d = wm_model_arch(model)->d_model};
  const int64_t most = most_rows(model, WM_TILES_FIXED, max_rows);
  WM_TRY(wm_alloc(&memory, max_rows, sizeof(int64_t), "rows by route", err));
  r->index = memory;
  WM_TRY(wm_alloc(&memory, most * r->d, sizeof(float), "gathered rows", err));
  r->x = memory;
  WM_TRY(wm_alloc(&memory, most * r->d, sizeof(float), "rows to scatter", err));
  r->y = memory;
cleanup:
  if (status != WM_OK) {
    wm_routing_free(*out);
    *out = NULL;
  }
  return status;
}

void wm_routing_free(wm_routing_t *r) {
  if (r == NULL)
    return;
  free(r->index);
  free(r->x);
  free(r->y);
  free(r);
}

/* --- paths --------------------------------------------------------------------------------------
 */

static void count_surrogate(const wm_model_t *model, double start, int64_t rows) {
  wm_profile_stop(wm_model_profile(model), WM_KERNEL_SURROGATE, start,
                  (double)rows * wm_arch_flops_surrogate(wm_model_arch(model)), 0);
}

wm_status_t wm_routing_surrogate(wm_model_t *model, const wm_surrogates_t *surrogates,
                                 int64_t layer, const float *x, int64_t rows, float *y,
                                 wm_error_t *err) {
  double start = wm_profile_start(wm_model_profile(model));
  wm_status_t status = wm_surrogates_apply(surrogates, layer, x, rows, y, err);
  count_surrogate(model, start, rows);
  return status;
}

/* What one call works on. */
typedef struct {
  wm_routing_t *r;
  wm_model_t *model;
  const wm_surrogates_t *surrogates;
  int64_t layer;
  wm_workspace_t *workspace;
} call_t;

static wm_status_t run_path(const call_t *c, int path, const float *x, int64_t rows, float *y,
                            wm_error_t *err) {
  if (rows == 0)
    return WM_OK;
  return path == WM_ROUTE_MLP
             ? wm_model_mlp(c->model, c->layer, x, rows, y, c->workspace, err)
             : wm_routing_surrogate(c->model, c->surrogates, c->layer, x, rows, y, err);
}

/* The rows gathered in r->x into r->y. */
static wm_status_t run_gathered(const call_t *c, int path, int64_t rows, wm_error_t *err) {
  wm_routing_t *r = c->r;
  if (path == WM_ROUTE_MLP)
    return wm_model_mlp_padded(c->model, c->layer, r->x, rows, r->y, c->workspace, err);
  double start = wm_profile_start(wm_model_profile(c->model));
  wm_status_t status = wm_surrogates_apply_padded(c->surrogates, c->layer, r->x, rows, r->y, err);
  count_surrogate(c->model, start, rows);
  return status;
}

static void gather(const float *x, const int64_t *index, int64_t rows, int64_t d, float *out) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < rows; i++)
    memcpy(out + i * d, x + index[i] * d, (size_t)d * sizeof *x);
}

static void scatter(const float *y, const int64_t *index, int64_t rows, int64_t d, float *out) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < rows; i++)
    memcpy(out + index[i] * d, y + i * d, (size_t)d * sizeof *y);
}

/* Rows index[0 .. rows - 1] of x, as many as go together at a time, into the same rows of y. */
static wm_status_t run_route(const call_t *c, int path, const float *x, const int64_t *index,
                             int64_t rows, float *y, wm_error_t *err) {
  wm_routing_t *r = c->r;
  wm_profile_t *profile = wm_model_profile(c->model);
  const wm_tiles_t tiles = wm_model_tiles(c->model);
  const int64_t share = wm_gemm_share(tiles, wm_model_tile_rows(c->model),
                                      most_rows(c->model, tiles, r->max_rows), rows);
  for (int64_t first = 0; first < rows; first += share) {
    const int64_t n = rows - first < share ? rows - first : share;
    const double bytes = 8.0 * (double)(n * r->d);
    double start = wm_profile_start(profile);
    gather(x, index + first, n, r->d, r->x);
    wm_profile_stop(profile, WM_KERNEL_ROUTE, start, 0, bytes);
    wm_status_t status = run_gathered(c, path, n, err);
    if (status != WM_OK)
      return status;
    start = wm_profile_start(profile);
    scatter(r->y, index + first, n, r->d, y);
    wm_profile_stop(profile, WM_KERNEL_ROUTE, start, 0, bytes);
  }
  return WM_OK;
}

/* Fills r->index; returns the number of rows of the MLP. */
static int64_t sort_rows(wm_routing_t *r, const uint8_t *route, int64_t rows) {
  int64_t full = 0;
  for (int64_t i = 0; i < rows; i++)
    full += route[i] == WM_ROUTE_MLP;
  int64_t next[2] = {0, full};
  for (int64_t i = 0; i < rows; i++)
    r->index[next[route[i] != WM_ROUTE_MLP]++] = i;
  return full;
}

wm_status_t wm_routing_apply(wm_routing_t *routing, wm_model_t *model,
                             const wm_surrogates_t *surrogates, int64_t layer, const float *x,
                             const uint8_t *route, int64_t rows, float *y,
                             wm_workspace_t *workspace, wm_error_t *err) {
  assert(rows <= routing->max_rows);
  const call_t c = {routing, model, surrogates, layer, workspace};
  const int64_t full = sort_rows(routing, route, rows);
  assert(full == rows || (wm_surrogates_tile_rows(surrogates) == wm_model_tile_rows(model) &&
                          wm_surrogates_tiles(surrogates) == wm_model_tiles(model)));
  if (full == rows)
    return run_path(&c, WM_ROUTE_MLP, x, rows, y, err);
  if (full == 0)
    return run_path(&c, WM_ROUTE_SURROGATE, x, rows, y, err);
  wm_status_t status = run_route(&c, WM_ROUTE_MLP, x, routing->index, full, y, err);
  return status == WM_OK
             ? run_route(&c, WM_ROUTE_SURROGATE, x, routing->index + full, rows - full, y, err)
             : status;
}
