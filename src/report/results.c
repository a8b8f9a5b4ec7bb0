#include "results_internal.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/io/files.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

static const wm_result_file_t known_files[WM_FILE_KINDS] = {
    [WM_FILE_SURROGATES] = {.name = "surrogates.h5",
                            .job = "fit",
                            .shows = "R squared, spectrum and lambda path of the surrogates"},
    [WM_FILE_SWEEP] = {.name = "sweep.h5",
                       .job = "sweep",
                       .shows = "cost of every layer, of sets of layers and of gates"},
    [WM_FILE_GATES] = {.name = "gates.h5",
                       .job = "gate",
                       .shows = "gates, their AUC, their threshold curves, demand per layer"},
    [WM_FILE_ALLOCATION] = {.name = "allocation.h5",
                            .job = "allocate",
                            .shows = "the Pareto front of jointly measured plans"},
    [WM_FILE_BENCH] = {.name = "bench.h5",
                       .job = "bench",
                       .shows = "time saved by the clock beside operations saved"},
    [WM_FILE_FINETUNE] = {.name = "finetune.h5",
                          .job = "finetune",
                          .shows = "training trajectories and the redistribution of gates"},
    [WM_FILE_CONTROL] = {.name = "control.h5",
                         .job = "finetune",
                         .shows = "the control: the same training with nothing linearised"},
    [WM_FILE_COMPARE] = {.name = "finetune.compare.h5",
                         .job = "finetune",
                         .shows = "the plan against its control at equal tokens, with intervals"},
    [WM_FILE_PROBES] = {.name = "probes.h5",
                        .job = "probe",
                        .shows = "context against token, categories by depth, corpora compared"},
};

/* ---- the files ------------------------------------------------------------------------------- */

/* An array that must have the extents of another one before it. */
static wm_status_t read_same(wm_h5_t *f, const char *path, int n_dims, const int64_t *dims,
                             double **out, wm_error_t *err) {
  int64_t found[WM_H5_MAX_DIMS] = {0};
  wm_status_t status = wm_h5_read_array(f, path, n_dims, found, out, err);
  if (status == WM_OK && memcmp(found, dims, (size_t)n_dims * sizeof *dims) != 0)
    status = wm_fail(err, WM_INPUT, "%s: %s: extents that do not agree with the arrays beside it",
                     wm_h5_path(f), path);
  return status;
}

static wm_status_t read_surrogates(wm_h5_t *f, wm_results_t *r, wm_error_t *err) {
  static const char *const fit[] = {"r2", "r2_heldout", "weight_norm", "condition",
                                    "effective_rank"};
  wm_status_t status;
  WM_TRY(wm_frame_read(f, "/layers", "layer", &r->layers, err));
  WM_TRY(wm_frame_read_group(f, "/fit", 5, fit, &r->layers, err));
  if (wm_h5_has(f, "/spectrum/eigenvalues"))
    WM_TRY(wm_h5_read_array(f, "/spectrum/eigenvalues", 2, r->eigen_dims, &r->eigenvalues, err));
  if (wm_h5_has(f, "/path/lambda")) {
    WM_TRY(wm_frame_read(f, "/path/lambda", "lambda", &r->path_lambda, err));
    WM_TRY(wm_h5_read_array(f, "/path/r2", 2, r->path_dims, &r->path_r2, err));
    WM_TRY(read_same(f, "/path/r2_heldout", 2, r->path_dims, &r->path_r2_heldout, err));
  }
  if ((r->eigenvalues != NULL && r->eigen_dims[0] != r->layers.n) ||
      (r->path_r2 != NULL &&
       (r->path_dims[0] != r->layers.n || r->path_dims[1] != r->path_lambda.n)))
    status = wm_fail(err, WM_INPUT, "%s: extents of /layers, /spectrum and /path do not agree",
                     wm_h5_path(f));
cleanup:
  return status;
}

