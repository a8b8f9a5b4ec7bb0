/* bench: what this machine, and this program on it, can do (bench.h5); or a model with random
 * weights as files. */
#include "wanamaker/measure/bench.h"

#include "inputs.h"
#include "stages.h"
#include "wanamaker/report/table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* --- settings -----------------------------------------------------------------------------------
 */

static const struct {
  const char *name;
  unsigned bit;
} part_names[] = {{"machine", WM_BENCH_MACHINE},
                  {"forward", WM_BENCH_FORWARD},
                  {"documents", WM_BENCH_DOCUMENTS},
                  {"fit", WM_BENCH_FIT},
                  {"sweep", WM_BENCH_SWEEP},
                  {"routing", WM_BENCH_ROUTING},
                  {"scaling", WM_BENCH_SCALING},
                  {"training", WM_BENCH_TRAINING},
                  {"all", WM_BENCH_ALL}};
enum { N_PARTS = sizeof part_names / sizeof part_names[0] };

/* Names separated by blanks or commas. */
static wm_status_t read_parts(const char *text, unsigned *parts, wm_error_t *err) {
  static const char between[] = " ,";
  *parts = 0;
  for (const char *at = text + strspn(text, between); *at != '\0';) {
    size_t length = strcspn(at, between);
    unsigned bit = 0;
    for (int i = 0; i < N_PARTS; i++)
      if (strlen(part_names[i].name) == length && strncmp(part_names[i].name, at, length) == 0)
        bit = part_names[i].bit;
    if (bit == 0)
      return wm_fail(err, WM_USAGE,
                     "bench.parts: no part \"%.*s\"; there are machine, forward, documents, fit, "
                     "sweep, routing, scaling, training, and all",
                     (int)length, at);
    *parts |= bit;
    at += length;
    at += strspn(at, between);
  }
  return *parts != 0 ? WM_OK : wm_fail(err, WM_USAGE, "bench.parts names no part");
}

static wm_status_t read_options(const wm_run_t *run, wm_bench_options_t *o, wm_error_t *err) {
  const wm_config_t *c = run->config;
  *o = (wm_bench_options_t){.comm = run->comm,
                            .log = run->log,
                            .memory = run->memory,
                            .config = wm_config_string(c, "bench.config"),
                            .seed = (uint64_t)wm_config_int(c, "bench.seed"),
                            .model = {.tile_rows = wm_config_int(c, "compute.tile_rows"),
                                      .tile_vocab = wm_config_int(c, "compute.tile_vocab"),
                                      .compute = wm_compute_of(run)},
                            .window = wm_config_int(c, "bench.window"),
                            .windows = wm_config_int(c, "bench.windows"),
                            .documents = wm_config_int(c, "bench.documents"),
                            .block_tokens = wm_config_int(c, "compute.block_tokens"),
                            .stack_rows = wm_config_int(c, "compute.stack_rows"),
                            .fit_block = (int)wm_config_int(c, "fit.block"),
                            .sequences = wm_config_int(c, "bench.sequences"),
                            .pass_tokens = wm_config_int(c, "finetune.pass_tokens"),
                            .recompute = wm_config_bool(c, "finetune.recompute"),
                            .repeat = wm_config_int(c, "bench.repeat"),
                            .processor_time =
                                strcmp(wm_config_string(c, "bench.clock"), "processor") == 0,
                            .seconds = wm_config_float(c, "bench.seconds")};
  o->batches = wm_config_ints(c, "bench.batches", &o->n_batches);
  o->fractions = wm_config_floats(c, "bench.fractions", &o->n_fractions);
  wm_status_t status = wm_compute_check(o->model.compute, err);
  if (status == WM_OK)
    status = read_parts(wm_config_string(c, "bench.parts"), &o->parts, err);
  if (status == WM_OK && (o->parts & WM_BENCH_ROUTING) != 0 && o->n_batches == 0)
    status = wm_fail(err, WM_USAGE, "bench.batches names no batch for the part routing");
  return status;
}

/* --- results ------------------------------------------------------------------------------------
 */

static wm_status_t print_tables(const wm_run_t *run, const wm_bench_t *bench, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int i = 0; i < bench->n_tables && status == WM_OK && run->comm->rank == 0; i++)
    status = wm_print_records(run, &bench->tables[i], err);
  return wm_agree(run->comm->world, status, err);
}

