/* report: a page, tables and a summary of what result files say, and the study's claims beside it.
 * Rank 0 reads and writes, the others wait: minutes of work for one. */
#include "wanamaker/report/report.h"

#include "inputs.h"
#include "stages.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/report/comparison.h"

#include <string.h>
#include <sys/stat.h>

/* --- what is reported ---------------------------------------------------------------------------
 */

/* Directories of report.inputs; output.dir where none is given. */
static int64_t input_count(const wm_run_t *run) {
  int64_t n = wm_config_count(run->config, "report.inputs");
  return n > 0 ? n : 1;
}

static const char *input_dir(const wm_run_t *run, int64_t i) {
  return wm_config_count(run->config, "report.inputs") > 0
             ? wm_config_element(run->config, "report.inputs", i)
             : wm_config_string(run->config, "output.dir");
}

/* Everything that a report is made of, on rank 0. */
typedef struct {
  const wm_run_t *run;
  wm_published_t published;
  int64_t n;
  wm_results_t *results;
  wm_claim_t claims[WM_CLAIMS];
  wm_report_t report;
} job_t;

typedef const char *name_dir_t(const wm_run_t *run, int64_t i);

static wm_status_t read_all(job_t *j, int64_t n, name_dir_t *dir, wm_error_t *err) {
  const double tolerance = wm_config_float(j->run->config, "report.tolerance");
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, n, sizeof(wm_results_t), "results", err));
  j->results = memory;
  for (; j->n < n && status == WM_OK; j->n++) /* one that fails is counted: it is to be destroyed */
    status = wm_results_read(dir(j->run, j->n), tolerance, j->run->log, &j->results[j->n], err);
  if (status == WM_OK)
    status = wm_results_label(j->results, n, err);
cleanup:
  return status;
}

