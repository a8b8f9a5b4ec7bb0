/* Files and directories. */
#include "test_io_scratch.h"

#include "wanamaker/io/files.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void test_map(void **state) {
  (void)state;
  char path[2 * PATH];
  wm_error_t err = {0};
  wm_map_t map;
  write_file(dir, "a", "hello", 5);
  assert_int_equal(wm_map_open(join(path, dir, "a"), &map, &err), WM_OK);
  assert_int_equal(map.bytes, 5);
  assert_memory_equal(map.data, "hello", 5);
  wm_map_close(&map);
  wm_map_close(&map); /* harmless */

  write_file(dir, "empty", "", 0);
  assert_int_equal(wm_map_open(join(path, dir, "empty"), &map, &err), WM_OK);
  assert_null(map.data);
  assert_int_equal(map.bytes, 0);

  assert_int_equal(wm_map_open(join(path, dir, "none"), &map, &err), WM_INPUT);
  assert_message(err.message, "none: cannot open: No such file");
  assert_int_equal(wm_map_open(dir, &map, &err), WM_INPUT);
  assert_message(err.message, "is a directory");
  assert_int_equal(mkfifo(join(path, dir, "pipe"), 0600), 0);
  assert_int_equal(wm_map_open(path, &map, &err), WM_INPUT); /* and does not wait for a writer */
  assert_message(err.message, "not a regular file");
}

static void test_unchanged(void **state) {
  (void)state;
  char path[2 * PATH], other[2 * PATH];
  wm_error_t err = {0};
  wm_map_t map;
  write_file(dir, "model", "weights", 7);
  assert_int_equal(wm_map_open(join(path, dir, "model"), &map, &err), WM_OK);
  uint64_t stamp = wm_map_stamp(&map);
  assert_int_equal(wm_map_unchanged(&map, &err), WM_OK);
  write_file(dir, "other", "anything", 8); /* replaced: the map still has the old file */
  assert_int_equal(rename(join(other, dir, "other"), path), 0);
  assert_int_equal(wm_map_unchanged(&map, &err), WM_OK);
  wm_map_close(&map);
  assert_int_equal(wm_map_open(path, &map, &err), WM_OK);
  assert_true(stamp != wm_map_stamp(&map));
  assert_int_equal(truncate(path, 3), 0);
  assert_int_equal(wm_map_unchanged(&map, &err), WM_INPUT);
  assert_message(err.message, "model: changed while it was read (it had 8 bytes, now 3)");
  wm_map_close(&map);
}

/* The page of a file that was shortened ends the process with words. */
static void test_guard(void **state) {
  (void)state;
  char path[2 * PATH], said[1024] = "";
  static char content[3 << 14];
  int pipes[2], status;
  write_file(dir, "model", content, sizeof content);
  join(path, dir, "model");
  assert_int_equal(pipe(pipes), 0);
  pid_t child = fork();
  if (child == 0) {
    wm_map_t map;
    wm_error_t err = {0};
    bool ready = dup2(pipes[1], STDERR_FILENO) >= 0 && wm_map_open(path, &map, &err) == WM_OK &&
                 truncate(path, 1) == 0;
    wm_map_guard();
    _exit(ready ? ((volatile const char *)map.data)[1 << 15] : 99);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), WM_ENVIRONMENT);
  assert_true(read(pipes[0], said, sizeof said - 1) > 0);
  assert_message(said, "model: changed while it was read");
}

/* What became of a process whose SIGBUS is none of a page's: `code` as the kernel would give it. */
static int bus_error(int code) {
  int status;
  pid_t child = fork();
  if (child == 0) {
    const struct rlimit no_core = {0, 0};
    siginfo_t info = {.si_signo = SIGBUS, .si_code = code};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGBUS, SIG_DFL);
    wm_map_guard();
    syscall(SYS_rt_sigqueueinfo, getpid(), SIGBUS, &info);
    _exit(99);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

/* A bug and a kill are no faults of the environment. */
static void test_guard_leaves_the_rest(void **state) {
  (void)state;
  static const int others[] = {SI_USER, SI_QUEUE, BUS_ADRALN},
                   pages[] = {BUS_ADRERR, BUS_MCEERR_AR};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
    int status = bus_error(others[i]);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
  }
  for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
    int status = bus_error(pages[i]);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == WM_ENVIRONMENT);
  }
}

