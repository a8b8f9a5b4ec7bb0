/* sweep: what replacing each layer's MLP by its surrogate costs (method.md, sections 2 and 6). */
#include "wanamaker/measure/sweep.h"

#include "inputs.h"
#include "joint.h"
#include "losses.h"
#include "stages.h"
#include "sweep_variants.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/memory_room.h"
#include "wanamaker/measure/check.h"
#include "wanamaker/measure/parts.h"
#include "wanamaker/report/table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* One evaluation and what it is made of. */
typedef struct {
  const wm_inputs_t *in;
  const wm_text_t *text;
  wm_surrogates_t *surrogates;
  wm_gates_t *gates; /* NULL: none are measured */
  wm_variants_t variants;
  wm_sweep_options_t options;
  wm_check_t check; /* against float32, unless products are; n = 0: none */
  char path[WM_PATH_SIZE], surrogates_path[WM_PATH_SIZE], parts[WM_PATH_SIZE];
} job_t;

/* --- table --------------------------------------------------------------------------------------
 */

/* Columns that not every sweep has. */
typedef struct {
  bool gates, joint, divergence, unpaired, check, note;
} extra_t;

static extra_t extra_columns(const job_t *j, const wm_sweep_t *s) {
  extra_t extra = {.divergence = j->options.divergence,
                   .unpaired = j->options.bootstrap.unpaired,
                   .check = j->check.n > 0};
  for (int64_t v = 1; v < j->variants.n; v++) {
    extra.gates |= wm_variants_is_routed(&j->variants, v);
    extra.joint |= !isnan(wm_joint_sum_of_singles(s, v));
    char note[128];
    wm_effect_note(&s->effects[v], j->text->windows.n_predicted, note, sizeof note);
    extra.note |= note[0] != '\0';
  }
  return extra;
}

static void add_interval(wm_table_t *t, double low, double high) {
  char text[96];
  wm_interval_text(low, high, text, sizeof text);
  wm_table_text(t, text);
}

/* Who routes, where and how much of it, and what that saves. */
static void add_gate(wm_table_t *t, const job_t *j, const wm_sweep_t *s, int64_t v) {
  char gate[32];
  wm_variants_gate_label(&j->variants, v, gate, sizeof gate);
  wm_table_text(t, wm_variants_is_routed(&j->variants, v) ? gate : "");
  wm_table_float(t, wm_variants_threshold(&j->variants, v));
  wm_table_float(t, v > 0 ? 100 * s->measures[v].routed : NAN);
  wm_table_float(t, v > 0 ? wm_sweep_flops(s, v).saved_pct : NAN);
}

static void add_row(wm_table_t *t, const job_t *j, const wm_sweep_t *s, extra_t extra, int64_t v) {
  const wm_effect_t *e = &s->effects[v];
  char label[64], note[128] = "";
  wm_variants_label(&j->variants, v, label, sizeof label);
  int64_t count;
  const wm_change_t *changes = wm_variants_changes(&j->variants, v, &count);
  int64_t layer = count == 1 ? changes->layer : -1;
  wm_table_text(t, label);
  if (extra.gates)
    add_gate(t, j, s, v);
  wm_table_float(t, e->perplexity);
  wm_table_float(t, e->delta);
  if (extra.joint)
    wm_table_float(t, wm_joint_sum_of_singles(s, v));
  add_interval(t, e->low, e->high);
  if (extra.unpaired)
    add_interval(t, e->unpaired_low, e->unpaired_high);
  wm_table_float(t, layer >= 0 ? wm_surrogates_r2(j->surrogates, layer) : NAN);
  wm_table_float(t, layer >= 0 ? wm_surrogates_r2_heldout(j->surrogates, layer) : NAN);
  wm_table_float(t, e->p_holm);
  wm_table_text(t, v > 0 ? wm_effect_stars(e) : "");
  wm_table_text(t, v > 0 && e->beats_full ? "yes" : "");
  if (extra.divergence) {
    wm_table_float(t, v > 0 ? s->measures[v].divergence : NAN);
    wm_table_float(t, v > 0 ? 100 * s->measures[v].agreement : NAN);
  }
  if (extra.check) {
    const wm_check_effect_t *c = &j->check.effects[v];
    wm_table_float(t, c->delta_f32);
    if (isfinite(c->difference))
      wm_table_textf(t, "%+.4f +- %.4f", c->difference, c->standard_error);
    else
      wm_table_float(t, NAN);
  }
  if (extra.note) {
    if (v > 0)
      wm_effect_note(e, j->text->windows.n_predicted, note, sizeof note);
    wm_table_text(t, note);
  }
}

