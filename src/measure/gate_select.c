#include "wanamaker/measure/gate_select.h"

#include "wanamaker/measure/records.h"

#include <assert.h>
#include <math.h>

/* The gate of a variant that has one and changes nothing else; NULL: it has not. */
static const wm_change_t *gate_of(const wm_variants_t *variants, int64_t variant) {
  int64_t count;
  const wm_change_t *c = wm_variants_changes(variants, variant, &count);
  return count == 1 && c->gate >= 0 ? c : NULL;
}

static bool is_candidate(const wm_gates_t *gates, const wm_sweep_t *sweep, int64_t variant,
                         double least_routed) {
  const wm_change_t *c = gate_of(sweep->variants, variant);
  return c != NULL && wm_gate_has_score(gates->gates[c->gate].kind) &&
         isfinite(sweep->effects[variant].delta) && sweep->measures[variant].routed >= least_routed;
}

void wm_gate_select(wm_gates_t *gates, const wm_sweep_t *sweep, double least_routed,
                    int64_t *selected_variant) {
  for (int64_t i = 0; i < gates->n_described; i++) {
    wm_gate_layer_t *layer = &gates->layers[i];
    int64_t best = -1;
    for (int64_t v = 1; v < sweep->variants->n; v++)
      if (is_candidate(gates, sweep, v, least_routed) &&
          gate_of(sweep->variants, v)->layer == layer->layer &&
          (best < 0 || sweep->effects[v].delta < sweep->effects[best].delta))
        best = v;
    selected_variant[i] = best;
    layer->selected = best < 0 ? -1 : gate_of(sweep->variants, best)->gate;
    layer->selected_threshold = best < 0 ? NAN : gate_of(sweep->variants, best)->threshold;
  }
}

/* Part of the positions that a variant's last layer routes: `routed` is the mean over all. */
static double routed_last(const wm_sweep_t *s, int64_t variant, int64_t before) {
  return s->measures[variant].routed * (double)(before + 1) -
         s->measures[1].routed * (double)before;
}

void wm_gate_select_last(wm_gates_t *gates, const wm_sweep_t *s, int64_t layer,
                         double least_routed) {
  const double rounding = 1e-9;
  int64_t before, n, best = -1;
  wm_gate_layer_t *l = NULL;
  wm_variants_changes(s->variants, 1, &before);
  for (int64_t i = 0; i < gates->n_described; i++)
    if (gates->layers[i].layer == layer)
      l = &gates->layers[i];
  assert(l != NULL);
  l->selected = -1;
  l->selected_threshold = NAN;
  for (int64_t v = 2; v < s->variants->n; v++) {
    const wm_change_t *c = wm_variants_changes(s->variants, v, &n) + before;
    assert(n == before + 1 && c->layer == layer);
    if (!wm_gate_has_score(gates->gates[c->gate].kind) || !isfinite(s->effects[v].delta) ||
        routed_last(s, v, before) < least_routed - rounding ||
        (best >= 0 && s->effects[v].delta >= s->effects[best].delta))
      continue;
    best = v;
    l->selected = c->gate;
    l->selected_threshold = c->threshold;
  }
}

wm_status_t wm_gate_curve_write(const wm_sweep_t *s, wm_h5_t *file, wm_error_t *err) {
  static const wm_record_layout_t layout = {
      .path = "/curve",
      .description = "[routed variant] what was measured of a layer's gate at a threshold: "
                     "perplexity, its change in percent with its paired-bootstrap interval, routed "
                     "part of the positions",
      .label = "gate",
      .columns = {{"layer", "layer", NULL, 0},
                  {"gate", "gate", NULL, 0},
                  {"threshold", "threshold", NULL, 3},
                  {"ppl", "PPL", NULL, 3},
                  {"delta_pct", "delta", "%", 3},
                  {"low", "low", "%", 3},
                  {"high", "high", "%", 3},
                  {"routed", "routed", NULL, 3}},
      .n_columns = 8};
  wm_records_t records;
  wm_status_t status = WM_OK;
  wm_records_init(&records, &layout);
  for (int64_t v = 1; v < s->variants->n && status == WM_OK; v++) {
    const wm_change_t *c = gate_of(s->variants, v);
    const wm_effect_t *e = &s->effects[v];
    char label[WM_RECORD_LABEL];
    if (c == NULL)
      continue;
    wm_gate_label(&s->variants->gates->gates[c->gate], label, sizeof label);
    const double values[8] = {
        (double)c->layer, (double)c->gate, c->threshold, e->perplexity,
        e->delta,         e->low,          e->high,      s->measures[v].routed};
    status = wm_records_add(&records, label, values, err);
  }
  status = wm_agree(s->comm->world, status, err);
  if (status == WM_OK)
    status = wm_records_write(&records, file, s->comm->rank == 0, err);
  wm_records_destroy(&records);
  return status;
}
