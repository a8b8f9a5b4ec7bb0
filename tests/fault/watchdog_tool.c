/* A run for watchdog.py to disturb.
 *
 *   watchdog_tool LIMIT CASE [single]
 *
 *   steps  the ranks step together, in collective calls, for twenty limits
 *   queue  the ranks work through a queue for twenty limits
 *   slow   the last rank works with pulses for three limits, the others wait for it
 *   allow  the last rank works without pulses for three limits, which it has announced
 *   quiet  the last rank works without pulses for twenty limits, the others wait for it
 *
 * Each rank says its process id first. "single": MPI serves one thread only.
 */
#include "wanamaker/base/control.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/par/queue.h"
#include "wanamaker/par/watchdog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double STEP = 0.02; /* seconds */

static void work(double seconds, bool pulses) {
  for (double end = wm_seconds() + seconds; wm_seconds() < end; wm_sleep(STEP))
    if (pulses)
      wm_pulse();
}

static void step_together(const wm_comm_t *comm, double seconds) {
  int64_t go_on = 1;
  for (double end = wm_seconds() + seconds; go_on > 0;) {
    work(STEP, true);
    go_on = comm->rank == 0 && wm_seconds() < end;
    wm_sum_i64(comm->world, &go_on, 1);
  }
}

static wm_status_t work_through_queue(const wm_comm_t *comm, double seconds, wm_error_t *err) {
  enum { ITEMS = 100 };
  double cost[ITEMS];
  int64_t item;
  wm_queue_t *queue;
  for (int i = 0; i < ITEMS; i++)
    cost[i] = 1;
  wm_status_t status = wm_queue_create(comm, cost, ITEMS, &queue, err);
  if (status != WM_OK)
    return status;
  wm_queue_open(queue, 0);
  while (wm_queue_next(queue, &item))
    work(seconds * comm->size / ITEMS, true);
  wm_queue_close(queue);
  wm_queue_free(queue);
  return WM_OK;
}

static wm_status_t run_case(const wm_comm_t *comm, const char *name, double limit,
                            wm_error_t *err) {
  bool last = comm->rank == comm->size - 1;
  wm_watchdog_phase(name);
  if (strcmp(name, "steps") == 0)
    step_together(comm, 20 * limit);
  else if (strcmp(name, "queue") == 0)
    return work_through_queue(comm, 20 * limit, err);
  else if (strcmp(name, "slow") == 0)
    work(last ? 3 * limit : 0, true);
  else if (strcmp(name, "quiet") == 0)
    work(last ? 20 * limit : 0, false);
  else if (strcmp(name, "allow") == 0 && last) {
    wm_pulse_allow(4 * limit);
    work(3 * limit, false);
    wm_pulse_allow(0);
  }
  return WM_OK;
}

int main(int argc, char **argv) {
  if (argc < 3)
    return WM_USAGE;
  int provided;
  wm_comm_t *comm;
  wm_watchdog_t *watchdog = NULL;
  wm_error_t err = {0};
  double limit = strtod(argv[1], NULL);
  MPI_Init_thread(&argc, &argv, argc > 3 ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, &provided);
  wm_status_t status = wm_comm_create(MPI_COMM_WORLD, &comm, &err);
  if (status == WM_OK)
    status = wm_watchdog_start(comm, limit, &watchdog, &err);
  if (status == WM_OK) {
    printf("%d\n", (int)getpid());
    fflush(stdout);
    status = run_case(comm, argv[2], limit, &err);
    MPI_Barrier(comm->world);
    wm_watchdog_stop(watchdog);
    wm_comm_free(comm);
  }
  MPI_Finalize();
  return (int)status;
}
