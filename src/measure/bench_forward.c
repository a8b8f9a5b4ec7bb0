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

/* A text, its pass, and where its kernels are counted. */
typedef struct {
  const wm_bench_t *bench;
  wm_bench_text_t text;
  wm_variants_t variants;
  wm_bench_pass_t pass;
  wm_profile_t profile;
} run_t;

static wm_status_t run_create(const wm_bench_t *bench, bool documents, run_t *r, wm_error_t *err) {
  *r = (run_t){.bench = bench};
  wm_status_t status;
  WM_TRY(wm_variants_create(&r->variants, err));
  WM_TRY(documents ? wm_bench_text_documents(bench, &r->text, err)
                   : wm_bench_text_fixed(bench, &r->text, err));
  WM_TRY(wm_bench_pass_create(bench, &r->text, &r->variants, NULL, &r->pass, err));
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
  wm_model_set_profile(r->bench->model, &r->profile);
  wm_status_t status = wm_bench_pass_run(&r->pass, err);
  wm_model_set_profile(r->bench->model, NULL);
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
  const double row[] = {
      tokens / bench->options->comm->size, best,         wm_samples_median(s), *rate, flops / 1e9,
      100 * flops / bench->peak,           *rate / fixed};
  return wm_records_add(records, name, row, err);
}

static double total(const wm_samples_t *s) {
  double sum = 0;
  for (int i = 0; i < s->n; i++)
    sum += s->seconds[i];
  return sum;
}

wm_status_t wm_bench_forward(wm_bench_t *bench, wm_error_t *err) {
  const wm_bench_options_t *o = bench->options;
  const bool documents = (o->parts & WM_BENCH_DOCUMENTS) != 0;
  run_t runs[2];
  wm_status_t status = run_create(bench, false, &runs[0], err), second;
  second = run_create(bench, true, &runs[1], err);
  wm_contest_t contests[2] = {{.ranks = o->comm->size, .call = call_counted, .context = &runs[0]},
                              {.ranks = o->comm->size, .call = call_counted, .context = &runs[1]}};
  WM_TRY(wm_agree(o->comm->world, status != WM_OK ? status : second, err));
  WM_TRY(wm_bench_contest(o, contests, documents ? 2 : 1, err));
  wm_records_t *records = wm_bench_table(bench, &forward_layout);
  double rate = NAN;
  WM_TRY(add_rates(bench, records, "fixed windows", &runs[0], &contests[0].samples, &rate, err));
  if (documents)
    WM_TRY(add_rates(bench, records, "documents", &runs[1], &contests[1].samples, &rate, err));
  wm_records_note(records,
                  "Windows of %lld tokens, blocks of %lld, tiles of %lld rows; best of %d.",
                  (long long)o->window, (long long)o->block_tokens, (long long)o->model.tile_rows,
                  contests[0].samples.n);
  WM_TRY(wm_bench_kernels(bench, &kernels_layout, &runs[0].profile, total(&contests[0].samples),
                          contests[0].samples.n, err));
  if (documents)
    WM_TRY(wm_bench_kernels(bench, &document_kernels_layout, &runs[1].profile,
                            total(&contests[1].samples), contests[1].samples.n, err));
cleanup:
  run_destroy(&runs[0]);
  run_destroy(&runs[1]);
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
  run_t run;
  int n = 0;
  wm_status_t status = run_create(bench, false, &run, err);
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
