/* Forward passes: fixed windows, documents of uneven lengths, more ranks, more threads. */
#include "bench_internal.h"
#include "wanamaker/linalg/blas.h"

#include <math.h>
#include <stdio.h>

static const wm_record_layout_t forward_layout = {
    .path = "/forward/rates",
    .description = "Forward pass with losses, all ranks",
    .label = "text",
    .columns = {{"tokens", "tokens", "a rank", 0},
                {"best", "best", "seconds", 3},
                {"median", "median", "seconds", 3},
                {"tokens_per_second", "tokens/s", NULL, 1},
                {"gflops", "GF/s", NULL, 1},
                {"peak", "of peak", "%", 1},
                {"ratio", "tokens/s", "to fixed", 3}},
    .n_columns = 7};
static const wm_record_layout_t kernels_layout = {
    .path = "/forward/kernels",
    .description = "Kernels of the forward pass on fixed windows",
    .label = "kernel",
    WM_KERNEL_COLUMNS};
static const wm_record_layout_t document_kernels_layout = {
    .path = "/forward/document_kernels",
    .description = "Kernels of the forward pass on documents",
    .label = "kernel",
    WM_KERNEL_COLUMNS};
static const wm_record_layout_t bf16_kernels_layout = {
    .path = "/forward/bf16_kernels",
    .description = "Kernels of the forward pass with bfloat16 products",
    .label = "kernel",
    WM_KERNEL_COLUMNS};
static const wm_record_layout_t scaling_layout = {
    .path = "/scaling",
    .description = "Forward pass on fixed windows, each rank its own: efficiency of ranks, threads",
    .label = "ranks x threads",
    .columns = {{"best", "best", "seconds", 3},
                {"median", "median", "seconds", 3},
                {"tokens_per_second", "tokens/s", NULL, 1},
                {"speedup", "speedup", NULL, 3},
                {"efficiency", "efficiency", "%", 1}},
    .n_columns = 5};

/* A model, a text, its pass, and where its kernels are counted. */
typedef struct {
  wm_model_t *model; /* borrowed */
  double peak;       /* of its products */
  wm_bench_text_t text;
  wm_variants_t variants;
  wm_bench_pass_t pass;
  wm_profile_t profile;
} run_t;

/* Not collective. */
static wm_status_t run_create(const wm_bench_t *bench, wm_model_t *model, bool documents, run_t *r,
                              wm_error_t *err) {
  wm_status_t status;
  r->model = model;
  r->peak = wm_bench_peak(bench, wm_model_compute(model));
  WM_TRY(wm_variants_create(&r->variants, err));
  WM_TRY(documents ? wm_bench_text_documents(bench, &r->text, err)
                   : wm_bench_text_fixed(bench, &r->text, err));
  WM_TRY(wm_bench_pass_create(bench, model, &r->text, &r->variants, NULL, &r->pass, err));
cleanup:
  return status;
}

static void run_destroy(run_t *r) {
  wm_bench_pass_destroy(&r->pass);
  wm_bench_text_destroy(&r->text);
  wm_variants_destroy(&r->variants);
}

/* A wm_bench_call_t, with the kernels counted. */
static wm_status_t call_counted(void *context, wm_error_t *err) {
  run_t *r = context;
  wm_model_set_profile(r->model, &r->profile);
  wm_status_t status = wm_bench_pass_run(&r->pass, err);
  wm_model_set_profile(r->model, NULL);
  return status;
}

static double sum_over_ranks(const wm_bench_t *bench, double value) {
  wm_sum_f64(bench->options->comm->world, &value, 1);
  return value;
}

/* Collective. Returns tokens/s of the best time. */
static wm_status_t add_rates(wm_bench_t *bench, wm_records_t *records, const char *name,
                             const run_t *r, const wm_samples_t *s, double *rate, wm_error_t *err) {
  double best = wm_samples_best(s),
         tokens = sum_over_ranks(bench, (double)r->text.windows.n_positions);
  double flops = sum_over_ranks(bench, r->text.flops) / best;
  double fixed = *rate; /* of the first row; NaN: this is it */
  *rate = tokens / best;
  const double row[] = {tokens / bench->options->comm->size,
                        best,
                        wm_samples_median(s),
                        *rate,
                        flops / 1e9,
                        100 * flops / r->peak,
                        *rate / fixed};
  return wm_agree(bench->options->comm->world, wm_records_add(records, name, row, err), err);
}

/* What a pass is called in the tables. */
typedef struct {
  const char *name;
  const wm_record_layout_t *kernels;
} title_t;

/* Collective. Tables of what the contest found. */
static wm_status_t tell_forward(wm_bench_t *bench, const title_t *titles, const run_t *runs,
                                const wm_contest_t *contests, int n, wm_error_t *err) {
  const wm_bench_options_t *o = bench->options;
  wm_records_t *records = wm_bench_table(bench, &forward_layout);
  double rate, fixed = NAN;
  for (int i = 0; i < n; i++) {
    rate = fixed;
    wm_status_t status =
        add_rates(bench, records, titles[i].name, &runs[i], &contests[i].samples, &rate, err);
    if (status != WM_OK)
      return status;
    fixed = i == 0 ? rate : fixed;
  }
  wm_records_note(records,
                  "Windows of %lld tokens, blocks of %lld, tiles of %lld rows; best of %d, %s.",
                  (long long)o->window, (long long)o->block_tokens,
                  (long long)wm_gemm_tile_rows(o->model.tile_rows), contests[0].samples.n,
                  o->processor_time ? "processor time" : "wall clock");
  for (int i = 0; i < n; i++) {
    const wm_samples_t *s = &contests[i].samples;
    wm_status_t status = wm_bench_kernels(bench, titles[i].kernels, &runs[i].profile, runs[i].peak,
                                          s->wall, s->n, err);
    if (status != WM_OK)
      return status;
  }
  return WM_OK;
}

