#include "gate_fit_internal.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/measure/auc.h"
#include "wanamaker/measure/inference.h"

#include <string.h>

static double routed_part(const wm_gate_text_t *t, double least) {
  int64_t routed = 0;
  for (int64_t i = 0; i < t->rows->total; i++)
    routed += t->score[i] > least;
  return wm_gate_share(routed, t->rows->total);
}

/* Pearson's correlation over positions whose delta is finite; the arrays are packed in place. */
static double correlation(const wm_gate_text_t *t, double *score, double *delta) {
  int64_t n = 0;
  for (int64_t i = 0; i < t->rows->total; i++)
    if (t->label[i] != WM_LABEL_NONE) {
      score[n] = t->score[i];
      delta[n++] = t->delta[i];
    }
  return wm_pearson(score, delta, n);
}

/* Scores of gate number `gate` at all positions of a text, and what they are worth. Collective. */
static wm_status_t judge(const wm_gate_work_t *w, wm_gate_text_t *t, int64_t gate, double *auc,
                         double *accuracy, double *routed, double *r, wm_error_t *err) {
  const double least = wm_gate_logit(w->gates->gates[gate].threshold);
  void *memory = NULL, *local = NULL;
  *auc = *accuracy = *routed = *r = NAN;
  if (t->rows == NULL)
    return WM_OK;
  const int64_t n = t->rows->total;
  wm_status_t status = wm_alloc(&memory, 2 * n, sizeof(double), "scores", err);
  if (status == WM_OK)
    status = wm_alloc(&local, t->rows->n, sizeof(double), "scores", err);
  WM_TRY(wm_agree(w->comm->world, status, err));
  wm_gates_score(w->gates, gate, t->rows->x, t->rows->n, local);
  memset(t->score, 0, (size_t)n * sizeof *t->score);
  for (int64_t i = 0; i < t->rows->n; i++)
    t->score[t->rows->place[i]] = ((double *)local)[i];
  wm_sum_f64(w->comm->world, t->score, n); /* one rank's each: exact */
  WM_TRY(wm_agree(w->comm->world, wm_auc(t->score, t->label, n, auc, err), err));
  *accuracy = wm_accuracy(t->score, t->label, n, least);
  *routed = routed_part(t, least);
  *r = correlation(t, memory, (double *)memory + n);
cleanup:
  free(memory);
  free(local);
  return status;
}

/* Interval of the AUC on held-out positions, whose scores w->heldout.score holds. Collective. */
static wm_status_t bound_auc(wm_gate_work_t *w, wm_gate_report_t *r, wm_error_t *err) {
  const wm_gate_text_t *t = &w->heldout;
  if (t->rows == NULL || t->rows->unit == NULL || w->options->bootstrap.resamples == 0)
    return WM_OK;
  return wm_auc_interval(w->comm->world, t->score, t->label, t->rows->unit, t->rows->total,
                         t->rows->n_units, &w->options->bootstrap, &r->auc_low, &r->auc_high, err);
}

wm_status_t wm_gate_report(wm_gate_work_t *w, wm_error_t *err) {
  const int64_t gate = w->gates->n - 1;
  wm_gate_report_t *r = &w->gates->gates[gate].report;
  wm_status_t status;
  WM_TRY(judge(w, &w->fit, gate, &r->auc, &r->accuracy, &r->routed, &r->r_delta, err));
  WM_TRY(judge(w, &w->heldout, gate, &r->auc_heldout, &r->accuracy_heldout, &r->routed_heldout,
               &r->r_delta_heldout, err));
  WM_TRY(bound_auc(w, r, err));
cleanup:
  return status;
}
