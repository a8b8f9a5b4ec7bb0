/* Plans against their controls on made-up comparisons: verdicts, why there is none, speed, and what
 * the terminal and the comparison of two runs say. */
#include "report_fixture.h"

#include "wanamaker/report/comparison.h"
#include "wanamaker/report/report.h"

static wm_error_t err;

/* A model of a range, as finetune.compare.h5 has it. */
typedef struct {
  const char *name;
  double ppl, delta, half, p, units;
} row_t;

enum { NAME = 49 };

#define CONFIDENCE(value) "bootstrap: {\n  resamples = 10000;\n  confidence = " value ";\n};\n"

static wm_results_t compared(const row_t *rows, int64_t n, const char *configuration) {
  wm_results_t r = {.dir = strdup("here"), .label = strdup("model")};
  wm_frame_t *f = &r.comparison;
  f->n = n;
  char *name = wide_words(f, "name", NAME);
  double *ppl = column(f, "ppl"), *delta = column(f, "delta_pct"), *low = column(f, "low");
  double *high = column(f, "high"), *p = column(f, "p_two_sided"), *holm = column(f, "p_holm");
  double *units = column(f, "units");
  for (int64_t i = 0; i < n; i++) {
    snprintf(name + NAME * i, NAME, "%s", rows[i].name);
    ppl[i] = rows[i].ppl;
    delta[i] = rows[i].delta;
    low[i] = delta[i] - rows[i].half;
    high[i] = delta[i] + rows[i].half;
    p[i] = holm[i] = rows[i].p;
    units[i] = rows[i].units;
  }
  r.files[WM_FILE_COMPARE].state = WM_FILE_READ;
  attribute_of(&r, WM_FILE_COMPARE, "configuration", configuration);
  return r;
}

static void expect(double delta, double half, double p, double units, const char *configuration,
                   wm_standing_t standing) {
  const row_t rows[] = {{"control: evaluation", 20, 0, NAN, NAN, units},
                        {"plan: evaluation", 20 * (1 + delta / 100), delta, half, p, units}};
  wm_results_t r = compared(rows, 2, configuration);
  wm_against_t a;
  assert_false(wm_against(&r, 0, &a)); /* the control itself */
  assert_false(wm_against(&r, 2, &a));
  assert_true(wm_against_evaluation(&r, &a));
  assert_int_equal(a.standing, standing);
  assert_true(a.control_ppl == 20 && a.ppl == 20 * (1 + delta / 100) && !a.hard);
  wm_results_destroy(&r);
}

static void test_verdicts(void **state) {
  (void)state;
  expect(-2, 1, 0.01, 50, CONFIDENCE("0.95"), WM_BETTER);
  expect(2, 1, 0.01, 50, CONFIDENCE("0.95"), WM_WORSE);
  expect(2, 3, 0.2, 50, CONFIDENCE("0.95"), WM_SAME);
  expect(2, 1, 0.06, 50, CONFIDENCE("0.95"), WM_SAME); /* an interval without zero, then Holm */
  expect(2, 1, 0.06, 50, CONFIDENCE("0.9"), WM_WORSE);
  expect(2, 1, 0.02, 50, CONFIDENCE("0.99"), WM_SAME);
  expect(-2, 1, 0.01, 10, CONFIDENCE("0.95"), WM_BETTER);
  expect(-2, 1, 0.01, 9, CONFIDENCE("0.95"), WM_SAME); /* too few to tell */
  expect(-2, NAN, 0.01, 50, CONFIDENCE("0.95"), WM_UNJUDGED);
  expect(-2, 1, NAN, 50, CONFIDENCE("0.95"), WM_UNJUDGED);
  expect(-2, 1, 0.01, NAN, CONFIDENCE("0.95"), WM_UNJUDGED);
  expect(-2, 1, 0.01, 50, "sweep: {\n  confidence = 0.95;\n};\n", WM_UNJUDGED);
  expect(INFINITY, 1, 0.01, 50, CONFIDENCE("0.95"), WM_WORSE); /* a perplexity beyond float64 */
}

