/* allocate: which layers to linearise or route for a given cost (method.md, section 5). Plans are
 * measured jointly on the validation range; those that are chosen are reported on the evaluation
 * range. A search that was killed or stopped goes on: plans that are measured are kept in
 * allocation.plans.h5, and losses of those under way in allocation.parts. */
#include "allocation.h"
#include "losses.h"
#include "plan_log.h"
#include "stages.h"
#include "sweep_variants.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/measure/parts.h"
#include "wanamaker/measure/sweep.h"
#include "wanamaker/report/table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { LABEL_SIZE = 1024 };

typedef struct {
  const wm_inputs_t *in;
  const wm_text_t *validation;
  wm_surrogates_t *surrogates;
  wm_gates_t *gates; /* NULL: there are none */
  wm_options_t options;
  wm_sweep_options_t sweep;
  const double *budgets;
  int64_t n_budgets;
  wm_plan_log_t log; /* of plans that are measured */
  wm_allocation_t found;
  wm_losses_stage_t evaluation; /* of the chosen plans */
  wm_variants_t chosen;
  int64_t *variant_of; /* [n_budgets] variant of `chosen`; 0: the full model */
  char path[WM_PATH_SIZE], plans_path[WM_PATH_SIZE], parts[WM_PATH_SIZE];
} job_t;

/* --- measuring ----------------------------------------------------------------------------------
 */

/* A plan by its first changed layer, the order in which variants are evaluated. */
typedef struct {
  int64_t first, plan;
} place_t;

static int by_first(const void *a, const void *b) {
  const place_t *x = a, *y = b;
  if (x->first != y->first)
    return x->first < y->first ? -1 : 1;
  return (x->plan > y->plan) - (x->plan < y->plan);
}

static wm_status_t make_variants(const job_t *j, int64_t n, const int32_t *plans, place_t *places,
                                 wm_variants_t *out, wm_error_t *err) {
  const int64_t n_layers = j->options.n_layers;
  wm_status_t status;
  for (int64_t i = 0; i < n; i++)
    places[i] = (place_t){wm_options_first_layer(&j->options, plans + i * n_layers), i};
  qsort(places, (size_t)n, sizeof *places, by_first);
  WM_TRY(wm_variants_create(out, err));
  out->gates = j->gates;
  for (int64_t i = 0; i < n; i++)
    WM_TRY(wm_options_add(&j->options, plans + places[i].plan * n_layers, out, err));
cleanup:
  return status;
}

/* plans[n], none of which is in the log, into it. Collective. */
static wm_status_t measure_new(job_t *j, int64_t n, const int32_t *plans, wm_error_t *err) {
  const wm_run_t *run = j->in->run;
  wm_variants_t variants = {0};
  wm_sweep_t sweep = {0};
  void *memory = NULL;
  wm_status_t status = wm_alloc(&memory, n, sizeof(place_t), "plans", err);
  place_t *places = memory;
  if (status == WM_OK)
    status = make_variants(j, n, plans, places, &variants, err);
  WM_TRY(wm_agree(run->comm->world, status, err));
  j->sweep.parts_key = wm_variants_fingerprint(&variants, j->log.key);
  WM_TRY(wm_sweep_run(run->comm, j->in->model, j->surrogates, &variants, &j->validation->blocks,
                      wm_tokens_ids(j->validation->tokens), &j->sweep, run->log, &sweep, err));
  for (int64_t i = 0; i < n && status == WM_OK; i++)
    status =
        wm_plan_log_add(&j->log, plans + places[i].plan * j->options.n_layers,
                        sweep.effects[i + 1].delta, wm_sweep_flops(&sweep, i + 1).saved_pct, err);
  WM_TRY(wm_agree(run->comm->world, status, err));
  WM_TRY(wm_plan_log_keep(&j->log, false, err));
  wm_parts_remove(run->comm, j->parts);
  wm_log(run->log, WM_LOG_INFO, "allocate: %" PRId64 " plans are measured", j->log.n);
cleanup:
  wm_sweep_destroy(&sweep);
  wm_variants_destroy(&variants);
  free(memory);
  if (status == WM_STOPPED) {
    wm_error_t why = {0};
    if (wm_plan_log_keep(&j->log, true, &why) != WM_OK) {
      *err = why;
      status = why.status;
    }
  }
  return status;
}

