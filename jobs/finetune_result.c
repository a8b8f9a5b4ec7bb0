/* finetune: statistics, finetune.h5, and the comparison of a plan with its control. */
#include "finetune.h"
#include "stages.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/measure/paired.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

wm_bootstrap_t wm_finetune_bootstrap(const wm_run_t *run) {
  const wm_config_t *c = run->config;
  wm_bootstrap_t b = {.resamples = wm_config_int(c, "bootstrap.resamples"),
                      .seed = (uint64_t)wm_config_int(c, "bootstrap.seed"),
                      .confidence = wm_config_float(c, "bootstrap.confidence"),
                      .unpaired = wm_config_bool(c, "bootstrap.unpaired")};
  wm_interval_parse(wm_config_string(c, "bootstrap.interval"), &b.interval);
  return b;
}

void wm_finetune_statistics(const wm_run_t *run, char *text) {
  const wm_bootstrap_t b = wm_finetune_bootstrap(run);
  const char *unit = wm_config_string(run->config, "bootstrap.unit");
  uint64_t h = wm_hash(unit, strlen(unit), (uint64_t)b.interval);
  h = wm_hash(&b.resamples, sizeof b.resamples, h);
  h = wm_hash(&b.seed, sizeof b.seed, h);
  h = wm_hash(&b.confidence, sizeof b.confidence, h);
  wm_hash_text(h, text);
}

/* --- tables -------------------------------------------------------------------------------------
 */

static const wm_record_column_t effect_columns[] = {
    {"step", "step", NULL, 0},  {"hard", "hard", "gates", 0},   {"mean_nll", "loss", "nats", 4},
    {"ppl", "PPL", NULL, 3},    {"delta_pct", "delta", "%", 3}, {"low", "from", "%", 3},
    {"high", "to", "%", 3},     {"p_two_sided", "p", NULL, 4},  {"p_holm", "p", "Holm", 4},
    {"units", "units", NULL, 0}};

/* Tables that stand without their losses have the last one, too. */
enum { UNIT_COLUMNS = sizeof effect_columns / sizeof effect_columns[0] };
enum { EFFECT_COLUMNS = UNIT_COLUMNS - 1 };

static wm_status_t add_effect(wm_records_t *r, const char *label, double step, double hard,
                              const wm_effect_t *e, wm_error_t *err) {
  const double row[UNIT_COLUMNS] = {
      step,   hard,    e->mean_nll,    e->perplexity, e->delta,
      e->low, e->high, e->p_two_sided, e->p_holm,     (double)e->units};
  return wm_records_add(r, label, row, err);
}

/* Collective. Rank 0 writes a whole array. */
static wm_status_t write_array(const wm_run_t *run, wm_h5_t *file, const char *path,
                               hid_t file_type, hid_t type, int n_dims, const int64_t *dims,
                               const void *data, const char *description, wm_error_t *err) {
  const int64_t zero[2] = {0, 0}, none[2] = {0, 0};
  wm_status_t status = wm_h5_dataset(file, path, file_type, n_dims, dims, description, err);
  if (status == WM_OK)
    status = wm_h5_write(file, path, type, zero, run->comm->rank == 0 ? dims : none, data, err);
  return status;
}

