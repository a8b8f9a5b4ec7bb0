#ifndef WANAMAKER_BASE_TIMER_H
#define WANAMAKER_BASE_TIMER_H

/* Seconds on a monotonic clock. */
double wm_seconds(void);

/* Lets the core go for about so long; a signal may end it early. */
void wm_sleep(double seconds);

#endif