/* The range is the plan's word where gates leave less room for its name. */
static void test_ranges(void **state) {
  (void)state;
  const row_t rows[] = {
      {"control: evaluation", 20, 0, NAN, NAN, 50},
      {"plan: evaluation", 21, 5, 1, 0.01, 50},
      {"plan, gates that decide: evaluation", 22, 10, 1, 0.01, 50},
      {"control: evaluation_of_another_corpus", 30, 0, NAN, NAN, 50},
      {"plan: evaluation_of_another_corpus", 27, -10, 1, 0.01, 50},
      {"plan, gates that decide: evaluation_of_another_corpus", 33, 10, 20, 0.4, 50}};
  wm_results_t r = compared(rows, 6, CONFIDENCE("0.95"));
  wm_against_t a;
  assert_true(wm_against(&r, 2, &a));
  assert_true(a.hard && a.standing == WM_WORSE && a.control_ppl == 20);
  assert_true(wm_against(&r, 5, &a));
  assert_string_equal(a.range, "evaluation_of_another_corpus");
  assert_true(a.hard && a.standing == WM_SAME && a.control_ppl == 30 && a.ppl == 33);
  assert_true(wm_against_evaluation(&r, &a));
  assert_true(!a.hard && a.ppl == 21);
  wm_results_destroy(&r);
}

/* --- without a comparison --- */

static wm_results_t trained(const char *plan, const char *tokens, const char *control_tokens) {
  wm_results_t r = {.dir = strdup("here"), .label = strdup("model")};
  r.training.n = 1;
  snprintf(r.training.ranges[0].name, WM_FRAME_NAME, "evaluation");
  r.files[WM_FILE_FINETUNE].state = WM_FILE_READ;
  attribute_of(&r, WM_FILE_FINETUNE, "plan", plan);
  attribute_of(&r, WM_FILE_FINETUNE, "tokens_seen", tokens);
  attribute_of(&r, WM_FILE_FINETUNE, "chain", "0123456789abcdef");
  if (control_tokens == NULL)
    return r;
  r.control.n = 1;
  r.files[WM_FILE_CONTROL].state = WM_FILE_READ;
  attribute_of(&r, WM_FILE_CONTROL, "tokens_seen", control_tokens);
  attribute_of(&r, WM_FILE_CONTROL, "chain", "0123456789abcdef");
  return r;
}

static void expect_state(const char *plan, const char *control_tokens, wm_file_state_t comparison,
                         const char *state, bool rival) {
  wm_results_t r = trained(plan, "1280", control_tokens);
  r.files[WM_FILE_COMPARE].state = comparison;
  assert_string_equal(wm_against_state(&r), state);
  assert_int_equal(wm_training_has_rival(&r), rival);
  wm_results_destroy(&r);
}

static void test_states(void **state) {
  (void)state;
  expect_state("linearize", "1280", WM_FILE_READ, "compared", true);
  expect_state("linearize", "1280", WM_FILE_MISSING, "not compared yet", true);
  expect_state("linearize", "1280", WM_FILE_BAD, "comparison refused", true);
  expect_state("two_phase", "640", WM_FILE_MISSING, "control saw other tokens", true);
  expect_state("two_phase", "640", WM_FILE_BAD, "control saw other tokens", true);
  expect_state("progressive", NULL, WM_FILE_MISSING, "no control here", true);
  expect_state("control_study", NULL, WM_FILE_MISSING, "no control here", false);
  expect_state("pretrain", NULL, WM_FILE_MISSING, "no control here", false);
}

/* --- speed --- */

static void test_speed(void **state) {
  (void)state;
  wm_results_t r = trained("linearize", "1280", "1280");
  r.control.timing.n = 3;
  double *seconds = column(&r.control.timing, "seconds");
  seconds[0] = 0.5;
  seconds[1] = 2;
  seconds[2] = 0.25;
  attribute_of(&r, WM_FILE_CONTROL, "ranks", "6");
  attribute_of(&r, WM_FILE_CONTROL, "step_seconds", "0.5");
  attribute_of(&r, WM_FILE_CONTROL, "exposed_percent", "12.5");
  wm_training_speed_t s = wm_training_speed(&r, WM_FILE_CONTROL);
  assert_true(s.ranks == 6 && s.median == 0.5 && s.longest == 2 && s.exposed == 12.5);
  assert_true(isnan(s.tokens_per_second) &&
              isnan(s.read_tokens_per_second)); /* not told: no zero */
  s = wm_training_speed(&r, WM_FILE_FINETUNE);
  assert_true(isnan(s.ranks) && isnan(s.median) && isnan(s.longest));
  wm_results_destroy(&r);
}

