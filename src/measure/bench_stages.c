/* What a fit and a sweep do with the text of a rank. */
#include "bench_internal.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/measure/fit.h"
#include "wanamaker/measure/gram.h"

#include <math.h>
#include <stdio.h>

/* --- fit ----------------------------------------------------------------------------------------
 */

static const wm_record_layout_t fit_layout = {
    .path = "/fit",
    .description = "Parts of a fit, one layer",
    .label = "part",
    .columns = {{"best", "best", "seconds", 3},
                {"median", "median", "seconds", 3},
                {"tokens_per_second", "tokens/s", "all ranks", 0},
                {"gflops", "GF/s", "all ranks", 1}},
    .n_columns = 4};

typedef struct {
  const wm_bench_t *bench;
  wm_gram_t *gram;
  wm_fit_plan_t plan;
  int64_t rows, d;
  float *x, *y;                 /* [rows, d] */
  int64_t *kept;                /* [rows] */
  double *weight, *bias;        /* [d, d], [d]; of the solution, on rank 0 of its team */
  double *eigenvalues, path[3]; /* [d] */
  MPI_Comm team;                /* the ranks that solve; MPI_COMM_NULL on others */
} fit_t;

static wm_status_t call_add(void *context, wm_error_t *err) {
  fit_t *f = context;
  return wm_gram_add(f->gram, WM_ROWS_FIT, 0, f->x, f->y, f->kept, f->rows, err);
}

static wm_status_t call_solve(void *context, wm_error_t *err) {
  fit_t *f = context;
  wm_moments_t m = wm_gram_moments(f->gram, WM_ROWS_FIT, 0);
  return wm_ridge_solve(f->team, f->plan.grid_rows, f->plan.grid_columns,
                        f->bench->options->fit_block, &m, 0.01, f->weight, f->bias, err);
}

static wm_status_t call_path(void *context, wm_error_t *err) {
  fit_t *f = context;
  wm_moments_t m = wm_gram_moments(f->gram, WM_ROWS_FIT, 0);
  const double lambda = 0.01;
  return wm_ridge_path(f->team, f->plan.grid_rows, f->plan.grid_columns,
                       f->bench->options->fit_block, &m, NULL, &lambda, 1, f->eigenvalues,
                       &f->path[0], &f->path[1], &f->path[2], err);
}

static wm_status_t fit_allocate(fit_t *f, wm_error_t *err) {
  wm_status_t status;
  void *memory;
  WM_TRY(wm_alloc(&memory, 2 * f->rows * f->d, sizeof(float), "rows of the bench", err));
  f->x = memory;
  f->y = f->x + f->rows * f->d;
  WM_TRY(wm_alloc(&memory, f->rows, sizeof(int64_t), "rows of the bench", err));
  f->kept = memory;
  WM_TRY(wm_alloc(&memory, f->d * (f->d + 2), sizeof(double), "a surrogate", err));
  f->weight = memory;
  f->bias = f->weight + f->d * f->d;
  f->eigenvalues = f->bias + f->d;
  wm_rng_t rng = {f->bench->options->seed, 1000 + (uint64_t)f->bench->options->comm->rank};
  wm_rng_normals(rng, 0, 2 * f->rows * f->d, f->x);
  for (int64_t i = 0; i < f->rows; i++)
    f->kept[i] = i;
cleanup:
  return status;
}

static wm_status_t fit_create(const wm_bench_t *bench, fit_t *f, wm_error_t *err) {
  const wm_bench_options_t *o = bench->options;
  const wm_fit_options_t options = {.n_layers = 1, .gram_bytes = INT64_MAX};
  *f = (fit_t){.bench = bench,
               .rows = o->windows * o->window,
               .d = bench->arch.d_model,
               .team = MPI_COMM_NULL};
  wm_status_t status = wm_fit_plan(o->comm, &bench->arch, &options, &f->plan, err);
  if (status == WM_OK)
    status = fit_allocate(f, err);
  WM_TRY(wm_agree(o->comm->world, status, err));
  int team = f->plan.grid_rows * f->plan.grid_columns;
  MPI_Comm_split(o->comm->world, o->comm->rank < team ? 0 : MPI_UNDEFINED, o->comm->rank, &f->team);
  WM_TRY(wm_gram_create(o->comm, f->d, 1, f->rows, &f->gram, err));
  wm_gram_reset(f->gram);
cleanup:
  return status;
}

