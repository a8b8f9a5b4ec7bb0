/* Node-shared arrays: one memory, zeroed, aligned, seen by all after a sync; and the refusal of
 * what does not fit, on every rank. */
#include "test_par_common.h"

#include "wanamaker/par/shared.h"

#include <sys/statvfs.h>

static wm_error_t err;

static wm_shared_t make(int64_t bytes) {
  wm_shared_t s;
  CHECK(wm_shared_create(comm, bytes, "the test", &s, &err) == WM_OK);
  CHECK(s.data != NULL && s.bytes == bytes);
  CHECK((uintptr_t)s.data % 64 == 0);
  return s;
}

static void test_zeroed(void **state) {
  (void)state;
  for (int64_t bytes = 0; bytes < 3000000; bytes = 3 * bytes + 1) {
    wm_shared_t s = make(bytes);
    const unsigned char *data = s.data;
    for (int64_t i = 0; i < bytes; i++)
      CHECK(data[i] == 0);
    wm_shared_sync(&s); /* all have looked */
    if (comm->node_rank == 0)
      memset(s.data, 0xff, (size_t)bytes); /* so that the next array finds used memory */
    wm_shared_destroy(&s);
    CHECK(s.data == NULL);
    wm_shared_destroy(&s); /* harmless */
  }
  wm_shared_t zero = {0};
  wm_shared_destroy(&zero);
}

/* In each round every rank writes its share, in another place each time, and sees all others'. */
static void test_writes_are_seen(void **state) {
  (void)state;
  enum { N = 5003, ROUNDS = 200 };
  wm_shared_t s = make(N * (int64_t)sizeof(int64_t));
  volatile int64_t *data = s.data;
  for (int64_t round = 0; round < ROUNDS; round++) {
    int64_t first, length;
    wm_partition(N, comm->node_size, (comm->node_rank + round) % comm->node_size, &first, &length);
    for (int64_t i = first; i < first + length; i++)
      data[i] = i * ROUNDS + round;
    wm_shared_sync(&s);
    for (int64_t i = 0; i < N; i++)
      CHECK(data[i] == i * ROUNDS + round);
    wm_shared_sync(&s);
  }
  wm_shared_destroy(&s);
}

static void test_several_at_once(void **state) {
  (void)state;
  wm_shared_t s[20];
  for (int k = 0; k < 20; k++)
    s[k] = make(100 + k);
  for (int k = 0; k < 20; k++)
    if (comm->node_rank == k % comm->node_size)
      memset(s[k].data, k, (size_t)s[k].bytes);
  for (int k = 0; k < 20; k++)
    wm_shared_sync(&s[k]);
  for (int k = 0; k < 20; k++)
    for (int64_t i = 0; i < s[k].bytes; i++)
      CHECK(((char *)s[k].data)[i] == k);
  for (int k = 0; k < 20; k++)
    wm_shared_destroy(&s[k]);
}

/* More than there is: all ranks of the node hear of it, none hangs, and the next one works. */
static void test_too_large(void **state) {
  (void)state;
  struct statvfs fs;
  wm_shared_t s;
  int64_t room = (int64_t)1 << 50;
  if (comm->node_size > 1 && statvfs("/dev/shm", &fs) == 0)
    room = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
  const int64_t sizes[] = {room + ((int64_t)1 << 30), INT64_MAX / 2, INT64_MAX - 4096};
  for (int i = comm->node_size > 1 ? 0 : 1; i < 3; i++) {
    err = (wm_error_t){0};
    CHECK(wm_shared_create(comm, sizes[i], "the weights", &s, &err) == WM_ENVIRONMENT);
    CHECK(err.status == WM_ENVIRONMENT && strstr(err.message, "the weights") != NULL);
    CHECK(comm->node_size == 1 || strstr(err.message, "/dev/shm has room for") != NULL);
    CHECK(s.data == NULL);
    wm_shared_destroy(&s);
  }
  s = make(1000);
  wm_shared_destroy(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_zeroed),
      cmocka_unit_test(test_writes_are_seen),
      cmocka_unit_test(test_several_at_once),
      cmocka_unit_test(test_too_large),
  };
  return run_mpi_tests(tests, sizeof tests / sizeof tests[0]);
}
