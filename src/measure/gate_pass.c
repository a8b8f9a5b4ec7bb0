#include "wanamaker/measure/gate_pass.h"

#include "gate_keep.h"
#include "parts_folder.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/progress.h"
#include "wanamaker/measure/features.h"
#include "wanamaker/measure/trunk.h"

#include <string.h>

/* One of the two texts. */
typedef struct {
  const wm_gate_source_t *source; /* NULL: there is none */
  wm_features_t features;
  const char *path; /* of the dataset that keeps them */
} text_t;

typedef struct {
  const wm_comm_t *comm;
  wm_model_t *model;
  const wm_gate_pass_options_t *options;
  wm_gate_pass_plan_t plan;
  text_t fit, heldout;
  wm_gates_t *gates;
  wm_gate_ends_t *ends;
  double *scores; /* [N of the fit] of a layer's linear gate */
  wm_gate_keep_t keep;
  int64_t n_todo;
  int64_t *todo;  /* [n_todo] numbers of the options' layers whose features are wanted */
  int64_t *layer; /* [n_todo] the layers */
  int64_t next;   /* number of the next layer that `gates` will have */
} pass_t;

/* --- plan ---------------------------------------------------------------------------------------
 */

static int64_t max_rows(const wm_gate_source_t *a, const wm_gate_source_t *b) {
  int64_t rows = a->blocks->max_rows;
  return b != NULL && b->blocks->max_rows > rows ? b->blocks->max_rows : rows;
}

static int64_t max_length(const wm_gate_source_t *a, const wm_gate_source_t *b) {
  int64_t length = a->blocks->windows->max_length;
  return b != NULL && b->blocks->windows->max_length > length ? b->blocks->windows->max_length
                                                              : length;
}

/* Trunk passes of all groups over `tokens`, and fits of all layers to `rows`: ten Newton steps,
 * each a symmetric product, and the correlation matrix. */
static void count_operations(const wm_model_t *model, const wm_gate_source_t *fit, double tokens,
                             const wm_gate_pass_options_t *o, wm_gate_pass_plan_t *p) {
  const wm_arch_t *arch = wm_model_arch(model);
  const double d = (double)arch->d_model, steps = 10;
  const double rows = (double)fit->blocks->windows->n_predicted;
  p->network = p->algebra = 0;
  for (int64_t i = 0; i < o->n_layers; i += p->layers_per_pass) {
    int64_t end = i + p->layers_per_pass < o->n_layers ? i + p->layers_per_pass : o->n_layers;
    p->network += tokens * (double)(o->layers[end - 1] + 1) * wm_arch_flops_layer(arch);
  }
  p->algebra = (double)o->n_layers * (rows * d * d * (steps + 1) + (9 + steps / 3) * d * d * d);
}

wm_status_t wm_gate_pass_plan(const wm_comm_t *comm, const wm_model_t *model,
                              const wm_gate_source_t *fit, const wm_gate_source_t *heldout,
                              const wm_gate_pass_options_t *o, wm_gate_pass_plan_t *p,
                              wm_error_t *err) {
  const int64_t d = wm_model_arch(model)->d_model;
  int64_t fit_rows, heldout_rows = 0;
  wm_features_rows(comm, fit->blocks, &fit_rows);
  if (heldout != NULL)
    wm_features_rows(comm, heldout->blocks, &heldout_rows);
  const int64_t rows = fit_rows + heldout_rows;
  int64_t layers = o->n_layers;
  while (o->feature_bytes > 0 && layers > 0 &&
         wm_features_bytes(rows, layers, d) > o->feature_bytes)
    layers--;
  if (layers == 0)
    return wm_fail(
        err, WM_USAGE,
        "gate.memory_gib = %.3f is too little: the features of one layer take %.3f GiB a "
        "rank; more ranks would share them",
        (double)o->feature_bytes / 0x1p30, (double)wm_features_bytes(rows, 1, d) / 0x1p30);
  *p = (wm_gate_pass_plan_t){.layers_per_pass = layers,
                             .passes = (o->n_layers + layers - 1) / layers,
                             .feature_bytes = wm_features_bytes(rows, layers, d)};
  const int64_t block = max_rows(fit, heldout);
  const int64_t trunk = wm_trunk_bytes(model, block, max_length(fit, heldout)) +
                        (o->base != NULL ? wm_routing_bytes(model, block) : 0);
  const int64_t algebra = wm_gate_fit_bytes(&o->fit, fit_rows, d);
  p->bytes = p->feature_bytes + (trunk > algebra ? trunk : algebra);
  double tokens = (double)fit->blocks->windows->n_positions;
  if (heldout != NULL)
    tokens += (double)heldout->blocks->windows->n_positions;
  count_operations(model, fit, tokens, o, p);
  return WM_OK;
}

