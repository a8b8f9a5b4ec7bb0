/* Log lines on standard error. Results go to standard output and are printed by report/.
 *
 * Levels:
 *   WM_LOG_ERROR  the run has failed; said once
 *   WM_LOG_WARN   the result stands, but the user should know (a default that matters, a file
 *                 that was ignored, text that had to be repaired)
 *   WM_LOG_INFO   a stage starts or ends, and what it will use
 *   WM_LOG_DEBUG  decisions and timings inside a stage (-v)
 * Rank 0 speaks, other ranks are silent unless the level is WM_LOG_ERROR or `all_ranks` is set;
 * lines of a run with several ranks that speak carry the rank. Nothing logs inside computation.
 */
#ifndef WANAMAKER_BASE_LOG_H
#define WANAMAKER_BASE_LOG_H

#include <stdbool.h>

typedef enum { WM_LOG_ERROR, WM_LOG_WARN, WM_LOG_INFO, WM_LOG_DEBUG } wm_log_level_t;

typedef struct {
  wm_log_level_t level; /* most verbose level that is shown */
  int rank;
  bool all_ranks;
} wm_log_t;

/* Not collective. `log` may be NULL: then nothing is printed. */
void wm_log(const wm_log_t *log, wm_log_level_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