static const char *bf16_name(const job_t *j) {
  return wm_compute_name(wm_compute_of(j->in->run));
}

static wm_status_t print_table(const job_t *j, const wm_sweep_t *s, wm_error_t *err) {
  char interval[32], effect[32];
  snprintf(effect, sizeof effect, "%s effect", bf16_name(j));
  snprintf(interval, sizeof interval, "%.4g %% interval", 100 * j->options.bootstrap.confidence);
  const extra_t extra = extra_columns(j, s);
  const struct {
    wm_column_t column;
    bool shown;
  } all[] = {{{"layer", NULL, WM_ALIGN_LEFT, 0}, true},
             {{"gate", NULL, WM_ALIGN_LEFT, 0}, extra.gates},
             {{"t", NULL, WM_ALIGN_RIGHT, 3}, extra.gates},
             {{"routed", "%", WM_ALIGN_RIGHT, 1}, extra.gates},
             {{"saved", "% FLOPs", WM_ALIGN_RIGHT, 2}, extra.gates},
             {{"PPL", NULL, WM_ALIGN_RIGHT, 3}, true},
             {{"delta", "%", WM_ALIGN_RIGHT, 3}, true},
             {{"sum of", "single, %", WM_ALIGN_RIGHT, 3}, extra.joint},
             {{"delta", interval, WM_ALIGN_RIGHT, 0}, true},
             {{"unpaired", interval, WM_ALIGN_RIGHT, 0}, extra.unpaired},
             {{"R^2", "fit", WM_ALIGN_RIGHT, 4}, true},
             {{"R^2", "held out", WM_ALIGN_RIGHT, 4}, true},
             {{"p", "Holm", WM_ALIGN_RIGHT, 4}, true},
             {{"", NULL, WM_ALIGN_LEFT, 0}, true},
             {{"beats full", NULL, WM_ALIGN_LEFT, 0}, true},
             {{"KL", "nats", WM_ALIGN_RIGHT, 5}, extra.divergence},
             {{"top-1", "% equal", WM_ALIGN_RIGHT, 2}, extra.divergence},
             {{"delta in f32", "sample", WM_ALIGN_RIGHT, 3}, extra.check},
             {{effect, "sample", WM_ALIGN_RIGHT, 0}, extra.check},
             {{"note", NULL, WM_ALIGN_LEFT, 0}, extra.note}};
  enum { MOST = sizeof all / sizeof all[0] };
  wm_column_t columns[MOST];
  int n = 0;
  for (int i = 0; i < MOST; i++)
    if (all[i].shown)
      columns[n++] = all[i].column;
  wm_table_t *t;
  wm_status_t status = wm_table_create(columns, n, &t, err);
  if (status != WM_OK)
    return status;
  for (int64_t v = 0; v < j->variants.n; v++)
    add_row(t, j, s, extra, v);
  status = wm_table_print(t, WM_TABLE_TEXT, j->in->run->out, err);
  wm_table_free(t);
  return status;
}

/* How much wider the study's interval is, median over single layers. */
static void print_width_ratio(const job_t *j, const wm_sweep_t *s) {
  wm_error_t err;
  void *memory;
  if (wm_alloc(&memory, j->variants.n, sizeof(double), "widths", &err) != WM_OK)
    return; /* a line that helps to read the table */
  double *ratio = memory;
  int64_t n = 0, defined = 0;
  for (int64_t v = 1; v < j->variants.n; v++)
    if (j->variants.offsets[v + 1] - j->variants.offsets[v] == 1) {
      ratio[n] = wm_effect_width_ratio(&s->effects[v]);
      defined += !isnan(ratio[n++]);
    }
  if (defined > 0)
    fprintf(j->in->run->out,
            "unpaired intervals (the study's: each side resampled alone) are %.1f times as wide as "
            "paired ones, median over %" PRId64 " layers\n",
            wm_median(ratio, n), defined);
  free(memory);
}

