/* Training steps: all ranks sharing one and, for scaling, one rank alone. Everything trains, with
 * the dropout of config.json. */
#include "bench_internal.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/train/trainer.h"

#include <math.h>
#include <stdio.h>

static const wm_record_layout_t rates_layout = {
    .path = "/training/rates",
    .description = "A training step: forward, backward, sums over ranks, AdamW",
    .label = "ranks",
    .columns = {{"tokens", "tokens", "a step", 0},
                {"best", "best", "seconds", 3},
                {"median", "median", "seconds", 3},
                {"tokens_per_second", "tokens/s", NULL, 1},
                {"gflops", "GF/s", NULL, 1},
                {"peak", "of peak", "%", 1},
                {"exposed", "messages", "%", 2},
                {"speedup", "speedup", NULL, 3},
                {"memory", "memory", "GiB", 2}},
    .n_columns = 9};
static const wm_record_layout_t kernels_layout = {
    .path = "/training/kernels",
    .description = "Kernels of a training step, all ranks sharing it",
    .label = "kernel",
    WM_KERNEL_COLUMNS};

typedef struct {
  const wm_comm_t *comm; /* that share the step */
  wm_model_t *model;
  wm_training_t *training;
  wm_trainer_t *trainer;
  int32_t *ids;
  int64_t steps;
  double exposed; /* seconds of all steps */
  wm_profile_t profile;
} run_t;

static wm_training_options_t training_options(const wm_bench_options_t *o, const wm_arch_t *arch,
                                              int64_t pass) {
  return (wm_training_options_t){.trainable = (1u << WM_GROUP_GATES) - 1,
                                 .gate_hidden = 1,
                                 .compute = o->model.compute,
                                 .checkpointing = o->recompute,
                                 .drop_embedding = arch->drop_embedding,
                                 .drop_attention = arch->drop_attention,
                                 .drop_residual = arch->drop_residual,
                                 .seed = o->seed,
                                 .max_rows = pass * o->window,
                                 .max_length = o->window};
}

/* Collective over comm. */
static wm_status_t run_create(const wm_bench_t *bench, const wm_comm_t *comm, run_t *r,
                              wm_error_t *err) {
  const wm_bench_options_t *o = bench->options;
  const int64_t pass = o->pass_tokens > o->window ? o->pass_tokens / o->window : 1;
  wm_model_options_t kind = o->model;
  void *memory = NULL;
  int64_t first, count;
  wm_status_t status;
  r->comm = comm;
  kind.compute = WM_COMPUTE_F32;
  kind.writable = true;
  wm_partition(o->sequences, comm->size, comm->rank, &first, &count);
  status = wm_alloc(&memory, count * o->window, sizeof *r->ids, "text of the bench", err);
  r->ids = memory;
  WM_TRY(wm_agree(comm->world, status, err));
  for (int64_t i = 0; i < count * o->window; i++)
    r->ids[i] = (int32_t)wm_rng_below((wm_rng_t){o->seed, 1}, (uint64_t)(first * o->window + i),
                                      (uint64_t)bench->arch.vocab_size);
  WM_TRY(wm_model_create_random(comm, o->config, o->seed, &kind, NULL, &r->model, err));
  const wm_training_options_t options = training_options(o, &bench->arch, pass);
  WM_TRY(wm_training_create(r->model, &options, &r->training, err));
  const wm_trainer_options_t trainer = {.adamw = {0.9, 0.999, 1e-8, 0.01},
                                        .clip = 1,
                                        .sequences = o->sequences,
                                        .length = o->window,
                                        .pass_sequences = pass};
  WM_TRY(wm_trainer_create(comm, r->training, &trainer, &r->trainer, err));
cleanup:
  return status;
}

/* Collective over the run's ranks. */
static void run_destroy(run_t *r) {
  wm_trainer_free(r->trainer);
  wm_training_free(r->training);
  wm_model_close(r->model);
  free(r->ids);
}

/* A wm_bench_call_t. */
static wm_status_t call_step(void *context, wm_error_t *err) {
  run_t *r = context;
  const wm_trainer_step_t step = {
      .number = r->steps, .draw = r->steps, .rate = 1e-5, .ids = r->ids};
  wm_trainer_result_t result;
  wm_model_set_profile(r->model, &r->profile);
  wm_status_t status = wm_trainer_step(r->trainer, &step, &result, err);
  wm_model_set_profile(r->model, NULL);
  r->steps++;
  r->exposed += result.exposed;
  return status;
}

/* Operations of a step in which everything trains: a product has two gradients, and attention's
 * scores and sums have two each. */
