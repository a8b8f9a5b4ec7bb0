/* Nodes whose clocks disagree, and are set back and forth while a program runs: loaded before the
 * C library (LD_PRELOAD) it changes the time of day that a process sees. Rank r is
 * (-1)^r * WM_CLOCK_SKEW seconds off, and every other half second an hour more. Clocks that only
 * run forward (CLOCK_MONOTONIC) are left alone, as they are on a node that is set.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long seconds_off(long now, long nanoseconds) {
  const char *skew = getenv("WM_CLOCK_SKEW"), *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (rank == NULL)
    rank = getenv("PMI_RANK");
  const long off = skew != NULL ? atol(skew) : 0;
  const bool odd = rank != NULL && atol(rank) % 2 != 0;
  return (odd ? -off : off) + (nanoseconds >= 500000000 && now % 2 == 0 ? 3600 : 0);
}

int clock_gettime(clockid_t clock, struct timespec *t) {
  const int code = (int)syscall(SYS_clock_gettime, clock, t);
  if (code == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    t->tv_sec += seconds_off(t->tv_sec, t->tv_nsec);
  return code;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
  struct timespec now;
  (void)zone;
  const int code = clock_gettime(CLOCK_REALTIME, &now);
  *t = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
  return code;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != NULL)
    *out = now.tv_sec;
  return now.tv_sec;
}
