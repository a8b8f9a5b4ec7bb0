/* The stages of a plan on a machine: each is a list of the pieces (measure/plan.h) that its job
 * does. */
#include "plan_stages.h"
#include "stages.h"
#include "wanamaker/base/mem.h"

#include <math.h>
#include <string.h>

/* --- pieces -------------------------------------------------------------------------------------
 */

wm_status_t wm_plan_add_fit(wm_plan_at_t *at, const int64_t *layers, int64_t n, bool sequential,
                            wm_error_t *err) {
  wm_work_t work = at->w->work;
  wm_cost_t piece;
  work.layers = layers;
  work.fit_layers = n;
  work.sequential = sequential;
  wm_status_t status = wm_plan_fit(&work, at->m, at->l, &piece, err);
  if (status == WM_OK)
    wm_plan_add(at->total, &piece);
  return status;
}

wm_status_t wm_plan_add_losses(wm_plan_at_t *at, const wm_variants_t *variants, wm_role_t role,
                               bool statistics, wm_error_t *err) {
  wm_work_t work = at->w->work;
  wm_cost_t piece;
  work.variants = variants;
  work.evaluation = &at->w->blocks[role];
  work.units = at->w->units[role];
  if (!statistics)
    work.resamples = 0;
  wm_status_t status = wm_plan_sweep(&work, at->m, at->l, &piece, err);
  if (status != WM_OK)
    return status;
  wm_plan_add(at->total, &piece);
  if (piece.seconds > at->longest) {
    at->longest = piece.seconds;
    at->total->group = piece.group;
    at->total->busy = piece.busy;
  }
  return WM_OK;
}

/* Gates of these layers. */
static void add_gates(wm_plan_at_t *at, const int64_t *layers, int64_t n) {
  const wm_plan_work_t *w = at->w;
  const wm_gate_job_t *j = &w->gate;
  const wm_config_t *c = at->run->config;
  const wm_plan_gates_t gates = {.arch = &w->arch,
                                 .fit = &w->blocks[WM_ROLE_GATES],
                                 .heldout = &w->blocks[j->choice],
                                 .layers = layers,
                                 .n_layers = n,
                                 .specs = j->specs,
                                 .n_specs = j->options.fit.n_specs,
                                 .feature_bytes =
                                     (int64_t)(wm_config_float(c, "gate.memory_gib") * 0x1p30),
                                 .resamples = wm_config_int(c, "bootstrap.resamples"),
                                 .units = w->units[j->choice]};
  wm_cost_t piece;
  wm_plan_gates(&gates, at->m, at->l, &piece);
  wm_plan_add(at->total, &piece);
}

static void add_file(wm_plan_at_t *at, wm_plan_file_t file, double times) {
  wm_plan_add_file(&at->w->arch, at->l, file, times, at->total);
}

/* A set of gates from a file. */
static void read_gates(wm_plan_at_t *at) {
  add_file(at, at->w->gate.gates->k > 0 ? WM_PLAN_GATES_WITH_COMPONENTS : WM_PLAN_GATES_READ, 1);
}

/* --- sets of layers -----------------------------------------------------------------------------
 */

/* A set of sweep.joint or sweep.routed, ascending, and how it is changed. */
typedef struct {
  int64_t *layers, n;
  wm_change_t *changes; /* [n] */
} set_t;

static void free_set(set_t *s) {
  free(s->layers);
  free(s->changes);
}

static wm_change_t linear_change(int64_t layer) {
  return (wm_change_t){.layer = layer, .gate = -1};
}

/* How the stand-ins route a layer. */
static wm_change_t routed_change(const wm_gates_t *gates, int64_t layer) {
  const wm_gate_layer_t *l = wm_gates_layer(gates, layer);
  return l != NULL && l->selected >= 0 ? (wm_change_t){layer, l->selected, l->selected_threshold}
                                       : linear_change(layer);
}

/* Set number i of a setting; free_set also after a failure. */
static wm_status_t read_set(const wm_plan_work_t *w, const wm_run_t *run, const char *setting,
                            int64_t i, bool routed, set_t *out, wm_error_t *err) {
  const int64_t *offsets;
  int64_t count;
  const int64_t *sets = wm_config_lists(run->config, setting, &offsets, &count);
  void *memory;
  wm_status_t status;
  *out = (set_t){0};
  WM_TRY(wm_alloc(&memory, w->arch.n_layers, sizeof(int64_t), "a set of layers", err));
  out->layers = memory;
  WM_TRY(wm_alloc(&memory, w->arch.n_layers, sizeof(wm_change_t), "a set of layers", err));
  out->changes = memory;
  WM_TRY(wm_layer_list(setting, sets + offsets[i], offsets[i + 1] - offsets[i], w->arch.n_layers,
                       out->layers, &out->n, err));
  for (int64_t k = 0; k < out->n; k++)
    out->changes[k] =
        routed ? routed_change(w->gate.gates, out->layers[k]) : linear_change(out->layers[k]);
cleanup:
  return status;
}

