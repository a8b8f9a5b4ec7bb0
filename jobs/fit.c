/* fit: every layer's linear surrogate (method.md, section 1). */
#include "wanamaker/measure/fit.h"
#include "inputs.h"
#include "stages.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/report/table.h"

#include <inttypes.h>
#include <string.h>

static wm_fit_options_t read_options(const wm_run_t *run, const int64_t *layers, int64_t n) {
  const wm_config_t *c = run->config;
  wm_fit_options_t o = {.lambda = wm_config_float(c, "fit.lambda"),
                        .spectrum = wm_config_bool(c, "fit.spectrum"),
                        .layers = layers,
                        .n_layers = n,
                        .block = (int)wm_config_int(c, "fit.block"),
                        .gram_bytes = (int64_t)(wm_config_float(c, "fit.memory_gib") * 0x1p30),
                        .memory_bytes = wm_memory_bytes(run),
                        .checkpoint_seconds = 60 * wm_config_float(c, "checkpoint.minutes")};
  o.lambdas = wm_config_floats(c, "fit.lambdas", &o.n_lambdas);
  return o;
}

/* Two numbers, both 0 (chosen) or both positive. */
static wm_status_t read_grid(const wm_run_t *run, wm_fit_options_t *o, wm_error_t *err) {
  int64_t count;
  const int64_t *grid = wm_config_ints(run->config, "fit.grid", &count);
  if (count != 2 || (grid[0] == 0) != (grid[1] == 0))
    return wm_fail(err, WM_USAGE, "fit.grid must be [rows, columns], or [0, 0] to have it chosen");
  o->grid_rows = grid[0];
  o->grid_columns = grid[1];
  return WM_OK;
}

/* What the surrogates depend on, and which attributes the file has. base_key: of o->base. */
static uint64_t stage_key(const wm_inputs_t *in, const wm_fit_options_t *o, uint64_t base_key) {
  static const char layout[] = "with text fingerprints";
  uint64_t h = wm_hash(layout, sizeof layout, wm_model_fingerprint(in->model));
  h = wm_text_fingerprint(&in->text[WM_ROLE_FIT], h);
  h = wm_text_fingerprint(&in->text[WM_ROLE_VALIDATION], h);
  wm_compute_t compute = wm_compute_of(in->run);
  h = wm_hash(&compute, sizeof compute, h);
  h = wm_hash(&o->lambda, sizeof o->lambda, h);
  h = wm_hash(o->lambdas, (size_t)o->n_lambdas * sizeof *o->lambdas, h);
  h = wm_hash(&o->spectrum, sizeof o->spectrum, h);
  h = wm_hash(o->layers, (size_t)o->n_layers * sizeof *o->layers, h);
  if (o->sequential)
    h = wm_hash(&o->sequential, sizeof o->sequential, h);
  if (o->base != NULL)
    h = wm_hash(&base_key, sizeof base_key, h);
  return wm_hash(in->run->provenance.version, strlen(in->run->provenance.version), h);
}

static wm_status_t print_table(const wm_run_t *run, const wm_fit_summary_t *s, int64_t n,
                               wm_error_t *err) {
  static const wm_column_t columns[] = {
      {"layer", NULL, WM_ALIGN_RIGHT, 0},      {"R^2", "fit", WM_ALIGN_RIGHT, 4},
      {"R^2", "held out", WM_ALIGN_RIGHT, 4},  {"|W|", "Frobenius", WM_ALIGN_RIGHT, 2},
      {"condition", NULL, WM_ALIGN_RIGHT, -3}, {"effective", "rank", WM_ALIGN_RIGHT, 1}};
  wm_table_t *table;
  wm_status_t status = wm_table_create(columns, 6, &table, err);
  if (status != WM_OK)
    return status;
  for (int64_t i = 0; i < n; i++) {
    wm_table_int(table, s[i].layer);
    wm_table_float(table, s[i].r2);
    wm_table_float(table, s[i].r2_heldout);
    wm_table_float(table, s[i].weight_norm);
    wm_table_float(table, s[i].condition);
    wm_table_float(table, s[i].effective_rank);
  }
  status = wm_table_print(table, WM_TABLE_TEXT, run->out, err);
  wm_table_free(table);
  return status;
}