/* Collective. The same model with bfloat16 products; *out stays NULL where the CPU has none. */
static wm_status_t open_bf16(const wm_bench_t *bench, wm_model_t **out, wm_error_t *err) {
  const wm_bench_options_t *o = bench->options;
  wm_model_options_t options = o->model;
  wm_error_t missing = {0};
  options.compute = WM_COMPUTE_BF16;
  *out = NULL;
  if (o->model.compute != WM_COMPUTE_F32 ||
      wm_agree(o->comm->world, wm_compute_check(WM_COMPUTE_BF16, &missing), &missing) != WM_OK)
    return WM_OK;
  return wm_model_create_random(o->comm, o->config, o->seed, &options, NULL, out, err);
}

wm_status_t wm_bench_forward(wm_bench_t *bench, wm_error_t *err) {
  enum { MOST = 3 };
  const wm_bench_options_t *o = bench->options;
  title_t titles[MOST] = {{"fixed windows", &kernels_layout}};
  run_t runs[MOST] = {0};
  wm_contest_t contests[MOST];
  wm_model_t *bf16 = NULL;
  int n = 1;
  wm_status_t status;
  WM_TRY(open_bf16(bench, &bf16, err));
  status = run_create(bench, bench->model, false, &runs[0], err);
  if (status == WM_OK && (o->parts & WM_BENCH_DOCUMENTS) != 0) {
    titles[n] = (title_t){"documents", &document_kernels_layout};
    status = run_create(bench, bench->model, true, &runs[n++], err);
  }
  if (status == WM_OK && bf16 != NULL) {
    titles[n] = (title_t){"fixed windows, bf16", &bf16_kernels_layout};
    status = run_create(bench, bf16, false, &runs[n++], err);
  }
  WM_TRY(wm_agree(o->comm->world, status, err));
  for (int i = 0; i < n; i++)
    contests[i] = (wm_contest_t){.ranks = o->comm->size, .call = call_counted, .context = &runs[i]};
  WM_TRY(wm_bench_contest(o, contests, n, err));
  WM_TRY(tell_forward(bench, titles, runs, contests, n, err));
cleanup:
  for (int i = 0; i < MOST; i++)
    run_destroy(&runs[i]);
  wm_model_close(bf16);
  return status;
}

/* --- scaling ------------------------------------------------------------------------------------
 */

static wm_status_t call_plain(void *context, wm_error_t *err) {
  run_t *r = context;
  return wm_bench_pass_run(&r->pass, err);
}

static wm_status_t add_scaling(wm_bench_t *bench, wm_records_t *records, int ranks, int threads,
                               const wm_samples_t *s, double one, wm_error_t *err) {
  const wm_bench_options_t *o = bench->options;
  double best = wm_samples_best(s), rate = (double)(ranks * o->windows * o->window) / best;
  double speedup = rate / one;
  char name[WM_RECORD_LABEL];
  snprintf(name, sizeof name, "%d x %d", ranks, threads);
  const double row[] = {best, wm_samples_median(s), rate, speedup,
                        100 * speedup / (ranks * threads)};
  return wm_records_add(records, name, row, err);
}

/* 1, 2, 4, ... and all. */
static int next_count(int count, int all) {
  return count == all ? all + 1 : 2 * count < all ? 2 * count : all;
}

/* One rank to all ranks, in turns, with one number of threads. */
static wm_status_t scale_ranks(wm_bench_t *bench, wm_records_t *records, int threads, bool all,
                               double *one, wm_error_t *err) {
  enum { MOST = 32 };
  const wm_bench_options_t *o = bench->options;
  wm_contest_t contests[MOST];
  run_t run = {0};
  int n = 0;
  wm_status_t status = run_create(bench, bench->model, false, &run, err);
  WM_TRY(wm_agree(o->comm->world, status, err));
  for (int ranks = 1; ranks <= o->comm->size && n < MOST; ranks = next_count(ranks, o->comm->size))
    if (all || ranks == 1)
      contests[n++] = (wm_contest_t){.ranks = ranks, .call = call_plain, .context = &run};
  WM_TRY(wm_bench_contest(o, contests, n, err));
  if (isnan(*one))
    *one = (double)(o->windows * o->window) / wm_samples_best(&contests[0].samples);
  for (int i = 0; i < n && status == WM_OK; i++)
    status =
        add_scaling(bench, records, contests[i].ranks, threads, &contests[i].samples, *one, err);
  WM_TRY(wm_agree(o->comm->world, status, err));
cleanup:
  run_destroy(&run);
  return status;
}

/* Products are prepared for a number of threads: each number has its own model. */
static wm_status_t reopen(wm_bench_t *bench, int threads, wm_error_t *err) {
  const wm_bench_options_t *o = bench->options;
  wm_model_close(bench->model);
  bench->model = NULL;
  wm_set_threads(threads);
  return wm_model_create_random(o->comm, o->config, o->seed, &o->model, NULL, &bench->model, err);
}

wm_status_t wm_bench_scaling(wm_bench_t *bench, wm_error_t *err) {
  const int threads = wm_threads();
  wm_records_t *records = wm_bench_table(bench, &scaling_layout);
  double one = NAN;
  wm_status_t status = WM_OK;
  for (int t = 1; t <= threads && status == WM_OK; t = next_count(t, threads)) {
    if (threads > 1)
      status = reopen(bench, t, err);
    if (status == WM_OK)
      status = scale_ranks(bench, records, t, t == threads, &one, err);
  }
  wm_set_threads(threads);
  wm_records_note(records, "Ranks take turns; numbers of threads follow one another.");
  return status;
}
