#include "wanamaker/io/files.h"

#include "map_guard.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of a file that can't be opened: is it the file, or what is around it? */
static wm_status_t kind_of(int reason) {
  bool environment =
      reason == EMFILE || reason == ENFILE || reason == ENOMEM || reason == EIO || reason == ESTALE;
  return environment ? WM_ENVIRONMENT : WM_INPUT;
}

/* Opens a regular file for reading. */
static wm_status_t open_regular(const char *path, int *fd, struct stat *st, wm_error_t *err) {
  /* O_NONBLOCK: opening a FIFO would otherwise wait for a writer. */
  *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (*fd < 0)
    return wm_fail(err, kind_of(errno), "%s: cannot open: %s", path, strerror(errno));
  wm_status_t status = WM_OK;
  if (fstat(*fd, st) != 0)
    status = wm_fail(err, WM_INPUT, "%s: cannot stat: %s", path, strerror(errno));
  else if (!S_ISREG(st->st_mode))
    status = wm_fail(err, WM_INPUT, "%s: is %s, not a regular file", path,
                     S_ISDIR(st->st_mode) ? "a directory" : "a device, pipe or socket");
  if (status != WM_OK)
    close(*fd);
  return status;
}

static int64_t change_time(const struct stat *st) {
  return (int64_t)((uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec);
}

static wm_status_t map_file(const char *path, int fd, const struct stat *st, wm_map_t *out,
                            wm_error_t *err) {
  wm_map_t map = {.bytes = (int64_t)st->st_size,
                  .device = (uint64_t)st->st_dev,
                  .inode = (uint64_t)st->st_ino,
                  .changed = change_time(st)};
  wm_status_t status = wm_strdup(&map.path, path, err);
  if (status != WM_OK)
    return status;
  map.data = mmap(NULL, (size_t)map.bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (map.data == MAP_FAILED) {
    status = wm_fail(err, WM_ENVIRONMENT, "%s: cannot map %lld bytes: %s", path,
                     (long long)map.bytes, strerror(errno));
    free(map.path);
    return status;
  }
  wm_map_guard_add(map.data, map.bytes, map.path);
  *out = map;
  return WM_OK;
}

wm_status_t wm_map_open(const char *path, wm_map_t *out, wm_error_t *err) {
  *out = (wm_map_t){0};
  int fd;
  struct stat st;
  wm_status_t status = open_regular(path, &fd, &st, err);
  if (status != WM_OK)
    return status;
  if (st.st_size > 0)
    status = map_file(path, fd, &st, out, err);
  close(fd);
  return status;
}

void wm_map_close(wm_map_t *map) {
  if (map->data != NULL) {
    wm_map_guard_remove(map->data);
    munmap(map->data, (size_t)map->bytes);
  }
  free(map->path);
  *map = (wm_map_t){0};
}

wm_status_t wm_map_unchanged(const wm_map_t *map, wm_error_t *err) {
  struct stat st;
  if (map->data == NULL || stat(map->path, &st) != 0 || (uint64_t)st.st_dev != map->device ||
      (uint64_t)st.st_ino != map->inode)
    return WM_OK;
  if ((int64_t)st.st_size == map->bytes && change_time(&st) == map->changed)
    return WM_OK;
  if ((int64_t)st.st_size == map->bytes)
    return wm_fail(err, WM_INPUT, "%s: changed while it was read (it was written to)", map->path);
  return wm_fail(err, WM_INPUT, "%s: changed while it was read (it had %lld bytes, now %lld)",
                 map->path, (long long)map->bytes, (long long)st.st_size);
}

uint64_t wm_map_stamp(const wm_map_t *map) {
  const uint64_t parts[] = {map->device, map->inode, (uint64_t)map->bytes, (uint64_t)map->changed};
  return wm_hash(parts, sizeof parts, 0);
}

bool wm_file_exists(const char *path) {
  struct stat st;
  return stat(path, &st) == 0;
}

/* mkdir -p. `path` is changed on the way and restored. */
static wm_status_t make_directories(char *path, wm_error_t *err) {
  for (char *p = path + 1;; p++) {
    if (*p != '/' && *p != '\0')
      continue;
    char end = *p;
    *p = '\0';
    /* What mkdir says of a name that exists differs (EEXIST, EISDIR, EROFS): ask stat instead. */
    int reason = mkdir(path, 0777) == 0 ? 0 : errno;
    struct stat st;
    if (reason != 0 && stat(path, &st) == 0)
      reason = S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
    if (reason != 0)
      return wm_fail(err, WM_ENVIRONMENT, "%s: cannot make the directory: %s", path,
                     strerror(reason));
    *p = end;
    if (end == '\0')
      return WM_OK;
  }
}

int wm_nameless_file(const char *directory) {
  int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || errno == ENOENT)
    return fd;
  char *name =
      wm_format("%s/.nameless.XXXXXX", directory); /* where the file system knows no such */
  if (name == NULL) {
    errno = ENOMEM;
    return -1;
  }
  fd = mkostemp(name, O_CLOEXEC);
  int reason = errno;
  if (fd >= 0)
    unlink(name);
  free(name);
  errno = reason;
  return fd;
}

static wm_status_t prove_writable(const char *path, wm_error_t *err) {
  int fd = wm_nameless_file(path);
  if (fd < 0)
    return wm_fail(err, WM_ENVIRONMENT, "%s: cannot make a file in this directory: %s", path,
                   strerror(errno));
  close(fd);
  return WM_OK;
}

wm_status_t wm_directory_ready(const char *path, wm_error_t *err) {
  if (path[0] == '\0')
    return wm_fail(err, WM_ENVIRONMENT, "the name of a directory is empty");
  char *copy;
  wm_status_t status = wm_strdup(&copy, path, err);
  if (status != WM_OK)
    return status;
  status = make_directories(copy, err);
  free(copy);
  return status == WM_OK ? prove_writable(path, err) : status;
}

/* fsync, which can't pulse, with time for what a slow disk takes to write the file. */
static int sync_file(int fd) {
  const double slow_disk = 1e7; /* bytes per second */
  struct stat st;
  uint64_t count;
  double allowed;
  wm_pulse_read(&count, &allowed);
  double seconds = fstat(fd, &st) == 0 ? (double)st.st_size / slow_disk : 0;
  wm_pulse_allow(seconds > allowed ? seconds : allowed);
  int failed = fsync(fd);
  int reason = errno;
  wm_pulse_allow(allowed); /* the caller's, if it had one */
  errno = reason;
  return failed;
}

static wm_status_t sync_path(const char *path, int flags, wm_error_t *err) {
  int fd = open(path, flags | O_CLOEXEC);
  if (fd < 0)
    return wm_fail(err, WM_ENVIRONMENT, "%s: cannot open to sync: %s", path, strerror(errno));
  int failed = sync_file(fd);
  int reason = errno;
  close(fd);
  /* Some network file systems refuse to sync a directory; there is nothing more to do there. */
  if (failed != 0 && !((flags & O_DIRECTORY) && (reason == EINVAL || reason == ENOTSUP)))
    return wm_fail(err, WM_ENVIRONMENT, "%s: cannot sync: %s", path, strerror(reason));
  return WM_OK;
}

static wm_status_t sync_parent(const char *path, wm_error_t *err) {
  const char *slash = strrchr(path, '/');
  if (slash == NULL)
    return sync_path(".", O_RDONLY | O_DIRECTORY, err);
  int length = slash == path ? 1 : (int)(slash - path);
  char *parent = wm_format("%.*s", length, path);
  if (parent == NULL)
    return wm_fail(err, WM_ENVIRONMENT, "%s: no memory for a file name", path);
  wm_status_t status = sync_path(parent, O_RDONLY | O_DIRECTORY, err);
  free(parent);
  return status;
}

wm_status_t wm_file_sync(const char *path, wm_error_t *err) {
  return sync_path(path, O_RDONLY, err);
}

wm_status_t wm_publish(const char *from, const char *to, wm_error_t *err) {
  wm_status_t status = wm_file_sync(from, err);
  if (status != WM_OK)
    return status;
  if (rename(from, to) != 0)
    return wm_fail(err, WM_ENVIRONMENT, "%s: cannot rename to %s: %s", from, to, strerror(errno));
  return sync_parent(to, err);
}

/* Reads to the end, even if the file grows or shrinks meanwhile, up to `limit` bytes. */
static wm_status_t read_all(const char *path, int fd, int64_t limit, char *text, int64_t *used,
                            wm_error_t *err) {
  for (*used = 0; *used < limit;) {
    ssize_t got = read(fd, text + *used, (size_t)(limit - *used));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return wm_fail(err, WM_INPUT, "%s: cannot read at byte %lld: %s", path, (long long)*used,
                     strerror(errno));
    if (got == 0)
      return WM_OK;
    *used += got;
  }
  return WM_OK;
}

/* Takes `ending` from the first *length bytes of `name` if they end in it and have more. */
static bool cut_ending(const char *name, size_t *length, const char *ending) {
  const size_t n = strlen(ending);
  if (*length <= n || strncmp(name + *length - n, ending, n) != 0)
    return false;
  *length -= n;
  return true;
}

/* NAME.tmp, NAME.tmp.data.12 or NAME.tmp.metadata.12, NAME of one of the program's kinds. */
static bool is_unfinished(const char *name) {
  static const char *const kinds[] = {".h5.tmp", ".html.tmp", ".json.tmp", ".safetensors.tmp"};
  size_t length = strlen(name);
  while (length > 0 && isdigit((unsigned char)name[length - 1]))
    length--;
  if (name[length] != '\0' && !cut_ending(name, &length, ".data.") &&
      !cut_ending(name, &length, ".metadata."))
    return false;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (cut_ending(name, &length, kinds[i]))
      return true;
  return false;
}

void wm_remove_unfinished(const char *dir) {
  DIR *entries = opendir(dir);
  if (entries == NULL)
    return;
  for (struct dirent *e; (e = readdir(entries)) != NULL;)
    if (is_unfinished(e->d_name))
      unlinkat(dirfd(entries), e->d_name, 0);
  closedir(entries);
}

wm_status_t wm_write_text(const char *path, const char *text, wm_error_t *err) {
  char *temporary = wm_format("%s.tmp", path);
  wm_status_t status = WM_OK;
  FILE *file = temporary != NULL ? fopen(temporary, "w") : NULL;
  bool written = file != NULL && fputs(text, file) >= 0;
  if (file != NULL)
    written &= fclose(file) == 0;
  if (!written)
    status = wm_fail(err, WM_ENVIRONMENT, "%s: cannot write: %s", path, strerror(errno));
  else
    status = wm_publish(temporary, path, err);
  if (status != WM_OK && temporary != NULL)
    remove(temporary);
  free(temporary);
  return status;
}

wm_status_t wm_read_text(const char *path, int64_t limit, char **out, wm_error_t *err) {
  *out = NULL;
  int fd;
  struct stat st;
  int64_t used = 0;
  void *text = NULL;
  wm_status_t status = open_regular(path, &fd, &st, err);
  if (status != WM_OK)
    return status;
  const int64_t bytes = (int64_t)st.st_size;
  if (bytes > limit)
    status = wm_fail(err, WM_INPUT, "%s: holds %lld bytes, at most %lld are expected", path,
                     (long long)bytes, (long long)limit);
  if (status == WM_OK)
    status = wm_alloc(&text, bytes + 1, 1, path, err);
  if (status == WM_OK)
    status = read_all(path, fd, bytes, text, &used, err);
  close(fd);
  if (status != WM_OK) {
    free(text);
    return status;
  }
  ((char *)text)[used] = '\0';
  if ((int64_t)strlen(text) < used) {
    status = wm_fail(err, WM_INPUT, "%s: byte %zu is NUL, which no text holds", path, strlen(text));
    free(text);
    return status;
  }
  *out = text;
  return WM_OK;
}