static void fit_destroy(fit_t *f) {
  wm_gram_free(f->gram);
  if (f->team != MPI_COMM_NULL)
    MPI_Comm_free(&f->team);
  free(f->x);
  free(f->kept);
  free(f->weight);
}

static wm_status_t add_part(const wm_bench_t *bench, wm_records_t *records, const char *name,
                            const wm_samples_t *s, double tokens, double flops, wm_error_t *err) {
  double best = wm_samples_best(s);
  const double row[] = {best, wm_samples_median(s), tokens / best, flops / best / 1e9};
  return wm_agree(bench->options->comm->world, wm_records_add(records, name, row, err), err);
}

wm_status_t wm_bench_fit(wm_bench_t *bench, wm_error_t *err) {
  const wm_bench_options_t *o = bench->options;
  wm_records_t *records = wm_bench_table(bench, &fit_layout);
  fit_t f;
  wm_status_t status = fit_create(bench, &f, err);
  const double d = (double)f.d, tokens = (double)(f.rows * o->comm->size);
  const int team = f.plan.grid_rows * f.plan.grid_columns;
  wm_contest_t add = {.ranks = o->comm->size, .call = call_add, .context = &f};
  wm_contest_t solve[2] = {{.ranks = team, .call = call_solve, .context = &f},
                           {.ranks = team, .call = call_path, .context = &f}};
  char name[WM_RECORD_LABEL];
  WM_TRY(status);
  WM_TRY(wm_bench_contest(o, &add, 1, err));
  WM_TRY(add_part(bench, records, "Gram matrices", &add.samples, tokens, 3 * d * d * tokens, err));
  wm_gram_finish(f.gram);
  WM_TRY(wm_bench_contest(o, solve, 2, err));
  snprintf(name, sizeof name, "ridge solution, grid %d x %d", f.plan.grid_rows,
           f.plan.grid_columns);
  WM_TRY(
      add_part(bench, records, name, &solve[0].samples, NAN, d * d * d / 3 + 2 * d * d * d, err));
  snprintf(name, sizeof name, "spectrum and path, grid %d x %d", f.plan.grid_rows,
           f.plan.grid_columns);
  WM_TRY(add_part(bench, records, name, &solve[1].samples, NAN, NAN, err));
  wm_records_note(records, "Block %d; %d layer(s) are solved at a time.", o->fit_block,
                  f.plan.teams);
cleanup:
  fit_destroy(&f);
  return status;
}

/* --- sweep --------------------------------------------------------------------------------------
 */

static const wm_record_layout_t sweep_layout = {
    .path = "/sweep/times",
    .description = "Every layer's MLP made linear, one layer a variant, on the fixed windows",
    .label = "evaluation",
    .columns = {{"best", "best", "seconds", 3},
                {"median", "median", "seconds", 3},
                {"gflops", "GF/s", "all ranks", 1},
                {"peak", "of peak", "%", 1}},
    .n_columns = 4};
static const wm_record_layout_t sweep_kernels_layout = {.path = "/sweep/kernels",
                                                        .description = "Kernels of the sweep",
                                                        .label = "kernel",
                                                        WM_KERNEL_COLUMNS};

typedef struct {
  const wm_bench_t *bench;
  wm_bench_text_t text;
  wm_surrogates_t *surrogates;
  wm_variants_t all, none;
  wm_bench_pass_t sweep, full;
  wm_profile_t profile;
} sweep_t;

static wm_status_t call_sweep(void *context, wm_error_t *err) {
  sweep_t *s = context;
  wm_model_set_profile(s->bench->model, &s->profile);
  wm_status_t status = wm_bench_pass_run(&s->sweep, err);
  wm_model_set_profile(s->bench->model, NULL);
  return status;
}

static wm_status_t prepare(sweep_t *s, wm_error_t *err) {
  const int64_t layers = s->bench->arch.n_layers;
  wm_status_t status;
  WM_TRY(wm_bench_text_fixed(s->bench, &s->text, err));
  WM_TRY(wm_variants_create(&s->none, err));
  WM_TRY(wm_variants_create(&s->all, err));
  for (int64_t l = 0; l < layers; l++)
    WM_TRY(wm_variants_add(&s->all, &l, 1, layers, err));
  WM_TRY(wm_bench_pass_create(s->bench, s->bench->model, &s->text, &s->all, s->surrogates,
                              &s->sweep, err));
  WM_TRY(wm_bench_pass_create(s->bench, s->bench->model, &s->text, &s->none, NULL, &s->full, err));
cleanup:
  return status;
}