/* Collective. */
static wm_status_t write_file(const wm_run_t *run, const wm_bench_t *bench, const char *path,
                              wm_error_t *err) {
  wm_h5_t *file = NULL;
  wm_status_t status = wm_h5_create(run->comm->world, path, &file, err);
  if (status != WM_OK)
    return status;
  for (int i = 0; i < bench->n_tables; i++)
    WM_TRY(wm_records_write(&bench->tables[i], file, run->comm->rank == 0, err));
  WM_TRY(wm_h5_set_string(file, "/", "stage", "bench", err));
  WM_TRY(wm_h5_set_string(file, "/", "model", bench->options->config, err));
  WM_TRY(wm_h5_set_float(file, "/", "peak_flops", bench->peak, err));
  WM_TRY(wm_h5_set_float(file, "/", "peak_flops_one_rank", bench->peak_one, err));
  WM_TRY(wm_h5_set_float(file, "/", "peak_flops_bf16", bench->peak_bf16, err));
  wm_provenance_t provenance = run->provenance;
  provenance.compute = wm_compute_name(bench->options->model.compute);
  WM_TRY(wm_provenance_write(file, run->comm, &provenance, err));
  wm_h5_t *whole = file;
  file = NULL; /* publishing takes it */
  status = wm_h5_publish(whole, err);
cleanup:
  wm_h5_close(file);
  return status;
}

/* --- the job ------------------------------------------------------------------------------------
 */

/* What would be done, with the time that the operations take at the rate of a short product. */
static wm_status_t explain(const wm_run_t *run, const wm_bench_options_t *o, const char *path,
                           wm_error_t *err) {
  wm_arch_t arch;
  wm_status_t status = wm_arch_read(o->config, &arch, err);
  if (status != WM_OK || run->comm->rank != 0)
    return status;
  const double forward = wm_bench_forward_flops(o, &arch);
  char once[32];
  wm_stage_duration(run, forward * run->comm->size, 0, once, sizeof once);
  fprintf(run->out,
          "bench: %s\n  %s: %s, %" PRId64 " layers of width %" PRId64 ", random weights\n"
          "  %s\n  %" PRId64 " windows of %" PRId64
          " tokens a rank: %.3g operations, about %s each "
          "time\n  up to %" PRId64 " times, or until %.0f s are spent on a measurement\n",
          path, o->config, wm_family_name(arch.family), arch.n_layers, arch.d_model,
          wm_config_string(run->config, "bench.parts"), o->windows, o->window, forward, once,
          o->repeat, o->seconds);
  return WM_OK;
}

static wm_status_t measure(const wm_run_t *run, const wm_bench_options_t *o, const char *path,
                           wm_error_t *err) {
  wm_bench_t bench;
  wm_status_t status = wm_bench_run(o, &bench, err);
  if (status == WM_OK)
    status = wm_output_shown(run, print_tables(run, &bench, err));
  if (status == WM_OK)
    status = write_file(run, &bench, path, err);
  if (status == WM_OK)
    wm_log(run->log, WM_LOG_INFO, "bench: wrote %s", path);
  wm_bench_destroy(&bench);
  return status;
}

static wm_status_t save(const wm_run_t *run, const wm_bench_options_t *o, wm_error_t *err) {
  static const struct {
    const char *name;
    wm_dtype_t dtype;
  } types[] = {{"f32", WM_DTYPE_F32}, {"f16", WM_DTYPE_F16}, {"bf16", WM_DTYPE_BF16}};
  const char *dir = wm_config_string(run->config, "bench.save");
  const char *name = wm_config_string(run->config, "bench.save_dtype");
  int64_t shards = wm_config_int(run->config, "bench.save_shards");
  wm_dtype_t dtype = WM_DTYPE_F32;
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
    if (strcmp(types[i].name, name) == 0)
      dtype = types[i].dtype;
  if (run->dry_run) {
    wm_arch_t arch;
    wm_status_t status = wm_agree(run->comm->world, wm_arch_read(o->config, &arch, err), err);
    if (status == WM_OK && run->comm->rank == 0)
      fprintf(run->out, "bench: %s with random weights into %s, %s in %" PRId64 " file(s)\n",
              o->config, dir, name, shards);
    return status;
  }
  wm_status_t status =
      wm_model_save_random(run->comm, o->config, o->seed, dtype, shards, dir, run->log, err);
  if (status == WM_OK)
    wm_log(run->log, WM_LOG_INFO, "bench: wrote a model with random weights into %s", dir);
  return status;
}

wm_status_t wm_job_bench(const wm_run_t *run, wm_error_t *err) {
  wm_bench_options_t options;
  char path[WM_PATH_SIZE];
  wm_status_t status = read_options(run, &options, err);
  if (status == WM_OK)
    status = wm_output_path(run, "bench.h5", path, err);
  status = wm_agree(run->comm->world, status, err);
  if (status != WM_OK)
    return status;
  if (wm_config_string(run->config, "bench.save")[0] != '\0')
    return save(run, &options, err);
  if (run->dry_run)
    return wm_agree(run->comm->world, explain(run, &options, path, err), err);
  status = wm_output_ready(run, err);
  return status == WM_OK ? measure(run, &options, path, err) : status;
}
