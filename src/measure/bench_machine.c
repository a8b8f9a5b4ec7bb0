/* The machine's rates: products and memory. */
#include "bench_internal.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/linalg/gram.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const wm_record_layout_t gemm_layout = {
    .path = "/machine/products",
    .description = "Matrix products, best of the repetitions",
    .label = "rows x in x out",
    .columns = {{"one", "one rank", "GF/s", 1},
                {"all", "all ranks", "GF/s", 1},
                {"scaling", "all / one", "a rank, %", 1}},
    .n_columns = 3};
static const wm_record_layout_t memory_layout = {
    .path = "/machine/memory",
    .description = "Memory bandwidth, a = b + s c on 64 MiB each",
    .label = "what",
    .columns = {{"one", "one rank", "GB/s", 1}, {"all", "all ranks", "GB/s", 1}},
    .n_columns = 2};
/* Samples of less than that are made longer by repeating the call. */
#define LEAST_SECONDS 0.05

/* Collective. Seconds of one call, best of the repetitions: of rank 0 alone and of all at once. */
static wm_status_t time_call(const wm_bench_options_t *o, wm_bench_call_t call, void *context,
                             double *one, double *all, wm_error_t *err) {
  wm_repeated_t r = {call, context, 1};
  wm_samples_t warm = {0};
  wm_status_t status = wm_bench_sample(o, o->comm->size, wm_bench_repeat, &r, &warm, err);
  if (status == WM_OK)
    status = wm_bench_sample(o, o->comm->size, wm_bench_repeat, &r, &warm, err);
  if (status != WM_OK)
    return status;
  double least = wm_samples_best(&warm);
  if (least < LEAST_SECONDS)
    r.times = (int64_t)(LEAST_SECONDS / (least > 1e-7 ? least : 1e-7)) + 1;
  wm_contest_t contests[2] = {{.ranks = 1, .call = wm_bench_repeat, .context = &r},
                              {.ranks = o->comm->size, .call = wm_bench_repeat, .context = &r}};
  status = wm_bench_contest(o, contests, 2, err);
  *one = wm_samples_best(&contests[0].samples) / (double)r.times;
  *all = wm_samples_best(&contests[1].samples) / (double)r.times;
  return status;
}

/* --- products -----------------------------------------------------------------------------------
 */

typedef struct {
  int64_t rows, in, out;
  wm_weight_layout_t layout;
  const char *name;
} shape_t;

typedef struct {
  wm_linear_t *linear;
  int64_t rows;
  float *x, *y;
} product_t;

static wm_status_t call_product(void *context, wm_error_t *err) {
  product_t *p = context;
  return wm_linear_apply(p->linear, p->x, p->rows, p->y, err);
}

/* Small numbers of both signs. */
static void fill(float *x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    x[i] = (float)(i % 61 - 30) * 0x1p-6f;
}

static wm_status_t product_create(const shape_t *s, wm_compute_t compute, product_t *p,
                                  void **memory, wm_gemm_scratch_t *scratch, wm_error_t *err) {
  const int64_t rows = wm_gemm_tile_rows(s->rows), weights = s->in * s->out;
  wm_status_t status = wm_alloc(memory, weights + rows * (s->in + s->out), sizeof(float),
                                "products of the bench", err);
  if (status != WM_OK)
    return status;
  float *weight = *memory;
  *p = (product_t){.rows = rows, .x = weight + weights, .y = weight + weights + rows * s->in};
  fill(p->x, rows * s->in);
  fill(weight, weights);
  wm_weight_t w = {WM_DTYPE_F32, s->layout, weight};
  if (compute != WM_COMPUTE_F32) { /* rounded in place: the halves lie before what they come from */
    w.dtype = WM_DTYPE_BF16;
    for (int64_t i = 0; i < weights; i++) {
      uint16_t half = wm_bf16_of(weight[i]);
      memcpy((char *)weight + 2 * i, &half, sizeof half);
    }
  }
  return wm_linear_create_typed(&p->linear, s->in, s->out, &w, NULL, WM_ACT_NONE, rows, compute,
                                scratch, err);
}