/* Sets that are made, or measured, one layer after another: those of fit.sequential. */
static int64_t sequential_sets(const wm_run_t *run, const char *setting) {
  const int64_t *offsets;
  int64_t n;
  wm_config_lists(run->config, setting, &offsets, &n);
  return wm_config_bool(run->config, "fit.sequential") ? n : 0;
}

/* Evaluation of each set with its own surrogates (and gates) on the sweep's text. */
static wm_status_t add_comparisons(wm_plan_at_t *at, const char *setting, bool routed,
                                   wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int64_t i = 0; i < sequential_sets(at->run, setting) && status == WM_OK; i++) {
    set_t set;
    wm_variants_t v = {0};
    status = read_set(at->w, at->run, setting, i, routed, &set, err);
    if (status == WM_OK)
      status = wm_variants_create(&v, err);
    v.gates = at->w->gate.gates;
    if (status == WM_OK)
      status = wm_variants_add_changes(&v, set.changes, set.n, at->w->arch.n_layers, err);
    if (status == WM_OK &&
        (set.n > 1 || !routed)) { /* one layer is what it is on the whole model */
      add_file(at, routed ? WM_PLAN_ONE_SURROGATE : WM_PLAN_SURROGATES, routed ? (double)set.n : 1);
      if (routed)
        read_gates(at);
      status = wm_plan_add_losses(at, &v, WM_ROLE_EVALUATION, true, err);
    }
    wm_variants_destroy(&v);
    free_set(&set);
  }
  return status;
}

/* --- fit and sweep ------------------------------------------------------------------------------
 */

static wm_status_t fit_cost(wm_plan_at_t *at, wm_error_t *err) {
  wm_status_t status = wm_plan_add_fit(at, at->w->layers, at->w->n_layers, false, err);
  for (int64_t i = 0; i < sequential_sets(at->run, "sweep.joint") && status == WM_OK; i++) {
    set_t set;
    status = read_set(at->w, at->run, "sweep.joint", i, false, &set, err);
    if (status == WM_OK)
      status = wm_plan_add_fit(at, set.layers, set.n, true, err);
    free_set(&set);
  }
  return status;
}

static wm_status_t sweep_cost(wm_plan_at_t *at, wm_error_t *err) {
  wm_status_t status;
  add_file(at, WM_PLAN_SURROGATES, 1);
  if (at->w->variants.gates != NULL)
    read_gates(at);
  WM_TRY(wm_plan_add_losses(at, &at->w->variants, WM_ROLE_EVALUATION, true, err));
  WM_TRY(add_comparisons(at, "sweep.joint", false, err));
  if (at->w->variants.gates != NULL)
    WM_TRY(add_comparisons(at, "sweep.routed", true, err));
cleanup:
  return status;
}

/* --- gate ---------------------------------------------------------------------------------------
 */

/* The set's layers before number k, and the last one changed like this. */
static wm_status_t add_variant(const wm_plan_work_t *w, set_t *set, int64_t k, wm_change_t last,
                               wm_variants_t *variants, wm_error_t *err) {
  const wm_change_t own = set->changes[k];
  set->changes[k] = last;
  wm_status_t status =
      wm_variants_add_changes(variants, set->changes, k + 1, w->arch.n_layers, err);
  set->changes[k] = own;
  return status;
}

/* The model in which the layers before number k are routed, and this one by each of its gates at
 * each threshold, or (linear) everywhere. */
