/* Ends a run in which nothing moves any more: a lost node or a hung file system would otherwise
 * keep the surviving ranks in a collective call until the time limit.
 *
 * A thread per rank looks at the process's pulse (base/control.h). A rank that waits for others
 * in a collective call has no pulse of its own, so what counts is the pulse of the whole run: ranks
 * report theirs to rank 0 a few times a second. Rank 0 ends the run when no rank's pulse has moved
 * for longer than the limit (any rank's allowance, wm_pulse_allow, extends it), or when a rank has
 * not reported for as long; a rank ends it when rank 0 has not answered for as long. The message
 * says which rank moved last or is silent, its host and its phase. The run ends by
 * MPI_Abort(WM_STALLED). The thread never blocks in MPI: a peer that is stopped would hold it.
 *
 * Time in which a process does not run (a suspended job, a machine asleep) is no time: the limit
 * counts what its thread has been awake to see.
 *
 * Where MPI offers no MPI_THREAD_MULTIPLE, each rank judges by its own pulse with a tenfold limit.
 */
#ifndef WANAMAKER_PAR_WATCHDOG_H
#define WANAMAKER_PAR_WATCHDOG_H

#include "wanamaker/base/status.h"
#include "wanamaker/par/comm.h"

typedef struct wm_watchdog wm_watchdog_t;

/* Collective over comm->world. seconds <= 0: no watchdog (*out is NULL). */
wm_status_t wm_watchdog_start(const wm_comm_t *comm, double seconds, wm_watchdog_t **out,
                              wm_error_t *err);
/* Collective. Stops the threads. NULL is allowed. */
void wm_watchdog_stop(wm_watchdog_t *watchdog);

/* Name of what goes on, for the message; a string constant. Any rank, any thread. */
void wm_watchdog_phase(const char *phase);

#endif