/* The layers that beat the full model after correction, by name. */
static void print_verdict(const job_t *j, const wm_sweep_t *s) {
  FILE *out = j->in->run->out;
  int64_t winners = 0, tested = 0, references = 0;
  for (int64_t v = 1; v < j->variants.n; v++) {
    references += wm_variants_is_reference(&j->variants, v);
    tested += !isnan(s->effects[v].p_holm);
  }
  fprintf(out,
          "\n%" PRId64 " predicted tokens (%s), protocol %s; paired bootstrap over %" PRId64
          " units (%s), %" PRId64 " resamples\n",
          j->text->windows.n_predicted, j->text->windows.label,
          wm_protocol_name(j->text->windows.protocol.kind), s->n_units, wm_unit_name(s->unit),
          j->options.bootstrap.resamples);
  fprintf(out, "beat the full model after Holm's correction for %" PRId64 " variants", tested);
  if (references > 0)
    fprintf(out, " (%" PRId64 " that route at random or by losses are references, not tested)",
            references);
  fprintf(out, ":");
  for (int64_t v = 1; v < j->variants.n; v++)
    if (s->effects[v].beats_full) {
      char label[64], gate[32];
      wm_variants_label(&j->variants, v, label, sizeof label);
      wm_variants_gate_label(&j->variants, v, gate, sizeof gate);
      fprintf(out, "%s %s", winners++ > 0 ? "," : "", label);
      if (wm_variants_is_routed(&j->variants, v))
        fprintf(out, " (%s)", gate);
    }
  fprintf(out, "%s\n", winners > 0 ? "" : " none");
  fprintf(out, "stars: p after Holm's correction below 0.05, 0.01, 0.001\n");
  if (j->gates != NULL && wm_gate_choice(j->in->run) == WM_ROLE_EVALUATION)
    fprintf(out,
            "gate.selection = \"evaluation\": as in the study, gates were chosen on the text that "
            "they are reported on, so that their costs are biased downward\n");
  if (s->effects[0].units < WM_MIN_UNITS)
    fprintf(out, "fewer than %d units: nothing is called significant\n", WM_MIN_UNITS);
  if (j->options.bootstrap.unpaired)
    print_width_ratio(j, s);
  if (j->check.n > 0)
    fprintf(out,
            "%s effect: delta here less delta in f32 on the same %" PRId64
            " tokens, with its paired "
            "standard error; full: its perplexity in %%\n",
            bf16_name(j), j->check.n);
}

/* --- stage --------------------------------------------------------------------------------------
 */

static bool has_check(const job_t *j) {
  return wm_compute_of(j->in->run) != WM_COMPUTE_F32 &&
         wm_config_int(j->in->run->config, "sweep.check_tokens") > 0;
}

/* Part of the sweep that is done again in float32. */
static double check_share(const job_t *j) {
  return has_check(j) ? wm_check_share(&j->text->blocks,
                                       wm_config_int(j->in->run->config, "sweep.check_tokens"))
                      : 0;
}

/* Of a node: the losses, and what the check adds to them. */
static int64_t node_bytes(const job_t *j) {
  const int64_t losses = j->variants.n * (j->text->windows.n_predicted * (int64_t)sizeof(float) +
                                          j->text->blocks.n * (int64_t)sizeof(wm_cell_t));
  const int64_t d = wm_model_arch(j->in->model)->d_model;
  int64_t n;
  wm_surrogates_layers(j->surrogates, &n);
  if (!has_check(j))
    return losses;
  return losses + (int64_t)(check_share(j) * (double)losses) +
         n * d * (d + 1) * (int64_t)sizeof(float);
}

static uint64_t losses_key(const job_t *j, const wm_sweep_plan_t *plan) {
  return wm_losses_key(j->in, j->text, j->surrogates, &j->variants, plan);
}

