/* gate: gates that decide per token whether a layer's surrogate serves (method.md, section 4). */
#include "inputs.h"
#include "losses.h"
#include "stages.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/measure/gate_pass.h"
#include "wanamaker/report/table.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_SPECS = 64 };

/* One run of the job and what it is made of. */
typedef struct {
  const wm_inputs_t *in;
  const wm_text_t *fit, *heldout;
  wm_surrogates_t *surrogates;
  wm_variants_t single; /* every layer's surrogate alone */
  int64_t *layers, n_layers;
  wm_gate_spec_t specs[MAX_SPECS];
  wm_gate_pass_options_t options;
  wm_losses_stage_t fit_losses, heldout_losses;
  wm_gates_t *gates;
  wm_gate_ends_t *ends; /* [n_layers] */
  char path[WM_PATH_SIZE];
} job_t;

/* --- settings -----------------------------------------------------------------------------------
 */

/* Is `word` among the blank-separated words of `text`? */
static bool has_word(const char *text, const char *word) {
  const size_t length = strlen(word);
  for (const char *at = text; *at != '\0'; at += strcspn(at, " ")) {
    at += strspn(at, " ");
    if (strncmp(at, word, length) == 0 && (at[length] == ' ' || at[length] == '\0'))
      return true;
  }
  return false;
}

static wm_status_t check_kinds(const char *kinds, wm_error_t *err) {
  char word[32];
  int used;
  for (const char *at = kinds; sscanf(at, " %31s%n", word, &used) == 1; at += used) {
    wm_gate_kind_t kind;
    if (strcmp(word, "all") != 0 && !wm_gate_kind_parse(word, &kind))
      return wm_fail(
          err, WM_USAGE,
          "gate.kinds: \"%s\" is no kind of gate; there are linear, pca, component, norm, "
          "max_abs, kurtosis, random, oracle, and all of them by \"all\"",
          word);
  }
  return WM_OK;
}

static wm_status_t add_spec(job_t *j, wm_gate_kind_t kind, int64_t components, wm_error_t *err) {
  if (j->options.fit.n_specs == MAX_SPECS)
    return wm_fail(err, WM_USAGE, "more than %d gates for a layer", MAX_SPECS);
  j->specs[j->options.fit.n_specs++] = (wm_gate_spec_t){kind, components};
  return WM_OK;
}

/* A gate per kind, of pca and component one per number in a list; in the order of kinds. */
static wm_status_t read_specs(job_t *j, wm_error_t *err) {
  const wm_config_t *c = j->in->run->config;
  const char *kinds = wm_config_string(c, "gate.kinds");
  wm_status_t status = check_kinds(kinds, err);
  for (int k = 0; k < WM_GATE_KINDS && status == WM_OK; k++) {
    const wm_gate_kind_t kind = (wm_gate_kind_t)k;
    if (!has_word(kinds, "all") && !has_word(kinds, wm_gate_kind_name(kind)))
      continue;
    if (kind != WM_GATE_PCA && kind != WM_GATE_COMPONENT) {
      status = add_spec(j, kind, 0, err);
      continue;
    }
    const bool pca = kind == WM_GATE_PCA;
    int64_t n;
    const int64_t *sizes = wm_config_ints(c, pca ? "gate.bottlenecks" : "gate.components", &n);
    for (int64_t i = 0; i < n && status == WM_OK; i++)
      status = add_spec(j, kind, pca ? 2 * sizes[i] : sizes[i], err);
  }
  if (status == WM_OK && j->options.fit.n_specs == 0)
    status = wm_fail(err, WM_USAGE, "gate.kinds = \"%s\" names no gate", kinds);
  return status;
}

/* Layers that get gates, and each one's surrogate as a variant. */
static wm_status_t read_layers(job_t *j, const char *where, wm_error_t *err) {
  const int64_t n_layers = wm_model_arch(j->in->model)->n_layers;
  int64_t count, have;
  const int64_t *given = wm_config_ints(j->in->run->config, "gate.layers", &count);
  const int64_t *all = wm_surrogates_layers(j->surrogates, &have);
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, n_layers, sizeof(int64_t), "layers", err));
  j->layers = memory;
  WM_TRY(wm_layer_list("gate.layers", count > 0 ? given : all, count > 0 ? count : have, n_layers,
                       j->layers, &j->n_layers, err));
  WM_TRY(wm_variants_create(&j->single, err));
  for (int64_t i = 0; i < j->n_layers; i++) {
    if (!wm_surrogates_has(j->surrogates, j->layers[i]))
      return wm_fail(err, WM_USAGE, "gate.layers: layer %" PRId64 " has no surrogate in %s",
                     j->layers[i], where);
    WM_TRY(wm_variants_add(&j->single, &j->layers[i], 1, n_layers, err));
  }
cleanup:
  return status;
}

