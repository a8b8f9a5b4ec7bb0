/* The queue under an MPI that serves one thread only: items are dealt out by cost. */
#include "test_par_queue_cases.h"

static void test_dealt_by_cost(void **state) {
  (void)state;
  enum { HEAVY = 20 };
  double cost[ITEMS], mine = 0;
  int64_t item, n = 1 + HEAVY * (comm->size - 1);
  wm_error_t err = {0};
  wm_queue_t *queue;
  for (int64_t i = 0; i < n; i++)
    cost[i] = i == 0 ? HEAVY : 1;
  CHECK(wm_queue_create(comm, cost, n, &queue, &err) == WM_OK);
  wm_queue_open(queue, 0);
  while (wm_queue_next(queue, &item))
    mine += cost[item];
  CHECK(wm_queue_close(queue) == WM_ROUND_DONE);
  CHECK(mine == HEAVY);
  wm_queue_free(queue);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_item_once),
      cmocka_unit_test(test_round_ends_in_time),
      cmocka_unit_test(test_returned_items_come_again),
      cmocka_unit_test(test_heaviest_first),
      cmocka_unit_test(test_dealt_by_cost),
      cmocka_unit_test(test_stop),
  };
  return run_threaded_mpi_tests(MPI_THREAD_FUNNELED, tests, sizeof tests / sizeof tests[0]);
}
