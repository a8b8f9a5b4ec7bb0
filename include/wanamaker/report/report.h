/* The report: report.html, tables/ID.csv and summary.json from one or many result directories.
 *
 * The page is one file without scripts that needs no network: tables, figures as SVG, light and
 * dark by what the reader's system prefers, and readable in grey and on paper. Every number from
 * results stands in an element that carries it exactly (<td data-v>, <data value>), every table is
 * in tables/ too, and the named numbers of the text are in summary.json. Not collective: rank 0.
 */
#ifndef WANAMAKER_REPORT_REPORT_H
#define WANAMAKER_REPORT_REPORT_H

#include "wanamaker/base/log.h"
#include "wanamaker/report/ledger.h"
#include "wanamaker/report/published.h"
#include "wanamaker/report/results.h"
#include "wanamaker/text/tokenizer.h"

#include <stdio.h>

typedef struct {
  const char *dir; /* where it goes; made */
  wm_results_t *results;
  int64_t n; /* results */
  const wm_published_t *published;
  const wm_claim_t *claims; /* [WM_CLAIMS], see ledger.h */
  double tolerance;         /* percent of perplexity that a wasted layer may cost */
  const char *tokenizer;    /* directory of a tokenizer to spell tokens with; "": the models' own */
  const char *version, *commit;
  const wm_log_t *log;
} wm_report_t;

/* What was written. Paths are heap strings; wm_report_outcome_destroy. */
typedef struct {
  char *page; /* dir/report.html */
  int64_t bytes;
  int figures, figures_missing, tables;
  char *figures_why; /* of the first missing figure; NULL */
  double seconds;
} wm_report_outcome_t;

/* Writes everything; report.html comes last, by rename. WM_ENVIRONMENT: disk, memory. */
wm_status_t wm_report_write(const wm_report_t *report, wm_report_outcome_t *out, wm_error_t *err);
void wm_report_outcome_destroy(wm_report_outcome_t *outcome);

/* The table for the terminal: which layers are wasted, at what cost, how sure; then the counts of
 * the ledger. */
wm_status_t wm_report_print(const wm_report_t *report, FILE *out, wm_error_t *err);

#endif
