/* The MPI-IO parameters: set by default, and noticed when they are not in force. Each case is a
 * process of its own, since parameters are read when MPI starts. */
#include "test_io_common.h"

#include "wanamaker/io/hdf5.h"

#include <sys/wait.h>

typedef struct {
  const char *fcoll, *sieving; /* set by the user, or NULL */
  bool ours;                   /* whether wm_h5_environment is called */
  const char *message;         /* NULL: fine */
} case_t;

static const case_t cases[] = {
    {NULL, NULL, true, NULL},
    {"individual", "0", true, NULL},
    {"individual", "0", false, NULL},
    {NULL, NULL, false, "fcoll"},
    {"vulcan", NULL, true, "fcoll is \"vulcan\""},
    {NULL, "1", true, "fbtl_posix_read_datasieving"},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static void set(const char *name, const char *value) {
  if (value != NULL)
    setenv(name, value, 1);
  else
    unsetenv(name);
}

/* The process of case `c`: 0 if the check says what it should. */
static int probe(const case_t *c) {
  wm_error_t err = {0};
  set("OMPI_MCA_fcoll", c->fcoll);
  set("OMPI_MCA_fbtl_posix_read_datasieving", c->sieving);
  unsetenv("HDF5_USE_FILE_LOCKING");
  if (c->ours)
    wm_h5_environment();
  int provided, level;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
  wm_status_t status = wm_h5_check_environment(&err);
  MPI_Query_thread(&level);
  MPI_Finalize();
  const char *locking = getenv("HDF5_USE_FILE_LOCKING");
  if (c->ours && (locking == NULL || strcmp(locking, "BEST_EFFORT") != 0))
    return 1;
  if (level != provided) /* the check leaves MPI's thread level alone */
    return 2;
#ifdef OPEN_MPI
  if (c->message != NULL)
    return status == WM_ENVIRONMENT && strstr(err.message, c->message) != NULL ? 0 : 3;
#endif
  return status == WM_OK ? 0 : 4;
}

static void test_cases(void **state) {
  (void)state;
  for (int i = 0; i < N_CASES; i++) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      char number[8];
      snprintf(number, sizeof number, "%d", i);
      execl("/proc/self/exe", "probe", number, (char *)NULL);
      _exit(127);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) != 0)
      fail_msg("case %d: %d", i, WEXITSTATUS(status));
  }
}

int main(int argc, char **argv) {
  if (argc == 2)
    return probe(&cases[atoi(argv[1]) % N_CASES]);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
