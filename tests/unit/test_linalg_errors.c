/* Our handlers of illegal arguments take the place of the libraries' (operations.md, rule 12). */
#include "wanamaker/linalg/scalapack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ABORT_CODE = 5 };

void dpotrf_(const char *uplo, const int *n, double *a, const int *lda, int *info);
void pxerbla_(const int *context, const char *name, const int *info, size_t length);
void xerbla_(const char *name, const int *info, size_t length);

/* Exit code of `call` in a child process, whose message goes to `text`; -1 if it did not exit. */
static int exit_code_of(void (*call)(void), char *text, size_t size) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    call();
    _exit(0);
  }
  close(ends[1]);
  size_t used = 0;
  for (ssize_t n; used < size - 1 && (n = read(ends[0], text + used, size - 1 - used)) > 0;)
    used += (size_t)n;
  text[used] = '\0';
  close(ends[0]);
  int status;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void call_lapack_wrongly(void) {
  double a[4] = {1, 0, 0, 1};
  const int n = 2, lda = 1; /* lda < n */
  int info;
  dpotrf_("L", &n, a, &lda, &info);
}

static void test_lapack(void **state) {
  (void)state;
  char text[512];
  assert_int_equal(exit_code_of(call_lapack_wrongly, text, sizeof text), ABORT_CODE);
  assert_non_null(strstr(text, "DPOTRF"));
  assert_non_null(strstr(text, "argument 4"));
}

static void call_descinit_wrongly(void) {
  int desc[9], info;
  const int n = 2, block = -1, zero = 0, lld = 2, context = -1;
  descinit_(desc, &n, &n, &block, &block, &zero, &zero, &context, &lld, &info);
}

static void test_scalapack(void **state) {
  (void)state;
  char text[512];
  assert_int_equal(exit_code_of(call_descinit_wrongly, text, sizeof text), ABORT_CODE);
  assert_non_null(strstr(text, "DESCINIT"));
}

/* What the dynamic linker finds first is what the shared libraries call. */
static void test_symbols(void **state) {
  (void)state;
  void (*own)(const char *, const int *, size_t) = xerbla_;
  void (*own_p)(const int *, const char *, const int *, size_t) = pxerbla_;
  void *found = dlsym(RTLD_DEFAULT, "xerbla_"), *found_p = dlsym(RTLD_DEFAULT, "pxerbla_");
  assert_memory_equal(&found, &own, sizeof found);
  assert_memory_equal(&found_p, &own_p, sizeof found_p);
  Dl_info origin;
  assert_true(dladdr(found_p, &origin) != 0);
  assert_null(strstr(origin.dli_fname, "scalapack"));
}

static void test_check(void **state) {
  (void)state;
  wm_error_t err = {0};
  assert_int_equal(WM_OK, wm_scalapack_check(0, "pdx", "failed", &err));
  assert_int_equal(WM_NUMERICAL, wm_scalapack_check(3, "pdx", "did not converge", &err));
  assert_string_equal(err.message, "pdx: did not converge (info = 3)");
  assert_int_equal(WM_NUMERICAL, wm_scalapack_check(-2, "pdx", "failed", &err));
  assert_string_equal(err.message, "pdx: illegal argument (info = -2)");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lapack),
      cmocka_unit_test(test_scalapack),
      cmocka_unit_test(test_symbols),
      cmocka_unit_test(test_check),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