/* --- passes -------------------------------------------------------------------------------------
 */

static wm_status_t open_text(const pass_t *p, text_t *t, wm_error_t *err) {
  if (t->source == NULL)
    return WM_OK;
  return wm_features_create(p->comm, t->source->blocks, p->gates->d, p->plan.layers_per_pass,
                            &t->features, err);
}

/* Layers first .. first + n - 1 of those that are to be done. Collective. */
static wm_status_t collect(const pass_t *p, text_t *t, int64_t first, int64_t n,
                           wm_progress_t *progress, wm_error_t *err) {
  const wm_gate_pass_options_t *o = p->options;
  wm_status_t status = WM_OK;
  if (t->source == NULL)
    return WM_OK;
  WM_TRY(wm_features_collect(&t->features, p->comm, p->model, o->base, t->source->blocks,
                             t->source->ids, p->layer + first, n, progress, err));
  if (o->keep != NULL) /* then all layers are to be done */
    WM_TRY(
        wm_features_write(&t->features, p->comm, t->source->blocks, t->path, first, o->keep, err));
cleanup:
  return status;
}

/* slot: of the layer among the features that are held. */
static wm_gate_rows_t rows_of(const text_t *t, int64_t slot, int64_t index) {
  const int64_t n = t->source->blocks->windows->n_predicted;
  return (wm_gate_rows_t){.n = t->features.n,
                          .x = wm_features_layer(&t->features, slot),
                          .place = t->features.place,
                          .total = n,
                          .full = t->source->nll,
                          .linear = t->source->nll + (1 + index) * n,
                          .unit = t->source->unit,
                          .n_units = t->source->n_units};
}

/* Layer number `index` of the options. Collective. */
static wm_status_t fit_layer(pass_t *p, int64_t slot, int64_t index, wm_error_t *err) {
  const wm_gate_source_t *s = p->fit.source;
  const bool held = p->heldout.source != NULL;
  wm_gate_rows_t fit = rows_of(&p->fit, slot, index), heldout = {0};
  if (held)
    heldout = rows_of(&p->heldout, slot, index);
  wm_status_t status;
  WM_TRY(wm_gate_fit_layer(p->comm, p->options->layers[index], &fit, held ? &heldout : NULL,
                           &p->options->fit, p->gates, p->scores, err));
  status = wm_gate_ends_find(s->blocks->windows, s->ids, s->nll, fit.linear, p->scores,
                             p->options->least_count, &p->ends[index], err);
  WM_TRY(wm_agree(p->comm->world, status, err));
  wm_gate_keep_add(&p->keep, index);
cleanup:
  return status;
}

/* Layers before number `index` that an earlier run has fitted into the set, which is in order.
 * Collective. */
static wm_status_t take_kept(pass_t *p, int64_t index, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (; p->next < index && status == WM_OK; p->next++)
    status = wm_gate_keep_take(&p->keep, p->next, p->gates, err);
  return wm_agree(p->comm->world, status, err);
}

/* What is there after a step: kept if it is time or if the group ends and another pass follows;
 * WM_STOPPED for those who have more to do. Collective. */
static wm_status_t look(pass_t *p, bool group_ends, wm_error_t *err) {
  const wm_gate_moment_t now = wm_gate_keep_look(&p->keep);
  const bool more = p->next < p->options->n_layers;
  wm_status_t status = WM_OK;
  if (more && (now.stop || now.due || group_ends))
    status = wm_gate_keep_write(&p->keep, p->gates, p->ends, err);
  if (more && now.stop && status == WM_OK)
    status = wm_gate_keep_stopped(&p->keep, err);
  return status;
}

static wm_status_t keep_text(const pass_t *p, const text_t *t, const char *description,
                             wm_error_t *err) {
  if (t->source == NULL || p->options->keep == NULL)
    return WM_OK;
  const int64_t dims[3] = {p->options->n_layers, t->source->blocks->windows->n_predicted,
                           p->gates->d};
  return wm_h5_dataset(p->options->keep, t->path, H5T_IEEE_F32LE, 3, dims, description, err);
}

/* Features of a group and the fits of those of its layers that no earlier run has fitted.
 * Collective. */
