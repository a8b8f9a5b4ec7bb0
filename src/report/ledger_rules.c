/* The study's claims as quantities of result files. */
#include "ledger_internal.h"
#include "wanamaker/measure/inference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

wm_claim_verdict_t wm_ledger_judge(bool agrees, bool differs) {
  return agrees ? WM_REPRODUCED : differs ? WM_CONTRADICTED : WM_NOT_REPRODUCED;
}

static double linear(const wm_results_t *r, int64_t i, const char *member) {
  return wm_frame_number(&r->variants, r->layer_results[i].linear, member);
}

static double gated(const wm_results_t *r, int64_t i, const char *member) {
  return wm_frame_number(&r->variants, r->layer_results[i].gated, member);
}

/* Index of a layer; -1: it is not there. */
static int64_t find_layer(const wm_results_t *r, int64_t layer) {
  for (int64_t i = 0; i < r->n_layers; i++)
    if (r->layer_results[i].layer == layer)
      return i;
  return -1;
}

/* ---- costs of layers ------------------------------------------------------------------------- */

/* C01: share of layers below 3 %. */
static bool cheap_layers(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_results_t *r = &all[index];
  int64_t count = 0, sure = 0, possible = 0, measured = 0;
  (void)n;
  for (int64_t i = 0; i < r->n_layers; i++) {
    measured += r->layer_results[i].linear >= 0;
    count += linear(r, i, "delta_pct") < 3;
    sure += linear(r, i, "high") < 3;
    possible += linear(r, i, "low") < 3;
  }
  if (measured == 0)
    return false;
  c->value = 100.0 * (double)count / (double)measured;
  c->low = 100.0 * (double)sure / (double)measured;
  c->high = 100.0 * (double)possible / (double)measured;
  c->interval = "layers whose whole interval lies below the bound, and those whose interval begins "
                "below it";
  c->verdict = wm_ledger_judge(c->low >= 70, c->high < 70);
  return true;
}

/* The dearest of layers [first, last] and its interval; all of them must be there. */
static bool dearest(const wm_results_t *r, int64_t first, int64_t last, double bound,
                    wm_claim_t *c) {
  bool below = true, above = false;
  for (int64_t layer = first; layer <= last; layer++) {
    int64_t i = find_layer(r, layer);
    double cost = i >= 0 ? linear(r, i, "delta_pct") : NAN;
    if (isnan(cost))
      return false;
    if (isnan(c->value) || cost > c->value) {
      c->value = cost;
      c->low = linear(r, i, "low");
      c->high = linear(r, i, "high");
    }
    below &= linear(r, i, "high") <= bound;
    above |= linear(r, i, "low") > bound;
  }
  c->interval = "its interval";
  c->verdict = wm_ledger_judge(below, above);
  return last >= first;
}

/* C04: no layer above 3.7 %, of all layers of the model. */
static bool all_below(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_results_t *r = &all[index];
  (void)n;
  return dearest(r, 0, strtoll(wm_results_attribute(r, "model_layers"), NULL, 10) - 1, 3.7, c);
}

/* C05: layer 0 costs 513 %. */
static bool first_layer(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_results_t *r = &all[index];
  int64_t i = find_layer(r, 0);
  (void)n;
  if (i < 0 || isnan(linear(r, i, "delta_pct")))
    return false;
  c->value = linear(r, i, "delta_pct");
  c->low = linear(r, i, "low");
  c->high = linear(r, i, "high");
  c->interval = "its interval";
  c->verdict = wm_ledger_judge(c->low <= 513 && c->high >= 513, c->high < 256.5 || c->low > 1026);
  return true;
}

/* C06: layers 7 to 15 below 4 %. */
static bool middle_layers(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  (void)n;
  return dearest(&all[index], 7, 15, 4, c);
}

/* C20: the median falls as the model grows. */
static bool falls_with_size(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  bool agrees = true, differs = false;
  int64_t sizes = 0;
  for (int64_t i = 0; i < n; i++) {
    const char *model = wm_results_study_model(&all[i]);
    if (model == NULL || strncmp(model, "pythia", 6) != 0 || isnan(all[i].overview.median_cost))
      continue;
    sizes++;
    double size = strtod(wm_results_attribute(&all[i], "model_parameters"), NULL);
    for (int64_t j = 0; j < n; j++) {
      const char *other = wm_results_study_model(&all[j]);
      if (other == NULL || strncmp(other, "pythia", 6) != 0 ||
          strtod(wm_results_attribute(&all[j], "model_parameters"), NULL) <= size)
        continue;
      agrees &= all[j].overview.median_high < all[i].overview.median_low;
      differs |= all[j].overview.median_low > all[i].overview.median_high;
    }
  }
  const wm_overview_t *o = &all[index].overview;
  if (isnan(o->median_cost))
    return false;
  c->value = o->median_cost;
  c->low = o->median_low;
  c->high = o->median_high;
  c->interval = "medians of the intervals' ends";
  c->beside = (double)sizes;
  c->beside_what = "sizes of Pythia among these results (the claim needs two)";
  c->verdict = sizes < 2 ? WM_NOT_TESTED : wm_ledger_judge(agrees, differs);
  return true;
}

