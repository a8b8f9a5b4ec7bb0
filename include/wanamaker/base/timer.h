#ifndef WANAMAKER_BASE_TIMER_H
#define WANAMAKER_BASE_TIMER_H

/* Seconds on a monotonic clock. */
double wm_seconds(void);

#endif
