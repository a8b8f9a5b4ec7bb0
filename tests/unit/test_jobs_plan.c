/* The plan's count of a job's passes, against a count by hand for one small configuration:
 * demo_gpt2 (8 layers of width 96, MLPs of 384, 3072 tokens) on ranges of one window of 512 each.
 */
#include "jobs.h"
#include "plan.h"

#include "wanamaker/base/mem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Operations of a row: a layer with attention to 256.5 positions in the mean, the head, a
 * surrogate, a surrogate instead of an MLP, gates. */
static const double layer = 8 * 96 * 96 + 4 * 96 * 384 + 4 * 96 * 256.5, head = 2 * 96 * 3072,
                    surrogate = 2 * 96 * 96, instead = 2 * 96 * 96 - 4 * 96 * 384, linear = 2 * 96,
                    pca = 2 * 96 * 2 + 2 * 2;
static const double rows = 512;

static const wm_machine_t machine = {.cores = 1,
                                     .memory = 0x1p36,
                                     .sweep = 1e10,
                                     .trunk = 1e10,
                                     .gram = 5e9,
                                     .solve = 1e8,
                                     .spectrum = 3e7,
                                     .steps = 1e9,
                                     .network = 1e10,
                                     .files = 1e12};

static wm_cost_t cost_of(const char *stage, int n, const char *const *more) {
  const char *settings[24] = {"protocol.kind=stream",
                              "ranges.fit.tokens=[0,512]",
                              "ranges.gates.tokens=[512,1024]",
                              "ranges.validation.tokens=[1024,1536]",
                              "ranges.evaluation.tokens=[1536,2048]",
                              "gate.enabled=true",
                              "gate.layers=[6,7]",
                              "gate.kinds=linear pca oracle",
                              "gate.bottlenecks=[1]",
                              "gate.thresholds=[0.4]"};
  wm_error_t err = {0};
  wm_config_t *config;
  wm_plan_work_t work;
  wm_cost_t cost;
  char note[WM_PLAN_NOTE], *model = wm_format("model.path=%s/demo_gpt2", getenv("WM_TEST_DATA"));
  int count = 10;
  settings[count++] = model;
  for (int i = 0; i < n; i++)
    settings[count++] = more[i];
  if (wm_config_read(wm_settings, NULL, settings, count, WM_JOB_PLAN, &config, &err) != WM_OK)
    fail_msg("%s", err.message);
  const wm_run_t run = {.config = config};
  if (wm_plan_work_create(&run, &work, &err) != WM_OK ||
      wm_plan_stage(&run, &work, &machine, stage, (wm_layout_t){1, 1, 1}, &cost, note, &err) !=
          WM_OK)
    fail_msg("%s", err.message);
  assert_string_equal(note,
                      strcmp(stage, "probe") == 0 ? "at most: what iterates may end sooner" : "");
  wm_plan_work_destroy(&work);
  wm_config_free(config);
  free(model);
  return cost;
}

static void check_flops(const wm_cost_t *c, double of_a_row, double flops64) {
  if (fabs(c->flops / (rows * of_a_row) - 1) > 1e-12)
    fail_msg("%.17g operations of a row, expected %.17g", c->flops / rows, of_a_row);
  if (fabs(c->flops64 - flops64) > 1e-9 * flops64)
    fail_msg("%.17g operations in float64, expected %.17g", c->flops64, flops64);
}

/* Newton's four Hessians of the two fitted gates, and the correlation matrix, on 511 rows. */
static const double gates64 = 4 * 511.0 * (97 * 97 + 3 * 3) + 511 * 96.0 * 96;

/* Losses with layers 6 and 7 linear on two ranges; inputs of the MLPs on both; then every layer's
 * surrogate, the linear gate at two thresholds and pca at one, and behind them the oracles. */
static double gate_row(void) {
  const double single = 9 * layer + 3 * head + 2 * surrogate;
  const double inputs = 8 * layer;
  const double routed = 12 * layer + 9 * head + 2 * surrogate + 2 * (2 * linear + pca);
  const double oracles = 9 * layer + 3 * head + 2 * surrogate;
  return 2 * single + 2 * inputs + routed + oracles;
}

static void test_gate(void **state) {
  (void)state;
  const wm_cost_t c = cost_of("gate", 0, NULL);
  check_flops(&c, gate_row(), 2 * gates64);
}

/* Layer 7 once more, behind layer 6 as its linear gate routes it: a surrogate; losses of that model
 * and with layer 7 linear on two ranges; its gates; and that model with each of them. */
static void test_sequential_gates(void **state) {
  (void)state;
  static const char *const more[] = {"fit.sequential=true", "sweep.routed=([6,7])"};
  const wm_cost_t c = cost_of("gate", 2, more);
  const double fit = 2 * 8 * layer, half = 0.5 * instead;
  const double losses = 10 * layer + 3 * head + surrogate + 2 * linear + instead;
  const double inputs = 8 * layer;
  const double routed =
      12 * layer + 5 * head + surrogate + 4 * linear + 2 * linear + pca + 3 * half;
  check_flops(&c, gate_row() + fit + 2 * losses + 2 * inputs + routed,
              3 * gates64 + 3 * 96.0 * 96 * 2 * rows);
}

