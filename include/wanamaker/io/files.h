/* Files and directories. Not collective: called on rank 0, the caller agrees. */
#ifndef WANAMAKER_IO_FILES_H
#define WANAMAKER_IO_FILES_H

#include "wanamaker/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* A file mapped for reading. data is NULL for an empty file. */
typedef struct {
  void *data;
  int64_t bytes;
} wm_map_t;

/* WM_INPUT with the system's reason when it can't be opened or is no regular file. */
wm_status_t wm_map_open(const char *path, wm_map_t *out, wm_error_t *err);
void wm_map_close(wm_map_t *map);

bool wm_file_exists(const char *path);
/* Makes `path` and its parents (0777 less umask) and proves it writable by making and removing a
 * file in it: WM_ENVIRONMENT otherwise. */
wm_status_t wm_directory_ready(const char *path, wm_error_t *err);
/* fsync of a file: WM_ENVIRONMENT when it fails. */
wm_status_t wm_file_sync(const char *path, wm_error_t *err);
/* fsync of the file, rename to `to`, fsync of the directory. */
wm_status_t wm_publish(const char *from, const char *to, wm_error_t *err);
/* Whole text of a file, terminated; free(). More than `limit` bytes, or a NUL among them, is
 * WM_INPUT. */
wm_status_t wm_read_text(const char *path, int64_t limit, char **out, wm_error_t *err);

#endif
