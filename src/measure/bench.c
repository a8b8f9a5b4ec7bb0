/* The order of the parts, and how times become tables. */
#include "bench_internal.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/memory_usage.h"
#include "wanamaker/base/profile.h"
#include "wanamaker/linalg/blas.h"
#include "wanamaker/par/idle.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- times --------------------------------------------------------------------------------------
 */

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double wm_samples_best(const wm_samples_t *s) {
  double best = s->n > 0 ? s->seconds[0] : NAN;
  for (int i = 1; i < s->n; i++)
    best = s->seconds[i] < best ? s->seconds[i] : best;
  return best;
}

double wm_samples_median(const wm_samples_t *s) {
  double sorted[WM_SAMPLES];
  memcpy(sorted, s->seconds, sizeof sorted);
  qsort(sorted, (size_t)s->n, sizeof *sorted, ascending);
  return s->n > 0 ? (sorted[(s->n - 1) / 2] + sorted[s->n / 2]) / 2 : NAN;
}

/* Per thread. */
static double processor_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return ((double)t.tv_sec + 1e-9 * (double)t.tv_nsec) / wm_threads();
}

wm_status_t wm_bench_sample(const wm_bench_options_t *options, int ranks, wm_bench_call_t call,
                            void *context, wm_samples_t *samples, wm_error_t *err) {
  assert(samples->n < WM_SAMPLES);
  const wm_comm_t *comm = options->comm;
  double times[2] = {0, 0}; /* of the wall clock and the processor */
  wm_status_t status = WM_OK;
  wm_pulse();
  MPI_Barrier(comm->world);
  if (comm->rank < ranks) {
    double start = wm_seconds(), used = processor_seconds();
    status = call(context, err);
    times[0] = wm_seconds() - start;
    times[1] = processor_seconds() - used;
  }
  wm_idle_barrier(comm->world);
  status = wm_agree(comm->world, status, err);
  MPI_Allreduce(MPI_IN_PLACE, times, 2, MPI_DOUBLE, MPI_MAX, comm->world);
  samples->seconds[samples->n++] = times[options->processor_time ? 1 : 0];
  samples->wall += times[0];
  return status;
}

wm_status_t wm_bench_repeat(void *repeated, wm_error_t *err) {
  const wm_repeated_t *r = repeated;
  wm_status_t status = WM_OK;
  for (int64_t i = 0; i < r->times && status == WM_OK; i++)
    status = r->call(r->context, err);
  return status;
}

wm_status_t wm_bench_contest(const wm_bench_options_t *options, wm_contest_t *contests, int n,
                             wm_error_t *err) {
  for (int64_t round = 0; round < options->repeat && round < WM_SAMPLES; round++) {
    double spent = 0;
    for (int i = 0; i < n; i++)
      spent += contests[i].samples.wall;
    if (round > 0 && spent > options->seconds)
      break;
    for (int i = 0; i < n; i++) {
      wm_contest_t *c = &contests[i];
      wm_status_t status =
          wm_bench_sample(options, c->ranks, c->call, c->context, &c->samples, err);
      if (status != WM_OK)
        return status;
    }
  }
  return WM_OK;
}

/* --- tables -------------------------------------------------------------------------------------
 */

double wm_bench_peak(const wm_bench_t *bench, wm_compute_t compute) {
  return compute == WM_COMPUTE_BF16 ? bench->peak_bf16 : bench->peak;
}

wm_records_t *wm_bench_table(wm_bench_t *bench, const wm_record_layout_t *layout) {
  assert(bench->n_tables < WM_BENCH_TABLES);
  wm_records_t *records = &bench->tables[bench->n_tables++];
  wm_records_init(records, layout);
  return records;
}

static wm_status_t add_kernel(const wm_bench_t *bench, wm_records_t *r, const char *name,
                              const wm_counter_t *c, double peak, double all, int64_t runs,
                              wm_error_t *err) {
  const double ranks = bench->options->comm->size, mean = c->seconds / ranks;
  double rate = mean > 0 && c->flops > 0 ? c->flops / mean : NAN;
  double traffic = mean > 0 && c->bytes > 0 ? c->bytes / mean : NAN;
  const double row[] = {mean / (double)runs, 100 * mean / all, rate / 1e9, 100 * rate / peak,
                        traffic / 1e9};
  return wm_records_add(r, name, row, err);
}

/* The profile summed over all ranks. Collective. */
static void sum_profile(const wm_comm_t *comm, wm_profile_t *profile) {
  double sums[WM_KERNELS][4];
  for (int k = 0; k < WM_KERNELS; k++) {
    const wm_counter_t *c = &profile->kernels[k];
    sums[k][0] = (double)c->calls;
    sums[k][1] = c->seconds;
    sums[k][2] = c->flops;
    sums[k][3] = c->bytes;
  }
  wm_sum_f64(comm->world, &sums[0][0], (int64_t)(sizeof sums / sizeof sums[0][0]));
  for (int k = 0; k < WM_KERNELS; k++)
    profile->kernels[k] = (wm_counter_t){(int64_t)sums[k][0], sums[k][1], sums[k][2], sums[k][3]};
}