static void test_text(void **state) {
  (void)state;
  char path[2 * PATH], *text;
  wm_error_t err = {0};
  write_file(dir, "text", "12345", 5);
  assert_int_equal(wm_read_text(join(path, dir, "text"), 5, &text, &err), WM_OK);
  assert_string_equal(text, "12345");
  free(text);
  assert_int_equal(wm_read_text(path, 4, &text, &err), WM_INPUT);
  assert_message(err.message, "holds 5 bytes, at most 4");
  assert_null(text);
}

static void test_directory(void **state) {
  (void)state;
  char path[2 * PATH];
  struct stat st;
  wm_error_t err = {0};
  assert_int_equal(wm_directory_ready(join(path, dir, "x/y//z/"), &err), WM_OK);
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(wm_directory_ready(path, &err), WM_OK); /* again */
  assert_int_equal(rmdir(path), 0);                        /* the probe is gone */
  write_file(dir, "file", "", 0);
  assert_int_equal(wm_directory_ready(join(path, dir, "file/sub"), &err), WM_ENVIRONMENT);
  assert_message(err.message, "/file: cannot make the directory: Not a directory");
  assert_int_equal(wm_directory_ready("/proc/none", &err), WM_ENVIRONMENT);
  assert_int_equal(wm_directory_ready("/proc", &err), WM_ENVIRONMENT);
  assert_message(err.message, "cannot make a file");
  assert_int_equal(wm_directory_ready("", &err), WM_ENVIRONMENT);
}

static void test_publish(void **state) {
  (void)state;
  char from[2 * PATH], to[2 * PATH], *text;
  wm_error_t err = {0};
  write_file(dir, "new", "new", 3);
  write_file(dir, "old", "old", 3);
  assert_int_equal(wm_publish(join(from, dir, "new"), join(to, dir, "old"), &err), WM_OK);
  assert_int_equal(wm_read_text(to, 10, &text, &err), WM_OK);
  assert_string_equal(text, "new");
  free(text);
  assert_false(wm_file_exists(from));
  assert_true(wm_file_exists(to));
  assert_int_equal(wm_publish(from, to, &err), WM_ENVIRONMENT); /* there is no such file */
  assert_int_equal(wm_publish(to, join(from, dir, "none/x"), &err), WM_ENVIRONMENT);
  assert_true(wm_file_exists(to));
}

static void test_unfinished(void **state) {
  (void)state;
  static const char *const gone[] = {"sweep.h5.tmp",     "sweep.h5.tmp.data.0",
                                     "report.html.tmp",  "a.checkpoint.1.h5.tmp.metadata.12",
                                     "summary.json.tmp", "model.safetensors.tmp"};
  static const char *const kept[] = {"sweep.h5",      "notes.tmp",          ".h5.tmp",
                                     "h5.tmp.data.0", "sweep.h5.tmp.data.", "a.h5.tmp.data.x",
                                     "a.h5.tmp2",     "b.h5.data.1"};
  char path[2 * PATH];
  for (int i = 0; i < 6; i++)
    write_file(dir, gone[i], "x", 1);
  for (int i = 0; i < 8; i++)
    write_file(dir, kept[i], "x", 1);
  wm_remove_unfinished(dir);
  for (int i = 0; i < 6; i++)
    assert_false(wm_file_exists(join(path, dir, gone[i])));
  for (int i = 0; i < 8; i++) {
    assert_true(wm_file_exists(join(path, dir, kept[i])));
    assert_int_equal(unlink(path), 0);
  }
  wm_remove_unfinished(join(path, dir, "none")); /* there is none */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_map),     cmocka_unit_test(test_unchanged),
      cmocka_unit_test(test_guard),   cmocka_unit_test(test_guard_leaves_the_rest),
      cmocka_unit_test(test_text),    cmocka_unit_test(test_directory),
      cmocka_unit_test(test_publish), cmocka_unit_test(test_unfinished),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
