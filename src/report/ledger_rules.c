/* The study's claims as quantities of result files. */
#include "ledger_internal.h"
#include "wanamaker/measure/inference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static wm_layer_state_t state_of_row(const wm_results_t *r, int64_t row) {
  return wm_ledger_state(row >= 0, wm_frame_number(&r->variants, row, "delta_pct"),
                         wm_frame_number(&r->variants, row, "low"),
                         wm_frame_number(&r->variants, row, "high"));
}

static wm_layer_state_t cost_state(const wm_results_t *r, int64_t layer, double unused) {
  const int64_t i = find_layer(r, layer);
  (void)unused;
  return i < 0 ? WM_LAYER_ABSENT : state_of_row(r, r->layer_results[i].linear);
}

static wm_layer_state_t routed_state(const wm_results_t *r, int64_t layer, double unused) {
  const int64_t i = find_layer(r, layer);
  (void)unused;
  return i < 0 ? WM_LAYER_ABSENT : state_of_row(r, r->layer_results[i].gated);
}

/* ---- costs of layers ------------------------------------------------------------------------- */

static void need_all_costs(wm_claim_t *c, const wm_results_t *r) {
  wm_ledger_need_all_layers(c, r, false, cost_state, 0, "measured on");
  wm_ledger_need_units(c, r->n_units);
}

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
  need_all_costs(c, r);
  wm_ledger_judge(c, c->low >= 70, c->high < 70);
  return true;
}

/* The dearest of layers [first, last] that are there, and its interval. */
static bool dearest(const wm_results_t *r, int64_t first, int64_t last, double bound,
                    wm_claim_t *c) {
  bool below = true, above = false;
  for (int64_t i = 0; i < r->n_layers; i++) {
    const double cost = linear(r, i, "delta_pct");
    if (r->layer_results[i].layer < first || r->layer_results[i].layer > last || isnan(cost))
      continue;
    if (isnan(c->value) || cost > c->value) {
      c->value = cost;
      c->low = linear(r, i, "low");
      c->high = linear(r, i, "high");
    }
    below &= linear(r, i, "high") <= bound;
    above |= linear(r, i, "low") > bound;
  }
  c->interval = "its interval";
  wm_ledger_need_units(c, r->n_units);
  wm_ledger_judge(c, below, above);
  return !isnan(c->value);
}

/* C04: no layer above 3.7 %, of all layers of the model. */
static bool all_below(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_results_t *r = &all[index];
  (void)n;
  need_all_costs(c, r);
  return dearest(r, 0, INT64_MAX, 3.7, c);
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
  wm_ledger_need_units(c, r->n_units);
  wm_ledger_need_interval(c);
  wm_ledger_judge(c, c->low <= 513 && c->high >= 513, c->high < 256.5 || c->low > 1026);
  return true;
}

/* C06: layers 7 to 15 below 4 %. */
static bool middle_layers(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  (void)n;
  wm_ledger_need_layers(c, &all[index], 7, 15, cost_state, 0, "measured on");
  return dearest(&all[index], 7, 15, 4, c);
}

/* Number of parameters of a Pythia with the costs of all its layers; 0: it has not. */
static double size_of_pythia(const wm_results_t *r) {
  const char *model = wm_results_study_model(r);
  const double size = strtod(wm_results_attribute(r, "model_parameters"), NULL);
  wm_claim_t needs = {.reason = ""};
  need_all_costs(&needs, r);
  return model != NULL && strncmp(model, "pythia", 6) == 0 && needs.reason[0] == '\0' && size > 0
             ? size
             : 0;
}

/* C20: the median falls as the model grows. */
static bool falls_with_size(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  bool agrees = true, differs = false;
  int64_t sizes = 0;
  for (int64_t i = 0; i < n; i++) {
    const double size = size_of_pythia(&all[i]);
    bool again = false;
    for (int64_t j = 0; j < n && size > 0; j++) {
      const double other = size_of_pythia(&all[j]);
      again |= j < i && other == size;
      if (other <= size)
        continue;
      agrees &= all[j].overview.median_high < all[i].overview.median_low;
      differs |= all[j].overview.median_low > all[i].overview.median_high;
    }
    sizes += size > 0 && !again;
  }
  const wm_overview_t *o = &all[index].overview;
  if (isnan(o->median_cost))
    return false;
  c->value = o->median_cost;
  c->low = o->median_low;
  c->high = o->median_high;
  c->interval = "medians of the intervals' ends";
  c->beside = (double)sizes;
  c->beside_what = "different sizes of Pythia with all layers among these results";
  need_all_costs(c, &all[index]);
  if (sizes < 2)
    wm_ledger_lack(c, "%lld size of Pythia with all its layers is here, and two are compared",
                   (long long)sizes);
  wm_ledger_judge(c, agrees, differs);
  return true;
}

