#include "wanamaker/base/progress.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/timer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const double LIVE_INTERVAL = 0.2, LOG_INTERVAL = 60.0;

void wm_progress_start(wm_progress_t *progress, const wm_log_t *log, const char *stage,
                       const char *unit, int64_t total) {
  *progress = (wm_progress_t){.log = log, .stage = stage, .unit = unit, .total = total};
  progress->start = progress->last_shown = wm_seconds();
  progress->terminal = isatty(STDERR_FILENO) == 1;
}

void wm_progress_resume(wm_progress_t *progress, int64_t done) {
  progress->done = progress->resumed = done;
}

static bool speaks(const wm_progress_t *p) {
  return p->log != NULL && p->log->rank == 0 && p->log->level >= WM_LOG_INFO;
}

/* "1h05m", "3m20s", "12.3s" */
static void print_duration(char *out, size_t size, double seconds) {
  long s = (long)(seconds < 3.6e9 ? seconds + 0.5 : 3.6e9);
  if (s >= 3600)
    snprintf(out, size, "%ldh%02ldm", s / 3600, s % 3600 / 60);
  else if (s >= 60)
    snprintf(out, size, "%ldm%02lds", s / 60, s % 60);
  else
    snprintf(out, size, "%.1fs", seconds);
}

/* "123", "12.3k", "4.56M" */
static void print_count(char *out, size_t size, double n) {
  if (n >= 1e6)
    snprintf(out, size, "%.2fM", n / 1e6);
  else if (n >= 1e4)
    snprintf(out, size, "%.1fk", n / 1e3);
  else
    snprintf(out, size, n < 10 && n != (double)(long)n ? "%.2f" : "%.0f", n);
}

static void describe_work(const wm_progress_t *p, double elapsed, char *out, size_t size) {
  char done[32], total[32], rate[32], left[32];
  double per_second = elapsed > 0 ? (double)(p->done - p->resumed) / elapsed : 0;
  print_count(done, sizeof done, (double)p->done);
  print_count(rate, sizeof rate, per_second);
  if (p->total <= 0) {
    snprintf(out, size, "%s: %s %s, %s/s", p->stage, done, p->unit, rate);
    return;
  }
  print_count(total, sizeof total, (double)p->total);
  int used = snprintf(out, size, "%s: %s of %s %s (%.0f %%), %s/s", p->stage, done, total, p->unit,
                      100.0 * (double)p->done / (double)p->total, rate);
  if (per_second > 0 && p->done <= p->total && used > 0 && (size_t)used < size) {
    print_duration(left, sizeof left, (double)(p->total - p->done) / per_second);
    snprintf(out + used, size - (size_t)used, ", %s left", left);
  }
}

static void describe(const wm_progress_t *p, double elapsed, char *out, size_t size) {
  describe_work(p, elapsed, out, size);
  size_t used = strlen(out);
  if (p->note[0] != '\0')
    snprintf(out + used, size - used, "; %s", p->note);
}

void wm_progress_update(wm_progress_t *progress, int64_t done) {
  wm_pulse();
  progress->done = done;
  double now = wm_seconds();
  if (!speaks(progress) ||
      now - progress->last_shown < (progress->terminal ? LIVE_INTERVAL : LOG_INTERVAL))
    return;
  progress->last_shown = now;
  char text[256];
  describe(progress, now - progress->start, text, sizeof text);
  if (progress->terminal)
    fprintf(stderr, "\r\033[K%s", text);
  else
    wm_log(progress->log, WM_LOG_INFO, "%s", text);
  progress->shown = true;
}

void wm_progress_finish(wm_progress_t *progress) {
  if (!speaks(progress))
    return;
  if (progress->terminal && progress->shown)
    fprintf(stderr, "\r\033[K");
  char count[32], rate[32], time[32];
  double elapsed = wm_seconds() - progress->start;
  double done = (double)(progress->done - progress->resumed);
  print_count(count, sizeof count, done);
  print_count(rate, sizeof rate, elapsed > 0 ? done / elapsed : 0);
  print_duration(time, sizeof time, elapsed);
  wm_log(progress->log, WM_LOG_INFO, "%s: %s %s in %s, %s/s", progress->stage, count,
         progress->unit, time, rate);
}
