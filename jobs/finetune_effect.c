/* finetune: what products that are not float32 do to the losses of the trained model, by the paired
 * statistics of all evaluations. */
#include "finetune.h"
#include "stages.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/measure/paired.h"

#include <math.h>
#include <string.h>

/* Collective. to's gates <- from's. */
static void copy_gates(const wm_finetune_t *f, const wm_training_t *from, wm_training_t *to) {
  int64_t n, m;
  const wm_parameter_t *a = wm_training_parameters(from, &n), *b = wm_training_parameters(to, &m);
  for (int64_t i = 0, j = 0; i < n && f->run->comm->node_rank == 0; i++) {
    if (a[i].group != WM_GROUP_GATES)
      continue;
    while (b[j].group != WM_GROUP_GATES)
      j++;
    memcpy(b[j++].value, a[i].value, (size_t)a[i].elements * sizeof(float));
  }
  wm_training_sync(to);
}

/* Collective. The trained model with float32 products; it trains nothing. */
static wm_status_t open_f32(const wm_finetune_t *f, wm_training_t **out, wm_error_t *err) {
  const int64_t n = f->plan.model_layers;
  void *paths = NULL, *frozen = NULL;
  wm_status_t status = wm_alloc(&paths, n, sizeof(wm_layer_path_t), "layers", err);
  if (status == WM_OK)
    status = wm_alloc(&frozen, n, sizeof(bool), "layers", err);
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  wm_training_options_t o = wm_finetune_options(f, f->plan.n - 1, paths, frozen);
  o.compute = WM_COMPUTE_F32;
  o.trainable = 0;
  o.train_surrogates = false;
  o.logits_bytes = 1; /* none are kept */
  WM_TRY(wm_training_create(f->inputs.model, &o, out, err));
  copy_gates(f, f->training, *out);
cleanup:
  free(paths);
  free(frozen);
  return status;
}

/* The last evaluation with blended gates. */
static int64_t last_moment(const wm_finetune_t *f) {
  int64_t i = f->n_moments - 1;
  while (i > 0 && f->moments[i].hard)
    i--;
  return i;
}

/* Collective. */
static wm_status_t add_range(const wm_finetune_t *f, int64_t range, wm_training_t *training,
                             wm_records_t *records, wm_error_t *err) {
  const wm_evaluation_t *e = &f->evaluations[range];
  const int64_t n = e->text->windows.n_predicted;
  const wm_bootstrap_t bootstrap = wm_finetune_bootstrap(f->run);
  void *memory;
  wm_effect_t effects[2];
  double largest = 0;
  wm_status_t status = wm_alloc(&memory, 2 * n, sizeof(float), "losses", err);
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  float *exact = memory, *rounded = exact + n;
  WM_TRY(wm_finetune_losses(f, range, training, false, exact, err));
  memcpy(rounded, e->nll + last_moment(f) * n, (size_t)n * sizeof *rounded);
  WM_TRY(
      wm_paired_effects(f->run->comm, exact, 2, n, e->units, e->n_units, &bootstrap, effects, err));
  for (int64_t i = 0; i < n; i++)
    largest = fmax(largest, fabs((double)rounded[i] - (double)exact[i]));
  const double row[] = {effects[0].perplexity, effects[1].perplexity, effects[1].delta,
                        effects[1].low,        effects[1].high,       largest};
  status = wm_agree(f->run->comm->world, wm_records_add(records, e->name, row, err), err);
cleanup:
  free(memory);
  return status;
}

wm_status_t wm_finetune_effect(const wm_finetune_t *f, wm_h5_t *file, wm_error_t *err) {
  const wm_compute_t compute = wm_compute_of(f->run);
  char description[128];
  const wm_record_layout_t layout = {.path = "/compute_effect",
                                     .description = description,
                                     .label = "range",
                                     .columns = {{"ppl_f32", "PPL", "f32", 4},
                                                 {"ppl", "PPL", "as trained", 4},
                                                 {"delta_pct", "effect", "%", 4},
                                                 {"low", "from", "%", 4},
                                                 {"high", "to", "%", 4},
                                                 {"largest", "largest", "nats a token", 4}},
                                     .n_columns = 6};
  wm_training_t *training = NULL;
  wm_records_t records;
  wm_status_t status = WM_OK;
  if (compute == WM_COMPUTE_F32)
    return WM_OK;
  snprintf(description, sizeof description,
           "effect of products in %s on the trained model, against products in f32",
           wm_compute_name(compute));
  wm_records_init(&records, &layout);
  WM_TRY(open_f32(f, &training, err));
  for (int64_t i = 0; i < f->n_evaluations; i++)
    WM_TRY(add_range(f, i, training, &records, err));
  wm_records_note(&records, "The weights are those that training with such products has led to.");
  status = wm_show_and_write(f->run, &records, file, err);
cleanup:
  wm_records_destroy(&records);
  wm_training_free(training);
  return status;
}