/* ---- gates ----------------------------------------------------------------------------------- */

/* Layers whose chosen gate beats the full model; at least `claimed` of them? */
static bool gates_that_beat(const wm_results_t *r, int64_t claimed, wm_claim_t *c) {
  int64_t beats = 0, possible = 0, measured = 0;
  for (int64_t i = 0; i < r->n_layers; i++) {
    measured += r->layer_results[i].gated >= 0;
    beats += gated(r, i, "beats_full") > 0;
    possible += gated(r, i, "low") < 0;
  }
  c->value = c->low = (double)beats;
  c->high = (double)possible;
  c->interval = "those that beat it after Holm's correction, and those whose interval begins below "
                "zero";
  c->beside = (double)measured;
  c->beside_what = "layers with a chosen gate";
  c->verdict = wm_ledger_judge(beats >= claimed, possible < claimed);
  return measured > 0;
}

static bool four_beat(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  (void)n;
  return gates_that_beat(&all[index], 4, c);
}

static bool eleven_beat(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  (void)n;
  return gates_that_beat(&all[index], 11, c);
}

/* C07: layer 3's gate beats the full model. */
static bool third_beats(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_results_t *r = &all[index];
  int64_t i = find_layer(r, 3);
  (void)n;
  if (i < 0 || isnan(gated(r, i, "delta_pct")))
    return false;
  c->value = gated(r, i, "delta_pct");
  c->low = gated(r, i, "low");
  c->high = gated(r, i, "high");
  c->interval = "its interval";
  c->verdict = wm_ledger_judge(gated(r, i, "beats_full") > 0, c->low > 0);
  return true;
}

/* C08: a quarter or more of the positions for less than 1 %. */
static bool cheap_routing(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_results_t *r = &all[index];
  int64_t measured = 0, count = 0, sure = 0, possible = 0;
  double most = NAN;
  (void)n;
  for (int64_t i = 0; i < r->n_layers; i++) {
    double routed = 100 * gated(r, i, "routed_fraction");
    measured += r->layer_results[i].gated >= 0;
    if (!(routed >= 25))
      continue;
    count += gated(r, i, "delta_pct") < 1;
    sure += gated(r, i, "high") < 1;
    possible += gated(r, i, "low") < 1;
    if (gated(r, i, "delta_pct") < 1)
      most = isnan(most) || routed > most ? routed : most;
  }
  if (measured == 0)
    return false;
  c->value = 100.0 * (double)count / (double)measured;
  c->low = 100.0 * (double)sure / (double)measured;
  c->high = 100.0 * (double)possible / (double)measured;
  c->interval = "by the upper and by the lower end of each layer's interval";
  c->beside = most;
  c->beside_what = "most positions routed by such a gate, percent";
  c->verdict = wm_ledger_judge(c->low > 50, c->high < 50);
  return true;
}

/* C09: AUC of linear gates between 0.54 and 0.61. */
static bool gate_auc(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_results_t *r = &all[index];
  double auc[512];
  int64_t count = 0;
  bool inside = true, outside = false;
  (void)n;
  for (int64_t g = 0; g < r->gates.n && count < 512; g++) {
    double value = wm_frame_number(&r->gates, g, "auc_heldout");
    if (strcmp(wm_frame_text(&r->gates, g, "kind"), "linear") != 0 || isnan(value))
      continue;
    auc[count++] = value;
    c->low = isnan(c->low) || value < c->low ? value : c->low;
    c->high = isnan(c->high) || value > c->high ? value : c->high;
    inside &= value >= 0.54 && value <= 0.61;
    outside |= wm_frame_number(&r->gates, g, "auc_low") > 0.61 ||
               wm_frame_number(&r->gates, g, "auc_high") < 0.54;
  }
  c->value = wm_median(auc, count);
  c->interval = "range over the layers";
  c->verdict = wm_ledger_judge(inside, outside);
  return count > 0;
}

