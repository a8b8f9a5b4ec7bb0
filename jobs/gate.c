/* gate: gates that decide per token whether a layer's surrogate serves (method.md, section 4).
 *
 *   losses.gates.h5        what each layer's surrogate costs at every position of the gates range
 *   losses.validation.h5   the same on the validation range
 *   gates.fit.h5           gates fitted to the first, checked on the second
 *   routed.validation.h5   losses of the model routed by each gate at each threshold
 *   gates.h5               the gates, with the one that was chosen for each layer
 *
 * A stage that is complete for the same inputs is skipped; one that was killed or stopped goes on
 * from what it kept in NAME.parts. */
#include "gate.h"

#include "gate_sequential.h"
#include "stages.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/memory_room.h"
#include "wanamaker/measure/gate_select.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* --- fit ----------------------------------------------------------------------------------------
 */

static wm_gate_source_t source_of(const wm_text_t *text, const wm_sweep_t *losses) {
  return (wm_gate_source_t){.blocks = &text->blocks,
                            .ids = wm_tokens_ids(text->tokens),
                            .nll = losses != NULL ? losses->nll.data : NULL,
                            .unit = losses != NULL ? losses->units : NULL,
                            .n_units = losses != NULL ? losses->n_units : 0};
}

/* Collective. An empty set. */
static wm_status_t new_gates(wm_gate_job_t *j, wm_error_t *err) {
  const wm_arch_t *arch = wm_model_arch(j->in->model);
  wm_gates_free(j->gates);
  wm_status_t status =
      wm_gates_create(arch->n_layers, arch->d_model,
                      wm_gate_fit_components(&j->options.fit, arch->d_model), &j->gates, err);
  return wm_agree(j->in->run->comm->world, status, err);
}

/* Collective. */
static wm_status_t describe(const wm_gate_job_t *j, wm_h5_t *file, const char *stage, uint64_t key,
                            wm_error_t *err) {
  char fingerprint[WM_STAGE_KEY_SIZE];
  wm_hash_text(wm_surrogates_fingerprint(j->surrogates), fingerprint);
  wm_status_t status;
  WM_TRY(wm_agree(j->in->run->comm->world, wm_model_unchanged(j->in->model, err), err));
  WM_TRY(wm_stage_describe(j->in, file, stage, key, err));
  WM_TRY(wm_h5_set_string(file, "/", "surrogates_fingerprint", fingerprint, err));
  WM_TRY(wm_h5_set_string(file, "/", "range_choice", wm_role_name(j->choice), err));
cleanup:
  return status;
}

/* Collective. Is there room for what the node's ranks will hold? */
static wm_status_t check_memory(const wm_gate_job_t *j, const wm_gate_source_t *fit,
                                const wm_gate_source_t *heldout, wm_error_t *err) {
  const wm_comm_t *comm = j->in->run->comm;
  wm_gate_pass_plan_t plan;
  wm_status_t status = wm_gate_pass_plan(comm, j->in->model, fit, heldout, &j->options, &plan, err);
  if (status == WM_OK && comm->node_rank == 0)
    status = wm_memory_room_check(plan.bytes * comm->node_size, "features and fits of gates", err);
  return wm_agree(comm->world, status, err);
}

/* Collective. features.h5, if it is asked for. */
static wm_status_t open_features(wm_gate_job_t *j, wm_error_t *err) {
  char path[WM_PATH_SIZE];
  j->options.keep = NULL;
  if (!wm_config_bool(j->in->run->config, "gate.keep_features"))
    return WM_OK;
  wm_status_t status = wm_output_path(j->in->run, "features.h5", path, err);
  return status == WM_OK ? wm_h5_create(j->in->run->comm->world, path, &j->options.keep, err)
                         : status;
}

static wm_status_t publish(wm_h5_t **file, wm_error_t *err) {
  wm_h5_t *whole = *file;
  *file = NULL; /* publishing takes it */
  return wm_h5_publish(whole, err);
}

