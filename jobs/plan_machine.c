/* The machine that a plan is for. */
#include "plan.h"
#include "wanamaker/linalg/grid.h"
#include "wanamaker/measure/records.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where a setting's value comes from: what the user gave, else the machine description, else the
 * default. */
static const wm_config_t *source_of(const wm_run_t *run, const wm_plan_machine_t *m,
                                    const char *key) {
  bool of_file =
      !wm_config_given(run->config, key) && m->file != NULL && wm_config_given(m->file, key);
  return of_file ? m->file : run->config;
}

static double number(const wm_run_t *run, const wm_plan_machine_t *m, const char *key) {
  return wm_config_float(source_of(run, m, key), key);
}

static int64_t integer(const wm_run_t *run, const wm_plan_machine_t *m, const char *key) {
  return wm_config_int(source_of(run, m, key), key);
}

/* --- bench.h5 -----------------------------------------------------------------------------------
 */

/* Cores that took part, for rates of all ranks. */
static wm_status_t bench_cores(wm_h5_t *file, double *cores, wm_error_t *err) {
  int64_t ranks, threads;
  wm_status_t status = wm_h5_get_int(file, "/", "ranks", &ranks, err);
  if (status == WM_OK)
    status = wm_h5_get_int(file, "/", "threads", &threads, err);
  if (status == WM_OK)
    *cores = (double)(ranks * threads);
  return status;
}

/* Rates of the bench's fit: operations of Gram matrices, and d^3 of what follows. */
static wm_status_t bench_fit(wm_h5_t *file, double cores, wm_machine_t *r, wm_error_t *err) {
  char *model = NULL;
  wm_arch_t arch = {0};
  double gram, solve, spectrum;
  wm_status_t status;
  WM_TRY(wm_records_read(file, "/fit", "Gram matrices", "gflops", &gram, err));
  WM_TRY(wm_records_read(file, "/fit", "ridge solution", "best", &solve, err));
  WM_TRY(wm_records_read(file, "/fit", "spectrum and path", "best", &spectrum, err));
  WM_TRY(wm_h5_get_string(file, "/", "model", &model, err));
  WM_TRY(wm_arch_read(model, &arch, err));
  int rows, columns;
  wm_grid_shape((int)cores, arch.d_model, &rows, &columns);
  const double d = (double)arch.d_model, team = rows * columns;
  r->gram = gram * 1e9 / cores;
  r->solve = d * d * d / solve / team;
  r->spectrum = d * d * d / spectrum / team;
cleanup:
  free(model);
  return status;
}

static wm_status_t read_bench(const wm_run_t *run, const char *path, wm_plan_machine_t *m,
                              wm_error_t *err) {
  wm_h5_t *file = NULL;
  double cores = 1, sweep, full;
  wm_status_t status = wm_h5_open(run->comm->world, path, &file, err);
  if (status != WM_OK)
    return status;
  WM_TRY(bench_cores(file, &cores, err));
  WM_TRY(wm_records_read(file, "/sweep/times", "sweep of all layers", "gflops", &sweep, err));
  WM_TRY(wm_records_read(file, "/sweep/times", "full model", "gflops", &full, err));
  WM_TRY(bench_fit(file, cores, &m->rates, err));
  m->rates.sweep = sweep * 1e9 / cores;
  m->rates.trunk = full * 1e9 / cores;
  snprintf(m->source, sizeof m->source, "%.100s, measured on %.0f cores", path, cores);
cleanup:
  wm_h5_close(file);
  return status;
}

/* --- all of it ----------------------------------------------------------------------------------
 */

/* From the rate of float32 products, what is not measured. */
static void derive(double rate, wm_machine_t *r) {
  r->sweep = r->trunk = 0.8 * rate; /* what passes reach of it */
  r->gram = 0.35 * rate;            /* float64 is half as fast */
  r->solve = rate / 100;
  r->spectrum = rate / 400;
}

static wm_status_t read_rates(const wm_run_t *run, double trial, wm_plan_machine_t *m,
                              wm_error_t *err) {
  const char *bench = wm_config_string(source_of(run, m, "plan.bench"), "plan.bench");
  const double given = number(run, m, "plan.core_gflops") * 1e9;
  if (bench[0] != '\0' && !wm_config_given(run->config, "plan.core_gflops"))
    return read_bench(run, bench, m, err);
  double rate = given > 0 ? given : trial / run->provenance.threads;
  if (rate <= 0)
    return wm_fail(err, WM_USAGE, "the rate of products is not known: give plan.core_gflops");
  derive(rate, &m->rates);
  snprintf(m->source, sizeof m->source, "%s",
           given > 0 ? "plan.core_gflops" : "a short product on this machine");
  return WM_OK;
}

/* Steps of scalar code that a core does in a second: of a processor of 2020 or later. Little
 * depends on it but the gates' intervals. */
static const double STEPS = 1e9;

static void read_rest(const wm_run_t *run, wm_plan_machine_t *m) {
  wm_machine_t *r = &m->rates;
  const double f64 = number(run, m, "plan.core_gflops_f64") * 1e9;
  long cores = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES);
  r->cores = integer(run, m, "plan.cores");
  r->memory = number(run, m, "plan.memory_gib") * 0x1p30;
  if (r->cores == 0)
    r->cores = cores > 0 ? cores : 1;
  if (r->memory <= 0)
    r->memory = (double)pages * (double)sysconf(_SC_PAGESIZE);
  if (f64 > 0)
    r->gram = f64;
  r->steps = STEPS;
  r->start = number(run, m, "plan.start_seconds");
  r->thread_loss = number(run, m, "plan.thread_loss");
  r->network = number(run, m, "plan.network_gbs") * 1e9;
  r->latency = number(run, m, "plan.latency_us") * 1e-6;
  r->files = number(run, m, "plan.files_gbs") * 1e9;
  m->night = number(run, m, "plan.night_hours");
  m->ranks = integer(run, m, "plan.ranks");
  m->threads = integer(run, m, "plan.threads");
  m->nodes = wm_config_ints(source_of(run, m, "plan.nodes"), "plan.nodes", &m->n_nodes);
}

wm_status_t wm_plan_machine_read(const wm_run_t *run, double trial, wm_plan_machine_t *out,
                                 wm_error_t *err) {
  const char *path = wm_config_string(run->config, "plan.machine");
  wm_status_t status = WM_OK;
  *out = (wm_plan_machine_t){0};
  if (path[0] != '\0')
    status = wm_config_read(wm_settings, path, NULL, 0, 0, &out->file, err);
  status = wm_agree(run->comm->world, status, err);
  if (status == WM_OK)
    status = wm_agree(run->comm->world, read_rates(run, trial, out, err), err);
  if (status == WM_OK)
    read_rest(run, out);
  if (status == WM_OK && out->n_nodes == 0)
    status = wm_fail(err, WM_USAGE, "plan.nodes names no number of nodes");
  if (status == WM_OK && out->ranks * out->threads > 0 &&
      out->ranks * out->threads > out->rates.cores)
    status = wm_fail(err, WM_USAGE, "plan.ranks x plan.threads are more than a node's %lld cores",
                     (long long)out->rates.cores);
  return status;
}

void wm_plan_machine_free(wm_plan_machine_t *m) {
  wm_config_free(m->file);
  *m = (wm_plan_machine_t){0};
}