/* wm_allocate's callback; collective. Plans are all different. */
static wm_status_t measure(void *context, int64_t n, const int32_t *plans, double *cost,
                           double *saved, wm_error_t *err) {
  job_t *j = context;
  const int64_t n_layers = j->options.n_layers;
  int64_t unknown = 0;
  void *memory;
  wm_status_t status = wm_alloc(&memory, n * n_layers, sizeof *plans, "plans", err);
  WM_TRY(wm_agree(j->in->run->comm->world, status, err));
  int32_t *list = memory;
  for (int64_t i = 0; i < n; i++)
    if (wm_plan_log_find(&j->log, plans + i * n_layers) < 0)
      memcpy(list + unknown++ * n_layers, plans + i * n_layers, (size_t)n_layers * sizeof *plans);
  if (unknown > 0)
    WM_TRY(measure_new(j, unknown, list, err));
  for (int64_t i = 0; i < n; i++) {
    const int64_t at = wm_plan_log_find(&j->log, plans + i * n_layers);
    cost[i] = j->log.cost[at];
    saved[i] = j->log.saved[at];
  }
cleanup:
  free(memory);
  return status;
}

/* Of all that a plan's cost depends on. */
static uint64_t inputs_key(const job_t *j) {
  uint64_t keys[4] = {wm_model_fingerprint(j->in->model), wm_surrogates_fingerprint(j->surrogates),
                      j->gates != NULL ? wm_gates_fingerprint(j->gates) : 0,
                      (uint64_t)wm_compute_of(j->in->run)};
  uint64_t h = wm_text_fingerprint(j->validation, wm_hash(keys, sizeof keys, 0));
  for (int64_t i = 0; i < j->options.n; i++) {
    const wm_change_t *o = &j->options.changes[i];
    const double threshold = o->gate >= 0 ? o->threshold : 0;
    h = wm_hash(&o->layer, sizeof o->layer, h);
    h = wm_hash(&o->gate, sizeof o->gate, h);
    h = wm_hash(&threshold, sizeof threshold, h);
  }
  return wm_hash(j->in->run->provenance.version, strlen(j->in->run->provenance.version), h);
}

/* The same to the last digit: a search is of one build, backend and cut. */
static uint64_t measurement_key(const job_t *j) {
  static const char *const digits[] = {"compute.block_tokens", "compute.tile_rows",
                                       "compute.tile_vocab", "compute.stack_rows", "sweep.group"};
  uint64_t h = inputs_key(j);
  for (size_t i = 0; i < sizeof digits / sizeof digits[0]; i++) {
    const int64_t value = wm_config_int(j->in->run->config, digits[i]);
    h = wm_hash(&value, sizeof value, h);
  }
  return wm_losses_parts_key(j->in->run, h);
}

static wm_status_t search(job_t *j, uint64_t key, wm_error_t *err) {
  const wm_run_t *run = j->in->run;
  const wm_allocate_problem_t problem = {
      .n_layers = j->options.n_layers,
      .n_options = j->options.count,
      .budgets = j->budgets,
      .n_budgets = j->n_budgets,
      .shortlist = wm_config_int(run->config, "allocate.shortlist"),
      .max_measurements = wm_config_int(run->config, "allocate.max_plans")};
  wm_h5_t *file = NULL;
  wm_status_t status;
  WM_TRY(wm_plan_log_open(j->in, j->plans_path, measurement_key(j),
                          60 * wm_config_float(run->config, "checkpoint.minutes"),
                          j->options.n_layers, &j->log, err));
  WM_TRY(wm_h5_create(run->comm->world, j->path, &file, err));
  WM_TRY(wm_allocate(&problem, measure, j, &j->found, err));
  WM_TRY(
      wm_allocation_write(&j->found, &j->options, j->budgets, j->n_budgets, run->comm, file, err));
  WM_TRY(wm_agree(run->comm->world, wm_model_unchanged(j->in->model, err), err));
  WM_TRY(wm_stage_describe(j->in, file, "allocate", key, err));
  wm_h5_t *whole = file;
  file = NULL; /* publishing takes it */
  WM_TRY(wm_h5_publish(whole, err));
  wm_plan_log_remove(&j->log);
  wm_log(run->log, WM_LOG_INFO, "allocate: wrote %s", j->path);
cleanup:
  wm_plan_log_destroy(&j->log);
  wm_h5_close(file);
  return status;
}

