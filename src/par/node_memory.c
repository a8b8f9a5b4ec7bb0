#include "wanamaker/par/node_memory.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/base/memory_usage.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define LEAST_PAUSE 0.05 /* seconds between two looks */
#define COST_LIMIT 0.02  /* part of a core that looking may take */

struct wm_node_memory {
  const wm_comm_t *comm;
  int64_t *pids; /* [node_size], on the node's rank 0 */
  pthread_t watcher;
  bool watching; /* the thread runs */
  pthread_mutex_t lock;
  pthread_cond_t wake;
  /* under the lock: */
  bool stopping;
  int64_t peak, recent; /* -1: unknown */
};

/* Sum over the node's ranks; -1 if one of them is unknown. */
static int64_t node_usage(const wm_node_memory_t *m) {
  int64_t sum = 0;
  for (int r = 0; r < m->comm->node_size; r++) {
    int64_t bytes = wm_memory_usage(m->pids[r]);
    if (bytes < 0)
      return -1;
    sum += bytes;
  }
  return sum;
}

/* Takes a look; returns what it saw. Only on the node's rank 0. */
static int64_t look(wm_node_memory_t *m) {
  int64_t bytes = node_usage(m);
  pthread_mutex_lock(&m->lock);
  if (bytes > m->peak)
    m->peak = bytes;
  if (bytes > m->recent)
    m->recent = bytes;
  pthread_mutex_unlock(&m->lock);
  return bytes;
}

static struct timespec in_seconds(double seconds) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  int64_t nanoseconds = t.tv_nsec + (int64_t)(seconds * 1e9);
  t.tv_sec += (time_t)(nanoseconds / 1000000000);
  t.tv_nsec = (long)(nanoseconds % 1000000000);
  return t;
}

/* What looking costs; on a busy machine it may last much longer. */
static double processor_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *watch(void *argument) {
  wm_node_memory_t *m = argument;
  bool stopping = false;
  while (!stopping) {
    double start = processor_seconds();
    look(m);
    double pause = (processor_seconds() - start) / COST_LIMIT;
    struct timespec until = in_seconds(pause > LEAST_PAUSE ? pause : LEAST_PAUSE);
    pthread_mutex_lock(&m->lock);
    while (!m->stopping && pthread_cond_timedwait(&m->wake, &m->lock, &until) == 0) {
    }
    stopping = m->stopping;
    pthread_mutex_unlock(&m->lock);
  }
  return NULL;
}

/* Without the thread what is asked for is still looked at. Signals are the main thread's. */
static void start_watcher(wm_node_memory_t *m) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  m->watching = pthread_create(&m->watcher, NULL, watch, m) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

wm_status_t wm_node_memory_start(const wm_comm_t *comm, wm_node_memory_t **out, wm_error_t *err) {
  void *memory = NULL, *pids = NULL;
  *out = NULL;
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_node_memory_t), "watch of memory", err);
  if (status == WM_OK)
    status = wm_alloc(&pids, comm->node_size, sizeof(int64_t), "watch of memory", err);
  status = wm_agree(comm->world, status, err);
  if (status != WM_OK) {
    free(memory);
    free(pids);
    return status;
  }
  wm_node_memory_t *m = memory;
  m->comm = comm;
  m->pids = pids;
  m->peak = m->recent = -1;
  pthread_mutex_init(&m->lock, NULL);
  pthread_condattr_t attributes; /* a clock that is set must not stop the watch */
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&m->wake, &attributes);
  pthread_condattr_destroy(&attributes);
  int64_t own = getpid();
  MPI_Gather(&own, 1, MPI_INT64_T, m->pids, 1, MPI_INT64_T, 0, comm->node);
  if (comm->node_rank == 0)
    start_watcher(m);
  *out = m;
  return WM_OK;
}

void wm_node_memory_stop(wm_node_memory_t *m) {
  if (m == NULL)
    return;
  pthread_mutex_lock(&m->lock);
  m->stopping = true;
  pthread_cond_signal(&m->wake);
  pthread_mutex_unlock(&m->lock);
  if (m->watching)
    pthread_join(m->watcher, NULL);
  pthread_cond_destroy(&m->wake);
  pthread_mutex_destroy(&m->lock);
  free(m->pids);
  free(m);
}

/* The most of all nodes; -1 if one is unknown. `bytes` counts on the nodes' rank 0. */
static int64_t most(const wm_comm_t *comm, int64_t bytes) {
  int64_t bounds[2] = {INT64_MIN, INT64_MIN}; /* maxima of bytes and of -bytes */
  if (comm->node_rank == 0) {
    bounds[0] = bytes;
    bounds[1] = -bytes;
  }
  MPI_Allreduce(MPI_IN_PLACE, bounds, 2, MPI_INT64_T, MPI_MAX, comm->world);
  return -bounds[1] < 0 ? -1 : bounds[0];
}

int64_t wm_node_memory_now(wm_node_memory_t *m) {
  return most(m->comm, m->comm->node_rank == 0 ? look(m) : 0);
}

int64_t wm_node_memory_peak(wm_node_memory_t *m) {
  int64_t peak = 0;
  if (m->comm->node_rank == 0) {
    look(m);
    pthread_mutex_lock(&m->lock);
    peak = m->peak;
    pthread_mutex_unlock(&m->lock);
  }
  return most(m->comm, peak);
}

int64_t wm_node_memory_recent(wm_node_memory_t *m) {
  int64_t recent = 0;
  if (m->comm->node_rank == 0) {
    int64_t bytes = look(m);
    pthread_mutex_lock(&m->lock);
    recent = m->recent;
    m->recent = bytes;
    pthread_mutex_unlock(&m->lock);
  }
  return most(m->comm, recent);
}
