#include "wanamaker/par/watchdog.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/timer.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TAG_REPORT = 1, TAG_ANSWER = 2, NAME_SIZE = 32 };
enum { HELD, WATCHING, STOPPING, CANCELLED }; /* what the thread is told */

static const double LONGEST_NAP = 0.25, LAST_NAP = 2e-3; /* seconds */
enum { NAPS_PER_LIMIT = 40, ALONE_FACTOR = 10, ABORT_SECONDS = 5 };

/* What a rank tells rank 0, which answers with nothing but the fact. */
typedef struct {
  uint64_t pulse;
  double allowed; /* seconds */
  int64_t last;   /* no report follows */
  char host[NAME_SIZE], phase[NAME_SIZE];
} report_t;

/* What rank 0 knows of a rank. */
typedef struct {
  report_t report;
  double heard; /* when the report came */
  bool gone;    /* it was the last one */
} peer_t;

struct wm_watchdog {
  MPI_Comm channel;
  int rank, size;
  bool reports;  /* MPI serves this thread too */
  double limit;  /* seconds */
  double nap;    /* between looks */
  double now;    /* seconds that this thread has been watching */
  double before; /* wm_seconds() at the last look */
  pthread_t thread;
  bool started;
  pthread_mutex_t lock; /* of `order`; `changed` wakes the thread */
  pthread_cond_t changed;
  int order;

  peer_t *peers; /* [size] on rank 0 */
  int left;      /* ranks but 0 that still report */
  double moved;  /* when any rank's pulse moved last */
  int mover;     /* the rank */
};

static _Atomic(const char *) current_phase = "start";

void wm_watchdog_phase(const char *phase) {
  atomic_store(&current_phase, phase);
}

static report_t own_report(bool last) {
  report_t r = {.last = last};
  wm_pulse_read(&r.pulse, &r.allowed);
  if (gethostname(r.host, sizeof r.host) != 0)
    r.host[0] = '\0';
  r.host[sizeof r.host - 1] = '\0';
  snprintf(r.phase, sizeof r.phase, "%s", atomic_load(&current_phase));
  return r;
}

static void leave(int signal_number) {
  (void)signal_number;
  _exit(WM_STALLED);
}

/* Ends the run. MPI_Abort reaches all ranks, those too that nobody else watches; where this thread
 * may not call MPI, the exit of one rank makes the launcher end the others. On a node that is cut
 * off MPI_Abort waits for ever, and so do words to a pipe that nobody empties (which may be what
 * the main thread waits for, and it holds the stream then): the alarm ends the process. */
static void end_run(const wm_watchdog_t *w, const char *message) {
  signal(SIGALRM, leave);
  alarm(ABORT_SECONDS);
  fprintf(stderr, "wanamaker: %s: %s; see watchdog.seconds\n", wm_status_name(WM_STALLED), message);
  if (w->reports || w->size == 1)
    MPI_Abort(w->channel, WM_STALLED);
  leave(SIGALRM);
}

static int order_of(wm_watchdog_t *w) {
  pthread_mutex_lock(&w->lock);
  int order = w->order;
  pthread_mutex_unlock(&w->lock);
  return order;
}

static void give_order(wm_watchdog_t *w, int order) {
  pthread_mutex_lock(&w->lock);
  w->order = order;
  pthread_cond_broadcast(&w->changed);
  pthread_mutex_unlock(&w->lock);
}

/* Until another order comes, but no longer than w->nap. */
static void wait_for_order(wm_watchdog_t *w) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += (long)(w->nap * 1e9);
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  pthread_mutex_lock(&w->lock);
  if (w->order == WATCHING)
    pthread_cond_timedwait(&w->changed, &w->lock, &until);
  pthread_mutex_unlock(&w->lock);
}

/* Sleeps, and counts the time. A process that was stopped or a machine that slept has not been
 * watching: of a long gap little counts, so that the run may go on after it. */
