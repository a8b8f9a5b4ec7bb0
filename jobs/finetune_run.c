/* finetune: the run of a plan, phase by phase and step by step. */
#include "finetune.h"
#include "stages.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/memory_room.h"
#include "wanamaker/base/progress.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/io/files.h"
#include "wanamaker/measure/fit.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* --- what a run needs ---------------------------------------------------------------------------
 */

static bool is_pretraining(const wm_run_t *run) {
  return strcmp(wm_config_string(run->config, "finetune.plan"), "pretrain") == 0;
}

/* Collective. */
static wm_status_t open_model(const wm_run_t *run, wm_model_t **out, wm_error_t *err) {
  const wm_config_t *c = run->config;
  if (!is_pretraining(run))
    return wm_inputs_open_writable(run, out, err);
  wm_model_options_t options = {.tile_rows = wm_config_int(c, "compute.tile_rows"),
                                .tile_vocab = wm_config_int(c, "compute.tile_vocab"),
                                .writable = true};
  return wm_model_create_random(run->comm, wm_config_string(c, "model.path"),
                                (uint64_t)wm_config_int(c, "finetune.seed"), &options, run->log,
                                out, err);
}

/* Collective. The corpus that is trained on. */
static wm_status_t open_data(wm_finetune_t *f, const wm_model_t *model, wm_error_t *err) {
  const wm_run_t *run = f->run;
  const char *corpus = wm_config_string(run->config, "finetune.corpus"), *name;
  char path[WM_PATH_SIZE];
  bool known = false;
  if (corpus[0] == '\0')
    corpus = wm_config_name(run->config, "corpora.", 0);
  if (corpus == NULL)
    return wm_fail(err, WM_USAGE, "no corpus is given: corpora.NAME.path is missing");
  for (int64_t i = 0; (name = wm_config_name(run->config, "corpora.", i)) != NULL; i++)
    known |= strcmp(name, corpus) == 0;
  if (!known)
    return wm_fail(err, WM_USAGE, "finetune.corpus = \"%s\": no such corpus", corpus);
  wm_status_t status = wm_tokens_path(run, corpus, path, err);
  if (status == WM_OK && run->comm->rank == 0 && !wm_file_exists(path))
    status = wm_fail(err, WM_INPUT, "%s: not there; run the job tokenize first", path);
  status = wm_agree(run->comm->world, status, err);
  if (status != WM_OK)
    return status;
  return wm_data_open(run->comm, path, wm_model_embedding_rows(model), &f->data, err);
}

static bool becomes_linear(const wm_finetune_t *f) {
  const wm_plan_kind_t kind = f->settings.kind;
  return kind != WM_PLAN_CONTROL && kind != WM_PLAN_CONTROL_STUDY && f->settings.n_layers > 0;
}

/* Collective. */
static wm_status_t open_surrogates(wm_finetune_t *f, wm_error_t *err) {
  const wm_arch_t *arch = wm_model_arch(f->inputs.model);
  if (!becomes_linear(f))
    return WM_OK;
  return wm_surrogates_create_empty(
      f->run->comm, f->settings.layers, f->settings.n_layers, arch->n_layers, arch->d_model,
      wm_config_int(f->run->config, "compute.tile_rows"), WM_COMPUTE_F32, &f->surrogates, err);
}

/* Collective. Arrays of the run, and the table of the model's tensors. */
static wm_status_t reserve(wm_finetune_t *f, wm_error_t *err) {
  const wm_training_options_t nothing = {.max_rows = 1, .max_length = 1, .gate_hidden = 1};
  int64_t first, count;
  void *memory;
  wm_data_part(f->run->comm, &f->order, &first, &count);
  wm_status_t status =
      wm_alloc(&memory, count * f->order.length, sizeof *f->ids, "tokens of a step", err);
  f->ids = memory;
  if (status == WM_OK) {
    status = wm_alloc(&memory, f->plan.n, sizeof *f->notes, "phases", err);
    f->notes = memory;
  }
  for (int64_t i = 0; i < f->plan.n && status == WM_OK; i++)
    f->notes[i] = (wm_phase_note_t){.r2 = NAN, .r2_heldout = NAN};
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  WM_TRY(wm_training_create(f->inputs.model, &nothing, &f->table, err));
cleanup:
  return status;
}

