#include "wanamaker/base/status.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

wm_status_t wm_fail(wm_error_t *err, wm_status_t status, const char *format, ...) {
  assert(err != NULL && status != WM_OK);
  va_list args;
  va_start(args, format);
  err->status = status;
  vsnprintf(err->message, sizeof err->message, format, args);
  va_end(args);
  return status;
}

wm_status_t wm_error_prefix(wm_error_t *err, const char *format, ...) {
  char old[WM_MESSAGE_SIZE];
  memcpy(old, err->message, sizeof old);
  va_list args;
  va_start(args, format);
  int used = vsnprintf(err->message, sizeof err->message, format, args);
  va_end(args);
  if (used >= 0 && (size_t)used < sizeof err->message)
    snprintf(err->message + used, sizeof err->message - (size_t)used, ": %s", old);
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
