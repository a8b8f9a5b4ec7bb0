#include "gate_fit_internal.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/measure/design.h"
#include "wanamaker/measure/logistic.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int64_t wm_gate_fit_components(const wm_gate_fit_options_t *o, int64_t d) {
  int64_t most = 0;
  for (int64_t i = 0; i < o->n_specs; i++)
    most = o->specs[i].components > most ? o->specs[i].components : most;
  return most < d ? most : d;
}

int64_t wm_gate_fit_bytes(const wm_gate_fit_options_t *o, int64_t rows, int64_t d) {
  const int64_t k = wm_gate_fit_components(o, d), eight = (int64_t)sizeof(double);
  const int64_t regression =
      wm_logistic_bytes(rows, d) + d * d * eight; /* and its distributed copy */
  const int64_t pca = k > 0 ? (5 * d * d + WM_DESIGN_TILE * d) * eight : 0;
  return (regression > pca ? regression : pca) + rows * (2 * k + 3) * eight +
         (2 * k + 6) * d * eight;
}

/* --- memory and labels --------------------------------------------------------------------------
 */

static wm_status_t doubles(double **out, int64_t n, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, n, sizeof(double), "a fit of gates", err);
  *out = memory;
  return status;
}

static wm_status_t open_text(wm_gate_text_t *t, const wm_gate_rows_t *rows, wm_error_t *err) {
  wm_status_t status;
  void *memory;
  if (rows == NULL)
    return WM_OK;
  t->rows = rows;
  WM_TRY(doubles(&t->delta, rows->total, err));
  WM_TRY(doubles(&t->score, rows->total, err));
  WM_TRY(wm_alloc(&memory, rows->total, sizeof(int8_t), "labels", err));
  t->label = memory;
  wm_labels_delta(rows->linear, rows->full, rows->total, t->delta);
cleanup:
  return status;
}

static void close_text(wm_gate_text_t *t) {
  free(t->delta);
  free(t->score);
  free(t->label);
}

static void set_labels(wm_gate_text_t *t, double threshold) {
  for (int64_t i = 0; t->rows != NULL && i < t->rows->total; i++)
    t->label[i] = wm_label_of(t->delta[i], threshold);
}

/* The fit's rows that have a label. */
static void select_rows(wm_gate_work_t *w) {
  const wm_gate_rows_t *rows = w->fit.rows;
  for (int64_t i = 0; i < rows->n; i++) {
    int8_t label = w->fit.label[rows->place[i]];
    if (label == WM_LABEL_NONE)
      continue;
    w->index[w->n] = i;
    w->label[w->n++] = label;
  }
}

static wm_status_t open_work(wm_gate_work_t *w, const wm_gate_rows_t *fit,
                             const wm_gate_rows_t *heldout, wm_error_t *err) {
  const int64_t d = w->d, k = w->gates->k;
  wm_status_t status;
  void *memory;
  WM_TRY(open_text(&w->fit, fit, err));
  WM_TRY(open_text(&w->heldout, heldout, err));
  WM_TRY(wm_labels_find(w->fit.delta, fit->total, &w->fit.labels, err));
  if (heldout != NULL)
    wm_labels_count(w->heldout.delta, heldout->total, w->fit.labels.threshold, &w->heldout.labels);
  set_labels(&w->fit, w->fit.labels.threshold);
  set_labels(&w->heldout, w->fit.labels.threshold);
  WM_TRY(wm_alloc(&memory, fit->n, sizeof(int64_t), "rows of a fit of gates", err));
  w->index = memory;
  WM_TRY(wm_alloc(&memory, fit->n, sizeof(int8_t), "labels", err));
  w->label = memory;
  select_rows(w);
  WM_TRY(doubles(&w->mean, d, err));
  WM_TRY(doubles(&w->scale, d, err));
  WM_TRY(doubles(&w->components, k * d, err));
  WM_TRY(doubles(&w->variance, k, err));
  WM_TRY(doubles(&w->projected, w->n * k, err));
  WM_TRY(doubles(&w->column, w->n * (k > 1 ? k : 1), err));
  WM_TRY(doubles(&w->weight, d, err));
  WM_TRY(doubles(&w->coefficient, d > k ? d : k, err));
cleanup:
  return status;
}

