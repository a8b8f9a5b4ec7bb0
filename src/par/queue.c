#include "wanamaker/par/queue.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/timer.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { TAG_REQUEST = 1, TAG_REPLY = 2, NONE = -1 };
enum { WAITING, GIVEN, DONE }; /* an item's state */

static const double SERVER_NAP = 5e-4, FETCH_NAP = 1e-4, CLOSE_NAP = 1e-3; /* seconds */
enum { FETCH_TRIES = 50 }; /* looks for an answer before the first nap */

/* What a rank tells and asks at every fetch. */
typedef struct {
  int64_t finished, returned; /* items, or NONE */
  int64_t stop;               /* wm_stop_code() */
} request_t;

struct wm_queue {
  const wm_comm_t *comm; /* borrowed */
  MPI_Comm channel;      /* requests, replies and the end of rounds */
  bool served;           /* rank 0 hands the items out; false: they are dealt out at each round */
  double *cost;          /* [n] */
  int64_t n;
  double deadline; /* of the round, by wm_seconds(); 0: none */
  bool given;      /* an item has been given out in this round */

  /* this rank */
  int64_t current, returned; /* begun item, item to be given back; or NONE */
  int64_t fetches;
  double fetch_sum, fetch_longest;

  /* on rank 0, or dealt out: on every rank. With a server, under `lock`. */
  uint8_t *state;    /* [n] */
  int32_t *owner;    /* [n] dealt out: the rank */
  double *load;      /* [ranks] dealt out: cost dealt to each */
  int64_t cursor;    /* no item before it is WAITING */
  int64_t remaining; /* items that are not DONE (dealt out: this rank's) */
  _Atomic double done;

  /* rank 0's server */
  pthread_mutex_t lock;
  pthread_cond_t changed;
  pthread_t server;
  bool started, quit;
  int waiting; /* ranks that have yet to be told that the round is over */
};

/* --- the items ----------------------------------------------------------------------------------
 */

static void settle(wm_queue_t *q, const request_t *r) {
  if (r->finished != NONE) {
    assert(q->state[r->finished] == GIVEN);
    q->state[r->finished] = DONE;
    q->remaining--;
    q->done = q->done + q->cost[r->finished]; /* one writer at a time */
  }
  if (r->returned != NONE) {
    assert(q->state[r->returned] == GIVEN);
    q->state[r->returned] = WAITING;
    if (r->returned < q->cursor)
      q->cursor = r->returned;
  }
  wm_stop_adopt((int)r->stop);
}

static bool is_mine(const wm_queue_t *q, int64_t item) {
  return q->served || q->owner[item] == q->comm->rank;
}

/* The next item that waits, or NONE when there is none or the round is over. However short a round
 * is, it gives something out: else there could be rounds for ever. */
static int64_t take(wm_queue_t *q) {
  if (wm_stop_requested() || (q->given && q->deadline > 0 && wm_seconds() >= q->deadline))
    return NONE;
  while (q->cursor < q->n && (q->state[q->cursor] != WAITING || !is_mine(q, q->cursor)))
    q->cursor++;
  if (q->cursor == q->n)
    return NONE;
  q->state[q->cursor] = GIVEN;
  q->given = true;
  return q->cursor++;
}

/* --- rank 0's server ----------------------------------------------------------------------------
 */

/* Answers one request, if there is one. The lock is held. */
static bool answer(wm_queue_t *q) {
  int there;
  MPI_Status from;
  MPI_Iprobe(MPI_ANY_SOURCE, TAG_REQUEST, q->channel, &there, &from);
  if (!there)
    return false;
  request_t request;
  MPI_Recv(&request, sizeof request, MPI_BYTE, from.MPI_SOURCE, TAG_REQUEST, q->channel,
           MPI_STATUS_IGNORE);
  settle(q, &request);
  int64_t item = take(q);
  q->waiting -= item == NONE;
  MPI_Send(&item, 1, MPI_INT64_T, from.MPI_SOURCE, TAG_REPLY, q->channel);
  return true;
}