/* --- the chosen plans on the evaluation range ---------------------------------------------------
 */

static const int32_t *plan_of(const job_t *j, int64_t plan) {
  return j->found.plans + plan * j->found.n_layers;
}

/* Variants of the chosen plans, each once, in the order of evaluation. */
static wm_status_t choose_variants(job_t *j, wm_error_t *err) {
  void *memory = NULL, *plans = NULL;
  const int64_t n_layers = j->found.n_layers;
  int64_t n = 0;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, j->n_budgets, sizeof(int64_t), "plans", err));
  j->variant_of = memory;
  WM_TRY(wm_alloc(&plans, j->n_budgets * n_layers, sizeof(int32_t), "plans", err));
  WM_TRY(wm_alloc(&memory, j->n_budgets, sizeof(place_t), "plans", err));
  place_t *places = memory;
  int32_t *copy = plans;
  for (int64_t b = 0; b < j->n_budgets; b++) {
    bool again = j->found.chosen[b] == 0;
    for (int64_t k = 0; k < b; k++)
      again |= j->found.chosen[k] == j->found.chosen[b];
    if (!again)
      memcpy(copy + n++ * n_layers, plan_of(j, j->found.chosen[b]),
             (size_t)n_layers * sizeof *copy);
  }
  status = make_variants(j, n, copy, places, &j->chosen, err);
  for (int64_t b = 0; b < j->n_budgets && status == WM_OK; b++)
    for (int64_t i = 0; i < n; i++)
      if (memcmp(copy + places[i].plan * n_layers, plan_of(j, j->found.chosen[b]),
                 (size_t)n_layers * sizeof *copy) == 0)
        j->variant_of[b] = i + 1;
  free(places);
cleanup:
  free(plans);
  return status;
}

/* --- tables -------------------------------------------------------------------------------------
 */

static int by_saving(const void *a, const void *b) {
  const double *x = *(const double *const *)a, *y = *(const double *const *)b;
  return (*x > *y) - (*x < *y);
}

/* The Pareto front, from the cheapest plan on. */
static wm_status_t print_front(const job_t *j, wm_error_t *err) {
  static const wm_column_t columns[] = {{"saved", "% FLOPs", WM_ALIGN_RIGHT, 2},
                                        {"delta", "joint, %", WM_ALIGN_RIGHT, 3},
                                        {"delta", "sum of single, %", WM_ALIGN_RIGHT, 3},
                                        {"linear | routed", NULL, WM_ALIGN_LEFT, 0}};
  const wm_allocation_t *a = &j->found;
  wm_table_t *t = NULL;
  void *memory;
  int64_t n = 0;
  wm_status_t status = wm_alloc(&memory, a->n, sizeof(double *), "front", err);
  if (status != WM_OK)
    return status;
  const double **front = memory;
  for (int64_t i = 0; i < a->n; i++)
    if (a->front[i])
      front[n++] = &a->saved[i];
  qsort(front, (size_t)n, sizeof *front, by_saving);
  WM_TRY(wm_table_create(columns, 4, &t, err));
  for (int64_t i = 0; i < n; i++) {
    const int64_t plan = front[i] - a->saved;
    char label[LABEL_SIZE];
    wm_options_label(&j->options, j->gates, plan_of(j, plan), label, sizeof label);
    wm_table_float(t, a->saved[plan]);
    wm_table_float(t, a->cost[plan]);
    wm_table_float(t, wm_allocation_sum_of_singles(a, plan));
    wm_table_text(t, label);
  }
  fprintf(j->in->run->out,
          "%" PRId64 " plans measured on %s%s; Pareto front of operations saved (head included) "
          "against cost:\n",
          a->n - 1, j->validation->windows.label,
          a->complete ? "" : ", where allocate.max_plans ended the search");
  status = wm_table_print(t, WM_TABLE_TEXT, j->in->run->out, err);
cleanup:
  wm_table_free(t);
  free(memory);
  return status;
}

