/* plan: what a configuration takes on a machine, before anything is there but settings and the
 * model's config.json. Rank 0 computes, in seconds. */
#include "plan.h"

#include "stages.h"
#include "wanamaker/report/table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct {
  const wm_run_t *run;
  wm_plan_machine_t machine;
  wm_plan_work_t work;
  char stages[WM_PLAN_STAGES][WM_STAGE_NAME];
  int n_stages;
} job_t;

/* --- layouts ------------------------------------------------------------------------------------
 */

/* The quickest layout of a stage on so many nodes among those that divide a node's cores and fit
 * its memory; of layouts within a hundredth, the one with fewer ranks. WM_USAGE: none fits. */
static wm_status_t best_layout(const job_t *j, const char *stage, int64_t nodes, wm_layout_t *best,
                               wm_cost_t *cost, wm_error_t *err) {
  enum { TOKENIZE_RANKS = 16 }; /* share out a corpus; more would wait for the files */
  const wm_machine_t *m = &j->machine.rates;
  char note[WM_PLAN_NOTE];
  bool found = false;
  if (strcmp(stage, "tokenize") == 0) {
    *best = (wm_layout_t){1, m->cores < TOKENIZE_RANKS ? m->cores : TOKENIZE_RANKS, 1};
    return wm_plan_stage(j->run, &j->work, m, stage, *best, cost, note, err);
  }
  for (int64_t ranks = 1; ranks <= m->cores; ranks++) {
    const int64_t given = j->machine.ranks;
    if (given > 0 ? ranks != given : m->cores % ranks != 0)
      continue;
    wm_layout_t l = {nodes, ranks, j->machine.threads > 0 ? j->machine.threads : m->cores / ranks};
    wm_cost_t c;
    if (l.ranks * l.threads > m->cores)
      continue;
    wm_status_t status = wm_plan_stage(j->run, &j->work, m, stage, l, &c, note, err);
    if (status != WM_OK)
      return status;
    if (c.memory > m->memory || (found && c.seconds > 0.99 * cost->seconds))
      continue;
    *best = l;
    *cost = c;
    found = true;
  }
  return found ? WM_OK
               : wm_fail(err, WM_USAGE, "%s does not fit a node of %.1f GiB and %lld cores", stage,
                         m->memory / 0x1p30, (long long)m->cores);
}

/* --- output for scripts -------------------------------------------------------------------------
 */

static bool has_machine(const wm_run_t *run) {
  return wm_config_given(run->config, "plan.machine") ||
         wm_config_given(run->config, "plan.core_gflops") ||
         wm_config_given(run->config, "plan.bench");
}

static wm_status_t print_stages(job_t *j, wm_error_t *err) {
  const wm_run_t *run = j->run;
  bool planned = has_machine(run);
  wm_status_t status = WM_OK;
  if (planned)
    status = wm_plan_work_create(run, &j->work, err);
  if (status == WM_OK)
    fprintf(run->out, "output\t%s\n", wm_config_string(run->config, "output.dir"));
  for (int i = 0; i < j->n_stages && status == WM_OK; i++) {
    wm_layout_t l;
    wm_cost_t c;
    if (planned)
      status = best_layout(j, j->stages[i], j->machine.nodes[0], &l, &c, err);
    if (status == WM_OK && planned)
      fprintf(run->out,
              "stage\t%s\t%" PRId64 "\t%" PRId64 "\t%" PRId64
              "\t%.1f\t%.0f\t%.2f\t%.0f\t%.0f\t%.0f\n",
              j->stages[i], l.nodes, l.ranks, l.threads, c.seconds / 60,
              1.2 * c.memory / 0x1p20 + 512 * (double)l.ranks, c.seconds, c.messages, c.meetings,
              c.message_bytes);
    else if (status == WM_OK)
      fprintf(run->out, "stage\t%s\t-\t-\t-\t-\t-\t-\t-\t-\t-\n", j->stages[i]);
  }
  return status;
}

/* --- tables -------------------------------------------------------------------------------------
 */

static void add_time(wm_table_t *t, double seconds) {
  if (seconds < 100)
    wm_table_textf(t, "%.1f s", seconds);
  else if (seconds < 6000)
    wm_table_textf(t, "%.1f min", seconds / 60);
  else
    wm_table_textf(t, "%.1f h", seconds / 3600);
}