/* Units that have tokens, by `path`, which must have n elements (-1: any number). */
static wm_status_t count_units(wm_h5_t *f, const char *path, int64_t n, int64_t *out,
                               wm_error_t *err) {
  int64_t most = -1;
  void *seen = NULL;
  wm_status_t status;
  wm_frame_t column = {0};
  WM_TRY(wm_frame_read(f, path, "unit", &column, err));
  const double *units = wm_frame_numbers(&column, "unit");
  if (units == NULL && column.n > 0)
    status = wm_fail(err, WM_INPUT, "%s: %s must hold numbers", wm_h5_path(f), path);
  else if (n >= 0 && column.n != n)
    status = wm_fail(err, WM_INPUT, "%s: %s has %lld elements for %lld losses", wm_h5_path(f), path,
                     (long long)column.n, (long long)n);
  if (status != WM_OK)
    goto cleanup;
  for (int64_t i = 0; i < column.n; i++)
    if (units[i] > (double)most)
      most = (int64_t)units[i];
  WM_TRY(wm_alloc(&seen, most + 1, 1, "units", err));
  for (int64_t i = 0; i < column.n; i++)
    if (units[i] >= 0 && !((char *)seen)[(int64_t)units[i]]) {
      ((char *)seen)[(int64_t)units[i]] = 1;
      ++*out;
    }
cleanup:
  wm_frame_destroy(&column);
  free(seen);
  return status;
}

static wm_status_t read_sweep(wm_h5_t *f, wm_results_t *r, wm_error_t *err) {
  static const char *const changes[] = {"variant", "layer", "gate", "threshold"};
  int64_t dims[2] = {0};
  wm_status_t status;
  WM_TRY(wm_frame_read(f, "/variants", "", &r->variants, err));
  WM_TRY(wm_frame_read_group(f, "/changes", 4, changes, &r->changes, err));
  WM_TRY(wm_h5_dims(f, "/nll", 2, dims, err));
  if (dims[0] != r->variants.n || dims[0] < 1)
    status = wm_fail(err, WM_INPUT, "%s: /nll has %lld rows, /variants %lld", wm_h5_path(f),
                     (long long)dims[0], (long long)r->variants.n);
  else
    status = count_units(f, "/tokens/unit", dims[1], &r->n_units, err);
  r->n_tokens = dims[1];
cleanup:
  return status;
}

static wm_status_t read_ends(wm_h5_t *f, wm_results_t *r, wm_error_t *err) {
  wm_status_t status;
  if (!wm_h5_has(f, "/ends/token"))
    return WM_OK;
  wm_frame_t tokens = {0};
  int64_t zero[3] = {0};
  void *ids = NULL, *numbers = NULL;
  WM_TRY(wm_h5_dims(f, "/ends/token", 3, r->ends_dims, err));
  int64_t n = r->ends_dims[0] * r->ends_dims[1] * r->ends_dims[2];
  WM_TRY(wm_alloc(&ids, n, sizeof(int32_t), "ends", err));
  WM_TRY(wm_alloc(&numbers, n, sizeof(double), "ends", err));
  r->ends_token = numbers;
  WM_TRY(wm_h5_read(f, "/ends/token", H5T_NATIVE_INT32, zero, r->ends_dims, ids, err));
  for (int64_t i = 0; i < n; i++)
    r->ends_token[i] = (double)((int32_t *)ids)[i];
  WM_TRY(read_same(f, "/ends/count", 3, r->ends_dims, &r->ends_count, err));
  WM_TRY(read_same(f, "/ends/score", 3, r->ends_dims, &r->ends_score, err));
  WM_TRY(read_same(f, "/ends/delta", 3, r->ends_dims, &r->ends_delta, err));
cleanup:
  free(ids);
  wm_frame_destroy(&tokens);
  return status;
}

static wm_status_t read_gates(wm_h5_t *f, wm_results_t *r, wm_error_t *err) {
  static const char *const labels[] = {"positions", "positions_heldout", "threshold", "share",
                                       "better",    "quartile"};
  static const char *const selected[] = {"gate"};
  static const char *const gates[] = {
      "layer",          "kind",     "components",  "threshold", "parameters", "auc",
      "accuracy",       "routed",   "auc_heldout", "auc_low",   "auc_high",   "accuracy_heldout",
      "routed_heldout", "fraction", "note"};
  wm_status_t status;
  WM_TRY(wm_frame_read(f, "/layers", "layer", &r->gate_layers, err));
  WM_TRY(wm_frame_read_group(f, "/selected", 1, selected, &r->gate_layers, err));
  WM_TRY(wm_frame_read(f, "/selected/threshold", "selected_threshold", &r->gate_layers, err));
  WM_TRY(wm_frame_read_group(f, "/labels", 6, labels, &r->gate_layers, err));
  WM_TRY(wm_frame_read_group(f, "/gate", sizeof gates / sizeof gates[0], gates, &r->gates, err));
  if (wm_h5_has(f, "/curve"))
    WM_TRY(wm_frame_read(f, "/curve", "", &r->curve, err));
  status = read_ends(f, r, err);
cleanup:
  return status;
}

