/* Plans that the job `allocate` has measured, kept on disk while it searches, so that one that was
 * killed or stopped does not measure them again:
 *
 *   FILE    /plans [n, L] int32, /delta_pct [n], /saved_pct [n] float64, and the attribute
 * parts_key (of all that the numbers depend on; not of budgets and limits, under which the search
 *           may take another way)
 *
 * The file is replaced whole, by rename. One that is damaged or of another key is named in the log
 * and left out. */
#ifndef WANAMAKER_JOBS_PLAN_LOG_H
#define WANAMAKER_JOBS_PLAN_LOG_H

#include "inputs.h"

typedef struct {
  const wm_inputs_t *in; /* borrowed */
  const char *path;      /* borrowed */
  uint64_t key;
  double interval; /* seconds between files; 0: only when stopped */
  double written;  /* when the last one was, by wm_seconds() */
  bool fresh;      /* there are plans that are in no file */
  int64_t n_layers, n, capacity;
  int32_t *plans; /* [n, n_layers] */
  double *cost, *saved;
} wm_plan_log_t;

/* Collective. With what an earlier run has kept at `path`. Destroy also after a failure. */
wm_status_t wm_plan_log_open(const wm_inputs_t *in, const char *path, uint64_t key, double interval,
                             int64_t n_layers, wm_plan_log_t *out, wm_error_t *err);
void wm_plan_log_destroy(wm_plan_log_t *log);

/* Number of plan[n_layers], -1: it was not measured. Not collective. */
int64_t wm_plan_log_find(const wm_plan_log_t *log, const int32_t *plan);
/* A plan that was not there. Not collective. */
wm_status_t wm_plan_log_add(wm_plan_log_t *log, const int32_t *plan, double cost, double saved,
                            wm_error_t *err);

/* Collective. Writes the file if plans are fresh and the interval has passed, or `now`. */
wm_status_t wm_plan_log_keep(wm_plan_log_t *log, bool now, wm_error_t *err);
/* Collective. The result is published: the file goes. */
void wm_plan_log_remove(const wm_plan_log_t *log);

#endif
