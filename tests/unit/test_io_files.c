/* Files and directories. */
#include "test_io_common.h"

#include "wanamaker/io/files.h"

#include <sys/stat.h>

static char dir[PATH];

static int setup(void **state) {
  (void)state;
  make_directory(dir);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  remove_directory(dir);
  return 0;
}

static void test_map(void **state) {
  (void)state;
  char path[2 * PATH];
  wm_error_t err = {0};
  wm_map_t map;
  write_file(dir, "a", "hello", 5);
  assert_int_equal(wm_map_open(join(path, dir, "a"), &map, &err), WM_OK);
  assert_int_equal(map.bytes, 5);
  assert_memory_equal(map.data, "hello", 5);
  wm_map_close(&map);
  wm_map_close(&map); /* harmless */

  write_file(dir, "empty", "", 0);
  assert_int_equal(wm_map_open(join(path, dir, "empty"), &map, &err), WM_OK);
  assert_null(map.data);
  assert_int_equal(map.bytes, 0);

  assert_int_equal(wm_map_open(join(path, dir, "none"), &map, &err), WM_INPUT);
  assert_message(err.message, "none: cannot open: No such file");
  assert_int_equal(wm_map_open(dir, &map, &err), WM_INPUT);
  assert_message(err.message, "is a directory");
  assert_int_equal(mkfifo(join(path, dir, "pipe"), 0600), 0);
  assert_int_equal(wm_map_open(path, &map, &err), WM_INPUT); /* and does not wait for a writer */
  assert_message(err.message, "not a regular file");
}

static void test_text(void **state) {
  (void)state;
  char path[2 * PATH], *text;
  wm_error_t err = {0};
  write_file(dir, "text", "12345", 5);
  assert_int_equal(wm_read_text(join(path, dir, "text"), 5, &text, &err), WM_OK);
  assert_string_equal(text, "12345");
  free(text);
  assert_int_equal(wm_read_text(path, 4, &text, &err), WM_INPUT);
  assert_message(err.message, "holds 5 bytes, at most 4");
  assert_null(text);
}

static void test_directory(void **state) {
  (void)state;
  char path[2 * PATH];
  struct stat st;
  wm_error_t err = {0};
  assert_int_equal(wm_directory_ready(join(path, dir, "x/y//z/"), &err), WM_OK);
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(wm_directory_ready(path, &err), WM_OK); /* again */
  assert_int_equal(rmdir(path), 0);                        /* the probe is gone */
  write_file(dir, "file", "", 0);
  assert_int_equal(wm_directory_ready(join(path, dir, "file/sub"), &err), WM_ENVIRONMENT);
  assert_message(err.message, "/file: cannot make the directory: Not a directory");
  assert_int_equal(wm_directory_ready("/proc/none", &err), WM_ENVIRONMENT);
  assert_int_equal(wm_directory_ready("/proc", &err), WM_ENVIRONMENT);
  assert_message(err.message, "cannot make a file");
  assert_int_equal(wm_directory_ready("", &err), WM_ENVIRONMENT);
}

static void test_publish(void **state) {
  (void)state;
  char from[2 * PATH], to[2 * PATH], *text;
  wm_error_t err = {0};
  write_file(dir, "new", "new", 3);
  write_file(dir, "old", "old", 3);
  assert_int_equal(wm_publish(join(from, dir, "new"), join(to, dir, "old"), &err), WM_OK);
  assert_int_equal(wm_read_text(to, 10, &text, &err), WM_OK);
  assert_string_equal(text, "new");
  free(text);
  assert_false(wm_file_exists(from));
  assert_true(wm_file_exists(to));
  assert_int_equal(wm_publish(from, to, &err), WM_ENVIRONMENT); /* there is no such file */
  assert_int_equal(wm_publish(to, join(from, dir, "none/x"), &err), WM_ENVIRONMENT);
  assert_true(wm_file_exists(to));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_map),
      cmocka_unit_test(test_text),
      cmocka_unit_test(test_directory),
      cmocka_unit_test(test_publish),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
