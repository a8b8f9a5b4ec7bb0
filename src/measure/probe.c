#include "wanamaker/measure/probe.h"

#include "probe_internal.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/measure/design.h"
#include "wanamaker/measure/hidden_probe.h"
#include "wanamaker/measure/logistic.h"

static int64_t largest(int64_t a, int64_t b) {
  return a > b ? a : b;
}

int64_t wm_probe_layer_bytes(const wm_probe_options_t *o, int64_t rows, int64_t positions,
                             int64_t d) {
  const int64_t eight = (int64_t)sizeof(double), four = (int64_t)sizeof(float);
  const int64_t gate = wm_logistic_bytes(rows, d) + d * d * eight + rows * 9;
  const int64_t pca = (5 * d * d + WM_DESIGN_TILE * d) * eight +
                      rows * (o->components + 4) * eight + o->components * d * eight;
  const int64_t hidden = wm_hidden_parameters(d, o->hidden) * 20 * eight + 2 * 256 * d * four;
  const int64_t features = positions * 14 * eight;
  return 3 * rows * d * four + positions * (2 * eight) +
         largest(largest(gate, pca), largest(hidden, features));
}

int64_t wm_probe_steps(const wm_probe_options_t *o, bool brief) {
  int64_t views = 0;
  for (int v = 0; v < WM_VIEWS; v++)
    views += o->views[v];
  const int64_t shape = 1, x = 2, a_view = 2 * (4 + WM_KEYS), linear = 1;
  return brief ? shape
               : shape + x + views * a_view + WM_KEYS + WM_PROBE_STEPS_OF_CLUSTERS + linear +
                     (o->hidden > 0 ? WM_PROBE_STEPS_OF_HIDDEN : 0);
}

const char *wm_probe_time_name(wm_probe_time_t time) {
  static const char *const names[WM_PROBE_TIMES] = {
      "distribution and types", "token against context", "forensics", "clusters", "separability"};
  return names[time];
}

/* Collective. */
static wm_status_t shape(const wm_probe_layer_t *l, wm_probe_tables_t *t, wm_error_t *err) {
  wm_probe_next(l, "distribution and types");
  wm_status_t status = wm_probe_distribution(l, t, err);
  if (status == WM_OK)
    status = wm_probe_positions(l, t, err);
  if (status == WM_OK)
    status = wm_probe_types(l, t, err);
  wm_probe_done(l, 1);
  return wm_agree(l->comm->world, status, err);
}

typedef wm_status_t probe_t(const wm_probe_layer_t *, wm_probe_tables_t *, wm_error_t *);

/* Collective. */
static wm_status_t run_timed(probe_t *probe, wm_probe_time_t time, const wm_probe_layer_t *l,
                             wm_probe_tables_t *t, wm_error_t *err) {
  const double start = wm_seconds();
  wm_status_t status = probe(l, t, err);
  if (l->seconds != NULL)
    l->seconds[time] += wm_seconds() - start;
  return status;
}

wm_status_t wm_probe_layer(const wm_probe_layer_t *l, wm_probe_tables_t *t, wm_error_t *err) {
  wm_status_t status;
  WM_TRY(run_timed(shape, WM_PROBE_TIME_SHAPE, l, t, err));
  if (l->brief)
    return WM_OK;
  WM_TRY(run_timed(wm_probe_context, WM_PROBE_TIME_CONTEXT, l, t, err));
  WM_TRY(run_timed(wm_probe_forensics, WM_PROBE_TIME_FORENSICS, l, t, err));
  WM_TRY(run_timed(wm_probe_clusters, WM_PROBE_TIME_CLUSTERS, l, t, err));
  WM_TRY(run_timed(wm_probe_separability, WM_PROBE_TIME_SEPARABILITY, l, t, err));
  WM_TRY(wm_agree(l->comm->world, wm_probe_tables_status(t, err), err));
cleanup:
  return status == WM_OK ? status
                         : wm_error_prefix(err, "probes of layer %lld", (long long)l->layer);
}