/* Layers in which gate kind pca with `components` has the higher AUC than the linear gate (sure:
 * their intervals do not touch), and layers that have both. */
static void compare_pca(const wm_results_t *r, double components, int64_t *higher, int64_t *sure,
                        int64_t *both) {
  *higher = *sure = *both = 0;
  for (int64_t g = 0; g < r->gates.n; g++) {
    if (strcmp(wm_frame_text(&r->gates, g, "kind"), "pca") != 0 ||
        wm_frame_number(&r->gates, g, "components") != components)
      continue;
    for (int64_t h = 0; h < r->gates.n; h++) {
      if (strcmp(wm_frame_text(&r->gates, h, "kind"), "linear") != 0 ||
          wm_frame_number(&r->gates, h, "layer") != wm_frame_number(&r->gates, g, "layer"))
        continue;
      ++*both;
      *higher += wm_frame_number(&r->gates, g, "auc_heldout") >
                 wm_frame_number(&r->gates, h, "auc_heldout");
      *sure += wm_frame_number(&r->gates, g, "auc_low") > wm_frame_number(&r->gates, h, "auc_high");
    }
  }
}

/* C18: no larger gate wins consistently. */
static bool larger_gates(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_results_t *r = &all[index];
  double most = -1, most_sure = 0, layers = 0;
  (void)n;
  for (int64_t g = 0; g < r->gates.n; g++) {
    int64_t higher, sure, both;
    double components = wm_frame_number(&r->gates, g, "components");
    if (strcmp(wm_frame_text(&r->gates, g, "kind"), "pca") != 0)
      continue;
    compare_pca(r, components, &higher, &sure, &both);
    if (both == 0)
      continue;
    layers = (double)both;
    most = fmax(most, 100.0 * (double)higher / (double)both);
    most_sure = fmax(most_sure, 100.0 * (double)sure / (double)both);
  }
  if (most < 0)
    return false;
  c->value = most;
  c->low = most_sure;
  c->high = most;
  c->interval = "layers in which the intervals of both AUCs do not touch, and all";
  c->beside = layers;
  c->beside_what = "layers with both kinds of gates";
  c->verdict = wm_ledger_judge(most<75, most_sure> 50);
  return true;
}

/* C13: all layers but one or none routed together. */
static bool compound(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_results_t *r = &all[index];
  int64_t best = -1, most = 1;
  (void)n;
  for (int64_t v = 1; v < r->variants.n; v++) {
    int64_t count = 0;
    for (int64_t k = 0; k < r->changes.n; k++)
      count += wm_frame_number(&r->changes, k, "variant") == (double)v;
    if (strcmp(wm_frame_text(&r->variants, v, "path"), "gate") == 0 && count > most &&
        count >= r->overview.measured - 1) {
      most = count;
      best = v;
    }
  }
  if (best < 0)
    return false;
  c->value = wm_frame_number(&r->variants, best, "saved_pct");
  c->beside = wm_frame_number(&r->variants, best, "delta_pct");
  c->beside_what = "measured cost of that model, percent of perplexity";
  c->verdict = wm_ledger_judge(c->value >= 19 && c->value <= 23, c->value < 10.5);
  return true;
}

/* ---- time ------------------------------------------------------------------------------------ */

/* C21: no claim, but a number. */
static bool measured_time(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_results_t *r = &all[index];
  const wm_frame_t *f = r->bench_losses.n > 0 ? &r->bench_losses : &r->bench_routing;
  int64_t best = -1;
  (void)n;
  for (int64_t i = 0; i < f->n; i++)
    if (strstr(wm_frame_text(f, i, "name"), "gate") != NULL &&
        (best < 0 || wm_frame_number(f, i, "speedup") > wm_frame_number(f, best, "speedup")))
      best = i;
  if (best < 0)
    return false;
  c->value = wm_frame_number(f, best, "speedup");
  c->beside = wm_frame_number(f, best, "flops_saved");
  c->beside_what = "operations saved there, percent";
  c->verdict = WM_NOT_TESTED;
  return true;
}

/* ---- the table ------------------------------------------------------------------------------- */

#define PAIRED "intervals are paired here; the study resamples each side alone"
#define CHOSEN "gates are chosen on a validation range here, on the evaluation tokens in the study"

#define BUDGET                                                                                     \
  "reproduced if the interval reaches the published change; contradicted if the model ends worse " \
  "than it started; with another number of tokens it is not tested"