/* A model named twice would be counted twice. */
static wm_status_t check_names(const wm_run_t *run, int64_t n, wm_error_t *err) {
  for (int64_t i = 0; i < n; i++) {
    if (input_dir(run, i)[0] == '\0')
      return wm_fail(err, WM_USAGE, "%s is empty: it must name a directory",
                     wm_config_count(run->config, "report.inputs") > 0 ? "a name in report.inputs"
                                                                       : "output.dir");
    for (int64_t k = 0; k < i; k++) {
      struct stat a, b;
      if (stat(input_dir(run, i), &a) == 0 && stat(input_dir(run, k), &b) == 0 &&
          a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return wm_fail(err, WM_USAGE, "report.inputs names one directory twice: %s and %s",
                       input_dir(run, k), input_dir(run, i));
    }
  }
  return WM_OK;
}

/* A model that failed is no reason to keep the others' results from anybody; nothing at all is. */
static wm_status_t read_inputs(job_t *j, wm_error_t *err) {
  const int64_t n = input_count(j->run);
  int64_t shown = 0;
  wm_status_t status;
  WM_TRY(check_names(j->run, n, err));
  WM_TRY(read_all(j, n, input_dir, err));
  for (int64_t i = 0; i < n; i++)
    shown += j->results[i].why == NULL;
  for (int64_t i = 0; i < n && shown > 0; i++)
    if (j->results[i].why != NULL)
      wm_log(j->run->log, WM_LOG_WARN, "%s; the report goes on without it", j->results[i].why);
  if (shown == 0)
    status = wm_fail(err, WM_INPUT, "%s", j->results[0].why);
cleanup:
  return status;
}

static wm_status_t prepare(job_t *j, wm_error_t *err) {
  const wm_run_t *run = j->run;
  wm_status_t status;
  WM_TRY(wm_published_read(&j->published, err));
  WM_TRY(read_inputs(j, err));
  WM_TRY(wm_ledger(&j->published, j->results, j->n, j->claims, err));
  j->report = (wm_report_t){.dir = wm_config_string(run->config, "output.dir"),
                            .results = j->results,
                            .n = j->n,
                            .published = &j->published,
                            .claims = j->claims,
                            .tolerance = wm_config_float(run->config, "report.tolerance"),
                            .tokenizer = wm_config_string(run->config, "tokenizer.path"),
                            .version = run->provenance.version,
                            .commit = run->provenance.commit,
                            .log = run->log};
cleanup:
  return status;
}

static void destroy(job_t *j) {
  for (int64_t i = 0; i < j->n; i++)
    wm_results_destroy(&j->results[i]);
  free(j->results);
  wm_published_destroy(&j->published);
}

/* --- the page -----------------------------------------------------------------------------------
 */

static wm_status_t write(const job_t *j, wm_error_t *err) {
  wm_report_outcome_t outcome;
  wm_status_t status = wm_report_write(&j->report, &outcome, err);
  if (status == WM_OK) {
    fprintf(j->run->out, "\nwrote %s (%.0f kB, %d figure%s, %d tables; %.1f s)\n", outcome.page,
            (double)outcome.bytes / 1e3, outcome.figures, outcome.figures == 1 ? "" : "s",
            outcome.tables, outcome.seconds);
    if (outcome.figures_missing > 0)
      wm_log(j->run->log, WM_LOG_WARN, "%d figure%s missing from the report: %s",
             outcome.figures_missing, outcome.figures_missing == 1 ? " is" : "s are",
             outcome.figures_why);
  }
  wm_report_outcome_destroy(&outcome);
  return status;
}

/* What a dry run says. */
static void explain(const job_t *j) {
  FILE *out = j->run->out;
  fprintf(out, "report: %s/report.html, tables/ and summary.json from\n", j->report.dir);
  for (int64_t i = 0; i < j->n; i++) {
    fprintf(out, "  %s:", j->results[i].dir);
    for (int k = 0; k < WM_FILE_KINDS; k++)
      if (j->results[i].files[k].state == WM_FILE_READ)
        fprintf(out, " %s", j->results[i].files[k].name);
    fputc('\n', out);
  }
  fprintf(out, "  on one rank, a few seconds\n");
}

/* On rank 0. */
static wm_status_t show(const job_t *j, wm_error_t *err) {
  if (j->run->dry_run) {
    explain(j);
    return WM_OK;
  }
  wm_status_t status = wm_output_shown(j->run, wm_report_print(&j->report, j->run->out, err));
  return status == WM_OK ? write(j, err) : status;
}

/* `take`: the output directory, which is left alone if there is nothing to report. */
static wm_status_t make(const wm_run_t *run, bool take, wm_error_t *err) {
  const bool first = run->comm->rank == 0;
  job_t j = {.run = run};
  wm_status_t status = wm_agree(run->comm->world, first ? prepare(&j, err) : WM_OK, err);
  if (status == WM_OK && take)
    status = wm_output_ready(run, err);
  if (status == WM_OK)
    status = wm_agree(run->comm->world, first ? show(&j, err) : WM_OK, err);
  destroy(&j);
  return status;
}

wm_status_t wm_stage_report(const wm_run_t *run, wm_error_t *err) {
  return make(run, false, err);
}

/* --- two runs -----------------------------------------------------------------------------------
 */

static const char *compared_dir(const wm_run_t *run, int64_t i) {
  return wm_config_element(run->config, "report.compare", i);
}

/* On rank 0. */
static wm_status_t compare(const wm_run_t *run, wm_error_t *err) {
  job_t j = {.run = run};
  wm_status_t status = WM_OK;
  if (wm_config_count(run->config, "report.compare") != 2)
    return wm_fail(err, WM_USAGE, "report.compare must name two directories of results");
  WM_TRY(read_all(&j, 2, compared_dir, err));
  for (int i = 0; i < 2 && status == WM_OK; i++)
    if (j.results[i].why != NULL)
      status = wm_fail(err, WM_INPUT, "%s", j.results[i].why);
  if (status == WM_OK)
    status = wm_output_shown(run, wm_comparison_print(&j.results[0], &j.results[1], run->out, err));
cleanup:
  destroy(&j);
  return status;
}

wm_status_t wm_job_report(const wm_run_t *run, wm_error_t *err) {
  if (wm_config_count(run->config, "report.compare") > 0)
    return wm_agree(run->comm->world, run->comm->rank == 0 ? compare(run, err) : WM_OK, err);
  return make(run, true, err);
}
