#include "gate_sequential.h"

#include "stages.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/measure/gate_select.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* One layer of one set. */
typedef struct {
  const wm_gate_job_t *job;
  wm_sequence_t *seq;  /* the layers before it */
  int64_t set, k;      /* numbers of the set and of the layer in it */
  wm_variants_t model; /* 1: the layers before it, routed; 2: this one linear, too */
  wm_base_t base;
  uint64_t key; /* of the layers before it */
  char surrogates[WM_PATH_SIZE], gates[WM_PATH_SIZE], parts[WM_PATH_SIZE];
} step_t;

/* --- a set --------------------------------------------------------------------------------------
 */

static wm_status_t step_path(const wm_run_t *run, const char *what, int64_t set, int64_t k,
                             const char *ending, char *path, wm_error_t *err) {
  char name[96];
  snprintf(name, sizeof name, "%s.routed-%" PRId64 "-%" PRId64 ".%s", what, set, k, ending);
  return wm_output_path(run, name, path, err);
}

/* Collective. Room for the set. */
static wm_status_t create(const wm_inputs_t *in, const int64_t *layers, int64_t n,
                          wm_sequence_t *seq, wm_error_t *err) {
  const wm_run_t *run = in->run;
  const wm_arch_t *arch = wm_model_arch(in->model);
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, arch->n_layers, sizeof(int64_t), "a set of layers", err));
  seq->layers = memory;
  WM_TRY(wm_alloc(&memory, n, sizeof(wm_change_t), "a set of layers", err));
  seq->changes = memory;
  WM_TRY(
      wm_layer_list("sweep.routed", layers, n, arch->n_layers, seq->layers, &seq->n_layers, err));
cleanup:
  status = wm_agree(run->comm->world, status, err);
  if (status == WM_OK)
    status = wm_surrogates_create_empty(run->comm, seq->layers, n, arch->n_layers, arch->d_model,
                                        wm_config_int(run->config, "compute.tile_rows"),
                                        wm_compute_of(run), &seq->surrogates, err);
  return status;
}

void wm_sequence_destroy(wm_sequence_t *seq) {
  wm_surrogates_close(seq->surrogates);
  wm_gates_free(seq->gates);
  free(seq->layers);
  free(seq->changes);
  *seq = (wm_sequence_t){0};
}

/* How a layer is routed: by the gate that was chosen, or by its linear one. */
static wm_status_t find_change(const wm_gates_t *gates, int64_t layer, wm_change_t *out,
                               wm_error_t *err) {
  const wm_gate_layer_t *l = wm_gates_layer(gates, layer);
  int64_t gate = l != NULL ? l->selected : -1;
  const bool chosen = gate >= 0;
  for (int64_t g = 0; l != NULL && gate < 0 && g < gates->n; g++)
    if (gates->gates[g].layer == layer && gates->gates[g].kind == WM_GATE_LINEAR)
      gate = g;
  if (gate < 0)
    return wm_fail(err, WM_USAGE,
                   "sweep.routed: layer %" PRId64 " has no gate that was chosen, and no linear one "
                   "(gate.layers, gate.kinds)",
                   layer);
  *out = (wm_change_t){layer, gate, chosen ? l->selected_threshold : gates->gates[gate].threshold};
  return WM_OK;
}

/* --- a step -------------------------------------------------------------------------------------
 */

static int64_t layer_of(const step_t *s) {
  return s->seq->layers[s->k];
}

/* A variant of the layers before and, unless layer_change is NULL, this one. */
static wm_status_t add_variant(const step_t *s, const wm_change_t *layer_change,
                               wm_variants_t *variants, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, s->k + 1, sizeof(wm_change_t), "a variant", err);
  if (status != WM_OK)
    return status;
  wm_change_t *changes = memory;
  memcpy(changes, s->seq->changes, (size_t)s->k * sizeof *changes);
  if (layer_change != NULL)
    changes[s->k] = *layer_change;
  status = wm_variants_add_changes(variants, changes, s->k + (layer_change != NULL),
                                   s->seq->gates->n_layers, err);
  free(memory);
  return status;
}