/* One layer's surrogate takes a pass up to it, a set's one after another a pass each. */
static void test_sequential_fit(void **state) {
  (void)state;
  static const char *const more[] = {"fit.sequential=true", "sweep.joint=([2,3])"};
  const wm_cost_t all = cost_of("fit", 0, NULL), set = cost_of("fit", 2, more);
  check_flops(&all, 2 * 8 * layer, 3 * 96.0 * 96 * 8 * 2 * rows);
  check_flops(&set, 2 * (8 + 3 + 4) * layer, 3 * 96.0 * 96 * (8 + 2) * 2 * rows);
}

/* Every layer linear; layers 6 and 7 by each gate, then by the oracles; and, when sets are made one
 * layer after another, each set again with its own surrogates. */
static void test_sweep(void **state) {
  (void)state;
  static const char *const plain[] = {"gate.enabled=false", "sweep.joint=([2,3])"};
  static const char *const again[] = {"gate.enabled=false", "sweep.joint=([2,3])",
                                      "fit.sequential=true"};
  const wm_cost_t c = cost_of("sweep", 2, plain), both = cost_of("sweep", 3, again);
  const wm_cost_t gated = cost_of("sweep", 0, NULL);
  const double singles = 8 * layer + 28 * layer + 9 * head + 8 * surrogate;
  const double set = 5 * layer + head + instead;
  check_flops(&c, singles + set, 0);
  check_flops(&both, singles + set + 8 * layer + 5 * layer + 2 * head + surrogate + instead, 0);
  const double routed = 2 * layer + 4 * head + 2 * (linear + pca);
  check_flops(&gated, singles + routed + 9 * layer + 3 * head + 2 * surrogate, 0);
}

/* Layer 6 on 511 positions, 70 % of which regressions are fitted to: 33 wide ones, six of |c|, and
 * the correlation matrix. Memory: what the job itself asks for, beside the weights. */
static void test_probe(void **state) {
  (void)state;
  static const char *const one[] = {"probe.layers=[6]", "ranges.evaluation.tokens=[1536,2048]"};
  static const char *const two[] = {"probe.layers=[6,7]", "probe.memory_gib=0.00105"};
  static const char *const held[] = {"probe.layers=[6,7]"};
  const double train = 0.7 * 511, surrogates = 3 * 96.0 * 96 * rows;
  const double probes = 4 * train * (33 * 97.0 * 97 + 6 * 2 * 2) + 511 * 96.0 * 96;
  const wm_cost_t c = cost_of("probe", 2, one), apart = cost_of("probe", 2, two),
                  together = cost_of("probe", 1, held);
  if (fabs(c.flops64 - probes - surrogates) > 1e-9 * probes)
    fail_msg("%.17g operations in float64, expected %.17g", c.flops64, probes + surrogates);
  const double a_layer = 511 * 96 * 4 + 511 * 4 * 8; /* inputs; four numbers a position */
  assert_true(together.memory - c.memory >= a_layer);
  assert_true(apart.memory <= together.memory - a_layer);
  assert_true(apart.flops >= together.flops + 8 * 511 * layer); /* a second pass of the model */
  const double weights = 4.0 * (8 * 12 * 96 * 96 + 3072 * 96), parts = 5 * 511 * 96 * 4;
  assert_true(c.memory >= weights + parts);
}

static double finetune_flops(const char *steps, const char *every) {
  const char *const settings[] = {"gate.enabled=false",
                                  "finetune.layers=[3]",
                                  "finetune.sequences=2",
                                  "finetune.length=256",
                                  steps,
                                  every};
  return cost_of("finetune", 6, settings).flops;
}

/* Two sequences of 256 fill a tile of 512 rows, the head takes one for each. A step: forward; back
 * through the head, its weights on 255 rows of each, two products more for each of every layer's,
 * one for the surrogate of layer 3, attention's five against two. An evaluation: a window of 512.
 */
static void test_finetune(void **state) {
  (void)state;
  const double dense = 8 * 96 * 96, mlp = 4 * 96 * 384, scores = 4 * 96 * 128.5;
  const double forward = rows * (8 * (dense + scores) + 7 * mlp + surrogate + 2 * head);
  const double backward = rows * (8 * (2 * dense + 2.5 * scores) + 7 * 2 * mlp + surrogate) +
                          rows * 2 * head + 2 * 255 * head;
  const double evaluation = rows * (8 * (dense + 4 * 96 * 256.5) + 7 * mlp + surrogate + head);
  const double ten = finetune_flops("finetune.steps=10", "finetune.evaluate_every=0");
  const double eleven = finetune_flops("finetune.steps=11", "finetune.evaluate_every=0");
  const double watched = finetune_flops("finetune.steps=10", "finetune.evaluate_every=4");
  assert_true(fabs((eleven - ten) / (forward + backward) - 1) < 1e-9);
  assert_true(fabs((watched - ten) / (2 * evaluation) - 1) < 1e-9);
  /* The full model, and the start and the end of the phase; the fit's passes. */
  const double full = rows * (8 * layer + head);
  const double rest = full + 2 * evaluation + rows * 2 * 4 * layer;
  assert_true(fabs(ten / (10 * (forward + backward) + rest) - 1) < 1e-9);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gate),           cmocka_unit_test(test_sequential_gates),
      cmocka_unit_test(test_sequential_fit), cmocka_unit_test(test_sweep),
      cmocka_unit_test(test_probe),          cmocka_unit_test(test_finetune)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
