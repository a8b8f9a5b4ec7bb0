/* The planner: the simulated queue against cases counted by hand, the typical corpus, and costs
 * that follow the machine as they must. */
#include "wanamaker/measure/gram.h"
#include "wanamaker/measure/plan.h"
#include "wanamaker/measure/typical.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check_queue(const double *durations, int64_t n, int64_t workers, double interval,
                        double pause, double expected) {
  wm_error_t err = {0};
  double seconds;
  assert_int_equal(wm_plan_queue(durations, n, workers, interval, pause, &seconds, &err), WM_OK);
  assert_true(fabs(seconds - expected) < 1e-12);
}

static void test_queue(void **state) {
  (void)state;
  const double d[] = {5, 4, 3, 3, 3};
  check_queue(d, 5, 1, 0, 0, 18);
  check_queue(d, 5, 2, 0, 0, 10); /* 5 3 | 4 3 3 */
  check_queue(d, 5, 3, 0, 0, 7);  /* 5 | 4 3 | 3 3 */
  check_queue(d, 5, 64, 0, 0, 5);
  check_queue(d, 5, 2, 0, 0.5, 10.5);
  /* All wait at 5 (the first that is free after 4 seconds), write until 6; 3 3 | 3 from there. */
  check_queue(d, 5, 2, 4, 1, 6 + 6 + 1);
  check_queue(d, 0, 4, 0, 0, 0);
}

static void test_typical(void **state) {
  (void)state;
  wm_error_t err = {0};
  wm_typical_t t;
  assert_int_equal(wm_typical_length(0), 3);
  assert_int_equal(wm_typical_length(1), 542);
  assert_int_equal(wm_typical_create("documents", 100000, 10, &t, &err), WM_OK);
  assert_true(t.view.n_tokens >= 100000 && t.view.n_tokens < 100542);
  assert_int_equal(t.view.row_first[t.view.n_rows], t.view.n_tokens);
  double mean = (double)t.view.n_tokens / (double)t.view.n_rows;
  assert_true(mean > 85 && mean < 115); /* the quantiles' trapezoids give 98.5 */
  wm_typical_destroy(&t);
}

/* A small GPT-2 and a stream, for costs. */
typedef struct {
  wm_arch_t arch;
  wm_typical_t corpus;
  wm_windows_t fit, evaluation;
  wm_blocks_t fit_blocks, evaluation_blocks;
  wm_variants_t variants;
  wm_work_t work;
} fixture_t;

static const wm_machine_t machine = {.cores = 8,
                                     .memory = 0x1p36,
                                     .sweep = 1e10,
                                     .trunk = 1e10,
                                     .gram = 5e9,
                                     .solve = 1e8,
                                     .spectrum = 3e7,
                                     .steps = 1e15, /* nothing */
                                     .network = 1e10,
                                     .latency = 1e-6,
                                     .files = 1e12};

static void set_up(fixture_t *f) {
  static const int64_t layers[] = {0, 1, 2, 3, 4, 5};
  wm_error_t err = {0};
  const wm_protocol_t protocol = {WM_PROTOCOL_STREAM, 512, 512, 2};
  const wm_range_t fit = {.name = "fit", .kind = WM_RANGE_TOKENS, .end = 16384};
  const wm_range_t evaluation = {
      .name = "evaluation", .kind = WM_RANGE_TOKENS, .begin = 16384, .end = 81920};
  memset(f, 0, sizeof *f);
  f->arch = (wm_arch_t){.family = WM_FAMILY_GPT2,
                        .n_layers = 6,
                        .n_heads = 4,
                        .d_model = 256,
                        .d_head = 64,
                        .d_mlp = 1024,
                        .vocab_size = 1000,
                        .max_positions = 512,
                        .tied_head = true};
  assert_int_equal(wm_typical_create("stream", 81920, 1, &f->corpus, &err), WM_OK);
  assert_int_equal(wm_windows_create(&f->corpus.view, &protocol, &fit, &f->fit, &err), WM_OK);
  assert_int_equal(wm_windows_create(&f->corpus.view, &protocol, &evaluation, &f->evaluation, &err),
                   WM_OK);
  assert_int_equal(wm_blocks_create(&f->fit, 1024, &f->fit_blocks, &err), WM_OK);
  assert_int_equal(wm_blocks_create(&f->evaluation, 1024, &f->evaluation_blocks, &err), WM_OK);
  assert_int_equal(wm_variants_create(&f->variants, &err), WM_OK);
  for (int64_t l = 0; l < f->arch.n_layers; l++)
    assert_int_equal(wm_variants_add(&f->variants, &l, 1, f->arch.n_layers, &err), WM_OK);
  f->work = (wm_work_t){.arch = &f->arch,
                        .fit = &f->fit_blocks,
                        .evaluation = &f->evaluation_blocks,
                        .variants = &f->variants,
                        .layers = layers,
                        .fit_layers = 6,
                        .gram_bytes = INT64_C(1) << 33,
                        .spectrum = true,
                        .stack_rows = 8192,
                        .tile_rows = 512,
                        .tile_vocab = 4096};
}

