#include "wanamaker/measure/gate_pass.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/progress.h"
#include "wanamaker/measure/features.h"
#include "wanamaker/measure/trunk.h"

#include <math.h>
#include <stddef.h>
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
  const int64_t trunk = wm_trunk_bytes(model, max_rows(fit, heldout), max_length(fit, heldout));
  const int64_t algebra = wm_gate_fit_bytes(&o->fit, fit_rows, d);
  p->bytes = p->feature_bytes + (trunk > algebra ? trunk : algebra);
  double tokens = (double)fit->blocks->windows->n_positions;
  if (heldout != NULL)
    tokens += (double)heldout->blocks->windows->n_positions;
  count_operations(model, fit, tokens, o, p);
  return WM_OK;
}

/* --- ends of a direction ------------------------------------------------------------------------
 */

typedef struct {
  int32_t token;
  int64_t place;
  double count, score, delta; /* of a position, or means of a type */
} type_t;

/* Positions of a token in their order, so that sums have one. */
static int by_token(const void *a, const void *b) {
  const type_t *x = a, *y = b;
  return x->token != y->token ? (x->token > y->token ? 1 : -1)
                              : (x->place > y->place) - (x->place < y->place);
}

/* Descending; equal means in the order of ids. */
static int by_score(const void *a, const void *b) {
  const type_t *x = a, *y = b;
  return x->score != y->score ? (x->score < y->score ? 1 : -1) : by_token(a, b);
}

/* From one entry per position to one per type that occurs often enough, with means. */
static int64_t merge_types(type_t *types, int64_t n, int64_t least) {
  int64_t kept = 0;
  qsort(types, (size_t)n, sizeof *types, by_token);
  for (int64_t begin = 0, end; begin < n; begin = end) {
    type_t sum = {.token = types[begin].token};
    for (end = begin; end < n && types[end].token == sum.token; end++) {
      sum.count++;
      sum.score += types[end].score;
      sum.delta += types[end].delta;
    }
    sum.score /= sum.count;
    sum.delta /= sum.count;
    if (sum.count >= (double)least)
      types[kept++] = sum;
  }
  qsort(types, (size_t)kept, sizeof *types, by_score);
  return kept;
}

static void set_ends(const type_t *types, int64_t n, wm_gate_ends_t *out) {
  for (int e = 0; e < 2; e++)
    for (int64_t i = 0; i < WM_GATE_ENDS; i++) {
      const type_t none = {-1, -1, 0, NAN, NAN};
      /* A type is at one end only. */
      const bool there = e == 0 ? i < (n + 1) / 2 : i < n / 2;
      const type_t *t = !there ? &none : e == 0 ? &types[i] : &types[n - 1 - i];
      out->token[e][i] = t->token;
      out->count[e][i] = t->count;
      out->score[e][i] = t->score;
      out->delta[e][i] = t->delta;
    }
}

