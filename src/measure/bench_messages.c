/* Messages between ranks: sums, barriers, the work queue. */
#include "bench_internal.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/par/queue.h"
#include "wanamaker/par/shared.h"

#include <stdio.h>

static const wm_record_layout_t message_layout = {
    .path = "/machine/allreduce",
    .description = "Sum over all ranks in place",
    .label = "bytes",
    .columns = {{"microseconds", "time", "us", 2}, {"gbytes", "bytes / time", "GB/s", 3}},
    .n_columns = 2};
static const wm_record_layout_t latency_layout = {
    .path = "/machine/latency",
    .description = "Latencies between ranks",
    .label = "what",
    .columns = {{"mean", "mean", "us", 2}, {"longest", "longest", "us", 2}},
    .n_columns = 2};

typedef struct {
  const wm_comm_t *comm;
  double *data;
  int64_t count;
  wm_shared_t shared;
} message_t;

static wm_status_t call_sum(void *context, wm_error_t *err) {
  (void)err;
  message_t *m = context;
  wm_sum_f64(m->comm->world, m->data, m->count);
  return WM_OK;
}

static wm_status_t call_barrier(void *context, wm_error_t *err) {
  (void)err;
  MPI_Barrier(((message_t *)context)->comm->world);
  return WM_OK;
}

static wm_status_t call_sync(void *context, wm_error_t *err) {
  (void)err;
  wm_shared_sync(&((message_t *)context)->shared);
  return WM_OK;
}

/* Collective. Mean seconds of a call of all ranks, best repetition, and the longest repetition's.
 */
static wm_status_t time_together(const wm_bench_options_t *options, wm_bench_call_t call,
                                 void *context, int64_t times, double *best, double *longest,
                                 wm_error_t *err) {
  wm_bench_options_t wall = *options, *o = &wall;
  wall.processor_time = false;
  wm_repeated_t r = {call, context, times};
  wm_contest_t contest = {.ranks = o->comm->size, .call = wm_bench_repeat, .context = &r};
  wm_samples_t warm = {0};
  wm_status_t status = wm_bench_sample(o, o->comm->size, wm_bench_repeat, &r, &warm, err);
  if (status == WM_OK)
    status = wm_bench_contest(o, &contest, 1, err);
  *best = wm_samples_best(&contest.samples) / (double)times;
  *longest = 0;
  for (int i = 0; i < contest.samples.n; i++)
    if (contest.samples.seconds[i] / (double)times > *longest)
      *longest = contest.samples.seconds[i] / (double)times;
  return status;
}

static wm_status_t reductions(wm_bench_t *bench, message_t *m, wm_error_t *err) {
  enum { LARGEST = 64 << 20 };
  const wm_bench_options_t *o = bench->options;
  wm_records_t *records = wm_bench_table(bench, &message_layout);
  void *memory;
  wm_status_t status = wm_alloc(&memory, LARGEST, 1, "messages of the bench", err);
  WM_TRY(wm_agree(o->comm->world, status, err));
  m->data = memory;
  for (int64_t bytes = 8; bytes <= LARGEST; bytes = bytes < LARGEST / 8 ? 8 * bytes : 4 * bytes) {
    double best, longest;
    m->count = bytes / 8;
    int64_t times = bytes < 32768 ? 200 : bytes < 1 << 20 ? 20 : 1;
    WM_TRY(time_together(o, call_sum, m, times, &best, &longest, err));
    char name[WM_RECORD_LABEL];
    snprintf(name, sizeof name, "%lld", (long long)bytes);
    const double row[] = {best * 1e6, (double)bytes / best / 1e9};
    WM_TRY(wm_agree(o->comm->world, wm_records_add(records, name, row, err), err));
  }
cleanup:
  free(memory);
  return status;
}

/* Fetches of work items that take a tenth of a millisecond, so that rank 0 is at work too. */
static wm_status_t queue_latency(const wm_bench_t *bench, wm_records_t *records, wm_error_t *err) {
  enum { ITEMS = 4000 };
  const wm_comm_t *comm = bench->options->comm;
  double cost[ITEMS], worst[2], mean, longest;
  for (int i = 0; i < ITEMS; i++)
    cost[i] = 1;
  wm_queue_t *queue;
  wm_status_t status = wm_queue_create(comm, cost, ITEMS, &queue, err);
  if (status != WM_OK)
    return status;
  int64_t item, fetches;
  wm_queue_open(queue, 0);
  while (wm_queue_next(queue, &item))
    for (double end = wm_seconds() + 1e-4; wm_seconds() < end;) {
    }
  wm_queue_close(queue);
  wm_queue_latency(queue, &fetches, &mean, &longest);
  wm_queue_free(queue);
  double sums[2] = {mean * (double)fetches, (double)fetches};
  worst[0] = longest;
  MPI_Allreduce(MPI_IN_PLACE, worst, 1, MPI_DOUBLE, MPI_MAX, comm->world);
  wm_sum_f64(comm->world, sums, 2);
  if (sums[1] == 0)
    return WM_OK;
  const double row[] = {1e6 * sums[0] / sums[1], 1e6 * worst[0]};
  return wm_agree(comm->world, wm_records_add(records, "queue, a fetch under load", row, err), err);
}

static wm_status_t latencies(wm_bench_t *bench, message_t *m, wm_error_t *err) {
  enum { TIMES = 200 };
  const wm_bench_options_t *o = bench->options;
  wm_records_t *records = wm_bench_table(bench, &latency_layout);
  static const struct {
    const char *name;
    wm_bench_call_t call;
  } calls[] = {{"barrier of all ranks", call_barrier},
               {"sync of a node's shared memory", call_sync}};
  wm_status_t status;
  WM_TRY(
      wm_agree(o->comm->world, wm_shared_create(o->comm, 64, "the bench", &m->shared, err), err));
  for (int i = 0; i < 2; i++) {
    double best, longest;
    WM_TRY(time_together(o, calls[i].call, m, TIMES, &best, &longest, err));
    const double row[] = {best * 1e6, longest * 1e6};
    WM_TRY(wm_agree(o->comm->world, wm_records_add(records, calls[i].name, row, err), err));
  }
  WM_TRY(queue_latency(bench, records, err));
  wm_records_note(records, "Barriers: means of %d, the best and the longest of the repetitions.",
                  TIMES);
cleanup:
  wm_shared_destroy(&m->shared);
  return status;
}

wm_status_t wm_bench_messages(wm_bench_t *bench, wm_error_t *err) {
  message_t m = {.comm = bench->options->comm};
  wm_status_t status = reductions(bench, &m, err);
  return status == WM_OK ? latencies(bench, &m, err) : status;
}
