#include "sweep_variants.h"

#include "stages.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* --- surrogates ---------------------------------------------------------------------------------
 */

static wm_status_t need_surrogate(const wm_available_t *have, const char *key,
                                  const int64_t *layers, int64_t n, wm_error_t *err) {
  for (int64_t i = 0; i < n; i++) {
    bool found = false;
    for (int64_t k = 0; k < have->n; k++)
      found |= have->layers[k] == layers[i];
    if (!found)
      return wm_fail(err, WM_USAGE, "%s: layer %" PRId64 " has no surrogate in %s", key, layers[i],
                     have->where);
  }
  return WM_OK;
}

static int64_t smallest(const int64_t *layers, int64_t n) {
  int64_t least = layers[0];
  for (int64_t i = 1; i < n; i++)
    least = layers[i] < least ? layers[i] : least;
  return least;
}

/* The change that routes a layer by what gates.h5 has selected for it. */
static wm_status_t selected_change(const wm_available_t *have, int64_t layer, wm_change_t *out,
                                   wm_error_t *err) {
  const wm_gate_layer_t *l = have->gates != NULL ? wm_gates_layer(have->gates, layer) : NULL;
  int64_t gate = l != NULL ? l->selected : -1;
  if (gate >= 0 && !wm_gate_has_score(have->gates->gates[gate].kind))
    gate = -1;
  for (int64_t g = 0; l != NULL && gate < 0 && g < have->gates->n; g++)
    if (have->gates->gates[g].layer == layer && have->gates->gates[g].kind == WM_GATE_LINEAR)
      gate = g;
  if (gate < 0)
    return wm_fail(err, WM_USAGE,
                   "layer %" PRId64 " has no gate that was selected, and no linear one; run the "
                   "job gate before",
                   layer);
  const bool chosen = l->selected == gate && isfinite(l->selected_threshold);
  *out = (wm_change_t){layer, gate,
                       chosen ? l->selected_threshold : have->gates->gates[gate].threshold};
  return WM_OK;
}

static wm_status_t add_routed_set(const wm_available_t *have, const int64_t *set, int64_t n,
                                  wm_variants_t *variants, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, n, sizeof(wm_change_t), "a set of layers", err);
  wm_change_t *changes = memory;
  for (int64_t i = 0; i < n && status == WM_OK; i++)
    status = selected_change(have, set[i], &changes[i], err);
  if (status == WM_OK)
    status = wm_variants_add_changes(variants, changes, n, have->n_layers, err);
  free(memory);
  return status;
}

/* Adds the joint sets whose first layer is `layer`: linear ones, or routed ones. */
static wm_status_t add_joint(const wm_config_t *config, const wm_available_t *have,
                             const char *setting, bool routed, int64_t layer,
                             wm_variants_t *variants, wm_error_t *err) {
  const int64_t *offsets;
  int64_t count;
  const int64_t *sets = wm_config_lists(config, setting, &offsets, &count);
  for (int64_t i = 0; i < count; i++) {
    const int64_t *set = sets + offsets[i];
    int64_t n = offsets[i + 1] - offsets[i];
    if (smallest(set, n) != layer || (routed && have->before_gates))
      continue;
    wm_status_t status = need_surrogate(have, setting, set, n, err);
    if (status == WM_OK)
      status = routed ? add_routed_set(have, set, n, variants, err)
                      : wm_variants_add(variants, set, n, have->n_layers, err);
    if (status != WM_OK)
      return wm_error_prefix(err, "%s", setting);
  }
  return WM_OK;
}

/* --- gates --------------------------------------------------------------------------------------
 */

/* Calls for each blank-separated word of the setting: false when there are no more. */
static bool next_word(const char **at, char word[32]) {
  int used = 0;
  if (sscanf(*at, " %31s%n", word, &used) != 1)
    return false;
  *at += used;
  return true;
}

