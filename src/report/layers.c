/* What result files say of each layer, and how models are called. */
#include "results_internal.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/measure/inference.h"

#include <assert.h>
#include <math.h>
#include <string.h>

const char *wm_verdict_name(wm_verdict_t verdict) {
  static const char *const names[] = {"wasted", "needed", "undecided", "not measured"};
  return names[verdict];
}

/* ---- layers ---------------------------------------------------------------------------------- */

int64_t wm_variant_layer(const wm_frame_t *variants, int64_t row) {
  const char *layers = wm_frame_text(variants, row, "layers");
  if (strcmp(wm_frame_text(variants, row, "path"), "surrogate") != 0 || layers[0] == '\0' ||
      layers[strspn(layers, "0123456789")] != '\0')
    return -1;
  return strtoll(layers, NULL, 10);
}

static wm_layer_result_t *slot(wm_results_t *r, int64_t layer) {
  for (int64_t i = 0; i < r->n_layers; i++)
    if (r->layer_results[i].layer == layer)
      return &r->layer_results[i];
  r->layer_results[r->n_layers] = (wm_layer_result_t){.layer = layer,
                                                      .linear = -1,
                                                      .gated = -1,
                                                      .gate = -1,
                                                      .threshold = NAN,
                                                      .surrogate = -1,
                                                      .verdict = WM_UNMEASURED};
  return &r->layer_results[r->n_layers++];
}

static int by_layer(const void *a, const void *b) {
  const wm_layer_result_t *x = a, *y = b;
  return (x->layer > y->layer) - (x->layer < y->layer);
}

bool wm_change_is_alone(const wm_frame_t *changes, int64_t c) {
  const double variant = wm_frame_number(changes, c, "variant"); /* NaN beyond the ends: another */
  return wm_frame_number(changes, c - 1, "variant") != variant &&
         wm_frame_number(changes, c + 1, "variant") != variant;
}

/* The variant that routes one layer alone by this gate and threshold. */
static int64_t find_gated(const wm_results_t *r, int64_t layer, int64_t gate, double threshold) {
  for (int64_t c = 0; c < r->changes.n; c++) {
    double variant = wm_frame_number(&r->changes, c, "variant");
    double other = wm_frame_number(&r->changes, c, "threshold");
    if (wm_change_is_alone(&r->changes, c) &&
        wm_frame_number(&r->changes, c, "layer") == (double)layer &&
        wm_frame_number(&r->changes, c, "gate") == (double)gate &&
        (other == threshold || (isnan(other) && isnan(threshold))))
      return (int64_t)variant;
  }
  return -1;
}

static wm_verdict_t judge(const wm_results_t *r, int64_t row) {
  double low = wm_frame_number(&r->variants, row, "low");
  double high = wm_frame_number(&r->variants, row, "high");
  if (row < 0)
    return WM_UNMEASURED;
  if (r->n_units < WM_MIN_UNITS || isnan(low) || isnan(high) ||
      isnan(wm_frame_number(&r->variants, row, "delta_pct")))
    return WM_UNDECIDED;
  return high <= r->tolerance ? WM_WASTED : low > r->tolerance ? WM_NEEDED : WM_UNDECIDED;
}

static void gather(wm_results_t *r) {
  for (int64_t i = 0; i < r->layers.n; i++)
    slot(r, (int64_t)wm_frame_number(&r->layers, i, "layer"))->surrogate = i;
  for (int64_t v = 0; v < r->variants.n; v++)
    if (wm_variant_layer(&r->variants, v) >= 0)
      slot(r, wm_variant_layer(&r->variants, v))->linear = v;
  for (int64_t i = 0; i < r->gate_layers.n; i++) {
    wm_layer_result_t *l = slot(r, (int64_t)wm_frame_number(&r->gate_layers, i, "layer"));
    l->gate = (int64_t)wm_frame_number(&r->gate_layers, i, "gate");
    l->threshold = wm_frame_number(&r->gate_layers, i, "selected_threshold");
    if (l->gate >= 0)
      l->gated = find_gated(r, l->layer, l->gate, l->threshold);
  }
  if (r->n_layers > 0)
    qsort(r->layer_results, (size_t)r->n_layers, sizeof *r->layer_results, by_layer);
  for (int64_t i = 0; i < r->n_layers; i++)
    r->layer_results[i].verdict = judge(r, r->layer_results[i].linear);
}

/* ---- overview -------------------------------------------------------------------------------- */

