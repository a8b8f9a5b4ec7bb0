/* The study's claims beside what results say (results/reference/published_claims.csv).
 *
 * Each claim is a quantity with a bound or a value. On the model that the claim is about,
 *   reproduced      what is measured agrees with it, to the far end of the interval
 *   contradicted    the whole interval lies on the other side
 *   not reproduced  measured, and neither
 *   not tested      the model or the file that it needs is not among the results, or they are not
 *                   what the claim is about, see `reason`: a part of the layers, other numbers of
 *                   layers or tokens, no intervals or too few units for them
 * On other models the same quantity is shown without a verdict. Not collective.
 */
#ifndef WANAMAKER_REPORT_LEDGER_H
#define WANAMAKER_REPORT_LEDGER_H

#include "wanamaker/report/published.h"
#include "wanamaker/report/results.h"

enum { WM_CLAIMS = 21 };

typedef enum {
  WM_NOT_TESTED,
  WM_REPRODUCED,
  WM_NOT_REPRODUCED,
  WM_CONTRADICTED,
  WM_CLAIM_VERDICTS
} wm_claim_verdict_t;

const char *wm_claim_verdict_name(wm_claim_verdict_t verdict);

typedef struct {
  int64_t row; /* of published_claims */
  wm_claim_verdict_t verdict;
  int64_t on;              /* index of the results that `value` is of; -1: none */
  bool same_model;         /* and that are of the claim's model */
  double value, low, high; /* in the claim's unit; NaN */
  double beside;           /* a second number, see `beside_what`; NaN */
  char reason[128];        /* why results of the claim's model do not test it; else "" */
  const char *interval;    /* what low and high are */
  const char *beside_what;
  const char *quantity;    /* what `value` is, in words */
  const char *needs;       /* the job whose results it takes */
  const char *rule;        /* how the verdict follows */
  const char *differences; /* from the study's protocol */
} wm_claim_t;

/* Fills claims[WM_CLAIMS] in the order of the published table. WM_INPUT if a claim of the table is
 * not known here, or the other way round. */
wm_status_t wm_ledger(const wm_published_t *published, const wm_results_t *results, int64_t n,
                      wm_claim_t *claims, wm_error_t *err);

/* The study's name of the model that these results are of, or NULL (published.h). */
const char *wm_results_study_model(const wm_results_t *results);

#endif
