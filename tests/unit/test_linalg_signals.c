/* Signals amid matrix products: the handlers leave what the products keep on the stack alone, so
 * that a product that a request to stop interrupts has the bits of any other. */
#include "wanamaker/base/control.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/linalg/gemm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 512 * 384 }; /* elements of an operand */

static atomic_bool done;
static pthread_t computing;

static void *send_signals(void *count) {
  while (!atomic_load(&done)) {
    pthread_kill(computing, SIGUSR1);
    ++*(long *)count;
    wm_sleep(2e-4);
  }
  return NULL;
}

static float *draw(int64_t n, uint64_t stream) {
  float *x = malloc((size_t)n * sizeof *x);
  assert_non_null(x);
  for (int64_t i = 0; i < n; i++)
    x[i] = (float)wm_rng_normal((wm_rng_t){3, stream}, (uint64_t)i);
  return x;
}

typedef struct {
  int64_t rows, out, in;
} shape_t;

static void product(const shape_t *s, const float *a, const float *b, float *c) {
  wm_error_t err = {0};
  assert_int_equal(
      wm_sgemm_serial('N', 'N', s->rows, s->out, s->in, 1, a, s->in, b, s->out, 0, c, s->out, &err),
      WM_OK);
}

/* Products of one shape, again and again. */
static void repeat(const shape_t *s, const float *a, const float *b) {
  const size_t bytes = (size_t)(s->rows * s->out) * sizeof(float);
  float *expected = draw(s->rows * s->out, 3), *c = draw(s->rows * s->out, 4);
  const double start = wm_seconds();
  product(s, a, b, expected);
  while (wm_seconds() - start < 0.4) {
    memset(c, 0, bytes);
    product(s, a, b, c);
    assert_memory_equal(c, expected, bytes);
  }
  free(c);
  free(expected);
}

static void test_products_under_signals(void **state) {
  (void)state;
  static const shape_t shapes[] = {{128, 384, 96}, {128, 96, 384}, {512, 288, 96},
                                   {512, 96, 96},  {48, 48, 16},   {48, 16, 48}};
  float *a = draw(MOST, 1), *b = draw(MOST, 2);
  long signals = 0;
  pthread_t sender;
  wm_stop_install();
  computing = pthread_self();
  assert_int_equal(pthread_create(&sender, NULL, send_signals, &signals), 0);
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
    repeat(&shapes[i], a, b);
  atomic_store(&done, true);
  pthread_join(sender, NULL);
  print_message("%ld signals\n", signals);
  assert_true(signals > 20 && wm_stop_requested());
  free(a);
  free(b);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_products_under_signals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
