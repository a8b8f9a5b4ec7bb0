/* finetune: losses on the evaluation ranges. */
#include "finetune.h"
#include "stages.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* --- ranges -------------------------------------------------------------------------------------
 */

/* WM_USAGE if training reads tokens that are predicted here. */
static wm_status_t check_fresh(const wm_finetune_t *f, const wm_evaluation_t *e, wm_error_t *err) {
  const wm_windows_t *w = &e->text->windows;
  const wm_tokens_info_t *here = wm_tokens_info(e->text->tokens);
  const wm_data_info_t *there = wm_data_info(f->data);
  if (wm_config_bool(f->run->config, "ranges.allow_overlap") ||
      here->corpus_fingerprint != there->corpus_fingerprint ||
      here->tokenizer_fingerprint != there->tokenizer_fingerprint ||
      strcmp(here->encoding, there->encoding) != 0)
    return WM_OK;
  for (int64_t i = 0; i < w->n; i++)
    if (w->first[i] < f->order.end && w->first[i] + w->length[i] > f->order.begin)
      return wm_fail(err, WM_USAGE,
                     "%s overlaps the tokens [%" PRId64 ", %" PRId64
                     ") that are trained on: give finetune.tokens, another corpus, or "
                     "ranges.allow_overlap",
                     w->label, f->order.begin, f->order.end);
  return WM_OK;
}

static wm_status_t make_units(wm_finetune_t *f, wm_evaluation_t *e, wm_error_t *err) {
  const wm_windows_t *w = &e->text->windows;
  void *memory;
  wm_unit_kind_t kind;
  wm_status_t status = wm_alloc(&memory, w->n_predicted, sizeof(int32_t), "bootstrap units", err);
  if (status != WM_OK)
    return status;
  e->units = memory;
  wm_unit_parse(wm_config_string(f->run->config, "bootstrap.unit"), &kind);
  e->unit = wm_unit_resolve(w, kind);
  return wm_windows_units(w, e->unit, e->units, &e->n_units, err);
}

/* Collective. */
static wm_status_t add_evaluation(wm_finetune_t *f, const char *name, const wm_text_t *text,
                                  wm_error_t *err) {
  wm_evaluation_t *e = &f->evaluations[f->n_evaluations];
  e->name = name;
  e->text = text;
  f->n_evaluations++;
  wm_status_t status = check_fresh(f, e, err);
  if (status == WM_OK)
    status = make_units(f, e, err);
  return wm_agree(f->run->comm->world, status, err);
}

wm_status_t wm_finetune_open_evaluations(wm_finetune_t *f, wm_error_t *err) {
  const wm_config_t *c = f->run->config;
  const wm_preset_t *preset = wm_preset_find(wm_config_string(c, "ranges.preset"));
  const int64_t blocks = f->trainer_options.pass_sequences * f->order.length;
  const char *name;
  wm_status_t status =
      add_evaluation(f, wm_role_name(WM_ROLE_EVALUATION), &f->inputs.text[WM_ROLE_EVALUATION], err);
  for (int64_t i = 0; status == WM_OK && (name = wm_config_name(c, "ranges.", i)) != NULL; i++) {
    wm_range_t range = preset->ranges[WM_ROLE_EVALUATION];
    range.name = name;
    if (strncmp(name, "evaluation_", strlen("evaluation_")) != 0)
      continue;
    if (f->n_evaluations == WM_MAX_EVALUATIONS)
      return wm_fail(err, WM_USAGE, "more than %d ranges to evaluate on", WM_MAX_EVALUATIONS);
    wm_evaluation_t *e = &f->evaluations[f->n_evaluations];
    status = wm_inputs_open_range(&f->inputs, range, true, blocks, &e->own, err);
    if (status == WM_OK)
      status = add_evaluation(f, name, &e->own, err);
  }
  return status;
}

void wm_finetune_close_evaluations(wm_finetune_t *f) {
  for (int64_t i = 0; i < WM_MAX_EVALUATIONS; i++) {
    wm_evaluation_t *e = &f->evaluations[i];
    wm_blocks_destroy(&e->own.blocks);
    wm_windows_destroy(&e->own.windows);
    free(e->units);
    free(e->nll);
  }
}

/* --- losses -------------------------------------------------------------------------------------
 */

