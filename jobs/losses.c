#include "losses.h"

#include "stages.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/memory_room.h"
#include "wanamaker/linalg/cpu.h"
#include "wanamaker/measure/parts.h"

#include <inttypes.h>
#include <string.h>

wm_sweep_options_t wm_losses_options(const wm_run_t *run) {
  const wm_config_t *c = run->config;
  wm_sweep_options_t o = {.max_group = wm_config_int(c, "sweep.group"),
                          .stack_rows = wm_config_int(c, "compute.stack_rows"),
                          .memory_bytes = wm_memory_bytes(run),
                          .rate = wm_stage_rate(run),
                          .divergence = wm_config_bool(c, "sweep.divergence"),
                          .checkpoint_seconds = 60 * wm_config_float(c, "checkpoint.minutes"),
                          .bootstrap = {.resamples = wm_config_int(c, "bootstrap.resamples"),
                                        .seed = (uint64_t)wm_config_int(c, "bootstrap.seed"),
                                        .confidence = wm_config_float(c, "bootstrap.confidence"),
                                        .unpaired = wm_config_bool(c, "bootstrap.unpaired")}};
  wm_unit_parse(wm_config_string(c, "bootstrap.unit"), &o.unit);
  wm_interval_parse(wm_config_string(c, "bootstrap.interval"), &o.bootstrap.interval);
  return o;
}

uint64_t wm_losses_key(const wm_inputs_t *in, const wm_text_t *text,
                       const wm_surrogates_t *surrogates, const wm_variants_t *v,
                       const wm_sweep_plan_t *plan) {
  static const char *const last_digits[] = {"compute.block_tokens", "compute.tile_rows",
                                            "compute.tile_vocab"};
  static const char layout[] = "with counts";
  uint64_t h = wm_hash(layout, sizeof layout, wm_model_fingerprint(in->model));
  uint64_t s = wm_surrogates_fingerprint(surrogates);
  h = wm_hash(&s, sizeof s, h);
  wm_compute_t compute = wm_compute_of(in->run);
  h = wm_hash(&compute, sizeof compute, h);
  h = wm_text_fingerprint(text, h);
  h = wm_variants_fingerprint(v, h);
  bool divergence = wm_config_bool(in->run->config, "sweep.divergence");
  h = wm_hash(&divergence, sizeof divergence, h);
  for (int i = 0; i < 3; i++) {
    int64_t value = wm_config_int(in->run->config, last_digits[i]);
    h = wm_hash(&value, sizeof value, h);
  }
  if (!wm_sweep_cells_are_independent()) {
    h = wm_hash(&plan->max_group, sizeof plan->max_group, h);
    h = wm_hash(&plan->stack_rows, sizeof plan->stack_rows, h);
  }
  return wm_hash(in->run->provenance.version, strlen(in->run->provenance.version), h);
}

uint64_t wm_losses_parts_key(const wm_run_t *run, uint64_t losses_key) {
  const wm_provenance_t *p = &run->provenance;
  const char *const texts[] = {p->backend, p->commit, wm_cpu_features()};
  uint64_t h = losses_key;
  for (int i = 0; i < 3; i++)
    h = wm_hash(texts[i], strlen(texts[i]), h);
  h = wm_hash(&p->threads, sizeof p->threads, h);
  wm_broadcast(run->comm->world, 0, &h, sizeof h);
  return h;
}

uint64_t wm_losses_statistics_key(const wm_text_t *text, const wm_sweep_options_t *o,
                                  uint64_t seed) {
  const wm_bootstrap_t *b = &o->bootstrap;
  const wm_windows_t *w = &text->windows;
  uint64_t h = wm_hash(w->document, (size_t)w->n * sizeof *w->document, seed);
  h = wm_hash(&b->resamples, sizeof b->resamples, h);
  h = wm_hash(&b->seed, sizeof b->seed, h);
  h = wm_hash(&b->confidence, sizeof b->confidence, h);
  h = wm_hash(&b->unpaired, sizeof b->unpaired, h);
  h = wm_hash(&b->interval, sizeof b->interval, h);
  return wm_hash(&o->unit, sizeof o->unit, h);
}

/* --- a stage ------------------------------------------------------------------------------------
 */

static int64_t node_bytes(const wm_losses_stage_t *s) {
  return s->variants->n * s->text->windows.n_predicted * (int64_t)sizeof(float);
}

