/* The queue under an MPI that serves one thread only: items are dealt out by cost. */
#include "test_par_queue_cases.h"

static void test_dealt_by_cost(void **state) {
  (void)state;
  int64_t item, cost = 0;
  wm_queue_t *queue = create_queue(ITEMS);
  wm_queue_open(queue, 0);
  while (wm_queue_next(queue, &item))
    cost += ITEMS - item;
  CHECK(wm_queue_close(queue) == WM_ROUND_DONE);
  int64_t bounds[2] = {cost, -cost};
  MPI_Allreduce(MPI_IN_PLACE, bounds, 2, MPI_INT64_T, MPI_MAX, comm->world);
  CHECK(bounds[0] + bounds[1] <= ITEMS); /* no further apart than the heaviest item */
  wm_queue_free(queue);
}

static void test_stop(void **state) {
  (void)state;
  stop_in_third_item(false);
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