static void nap(wm_watchdog_t *w) {
  if (order_of(w) == WATCHING)
    wait_for_order(w);
  else
    wm_sleep(LAST_NAP);
  double now = wm_seconds(), passed = now - w->before;
  w->now += passed < 4 * w->nap ? passed : 4 * w->nap;
  w->before = now;
}

/* --- rank 0 -------------------------------------------------------------------------------------
 */

static void note(wm_watchdog_t *w, int rank, const report_t *report) {
  peer_t *p = &w->peers[rank];
  if (report->pulse != p->report.pulse) {
    w->moved = w->now;
    w->mover = rank;
  }
  p->report = *report;
  p->heard = w->now;
  if (report->last && rank != 0) {
    p->gone = true;
    w->left--;
  }
}

static void judge(const wm_watchdog_t *w) {
  char text[256];
  double allowed = 0;
  for (int r = 0; r < w->size; r++) {
    const peer_t *p = &w->peers[r];
    if (p->gone)
      continue;
    if (p->report.allowed > allowed)
      allowed = p->report.allowed;
    if (w->now - p->heard > w->limit) {
      snprintf(text, sizeof text, "rank %d (%s, in \"%s\") has not been heard of for %.0f s", r,
               p->report.host, p->report.phase, w->now - p->heard);
      end_run(w, text);
    }
  }
  if (w->now - w->moved <= w->limit + allowed)
    return;
  const report_t *last = &w->peers[w->mover].report;
  snprintf(text, sizeof text,
           "nothing has moved for %.0f s; last to move was rank %d (%s, in \"%s\")",
           w->now - w->moved, w->mover, last->host, last->phase);
  end_run(w, text);
}

/* Takes in what has come. `pending` is the posted receive into `report`. A rank sends no second
 * report before it has its answer, so that an answer's send is over when the next one is due. */
static void receive_reports(wm_watchdog_t *w, MPI_Request *pending, report_t *report) {
  static const char answer = 1;
  for (;;) {
    int came;
    MPI_Status from;
    MPI_Test(pending, &came, &from);
    if (!came)
      return;
    note(w, from.MPI_SOURCE, report);
    MPI_Request sent;
    MPI_Isend(&answer, 1, MPI_CHAR, from.MPI_SOURCE, TAG_ANSWER, w->channel, &sent);
    MPI_Request_free(&sent);
    MPI_Irecv(report, sizeof *report, MPI_BYTE, MPI_ANY_SOURCE, TAG_REPORT, w->channel, pending);
  }
}

static void watch_all(wm_watchdog_t *w) {
  report_t report;
  MPI_Request pending;
  MPI_Irecv(&report, sizeof report, MPI_BYTE, MPI_ANY_SOURCE, TAG_REPORT, w->channel, &pending);
  while (order_of(w) == WATCHING || w->left > 0) {
    receive_reports(w, &pending, &report);
    report_t own = own_report(false);
    note(w, 0, &own);
    judge(w);
    nap(w);
  }
  MPI_Cancel(&pending);
  MPI_Wait(&pending, MPI_STATUS_IGNORE);
}

/* --- the others ---------------------------------------------------------------------------------
 */

/* One report and its answer. Returns without it only by ending the run. */
static void report_once(wm_watchdog_t *w, bool last) {
  report_t report = own_report(last);
  char answer, text[256];
  int done;
  double start = w->now;
  MPI_Request pending[2];
  MPI_Status ends[2]; /* MPICH warns of MPI_STATUSES_IGNORE */
  MPI_Irecv(&answer, 1, MPI_CHAR, 0, TAG_ANSWER, w->channel, &pending[0]);
  MPI_Isend(&report, sizeof report, MPI_BYTE, 0, TAG_REPORT, w->channel, &pending[1]);
  while (MPI_Testall(2, pending, &done, ends), !done) {
    nap(w);
    if (w->now - start <= w->limit)
      continue;
    snprintf(text, sizeof text, "rank 0 has not answered for %.0f s (rank %d, %s, in \"%s\")",
             w->now - start, w->rank, report.host, report.phase);
    end_run(w, text);
  }
}