static wm_status_t read_allocation(wm_h5_t *f, wm_results_t *r, wm_error_t *err) {
  static const char *const options[] = {"layer", "gate", "threshold"};
  static const char *const plans[] = {"delta_pct", "sum_of_singles_pct", "saved_pct", "front"};
  static const char *const budgets[] = {"delta_pct", "plan"};
  wm_frame_t complete = {0};
  void *numbers = NULL, *ids = NULL;
  int64_t zero[2] = {0};
  wm_status_t status;
  WM_TRY(wm_frame_read_group(f, "/options", 3, options, &r->options, err));
  WM_TRY(wm_frame_read_group(f, "/plans", 4, plans, &r->plans, err));
  WM_TRY(wm_frame_read_group(f, "/budgets", 2, budgets, &r->budgets, err));
  WM_TRY(wm_frame_read(f, "/search_complete", "complete", &complete, err));
  r->search_complete = wm_frame_number(&complete, 0, "complete") > 0;
  WM_TRY(wm_h5_dims(f, "/plans/option", 2, r->plan_dims, err));
  int64_t n = r->plan_dims[0] * r->plan_dims[1];
  WM_TRY(wm_alloc(&ids, n, sizeof(int32_t), "plans", err));
  WM_TRY(wm_alloc(&numbers, n, sizeof(double), "plans", err));
  r->plan_options = numbers;
  WM_TRY(wm_h5_read(f, "/plans/option", H5T_NATIVE_INT32, zero, r->plan_dims, ids, err));
  for (int64_t i = 0; i < n; i++)
    r->plan_options[i] = (double)((int32_t *)ids)[i];
  if (r->plan_dims[0] != r->plans.n)
    status = wm_fail(err, WM_INPUT, "%s: extents in /plans do not agree", wm_h5_path(f));
cleanup:
  free(ids);
  wm_frame_destroy(&complete);
  return status;
}

static wm_status_t read_bench(wm_h5_t *f, wm_results_t *r, wm_error_t *err) {
  const struct {
    const char *path;
    wm_frame_t *to;
  } tables[] = {{"/routing/layers", &r->bench_routing}, {"/routing/last", &r->bench_last},
                {"/routing/losses", &r->bench_losses},  {"/forward/rates", &r->bench_rates},
                {"/sweep/times", &r->bench_sweep},      {"/memory", &r->bench_memory}};
  wm_status_t status = WM_OK;
  for (size_t i = 0; i < sizeof tables / sizeof tables[0] && status == WM_OK; i++)
    if (wm_h5_has(f, tables[i].path))
      status = wm_frame_read(f, tables[i].path, "", tables[i].to, err);
  return status;
}

/* The ranges of a training: groups that have a /table. */
static wm_status_t read_training(wm_h5_t *f, wm_training_result_t *t, wm_error_t *err) {
  static const char *const timing[] = {"seconds", "exposed"};
  hsize_t n = 0;
  H5G_info_t info;
  wm_status_t status = WM_OK;
  if (H5Gget_info(wm_h5_id(f), &info) >= 0)
    n = info.nlinks;
  for (hsize_t i = 0; i < n && t->n < WM_TRAINING_RANGES && status == WM_OK; i++) {
    char name[WM_FRAME_NAME], path[WM_FRAME_NAME + 16];
    ssize_t length = H5Lget_name_by_idx(wm_h5_id(f), ".", H5_INDEX_NAME, H5_ITER_INC, i, name,
                                        sizeof name, H5P_DEFAULT);
    snprintf(path, sizeof path, "/%s/table", name);
    if (length <= 0 || (size_t)length >= sizeof name || !wm_h5_has(f, path))
      continue;
    memcpy(t->ranges[t->n].name, name, sizeof name);
    status = wm_frame_read(f, path, "", &t->ranges[t->n++].table, err);
  }
  if (status == WM_OK && wm_h5_has(f, "/phases"))
    status = wm_frame_read(f, "/phases", "", &t->phases, err);
  if (status == WM_OK && wm_h5_has(f, "/gates_used"))
    status = wm_frame_read(f, "/gates_used", "", &t->gates, err);
  if (status == WM_OK)
    status = wm_frame_read_group(f, "/timing", 2, timing, &t->timing, err);
  t->n_units = 0;
  if (status == WM_OK && wm_h5_has(f, "/evaluation/unit"))
    status = count_units(f, "/evaluation/unit", -1, &t->n_units, err);
  return status;
}

