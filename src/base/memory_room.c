/* Sources: proc(5) for meminfo; the kernel's admin guide for cgroup-v1/memory and cgroup-v2. A
 * container often sees its own group as the root of /sys/fs/cgroup, while /proc/self/cgroup names
 * its path on the host: every part of the path is tried, from the whole of it to nothing. */
#include "wanamaker/base/memory_room.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LINE = 4096 };

static FILE *open_below(const char *root, const char *path) {
  char full[LINE];
  if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full)
    return NULL;
  return fopen(full, "r");
}

/* Lowers the room to `bytes`. */
static void lower(wm_memory_room_t *room, int64_t bytes, const char *source) {
  if (bytes < 0)
    bytes = 0;
  if (room->bytes >= 0 && room->bytes <= bytes)
    return;
  room->bytes = bytes;
  snprintf(room->source, sizeof room->source, "%s", source);
}

static void ask_system(const char *root, wm_memory_room_t *room) {
  FILE *f = open_below(root, "/proc/meminfo");
  if (f == NULL)
    return;
  char line[LINE];
  long long available = -1, swap = 0; /* KiB */
  while (fgets(line, sizeof line, f) != NULL) {
    sscanf(line, "MemAvailable: %lld kB", &available);
    sscanf(line, "SwapFree: %lld kB", &swap);
  }
  fclose(f);
  if (available >= 0)
    lower(room, (int64_t)(available + swap) * 1024, "MemAvailable and SwapFree of /proc/meminfo");
}

/* --- control groups -----------------------------------------------------------------------------
 */

/* The two versions' names for the same things. */
typedef struct {
  const char *mount, *limit, *usage;
  const char *given_back[3]; /* lines of memory.stat: what the system takes back */
} version_t;

static const version_t version_1 = {"/sys/fs/cgroup/memory",
                                    "memory.limit_in_bytes",
                                    "memory.usage_in_bytes",
                                    {"total_inactive_file %lld", "total_active_file %lld"}};
static const version_t version_2 = {
    "/sys/fs/cgroup",
    "memory.max",
    "memory.current",
    {"inactive_file %lld", "active_file %lld", "slab_reclaimable %lld"}};

/* -1 for what is not there or is no number ("max"). */
static int64_t read_number(const char *root, const char *group, const char *name) {
  char path[LINE];
  long long number = -1;
  if (snprintf(path, sizeof path, "%s/%s", group, name) >= (int)sizeof path)
    return -1;
  FILE *f = open_below(root, path);
  if (f == NULL)
    return -1;
  if (fscanf(f, "%lld", &number) != 1)
    number = -1;
  fclose(f);
  return number;
}

static int64_t reclaimable(const char *root, const char *group, const version_t *v) {
  char path[LINE], line[LINE];
  long long bytes, sum = 0;
  if (snprintf(path, sizeof path, "%s/memory.stat", group) >= (int)sizeof path)
    return 0;
  FILE *f = open_below(root, path);
  if (f == NULL)
    return 0;
  while (fgets(line, sizeof line, f) != NULL)
    for (int i = 0; i < 3 && v->given_back[i] != NULL; i++)
      if (sscanf(line, v->given_back[i], &bytes) == 1)
        sum += bytes;
  fclose(f);
  return sum;
}

static void ask_group(const char *root, const char *group, const version_t *v,
                      wm_memory_room_t *room) {
  const int64_t none = INT64_C(1) << 60; /* version 1 writes "no limit" as a number */
  char source[WM_ROOM_SOURCE];
  int64_t limit = read_number(root, group, v->limit), usage = read_number(root, group, v->usage);
  if (limit < 0 || limit >= none || usage < 0)
    return;
  snprintf(source, sizeof source, "the limit in %.400s/%s", group, v->limit);
  lower(room, limit - usage + reclaimable(root, group, v), source);
}

/* `path` and all that contain it. */
static void ask_groups(const char *root, const char *path, const version_t *v,
                       wm_memory_room_t *room) {
  char group[LINE];
  size_t mount = strlen(v->mount);
  if (snprintf(group, sizeof group, "%s%s", v->mount, path) >= (int)sizeof group)
    return;
  for (;;) {
    ask_group(root, group, v, room);
    char *slash = strrchr(group, '/');
    if (slash == NULL || slash < group + mount)
      return;
    *slash = '\0';
  }
}

/* Is `name` one of the comma-separated `list`? */
static bool lists(const char *list, const char *name) {
  const size_t n = strlen(name);
  for (const char *p = list; p != NULL; p = strchr(p, ',')) {
    p += *p == ',';
    if (strncmp(p, name, n) == 0 && (p[n] == ',' || p[n] == '\0'))
      return true;
  }
  return false;
}

wm_memory_room_t wm_memory_room(const char *root) {
  wm_memory_room_t room = {.bytes = -1, .source = "nothing that can be read"};
  root = root != NULL ? root : "";
  ask_system(root, &room);
  FILE *f = open_below(root, "/proc/self/cgroup");
  if (f == NULL)
    return room;
  char line[LINE];
  while (fgets(line, sizeof line, f) != NULL) { /* "4:memory:/job/step", version 2 "0::/job/step" */
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (path == NULL)
      continue;
    *path++ = '\0';
    controllers++;
    if (controllers[0] == '\0')
      ask_groups(root, path, &version_2, &room);
    else if (lists(controllers, "memory"))
      ask_groups(root, path, &version_1, &room);
  }
  fclose(f);
  return room;
}

static void amount_text(int64_t bytes, char *text, size_t size) {
  bool small = bytes < INT64_C(1) << 30;
  snprintf(text, size, "%.2f %s", (double)bytes / (small ? 0x1p20 : 0x1p30), small ? "MiB" : "GiB");
}

wm_status_t wm_memory_room_check(int64_t bytes, const char *what, wm_error_t *err) {
  wm_memory_room_t room = wm_memory_room(NULL);
  char wanted[32], left[32];
  if (room.bytes < 0 || bytes <= room.bytes)
    return WM_OK;
  amount_text(bytes, wanted, sizeof wanted);
  amount_text(room.bytes, left, sizeof left);
  return wm_fail(err, WM_ENVIRONMENT, "%s: this node has %s of memory left (%s), %s is needed",
                 what, left, room.source, wanted);
}
