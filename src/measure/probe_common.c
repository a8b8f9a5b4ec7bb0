#include "probe_internal.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/measure/auc.h"
#include "wanamaker/measure/design.h"
#include "wanamaker/measure/inference.h"
#include "wanamaker/measure/logistic.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *wm_probe_view_name(wm_probe_view_t view) {
  static const char *const names[WM_VIEWS] = {"normalised", "study", "normed"};
  return names[view];
}

wm_status_t wm_probe_go_on(const wm_probe_layer_t *l, wm_error_t *err) {
  int code = wm_stop_code();
  MPI_Allreduce(MPI_IN_PLACE, &code, 1, MPI_INT, MPI_MAX, l->comm->world);
  wm_stop_adopt(code);
  return code == 0 ? WM_OK : wm_fail(err, WM_STOPPED, "probes: stopped by %s", wm_stop_reason());
}

void wm_probe_next(const wm_probe_layer_t *l, const char *what) {
  wm_progress_t *p = l->progress;
  if (p == NULL)
    return;
  snprintf(p->note, sizeof p->note, "layer %lld, %s", (long long)l->layer, what);
  wm_progress_update(p, p->done);
}

void wm_probe_done(const wm_probe_layer_t *l, int64_t steps) {
  if (l->progress != NULL)
    wm_progress_update(l->progress, l->progress->done + steps);
}

void wm_probe_case(const wm_probe_layer_t *l, wm_probe_tables_t *t, wm_probe_table_id_t id) {
  wm_probe_text(t, id, l->corpus);
  wm_probe_text(t, id, l->surrogates);
  wm_probe_number(t, id, (double)l->layer);
}

double wm_probe_share(double part, double whole) {
  return whole != 0 ? part / whole : NAN;
}

static const char few_units[] = "too few units or resamples for an interval";

const char *wm_probe_reason(const wm_probe_layer_t *l, const wm_unit_statistic_t *r) {
  if (r->all.n == 0)
    return "no positions";
  if (isnan(r->value))
    return "it or delta is constant";
  return isnan(r->low) && l->options->bootstrap.resamples > 0 ? few_units : "";
}

/* --- labels -------------------------------------------------------------------------------------
 */

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

wm_status_t wm_probe_label(const wm_probe_layer_t *l, bool quartile, int8_t *label,
                           wm_probe_labels_t *out, wm_error_t *err) {
  const int64_t n = l->text->n;
  void *memory;
  *out = (wm_probe_labels_t){.label = label};
  wm_status_t status = wm_alloc(&memory, n, sizeof(double), "deltas in order", err);
  if (status != WM_OK)
    return status;
  double *train = memory;
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++)
    if (l->used[i] && !l->text->test[i])
      train[count++] = l->delta[i];
  status = wm_labels_find(train, count, &out->train, err);
  if (status == WM_OK && quartile) {
    qsort(train, (size_t)count, sizeof *train, ascending);
    wm_labels_count(train, count, wm_quantile_sorted(train, count, 0.25), &out->train);
    out->train.quartile = true;
  }
  free(memory);
  for (int64_t i = 0; i < n; i++) {
    label[i] = l->used[i] && count > 0 ? wm_label_of(l->delta[i], out->train.threshold)
                                       : (int8_t)WM_LABEL_NONE;
    out->test += l->text->test[i] && label[i] != WM_LABEL_NONE;
    out->test_ones += l->text->test[i] && label[i] == 1;
  }
  return status;
}

/* --- judgement ----------------------------------------------------------------------------------
 */

/* Of the positions with a label: 2 right ones / (2 right ones + wrong ones). */
static double f1_of(const double *score, const int8_t *label, int64_t n, double least) {
  double right = 0, wrong = 0;
  for (int64_t i = 0; i < n; i++)
    if (label[i] != WM_LABEL_NONE) {
      const bool one = label[i] == 1, said = score[i] > least;
      right += one && said;
      wrong += one != said;
    }
  return wm_probe_share(2 * right, 2 * right + wrong);
}

static void keep_side(const wm_probe_layer_t *l, const int8_t *label, bool test, int8_t *out) {
  for (int64_t i = 0; i < l->text->n; i++)
    out[i] = (l->text->test[i] != 0) == test ? label[i] : (int8_t)WM_LABEL_NONE;
}

wm_status_t wm_probe_judge(const wm_probe_layer_t *l, const double *score, const int8_t *label,
                           double least, wm_probe_judgement_t *out, wm_error_t *err) {
  const wm_probe_text_t *t = l->text;
  void *memory;
  *out = (wm_probe_judgement_t){NAN, NAN, NAN, NAN, NAN, NAN};
  wm_status_t status = wm_alloc(&memory, t->n, sizeof(int8_t), "labels", err);
  if (status == WM_OK) {
    keep_side(l, label, false, memory);
    status = wm_auc(score, memory, t->n, &out->auc_train, err);
  }
  if (status == WM_OK) {
    keep_side(l, label, true, memory);
    status = wm_auc(score, memory, t->n, &out->auc, err);
    out->accuracy = wm_accuracy(score, memory, t->n, least);
    out->f1 = f1_of(score, memory, t->n, least);
  }
  WM_TRY(wm_agree(l->comm->world, status, err));
  if (l->options->bootstrap.resamples > 0)
    WM_TRY(wm_auc_interval(l->comm->world, score, memory, t->unit, t->n, t->n_units,
                           &l->options->bootstrap, &out->low, &out->high, err));
cleanup:
  free(memory);
  return status;
}