wm_status_t wm_finetune_open(wm_finetune_t *f, const wm_run_t *run, const char *stem, bool control,
                             wm_error_t *err) {
  wm_model_t *model = NULL;
  wm_status_t status;
  *f = (wm_finetune_t){.run = run, .stem = stem, .kept_step = -1, .started = wm_seconds()};
  WM_TRY(open_model(run, &model, err));
  WM_TRY(open_data(f, model, err));
  WM_TRY(wm_agree(run->comm->world, wm_finetune_settings(f, model, control, err), err));
  unsigned roles = 1u << WM_ROLE_EVALUATION, required = roles;
  if (becomes_linear(f) && f->settings.kind != WM_PLAN_PRETRAIN) {
    roles |= 1u << WM_ROLE_FIT | 1u << WM_ROLE_VALIDATION;
    required |= 1u << WM_ROLE_FIT;
  }
  wm_model_t *taken = model;
  model = NULL;
  WM_TRY(wm_inputs_open_on(run, taken, roles, required, &f->inputs, err));
  WM_TRY(wm_finetune_open_evaluations(f, err));
  WM_TRY(open_surrogates(f, err));
  WM_TRY(reserve(f, err));
  f->key = wm_finetune_key(f);
cleanup:
  wm_model_close(model);
  return status;
}

void wm_finetune_close(wm_finetune_t *f) {
  wm_trainer_free(f->trainer);
  wm_training_free(f->training);
  wm_training_free(f->table);
  wm_surrogates_close(f->surrogates);
  wm_finetune_close_evaluations(f);
  wm_inputs_close(&f->inputs);
  wm_data_close(f->data);
  wm_plan_destroy(&f->plan);
  free(f->layers);
  free(f->ids);
  free(f->notes);
  free(f->moments);
  free(f->trajectory.values);
  free(f->trajectory.chains);
  *f = (wm_finetune_t){0};
}

/* --- surrogates ---------------------------------------------------------------------------------
 */

/* Collective. Reads number i of a fit's file on all ranks into `memory`, and puts it. */
static wm_status_t take_surrogate(wm_finetune_t *f, wm_h5_t *file, int64_t i, int64_t layer,
                                  double *memory, wm_error_t *err) {
  const int64_t d = wm_model_arch(f->inputs.model)->d_model;
  const int64_t place[3] = {i, 0, 0}, matrix[3] = {1, d, d}, vector[2] = {1, d};
  wm_status_t status;
  WM_TRY(wm_h5_read(file, "/weight", H5T_NATIVE_DOUBLE, place, matrix, memory, err));
  WM_TRY(wm_h5_read(file, "/bias", H5T_NATIVE_DOUBLE, place, vector, memory + d * d, err));
  WM_TRY(wm_surrogates_put(f->surrogates, f->run->comm, layer, memory, memory + d * d, err));
cleanup:
  return status;
}

/* Collective. */
static wm_status_t take_fit(wm_finetune_t *f, const char *path, const int64_t *layers, int64_t n,
                            wm_error_t *err) {
  const int64_t d = wm_model_arch(f->inputs.model)->d_model;
  wm_h5_t *file = NULL;
  void *memory = NULL;
  wm_status_t status = wm_alloc(&memory, d * (d + 1), sizeof(double), "a surrogate", err);
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  WM_TRY(wm_h5_open(f->run->comm->world, path, &file, err));
  for (int64_t i = 0; i < n; i++)
    WM_TRY(take_surrogate(f, file, i, layers[i], memory, err));
cleanup:
  wm_h5_close(file);
  free(memory);
  return status;
}

/* R^2 of the phase's surrogates, means over its layers. */
static void note_fit(wm_finetune_t *f, const wm_fit_summary_t *s, int64_t n) {
  wm_phase_note_t *note = &f->notes[f->phase];
  note->r2 = note->r2_heldout = 0;
  for (int64_t i = 0; i < n; i++) {
    note->r2 += s[i].r2 / (double)n;
    note->r2_heldout += s[i].r2_heldout / (double)n;
  }
  wm_log(f->run->log, WM_LOG_INFO, "%s: %" PRId64 " surrogate(s) fitted, R^2 %.4f, held out %.4f",
         f->stem, n, note->r2, note->r2_heldout);
}