static void close_work(wm_gate_work_t *w) {
  close_text(&w->fit);
  close_text(&w->heldout);
  free(w->index);
  free(w->label);
  free(w->mean);
  free(w->scale);
  free(w->components);
  free(w->variance);
  free(w->projected);
  free(w->column);
  free(w->weight);
  free(w->coefficient);
}

/* --- what all gates of a layer share ------------------------------------------------------------
 */

static wm_design_t standardised(const wm_gate_work_t *w) {
  return (wm_design_t){.n = w->n,
                       .k = w->d,
                       .x = w->fit.rows->x,
                       .index = w->index,
                       .mean = w->mean,
                       .scale = w->scale};
}

/* Standardisation and principal components. Collective. */
static wm_status_t prepare(wm_gate_work_t *w, wm_error_t *err) {
  const wm_design_t x = standardised(w);
  wm_status_t status = WM_OK;
  wm_design_standardize(w->comm->world, &x, w->mean, w->scale, &w->constant, &w->total);
  w->k = w->gates->k < w->total ? w->gates->k : w->total;
  if (w->k == 0)
    return WM_OK;
  WM_TRY(
      wm_design_pca(w->comm->world, &x, w->k, w->options->block, w->components, w->variance, err));
  WM_TRY(
      wm_agree(w->comm->world, wm_design_project(&x, w->components, w->k, w->projected, err), err));
cleanup:
  return status;
}

static wm_status_t describe(const wm_gate_work_t *w, wm_error_t *err) {
  const wm_labels_t *l = &w->fit.labels, *h = &w->heldout.labels;
  const bool components = w->gates->k > 0;
  const wm_gate_layer_t layer = {.layer = w->layer,
                                 .positions = l->positions,
                                 .dropped = l->dropped,
                                 .positions_heldout = h->positions,
                                 .dropped_heldout = h->dropped,
                                 .label_threshold = l->threshold,
                                 .label_share = wm_gate_share(l->ones, l->positions),
                                 .better_share = wm_gate_share(l->better, l->positions),
                                 .label_quartile = l->quartile,
                                 .mean = w->mean,
                                 .scale = w->scale,
                                 .components = components ? w->components : NULL,
                                 .variance = components ? w->variance : NULL,
                                 .selected = -1,
                                 .selected_threshold = NAN};
  return wm_gates_add_layer(w->gates, &layer, err);
}

/* --- one gate -----------------------------------------------------------------------------------
 */