static void forget_training(wm_training_result_t *t) {
  for (int i = 0; i < t->n; i++)
    wm_frame_destroy(&t->ranges[i].table);
  t->n = 0;
  wm_frame_destroy(&t->phases);
  wm_frame_destroy(&t->gates);
  wm_frame_destroy(&t->timing);
}

static wm_status_t read_finetune(wm_h5_t *f, wm_results_t *r, wm_error_t *err) {
  return read_training(f, &r->training, err);
}

static wm_status_t read_control(wm_h5_t *f, wm_results_t *r, wm_error_t *err) {
  return read_training(f, &r->control, err);
}

static wm_status_t read_comparison(wm_h5_t *f, wm_results_t *r, wm_error_t *err) {
  return wm_frame_read(f, "/comparison", "", &r->comparison, err);
}

static wm_status_t read_probes(wm_h5_t *f, wm_results_t *r, wm_error_t *err) {
  const struct {
    const char *path;
    wm_frame_t *to;
  } tables[] = {{"/context", &r->context},           {"/categories", &r->categories},
                {"/correlations", &r->correlations}, {"/types", &r->types},
                {"/regression", &r->regression},     {"/clusterings", &r->clusterings}};
  wm_status_t status = WM_OK;
  for (size_t i = 0; i < sizeof tables / sizeof tables[0] && status == WM_OK; i++)
    if (wm_h5_has(f, tables[i].path))
      status = wm_frame_read(f, tables[i].path, "", tables[i].to, err);
  return status;
}

/* ---- one file -------------------------------------------------------------------------------- */

static wm_status_t read_file(const char *path, wm_file_kind_t kind, wm_results_t *r,
                             wm_error_t *err) {
  static wm_status_t (*const readers[])(wm_h5_t *, wm_results_t *, wm_error_t *) = {
      [WM_FILE_SURROGATES] = read_surrogates, [WM_FILE_SWEEP] = read_sweep,
      [WM_FILE_GATES] = read_gates,           [WM_FILE_ALLOCATION] = read_allocation,
      [WM_FILE_BENCH] = read_bench,           [WM_FILE_FINETUNE] = read_finetune,
      [WM_FILE_CONTROL] = read_control,       [WM_FILE_COMPARE] = read_comparison,
      [WM_FILE_PROBES] = read_probes};
  wm_h5_t *f = NULL;
  wm_status_t status;
  WM_TRY(wm_h5_open(MPI_COMM_SELF, path, &f, err));
  WM_TRY(wm_h5_verify(f, err));
  WM_TRY(wm_attributes_read(f, &r->files[kind].attributes, err));
  WM_TRY(readers[kind](f, r, err));
  WM_TRY(wm_results_check(r, kind, err));
cleanup:
  wm_h5_close(f);
  return status;
}

/* What a file that turned out bad has left behind would be shown as if it were whole. */
static void forget(wm_results_t *r, wm_file_kind_t kind) {
  wm_frame_t *const frames[WM_FILE_KINDS][8] = {
      [WM_FILE_SURROGATES] = {&r->layers, &r->path_lambda},
      [WM_FILE_SWEEP] = {&r->variants, &r->changes},
      [WM_FILE_GATES] = {&r->gate_layers, &r->gates, &r->curve},
      [WM_FILE_ALLOCATION] = {&r->options, &r->plans, &r->budgets},
      [WM_FILE_BENCH] = {&r->bench_routing, &r->bench_last, &r->bench_losses, &r->bench_rates,
                         &r->bench_sweep, &r->bench_memory},
      [WM_FILE_COMPARE] = {&r->comparison},
      [WM_FILE_PROBES] = {&r->context, &r->categories, &r->correlations, &r->types, &r->regression,
                          &r->clusterings}};
  double **const arrays[WM_FILE_KINDS][8] = {
      [WM_FILE_SURROGATES] = {&r->eigenvalues, &r->path_r2, &r->path_r2_heldout},
      [WM_FILE_GATES] = {&r->ends_token, &r->ends_score, &r->ends_delta, &r->ends_count},
      [WM_FILE_ALLOCATION] = {&r->plan_options}};
  if (kind == WM_FILE_FINETUNE)
    forget_training(&r->training);
  if (kind == WM_FILE_CONTROL)
    forget_training(&r->control);
  for (int i = 0; i < 8; i++) {
    if (frames[kind][i] != NULL)
      wm_frame_destroy(frames[kind][i]);
    if (arrays[kind][i] != NULL) {
      free(*arrays[kind][i]);
      *arrays[kind][i] = NULL;
    }
  }
}