/* Collective. Gates from losses, into gates.fit.h5. */
static wm_status_t fit(wm_gate_job_t *j, const wm_sweep_t *fit_losses,
                       const wm_sweep_t *heldout_losses, wm_error_t *err) {
  const wm_run_t *run = j->in->run;
  const wm_gate_source_t a = source_of(j->fit, fit_losses);
  const wm_gate_source_t b = source_of(j->heldout, heldout_losses);
  wm_h5_t *file = NULL;
  wm_status_t status;
  WM_TRY(check_memory(j, &a, &b, err));
  WM_TRY(wm_h5_create(run->comm->world, j->fit_path, &file, err));
  WM_TRY(open_features(j, err));
  WM_TRY(wm_gate_pass_run(run->comm, j->in->model, &a, &b, &j->options, run->log, j->gates, j->ends,
                          err));
  WM_TRY(wm_gates_write(j->gates, run->comm, file, err));
  WM_TRY(wm_gate_ends_write(j->ends, j->n_layers, run->comm, file, err));
  WM_TRY(describe(j, file, "gates.fit", j->fit_key, err));
  if (j->options.keep != NULL) {
    WM_TRY(describe(j, j->options.keep, "features", j->fit_key, err));
    WM_TRY(publish(&j->options.keep, err));
  }
  WM_TRY(publish(&file, err));
  wm_gate_pass_remove_parts(run->comm, j->fit_parts);
  wm_log(run->log, WM_LOG_INFO, "gates: wrote %s", j->fit_path);
cleanup:
  wm_h5_close(file);
  wm_h5_close(j->options.keep);
  j->options.keep = NULL;
  return status;
}

/* Collective. Gates of an earlier run. */
static wm_status_t read_fit(wm_gate_job_t *j, wm_error_t *err) {
  const wm_run_t *run = j->in->run;
  const wm_arch_t *arch = wm_model_arch(j->in->model);
  wm_h5_t *file = NULL;
  wm_status_t status;
  wm_gates_free(j->gates);
  j->gates = NULL;
  WM_TRY(wm_gates_open(run->comm, j->fit_path, arch->n_layers, arch->d_model, &j->gates, err));
  WM_TRY(wm_h5_open(run->comm->world, j->fit_path, &file, err));
  WM_TRY(wm_gate_ends_read(j->ends, j->n_layers, file, err));
cleanup:
  wm_h5_close(file);
  return status;
}

/* Collective. j->gates, fitted now or before. */
static wm_status_t obtain_fit(wm_gate_job_t *j, const wm_sweep_t *heldout, wm_error_t *err) {
  wm_sweep_t losses = {0};
  wm_status_t status;
  if (j->fit_complete) {
    wm_log(j->in->run->log, WM_LOG_INFO, "gates: %s is complete for these inputs; skipped",
           j->fit_path);
    wm_gate_pass_remove_parts(j->in->run->comm, j->fit_parts); /* of a run that ended after it */
    return read_fit(j, err);
  }
  WM_TRY(wm_losses_obtain(&j->fit_losses, &losses, err));
  WM_TRY(new_gates(j, err));
  WM_TRY(fit(j, &losses, heldout, err));
cleanup:
  wm_sweep_destroy(&losses);
  return status;
}

/* --- choice -------------------------------------------------------------------------------------
 */

/* Collective. The stage that evaluates j->gates. */
static wm_status_t prepare_routed(wm_gate_job_t *j, wm_error_t *err) {
  wm_status_t status = wm_agree(j->in->run->comm->world, wm_gate_variants(j, err), err);
  if (status != WM_OK)
    return status;
  j->routed_losses = (wm_losses_stage_t){.in = j->in,
                                         .text = j->heldout,
                                         .surrogates = j->surrogates,
                                         .variants = &j->routed,
                                         .name = j->routed_name};
  return wm_losses_prepare(&j->routed_losses, err);
}

/* Collective. gates.h5. */
static wm_status_t write_result(const wm_gate_job_t *j, const wm_sweep_t *routed, wm_error_t *err) {
  const wm_run_t *run = j->in->run;
  wm_h5_t *file = NULL;
  wm_status_t status;
  WM_TRY(wm_h5_create(run->comm->world, j->path, &file, err));
  WM_TRY(wm_gates_write(j->gates, run->comm, file, err));
  WM_TRY(wm_gate_ends_write(j->ends, j->n_layers, run->comm, file, err));
  WM_TRY(wm_gate_curve_write(routed, file, err));
  WM_TRY(describe(j, file, "gate", j->key, err));
  WM_TRY(wm_h5_set_string(file, "/", "bootstrap_unit", wm_unit_name(routed->unit), err));
  WM_TRY(wm_h5_set_string(file, "/", "bootstrap_interval",
                          wm_interval_name(j->options.fit.bootstrap.interval), err));
  WM_TRY(wm_h5_set_float(file, "/", "least_routed", j->least_routed, err));
  WM_TRY(publish(&file, err));
  wm_log(run->log, WM_LOG_INFO, "gate: wrote %s", j->path);
cleanup:
  wm_h5_close(file);
  return status;
}

