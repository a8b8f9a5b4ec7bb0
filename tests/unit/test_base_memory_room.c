/* What limits memory, read below a directory that stands for "/". */
#include "wanamaker/base/memory_room.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PATH = 512 };
static char root[PATH];

static int setup(void **state) {
  (void)state;
  strcpy(root, "/tmp/wm_room_XXXXXX");
  return mkdtemp(root) == NULL;
}

static int teardown(void **state) {
  (void)state;
  char command[2 * PATH];
  snprintf(command, sizeof command, "rm -rf -- '%s'", root);
  return system(command);
}

static void put(const char *path, const char *text) {
  char full[2 * PATH], command[4 * PATH];
  snprintf(full, sizeof full, "%s%s", root, path);
  snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s')\"", full);
  assert_int_equal(system(command), 0);
  FILE *f = fopen(full, "w");
  assert_non_null(f);
  assert_true(fputs(text, f) >= 0);
  assert_int_equal(fclose(f), 0);
}

static void expect(int64_t bytes, const char *source) {
  wm_memory_room_t room = wm_memory_room(root);
  assert_int_equal(room.bytes, bytes);
  if (strstr(room.source, source) == NULL)
    fail_msg("\"%s\" in \"%s\"", source, room.source);
}

static void test_nothing(void **state) {
  (void)state;
  expect(-1, "nothing that can be read");
  put("/proc/meminfo", "MemTotal: 100 kB\n"); /* an old kernel's */
  expect(-1, "nothing that can be read");
}

static void test_meminfo(void **state) {
  (void)state;
  put("/proc/meminfo", "MemTotal:  999 kB\nMemAvailable:   100 kB\nSwapFree: 20 kB\n");
  expect(120 * 1024, "/proc/meminfo");
}

static void test_version_2(void **state) {
  (void)state;
  put("/proc/meminfo", "MemAvailable: 1000 kB\n");
  put("/proc/self/cgroup", "0::/job/step\n");
  put("/sys/fs/cgroup/job/step/memory.max", "max\n");
  put("/sys/fs/cgroup/job/step/memory.current", "5000\n");
  expect(1000 * 1024, "/proc/meminfo");
  put("/sys/fs/cgroup/job/memory.max", "90000\n");
  put("/sys/fs/cgroup/job/memory.current", "50000\n");
  put("/sys/fs/cgroup/job/memory.stat", "anon 7\ninactive_file 1000\nactive_file 234\n");
  expect(41234, "/sys/fs/cgroup/job/memory.max");
  put("/sys/fs/cgroup/job/memory.stat", "inactive_file 1000\nslab 900\nslab_reclaimable 500\n");
  expect(41500, "/sys/fs/cgroup/job/memory.max");      /* names of files that were looked at */
  put("/sys/fs/cgroup/job/step/memory.max", "4000\n"); /* more is used than allowed */
  expect(0, "/sys/fs/cgroup/job/step/memory.max");
}

static void test_version_1(void **state) {
  (void)state;
  put("/proc/self/cgroup", "5:devices:/\n4:cpuacct,memory:/on/the/host\n1:memory2:/elsewhere\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "70\n");
  expect(-1, "nothing that can be read"); /* no limit */
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "100\n");
  put("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 5\n");
  expect(35, "/sys/fs/cgroup/memory/memory.limit_in_bytes"); /* the group is its own root here */
}

static void test_check(void **state) {
  (void)state;
  wm_error_t err = {0};
  assert_int_equal(wm_memory_room_check(1, "little", &err), WM_OK);
  if (wm_memory_room(NULL).bytes < 0)
    skip();
  assert_int_equal(wm_memory_room_check(INT64_C(1) << 60, "the moon", &err), WM_ENVIRONMENT);
  assert_non_null(strstr(err.message, "the moon: this node has "));
  assert_non_null(strstr(err.message, "1073741824.00 GiB is needed"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_nothing, setup, teardown),
      cmocka_unit_test_setup_teardown(test_meminfo, setup, teardown),
      cmocka_unit_test_setup_teardown(test_version_2, setup, teardown),
      cmocka_unit_test_setup_teardown(test_version_1, setup, teardown),
      cmocka_unit_test(test_check)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
