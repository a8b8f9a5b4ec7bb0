/* finetune: linearise and fine-tune, or its control (method.md, section 8). */
#include "finetune.h"

#include "stages.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/memory_room.h"

#include <inttypes.h>
#include <string.h>

/* --- estimates ----------------------------------------------------------------------------------
 */

typedef struct {
  int64_t trained;          /* parameters of the phase that trains most */
  int64_t rank, node;       /* bytes: of a rank, of a node without its ranks' */
  double flops, evaluation; /* operations of all steps and evaluations */
} needs_t;

static bool trains(const wm_phase_t *p, const wm_parameter_t *t) {
  if ((p->groups & 1u << t->group) == 0)
    return false;
  return t->group != WM_GROUP_MLP || p->modes[t->layer] == WM_MODE_FULL;
}

/* Operations of a forward pass of one position in a phase. */
static double forward_flops(const wm_finetune_t *f, const wm_phase_t *p, double context) {
  const wm_arch_t *a = wm_model_arch(f->inputs.model);
  double flops = wm_arch_flops_head(a);
  for (int64_t l = 0; l < a->n_layers; l++) {
    flops += wm_arch_flops_layer(a) + wm_arch_flops_attention(a, context);
    if (p->modes[l] == WM_MODE_LINEAR)
      flops += wm_arch_flops_surrogate(a) - wm_arch_flops_mlp(a);
    if (p->modes[l] == WM_MODE_GATED)
      flops += wm_arch_flops_surrogate(a);
  }
  return flops;
}

static int64_t evaluations_of(const wm_finetune_t *f, const wm_phase_t *p) {
  const int64_t every = wm_config_int(f->run->config, "finetune.evaluate_every");
  return 2 + (every > 0 ? (p->steps - 1) / every : 0);
}

static wm_status_t add_phase(const wm_finetune_t *f, int64_t phase, needs_t *needs,
                             wm_error_t *err) {
  const wm_phase_t *p = &f->plan.phases[phase];
  const double context = (double)f->order.length / 2;
  const double forward = forward_flops(f, p, context);
  const double tokens = (double)p->steps * (double)(f->order.sequences * f->order.length);
  int64_t count, trained = 0;
  const wm_parameter_t *all = wm_training_parameters(f->table, &count);
  void *paths = NULL, *frozen = NULL;
  wm_status_t status;
  WM_TRY(wm_alloc(&paths, f->plan.model_layers, sizeof(wm_layer_path_t), "layers", err));
  WM_TRY(wm_alloc(&frozen, f->plan.model_layers, sizeof(bool), "layers", err));
  const wm_training_options_t o = wm_finetune_options(f, phase, paths, frozen);
  for (int64_t i = 0; i < count; i++)
    if (trains(p, &all[i]))
      trained += all[i].elements;
  const int64_t d = wm_model_arch(f->inputs.model)->d_model;
  for (int64_t l = 0; l < f->plan.model_layers && o.train_surrogates; l++)
    trained += p->modes[l] == WM_MODE_LINEAR || p->modes[l] == WM_MODE_GATED ? d * (d + 1) : 0;
  const int64_t rank = wm_training_saved_bytes(f->inputs.model, &o) +
                       wm_training_scratch_bytes(f->inputs.model, &o) +
                       wm_trainer_bytes(trained, f->run->comm->size);
  if (trained == 0 && p->steps > 0 && (p->groups & 1u << WM_GROUP_GATES) == 0)
    WM_TRY(wm_fail(err, WM_USAGE,
                   "%s: nothing trains in phase \"%s\": the model has no parameters of "
                   "finetune.train = \"%s\" beside those of linear layers, which are fixed",
                   f->stem, p->name, wm_config_string(f->run->config, "finetune.train")));
  needs->trained = trained > needs->trained ? trained : needs->trained;
  needs->rank = rank > needs->rank ? rank : needs->rank;
  needs->flops += tokens * ((o.checkpointing ? 4 : 3) * forward +
                            wm_arch_flops_head(wm_model_arch(f->inputs.model)));
  for (int64_t i = 0; i < f->n_evaluations; i++)
    needs->evaluation += (double)evaluations_of(f, p) * forward *
                         (double)f->evaluations[i].text->windows.n_positions;
cleanup:
  free(paths);
  free(frozen);
  return status;
}