static wm_status_t stage_table(const job_t *j, int64_t nodes, double *total, wm_error_t *err) {
  static const wm_column_t columns[] = {{"stage", NULL, WM_ALIGN_LEFT, 0},
                                        {"ranks", "a node", WM_ALIGN_RIGHT, 0},
                                        {"threads", "a rank", WM_ALIGN_RIGHT, 0},
                                        {"operations", NULL, WM_ALIGN_RIGHT, -3},
                                        {"in float64", NULL, WM_ALIGN_RIGHT, -3},
                                        {"memory", "GiB a node", WM_ALIGN_RIGHT, 2},
                                        {"volume", "GB", WM_ALIGN_RIGHT, -3},
                                        {"files", "GB", WM_ALIGN_RIGHT, -3},
                                        {"busy", "%", WM_ALIGN_RIGHT, 1},
                                        {"time", NULL, WM_ALIGN_RIGHT, 0},
                                        {"", NULL, WM_ALIGN_LEFT, 0}};
  wm_table_t *t;
  wm_status_t status = wm_table_create(columns, 11, &t, err);
  *total = 0;
  for (int i = 0; i < j->n_stages && status == WM_OK; i++) {
    wm_layout_t l;
    wm_cost_t c;
    char note[WM_PLAN_NOTE];
    status = best_layout(j, j->stages[i], nodes, &l, &c, err);
    if (status == WM_OK)
      status = wm_plan_stage(j->run, &j->work, &j->machine.rates, j->stages[i], l, &c, note, err);
    if (status != WM_OK)
      break;
    *total += c.seconds;
    wm_table_text(t, j->stages[i]);
    wm_table_int(t, l.ranks);
    wm_table_int(t, l.threads);
    wm_table_float(t, c.flops);
    wm_table_float(t, c.flops64);
    wm_table_float(t, c.memory / 0x1p30);
    wm_table_float(t, c.message_bytes / 1e9);
    wm_table_float(t, c.file_bytes / 1e9);
    wm_table_float(t, 100 * c.busy);
    add_time(t, c.seconds);
    wm_table_text(t, note);
  }
  if (status == WM_OK)
    status = wm_table_print(t, WM_TABLE_TEXT, j->run->out, err);
  wm_table_free(t);
  return status;
}

/* Time of fit and sweep together, each on its best layout. */
static wm_status_t time_on(const job_t *j, int64_t nodes, double *seconds, wm_error_t *err) {
  *seconds = 0;
  for (int i = 0; i < j->n_stages; i++) {
    wm_layout_t l;
    wm_cost_t c;
    wm_status_t status = best_layout(j, j->stages[i], nodes, &l, &c, err);
    if (status != WM_OK)
      return status;
    if (strcmp(j->stages[i], "tokenize") != 0)
      *seconds += c.seconds;
  }
  return WM_OK;
}

/* The largest power of two of nodes at which twice as many still save a third of the time. */
static wm_status_t useful_nodes(const job_t *j, int64_t *nodes, wm_error_t *err) {
  double before, after;
  wm_status_t status = time_on(j, 1, &before, err);
  *nodes = 1;
  for (int64_t n = 2; n <= 256 && status == WM_OK; n *= 2, before = after) {
    status = time_on(j, n, &after, err);
    if (status != WM_OK || after > before / 1.5)
      break;
    *nodes = n;
  }
  return status;
}

/* What one rank takes against what P take, P = 1, 2, 4, ... 1024, with the threads of `l`. */
static wm_status_t scaling_table(const job_t *j, wm_layout_t l, wm_error_t *err) {
  static const wm_column_t columns[] = {{"ranks", NULL, WM_ALIGN_RIGHT, 0},
                                        {"nodes", NULL, WM_ALIGN_RIGHT, 0},
                                        {"fit", NULL, WM_ALIGN_RIGHT, 0},
                                        {"sweep", NULL, WM_ALIGN_RIGHT, 0},
                                        {"sweep's speed", "of one", WM_ALIGN_RIGHT, 1},
                                        {"efficiency", "%", WM_ALIGN_RIGHT, 1},
                                        {"units", NULL, WM_ALIGN_RIGHT, 0},
                                        {"of variants", "at most", WM_ALIGN_RIGHT, 0},
                                        {"messages", NULL, WM_ALIGN_RIGHT, 0},
                                        {"volume", "MB", WM_ALIGN_RIGHT, -3}};
  enum { MOST = 1024 };
  double one = 0;
  wm_table_t *t;
  wm_status_t status = wm_table_create(columns, 10, &t, err);
  for (int64_t p = 1; p <= MOST && status == WM_OK; p *= 2) {
    const int64_t a_node = p < l.ranks ? p : l.ranks;
    const wm_layout_t at = {(p + a_node - 1) / a_node, a_node, l.threads};
    wm_cost_t fit, sweep;
    char note[WM_PLAN_NOTE];
    status = wm_plan_stage(j->run, &j->work, &j->machine.rates, "fit", at, &fit, note, err);
    if (status == WM_OK)
      status = wm_plan_stage(j->run, &j->work, &j->machine.rates, "sweep", at, &sweep, note, err);
    if (status != WM_OK)
      break;
    one = p == 1 ? sweep.seconds : one;
    wm_table_int(t, p);
    wm_table_int(t, at.nodes);
    add_time(t, fit.seconds);
    add_time(t, sweep.seconds);
    wm_table_float(t, one / sweep.seconds);
    wm_table_float(t, 100 * one / sweep.seconds / (double)p);
    wm_table_int(t, sweep.units);
    wm_table_int(t, sweep.group);
    wm_table_int(t, (int64_t)sweep.messages);
    wm_table_float(t, sweep.message_bytes / 1e6);
  }
  if (status == WM_OK)
    status = wm_table_print(t, WM_TABLE_TEXT, j->run->out, err);
  wm_table_free(t);
  return status;
}

