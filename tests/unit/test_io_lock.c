/* One run at a time in a directory. */
#include "test_io_scratch.h"

#include "wanamaker/io/lock.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>

static void test_taken_and_released(void **state) {
  (void)state;
  wm_error_t err = {0};
  wm_lock_t first, second;
  const char *reason;
  char holder[64];
  assert_int_equal(wm_lock_take(dir, &first, &reason, &err), WM_OK);
  assert_null(reason);
  assert_int_equal(wm_lock_take(dir, &second, &reason, &err), WM_ENVIRONMENT);
  assert_message(err.message, "/.lock: another run is writing to this directory");
  snprintf(holder, sizeof holder, "process %ld on ", (long)getpid());
  assert_message(err.message, holder);
  wm_lock_release(&second); /* nothing was taken */
  assert_int_equal(wm_lock_take(dir, &second, &reason, &err), WM_ENVIRONMENT);
  wm_lock_release(&first);
  assert_int_equal(wm_lock_take(dir, &second, &reason, &err), WM_OK);
  wm_lock_release(&second);
  wm_lock_release(&second); /* harmless */
}

static void test_dies_with_its_process(void **state) {
  (void)state;
  wm_error_t err = {0};
  wm_lock_t lock;
  const char *reason;
  int ready[2];
  char byte;
  assert_int_equal(pipe(ready), 0);
  pid_t child = fork();
  if (child == 0) {
    alarm(20); /* not to outlive a test that fails */
    bool good = wm_lock_take(dir, &lock, &reason, &err) == WM_OK && write(ready[1], "x", 1) == 1;
    while (good)
      pause();
    _exit(1);
  }
  assert_int_equal(read(ready[0], &byte, 1), 1);
  assert_int_equal(wm_lock_take(dir, &lock, &reason, &err), WM_ENVIRONMENT);
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, NULL, 0), child);
  assert_int_equal(wm_lock_take(dir, &lock, &reason, &err), WM_OK);
  wm_lock_release(&lock);
}

static void test_no_directory(void **state) {
  (void)state;
  wm_error_t err = {0};
  wm_lock_t lock;
  const char *reason;
  char path[2 * PATH];
  assert_int_equal(wm_lock_take(join(path, dir, "none"), &lock, &reason, &err), WM_ENVIRONMENT);
  assert_message(err.message, "none/.lock: cannot open: No such file");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_taken_and_released, setup, teardown),
      cmocka_unit_test_setup_teardown(test_dies_with_its_process, setup, teardown),
      cmocka_unit_test_setup_teardown(test_no_directory, setup, teardown)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