/* Operations of the sweep by those of L + 1 full evaluations (method.md, section 5). */
static double flop_ratio(const sweep_t *s, double *flops) {
  const wm_arch_t *a = &s->bench->arch;
  const wm_windows_t *w = &s->text.windows;
  const double layers = (double)a->n_layers, heads = (double)w->n_predicted * wm_arch_flops_head(a);
  double passes = wm_evaluate_layer_passes(&s->all, 1, s->all.n - 1, a->n_layers);
  double layer = (s->text.flops - heads) / layers;
  *flops = passes * layer + (1 + layers) * heads +
           layers * (double)w->n_positions * wm_arch_flops_surrogate(a);
  return *flops / ((1 + layers) * s->text.flops);
}

static wm_status_t add_time(wm_bench_t *bench, wm_records_t *records, const char *name,
                            const wm_samples_t *s, double times, double flops, wm_error_t *err) {
  double best = wm_samples_best(s) * times;
  double peak = wm_bench_peak(bench, bench->options->model.compute);
  double rate = flops * bench->options->comm->size / best;
  const double row[] = {best, wm_samples_median(s) * times, rate / 1e9, 100 * rate / peak};
  return wm_agree(bench->options->comm->world, wm_records_add(records, name, row, err), err);
}

/* Collective. Tables of the sweep's contest with the full model. */
static wm_status_t tell_sweep(wm_bench_t *bench, const sweep_t *s, const wm_contest_t contests[2],
                              wm_error_t *err) {
  const wm_samples_t *sweep = &contests[0].samples, *full = &contests[1].samples;
  const double evaluations = (double)s->all.n;
  double flops, operations = flop_ratio(s, &flops);
  double ratio = wm_samples_best(sweep) / (evaluations * wm_samples_best(full));
  wm_records_t *records = wm_bench_table(bench, &sweep_layout);
  char name[WM_RECORD_LABEL];
  wm_status_t status;
  WM_TRY(add_time(bench, records, "full model", full, 1, s->text.flops, err));
  snprintf(name, sizeof name, "%lld times the full model", (long long)s->all.n);
  WM_TRY(add_time(bench, records, name, full, evaluations, evaluations * s->text.flops, err));
  WM_TRY(add_time(bench, records, "sweep of all layers", sweep, 1, flops, err));
  wm_records_note(records,
                  "Sweep: %.3f of the time of %lld full evaluations, %.3f of their "
                  "operations; %d repetitions.",
                  ratio, (long long)s->all.n, operations, sweep->n);
  WM_TRY(wm_bench_kernels(bench, &sweep_kernels_layout, &s->profile,
                          wm_bench_peak(bench, bench->options->model.compute), sweep->wall,
                          sweep->n, err));
cleanup:
  return status;
}

wm_status_t wm_bench_sweep(wm_bench_t *bench, wm_error_t *err) {
  const wm_bench_options_t *o = bench->options;
  sweep_t s = {.bench = bench};
  wm_contest_t contests[2] = {
      {.ranks = o->comm->size, .call = call_sweep, .context = &s},
      {.ranks = o->comm->size, .call = wm_bench_pass_run, .context = &s.full}};
  wm_status_t status;
  WM_TRY(wm_surrogates_create_random(o->comm, bench->arch.n_layers, bench->arch.d_model,
                                     o->model.tile_rows, o->model.compute, o->seed, &s.surrogates,
                                     err));
  WM_TRY(wm_agree(o->comm->world, prepare(&s, err), err));
  WM_TRY(wm_bench_contest(o, contests, 2, err));
  WM_TRY(tell_sweep(bench, &s, contests, err));
cleanup:
  wm_bench_pass_destroy(&s.sweep);
  wm_bench_pass_destroy(&s.full);
  wm_bench_text_destroy(&s.text);
  wm_variants_destroy(&s.all);
  wm_variants_destroy(&s.none);
  wm_surrogates_close(s.surrogates);
  return status;
}
