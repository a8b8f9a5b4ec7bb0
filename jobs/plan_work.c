/* The work of a configuration, before its model and texts are there. */
#include "plan.h"
#include "stages.h"
#include "sweep_variants.h"
#include "wanamaker/base/mem.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

/* --- stages -------------------------------------------------------------------------------------
 */

/* Did the user give any setting of a group ("finetune.")? */
static bool group_given(const wm_run_t *run, const char *prefix) {
  for (const wm_schema_t *s = wm_settings; s->key != NULL; s++)
    if (strncmp(s->key, prefix, strlen(prefix)) == 0 && strchr(s->key, '*') == NULL &&
        wm_config_given(run->config, s->key))
      return true;
  return false;
}

static void append(char names[WM_PLAN_STAGES][WM_STAGE_NAME], int *n, const char *name) {
  snprintf(names[(*n)++], WM_STAGE_NAME, "%s", name);
}

/* plan.stages, checked against the jobs that there are. */
static wm_status_t read_stages(const char *text, char names[WM_PLAN_STAGES][WM_STAGE_NAME], int *n,
                               wm_error_t *err) {
  static const char between[] = " ,";
  for (const char *at = text + strspn(text, between); *at != '\0'; at += strspn(at, between)) {
    int length = (int)strcspn(at, between);
    char name[WM_STAGE_NAME];
    bool known = false;
    snprintf(name, sizeof name, "%.*s", length, at);
    for (const wm_job_t *j = wm_jobs; j->name != NULL; j++)
      known |= length < WM_STAGE_NAME && strcmp(j->name, name) == 0;
    if (!known)
      return wm_fail(err, WM_USAGE, "plan.stages: there is no job \"%.*s\"", length, at);
    if (*n == WM_PLAN_STAGES)
      return wm_fail(err, WM_USAGE, "plan.stages names more than %d stages", WM_PLAN_STAGES);
    append(names, n, name);
    at += length;
  }
  return WM_OK;
}

wm_status_t wm_plan_stages(const wm_run_t *run, char names[WM_PLAN_STAGES][WM_STAGE_NAME], int *n,
                           wm_error_t *err) {
  const char *given = wm_config_string(run->config, "plan.stages");
  *n = 0;
  if (given[0] != '\0')
    return read_stages(given, names, n, err);
  append(names, n, "tokenize");
  if (group_given(run, "finetune.")) {
    append(names, n, "finetune");
  } else if (group_given(run, "probe.")) {
    append(names, n, "probe");
  } else {
    append(names, n, "fit");
    if (wm_config_bool(run->config, "gate.enabled"))
      append(names, n, "gate");
    append(names, n, "sweep");
    if (group_given(run, "allocate."))
      append(names, n, "allocate");
  }
  return WM_OK;
}

/* --- texts --------------------------------------------------------------------------------------
 */

static wm_status_t read_ranges(const wm_run_t *run, wm_range_t ranges[WM_ROLES], wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int r = 0; r < WM_ROLES && status == WM_OK; r++)
    status = wm_inputs_range(run, (wm_role_t)r, &ranges[r], err);
  return status;
}

wm_status_t wm_plan_evaluation(const wm_run_t *run, int64_t i, wm_range_t *range, bool *there,
                               wm_error_t *err) {
  const char *name = wm_config_name(run->config, "ranges.", i);
  *there = name != NULL;
  *range = (wm_range_t){.name = name, .kind = WM_RANGE_ABSENT};
  if (name == NULL || strncmp(name, "evaluation_", strlen("evaluation_")) != 0)
    return WM_OK;
  return wm_inputs_named_range(run, range, err);
}

/* A corpus that is long enough for the ranges: long documents are cut, so that it takes more tokens
 * than are kept. */
static wm_status_t make_corpus(const wm_run_t *run, const wm_range_t ranges[WM_ROLES],
                               wm_typical_t *out, wm_error_t *err) {
  int64_t tokens = 1, rows = 1;
  bool there = true;
  for (int64_t r = 0; r < WM_ROLES || there; r++) {
    wm_range_t range = {0};
    if (r < WM_ROLES)
      range = ranges[r];
    else if (wm_plan_evaluation(run, r - WM_ROLES, &range, &there, err) != WM_OK)
      return err->status;
    if (range.kind == WM_RANGE_TOKENS && range.end > tokens)
      tokens = range.end;
    else if (range.kind != WM_RANGE_TOKENS && range.end > rows)
      rows = range.end;
  }
  const int64_t window = wm_config_int(run->config, "protocol.window");
  const double kept = window < 512 ? (double)window / 512 : 1;
  return wm_typical_create(wm_encoding_of(run), (int64_t)(1.05 * (double)tokens / kept) + 512, rows,
                           out, err);
}