/* Collective. Surrogates of layers[n], ascending, on the model as `base` has it. */
static wm_status_t fit_on(wm_finetune_t *f, const wm_base_t *base, const int64_t *layers, int64_t n,
                          wm_error_t *err) {
  const wm_run_t *run = f->run;
  const wm_config_t *c = run->config;
  const wm_text_t *fit = &f->inputs.text[WM_ROLE_FIT], *held = &f->inputs.text[WM_ROLE_VALIDATION];
  const wm_fit_options_t options = {.lambda = wm_config_float(c, "fit.lambda"),
                                    .base = base,
                                    .layers = layers,
                                    .n_layers = n,
                                    .block = (int)wm_config_int(c, "fit.block"),
                                    .gram_bytes =
                                        (int64_t)(wm_config_float(c, "fit.memory_gib") * 0x1p30),
                                    .memory_bytes = wm_memory_bytes(run)};
  char path[WM_PATH_SIZE];
  wm_h5_t *file = NULL;
  void *summaries = NULL;
  wm_status_t status = wm_alloc(&summaries, n, sizeof(wm_fit_summary_t), "results", err);
  WM_TRY(wm_agree(run->comm->world, status, err));
  WM_TRY(wm_finetune_path(f, "surrogates.h5", path, err));
  WM_TRY(wm_h5_create(run->comm->world, path, &file, err));
  WM_TRY(wm_fit_surrogates(run->comm, f->inputs.model, &fit->blocks, wm_tokens_ids(fit->tokens),
                           held->present ? &held->blocks : NULL,
                           held->present ? wm_tokens_ids(held->tokens) : NULL, &options, file,
                           run->log, summaries, err));
  wm_h5_t *whole = file;
  file = NULL; /* publishing takes it */
  WM_TRY(wm_h5_publish(whole, err));
  WM_TRY(take_fit(f, path, layers, n, err));
  note_fit(f, summaries, n);
  if (run->comm->rank == 0)
    unlink(path); /* they are in checkpoints and in the finished model */
cleanup:
  wm_h5_close(file);
  free(summaries);
  return status;
}

/* Collective. The same on the model as it is now, with the layers linear that are. linear: room for
 * all layers. */
static wm_status_t fit_surrogates(wm_finetune_t *f, const int64_t *layers, int64_t n,
                                  int64_t *linear, wm_error_t *err) {
  wm_variants_t variants = {0};
  int64_t there = 0;
  for (int64_t l = 0; l < f->plan.model_layers; l++)
    if (wm_surrogates_has(f->surrogates, l))
      linear[there++] = l;
  wm_status_t status = wm_variants_create(&variants, err);
  if (status == WM_OK && there > 0)
    status = wm_variants_add(&variants, linear, there, f->plan.model_layers, err);
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  const wm_base_t base = {.surrogates = f->surrogates, .variants = &variants, .variant = 1};
  status = fit_on(f, there > 0 ? &base : NULL, layers, n, err);
cleanup:
  wm_variants_destroy(&variants);
  return status;
}

/* Collective. Linear maps of a model that has not learned anything yet: W normal(0, 0.02), b = 0.
 */
static wm_status_t draw_surrogates(wm_finetune_t *f, const int64_t *layers, int64_t n,
                                   wm_error_t *err) {
  const int64_t d = wm_model_arch(f->inputs.model)->d_model;
  void *memory = NULL;
  wm_status_t status = wm_alloc(&memory, d * (d + 1), sizeof(double), "a linear map", err);
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  double *weight = memory;
  for (int64_t i = 0; i < n; i++) {
    const wm_rng_t rng = {(uint64_t)wm_config_int(f->run->config, "finetune.seed"),
                          0x6c696e00000000u + (uint64_t)layers[i]};
    for (int64_t k = 0; k < d * d; k++)
      weight[k] = 0.02 * wm_rng_normal(rng, (uint64_t)k);
    WM_TRY(wm_surrogates_put(f->surrogates, f->run->comm, layers[i], weight, weight + d * d, err));
  }
cleanup:
  free(memory);
  return status;
}

