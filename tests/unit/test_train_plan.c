/* Plans of fine-tuning as phases. */
#include "wanamaker/train/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const int64_t chosen[] = {2, 1, 3};
static const uint32_t inside = 1u << WM_GROUP_ATTENTION | 1u << WM_GROUP_MLP;

static wm_plan_settings_t settings(wm_plan_kind_t kind, wm_plan_kind_t subject) {
  return (wm_plan_settings_t){.kind = kind,
                              .subject = subject,
                              .layers = chosen,
                              .n_layers = 3,
                              .model_layers = 5,
                              .tied_head = true,
                              .steps = 100,
                              .layer_steps = 10,
                              .gate_steps = 40,
                              .schedule = {WM_SCHEDULE_COSINE, 1e-3, 1e-4, 0, 0},
                              .gate_schedule = {WM_SCHEDULE_COSINE, 1e-2, 0, 0, 0},
                              .adamw = {0.9, 0.999, 1e-8, 0.01},
                              .penalty = 0.1,
                              .penalty_after = 0.1};
}

static wm_plan_t make(wm_plan_kind_t kind, wm_plan_kind_t subject) {
  const wm_plan_settings_t s = settings(kind, subject);
  wm_plan_t plan;
  wm_error_t err = {0};
  assert_int_equal(wm_plan_create(&s, &plan, &err), WM_OK);
  return plan;
}

/* modes: a letter for each layer: full, frozen (z), linear, gated. */
static void check_phase(const wm_phase_t *p, const char *modes, int64_t first, int64_t steps,
                        int64_t data, uint32_t groups) {
  for (size_t l = 0; l < strlen(modes); l++)
    assert_int_equal(p->modes[l], modes[l] == 'f'   ? WM_MODE_FULL
                                  : modes[l] == 'z' ? WM_MODE_FROZEN
                                  : modes[l] == 'l' ? WM_MODE_LINEAR
                                                    : WM_MODE_GATED);
  assert_int_equal(p->first_step, first);
  assert_int_equal(p->steps, steps);
  assert_int_equal(p->first_data, data);
  assert_int_equal(p->groups, groups);
}

static const uint32_t study =
    inside | 1u << WM_GROUP_TOKENS | 1u << WM_GROUP_NORMS | 1u << WM_GROUP_FINAL_NORM;

static void test_linearize(void **state) {
  (void)state;
  wm_plan_t plan = make(WM_PLAN_LINEARIZE, WM_PLAN_LINEARIZE);
  assert_int_equal(plan.n, 1);
  check_phase(&plan.phases[0], "flllf", 0, 100, 0, study);
  assert_int_equal(plan.phases[0].schedule.total_steps, 100);
  wm_plan_destroy(&plan);
}

static void test_progressive(void **state) {
  (void)state;
  const uint32_t groups = inside | 1u << WM_GROUP_TOKENS;
  wm_plan_t plan = make(WM_PLAN_PROGRESSIVE, WM_PLAN_LINEARIZE);
  assert_int_equal(plan.n, 4);
  check_phase(&plan.phases[0], "fflff", 0, 10, 0, groups);
  check_phase(&plan.phases[1], "fllff", 10, 10, 10, groups);
  check_phase(&plan.phases[2], "flllf", 20, 10, 20, groups);
  check_phase(&plan.phases[3], "flllf", 30, 100, 30, groups);
  assert_int_equal(plan.steps, 130);
  assert_int_equal(wm_plan_data_steps(&plan), 130);
  wm_plan_destroy(&plan);
}

static void test_two_phase(void **state) {
  (void)state;
  wm_plan_t plan = make(WM_PLAN_TWO_PHASE, WM_PLAN_LINEARIZE);
  assert_int_equal(plan.n, 2);
  check_phase(&plan.phases[0], "flllf", 0, 100, 0, study);
  check_phase(&plan.phases[1], "fgggf", 100, 40, 0, 1u << WM_GROUP_GATES);
  assert_true(plan.phases[1].adamw.weight_decay == 0 && plan.phases[1].schedule.rate == 1e-2);
  assert_true(plan.phases[1].penalty == 0.1 && plan.phases[1].penalty_from == 4);
  assert_true(plan.phases[0].penalty == 0);
  assert_int_equal(wm_plan_data_steps(&plan), 100);
  wm_plan_destroy(&plan);
}

