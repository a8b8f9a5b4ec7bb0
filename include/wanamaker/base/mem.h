/* Checked memory. Sizes are counts times element size, multiplied with an overflow check. */
#ifndef WANAMAKER_BASE_MEM_H
#define WANAMAKER_BASE_MEM_H

#include "wanamaker/base/status.h"

#include <stdint.h>
#include <stdlib.h>

/* Allocates `count` elements of `size` bytes, 64-byte aligned, zeroed. On failure returns
 * WM_ENVIRONMENT with the size and `what` in the message, and *out is NULL. count = 0 yields a
 * valid pointer. Free with free(). Not collective. */
wm_status_t wm_alloc(void **out, int64_t count, size_t size, const char *what, wm_error_t *err);

/* As wm_alloc, for arrays that grow: resizes *buffer from `old_count` to hold at least
 * `new_count` elements (contents kept, new part zeroed) and updates *capacity (elements). */
wm_status_t wm_grow(void **buffer, int64_t *capacity, int64_t old_count, int64_t new_count,
                    size_t size, const char *what, wm_error_t *err);

/* Zeroes memory that may be new: pages come at a gigabyte a second or so, so that it pulses
 * (base/control.h). */
void wm_zero(void *memory, size_t bytes);

/* Formatted string on the heap (free() it); NULL only when memory is exhausted. */
char *wm_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Copy of `text` on the heap, with a status. */
wm_status_t wm_strdup(char **out, const char *text, wm_error_t *err);

/* Peak resident set of this process in bytes (VmHWM), 0 if the system does not tell. */
int64_t wm_peak_resident_bytes(void);

#endif