/* Collective. Adds the rates of one shape and raises the peaks. */
static wm_status_t measure_product(const wm_bench_t *bench, wm_records_t *records, const shape_t *s,
                                   wm_compute_t compute, double peaks[2], wm_error_t *err) {
  const wm_bench_options_t *o = bench->options;
  product_t p = {0};
  void *memory = NULL;
  wm_gemm_scratch_t scratch = {0};
  double one, all;
  wm_status_t status = product_create(s, compute, &p, &memory, &scratch, err);
  WM_TRY(wm_agree(o->comm->world, status, err));
  WM_TRY(time_call(o, call_product, &p, &one, &all, err));
  const double flops = 2.0 * (double)p.rows * (double)(s->in * s->out);
  const double rates[2] = {flops / one, flops / all * o->comm->size};
  for (int i = 0; i < 2; i++)
    if (!(peaks[i] >= rates[i]))
      peaks[i] = rates[i];
  char name[WM_RECORD_LABEL];
  snprintf(name, sizeof name, "%lld x %lld x %lld %s, %s", (long long)p.rows, (long long)s->in,
           (long long)s->out, s->name, wm_compute_name(compute));
  const double row[] = {rates[0] / 1e9, rates[1] / 1e9, 100 * one / all};
  status = wm_agree(o->comm->world, wm_records_add(records, name, row, err), err);
cleanup:
  wm_linear_free(p.linear);
  wm_gemm_scratch_destroy(&scratch);
  free(memory);
  return status;
}

static wm_status_t measure_products(const wm_bench_t *bench, wm_records_t *records,
                                    wm_compute_t compute, double peaks[2], wm_error_t *err) {
  enum { SQUARE = 2048 };
  const wm_arch_t *a = &bench->arch;
  const wm_model_options_t *m = &bench->options->model;
  const wm_weight_layout_t own = a->family == WM_FAMILY_GPT2 ? WM_WEIGHT_IN_OUT : WM_WEIGHT_OUT_IN;
  const int64_t tile = m->tile_rows, d = a->d_model;
  const int64_t vocab = m->tile_vocab < a->vocab_size ? m->tile_vocab : a->vocab_size;
  const shape_t shapes[] = {{tile, d, 3 * d, own, "QKV"},
                            {tile, d, d, own, "projection"},
                            {tile, d, a->d_mlp, own, "MLP up"},
                            {tile, a->d_mlp, d, own, "MLP down"},
                            {tile, d, vocab, WM_WEIGHT_OUT_IN, "head"},
                            {SQUARE, SQUARE, SQUARE, own, "square"}};
  wm_status_t status = WM_OK;
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] && status == WM_OK; i++)
    status = measure_product(bench, records, &shapes[i], compute, peaks, err);
  return status;
}

static wm_status_t products(wm_bench_t *bench, wm_error_t *err) {
  wm_records_t *records = wm_bench_table(bench, &gemm_layout);
  double peaks[2] = {NAN, NAN}, bf16[2] = {NAN, NAN};
  wm_status_t status = measure_products(bench, records, WM_COMPUTE_F32, peaks, err);
  if (status != WM_OK)
    return status;
  bench->peak_one = peaks[0];
  bench->peak = peaks[1];
  wm_records_note(records, "Peak in f32: %.1f GF/s on one rank, %.1f on all.", peaks[0] / 1e9,
                  peaks[1] / 1e9);
  wm_error_t missing = {0};
  status =
      wm_agree(bench->options->comm->world, wm_compute_check(WM_COMPUTE_BF16, &missing), &missing);
  if (status != WM_OK) {
    wm_records_note(records, "bf16: not available on this CPU.");
    return WM_OK;
  }
  status = measure_products(bench, records, WM_COMPUTE_BF16, bf16, err);
  bench->peak_bf16 = bf16[1];
  wm_records_note(records, "Peak in bf16: %.1f GF/s on one rank, %.1f on all.", bf16[0] / 1e9,
                  bf16[1] / 1e9);
  return status;
}

