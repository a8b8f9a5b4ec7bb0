/* Temporary directories and files of the io tests. */
#ifndef WANAMAKER_TESTS_IO_COMMON_H
#define WANAMAKER_TESTS_IO_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATH = 512 };

/* Makes a directory of the test's own, named in `out`. */
static inline void make_directory(char out[PATH]) {
  const char *base = getenv("TMPDIR");
  snprintf(out, PATH, "%s/wm_io_XXXXXX", base != NULL ? base : "/tmp");
  assert_non_null(mkdtemp(out));
}

static inline void remove_directory(const char *dir) {
  char command[2 * PATH];
  snprintf(command, sizeof command, "rm -rf '%s'", dir);
  assert_int_equal(system(command), 0);
}

static inline const char *join(char out[2 * PATH], const char *dir, const char *name) {
  snprintf(out, 2 * PATH, "%s/%s", dir, name);
  return out;
}

static inline void write_file(const char *dir, const char *name, const void *data, size_t bytes) {
  char path[2 * PATH];
  FILE *f = fopen(join(path, dir, name), "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(data, 1, bytes, f), bytes);
  assert_int_equal(fclose(f), 0);
}

/* Fails the test, showing the message, unless it holds `part`. */
static inline void assert_message(const char *message, const char *part) {
  if (strstr(message, part) == NULL)
    fail_msg("\"%s\" is not in the message \"%s\"", part, message);
}

#endif