/* Collective. The phase's surrogates that do not exist yet. */
static wm_status_t obtain_surrogates(wm_finetune_t *f, wm_error_t *err) {
  const wm_phase_t *p = &f->plan.phases[f->phase];
  void *memory = NULL;
  int64_t n = 0;
  wm_status_t status =
      wm_alloc(&memory, 2 * f->plan.model_layers, sizeof(int64_t), "layers to fit", err);
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  int64_t *layers = memory;
  f->notes[f->phase].linear = 0;
  for (int64_t l = 0; l < f->plan.model_layers; l++)
    if (p->modes[l] == WM_MODE_LINEAR || p->modes[l] == WM_MODE_GATED) {
      f->notes[f->phase].linear += 1;
      if (!wm_surrogates_has(f->surrogates, l))
        layers[n++] = l;
    }
  if (n > 0 && f->settings.kind == WM_PLAN_PRETRAIN)
    status = draw_surrogates(f, layers, n, err);
  else if (n > 0)
    status = fit_surrogates(f, layers, n, layers + f->plan.model_layers, err);
cleanup:
  free(memory);
  return status;
}

/* --- phases -------------------------------------------------------------------------------------
 */

/* Collective. Training pass and optimiser of the phase. */
static wm_status_t make_training(wm_finetune_t *f, wm_error_t *err) {
  const int64_t n = f->plan.model_layers;
  void *paths = NULL, *frozen = NULL;
  wm_trainer_options_t options = f->trainer_options;
  options.adamw = f->plan.phases[f->phase].adamw;
  wm_trainer_free(f->trainer);
  wm_training_free(f->training);
  f->trainer = NULL;
  f->training = NULL;
  wm_status_t status = wm_alloc(&paths, n, sizeof(wm_layer_path_t), "layers", err);
  if (status == WM_OK)
    status = wm_alloc(&frozen, n, sizeof(bool), "layers", err);
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  const wm_training_options_t o = wm_finetune_options(f, f->phase, paths, frozen);
  WM_TRY(wm_training_create(f->inputs.model, &o, &f->training, err));
  WM_TRY(wm_trainer_create(f->run->comm, f->training, &options, &f->trainer, err));
cleanup:
  free(paths);
  free(frozen);
  return status;
}

/* Collective. The unmodified model's losses, with which all others are compared. */
static wm_status_t evaluate_start(wm_finetune_t *f, wm_error_t *err) {
  wm_training_t *full = NULL;
  const wm_training_options_t o = wm_finetune_options(f, -1, NULL, NULL);
  wm_status_t status = wm_training_create(f->inputs.model, &o, &full, err);
  if (status == WM_OK)
    status = wm_finetune_evaluate(f, full, "full model", false, err);
  wm_training_free(full);
  return status;
}

static bool is_gated(const wm_finetune_t *f, int64_t phase) {
  for (int64_t l = 0; l < f->plan.model_layers; l++)
    if (f->plan.phases[phase].modes[l] == WM_MODE_GATED)
      return true;
  return false;
}

/* Does the phase begin with another model than the one that was evaluated last? */
static bool begins_with_a_change(const wm_finetune_t *f) {
  const wm_phase_t *now = &f->plan.phases[f->phase];
  for (int64_t l = 0; l < f->plan.model_layers; l++) {
    bool replaced = now->modes[l] == WM_MODE_LINEAR || now->modes[l] == WM_MODE_GATED;
    if (replaced && (f->phase == 0 || now->modes[l] != now[-1].modes[l]))
      return true;
  }
  return false;
}

/* Collective. */
static wm_status_t evaluate_phase(wm_finetune_t *f, const char *when, wm_error_t *err) {
  char label[WM_MOMENT_LABEL];
  const int64_t before = f->n_moments;
  snprintf(label, sizeof label, "%s%s", f->plan.phases[f->phase].name, when);
  wm_status_t status = wm_finetune_evaluate(f, f->training, label, false, err);
  if (status == WM_OK && is_gated(f, f->phase))
    status = wm_finetune_evaluate(f, f->training, label, true, err);
  if (status != WM_OK)
    f->n_moments = before; /* whole, or to be done again */
  return status;
}

/* --- steps --------------------------------------------------------------------------------------
 */