wm_status_t wm_plan_cut(const wm_run_t *run, const wm_plan_work_t *w, const wm_range_t *range,
                        int64_t block_tokens, wm_windows_t *windows, wm_blocks_t *blocks,
                        wm_error_t *err) {
  wm_protocol_t protocol;
  wm_status_t status = wm_protocol_read(run, &protocol, err);
  if (status == WM_OK)
    status = wm_windows_create(&w->corpus.view, &protocol, range, windows, err);
  return status == WM_OK ? wm_blocks_create(windows, block_tokens, blocks, err) : status;
}

static wm_status_t cut_texts(const wm_run_t *run, wm_plan_work_t *w, wm_error_t *err) {
  wm_range_t ranges[WM_ROLES];
  wm_status_t status;
  WM_TRY(read_ranges(run, ranges, err));
  WM_TRY(make_corpus(run, ranges, &w->corpus, err));
  for (int r = 0; r < WM_ROLES; r++) {
    if (ranges[r].kind == WM_RANGE_ABSENT)
      continue;
    WM_TRY(wm_plan_cut(run, w, &ranges[r], wm_config_int(run->config, "compute.block_tokens"),
                       &w->windows[r], &w->blocks[r], err));
    w->present[r] = true;
  }
cleanup:
  return status;
}

/* --- model and variants -------------------------------------------------------------------------
 */

/* config.json of the model, or of one of its name that is published, while it has not been
 * downloaded. */
static wm_status_t read_arch(const wm_run_t *run, wm_arch_t *out, wm_error_t *err) {
  const char *path = wm_config_string(run->config, "model.path");
  const char *folder = wm_config_string(run->config, "plan.models");
  const char *slash = strrchr(path, '/');
  char *own = wm_arch_path(path),
       *known = wm_format("%s/%s.json", folder, slash != NULL ? slash + 1 : path);
  wm_status_t status = WM_OK;
  if (own == NULL || known == NULL)
    status = wm_fail(err, WM_ENVIRONMENT, "no memory for a file name");
  else if (access(own, R_OK) != 0 && access(known, R_OK) == 0)
    status = wm_arch_read(known, out, err);
  else
    status = wm_arch_read(path, out, err);
  free(own);
  free(known);
  return status;
}

static wm_status_t list_layers(const wm_run_t *run, wm_plan_work_t *w, wm_error_t *err) {
  int64_t count;
  const int64_t *given = wm_config_ints(run->config, "fit.layers", &count);
  void *layers;
  wm_status_t status = wm_alloc(&layers, w->arch.n_layers, sizeof(int64_t), "layers", err);
  w->layers = layers;
  return status == WM_OK ? wm_layer_list("fit.layers", given, count, w->arch.n_layers, w->layers,
                                         &w->n_layers, err)
                         : status;
}

/* Gates that say nothing, of the kinds and layers that the job gate would fit. */
static wm_status_t list_gates(const wm_run_t *run, wm_plan_work_t *w, wm_error_t *err) {
  int64_t count;
  const int64_t *given = wm_config_ints(run->config, "gate.layers", &count);
  wm_gate_job_t *j = &w->gate;
  void *layers;
  wm_status_t status;
  w->in = (wm_inputs_t){.run = run};
  j->in = &w->in;
  j->choice = wm_gate_choice(run);
  j->options.fit.threshold = 0.5;
  j->thresholds = wm_config_floats(run->config, "gate.thresholds", &j->n_thresholds);
  WM_TRY(wm_gate_specs(j, run->config, &w->arch, err));
  WM_TRY(wm_alloc(&layers, w->arch.n_layers, sizeof(int64_t), "layers", err));
  j->layers = layers;
  WM_TRY(wm_layer_list("gate.layers", count > 0 ? given : w->layers,
                       count > 0 ? count : w->n_layers, w->arch.n_layers, j->layers, &j->n_layers,
                       err));
  j->options.fit.specs = j->specs;
  WM_TRY(wm_gates_create(w->arch.n_layers, w->arch.d_model,
                         wm_gate_fit_components(&j->options.fit, w->arch.d_model), &j->gates, err));
  WM_TRY(wm_gate_stand_in(j, err));
  WM_TRY(wm_gate_variants(j, err));
  WM_TRY(wm_variants_create(&j->single, err));
  for (int64_t i = 0; i < j->n_layers; i++)
    WM_TRY(wm_variants_add(&j->single, &j->layers[i], 1, w->arch.n_layers, err));
cleanup:
  return status;
}

/* As if a layer's linear gate, or else its first one, had been chosen. */
static void select_gates(wm_gates_t *gates) {
  for (int64_t g = gates->n - 1; g >= 0; g--)
    for (int64_t l = 0; l < gates->n_described; l++)
      if (gates->layers[l].layer == gates->gates[g].layer &&
          wm_gate_has_score(gates->gates[g].kind)) {
        gates->layers[l].selected = g;
        gates->layers[l].selected_threshold = gates->gates[g].threshold;
      }
}