/* What would be done, with estimates. */
static wm_status_t explain(const wm_inputs_t *in, const wm_fit_options_t *o, const char *path,
                           bool complete, wm_error_t *err) {
  const wm_run_t *run = in->run;
  const wm_arch_t *arch = wm_model_arch(in->model);
  wm_fit_plan_t plan;
  const wm_text_t *fit = &in->text[WM_ROLE_FIT], *held = &in->text[WM_ROLE_VALIDATION];
  int64_t scratch;
  wm_status_t status = wm_fit_plan(run->comm, arch, o, &plan, err);
  if (status == WM_OK)
    status = wm_fit_scratch(in->model, &fit->blocks, held->present ? &held->blocks : NULL, o,
                            &scratch, err);
  if (status != WM_OK || run->comm->rank != 0)
    return status;
  double tokens =
      (double)(fit->windows.n_positions + (held->present ? held->windows.n_positions : 0));
  double d = (double)arch->d_model, layers = (double)o->n_layers;
  double network =
      tokens * (double)plan.passes * (double)arch->n_layers * wm_arch_flops_layer(arch);
  double gram = tokens * layers * 3 * d * d;
  char duration[32];
  wm_stage_duration(run, network, 3 * gram, duration, sizeof duration);
  fprintf(
      run->out,
      "fit: %s\n  %" PRId64 " layers from %s\n  held out: %s\n"
      "  %" PRId64 " pass(es); Gram matrices %.1f MiB per node; grids of %d x %d, %d at a time\n"
      "  memory: %.1f MiB a rank; %.1f MiB a node of %d ranks beside the weights\n"
      "  %.3g operations in the network, %.3g in float64; about %s\n",
      complete ? "complete, would be skipped" : path, o->n_layers, fit->windows.label,
      held->present ? held->windows.label : "none", plan.passes, (double)plan.gram_bytes / 0x1p20,
      plan.grid_rows, plan.grid_columns, plan.teams, (double)scratch / 0x1p20,
      (double)(plan.gram_bytes + scratch * run->comm->node_size) / 0x1p20, run->comm->node_size,
      network, gram, duration);
  return WM_OK;
}

static wm_status_t compute(const wm_inputs_t *in, const wm_fit_options_t *o, const char *path,
                           uint64_t key, wm_error_t *err) {
  const wm_run_t *run = in->run;
  const wm_text_t *fit = &in->text[WM_ROLE_FIT], *held = &in->text[WM_ROLE_VALIDATION];
  wm_h5_t *file = NULL;
  void *summaries = NULL;
  wm_status_t status;
  WM_TRY(wm_agree(run->comm->world,
                  wm_alloc(&summaries, o->n_layers, sizeof(wm_fit_summary_t), "results", err),
                  err));
  WM_TRY(wm_h5_create(run->comm->world, path, &file, err));
  WM_TRY(wm_fit_surrogates(run->comm, in->model, &fit->blocks, wm_tokens_ids(fit->tokens),
                           held->present ? &held->blocks : NULL,
                           held->present ? wm_tokens_ids(held->tokens) : NULL, o, file, run->log,
                           summaries, err));
  WM_TRY(wm_agree(run->comm->world, wm_model_unchanged(in->model, err), err));
  WM_TRY(wm_stage_describe(in, file, "fit", key, err));
  WM_TRY(wm_h5_set_float(file, "/", "lambda", o->lambda, err));
  wm_h5_t *whole = file;
  file = NULL; /* publishing takes it */
  WM_TRY(wm_h5_publish(whole, err));
  wm_fit_remove_parts(run->comm, o->parts);
  if (run->comm->rank == 0)
    status = wm_output_shown(run, print_table(run, summaries, o->n_layers, err));
  WM_TRY(wm_agree(run->comm->world, status, err));
  wm_log(run->log, WM_LOG_INFO, "fit: wrote %s", path);
cleanup:
  wm_h5_close(file);
  free(summaries);
  return status;
}

/* Options and places of the result and of what is kept on the way. `layers` has room for all of the
 * model's. */
static wm_status_t prepare(const wm_inputs_t *in, int64_t *layers, wm_fit_options_t *o, char *path,
                           char *parts, wm_error_t *err) {
  int64_t count, n;
  const int64_t *given = wm_config_ints(in->run->config, "fit.layers", &count);
  wm_status_t status;
  WM_TRY(wm_layer_list("fit.layers", given, count, wm_model_arch(in->model)->n_layers, layers, &n,
                       err));
  *o = read_options(in->run, layers, n);
  WM_TRY(read_grid(in->run, o, err));
  WM_TRY(wm_output_path(in->run, "surrogates.h5", path, err));
  WM_TRY(wm_output_path(in->run, "surrogates.parts", parts, err));
  o->parts = parts;
cleanup:
  return status;
}

/* Collective. One file of surrogates; o->parts says where what is kept lies. */
static wm_status_t fit_one(const wm_inputs_t *in, wm_fit_options_t *o, uint64_t base_key,
                           const char *path, bool *complete, wm_error_t *err) {
  const wm_run_t *run = in->run;
  wm_status_t status = WM_OK;
  const uint64_t key = o->parts_key = stage_key(in, o, base_key);
  *complete = wm_stage_is_complete(run, path, key);
  if (run->dry_run) {
    status = wm_agree(run->comm->world, explain(in, o, path, *complete, err), err);
  } else if (*complete) {
    wm_log(run->log, WM_LOG_INFO, "fit: %s is complete for these inputs; skipped", path);
    wm_fit_remove_parts(run->comm, o->parts); /* of a run that ended between result and removal */
  } else {
    status = compute(in, o, path, key, err);
  }
  *complete |= !run->dry_run && status == WM_OK;
  return status;
}

