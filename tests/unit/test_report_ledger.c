/* CSV, the study's tables in the program, and verdicts of claims on made-up results. */
#include "report_fixture.h"

static wm_error_t err;

static void test_csv(void **state) {
  (void)state;
  wm_csv_t csv;
  assert_int_equal(wm_csv_parse("a,b\n\"1,\"\"x\"\"\",2.5\r\n,\"two\nlines\"", "t", &csv, &err),
                   WM_OK);
  assert_int_equal(csv.n, 2);
  assert_string_equal(wm_csv_text(&csv, 0, "a"), "1,\"x\"");
  assert_true(wm_csv_number(&csv, 0, "b") == 2.5);
  assert_string_equal(wm_csv_text(&csv, 1, "a"), "");
  assert_true(isnan(wm_csv_number(&csv, 1, "a")));
  assert_string_equal(wm_csv_text(&csv, 1, "b"), "two\nlines");
  assert_string_equal(wm_csv_text(&csv, 2, "b"), "");
  wm_csv_destroy(&csv);
  assert_int_equal(wm_csv_parse("a,b\n1\n", "t", &csv, &err), WM_INPUT);
  assert_string_equal(err.message, "t: row 2 has 1 cells instead of 2");
}

static void test_published(void **state) {
  (void)state;
  wm_published_t p;
  assert_int_equal(wm_published_read(&p, &err), WM_OK);
  assert_int_equal(p.claims.n, WM_CLAIMS);
  assert_string_equal(wm_csv_text(&p.claims, 20, "claim"), "C21");
  int64_t row = wm_published_layer(&p, "gpt2-large", 0, "all-linear");
  assert_true(wm_csv_number(&p.layers, row, "delta_pct") == 1.77);
  assert_int_equal(wm_published_layer(&p, "gpt2-large", 99, "all-linear"), -1);
  assert_string_equal(wm_published_model("GPT-2", 24, 1024, 30), "gpt2-medium");
  assert_null(wm_published_model("GPT-2", 24, 1024, 50000)); /* drawn weights */
  assert_null(wm_published_model("GPT-2", 8, 96, 30));
  wm_published_destroy(&p);
}

/* --- results of a shape, with every layer's cost and interval ------------------------------------
 */

static void texts(wm_frame_t *f, const char *name, const char *first, bool numbered) {
  char *text = words(f, name);
  for (int64_t i = 0; i < f->n; i++)
    if (i == 0 || !numbered)
      snprintf(text + 16 * i, 16, "%s", i == 0 ? first : "surrogate");
    else
      snprintf(text + 16 * i, 16, "%d", (int)i - 1);
}

/* Layer l costs cost(l) with an interval of +- half. */
static wm_results_t make(const char *family, const char *layers, const char *width, double half,
                         double (*cost)(int64_t)) {
  wm_results_t r = {.tolerance = 3, .n_units = 50};
  attribute(&r, "model_family", family);
  attribute(&r, "model_layers", layers);
  attribute(&r, "model_width", width);
  r.variants.n = 1 + strtoll(layers, NULL, 10);
  double *delta = column(&r.variants, "delta_pct"), *low = column(&r.variants, "low");
  double *high = column(&r.variants, "high"), *ppl = column(&r.variants, "ppl");
  texts(&r.variants, "layers", "full", true);
  texts(&r.variants, "path", "full", false);
  for (int64_t v = 0; v < r.variants.n; v++) {
    delta[v] = v > 0 ? cost(v - 1) : 0;
    low[v] = delta[v] - half;
    high[v] = delta[v] + half;
    ppl[v] = 20;
  }
  assert_int_equal(wm_results_derive(&r, &err), WM_OK);
  return r;
}

static double cheap(int64_t layer) {
  return layer < 20 ? 1 : 10;
}

static double near(int64_t layer) {
  return layer < 20 ? 2.9 : 10;
}

static double dear(int64_t layer) {
  return layer < 5 ? 1 : 10;
}

static void judge(const char *layers, double (*cost)(int64_t), wm_claim_verdict_t verdict,
                  bool same) {
  wm_published_t p;
  wm_claim_t claims[WM_CLAIMS];
  wm_results_t r = make("GPT-2", layers, "1024", 0.5, cost);
  assert_int_equal(wm_published_read(&p, &err), WM_OK);
  assert_int_equal(wm_ledger(&p, &r, 1, claims, &err), WM_OK);
  assert_int_equal(claims[0].verdict, verdict);
  assert_int_equal(claims[0].same_model, same);
  assert_int_equal(claims[0].on, 0);
  for (int c = 1; c < WM_CLAIMS; c++) /* all others are about other models, or need other files */
    assert_int_equal(claims[c].verdict, WM_NOT_TESTED);
  wm_results_destroy(&r);
  wm_published_destroy(&p);
}

static void test_verdicts(void **state) {
  (void)state;
  judge("24", cheap, WM_REPRODUCED, true);    /* 20 of 24 surely below 3 % */
  judge("24", near, WM_NOT_REPRODUCED, true); /* their intervals end above it */
  judge("24", dear, WM_CONTRADICTED, true);   /* 5 of 24, and no more could be */
  judge("8", cheap, WM_NOT_TESTED, false);    /* another model */
}

static void test_layers(void **state) {
  (void)state;
  wm_results_t r = make("GPT-2", "24", "1024", 0.5, near);
  assert_int_equal(r.overview.measured, 24);
  assert_int_equal(r.overview.undecided, 20);
  assert_int_equal(r.overview.needed, 4);
  assert_true(r.overview.median_cost == 2.9);
  r.n_units = 9; /* too few to tell */
  assert_int_equal(wm_results_derive(&r, &err), WM_OK);
  assert_int_equal(r.overview.undecided, 24);
  wm_results_destroy(&r);
}