/* Collective. The result for people, also of a run that found all done. */
static wm_status_t show(const wm_gate_job_t *j, const wm_sweep_t *heldout, const wm_sweep_t *routed,
                        wm_error_t *err) {
  const wm_run_t *run = j->in->run;
  wm_status_t status = WM_OK;
  if (run->comm->rank == 0)
    status = wm_output_shown(run, wm_gate_print(j, heldout, routed, err));
  if (run->comm->rank == 0 && status == WM_OK)
    status = wm_output_shown(run, wm_gate_print_ends(j, err));
  return wm_agree(run->comm->world, status, err);
}

static wm_status_t compute(wm_gate_job_t *j, wm_error_t *err) {
  wm_sweep_t heldout = {0}, routed = {0};
  wm_status_t status;
  WM_TRY(wm_losses_obtain(&j->heldout_losses, &heldout, err));
  WM_TRY(obtain_fit(j, &heldout, err));
  WM_TRY(prepare_routed(j, err));
  j->routed_losses.known = &heldout;
  WM_TRY(wm_losses_obtain(&j->routed_losses, &routed, err));
  wm_gate_select(j->gates, &routed, j->least_routed, j->selected);
  if (j->complete)
    wm_log(j->in->run->log, WM_LOG_INFO, "gate: %s is complete for these inputs; skipped", j->path);
  else
    WM_TRY(write_result(j, &routed, err));
  WM_TRY(show(j, &heldout, &routed, err));
  WM_TRY(wm_gate_sequential(j, err));
cleanup:
  wm_sweep_destroy(&heldout);
  wm_sweep_destroy(&routed);
  return status;
}

/* --- dry run ------------------------------------------------------------------------------------
 */

/* Collective. */
static wm_status_t stand_in(wm_gate_job_t *j, wm_error_t *err) {
  wm_status_t status = new_gates(j, err);
  return status == WM_OK ? wm_agree(j->in->run->comm->world, wm_gate_stand_in(j, err), err)
                         : status;
}

static wm_status_t explain_fit(const wm_gate_job_t *j, wm_error_t *err) {
  const wm_run_t *run = j->in->run;
  const wm_gate_source_t a = source_of(j->fit, NULL), b = source_of(j->heldout, NULL);
  wm_gate_pass_plan_t plan;
  char duration[32];
  wm_status_t status = wm_gate_pass_plan(run->comm, j->in->model, &a, &b, &j->options, &plan, err);
  if (status != WM_OK || run->comm->rank != 0)
    return status;
  wm_stage_duration(run, plan.network, 3 * plan.algebra, duration, sizeof duration);
  fprintf(run->out,
          "gates.fit: %s\n  %" PRId64 " gates for each of %" PRId64 " layers, from %s\n"
          "  %" PRId64 " pass(es); memory: %.1f MiB a rank, %.1f MiB of it features\n"
          "  %.3g operations in the network, %.3g in float64; about %s\n",
          j->fit_complete ? "complete, would be skipped" : j->fit_path, j->options.fit.n_specs,
          j->n_layers, j->fit->windows.label, plan.passes, (double)plan.bytes / 0x1p20,
          (double)plan.feature_bytes / 0x1p20, plan.network, plan.algebra, duration);
  return WM_OK;
}

/* Collective. */
static wm_status_t explain(wm_gate_job_t *j, wm_error_t *err) {
  wm_status_t status;
  wm_losses_explain(&j->fit_losses);
  wm_losses_explain(&j->heldout_losses);
  WM_TRY(wm_agree(j->in->run->comm->world, explain_fit(j, err), err));
  WM_TRY(j->fit_complete ? read_fit(j, err) : stand_in(j, err));
  WM_TRY(prepare_routed(j, err));
  wm_losses_explain(&j->routed_losses);
  if (j->in->run->comm->rank == 0)
    fprintf(j->in->run->out, "gate: %s\n", j->complete ? "complete, would be skipped" : j->path);
  WM_TRY(wm_gate_sequential(j, err));
cleanup:
  return status;
}

/* --- job ----------------------------------------------------------------------------------------
 */

