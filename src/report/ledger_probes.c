/* Claims about probes: what probes.h5 says of them. */
#include "ledger_internal.h"
#include "probes_internal.h"

#include <math.h>
#include <string.h>

/* Row of a layer's gate on x, or on the exact context part; -1: none. */
static int64_t find_part(const wm_frame_t *t, const char *gate, double layer) {
  for (int64_t i = 0; i < t->n; i++)
    if (wm_probe_is_first(t, i) && wm_probe_is(t, i, "label", "median") &&
        wm_probe_is(t, i, "gate", gate) &&
        (strcmp(gate, "x") == 0 || wm_probe_is(t, i, "view", "normalised")) &&
        wm_frame_number(t, i, "layer") == layer)
      return i;
  return -1;
}

static wm_layer_state_t row_state(const wm_frame_t *t, int64_t row, const char *value) {
  return wm_ledger_state(row >= 0, wm_frame_number(t, row, value), wm_frame_number(t, row, "low"),
                         wm_frame_number(t, row, "high"));
}

static wm_layer_state_t context_state(const wm_results_t *r, int64_t layer, double unused) {
  const wm_layer_state_t a =
      row_state(&r->context, find_part(&r->context, "x", (double)layer), "auc");
  const wm_layer_state_t b =
      row_state(&r->context, find_part(&r->context, "c", (double)layer), "auc");
  (void)unused;
  return a < b ? a : b;
}

/* C10: the context part alone does as well as the whole input. */
bool wm_ledger_context(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_frame_t *t = &all[index].context;
  bool apart = false;
  double most = NAN;
  (void)n;
  for (int64_t i = 0; i < t->n; i++) {
    const double layer = wm_frame_number(t, i, "layer");
    const int64_t j = find_part(t, "x", layer);
    if (find_part(t, "c", layer) != i || j < 0)
      continue;
    double gap = fabs(wm_frame_number(t, i, "auc") - wm_frame_number(t, j, "auc"));
    most = isnan(most) || gap > most ? gap : most;
    apart |= wm_frame_number(t, i, "high") < wm_frame_number(t, j, "low") ||
             wm_frame_number(t, i, "low") > wm_frame_number(t, j, "high");
  }
  c->value = most;
  wm_ledger_need_all_layers(c, &all[index], false, context_state, 0, "probed on");
  wm_ledger_judge(c, most <= 0.004, apart);
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
  if (wm_frame_number(t, row, "layer") != 12)
    wm_ledger_lack(c, "of layer %.0f, the claim is about layer 12",
                   wm_frame_number(t, row, "layer"));
  wm_ledger_need_interval(c);
  wm_ledger_judge(c, c->low > -0.1 && c->high<0.1, c->low> 0.1 || c->high < -0.1);
  return true;
}

/* Layers that the study has probed. */
static const int64_t probed[] = {1, 12, 23};
enum { PROBED = sizeof probed / sizeof probed[0] };

static bool is_probed(double layer) {
  for (int i = 0; i < PROBED; i++)
    if (layer == (double)probed[i])
      return true;
  return false;
}

/* Lacks one of them, or its `value`; tells whether it does not lack a layer. */
static bool need_probed(const wm_frame_t *t, const char *value, wm_claim_t *c) {
  int64_t there = 0;
  for (int i = 0; i < PROBED; i++) {
    bool is_there = false;
    for (int64_t row = 0; row < t->n; row++)
      is_there |= wm_probe_is_first(t, row) &&
                  wm_frame_number(t, row, "layer") == (double)probed[i] &&
                  !isnan(wm_frame_number(t, row, value));
    there += is_there;
  }
  if (there < PROBED)
    wm_ledger_lack(c, "probed on %lld of the layers 1, 12 and 23, which the claim is about",
                   (long long)there);
  return there == PROBED;
}

/* C12: token features explain next to nothing; of the study's layers, or of those that there are.
 */
bool wm_ledger_features(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_frame_t *t = &all[index].regression;
  const bool whole = need_probed(t, "r2_heldout", c);
  bool below = true, above = false;
  (void)n;
  for (int64_t i = 0; i < t->n; i++) {
    double r2 = wm_frame_number(t, i, "r2_heldout");
    if (!wm_probe_is_first(t, i) || isnan(r2) ||
        (whole && !is_probed(wm_frame_number(t, i, "layer"))))
      continue;
    if (isnan(c->value) || r2 > c->value) {
      c->value = r2;
      c->low = wm_frame_number(t, i, "low");
      c->high = wm_frame_number(t, i, "high");
    }
    if (row_state(t, i, "r2_heldout") == WM_LAYER_UNDEFINED)
      wm_ledger_lack(c, "layer %.0f has no interval", wm_frame_number(t, i, "layer"));
    below &= wm_frame_number(t, i, "high") <= 0.02;
    above |= wm_frame_number(t, i, "low") > 0.02;
  }
  c->interval = "its interval";
  wm_ledger_judge(c, below, above);
  return !isnan(c->value);
}

/* C19: no cluster is consistently one or the other; of the same layers. */
bool wm_ledger_clusters(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_frame_t *t = &all[index].clusterings;
  const bool whole = need_probed(t, "linear", c);
  (void)n;
  for (int64_t i = 0; i < t->n; i++) {
    double count = wm_frame_number(t, i, "linear") + wm_frame_number(t, i, "nonlinear");
    if (wm_probe_is_first(t, i) && !isnan(count) &&
        (!whole || is_probed(wm_frame_number(t, i, "layer"))) &&
        (isnan(c->value) || count > c->value)) {
      c->value = count;
      c->beside = wm_frame_number(t, i, "k");
    }
  }
  c->beside_what = "clusters";
  wm_ledger_judge(c, c->value == 0, c->value > 0);
  return !isnan(c->value);
}