static void *serve(void *context) {
  wm_queue_t *q = context;
  pthread_mutex_lock(&q->lock);
  while (!q->quit) {
    if (q->waiting == 0) {
      pthread_cond_broadcast(&q->changed);
      pthread_cond_wait(&q->changed, &q->lock);
    } else if (!answer(q)) {
      pthread_mutex_unlock(&q->lock);
      wm_sleep(SERVER_NAP);
      pthread_mutex_lock(&q->lock);
    }
  }
  pthread_mutex_unlock(&q->lock);
  return NULL;
}

static wm_status_t start_server(wm_queue_t *q, wm_error_t *err) {
  pthread_mutex_init(&q->lock, NULL);
  pthread_cond_init(&q->changed, NULL);
  int code = pthread_create(&q->server, NULL, serve, q);
  q->started = code == 0;
  if (code != 0)
    return wm_fail(err, WM_ENVIRONMENT, "cannot start the work queue's thread: %s", strerror(code));
  return WM_OK;
}

static void stop_server(wm_queue_t *q) {
  pthread_mutex_lock(&q->lock);
  q->quit = true;
  pthread_cond_broadcast(&q->changed);
  pthread_mutex_unlock(&q->lock);
  pthread_join(q->server, NULL);
  pthread_cond_destroy(&q->changed);
  pthread_mutex_destroy(&q->lock);
}

/* --- life ---------------------------------------------------------------------------------------
 */

static wm_status_t allocate(wm_queue_t *q, const double *cost, wm_error_t *err) {
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, q->n, sizeof *q->cost, "costs of the work items", err));
  q->cost = memory;
  if (q->n > 0)
    memcpy(q->cost, cost, (size_t)q->n * sizeof *cost);
  WM_TRY(wm_alloc(&memory, q->n, sizeof *q->state, "states of the work items", err));
  q->state = memory;
  if (!q->served) {
    int fits; /* one reduction */
    WM_TRY(wm_to_int(q->n, "work items", &fits, err));
    WM_TRY(wm_alloc(&memory, q->n, sizeof *q->owner, "owners of work items", err));
    q->owner = memory;
    WM_TRY(wm_alloc(&memory, q->comm->size, sizeof *q->load, "costs dealt out", err));
    q->load = memory;
  }
  if (q->served && q->comm->rank == 0)
    WM_TRY(start_server(q, err));
cleanup:
  return status;
}

wm_status_t wm_queue_create(const wm_comm_t *comm, const double *cost, int64_t n, wm_queue_t **out,
                            wm_error_t *err) {
  void *memory;
  bool served = wm_threads_served(comm) && comm->size > 1;
  *out = NULL;
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_queue_t), "work queue", err);
  status = wm_agree(comm->world, status, err);
  if (status != WM_OK) {
    free(memory);
    return status;
  }
  wm_queue_t *q = *out = memory;
  *q = (wm_queue_t){
      .comm = comm, .served = served, .n = n, .current = NONE, .returned = NONE, .remaining = n};
  MPI_Comm_dup(comm->world, &q->channel);
  status = wm_agree(comm->world, allocate(q, cost, err), err);
  if (status != WM_OK) {
    wm_queue_free(q);
    *out = NULL;
  }
  return status;
}

void wm_queue_free(wm_queue_t *queue) {
  if (queue == NULL)
    return;
  if (queue->started)
    stop_server(queue);
  MPI_Comm_free(&queue->channel);
  free(queue->cost);
  free(queue->state);
  free(queue->owner);
  free(queue->load);
  free(queue);
}

/* --- rounds -------------------------------------------------------------------------------------
 */

/* Longest processing time first: each item that is left goes to the rank with the least to do.
 * Equal on all ranks. */
static void deal(wm_queue_t *q) {
  double *load = q->load;
  q->remaining = 0;
  memset(load, 0, (size_t)q->comm->size * sizeof *load);
  for (int64_t i = 0; i < q->n; i++) {
    if (q->state[i] == DONE)
      continue;
    int least = 0;
    for (int r = 1; r < q->comm->size; r++)
      if (load[r] < load[least])
        least = r;
    q->owner[i] = least;
    load[least] += q->cost[i];
    q->remaining += least == q->comm->rank;
  }
}