/* ---- gates ----------------------------------------------------------------------------------- */

/* Layers whose chosen gate beats the full model; at least `claimed` of them? */
static bool gates_that_beat(const wm_results_t *r, int64_t claimed, bool first_may_be_absent,
                            wm_claim_t *c) {
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
  wm_ledger_need_all_layers(c, r, first_may_be_absent, routed_state, 0, "a gate is measured on");
  wm_ledger_need_units(c, r->n_units);
  wm_ledger_judge(c, beats >= claimed, possible < claimed);
  return measured > 0;
}

/* Of 23 layers: the study leaves out the first. */
static bool four_beat(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  (void)n;
  return gates_that_beat(&all[index], 4, true, c);
}

/* Of 36, which are all. */
static bool eleven_beat(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  (void)n;
  return gates_that_beat(&all[index], 11, false, c);
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
  wm_ledger_need_units(c, r->n_units);
  wm_ledger_need_interval(c);
  wm_ledger_judge(c, gated(r, i, "beats_full") > 0, c->low > 0);
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
  wm_ledger_need_all_layers(c, r, true, routed_state, 0, "a gate is measured on");
  wm_ledger_need_units(c, r->n_units);
  wm_ledger_judge(c, c->low > 50, c->high < 50);
  return true;
}

/* Row of a layer's gate of a kind, of any number of components if that is -1; -1: none. */
static int64_t find_gate(const wm_results_t *r, const char *kind, double components, double layer) {
  for (int64_t g = 0; g < r->gates.n; g++)
    if (strcmp(wm_frame_text(&r->gates, g, "kind"), kind) == 0 &&
        (components == -1 || wm_frame_number(&r->gates, g, "components") == components) &&
        wm_frame_number(&r->gates, g, "layer") == layer)
      return g;
  return -1;
}

static wm_layer_state_t auc_of_row(const wm_results_t *r, int64_t row) {
  return wm_ledger_state(row >= 0, wm_frame_number(&r->gates, row, "auc_heldout"),
                         wm_frame_number(&r->gates, row, "auc_low"),
                         wm_frame_number(&r->gates, row, "auc_high"));
}

static wm_layer_state_t auc_state(const wm_results_t *r, int64_t layer, double unused) {
  (void)unused;
  return auc_of_row(r, find_gate(r, "linear", -1, (double)layer));
}

/* Of both gates, the linear one and the one on components. */
static wm_layer_state_t pca_state(const wm_results_t *r, int64_t layer, double components) {
  const wm_layer_state_t a = auc_state(r, layer, components);
  const wm_layer_state_t b = auc_of_row(r, find_gate(r, "pca", components, (double)layer));
  return a < b ? a : b;
}

/* C09: AUC of linear gates between 0.54 and 0.61. */
static bool gate_auc(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_results_t *r = &all[index];
  double auc[512];
  int64_t count = 0, there = 0;
  bool inside = true, outside = false;
  (void)n;
  for (int64_t g = 0; g < r->gates.n && count < 512; g++) {
    double value = wm_frame_number(&r->gates, g, "auc_heldout");
    if (strcmp(wm_frame_text(&r->gates, g, "kind"), "linear") != 0)
      continue;
    there++;
    if (isnan(value))
      continue;
    auc[count++] = value;
    c->low = isnan(c->low) || value < c->low ? value : c->low;
    c->high = isnan(c->high) || value > c->high ? value : c->high;
    inside &= value >= 0.54 && value <= 0.61;
    outside |= wm_frame_number(&r->gates, g, "auc_low") > 0.61 ||
               wm_frame_number(&r->gates, g, "auc_high") < 0.54;
  }
  if (count > 0)
    c->value = wm_median(auc, count);
  c->interval = "range over the layers";
  wm_ledger_need_all_layers(c, r, true, auc_state, 0, "a linear gate is fitted on");
  wm_ledger_judge(c, inside, outside);
  return there > 0;
}

/* Of the layers in which a linear gate and one of kind pca with `components` have AUCs, those in
 * which the latter's is higher (sure: their intervals do not touch). */
