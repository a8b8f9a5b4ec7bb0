/* Progress of a stage with its rate and the time left: a live line on a terminal, a line a minute
 * in a log. Rank 0's object speaks; on other ranks it is silent. Times are wall-clock seconds. */
#ifndef WANAMAKER_BASE_PROGRESS_H
#define WANAMAKER_BASE_PROGRESS_H

#include "wanamaker/base/log.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
  const wm_log_t *log; /* borrowed */
  const char *stage;   /* e.g. "fit"; borrowed */
  const char *unit;    /* what `done` counts, e.g. "tokens"; borrowed */
  int64_t done, total;
  int64_t resumed; /* of `done`: was there at the start, says nothing of the rate */
  double start, last_shown;
  bool terminal, shown;
  char note[96]; /* set by the caller between updates: shown behind the time left */
} wm_progress_t;

/* Not collective. total <= 0: unknown, no time left is given. */
void wm_progress_start(wm_progress_t *progress, const wm_log_t *log, const char *stage,
                       const char *unit, int64_t total);
/* After the start: `done` is there from an earlier run. */
void wm_progress_resume(wm_progress_t *progress, int64_t done);
/* Says how much is done; prints when it is time. Cheap enough for every work item. */
void wm_progress_update(wm_progress_t *progress, int64_t done);
/* Ends the live line and logs the stage's total, rate and duration. */
void wm_progress_finish(wm_progress_t *progress);

#endif
