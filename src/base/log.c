#include "wanamaker/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

void wm_log(const wm_log_t *log, wm_log_level_t level, const char *format, ...) {
  static const char *const names[] = {"error", "warning", "info", "debug"};
  if (log == NULL || level > log->level ||
      (log->rank != 0 && !log->all_ranks && level != WM_LOG_ERROR))
    return;
  char line[4096];
  time_t now = time(NULL);
  struct tm local;
  localtime_r(&now, &local);
  size_t used = strftime(line, sizeof line, "%H:%M:%S ", &local);
  if (level != WM_LOG_INFO)
    used += (size_t)snprintf(line + used, sizeof line - used, "%s: ", names[level]);
  if (log->all_ranks || log->rank != 0)
    used += (size_t)snprintf(line + used, sizeof line - used, "[rank %d] ", log->rank);
  va_list args;
  va_start(args, format);
  vsnprintf(line + used, sizeof line - used, format, args);
  va_end(args);
  fprintf(stderr, "%s\n", line); /* one call a line: ranks share the stream */
}