static wm_status_t run_group(pass_t *p, int64_t first, int64_t n, wm_progress_t *progress,
                             wm_progress_t *fits, wm_error_t *err) {
  wm_status_t status;
  WM_TRY(collect(p, &p->fit, first, n, progress, err));
  WM_TRY(collect(p, &p->heldout, first, n, progress, err));
  for (int64_t slot = 0; slot < n; slot++) {
    const int64_t index = p->todo[first + slot];
    if (wm_gate_keep_has(&p->keep, index))
      continue;
    WM_TRY(take_kept(p, index, err));
    WM_TRY(fit_layer(p, slot, index, err));
    p->next = index + 1;
    wm_progress_update(fits, fits->done + 1);
    WM_TRY(look(p, slot + 1 == n, err));
  }
cleanup:
  if (status == WM_STOPPED) { /* in the midst of a pass, too */
    wm_error_t why = {0};
    wm_gate_keep_look(&p->keep); /* all ranks know who asked */
    if (wm_gate_keep_write(&p->keep, p->gates, p->ends, &why) != WM_OK) {
      *err = why;
      return why.status;
    }
    return wm_gate_keep_stopped(&p->keep, err);
  }
  return status;
}

/* All layers, a group after another. Collective. */
static wm_status_t run_groups(pass_t *p, wm_progress_t *progress, wm_progress_t *fits,
                              wm_error_t *err) {
  const int64_t each = p->plan.layers_per_pass;
  wm_status_t status = WM_OK;
  for (int64_t first = 0; first < p->n_todo; first += each)
    WM_TRY(run_group(p, first, p->n_todo - first < each ? p->n_todo - first : each, progress, fits,
                     err));
  WM_TRY(take_kept(p, p->options->n_layers, err));
cleanup:
  return status;
}

/* What an earlier run has left to do. Collective. */
static wm_status_t list_layers(pass_t *p, wm_error_t *err) {
  const int64_t n = p->options->n_layers;
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, n, sizeof(int64_t), "layers", err));
  p->todo = memory;
  WM_TRY(wm_alloc(&memory, n, sizeof(int64_t), "layers", err));
  p->layer = memory;
  for (int64_t i = 0; i < n; i++)
    if (p->options->keep != NULL || !wm_gate_keep_has(&p->keep, i)) {
      p->layer[p->n_todo] = p->options->layers[i];
      p->todo[p->n_todo++] = i;
    }
cleanup:
  return wm_agree(p->comm->world, status, err);
}

/* Scores and features. Collective. */
static wm_status_t allocate(pass_t *p, wm_error_t *err) {
  void *memory;
  wm_status_t status =
      wm_alloc(&memory, p->fit.source->blocks->windows->n_predicted, sizeof(double), "scores", err);
  p->scores = memory;
  if (status == WM_OK)
    status = open_text(p, &p->fit, err);
  if (status == WM_OK)
    status = open_text(p, &p->heldout, err);
  return wm_agree(p->comm->world, status, err);
}

static void release(pass_t *p) {
  wm_features_destroy(&p->fit.features);
  wm_features_destroy(&p->heldout.features);
  wm_gate_keep_close(&p->keep);
  free(p->scores);
  free(p->todo);
  free(p->layer);
}

wm_status_t wm_gate_pass_run(const wm_comm_t *comm, wm_model_t *model, const wm_gate_source_t *fit,
                             const wm_gate_source_t *heldout, const wm_gate_pass_options_t *options,
                             const wm_log_t *log, wm_gates_t *gates, wm_gate_ends_t *ends,
                             wm_error_t *err) {
  pass_t p = {.comm = comm,
              .model = model,
              .options = options,
              .gates = gates,
              .ends = ends,
              .fit = {.source = fit, .path = "/features/x"},
              .heldout = {.source = heldout, .path = "/features/x_heldout"}};
  int64_t tokens = fit->blocks->windows->n_positions;
  wm_progress_t progress, fits;
  wm_status_t status = wm_gate_pass_plan(comm, model, fit, heldout, options, &p.plan, err);
  WM_TRY(wm_agree(comm->world, status, err));
  WM_TRY(wm_gate_keep_open(comm, model, options, log, ends, &p.keep, err));
  WM_TRY(list_layers(&p, err));
  WM_TRY(allocate(&p, err));
  WM_TRY(keep_text(&p, &p.fit, "[layer, position of the fit, D] MLP inputs", err));
  WM_TRY(keep_text(&p, &p.heldout, "[layer, held-out position, D] MLP inputs", err));
  if (heldout != NULL)
    tokens += heldout->blocks->windows->n_positions;
  const int64_t each = p.plan.layers_per_pass;
  wm_progress_start(&progress, log, "features", "tokens", tokens * ((p.n_todo + each - 1) / each));
  wm_progress_start(&fits, log, "gates", "layers", p.n_todo);
  WM_TRY(run_groups(&p, &progress, &fits, err));
  wm_progress_finish(&progress);
  wm_progress_finish(&fits);
cleanup:
  release(&p);
  return status;
}

void wm_gate_pass_remove_parts(const wm_comm_t *comm, const char *folder) {
  wm_part_remove(comm, folder);
}
