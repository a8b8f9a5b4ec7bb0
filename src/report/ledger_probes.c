/* Claims about probes: what probes.h5 says of them. */
#include "ledger_internal.h"
#include "probes_internal.h"

#include <math.h>
#include <string.h>

/* C10: the context part alone does as well as the whole input. */
bool wm_ledger_context(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_frame_t *t = &all[index].context;
  bool apart = false;
  double most = NAN;
  (void)n;
  for (int64_t i = 0; i < t->n; i++) {
    if (!wm_probe_is_first(t, i) || !wm_probe_is(t, i, "label", "median") ||
        !wm_probe_is(t, i, "gate", "c") || !wm_probe_is(t, i, "view", "normalised"))
      continue;
    for (int64_t j = 0; j < t->n; j++) {
      if (!wm_probe_is_first(t, j) || !wm_probe_is(t, j, "label", "median") ||
          !wm_probe_is(t, j, "gate", "x") ||
          wm_frame_number(t, j, "layer") != wm_frame_number(t, i, "layer"))
        continue;
      double gap = fabs(wm_frame_number(t, i, "auc") - wm_frame_number(t, j, "auc"));
      most = isnan(most) || gap > most ? gap : most;
      apart |= wm_frame_number(t, i, "high") < wm_frame_number(t, j, "low") ||
               wm_frame_number(t, i, "low") > wm_frame_number(t, j, "high");
    }
  }
  c->value = most;
  c->verdict = wm_ledger_judge(most <= 0.004, apart);
  return !isnan(most);
}

/* C11: deltas of types do not agree between corpora; layer 12, or the first that there is. */
bool wm_ledger_corpora(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_frame_t *t = &all[index].correlations;
  int64_t row = -1;
  (void)n;
  for (int64_t i = 0; i < t->n; i++)
    if (wm_probe_is(t, i, "key", "target") && !isnan(wm_frame_number(t, i, "r")) &&
        (row < 0 ||
         (wm_frame_number(t, i, "layer") == 12 && wm_frame_number(t, row, "layer") != 12)))
      row = i;
  if (row < 0)
    return false;
  c->value = wm_frame_number(t, row, "r");
  c->low = wm_frame_number(t, row, "low");
  c->high = wm_frame_number(t, row, "high");
  c->interval = "its interval";
  c->beside = wm_frame_number(t, row, "corrected");
  c->beside_what = "the same, corrected for the reliability of both sides";
  c->verdict = wm_ledger_judge(c->low > -0.1 && c->high<0.1, c->low> 0.1 || c->high < -0.1);
  return true;
}

/* C12: token features explain next to nothing. */
bool wm_ledger_features(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_frame_t *t = &all[index].regression;
  bool below = true, above = false;
  (void)n;
  for (int64_t i = 0; i < t->n; i++) {
    double r2 = wm_frame_number(t, i, "r2_heldout");
    if (!wm_probe_is_first(t, i) || isnan(r2))
      continue;
    if (isnan(c->value) || r2 > c->value) {
      c->value = r2;
      c->low = wm_frame_number(t, i, "low");
      c->high = wm_frame_number(t, i, "high");
    }
    below &= wm_frame_number(t, i, "high") <= 0.02;
    above |= wm_frame_number(t, i, "low") > 0.02;
  }
  c->interval = "its interval";
  c->verdict = wm_ledger_judge(below, above);
  return !isnan(c->value);
}

/* C19: no cluster is consistently one or the other. */
bool wm_ledger_clusters(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_frame_t *t = &all[index].clusterings;
  (void)n;
  for (int64_t i = 0; i < t->n; i++) {
    double count = wm_frame_number(t, i, "linear") + wm_frame_number(t, i, "nonlinear");
    if (wm_probe_is_first(t, i) && !isnan(count) && (isnan(c->value) || count > c->value)) {
      c->value = count;
      c->beside = wm_frame_number(t, i, "k");
    }
  }
  c->beside_what = "clusters";
  c->verdict = wm_ledger_judge(c->value == 0, c->value > 0);
  return !isnan(c->value);
}
