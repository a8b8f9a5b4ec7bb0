#include "parts_folder.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/io/files.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void wm_part_path(const char *folder, int64_t number, char path[WM_PART_PATH_SIZE]) {
  snprintf(path, WM_PART_PATH_SIZE, "%s/%04" PRId64 ".h5", folder, number);
}

/* The number of "0012.h5", -1 for other names. */
static int64_t number_of(const char *name) {
  enum { DIGITS = 4, MOST = 12 };
  size_t digits = 0;
  while (isdigit((unsigned char)name[digits]))
    digits++;
  if (digits < DIGITS || digits > MOST || strcmp(name + digits, ".h5") != 0)
    return -1;
  return (int64_t)strtoll(name, NULL, 10);
}

static void remove_in(const char *folder, const char *name) {
  char path[WM_PART_PATH_SIZE];
  if (snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path)
    unlink(path); /* what can't be removed does no harm */
}

static int ascending(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static wm_status_t scan(const char *folder, int64_t **numbers, int64_t *n, wm_error_t *err) {
  void *memory = NULL;
  int64_t capacity = 0;
  wm_status_t status = WM_OK;
  DIR *dir = opendir(folder);
  if (dir == NULL)
    return errno == ENOENT
               ? WM_OK
               : wm_fail(err, WM_ENVIRONMENT, "%s: cannot list: %s", folder, strerror(errno));
  for (struct dirent *entry; status == WM_OK && (entry = readdir(dir)) != NULL;) {
    int64_t number = number_of(entry->d_name);
    if (number < 0)
      continue;
    status = wm_grow(&memory, &capacity, *n, *n + 1, sizeof **numbers, "parts", err);
    *numbers = memory;
    if (status == WM_OK)
      (*numbers)[(*n)++] = number;
  }
  closedir(dir);
  wm_remove_unfinished(folder);
  if (*n > 1)
    qsort(*numbers, (size_t)*n, sizeof **numbers, ascending);
  return status;
}

wm_status_t wm_part_list(const wm_comm_t *comm, const char *folder, int64_t **numbers, int64_t *n,
                         wm_error_t *err) {
  *numbers = NULL;
  *n = 0;
  wm_status_t status = comm->rank == 0 ? scan(folder, numbers, n, err) : WM_OK;
  WM_TRY(wm_agree(comm->world, status, err));
  wm_broadcast(comm->world, 0, n, sizeof *n);
  if (comm->rank != 0) {
    void *memory;
    status = wm_alloc(&memory, *n, sizeof **numbers, "parts", err);
    *numbers = memory;
  }
  WM_TRY(wm_agree(comm->world, status, err));
  if (*n > 0)
    wm_broadcast(comm->world, 0, *numbers, *n * (int64_t)sizeof **numbers);
cleanup:
  if (status != WM_OK) {
    free(*numbers);
    *numbers = NULL;
  }
  return status;
}

wm_status_t wm_part_folder(const wm_comm_t *comm, const char *folder, wm_error_t *err) {
  wm_status_t status = comm->rank == 0 ? wm_directory_ready(folder, err) : WM_OK;
  return wm_agree(comm->world, status, err);
}

void wm_part_remove(const wm_comm_t *comm, const char *folder) {
  if (comm->rank == 0) {
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;)
      if (number_of(entry->d_name) >= 0)
        remove_in(folder, entry->d_name);
    if (dir != NULL)
      closedir(dir);
    wm_remove_unfinished(folder);
    rmdir(folder);
  }
  MPI_Barrier(comm->world);
}
