#include "wanamaker/base/status.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Both format into a buffer of their own first: an argument may point into err->message. */

wm_status_t wm_fail(wm_error_t *err, wm_status_t status, const char *format, ...) {
  assert(err != NULL && status != WM_OK);
  char message[WM_MESSAGE_SIZE] = "";
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  err->status = status;
  memcpy(err->message, message, sizeof message);
  return status;
}

wm_status_t wm_error_prefix(wm_error_t *err, const char *format, ...) {
  char message[WM_MESSAGE_SIZE] = "";
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  size_t used = strlen(message);
  for (const char *p = ": "; *p != '\0' && used + 1 < sizeof message; p++)
    message[used++] = *p;
  size_t old = strlen(err->message), room = sizeof message - 1 - used;
  memcpy(message + used, err->message, old < room ? old : room);
  memcpy(err->message, message, sizeof message);
  return err->status;
}

const char *wm_status_name(wm_status_t status) {
  switch (status) {
  case WM_OK:
    return "ok";
  case WM_USAGE:
    return "usage or configuration error";
  case WM_INPUT:
    return "bad input";
  case WM_ENVIRONMENT:
    return "environment error";
  case WM_NUMERICAL:
    return "numerical failure";
  case WM_STALLED:
    return "no progress";
  case WM_STOPPED:
    return "stopped on request";
  }
  return "unknown status";
}
