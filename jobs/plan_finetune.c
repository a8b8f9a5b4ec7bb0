/* The plan of the job finetune: steps and evaluations of every phase, by what a training pass
 * computes (train/cost.h), and the fits between phases. */
#include "finetune.h"
#include "plan_stages.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/train/cost.h"
#include "wanamaker/train/trainer.h"

#include <math.h>
#include <string.h>

/* Steps (wm_machine_t) of a random number, and of a parameter's update and way between ranks. */
enum { OF_DRAW = 1, OF_UPDATE = 4, OF_EXCHANGE = 2 };

typedef struct {
  wm_plan_at_t *at;
  wm_plan_settings_t settings;
  wm_plan_t plan;
  int64_t *layers;  /* of the settings */
  int64_t *scratch; /* [model_layers] */
  wm_pass_shape_t shape;
  int64_t moments; /* evaluations so far */
} training_t;

static double ranks_of(const wm_plan_at_t *at) {
  return (double)(at->l.nodes * at->l.ranks);
}

/* --- passes -------------------------------------------------------------------------------------
 */

static double pass_seconds(const wm_plan_at_t *at, const wm_pass_work_t *w, bool backward) {
  const double speed = wm_plan_speed(at->m, at->l.threads);
  const double flops = w->forward + (backward ? w->backward : 0);
  return flops / (speed * at->m->trunk) +
         (backward ? OF_DRAW * w->draws / (speed * at->m->steps) : 0);
}

/* One step: the passes of the rank with most sequences, the sum of the gradients, the update. */
static double step_seconds(training_t *t, const wm_phase_t *phase, wm_cost_t *c) {
  const wm_config_t *config = t->at->run->config;
  const wm_machine_t *m = t->at->m;
  const int64_t all = wm_config_int(config, "finetune.sequences");
  const int64_t fitting = wm_config_int(config, "finetune.pass_tokens") / t->shape.length;
  const double ranks = ranks_of(t->at), nodes = (double)t->at->l.nodes;
  int64_t left = (int64_t)ceil((double)all / ranks);
  const double trained =
      wm_phase_trained(t->shape.arch, phase, t->shape.gate_hidden, t->shape.train_surrogates);
  double seconds = 0;
  wm_pass_shape_t shape = t->shape;
  shape.phase = phase;
  for (; left > 0; left -= shape.sequences) {
    shape.sequences = fitting < 1 ? 1 : left < fitting ? left : fitting;
    const wm_pass_work_t work = wm_pass_work(&shape);
    seconds += pass_seconds(t->at, &work, true);
    c->flops += (work.forward + work.backward) * ((double)all < ranks ? (double)all : ranks);
  }
  c->message_bytes += 4 * trained * 2 * (nodes - 1);
  return seconds + wm_plan_reduce_seconds(m, t->at->l, 4 * trained) +
         trained * (OF_UPDATE / ranks + OF_EXCHANGE) / m->steps;
}

/* One evaluation on the blocks, which are dealt out; phase NULL: of the full model. */
static double evaluation_seconds(training_t *t, const wm_phase_t *phase, const wm_blocks_t *blocks,
                                 wm_cost_t *c) {
  const double ranks = ranks_of(t->at);
  wm_pass_shape_t shape = t->shape;
  double seconds = 0;
  shape.phase = phase;
  for (int64_t b = 0; b < blocks->n; b++) {
    int64_t rows = 0;
    for (int64_t i = blocks->first_window[b]; i < blocks->first_window[b + 1]; i++)
      rows += blocks->windows->length[i];
    shape.sequences = blocks->first_window[b + 1] - blocks->first_window[b];
    shape.length = shape.sequences > 0 ? rows / shape.sequences : 0; /* mean */
    const wm_pass_work_t work = wm_pass_work(&shape);
    seconds += pass_seconds(t->at, &work, false);
    c->flops += work.forward;
  }
  return blocks->n == 0 ? 0 : seconds / (double)blocks->n * ceil((double)blocks->n / ranks);
}