/* --- a progressive plan -------------------------------------------------------------------------
 */

/* A progressive plan of n layers on top of a sweep: perplexity changes by change(k) % with an
 * interval of +- half at the end of the phase in which k + 1 layers are linear, by twice as much at
 * its start. */
static wm_results_t train(const char *steps_of_a_layer, int n, double half, double (*change)(int)) {
  wm_results_t r = make("GPT-2", "24", "1024", 0.5, cheap);
  wm_training_result_t *t = &r.training;
  attribute_of(&r, WM_FILE_FINETUNE, "plan", "progressive");
  attribute_of(&r, WM_FILE_FINETUNE, "length", "128");
  attribute_of(&r, WM_FILE_FINETUNE, "sequences", "1");
  t->n = 1;
  snprintf(t->ranges[0].name, sizeof t->ranges[0].name, "evaluation");
  t->phases.n = n + 1;
  t->ranges[0].table.n = 1 + 2 * n;
  double *linear = column(&t->phases, "linear"), *steps = column(&t->phases, "steps");
  double *delta = column(&t->ranges[0].table, "delta_pct");
  double *low = column(&t->ranges[0].table, "low"), *high = column(&t->ranges[0].table, "high");
  double *ppl = column(&t->ranges[0].table, "ppl");
  column(&t->ranges[0].table, "hard");
  ppl[0] = 20;
  texts(&t->phases, "name", "", false);
  texts(&t->ranges[0].table, "name", "full model", false);
  char *phase = t->phases.columns[t->phases.n_columns - 1].texts;
  char *row = t->ranges[0].table.columns[t->ranges[0].table.n_columns - 1].texts;
  for (int k = 0; k <= n; k++) {
    linear[k] = k < n ? k + 1 : n;
    steps[k] = k < n ? strtod(steps_of_a_layer, NULL) : 200;
    snprintf(phase + 16 * k, 16, k < n ? "layer %d" : "all", k);
  }
  for (int i = 1; i <= 2 * n; i++) {
    const int k = (i - 1) / 2;
    snprintf(row + 16 * i, 16, "layer %u, %s", (unsigned)k % 10, i % 2 == 1 ? "start" : "end");
    delta[i] = change(k) * (i % 2 == 1 ? 2 : 1);
    low[i] = delta[i] - half;
    high[i] = delta[i] + half;
  }
  return r;
}

static double six(int k) {
  return k < 6 ? -1 : 1;
}

static double four(int k) {
  return k < 4 ? -1 : 1;
}

static void judge_progressive(const char *steps, int n, double half, double (*change)(int),
                              double value, double low, double high, wm_claim_verdict_t verdict,
                              const char *reason) {
  wm_published_t p;
  wm_claim_t claims[WM_CLAIMS];
  wm_results_t r = train(steps, n, half, change);
  assert_int_equal(wm_published_read(&p, &err), WM_OK);
  assert_int_equal(wm_ledger(&p, &r, 1, claims, &err), WM_OK);
  const wm_claim_t *c = claim(claims, &p, "C14");
  assert_int_equal(c->verdict, verdict);
  assert_string_equal(c->reason, reason);
  assert_true(c->value == value && c->low == low && c->high == high);
  assert_true(c->same_model);
  wm_results_destroy(&r);
  wm_published_destroy(&p);
}

static void test_progressive(void **state) {
  (void)state;
  judge_progressive("50", 8, 0.5, six, 6, 6, 6, WM_REPRODUCED, "");
  judge_progressive("50", 8, 2, six, 6, 0, 8, WM_NOT_REPRODUCED, ""); /* all intervals hold zero */
  judge_progressive("50", 8, 0.5, four, 4, 4, 4, WM_CONTRADICTED, "");
  judge_progressive("50", 4, 0.5, four, 4, 4, 4, WM_NOT_TESTED,
                    "no more than 4 layers are made linear, the claim is of 5");
  judge_progressive("49", 8, 0.5, six, 6, 6, 6, WM_NOT_TESTED,
                    "a layer trains on 6272 tokens, in the study on 6400");
  judge_progressive("50", 8, NAN, six, 6, 0, 0, WM_NOT_TESTED, "8 phases end without an interval");
}

/* Of several results of the claim's model, one that tests it. */
static void test_choice(void **state) {
  (void)state;
  wm_published_t p;
  wm_claim_t claims[WM_CLAIMS];
  wm_results_t r[] = {train("50", 4, 0.5, four), train("50", 8, 0.5, six)};
  wm_frame_destroy(
      &r[1].variants); /* without a sweep, too: the training has the model's perplexity */
  assert_int_equal(wm_results_derive(&r[1], &err), WM_OK);
  assert_int_equal(wm_published_read(&p, &err), WM_OK);
  assert_int_equal(wm_ledger(&p, r, 2, claims, &err), WM_OK);
  const wm_claim_t *c = claim(claims, &p, "C14");
  assert_int_equal(c->on, 1);
  assert_int_equal(c->verdict, WM_REPRODUCED);
  for (int i = 0; i < 2; i++)
    wm_results_destroy(&r[i]);
  wm_published_destroy(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_csv),         cmocka_unit_test(test_published),
      cmocka_unit_test(test_verdicts),    cmocka_unit_test(test_layers),
      cmocka_unit_test(test_progressive), cmocka_unit_test(test_choice)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