static wm_status_t estimate(const wm_finetune_t *f, needs_t *needs, wm_error_t *err) {
  const int64_t d = wm_model_arch(f->inputs.model)->d_model;
  wm_status_t status = WM_OK;
  *needs = (needs_t){0};
  needs->node =
      wm_model_shared_bytes(f->inputs.model) +
      (f->surrogates != NULL ? f->settings.n_layers * d * (d + 1) : 0) * (int64_t)sizeof(float);
  for (int64_t i = 0; i < f->plan.n && status == WM_OK; i++)
    status = add_phase(f, i, needs, err);
  return status;
}

static void explain_order(const wm_finetune_t *f) {
  const wm_data_order_t *o = &f->order;
  fprintf(f->run->out,
          "  %" PRId64 " x %" PRId64 " tokens a step, %s, from tokens [%" PRId64 ", %" PRId64
          ") of corpus %s; %" PRId64 " steps, %.4g tokens\n",
          o->sequences, o->length,
          o->starts == WM_STARTS_RANDOM ? "starting anywhere" : "fresh ones", o->begin, o->end,
          wm_data_info(f->data)->corpus, f->plan.steps,
          (double)f->plan.steps * (double)(o->sequences * o->length));
}

/* On rank 0. */
static void explain(const wm_finetune_t *f, const needs_t *needs, bool complete) {
  const wm_run_t *run = f->run;
  const wm_comm_t *comm = run->comm;
  char duration[32];
  if (comm->rank != 0)
    return;
  wm_stage_duration(run, needs->flops + needs->evaluation, 0, duration, sizeof duration);
  fprintf(run->out, "%s: plan %s%s\n", f->stem, wm_plan_name(f->settings.kind),
          complete ? ", complete, would be skipped" : "");
  for (int64_t i = 0; i < f->plan.n; i++) {
    const wm_phase_t *p = &f->plan.phases[i];
    int64_t replaced = 0;
    for (int64_t l = 0; l < f->plan.model_layers; l++)
      replaced += p->modes[l] == WM_MODE_LINEAR || p->modes[l] == WM_MODE_GATED;
    fprintf(run->out, "  phase \"%s\": %" PRId64 " steps, %" PRId64 " layers linear or gated\n",
            p->name, p->steps, replaced);
  }
  explain_order(f);
  for (int64_t i = 0; i < f->n_evaluations; i++)
    fprintf(run->out, "  evaluated on %s\n", f->evaluations[i].text->windows.label);
  const double gib = 0x1p30, rank = (double)needs->rank / gib, node = (double)needs->node / gib;
  fprintf(run->out,
          "  %" PRId64 " parameters train\n"
          "  memory: %.3f GiB a rank (gradients, its share of moments, activations), weights %.3f "
          "GiB a node; %.3f GiB a node of %d ranks\n"
          "  checkpoint: %.3f GiB, two generations\n"
          "  %.3g operations in steps, %.3g in evaluations; about %s\n",
          needs->trained, rank, node, node + rank * comm->node_size, comm->node_size,
          (4.0 * (double)wm_model_parameters(f->inputs.model) + 8.0 * (double)needs->trained) / gib,
          needs->flops, needs->evaluation, duration);
}