static void report_to_rank_0(wm_watchdog_t *w) {
  while (order_of(w) == WATCHING) {
    report_once(w, false);
    nap(w);
  }
  report_once(w, true);
}

/* By this rank's pulse alone. One that waits for others has none: with others its time is longer.
 */
static void watch_oneself(wm_watchdog_t *w) {
  const double limit = w->size == 1 ? w->limit : w->limit * ALONE_FACTOR;
  uint64_t before = wm_pulse_count();
  for (double moved = w->now; order_of(w) == WATCHING; nap(w)) {
    uint64_t pulse;
    double allowed;
    wm_pulse_read(&pulse, &allowed);
    if (pulse != before)
      moved = w->now;
    before = pulse;
    if (w->now - moved > limit + allowed) {
      char text[256];
      report_t own = own_report(false);
      snprintf(text, sizeof text, "rank %d (%s, in \"%s\") has not moved for %.0f s", w->rank,
               own.host, own.phase, w->now - moved);
      end_run(w, text);
    }
  }
}

/* --- life ---------------------------------------------------------------------------------------
 */

static void *run(void *context) {
  wm_watchdog_t *w = context;
  pthread_mutex_lock(&w->lock);
  while (w->order == HELD)
    pthread_cond_wait(&w->changed, &w->lock);
  bool cancelled = w->order == CANCELLED;
  pthread_mutex_unlock(&w->lock);
  if (cancelled)
    return NULL;
  w->before = wm_seconds();
  if (!w->reports)
    watch_oneself(w);
  else if (w->rank == 0)
    watch_all(w);
  else
    report_to_rank_0(w);
  return NULL;
}

static void init_order(wm_watchdog_t *w) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&w->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  pthread_mutex_init(&w->lock, NULL);
  w->order = HELD;
}

static wm_status_t start_thread(wm_watchdog_t *w, wm_error_t *err) {
  void *memory;
  wm_status_t status =
      wm_alloc(&memory, w->rank == 0 ? w->size : 0, sizeof(peer_t), "watchdog", err);
  if (status != WM_OK)
    return status;
  w->peers = memory;
  int code = pthread_create(&w->thread, NULL, run, w);
  w->started = code == 0;
  if (code != 0)
    return wm_fail(err, WM_ENVIRONMENT, "cannot start the watchdog's thread: %s", strerror(code));
  return WM_OK;
}

static void stop(wm_watchdog_t *w, int order) {
  give_order(w, order);
  if (w->started)
    pthread_join(w->thread, NULL);
  MPI_Comm_free(&w->channel); /* collective: the last answers have come */
  pthread_cond_destroy(&w->changed);
  pthread_mutex_destroy(&w->lock);
  free(w->peers);
  free(w);
}

wm_status_t wm_watchdog_start(const wm_comm_t *comm, double seconds, wm_watchdog_t **out,
                              wm_error_t *err) {
  void *memory;
  *out = NULL;
  if (!(seconds > 0))
    return WM_OK;
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_watchdog_t), "watchdog", err);
  status = wm_agree(comm->world, status, err);
  if (status != WM_OK) {
    free(memory);
    return status;
  }
  wm_watchdog_t *w = memory;
  *w = (wm_watchdog_t){.rank = comm->rank,
                       .size = comm->size,
                       .reports = wm_threads_served(comm) && comm->size > 1,
                       .limit = seconds,
                       .left = comm->size - 1};
  w->nap = seconds / NAPS_PER_LIMIT < LONGEST_NAP ? seconds / NAPS_PER_LIMIT : LONGEST_NAP;
  MPI_Comm_dup(comm->world, &w->channel);
  init_order(w);
  status = wm_agree(comm->world, start_thread(w, err), err);
  if (status != WM_OK) {
    stop(w, CANCELLED);
    return status;
  }
  give_order(w, WATCHING);
  *out = w;
  return WM_OK;
}

void wm_watchdog_stop(wm_watchdog_t *watchdog) {
  if (watchdog != NULL)
    stop(watchdog, STOPPING);
}
