/* A directory of each test's own: setup and teardown for cmocka. */
#ifndef WANAMAKER_TESTS_IO_SCRATCH_H
#define WANAMAKER_TESTS_IO_SCRATCH_H

#include "test_io_common.h"

static char dir[PATH];

static int setup(void **state) {
  (void)state;
  make_directory(dir);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  remove_directory(dir);
  return 0;
}

#endif