static wm_status_t print_chosen(const job_t *j, const wm_sweep_t *s, wm_error_t *err) {
  char interval[48];
  snprintf(interval, sizeof interval, "%.4g %% interval",
           100 * j->evaluation.options.bootstrap.confidence);
  const wm_column_t columns[] = {{"budget", "%", WM_ALIGN_RIGHT, -4},
                                 {"saved", "% FLOPs", WM_ALIGN_RIGHT, 2},
                                 {"saved", "without head, %", WM_ALIGN_RIGHT, 2},
                                 {"delta", "validation, %", WM_ALIGN_RIGHT, 3},
                                 {"delta", "evaluation, %", WM_ALIGN_RIGHT, 3},
                                 {"evaluation", interval, WM_ALIGN_RIGHT, 0},
                                 {"", NULL, WM_ALIGN_LEFT, 0},
                                 {"linear | routed", NULL, WM_ALIGN_LEFT, 0}};
  wm_table_t *t;
  wm_status_t status = wm_table_create(columns, sizeof columns / sizeof columns[0], &t, err);
  if (status != WM_OK)
    return status;
  for (int64_t b = 0; b < j->n_budgets; b++) {
    const int64_t plan = j->found.chosen[b], v = j->variant_of[b];
    const wm_effect_t *e = &s->effects[v];
    char label[LABEL_SIZE], bounds[96];
    wm_options_label(&j->options, j->gates, plan_of(j, plan), label, sizeof label);
    wm_interval_text(e->low, e->high, bounds, sizeof bounds);
    wm_table_float(t, j->budgets[b]);
    wm_table_float(t, v > 0 ? wm_sweep_flops(s, v).saved_pct : 0);
    wm_table_float(t, v > 0 ? wm_sweep_flops(s, v).saved_body_pct : 0);
    wm_table_float(t, j->found.cost[plan]);
    wm_table_float(t, e->delta);
    wm_table_text(t, bounds);
    wm_table_text(t, v > 0 ? wm_effect_stars(e) : "");
    wm_table_text(t, label);
  }
  fprintf(j->in->run->out, "\nchosen there, reported on %s:\n", j->evaluation.text->windows.label);
  status = wm_table_print(t, WM_TABLE_TEXT, j->in->run->out, err);
  wm_table_free(t);
  return status;
}

/* --- stage --------------------------------------------------------------------------------------
 */

static uint64_t stage_key(const job_t *j) {
  const wm_config_t *c = j->in->run->config;
  const int64_t limits[2] = {wm_config_int(c, "allocate.shortlist"),
                             wm_config_int(c, "allocate.max_plans")};
  uint64_t h = inputs_key(j);
  h = wm_hash(j->budgets, (size_t)j->n_budgets * sizeof *j->budgets, h);
  return wm_hash(limits, sizeof limits, h);
}

static wm_status_t open_job(job_t *j, wm_error_t *err) {
  const wm_run_t *run = j->in->run;
  const wm_arch_t *arch = wm_model_arch(j->in->model);
  char surrogates[WM_PATH_SIZE];
  wm_status_t status;
  WM_TRY(wm_output_path(run, "allocation.h5", j->path, err));
  WM_TRY(wm_output_path(run, "allocation.plans.h5", j->plans_path, err));
  WM_TRY(wm_output_path(run, "allocation.parts", j->parts, err));
  WM_TRY(wm_output_path(run, "surrogates.h5", surrogates, err));
  WM_TRY(wm_surrogates_open(run->comm, surrogates, arch->n_layers, arch->d_model,
                            wm_config_int(run->config, "compute.tile_rows"), wm_compute_of(run),
                            &j->surrogates, err));
  WM_TRY(wm_stage_same_fit(j->in, surrogates, err));
  WM_TRY(wm_sweep_gates(j->in, j->surrogates, &j->gates, err));
  int64_t have;
  const int64_t *layers = wm_surrogates_layers(j->surrogates, &have);
  status = wm_options_create(run, layers, have, j->gates, arch->n_layers, &j->options, err);
  WM_TRY(wm_agree(run->comm->world, status, err));
  j->budgets = wm_config_floats(run->config, "allocate.budgets", &j->n_budgets);
  j->sweep = wm_losses_options(run);
  j->sweep.divergence = false;
  j->sweep.parts = j->parts;
  j->sweep.bootstrap.resamples = 1; /* of the search, points alone are wanted */
  j->sweep.bootstrap.unpaired = false;
cleanup:
  return status;
}

