/* The job finetune: what its files share. */
#ifndef WANAMAKER_JOBS_FINETUNE_H
#define WANAMAKER_JOBS_FINETUNE_H

#include "inputs.h"
#include "wanamaker/measure/statistics.h"
#include "wanamaker/measure/surrogates.h"
#include "wanamaker/model/training.h"
#include "wanamaker/train/data_order.h"
#include "wanamaker/train/plan.h"
#include "wanamaker/train/trainer.h"

#include <stdbool.h>
#include <stdint.h>

enum { WM_MAX_EVALUATIONS = 16, WM_MOMENT_LABEL = 48 };

/* A corpus on which the model is evaluated. */
typedef struct {
  const char *name; /* "evaluation", "evaluation_lambada" */
  const wm_text_t *text;
  wm_text_t own; /* of all but the role `evaluation` */
  wm_unit_kind_t unit;
  int32_t *units; /* [N] */
  int64_t n_units;
  float *nll; /* [moments, N]; row 0 is the model that the run started from */
  int64_t nll_capacity;
} wm_evaluation_t;

/* When an evaluation was done. */
typedef struct {
  char label[WM_MOMENT_LABEL];
  int64_t phase, step; /* of the run: steps done */
  int64_t hard;        /* gates decide instead of blending */
} wm_moment_t;

/* What is kept of every step. */
typedef struct {
  int64_t n, capacity;
  double *values;   /* [n, WM_STEP_VALUES] */
  uint64_t *chains; /* [n] */
  int64_t chains_capacity;
} wm_trajectory_t;

/* SECONDS: wall-clock, with the reading of tokens; EXPOSED: of them waiting for messages. */
enum {
  WM_STEP_LOSS,
  WM_STEP_NORM,
  WM_STEP_RATE,
  WM_STEP_GATE,
  WM_STEP_SECONDS,
  WM_STEP_EXPOSED,
  WM_STEP_VALUES
};

/* How fast steps were. */
typedef struct {
  double seconds, median, exposed; /* of all steps, of one, of all waiting for messages */
  double rate;                     /* tokens/s of all ranks */
} wm_step_times_t;

/* A phase in words. */
typedef struct {
  double linear, r2, r2_heldout; /* layers that are linear or gated; of the surrogates fitted */
} wm_phase_note_t;

typedef struct {
  const wm_run_t *run;
  const char *stem; /* of the files: "finetune" or "control" */
  wm_plan_settings_t settings;
  int64_t *layers; /* what settings.layers points to */
  wm_plan_t plan;
  wm_data_order_t order;
  wm_trainer_options_t trainer_options;
  wm_inputs_t inputs; /* model, texts */
  wm_data_t *data;
  int64_t n_evaluations;
  wm_evaluation_t evaluations[WM_MAX_EVALUATIONS];
  wm_surrogates_t *surrogates; /* room for all chosen layers; NULL: none become linear */
  wm_training_t *table;        /* the model's tensors by name; it trains nothing */
  wm_training_t *training;     /* of the phase */
  wm_trainer_t *trainer;
  int32_t *ids; /* this rank's part of a step */
  uint64_t key; /* of all that the trajectory depends on */
  /* position: what comes next is step `step` of phase `phase` */
  int64_t phase, step;
  uint64_t chain;
  wm_trajectory_t trajectory;
  wm_moment_t *moments;
  int64_t n_moments, moments_capacity;
  wm_phase_note_t *notes; /* [plan.n] */
  /* checkpoints */
  int64_t generation; /* of the next one */
  int64_t resumed;    /* of the one that the run began with, if there was one */
  double kept;        /* when the last one was written */
  int64_t kept_step;  /* of the run; -1: none */
  double started;
} wm_finetune_t;

/* --- finetune_settings.c ------------------------------------------------------------------------
 */

/* Not collective. What the settings say of a plan, or of its control, but for its layers; does it
 * take one layer after another? */
wm_status_t wm_finetune_plan(const wm_config_t *config, const wm_arch_t *arch, bool control,
                             wm_plan_settings_t *settings, bool *progressive, wm_error_t *err);
/* Not collective. The layers of finetune.layers, ascending; none named: none. With the order of a
 * progressive plan: in it, none named: all, and the first finetune.count of them. layers:
 * [n_layers]. */
wm_status_t wm_finetune_layers(const wm_config_t *config, int64_t n_layers, const int64_t *order,
                               int64_t *layers, int64_t *n, wm_error_t *err);
/* Collective. Plan, data order and training from the settings; `control`: those of the plan's
 * control. model: whose architecture counts. */
wm_status_t wm_finetune_settings(wm_finetune_t *f, const wm_model_t *model, bool control,
                                 wm_error_t *err);
