/* finetune: the run of a plan, phase by phase and step by step. */
#include "finetune.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/progress.h"
#include "wanamaker/base/timer.h"

#include <inttypes.h>
#include <string.h>

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
                          double seconds, wm_error_t *err) {
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
  row[WM_STEP_SECONDS] = seconds;
  row[WM_STEP_EXPOSED] = r->exposed;
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
  WM_TRY(
      wm_agree(f->run->comm->world, record(f, result, step.rate, wm_seconds() - start, err), err));
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
  int64_t wishes[3] = {wm_stop_requested(), 0, 0};
  if (f->run->comm->rank == 0) { /* by its clock */
    wishes[2] = limit > 0 && now - f->started >= limit;
    wishes[1] = (interval > 0 && now - f->kept >= interval) ||
                (every > 0 && f->trajectory.n - before >= every);
  }
  wm_sum_i64(f->run->comm->world, wishes, 3);
  if (wishes[0] == 0 && wishes[1] == 0 && wishes[2] == 0)
    return WM_OK;
  wm_status_t status = wm_finetune_keep(f, err);
  if (status == WM_OK && (wishes[0] > 0 || wishes[2] > 0))
    status = wm_fail(err, WM_STOPPED,
                     "%s: stopped after step %" PRId64 " of %" PRId64 "%s; the same command goes "
                     "on from there",
                     f->stem, f->trajectory.n, f->plan.steps,
                     wishes[2] > 0 ? " by finetune.time_limit" : "");
  return status;
}

/* Is an evaluation due after the last step that is not done? */
static bool evaluation_is_due(const wm_finetune_t *f) {
  const int64_t every = wm_config_int(f->run->config, "finetune.evaluate_every");
  const wm_moment_t *last = &f->moments[f->n_moments - 1];
  return every > 0 && f->step > 0 && f->step < f->plan.phases[f->phase].steps &&
         f->step % every == 0 && (last->phase != f->phase || last->step != f->trajectory.n);
}

/* What the line of progress says of the last step. */
static void note_step(const wm_finetune_t *f, const wm_trainer_result_t *r,
                      wm_progress_t *progress) {
  const double *last = f->trajectory.values + (f->trajectory.n - 1) * WM_STEP_VALUES;
  const double seconds = last[WM_STEP_SECONDS];
  int length = snprintf(progress->note, sizeof progress->note,
                        "step %" PRId64 " of %" PRId64 ", loss %.4f, %.3g s", f->trajectory.n,
                        f->plan.steps, r->loss, seconds);
  if (f->run->comm->size > 1 && seconds > 0 && length > 0 && length < (int)sizeof progress->note)
    snprintf(progress->note + length, sizeof progress->note - (size_t)length, " (%.1f %% waiting)",
             100 * r->exposed / seconds);
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
    note_step(f, &result, progress);
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
    WM_TRY(wm_finetune_surrogates(f, err));
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
  const wm_step_times_t times = wm_finetune_times(f);
  if (times.seconds > 0)
    wm_log(f->run->log, WM_LOG_INFO,
           "%s: steps of %.3g s (median), %.4g tokens/s, %.1f %% of it waiting for messages",
           f->stem, times.median, times.rate, 100 * times.exposed / times.seconds);
cleanup:
  return status;
}