wm_status_t wm_losses_prepare(wm_losses_stage_t *s, wm_error_t *err) {
  const wm_run_t *run = s->in->run;
  char name[WM_PATH_SIZE];
  wm_status_t status;
  s->options = wm_losses_options(run);
  s->options.divergence = s->options.divergence && !s->plain;
  snprintf(name, sizeof name, "%s.h5", s->name);
  WM_TRY(wm_output_path(run, name, s->path, err));
  snprintf(name, sizeof name, "%s.parts", s->name);
  WM_TRY(wm_output_path(run, name, s->parts, err));
  status = wm_sweep_plan(run->comm, s->in->model, s->variants, &s->text->blocks, &s->options,
                         &s->plan, err);
  WM_TRY(wm_agree(run->comm->world, status, err));
  const uint64_t losses = wm_losses_key(s->in, s->text, s->surrogates, s->variants, &s->plan);
  s->key = wm_losses_statistics_key(s->text, &s->options, losses);
  s->options.parts = s->parts;
  s->options.parts_key = wm_losses_parts_key(run, losses);
  s->complete = wm_stage_is_complete(run, s->path, s->key);
cleanup:
  return status;
}

void wm_losses_explain(const wm_losses_stage_t *s) {
  const wm_run_t *run = s->in->run;
  char duration[32];
  if (run->comm->rank != 0)
    return;
  wm_stage_duration(run, s->plan.flops, 0, duration, sizeof duration);
  const double rank = (double)s->plan.bytes / 0x1p20, losses = (double)node_bytes(s) / 0x1p20;
  fprintf(run->out,
          "%s: %s\n  %" PRId64 " variants and the full model on %s\n"
          "  memory: %.1f MiB a rank; %.1f MiB a node of %d ranks beside the weights\n"
          "  %.3g operations; about %s\n",
          s->name, s->complete ? "complete, would be skipped" : s->path, s->variants->n - 1,
          s->text->windows.label, rank, losses + rank * run->comm->node_size, run->comm->node_size,
          s->plan.flops, duration);
}

/* Collective. */
static wm_status_t check_memory(const wm_losses_stage_t *s, wm_error_t *err) {
  const wm_comm_t *comm = s->in->run->comm;
  wm_status_t status = WM_OK;
  if (comm->node_rank == 0)
    status = wm_memory_room_check(node_bytes(s) + s->plan.bytes * comm->node_size,
                                  "the evaluation's workspace and losses", err);
  return wm_agree(comm->world, status, err);
}

static wm_status_t compute(const wm_losses_stage_t *s, wm_sweep_t *out, wm_error_t *err) {
  const wm_run_t *run = s->in->run;
  const int32_t *ids = wm_tokens_ids(s->text->tokens);
  wm_sweep_options_t options = s->options;
  wm_h5_t *file = NULL;
  wm_status_t status;
  options.known = s->known;
  WM_TRY(check_memory(s, err));
  WM_TRY(wm_h5_create(run->comm->world, s->path, &file, err));
  WM_TRY(wm_sweep_run(run->comm, s->in->model, s->surrogates, s->variants, &s->text->blocks, ids,
                      &options, run->log, out, err));
  if (out->non_finite > 0)
    wm_log(run->log, WM_LOG_WARN, "%s: %" PRId64 " variants have losses that are not finite",
           s->name, out->non_finite);
  WM_TRY(wm_sweep_write(out, ids, file, err));
  WM_TRY(wm_agree(run->comm->world, wm_model_unchanged(s->in->model, err), err));
  WM_TRY(wm_stage_describe(s->in, file, s->name, s->key, err));
  WM_TRY(wm_h5_set_string(file, "/", "bootstrap_unit", wm_unit_name(out->unit), err));
  WM_TRY(wm_h5_set_string(file, "/", "bootstrap_interval",
                          wm_interval_name(s->options.bootstrap.interval), err));
  wm_h5_t *whole = file;
  file = NULL; /* publishing takes it */
  WM_TRY(wm_h5_publish(whole, err));
  wm_parts_remove(run->comm, s->parts);
  wm_log(run->log, WM_LOG_INFO, "%s: wrote %s", s->name, s->path);
cleanup:
  wm_h5_close(file);
  return status;
}

wm_status_t wm_losses_obtain(const wm_losses_stage_t *s, wm_sweep_t *out, wm_error_t *err) {
  const wm_run_t *run = s->in->run;
  if (!s->complete)
    return compute(s, out, err);
  wm_log(run->log, WM_LOG_INFO, "%s: %s is complete for these inputs; skipped", s->name, s->path);
  wm_parts_remove(run->comm, s->parts);
  return wm_sweep_read(run->comm, s->path, s->in->model, s->variants, &s->text->blocks, &s->options,
                       out, err);
}