static wm_status_t read_settings(job_t *j, const char *surrogates, wm_error_t *err) {
  const wm_config_t *c = j->in->run->config;
  void *memory = NULL;
  wm_status_t status;
  WM_TRY(read_layers(j, surrogates, err));
  j->options = (wm_gate_pass_options_t){
      .layers = j->layers,
      .n_layers = j->n_layers,
      .fit = {.specs = j->specs,
              .C = 1,
              .threshold = 0.5,
              .seed = (uint64_t)wm_config_int(c, "gate.seed"),
              .block = (int)wm_config_int(c, "fit.block")},
      .feature_bytes = (int64_t)(wm_config_float(c, "gate.memory_gib") * 0x1p30),
      .least_count = wm_config_int(c, "gate.least_count")};
  WM_TRY(read_specs(j, err));
  WM_TRY(wm_alloc(&memory, j->n_layers, sizeof(wm_gate_ends_t), "ends of directions", err));
  j->ends = memory;
cleanup:
  return status;
}

/* --- output -------------------------------------------------------------------------------------
 */

static void add_row(wm_table_t *t, const wm_gate_t *g) {
  const wm_gate_report_t *r = &g->report;
  char label[32];
  wm_gate_label(g, label, sizeof label);
  wm_table_int(t, g->layer);
  wm_table_text(t, label);
  wm_table_int(t, r->parameters);
  wm_table_float(t, r->auc);
  wm_table_float(t, r->auc_heldout);
  wm_table_float(t, r->accuracy_heldout);
  wm_table_float(t, 100 * r->routed_heldout);
  wm_table_float(t, r->r_delta_heldout);
  wm_table_text(t, r->note);
}

static wm_status_t print_table(const job_t *j, wm_error_t *err) {
  static const wm_column_t columns[] = {
      {"layer", NULL, WM_ALIGN_RIGHT, 0},     {"gate", NULL, WM_ALIGN_LEFT, 0},
      {"numbers", NULL, WM_ALIGN_RIGHT, 0},   {"AUC", "fit", WM_ALIGN_RIGHT, 4},
      {"AUC", "held out", WM_ALIGN_RIGHT, 4}, {"accuracy", "held out", WM_ALIGN_RIGHT, 4},
      {"routed", "%", WM_ALIGN_RIGHT, 1},     {"r", "delta", WM_ALIGN_RIGHT, 3},
      {"note", NULL, WM_ALIGN_LEFT, 0}};
  wm_table_t *t;
  wm_status_t status = wm_table_create(columns, 9, &t, err);
  if (status != WM_OK)
    return status;
  for (int64_t g = 0; g < j->gates->n; g++)
    add_row(t, &j->gates->gates[g]);
  status = wm_table_print(t, WM_TABLE_TEXT, j->in->run->out, err);
  wm_table_free(t);
  return status;
}

/* --- stages -------------------------------------------------------------------------------------
 */

static uint64_t fit_key(const job_t *j) {
  const wm_gate_fit_options_t *o = &j->options.fit;
  uint64_t h = wm_hash(&j->fit_losses.key, sizeof j->fit_losses.key, j->heldout_losses.key);
  for (int64_t i = 0; i < o->n_specs; i++) {
    const int64_t spec[2] = {o->specs[i].kind, o->specs[i].components};
    h = wm_hash(spec, sizeof spec, h);
  }
  h = wm_hash(&o->seed, sizeof o->seed, h);
  return wm_hash(&j->options.least_count, sizeof j->options.least_count, h);
}

static wm_gate_source_t source_of(const wm_text_t *text, const wm_sweep_t *losses) {
  return (wm_gate_source_t){.blocks = &text->blocks,
                            .ids = wm_tokens_ids(text->tokens),
                            .nll = losses != NULL ? losses->nll.data : NULL};
}

/* Collective. Gates from losses; into a file of their own. */
static wm_status_t fit_gates(job_t *j, const wm_sweep_t *fit, const wm_sweep_t *heldout,
                             uint64_t key, wm_error_t *err) {
  const wm_run_t *run = j->in->run;
  const wm_gate_source_t a = source_of(j->fit, fit), b = source_of(j->heldout, heldout);
  wm_h5_t *file = NULL;
  wm_status_t status;
  WM_TRY(wm_h5_create(run->comm->world, j->path, &file, err));
  WM_TRY(wm_gate_pass_run(run->comm, j->in->model, &a, &b, &j->options, run->log, j->gates, j->ends,
                          err));
  WM_TRY(wm_gates_write(j->gates, run->comm, file, err));
  WM_TRY(wm_gate_ends_write(j->ends, j->n_layers, run->comm, file, err));
  WM_TRY(wm_agree(run->comm->world, wm_model_unchanged(j->in->model, err), err));
  WM_TRY(wm_stage_describe(j->in, file, "gate", key, err));
  char surrogates[WM_STAGE_KEY_SIZE];
  wm_hash_text(wm_surrogates_fingerprint(j->surrogates), surrogates);
  WM_TRY(wm_h5_set_string(file, "/", "surrogates_fingerprint", surrogates, err));
  wm_h5_t *whole = file;
  file = NULL; /* publishing takes it */
  WM_TRY(wm_h5_publish(whole, err));
  if (run->comm->rank == 0)
    status = wm_output_shown(run, print_table(j, err));
  WM_TRY(wm_agree(run->comm->world, status, err));
  wm_log(run->log, WM_LOG_INFO, "gate: wrote %s", j->path);
cleanup:
  wm_h5_close(file);
  return status;
}

