#include "gate.h"

#include "stages.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* --- kinds --------------------------------------------------------------------------------------
 */

/* Is `word` among the blank-separated words of `text`? */
static bool has_word(const char *text, const char *word) {
  char found[32];
  int used;
  for (const char *at = text; sscanf(at, " %31s%n", found, &used) == 1; at += used)
    if (strcmp(found, word) == 0)
      return true;
  return false;
}

static bool has_kind(const char *kinds, wm_gate_kind_t kind) {
  return has_word(kinds, "all") || has_word(kinds, wm_gate_kind_name(kind));
}

static wm_status_t check_kinds(const char *key, const char *kinds, wm_error_t *err) {
  char word[32];
  int used;
  for (const char *at = kinds; sscanf(at, " %31s%n", word, &used) == 1; at += used) {
    wm_gate_kind_t kind;
    if (strcmp(word, "all") != 0 && !wm_gate_kind_parse(word, &kind))
      return wm_fail(err, WM_USAGE,
                     "%s: \"%s\" is no kind of gate; there are linear, pca, component, norm, "
                     "max_abs, kurtosis, random, oracle, and all of them by \"all\"",
                     key, word);
  }
  return WM_OK;
}

static wm_status_t add_spec(wm_gate_job_t *j, const wm_arch_t *arch, wm_gate_kind_t kind,
                            int64_t components, wm_error_t *err) {
  const int64_t d = arch->d_model, n = j->options.fit.n_specs;
  if (n == WM_GATE_SPECS)
    return wm_fail(err, WM_USAGE, "more than %d gates for a layer", WM_GATE_SPECS);
  if (components > d)
    return wm_fail(err, WM_USAGE,
                   "gate.bottlenecks, gate.components: %" PRId64
                   " principal components, but the model's width is %" PRId64,
                   components, d);
  for (int64_t i = 0; i < n; i++)
    if (j->specs[i].kind == kind && j->specs[i].components == components)
      return wm_fail(err, WM_USAGE, "gate.bottlenecks, gate.components: a gate is asked for twice");
  j->specs[j->options.fit.n_specs++] = (wm_gate_spec_t){kind, components};
  return WM_OK;
}

/* A gate per kind, of pca and component one per number in a list; in the order of kinds. */
wm_status_t wm_gate_specs(wm_gate_job_t *j, const wm_config_t *c, const wm_arch_t *arch,
                          wm_error_t *err) {
  const char *kinds = wm_config_string(c, "gate.kinds");
  wm_status_t status = check_kinds("gate.kinds", kinds, err);
  for (int k = 0; k < WM_GATE_KINDS && status == WM_OK; k++) {
    const wm_gate_kind_t kind = (wm_gate_kind_t)k;
    if (!has_kind(kinds, kind))
      continue;
    if (kind != WM_GATE_PCA && kind != WM_GATE_COMPONENT) {
      status = add_spec(j, arch, kind, 0, err);
      continue;
    }
    const bool pca = kind == WM_GATE_PCA;
    int64_t n;
    const int64_t *sizes = wm_config_ints(c, pca ? "gate.bottlenecks" : "gate.components", &n);
    for (int64_t i = 0; i < n && status == WM_OK; i++)
      status = add_spec(j, arch, kind, pca ? 2 * sizes[i] : sizes[i], err);
  }
  if (status == WM_OK && j->options.fit.n_specs == 0)
    status = wm_fail(err, WM_USAGE, "gate.kinds = \"%s\" names no gate", kinds);
  return status;
}

/* --- layers -------------------------------------------------------------------------------------
 */

/* Layers that get gates, and each one's surrogate as a variant. */
static wm_status_t read_layers(wm_gate_job_t *j, const char *where, wm_error_t *err) {
  const int64_t n_layers = wm_model_arch(j->in->model)->n_layers;
  int64_t count, have;
  const int64_t *given = wm_config_ints(j->in->run->config, "gate.layers", &count);
  const int64_t *all = wm_surrogates_layers(j->surrogates, &have);
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, n_layers, sizeof(int64_t), "layers", err));
  j->layers = memory;
  WM_TRY(wm_layer_list("gate.layers", count > 0 ? given : all, count > 0 ? count : have, n_layers,
                       j->layers, &j->n_layers, err));
  WM_TRY(wm_variants_create(&j->single, err));
  for (int64_t i = 0; i < j->n_layers; i++) {
    if (!wm_surrogates_has(j->surrogates, j->layers[i]))
      return wm_fail(err, WM_USAGE, "gate.layers: layer %" PRId64 " has no surrogate in %s",
                     j->layers[i], where);
    WM_TRY(wm_variants_add(&j->single, &j->layers[i], 1, n_layers, err));
  }