/* Collective. What the node's ranks will take together must be there. */
static wm_status_t check_memory(const wm_finetune_t *f, const needs_t *needs, wm_error_t *err) {
  const wm_comm_t *comm = f->run->comm;
  wm_status_t status = WM_OK;
  if (comm->node_rank == 0)
    status = wm_memory_room_check(needs->rank * comm->node_size,
                                  "gradients, moments and activations of training", err);
  status = wm_agree(comm->world, status, err);
  if (status != WM_OK && f->run->dry_run) {
    wm_log(f->run->log, WM_LOG_WARN, "%s", err->message);
    return WM_OK;
  }
  return status;
}

/* --- job ----------------------------------------------------------------------------------------
 */

/* Collective. Is there a result, and the model, of these settings? */
static bool is_complete(const wm_finetune_t *f) {
  char result[WM_PATH_SIZE], model[WM_PATH_SIZE];
  wm_error_t ignored = {0};
  return wm_finetune_path(f, "h5", result, &ignored) == WM_OK &&
         wm_finetune_path(f, "model.h5", model, &ignored) == WM_OK &&
         wm_stage_is_complete(f->run, result, f->key) &&
         wm_stage_is_complete(f->run, model, f->key);
}

/* Collective. Losses and the model don't depend on bootstrap's settings, so that a result is
 * complete for any; what it says of intervals does. */
static void tell_other_statistics(const wm_finetune_t *f) {
  char result[WM_PATH_SIZE], own[WM_HASH_TEXT], *found = NULL;
  wm_h5_t *file = NULL;
  wm_error_t ignored = {0};
  wm_finetune_statistics(f->run, own);
  if (wm_finetune_path(f, "h5", result, &ignored) == WM_OK &&
      wm_h5_open(f->run->comm->world, result, &file, &ignored) == WM_OK &&
      wm_h5_get_string(file, "/", "bootstrap_key", &found, &ignored) == WM_OK &&
      strcmp(found, own) != 0)
    wm_log(f->run->log, WM_LOG_WARN,
           "%s: its intervals and p-values are of other settings of bootstrap, and stay as they "
           "are; for new ones remove it and train again",
           result);
  free(found);
  wm_h5_close(file);
}

/* Collective. One plan, from start or checkpoint to its result. */
static wm_status_t run_plan(const wm_run_t *run, const char *stem, bool control, wm_error_t *err) {
  wm_finetune_t f;
  needs_t needs;
  wm_status_t status;
  WM_TRY(wm_finetune_open(&f, run, stem, control, err));
  WM_TRY(wm_agree(run->comm->world, estimate(&f, &needs, err), err));
  bool complete = is_complete(&f);
  WM_TRY(check_memory(&f, &needs, err));
  if (run->dry_run) {
    explain(&f, &needs, complete);
  } else if (complete) {
    wm_log(run->log, WM_LOG_INFO, "%s: complete for these inputs; skipped", stem);
    tell_other_statistics(&f);
    wm_finetune_remove_checkpoints(&f);
  } else {
    WM_TRY(wm_finetune_train(&f, err));
    WM_TRY(wm_finetune_save_model(&f, err));
    WM_TRY(wm_finetune_publish(&f, err));
    wm_finetune_remove_checkpoints(&f);
  }
cleanup:
  wm_finetune_close(&f);
  return status;
}

wm_status_t wm_job_finetune(const wm_run_t *run, wm_error_t *err) {
  const char *plan = wm_config_string(run->config, "finetune.plan");
  const bool compare = wm_config_bool(run->config, "finetune.compare");
  wm_status_t status = WM_OK;
  if (compare &&
      (strncmp(plan, "control", strlen("control")) == 0 || strcmp(plan, "pretrain") == 0))
    return wm_fail(err, WM_USAGE, "finetune.compare: the plan %s has no control", plan);
  WM_TRY(wm_output_ready(run, err));
  WM_TRY(wm_tokens_current(run, err));
  WM_TRY(run_plan(run, "finetune", false, err));
  if (!compare)
    return WM_OK;
  WM_TRY(run_plan(run, "control", true, err));
  if (!run->dry_run)
    WM_TRY(wm_finetune_compare(run, err));
cleanup:
  return status;
}