/* Collective. Losses of the chosen plans on the evaluation range, and the tables. */
static wm_status_t report(job_t *j, wm_error_t *err) {
  const wm_run_t *run = j->in->run;
  wm_sweep_t sweep = {0};
  wm_status_t status;
  WM_TRY(wm_agree(run->comm->world, choose_variants(j, err), err));
  j->evaluation = (wm_losses_stage_t){.in = j->in,
                                      .text = &j->in->text[WM_ROLE_EVALUATION],
                                      .surrogates = j->surrogates,
                                      .variants = &j->chosen,
                                      .name = "losses.allocation"};
  WM_TRY(wm_losses_prepare(&j->evaluation, err));
  WM_TRY(wm_losses_obtain(&j->evaluation, &sweep, err));
  if (run->comm->rank == 0) {
    status = print_front(j, err);
    if (status == WM_OK)
      status = print_chosen(j, &sweep, err);
    status = wm_output_shown(run, status);
  }
  WM_TRY(wm_agree(run->comm->world, status, err));
cleanup:
  wm_sweep_destroy(&sweep);
  return status;
}

static void explain(const job_t *j, bool complete) {
  const wm_run_t *run = j->in->run;
  if (run->comm->rank == 0)
    fprintf(run->out,
            "allocate: %s\n  %" PRId64 " options, measured alone on %s; then steps of at most "
            "%" PRId64 " plans for each of %" PRId64 " budgets\n",
            complete ? "complete, would be skipped" : j->path, j->options.n,
            j->validation->windows.label, wm_config_int(run->config, "allocate.shortlist"),
            j->n_budgets);
}

static wm_status_t run_stage(job_t *j, wm_error_t *err) {
  const wm_run_t *run = j->in->run;
  wm_status_t status;
  WM_TRY(open_job(j, err));
  const uint64_t key = stage_key(j);
  const bool complete = wm_stage_is_complete(run, j->path, key);
  if (run->dry_run) {
    explain(j, complete);
    goto cleanup;
  }
  if (complete) {
    wm_log(run->log, WM_LOG_INFO, "allocate: %s is complete for these inputs; skipped", j->path);
    WM_TRY(
        wm_allocation_read(run->comm, j->path, j->options.n_layers, j->n_budgets, &j->found, err));
  } else {
    WM_TRY(search(j, key, err));
  }
  WM_TRY(report(j, err));
cleanup:
  return status;
}

wm_status_t wm_job_allocate(const wm_run_t *run, wm_error_t *err) {
  const unsigned validation = 1u << WM_ROLE_VALIDATION, evaluation = 1u << WM_ROLE_EVALUATION;
  const unsigned all = validation | evaluation | 1u << WM_ROLE_FIT | 1u << WM_ROLE_GATES;
  wm_inputs_t inputs;
  wm_status_t status = wm_output_ready(run, err);
  if (status == WM_OK)
    status = wm_tokens_current(run, err);
  if (status != WM_OK)
    return status;
  status = wm_inputs_open(run, all, validation | evaluation, &inputs, err);
  job_t j = {.in = &inputs, .validation = &inputs.text[WM_ROLE_VALIDATION]};
  if (status == WM_OK)
    status = run_stage(&j, err);
  wm_allocation_destroy(&j.found);
  wm_options_destroy(&j.options);
  wm_variants_destroy(&j.chosen);
  free(j.variant_of);
  wm_gates_free(j.gates);
  wm_surrogates_close(j.surrogates);
  wm_inputs_close(&inputs);
  return status;
}