/* Evaluations of one model on all ranges: `evaluation` and those named after it. */
static wm_status_t add_evaluations(training_t *t, const wm_phase_t *phase, int64_t times,
                                   wm_error_t *err) {
  const wm_run_t *run = t->at->run;
  const wm_plan_work_t *w = t->at->w;
  const int64_t rows = wm_config_int(run->config, "finetune.pass_tokens");
  wm_cost_t c = {0};
  wm_status_t status = WM_OK;
  bool there = true;
  c.seconds = evaluation_seconds(t, phase, &w->blocks[WM_ROLE_EVALUATION], &c);
  for (int64_t i = 0; there && status == WM_OK; i++) {
    wm_range_t range;
    wm_windows_t windows = {0};
    wm_blocks_t blocks = {0};
    status = wm_plan_evaluation(run, i, &range, &there, err);
    if (status != WM_OK || range.kind == WM_RANGE_ABSENT)
      continue;
    status = wm_plan_cut(run, w, &range, rows, &windows, &blocks, err);
    if (status == WM_OK)
      c.seconds += evaluation_seconds(t, phase, &blocks, &c);
    wm_blocks_destroy(&blocks);
    wm_windows_destroy(&windows);
  }
  c.seconds *= (double)times;
  c.flops *= (double)times;
  wm_plan_add(t->at->total, &c);
  t->moments += times;
  return status;
}

/* --- phases -------------------------------------------------------------------------------------
 */

/* Surrogates of the layers that become linear or gated: fitted at once, without spectra. */
static wm_status_t add_fit(training_t *t, const wm_phase_t *p, const wm_phase_t *before,
                           wm_error_t *err) {
  wm_work_t work = t->at->w->work;
  wm_cost_t c;
  int64_t n = 0;
  for (int64_t l = 0; l < t->plan.model_layers; l++) {
    const bool had =
        before != NULL && (before->modes[l] == WM_MODE_LINEAR || before->modes[l] == WM_MODE_GATED);
    if (!had && (p->modes[l] == WM_MODE_LINEAR || p->modes[l] == WM_MODE_GATED))
      t->scratch[n++] = l;
  }
  if (n == 0 || t->settings.kind == WM_PLAN_PRETRAIN) /* those are drawn */
    return WM_OK;
  work.layers = t->scratch;
  work.fit_layers = n;
  work.spectrum = false;
  work.lambdas = 0;
  wm_status_t status = wm_plan_fit(&work, t->at->m, t->at->l, &c, err);
  if (status == WM_OK)
    wm_plan_add(t->at->total, &c);
  return status;
}

static wm_status_t add_phase(training_t *t, int64_t index, wm_error_t *err) {
  const wm_phase_t *p = &t->plan.phases[index], *before = index > 0 ? p - 1 : NULL;
  const int64_t every = wm_config_int(t->at->run->config, "finetune.evaluate_every");
  const double steps = (double)p->steps;
  wm_cost_t step = {0};
  step.seconds = step_seconds(t, p, &step);
  const wm_cost_t c = {.seconds = steps * step.seconds,
                       .flops = steps * step.flops,
                       .message_bytes = steps * step.message_bytes,
                       .meetings = steps};
  wm_status_t status = add_fit(t, p, before, err);
  wm_plan_add(t->at->total, &c);
  if (status == WM_OK)
    status =
        add_evaluations(t, p, wm_phase_evaluations(p, before, t->plan.model_layers, every), err);
  return status;
}

/* Bytes that a node's ranks hold: weights once, what training keeps of all of them, activations. */
static double memory_of(const training_t *t) {
  const wm_arch_t *a = t->shape.arch;
  const wm_config_t *c = t->at->run->config;
  const double d = (double)a->d_model, f = (double)a->d_mlp, weights = wm_plan_weights(a);
  const double kept = t->shape.recompute ? d : 6 * d + f;
  const double rows = (double)wm_config_int(c, "finetune.pass_tokens");
  const double pass = rows * ((double)a->n_layers * kept + 12 * d + 2 * f) * 4 +
                      (double)(t->shape.tile_rows * a->vocab_size) * 4;
  const int64_t trainer = wm_trainer_bytes((int64_t)weights / 4, (int)ranks_of(t->at));
  return weights + (double)t->at->l.ranks * ((double)trainer + pass);
}

