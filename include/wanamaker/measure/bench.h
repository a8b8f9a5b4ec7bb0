/* What the machine and the program can do: rates of products, memory and messages; of a forward
 * pass, a fit, a sweep and a training step of a model with random weights; of linearised and routed
 * models; scaling; memory.
 *
 * Every rank works on text of its own, random ids of the same shape, so that rates add up. A
 * measurement is repeated; its time is that of the slowest rank; ratios are those of the best
 * times, because whatever else runs can only make a time longer, and the median is told beside it.
 * What is compared is measured in turns. While some ranks are measured the others sleep.
 */
#ifndef WANAMAKER_MEASURE_BENCH_H
#define WANAMAKER_MEASURE_BENCH_H

#include "wanamaker/base/log.h"
#include "wanamaker/base/status.h"
#include "wanamaker/measure/records.h"
#include "wanamaker/model/model.h"
#include "wanamaker/par/comm.h"
#include "wanamaker/par/node_memory.h"

#include <stdint.h>

/* Parts, as bits. */
enum {
  WM_BENCH_MACHINE = 1 << 0,
  WM_BENCH_FORWARD = 1 << 1,
  WM_BENCH_DOCUMENTS = 1 << 2,
  WM_BENCH_FIT = 1 << 3,
  WM_BENCH_SWEEP = 1 << 4,
  WM_BENCH_SCALING = 1 << 5,
  WM_BENCH_ROUTING = 1 << 6,
  WM_BENCH_TRAINING = 1 << 7,
  WM_BENCH_ALL = (1 << 8) - 1
};

typedef struct {
  const wm_comm_t *comm;    /* borrowed, like all pointers here */
  const wm_log_t *log;      /* NULL: silent */
  wm_node_memory_t *memory; /* NULL: memory is not told */
  const char *config;       /* wm_arch_read */
  uint64_t seed;
  wm_model_options_t model;
  unsigned parts;
  int64_t window;         /* tokens of a fixed window */
  int64_t windows;        /* fixed windows of a rank */
  int64_t documents;      /* tokens of a rank's documents, at least */
  int64_t block_tokens;   /* blocks.h */
  int64_t stack_rows;     /* evaluate.h */
  int fit_block;          /* linalg/ridge.h */
  const int64_t *batches; /* [n_batches] windows of a rank that are routed at once, each > 0 */
  int64_t n_batches;
  const double *fractions; /* [n_fractions] routed, in [0, 1] */
  int64_t n_fractions;
  int64_t sequences;   /* of a training step, `window` tokens each, all ranks together */
  int64_t pass_tokens; /* trainer.h */
  bool recompute;      /* training.h, checkpointing */
  int64_t repeat;      /* most repetitions, >= 1 */
  bool processor_time; /* time is the processor's, of all threads by their number, so that what else
                        * runs counts little; of messages it is always the wall clock's */
  double seconds;      /* no further repetition once a measurement has taken that long */
} wm_bench_options_t;

enum { WM_BENCH_TABLES = 24 };

typedef struct {
  const wm_bench_options_t *options;
  wm_arch_t arch;
  wm_model_t *model;     /* NULL until a part needs it */
  double peak, peak_one; /* operations/s of float32 products: all ranks at once, one alone; NaN: not
                            measured */
  double peak_bf16;      /* of bfloat16 products, all ranks; NaN: not measured or not available */
  wm_records_t tables[WM_BENCH_TABLES];
  int n_tables;
} wm_bench_t;

/* Collective. Measures the parts in turn; the tables are equal on all ranks. Destroy also after a
 * failure. */
wm_status_t wm_bench_run(const wm_bench_options_t *options, wm_bench_t *out, wm_error_t *err);
/* Collective. */
void wm_bench_destroy(wm_bench_t *bench);

/* Operations of a rank's fixed windows, forward with head; for estimates. Not collective. */
double wm_bench_forward_flops(const wm_bench_options_t *options, const wm_arch_t *arch);

#endif
