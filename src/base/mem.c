#include "wanamaker/base/mem.h"

#include "wanamaker/base/control.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { ALIGNMENT = 64, ZERO_PIECE = 64 << 20 /* between pulses */ };

void wm_zero(void *memory, size_t bytes) {
  for (size_t i = 0; i < bytes; i += ZERO_PIECE) {
    memset((char *)memory + i, 0, bytes - i < ZERO_PIECE ? bytes - i : ZERO_PIECE);
    if (bytes > ZERO_PIECE)
      wm_pulse();
  }
}

wm_status_t wm_alloc(void **out, int64_t count, size_t size, const char *what, wm_error_t *err) {
  assert(count >= 0 && size > 0);
  *out = NULL;
  size_t bytes;
  if (__builtin_mul_overflow((size_t)count, size, &bytes) || bytes > PTRDIFF_MAX - ALIGNMENT)
    return wm_fail(err, WM_ENVIRONMENT, "%s: %lld elements of %zu bytes exceed the address space",
                   what, (long long)count, size);
  size_t padded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (padded == 0)
    padded = ALIGNMENT;
  void *memory = aligned_alloc(ALIGNMENT, padded);
  if (memory == NULL)
    return wm_fail(err, WM_ENVIRONMENT, "%s: cannot allocate %zu bytes", what, padded);
  wm_zero(memory, padded);
  *out = memory;
  return WM_OK;
}

wm_status_t wm_grow(void **buffer, int64_t *capacity, int64_t old_count, int64_t new_count,
                    size_t size, const char *what, wm_error_t *err) {
  if (new_count <= *capacity)
    return WM_OK;
  int64_t wanted = *capacity < 64 ? 64 : *capacity + *capacity / 2;
  if (wanted < new_count)
    wanted = new_count;
  void *bigger;
  wm_status_t status = wm_alloc(&bigger, wanted, size, what, err);
  if (status != WM_OK)
    return status;
  if (old_count > 0)
    memcpy(bigger, *buffer, (size_t)old_count * size);
  free(*buffer);
  *buffer = bigger;
  *capacity = wanted;
  return WM_OK;
}

char *wm_format(const char *format, ...) {
  va_list args;
  va_start(args, format);
  int length = vsnprintf(NULL, 0, format, args);
  va_end(args);
  if (length < 0)
    return NULL;
  char *text = malloc((size_t)length + 1);
  if (text == NULL)
    return NULL;
  va_start(args, format);
  vsnprintf(text, (size_t)length + 1, format, args);
  va_end(args);
  return text;
}

wm_status_t wm_strdup(char **out, const char *text, wm_error_t *err) {
  *out = strdup(text);
  if (*out == NULL)
    return wm_fail(err, WM_ENVIRONMENT, "cannot allocate %zu bytes for a string", strlen(text) + 1);
  return WM_OK;
}

int64_t wm_peak_resident_bytes(void) {
  FILE *f = fopen("/proc/self/status", "r");
  if (f == NULL)
    return 0;
  char line[256];
  long long kib = 0;
  while (fgets(line, sizeof line, f) != NULL)
    if (sscanf(line, "VmHWM: %lld kB", &kib) == 1)
      break;
  fclose(f);
  return (int64_t)kib * 1024;
}