static wm_status_t list_variants(const wm_run_t *run, wm_plan_work_t *w, wm_error_t *err) {
  const bool measured = w->gated && wm_config_bool(run->config, "sweep.gates");
  if (w->gated)
    select_gates(w->gate.gates);
  const wm_available_t have = {.layers = w->layers,
                               .n = w->n_layers,
                               .n_layers = w->arch.n_layers,
                               .where = "what is to be fitted (fit.layers)",
                               .gates = measured ? w->gate.gates : NULL,
                               .before_gates = !measured};
  return wm_sweep_variants(run->config, &have, &w->variants, err);
}

/* Are gates fitted: by the setting, or by a stage that is asked for? */
static wm_status_t has_gates(const wm_run_t *run, bool *gated, wm_error_t *err) {
  char names[WM_PLAN_STAGES][WM_STAGE_NAME];
  int n;
  wm_status_t status = wm_plan_stages(run, names, &n, err);
  *gated = wm_config_bool(run->config, "gate.enabled");
  for (int i = 0; i < n && status == WM_OK; i++)
    *gated |= strcmp(names[i], "gate") == 0;
  return status;
}

wm_status_t wm_plan_units(const wm_run_t *run, const wm_windows_t *windows, int64_t *n,
                          wm_error_t *err) {
  wm_unit_kind_t kind;
  void *units;
  wm_status_t status =
      wm_alloc(&units, windows->n_predicted, sizeof(int32_t), "bootstrap units", err);
  wm_unit_parse(wm_config_string(run->config, "bootstrap.unit"), &kind);
  if (status == WM_OK)
    status = wm_windows_units(windows, wm_unit_resolve(windows, kind), units, n, err);
  free(units);
  return status;
}

wm_status_t wm_plan_work_create(const wm_run_t *run, wm_plan_work_t *w, wm_error_t *err) {
  const wm_config_t *c = run->config;
  wm_status_t status;
  *w = (wm_plan_work_t){0};
  WM_TRY(read_arch(run, &w->arch, err));
  WM_TRY(cut_texts(run, w, err));
  if (!w->present[WM_ROLE_FIT] || !w->present[WM_ROLE_EVALUATION]) {
    status = wm_fail(err, WM_USAGE, "a plan needs the ranges fit and evaluation");
    goto cleanup;
  }
  for (int r = 0; r < WM_ROLES; r++)
    if (w->present[r])
      WM_TRY(wm_plan_units(run, &w->windows[r], &w->units[r], err));
  WM_TRY(list_layers(run, w, err));
  WM_TRY(has_gates(run, &w->gated, err));
  if (w->gated)
    WM_TRY(list_gates(run, w, err));
  WM_TRY(list_variants(run, w, err));
  w->work.arch = &w->arch;
  w->work.layers = w->layers;
  w->work.fit_layers = w->n_layers;
  w->work.fit = &w->blocks[WM_ROLE_FIT];
  w->work.heldout = w->present[WM_ROLE_VALIDATION] ? &w->blocks[WM_ROLE_VALIDATION] : NULL;
  w->work.evaluation = &w->blocks[WM_ROLE_EVALUATION];
  w->work.variants = &w->variants;
  w->work.gram_bytes = (int64_t)(wm_config_float(c, "fit.memory_gib") * 0x1p30);
  w->work.spectrum = wm_config_bool(c, "fit.spectrum");
  w->work.stack_rows = wm_config_int(c, "compute.stack_rows");
  w->work.tile_rows = wm_config_int(c, "compute.tile_rows");
  w->work.tile_vocab = wm_config_int(c, "compute.tile_vocab");
  w->work.max_group = wm_config_int(c, "sweep.group");
  w->work.rank_bytes = (double)wm_memory_bytes(run);
  w->work.checkpoint_seconds = 60 * wm_config_float(c, "checkpoint.minutes");
  wm_config_floats(c, "fit.lambdas", &w->work.lambdas);
  w->work.resamples =
      wm_config_int(c, "bootstrap.resamples") * (wm_config_bool(c, "bootstrap.unpaired") ? 2 : 1);
  w->work.units = w->units[WM_ROLE_EVALUATION];
cleanup:
  return status;
}

void wm_plan_work_destroy(wm_plan_work_t *w) {
  wm_variants_destroy(&w->variants);
  wm_variants_destroy(&w->gate.routed);
  wm_variants_destroy(&w->gate.single);
  wm_gates_free(w->gate.gates);
  free(w->gate.layers);
  free(w->layers);
  for (int r = 0; r < WM_ROLES; r++) {
    wm_blocks_destroy(&w->blocks[r]);
    wm_windows_destroy(&w->windows[r]);
  }
  wm_typical_destroy(&w->corpus);
  *w = (wm_plan_work_t){0};
}