static wm_status_t check_kinds(const wm_config_t *c, wm_error_t *err) {
  char word[32];
  wm_gate_kind_t kind;
  for (const char *at = wm_config_string(c, "sweep.gate_kinds"); next_word(&at, word);)
    if (strcmp(word, "all") != 0 && strcmp(word, "selected") != 0 &&
        !wm_gate_kind_parse(word, &kind))
      return wm_fail(err, WM_USAGE,
                     "sweep.gate_kinds: \"%s\" is no kind of gate: linear, pca, component, norm, "
                     "max_abs, kurtosis, random, oracle; selected or all",
                     word);
  return WM_OK;
}

static bool is_wanted(const wm_config_t *c, const wm_available_t *have, int64_t gate) {
  const wm_gate_t *g = &have->gates->gates[gate];
  char word[32];
  bool wanted = false;
  for (const char *at = wm_config_string(c, "sweep.gate_kinds"); next_word(&at, word);)
    wanted |=
        strcmp(word, "all") == 0 || strcmp(word, wm_gate_kind_name(g->kind)) == 0 ||
        (strcmp(word, "selected") == 0 && wm_gates_layer(have->gates, g->layer)->selected == gate);
  return wanted;
}

/* One gate at one threshold, unless it is there already. */
static wm_status_t add_gate(const wm_available_t *have, int64_t gate, double threshold,
                            wm_variants_t *variants, wm_error_t *err) {
  const wm_change_t change = {have->gates->gates[gate].layer, gate, threshold};
  for (int64_t v = 1; v < variants->n; v++) {
    int64_t n;
    const wm_change_t *c = wm_variants_changes(variants, v, &n);
    if (n == 1 && c->gate == gate && (isnan(c->threshold) || c->threshold == threshold))
      return WM_OK;
  }
  return wm_variants_add_changes(variants, &change, 1, have->n_layers, err);
}

/* At its own threshold, at the one that was selected with it, and at those of sweep.thresholds. */
static wm_status_t add_thresholds(const wm_config_t *c, const wm_available_t *have, int64_t gate,
                                  wm_variants_t *variants, wm_error_t *err) {
  const wm_gate_t *g = &have->gates->gates[gate];
  const wm_gate_layer_t *layer = wm_gates_layer(have->gates, g->layer);
  int64_t n;
  const double *thresholds = wm_config_floats(c, "sweep.thresholds", &n);
  wm_status_t status = add_gate(have, gate, g->threshold, variants, err);
  if (!wm_gate_has_score(g->kind))
    return status;
  if (status == WM_OK && layer->selected == gate && isfinite(layer->selected_threshold))
    status = add_gate(have, gate, layer->selected_threshold, variants, err);
  for (int64_t i = 0; i < n && status == WM_OK; i++)
    status = add_gate(have, gate, thresholds[i], variants, err);
  return status;
}

/* The layer's gates: those that route by measured losses, or the others. */
static wm_status_t add_gates(const wm_config_t *c, const wm_available_t *have, int64_t layer,
                             bool by_losses, wm_variants_t *variants, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int64_t g = 0; have->gates != NULL && g < have->gates->n && status == WM_OK; g++) {
    const wm_gate_t *gate = &have->gates->gates[g];
    if (gate->layer == layer && (gate->kind == WM_GATE_ORACLE) == by_losses &&
        is_wanted(c, have, g))
      status = add_thresholds(c, have, g, variants, err);
  }
  return status;
}

bool wm_sweep_has_gates(const wm_run_t *run) {
  char path[WM_PATH_SIZE];
  wm_error_t err = {0};
  bool there = wm_config_bool(run->config, "sweep.gates") &&
               wm_output_path(run, "gates.h5", path, &err) == WM_OK && access(path, R_OK) == 0;
  wm_broadcast(run->comm->world, 0, &there, sizeof there);
  return there;
}

/* Collective. Was the file made of these inputs, and were its gates chosen as the settings say? */
static bool is_current(const wm_inputs_t *in, const wm_surrogates_t *surrogates, const char *path) {
  const wm_role_t choice = wm_gate_choice(in->run);
  char chosen[64], texts[4][WM_STAGE_KEY_SIZE];
  snprintf(chosen, sizeof chosen, "text_fingerprint_%s", wm_role_name(choice));
  const char *const names[] = {"model_fingerprint", "surrogates_fingerprint",
                               "text_fingerprint_gates", chosen, "range_choice"};
  const uint64_t keys[] = {wm_model_fingerprint(in->model), wm_surrogates_fingerprint(surrogates),
                           wm_text_fingerprint(&in->text[WM_ROLE_GATES], 0),
                           wm_text_fingerprint(&in->text[choice], 0)};
  const char *values[5] = {NULL, NULL, NULL, NULL, wm_role_name(choice)};
  for (int i = 0; i < 4; i++) {
    wm_hash_text(keys[i], texts[i]);
    values[i] = texts[i];
  }
  return wm_result_matches(in->run, path, false, 5, names, values);
}