static double step_flops(const wm_bench_t *bench) {
  const wm_bench_options_t *o = bench->options;
  const wm_arch_t *a = &bench->arch;
  const double n = (double)o->window;
  const double layer =
      wm_arch_flops_layer(a) + wm_arch_flops_attention(a, (double)(o->window + 1) / 2);
  const double sequence = (double)a->n_layers * n * layer + (n - 1) * wm_arch_flops_head(a);
  return 3 * (double)o->sequences * sequence;
}

/* GiB since the last call, of the node that took most; NaN: not known. */
static double recent_memory(const wm_bench_t *bench) {
  if (bench->options->memory == NULL)
    return NAN;
  const int64_t bytes = wm_node_memory_recent(bench->options->memory);
  return bytes < 0 ? NAN : (double)bytes / 0x1p30;
}

/* Collective over all. Steps of the first `ranks` ranks, which share `comm`, after one that warms
 * up; *memory: the peak since recent_memory was last called. */
static wm_status_t measure(wm_bench_t *bench, const wm_comm_t *comm, int ranks, run_t *r,
                           wm_contest_t *contest, double *memory, wm_error_t *err) {
  const wm_bench_options_t *o = bench->options;
  const bool takes_part = o->comm->rank < ranks;
  wm_status_t status = WM_OK;
  if (takes_part)
    status = run_create(bench, comm, r, err);
  WM_TRY(wm_agree(o->comm->world, status, err));
  wm_samples_t warm = {0};
  WM_TRY(wm_bench_sample(o, ranks, call_step, r, &warm, err));
  r->profile = (wm_profile_t){0};
  r->exposed = 0;
  *contest = (wm_contest_t){.ranks = ranks, .call = call_step, .context = r};
  WM_TRY(wm_bench_contest(o, contest, 1, err));
  *memory = recent_memory(bench);
cleanup:
  return status;
}

static wm_status_t add_rates(const wm_bench_t *bench, wm_records_t *records,
                             const wm_contest_t *contest, double exposed, double alone,
                             double memory, wm_error_t *err) {
  const wm_bench_options_t *o = bench->options;
  const wm_samples_t *s = &contest->samples;
  const double best = wm_samples_best(s), tokens = (double)(o->sequences * o->window);
  const double rate = step_flops(bench) / best;
  const double peak = contest->ranks == o->comm->size      ? wm_bench_peak(bench, o->model.compute)
                      : o->model.compute == WM_COMPUTE_F32 ? bench->peak_one
                                                           : NAN;
  char name[WM_RECORD_LABEL];
  snprintf(name, sizeof name, "%d", contest->ranks);
  const double row[] = {tokens,
                        best,
                        wm_samples_median(s),
                        tokens / best,
                        rate / 1e9,
                        100 * rate / peak,
                        100 * exposed / s->wall,
                        alone / best,
                        memory};
  return wm_records_add(records, name, row, err);
}

wm_status_t wm_bench_training(wm_bench_t *bench, wm_error_t *err) {
  const wm_bench_options_t *o = bench->options;
  run_t all = {0}, one = {0};
  wm_contest_t together, single = {0};
  wm_comm_t *self = NULL;
  const bool scaling = o->comm->size > 1 && (o->parts & WM_BENCH_SCALING) != 0;
  wm_records_t *records = wm_bench_table(bench, &rates_layout);
  double memory[2];
  wm_status_t status;
  recent_memory(bench); /* what went before does not count */
  WM_TRY(measure(bench, o->comm, o->comm->size, &all, &together, &memory[0], err));
  run_destroy(&all); /* both do not fit into memory together */
  const wm_profile_t profile = all.profile;
  const double exposed = all.exposed;
  all = (run_t){0};
  if (scaling) {
    WM_TRY(wm_agree(o->comm->world, wm_comm_create(MPI_COMM_SELF, &self, err), err));
    recent_memory(bench);
    WM_TRY(measure(bench, self, 1, &one, &single, &memory[1], err));
  }
  const double alone = scaling              ? wm_samples_best(&single.samples)
                       : o->comm->size == 1 ? wm_samples_best(&together.samples)
                                            : NAN;
  status = add_rates(bench, records, &together, exposed, alone, memory[0], err);
  if (status == WM_OK && scaling)
    status = add_rates(bench, records, &single, one.exposed, alone, memory[1], err);
  WM_TRY(wm_agree(o->comm->world, status, err));
  wm_records_note(records,
                  "%lld x %lld tokens a step, up to %lld of a rank at once; products in %s; best "
                  "of %d, one number of ranks after the other.",
                  (long long)o->sequences, (long long)o->window, (long long)o->pass_tokens,
                  wm_compute_name(o->model.compute), together.samples.n);
  WM_TRY(wm_bench_kernels(bench, &kernels_layout, &profile, wm_bench_peak(bench, o->model.compute),
                          together.samples.wall, together.samples.n, err));
cleanup:
  run_destroy(&all);
  run_destroy(&one);
  wm_comm_free(self);
  return status;
}
