/* JSON that no file should hold: every reader of JSON goes through wm_json_load or wm_json_parse,
 * so what they refuse, with the place, all readers refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wanamaker/base/json.h"

static wm_error_t err;

static void refuse(const char *text, size_t bytes, const char *place, const char *what) {
  json_t *json;
  memset(&err, 0, sizeof err);
  assert_int_equal(wm_json_parse(text, bytes, "f.json", &json, &err), WM_INPUT);
  assert_null(json);
  if (strstr(err.message, place) == NULL || strstr(err.message, what) == NULL)
    fail_msg("\"%s\" names not \"%s\" and \"%s\"", err.message, place, what);
}

static void test_refused(void **state) {
  (void)state;
  static const struct {
    const char *text, *place, *what;
  } cases[] = {
      {"", "f.json:1:0: not valid JSON", "expected near end of file"},
      {"{\"a\": 1", "f.json:1:7", "near end of file"},
      {"{\"a\": 1}\n}", "f.json:2:1", "end of file expected near '}'"},
      {"{\"a\": 1,\n \"b\": {},\n \"a\": 2}", "f.json:3:4", "duplicate object key near '\"a\"'"},
      {"{\"a\": {\"b\": 1, \"b\": 1}}", "f.json:1:18", "duplicate object key"},
      {"[1e999]", "f.json:1:6", "real number overflow"},
      {"[-1e999]", "f.json:1:7", "real number overflow"},
      {"[99999999999999999999]", "f.json:1:21", "too big integer"},
      {"[-99999999999999999999]", "f.json:1:22", "too big negative integer"},
      {"[9223372036854775808]", "f.json:1:20", "too big integer"},
      {"[01]", "f.json:1:2", "invalid token near '0'"},
      {"[1.]", "f.json:1:3", "invalid token near '1.'"},
      {"[.5]", "f.json:1:2", "invalid token near '.'"},
      {"[+1]", "f.json:1:2", "invalid token near '+'"},
      {"[0x10]", "f.json:1:3", "']' expected near 'x'"},
      {"[NaN]", "f.json:1:4", "invalid token near 'NaN'"},
      {"[Infinity]", "f.json:1:9", "invalid token near 'Infinity'"},
      {"{'a': 1}", "f.json:1:2", "string or '}' expected"},
      {"{\"a\": 1,}", "f.json:1:9", "string or '}' expected"},
      {"[\"\\u0000\"]", "f.json:1:9", "\\u0000 is not allowed"},
      {"[\"\\ud800\"]", "f.json:1:9", "invalid Unicode"},
      {"[\"\xff\"]", "f.json:1:", "unable to decode byte 0xff"},
      {"[\"a\nb\"]", "f.json:1:3", "unexpected newline"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    refuse(cases[i].text, strlen(cases[i].text), cases[i].place, cases[i].what);
  refuse("{}\0\0\0", 5, "f.json:1:", "end of file expected"); /* padded with NUL */
  refuse("[\"a\0b\"]", 7, "f.json:1:", "control character 0x0");
}

/* A parser that calls itself for every bracket would run out of stack. */
static void test_deep(void **state) {
  (void)state;
  enum { DEPTH = 100000 };
  static const char *const openings[] = {"[", "{\"a\":"};
  for (int kind = 0; kind < 2; kind++) {
    size_t n = strlen(openings[kind]);
    char *text = malloc(DEPTH * n);
    assert_non_null(text);
    for (size_t i = 0; i < DEPTH; i++)
      memcpy(text + i * n, openings[kind], n);
    refuse(text, DEPTH * n, "f.json:1:", "maximum parsing depth reached");
    free(text);
  }
}

static void test_long_string(void **state) {
  (void)state;
  enum { BYTES = 64 << 20 };
  char *text = malloc(BYTES);
  assert_non_null(text);
  memset(text, 'x', BYTES);
  text[0] = '[';
  text[1] = text[BYTES - 2] = '"';
  text[BYTES - 1] = ']';
  json_t *json;
  assert_int_equal(wm_json_parse(text, BYTES, "f.json", &json, &err), WM_OK);
  assert_int_equal(json_string_length(json_array_get(json, 0)), BYTES - 4);
  json_decref(json);
  refuse(text, BYTES - 2,
         "f.json:1:", "premature end of input"); /* the message is cut, not the stack */
  free(text);
}

static void test_getters(void **state) {
  (void)state;
  static const char text[] =
      "{\"i\": -0, \"r\": 1.5, \"e\": 1e2, \"s\": \"x\", \"n\": null, \"t\": true,"
      " \"min\": -9223372036854775808}";
  json_t *json;
  int64_t i = 7;
  double r = 7;
  bool b = false;
  const char *s = "unchanged";
  assert_int_equal(wm_json_parse(text, strlen(text), "f.json", &json, &err), WM_OK);
  assert_int_equal(wm_json_get_int(json, "f.json", "i", true, &i, &err), WM_OK);
  assert_int_equal(i, 0);
  assert_int_equal(wm_json_get_int(json, "f.json", "min", true, &i, &err), WM_OK);
  assert_true(i == INT64_MIN);
  assert_int_equal(wm_json_get_int(json, "f.json", "r", true, &i, &err), WM_INPUT);
  assert_string_equal(err.message, "f.json: \"r\" must be an integer, but is a number");
  assert_int_equal(wm_json_get_int(json, "f.json", "e", true, &i, &err), WM_INPUT);
  assert_int_equal(wm_json_get_float(json, "f.json", "i", true, &r, &err), WM_OK);
  assert_true(r == 0);
  assert_int_equal(wm_json_get_float(json, "f.json", "s", true, &r, &err), WM_INPUT);
  assert_string_equal(err.message, "f.json: \"s\" must be a number, but is a string");
  assert_int_equal(wm_json_get_bool(json, "f.json", "i", true, &b, &err), WM_INPUT);
  assert_int_equal(wm_json_get_string(json, "f.json", "n", false, &s, &err), WM_OK);
  assert_string_equal(s, "unchanged");
  assert_int_equal(wm_json_get_string(json, "f.json", "n", true, &s, &err), WM_INPUT);
  assert_string_equal(err.message, "f.json: \"n\" is missing");
  assert_int_equal(wm_json_get_string(json, "f.json", "t", true, &s, &err), WM_INPUT);
  json_decref(json);
}

static void test_files(void **state) {
  (void)state;
  json_t *json;
  assert_int_equal(wm_json_load("/nowhere/f.json", &json, &err), WM_INPUT);
  assert_non_null(strstr(err.message, "/nowhere/f.json: cannot open: No such file"));
  assert_int_equal(wm_json_load("/tmp", &json, &err), WM_INPUT);
  assert_non_null(strstr(err.message, "/tmp"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_refused),     cmocka_unit_test(test_deep),
      cmocka_unit_test(test_long_string), cmocka_unit_test(test_getters),
      cmocka_unit_test(test_files),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
