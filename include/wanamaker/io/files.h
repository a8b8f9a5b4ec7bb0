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
  char *path; /* owned, like what is said of the file when it was opened */
  uint64_t device, inode;
  int64_t changed; /* ns since 1970, modulo 2^64 */
} wm_map_t;

/* WM_INPUT with the system's reason when it can't be opened or is no regular file; WM_ENVIRONMENT
 * when the system fails (no descriptor, no memory, an I/O error). */
wm_status_t wm_map_open(const char *path, wm_map_t *out, wm_error_t *err);
void wm_map_close(wm_map_t *map);
/* WM_INPUT if the file has been written to or shortened since it was opened: what was read may be
 * anything. A file that was replaced or removed is still whole under its map. */
wm_status_t wm_map_unchanged(const wm_map_t *map, wm_error_t *err);
/* The file's identity, size and time of change in one number. */
uint64_t wm_map_stamp(const wm_map_t *map);
/* From now on a page of a mapped file that can't be had ends the process with WM_ENVIRONMENT and a
 * message that names the file; so does shared memory that can't be had, or is broken. Other SIGBUS
 * do what they did before. To be called once, after MPI_Init, which may have handlers of its own.
 */
void wm_map_guard(void);

bool wm_file_exists(const char *path);
/* Not collective. Descriptor of a new file without a name in `directory`, open for reading and
 * writing: it is gone with the process, however that ends. -1 with errno on failure. */
int wm_nameless_file(const char *directory);

/* Makes `path` and its parents (0777 less umask) and proves it writable by making and removing a
 * file in it: WM_ENVIRONMENT otherwise. */
wm_status_t wm_directory_ready(const char *path, wm_error_t *err);
/* fsync of a file: WM_ENVIRONMENT when it fails. */
wm_status_t wm_file_sync(const char *path, wm_error_t *err);
/* fsync of the file, rename to `to`, fsync of the directory. */
wm_status_t wm_publish(const char *from, const char *to, wm_error_t *err);
/* Removes what killed runs have left unfinished in `dir`, where no run may be writing: NAME.tmp of
 * files that the program writes there (h5, html, json, safetensors), and Open MPI's files beside
 * them (NAME.tmp.data.RANK, NAME.tmp.metadata.RANK). What can't be removed stays. */
void wm_remove_unfinished(const char *dir);
/* Writes `text` to `path`: "path.tmp", then wm_publish. WM_ENVIRONMENT when it fails; then there is
 * no temporary file. */
wm_status_t wm_write_text(const char *path, const char *text, wm_error_t *err);
/* Whole text of a file, terminated; free(). More than `limit` bytes, or a NUL among them, is
 * WM_INPUT. */
wm_status_t wm_read_text(const char *path, int64_t limit, char **out, wm_error_t *err);

#endif
