/* A page of a mapped file that can't be had (the file was shortened, its disk or server failed)
 * arrives as SIGBUS at whatever touched it. The handler finds the file by the address, says so and
 * ends the process, by calls that are safe in a handler; the launcher ends the other ranks. Its
 * table is process-wide because a handler can be handed no argument. */
#include "map_guard.h"

#include "wanamaker/base/status.h"
#include "wanamaker/io/files.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum { MAPS = 512 };

/* Free when data is 0, being filled when it is BUSY. */
typedef struct {
  _Atomic(uintptr_t) data;
  _Atomic(uintptr_t) end;
  _Atomic(const char *) path;
} entry_t;

static const uintptr_t BUSY = UINTPTR_MAX;
static entry_t entries[MAPS];
static struct sigaction before; /* what SIGBUS did */

void wm_map_guard_add(const void *data, int64_t bytes, const char *path) {
  for (int i = 0; i < MAPS; i++) {
    uintptr_t none = 0;
    if (!atomic_compare_exchange_strong(&entries[i].data, &none, BUSY))
      continue;
    atomic_store(&entries[i].end, (uintptr_t)data + (uintptr_t)bytes);
    atomic_store(&entries[i].path, path);
    atomic_store(&entries[i].data, (uintptr_t)data);
    return;
  }
}

void wm_map_guard_remove(const void *data) {
  for (int i = 0; i < MAPS; i++)
    if (atomic_load(&entries[i].data) == (uintptr_t)data) {
      atomic_store(&entries[i].data, 0);
      return;
    }
}

static const char *file_at(uintptr_t address) {
  for (int i = 0; i < MAPS; i++) {
    uintptr_t data = atomic_load(&entries[i].data);
    if (data != 0 && data != BUSY && data <= address && address < atomic_load(&entries[i].end))
      return atomic_load(&entries[i].path);
  }
  return NULL;
}

static size_t append(char *line, size_t used, size_t size, const char *text) {
  while (*text != '\0' && used < size)
    line[used++] = *text++;
  return used;
}

/* A page that can't be had has one of these codes. Anything else is a bug (an address that is not
 * aligned) or somebody's kill. */
static bool is_about_a_page(int code) {
  return code == BUS_ADRERR || code == BUS_OBJERR || code == BUS_MCEERR_AR || code == BUS_MCEERR_AO;
}

static void on_bus_error(int number, siginfo_t *info, void *context) {
  char line[1024];
  size_t used = append(line, 0, sizeof line, "wanamaker: environment error: ");
  const char *path = file_at((uintptr_t)info->si_addr);
  (void)context;
  if (!is_about_a_page(info->si_code)) {
    sigaction(number, &before, NULL);
    raise(number); /* comes when this handler has returned */
    return;
  }
  if (info->si_code == BUS_MCEERR_AR || info->si_code == BUS_MCEERR_AO) {
    used =
        append(line, used, sizeof line, "this node's memory is broken (SIGBUS, machine check)\n");
  } else if (path != NULL) {
    used = append(line, used, sizeof line / 2, path);
    used = append(line, used, sizeof line,
                  ": changed while it was read (it was shortened, or its disk failed)\n");
  } else {
    used = append(line, used, sizeof line,
                  "memory that was granted can't be had (SIGBUS); is /dev/shm full?\n");
  }
  if (write(STDERR_FILENO, line, used) < 0)
    _exit(WM_ENVIRONMENT); /* nobody to tell */
  _exit(WM_ENVIRONMENT);
}

void wm_map_guard(void) {
  struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &before);
}