static wm_status_t median_of(const wm_results_t *r, const char *member, double *out,
                             wm_error_t *err) {
  void *memory;
  int64_t n = 0;
  wm_status_t status = wm_alloc(&memory, r->n_layers, sizeof(double), "layers", err);
  if (status != WM_OK)
    return status;
  double *x = memory;
  for (int64_t i = 0; i < r->n_layers; i++)
    if (r->layer_results[i].linear >= 0)
      x[n++] = wm_frame_number(&r->variants, r->layer_results[i].linear, member);
  *out = wm_median(x, n);
  free(memory);
  return WM_OK;
}

static wm_status_t look_over(wm_results_t *r, wm_error_t *err) {
  wm_overview_t *o = &r->overview;
  *o = (wm_overview_t){.cheapest = -1, .dearest = -1};
  for (int64_t i = 0; i < r->n_layers; i++) {
    const wm_layer_result_t *l = &r->layer_results[i];
    o->wasted += l->verdict == WM_WASTED;
    o->needed += l->verdict == WM_NEEDED;
    o->undecided += l->verdict == WM_UNDECIDED;
    double cost = wm_frame_number(&r->variants, l->linear, "delta_pct");
    if (isnan(cost))
      continue;
    if (o->cheapest < 0 ||
        cost < wm_frame_number(&r->variants, r->layer_results[o->cheapest].linear, "delta_pct"))
      o->cheapest = i;
    if (o->dearest < 0 ||
        cost > wm_frame_number(&r->variants, r->layer_results[o->dearest].linear, "delta_pct"))
      o->dearest = i;
  }
  o->measured = o->wasted + o->needed + o->undecided;
  wm_status_t status = median_of(r, "delta_pct", &o->median_cost, err);
  if (status == WM_OK)
    status = median_of(r, "low", &o->median_low, err);
  return status == WM_OK ? median_of(r, "high", &o->median_high, err) : status;
}

wm_status_t wm_results_derive(wm_results_t *r, wm_error_t *err) {
  void *memory;
  int64_t most = r->layers.n + r->variants.n + r->gate_layers.n;
  wm_status_t status = wm_alloc(&memory, most, sizeof(wm_layer_result_t), "layers", err);
  if (status != WM_OK)
    return status;
  free(r->layer_results);
  r->layer_results = memory;
  r->n_layers = 0;
  gather(r);
  return look_over(r, err);
}

const char *wm_results_unmeasured(const wm_results_t *r) {
  if (r->why != NULL)
    return r->why;
  if (r->files[WM_FILE_SWEEP].state == WM_FILE_BAD)
    return r->files[WM_FILE_SWEEP].why;
  if (r->overview.measured == 0 && r->comparison.n == 0 &&
      wm_training_end(wm_training_range(&r->training, "evaluation")) < 0 &&
      wm_training_end(wm_training_range(&r->control, "evaluation")) < 0)
    return "no sweep has measured its layers yet";
  return NULL;
}

/* ---- labels ---------------------------------------------------------------------------------- */

/* The last component of a path, without slashes at its end. */
static char *last_component(const char *path) {
  size_t end = strlen(path);
  while (end > 1 && path[end - 1] == '/')
    end--;
  size_t begin = end;
  while (begin > 0 && path[begin - 1] != '/')
    begin--;
  return strndup(path + begin, end - begin);
}

wm_status_t wm_results_label(wm_results_t *all, int64_t n, wm_error_t *err) {
  for (int64_t i = 0; i < n; i++) {
    const char *model = wm_results_attribute(&all[i], "model");
    all[i].label = last_component(model[0] != '\0' ? model : all[i].dir);
    if (all[i].label == NULL)
      return wm_fail(err, WM_ENVIRONMENT, "cannot allocate a label");
  }
  void *memory;
  wm_status_t status = wm_alloc(&memory, n, sizeof(bool), "labels", err);
  bool *again = memory;
  for (int64_t i = 0; i < n && status == WM_OK; i++)
    for (int64_t j = 0; j < n; j++)
      again[i] |= j != i && strcmp(all[i].label, all[j].label) == 0;
  for (int64_t i = 0; i < n && status == WM_OK; i++) {
    char *longer = again[i] ? wm_format("%s (%s)", all[i].label, all[i].dir) : NULL;
    if (again[i] && longer == NULL)
      status = wm_fail(err, WM_ENVIRONMENT, "cannot allocate a label");
    if (longer == NULL)
      continue;
    free(all[i].label);
    all[i].label = longer;
  }
  free(memory);
  return status;
}