/* What the layers before are. */
static uint64_t model_key(const step_t *s) {
  const uint64_t keys[] = {s->job->key, wm_surrogates_fingerprint(s->seq->surrogates)};
  return wm_variants_fingerprint(&s->model, wm_hash(keys, sizeof keys, 0));
}

static wm_status_t open_step(step_t *s, wm_error_t *err) {
  const wm_run_t *run = s->job->in->run;
  const wm_change_t linear = {layer_of(s), -1, 0};
  wm_status_t status;
  WM_TRY(wm_variants_create(&s->model, err));
  s->model.gates = s->seq->gates;
  WM_TRY(add_variant(s, NULL, &s->model, err));
  s->base = (wm_base_t){s->seq->surrogates, &s->model, 1};
  s->key = model_key(s);
  WM_TRY(add_variant(s, &linear, &s->model, err));
  WM_TRY(step_path(run, "surrogates", s->set, s->k, "h5", s->surrogates, err));
  WM_TRY(step_path(run, "surrogates", s->set, s->k, "parts", s->parts, err));
  WM_TRY(step_path(run, "gates", s->set, s->k, "h5", s->gates, err));
cleanup:
  return wm_agree(run->comm->world, status, err);
}

/* Collective. Losses of the model and with the layer linear, on one range. */
static wm_status_t measure_model(const step_t *s, const wm_text_t *text, wm_role_t role,
                                 wm_sweep_t *out, wm_error_t *err) {
  char name[96];
  snprintf(name, sizeof name, "losses.routed-%" PRId64 "-%" PRId64 ".%s", s->set, s->k,
           wm_role_name(role));
  wm_losses_stage_t stage = {.in = s->job->in,
                             .text = text,
                             .surrogates = s->seq->surrogates,
                             .variants = &s->model,
                             .name = name,
                             .plain = true};
  wm_status_t status = wm_losses_prepare(&stage, err);
  return status == WM_OK ? wm_losses_obtain(&stage, out, err) : status;
}

static wm_gate_source_t source_of(const wm_text_t *text, const wm_sweep_t *losses) {
  return (wm_gate_source_t){.blocks = &text->blocks,
                            .ids = wm_tokens_ids(text->tokens),
                            .nll = (const float *)losses->nll.data + text->windows.n_predicted,
                            .unit = losses->units,
                            .n_units = losses->n_units};
}

/* Collective. Gates of the layer into the set's. */
static wm_status_t fit_gates(const step_t *s, const wm_sweep_t *fit, const wm_sweep_t *heldout,
                             wm_error_t *err) {
  const wm_gate_job_t *j = s->job;
  const wm_run_t *run = j->in->run;
  const int64_t layer = layer_of(s);
  const wm_gate_source_t a = source_of(j->fit, fit), b = source_of(j->heldout, heldout);
  wm_gate_pass_options_t o = j->options;
  wm_gate_spec_t specs[WM_GATE_SPECS];
  wm_gate_ends_t ends;
  o.fit.n_specs = 0;
  for (int64_t i = 0; i < j->options.fit.n_specs; i++)
    if (j->specs[i].kind != WM_GATE_ORACLE)
      specs[o.fit.n_specs++] = j->specs[i];
  o.fit.specs = specs;
  o.layers = &layer;
  o.n_layers = 1;
  o.base = &s->base;
  o.keep = NULL;
  o.parts = NULL; /* one layer is nothing to keep a part of */
  return wm_gate_pass_run(run->comm, j->in->model, &a, &b, &o, run->log, s->seq->gates, &ends, err);
}

/* Variants of the model with the layer routed by each of its gates, behind the model itself. */
static wm_status_t list_candidates(const step_t *s, wm_variants_t *variants, wm_error_t *err) {
  const wm_gates_t *gates = s->seq->gates;
  void *memory = NULL;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, 1 + s->job->n_thresholds, sizeof(double), "thresholds", err));
  double *thresholds = memory;
  WM_TRY(wm_variants_create(variants, err));
  variants->gates = gates;
  WM_TRY(add_variant(s, NULL, variants, err));
  for (int64_t g = 0; g < gates->n; g++) {
    if (gates->gates[g].layer != layer_of(s))
      continue;
    const int64_t n = wm_gate_curve(s->job, &gates->gates[g], thresholds);
    for (int64_t i = 0; i < n; i++)
      WM_TRY(add_variant(s, &(wm_change_t){layer_of(s), g, thresholds[i]}, variants, err));
  }
