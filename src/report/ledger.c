#include "wanamaker/report/ledger.h"

#include "ledger_internal.h"
#include "wanamaker/measure/inference.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *wm_claim_verdict_name(wm_claim_verdict_t verdict) {
  static const char *const names[] = {"not tested", "reproduced", "not reproduced", "contradicted"};
  return names[verdict];
}

/* ---- what a claim needs ---------------------------------------------------------------------- */

void wm_ledger_lack(wm_claim_t *c, const char *format, ...) {
  if (c->reason[0] != '\0')
    return;
  va_list args;
  va_start(args, format);
  vsnprintf(c->reason, sizeof c->reason, format, args);
  va_end(args);
}

void wm_ledger_need_units(wm_claim_t *claim, int64_t units) {
  if (units < WM_MIN_UNITS) /* the page calls every layer undecided then */
    wm_ledger_lack(claim, "fewer than ten units to resample: %lld", (long long)units);
}

void wm_ledger_need_interval(wm_claim_t *c) {
  if (isnan(c->value) || isnan(c->low) || isnan(c->high))
    wm_ledger_lack(c, "the interval is undefined");
}

void wm_ledger_judge(wm_claim_t *c, bool agrees, bool differs) {
  if (c->reason[0] != '\0')
    c->verdict = WM_NOT_TESTED;
  else
    c->verdict = agrees ? WM_REPRODUCED : differs ? WM_CONTRADICTED : WM_NOT_REPRODUCED;
}

wm_layer_state_t wm_ledger_state(bool there, double value, double low, double high) {
  if (!there)
    return WM_LAYER_ABSENT;
  return isnan(value) || isnan(low) || isnan(high) ? WM_LAYER_UNDEFINED : WM_LAYER_DEFINED;
}

void wm_ledger_need_layers(wm_claim_t *c, const wm_results_t *r, int64_t first, int64_t last,
                           wm_layer_state_of_t state, double which, const char *what) {
  int64_t there = 0, defined = 0;
  char range[64] = "";
  const int64_t all = last - first + 1;
  for (int64_t layer = first; layer <= last; layer++) {
    const wm_layer_state_t s = state(r, layer, which);
    there += s != WM_LAYER_ABSENT;
    defined += s == WM_LAYER_DEFINED;
  }
  if (first > 0)
    snprintf(range, sizeof range, " (%" PRId64 " to %" PRId64 ")", first, last);
  if (there < all)
    wm_ledger_lack(c, "%s %" PRId64 " of %" PRId64 " layers%s", what, there, all, range);
  else if (defined < all)
    wm_ledger_lack(c, "%" PRId64 " of %" PRId64 " layers%s have no interval", all - defined, all,
                   range);
}

int64_t wm_ledger_model_layers(const wm_results_t *r) {
  enum { MOST = 4096 }; /* more are no model's, and each is looked for */
  const int64_t n = strtoll(wm_results_attribute(r, "model_layers"), NULL, 10);
  return n >= 1 && n <= MOST ? n : 0;
}

void wm_ledger_need_all_layers(wm_claim_t *c, const wm_results_t *r, bool first_may_be_absent,
                               wm_layer_state_of_t state, double which, const char *what) {
  const int64_t n = wm_ledger_model_layers(r);
  const bool absent = first_may_be_absent && state(r, 0, which) == WM_LAYER_ABSENT;
  if (n == 0)
    wm_ledger_lack(c, "the number of the model's layers is not known");
  wm_ledger_need_layers(c, r, absent ? 1 : 0, n - 1, state, which, what);
}

/* ---- whose results they are ------------------------------------------------------------------ */

/* Of the full model, by its sweep or at the start of its training; NaN. */
static double perplexity_of(const wm_results_t *r) {
  const wm_training_result_t *runs[] = {&r->training, &r->control};
  double perplexity = wm_frame_number(&r->variants, 0, "ppl");
  for (int i = 0; i < 2 && isnan(perplexity); i++) {
    const wm_frame_t *table = wm_training_range(runs[i], "evaluation");
    perplexity = table != NULL ? wm_frame_number(table, 0, "ppl") : NAN;
  }
  return perplexity;
}

const char *wm_results_study_model(const wm_results_t *r) {
  return wm_published_model(wm_results_attribute(r, "model_family"),
                            strtoll(wm_results_attribute(r, "model_layers"), NULL, 10),
                            strtoll(wm_results_attribute(r, "model_width"), NULL, 10),
                            perplexity_of(r));
}

/* Is the claim about the model of these results? */
static bool is_about(const char *claimed, const wm_results_t *r) {
  const char *model = wm_results_study_model(r);
  if (strcmp(claimed, "all") == 0)
    return true;
  return model != NULL && (strcmp(claimed, model) == 0 ||
                           (strcmp(claimed, "pythia") == 0 && strncmp(model, "pythia", 6) == 0));
}

/* ---- the ledger ------------------------------------------------------------------------------ */

static wm_claim_t start(const wm_ledger_rule_t *rule, int64_t row) {
  return (wm_claim_t){.row = row,
                      .verdict = WM_NOT_TESTED,
                      .on = -1,
                      .value = NAN,
                      .low = NAN,
                      .high = NAN,
                      .beside = NAN,
                      .interval = "",
                      .beside_what = "",
                      .quantity = rule->quantity,
                      .needs = rule->needs,
                      .rule = rule->rule,
                      .differences = rule->differences};
}

/* The first results of the claim's model that test it, else the first of that model that have the
 * quantity, else the first that have it. */
static wm_claim_t assess(const wm_ledger_rule_t *rule, int64_t row, const char *model,
                         const wm_results_t *results, int64_t n) {
  wm_claim_t found = start(rule, row);
  for (int64_t i = 0; i < n; i++) {
    wm_claim_t claim = start(rule, row);
    if (!rule->measure(results, n, i, &claim))
      continue;
    claim.on = i;
    claim.same_model = is_about(model, &results[i]);
    if (claim.same_model && claim.verdict != WM_NOT_TESTED)
      return claim;
    claim.verdict = WM_NOT_TESTED;
    if (found.on < 0 || (claim.same_model && !found.same_model))
      found = claim;
  }
  return found;
}

wm_status_t wm_ledger(const wm_published_t *published, const wm_results_t *results, int64_t n,
                      wm_claim_t *claims, wm_error_t *err) {
  const wm_csv_t *p = &published->claims;
  if (p->n != WM_CLAIMS)
    return wm_fail(err, WM_INPUT, "published_claims.csv has %lld claims instead of %d",
                   (long long)p->n, WM_CLAIMS);
  for (int64_t row = 0; row < p->n; row++) {
    const char *id = wm_csv_text(p, row, "claim");
    const wm_ledger_rule_t *rule = NULL;
    for (int k = 0; k < WM_CLAIMS; k++)
      if (strcmp(wm_ledger_rules[k].id, id) == 0)
        rule = &wm_ledger_rules[k];
    if (rule == NULL)
      return wm_fail(err, WM_INPUT, "published_claims.csv: claim %s is not known", id);
    claims[row] = assess(rule, row, wm_csv_text(p, row, "model"), results, n);
  }
  return WM_OK;
}