const wm_ledger_rule_t wm_ledger_rules[WM_CLAIMS] = {
    {"C01", cheap_layers, "layers below the bound, percent", "sweep",
     "reproduced if so many layers lie below the bound with their whole interval", PAIRED},
    {"C02", four_beat, "layers whose chosen gate beats the full model", "gate and sweep",
     "reproduced if so many do after Holm's correction; contradicted if fewer could", CHOSEN},
    {"C03", eleven_beat, "layers whose chosen gate beats the full model", "gate and sweep",
     "reproduced if so many do after Holm's correction; contradicted if fewer could", CHOSEN},
    {"C04", all_below, "cost of the dearest layer, percent", "sweep",
     "reproduced if every layer's interval ends below the bound; contradicted if one begins above",
     PAIRED},
    {"C05", first_layer, "cost of the first layer, percent", "sweep",
     "reproduced if the interval holds the value; contradicted if it excludes all between half and "
     "twice the value",
     PAIRED},
    {"C06", middle_layers, "cost of the dearest of these layers, percent", "sweep",
     "reproduced if every interval ends below the bound; contradicted if one begins above", PAIRED},
    {"C07", third_beats, "cost of the layer's chosen gate, percent", "gate and sweep",
     "reproduced if it beats the full model after Holm's correction; contradicted if the interval "
     "lies above zero",
     CHOSEN},
    {"C08", cheap_routing, "layers with a gate of that kind, percent", "gate and sweep",
     "a gate that routes a quarter or more for less than the cost; reproduced if more than half of "
     "the layers have one for sure",
     CHOSEN},
    {"C09", gate_auc, "median AUC of the linear gates", "gate",
     "reproduced if all AUCs lie within; contradicted if an interval lies outside",
     "AUC is of held-out positions here, and gates are at their optimum"},
    {"C10", wm_ledger_context, "largest difference of the AUCs of a layer", "probe",
     "reproduced if no layer has more; contradicted if in one the two intervals do not touch",
     "parts are split exactly, after the norm"},
    {"C11", wm_ledger_corpora, "correlation of mean deltas of target token types", "probe",
     "reproduced if the interval lies within a tenth of zero, contradicted if outside",
     "all token types with enough observations, with the reliability of both sides"},
    {"C12", wm_ledger_features, "largest R2 of a layer, held out", "probe",
     "reproduced if every interval ends below 0.02; contradicted if one begins above",
     "out of sample; positions count within the window"},
    {"C13", compound, "operations saved, percent of the whole model", "gate and sweep",
     "reproduced within two percent points; contradicted below half of it",
     "perplexity is measured on the jointly routed model"},
    {"C14", wm_ledger_progressive,
     "most layers linear at a phase's end, no worse than the full model at the start", "finetune",
     "reproduced if the claimed number is, to the upper end of the interval; contradicted if it is "
     "not even by the lower one; with other numbers of tokens a layer, or fewer layers tried, it "
     "is "
     "not tested",
     "training and evaluation tokens are disjoint here; training alone lowers perplexity, which "
     "the "
     "control tells from it"},
    {"C15", wm_ledger_linearized, "change of perplexity from start to end, percent", "finetune",
     BUDGET, "surrogates are fitted on other tokens than those evaluated"},
    {"C16", wm_ledger_two_phase, "change of perplexity from start to end, percent", "finetune",
     BUDGET, "compared at equal tokens only"},
    {"C17", wm_ledger_control, "change of perplexity from start to end, percent", "finetune",
     BUDGET, "compared at equal tokens only"},
    {"C18", larger_gates,
     "layers in which the best kind of larger gate has the higher AUC, percent", "gate",
     "reproduced if no kind has it in three of four layers; contradicted if one has it for sure in "
     "more than half",
     "the study's larger gates are the same regression on principal components: more numbers, but "
     "linear in x as well, a subset of the d+1 gate's functions; that none wins says that the "
     "d+1 gate is not overfitted, and nothing of gates that bend. Gates are at their optimum; AUC "
     "is of held-out positions"},
    {"C19", wm_ledger_clusters,
     "most clusters of a layer that are consistently linear or nonlinear", "probe",
     "reproduced if none is; contradicted if one is", ""},
    {"C20", falls_with_size, "median cost of the layers, percent", "sweep",
     "reproduced if each larger model's interval lies below the smaller one's; contradicted if one "
     "lies above",
     PAIRED},
    {"C21", measured_time, "best speed-up of a gated model by the clock", "bench",
     "the study makes no claim to test; this is what the bench measured",
     "random weights of the bench's shape"},
};