/* --- plans --------------------------------------------------------------------------------------
 */

static wm_status_t read_plan(training_t *t, bool control, wm_error_t *err) {
  const wm_run_t *run = t->at->run;
  const wm_config_t *c = run->config;
  const wm_arch_t *arch = &t->at->w->arch;
  const int64_t n = arch->n_layers;
  bool progressive;
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, 2 * n, sizeof(int64_t), "layers", err));
  t->layers = memory;
  t->scratch = t->layers + n;
  WM_TRY(wm_finetune_plan(c, arch, control, &t->settings, &progressive, err));
  wm_plan_centre_outward(n, t->scratch); /* the cost of a layer does not depend on its place much */
  t->settings.layers = t->layers;
  WM_TRY(wm_finetune_layers(c, n, progressive ? t->scratch : NULL, t->layers, &t->settings.n_layers,
                            err));
  WM_TRY(wm_plan_create(&t->settings, &t->plan, err));
  t->shape = (wm_pass_shape_t){.arch = arch,
                               .length = wm_config_int(c, "finetune.length"),
                               .tile_rows = wm_config_int(c, "compute.tile_rows"),
                               .gate_hidden = wm_config_int(c, "finetune.gate_hidden"),
                               .recompute = wm_config_bool(c, "finetune.recompute"),
                               .study_gradients =
                                   strcmp(wm_config_string(c, "finetune.gradients"), "study") == 0,
                               .train_surrogates = t->settings.kind == WM_PLAN_PRETRAIN,
                               .dropout = wm_config_bool(c, "finetune.dropout")};
cleanup:
  return status;
}

static bool ends_gated(const wm_plan_t *plan) {
  const wm_phase_t *last = &plan->phases[plan->n - 1];
  for (int64_t l = 0; l < plan->model_layers; l++)
    if (last->modes[l] == WM_MODE_GATED)
      return true;
  return false;
}

static wm_status_t add_plan(wm_plan_at_t *at, bool control, wm_error_t *err) {
  training_t t = {.at = at};
  const wm_work_t *w = &at->w->work;
  wm_status_t status;
  WM_TRY(read_plan(&t, control, err));
  WM_TRY(add_evaluations(&t, NULL, 1, err));
  for (int64_t i = 0; i < t.plan.n; i++)
    WM_TRY(add_phase(&t, i, err));
  if (ends_gated(&t.plan)) /* what the gates say, on the first range */
    at->total->seconds += evaluation_seconds(&t, &t.plan.phases[t.plan.n - 1],
                                             &at->w->blocks[WM_ROLE_EVALUATION], at->total);
  if (wm_compute_of(at->run) != WM_COMPUTE_F32) /* the trained model again, with float32 products */
    WM_TRY(add_evaluations(&t, &t.plan.phases[t.plan.n - 1], 1, err));
  const double bytes = 3 * wm_plan_weights(&at->w->arch);
  const wm_cost_t result = {.seconds =
                                bytes / at->m->files +
                                wm_plan_statistics(at->m, at->l, (double)(t.moments - 1),
                                                   (double)w->evaluation->windows->n_predicted,
                                                   (double)w->resamples, (double)w->units),
                            .file_bytes = bytes,
                            .memory = memory_of(&t)};
  wm_plan_add(at->total, &result);
cleanup:
  wm_plan_destroy(&t.plan);
  free(t.layers);
  return status;
}

wm_status_t wm_plan_job_finetune(wm_plan_at_t *at, wm_error_t *err) {
  wm_status_t status = add_plan(at, false, err);
  if (status == WM_OK && wm_config_bool(at->run->config, "finetune.compare"))
    status = add_plan(at, true, err);
  return status;
}