/* Not collective. Options of a training pass in a phase (-1: of one that trains nothing, the full
 * model). paths and frozen: [L], filled where they are needed. */
wm_training_options_t wm_finetune_options(const wm_finetune_t *f, int64_t phase,
                                          wm_layer_path_t *paths, bool *frozen);
/* Hash of all that the trajectory depends on. Not collective. */
uint64_t wm_finetune_key(const wm_finetune_t *f);

/* --- finetune_evaluate.c ------------------------------------------------------------------------
 */

/* Collective. The ranges to evaluate on, and that training does not touch them. */
wm_status_t wm_finetune_open_evaluations(wm_finetune_t *f, wm_error_t *err);
void wm_finetune_close_evaluations(wm_finetune_t *f);
/* Collective. Losses of `training`'s model on all ranges, appended with a label. */
wm_status_t wm_finetune_evaluate(wm_finetune_t *f, wm_training_t *training, const char *label,
                                 bool hard, wm_error_t *err);
/* Collective. Losses of one range, [N]. */
wm_status_t wm_finetune_losses(const wm_finetune_t *f, int64_t range, wm_training_t *training,
                               bool hard, float *nll, wm_error_t *err);
/* Collective. Adds a moment, for losses that are filled in by the caller. */
wm_status_t wm_finetune_add_moment(wm_finetune_t *f, const wm_moment_t *moment, wm_error_t *err);
/* Collective. Distribution of g on the first range, a row for every gated layer: printed, and
 * written as /gates_used. */
wm_status_t wm_finetune_gates(wm_finetune_t *f, wm_h5_t *file, wm_error_t *err);

/* --- finetune_effect.c --------------------------------------------------------------------------
 */

/* Collective. Where products are not float32: what they do to the losses of the trained model,
 * printed, and written as /compute_effect. */
wm_status_t wm_finetune_effect(const wm_finetune_t *f, wm_h5_t *file, wm_error_t *err);

/* --- finetune_state.c ---------------------------------------------------------------------------
 */

/* Collective. output.dir/STEM.ENDING */
wm_status_t wm_finetune_path(const wm_finetune_t *f, const char *ending, char *path,
                             wm_error_t *err);
/* Collective. Writes a checkpoint of the position; the older generation gives way. */
wm_status_t wm_finetune_keep(wm_finetune_t *f, wm_error_t *err);
/* Collective. Takes over the newest checkpoint that is whole and of this run, but for gates and
 * moments, which wm_finetune_resume_phase reads from it when the phase's training exists. *resumed:
 * there was one. */
wm_status_t wm_finetune_resume(wm_finetune_t *f, bool *resumed, wm_error_t *err);
wm_status_t wm_finetune_resume_phase(wm_finetune_t *f, wm_error_t *err);
/* Collective. Publishes STEM.model.h5. */
wm_status_t wm_finetune_save_model(wm_finetune_t *f, wm_error_t *err);
/* Collective. Removes the checkpoints. */
void wm_finetune_remove_checkpoints(const wm_finetune_t *f);

/* --- finetune_result.c --------------------------------------------------------------------------
 */

/* Collective. Statistics of all evaluations, printed and, in STEM.h5, published. */
wm_status_t wm_finetune_publish(wm_finetune_t *f, wm_error_t *err);
/* Not collective. Of all steps so far, those of earlier runs included; zeros without any. */
wm_step_times_t wm_finetune_times(const wm_finetune_t *f);
/* Collective. Compares finetune.h5 and control.h5. */
wm_status_t wm_finetune_compare(const wm_run_t *run, wm_error_t *err);
/* The bootstrap's settings. */
wm_bootstrap_t wm_finetune_bootstrap(const wm_run_t *run);
/* text[WM_HASH_TEXT] <- a fingerprint of them, as finetune.h5 has it. */
void wm_finetune_statistics(const wm_run_t *run, char *text);

/* --- finetune_open.c ----------------------------------------------------------------------------
 */

/* Collective. Everything that a plan needs, opened; destroyed by wm_finetune_close, also after a
 * failure. */
wm_status_t wm_finetune_open(wm_finetune_t *f, const wm_run_t *run, const char *stem, bool control,
                             wm_error_t *err);
void wm_finetune_close(wm_finetune_t *f);

/* --- finetune_fit.c -----------------------------------------------------------------------------
 */

/* Collective. The phase's surrogates that do not exist yet: fitted on the model as it is now, or,
 * of a model that has not learned anything yet, drawn. */
wm_status_t wm_finetune_surrogates(wm_finetune_t *f, wm_error_t *err);

/* --- finetune_run.c -----------------------------------------------------------------------------
 */

/* Collective. Trains from the last checkpoint, or the start, to the end. */
wm_status_t wm_finetune_train(wm_finetune_t *f, wm_error_t *err);

#endif
