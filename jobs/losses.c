#include "losses.h"

#include "stages.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/linalg/cpu.h"

#include <string.h>

wm_sweep_options_t wm_losses_options(const wm_run_t *run) {
  const wm_config_t *c = run->config;
  wm_sweep_options_t o = {.max_group = wm_config_int(c, "sweep.group"),
                          .stack_rows = wm_config_int(c, "compute.stack_rows"),
                          .memory_bytes = wm_memory_bytes(run),
                          .rate = wm_stage_rate(run),
                          .checkpoint_seconds = 60 * wm_config_float(c, "checkpoint.minutes"),
                          .bootstrap = {.resamples = wm_config_int(c, "bootstrap.resamples"),
                                        .seed = (uint64_t)wm_config_int(c, "bootstrap.seed"),
                                        .confidence = wm_config_float(c, "bootstrap.confidence"),
                                        .unpaired = wm_config_bool(c, "bootstrap.unpaired")}};
  wm_unit_parse(wm_config_string(c, "bootstrap.unit"), &o.unit);
  return o;
}

uint64_t wm_losses_key(const wm_inputs_t *in, const wm_text_t *text,
                       const wm_surrogates_t *surrogates, const wm_variants_t *v,
                       const wm_sweep_plan_t *plan) {
  static const char *const last_digits[] = {"compute.block_tokens", "compute.tile_rows",
                                            "compute.tile_vocab"};
  uint64_t h = wm_model_fingerprint(in->model);
  uint64_t s = wm_surrogates_fingerprint(surrogates);
  h = wm_hash(&s, sizeof s, h);
  wm_compute_t compute = wm_compute_of(in->run);
  h = wm_hash(&compute, sizeof compute, h);
  h = wm_text_fingerprint(text, h);
  h = wm_hash(v->offsets, (size_t)(v->n + 1) * sizeof *v->offsets, h);
  h = wm_hash(v->layers, (size_t)v->offsets[v->n] * sizeof *v->layers, h);
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
  return wm_hash(&o->unit, sizeof o->unit, h);
}
