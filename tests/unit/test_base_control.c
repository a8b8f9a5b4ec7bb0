/* Stop requests and the pulse. Each case that asks for a stop does so in a process of its own: a
 * request can't be taken back. */
#include "wanamaker/base/control.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Wait status of a child that runs `body` and exits with what it returns. */
static int in_child(int (*body)(void)) {
  int status;
  pid_t child = fork();
  if (child == 0) {
    signal(SIGINT, SIG_DFL);
    _exit(body());
  }
  assert_true(child > 0);
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

static int asked_by(int number, const char *name) {
  wm_stop_install();
  if (wm_stop_requested() || wm_stop_code() != 0)
    return 1;
  raise(number);
  if (!wm_stop_requested() || wm_stop_code() == 0)
    return 2;
  wm_stop_request(); /* the first reason stays */
  return strcmp(wm_stop_reason(), name) == 0 ? 0 : 3;
}

static int by_term(void) {
  return asked_by(SIGTERM, "SIGTERM");
}
static int by_usr1(void) {
  return asked_by(SIGUSR1, "SIGUSR1");
}
static int by_int(void) {
  return asked_by(SIGINT, "SIGINT");
}

static int by_request(void) {
  wm_stop_request();
  return wm_stop_requested() && strcmp(wm_stop_reason(), "request") == 0 ? 0 : 1;
}

static int twice_interrupted(void) {
  wm_stop_install();
  raise(SIGINT);
  raise(SIGINT);
  return 0;
}

static int twice_terminated(void) {
  wm_stop_install();
  raise(SIGTERM);
  raise(SIGTERM);
  raise(SIGUSR1);
  return strcmp(wm_stop_reason(), "SIGTERM") == 0 ? 0 : 1;
}

static void test_requests(void **state) {
  (void)state;
  static int (*const bodies[])(void) = {by_term, by_usr1, by_int, by_request, twice_terminated};
  for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
    assert_int_equal(in_child(bodies[i]), 0);
  int status = in_child(twice_interrupted);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
  assert_false(wm_stop_requested());
}

/* A code goes from one process to another; a signal's outweighs a mere request's. */
static int code_of_a_signal(void) {
  wm_stop_install();
  raise(SIGUSR1);
  return wm_stop_code();
}

static int adopted;

static int adopt(void) {
  wm_stop_adopt(0);
  if (wm_stop_requested())
    return 1;
  wm_stop_adopt(adopted);
  return strcmp(wm_stop_reason(), "SIGUSR1") == 0 ? 0 : 2;
}

static int code_of_a_request(void) {
  wm_stop_request();
  return wm_stop_code();
}

static void test_codes(void **state) {
  (void)state;
  adopted = WEXITSTATUS(in_child(code_of_a_signal));
  assert_int_equal(in_child(adopt), 0);
  int request = WEXITSTATUS(in_child(code_of_a_request));
  assert_true(request > 0 && request < adopted);
}

/* A system call that a signal interrupts goes on. */
static int read_through_a_signal(void) {
  int ends[2];
  char c = 0;
  wm_stop_install();
  if (pipe(ends) != 0)
    return 1;
  pid_t parent = getpid();
  if (fork() == 0) {
    usleep(100000);
    kill(parent, SIGTERM);
    usleep(100000);
    _exit(write(ends[1], "x", 1) == 1 ? 0 : 1);
  }
  return read(ends[0], &c, 1) == 1 && c == 'x' && wm_stop_requested() ? 0 : 2;
}

static void test_system_calls_go_on(void **state) {
  (void)state;
  assert_int_equal(in_child(read_through_a_signal), 0);
}

static double allowed_now(void) {
  uint64_t count;
  double allowed;
  wm_pulse_read(&count, &allowed);
  assert_int_equal(count, wm_pulse_count());
  return allowed;
}

static void test_pulse(void **state) {
  (void)state;
  uint64_t before = wm_pulse_count();
  wm_pulse();
  wm_pulse();
  assert_int_equal(wm_pulse_count(), before + 2);
  assert_true(allowed_now() == 0);
  wm_pulse_allow(2.5);
  assert_true(allowed_now() == 2.5);
  assert_int_equal(wm_pulse_count(), before + 3);
  wm_pulse_allow(-1);
  assert_true(allowed_now() == 0);
  wm_pulse_allow(0);
  assert_int_equal(wm_pulse_count(), before + 5);
}

enum { ALLOWANCES = 3000 };

/* The n-th pulse brings an allowance of n seconds. */
static void allow_more(int number) {
  static int n;
  (void)number;
  if (n < ALLOWANCES)
    wm_pulse_allow(++n);
}

/* Whoever sees an allowance has seen the pulse that came with it: nobody takes the end of a long
 * step for a silence that was longer than is allowed. The timer strikes between any two
 * instructions of the reader's. */
static void test_allowance_and_pulse_together(void **state) {
  (void)state;
  const struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
  uint64_t count, before = wm_pulse_count();
  double allowed = 0;
  bool good = true;
  signal(SIGALRM, allow_more);
  assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
  while (good && allowed < ALLOWANCES) {
    wm_pulse_read(&count, &allowed);
    good = (double)(count - before) >= allowed;
  }
  setitimer(ITIMER_REAL, &never, NULL);
  assert_true(good);
  wm_pulse_allow(0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_requests),
      cmocka_unit_test(test_codes),
      cmocka_unit_test(test_system_calls_go_on),
      cmocka_unit_test(test_pulse),
      cmocka_unit_test(test_allowance_and_pulse_together),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