/* Collective. Losses and statistics of one range. */
static wm_status_t write_evaluation(const wm_finetune_t *f, const wm_evaluation_t *e, wm_h5_t *file,
                                    wm_error_t *err) {
  const wm_run_t *run = f->run;
  const int64_t n = e->text->windows.n_predicted, dims[2] = {f->n_moments, n};
  const wm_bootstrap_t bootstrap = wm_finetune_bootstrap(run);
  char table[96], description[256], path[96];
  wm_record_layout_t layout = {.path = table,
                               .description = description,
                               .label = "evaluation",
                               .n_columns = EFFECT_COLUMNS};
  wm_records_t records;
  void *memory = NULL;
  wm_status_t status = wm_alloc(&memory, f->n_moments, sizeof(wm_effect_t), "statistics", err);
  memcpy(layout.columns, effect_columns, EFFECT_COLUMNS * sizeof *effect_columns);
  snprintf(table, sizeof table, "/%s/table", e->name);
  snprintf(
      description, sizeof description,
      "%s: deltas against the full model at the start, paired bootstrap over %s units, %.4g %% %s",
      e->text->windows.label, wm_unit_name(e->unit), 100 * bootstrap.confidence,
      wm_interval_name(bootstrap.interval));
  wm_records_init(&records, &layout);
  WM_TRY(wm_agree(run->comm->world, status, err));
  wm_effect_t *effects = memory;
  WM_TRY(wm_paired_effects(run->comm, e->nll, f->n_moments, n, e->units, e->n_units, &bootstrap,
                           effects, err));
  for (int64_t i = 0; i < f->n_moments && status == WM_OK; i++)
    status = add_effect(&records, f->moments[i].label, (double)f->moments[i].step,
                        (double)f->moments[i].hard, &effects[i], err);
  WM_TRY(wm_agree(run->comm->world, status, err));
  WM_TRY(wm_show_and_write(run, &records, file, err));
  snprintf(path, sizeof path, "/%s/nll", e->name);
  WM_TRY(write_array(run, file, path, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, dims, e->nll,
                     "losses of every evaluation, nats; [evaluations, predicted tokens]", err));
  snprintf(path, sizeof path, "/%s/unit", e->name);
  WM_TRY(write_array(run, file, path, H5T_STD_I32LE, H5T_NATIVE_INT32, 1, &n, e->units,
                     "bootstrap unit of every predicted token", err));
cleanup:
  wm_records_destroy(&records);
  free(memory);
  return status;
}

/* --- steps --------------------------------------------------------------------------------------
 */

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

wm_step_times_t wm_finetune_times(const wm_finetune_t *f) {
  const wm_trajectory_t *t = &f->trajectory;
  wm_step_times_t times = {0};
  double *sorted = malloc((size_t)(t->n > 0 ? t->n : 1) * sizeof *sorted);
  for (int64_t i = 0; i < t->n; i++) {
    const double *row = t->values + i * WM_STEP_VALUES;
    times.seconds += row[WM_STEP_SECONDS];
    times.exposed += row[WM_STEP_EXPOSED];
    if (sorted != NULL)
      sorted[i] = row[WM_STEP_SECONDS];
  }
  if (sorted != NULL && t->n > 0) {
    qsort(sorted, (size_t)t->n, sizeof *sorted, ascending);
    times.median = (sorted[(t->n - 1) / 2] + sorted[t->n / 2]) / 2;
  }
  if (times.seconds > 0)
    times.rate = (double)(t->n * f->order.sequences * f->order.length) / times.seconds;
  free(sorted);
  return times;
}

/* Collective. */
static wm_status_t write_steps(const wm_finetune_t *f, wm_h5_t *file, wm_error_t *err) {
  static const struct {
    const char *path, *description;
    int column;
  } datasets[] = {{"/steps/loss", "mean loss of the step's predicted tokens, nats", WM_STEP_LOSS},
                  {"/steps/norm", "norm of the gradient before clipping", WM_STEP_NORM},
                  {"/steps/rate", "learning rate", WM_STEP_RATE},
                  {"/steps/gate", "mean of g", WM_STEP_GATE},
                  {"/timing/seconds", "wall-clock seconds of the step", WM_STEP_SECONDS},
                  {"/timing/exposed",
                   "of them waiting for messages with nothing computed, mean of the ranks",
                   WM_STEP_EXPOSED}};
  const wm_trajectory_t *t = &f->trajectory;
  void *memory = NULL;
  wm_status_t status = wm_alloc(&memory, t->n, sizeof(double), "a column of steps", err);
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  double *column = memory;
  for (int k = 0; k < (int)(sizeof datasets / sizeof datasets[0]); k++) {
    for (int64_t i = 0; i < t->n; i++)
      column[i] = t->values[i * WM_STEP_VALUES + datasets[k].column];
    WM_TRY(write_array(f->run, file, datasets[k].path, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, &t->n,
                       column, datasets[k].description, err));
  }
  WM_TRY(write_array(f->run, file, "/steps/chain", H5T_STD_U64LE, H5T_NATIVE_UINT64, 1, &t->n,
                     t->chains, "fingerprint of all tokens seen until then, in their order", err));
cleanup:
  free(memory);
  return status;
}

