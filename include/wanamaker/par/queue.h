/* A queue of work items over all ranks, in rounds.
 *
 * Items 0 .. n - 1 come in the order given (heaviest first). The first part of them is dealt out
 * in advance by modelled cost, without messages; the rest is fetched item by item from rank 0, so
 * that slow nodes take fewer. Rank 0 answers from a thread of its own (MPI_THREAD_MULTIPLE, ordinary
 * messages; one-sided atomics stand still while their target computes, measured: a fetch waits
 * until the owner's product is done). Where MPI offers no MPI_THREAD_MULTIPLE, or with one rank,
 * everything is dealt out in advance and said once in the log.
 *
 * A round ends for all ranks when the items are used up, when its time is over or when any rank has
 * been asked to stop. Then wm_queue_next returns false everywhere, and the ranks may meet in a
 * collective phase (publish a part) and open the next round.
 */
#ifndef WANAMAKER_PAR_QUEUE_H
#define WANAMAKER_PAR_QUEUE_H

#include "wanamaker/base/status.h"
#include "wanamaker/par/comm.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct wm_queue wm_queue_t;

typedef enum {
  WM_ROUND_DONE,  /* no item is left */
  WM_ROUND_TIME,  /* the round's time is over, items are left */
  WM_ROUND_STOPPED /* a rank was asked to stop */
} wm_round_t;

/* Collective over comm->world. cost: [n], equal on all ranks, descending. */
wm_status_t wm_queue_create(const wm_comm_t *comm, const double *cost, int64_t n, wm_queue_t **out,
                            wm_error_t *err);
/* Collective. NULL is allowed. */
void wm_queue_free(wm_queue_t *queue);

/* Collective. Opens a round of `seconds` (<= 0: no limit). */
void wm_queue_open(wm_queue_t *queue, double seconds);
/* This rank's next item; false when the round is over for it. Not collective. Items that a rank
 * was dealt but has not begun when a round ends are handed out again in the next one. */
bool wm_queue_next(wm_queue_t *queue, int64_t *item);
/* Gives back an item that was begun and not finished (after a stop request). Not collective. */
void wm_queue_return(wm_queue_t *queue, int64_t item);
/* Collective, after wm_queue_next has said false. Why the round ended, equal on all ranks. */
wm_round_t wm_queue_close(wm_queue_t *queue);

/* Cost done by all ranks as rank 0 last heard of it, for progress; meaningful on rank 0. */
double wm_queue_done(const wm_queue_t *queue);
/* Fetches of this rank and the longest one in seconds, for `bench` and tests. */
void wm_queue_latency(const wm_queue_t *queue, int64_t *fetches, double *mean, double *longest);

#endif