static void compare_pca(const wm_results_t *r, double components, int64_t *higher, int64_t *sure,
                        int64_t *both) {
  *higher = *sure = *both = 0;
  for (int64_t g = 0; g < r->gates.n; g++) {
    if (strcmp(wm_frame_text(&r->gates, g, "kind"), "pca") != 0 ||
        wm_frame_number(&r->gates, g, "components") != components)
      continue;
    const int64_t h = find_gate(r, "linear", -1, wm_frame_number(&r->gates, g, "layer"));
    const double x = wm_frame_number(&r->gates, h, "auc_heldout");
    const double y = wm_frame_number(&r->gates, g, "auc_heldout");
    *both += !isnan(x) && !isnan(y);
    *higher += y > x;
    *sure += wm_frame_number(&r->gates, g, "auc_low") > wm_frame_number(&r->gates, h, "auc_high");
  }
}

/* Is there a gate of that kind before? */
static bool is_again(const wm_results_t *r, int64_t gate) {
  const double components = wm_frame_number(&r->gates, gate, "components");
  for (int64_t g = 0; g < gate; g++)
    if (strcmp(wm_frame_text(&r->gates, g, "kind"), "pca") == 0 &&
        wm_frame_number(&r->gates, g, "components") == components)
      return true;
  return false;
}

/* C18: no number of components does better than the linear gate in most layers. */
static bool larger_gates(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_results_t *r = &all[index];
  double most = NAN, most_sure = NAN;
  int64_t kinds = 0;
  (void)n;
  for (int64_t g = 0; g < r->gates.n; g++) {
    int64_t higher, sure, both;
    double components = wm_frame_number(&r->gates, g, "components");
    if (strcmp(wm_frame_text(&r->gates, g, "kind"), "pca") != 0 || is_again(r, g))
      continue;
    kinds++;
    wm_ledger_need_all_layers(c, r, true, pca_state, components,
                              "both kinds of gates are fitted on");
    compare_pca(r, components, &higher, &sure, &both);
    if (both == 0)
      continue;
    c->beside = (double)both;
    most = fmax(most, 100.0 * (double)higher / (double)both);
    most_sure = fmax(most_sure, 100.0 * (double)sure / (double)both);
  }
  c->value = most;
  c->low = most_sure;
  c->high = most;
  c->interval = "layers in which the intervals of both AUCs do not touch, and all";
  c->beside_what = "layers with both kinds of gates";
  wm_ledger_judge(c, most<75, most_sure> 50);
  return kinds > 0;
}