/* --- float64 ------------------------------------------------------------------------------------
 */

typedef struct {
  int64_t rows, d;
  double *x, *y, *xx, *xy;
} gram_t;

static wm_status_t call_gram(void *context, wm_error_t *err) {
  gram_t *g = context;
  return wm_gram_update(g->x, g->y, g->rows, g->d, 1, 0, g->xx, g->xy, err);
}

/* What the fit does with a tile of rows, each rank for itself. */
static wm_status_t float64_products(wm_bench_t *bench, wm_records_t *records, wm_error_t *err) {
  const wm_bench_options_t *o = bench->options;
  const int64_t d = bench->arch.d_model, rows = o->model.tile_rows;
  void *memory;
  double one, all;
  wm_status_t status =
      wm_alloc(&memory, 2 * rows * d + 2 * d * d, sizeof(double), "products of the bench", err);
  WM_TRY(wm_agree(o->comm->world, status, err));
  gram_t g = {.rows = rows, .d = d, .x = memory};
  g.y = g.x + rows * d;
  g.xx = g.y + rows * d;
  g.xy = g.xx + d * d;
  for (int64_t i = 0; i < 2 * rows * d; i++)
    g.x[i] = (double)(i % 61 - 30) * 0x1p-6;
  WM_TRY(time_call(o, call_gram, &g, &one, &all, err));
  const double flops = 3.0 * (double)rows * (double)(d * d);
  char name[WM_RECORD_LABEL];
  snprintf(name, sizeof name, "%lld x %lld Gram matrices, f64", (long long)rows, (long long)d);
  const double row[] = {flops / one / 1e9, flops / all / 1e9 * o->comm->size, 100 * one / all};
  status = wm_agree(o->comm->world, wm_records_add(records, name, row, err), err);
cleanup:
  free(memory);
  return status;
}

/* --- memory -------------------------------------------------------------------------------------
 */

typedef struct {
  int64_t n;
  double *a, *b, *c;
} triad_t;

static wm_status_t call_triad(void *context, wm_error_t *err) {
  (void)err;
  const triad_t *t = context;
  double *restrict a = t->a;
  const double *restrict b = t->b, *restrict c = t->c;
#pragma omp parallel for simd schedule(static)
  for (int64_t i = 0; i < t->n; i++)
    a[i] = b[i] + 3 * c[i];
  return WM_OK;
}

static wm_status_t bandwidth(wm_bench_t *bench, wm_error_t *err) {
  enum { N = 1 << 23 };
  const wm_bench_options_t *o = bench->options;
  wm_records_t *records = wm_bench_table(bench, &memory_layout);
  void *memory;
  double one, all;
  wm_status_t status =
      wm_alloc(&memory, 3 * (int64_t)N, sizeof(double), "memory of the bench", err);
  WM_TRY(wm_agree(o->comm->world, status, err));
  triad_t t = {.n = N, .a = memory};
  t.b = t.a + N;
  t.c = t.b + N;
  for (int64_t i = 0; i < 2 * (int64_t)N; i++)
    t.b[i] = 1;
  WM_TRY(time_call(o, call_triad, &t, &one, &all, err));
  const double bytes = 3.0 * N * sizeof(double);
  const double row[] = {bytes / one / 1e9, bytes / all / 1e9 * o->comm->size};
  status = wm_agree(o->comm->world, wm_records_add(records, "triad", row, err), err);
cleanup:
  free(memory);
  return status;
}

wm_status_t wm_bench_machine(wm_bench_t *bench, wm_error_t *err) {
  wm_status_t status;
  WM_TRY(products(bench, err));
  WM_TRY(float64_products(bench, &bench->tables[bench->n_tables - 1], err));
  WM_TRY(bandwidth(bench, err));
  if (bench->options->comm->size > 1)
    WM_TRY(wm_bench_messages(bench, err));
cleanup:
  return status;
}