/* Collective. The losses of both ranges with every layer linear alone. */
static wm_status_t prepare_losses(wm_gate_job_t *j, wm_error_t *err) {
  wm_status_t status;
  j->fit_losses = (wm_losses_stage_t){.in = j->in,
                                      .text = j->fit,
                                      .surrogates = j->surrogates,
                                      .variants = &j->single,
                                      .name = "losses.gates",
                                      .plain = true};
  j->heldout_losses = j->fit_losses;
  j->heldout_losses.text = j->heldout;
  j->heldout_losses.name = j->heldout_name;
  j->heldout_losses.plain = false; /* what the routed variants are measured by, too */
  WM_TRY(wm_losses_prepare(&j->fit_losses, err));
  WM_TRY(wm_losses_prepare(&j->heldout_losses, err));
  j->options.fit.bootstrap = j->heldout_losses.options.bootstrap;
cleanup:
  return status;
}

/* Collective. */
static wm_status_t open_job(wm_gate_job_t *j, wm_error_t *err) {
  const wm_inputs_t *in = j->in;
  const wm_arch_t *arch = wm_model_arch(in->model);
  char surrogates[WM_PATH_SIZE];
  wm_status_t status;
  WM_TRY(wm_output_path(in->run, "gates.h5", j->path, err));
  WM_TRY(wm_output_path(in->run, "gates.fit.h5", j->fit_path, err));
  WM_TRY(wm_output_path(in->run, "gates.fit.parts", j->fit_parts, err));
  WM_TRY(wm_output_path(in->run, "surrogates.h5", surrogates, err));
  WM_TRY(wm_surrogates_open(in->run->comm, surrogates, arch->n_layers, arch->d_model,
                            wm_config_int(in->run->config, "compute.tile_rows"),
                            wm_compute_of(in->run), &j->surrogates, err));
  WM_TRY(wm_stage_same_fit(in, surrogates, err));
  WM_TRY(wm_agree(in->run->comm->world, wm_gate_settings(j, surrogates, err), err));
  WM_TRY(prepare_losses(j, err));
  j->fit_key = wm_gate_fit_key(
      j, wm_hash(&j->heldout_losses.key, sizeof j->heldout_losses.key, j->fit_losses.key));
  j->key = wm_gate_choice_key(j, j->fit_key);
  j->options.parts = j->fit_parts;
  j->options.parts_key = wm_losses_parts_key(in->run, j->fit_key);
  j->fit_complete = wm_stage_is_complete(in->run, j->fit_path, j->fit_key);
  j->complete = j->fit_complete && wm_stage_is_complete(in->run, j->path, j->key);
cleanup:
  return status;
}

wm_role_t wm_gate_choice(const wm_run_t *run) {
  const char *selection = wm_config_string(run->config, "gate.selection");
  return strcmp(selection, "evaluation") == 0 ? WM_ROLE_EVALUATION : WM_ROLE_VALIDATION;
}

wm_status_t wm_stage_gate(const wm_inputs_t *in, wm_error_t *err) {
  wm_gate_job_t j = {.in = in, .choice = wm_gate_choice(in->run)};
  j.fit = &in->text[WM_ROLE_GATES];
  j.heldout = &in->text[j.choice];
  snprintf(j.heldout_name, sizeof j.heldout_name, "losses.%s", wm_role_name(j.choice));
  snprintf(j.routed_name, sizeof j.routed_name, "routed.%s", wm_role_name(j.choice));
  wm_status_t status = open_job(&j, err);
  if (status == WM_OK)
    status = in->run->dry_run ? explain(&j, err) : compute(&j, err);
  wm_variants_destroy(&j.routed);
  wm_variants_destroy(&j.single);
  wm_gates_free(j.gates);
  wm_surrogates_close(j.surrogates);
  free(j.ends);
  free(j.selected);
  free(j.layers);
  return status;
}

wm_status_t wm_job_gate(const wm_run_t *run, wm_error_t *err) {
  wm_inputs_t inputs;
  wm_status_t status = wm_output_ready(run, err);
  if (status == WM_OK)
    status = wm_tokens_current(run, err);
  if (status != WM_OK)
    return status;
  /* All ranges are opened: none may share tokens with another. */
  const unsigned all = (1u << WM_ROLES) - 1;
  status = wm_inputs_open(run, all, 1u << WM_ROLE_GATES | 1u << wm_gate_choice(run), &inputs, err);
  if (status == WM_OK)
    status = wm_stage_gate(&inputs, err);
  wm_inputs_close(&inputs);
  return status;
}
