#include "wanamaker/base/control.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

/* What asked to stop: 0 nobody, WITHOUT_SIGNAL, or WITHOUT_SIGNAL + the signal's number. */
enum { WITHOUT_SIGNAL = 1 };

static atomic_int stop_code;
static atomic_uint_fast64_t pulse_count;
static _Atomic double allowance;

static void on_signal(int number) {
  wm_stop_adopt(WITHOUT_SIGNAL + number);
}

/* A stack for the handler. oneDNN's products keep what they need below the stack pointer, beyond
 * what a signal leaves alone: a handler that ran on their stack would overwrite it, and the
 * product's numbers or the heap with it. The kernel hands a process's signals to its first thread,
 * which is the one that installs the handlers. */
static void move_handler(void) {
  enum { SIZE = 1 << 16 }; /* the registers of a CPU with AMX take 11 KiB */
  static char memory[SIZE];
  const stack_t stack = {.ss_sp = memory, .ss_size = SIZE};
  sigaltstack(&stack, NULL);
}

void wm_stop_install(void) {
  static const int numbers[] = {SIGTERM, SIGUSR1, SIGINT};
  move_handler();
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
    if (numbers[i] == SIGINT)
      action.sa_flags |= (int)SA_RESETHAND;
    sigemptyset(&action.sa_mask);
    sigaction(numbers[i], &action, NULL);
  }
}

void wm_stop_request(void) {
  wm_stop_adopt(WITHOUT_SIGNAL);
}

int wm_stop_code(void) {
  return atomic_load_explicit(&stop_code, memory_order_relaxed);
}

void wm_stop_adopt(int code) {
  int nobody = 0;
  atomic_compare_exchange_strong(&stop_code, &nobody, code);
}

bool wm_stop_requested(void) {
  return wm_stop_code() != 0;
}

const char *wm_stop_reason(void) {
  switch (wm_stop_code() - WITHOUT_SIGNAL) {
  case SIGTERM:
    return "SIGTERM";
  case SIGUSR1:
    return "SIGUSR1";
  case SIGINT:
    return "SIGINT";
  default:
    return "request";
  }
}

void wm_pulse(void) {
  atomic_fetch_add_explicit(&pulse_count, 1, memory_order_relaxed);
}

uint64_t wm_pulse_count(void) {
  return atomic_load_explicit(&pulse_count, memory_order_relaxed);
}

void wm_pulse_allow(double seconds) {
  wm_pulse();
  atomic_store_explicit(&allowance, seconds > 0 ? seconds : 0, memory_order_release);
}

/* In this order: the allowance of now with the pulse of before would look like a long silence. */
void wm_pulse_read(uint64_t *count, double *allowed) {
  *allowed = atomic_load_explicit(&allowance, memory_order_acquire);
  *count = wm_pulse_count();
}