/* Positions whose delta and score are finite count. */
static wm_status_t find_ends(const pass_t *p, const float *linear, wm_gate_ends_t *out,
                             wm_error_t *err) {
  const wm_gate_source_t *s = p->fit.source;
  const wm_windows_t *w = s->blocks->windows;
  void *memory;
  wm_status_t status = wm_alloc(&memory, w->n_predicted, sizeof(type_t), "token types", err);
  if (status != WM_OK)
    return status;
  type_t *types = memory;
  int64_t n = 0;
  for (int64_t i = 0, place = 0; i < w->n; i++)
    for (int64_t r = w->first_predicted[i]; r + 1 < w->length[i]; r++, place++) {
      const double delta = (double)linear[place] - (double)s->nll[place];
      if (isfinite(delta) && isfinite(p->scores[place]))
        types[n++] = (type_t){s->ids[w->first[i] + r], place, 1, p->scores[place], delta};
    }
  n = merge_types(types, n, p->options->least_count);
  set_ends(types, n, out);
  free(memory);
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

/* Collective. */
static wm_status_t collect(const pass_t *p, text_t *t, int64_t first, int64_t n,
                           wm_progress_t *progress, wm_error_t *err) {
  const wm_gate_pass_options_t *o = p->options;
  wm_status_t status = WM_OK;
  if (t->source == NULL)
    return WM_OK;
  WM_TRY(wm_features_collect(&t->features, p->comm, p->model, t->source->blocks, t->source->ids,
                             o->layers + first, n, progress, err));
  if (o->keep != NULL)
    WM_TRY(
        wm_features_write(&t->features, p->comm, t->source->blocks, t->path, first, o->keep, err));
cleanup:
  return status;
}

static wm_gate_rows_t rows_of(const text_t *t, int64_t first, int64_t index) {
  const int64_t n = t->source->blocks->windows->n_predicted;
  return (wm_gate_rows_t){.n = t->features.n,
                          .x = wm_features_layer(&t->features, index - first),
                          .place = t->features.place,
                          .total = n,
                          .full = t->source->nll,
                          .linear = t->source->nll + (1 + index) * n,
                          .unit = t->source->unit,
                          .n_units = t->source->n_units};
}

/* Layer number `index` of the options; the group begins at `first`. Collective. */
static wm_status_t fit_layer(const pass_t *p, int64_t first, int64_t index, wm_error_t *err) {
  const bool held = p->heldout.source != NULL;
  wm_gate_rows_t fit = rows_of(&p->fit, first, index), heldout = {0};
  if (held)
    heldout = rows_of(&p->heldout, first, index);
  wm_status_t status;
  WM_TRY(wm_gate_fit_layer(p->comm, p->options->layers[index], &fit, held ? &heldout : NULL,
                           &p->options->fit, p->gates, p->scores, err));
  WM_TRY(wm_agree(p->comm->world, find_ends(p, fit.linear, &p->ends[index], err), err));
cleanup:
  return status;
}

/* Has any rank been asked to stop? Collective. */
static wm_status_t go_on(const pass_t *p, wm_error_t *err) {
  int code = wm_stop_code();
  MPI_Allreduce(MPI_IN_PLACE, &code, 1, MPI_INT, MPI_MAX, p->comm->world);
  wm_stop_adopt(code);
  return code == 0 ? WM_OK : wm_fail(err, WM_STOPPED, "gates: stopped by %s", wm_stop_reason());
}

static wm_status_t keep_text(const pass_t *p, const text_t *t, const char *description,
                             wm_error_t *err) {
  if (t->source == NULL || p->options->keep == NULL)
    return WM_OK;
  const int64_t dims[3] = {p->options->n_layers, t->source->blocks->windows->n_predicted,
                           p->gates->d};
  return wm_h5_dataset(p->options->keep, t->path, H5T_IEEE_F32LE, 3, dims, description, err);
}

/* All layers, a group after another. Collective. */
static wm_status_t run_groups(pass_t *p, wm_progress_t *progress, wm_progress_t *fits,
                              wm_error_t *err) {
  const int64_t each = p->plan.layers_per_pass, all = p->options->n_layers;
  wm_status_t status = WM_OK;
  for (int64_t first = 0; first < all; first += each) {
    const int64_t n = all - first < each ? all - first : each;
    WM_TRY(collect(p, &p->fit, first, n, progress, err));
    WM_TRY(collect(p, &p->heldout, first, n, progress, err));
    for (int64_t i = first; i < first + n; i++) {
      WM_TRY(fit_layer(p, first, i, err));
      wm_progress_update(fits, i + 1);
      WM_TRY(go_on(p, err));
    }
  }
cleanup:
  return status;
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
  const int64_t n = fit->blocks->windows->n_predicted;
  int64_t tokens = fit->blocks->windows->n_positions;
  wm_progress_t progress, fits;
  void *memory = NULL;
  wm_status_t status = wm_gate_pass_plan(comm, model, fit, heldout, options, &p.plan, err);
  if (status == WM_OK)
    status = wm_alloc(&memory, n, sizeof(double), "scores", err);
  p.scores = memory;
  if (status == WM_OK)
    status = open_text(&p, &p.fit, err);
  if (status == WM_OK)
    status = open_text(&p, &p.heldout, err);
  WM_TRY(wm_agree(comm->world, status, err));
  WM_TRY(keep_text(&p, &p.fit, "[layer, position of the fit, D] MLP inputs", err));
  WM_TRY(keep_text(&p, &p.heldout, "[layer, held-out position, D] MLP inputs", err));
  if (heldout != NULL)
    tokens += heldout->blocks->windows->n_positions;
  wm_progress_start(&progress, log, "features", "tokens", tokens * p.plan.passes);
  wm_progress_start(&fits, log, "gates", "layers", options->n_layers);
  WM_TRY(run_groups(&p, &progress, &fits, err));
  wm_progress_finish(&progress);
  wm_progress_finish(&fits);
cleanup:
  wm_features_destroy(&p.fit.features);
  wm_features_destroy(&p.heldout.features);
  free(memory);
  return status;
}

/* --- file ---------------------------------------------------------------------------------------
 */

/* Members of the ends as datasets. */
static const struct {
  const char *path;
  size_t offset;
  bool integer;
  const char *description;
} members[] = {
    {"/ends/token", offsetof(wm_gate_ends_t, token), true,
     "[layer of /layers, high and low end, rank] input token types with the most extreme mean "
     "score "
     "of the linear gate on the fit's positions, outermost first; -1: none"},
    {"/ends/count", offsetof(wm_gate_ends_t, count), false,
     "[layer of /layers, high and low end, rank] positions of the type"},
    {"/ends/score", offsetof(wm_gate_ends_t, score), false,
     "[layer of /layers, high and low end, rank] their mean score, log-odds"},
    {"/ends/delta", offsetof(wm_gate_ends_t, delta), false,
     "[layer of /layers, high and low end, rank] their mean delta, nats"},
};
enum { MEMBERS = sizeof members / sizeof members[0] };

static size_t bytes_of(int member) {
  return 2 * WM_GATE_ENDS * (members[member].integer ? sizeof(int32_t) : sizeof(double));
}

wm_status_t wm_gate_ends_write(const wm_gate_ends_t *ends, int64_t n_layers, const wm_comm_t *comm,
                               wm_h5_t *file, wm_error_t *err) {
  const int64_t dims[3] = {n_layers, 2, WM_GATE_ENDS}, zero[3] = {0};
  const int64_t count[3] = {comm->rank == 0 ? n_layers : 0, 2, WM_GATE_ENDS};
  void *buffer;
  wm_status_t status = wm_alloc(&buffer, n_layers, sizeof *ends, "ends of directions", err);
  WM_TRY(wm_agree(comm->world, status, err));
  for (int m = 0; m < MEMBERS; m++) {
    const bool integer = members[m].integer;
    for (int64_t i = 0; i < n_layers; i++)
      memcpy((char *)buffer + (size_t)i * bytes_of(m), (const char *)&ends[i] + members[m].offset,
             bytes_of(m));
    WM_TRY(wm_h5_dataset(file, members[m].path, integer ? H5T_STD_I32LE : H5T_IEEE_F64LE, 3, dims,
                         members[m].description, err));
    WM_TRY(wm_h5_write(file, members[m].path, integer ? H5T_NATIVE_INT32 : H5T_NATIVE_DOUBLE, zero,
                       count, buffer, err));
  }
cleanup:
  free(buffer);
  return status;
}

wm_status_t wm_gate_ends_read(wm_gate_ends_t *ends, int64_t n_layers, wm_h5_t *file,
                              wm_error_t *err) {
  const int64_t zero[3] = {0}, count[3] = {n_layers, 2, WM_GATE_ENDS};
  void *buffer;
  wm_status_t status = wm_alloc(&buffer, n_layers, sizeof *ends, "ends of directions", err);
  for (int m = 0; m < MEMBERS && status == WM_OK; m++) {
    status =
        wm_h5_read(file, members[m].path, members[m].integer ? H5T_NATIVE_INT32 : H5T_NATIVE_DOUBLE,
                   zero, count, buffer, err);
    for (int64_t i = 0; i < n_layers && status == WM_OK; i++)
      memcpy((char *)&ends[i] + members[m].offset, (const char *)buffer + (size_t)i * bytes_of(m),
             bytes_of(m));
  }
  free(buffer);
  return status;
}