cleanup:
  return status;
}

static wm_status_t check_curve(const wm_gate_job_t *j, wm_error_t *err) {
  const wm_config_t *c = j->in->run->config;
  int64_t n;
  const int64_t *layers = wm_config_ints(c, "gate.curve_layers", &n);
  for (int64_t i = 0; i < n; i++) {
    bool found = false;
    for (int64_t l = 0; l < j->n_layers; l++)
      found |= j->layers[l] == layers[i];
    if (!found)
      return wm_fail(err, WM_USAGE, "gate.curve_layers: layer %" PRId64 " gets no gates",
                     layers[i]);
  }
  return check_kinds("gate.curve_kinds", wm_config_string(c, "gate.curve_kinds"), err);
}

wm_status_t wm_gate_settings(wm_gate_job_t *j, const char *where, wm_error_t *err) {
  const wm_config_t *c = j->in->run->config;
  void *memory = NULL;
  wm_status_t status;
  WM_TRY(read_layers(j, where, err));
  j->options = (wm_gate_pass_options_t){
      .layers = j->layers,
      .n_layers = j->n_layers,
      .fit = {.specs = j->specs,
              .C = 1,
              .threshold = 0.5,
              .seed = (uint64_t)wm_config_int(c, "gate.seed"),
              .block = (int)wm_config_int(c, "fit.block")},
      .feature_bytes = (int64_t)(wm_config_float(c, "gate.memory_gib") * 0x1p30),
      .least_count = wm_config_int(c, "gate.least_count"),
      .checkpoint_seconds = 60 * wm_config_float(c, "checkpoint.minutes")};
  j->thresholds = wm_config_floats(c, "gate.thresholds", &j->n_thresholds);
  j->least_routed = wm_config_float(c, "gate.least_routed");
  WM_TRY(wm_gate_specs(j, c, wm_model_arch(j->in->model), err));
  WM_TRY(check_curve(j, err));
  WM_TRY(wm_alloc(&memory, j->n_layers, sizeof(wm_gate_ends_t), "ends of directions", err));
  j->ends = memory;
  WM_TRY(wm_alloc(&memory, j->n_layers, sizeof(int64_t), "chosen gates", err));
  j->selected = memory;
cleanup:
  return status;
}

wm_status_t wm_gate_check(const wm_run_t *run, const wm_arch_t *arch, wm_error_t *err) {
  wm_gate_job_t j = {0};
  int64_t count, n;
  const int64_t *given = wm_config_ints(run->config, "gate.layers", &count);
  void *layers;
  wm_status_t status = wm_alloc(&layers, arch->n_layers, sizeof(int64_t), "layers", err);
  if (status == WM_OK)
    status = wm_gate_specs(&j, run->config, arch, err);
  if (status == WM_OK)
    status =
        check_kinds("gate.curve_kinds", wm_config_string(run->config, "gate.curve_kinds"), err);
  if (status == WM_OK)
    status = wm_layer_list("gate.layers", given, count, arch->n_layers, layers, &n, err);
  free(layers);
  return status;
}

/* --- variants -----------------------------------------------------------------------------------
 */

/* Is the gate measured at all thresholds of the curve? */
static bool has_curve(const wm_gate_job_t *j, const wm_gate_t *g) {
  const wm_config_t *c = j->in->run->config;
  int64_t n;
  const int64_t *layers = wm_config_ints(c, "gate.curve_layers", &n);
  bool wanted = n == 0;
  for (int64_t i = 0; i < n; i++)
    wanted |= layers[i] == g->layer;
  return wanted && wm_gate_has_score(g->kind) &&
         has_kind(wm_config_string(c, "gate.curve_kinds"), g->kind);
}

int64_t wm_gate_curve(const wm_gate_job_t *j, const wm_gate_t *g, double *thresholds) {
  int64_t n = 0;
  thresholds[n++] = g->threshold;
  for (int64_t i = 0; i < j->n_thresholds && has_curve(j, g); i++) {
    bool fresh = true;
    for (int64_t k = 0; k < n; k++)
      fresh = fresh && thresholds[k] != j->thresholds[i];
    if (fresh)
      thresholds[n++] = j->thresholds[i];
  }
  return n;
}