static wm_status_t read_kind(wm_results_t *r, wm_file_kind_t kind, const wm_log_t *log,
                             wm_error_t *err) {
  wm_result_file_t *file = &r->files[kind];
  char *path = wm_format("%s/%s", r->dir, file->name);
  wm_status_t status = WM_OK;
  if (path == NULL)
    return wm_fail(err, WM_ENVIRONMENT, "cannot allocate a path");
  wm_pulse();
  /* A link to nothing and a directory that may not be searched have the file, or may. */
  struct stat info;
  if (lstat(path, &info) == 0 || errno != ENOENT) {
    status = read_file(path, kind, r, err);
    file->state = status == WM_OK ? WM_FILE_READ : WM_FILE_BAD;
  }
  if (status == WM_INPUT) {
    forget(r, kind);
    wm_attributes_destroy(&file->attributes); /* nobody knows what they are of */
    wm_log(log, WM_LOG_WARN, "%s; the report goes on without it", err->message);
    status = wm_strdup(&file->why, err->message, err);
  }
  free(path);
  return status;
}

/* ---- one model ------------------------------------------------------------------------------- */

/* The file whose model the directory's results are of; -1: none says. */
static int first_of_model(const wm_results_t *r) {
  for (int i = -1; i < WM_FILE_KINDS; i++) {
    const int k = i < 0 ? (int)WM_FILE_SWEEP : i; /* verdicts are the sweep's */
    if (r->files[k].state == WM_FILE_READ &&
        wm_attribute(&r->files[k].attributes, "model_fingerprint")[0] != '\0')
      return k;
  }
  return -1;
}

/* Leaves a file out; `why` is a heap string that becomes the file's. */
static wm_status_t refuse(wm_results_t *r, wm_file_kind_t kind, char *why, const wm_log_t *log,
                          wm_error_t *err) {
  wm_result_file_t *file = &r->files[kind];
  if (why == NULL)
    return wm_fail(err, WM_ENVIRONMENT, "cannot allocate a message");
  file->why = why;
  file->state = WM_FILE_BAD;
  wm_log(log, WM_LOG_WARN, "%s; the report goes on without it", file->why);
  forget(r, kind);
  wm_attributes_destroy(&file->attributes);
  return WM_OK;
}

static wm_status_t refuse_model(wm_results_t *r, wm_file_kind_t kind, int k, const wm_log_t *log,
                                wm_error_t *err) {
  const wm_result_file_t *file = &r->files[kind], *first = &r->files[k];
  return refuse(r, kind,
                wm_format("%s/%s: its model is %s (%s), that of %s is %s (%s)", r->dir, file->name,
                          wm_attribute(&file->attributes, "model"),
                          wm_attribute(&file->attributes, "model_fingerprint"), first->name,
                          wm_attribute(&first->attributes, "model"),
                          wm_attribute(&first->attributes, "model_fingerprint")),
                log, err);
}

/* bench.h5 is of a model made for it, and has no fingerprint. */
static wm_status_t keep_one_model(wm_results_t *r, const wm_log_t *log, wm_error_t *err) {
  const int first = first_of_model(r);
  wm_status_t status = WM_OK;
  for (int k = 0; k < WM_FILE_KINDS && first >= 0 && status == WM_OK; k++) {
    const char *model = wm_attribute(&r->files[k].attributes, "model_fingerprint");
    if (r->files[k].state == WM_FILE_READ && model[0] != '\0' &&
        strcmp(model, wm_attribute(&r->files[first].attributes, "model_fingerprint")) != 0)
      status = refuse_model(r, (wm_file_kind_t)k, first, log, err);
  }
  return status;
}