static wm_status_t step_variants(const wm_plan_work_t *w, set_t *set, int64_t k, bool linear,
                                 wm_variants_t *v, wm_error_t *err) {
  const wm_gates_t *gates = w->gate.gates;
  const int64_t layer = set->layers[k];
  void *memory = NULL;
  wm_status_t status;
  WM_TRY(wm_variants_create(v, err));
  v->gates = gates;
  WM_TRY(wm_variants_add_changes(v, set->changes, k, w->arch.n_layers, err));
  WM_TRY(wm_alloc(&memory, 1 + w->gate.n_thresholds, sizeof(double), "thresholds", err));
  double *thresholds = memory;
  if (linear)
    WM_TRY(add_variant(w, set, k, linear_change(layer), v, err));
  for (int64_t g = 0; g < gates->n && !linear; g++) {
    if (gates->gates[g].layer != layer || gates->gates[g].kind == WM_GATE_ORACLE)
      continue;
    const int64_t n = wm_gate_curve(&w->gate, &gates->gates[g], thresholds);
    for (int64_t i = 0; i < n; i++)
      WM_TRY(add_variant(w, set, k, (wm_change_t){layer, g, thresholds[i]}, v, err));
  }
cleanup:
  free(memory);
  return status;
}

/* Layer number k of a set: its surrogate, what it costs on both ranges, its gates, and what they
 * cost. */
static wm_status_t add_step(wm_plan_at_t *at, set_t *set, int64_t k, wm_error_t *err) {
  const wm_role_t choice = at->w->gate.choice;
  wm_variants_t linear = {0}, routed = {0};
  wm_status_t status;
  WM_TRY(step_variants(at->w, set, k, true, &linear, err));
  WM_TRY(step_variants(at->w, set, k, false, &routed, err));
  WM_TRY(wm_plan_add_fit(at, &set->layers[k], 1, false, err));
  add_file(at, WM_PLAN_ONE_SURROGATE, 1);
  WM_TRY(wm_plan_add_losses(at, &linear, WM_ROLE_GATES, true, err));
  WM_TRY(wm_plan_add_losses(at, &linear, choice, true, err));
  add_gates(at, &set->layers[k], 1);
  add_file(at, WM_PLAN_GATES_WRITTEN, 1);
  WM_TRY(wm_plan_add_losses(at, &routed, choice, true, err));
cleanup:
  wm_variants_destroy(&linear);
  wm_variants_destroy(&routed);
  return status;
}

/* Losses with every layer linear on both ranges, gates of all layers, losses with each of them;
 * then those that are fitted one after another. */
static wm_status_t gate_cost(wm_plan_at_t *at, wm_error_t *err) {
  const wm_plan_work_t *w = at->w;
  const wm_gate_job_t *j = &w->gate;
  wm_status_t status;
  if (!w->present[WM_ROLE_GATES] || !w->present[j->choice])
    return wm_fail(err, WM_USAGE, "gates need the ranges gates and %s", wm_role_name(j->choice));
  WM_TRY(wm_plan_add_losses(at, &j->single, WM_ROLE_GATES, true, err));
  WM_TRY(wm_plan_add_losses(at, &j->single, j->choice, true, err));
  add_gates(at, j->layers, j->n_layers);
  add_file(at, WM_PLAN_SURROGATES, 1);
  add_file(at, WM_PLAN_GATES_WRITTEN, 2); /* as fitted, and with the choice */
  WM_TRY(wm_plan_add_losses(at, &j->routed, j->choice, true, err));
  for (int64_t i = 0; i < sequential_sets(at->run, "sweep.routed") && status == WM_OK; i++) {
    set_t set;
    status = read_set(w, at->run, "sweep.routed", i, true, &set, err);
    for (int64_t k = 1; k < set.n && status == WM_OK; k++)
      status = add_step(at, &set, k, err);
    free_set(&set);
  }
cleanup:
  return status;
}

/* --- all ----------------------------------------------------------------------------------------
 */

wm_status_t wm_plan_stage(const wm_run_t *run, const wm_plan_work_t *w, const wm_machine_t *m,
                          const char *stage, wm_layout_t l, wm_cost_t *out, char note[WM_PLAN_NOTE],
                          wm_error_t *err) {
  static const struct {
    const char *name;
    wm_status_t (*cost)(wm_plan_at_t *, wm_error_t *);
  } stages[] = {{"fit", fit_cost},
                {"sweep", sweep_cost},
                {"gate", gate_cost},
                {"allocate", wm_plan_job_allocate},
                {"finetune", wm_plan_job_finetune},
                {"tokenize", wm_plan_job_tokenize},
                {"probe", wm_plan_job_probe}};
  wm_plan_at_t at = {.run = run, .w = w, .m = m, .l = l, .total = out};
  wm_plan_open(&w->work, m, l, out);
  for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++)
    if (strcmp(stages[i].name, stage) == 0) {
      const wm_status_t status = stages[i].cost(&at, err);
      memcpy(note, at.note, WM_PLAN_NOTE);
      return status;
    }
  snprintf(note, WM_PLAN_NOTE, "not planned: the start alone");
  return WM_OK;
}