cleanup:
  free(memory);
  return status;
}

/* Collective. The layer's gate and threshold, as the job gate chooses them (gate_select.h). */
static wm_status_t choose(const step_t *s, wm_error_t *err) {
  const wm_gate_job_t *j = s->job;
  wm_variants_t variants = {0};
  wm_sweep_t sweep = {0};
  char name[96];
  wm_status_t status = list_candidates(s, &variants, err);
  WM_TRY(wm_agree(j->in->run->comm->world, status, err));
  snprintf(name, sizeof name, "routed-%" PRId64 "-%" PRId64 ".%s", s->set, s->k,
           wm_role_name(j->choice));
  wm_losses_stage_t stage = {.in = j->in,
                             .text = j->heldout,
                             .surrogates = s->seq->surrogates,
                             .variants = &variants,
                             .name = name,
                             .plain = true};
  WM_TRY(wm_losses_prepare(&stage, err));
  WM_TRY(wm_losses_obtain(&stage, &sweep, err));
  wm_gate_select_last(s->seq->gates, &sweep, layer_of(s), j->least_routed);
cleanup:
  wm_sweep_destroy(&sweep);
  wm_variants_destroy(&variants);
  return status;
}

static uint64_t gates_key(const step_t *s) {
  const uint64_t keys[] = {s->key, wm_surrogates_fingerprint(s->seq->surrogates)};
  return wm_hash(keys, sizeof keys, (uint64_t)layer_of(s));
}

/* Collective. */
static wm_status_t write_gates(const step_t *s, wm_error_t *err) {
  const wm_inputs_t *in = s->job->in;
  char set[256], untouched[WM_STAGE_KEY_SIZE];
  wm_variants_label(&s->model, 1, set, sizeof set); /* the layers before */
  wm_hash_text(wm_surrogates_fingerprint(s->job->surrogates), untouched);
  wm_h5_t *file = NULL;
  wm_status_t status;
  WM_TRY(wm_h5_create(in->run->comm->world, s->gates, &file, err));
  WM_TRY(wm_gates_write(s->seq->gates, in->run->comm, file, err));
  WM_TRY(wm_agree(in->run->comm->world, wm_model_unchanged(in->model, err), err));
  WM_TRY(wm_stage_describe(in, file, "gates.routed", gates_key(s), err));
  WM_TRY(wm_h5_set_string(file, "/", "surrogates_fingerprint", untouched, err));
  WM_TRY(wm_h5_set_string(file, "/", "routed_before", set, err));
  WM_TRY(wm_h5_set_string(file, "/", "range_choice", wm_role_name(s->job->choice), err));
  wm_h5_t *whole = file;
  file = NULL; /* publishing takes it */
  WM_TRY(wm_h5_publish(whole, err));
  wm_log(in->run->log, WM_LOG_INFO, "gates: wrote %s", s->gates);
cleanup:
  wm_h5_close(file);
  return status;
}

/* Collective. The layer's gates with the choice, as new ones or those of an earlier run. */
static wm_status_t obtain_gates(const step_t *s, wm_error_t *err) {
  const wm_gate_job_t *j = s->job;
  const wm_run_t *run = j->in->run;
  const wm_arch_t *arch = wm_model_arch(j->in->model);
  wm_sweep_t fit = {0}, heldout = {0};
  wm_gates_t *gates = NULL;
  wm_status_t status;
  if (wm_stage_is_complete(run, s->gates, gates_key(s))) {
    wm_log(run->log, WM_LOG_INFO, "gates: %s is complete for these inputs; skipped", s->gates);
    WM_TRY(wm_gates_open(run->comm, s->gates, arch->n_layers, arch->d_model, &gates, err));
    WM_TRY(wm_agree(run->comm->world, wm_gates_copy(s->seq->gates, gates, layer_of(s), err), err));
    goto cleanup;
  }
  WM_TRY(measure_model(s, j->fit, WM_ROLE_GATES, &fit, err));
  WM_TRY(measure_model(s, j->heldout, j->choice, &heldout, err));
  WM_TRY(fit_gates(s, &fit, &heldout, err));
  WM_TRY(choose(s, err));
  WM_TRY(write_gates(s, err));
cleanup:
  wm_gates_free(gates);
  wm_sweep_destroy(&fit);
  wm_sweep_destroy(&heldout);
  return status;
}

