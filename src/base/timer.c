#include "wanamaker/base/timer.h"

#include <time.h>

double wm_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void wm_sleep(double seconds) {
  time_t whole = (time_t)seconds;
  struct timespec t = {whole, (long)((seconds - (double)whole) * 1e9)};
  nanosleep(&t, NULL);
}