/* Collective. */
static wm_status_t write_phases(const wm_finetune_t *f, wm_h5_t *file, wm_error_t *err) {
  static const wm_record_layout_t layout = {"/phases",
                                            "phases of the plan",
                                            "phase",
                                            {{"first_step", "first step", NULL, 0},
                                             {"steps", "steps", NULL, 0},
                                             {"first_data", "from data", "step", 0},
                                             {"linear", "linear,", "gated", 0},
                                             {"rate", "rate", NULL, 7},
                                             {"weight_decay", "decay", NULL, 3},
                                             {"r2", "R^2", "fit", 4},
                                             {"r2_heldout", "R^2", "held out", 4}},
                                            8};
  wm_records_t records;
  wm_status_t status = WM_OK;
  wm_records_init(&records, &layout);
  for (int64_t i = 0; i < f->plan.n && status == WM_OK; i++) {
    const wm_phase_t *p = &f->plan.phases[i];
    const double row[] = {(double)p->first_step, (double)p->steps,      (double)p->first_data,
                          f->notes[i].linear,    p->schedule.rate,      p->adamw.weight_decay,
                          f->notes[i].r2,        f->notes[i].r2_heldout};
    status = wm_records_add(&records, p->name, row, err);
  }
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  WM_TRY(wm_show_and_write(f->run, &records, file, err));
cleanup:
  wm_records_destroy(&records);
  return status;
}

/* Collective. */
static wm_status_t describe(const wm_finetune_t *f, wm_h5_t *file, wm_error_t *err) {
  char chain[WM_HASH_TEXT];
  double seconds;
  int64_t read;
  wm_status_t status;
  wm_hash_text(f->chain, chain);
  wm_data_rate(f->data, &seconds, &read);
  wm_sum_i64(f->run->comm->world, &read, 1);
  wm_broadcast(f->run->comm->world, 0, &seconds, sizeof seconds);
  WM_TRY(wm_stage_describe(&f->inputs, file, "finetune", f->key, err));
  WM_TRY(wm_h5_set_string(file, "/", "plan", wm_plan_name(f->settings.kind), err));
  WM_TRY(wm_h5_set_string(file, "/", "chain", chain, err));
  wm_finetune_statistics(f->run, chain);
  WM_TRY(wm_h5_set_string(file, "/", "bootstrap_key", chain, err));
  WM_TRY(wm_h5_set_string(file, "/", "bootstrap_interval",
                          wm_interval_name(wm_finetune_bootstrap(f->run).interval), err));
  WM_TRY(wm_h5_set_string(file, "/", "train_corpus", wm_data_info(f->data)->corpus, err));
  WM_TRY(wm_h5_set_int(file, "/", "train_begin", f->order.begin, err));
  WM_TRY(wm_h5_set_int(file, "/", "train_end", f->order.end, err));
  WM_TRY(wm_h5_set_int(file, "/", "length", f->order.length, err));
  WM_TRY(wm_h5_set_int(file, "/", "sequences", f->order.sequences, err));
  WM_TRY(wm_h5_set_int(file, "/", "steps", f->trajectory.n, err));
  WM_TRY(wm_h5_set_int(file, "/", "tokens_seen",
                       f->trajectory.n * f->order.sequences * f->order.length, err));
  WM_TRY(wm_h5_set_float(file, "/", "read_tokens_per_second",
                         seconds > 0 ? (double)read / seconds : 0, err));
  wm_step_times_t times = wm_finetune_times(f);
  wm_broadcast(f->run->comm->world, 0, &times, sizeof times);
  WM_TRY(wm_h5_set_float(file, "/", "tokens_per_second", times.rate, err));
  WM_TRY(wm_h5_set_float(file, "/", "step_seconds", times.median, err));
  WM_TRY(wm_h5_set_float(file, "/", "exposed_percent",
                         times.seconds > 0 ? 100 * times.exposed / times.seconds : 0, err));
cleanup:
  return status;
}

wm_status_t wm_finetune_publish(wm_finetune_t *f, wm_error_t *err) {
  char path[WM_PATH_SIZE];
  wm_h5_t *file = NULL;
  wm_status_t status;
  WM_TRY(wm_finetune_path(f, "h5", path, err));
  WM_TRY(wm_h5_create(f->run->comm->world, path, &file, err));
  WM_TRY(write_steps(f, file, err));
  WM_TRY(write_phases(f, file, err));
  for (int64_t i = 0; i < f->n_evaluations; i++)
    WM_TRY(write_evaluation(f, &f->evaluations[i], file, err));
  WM_TRY(wm_finetune_gates(f, file, err));
  WM_TRY(wm_finetune_effect(f, file, err));
  WM_TRY(describe(f, file, err));
  wm_h5_t *whole = file;
  file = NULL; /* publishing takes it */
  WM_TRY(wm_h5_publish(whole, err));
  wm_log(f->run->log, WM_LOG_INFO, "%s: wrote %s", f->stem, path);
cleanup:
  wm_h5_close(file);
  return status;
}

