#include "wanamaker/io/lock.h"

#include "wanamaker/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HOLDER = 256 };

static void read_holder(int fd, char holder[HOLDER]) {
  ssize_t n = pread(fd, holder, HOLDER - 1, 0);
  holder[n > 0 ? n : 0] = '\0';
  holder[strcspn(holder, "\n")] = '\0';
}

/* The text is for people: a full disk may cut it. */
static void write_holder(int fd) {
  char host[HOLDER / 2] = "", text[HOLDER];
  if (gethostname(host, sizeof host) != 0)
    host[0] = '\0';
  host[sizeof host - 1] = '\0';
  int n = snprintf(text, sizeof text, "process %ld on %s\n", (long)getpid(), host);
  if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n)
    return;
}

static wm_status_t lock_file(const char *path, int fd, const char **reason, wm_error_t *err) {
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  int failed;
  do
    failed = fcntl(fd, F_OFD_SETLK, &whole);
  while (failed != 0 && errno == EINTR);
  if (failed == 0)
    return WM_OK;
  if (errno == EAGAIN || errno == EACCES) {
    char holder[HOLDER];
    read_holder(fd, holder);
    return wm_fail(err, WM_ENVIRONMENT, "%s: another run is writing to this directory (%s)", path,
                   holder[0] != '\0' ? holder : "it has not said who it is");
  }
  *reason = strerror(errno);
  return WM_OK;
}

wm_status_t wm_lock_take(const char *dir, wm_lock_t *out, const char **reason, wm_error_t *err) {
  *out = (wm_lock_t){0};
  *reason = NULL;
  char *path = wm_format("%s/.lock", dir);
  if (path == NULL)
    return wm_fail(err, WM_ENVIRONMENT, "%s: no memory for a file name", dir);
  wm_status_t status = WM_OK;
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0)
    status = wm_fail(err, WM_ENVIRONMENT, "%s: cannot open: %s", path, strerror(errno));
  else
    status = lock_file(path, fd, reason, err);
  if (status == WM_OK && *reason == NULL) {
    write_holder(fd);
    out->file = fd + 1;
  } else if (fd >= 0) {
    close(fd);
  }
  free(path);
  return status;
}

void wm_lock_release(wm_lock_t *lock) {
  if (lock->file > 0)
    close(lock->file - 1);
  *lock = (wm_lock_t){0};
}