/* The sweep names gates by their rows. */
static wm_status_t keep_own_gates(wm_results_t *r, const wm_log_t *log, wm_error_t *err) {
  char *why = NULL;
  if (r->files[WM_FILE_SWEEP].state == WM_FILE_READ &&
      r->files[WM_FILE_GATES].state == WM_FILE_READ)
    why = wm_results_other_gates(r);
  return why != NULL ? refuse(r, WM_FILE_GATES, why, log, err) : WM_OK;
}

/* Plans train again where a comparison of earlier ones is left. */
static wm_status_t keep_own_comparison(wm_results_t *r, const wm_log_t *log, wm_error_t *err) {
  char *why = NULL;
  if (r->files[WM_FILE_COMPARE].state == WM_FILE_READ)
    why = wm_results_other_runs(r);
  return why != NULL ? refuse(r, WM_FILE_COMPARE, why, log, err) : WM_OK;
}

/* ---- a directory ----------------------------------------------------------------------------- */

/* Why nothing of it can be shown; free(), NULL: memory. */
static char *nothing_to_show(const wm_results_t *r) {
  for (int k = 0; k < WM_FILE_KINDS; k++)
    if (r->files[k].state == WM_FILE_BAD)
      return wm_format("%s: none of its result files can be read: %s", r->dir, r->files[k].why);
  return wm_format("%s: no result file in this directory (surrogates.h5, sweep.h5, gates.h5, "
                   "allocation.h5, bench.h5, finetune.h5, probes.h5)",
                   r->dir);
}

wm_status_t wm_results_read(const char *dir, double tolerance, const wm_log_t *log, wm_results_t *r,
                            wm_error_t *err) {
  struct stat info;
  int read = 0;
  wm_status_t status;
  *r = (wm_results_t){.tolerance = tolerance};
  memcpy(r->files, known_files, sizeof known_files);
  WM_TRY(wm_strdup(&r->dir, dir, err));
  const bool exists = stat(dir, &info) == 0, there = exists && S_ISDIR(info.st_mode);
  const int reason = exists ? ENOTDIR : errno;
  for (int k = 0; k < WM_FILE_KINDS && there; k++) {
    WM_TRY(read_kind(r, (wm_file_kind_t)k, log, err));
    read += r->files[k].state == WM_FILE_READ;
  }
  WM_TRY(keep_one_model(r, log, err));
  WM_TRY(keep_own_gates(r, log, err));
  WM_TRY(keep_own_comparison(r, log, err));
  if (read == 0) {
    r->why = there ? nothing_to_show(r)
             : reason == ENOENT
                 ? wm_format("%s: no such directory of results", dir)
                 : wm_format("%s: no directory of results: %s", dir, strerror(reason));
    if (r->why == NULL)
      status = wm_fail(err, WM_ENVIRONMENT, "cannot allocate a message");
  }
  if (status == WM_OK)
    status = wm_results_derive(r, err);
cleanup:
  return status;
}

void wm_results_destroy(wm_results_t *r) {
  for (int k = 0; k < WM_FILE_KINDS; k++) {
    forget(r, (wm_file_kind_t)k);
    free(r->files[k].why);
    wm_attributes_destroy(&r->files[k].attributes);
  }
  free(r->layer_results);
  free(r->dir);
  free(r->why);
  free(r->label);
  *r = (wm_results_t){0};
}

const char *wm_results_attribute(const wm_results_t *r, const char *name) {
  const char *value = wm_attribute(&r->files[WM_FILE_SWEEP].attributes, name);
  for (int k = 0; k < WM_FILE_KINDS && value[0] == '\0'; k++)
    value = wm_attribute(&r->files[k].attributes, name);
  return value;
}

double wm_configuration_number(const char *text, const char *group, const char *member) {
  char open[64], line[64];
  snprintf(open, sizeof open, "%s: {", group);
  snprintf(line, sizeof line, "  %s = ", member);
  const char *at = strstr(text, open), *end = at != NULL ? strstr(at, "\n}") : NULL;
  const char *found = at != NULL ? strstr(at, line) : NULL;
  if (found == NULL || (end != NULL && found > end))
    return NAN;
  char *rest;
  double value = strtod(found + strlen(line), &rest);
  return rest != found + strlen(line) ? value : NAN;
}
