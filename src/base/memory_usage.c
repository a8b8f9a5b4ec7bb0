#include "wanamaker/base/memory_usage.h"

#include <stdio.h>

int64_t wm_memory_usage(int64_t pid) {
  char path[64], line[256];
  snprintf(path, sizeof path, "/proc/%lld/smaps_rollup", (long long)pid);
  FILE *file = fopen(path, "r");
  if (file == NULL)
    return -1;
  long long anonymous = -1, shared = -1; /* KiB */
  while (fgets(line, sizeof line, file) != NULL) {
    sscanf(line, "Pss_Anon: %lld kB", &anonymous);
    sscanf(line, "Pss_Shmem: %lld kB", &shared);
  }
  fclose(file);
  return anonymous < 0 || shared < 0 ? -1 : (int64_t)(anonymous + shared) * 1024;
}

void wm_memory_text(int64_t bytes, char *text, size_t size) {
  if (bytes < 0)
    snprintf(text, size, "unknown");
  else
    snprintf(text, size, "%.2f GiB", (double)bytes / 0x1p30);
}
