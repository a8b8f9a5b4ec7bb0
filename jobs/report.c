/* report: a page, tables and a summary of what result files say, and the study's claims beside it.
 * Rank 0 reads and writes, the others wait: minutes of work for one. */
#include "wanamaker/report/report.h"

#include "inputs.h"
#include "stages.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/report/comparison.h"

#include <string.h>

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

static wm_status_t read_inputs(job_t *j, int64_t n, const char *(*dir)(const wm_run_t *, int64_t),
                               wm_error_t *err) {
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, n, sizeof(wm_results_t), "results", err));
  j->results = memory;
  for (; j->n < n; j->n++)
    WM_TRY(wm_results_read(dir(j->run, j->n), wm_config_float(j->run->config, "report.tolerance"),
                           j->run->log, &j->results[j->n], err));
  status = wm_results_label(j->results, n, err);
cleanup:
  return status;
}

static wm_status_t prepare(job_t *j, wm_error_t *err) {
  const wm_run_t *run = j->run;
  wm_status_t status;
  WM_TRY(wm_published_read(&j->published, err));
  WM_TRY(read_inputs(j, input_count(run), input_dir, err));
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
  /* One more than were read whole: the last may have failed half-way. */
  for (int64_t i = 0; j->results != NULL && i <= j->n && i < input_count(j->run); i++)
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
    fprintf(j->run->out, "\nwrote %s (%.0f kB, %d figures, %d tables; %.1f s)\n", outcome.page,
            (double)outcome.bytes / 1e3, outcome.figures, outcome.tables, outcome.seconds);
    if (outcome.figures_missing > 0)
      wm_log(j->run->log, WM_LOG_WARN, "%d figures are missing from the report: %s",
             outcome.figures_missing, outcome.figures_why);
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
static wm_status_t make(const wm_run_t *run, wm_error_t *err) {
  job_t j = {.run = run};
  wm_status_t status = prepare(&j, err);
  if (status == WM_OK && run->dry_run)
    explain(&j);
  else if (status == WM_OK)
    status = wm_output_shown(run, wm_report_print(&j.report, run->out, err));
  if (status == WM_OK && !run->dry_run)
    status = write(&j, err);
  destroy(&j);
  return status;
}

wm_status_t wm_stage_report(const wm_run_t *run, wm_error_t *err) {
  wm_status_t status = run->comm->rank == 0 ? make(run, err) : WM_OK;
  return wm_agree(run->comm->world, status, err);
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
  void *memory;
  WM_TRY(wm_alloc(&memory, 2, sizeof(wm_results_t), "results", err));
  j.results = memory;
  for (; j.n < 2; j.n++)
    WM_TRY(wm_results_read(compared_dir(run, j.n), wm_config_float(run->config, "report.tolerance"),
                           run->log, &j.results[j.n], err));
  WM_TRY(wm_results_label(j.results, 2, err));
  status = wm_output_shown(run, wm_comparison_print(&j.results[0], &j.results[1], run->out, err));
cleanup:
  for (int i = 0; j.results != NULL && i < 2; i++)
    wm_results_destroy(&j.results[i]);
  free(j.results);
  return status;
}

wm_status_t wm_job_report(const wm_run_t *run, wm_error_t *err) {
  if (wm_config_count(run->config, "report.compare") > 0)
    return wm_agree(run->comm->world, run->comm->rank == 0 ? compare(run, err) : WM_OK, err);
  wm_status_t status = wm_output_ready(run, err);
  return status == WM_OK ? wm_stage_report(run, err) : status;
}