/* --- comparison ---------------------------------------------------------------------------------
 */

/* One finished run, as its file tells. */
typedef struct {
  wm_h5_t *file;
  int64_t steps, tokens;
  char *chain;
} finished_t;

static wm_status_t open_finished(const wm_run_t *run, const char *name, finished_t *out,
                                 wm_error_t *err) {
  char path[WM_PATH_SIZE];
  wm_status_t status;
  WM_TRY(wm_output_path(run, name, path, err));
  WM_TRY(wm_h5_open(run->comm->world, path, &out->file, err));
  WM_TRY(wm_h5_get_int(out->file, "/", "steps", &out->steps, err));
  WM_TRY(wm_h5_get_int(out->file, "/", "tokens_seen", &out->tokens, err));
  WM_TRY(wm_h5_get_string(out->file, "/", "chain", &out->chain, err));
cleanup:
  return status;
}

static void close_finished(finished_t *f) {
  wm_h5_close(f->file);
  free(f->chain);
}

/* Collective. The last evaluation's losses of a range (of a gated model the blended ones), [n]. */
static wm_status_t read_last(const finished_t *f, const char *name, int64_t back, int64_t n,
                             float *out, wm_error_t *err) {
  char path[96];
  int64_t dims[2];
  snprintf(path, sizeof path, "/%s/nll", name);
  wm_status_t status = wm_h5_dims(f->file, path, 2, dims, err);
  if (status == WM_OK && (dims[1] != n || dims[0] <= back))
    status =
        wm_fail(err, WM_INPUT, "%s: %s is of another evaluation range", wm_h5_path(f->file), path);
  const int64_t offset[2] = {dims[0] - 1 - back, 0}, count[2] = {1, n};
  return status == WM_OK ? wm_h5_read(f->file, path, H5T_NATIVE_FLOAT, offset, count, out, err)
                         : status;
}

/* Collective. The plan against the control (row 0) on one range. */
static wm_status_t compare_range(const wm_run_t *run, const finished_t *plan,
                                 const finished_t *control, const char *name, bool gated,
                                 wm_records_t *records, wm_error_t *err) {
  const wm_bootstrap_t bootstrap = wm_finetune_bootstrap(run);
  const int64_t rows = gated ? 3 : 2, zero = 0;
  char path[96];
  int64_t n, n_units = 0;
  void *losses = NULL, *units = NULL;
  wm_effect_t effects[3];
  wm_status_t status;
  snprintf(path, sizeof path, "/%s/unit", name);
  WM_TRY(wm_h5_dims(plan->file, path, 1, &n, err));
  status = wm_alloc(&losses, rows * n, sizeof(float), "losses", err);
  if (status == WM_OK)
    status = wm_alloc(&units, n, sizeof(int32_t), "units", err);
  WM_TRY(wm_agree(run->comm->world, status, err));
  WM_TRY(wm_h5_read(plan->file, path, H5T_NATIVE_INT32, &zero, &n, units, err));
  for (int64_t i = 0; i < n; i++)
    n_units = ((int32_t *)units)[i] >= n_units ? ((int32_t *)units)[i] + 1 : n_units;
  float *nll = losses;
  WM_TRY(read_last(control, name, 0, n, nll, err));
  WM_TRY(read_last(plan, name, gated ? 1 : 0, n, nll + n, err));
  if (gated)
    WM_TRY(read_last(plan, name, 0, n, nll + 2 * n, err));
  WM_TRY(wm_paired_effects(run->comm, nll, rows, n, units, n_units, &bootstrap, effects, err));
  for (int i = 0; i < rows && status == WM_OK; i++) {
    static const char *const who[] = {"control", "plan", "plan, gates that decide"};
    char label[WM_RECORD_LABEL];
    snprintf(label, sizeof label, "%s: %.40s", who[i], name);
    status = add_effect(records, label, (double)plan->steps, i == 2, &effects[i], err);
    if (i > 0)
      wm_records_note(records, "%s: the %s %s.", name, who[i],
                      !wm_effect_significant(&effects[i], 1 - bootstrap.confidence)
                          ? "and its control cannot be told apart"
                      : effects[i].delta < 0 ? "beats its control"
                                             : "is worse than its control");
  }
  WM_TRY(wm_agree(run->comm->world, status, err));
cleanup:
  free(losses);
  free(units);
  return status;
}