static wm_status_t record(wm_finetune_t *f, const wm_trainer_result_t *r, double rate,
                          wm_error_t *err) {
  wm_trajectory_t *t = &f->trajectory;
  void *values = t->values, *chains = t->chains;
  wm_status_t status = wm_grow(&values, &t->capacity, t->n, t->n + 1,
                               WM_STEP_VALUES * sizeof *t->values, "steps", err);
  t->values = values;
  if (status == WM_OK)
    status = wm_grow(&chains, &t->chains_capacity, t->n, t->n + 1, sizeof *t->chains, "steps", err);
  t->chains = chains;
  if (status != WM_OK)
    return status;
  double *row = t->values + t->n * WM_STEP_VALUES;
  row[WM_STEP_LOSS] = r->loss;
  row[WM_STEP_NORM] = r->norm;
  row[WM_STEP_RATE] = rate;
  row[WM_STEP_GATE] = r->gate;
  t->chains[t->n++] = f->chain;
  return WM_OK;
}

/* A loss that is not finite: where, and what there is to go back to. */
static wm_status_t tell_failure(const wm_finetune_t *f, wm_error_t *err) {
  char checkpoint[128] = "there is no checkpoint", what[WM_MESSAGE_SIZE];
  const int64_t step = f->trajectory.n, tokens = f->order.sequences * f->order.length;
  if (f->kept_step >= 0)
    snprintf(checkpoint, sizeof checkpoint,
             "the last checkpoint is %s.checkpoint.%d.h5, after step %" PRId64, f->stem,
             (int)((f->generation - 1) % 2), f->kept_step);
  memcpy(what, err->message, sizeof what);
  return wm_fail(err, WM_NUMERICAL,
                 "%s: %s in step %" PRId64 " (phase \"%s\"), after %" PRId64 " tokens; %s", f->stem,
                 what, step, f->plan.phases[f->phase].name, step * tokens, checkpoint);
}

/* Collective. */
static wm_status_t do_step(wm_finetune_t *f, wm_trainer_result_t *result, wm_error_t *err) {
  const wm_phase_t *p = &f->plan.phases[f->phase];
  const wm_trainer_step_t step = {.number = f->step,
                                  .draw = f->trajectory.n,
                                  .rate = wm_schedule_rate(&p->schedule, f->step),
                                  .penalty = f->step >= p->penalty_from ? p->penalty : 0,
                                  .ids = f->ids};
  const double start = wm_seconds();
  wm_status_t status;
  WM_TRY(wm_data_load(f->data, &f->order, p->first_data + f->step, f->ids, &f->chain, err));
  status = wm_trainer_step(f->trainer, &step, result, err);
  if (status == WM_NUMERICAL)
    status = tell_failure(f, err);
  WM_TRY(status);
  if (f->surrogates != NULL)
    wm_surrogates_sync(f->surrogates); /* pretraining changes them */
  WM_TRY(wm_agree(f->run->comm->world, record(f, result, step.rate, err), err));
  f->stepping += wm_seconds() - start;
  f->exposed += result->exposed;
  f->step++;
cleanup:
  return status;
}

/* Collective. A checkpoint if one is due; WM_STOPPED, after one, if the run is to stop. */
static wm_status_t keep_if_due(wm_finetune_t *f, wm_error_t *err) {
  const wm_config_t *c = f->run->config;
  const double interval = 60 * wm_config_float(c, "checkpoint.minutes");
  const double limit = 60 * wm_config_float(c, "finetune.time_limit");
  const int64_t every = wm_config_int(c, "finetune.checkpoint_steps");
  const double now = wm_seconds();
  const int64_t before = f->kept_step > 0 ? f->kept_step : 0;
  int64_t wishes[2] = {wm_stop_requested(), 0};
  if (f->run->comm->rank == 0) { /* by its clock */
    wishes[0] += limit > 0 && now - f->started >= limit;
    wishes[1] = (interval > 0 && now - f->kept >= interval) ||
                (every > 0 && f->trajectory.n - before >= every);
  }
  wm_sum_i64(f->run->comm->world, wishes, 2);
  if (wishes[0] == 0 && wishes[1] == 0)
    return WM_OK;
  wm_status_t status = wm_finetune_keep(f, err);
  if (status == WM_OK && wishes[0] > 0)
    status = wm_fail(err, WM_STOPPED,
                     "%s: stopped after step %" PRId64 " of %" PRId64
                     "; the same command goes on from there",
                     f->stem, f->trajectory.n, f->plan.steps);
  return status;
}