static uint64_t stage_key(const job_t *j, const wm_sweep_plan_t *plan) {
  uint64_t h = wm_losses_statistics_key(j->text, &j->options, losses_key(j, plan));
  int64_t check_tokens = wm_config_int(j->in->run->config, "sweep.check_tokens");
  return has_check(j) ? wm_hash(&check_tokens, sizeof check_tokens, h) : h;
}

static wm_status_t explain(const job_t *j, const wm_sweep_plan_t *plan, bool complete,
                           wm_error_t *err) {
  const wm_run_t *run = j->in->run;
  if (run->comm->rank != 0)
    return WM_OK;
  char duration[32];
  const double mib = 0x1p20, checked = check_share(j) * plan->flops;
  wm_stage_duration(run, plan->flops, checked, duration, sizeof duration);
  double losses = (double)node_bytes(j) / mib;
  double rank = (double)plan->bytes / mib;
  int written = fprintf(
      run->out,
      "sweep: %s\n  %" PRId64 " variants and the full model on %s\n"
      "  %" PRId64 " blocks, %" PRId64 " units of at most %" PRId64 " variant(s)\n"
      "  memory: %.1f MiB a rank (compute.stack_rows %" PRId64
      "), losses%s %.1f MiB a node; %.1f MiB "
      "a node of %d ranks beside the weights\n"
      "  %.3g operations (%.2f of separate evaluations)",
      complete ? "complete, would be skipped" : j->path, j->variants.n - 1, j->text->windows.label,
      j->text->blocks.n, plan->units, plan->group, rank, plan->stack_rows,
      has_check(j) ? " and check" : "", losses, losses + rank * run->comm->node_size,
      run->comm->node_size, plan->flops, plan->flops / plan->separate);
  if (written > 0 && checked > 0)
    written = fprintf(run->out, ", %.3g of the check in f32", checked);
  if (written > 0)
    written = fprintf(run->out, "; about %s\n", duration);
  return written > 0 ? WM_OK : wm_fail(err, WM_ENVIRONMENT, "cannot write to standard output");
}

/* The result for people, also of a stage that is skipped: then from the file's own numbers. */
static wm_status_t show(const job_t *j, const wm_sweep_t *s, wm_error_t *err) {
  wm_status_t status = WM_OK;
  if (j->in->run->comm->rank == 0) {
    status = wm_output_shown(j->in->run, print_table(j, s, err));
    if (status == WM_OK)
      print_verdict(j, s);
  }
  status = wm_agree(j->in->run->comm->world, status, err);
  return status == WM_OK ? wm_joint_compare(j->in, j->surrogates, s, err) : status;
}

/* Collective. A sample of the sweep again in float32, from the weights as they are filed. */
static wm_status_t check(job_t *j, const wm_sweep_t *sweep, wm_error_t *err) {
  const wm_run_t *run = j->in->run;
  const wm_arch_t *arch = wm_model_arch(j->in->model);
  wm_model_t *model = NULL;
  wm_surrogates_t *surrogates = NULL;
  wm_status_t status;
  WM_TRY(wm_inputs_open_f32(run, &model, err));
  WM_TRY(wm_surrogates_open(run->comm, j->surrogates_path, arch->n_layers, arch->d_model,
                            wm_config_int(run->config, "compute.tile_rows"), WM_COMPUTE_F32,
                            &surrogates, err));
  if (wm_model_fingerprint(model) != wm_model_fingerprint(j->in->model)) {
    status = wm_fail(err, WM_INPUT, "%s: changed while the sweep ran (it is another model now)",
                     wm_config_string(run->config, "model.path"));
    goto cleanup;
  }
  WM_TRY(wm_check_run(sweep, model, surrogates, wm_tokens_ids(j->text->tokens),
                      wm_config_int(run->config, "sweep.check_tokens"), &j->options, run->log,
                      &j->check, err));
  WM_TRY(wm_agree(run->comm->world, wm_model_unchanged(model, err), err));
cleanup:
  wm_surrogates_close(surrogates);
  wm_model_close(model);
  if (status == WM_STOPPED)
    wm_fail(err, WM_STOPPED,
            "sweep: stopped during the check in f32; all losses are kept in %s, and the same "
            "command goes on with the check",
            j->parts);
  return status;
}