/* Collective. Layer number k of the set, the ones before being there. */
static wm_status_t take_step(step_t *s, wm_error_t *err) {
  const wm_run_t *run = s->job->in->run;
  wm_sequence_t *seq = s->seq;
  wm_status_t status;
  WM_TRY(open_step(s, err));
  WM_TRY(wm_stage_fit_on(s->job->in, layer_of(s), &s->base, s->key, s->surrogates, s->parts, err));
  WM_TRY(wm_surrogates_put_filed(seq->surrogates, run->comm, s->surrogates, layer_of(s), err));
  WM_TRY(obtain_gates(s, err));
  status = find_change(seq->gates, layer_of(s), &seq->changes[s->k], err);
  WM_TRY(wm_agree(run->comm->world, status, err));
  seq->n = s->k + 1;
cleanup:
  wm_variants_destroy(&s->model);
  return status;
}

/* Collective. The first layer, from what was fitted on the untouched model. */
static wm_status_t begin(const wm_inputs_t *in, const wm_gates_t *untouched, wm_sequence_t *seq,
                         wm_error_t *err) {
  const wm_run_t *run = in->run;
  const int64_t layer = seq->layers[0];
  char path[WM_PATH_SIZE];
  wm_status_t status = find_change(untouched, layer, &seq->changes[0], err);
  if (status == WM_OK)
    status = wm_gates_create(untouched->n_layers, untouched->d, untouched->k, &seq->gates, err);
  if (status == WM_OK)
    status = wm_gates_copy(seq->gates, untouched, layer, err);
  if (status == WM_OK) /* numbers of gates are those of the copy */
    status = find_change(seq->gates, layer, &seq->changes[0], err);
  if (status == WM_OK)
    status = wm_output_path(run, "surrogates.h5", path, err);
  WM_TRY(wm_agree(run->comm->world, status, err));
  WM_TRY(wm_surrogates_put_filed(seq->surrogates, run->comm, path, layer, err));
  seq->n = 1;
cleanup:
  return status;
}

/* --- all sets -----------------------------------------------------------------------------------
 */

static wm_status_t make_set(const wm_gate_job_t *j, int64_t set, const int64_t *layers, int64_t n,
                            wm_error_t *err) {
  const wm_run_t *run = j->in->run;
  wm_sequence_t seq = {0};
  wm_status_t status;
  WM_TRY(create(j->in, layers, n, &seq, err));
  WM_TRY(begin(j->in, j->gates, &seq, err));
  for (int64_t k = 1; k < seq.n_layers; k++) {
    step_t s = {.job = j, .seq = &seq, .set = set, .k = k};
    wm_log(run->log, WM_LOG_INFO,
           "gate: set %" PRId64 " of sweep.routed, layer %" PRId64 " (%" PRId64 " of %" PRId64 ")",
           set, seq.layers[k], k + 1, seq.n_layers);
    WM_TRY(take_step(&s, err));
  }
cleanup:
  wm_sequence_destroy(&seq);
  return status;
}