void wm_queue_open(wm_queue_t *q, double seconds) {
  assert(q->current == NONE && q->returned == NONE);
  if (q->started)
    pthread_mutex_lock(&q->lock);
  q->deadline = seconds > 0 ? wm_seconds() + seconds : 0;
  q->cursor = 0;
  q->given = false;
  if (!q->served)
    deal(q);
  if (q->started) {
    q->waiting = q->comm->size - 1;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
  }
}

static int64_t take_here(wm_queue_t *q, const request_t *request) {
  if (q->started)
    pthread_mutex_lock(&q->lock);
  settle(q, request);
  int64_t item = take(q);
  if (q->started)
    pthread_mutex_unlock(&q->lock);
  return item;
}

/* From rank 0. Yields at first, then naps: the core may be wanted by rank 0 itself. */
static int64_t fetch(wm_queue_t *q, const request_t *request) {
  int64_t item;
  MPI_Request pending[2];
  MPI_Status ends[2]; /* MPICH warns of MPI_STATUSES_IGNORE */
  int tries = 0, done = 0;
  MPI_Irecv(&item, 1, MPI_INT64_T, 0, TAG_REPLY, q->channel, &pending[0]);
  MPI_Isend(request, sizeof *request, MPI_BYTE, 0, TAG_REQUEST, q->channel, &pending[1]);
  while (MPI_Testall(2, pending, &done, ends), !done)
    if (++tries < FETCH_TRIES)
      sched_yield();
    else
      wm_sleep(FETCH_NAP);
  return item;
}

bool wm_queue_next(wm_queue_t *q, int64_t *item) {
  const request_t request = {q->current, q->returned, wm_stop_code()};
  double start = wm_seconds();
  q->current = q->served && q->comm->rank != 0 ? fetch(q, &request) : take_here(q, &request);
  q->returned = NONE;
  double seconds = wm_seconds() - start;
  q->fetches++;
  q->fetch_sum += seconds;
  if (seconds > q->fetch_longest)
    q->fetch_longest = seconds;
  wm_pulse();
  *item = q->current;
  return q->current != NONE;
}

void wm_queue_return(wm_queue_t *q, int64_t item) {
  assert(item == q->current);
  q->returned = item;
  q->current = NONE;
}

/* How the round ended, as far as this rank knows: all of it on rank 0 of a served queue. */
static wm_round_t own_reason(wm_queue_t *q) {
  if (q->served && q->comm->rank != 0)
    return WM_ROUND_DONE;
  if (q->started) {
    pthread_mutex_lock(&q->lock);
    while (q->waiting > 0)
      pthread_cond_wait(&q->changed, &q->lock);
    pthread_mutex_unlock(&q->lock);
  }
  if (q->remaining == 0)
    return WM_ROUND_DONE;
  return wm_stop_requested() ? WM_ROUND_STOPPED : WM_ROUND_TIME;
}

/* After a round of a dealt out queue every rank learns what the others have done. Collective. */
static void share_done(wm_queue_t *q) {
  double done = 0;
  MPI_Allreduce(MPI_IN_PLACE, q->state, (int)q->n, MPI_UINT8_T, MPI_MAX, q->channel);
  for (int64_t i = 0; i < q->n; i++)
    if (q->state[i] == DONE)
      done += q->cost[i];
  q->done = done;
}

wm_round_t wm_queue_close(wm_queue_t *q) {
  int own[2] = {(int)own_reason(q), wm_stop_code()}, all[2], done = 0;
  MPI_Request pending;
  MPI_Iallreduce(own, all, 2, MPI_INT, MPI_MAX, q->channel, &pending);
  while (MPI_Test(&pending, &done, MPI_STATUS_IGNORE), !done)
    wm_sleep(CLOSE_NAP); /* others may be busy for long */
  wm_stop_adopt(all[1]);
  if (!q->served)
    share_done(q);
  return (wm_round_t)all[0];
}

double wm_queue_done(const wm_queue_t *queue) {
  return queue->done;
}

void wm_queue_latency(const wm_queue_t *queue, int64_t *fetches, double *mean, double *longest) {
  *fetches = queue->fetches;
  *mean = queue->fetches > 0 ? queue->fetch_sum / (double)queue->fetches : 0;
  *longest = queue->fetch_longest;
}
