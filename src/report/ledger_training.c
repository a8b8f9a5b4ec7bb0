/* Claims about training: what finetune.h5 and control.h5 say of them. */
#include "ledger_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The last evaluation of the evaluation range in which gates blend; -1: none. */
static int64_t last_moment(const wm_training_result_t *t, const wm_frame_t **table) {
  int64_t last = -1;
  for (int k = 0; k < t->n; k++) {
    if (strcmp(t->ranges[k].name, "evaluation") != 0)
      continue;
    *table = &t->ranges[k].table;
    for (int64_t i = 1; i < (*table)->n; i++)
      if (wm_frame_number(*table, i, "hard") == 0)
        last = i;
  }
  return last;
}

static double end_of(const wm_training_result_t *t, const char *member) {
  const wm_frame_t *table = NULL;
  int64_t row = last_moment(t, &table);
  return row >= 0 ? wm_frame_number(table, row, member) : NAN;
}

static bool is_plan(const wm_results_t *r, wm_file_kind_t kind, const char *plan, double tokens) {
  const wm_attributes_t *a = &r->files[kind].attributes;
  return strcmp(wm_attribute(a, "plan"), plan) == 0 &&
         strtod(wm_attribute(a, "tokens_seen"), NULL) == tokens;
}

/* Perplexity at the end against the start; the published change is `published` percent. */
static void end_against_start(const wm_training_result_t *t, double published, bool same_budget,
                              wm_claim_t *c) {
  c->value = end_of(t, "delta_pct");
  c->low = end_of(t, "low");
  c->high = end_of(t, "high");
  c->interval = "its interval";
  c->verdict = same_budget ? wm_ledger_judge(c->low <= published, c->low > 0) : WM_NOT_TESTED;
}

/* A plan, with the control's change beside it. */
static bool plan_end(const wm_results_t *r, const char *plan, double tokens, double published,
                     wm_claim_t *c) {
  if (isnan(end_of(&r->training, "delta_pct")) ||
      strcmp(wm_attribute(&r->files[WM_FILE_FINETUNE].attributes, "plan"), plan) != 0)
    return false;
  end_against_start(&r->training, published, is_plan(r, WM_FILE_FINETUNE, plan, tokens), c);
  c->beside = end_of(&r->control, "delta_pct");
  c->beside_what = "the control's change at its end, percent";
  return true;
}

bool wm_ledger_linearized(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  (void)n;
  return plan_end(&all[index], "linearize", 512000, -10.2, c);
}

bool wm_ledger_two_phase(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  (void)n;
  return plan_end(&all[index], "two_phase", 1280000, -17.3, c);
}

bool wm_ledger_control(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_results_t *r = &all[index];
  (void)n;
  if (isnan(end_of(&r->control, "delta_pct")))
    return false;
  double tokens = strtod(wm_attribute(&r->files[WM_FILE_CONTROL].attributes, "tokens_seen"), NULL);
  end_against_start(&r->control, -14.8, tokens == 102400 || tokens == 512000, c);
  return true;
}