/* Collective. What the node's ranks will take together must be there; a dry run only warns, for the
 * run itself may be meant for another machine. */
static wm_status_t check_memory(const job_t *j, const wm_sweep_plan_t *plan, wm_error_t *err) {
  const wm_run_t *run = j->in->run;
  const char *what = "the sweep's workspace and losses";
  wm_status_t status = WM_OK;
  if (run->comm->node_rank == 0)
    status = wm_memory_room_check(node_bytes(j) + plan->bytes * run->comm->node_size, what, err);
  status = wm_agree(run->comm->world, status, err);
  if (status != WM_OK && run->dry_run) {
    wm_log(run->log, WM_LOG_WARN, "%s", err->message);
    return WM_OK;
  }
  return status;
}

static wm_status_t compute(job_t *j, uint64_t key, wm_error_t *err) {
  const wm_run_t *run = j->in->run;
  const int32_t *ids = wm_tokens_ids(j->text->tokens);
  wm_sweep_t sweep = {0};
  wm_h5_t *file = NULL;
  wm_status_t status;
  /* First, so that an output that can't be written is told before the work is done. */
  WM_TRY(wm_h5_create(run->comm->world, j->path, &file, err));
  WM_TRY(wm_sweep_run(run->comm, j->in->model, j->surrogates, &j->variants, &j->text->blocks, ids,
                      &j->options, run->log, &sweep, err));
  if (sweep.non_finite > 0)
    wm_log(run->log, WM_LOG_WARN, "%" PRId64 " variants have losses that are not finite",
           sweep.non_finite);
  if (has_check(j))
    WM_TRY(check(j, &sweep, err));
  WM_TRY(wm_sweep_write(&sweep, ids, file, err));
  if (has_check(j))
    WM_TRY(wm_check_write(&sweep, &j->check, file, err));
  WM_TRY(wm_agree(run->comm->world, wm_model_unchanged(j->in->model, err), err));
  WM_TRY(wm_stage_describe(j->in, file, "sweep", key, err));
  WM_TRY(wm_h5_set_string(file, "/", "bootstrap_unit", wm_unit_name(sweep.unit), err));
  WM_TRY(wm_h5_set_string(file, "/", "bootstrap_interval",
                          wm_interval_name(j->options.bootstrap.interval), err));
  if (j->gates != NULL)
    WM_TRY(wm_h5_set_string(file, "/", "gates_chosen_on", wm_role_name(wm_gate_choice(run)), err));
  wm_h5_t *whole = file;
  file = NULL; /* publishing takes it */
  WM_TRY(wm_h5_publish(whole, err));
  wm_parts_remove(run->comm, j->parts);
  WM_TRY(show(j, &sweep, err));
  wm_log(run->log, WM_LOG_INFO, "sweep: wrote %s", j->path);
cleanup:
  wm_h5_close(file);
  wm_sweep_destroy(&sweep);
  return status;
}

/* A complete sweep.h5 is kept; its table is printed again. */
static wm_status_t reuse(job_t *j, wm_error_t *err) {
  wm_sweep_t sweep = {0};
  wm_log(j->in->run->log, WM_LOG_INFO, "sweep: %s is complete for these inputs; skipped", j->path);
  wm_parts_remove(j->in->run->comm, j->parts); /* of a run that ended between result and removal */
  wm_status_t status = wm_sweep_read(j->in->run->comm, j->path, j->in->model, &j->variants,
                                     &j->text->blocks, &j->options, &sweep, err);
  if (status == WM_OK && has_check(j))
    status = wm_check_read(j->in->run->comm, j->path, j->variants.n, &j->check, err);
  if (status == WM_OK)
    status = show(j, &sweep, err);
  wm_sweep_destroy(&sweep);
  return status;
}

