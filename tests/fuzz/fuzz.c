#include "fuzz.h"

#include <assert.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[256], path[512];

static void remove_directory(void) {
  char command[300];
  snprintf(command, sizeof command, "rm -rf '%s'", directory);
  if (system(command) != 0)
    fprintf(stderr, "%s is left behind\n", directory);
}

const char *fuzz_directory(void) {
  if (directory[0] == '\0') {
    const char *base = getenv("WM_FUZZ_DIR");
    snprintf(directory, sizeof directory, "%s/wm_fuzz.XXXXXX", base != NULL ? base : "/dev/shm");
    if (mkdtemp(directory) == NULL) {
      perror(directory);
      exit(1);
    }
    atexit(remove_directory);
    json_object_seed(1); /* equal inputs take equal paths */
  }
  return directory;
}

const char *fuzz_path(const char *name) {
  snprintf(path, sizeof path, "%s/%s", fuzz_directory(), name);
  return path;
}

void fuzz_write(const char *name, fuzz_bytes_t bytes) {
  int fd = open(fuzz_path(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, bytes.data, bytes.bytes) != (ssize_t)bytes.bytes) {
    perror(path);
    exit(1);
  }
  close(fd);
}

fuzz_bytes_t fuzz_part(fuzz_bytes_t *rest) {
  const char *end = rest->bytes > 0 ? memchr(rest->data, FUZZ_SEPARATOR, rest->bytes) : NULL;
  fuzz_bytes_t part = {rest->data, end != NULL ? (size_t)(end - rest->data) : rest->bytes};
  size_t taken = part.bytes + (end != NULL);
  *rest = (fuzz_bytes_t){rest->data + taken, rest->bytes - taken};
  return part;
}

char *fuzz_text(fuzz_bytes_t bytes) {
  char *text = malloc(bytes.bytes + 1);
  assert(text != NULL);
  if (bytes.bytes > 0)
    memcpy(text, bytes.data, bytes.bytes);
  text[bytes.bytes] = '\0';
  return text;
}

void fuzz_check_failure(wm_status_t status, const wm_error_t *err, wm_status_t expected,
                        const char *place) {
  if (status == WM_OK)
    return;
  if (status == expected && err->status == expected && strstr(err->message, place) != NULL)
    return;
  fprintf(stderr, "status %d, expected %d with \"%s\"; the message is: %s\n", (int)status,
          (int)expected, place, err->message);
  abort();
}
