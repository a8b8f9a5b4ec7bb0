/* Separability: how well probes of x tell the routing decision. */
#include "probe_internal.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/measure/design.h"
#include "wanamaker/measure/hidden_probe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void add_row(const wm_probe_layer_t *l, wm_probe_tables_t *t, const char *probe,
                    const wm_probe_labels_t *labels, const wm_probe_judgement_t *j, double loss,
                    int64_t iterations, const char *note) {
  const wm_probe_table_id_t id = WM_PROBE_SEPARABILITY;
  wm_probe_case(l, t, id);
  wm_probe_text(t, id, probe);
  wm_probe_number(t, id, (double)labels->train.positions);
  wm_probe_number(t, id, (double)labels->test);
  wm_probe_number(t, id, j->accuracy);
  wm_probe_number(t, id, j->f1);
  wm_probe_number(t, id, j->auc);
  wm_probe_number(t, id, j->low);
  wm_probe_number(t, id, j->high);
  wm_probe_number(t, id, j->auc_train);
  wm_probe_number(t, id, loss);
  wm_probe_number(t, id, (double)iterations);
  wm_probe_text(t, id, wm_probe_judgement_note(l, labels, j, note));
}

static const wm_probe_judgement_t unknown = {NAN, NAN, NAN, NAN, NAN, NAN};

/* Collective. */
static wm_status_t linear_probe(const wm_probe_layer_t *l, wm_probe_tables_t *t,
                                const wm_probe_labels_t *labels, wm_error_t *err) {
  wm_probe_judgement_t judgement;
  wm_probe_fit_t fit;
  char note[64] = "";
  wm_status_t status;
  wm_probe_next(l, "linear probe");
  WM_TRY(wm_probe_fit_gate(l, l->x, l->d, labels->label, l->score, note, &fit, err));
  WM_TRY(wm_probe_judge(l, l->score, labels->label, 0, &judgement, err));
  add_row(l, t, "linear", labels, fit.fitted ? &judgement : &unknown, fit.loss, fit.iterations,
          note);
  wm_probe_done(l, 1);
cleanup:
  return status;
}

/* --- one hidden layer ---------------------------------------------------------------------------
 */

typedef struct {
  int64_t *index, *block; /* [n] rows */
  int8_t *label;          /* [n] */
  double *mean, *scale;   /* [D] */
  float *mean32, *scale32;
  double *parameters;
  double *score; /* [n] */
  void *memory;
} hidden_t;

static wm_status_t open_hidden(const wm_probe_layer_t *l, hidden_t *h, wm_error_t *err) {
  const int64_t d = l->d, parameters = wm_hidden_parameters(d, l->options->hidden);
  wm_status_t status;
  void *memory;
  WM_TRY(wm_alloc(&memory, 2 * l->n, sizeof(int64_t), "a probe", err));
  h->index = memory;
  h->block = h->index + l->n;
  WM_TRY(wm_alloc(&memory, l->n, sizeof(int8_t), "a probe", err));
  h->label = memory;
  WM_TRY(wm_alloc(&memory, 2 * d, sizeof(float), "a probe", err));
  h->mean32 = memory;
  h->scale32 = h->mean32 + d;
  WM_TRY(wm_alloc(&memory, 2 * d + parameters + l->n, sizeof(double), "a probe", err));
  h->memory = memory;
  h->mean = memory;
  h->scale = h->mean + d;
  h->parameters = h->scale + d;
  h->score = h->parameters + parameters;
cleanup:
  return status;
}

static void close_hidden(hidden_t *h) {
  free(h->index);
  free(h->label);
  free(h->mean32);
  free(h->memory);
}

static wm_hidden_rows_t rows_of(const wm_probe_layer_t *l, const hidden_t *h, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    h->block[i] = l->block[h->index[i]];
  return (wm_hidden_rows_t){.n = n,
                            .d = l->d,
                            .x = l->x,
                            .index = h->index,
                            .block = h->block,
                            .label = h->label,
                            .mean = h->mean32,
                            .scale = h->scale32};
}