wm_status_t wm_gate_sequential(const wm_gate_job_t *j, wm_error_t *err) {
  const wm_run_t *run = j->in->run;
  const int64_t *offsets;
  int64_t n, steps = 0;
  const int64_t *sets = wm_config_lists(run->config, "sweep.routed", &offsets, &n);
  wm_status_t status = WM_OK;
  if (!wm_config_bool(run->config, "fit.sequential") || n == 0)
    return WM_OK;
  for (int64_t i = 0; i < n; i++)
    steps += offsets[i + 1] - offsets[i] - 1;
  if (run->dry_run) {
    if (run->comm->rank == 0)
      fprintf(run->out,
              "sequential gates: %" PRId64 " set(s) of sweep.routed, %" PRId64
              " step(s), each a fit of one surrogate, losses of 2 variants on %s and %s, a fit of "
              "gates, and losses with each of them\n",
              n, steps, j->fit->windows.label, j->heldout->windows.label);
    return WM_OK;
  }
  for (int64_t i = 0; i < n && status == WM_OK; i++)
    status = make_set(j, i, sets + offsets[i], offsets[i + 1] - offsets[i], err);
  return status;
}

/* --- what was made ------------------------------------------------------------------------------
 */

/* Collective. Is the set's last file there, and of these inputs? */
static bool is_current(const wm_inputs_t *in, const wm_surrogates_t *untouched, const char *path) {
  static const char *const names[] = {"model_fingerprint", "surrogates_fingerprint",
                                      "text_fingerprint_fit", "text_fingerprint_gates"};
  const uint64_t keys[] = {wm_model_fingerprint(in->model), wm_surrogates_fingerprint(untouched),
                           wm_text_fingerprint(&in->text[WM_ROLE_FIT], 0),
                           wm_text_fingerprint(&in->text[WM_ROLE_GATES], 0)};
  char texts[4][WM_STAGE_KEY_SIZE];
  const char *values[4];
  for (int i = 0; i < 4; i++) {
    wm_hash_text(keys[i], texts[i]);
    values[i] = texts[i];
  }
  return wm_result_matches(in->run, path, false, 4, names, values);
}

/* The set's gates must be those of its layers. */
static wm_status_t read_changes(wm_sequence_t *seq, const char *path, wm_error_t *err) {
  bool same = seq->gates->n_described == seq->n_layers;
  wm_status_t status = WM_OK;
  for (int64_t i = 0; i < seq->n_layers && same; i++)
    same = seq->gates->layers[i].layer == seq->layers[i];
  if (!same)
    return wm_fail(err, WM_INPUT, "%s: is of another set of layers; run the job gate again", path);
  for (int64_t i = 0; i < seq->n_layers && status == WM_OK; i++)
    status = find_change(seq->gates, seq->layers[i], &seq->changes[i], err);
  return status;
}

wm_status_t wm_sequence_read(const wm_inputs_t *in, const wm_surrogates_t *untouched, int64_t set,
                             const int64_t *layers, int64_t n, wm_sequence_t *seq,
                             wm_error_t *err) {
  const wm_run_t *run = in->run;
  const wm_arch_t *arch = wm_model_arch(in->model);
  char path[WM_PATH_SIZE], gates[WM_PATH_SIZE];
  *seq = (wm_sequence_t){0};
  wm_status_t status;
  if (n < 2)
    return WM_OK; /* one layer is what it is on the untouched model */
  WM_TRY(step_path(run, "gates", set, n - 1, "h5", gates, err));
  if (!is_current(in, untouched, gates)) {
    wm_log(run->log, WM_LOG_WARN,
           "sweep: set %" PRId64 " of sweep.routed has no sequential gates of these inputs (%s); "
           "run the job gate again",
           set, gates);
    return WM_OK;
  }
  WM_TRY(create(in, layers, n, seq, err));
  WM_TRY(wm_gates_open(run->comm, gates, arch->n_layers, arch->d_model, &seq->gates, err));
  WM_TRY(wm_agree(run->comm->world, read_changes(seq, gates, err), err));
  for (int64_t k = 0; k < n; k++) {
    status = k == 0 ? wm_output_path(run, "surrogates.h5", path, err)
                    : step_path(run, "surrogates", set, k, "h5", path, err);
    WM_TRY(wm_agree(run->comm->world, status, err));
    WM_TRY(wm_surrogates_put_filed(seq->surrogates, run->comm, path, seq->layers[k], err));
  }
  seq->n = n;
cleanup:
  return status;
}
