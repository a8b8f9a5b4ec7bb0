/* The queue that rank 0 serves from a thread. */
#include "test_par_queue_cases.h"

#include <time.h>

static void test_slow_rank_takes_fewer(void **state) {
  (void)state;
  int64_t item, count[4] = {0};
  int slow = comm->size - 1;
  wm_queue_t *queue = create_queue(ITEMS);
  double nap = comm->rank == slow && slow > 0 ? 0.3 : 0.003; /* a busy machine's fetch takes 0.03 */
  wm_queue_open(queue, 0);
  for (; wm_queue_next(queue, &item); count[comm->rank]++)
    wm_sleep(nap);
  CHECK(wm_queue_close(queue) == WM_ROUND_DONE);
  wm_sum_i64(comm->world, count, 4);
  for (int r = 0; r < slow; r++)
    CHECK(2 * count[slow] < count[r]);
  wm_queue_free(queue);
}

static double overslept(double seconds) {
  double start = wm_seconds();
  wm_sleep(seconds);
  return wm_seconds() - start - seconds;
}

/* Rank 0 is busy for three seconds in one item; what do the others wait for theirs? One-sided
 * atomics waited for all of it. A machine that has other things to do is late with every thread: a
 * fetch takes four turns of one, and is measured against naps at the same time. */
static void test_latency_beside_a_busy_owner(void **state) {
  (void)state;
  int64_t item, fetches;
  double mean, longest, late = 0, start = wm_seconds();
  volatile double sink = 0;
  if (comm->size == 1)
    return;
  wm_queue_t *queue = create_queue(ITEMS);
  wm_queue_open(queue, 0);
  while (wm_queue_next(queue, &item))
    if (comm->rank == 0)
      while (wm_seconds() < start + 3)
        sink += 1;
    else
      late += overslept(0.01);
  CHECK(wm_queue_close(queue) == WM_ROUND_DONE);
  wm_queue_latency(queue, &fetches, &mean, &longest);
  CHECK(fetches >= 1);
  if (comm->rank != 0) {
    late /= (double)fetches;
    printf("rank %d: %lld fetches, mean %.2f ms, longest %.2f ms; naps overslept by %.2f ms\n",
           comm->rank, (long long)fetches, 1e3 * mean, 1e3 * longest, 1e3 * late);
    CHECK(mean < 0.05 + 8 * late && longest < 2);
  }
  wm_queue_free(queue);
}

/* Between polls the server sleeps in a round in which nothing moves (another rank has the only
 * item); so do the ranks that wait for the round's end. That takes some hundredths of a core, up to
 * a tenth on a machine that is busy with other work; a server that does not sleep takes all of one.
 */
static void test_waiting_costs_no_core(void **state) {
  (void)state;
  int64_t item;
  double start = wm_seconds();
  clock_t before = clock();
  wm_queue_t *queue = create_queue(1);
  wm_queue_open(queue, 0);
  if (comm->rank == 0)
    wm_sleep(0.3);
  while (wm_queue_next(queue, &item))
    wm_sleep(1);
  wm_queue_close(queue);
  double share = (double)(clock() - before) / CLOCKS_PER_SEC / (wm_seconds() - start);
  printf("rank %d: %.1f %% of a core while waiting\n", comm->rank, 100 * share);
  CHECK(share < 0.25);
  wm_queue_free(queue);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_item_once),
      cmocka_unit_test(test_round_ends_in_time),
      cmocka_unit_test(test_returned_items_come_again),
      cmocka_unit_test(test_heaviest_first),
      cmocka_unit_test(test_slow_rank_takes_fewer),
      cmocka_unit_test(test_latency_beside_a_busy_owner),
      cmocka_unit_test(test_waiting_costs_no_core),
      cmocka_unit_test(test_stop),
  };
  return run_threaded_mpi_tests(MPI_THREAD_MULTIPLE, tests, sizeof tests / sizeof tests[0]);
}
