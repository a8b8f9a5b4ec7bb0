/* finetune: what a run needs, opened. */
#include "finetune.h"
#include "stages.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/io/files.h"

#include <math.h>
#include <string.h>

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
  const wm_training_options_t nothing = {
      .max_rows = 1, .max_length = 1, .gate_hidden = 1, .logits_bytes = 1};
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
