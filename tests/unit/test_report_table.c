/* Tables, letter by letter. */
#include "wanamaker/report/table.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static wm_table_t *make(const wm_column_t *columns, int n) {
  wm_table_t *t;
  wm_error_t err = {0};
  if (wm_table_create(columns, n, &t, &err) != WM_OK)
    fail_msg("%s", err.message);
  return t;
}

static void expect(const wm_table_t *t, wm_table_format_t format, const char *expected) {
  char *text = NULL;
  size_t size = 0;
  wm_error_t err = {0};
  FILE *f = open_memstream(&text, &size);
  assert_non_null(f);
  assert_int_equal(wm_table_print(t, format, f, &err), WM_OK);
  fclose(f);
  assert_string_equal(text, expected);
  free(text);
}

static const wm_column_t sweep_columns[] = {{"layer", NULL, WM_ALIGN_RIGHT, 0},
                                            {"delta", "%", WM_ALIGN_RIGHT, 2},
                                            {"p", NULL, WM_ALIGN_RIGHT, -3},
                                            {"beats", NULL, WM_ALIGN_LEFT, 0}};

static wm_table_t *sweep(void) {
  wm_table_t *t = make(sweep_columns, 4);
  wm_table_int(t, 0);
  wm_table_float(t, 0.1);
  wm_table_float(t, 0.00019998);
  wm_table_text(t, "yes");
  wm_table_int(t, 11);
  wm_table_float(t, -1234.567);
  wm_table_float(t, NAN);
  wm_table_text(t, "");
  return t;
}

static void text(void **state) {
  (void)state;
  wm_table_t *t = sweep();
  expect(t, WM_TABLE_TEXT,
         "layer     delta       p  beats\n"
         "              %\n"
         "-----  --------  ------  -----\n"
         "    0      0.10  0.0002  yes\n"
         "   11  -1234.57       -\n");
  wm_table_free(t);
}

static void csv(void **state) {
  (void)state;
  wm_table_t *t = sweep();
  expect(t, WM_TABLE_CSV,
         "layer,delta (%),p,beats\n"
         "0,0.1,0.00019998,yes\n"
         "11,-1234.567,,\n");
  wm_table_free(t);

  const wm_column_t columns[] = {{"a,b", NULL, WM_ALIGN_LEFT, 0}, {"c", NULL, WM_ALIGN_LEFT, 0}};
  t = make(columns, 2);
  wm_table_text(t, "say \"x\"");
  wm_table_text(t, "two\nlines");
  wm_table_float(t, 1.0 / 3);
  wm_table_float(t, INFINITY);
  expect(t, WM_TABLE_CSV,
         "\"a,b\",c\n"
         "\"say \"\"x\"\"\",\"two\nlines\"\n"
         "0.3333333333333333,inf\n");
  wm_table_free(t);
}

static void markdown(void **state) {
  (void)state;
  const wm_column_t columns[] = {{"token", NULL, WM_ALIGN_LEFT, 0}, {"n", "K", WM_ALIGN_RIGHT, 0}};
  wm_table_t *t = make(columns, 2);
  wm_table_text(t, "a|b");
  wm_table_int(t, -3);
  wm_table_textf(t, "%d\t\\", 7);
  wm_table_int(t, INT64_MAX);
  expect(t, WM_TABLE_MARKDOWN,
         "| token |               n (K) |\n"
         "|-------|--------------------:|\n"
         "| a\\|b  |                  -3 |\n"
         "| 7 \\\\  | 9223372036854775807 |\n");
  wm_table_free(t);
}

/* What can't be printed as a number. */
static void words(void **state) {
  (void)state;
  const wm_column_t columns[] = {{"x", NULL, WM_ALIGN_RIGHT, 3}, {"y", NULL, WM_ALIGN_RIGHT, -3}};
  wm_table_t *t = make(columns, 2);
  wm_table_float(t, INFINITY);
  wm_table_float(t, NAN);
  wm_table_float(t, 1e300);
  wm_table_float(t, -INFINITY);
  expect(t, WM_TABLE_TEXT,
         "         x          y\n"
         "----------  ---------\n"
         "  overflow          -\n"
         "1.000e+300  -overflow\n");
  wm_table_free(t);
}

/* Widths are those on a terminal, not bytes. */
static void utf8(void **state) {
  (void)state;
  const wm_column_t columns[] = {{"Wörter", NULL, WM_ALIGN_LEFT, 0},
                                 {"λ", NULL, WM_ALIGN_RIGHT, 1}};
  wm_table_t *t = make(columns, 2);
  wm_table_text(t, "naïve");
  wm_table_float(t, 1);
  wm_table_text(t, "日本語"); /* six columns wide */
  wm_table_float(t, 22);
  wm_table_text(t, "e\xcc\x81"); /* combining accent */
  wm_table_float(t, 1e12);
  wm_table_text(t, "\xff\xc3"); /* ill-formed */
  wm_table_float(t, -0.25);
  expect(t, WM_TABLE_TEXT,
         "Wörter        λ\n"
         "------  -------\n"
         "naïve       1.0\n"
         "日本語     22.0\n"
         "e\xcc\x81       1.0e+12\n"
         "\xef\xbf\xbd\xef\xbf\xbd         -0.2\n");
  wm_table_free(t);
}

static void empty_and_long(void **state) {
  (void)state;
  const wm_column_t columns[] = {{"n", NULL, WM_ALIGN_RIGHT, 0}};
  wm_table_t *t = make(columns, 1);
  expect(t, WM_TABLE_TEXT, "n\n-\n");
  expect(t, WM_TABLE_CSV, "n\n");
  for (int i = 0; i < 1000; i++)
    wm_table_int(t, 5);
  static char expected[2100] = "n\n-\n";
  for (int i = 0; i < 1000; i++)
    strcpy(expected + 4 + 2 * i, "5\n");
  expect(t, WM_TABLE_TEXT, expected);
  wm_table_free(t);
  wm_table_free(NULL);
}

static void expect_refused(const char *path, const char *mode, const char *words) {
  wm_table_t *t = sweep();
  wm_error_t err = {0};
  FILE *f = fopen(path, mode);
  assert_non_null(f);
  assert_int_equal(wm_table_print(t, WM_TABLE_TEXT, f, &err), WM_ENVIRONMENT);
  if (strstr(err.message, words) == NULL)
    fail_msg("\"%s\" lacks \"%s\"", err.message, words);
  /* Once failed, it stays failed. */
  assert_int_equal(wm_table_print(t, WM_TABLE_CSV, f, &err), WM_ENVIRONMENT);
  fclose(f);
  wm_table_free(t);
}

static void write_errors(void **state) {
  (void)state;
  expect_refused("/dev/full", "w", "No space left on device");
  expect_refused("/dev/null", "r", "Bad file descriptor"); /* as a closed standard output */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(text),         cmocka_unit_test(csv),  cmocka_unit_test(markdown),
      cmocka_unit_test(words),        cmocka_unit_test(utf8), cmocka_unit_test(empty_and_long),
      cmocka_unit_test(write_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