wm_status_t wm_finetune_add_moment(wm_finetune_t *f, const wm_moment_t *moment, wm_error_t *err) {
  void *memory = f->moments;
  const int64_t n = f->n_moments;
  wm_status_t status =
      wm_grow(&memory, &f->moments_capacity, n, n + 1, sizeof *f->moments, "evaluations", err);
  f->moments = memory;
  for (int64_t i = 0; i < f->n_evaluations && status == WM_OK; i++) {
    wm_evaluation_t *e = &f->evaluations[i];
    const int64_t count = e->text->windows.n_predicted;
    memory = e->nll;
    status = wm_grow(&memory, &e->nll_capacity, n * count, (n + 1) * count, sizeof *e->nll,
                     "losses of evaluations", err);
    e->nll = memory;
  }
  status = wm_agree(f->run->comm->world, status, err);
  if (status == WM_OK)
    f->moments[f->n_moments++] = *moment;
  return status;
}

/* What a block's evaluation needs and yields. */
typedef struct {
  wm_block_t block;
  double *row_nll; /* [rows] */
  float *g;        /* [gated, rows]; NULL: not wanted */
  double *nll;     /* [N] of all blocks, zero but for this rank's */
  double *all_g;   /* [gated, positions] likewise */
} pass_t;

static wm_status_t evaluate_block(const wm_evaluation_t *e, wm_training_t *training, int64_t index,
                                  bool hard, int64_t n_gated, pass_t *p, wm_error_t *err) {
  wm_block_t *b = &p->block;
  wm_block_load(&e->text->blocks, wm_tokens_ids(e->text->tokens), index, b);
  const wm_training_batch_t batch = {.rows = b->batch, .ids = b->ids, .targets = b->targets};
  wm_status_t status = wm_training_evaluate(training, &batch, hard, p->row_nll, p->g, err);
  int64_t next = b->first_prediction;
  for (int64_t i = 0; i < b->rows && status == WM_OK; i++)
    if (b->targets[i] >= 0)
      p->nll[next++] = p->row_nll[i];
  const wm_windows_t *w = &e->text->windows;
  const int64_t place = w->position_offset[e->text->blocks.first_window[index]];
  for (int64_t k = 0; p->g != NULL && k < n_gated && status == WM_OK; k++)
    for (int64_t i = 0; i < b->n_kept; i++)
      p->all_g[k * w->n_positions + place + i] = (double)p->g[k * b->rows + b->kept[i]];
  return status;
}

static void free_pass(pass_t *p) {
  wm_block_destroy(&p->block);
  free(p->row_nll);
  free(p->g);
  free(p->nll);
  free(p->all_g);
}

static wm_status_t create_pass(const wm_evaluation_t *e, int64_t n_gated, pass_t *p,
                               wm_error_t *err) {
  const wm_blocks_t *blocks = &e->text->blocks;
  const wm_windows_t *w = &e->text->windows;
  void *memory;
  wm_status_t status;
  WM_TRY(wm_block_create(blocks, &p->block, err));
  WM_TRY(wm_alloc(&memory, blocks->max_rows, sizeof(double), "losses", err));
  p->row_nll = memory;
  WM_TRY(wm_alloc(&memory, w->n_predicted, sizeof(double), "losses", err));
  p->nll = memory;
  if (n_gated == 0)
    return WM_OK;
  WM_TRY(wm_alloc(&memory, n_gated * blocks->max_rows, sizeof(float), "gates' values", err));
  p->g = memory;
  WM_TRY(wm_alloc(&memory, n_gated * w->n_positions, sizeof(double), "gates' values", err));
  p->all_g = memory;
cleanup:
  return status;
}

/* Collective. Fills p->nll and p->all_g on all ranks; blocks are dealt out in turn. */
static wm_status_t run_pass(const wm_finetune_t *f, const wm_evaluation_t *e,
                            wm_training_t *training, bool hard, int64_t n_gated, pass_t *p,
                            wm_error_t *err) {
  const wm_comm_t *comm = f->run->comm;
  wm_status_t status = create_pass(e, n_gated, p, err);
  for (int64_t i = comm->rank; i < e->text->blocks.n && status == WM_OK; i += comm->size) {
    status = evaluate_block(e, training, i, hard, n_gated, p, err);
    if (status == WM_OK && wm_stop_requested())
      status = wm_fail(err, WM_STOPPED, "%s: stopped during an evaluation", f->stem);
    wm_pulse();
  }
  status = wm_agree(comm->world, status, err);
  if (status != WM_OK)
    return status;
  wm_sum_f64(comm->world, p->nll, e->text->windows.n_predicted);
  if (n_gated > 0)
    wm_sum_f64(comm->world, p->all_g, n_gated * e->text->windows.n_positions);
  return WM_OK;
}