static void print_assumptions(const job_t *j) {
  const wm_machine_t *m = &j->machine.rates;
  fprintf(
      j->run->out,
      "\nassumed, from %s:\n"
      "  one core, while all others compute: %.1f GF/s in the sweep's passes, %.1f in the "
      "model's alone, %.1f in\n  Gram matrices (float64), %.2g scalar steps a second; t threads "
      "are as fast as t / (1 + %.3g (t - 1))\n  cores\n"
      "  links of %.3g GB/s and %.3g us, files at %.3g GB/s for all nodes; an all-reduce of n "
      "bytes over N nodes\n  moves 2 (N - 1) / N n over each link; every node reads the whole "
      "model; nobody else is on the machine\n"
      "  texts with the lengths of WikiText's rows, %" PRId64 " tokens to fit, %" PRId64
      " to evaluate\n",
      j->machine.source, m->sweep / 1e9, m->trunk / 1e9, m->gram / 1e9, m->steps, m->thread_loss,
      m->network / 1e9, m->latency * 1e6, m->files / 1e9, j->work.windows[WM_ROLE_FIT].n_positions,
      j->work.windows[WM_ROLE_EVALUATION].n_predicted);
}

static wm_status_t print_tables(job_t *j, wm_error_t *err) {
  const wm_run_t *run = j->run;
  wm_layout_t l;
  wm_cost_t ignored;
  int64_t nodes;
  wm_status_t status;
  WM_TRY(wm_plan_work_create(run, &j->work, err));
  fprintf(run->out, "plan: %s, %" PRId64 " layers of width %" PRId64 ", %.2f GiB in float32\n",
          wm_config_string(run->config, "model.path"), j->work.arch.n_layers, j->work.arch.d_model,
          wm_plan_weights(&j->work.arch) / 0x1p30);
  for (int64_t i = 0; i < j->machine.n_nodes; i++) {
    double total;
    fprintf(run->out, "\n%" PRId64 " node%s of %" PRId64 " cores\n\n", j->machine.nodes[i],
            j->machine.nodes[i] > 1 ? "s" : "", j->machine.rates.cores);
    WM_TRY(stage_table(j, j->machine.nodes[i], &total, err));
    fprintf(run->out, "all: %.2f h, which %s a night of %.3g h\n", total / 3600,
            total <= 3600 * j->machine.night ? "fits" : "does not fit", j->machine.night);
  }
  WM_TRY(useful_nodes(j, &nodes, err));
  fprintf(run->out,
          "\nlargest useful number of nodes: %" PRId64
          " (twice as many save less than a third of the time)\n\n",
          nodes);
  WM_TRY(best_layout(j, "sweep", 1, &l, &ignored, err));
  fprintf(run->out, "simulated scaling, %" PRId64 " ranks a node of %" PRId64 " threads\n\n",
          l.ranks, l.threads);
  WM_TRY(scaling_table(j, l, err));
  print_assumptions(j);
cleanup:
  return status;
}

wm_status_t wm_job_plan(const wm_run_t *run, wm_error_t *err) {
  const double trial = wm_stage_rate(run);
  const bool stages = strcmp(wm_config_string(run->config, "plan.print"), "stages") == 0;
  job_t j = {.run = run};
  wm_status_t status = wm_plan_stages(run, j.stages, &j.n_stages, err);
  WM_TRY(wm_agree(run->comm->world, status, err));
  if (!stages || has_machine(run))
    WM_TRY(wm_plan_machine_read(run, trial, &j.machine, err));
  if (run->comm->rank == 0)
    status = stages ? print_stages(&j, err) : print_tables(&j, err);
  status = wm_agree(run->comm->world, status, err);
cleanup:
  wm_plan_work_destroy(&j.work);
  wm_plan_machine_free(&j.machine);
  return status;
}
