/* Result files on a full disk: runs the MPI test test_io_faults, 1 to 4 ranks, with a small tmpfs
 * of its own, which is mounted in a private namespace and gone with this process. Skipped where
 * such a mount is not permitted. */
#include "test_io_common.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/mount.h>
#include <sys/wait.h>

static char dir[PATH];
static bool mounted;

static void write_text(const char *path, const char *text) {
  int fd = open(path, O_WRONLY);
  if (fd >= 0 && write(fd, text, strlen(text)) < 0)
    print_message("%s: %s\n", path, strerror(errno));
  if (fd >= 0)
    close(fd);
}

/* Enters a mount namespace, as root of a user namespace of its own where need be. */
static int enter_namespace(void) {
  if (geteuid() == 0)
    return unshare(CLONE_NEWNS);
  char map[64];
  snprintf(map, sizeof map, "0 %u 1", (unsigned)geteuid());
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
    return -1;
  write_text("/proc/self/setgroups", "deny");
  write_text("/proc/self/uid_map", map);
  return 0;
}

static int setup(void **state) {
  (void)state;
  make_directory(dir);
  mounted = enter_namespace() == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
            mount("tmpfs", dir, "tmpfs", 0, "size=3m") == 0;
  if (!mounted)
    print_message("no private mount: %s\n", strerror(errno));
  return 0;
}

static int teardown(void **state) {
  (void)state;
  if (mounted)
    umount(dir);
  rmdir(dir);
  return 0;
}

static void run(const char *ranks) {
  char program[PATH_MAX] = "";
  assert_true(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
  char *place = dirname(program), path[PATH_MAX + 32];
  snprintf(path, sizeof path, "%s/test_io_faults", place);
  const char *launcher = getenv("MPIEXEC");
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    setenv("WM_TEST_FULL_DISK", dir, 1);
    execlp(launcher != NULL ? launcher : "mpiexec", "mpiexec", "-n", ranks, path, (char *)NULL);
    _exit(127);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_full_disk(void **state) {
  (void)state;
  if (!mounted)
    skip();
  run("1");
  run("2");
  run("3");
  run("4");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_full_disk)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