static bool is_range(const char *name) {
  return strncmp(name, "evaluation_", strlen("evaluation_")) == 0;
}

/* Collective. All ranges; ranked only if both have seen the same tokens in the same order. */
static wm_status_t compare(const wm_run_t *run, const finished_t *plan, const finished_t *control,
                           wm_h5_t *file, wm_error_t *err) {
  wm_record_layout_t layout = {.path = "/comparison",
                               .description = "the plan against its control at equal tokens",
                               .label = "model",
                               .n_columns = UNIT_COLUMNS};
  const bool gated = H5Lexists(wm_h5_id(plan->file), "/gates_used", H5P_DEFAULT) > 0;
  const char *name;
  wm_records_t records;
  wm_status_t status;
  memcpy(layout.columns, effect_columns, sizeof effect_columns);
  wm_records_init(&records, &layout);
  WM_TRY(compare_range(run, plan, control, wm_role_name(WM_ROLE_EVALUATION), gated, &records, err));
  for (int64_t i = 0; (name = wm_config_name(run->config, "ranges.", i)) != NULL; i++)
    if (is_range(name))
      WM_TRY(compare_range(run, plan, control, name, gated, &records, err));
  WM_TRY(wm_show_and_write(run, &records, file, err));
cleanup:
  wm_records_destroy(&records);
  return status;
}

/* Collective. What the comparison is of: the plan's own words. */
static wm_status_t describe_comparison(const wm_run_t *run, const finished_t *plan, wm_h5_t *file,
                                       wm_error_t *err) {
  static const char *const same[] = {"model", "model_fingerprint", "plan"};
  wm_provenance_t provenance = run->provenance;
  char *value = NULL;
  wm_status_t status;
  provenance.compute = wm_compute_name(wm_compute_of(run));
  WM_TRY(wm_h5_set_string(file, "/", "stage", "compare", err));
  for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
    free(value);
    value = NULL;
    WM_TRY(wm_h5_get_string(plan->file, "/", same[i], &value, err));
    WM_TRY(wm_h5_set_string(file, "/", same[i], value, err));
  }
  WM_TRY(wm_h5_set_string(file, "/", "bootstrap_interval",
                          wm_interval_name(wm_finetune_bootstrap(run).interval), err));
  WM_TRY(wm_h5_set_string(file, "/", "chain", plan->chain, err));
  WM_TRY(wm_h5_set_int(file, "/", "tokens_seen", plan->tokens, err));
  WM_TRY(wm_provenance_write(file, run->comm, &provenance, err));
cleanup:
  free(value);
  return status;
}

wm_status_t wm_finetune_compare(const wm_run_t *run, wm_error_t *err) {
  finished_t plan = {0}, control = {0};
  wm_h5_t *file = NULL;
  char path[WM_PATH_SIZE];
  wm_status_t status;
  WM_TRY(open_finished(run, "finetune.h5", &plan, err));
  WM_TRY(open_finished(run, "control.h5", &control, err));
  if (plan.tokens != control.tokens || strcmp(plan.chain, control.chain) != 0) {
    status = wm_fail(err, WM_INPUT,
                     "the plan has seen %" PRId64 " tokens (chain %s) and the control %" PRId64
                     " (%s): runs of unequal budgets are not ranked",
                     plan.tokens, plan.chain, control.tokens, control.chain);
    goto cleanup;
  }
  WM_TRY(wm_output_path(run, "finetune.compare.h5", path, err));
  WM_TRY(wm_h5_create(run->comm->world, path, &file, err));
  WM_TRY(compare(run, &plan, &control, file, err));
  WM_TRY(describe_comparison(run, &plan, file, err));
  wm_h5_t *whole = file;
  file = NULL; /* publishing takes it */
  WM_TRY(wm_h5_publish(whole, err));
  wm_log(run->log, WM_LOG_INFO, "finetune: wrote %s", path);
cleanup:
  wm_h5_close(file);
  close_finished(&plan);
  close_finished(&control);
  return status;
}
