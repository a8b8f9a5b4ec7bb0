/* What a process costs its node in memory. */
#ifndef WANAMAKER_BASE_MEMORY_USAGE_H
#define WANAMAKER_BASE_MEMORY_USAGE_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of private memory, and this process's proportional share of memory that several processes
 * map (Pss_Anon + Pss_Shmem of /proc/PID/smaps_rollup), so that the sum over the processes of a
 * node counts every page once. Mapped files are page cache, which the system can take back, and
 * don't count. -1 where the system does not tell (no /proc, no permission, an older kernel). */
int64_t wm_memory_usage(int64_t pid);

/* "3.21 GiB", or "unknown" for a negative number. */
void wm_memory_text(int64_t bytes, char *text, size_t size);

#endif