static wm_status_t add_gate(wm_gate_job_t *j, int64_t gate, double threshold, wm_error_t *err) {
  const wm_change_t change = {j->gates->gates[gate].layer, gate, threshold};
  return wm_variants_add_changes(&j->routed, &change, 1, j->gates->n_layers, err);
}

static wm_status_t add_curve(wm_gate_job_t *j, int64_t gate, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, 1 + j->n_thresholds, sizeof(double), "thresholds", err);
  double *thresholds = memory;
  const int64_t n = status == WM_OK ? wm_gate_curve(j, &j->gates->gates[gate], thresholds) : 0;
  for (int64_t i = 0; i < n && status == WM_OK; i++)
    status = add_gate(j, gate, thresholds[i], err);
  free(memory);
  return status;
}

wm_status_t wm_gate_variants(wm_gate_job_t *j, wm_error_t *err) {
  const wm_gates_t *gates = j->gates;
  wm_status_t status;
  wm_variants_destroy(&j->routed);
  WM_TRY(wm_variants_create(&j->routed, err));
  j->routed.gates = gates;
  for (int64_t l = 0; l < j->n_layers; l++) {
    bool oracle = false;
    for (int64_t g = 0; g < gates->n; g++)
      oracle |= gates->gates[g].layer == j->layers[l] && gates->gates[g].kind == WM_GATE_ORACLE;
    if (oracle)
      WM_TRY(wm_variants_add(&j->routed, &j->layers[l], 1, gates->n_layers, err));
    for (int64_t g = 0; g < gates->n; g++)
      if (gates->gates[g].layer == j->layers[l] && gates->gates[g].kind != WM_GATE_ORACLE)
        WM_TRY(add_curve(j, g, err));
  }
  for (int64_t g = 0; g < gates->n; g++)
    if (gates->gates[g].kind == WM_GATE_ORACLE)
      WM_TRY(add_gate(j, g, NAN, err));
cleanup:
  return status;
}

/* --- stand-ins ----------------------------------------------------------------------------------
 */

wm_status_t wm_gate_stand_in(wm_gate_job_t *j, wm_error_t *err) {
  void *zeros;
  wm_status_t status = wm_alloc(&zeros, j->gates->d, sizeof(double), "a gate", err);
  for (int64_t l = 0; l < j->n_layers && status == WM_OK; l++) {
    const wm_gate_layer_t layer = {.layer = j->layers[l], .selected = -1};
    status = wm_gates_add_layer(j->gates, &layer, err);
    for (int64_t i = 0; i < j->options.fit.n_specs && status == WM_OK; i++) {
      const wm_gate_kind_t kind = j->specs[i].kind;
      const wm_gate_t gate = {.layer = j->layers[l],
                              .kind = kind,
                              .components = j->specs[i].components,
                              .weight = wm_gate_has_weight(kind) ? zeros : NULL,
                              .threshold = j->options.fit.threshold};
      status = wm_gates_add(j->gates, &gate, err);
    }
  }
  free(zeros);
  return status;
}

/* --- keys ---------------------------------------------------------------------------------------
 */

uint64_t wm_gate_fit_key(const wm_gate_job_t *j, uint64_t seed) {
  const wm_gate_fit_options_t *o = &j->options.fit;
  uint64_t h = wm_hash(j->layers, (size_t)j->n_layers * sizeof *j->layers, seed);
  for (int64_t i = 0; i < o->n_specs; i++) {
    const int64_t spec[2] = {o->specs[i].kind, o->specs[i].components};
    h = wm_hash(spec, sizeof spec, h);
  }
  h = wm_hash(&o->seed, sizeof o->seed, h);
  return wm_hash(&j->options.least_count, sizeof j->options.least_count, h);
}

uint64_t wm_gate_choice_key(const wm_gate_job_t *j, uint64_t seed) {
  const wm_config_t *c = j->in->run->config;
  const char *kinds = wm_config_string(c, "gate.curve_kinds");
  const bool divergence = wm_config_bool(c, "sweep.divergence");
  int64_t n;
  const int64_t *layers = wm_config_ints(c, "gate.curve_layers", &n);
  uint64_t h = wm_hash(layers, (size_t)n * sizeof *layers, seed);
  h = wm_hash(kinds, strlen(kinds), h);
  h = wm_hash(j->thresholds, (size_t)j->n_thresholds * sizeof *j->thresholds, h);
  h = wm_hash(&divergence, sizeof divergence, h);
  h = wm_hash(&j->choice, sizeof j->choice, h);
  return wm_hash(&j->least_routed, sizeof j->least_routed, h);
}
