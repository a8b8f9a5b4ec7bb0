/* Claims about training: what finetune.h5 and control.h5 say of them. */
#include "ledger_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double end_of(const wm_training_result_t *t, const char *member) {
  const wm_frame_t *table = wm_training_range(t, "evaluation");
  int64_t row = wm_training_end(table);
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

/* Row of the evaluation at the end of a phase, with gates that blend; -1: none. */
static int64_t end_of_phase(const wm_frame_t *table, const char *phase) {
  const size_t n = strlen(phase);
  for (int64_t i = 1; i < table->n; i++) {
    const char *name = wm_frame_text(table, i, "name");
    if (strncmp(name, phase, n) == 0 && strcmp(name + n, ", end") == 0 &&
        wm_frame_number(table, i, "hard") == 0)
      return i;
  }
  return -1;
}

/* Tokens that every layer's phase has trained on; NaN where they differ. */
static double tokens_of_a_layer(const wm_results_t *r) {
  const wm_attributes_t *a = &r->files[WM_FILE_FINETUNE].attributes;
  const wm_frame_t *phases = &r->training.phases;
  double steps = wm_frame_number(phases, 0, "steps");
  for (int64_t i = 1; i + 1 < phases->n; i++) /* the last one has all layers */
    if (wm_frame_number(phases, i, "steps") != steps)
      return NAN;
  return steps * strtod(wm_attribute(a, "length"), NULL) *
         strtod(wm_attribute(a, "sequences"), NULL);
}

/* C14: the most layers that are linear at a phase's end in a model that is no worse than the full
 * one was at the start. */
bool wm_ledger_progressive(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  enum { CLAIMED = 5, STEPS = 50, LENGTH = 128 };
  const wm_results_t *r = &all[index];
  const wm_frame_t *phases = &r->training.phases;
  const wm_frame_t *table = wm_training_range(&r->training, "evaluation");
  double count = 0, sure = 0, possible = 0, tried = 0;
  (void)n;
  if (table == NULL ||
      strcmp(wm_attribute(&r->files[WM_FILE_FINETUNE].attributes, "plan"), "progressive") != 0)
    return false;
  for (int64_t i = 0; i < phases->n; i++) {
    int64_t row = end_of_phase(table, wm_frame_text(phases, i, "name"));
    double linear = wm_frame_number(phases, i, "linear");
    if (row < 0 || isnan(linear))
      continue;
    tried = fmax(tried, linear);
    count = wm_frame_number(table, row, "delta_pct") <= 0 ? fmax(count, linear) : count;
    sure = wm_frame_number(table, row, "high") <= 0 ? fmax(sure, linear) : sure;
    possible = wm_frame_number(table, row, "low") <= 0 ? fmax(possible, linear) : possible;
  }
  c->value = count;
  c->low = sure;
  c->high = possible;
  c->interval = "by the upper and by the lower end of each phase's interval";
  c->beside = end_of(&r->control, "delta_pct");
  c->beside_what = "the control's change at its end, percent";
  c->verdict = tried >= CLAIMED && tokens_of_a_layer(r) == STEPS * LENGTH
                   ? wm_ledger_judge(sure >= CLAIMED, possible < CLAIMED)
                   : WM_NOT_TESTED;
  return tried > 0;
}