wm_status_t wm_sweep_gates(const wm_inputs_t *in, const wm_surrogates_t *surrogates,
                           wm_gates_t **out, wm_error_t *err) {
  const wm_run_t *run = in->run;
  const wm_arch_t *arch = wm_model_arch(in->model);
  char path[WM_PATH_SIZE];
  *out = NULL;
  if (!wm_sweep_has_gates(run) || !in->text[WM_ROLE_GATES].present ||
      !in->text[wm_gate_choice(run)].present)
    return WM_OK;
  wm_status_t status = wm_output_path(run, "gates.h5", path, err);
  if (status != WM_OK)
    return status;
  if (!is_current(in, surrogates, path)) {
    wm_log(run->log, WM_LOG_WARN,
           "sweep: the gates of %s are left out: they are not of this model, these surrogates, "
           "ranges and gate.selection; run the job gate again",
           path);
    return WM_OK;
  }
  return wm_gates_open(run->comm, path, arch->n_layers, arch->d_model, out, err);
}

static wm_status_t check_sets(const wm_config_t *c, const char *setting, int64_t n_layers,
                              wm_error_t *err) {
  const int64_t *offsets;
  int64_t n;
  const int64_t *sets = wm_config_lists(c, setting, &offsets, &n);
  for (int64_t i = 0; i < (n > 0 ? offsets[n] : 0); i++)
    if (sets[i] >= n_layers)
      return wm_fail(err, WM_USAGE,
                     "%s: layer %" PRId64 " does not exist; the model has layers 0 to %" PRId64,
                     setting, sets[i], n_layers - 1);
  return WM_OK;
}

/* --- all ----------------------------------------------------------------------------------------
 */

wm_status_t wm_sweep_variants(const wm_config_t *c, const wm_available_t *have,
                              wm_variants_t *variants, wm_error_t *err) {
  const int64_t n_layers = have->n_layers;
  int64_t count, n;
  const int64_t *given = wm_config_ints(c, "sweep.layers", &count);
  bool single = wm_config_bool(c, "sweep.single");
  if (!single && count > 0)
    return wm_fail(err, WM_USAGE,
                   "sweep.layers names layers to measure alone, but sweep.single is false");
  void *memory;
  wm_status_t status = wm_alloc(&memory, n_layers, sizeof(int64_t), "layers", err);
  if (status != WM_OK)
    return status;
  int64_t *layers = memory;
  WM_TRY(wm_variants_create(variants, err));
  variants->gates = have->gates;
  WM_TRY(wm_layer_list("sweep.layers", count > 0 ? given : have->layers,
                       count > 0 ? count : have->n, n_layers, layers, &n, err));
  if (single)
    WM_TRY(need_surrogate(have, "sweep.layers", layers, n, err));
  WM_TRY(check_sets(c, "sweep.joint", n_layers, err));
  WM_TRY(check_sets(c, "sweep.routed", n_layers, err));
  WM_TRY(check_kinds(c, err));
  for (int64_t l = 0, next = 0; l < n_layers; l++) {
    if (single && next < n && layers[next] == l) {
      WM_TRY(wm_variants_add(variants, &layers[next++], 1, n_layers, err));
      WM_TRY(add_gates(c, have, l, false, variants, err));
    }
    WM_TRY(add_joint(c, have, "sweep.joint", false, l, variants, err));
    WM_TRY(add_joint(c, have, "sweep.routed", true, l, variants, err));
  }
  for (int64_t i = 0; i < n && single; i++)
    WM_TRY(add_gates(c, have, layers[i], true, variants, err));
cleanup:
  free(memory);
  return status;
}
