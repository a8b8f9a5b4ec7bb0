/* Memory of the node against known amounts, private and shared; and a barrier that sleeps. */
#include "test_par_common.h"

#include "wanamaker/base/memory_usage.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/par/idle.h"
#include "wanamaker/par/node_memory.h"
#include "wanamaker/par/shared.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static wm_error_t err;
enum { PRIVATE = 24 << 20, SHARED = 96 << 20 };

/* Another amount on each rank of the node, and their sum. */
static size_t private_bytes(void) {
  return (size_t)PRIVATE * (size_t)(1 + comm->node_rank);
}

static double all_private(void) {
  return (double)PRIVATE * comm->node_size * (comm->node_size + 1) / 2;
}

static void pause_for(double seconds) {
  struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&t, NULL);
}

/* Not malloc(): an allocator may keep what is given back. */
static void *take(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

/* A single rank's "shared" memory is malloc()'s, and the address sanitizer keeps that for a while.
 */
static bool is_given_back(void) {
#ifdef __SANITIZE_ADDRESS__
  return comm->size > 1;
#else
  return true;
#endif
}

static void test_known_amounts(void **state) {
  (void)state;
  wm_node_memory_t *m;
  CHECK(wm_node_memory_start(comm, &m, &err) == WM_OK);
  int64_t before = wm_node_memory_now(m);
  CHECK(before > 0);
  char *volatile own = take(private_bytes()); /* volatile: a compiler may leave out unread memory */
  wm_shared_t shared;
  CHECK(own != NULL && wm_shared_create(comm, SHARED, "the test", &shared, &err) == WM_OK);
  memset(own, 1 + comm->rank, private_bytes());
  for (int64_t i = 0; i < SHARED; i += 4096) /* all ranks map all pages: counted once */
    CHECK(((volatile char *)shared.data)[i] == 0);
  MPI_Barrier(comm->world);
  double expected = all_private() + SHARED;
  double grown = (double)(wm_node_memory_now(m) - before);
  CHECK(grown > 0.95 * expected && grown < 1.05 * expected);
  CHECK(own[PRIVATE / 2] == 1 + comm->rank);
  MPI_Barrier(comm->world);
  munmap(own, private_bytes());
  wm_shared_destroy(&shared);
  MPI_Barrier(comm->world); /* all have let go */
  int64_t after = wm_node_memory_now(m), peak = wm_node_memory_peak(m);
  CHECK(!is_given_back() || (double)(after - before) < 0.1 * expected);
  CHECK((double)(peak - before) > 0.95 * expected);
  CHECK(wm_node_memory_recent(m) == peak);
  CHECK(!is_given_back() || (double)(wm_node_memory_recent(m) - before) < 0.1 * expected);
  CHECK(wm_node_memory_peak(m) == peak);
  wm_node_memory_stop(m);
}

/* What nobody asks for in time is seen by the thread. */
static void test_thread_looks(void **state) {
  (void)state;
  wm_node_memory_t *m;
  CHECK(wm_node_memory_start(comm, &m, &err) == WM_OK);
  int64_t before = wm_node_memory_now(m);
  char *volatile own = take(private_bytes()); /* volatile: a compiler may leave out unread memory */
  CHECK(own != NULL);
  memset(own, 1, private_bytes());
  pause_for(3);
  CHECK(own[1] == 1);
  MPI_Barrier(comm->world);
  munmap(own, private_bytes());
  CHECK((double)(wm_node_memory_peak(m) - before) > 0.95 * all_private());
  wm_node_memory_stop(m);
  wm_node_memory_stop(NULL);
}

static void test_unknown(void **state) {
  (void)state;
  char text[32];
  CHECK(wm_memory_usage(-1) == -1);
  CHECK(wm_memory_usage(getpid()) > 0);
  wm_memory_text(-1, text, sizeof text);
  CHECK(strcmp(text, "unknown") == 0);
  wm_memory_text((int64_t)7 << 29, text, sizeof text);
  CHECK(strcmp(text, "3.50 GiB") == 0);
}

static double cpu_seconds(void) {
  struct rusage use;
  getrusage(RUSAGE_SELF, &use);
  return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/* Nobody leaves before the last one comes, and those that wait hardly use the processor. */
static void test_idle_barrier(void **state) {
  (void)state;
  wm_idle_barrier(comm->world);
  double start = wm_seconds(), cpu = cpu_seconds();
  if (comm->rank == comm->size - 1)
    pause_for(0.6);
  wm_idle_barrier(comm->world);
  CHECK(wm_seconds() - start > 0.5);
  CHECK(cpu_seconds() - cpu < 0.3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_known_amounts),
      cmocka_unit_test(test_thread_looks),
      cmocka_unit_test(test_unknown),
      cmocka_unit_test(test_idle_barrier),
  };
  return run_mpi_tests(tests, sizeof tests / sizeof tests[0]);
}