const char *wm_probe_judgement_note(const wm_probe_layer_t *l, const wm_probe_labels_t *labels,
                                    const wm_probe_judgement_t *j, const char *note) {
  if (labels->test == 0)
    return "no held-out positions";
  if (note[0] != '\0')
    return note;
  if (isnan(j->auc))
    return "one class among held-out positions";
  return isnan(j->low) && l->options->bootstrap.resamples > 0 ? few_units : "";
}

/* --- logistic gates -----------------------------------------------------------------------------
 */

int64_t wm_probe_train_rows(const wm_probe_layer_t *l, int64_t *index) {
  int64_t n = 0;
  for (int64_t i = 0; i < l->n; i++)
    if (l->used[l->place[i]] && !l->text->test[l->place[i]])
      index[n++] = i;
  return n;
}

typedef struct {
  int64_t *index;       /* [n] training rows */
  int8_t *label;        /* [n] */
  double *mean, *scale; /* [k] */
  double *coefficient;  /* [k] */
  int64_t constant, total, ones;
} gate_t;

static wm_status_t open_gate(const wm_probe_layer_t *l, int64_t k, gate_t *g, wm_error_t *err) {
  wm_status_t status;
  void *memory;
  WM_TRY(wm_alloc(&memory, l->n, sizeof *g->index, "a gate", err));
  g->index = memory;
  WM_TRY(wm_alloc(&memory, l->n, sizeof *g->label, "a gate", err));
  g->label = memory;
  WM_TRY(wm_alloc(&memory, 3 * k, sizeof(double), "a gate", err));
  g->mean = memory;
  g->scale = g->mean + k;
  g->coefficient = g->scale + k;
cleanup:
  return status;
}

/* score[N] <- log-odds at this rank's used rows, then everybody's. Collective. */
static void score_rows(const wm_probe_layer_t *l, const float *f, int64_t k, const gate_t *g,
                       double intercept, double *score) {
  memset(score, 0, (size_t)l->text->n * sizeof *score);
  for (int64_t i = 0; i < l->n; i++) {
    if (!l->used[l->place[i]])
      continue;
    double sum = intercept;
    for (int64_t j = 0; j < k; j++)
      sum += g->coefficient[j] * (((double)f[i * k + j] - g->mean[j]) / g->scale[j]);
    score[l->place[i]] = sum;
  }
  wm_sum_f64(l->comm->world, score, l->text->n);
}

/* Collective. Are there two classes to tell apart? */
static bool can_fit(const wm_probe_layer_t *l, gate_t *g, int64_t n, char note[64]) {
  int64_t counts[2] = {n, 0};
  for (int64_t i = 0; i < n; i++)
    counts[1] += g->label[i];
  wm_sum_i64(l->comm->world, counts, 2);
  g->total = counts[0];
  g->ones = counts[1];
  if (g->total == 0)
    snprintf(note, 64, "no training positions");
  else if (g->ones == 0 || g->ones == g->total)
    snprintf(note, 64, "one class");
  return g->ones > 0 && g->ones < g->total;
}

wm_status_t wm_probe_fit_gate(const wm_probe_layer_t *l, const float *f, int64_t k,
                              const int8_t *label, double *score, char note[64],
                              wm_probe_fit_t *out, wm_error_t *err) {
  gate_t g = {0};
  double intercept = 0;
  wm_logistic_t r;
  wm_status_t status;
  *out = (wm_probe_fit_t){.loss = NAN};
  memset(score, 0, (size_t)l->text->n * sizeof *score);
  WM_TRY(wm_agree(l->comm->world, open_gate(l, k, &g, err), err));
  wm_design_t design = {.n = wm_probe_train_rows(l, g.index),
                        .k = k,
                        .x = f,
                        .index = g.index,
                        .mean = g.mean,
                        .scale = g.scale};
  for (int64_t i = 0; i < design.n; i++)
    g.label[i] = label[l->place[g.index[i]]];
  if (!can_fit(l, &g, design.n, note))
    goto cleanup; /* on every rank */
  wm_design_standardize(l->comm->world, &design, g.mean, g.scale, &g.constant, &g.total);
  status = wm_logistic_fit(l->comm->world, &design, g.label, l->options->C, l->options->block,
                           g.coefficient, &intercept, &r, err);
  out->iterations = r.iterations;
  if (status == WM_NUMERICAL) {
    snprintf(note, 64, "not fitted: %.48s", err->message);
    status = WM_OK;
    goto cleanup;
  }
  WM_TRY(status);
  out->fitted = true;
  out->loss = r.loss;
  score_rows(l, f, k, &g, intercept, score);
  if (g.constant > 0)
    snprintf(note, 64, "%lld constant features", (long long)g.constant);
cleanup:
  free(g.index);
  free(g.label);
  free(g.mean);
  return status;
}
