#include "wanamaker/report/ledger.h"

#include "ledger_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *wm_claim_verdict_name(wm_claim_verdict_t verdict) {
  static const char *const names[] = {"not tested", "reproduced", "not reproduced", "contradicted"};
  return names[verdict];
}

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
