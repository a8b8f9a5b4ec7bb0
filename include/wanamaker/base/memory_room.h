/* How much memory this process's node has left, so that what is too large is refused with figures
 * before it is begun: the system grants memory that it does not have, and later kills. */
#ifndef WANAMAKER_BASE_MEMORY_ROOM_H
#define WANAMAKER_BASE_MEMORY_ROOM_H

#include "wanamaker/base/status.h"

#include <stdint.h>

enum { WM_ROOM_SOURCE = 512 };

typedef struct {
  int64_t bytes;               /* -1: the system does not tell */
  char source[WM_ROOM_SOURCE]; /* who says so, for messages */
} wm_memory_room_t;

/* Not collective. The least of MemAvailable + SwapFree (/proc/meminfo) and of what the memory limit
 * of each control group around this process leaves (version 1 or 2; cached files and names, which
 * the system takes back, count as left). What can't be read does not limit. `root` stands for "/"
 * in front of every path; NULL: the system's own. */
wm_memory_room_t wm_memory_room(const char *root);

/* Not collective; to be asked on one rank of a node for all that the node's ranks are about to
 * take. WM_ENVIRONMENT with both figures when `bytes` exceed what is left; WM_OK where that is
 * unknown. */
wm_status_t wm_memory_room_check(int64_t bytes, const char *what, wm_error_t *err);

#endif
