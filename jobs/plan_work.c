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

/* A corpus that is long enough for the ranges: long documents are cut, so that it takes more tokens
 * than are kept. */
static wm_status_t make_corpus(const wm_run_t *run, const wm_range_t ranges[WM_ROLES],
                               wm_typical_t *out, wm_error_t *err) {
  int64_t tokens = 1, rows = 1;
  for (int r = 0; r < WM_ROLES; r++) {
    if (ranges[r].kind == WM_RANGE_TOKENS && ranges[r].end > tokens)
      tokens = ranges[r].end;
    else if (ranges[r].kind != WM_RANGE_TOKENS && ranges[r].end > rows)
      rows = ranges[r].end;
  }
  const int64_t window = wm_config_int(run->config, "protocol.window");
  const double kept = window < 512 ? (double)window / 512 : 1;
  return wm_typical_create(wm_encoding_of(run), (int64_t)(1.05 * (double)tokens / kept) + 512, rows,
                           out, err);
}

static wm_status_t cut_texts(const wm_run_t *run, wm_plan_work_t *w, wm_error_t *err) {
  wm_range_t ranges[WM_ROLES];
  wm_protocol_t protocol;
  wm_status_t status;
  WM_TRY(wm_protocol_read(run, &protocol, err));
  WM_TRY(read_ranges(run, ranges, err));
  WM_TRY(make_corpus(run, ranges, &w->corpus, err));
  for (int r = 0; r < WM_ROLES; r++) {
    if (ranges[r].kind == WM_RANGE_ABSENT)
      continue;
    WM_TRY(wm_windows_create(&w->corpus.view, &protocol, &ranges[r], &w->windows[r], err));
    w->present[r] = true;
    WM_TRY(wm_blocks_create(&w->windows[r], wm_config_int(run->config, "compute.block_tokens"),
                            &w->blocks[r], err));
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

static wm_status_t list_variants(const wm_run_t *run, wm_plan_work_t *w, wm_error_t *err) {
  int64_t count;
  const int64_t *given = wm_config_ints(run->config, "fit.layers", &count);
  wm_available_t have = {.n_layers = w->arch.n_layers,
                         .where = "what is to be fitted (fit.layers)",
                         .before_gates = true};
  void *layers = NULL;
  wm_status_t status;
  WM_TRY(wm_alloc(&layers, w->arch.n_layers, sizeof(int64_t), "layers", err));
  WM_TRY(wm_layer_list("fit.layers", given, count, w->arch.n_layers, layers, &have.n, err));
  have.layers = layers;
  w->work.fit_layers = have.n;
  WM_TRY(wm_sweep_variants(run->config, &have, &w->variants, err));
cleanup:
  free(layers);
  return status;
}

enum { SCALARS = 3, REFERENCES = 2 }; /* norm, max_abs, kurtosis; random, oracle */

/* Gates of a layer that are fitted, all but the references. */
static int64_t judged_kinds(const wm_run_t *run) {
  int64_t bottlenecks, components;
  wm_config_ints(run->config, "gate.bottlenecks", &bottlenecks);
  wm_config_ints(run->config, "gate.components", &components);
  return 1 + bottlenecks + components + SCALARS;
}

/* Routed variants of a layer when all kinds of gates are measured: each at its own threshold, and
 * when one is chosen the linear one at gate.thresholds, in the sweep all at sweep.thresholds. */
static double gate_variants(const wm_run_t *run, bool choice) {
  const double judged = (double)judged_kinds(run);
  int64_t more;
  wm_config_floats(run->config, choice ? "gate.thresholds" : "sweep.thresholds", &more);
  if (!wm_config_bool(run->config, "gate.enabled"))
    return 0;
  return judged + REFERENCES + (double)more * (choice ? 1 : judged);
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
  WM_TRY(list_variants(run, w, err));
  w->gates = gate_variants(run, true);
  w->work.arch = &w->arch;
  w->work.fit = &w->blocks[WM_ROLE_FIT];
  w->work.heldout = w->present[WM_ROLE_VALIDATION] ? &w->blocks[WM_ROLE_VALIDATION] : NULL;
  w->work.evaluation = &w->blocks[WM_ROLE_EVALUATION];
  w->work.variants = &w->variants;
  w->work.repeats = gate_variants(run, false);
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
cleanup:
  return status;
}

void wm_plan_work_destroy(wm_plan_work_t *w) {
  wm_variants_destroy(&w->variants);
  for (int r = 0; r < WM_ROLES; r++) {
    wm_blocks_destroy(&w->blocks[r]);
    wm_windows_destroy(&w->windows[r]);
  }
  wm_typical_destroy(&w->corpus);
  *w = (wm_plan_work_t){0};
}

/* --- stages on a machine ------------------------------------------------------------------------
 */

/* Principal components that the gates of a layer share. */
static int64_t most_components(const wm_run_t *run) {
  int64_t n, most = 0;
  const int64_t *b = wm_config_ints(run->config, "gate.bottlenecks", &n);
  for (int64_t i = 0; i < n; i++)
    most = 2 * b[i] > most ? 2 * b[i] : most;
  const int64_t *c = wm_config_ints(run->config, "gate.components", &n);
  for (int64_t i = 0; i < n; i++)
    most = c[i] > most ? c[i] : most;
  return most;
}

/* The gates' features are those of a sweep of single layers over their range and the one on which
 * they are chosen; then as many routed variants on the latter, and Newton's steps of the fits. */
static wm_status_t gate_cost(const wm_run_t *run, const wm_plan_work_t *w, const wm_machine_t *m,
                             wm_layout_t l, wm_cost_t *out, wm_error_t *err) {
  enum { NEWTON_STEPS = 15 };
  const wm_role_t choice = wm_gate_choice(run);
  const double d = (double)w->arch.d_model,
               cores = (double)(l.nodes * l.ranks) * wm_plan_speed(m, l.threads);
  wm_work_t work = w->work;
  wm_cost_t labels, routed;
  const wm_plan_gates_t gates = {.layers = work.fit_layers,
                                 .kinds = judged_kinds(run),
                                 .width = w->arch.d_model,
                                 .components = most_components(run),
                                 .positions = w->windows[WM_ROLE_GATES].n_predicted +
                                              w->windows[choice].n_predicted,
                                 .resamples = wm_config_int(run->config, "bootstrap.resamples")};
  wm_status_t status;
  if (!w->present[WM_ROLE_GATES] || !w->present[choice])
    return wm_fail(err, WM_USAGE, "gates need the ranges gates and %s", wm_role_name(choice));
  work.repeats = 0;
  work.resamples = 0; /* losses alone */
  work.evaluation = &w->blocks[WM_ROLE_GATES];
  WM_TRY(wm_plan_sweep(&work, m, l, &labels, err));
  work.repeats = w->gates;
  work.evaluation = &w->blocks[choice];
  WM_TRY(wm_plan_sweep(&work, m, l, &routed, err));
  *out = routed;
  const double newton = NEWTON_STEPS * d * d * (double)w->windows[WM_ROLE_GATES].n_positions *
                        (double)w->work.fit_layers;
  out->flops += labels.flops;
  out->flops64 = newton;
  out->seconds += labels.seconds - m->start + newton / (cores * m->gram);
  out->messages += labels.messages;
  out->meetings += labels.meetings;
  out->message_bytes += labels.message_bytes;
  wm_plan_gates(&gates, l, out);
cleanup:
  return status;
}

/* A search over plans that are each measured on the validation range. */
static wm_status_t allocate_cost(const wm_run_t *run, const wm_plan_work_t *w,
                                 const wm_machine_t *m, wm_layout_t l, wm_cost_t *out,
                                 wm_error_t *err) {
  const double layers = (double)w->arch.n_layers;
  int64_t shortlist = wm_config_int(run->config, "allocate.shortlist");
  double plans = layers * (shortlist > 0 ? (double)shortlist : layers);
  const int64_t most = wm_config_int(run->config, "allocate.max_plans");
  if (most > 0 && plans > (double)most)
    plans = (double)most;
  wm_work_t work = w->work;
  work.repeats = plans / (double)w->variants.n - 1;
  if (work.repeats < 0)
    work.repeats = 0;
  if (w->present[WM_ROLE_VALIDATION])
    work.evaluation = &w->blocks[WM_ROLE_VALIDATION];
  return wm_plan_sweep(&work, m, l, out, err);
}

/* Three passes' operations for each token, and the gradients' sums. */
static void finetune_cost(const wm_run_t *run, const wm_plan_work_t *w, const wm_machine_t *m,
                          wm_layout_t l, wm_cost_t *out) {
  const wm_config_t *c = run->config;
  const double length = (double)wm_config_int(c, "finetune.length");
  const double tokens = length * (double)wm_config_int(c, "finetune.sequences");
  const double steps =
      (double)wm_config_int(c, "finetune.steps") * (wm_config_bool(c, "finetune.compare") ? 2 : 1);
  const double layer =
      wm_arch_flops_layer(&w->arch) + wm_arch_flops_attention(&w->arch, length / 2);
  const double forward = (double)w->arch.n_layers * layer + wm_arch_flops_head(&w->arch);
  const double weights = wm_plan_weights(&w->arch);
  const double ranks = (double)(l.nodes * l.ranks), nodes = (double)l.nodes;
  const double sequences = (double)wm_config_int(c, "finetune.sequences");
  const double useful = sequences < ranks ? sequences : ranks;
  *out = (wm_cost_t){.flops = steps * tokens * forward *
                              (wm_config_bool(c, "finetune.recompute") ? 4 : 3)};
  out->seconds = out->flops / (useful * wm_plan_speed(m, l.threads) * 0.8 * m->trunk);
  out->seconds += steps * (weights * 2 * (nodes - 1) / nodes / m->network + weights * 4 / 2e10);
  out->memory = 4 * weights + (double)l.ranks * weights;
  out->message_bytes = steps * 2 * (nodes - 1) * weights;
  out->meetings = steps;
  out->file_bytes = 3 * weights;
  out->busy = NAN;
}

wm_status_t wm_plan_stage(const wm_run_t *run, const wm_plan_work_t *w, const wm_machine_t *m,
                          const char *stage, wm_layout_t l, wm_cost_t *out, bool *rough,
                          wm_error_t *err) {
  wm_status_t status = WM_OK;
  *out = (wm_cost_t){.seconds = 300, .busy = NAN};
  *rough = false;
  if (strcmp(stage, "fit") == 0)
    return wm_plan_fit(&w->work, m, l, out, err);
  if (strcmp(stage, "sweep") == 0)
    return wm_plan_sweep(&w->work, m, l, out, err);
  *rough = true;
  if (strcmp(stage, "gate") == 0)
    status = gate_cost(run, w, m, l, out, err);
  else if (strcmp(stage, "allocate") == 0)
    status = allocate_cost(run, w, m, l, out, err);
  else if (strcmp(stage, "finetune") == 0)
    finetune_cost(run, w, m, l, out);
  else if (strcmp(stage, "probe") == 0) {
    /* A fit on each corpus, and passes over as much text again. */
    status = wm_plan_fit(&w->work, m, l, out, err);
    out->seconds *= 8;
  } else
    out->memory = 0x1p30; /* tokenize: text, in memory that does not grow; minutes at most */
  return status;
}
