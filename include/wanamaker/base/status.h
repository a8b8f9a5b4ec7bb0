/* Status codes and error objects.
 *
 * Every function that can fail returns a wm_status_t and, on failure, leaves a message in the
 * caller's wm_error_t. Statuses equal the exit codes of the program, so that only main() turns
 * one into the other. Nothing below main() exits or aborts.
 *
 * Three kinds of failure are told apart: a bug is an assert(); bad input is WM_INPUT or WM_USAGE,
 * with a message that names the file, the place and what was expected; trouble with the
 * environment (memory, disk, MPI) is WM_ENVIRONMENT.
 */
#ifndef WANAMAKER_BASE_STATUS_H
#define WANAMAKER_BASE_STATUS_H

#include <stdarg.h>

typedef enum {
  WM_OK = 0,
  WM_USAGE = 2,       /* command line or configuration */
  WM_INPUT = 3,       /* unreadable, malformed or inconsistent input file */
  WM_ENVIRONMENT = 4, /* I/O, memory, MPI */
  WM_NUMERICAL = 5,   /* a factorisation failed, a result is not finite */
  WM_STALLED = 74,    /* no progress (watchdog) */
  WM_STOPPED = 75     /* stopped on request; resubmit to continue */
} wm_status_t;

enum { WM_MESSAGE_SIZE = 5120 }; /* room for the longest path */

/* Caller-owned; initialise with {0}. `message` is always terminated and is cut, never overrun. */
typedef struct {
  wm_status_t status;
  char message[WM_MESSAGE_SIZE];
} wm_error_t;

/* Records `status` and the formatted message in `err` and returns `status`. Not collective.
 * `err` may not be NULL; an older message is replaced. */
wm_status_t wm_fail(wm_error_t *err, wm_status_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the message that `err` already holds. Returns err->status. */
wm_status_t wm_error_prefix(wm_error_t *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A short English name of `status`, never NULL. */
const char *wm_status_name(wm_status_t status);

/* Leaves for the function's `cleanup` label when `call` fails, its result kept in `status`. */
#define WM_TRY(call)                                                                               \
  do {                                                                                             \
    status = (call);                                                                               \
    if (status != WM_OK)                                                                           \
      goto cleanup;                                                                                \
  } while (0)

#endif
