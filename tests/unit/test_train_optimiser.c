/* AdamW, clipping and schedules against torch (tests/oracle/optimiser_golden.py) and by hand. */
#include "wanamaker/base/mem.h"
#include "wanamaker/io/safetensors.h"
#include "wanamaker/train/adamw.h"
#include "wanamaker/train/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <omp.h>

enum { STEPS = 50, A = 35, B = 11, N = A + B };

static void copy_of(const wm_tensors_t *store, const char *name, void *out, size_t bytes) {
  const wm_tensor_t *t = wm_tensors_find(store, name);
  assert_non_null(t);
  assert_int_equal(t->bytes, bytes);
  memcpy(out, t->data, bytes);
}

static const wm_schedule_t cosine = {WM_SCHEDULE_COSINE, 3e-2, 3e-3, 0, STEPS};

/* Fifty steps in float32: what torch does in another order of roundings. A step moves a parameter
 * by at most the rate, so that fifty roundings of 6e-8 of values of order one bound the error. */
static void fifty_steps_are_torchs(void **state) {
  (void)state;
  static float ga[STEPS * A], gb[STEPS * B], p[N], m[N], v[N], g[N], end[N];
  static double norms[STEPS], rates[STEPS];
  const wm_adamw_t adamw = {0.9, 0.999, 1e-8, 0.01};
  const char *root = getenv("WM_TEST_DATA");
  char *dir = wm_format("%s/train/adamw", root != NULL ? root : "tests/data");
  wm_tensors_t *store;
  wm_error_t err = {0};
  int clipped = 0;
  if (wm_tensors_open(dir, &store, &err) != WM_OK)
    fail_msg("%s", err.message);
  copy_of(store, "gradient.a", ga, sizeof ga);
  copy_of(store, "gradient.b", gb, sizeof gb);
  copy_of(store, "start.a", p, A * sizeof *p);
  copy_of(store, "start.b", p + A, B * sizeof *p);
  copy_of(store, "end.a", end, A * sizeof *p);
  copy_of(store, "end.b", end + A, B * sizeof *p);
  copy_of(store, "norm", norms, sizeof norms);
  copy_of(store, "rate", rates, sizeof rates);
  for (int i = 0; i < STEPS; i++) {
    memcpy(g, ga + i * A, A * sizeof *g);
    memcpy(g + A, gb + i * B, B * sizeof *g);
    double norm = sqrt(wm_sum_squares(g, N)), factor = wm_clip_factor(norm, 1);
    assert_true(fabs(norm - norms[i]) <= 1e-6 * norm);
    assert_true(fabs(wm_schedule_rate(&cosine, i) - rates[i]) <= 1e-12);
    clipped += factor < 1;
    wm_adamw_step(&adamw, i + 1, wm_schedule_rate(&cosine, i), factor, g, N, p, m, v);
  }
  assert_true(clipped > 10 && clipped < 40);
  for (int i = 0; i < N; i++)
    if (!(fabs((double)p[i] - (double)end[i]) <= 3e-6))
      fail_msg("parameter %d: %.9g, expected %.9g", i, (double)p[i], (double)end[i]);
  wm_tensors_close(store);
  free(dir);
}

/* The first step moves by rate * sign(g) whatever g's size, and decay acts on p alone. */
static void a_first_step_by_hand(void **state) {
  (void)state;
  const wm_adamw_t adamw = {0.9, 0.999, 1e-8, 0.1};
  float p[] = {1, 1, -2}, m[3] = {0}, v[3] = {0};
  const float g[] = {5, -0.001f, 0};
  wm_adamw_step(&adamw, 1, 0.01, 1, g, 3, p, m, v);
  const double expected[] = {0.999 - 0.01, 0.999 + 0.01, -1.998};
  for (int i = 0; i < 3; i++)
    assert_true(fabs((double)p[i] - expected[i]) < 1e-6);
  assert_true(fabs((double)m[0] - 0.5) < 1e-7 && fabs((double)v[0] - 0.025) < 1e-8);
}

static void bits_do_not_depend_on_threads_or_place(void **state) {
  (void)state;
  enum { LENGTH = 3 * 4096 + 77 };
  static float g[LENGTH], p[3][LENGTH], m[3][LENGTH], v[3][LENGTH];
  const wm_adamw_t adamw = {0.9, 0.95, 1e-8, 0.1};
  double sums[3];
  for (int i = 0; i < LENGTH; i++)
    g[i] = sinf((float)(i * i % 1009));
  for (int k = 0; k < 3; k++) {
    omp_set_num_threads(k + 1);
    sums[k] = wm_sum_squares(g, LENGTH);
    for (int step = 1; step <= 3; step++) {
      int64_t cut = k * 1003; /* as two shards */
      wm_adamw_step(&adamw, step, 0.1, 0.5, g, cut, p[k], m[k], v[k]);
      wm_adamw_step(&adamw, step, 0.1, 0.5, g + cut, LENGTH - cut, p[k] + cut, m[k] + cut,
                    v[k] + cut);
    }
  }
  omp_set_num_threads(1);
  double plain = 0;
  for (int i = 0; i < LENGTH; i++)
    plain += (double)g[i] * (double)g[i];
  assert_true(fabs(sums[0] - plain) <= 1e-12 * plain);
  for (int k = 1; k < 3; k++) {
    assert_true(sums[k] == sums[0]);
    assert_memory_equal(p[k], p[0], sizeof p[0]);
    assert_memory_equal(v[k], v[0], sizeof v[0]);
  }
}

static void rates_by_hand(void **state) {
  (void)state;
  const wm_schedule_t constant = {.kind = WM_SCHEDULE_CONSTANT, .rate = 5e-6};
  const wm_schedule_t warm = {WM_SCHEDULE_COSINE, 1, 0.1, 4, 14};
  assert_true(wm_schedule_rate(&constant, 0) == 5e-6 && wm_schedule_rate(&constant, 999) == 5e-6);
  const double rise[] = {0.25, 0.5, 0.75, 1, 1};
  for (int i = 0; i < 5; i++)
    assert_true(fabs(wm_schedule_rate(&warm, i) - rise[i]) < 1e-15);
  assert_true(fabs(wm_schedule_rate(&warm, 9) - 0.55) < 1e-15);
  assert_true(fabs(wm_schedule_rate(&warm, 14) - 0.1) < 1e-15);
  assert_true(fabs(wm_schedule_rate(&warm, 99) - 0.1) < 1e-15);
  assert_true(wm_clip_factor(0.5, 1) == 1 && wm_clip_factor(7, 0) == 1);
  assert_true(fabs(wm_clip_factor(4, 1) - 0.25) < 1e-6);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fifty_steps_are_torchs),
      cmocka_unit_test(a_first_step_by_hand),
      cmocka_unit_test(bits_do_not_depend_on_threads_or_place),
      cmocka_unit_test(rates_by_hand),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