wm_status_t wm_finetune_losses(const wm_finetune_t *f, int64_t range, wm_training_t *training,
                               bool hard, float *nll, wm_error_t *err) {
  const wm_evaluation_t *e = &f->evaluations[range];
  pass_t p = {0};
  wm_status_t status = run_pass(f, e, training, hard, 0, &p, err);
  for (int64_t k = 0; k < e->text->windows.n_predicted && status == WM_OK; k++)
    nll[k] = (float)p.nll[k];
  free_pass(&p);
  return status;
}

wm_status_t wm_finetune_evaluate(wm_finetune_t *f, wm_training_t *training, const char *label,
                                 bool hard, wm_error_t *err) {
  wm_moment_t moment = {.phase = f->phase, .step = f->trajectory.n, .hard = hard};
  char words[WM_MAX_EVALUATIONS * 32] = "";
  size_t used = 0;
  wm_status_t status;
  snprintf(moment.label, sizeof moment.label, "%s", label);
  WM_TRY(wm_finetune_add_moment(f, &moment, err));
  const int64_t row = f->n_moments - 1;
  for (int64_t i = 0; i < f->n_evaluations; i++) {
    wm_evaluation_t *e = &f->evaluations[i];
    const int64_t n = e->text->windows.n_predicted;
    status = wm_finetune_losses(f, i, training, hard, e->nll + row * n, err);
    if (status != WM_OK) {
      f->n_moments--;
      return status;
    }
    used += (size_t)snprintf(words + used, sizeof words - used, "%s%.3f", i > 0 ? ", " : "",
                             wm_perplexity(e->nll + row * n, n));
    if (used >= sizeof words)
      used = sizeof words - 1;
  }
  wm_log(f->run->log, WM_LOG_INFO, "%s: step %" PRId64 ", %s%s: perplexity %s", f->stem,
         moment.step, label, hard ? ", gates that decide" : "", words);
cleanup:
  return status;
}

/* --- gates --------------------------------------------------------------------------------------
 */

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static const wm_record_layout_t gates_layout = {
    "/gates_used",
    "gates at the end: g = 1 takes the MLP; over all positions of the first evaluation range",
    "layer",
    {{"mean", "mean", NULL, 4},
     {"std", "std", NULL, 4},
     {"q05", "5 %", NULL, 4},
     {"q25", "25 %", NULL, 4},
     {"median", "median", NULL, 4},
     {"q75", "75 %", NULL, 4},
     {"q95", "95 %", NULL, 4},
     {"mlp", "MLP taken", "% (g >= 0.5)", 2}},
    8};

/* One layer's row; g[n] is sorted. */
static wm_status_t add_gate(wm_records_t *r, int64_t layer, double *g, int64_t n, wm_error_t *err) {
  static const double quantiles[] = {0.05, 0.25, 0.5, 0.75, 0.95};
  double row[8] = {0}, squares = 0;
  char label[32];
  for (int64_t i = 0; i < n; i++) {
    row[0] += g[i] / (double)n;
    row[7] += g[i] >= 0.5 ? 100 / (double)n : 0;
  }
  for (int64_t i = 0; i < n; i++)
    squares += (g[i] - row[0]) * (g[i] - row[0]);
  row[1] = sqrt(squares / (double)n);
  qsort(g, (size_t)n, sizeof *g, ascending);
  for (int i = 0; i < 5; i++)
    row[2 + i] = wm_quantile_sorted(g, n, quantiles[i]);
  snprintf(label, sizeof label, "%" PRId64, layer);
  return wm_records_add(r, label, row, err);
}

wm_status_t wm_finetune_gates(wm_finetune_t *f, wm_h5_t *file, wm_error_t *err) {
  const wm_phase_t *last = &f->plan.phases[f->plan.n - 1];
  const wm_evaluation_t *e = &f->evaluations[0];
  const int64_t n = e->text->windows.n_positions;
  int64_t n_gated = 0, k = 0;
  pass_t p = {0};
  wm_records_t records;
  wm_status_t status = WM_OK;
  for (int64_t l = 0; l < f->plan.model_layers; l++)
    n_gated += last->modes[l] == WM_MODE_GATED;
  if (n_gated == 0)
    return WM_OK;
  wm_records_init(&records, &gates_layout);
  WM_TRY(run_pass(f, e, f->training, false, n_gated, &p, err));
  for (int64_t l = 0; l < f->plan.model_layers && status == WM_OK; l++)
    if (last->modes[l] == WM_MODE_GATED)
      status = add_gate(&records, l, p.all_g + k++ * n, n, err);
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  status = wm_show_and_write(f->run, &records, file, err);
cleanup:
  wm_records_destroy(&records);
  free_pass(&p);
  return status;
}