/* l->score of all used positions. Collective. */
static wm_status_t score_all(const wm_probe_layer_t *l, hidden_t *h, wm_error_t *err) {
  int64_t n = 0;
  for (int64_t i = 0; i < l->n; i++)
    if (l->used[l->place[i]])
      h->index[n++] = i;
  const wm_hidden_rows_t rows = rows_of(l, h, n);
  wm_status_t status =
      wm_agree(l->comm->world,
               wm_hidden_score(&rows, l->options->hidden, h->parameters, h->score, err), err);
  if (status != WM_OK)
    return status;
  memset(l->score, 0, (size_t)l->text->n * sizeof *l->score);
  for (int64_t i = 0; i < n; i++)
    l->score[l->place[h->index[i]]] = h->score[i];
  wm_sum_f64(l->comm->world, l->score, l->text->n);
  return WM_OK;
}

/* Collective. */
static wm_status_t fit_hidden(const wm_probe_layer_t *l, hidden_t *h, const int8_t *label,
                              wm_hidden_t *out, wm_error_t *err) {
  const wm_hidden_options_t o = {l->options->hidden, l->options->hidden_iterations,
                                 l->options->hidden_penalty, l->options->seed, WM_PROBE_HIDDEN};
  const int64_t n = wm_probe_train_rows(l, h->index);
  const wm_design_t design = {.n = n, .k = l->d, .x = l->x, .index = h->index};
  int64_t constant, total;
  wm_design_standardize(l->comm->world, &design, h->mean, h->scale, &constant, &total);
  for (int64_t j = 0; j < l->d; j++) {
    h->mean32[j] = (float)h->mean[j];
    h->scale32[j] = (float)h->scale[j];
  }
  for (int64_t i = 0; i < n; i++)
    h->label[i] = label[l->place[h->index[i]]];
  const wm_hidden_rows_t rows = rows_of(l, h, n);
  return wm_hidden_fit(l->comm->world, &rows, &o, h->parameters, out, err);
}

static bool two_classes(const wm_labels_t *train) {
  return train->ones > 0 && train->ones < train->positions;
}

/* Collective. */
static wm_status_t hidden_probe(const wm_probe_layer_t *l, wm_probe_tables_t *t,
                                const wm_probe_labels_t *labels, wm_error_t *err) {
  wm_probe_judgement_t judgement = unknown;
  wm_hidden_t fit = {.objective = NAN, .note = "one class"};
  hidden_t h = {0};
  char name[24];
  wm_status_t status;
  wm_probe_next(l, "probe with a hidden layer");
  WM_TRY(wm_agree(l->comm->world, open_hidden(l, &h, err), err));
  if (two_classes(&labels->train)) {
    WM_TRY(fit_hidden(l, &h, labels->label, &fit, err));
    WM_TRY(score_all(l, &h, err));
    WM_TRY(wm_probe_judge(l, l->score, labels->label, 0, &judgement, err));
  }
  snprintf(name, sizeof name, "hidden %lld", (long long)l->options->hidden);
  add_row(l, t, name, labels, &judgement, fit.objective, fit.iterations, fit.note);
  wm_probe_done(l, WM_PROBE_STEPS_OF_HIDDEN);
cleanup:
  close_hidden(&h);
  return status;
}

wm_status_t wm_probe_separability(const wm_probe_layer_t *l, wm_probe_tables_t *t,
                                  wm_error_t *err) {
  wm_probe_labels_t labels;
  wm_status_t status =
      wm_agree(l->comm->world, wm_probe_label(l, false, l->label, &labels, err), err);
  if (status == WM_OK)
    status = linear_probe(l, t, &labels, err);
  if (status == WM_OK && l->options->hidden > 0)
    status = hidden_probe(l, t, &labels, err);
  return status;
}
