/* What signals ask for and how a process shows that it is alive: process-wide cells, because a
 * signal handler and a watching thread can be handed no argument.
 *
 *   stop    Set by SIGTERM, SIGUSR1 and SIGINT (or by wm_stop_request). Long work looks at it
 *           between steps and leaves with WM_STOPPED when what it has is safe.
 *   pulse   A counter that work raises at every step: a layer of a block, a tensor read, a piece
 *           of a file. The watchdog (par/watchdog.h) ends a run whose pulse stands still.
 *
 * Nothing here is collective; every function may be called by any thread.
 */
#ifndef WANAMAKER_BASE_CONTROL_H
#define WANAMAKER_BASE_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

/* Installs the handlers, which run on a stack of their own; to be called by the process's first
 * thread. System calls go on after a signal. A second SIGINT kills as usual: somebody at a terminal
 * means it. */
void wm_stop_install(void);
void wm_stop_request(void);
/* Has this process been asked to stop? Ranks may differ: agree before acting (wm_queue does). */
bool wm_stop_requested(void);
/* Name of the signal that asked first, e.g. "SIGUSR1"; "request" without one. */
const char *wm_stop_reason(void);

/* For ranks that pass a request on: the code of what asked (0: nobody), and its adoption by a
 * process that has not been asked itself. Larger codes say more, so that a maximum serves. */
int wm_stop_code(void);
void wm_stop_adopt(int code);

/* Cheap enough for every layer. */
void wm_pulse(void);
uint64_t wm_pulse_count(void);

/* Seconds that the step now beginning may take without a pulse, beyond the watchdog's own time: for
 * calls that can't pulse (an eigendecomposition of a wide layer, a collective write of gigabytes).
 * 0 ends the allowance. Both are a pulse. */
void wm_pulse_allow(double seconds);
/* For who watches: pulses so far, and the allowance that holds. An allowance is never seen to have
 * ended without the pulse that ended it. */
void wm_pulse_read(uint64_t *count, double *allowed);

#endif