/* The same steps and data with nothing linearised. */
static void test_controls(void **state) {
  (void)state;
  wm_plan_t plan = make(WM_PLAN_CONTROL, WM_PLAN_PROGRESSIVE);
  assert_int_equal(plan.n, 4);
  check_phase(&plan.phases[1], "fzzff", 10, 10, 10, inside | 1u << WM_GROUP_TOKENS);
  wm_plan_destroy(&plan);
  plan = make(WM_PLAN_CONTROL, WM_PLAN_TWO_PHASE);
  assert_int_equal(plan.n, 2);
  check_phase(&plan.phases[1], "fzzzf", 100, 40, 0, study);
  assert_true(plan.phases[1].schedule.kind == WM_SCHEDULE_CONSTANT &&
              plan.phases[1].schedule.rate == 1e-4 && plan.phases[1].penalty == 0);
  wm_plan_destroy(&plan);
  plan = make(WM_PLAN_CONTROL_STUDY, WM_PLAN_LINEARIZE);
  check_phase(&plan.phases[0], "fffff", 0, 100, 0, (1u << WM_GROUP_COUNT) - 1);
  wm_plan_destroy(&plan);
}

/* Gates that were drawn at random train whatever groups are named beside them. */
static void test_pretrain(void **state) {
  (void)state;
  const uint32_t gates = 1u << WM_GROUP_GATES;
  wm_plan_settings_t s = settings(WM_PLAN_PRETRAIN, WM_PLAN_LINEARIZE);
  wm_plan_t plan;
  wm_error_t err = {0};
  s.gated = true;
  s.groups = inside;
  assert_int_equal(wm_plan_create(&s, &plan, &err), WM_OK);
  check_phase(&plan.phases[0], "fgggf", 0, 100, 0, inside | gates);
  wm_plan_destroy(&plan);
  s.groups = 0;
  assert_int_equal(wm_plan_create(&s, &plan, &err), WM_OK);
  check_phase(&plan.phases[0], "fgggf", 0, 100, 0, (1u << WM_GROUP_COUNT) - 1);
  wm_plan_destroy(&plan);
}

static void test_centre_outward(void **state) {
  (void)state;
  static const int64_t even[] = {12, 11, 13, 10, 14}, odd[] = {2, 1, 3, 0, 4};
  int64_t order[24];
  wm_plan_centre_outward(24, order);
  assert_memory_equal(order, even, sizeof even);
  assert_int_equal(order[23], 0);
  wm_plan_centre_outward(5, order);
  assert_memory_equal(order, odd, sizeof odd);
  wm_plan_centre_outward(1, order);
  assert_int_equal(order[0], 0);
}

static void refuse(wm_plan_settings_t s, const char *word) {
  wm_plan_t plan;
  wm_error_t err = {0};
  assert_int_equal(wm_plan_create(&s, &plan, &err), WM_USAGE);
  if (strstr(err.message, word) == NULL)
    fail_msg("\"%s\" is not in: %s", word, err.message);
}

static void test_refusals(void **state) {
  (void)state;
  static const int64_t twice[] = {1, 1}, beyond[] = {5};
  wm_plan_settings_t s = settings(WM_PLAN_LINEARIZE, WM_PLAN_LINEARIZE);
  s.n_layers = 0;
  refuse(s, "needs layers");
  s.layers = twice;
  s.n_layers = 2;
  refuse(s, "named twice");
  s.layers = beyond;
  s.n_layers = 1;
  refuse(s, "layer 5 does not exist");
  s = settings(WM_PLAN_LINEARIZE, WM_PLAN_LINEARIZE);
  s.schedule.warm_up = 101;
  refuse(s, "finetune.warm_up = 101");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pretrain),    cmocka_unit_test(test_linearize),
      cmocka_unit_test(test_progressive), cmocka_unit_test(test_two_phase),
      cmocka_unit_test(test_controls),    cmocka_unit_test(test_centre_outward),
      cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