static void tear_down(fixture_t *f) {
  wm_variants_destroy(&f->variants);
  wm_blocks_destroy(&f->fit_blocks);
  wm_blocks_destroy(&f->evaluation_blocks);
  wm_windows_destroy(&f->fit);
  wm_windows_destroy(&f->evaluation);
  wm_typical_destroy(&f->corpus);
}

static wm_cost_t sweep_on(const fixture_t *f, int64_t nodes, int64_t ranks, int64_t threads) {
  wm_error_t err = {0};
  wm_cost_t c;
  assert_int_equal(
      wm_plan_sweep(&f->work, &machine, (wm_layout_t){nodes, ranks, threads}, &c, &err), WM_OK);
  return c;
}

/* One rank computes all the time; P of them take no less than its P-th part, and no more than it.
 */
static void test_sweep(void **state) {
  (void)state;
  fixture_t f;
  set_up(&f);
  wm_cost_t one = sweep_on(&f, 1, 1, 1);
  assert_true(fabs(one.seconds / (one.flops / machine.sweep) - 1) < 0.01);
  assert_true(one.busy > 0.99 && one.busy <= 1);
  double before = one.seconds;
  for (int64_t p = 2; p <= 64; p *= 2) {
    wm_cost_t c = sweep_on(&f, 1, p, 1);
    assert_true(c.seconds > 0.99 * one.seconds / (double)p && c.seconds < 1.01 * before);
    assert_true(c.busy <= 1 && c.units >= one.units);
    before = c.seconds;
  }
  /* More ranks than there are cells to compute: one cell's time is left. */
  assert_true(sweep_on(&f, 64, 64, 1).busy < 0.5);
  tear_down(&f);
}

/* 16 blocks are dealt out: 16 ranks take one step, 17 do too. */
static void test_fit(void **state) {
  (void)state;
  fixture_t f;
  wm_error_t err = {0};
  wm_cost_t one, sixteen, more;
  set_up(&f);
  assert_int_equal(f.fit_blocks.n, 16);
  assert_int_equal(wm_plan_fit(&f.work, &machine, (wm_layout_t){1, 1, 1}, &one, &err), WM_OK);
  assert_int_equal(wm_plan_fit(&f.work, &machine, (wm_layout_t){1, 16, 1}, &sixteen, &err), WM_OK);
  assert_int_equal(wm_plan_fit(&f.work, &machine, (wm_layout_t){1, 64, 1}, &more, &err), WM_OK);
  const double gram = 3.0 * 256 * 256 * 16384 * 6;
  assert_true(fabs(one.flops64 / gram - 1) < 1e-12);
  assert_true(one.seconds > one.flops / machine.trunk + gram / machine.gram);
  assert_true(one.seconds > 5 * sixteen.seconds);
  assert_true(more.seconds > one.flops / 16 / machine.trunk);
  f.work.gram_bytes = 1000;
  assert_int_equal(wm_plan_fit(&f.work, &machine, (wm_layout_t){1, 1, 1}, &one, &err), WM_USAGE);
  tear_down(&f);
}

/* One rank tells nobody; of four, three fetch three quarters of the units and one end each, and the
 * resamples' effects are summed over all. */
static void test_messages(void **state) {
  (void)state;
  fixture_t f;
  wm_error_t err = {0};
  wm_cost_t fit;
  set_up(&f);
  wm_cost_t one = sweep_on(&f, 1, 1, 1), four = sweep_on(&f, 1, 4, 1);
  assert_true(one.messages == 0 && one.message_bytes == 0 && one.meetings > 0);
  assert_true(fabs(four.messages - 2 * ((double)four.units * 3 / 4 + 3)) < 1e-9);
  const double before = four.message_bytes;
  f.work.resamples = 1000;
  four = sweep_on(&f, 1, 4, 1);
  assert_true(fabs(four.message_bytes - before - 2 * 3 * 8 * 6 * 1000) < 1e-6);
  assert_int_equal(wm_plan_fit(&f.work, &machine, (wm_layout_t){1, 1, 1}, &fit, &err), WM_OK);
  assert_true(fit.message_bytes == 0);
  const double grams = 6 * (double)wm_gram_bytes_per_layer(256);
  wm_cost_t near, far; /* as many ranks, on one node and on two */
  assert_int_equal(wm_plan_fit(&f.work, &machine, (wm_layout_t){1, 4, 1}, &near, &err), WM_OK);
  assert_int_equal(wm_plan_fit(&f.work, &machine, (wm_layout_t){2, 2, 1}, &far, &err), WM_OK);
  assert_true(fabs(far.message_bytes - near.message_bytes - 2 * grams) < 1e-6);
  tear_down(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_queue), cmocka_unit_test(test_typical),
                                     cmocka_unit_test(test_sweep), cmocka_unit_test(test_fit),
                                     cmocka_unit_test(test_messages)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
