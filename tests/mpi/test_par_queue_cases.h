/* What a queue must do, served by rank 0 or dealt out. */
#ifndef WANAMAKER_TESTS_PAR_QUEUE_CASES_H
#define WANAMAKER_TESTS_PAR_QUEUE_CASES_H

#include "test_par_common.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/par/queue.h"

#include <signal.h>

enum { ITEMS = 203 };

static const wm_rng_t rng = {17, 4};

static inline wm_queue_t *create_queue(int64_t n) {
  double cost[ITEMS];
  wm_error_t err = {0};
  wm_queue_t *queue;
  for (int64_t i = 0; i < n; i++)
    cost[i] = (double)(n - i);
  CHECK(wm_queue_create(comm, cost, n, &queue, &err) == WM_OK);
  return queue;
}

/* Rounds until all is done; `milliseconds` is an item's mean duration. Returns this rank's items.
 */
static inline int64_t finish_queue(wm_queue_t *queue, int64_t *times, double round,
                                   double milliseconds) {
  int64_t item, mine = 0;
  wm_round_t reason;
  int rounds = 0;
  do {
    CHECK(++rounds < 10 * ITEMS); /* each does something */
    wm_queue_open(queue, round);
    while (wm_queue_next(queue, &item)) {
      CHECK(item >= 0 && item < ITEMS);
      wm_sleep(2e-3 * milliseconds * wm_rng_uniform(rng, (uint64_t)(item + ITEMS * comm->rank)));
      times[item]++;
      mine++;
    }
    CHECK(item == -1);
    reason = wm_queue_close(queue);
    CHECK(reason != WM_ROUND_STOPPED && wm_all_equal(comm->world, &reason, sizeof reason));
  } while (reason == WM_ROUND_TIME);
  return mine;
}

static inline void check_once(int64_t *times, int64_t n) {
  wm_sum_i64(comm->world, times, ITEMS);
  for (int64_t i = 0; i < ITEMS; i++)
    CHECK(times[i] == (i < n));
}

static void test_every_item_once(void **state) {
  (void)state;
  static const int64_t counts[] = {0, 1, 2, 3, 7, ITEMS};
  static const double rounds[] = {0, 1e-12, 0.004, 0.02};
  for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
    for (size_t r = 0; r < sizeof rounds / sizeof rounds[0]; r++) {
      int64_t times[ITEMS] = {0}, n = counts[c];
      wm_queue_t *queue = create_queue(n);
      finish_queue(queue, times, rounds[r], 1);
      check_once(times, n);
      CHECK(comm->rank != 0 || wm_queue_done(queue) == 0.5 * (double)(n * (n + 1)));
      wm_queue_free(queue);
    }
  wm_queue_free(NULL);
}

static void test_round_ends_in_time(void **state) {
  (void)state;
  int64_t item, times[ITEMS] = {0};
  wm_queue_t *queue = create_queue(ITEMS);
  wm_queue_open(queue, 0.1);
  double start = wm_seconds();
  while (wm_queue_next(queue, &item)) {
    CHECK(wm_seconds() < start + 5);
    wm_sleep(0.02);
    times[item]++;
  }
  CHECK(wm_seconds() >= start + 0.1);
  CHECK(wm_queue_close(queue) == WM_ROUND_TIME);
  finish_queue(queue, times, 0, 0);
  check_once(times, ITEMS);
  wm_queue_free(queue);
}

/* Each rank gives back every third item that it sees for the first time; the round hands it out
 * again. */
static void test_returned_items_come_again(void **state) {
  (void)state;
  int64_t item, times[ITEMS] = {0}, returned = 0;
  bool seen[ITEMS] = {false};
  wm_queue_t *queue = create_queue(ITEMS);
  wm_queue_open(queue, 0);
  while (wm_queue_next(queue, &item)) {
    if (item % 3 == 0 && !seen[item]) {
      seen[item] = true;
      returned++;
      wm_queue_return(queue, item);
    } else {
      times[item]++;
    }
  }
  CHECK(wm_queue_close(queue) == WM_ROUND_DONE);
  check_once(times, ITEMS);
  wm_sum_i64(comm->world, &returned, 1);
  CHECK(returned >= (ITEMS + 2) / 3);
  wm_queue_free(queue);
}

static void test_heaviest_first(void **state) {
  (void)state;
  int64_t item, before = -1, first = ITEMS;
  wm_queue_t *queue = create_queue(ITEMS);
  wm_queue_open(queue, 0);
  for (; wm_queue_next(queue, &item); before = item) {
    CHECK(item > before);
    first = before < 0 ? item : first;
    wm_sleep(5e-4);
  }
  CHECK(wm_queue_close(queue) == WM_ROUND_DONE);
  int64_t lowest = first;
  MPI_Allreduce(MPI_IN_PLACE, &lowest, 1, MPI_INT64_T, MPI_MIN, comm->world);
  CHECK(lowest == 0);
  wm_queue_free(queue);
}

/* To be the last test: a request can't be taken back. The last rank gets a signal in its third item
 * and gives that one back; the others wait for that in theirs. With a server every rank hears of it
 * at its next fetch. */
static void test_stop(void **state) {
  (void)state;
  int64_t item, times[ITEMS] = {0}, begun = 0;
  bool last = comm->rank == comm->size - 1, all_told = wm_threads_served(comm), met = false;
  wm_stop_install();
  CHECK(!wm_stop_requested() && wm_stop_code() == 0);
  wm_queue_t *queue = create_queue(ITEMS);
  wm_queue_open(queue, 0);
  while (wm_queue_next(queue, &item)) {
    begun++;
    if (last && begun == 3) {
      raise(SIGUSR1);
      wm_queue_return(queue, item);
    } else {
      times[item]++;
      if (begun == 3) {
        MPI_Barrier(comm->world);
        met = true;
      }
    }
  }
  if (!met) /* the last rank, and slow ones that heard of it before their third item */
    MPI_Barrier(comm->world);
  CHECK(wm_queue_close(queue) == WM_ROUND_STOPPED);
  CHECK(!last || begun == 3);
  CHECK(wm_stop_requested() && strcmp(wm_stop_reason(), "SIGUSR1") == 0);
  wm_queue_open(queue, 0);
  CHECK(!wm_queue_next(queue, &item));
  CHECK(wm_queue_close(queue) == WM_ROUND_STOPPED);
  int64_t sum = 0;
  wm_sum_i64(comm->world, times, ITEMS);
  for (int i = 0; i < ITEMS; i++) {
    CHECK(times[i] <= 1);
    sum += times[i];
  }
  CHECK(sum < ITEMS && (!all_told || sum <= 4 * comm->size));
  wm_queue_free(queue);
}

#endif