/* C13: all layers but one or none routed together. */
static bool compound(const wm_results_t *all, int64_t n, int64_t index, wm_claim_t *c) {
  const wm_results_t *r = &all[index];
  const int64_t layers = wm_ledger_model_layers(r);
  int64_t best = -1, most = 1;
  (void)n;
  for (int64_t v = 1; v < r->variants.n; v++) {
    int64_t count = 0;
    for (int64_t k = 0; k < r->changes.n; k++)
      count += wm_frame_number(&r->changes, k, "variant") == (double)v;
    if (strcmp(wm_frame_text(&r->variants, v, "path"), "gate") == 0 && count > most) {
      most = count;
      best = v;
    }
  }
  if (best < 0)
    return false;
  c->value = wm_frame_number(&r->variants, best, "saved_pct");
  c->beside = wm_frame_number(&r->variants, best, "delta_pct");
  c->beside_what = "measured cost of that model, percent of perplexity";
  if (layers == 0 || most < layers - 1)
    wm_ledger_lack(c, "gates route %lld of %lld layers together", (long long)most,
                   (long long)layers);
  if (isnan(c->value))
    wm_ledger_lack(c, "the operations saved are not known");
  wm_ledger_judge(c, c->value >= 19 && c->value <= 23, c->value < 10.5);
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
  "than it started; with another number of tokens, or of linear layers than four, it is not "      \
  "tested"

const wm_ledger_rule_t wm_ledger_rules[WM_CLAIMS] = {
    {"C01", cheap_layers, "layers below the bound, percent", "sweep",
     "reproduced if so many layers lie below the bound with their whole interval, contradicted if "
     "fewer could; of all layers of the model",
     PAIRED},
    {"C02", four_beat, "layers whose chosen gate beats the full model", "gate and sweep",
     "reproduced if so many do after Holm's correction; contradicted if fewer could; of all "
     "layers, but perhaps the first",
     CHOSEN},
    {"C03", eleven_beat, "layers whose chosen gate beats the full model", "gate and sweep",
     "reproduced if so many do after Holm's correction; contradicted if fewer could; of all "
     "layers",
     CHOSEN},
    {"C04", all_below, "cost of the dearest layer, percent", "sweep",
     "reproduced if every layer's interval ends below the bound; contradicted if one begins above; "
     "of all layers of the model",
     PAIRED},
    {"C05", first_layer, "cost of the first layer, percent", "sweep",
     "reproduced if the interval holds the value; contradicted if it excludes all between half and "
     "twice the value",
     PAIRED},
    {"C06", middle_layers, "cost of the dearest of these layers, percent", "sweep",
     "reproduced if every interval ends below the bound; contradicted if one begins above; of all "
     "of these layers",
     PAIRED},
    {"C07", third_beats, "cost of the layer's chosen gate, percent", "gate and sweep",
     "reproduced if it beats the full model after Holm's correction; contradicted if the interval "
     "lies above zero",
     CHOSEN},
    {"C08", cheap_routing, "layers with a gate of that kind, percent", "gate and sweep",
     "a gate that routes a quarter or more for less than the cost; reproduced if more than half of "
     "the layers have one for sure, contradicted if fewer than half could; of all layers, but "
     "perhaps the first",
     CHOSEN},
    {"C09", gate_auc, "median AUC of the linear gates", "gate",
     "reproduced if all AUCs lie within; contradicted if an interval lies outside; of all layers, "
     "but "
     "perhaps the first",
     "AUC is of held-out positions here, and gates are at their optimum"},
    {"C10", wm_ledger_context, "largest difference of the AUCs of a layer", "probe",
     "reproduced if no layer has more; contradicted if in one the two intervals do not touch; of "
     "all "
     "layers of the model",
     "parts are split exactly, after the norm"},
    {"C11", wm_ledger_corpora, "correlation of mean deltas of target token types", "probe",
     "reproduced if the interval lies within a tenth of zero, contradicted if outside; of layer 12",
     "all token types with enough observations, with the reliability of both sides"},
    {"C12", wm_ledger_features, "largest R2 of a layer, held out", "probe",
     "reproduced if every interval ends below 0.02; contradicted if one begins above; of layers 1, "
     "12 "
     "and 23",
     "out of sample; positions count within the window"},
    {"C13", compound, "operations saved, percent of the whole model", "gate and sweep",
     "reproduced within two percent points; contradicted below half of it; all layers, or all but "
     "one, are routed in one model",
     "perplexity is measured on the jointly routed model"},
    {"C14", wm_ledger_progressive,
     "most layers linear at a phase's end, no worse than the full model at the start", "finetune",
     "reproduced if the claimed number is, to the upper end of the interval; contradicted if it is "
     "not even by the lower one; with other numbers of tokens a layer, or fewer layers tried, it "
     "is not tested",
     "training and evaluation tokens are disjoint here; training alone lowers perplexity, which "
     "the control tells from it"},
    {"C15", wm_ledger_linearized, "change of perplexity from start to end, percent", "finetune",
     BUDGET, "surrogates are fitted on other tokens than those evaluated"},
    {"C16", wm_ledger_two_phase, "change of perplexity from start to end, percent", "finetune",
     BUDGET, "compared at equal tokens only"},
    {"C17", wm_ledger_control, "change of perplexity from start to end, percent", "finetune",
     "reproduced if the interval reaches the study's change after as many tokens, -14.8 after "
     "102400 "
     "and -20.6 after 512000; contradicted if the model ends worse than it started; with another "
     "number of tokens it is not tested",
     "compared at equal tokens only"},
    {"C18", larger_gates,
     "layers in which the best kind of larger gate has the higher AUC, percent", "gate",
     "reproduced if no kind has it in three of four layers; contradicted if one has it for sure in "
     "more than half; of all layers, but perhaps the first",
     "the study's larger gates are the same regression on principal components: more numbers, but "
     "linear in x as well, a subset of the d+1 gate's functions; that none wins says that the "
     "d+1 gate is not overfitted, and nothing of gates that bend. Gates are at their optimum; AUC "
     "is of held-out positions"},
    {"C19", wm_ledger_clusters,
     "most clusters of a layer that are consistently linear or nonlinear", "probe",
     "reproduced if none is; contradicted if one is; of layers 1, 12 and 23", ""},
    {"C20", falls_with_size, "median cost of the layers, percent", "sweep",
     "reproduced if each larger model's interval lies below the smaller one's; contradicted if one "
     "lies above; every pair of different sizes that have the costs of all their layers",
     PAIRED},
    {"C21", measured_time, "best speed-up of a gated model by the clock", "bench",
     "the study makes no claim to test; this is what the bench measured",
     "random weights of the bench's shape"},
};