/* --- what is printed --- */

static void expect_line(wm_results_t *r, const char *line) {
  char *text = NULL;
  size_t size;
  wm_claim_t claims[WM_CLAIMS] = {0};
  const wm_report_t report = {.results = r, .n = 1, .claims = claims};
  FILE *out = open_memstream(&text, &size);
  assert_int_equal(wm_report_print(&report, out, &err), WM_OK);
  fclose(out);
  if (line == NULL ? strstr(text, "against control") != NULL : strstr(text, line) == NULL)
    fail_msg("%s", text);
  free(text);
  wm_results_destroy(r);
}

static void test_terminal(void **state) {
  (void)state;
  const row_t rows[] = {{"control: evaluation", 20, 0, NAN, NAN, 50},
                        {"plan: evaluation", 20.4, 2, 0.5, 0.01, 50}};
  const row_t nothing[] = {{"control: evaluation", 20, 0, NAN, NAN, 50},
                           {"plan: evaluation", NAN, NAN, NAN, NAN, 50}};
  wm_results_t r = compared(rows, 2, CONFIDENCE("0.9"));
  expect_line(&r, "model: plan against control at equal tokens: worse than its control, +2.00 %, "
                  "90 % interval [1.500, 2.500]\n");
  r = compared(nothing, 2, CONFIDENCE("0.95"));
  expect_line(&r, "plan against control at equal tokens: not judged\n");
  r = trained("linearize", "1280", "1280");
  expect_line(&r, "plan against control at equal tokens: not compared yet; finetune.compare=true "
                  "does it\n");
  r = trained("linearize", "1280", "640");
  expect_line(&r, "plan against control at equal tokens: control saw other tokens\n");
  r = trained("control", "1280", NULL);
  expect_line(&r, NULL);
}

/* The line that begins like this. */
static void line_of(const char *text, const char *begin, char line[256]) {
  const char *at = strstr(text, begin);
  if (at == NULL)
    fail_msg("no line \"%s\" in %s", begin + 1, text);
  else
    snprintf(line, 256, "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
}

static void test_two_runs(void **state) {
  (void)state;
  const row_t left[] = {{"control: evaluation", 20, 0, NAN, NAN, 50},
                        {"plan: evaluation", 20.4, 2, 0.5, 0.01, 50},
                        {"control: evaluation_more", 20, 0, NAN, NAN, 50},
                        {"plan: evaluation_more", 20.4, 2, 0.5, 0.01, 50}};
  const row_t right[] = {{"control: evaluation", 20, 0, NAN, NAN, 50},
                         {"plan: evaluation", 20.2, 1, 1.5, 0.2, 50},
                         {"plan, gates that decide: evaluation", 20.8, 4, 0.5, 0.01, 50}};
  wm_results_t a = compared(left, 4, CONFIDENCE("0.95"));
  wm_results_t b = compared(right, 3, CONFIDENCE("0.95"));
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  assert_int_equal(wm_comparison_print(&a, &b, out, &err), WM_OK);
  fclose(out);
  const char *at = strstr(text, "\nPlan against its control at equal tokens\n");
  assert_non_null(at);
  char first[256], second[256], third[256];
  line_of(at, "\nevaluation ", first);
  line_of(at, "\nevaluation_more ", second);
  line_of(at, "\nevaluation, gates", third);
  assert_non_null(strstr(first, "worse than its control"));
  assert_non_null(strstr(first, "cannot be told apart"));
  assert_non_null(strstr(first, "-1.000  verdict differs"));
  assert_non_null(strstr(second, "in one only"));
  assert_non_null(strstr(third, "in one only"));
  free(text);
  wm_results_destroy(&a);
  wm_results_destroy(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_verdicts), cmocka_unit_test(test_ranges),
      cmocka_unit_test(test_states),   cmocka_unit_test(test_speed),
      cmocka_unit_test(test_terminal), cmocka_unit_test(test_two_runs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
