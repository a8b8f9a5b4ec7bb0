/* finetune: the surrogates of a phase, fitted on the model as it is then. */
#include "finetune.h"
#include "stages.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/measure/fit.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* Collective. Reads number i of a fit's file on all ranks into `memory`, and puts it. */
static wm_status_t take_surrogate(wm_finetune_t *f, wm_h5_t *file, int64_t i, int64_t layer,
                                  double *memory, wm_error_t *err) {
  const int64_t d = wm_model_arch(f->inputs.model)->d_model;
  const int64_t place[3] = {i, 0, 0}, matrix[3] = {1, d, d}, vector[2] = {1, d};
  wm_status_t status;
  WM_TRY(wm_h5_read(file, "/weight", H5T_NATIVE_DOUBLE, place, matrix, memory, err));
  WM_TRY(wm_h5_read(file, "/bias", H5T_NATIVE_DOUBLE, place, vector, memory + d * d, err));
  WM_TRY(wm_surrogates_put(f->surrogates, f->run->comm, layer, memory, memory + d * d, err));
cleanup:
  return status;
}

/* Collective. */
static wm_status_t take_fit(wm_finetune_t *f, const char *path, const int64_t *layers, int64_t n,
                            wm_error_t *err) {
  const int64_t d = wm_model_arch(f->inputs.model)->d_model;
  wm_h5_t *file = NULL;
  void *memory = NULL;
  wm_status_t status = wm_alloc(&memory, d * (d + 1), sizeof(double), "a surrogate", err);
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  WM_TRY(wm_h5_open(f->run->comm->world, path, &file, err));
  for (int64_t i = 0; i < n; i++)
    WM_TRY(take_surrogate(f, file, i, layers[i], memory, err));
cleanup:
  wm_h5_close(file);
  free(memory);
  return status;
}

/* R^2 of the phase's surrogates, means over its layers. */
static void note_fit(wm_finetune_t *f, const wm_fit_summary_t *s, int64_t n) {
  wm_phase_note_t *note = &f->notes[f->phase];
  note->r2 = note->r2_heldout = 0;
  for (int64_t i = 0; i < n; i++) {
    note->r2 += s[i].r2 / (double)n;
    note->r2_heldout += s[i].r2_heldout / (double)n;
  }
  wm_log(f->run->log, WM_LOG_INFO, "%s: %" PRId64 " surrogate(s) fitted, R^2 %.4f, held out %.4f",
         f->stem, n, note->r2, note->r2_heldout);
}

/* Collective. Surrogates of layers[n], ascending, on the model as `base` has it. */
static wm_status_t fit_on(wm_finetune_t *f, const wm_base_t *base, const int64_t *layers, int64_t n,
                          wm_error_t *err) {
  const wm_run_t *run = f->run;
  const wm_config_t *c = run->config;
  const wm_text_t *fit = &f->inputs.text[WM_ROLE_FIT], *held = &f->inputs.text[WM_ROLE_VALIDATION];
  const wm_fit_options_t options = {.lambda = wm_config_float(c, "fit.lambda"),
                                    .base = base,
                                    .layers = layers,
                                    .n_layers = n,
                                    .block = (int)wm_config_int(c, "fit.block"),
                                    .gram_bytes =
                                        (int64_t)(wm_config_float(c, "fit.memory_gib") * 0x1p30),
                                    .memory_bytes = wm_memory_bytes(run)};
  char path[WM_PATH_SIZE];
  wm_h5_t *file = NULL;
  void *summaries = NULL;
  wm_status_t status = wm_alloc(&summaries, n, sizeof(wm_fit_summary_t), "results", err);
  WM_TRY(wm_agree(run->comm->world, status, err));
  WM_TRY(wm_finetune_path(f, "surrogates.h5", path, err));
  WM_TRY(wm_h5_create(run->comm->world, path, &file, err));
  WM_TRY(wm_fit_surrogates(run->comm, f->inputs.model, &fit->blocks, wm_tokens_ids(fit->tokens),
                           held->present ? &held->blocks : NULL,
                           held->present ? wm_tokens_ids(held->tokens) : NULL, &options, file,
                           run->log, summaries, err));
  wm_h5_t *whole = file;
  file = NULL; /* publishing takes it */
  WM_TRY(wm_h5_publish(whole, err));
  WM_TRY(take_fit(f, path, layers, n, err));
  note_fit(f, summaries, n);
  if (run->comm->rank == 0)
    unlink(path); /* they are in checkpoints and in the finished model */
cleanup:
  wm_h5_close(file);
  free(summaries);
  return status;
}

/* Collective. The same on the model as it is now, with the layers linear that are. linear: room for
 * all layers. */
static wm_status_t fit_surrogates(wm_finetune_t *f, const int64_t *layers, int64_t n,
                                  int64_t *linear, wm_error_t *err) {
  wm_variants_t variants = {0};
  int64_t there = 0;
  for (int64_t l = 0; l < f->plan.model_layers; l++)
    if (wm_surrogates_has(f->surrogates, l))
      linear[there++] = l;
  wm_status_t status = wm_variants_create(&variants, err);
  if (status == WM_OK && there > 0)
    status = wm_variants_add(&variants, linear, there, f->plan.model_layers, err);
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  const wm_base_t base = {.surrogates = f->surrogates, .variants = &variants, .variant = 1};
  status = fit_on(f, there > 0 ? &base : NULL, layers, n, err);
cleanup:
  wm_variants_destroy(&variants);
  return status;
}

/* Collective. Linear maps of a model that has not learned anything yet: W normal(0, 0.02), b = 0.
 */
static wm_status_t draw_surrogates(wm_finetune_t *f, const int64_t *layers, int64_t n,
                                   wm_error_t *err) {
  const int64_t d = wm_model_arch(f->inputs.model)->d_model;
  void *memory = NULL;
  wm_status_t status = wm_alloc(&memory, d * (d + 1), sizeof(double), "a linear map", err);
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  double *weight = memory;
  for (int64_t i = 0; i < n; i++) {
    const wm_rng_t rng = {(uint64_t)wm_config_int(f->run->config, "finetune.seed"),
                          0x6c696e00000000u + (uint64_t)layers[i]};
    for (int64_t k = 0; k < d * d; k++)
      weight[k] = 0.02 * wm_rng_normal(rng, (uint64_t)k);
    WM_TRY(wm_surrogates_put(f->surrogates, f->run->comm, layers[i], weight, weight + d * d, err));
  }
cleanup:
  free(memory);
  return status;
}

wm_status_t wm_finetune_surrogates(wm_finetune_t *f, wm_error_t *err) {
  const wm_phase_t *p = &f->plan.phases[f->phase];
  void *memory = NULL;
  int64_t n = 0;
  wm_status_t status =
      wm_alloc(&memory, 2 * f->plan.model_layers, sizeof(int64_t), "layers to fit", err);
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  int64_t *layers = memory;
  f->notes[f->phase].linear = 0;
  for (int64_t l = 0; l < f->plan.model_layers; l++)
    if (p->modes[l] == WM_MODE_LINEAR || p->modes[l] == WM_MODE_GATED) {
      f->notes[f->phase].linear += 1;
      if (!wm_surrogates_has(f->surrogates, l))
        layers[n++] = l;
    }
  if (n > 0 && f->settings.kind == WM_PLAN_PRETRAIN)
    status = draw_surrogates(f, layers, n, err);
  else if (n > 0)
    status = fit_surrogates(f, layers, n, layers + f->plan.model_layers, err);
cleanup:
  free(memory);
  return status;
}
