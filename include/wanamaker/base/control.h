/* What signals ask for and how a process shows that it is alive: two process-wide cells, the only
 * ones, because a signal handler and a watching thread can be handed no argument.
 *
 *   stop   set by SIGTERM, SIGUSR1 and SIGINT (or by wm_stop_request); long work looks at it between
 *          steps and leaves with WM_STOPPED after what it has is safe
 *   pulse  a counter that work raises at every step: a layer of a block, a tensor read, a piece of
 *          a file. The watchdog (par/watchdog.h) ends a run whose pulse stands still.
 */
#ifndef WANAMAKER_BASE_CONTROL_H
#define WANAMAKER_BASE_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

/* Installs the handlers. A second SIGINT kills as usual: somebody at a terminal means it. */
void wm_stop_install(void);
void wm_stop_request(void);
/* Has this process been asked to stop? Ranks may differ: agree before acting (wm_queue does). */
bool wm_stop_requested(void);
/* Name of the signal that asked, e.g. "SIGUSR1"; "request" without one. */
const char *wm_stop_reason(void);

/* Any thread; cheap enough for every layer. */
void wm_pulse(void);
uint64_t wm_pulse_count(void);

/* Seconds that the step now beginning may take without a pulse, beyond the watchdog's own time: for
 * calls that can't pulse (an eigendecomposition of a wide layer, a collective write of gigabytes).
 * 0 ends the allowance. */
void wm_pulse_allow(double seconds);
double wm_pulse_allowed(void);

#endif
