/* Communicators, agreement on failure, reductions beyond a piece, partitions. */
#include "test_par_common.h"

#include "wanamaker/base/mem.h"

#include <limits.h>

static void test_communicators(void **state) {
  (void)state;
  int rank, size, unequal, leaders = comm->leaders != MPI_COMM_NULL;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  CHECK(comm->rank == rank && comm->size == size);
  MPI_Comm_compare(MPI_COMM_WORLD, comm->world, &unequal);
  CHECK(unequal == MPI_CONGRUENT); /* a duplicate: the caller's messages can't get in */
  MPI_Comm_rank(comm->node, &rank);
  MPI_Comm_size(comm->node, &size);
  CHECK(comm->node_rank == rank && comm->node_size == size);
  CHECK((comm->node_rank == 0) == (leaders != 0));
  MPI_Allreduce(MPI_IN_PLACE, &leaders, 1, MPI_INT, MPI_SUM, comm->world);
  CHECK(leaders == comm->node_count);
  CHECK(comm->node_index >= 0 && comm->node_index < comm->node_count);
}

static void test_part_of_world(void **state) {
  (void)state;
  wm_error_t err = {0};
  MPI_Comm half;
  wm_comm_t *own;
  MPI_Comm_split(comm->world, comm->rank % 2, -comm->rank, &half);
  CHECK(wm_comm_create(half, &own, &err) == WM_OK);
  MPI_Comm_free(&half); /* `own` has its duplicate */
  CHECK(own->size == (comm->size + 1 - comm->rank % 2) / 2);
  int64_t ranks = own->rank;
  wm_sum_i64(own->world, &ranks, 1);
  CHECK(ranks == own->size * (own->size - 1) / 2);
  wm_comm_free(own);
  wm_comm_free(NULL);
}

static void test_agree_on_success(void **state) {
  (void)state;
  wm_error_t err = {.status = WM_OK, .message = "kept"};
  CHECK(wm_agree(comm->world, WM_OK, &err) == WM_OK);
  CHECK(strcmp(err.message, "kept") == 0);
}

/* Every set of failing ranks; each fails in its own way. */
static void test_agree_on_failure(void **state) {
  (void)state;
  static const wm_status_t kinds[] = {WM_INPUT, WM_ENVIRONMENT, WM_USAGE, WM_NUMERICAL};
  for (unsigned failing = 1; failing < 1u << comm->size; failing++) {
    int lowest = __builtin_ctz(failing);
    wm_error_t err = {0};
    wm_status_t status = WM_OK;
    char expected[64];
    if ((failing >> comm->rank & 1) != 0)
      status = wm_fail(&err, kinds[comm->rank % 4], "rank %d of set %u", comm->rank, failing);
    snprintf(expected, sizeof expected, "rank %d of set %u", lowest, failing);
    CHECK(wm_agree(comm->world, status, &err) == kinds[lowest % 4]);
    CHECK(err.status == kinds[lowest % 4]);
    CHECK(strcmp(err.message, expected) == 0);
  }
}

static void test_agree_takes_the_status_it_is_given(void **state) {
  (void)state;
  wm_error_t err = {.status = WM_OK, .message = "by hand"};
  wm_status_t status = comm->rank == comm->size - 1 ? WM_STOPPED : WM_OK;
  CHECK(wm_agree(comm->world, status, &err) == WM_STOPPED);
  CHECK(err.status == WM_STOPPED && strcmp(err.message, "by hand") == 0);
}

static void test_small_sums(void **state) {
  (void)state;
  int64_t n = comm->size;
  double x[5];
  int64_t k[5];
  for (int i = 0; i < 5; i++) {
    x[i] = (i + 1) * (comm->rank + 0.5);
    k[i] = ((int64_t)1 << 40) * i + comm->rank;
  }
  wm_sum_f64(comm->world, x, 4);
  wm_sum_i64(comm->world, k, 4);
  for (int i = 0; i < 4; i++) {
    CHECK(x[i] == (i + 1) * 0.5 * (double)(n * n));
    CHECK(k[i] == ((int64_t)1 << 40) * i * n + n * (n - 1) / 2);
  }
  CHECK(x[4] == 5 * (comm->rank + 0.5)); /* not behind the end */
  CHECK(k[4] == ((int64_t)1 << 42) + comm->rank);
  wm_sum_f64(comm->world, x, 0);
  wm_sum_f64(comm->world, NULL, 0);
  wm_broadcast(comm->world, 0, NULL, 0);
}