static wm_status_t open_surrogates(job_t *j, wm_error_t *err) {
  const wm_run_t *run = j->in->run;
  const wm_arch_t *arch = wm_model_arch(j->in->model);
  wm_status_t status = wm_surrogates_open(
      run->comm, j->surrogates_path, arch->n_layers, arch->d_model,
      wm_config_int(run->config, "compute.tile_rows"), wm_compute_of(run), &j->surrogates, err);
  return status == WM_OK ? wm_stage_same_fit(j->in, j->surrogates_path, err) : status;
}

wm_status_t wm_sweep_check(const wm_run_t *run, const wm_arch_t *arch, wm_error_t *err) {
  int64_t count;
  const int64_t *given = wm_config_ints(run->config, "fit.layers", &count);
  wm_available_t have = {.n_layers = arch->n_layers,
                         .where = "what is to be fitted (fit.layers)",
                         .before_gates = true};
  wm_variants_t variants = {0};
  void *layers = NULL;
  wm_status_t status;
  WM_TRY(wm_alloc(&layers, arch->n_layers, sizeof(int64_t), "layers", err));
  WM_TRY(wm_layer_list("fit.layers", given, count, arch->n_layers, layers, &have.n, err));
  have.layers = layers;
  WM_TRY(wm_sweep_variants(run->config, &have, &variants, err));
cleanup:
  wm_variants_destroy(&variants);
  free(layers);
  return status;
}

wm_status_t wm_stage_sweep(const wm_inputs_t *in, wm_error_t *err) {
  const wm_run_t *run = in->run;
  job_t j = {.in = in, .text = &in->text[WM_ROLE_EVALUATION], .options = wm_losses_options(run)};
  wm_status_t status;
  WM_TRY(wm_output_path(run, "sweep.h5", j.path, err));
  WM_TRY(wm_output_path(run, "surrogates.h5", j.surrogates_path, err));
  WM_TRY(wm_output_path(run, "sweep.parts", j.parts, err));
  WM_TRY(open_surrogates(&j, err));
  WM_TRY(wm_sweep_gates(in, j.surrogates, &j.gates, err));
  wm_available_t have = {
      .n_layers = wm_model_arch(in->model)->n_layers, .where = j.surrogates_path, .gates = j.gates};
  have.layers = wm_surrogates_layers(j.surrogates, &have.n);
  WM_TRY(wm_agree(run->comm->world, wm_sweep_variants(run->config, &have, &j.variants, err), err));
  wm_sweep_plan_t plan;
  WM_TRY(wm_agree(
      run->comm->world,
      wm_sweep_plan(run->comm, in->model, &j.variants, &j.text->blocks, &j.options, &plan, err),
      err));
  j.options.parts = j.parts;
  j.options.parts_key = wm_losses_parts_key(run, losses_key(&j, &plan));
  j.options.keep_whole = has_check(&j);
  uint64_t key = stage_key(&j, &plan);
  bool complete = wm_stage_is_complete(run, j.path, key);
  if (!complete)
    WM_TRY(check_memory(&j, &plan, err));
  if (run->dry_run)
    status = wm_agree(run->comm->world, explain(&j, &plan, complete, err), err);
  else if (complete)
    status = reuse(&j, err);
  else
    status = compute(&j, key, err);
cleanup:
  wm_check_destroy(&j.check);
  wm_variants_destroy(&j.variants);
  wm_gates_free(j.gates);
  wm_surrogates_close(j.surrogates);
  return status;
}

wm_status_t wm_job_sweep(const wm_run_t *run, wm_error_t *err) {
  wm_inputs_t inputs;
  wm_status_t status = wm_output_ready(run, err);
  if (status == WM_OK)
    status = wm_tokens_current(run, err);
  if (status != WM_OK)
    return status;
  /* The ranges of fit and gates are opened too: the evaluation must not share tokens with them. */
  unsigned fit = 1u << WM_ROLE_FIT | 1u << WM_ROLE_VALIDATION, own = 1u << WM_ROLE_EVALUATION;
  unsigned gates = wm_sweep_has_gates(run) ? 1u << WM_ROLE_GATES : 0;
  status = wm_inputs_open(run, fit | gates | own, own, &inputs, err);
  if (status == WM_OK)
    status = wm_stage_sweep(&inputs, err);
  wm_inputs_close(&inputs);
  return status;
}