static void add_note(wm_gate_t *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add_note(wm_gate_t *g, const char *format, ...) {
  char *note = g->report.note;
  size_t used = strlen(note);
  if (used > 0 && used + 2 < WM_GATE_NOTE_SIZE)
    used += (size_t)snprintf(note + used, WM_GATE_NOTE_SIZE - used, "; ");
  va_list args;
  va_start(args, format);
  vsnprintf(note + used, WM_GATE_NOTE_SIZE - used, format, args);
  va_end(args);
}

/* Says the same at every position, as the labels do. */
static void make_constant(const wm_gate_work_t *w, wm_gate_t *g) {
  const double ones = (double)w->fit.labels.ones, all = (double)w->fit.labels.positions;
  memset(w->weight, 0, (size_t)w->d * sizeof *w->weight);
  memset(w->coefficient, 0, (size_t)w->d * sizeof *w->coefficient);
  g->scale = 0;
  g->bias = log((ones + 0.5) / (all - ones + 0.5));
}

static bool all_equal(const wm_gate_text_t *t) {
  double low = INFINITY, high = -INFINITY;
  for (int64_t i = 0; i < t->rows->total; i++)
    if (isfinite(t->delta[i])) {
      low = fmin(low, t->delta[i]);
      high = fmax(high, t->delta[i]);
    }
  return low == high;
}

/* Are there two classes to tell apart? If not, the gate says why. */
static bool can_fit(const wm_gate_work_t *w, wm_gate_t *g) {
  const wm_labels_t *l = &w->fit.labels;
  if (l->positions == 0)
    add_note(g, "no delta is finite");
  else if (all_equal(&w->fit))
    add_note(g, "one class: all deltas are equal");
  else if (l->ones == l->positions)
    add_note(g, "one class: no delta is above the threshold");
  else
    return true;
  return false;
}

/* w->coefficient and *intercept. A regression that fails leaves a constant gate and its reason.
 * Collective. */
static wm_status_t regress(wm_gate_work_t *w, const wm_design_t *design, wm_gate_t *g,
                           double *intercept, bool *fitted, wm_error_t *err) {
  wm_logistic_t r;
  *fitted = false;
  if (!can_fit(w, g))
    return WM_OK;
  wm_status_t status = wm_logistic_fit(w->comm->world, design, w->label, w->options->C,
                                       w->options->block, w->coefficient, intercept, &r, err);
  *fitted = status == WM_OK;
  g->report.iterations = r.iterations;
  g->report.loss = *fitted ? r.loss : NAN;
  if (status != WM_NUMERICAL)
    return status;
  add_note(g, "not fitted: %s", err->message);
  return WM_OK;
}

/* weight, bias in raw x of `coefficient` on the standardised x. */
static void fold(wm_gate_work_t *w, const double *coefficient, double intercept, wm_gate_t *g) {
  g->bias = intercept;
  for (int64_t j = 0; j < w->d; j++) {
    w->weight[j] = coefficient[j] / w->scale[j];
    g->bias -= w->weight[j] * w->mean[j];
  }
}

static void note_features(const wm_gate_work_t *w, wm_gate_t *g) {
  if (w->constant > 0)
    add_note(g, "%" PRId64 " constant feature%s", w->constant, w->constant > 1 ? "s" : "");
  if (w->total > 0 && w->total < w->d)
    add_note(g, "%" PRId64 " positions for %" PRId64 " features", w->total, w->d);
}

static wm_status_t fit_linear(wm_gate_work_t *w, wm_gate_t *g, wm_error_t *err) {
  const wm_design_t x = standardised(w);
  double intercept;
  bool fitted;
  wm_status_t status = regress(w, &x, g, &intercept, &fitted, err);
  if (status == WM_OK && fitted)
    fold(w, w->coefficient, intercept, g);
  else
    make_constant(w, g);
  note_features(w, g);
  g->weight = w->weight;
  g->report.parameters = w->d + 1;
  return status;
}

/* Columns first .. first + count - 1 of the projections, side by side. */
static wm_design_t some_components(const wm_gate_work_t *w, int64_t first, int64_t count) {
  for (int64_t i = 0; i < w->n; i++)
    memcpy(w->column + i * count, w->projected + i * w->k + first, (size_t)count * sizeof(double));
  return (wm_design_t){.n = w->n, .k = count, .z = w->column};
}

static wm_status_t fit_components(wm_gate_work_t *w, wm_gate_t *g, wm_error_t *err) {
  const bool alone = g->kind == WM_GATE_COMPONENT;
  const int64_t wanted = g->components;
  g->components = wanted < w->k ? wanted : w->k > 1 ? w->k : 1;
  const int64_t first = alone ? g->components - 1 : 0, count = alone ? 1 : g->components;
  double intercept;
  bool fitted = false;
  wm_status_t status = WM_OK;
  if (w->k > 0) {
    const wm_design_t z = some_components(w, first, count);
    status = regress(w, &z, g, &intercept, &fitted, err);
  } else {
    can_fit(w, g);
  }
  if (status == WM_OK && fitted) {
    void *memory;
    status = wm_agree(w->comm->world, wm_alloc(&memory, w->d, sizeof(double), "a gate", err), err);
    if (status != WM_OK)
      return status;
    double *direction = memory;
    for (int64_t c = 0; c < count; c++)
      for (int64_t j = 0; j < w->d; j++)
        direction[j] += w->coefficient[c] * w->components[(first + c) * w->d + j];
    fold(w, direction, intercept, g);
    free(memory);
  } else {
    make_constant(w, g);
  }
  if (g->components < wanted)
    add_note(g, "%" PRId64 " components, not %" PRId64 ": there are no more", g->components,
             wanted);
  note_features(w, g);
  g->weight = w->weight;
  g->coefficient = w->coefficient;
  g->report.parameters = count + 1;
  return status;
}

static wm_status_t fit_feature(wm_gate_work_t *w, wm_gate_t *g, wm_error_t *err) {
  const wm_design_t f = {.n = w->n, .k = 1, .z = w->column};
  double mean, scale, intercept;
  int64_t constant, total;
  bool fitted;
  for (int64_t i = 0; i < w->n; i++)
    w->column[i] = wm_gate_feature(g->kind, w->fit.rows->x + w->index[i] * w->d, w->d);
  wm_design_standardize(w->comm->world, &f, &mean, &scale, &constant, &total);
  for (int64_t i = 0; i < w->n; i++)
    w->column[i] = (w->column[i] - mean) / scale;
  wm_status_t status = regress(w, &f, g, &intercept, &fitted, err);
  if (status == WM_OK && fitted) {
    g->scale = w->coefficient[0] / scale;
    g->bias = intercept - g->scale * mean;
  } else {
    make_constant(w, g);
  }
  if (constant > 0)
    add_note(g, "the feature is constant");
  g->report.parameters = 2;
  return status;
}

/* --- references ---------------------------------------------------------------------------------
 */

/* What the layer's linear gate routes. */
static double linear_fraction(const wm_gate_work_t *w) {
  for (int64_t i = 0; i < w->gates->n; i++) {
    const wm_gate_t *g = &w->gates->gates[i];
    if (g->layer == w->layer && g->kind == WM_GATE_LINEAR)
      return isnan(g->report.routed_heldout) ? g->report.routed : g->report.routed_heldout;
  }
  return NAN;
}

static void set_random(const wm_gate_work_t *w, wm_gate_t *g) {
  double fraction = linear_fraction(w);
  g->fraction = isnan(fraction) ? 0.5 : fraction;
  g->seed = w->options->seed;
  g->report.routed = g->report.routed_heldout = g->fraction;
  if (isnan(fraction))
    add_note(g, "no linear gate: one half");
}

static void set_oracle(const wm_gate_work_t *w, wm_gate_t *g) {
  const wm_labels_t *l = &w->fit.labels, *h = &w->heldout.labels;
  g->report.routed = wm_gate_share(l->better, l->positions + l->dropped);
  g->report.routed_heldout = wm_gate_share(h->better, h->positions + h->dropped);
}

static wm_status_t fit_gate(wm_gate_work_t *w, const wm_gate_spec_t *spec, double *linear_score,
                            wm_error_t *err) {
  wm_gate_t g = {.layer = w->layer,
                 .kind = spec->kind,
                 .components = spec->components,
                 .threshold = w->options->threshold};
  wm_gate_report_t *r = &g.report;
  wm_status_t status = WM_OK;
  r->loss = r->auc = r->accuracy = r->routed = r->r_delta = NAN;
  r->auc_heldout = r->accuracy_heldout = r->routed_heldout = r->r_delta_heldout = NAN;
  r->auc_low = r->auc_high = NAN;
  if (g.kind == WM_GATE_LINEAR)
    status = fit_linear(w, &g, err);
  else if (g.kind == WM_GATE_PCA || g.kind == WM_GATE_COMPONENT)
    status = fit_components(w, &g, err);
  else if (wm_gate_has_score(g.kind))
    status = fit_feature(w, &g, err);
  else if (g.kind == WM_GATE_RANDOM)
    set_random(w, &g);
  else
    set_oracle(w, &g);
  if (status == WM_OK)
    status = wm_agree(w->comm->world, wm_gates_add(w->gates, &g, err), err);
  if (status == WM_OK && wm_gate_has_score(g.kind))
    status = wm_gate_report(w, err);
  if (status == WM_OK && g.kind == WM_GATE_LINEAR && linear_score != NULL)
    memcpy(linear_score, w->fit.score, (size_t)w->fit.rows->total * sizeof *linear_score);
  return status;
}

wm_status_t wm_gate_fit_layer(const wm_comm_t *comm, int64_t layer, const wm_gate_rows_t *fit,
                              const wm_gate_rows_t *heldout, const wm_gate_fit_options_t *options,
                              wm_gates_t *gates, double *linear_score, wm_error_t *err) {
  wm_gate_work_t w = {
      .comm = comm, .options = options, .gates = gates, .layer = layer, .d = gates->d};
  wm_status_t status;
  for (int64_t i = 0; linear_score != NULL && i < fit->total; i++)
    linear_score[i] = NAN;
  WM_TRY(wm_agree(comm->world, open_work(&w, fit, heldout, err), err));
  WM_TRY(prepare(&w, err));
  WM_TRY(wm_agree(comm->world, describe(&w, err), err));
  for (int64_t i = 0; i < options->n_specs; i++)
    WM_TRY(fit_gate(&w, &options->specs[i], linear_score, err));
cleanup:
  close_work(&w);
  return status == WM_OK ? status : wm_error_prefix(err, "gates of layer %" PRId64, layer);
}