/* Pieces are of 256 MiB: 300 MiB need two. At two ranks only, for the memory's sake. */
static void test_large_buffers(void **state) {
  (void)state;
  const int64_t n = (300 << 20) / 8 + 3;
  wm_error_t err = {0};
  void *memory;
  if (comm->size != 2)
    return;
  CHECK(wm_alloc(&memory, n + 1, 8, "test", &err) == WM_OK);
  double *x = memory;
  for (int64_t i = 0; i <= n; i++)
    x[i] = (double)(i + comm->rank);
  wm_sum_f64(comm->world, x, n);
  for (int64_t i = 0; i < n; i++)
    CHECK(x[i] == (double)(2 * i + 1));
  CHECK(x[n] == (double)(n + comm->rank));
  int64_t *k = memory;
  for (int64_t i = 0; i <= n; i++)
    k[i] = i - comm->rank;
  wm_sum_i64(comm->world, k, n);
  for (int64_t i = 0; i < n; i++)
    CHECK(k[i] == 2 * i - 1);
  CHECK(k[n] == n - comm->rank);
  for (int64_t i = 0; i <= n; i++)
    k[i] = comm->rank == 1 ? 7 * i : -1;
  wm_broadcast(comm->world, 1, k, 8 * n - 1); /* a length that is no multiple of anything */
  for (int64_t i = 0; i < n - 1; i++)
    CHECK(k[i] == 7 * i);
  CHECK(comm->rank == 1 || k[n] == -1);
  free(memory);
}

static void test_broadcast(void **state) {
  (void)state;
  for (int root = 0; root < comm->size; root++) {
    char text[9] = "........";
    if (comm->rank == root)
      memcpy(text, "from", 4);
    wm_broadcast(comm->world, root, text, 4);
    CHECK(strcmp(text, "from....") == 0);
  }
}

static void test_all_equal(void **state) {
  (void)state;
  char text[8] = "equal";
  CHECK(wm_all_equal(comm->world, text, 8));
  CHECK(wm_all_equal(comm->world, NULL, 0));
  for (int odd = 0; odd < comm->size; odd++) {
    char other[8] = "equal";
    if (comm->rank == odd)
      other[7] ^= 1;
    CHECK(wm_all_equal(comm->world, other, 8) == (comm->size == 1));
    CHECK(wm_all_equal(comm->world, other, 7));
    CHECK(wm_all_equal(comm->world, text, comm->rank == odd ? 7 : 8) == (comm->size == 1));
  }
}

static void test_partition(void **state) {
  (void)state;
  static const int64_t counts[] = {0, 1, 2, 3, 7, 12, 1000, ((int64_t)1 << 40) + 5};
  for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
    for (int64_t parts = 1; parts <= 9; parts++) {
      int64_t next = 0, before = INT64_MAX, longest = 0, shortest = INT64_MAX;
      for (int64_t i = 0; i < parts; i++) {
        int64_t first, length;
        wm_partition(counts[c], parts, i, &first, &length);
        CHECK(first == next && length >= 0 && length <= before);
        next = first + length;
        before = length;
        longest = length > longest ? length : longest;
        shortest = length < shortest ? length : shortest;
      }
      CHECK(next == counts[c] && longest - shortest <= 1);
    }
  /* one item a rank, summed up again */
  int64_t first, length;
  wm_partition(10 * comm->size + 1, comm->size, comm->rank, &first, &length);
  wm_sum_i64(comm->world, &length, 1);
  CHECK(length == 10 * comm->size + 1);
}

static void test_to_int(void **state) {
  (void)state;
  wm_error_t err = {0};
  int value = 5;
  CHECK(wm_to_int(INT_MAX, "n", &value, &err) == WM_OK && value == INT_MAX);
  CHECK(wm_to_int(INT_MIN, "n", &value, &err) == WM_OK && value == INT_MIN);
  CHECK(wm_to_int((int64_t)INT_MAX + 1, "rows", &value, &err) == WM_ENVIRONMENT);
  CHECK(strcmp(err.message, "rows: 2147483648 does not fit a 32-bit integer") == 0);
  CHECK(wm_to_int((int64_t)INT_MIN - 1, "rows", &value, &err) == WM_ENVIRONMENT);
  CHECK(value == INT_MIN); /* as it was */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_communicators),
      cmocka_unit_test(test_part_of_world),
      cmocka_unit_test(test_agree_on_success),
      cmocka_unit_test(test_agree_on_failure),
      cmocka_unit_test(test_agree_takes_the_status_it_is_given),
      cmocka_unit_test(test_small_sums),
      cmocka_unit_test(test_large_buffers),
      cmocka_unit_test(test_broadcast),
      cmocka_unit_test(test_all_equal),
      cmocka_unit_test(test_partition),
      cmocka_unit_test(test_to_int),
  };
  return run_mpi_tests(tests, sizeof tests / sizeof tests[0]);
}
