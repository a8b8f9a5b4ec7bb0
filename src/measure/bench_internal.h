/* What the files of the bench share. */
#ifndef WANAMAKER_SRC_MEASURE_BENCH_INTERNAL_H
#define WANAMAKER_SRC_MEASURE_BENCH_INTERNAL_H

#include "wanamaker/measure/bench.h"
#include "wanamaker/measure/evaluate.h"

/* --- times (bench.c) --- */

enum { WM_SAMPLES = 64 };

typedef struct {
  int n;
  double seconds[WM_SAMPLES]; /* by the clock of the options */
  double wall;                /* of all samples together, by the wall clock */
} wm_samples_t;

/* NaN without samples. */
double wm_samples_best(const wm_samples_t *samples);
double wm_samples_median(const wm_samples_t *samples);

typedef wm_status_t (*wm_bench_call_t)(void *context, wm_error_t *err);

/* Collective over comm->world. One sample of `call` on ranks 0 .. ranks - 1, the others asleep. */
wm_status_t wm_bench_sample(const wm_bench_options_t *options, int ranks, wm_bench_call_t call,
                            void *context, wm_samples_t *samples, wm_error_t *err);

/* `times` calls in one: a wm_bench_call_t of a wm_repeated_t. */
typedef struct {
  wm_bench_call_t call;
  void *context;
  int64_t times;
} wm_repeated_t;
wm_status_t wm_bench_repeat(void *repeated, wm_error_t *err);

/* What is compared: the calls take turns. */
typedef struct {
  int ranks;
  wm_bench_call_t call;
  void *context;
  wm_samples_t samples;
} wm_contest_t;
/* Collective. Up to options->repeat rounds. */
wm_status_t wm_bench_contest(const wm_bench_options_t *options, wm_contest_t *contests, int n,
                             wm_error_t *err);

/* --- text (bench_text.c) --- */

typedef struct {
  int32_t *ids;
  int64_t *row_first;
  uint8_t *row_flags;
  wm_windows_t windows;
  wm_blocks_t blocks;
  double flops; /* of a forward pass with its head */
} wm_bench_text_t;

/* This rank's fixed windows, and its documents: lengths as in WikiText-103's test split. */
wm_status_t wm_bench_text_fixed(const wm_bench_t *bench, wm_bench_text_t *out, wm_error_t *err);
wm_status_t wm_bench_text_documents(const wm_bench_t *bench, wm_bench_text_t *out, wm_error_t *err);
/* Harmless on a zeroed object. */
void wm_bench_text_destroy(wm_bench_text_t *text);

/* --- evaluation of a text (bench_text.c) --- */

typedef struct {
  const wm_bench_text_t *text;
  wm_evaluator_t *evaluator;
  wm_block_t block;
  int64_t variants; /* besides the full model */
  float *nll;
} wm_bench_pass_t;

/* variants: with the full model; surrogates NULL if it is alone. */
wm_status_t wm_bench_pass_create(const wm_bench_t *bench, wm_model_t *model,
                                 const wm_bench_text_t *text, const wm_variants_t *variants,
                                 const wm_surrogates_t *surrogates, wm_bench_pass_t *out,
                                 wm_error_t *err);
void wm_bench_pass_destroy(wm_bench_pass_t *pass);
/* A wm_bench_call_t: all blocks of the text. */
wm_status_t wm_bench_pass_run(void *pass, wm_error_t *err);

/* --- tables (bench.c) --- */

/* Peak of products of the given type, all ranks; NaN: not measured. */
double wm_bench_peak(const wm_bench_t *bench, wm_compute_t compute);
/* A new table of the bench. */
wm_records_t *wm_bench_table(wm_bench_t *bench, const wm_record_layout_t *layout);
/* Collective. Adds a table of the kernels in `profile` (summed over ranks) for `seconds` of all
 * ranks' time each; `runs` repetitions are in it; rates are also told as parts of `peak`, unless it
 * is by the processor's clock: kernels are timed by the wall clock. */
wm_status_t wm_bench_kernels(wm_bench_t *bench, const wm_record_layout_t *layout,
                             const wm_profile_t *profile, double peak, double seconds, int64_t runs,
                             wm_error_t *err);
/* Columns of such a table. */
#define WM_KERNEL_COLUMNS                                                                          \
  .columns = {{"seconds", "seconds", "a rank", 3},                                                 \
              {"share", "share", "%", 1},                                                          \
              {"gflops", "GF/s", "all ranks", 1},                                                  \
              {"peak", "of peak", "%", 1},                                                         \
              {"gbytes", "GB/s", "all ranks", 1}},                                                 \
  .n_columns = 5

/* --- parts --- */
wm_status_t wm_bench_machine(wm_bench_t *bench, wm_error_t *err);
wm_status_t wm_bench_messages(wm_bench_t *bench, wm_error_t *err); /* several ranks */
wm_status_t wm_bench_forward(wm_bench_t *bench, wm_error_t *err);  /* and documents */
wm_status_t wm_bench_fit(wm_bench_t *bench, wm_error_t *err);
wm_status_t wm_bench_sweep(wm_bench_t *bench, wm_error_t *err);
wm_status_t wm_bench_routing(wm_bench_t *bench, wm_error_t *err);
wm_status_t wm_bench_scaling(wm_bench_t *bench, wm_error_t *err);
wm_status_t wm_bench_training(wm_bench_t *bench, wm_error_t *err);

#endif