/* Is an evaluation due after the last step that is not done? */
static bool evaluation_is_due(const wm_finetune_t *f) {
  const int64_t every = wm_config_int(f->run->config, "finetune.evaluate_every");
  const wm_moment_t *last = &f->moments[f->n_moments - 1];
  return every > 0 && f->step > 0 && f->step < f->plan.phases[f->phase].steps &&
         f->step % every == 0 && (last->phase != f->phase || last->step != f->trajectory.n);
}

/* Collective. From step f->step of the phase to its end. */
static wm_status_t run_steps(wm_finetune_t *f, wm_progress_t *progress, wm_error_t *err) {
  const wm_phase_t *p = &f->plan.phases[f->phase];
  const int64_t tokens = f->order.sequences * f->order.length;
  wm_status_t status = WM_OK;
  if (evaluation_is_due(f)) /* an earlier run was stopped in it */
    WM_TRY(evaluate_phase(f, "", err));
  while (f->step < p->steps) {
    wm_trainer_result_t result;
    WM_TRY(do_step(f, &result, err));
    snprintf(progress->note, sizeof progress->note, "step %" PRId64 " of %" PRId64 ", loss %.4f",
             f->trajectory.n, f->plan.steps, result.loss);
    wm_progress_update(progress, f->trajectory.n * tokens);
    if (f->step == p->steps)
      break;
    if (evaluation_is_due(f))
      WM_TRY(evaluate_phase(f, "", err));
    WM_TRY(keep_if_due(f, err));
  }
cleanup:
  return status;
}

/* Collective. resumed: its first steps were done by an earlier run. */
static wm_status_t run_phase(wm_finetune_t *f, bool resumed, wm_progress_t *progress,
                             wm_error_t *err) {
  const wm_phase_t *p = &f->plan.phases[f->phase];
  wm_status_t status;
  if (!resumed)
    WM_TRY(obtain_surrogates(f, err));
  WM_TRY(make_training(f, err));
  if (resumed)
    WM_TRY(wm_finetune_resume_phase(f, err));
  else if (begins_with_a_change(f))
    WM_TRY(evaluate_phase(f, ", start", err));
  WM_TRY(run_steps(f, progress, err));
  if (p->steps > 0)
    WM_TRY(evaluate_phase(f, ", end", err));
cleanup:
  return status;
}

/* Collective. Stopped within a fit or an evaluation, where weights are those of the position: they
 * are kept, unless they have been. moments: evaluations before the phase. */
static wm_status_t keep_stopped(wm_finetune_t *f, int64_t moments, wm_error_t *err) {
  wm_error_t failed = {0};
  if (f->step > 0 && f->kept_step == f->trajectory.n)
    return WM_STOPPED;
  if (f->step == 0)
    f->n_moments = moments;
  wm_status_t status = wm_finetune_keep(f, &failed);
  if (status == WM_OK)
    return WM_STOPPED;
  *err = failed;
  return status;
}

wm_status_t wm_finetune_train(wm_finetune_t *f, wm_error_t *err) {
  const int64_t tokens = f->order.sequences * f->order.length;
  wm_progress_t progress;
  bool resumed;
  wm_status_t status;
  f->kept = wm_seconds();
  WM_TRY(wm_finetune_resume(f, &resumed, err));
  if (!resumed)
    WM_TRY(evaluate_start(f, err));
  wm_progress_start(&progress, f->run->log, f->stem, "tokens", f->plan.steps * tokens);
  wm_progress_resume(&progress, f->trajectory.n * tokens);
  for (; f->phase < f->plan.n; f->phase++, f->step = 0) {
    const int64_t moments = f->n_moments;
    status = run_phase(f, resumed && f->step > 0, &progress, err);
    if (status == WM_STOPPED)
      status = keep_stopped(f, moments, err);
    WM_TRY(status);
    resumed = false;
  }
  progress.note[0] = '\0';
  wm_progress_finish(&progress);
  if (f->run->comm->size > 1 && f->stepping > 0)
    wm_log(f->run->log, WM_LOG_INFO, "%s: waited for messages %.1f %% of the steps' time", f->stem,
           100 * f->exposed / f->stepping);
cleanup:
  return status;
}