wm_status_t wm_joint_path(const wm_run_t *run, int64_t set, const char *ending, char *path,
                          wm_error_t *err) {
  char name[64];
  snprintf(name, sizeof name, "surrogates.joint-%" PRId64 ".%s", set, ending);
  return wm_output_path(run, name, path, err);
}

/* Collective. With fit.sequential: surrogates of their own for each set of sweep.joint. */
static wm_status_t fit_joint(const wm_inputs_t *in, wm_fit_options_t o, bool *complete,
                             wm_error_t *err) {
  const wm_run_t *run = in->run;
  const int64_t n_layers = wm_model_arch(in->model)->n_layers, *offsets;
  int64_t count;
  const int64_t *sets = wm_config_lists(run->config, "sweep.joint", &offsets, &count);
  char path[WM_PATH_SIZE], parts[WM_PATH_SIZE];
  void *layers = NULL;
  wm_status_t status = WM_OK;
  if (!wm_config_bool(run->config, "fit.sequential"))
    return WM_OK;
  o.sequential = true;
  o.tile_rows = wm_config_int(run->config, "compute.tile_rows");
  o.parts = parts;
  WM_TRY(
      wm_agree(run->comm->world, wm_alloc(&layers, n_layers, sizeof(int64_t), "layers", err), err));
  o.layers = layers;
  for (int64_t i = 0; i < count; i++) {
    bool one = false;
    status = wm_layer_list("sweep.joint", sets + offsets[i], offsets[i + 1] - offsets[i], n_layers,
                           layers, &o.n_layers, err);
    if (status == WM_OK)
      status = wm_joint_path(run, i, "h5", path, err);
    if (status == WM_OK)
      status = wm_joint_path(run, i, "parts", parts, err);
    WM_TRY(wm_agree(run->comm->world, status, err));
    WM_TRY(fit_one(in, &o, 0, path, &one, err));
    *complete &= one;
  }
cleanup:
  free(layers);
  return status;
}

wm_status_t wm_stage_fit(const wm_inputs_t *in, bool *complete, wm_error_t *err) {
  const wm_run_t *run = in->run;
  char path[WM_PATH_SIZE], parts[WM_PATH_SIZE];
  wm_fit_options_t options;
  void *layers = NULL;
  *complete = false;
  wm_status_t status =
      wm_alloc(&layers, wm_model_arch(in->model)->n_layers, sizeof(int64_t), "layers", err);
  if (status == WM_OK)
    status = prepare(in, layers, &options, path, parts, err);
  WM_TRY(wm_agree(run->comm->world, status, err));
  WM_TRY(fit_one(in, &options, 0, path, complete, err));
  WM_TRY(fit_joint(in, options, complete, err));
cleanup:
  free(layers);
  return status;
}

wm_status_t wm_stage_fit_on(const wm_inputs_t *in, int64_t layer, const wm_base_t *base,
                            uint64_t base_key, const char *path, const char *parts,
                            wm_error_t *err) {
  wm_fit_options_t o = read_options(in->run, &layer, 1);
  bool complete;
  wm_status_t status = wm_agree(in->run->comm->world, read_grid(in->run, &o, err), err);
  o.parts = parts;
  o.base = base;
  return status == WM_OK ? fit_one(in, &o, base_key, path, &complete, err) : status;
}

wm_status_t wm_stage_fit_layers(const wm_inputs_t *in, const int64_t *layers, int64_t n,
                                const char *name, bool *complete, wm_error_t *err) {
  char path[WM_PATH_SIZE], parts[WM_PATH_SIZE], file[WM_PATH_SIZE];
  wm_fit_options_t options = read_options(in->run, layers, n);
  *complete = false;
  wm_status_t status = read_grid(in->run, &options, err);
  snprintf(file, sizeof file, "%s.h5", name);
  if (status == WM_OK)
    status = wm_output_path(in->run, file, path, err);
  snprintf(file, sizeof file, "%s.parts", name);
  if (status == WM_OK)
    status = wm_output_path(in->run, file, parts, err);
  options.parts = parts;
  status = wm_agree(in->run->comm->world, status, err);
  return status == WM_OK ? fit_one(in, &options, 0, path, complete, err) : status;
}

wm_status_t wm_job_fit(const wm_run_t *run, wm_error_t *err) {
  wm_inputs_t inputs;
  bool complete;
  wm_status_t status = wm_output_ready(run, err);
  if (status == WM_OK)
    status = wm_tokens_current(run, err);
  if (status != WM_OK)
    return status;
  status = wm_inputs_open(run, 1u << WM_ROLE_FIT | 1u << WM_ROLE_VALIDATION, 1u << WM_ROLE_FIT,
                          &inputs, err);
  if (status == WM_OK)
    status = wm_stage_fit(&inputs, &complete, err);
  wm_inputs_close(&inputs);
  return status;
}
