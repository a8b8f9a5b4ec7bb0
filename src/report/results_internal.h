/* What the files of the results' reader share: results.c, results_check.c. */
#ifndef WANAMAKER_SRC_REPORT_RESULTS_INTERNAL_H
#define WANAMAKER_SRC_REPORT_RESULTS_INTERNAL_H

#include "wanamaker/report/results.h"

/* WM_INPUT, naming the file and the table, unless what was read of this file has the members that
 * sections need, of the right kind, and numbers that can be. */
wm_status_t wm_results_check(const wm_results_t *r, wm_file_kind_t kind, wm_error_t *err);

/* Is row c of `changes` its variant's only one? */
bool wm_change_is_alone(const wm_frame_t *changes, int64_t c);

/* What a row of finetune.compare.h5 is of; in this order for every range. */
typedef enum {
  WM_COMPARED_CONTROL,
  WM_COMPARED_PLAN,
  WM_COMPARED_HARD,
  WM_COMPARED_NOTHING
} wm_compared_t;
/* By its name, "WHAT: RANGE"; *range is borrowed. */
wm_compared_t wm_compared(const wm_frame_t *comparison, int64_t row, const char **range);

/* Why finetune.compare.h5 is not of those of finetune.h5 and control.h5 that have been read: a heap
 * string; NULL if it is (or there is no memory). */
char *wm_results_other_runs(const wm_results_t *r);

/* Why gates.h5 is not that of sweep.h5, both of which have been read: a heap string; NULL if it is
 * (or there is no memory). */
char *wm_results_other_gates(const wm_results_t *r);

#endif
