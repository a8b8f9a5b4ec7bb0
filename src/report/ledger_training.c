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

static void need_units(const wm_training_result_t *t, wm_claim_t *c) {
  if (t->n_units > 0)
    wm_ledger_need_units(c, t->n_units);
}

static double tokens_of(const wm_results_t *r, wm_file_kind_t kind) {
  return strtod(wm_attribute(&r->files[kind].attributes, "tokens_seen"), NULL);
}

/* Perplexity at the end against the start; the published change is `published` percent. */
static void end_against_start(const wm_training_result_t *t, double published, wm_claim_t *c) {
  c->value = end_of(t, "delta_pct");
  c->low = end_of(t, "low");
  c->high = end_of(t, "high");
  c->interval = "its interval";
  need_units(t, c);
  wm_ledger_need_interval(c);
  wm_ledger_judge(c, c->low <= published, c->low > 0);
}

/* A plan on four layers, with the control's change beside it. */
static bool plan_end(const wm_results_t *r, const char *plan, double tokens, double published,
                     wm_claim_t *c) {
  enum { LAYERS = 4 };
  const wm_frame_t *phases = &r->training.phases;
  const double linear = wm_frame_number(phases, phases->n - 1, "linear");
  const double seen = tokens_of(r, WM_FILE_FINETUNE);
  if (isnan(end_of(&r->training, "delta_pct")) ||
      strcmp(wm_attribute(&r->files[WM_FILE_FINETUNE].attributes, "plan"), plan) != 0)
    return false;
  if (isnan(linear))
    wm_ledger_lack(c, "the number of linear layers is not known");
  if (linear != LAYERS)
    wm_ledger_lack(c, "trained with %.0f layers linear, in the study with %d", linear, LAYERS);
  if (seen != tokens)
    wm_ledger_lack(c, "trained on %.0f tokens, in the study on %.0f", seen, tokens);
  end_against_start(&r->training, published, c);
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

/* The claim's figure is that of 400 steps of 256 tokens; the study's own file has another one for
 * the 2000 steps that the other plans take. */
bool wm_ledger_control(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_results_t *r = &all[index];
  const double tokens = tokens_of(r, WM_FILE_CONTROL);
  (void)n;
  if (isnan(end_of(&r->control, "delta_pct")))
    return false;
  c->beside = tokens == 102400 ? -14.8 : tokens == 512000 ? -20.6 : NAN;
  c->beside_what = "the study's change after as many tokens, percent, which it is held against";
  if (isnan(c->beside))
    wm_ledger_lack(c, "trained on %.0f tokens, in the study on 102400 or 512000", tokens);
  end_against_start(&r->control, c->beside, c);
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
  double count = 0, sure = 0, possible = 0, tried = 0, undefined = 0;
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
    undefined += wm_ledger_state(true, wm_frame_number(table, row, "delta_pct"),
                                 wm_frame_number(table, row, "low"),
                                 wm_frame_number(table, row, "high")) != WM_LAYER_DEFINED;
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
  const double tokens = tokens_of_a_layer(r);
  if (tried < CLAIMED)
    wm_ledger_lack(c, "no more than %.0f layers are made linear, the claim is of %d", tried,
                   CLAIMED);
  if (isnan(tokens))
    wm_ledger_lack(c, "layers train on different numbers of tokens");
  if (tokens != STEPS * LENGTH)
    wm_ledger_lack(c, "a layer trains on %.0f tokens, in the study on %d", tokens, STEPS * LENGTH);
  need_units(&r->training, c);
  if (undefined > 0)
    wm_ledger_lack(c, "%.0f phases end without an interval", undefined);
  wm_ledger_judge(c, sure >= CLAIMED, possible < CLAIMED);
  return tried > 0;
}
