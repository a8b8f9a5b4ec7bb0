/* A queue of work items over all ranks, in rounds.
 *
 * Items 0 .. n - 1 come in the order given (heaviest first) and are handed out one at a time, so
 * that slow or busy nodes take fewer. Rank 0 hands them out from a thread of its own, by ordinary
 * messages (MPI_THREAD_MULTIPLE; one-sided atomics stand still while their target computes,
 * measured: a fetch waits until the owner's product is done). A fetch takes about a millisecond,
 * whatever rank 0 computes meanwhile. Nothing is dealt out in advance: a fixed share would be too
 * much for the slowest node, and costs as many messages, since finished items are reported.
 * With one rank, or where MPI offers no MPI_THREAD_MULTIPLE (main warns), there is no thread, and
 * the items that are left are dealt out by cost when a round opens.
 *
 * A round ends for all ranks when the items are used up, when its time is over or when any rank has
 * been asked to stop (dealt out: the rank itself; the others go on to the round's time). An item
 * that was begun is always finished, or given back. Then wm_queue_next returns false everywhere,
 * and the ranks may meet in a collective phase (publish a part) and open the next round:
 *
 *   do {
 *     wm_queue_open(queue, seconds);
 *     while (wm_queue_next(queue, &item))
 *       work(item);
 *     reason = wm_queue_close(queue);
 *     publish();
 *   } while (reason == WM_ROUND_TIME);
 */
#ifndef WANAMAKER_PAR_QUEUE_H
#define WANAMAKER_PAR_QUEUE_H

#include "wanamaker/base/status.h"
#include "wanamaker/par/comm.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct wm_queue wm_queue_t;

typedef enum {
  WM_ROUND_DONE,   /* no item is left */
  WM_ROUND_TIME,   /* the round's time is over (or an item was given back); items are left */
  WM_ROUND_STOPPED /* a rank was asked to stop; items are left */
} wm_round_t;

/* Collective over comm->world; comm is borrowed. cost: [n], equal on all ranks, descending; copied.
 */
wm_status_t wm_queue_create(const wm_comm_t *comm, const double *cost, int64_t n, wm_queue_t **out,
                            wm_error_t *err);
/* Collective, between rounds. NULL is allowed. */
void wm_queue_free(wm_queue_t *queue);

/* Collective. Opens a round of `seconds` (<= 0: no limit), in which at least one item is given out
 * if any is left. */
void wm_queue_open(wm_queue_t *queue, double seconds);
/* This rank's next item; false (and *item = -1) when the round is over for it. The item before it
 * counts as finished, unless it was given back. Not collective. */
bool wm_queue_next(wm_queue_t *queue, int64_t *item);
/* Gives back the item that was begun and will not be finished (after a stop request). Not
 * collective. */
void wm_queue_return(wm_queue_t *queue, int64_t item);
/* Collective, after wm_queue_next has said false; waits for the ranks that are still at work
 * without taking their core. Why the round ended, equal on all ranks; a stop request has reached
 * all of them then (wm_stop_requested). */
wm_round_t wm_queue_close(wm_queue_t *queue);

/* Cost finished by all ranks as rank 0 last heard of it, for progress; meaningful on rank 0. */
double wm_queue_done(const wm_queue_t *queue);
/* Fetches of this rank, their mean and the longest in seconds, for `bench` and tests. */
void wm_queue_latency(const wm_queue_t *queue, int64_t *fetches, double *mean, double *longest);

#endif
