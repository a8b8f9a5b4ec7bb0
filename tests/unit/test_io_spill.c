/* Spills: what comes back, from memory or through the file, and when it is not what was written. */
#include "test_io_common.h"

#include "../../src/io/spill.h"

#include <sys/stat.h>

enum { BLOCK = 64, MOST = 1000 };

static char dir[PATH], beside[2 * PATH];
static unsigned char data[MOST];

static int names_in(const char *path) {
  char command[2 * PATH];
  int n = -1;
  snprintf(command, sizeof command, "ls -A '%s' | wc -l", path);
  FILE *f = popen(command, "r");
  assert_non_null(f);
  assert_int_equal(fscanf(f, "%d", &n), 1);
  pclose(f);
  return n;
}

/* Appends data[0, bytes) in steps and finishes. */
static void fill(wm_spill_t *s, int64_t bytes, int64_t step) {
  wm_error_t err = {0};
  assert_int_equal(wm_spill_init(s, beside, "numbers", BLOCK, &err), WM_OK);
  for (int64_t at = 0; at < bytes; at += step)
    assert_int_equal(wm_spill_append(s, data + at, bytes - at < step ? bytes - at : step, &err),
                     WM_OK);
  assert_int_equal(wm_spill_finish(s, &err), WM_OK);
}

static void test_round_trip(void **state) {
  (void)state;
  static const int64_t sizes[] = {0,         1,         BLOCK - 1,     BLOCK,
                                  BLOCK + 1, 2 * BLOCK, 7 * BLOCK + 5, MOST};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    for (int64_t step = 1; step <= MOST; step = step * 3 + 1) {
      wm_spill_t s;
      wm_error_t err = {0};
      int64_t at = 0;
      fill(&s, sizes[i], step);
      assert_int_equal(wm_spill_blocks(&s), (sizes[i] + BLOCK - 1) / BLOCK);
      assert_int_equal(s.fd >= 0, sizes[i] > BLOCK); /* a single block makes no file */
      assert_int_equal(names_in(dir), 0);
      for (int64_t k = 0; k < wm_spill_blocks(&s); k++) {
        void *block;
        int64_t bytes;
        assert_int_equal(wm_spill_block(&s, k, &block, &bytes, &err), WM_OK);
        assert_true(bytes == BLOCK || at + bytes == sizes[i]);
        assert_memory_equal(block, data + at, (size_t)bytes);
        at += bytes;
      }
      assert_int_equal(at, sizes[i]);
      wm_spill_destroy(&s);
    }
}

static void test_changed_data(void **state) {
  (void)state;
  wm_spill_t s;
  wm_error_t err = {0};
  void *block;
  int64_t bytes;
  fill(&s, MOST, 10);
  unsigned char wrong = data[3 * BLOCK + 2] ^ 1;
  assert_int_equal(pwrite(s.fd, &wrong, 1, 3 * BLOCK + 2), 1);
  assert_int_equal(wm_spill_block(&s, 2, &block, &bytes, &err), WM_OK);
  assert_int_equal(wm_spill_block(&s, 3, &block, &bytes, &err), WM_ENVIRONMENT);
  assert_message(err.message, "temporary file of numbers");
  assert_message(err.message, "not what was written");
  assert_int_equal(ftruncate(s.fd, 4 * BLOCK), 0);
  assert_int_equal(wm_spill_block(&s, 4, &block, &bytes, &err), WM_ENVIRONMENT);
  assert_message(err.message, "it is too short");
  wm_spill_destroy(&s);
  wm_spill_destroy(&s); /* harmless */
}

static void test_no_directory(void **state) {
  (void)state;
  char none[2 * PATH];
  wm_spill_t s;
  wm_error_t err = {0};
  assert_int_equal(wm_spill_init(&s, join(none, dir, "none/result"), "numbers", BLOCK, &err),
                   WM_OK);
  assert_int_equal(wm_spill_append(&s, data, BLOCK, &err), WM_OK);
  assert_int_equal(wm_spill_append(&s, data, 1, &err), WM_ENVIRONMENT);
  assert_message(err.message,
                 "none/result: cannot make the temporary file of numbers in its directory");
  assert_message(err.message, "No such file or directory");
  wm_spill_destroy(&s);
}

static int setup(void **state) {
  (void)state;
  make_directory(dir);
  join(beside, dir, "result");
  for (int i = 0; i < MOST; i++)
    data[i] = (unsigned char)(i * 37 + i / 256);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  remove_directory(dir);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_changed_data),
      cmocka_unit_test(test_no_directory),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