static wm_status_t compute(job_t *j, uint64_t key, wm_error_t *err) {
  const wm_arch_t *arch = wm_model_arch(j->in->model);
  wm_sweep_t fit = {0}, heldout = {0};
  wm_status_t status;
  WM_TRY(wm_losses_obtain(&j->fit_losses, &fit, err));
  WM_TRY(wm_losses_obtain(&j->heldout_losses, &heldout, err));
  status = wm_gates_create(arch->n_layers, arch->d_model,
                           wm_gate_fit_components(&j->options.fit, arch->d_model), &j->gates, err);
  WM_TRY(wm_agree(j->in->run->comm->world, status, err));
  WM_TRY(fit_gates(j, &fit, &heldout, key, err));
cleanup:
  wm_sweep_destroy(&fit);
  wm_sweep_destroy(&heldout);
  return status;
}

static wm_status_t explain(const job_t *j, wm_error_t *err) {
  const wm_run_t *run = j->in->run;
  const wm_gate_source_t a = source_of(j->fit, NULL), b = source_of(j->heldout, NULL);
  wm_gate_pass_plan_t plan;
  char duration[32];
  wm_losses_explain(&j->fit_losses);
  wm_losses_explain(&j->heldout_losses);
  wm_status_t status = wm_gate_pass_plan(run->comm, j->in->model, &a, &b, &j->options, &plan, err);
  if (status != WM_OK || run->comm->rank != 0)
    return status;
  wm_stage_duration(run, plan.network, 3 * plan.algebra, duration, sizeof duration);
  fprintf(run->out,
          "gates: %s\n  %" PRId64 " gates for each of %" PRId64 " layers, from %s\n"
          "  %" PRId64 " pass(es); memory: %.1f MiB a rank, %.1f MiB of it features\n"
          "  %.3g operations in the network, %.3g in float64; about %s\n",
          j->path, j->options.fit.n_specs, j->n_layers, j->fit->windows.label, plan.passes,
          (double)plan.bytes / 0x1p20, (double)plan.feature_bytes / 0x1p20, plan.network,
          plan.algebra, duration);
  return WM_OK;
}

static wm_status_t open_job(job_t *j, wm_error_t *err) {
  const wm_inputs_t *in = j->in;
  const wm_arch_t *arch = wm_model_arch(in->model);
  char surrogates[WM_PATH_SIZE];
  wm_status_t status;
  WM_TRY(wm_output_path(in->run, "gates.h5", j->path, err));
  WM_TRY(wm_output_path(in->run, "surrogates.h5", surrogates, err));
  WM_TRY(wm_surrogates_open(in->run->comm, surrogates, arch->n_layers, arch->d_model,
                            wm_config_int(in->run->config, "compute.tile_rows"),
                            wm_compute_of(in->run), &j->surrogates, err));
  WM_TRY(wm_stage_same_fit(in, surrogates, err));
  WM_TRY(wm_agree(in->run->comm->world, read_settings(j, surrogates, err), err));
  j->fit_losses = (wm_losses_stage_t){.in = in,
                                      .text = j->fit,
                                      .surrogates = j->surrogates,
                                      .variants = &j->single,
                                      .name = "losses.gates"};
  j->heldout_losses = j->fit_losses;
  j->heldout_losses.text = j->heldout;
  j->heldout_losses.name = "losses.validation";
  WM_TRY(wm_losses_prepare(&j->fit_losses, err));
  WM_TRY(wm_losses_prepare(&j->heldout_losses, err));
cleanup:
  return status;
}

wm_status_t wm_stage_gate(const wm_inputs_t *in, wm_error_t *err) {
  job_t j = {.in = in, .fit = &in->text[WM_ROLE_GATES], .heldout = &in->text[WM_ROLE_VALIDATION]};
  wm_status_t status;
  WM_TRY(open_job(&j, err));
  if (in->run->dry_run)
    status = wm_agree(in->run->comm->world, explain(&j, err), err);
  else
    status = compute(&j, fit_key(&j), err);
cleanup:
  wm_gates_free(j.gates);
  free(j.ends);
  free(j.layers);
  wm_variants_destroy(&j.single);
  wm_surrogates_close(j.surrogates);
  return status;
}

wm_status_t wm_job_gate(const wm_run_t *run, wm_error_t *err) {
  const unsigned gates = 1u << WM_ROLE_GATES, validation = 1u << WM_ROLE_VALIDATION;
  wm_inputs_t inputs;
  wm_status_t status = wm_output_ready(run, err);
  if (status == WM_OK)
    status = wm_tokens_current(run, err);
  if (status != WM_OK)
    return status;
  /* All ranges are opened: none may share tokens with another. */
  const unsigned all = gates | validation | 1u << WM_ROLE_FIT | 1u << WM_ROLE_EVALUATION;
  status = wm_inputs_open(run, all, gates | validation, &inputs, err);
  if (status == WM_OK)
    status = wm_stage_gate(&inputs, err);
  wm_inputs_close(&inputs);
  return status;
}