static wm_status_t add_kernels(const wm_bench_t *bench, wm_records_t *records,
                               const wm_profile_t *profile, double peak, double seconds,
                               int64_t runs, wm_error_t *err) {
  wm_counter_t all = {.seconds = seconds * bench->options->comm->size}, rest = all;
  wm_status_t status = WM_OK;
  for (int k = 0; k < WM_KERNELS && status == WM_OK; k++) {
    const wm_counter_t *c = &profile->kernels[k];
    if (c->calls == 0)
      continue;
    all.flops += c->flops;
    rest.seconds -= c->seconds;
    status =
        add_kernel(bench, records, wm_kernel_name((wm_kernel_t)k), c, peak, seconds, runs, err);
  }
  if (status == WM_OK)
    status = add_kernel(bench, records, "else, waiting", &rest, peak, seconds, runs, err);
  return status == WM_OK ? add_kernel(bench, records, "all", &all, peak, seconds, runs, err)
                         : status;
}

wm_status_t wm_bench_kernels(wm_bench_t *bench, const wm_record_layout_t *layout,
                             const wm_profile_t *profile, double peak, double seconds, int64_t runs,
                             wm_error_t *err) {
  const wm_comm_t *comm = bench->options->comm;
  wm_records_t *records = wm_bench_table(bench, layout);
  wm_profile_t sum = *profile;
  sum_profile(comm, &sum);
  wm_records_note(records, "Wall clock, mean of %lld repetitions.", (long long)runs);
  if (bench->options->processor_time) { /* rates by two clocks are no parts of each other */
    wm_records_note(records, "The peak is the processor's: no share of it is told.");
    peak = NAN;
  }
  return wm_agree(comm->world, add_kernels(bench, records, &sum, peak, seconds, runs, err), err);
}

/* --- the whole bench ----------------------------------------------------------------------------
 */

static const wm_record_layout_t memory_layout = {
    .path = "/memory",
    .description = "Peak memory of the node that took most: private and shared, without page cache",
    .label = "part",
    .columns = {{"peak", "peak", "GiB", 2}},
    .n_columns = 1};

static wm_status_t open_model(wm_bench_t *bench, wm_error_t *err) {
  const wm_bench_options_t *o = bench->options;
  if (bench->model != NULL ||
      (o->parts & (WM_BENCH_ALL & ~(WM_BENCH_MACHINE | WM_BENCH_TRAINING))) == 0)
    return WM_OK;
  return wm_model_create_random(o->comm, o->config, o->seed, &o->model, NULL, &bench->model, err);
}

typedef struct {
  unsigned parts;
  const char *name;
  wm_status_t (*run)(wm_bench_t *bench, wm_error_t *err);
} part_t;

/* Adds the peak since the last call. */
static wm_status_t tell_memory(wm_bench_t *bench, wm_records_t *records, const char *part,
                               wm_error_t *err) {
  if (bench->options->memory == NULL)
    return WM_OK;
  int64_t bytes = wm_node_memory_recent(bench->options->memory);
  double peak = bytes < 0 ? NAN : (double)bytes / 0x1p30;
  return wm_records_add(records, part, &peak, err);
}

static wm_status_t run_parts(wm_bench_t *bench, wm_records_t *memory, wm_error_t *err) {
  static const part_t parts[] = {
      {WM_BENCH_MACHINE, "machine", wm_bench_machine},
      {WM_BENCH_TRAINING, "training", wm_bench_training}, /* with a model of its own */
      {WM_BENCH_ALL & ~(WM_BENCH_MACHINE | WM_BENCH_TRAINING), "model", open_model},
      {WM_BENCH_FORWARD | WM_BENCH_DOCUMENTS, "forward", wm_bench_forward},
      {WM_BENCH_FIT, "fit", wm_bench_fit},
      {WM_BENCH_SWEEP, "sweep", wm_bench_sweep},
      {WM_BENCH_ROUTING, "routing", wm_bench_routing},
      {WM_BENCH_SCALING, "scaling", wm_bench_scaling},
  };
  wm_status_t status = WM_OK;
  for (size_t i = 0; i < sizeof parts / sizeof parts[0] && status == WM_OK; i++) {
    if ((bench->options->parts & parts[i].parts) == 0)
      continue;
    wm_log(bench->options->log, WM_LOG_INFO, "bench: %s", parts[i].name);
    status = parts[i].run(bench, err);
    if (status == WM_OK)
      status = wm_agree(bench->options->comm->world, tell_memory(bench, memory, parts[i].name, err),
                        err);
  }
  return status;
}

wm_status_t wm_bench_run(const wm_bench_options_t *options, wm_bench_t *out, wm_error_t *err) {
  *out = (wm_bench_t){.options = options, .peak = NAN, .peak_one = NAN, .peak_bf16 = NAN};
  wm_records_t memory;
  wm_records_init(&memory, &memory_layout);
  wm_status_t status =
      wm_agree(options->comm->world, wm_arch_read(options->config, &out->arch, err), err);
  if (status == WM_OK && options->window > out->arch.max_positions)
    status =
        wm_fail(err, WM_USAGE, "bench.window = %lld, but the model takes at most %lld positions",
                (long long)options->window, (long long)out->arch.max_positions);
  if (status == WM_OK)
    status = run_parts(out, &memory, err);
  if (status == WM_OK && memory.n > 0)
    out->tables[out->n_tables++] = memory;
  else
    wm_records_destroy(&memory);
  return status;
}

void wm_bench_destroy(wm_bench_t *bench) {
  for (int i = 0; i < bench->n_tables; i++)
    wm_records_destroy(&bench->tables[i]);
  bench->n_tables = 0;
  wm_model_close(bench->model);
  bench->model = NULL;
}
