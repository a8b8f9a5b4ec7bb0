/* Settings: types, ranges and defaults, messages with place and nearest key, overrides, the round
 * trip through the resolved text, and hostile files. */
#include "wanamaker/base/config.h"
#include "wanamaker/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { JOB_A = 1, JOB_B = 2 };

static const wm_schema_t schema[] = {
    {"model.path", WM_SETTING_STRING, NULL, 1, 0, NULL, JOB_A, "directory of the model"},
    {"corpora.*.path", WM_SETTING_STRING, NULL, 1, 0, NULL, 0, "file of a corpus"},
    {"corpora.*.format", WM_SETTING_CHOICE, "auto", 1, 0, "auto text jsonl", 0, "its format"},
    {"corpora.*.newline", WM_SETTING_BOOL, "false", 1, 0, NULL, 0, "keeps it"},
    {"ranges.*.tokens", WM_SETTING_INTS, "[]", 0, 1e300, NULL, 0, "a range"},
    {"ranges.*.limit", WM_SETTING_INT, "0", 0, 1e300, NULL, 0, "its limit"},
    {"fit.lambda", WM_SETTING_FLOAT, "0.01", 0, 1e300, NULL, 0, "penalty"},
    {"fit.lambdas", WM_SETTING_FLOATS, "[1e-4, 1.0]", 0, 1e300, NULL, 0, "penalties"},
    {"fit.block", WM_SETTING_INT, "64", 1, 4096, NULL, JOB_B, "block size"},
    {"fit.offset", WM_SETTING_INT, "-3", 1, 0, NULL, 0, "any integer"},
    {"fit.spectrum", WM_SETTING_BOOL, "true", 1, 0, NULL, 0, "spectrum"},
    {"sweep.joint", WM_SETTING_INT_LISTS, "([1, 2], [3])", 0, 100, NULL, 0, "sets of layers"},
    {"inputs", WM_SETTING_STRINGS, "[]", 1, 0, NULL, 0, "texts"},
    {"title", WM_SETTING_STRING, "\"\"", 1, 0, NULL, 0, "free text"},
    {NULL, WM_SETTING_BOOL, NULL, 1, 0, NULL, 0, NULL},
};

static wm_error_t err;

/* libconfig loses its string buffer when a text ends inside of a value. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
  return "leak:strbuf_append\n";
}

/* --- helpers ------------------------------------------------------------------------------------
 */

static wm_config_t *parse_with(const char *text, const char *const *overrides, int n) {
  wm_config_t *c;
  if (wm_config_parse(schema, text, "test.cfg", overrides, n, 0, &c, &err) != WM_OK)
    fail_msg("%s: %s", text, err.message);
  return c;
}

static wm_config_t *parse(const char *text) {
  return parse_with(text, NULL, 0);
}

static wm_config_t * override(const char *assignment) {
  return parse_with("", &assignment, 1);
}

static void expect_failure(wm_status_t status, const wm_config_t *c, const char *text,
                           const char *part) {
  if (status != WM_USAGE || err.status != WM_USAGE || c != NULL ||
      strstr(err.message, part) == NULL)
    fail_msg("%.200s: status %d, \"%s\", expected \"%s\"", text, (int)status, err.message, part);
}

/* The text must be refused with a message that holds `part`. */
static void refuse(const char *text, const char *part) {
  wm_config_t *c;
  err = (wm_error_t){0};
  wm_status_t status = wm_config_parse(schema, text, "test.cfg", NULL, 0, 0, &c, &err);
  expect_failure(status, c, text, part);
}

static void refuse_override(const char *assignment, const char *part) {
  wm_config_t *c;
  err = (wm_error_t){0};
  wm_status_t status = wm_config_parse(schema, "", "test.cfg", &assignment, 1, 0, &c, &err);
  expect_failure(status, c, assignment, part);
}

/* Reading the resolved text back gives an equal text. */
static void check_round_trip(const wm_config_t *c) {
  wm_config_t *back = parse(wm_config_text(c));
  assert_string_equal(wm_config_text(back), wm_config_text(c));
  wm_config_free(back);
}

/* --- values -------------------------------------------------------------------------------------
 */

static void test_defaults(void **state) {
  (void)state;
  int64_t n;
  const int64_t *offsets;
  wm_config_t *c = parse("");
  assert_true(wm_config_float(c, "fit.lambda") == 0.01);
  const double *lambdas = wm_config_floats(c, "fit.lambdas", &n);
  assert_int_equal(n, 2);
  assert_true(lambdas[0] == 1e-4 && lambdas[1] == 1.0);
  assert_int_equal(wm_config_int(c, "fit.block"), 64);
  assert_int_equal(wm_config_int(c, "fit.offset"), -3);
  assert_true(wm_config_bool(c, "fit.spectrum"));
  const int64_t *values = wm_config_lists(c, "sweep.joint", &offsets, &n);
  assert_int_equal(n, 2);
  assert_true(offsets[0] == 0 && offsets[1] == 2 && offsets[2] == 3);
  assert_true(values[0] == 1 && values[1] == 2 && values[2] == 3);
  assert_string_equal(wm_config_string(c, "title"), "");
  assert_false(wm_config_given(c, "fit.lambda"));
  assert_null(wm_config_name(c, "corpora.", 0));
  check_round_trip(c);
  wm_config_free(c);
}

static void test_every_type(void **state) {
  (void)state;
  int64_t n;
  const int64_t *offsets;
  wm_config_t *c =
      parse("model: { path = \"a/b\"; };\n"
            "corpora: { w: { path = \"w.txt\"; format = \"text\"; newline = true; }; };\n"
            "fit: { lambda = 2; lambdas = [1, 2, 3]; block = 128; offset = -7;\n"
            "  spectrum = false; };\n"
            "ranges: { fit: { tokens = [5, 9]; }; };\n"
            "sweep: { joint = ([4], [5, 6, 7]); };\n"
            "title = \"ein Titel\"; # no end of line");
  assert_string_equal(wm_config_string(c, "model.path"), "a/b");
  assert_string_equal(wm_config_string(c, "corpora.w.format"), "text");
  assert_true(wm_config_bool(c, "corpora.w.newline"));
  assert_true(wm_config_float(c, "fit.lambda") == 2.0); /* an integer where a float is meant */
  const double *lambdas = wm_config_floats(c, "fit.lambdas", &n);
  assert_true(n == 3 && lambdas[2] == 3.0);
  assert_int_equal(wm_config_int(c, "fit.block"), 128);
  assert_int_equal(wm_config_int(c, "fit.offset"), -7);
  assert_false(wm_config_bool(c, "fit.spectrum"));
  const int64_t *tokens = wm_config_ints(c, "ranges.fit.tokens", &n);
  assert_true(n == 2 && tokens[0] == 5 && tokens[1] == 9);
  const int64_t *values = wm_config_lists(c, "sweep.joint", &offsets, &n);
  assert_true(n == 2 && offsets[1] == 1 && offsets[2] == 4 && values[3] == 7);
  assert_true(wm_config_given(c, "title"));
  assert_false(wm_config_given(c, "ranges.fit.limit"));
  check_round_trip(c);
  wm_config_free(c);
}

static void test_one_number_is_an_array(void **state) {
  (void)state;
  int64_t n;
  wm_config_t *c = parse("ranges: { fit: { tokens = 3; }; }; fit: { lambdas = 0.5; };");
  assert_int_equal(wm_config_ints(c, "ranges.fit.tokens", &n)[0], 3);
  assert_int_equal(n, 1);
  assert_true(wm_config_floats(c, "fit.lambdas", &n)[0] == 0.5);
  wm_config_free(c);
}

static void test_wrong_types(void **state) {
  (void)state;
  refuse("title = \"x\";\nfit: {\n  lambda = \"a\";\n};",
         "test.cfg:3: fit.lambda must be a number");
  refuse("fit: { block = 2.5; };", "test.cfg:1: fit.block must be an integer");
  refuse("fit: { block = [2]; };", "fit.block must be an integer");
  refuse("\nfit: { spectrum = 1; };", "test.cfg:2: fit.spectrum must be true or false");
  refuse("fit: { lambdas = \"1\"; };", "fit.lambdas must be an array of numbers");
  refuse("fit: { lambdas = (1, \"2\"); };", "fit.lambdas must be an array of numbers");
  refuse("ranges: { a: { tokens = [1.0, 2.0]; }; };", "ranges.a.tokens must be an integer");
  refuse("ranges: { a: { tokens = true; }; };", "must be an array of integers");
  refuse("sweep: { joint = [1, 2]; };", "sweep.joint must be a list of integer arrays");
  refuse("sweep: { joint = ([1], 2); };", "sweep.joint must be a list of integer arrays");
  refuse("sweep: { joint = ([1], []); };", "sweep.joint must be a list of integer arrays");
  refuse("sweep: { joint = ([1], [2.0]); };", "sweep.joint must be an integer");
  refuse("title = 5;", "test.cfg:1: title must be a string in double quotes");
  refuse("title = [\"a\"];", "title must be a string");
  refuse("corpora: { w: { format = \"csv\"; }; };",
         "corpora.w.format = \"csv\" must be one of: auto text jsonl");
  refuse("corpora: { w: { format = \"auto text\"; }; };", "must be one of");
  refuse("corpora: { w: { format = \"\"; }; };", "must be one of");
  refuse("fit = 3;", "fit is not a setting");
  refuse("title: { a = 1; };", "title is not a group of settings");
  refuse("corpora = ({ path = \"x\"; });", "corpora is not a setting");
  refuse("fit: { lambda: { a = 1; }; };", "fit.lambda is not a group of settings");
}

static void test_ranges(void **state) {
  (void)state;
  refuse("fit: {\n block = 0; };", "test.cfg:2: fit.block = 0 must lie between 1 and 4096");
  refuse("fit: { block = 4097; };", "fit.block = 4097 must lie between 1 and 4096");
  refuse("fit: { lambda = -1e-9; };", "fit.lambda = -1e-09 must be at least 0");
  refuse("fit: { lambda = 1e999; };", "fit.lambda must be a finite number");
  refuse("fit: { lambdas = [0.1, -0.1]; };", "fit.lambdas = -0.1 must be at least 0");
  refuse("ranges: { a: { tokens = [0, -1]; }; };", "must be at least 0");
  refuse("sweep: { joint = ([1], [101]); };", "sweep.joint = 101 must lie between 0 and 100");
  wm_config_t *c = parse("fit: { block = 4096; lambda = 0; offset = -2147483648; };");
  assert_int_equal(wm_config_int(c, "fit.block"), 4096);
  assert_int_equal(wm_config_int(c, "fit.offset"), INT32_MIN);
  wm_config_free(c);
}

static void test_unknown_keys(void **state) {
  (void)state;
  refuse("title = \"\";\n\nfit: {\n  lamda = 1.0; };",
         "test.cfg:4: fit.lamda is not a setting; the nearest is fit.lambda");
  refuse("fits: { lambda = 1.0; };",
         "test.cfg:1: fits is not a group of settings; the nearest setting is");
  refuse("corpora: { wikitext: { pth = \"x\"; }; };",
         "corpora.wikitext.pth is not a setting; the nearest is corpora.wikitext.path");
  refuse("corpora: { path = \"x\"; };", "corpora.path is not a setting");
  refuse("corpora: { a: { b: { path = \"x\"; }; }; };", "corpora.a.b is not a group");
  refuse_override("tittle=x", "command line: tittle is not a setting; the nearest is title");
  refuse_override("fit=1", "fit is not a setting");
  refuse_override("fit.=1", "fit. is not a setting");
  refuse_override(".lambda=1", "is not a setting");
}

static void test_long_integers(void **state) {
  (void)state;
  refuse("\nfit: { offset = 4294967297; };",
         "test.cfg:2: the integer 4294967297 does not fit 32 bits; write it with the suffix L");
  refuse("fit: { offset = -2147483649; };", "does not fit 32 bits");
  refuse("fit: { offset = +2147483648; };", "does not fit 32 bits");
  refuse("ranges: { a: { tokens = [0, 5000000000]; }; };", "does not fit 32 bits");
  refuse("fit: { offset = 9223372036854775808L; };", "does not fit 64 bits");
  refuse("fit: { offset = 99999999999999999999; };", "does not fit 64 bits");
  /* a float needs digits behind the e: this is an integer and a name */
  refuse("fit: { offset = 4294967297e block = 1; };", "does not fit 32 bits");
  refuse("fit: { offset = 4294967297 L; };", "does not fit 32 bits");
  refuse("ranges: { a: { tokens = [0, 5000000000L]; }; };", "write all of them alike");
  refuse_override("fit.offset=4294967297",
                  "fit.offset = 4294967297 is not a valid value: the integer 4294967297 does not "
                  "fit 32 bits; write it with the suffix L");
  wm_config_t *c = parse("fit: { offset = 4294967297L; }; title = \"4294967297\"; # 4294967297\n"
                         "/* 4294967297 */ // 4294967297\n"
                         "ranges: { a4294967297: { tokens = [0L, 5000000000L]; }; };");
  assert_int_equal(wm_config_int(c, "fit.offset"), 4294967297);
  int64_t n;
  assert_int_equal(wm_config_ints(c, "ranges.a4294967297.tokens", &n)[1], 5000000000);
  check_round_trip(c);
  wm_config_free(c);
  c = parse("fit: { offset = -9223372036854775808L; lambda = 4294967297.0; };");
  assert_true(wm_config_int(c, "fit.offset") == INT64_MIN);
  assert_true(wm_config_float(c, "fit.lambda") == 4294967297.0);
  check_round_trip(c);
  wm_config_free(c);
  c = parse("fit: { lambda = .4294967297; };"); /* digits of a fraction are no integer */
  assert_true(wm_config_float(c, "fit.lambda") == .4294967297);
  wm_config_free(c);
}

static void test_refused_syntax(void **state) {
  (void)state;
  refuse("title = \"\";\n@include \"/etc/passwd\"", "test.cfg:2: directives such as @include");
  refuse("  @include \".\"\n", "test.cfg:1: directives");
  refuse("fit: { block = 0x40; };", "test.cfg:1: write numbers in decimal");
  refuse("title = \"a\\x00b\";", "\\x00 would end the string");
  refuse("\n/* open\n title = \"\";", "test.cfg:2: the comment is not closed");
  refuse("/*/", "the comment is not closed");
  refuse("/* two\n * lines */ title = \"two\n lines\";\n@", "test.cfg:4: directives");
  refuse("\ntitle = \"open\n\n", "test.cfg:2: the string is not closed");
  refuse("title = \"open\\", "the string is not closed");
  refuse("title = \"a\";\ntitle = \"b\";", "test.cfg:2: duplicate setting name");
  refuse("fit: { block = 1; };\nfit: { offset = 1; };", "test.cfg:2: duplicate setting name");
  refuse("fit: { block = 1;", "test.cfg:");
  refuse("fit: { block = ; };", "test.cfg:1: syntax error");
  refuse("fit } ;", "syntax error");
  refuse("\xff\xfe", "syntax error");
  /* what looks like a directive or comment inside a string, and the other way round */
  wm_config_t *c =
      parse("title = \"@include /* # // \\\" \\\\\"; # \"@include\"\n/* \" @include */");
  assert_string_equal(wm_config_string(c, "title"), "@include /* # // \" \\");
  wm_config_free(c);
}

static void test_accepted_syntax(void **state) {
  (void)state;
  wm_config_t *c = parse("\xef\xbb\xbftitle = \"a\" \"b\"\r\n  \"c\";\r\nfit = { block : 7 }");
  assert_string_equal(wm_config_string(c, "title"), "abc"); /* adjacent literals are joined */
  assert_int_equal(wm_config_int(c, "fit.block"), 7);
  wm_config_free(c);
  c = parse("# nothing but a comment");
  wm_config_free(c);
  c = parse(" \n\t\n");
  wm_config_free(c);
}

/* --- names that stand for "*" -------------------------------------------------------------------
 */

static void test_names(void **state) {
  (void)state;
  const char *overrides[] = {"corpora.z.path=z", "corpora.a.path=a"};
  wm_config_t *c =
      parse_with("corpora: { a: { format = \"text\"; }; b: { path = \"b\"; }; };", overrides, 2);
  assert_string_equal(wm_config_name(c, "corpora.", 0), "a");
  assert_string_equal(wm_config_name(c, "corpora.", 1), "b");
  assert_string_equal(wm_config_name(c, "corpora.", 2), "z");
  assert_null(wm_config_name(c, "corpora.", 3));
  assert_null(wm_config_name(c, "ranges.", 0));
  assert_string_equal(wm_config_string(c, "corpora.z.format"), "auto");
  assert_false(wm_config_bool(c, "corpora.b.newline"));
  /* another rank reads the text: the names have to come in the same order */
  wm_config_t *back = parse(wm_config_text(c));
  assert_string_equal(wm_config_text(back), wm_config_text(c));
  for (int64_t i = 0; i < 3; i++)
    assert_string_equal(wm_config_name(back, "corpora.", i), wm_config_name(c, "corpora.", i));
  wm_config_free(back);
  wm_config_free(c);
}

static void test_order_of_names_without_values(void **state) {
  (void)state;
  wm_config_t *c = parse("corpora: { a: { format = \"text\"; }; b: { path = \"b\"; }; };");
  wm_config_t *back = parse(wm_config_text(c)); /* a has no path, and its default is none */
  assert_string_equal(wm_config_name(back, "corpora.", 0), "a");
  assert_string_equal(wm_config_text(back), wm_config_text(c));
  wm_config_free(back);
  wm_config_free(c);
}

static void test_bad_names(void **state) {
  (void)state;
  char longest[256], too_long[256];
  snprintf(longest, sizeof longest, "corpora.%064d.path=x", 0);
  longest[8] = 'n';
  snprintf(too_long, sizeof too_long, "corpora.%065d.path=x", 0);
  too_long[8] = 'n';
  refuse_override("corpora.a b.path=x", "holds a name that");
  refuse_override("corpora.*.path=x", "holds a name that");
  refuse_override("corpora.1.path=x", "holds a name that");
  refuse_override("corpora..path=x", "is not a setting");
  refuse_override("corpora.a;b.path=x", "holds a name that");
  refuse_override(too_long, "holds a name that");
  refuse_override("corpora.true.path=x", "holds the name true or false");
  refuse_override("corpora.False.path=x", "holds the name true or false");
  refuse("corpora: { *: { path = \"x\"; }; };", "holds a name that");
  wm_config_t *c = override(longest);
  check_round_trip(c);
  wm_config_free(c);
  c = override("corpora.true_text.path=x");
  check_round_trip(c);
  wm_config_free(c);
  char huge[600];
  memset(huge, 'k', sizeof huge);
  memcpy(huge + sizeof huge - 5, "=\"\";", 5);
  refuse(huge, "is too long a name");
  refuse_override(huge, "too long a name");
}

static void test_given_survives(void **state) {
  (void)state;
  const char *overrides[] = {"ranges.fit.limit=0", "title="};
  wm_config_t *c =
      parse_with("fit: { lambda = 0.01; }; corpora: { w: { path = \"p\"; }; };", overrides, 2);
  wm_config_t *back = parse(wm_config_text(c));
  const wm_config_t *both[] = {c, back};
  for (int i = 0; i < 2; i++) {
    assert_true(wm_config_given(both[i], "ranges.fit.limit"));
    assert_true(wm_config_given(both[i], "title"));
    assert_true(wm_config_given(both[i], "fit.lambda"));
    assert_true(wm_config_given(both[i], "corpora.w.path"));
    assert_false(wm_config_given(both[i], "ranges.fit.tokens"));
    assert_false(wm_config_given(both[i], "corpora.w.format"));
    assert_false(wm_config_given(both[i], "fit.block"));
    assert_false(wm_config_given(both[i], "no.such.key"));
  }
  wm_config_free(back);
  wm_config_free(c);
}

/* --- overrides ----------------------------------------------------------------------------------
 */

static void expect_title(const char *assignment, const char *value) {
  wm_config_t *c = override(assignment);
  assert_string_equal(wm_config_string(c, "title"), value);
  check_round_trip(c);
  wm_config_free(c);
}

static void test_override_strings(void **state) {
  (void)state;
  expect_title("title=", "");
  expect_title("title=word", "word");
  expect_title("title=two words", "two words");
  expect_title("title= leading", " leading");
  expect_title("title=\"quoted \\\"x\\\"\"", "quoted \"x\"");
  expect_title("title=\"a\" \"b\"", "ab");
  expect_title("title=a=b=c", "a=b=c");
  expect_title("title==", "=");
  expect_title("title=bare \"quote\" and \\ and ;", "bare \"quote\" and \\ and ;");
  expect_title("title=x; fit = 1", "x; fit = 1");
  expect_title("title=@include", "@include");
  expect_title("title=/data/4294967297", "/data/4294967297");
  expect_title("title=line\nbreak", "line\nbreak");
  expect_title("title={[(", "{[(");
  refuse_override("title=\"open", "title = \"open is not a valid value");
  refuse_override("title=\"a\"b", "is not a valid value");
  refuse_override("title=\"a\"; other = \"1\"", "is not a valid value");
  refuse_override("title=\"a\"; fit: { block = 1; }", "is not a valid value");
  refuse_override("corpora.w.format=csv", "command line: corpora.w.format = \"csv\"");
}

static void test_override_numbers(void **state) {
  (void)state;
  int64_t n;
  const int64_t *offsets;
  const char *overrides[] = {
      "fit.offset=-12",        "fit.lambda= 3",        "fit.spectrum=false", "fit.lambdas=[1, 2]",
      "sweep.joint=([9],[8])", "fit.block=1",          "ranges.a.tokens=3",  "fit.block=2",
      "fit.lambdas=(1, 2.5)",  "ranges.b.tokens=[0,1]"};
  wm_config_t *c = parse_with("fit: { block = 4000; lambda = 1.0; };", overrides, 10);
  assert_int_equal(wm_config_int(c, "fit.offset"), -12);
  assert_true(wm_config_float(c, "fit.lambda") == 3.0);
  assert_false(wm_config_bool(c, "fit.spectrum"));
  assert_int_equal(wm_config_int(c, "fit.block"), 2); /* the last one counts */
  const double *lambdas = wm_config_floats(c, "fit.lambdas", &n);
  assert_true(n == 2 && lambdas[1] == 2.5);
  assert_int_equal(wm_config_lists(c, "sweep.joint", &offsets, &n)[1], 8);
  assert_int_equal(wm_config_ints(c, "ranges.a.tokens", &n)[0], 3);
  assert_true(wm_config_given(c, "fit.offset"));
  check_round_trip(c);
  wm_config_free(c);
}

static void test_override_failures(void **state) {
  (void)state;
  refuse_override("fit.lambda", "\"fit.lambda\" is not of the form key=value");
  refuse_override("=1", "is not of the form key=value");
  refuse_override("", "is not of the form key=value");
  refuse_override("fit.lambda=", "fit.lambda =  is not a valid value");
  refuse_override("fit.lambda=x", "is not a valid value");
  refuse_override("fit.lambda=1; other = 1", "is not a valid value: a single value is expected");
  refuse_override("fit.lambda=1; value = 1", "is not a valid value");
  refuse_override("fit.lambda=1 other = 1", "is not a valid value");
  refuse_override("fit.lambdas=[1, 2", "is not a valid value");
  refuse_override("fit.lambdas=1, 2]", "is not a valid value");
  refuse_override("fit.lambdas=1, 2", "is not a valid value");
  refuse_override("sweep.joint=([1], [2]", "is not a valid value");
  refuse_override("sweep.joint=([1]))", "is not a valid value");
  refuse_override("fit.block={}", "command line: fit.block must be an integer");
  refuse_override("fit.block=\"7\"", "command line: fit.block must be an integer");
  refuse_override("fit.block=5000", "command line: fit.block = 5000 must lie between");
  refuse_override("fit.block =5", "is not a setting; the nearest is fit.block");
  refuse_override("fit.block=@include \".\"", "is not a valid value");
  refuse_override("fit.block=0x10", "is not a valid value");
}

/* --- required settings, text, help --------------------------------------------------------------
 */

static void test_required(void **state) {
  (void)state;
  wm_config_t *c;
  const char *given = "model.path=m", *without_path = "corpora.w.format=text";
  assert_int_equal(wm_config_read(schema, NULL, NULL, 0, JOB_A, &c, &err), WM_USAGE);
  assert_string_equal(err.message, "model.path must be given: directory of the model");
  assert_int_equal(wm_config_read(schema, NULL, &given, 1, JOB_A, &c, &err), WM_OK);
  wm_config_free(c);
  assert_int_equal(wm_config_read(schema, NULL, NULL, 0, JOB_B, &c, &err), WM_OK);
  wm_config_free(c);
  assert_int_equal(wm_config_read(schema, NULL, &without_path, 1, JOB_B, &c, &err), WM_USAGE);
  assert_string_equal(err.message, "corpora.w.path must be given: file of a corpus");
  assert_int_equal(wm_config_read(schema, NULL, &without_path, 1, 0, &c, &err), WM_OK);
  wm_config_free(c);
  wm_config_free(NULL);
}

static void test_all_bytes_survive(void **state) {
  (void)state;
  char assignment[300] = "title=x", *p = assignment + 7; /* not UTF-8, quotes, controls */
  for (int byte = 1; byte < 256; byte++)
    *p++ = (char)byte;
  *p = '\0';
  expect_title(assignment, assignment + 6);
  for (int byte = 1; byte < 256; byte++) { /* before a hexadecimal digit, and before each other */
    snprintf(assignment, sizeof assignment, "title=z%c0\\x%c%c\\", byte, byte, byte);
    expect_title(assignment, assignment + 6);
  }
}

static void test_floats_survive(void **state) {
  (void)state;
  wm_rng_t rng = {7, 0};
  for (uint64_t i = 0; i < 2000; i++) {
    uint64_t bits = wm_rng_bits(rng, i) >> 1; /* positive */
    double value;
    memcpy(&value, &bits, sizeof value);
    if (!(value < 1e300))
      continue;
    char assignment[64];
    snprintf(assignment, sizeof assignment, "fit.lambda=%.17e", value);
    wm_config_t *c = override(assignment), *back = parse(wm_config_text(c));
    assert_true(wm_config_float(c, "fit.lambda") == value);
    assert_true(wm_config_float(back, "fit.lambda") == value);
    wm_config_free(back);
    wm_config_free(c);
  }
}

static void test_help(void **state) {
  (void)state;
  char *text;
  size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  wm_config_print_help(schema, JOB_B, out);
  fclose(out);
  assert_null(strstr(text, "model.path")); /* of JOB_A alone */
  assert_non_null(strstr(text, "fit.block\n      int; default 64; 1 to 4096\n      block size"));
  assert_non_null(strstr(text, "corpora.*.format\n      choice; default auto; one of: auto text"));
  assert_non_null(strstr(text, "corpora.*.path\n      string; required\n"));
  assert_non_null(strstr(text, "fit.lambda\n      float; default 0.01; at least 0\n"));
  free(text);
}

/* --- files --------------------------------------------------------------------------------------
 */

static char path[] = "/tmp/wm_config_XXXXXX";

static void write_file(const char *data, size_t bytes) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(data, 1, bytes, f), bytes);
  assert_int_equal(fclose(f), 0);
}

static wm_status_t read_file(wm_config_t **out) {
  err = (wm_error_t){0};
  return wm_config_read(schema, path, NULL, 0, 0, out, &err);
}

static void refuse_file(const char *file, const char *part) {
  wm_config_t *c;
  err = (wm_error_t){0};
  wm_status_t status = wm_config_read(schema, file, NULL, 0, 0, &c, &err);
  expect_failure(status, c, file, part);
  assert_non_null(strstr(err.message, file));
}

static void test_files(void **state) {
  (void)state;
  wm_config_t *c;
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  assert_int_equal(read_file(&c), WM_OK); /* empty */
  wm_config_free(c);
  write_file("title = \"x\";", 12);
  assert_int_equal(read_file(&c), WM_OK);
  assert_string_equal(wm_config_string(c, "title"), "x");
  wm_config_free(c);
  write_file("title = \"x\";\0junk", 17);
  refuse_file(path, "a NUL byte at position 12");
  write_file("title = \"x\";\nbad;", 17);
  refuse_file(path, ":2: syntax error");
  unlink(path);
  refuse_file(path, "cannot open the configuration: No such file");
  assert_int_equal(mkfifo(path, 0600), 0);
  refuse_file(path, "not a regular file"); /* and no wait for a writer */
  unlink(path);
  refuse_file("/tmp", "not a regular file");
  refuse_file("/dev/zero", "not a regular file");
}

static void test_huge_files(void **state) {
  (void)state;
  enum { LIMIT = 1 << 18 };
  char *text = malloc(LIMIT + 2);
  assert_non_null(text);
  memset(text, ' ', LIMIT + 1);
  write_file(text, LIMIT + 1);
  refuse_file(path, "262145 bytes are too many");
  wm_config_t *c;
  write_file(text, LIMIT);
  assert_int_equal(read_file(&c), WM_OK);
  wm_config_free(c);
  unlink(path);
  size_t used = (size_t)sprintf(text, "sweep: { joint = ([0]");
  while (used < LIMIT - 20)
    used += (size_t)sprintf(text + used, ",[1]");
  strcpy(text + used, "); };");
  c = parse(text);
  const int64_t *offsets;
  int64_t n;
  wm_config_lists(c, "sweep.joint", &offsets, &n);
  assert_true(n > 60000 && offsets[n] == n);
  check_round_trip(c);
  wm_config_free(c);
  free(text);
}

static void test_deep_nesting(void **state) {
  (void)state;
  enum { DEPTH = 10000 };
  char *text = malloc(8 * DEPTH);
  assert_non_null(text);
  for (int kind = 0; kind < 3; kind++) {
    char *p = text;
    for (int i = 0; i < DEPTH; i++)
      p += sprintf(p, kind == 0 ? "fit:{" : i == 0 ? "title=%c" : "%c", kind == 1 ? '(' : '[');
    for (int i = 0; i < DEPTH; i++)
      *p++ = ")}]"[kind == 0 ? 1 : kind == 1 ? 0 : 2];
    *p = '\0';
    refuse(text, "nested too deeply");
  }
  free(text);
  refuse("sweep: { joint = ((((([1]))))); };", "sweep.joint must be an integer");
  char wide[5000] = "sweep: { joint = ("; /* many brackets, not deep */
  for (int i = 0; i < 500; i++)
    strcat(wide, i > 0 ? ",[1]" : "[1]");
  strcat(wide, "); };");
  wm_config_free(parse(wide));
}

/* --- mutations ----------------------------------------------------------------------------------
 */

static const char valid[] =
    "# a valid file\n"
    "model: { path = \"models/x\" \"y\"; };\n"
    "corpora: { w: { path = \"w\\t.txt\"; format = \"text\"; }; v: { path = \"v\"; }; };\n"
    "ranges: { fit: { tokens = [0L, 5000000000L]; limit = 7; }; };\n"
    "fit: { lambda = 1e-2; lambdas = [0.1, 1.0]; /* c */ block = 64; spectrum = true; };\n"
    "sweep: { joint = ([1, 2], [3]); };\n"
    "title = \"t\\\"\\x41\"; // end\n";

/* Pieces that steer mutations to the syntax's corners. */
static const char *const pieces[] = {
    "\"", "\\",   "{",  "}",  "[", "]", "(",          ")",    ";",      ",",     "=",
    ":",  "/*",   "*/", "#",  "@", "L", "4294967297", "-",    "1e999",  "\\x00", "\\x",
    "*",  "fit:", "\n", "\r", "+", ".", "true",       "\x80", "title=", "0x1",   "\"a\" \"b\""};

static void mutate(char *text, size_t size, wm_rng_t rng, uint64_t *draw) {
  uint64_t steps = 1 + wm_rng_below(rng, (*draw)++, 6);
  for (uint64_t i = 0; i < steps; i++) {
    size_t length = strlen(text);
    size_t at = wm_rng_below(rng, (*draw)++, length + 1);
    size_t cut = wm_rng_below(rng, (*draw)++, 8);
    switch (wm_rng_below(rng, (*draw)++, 4)) {
    case 0: /* a byte becomes another */
      if (at < length)
        text[at] = (char)(1 + wm_rng_below(rng, (*draw)++, 255));
      break;
    case 1: /* some are lost */
      cut = cut < length - at ? cut : length - at;
      memmove(text + at, text + at + cut, length - at - cut + 1);
      break;
    case 2: /* the end is lost */
      if (cut == 0)
        text[at] = '\0';
      break;
    default: { /* a piece comes in */
      const char *piece = pieces[wm_rng_below(rng, (*draw)++, sizeof pieces / sizeof *pieces)];
      size_t more = strlen(piece);
      if (length + more + 1 > size)
        break;
      memmove(text + at + more, text + at, length - at + 1);
      memcpy(text + at, piece, more);
    }
    }
  }
}

/* Whatever the text, it is read or refused with a message, and what is read survives the trip. */
static void test_mutations(void **state) {
  (void)state;
  wm_rng_t rng = {2026, 1};
  uint64_t draw = 0;
  int accepted = 0;
  for (int i = 0; i < 6000; i++) {
    char text[2048];
    strcpy(text, valid);
    mutate(text, sizeof text, rng, &draw);
    wm_config_t *c;
    err = (wm_error_t){0};
    if (wm_config_parse(schema, text, "mutant.cfg", NULL, 0, 0, &c, &err) == WM_OK) {
      check_round_trip(c);
      wm_config_free(c);
      accepted++;
    } else {
      assert_int_equal(err.status, WM_USAGE);
      assert_true(strlen(err.message) > 10);
    }
  }
  assert_true(accepted > 600); /* else the mutations are too wild to reach the values */
}

static void test_mutated_overrides(void **state) {
  (void)state;
  static const char *const start[] = {"title=\"a\\\"b\"", "sweep.joint=([1, 2], [3])",
                                      "ranges.fit.tokens=[0L, 5000000000L]",
                                      "corpora.name.format=text", "fit.lambda=1e-3"};
  wm_rng_t rng = {2026, 2};
  uint64_t draw = 0;
  for (int i = 0; i < 5000; i++) {
    char text[256];
    const char *override_text = text;
    strcpy(text, start[i % 5]);
    mutate(text, sizeof text, rng, &draw);
    wm_config_t *c;
    if (wm_config_parse(schema, "", "none", &override_text, 1, 0, &c, &err) != WM_OK)
      continue;
    check_round_trip(c);
    wm_config_free(c);
  }
}

static void expect_strings(const char *text, const char *override, int64_t n, const char *first,
                           const char *last) {
  wm_config_t *c = parse_with(text, &override, override != NULL);
  assert_int_equal(wm_config_count(c, "inputs"), n);
  if (n > 0) {
    assert_string_equal(wm_config_element(c, "inputs", 0), first);
    assert_string_equal(wm_config_element(c, "inputs", n - 1), last);
  }
  wm_config_t *back = parse(wm_config_text(c));
  assert_string_equal(wm_config_text(back), wm_config_text(c));
  wm_config_free(back);
  wm_config_free(c);
}

static void test_strings(void **state) {
  (void)state;
  expect_strings("", NULL, 0, NULL, NULL);
  expect_strings("inputs = [\"a b\", \"c,]\\\"\"];", NULL, 2, "a b", "c,]\"");
  expect_strings("inputs = \"one\";", NULL, 1, "one", "one");
  expect_strings("inputs = [\"x\"];", "inputs=[a, b/c ,d]", 3, "a", "d");
  expect_strings("", "inputs=a,b", 2, "a", "b");
  expect_strings("", "inputs=", 0, NULL, NULL);
  expect_strings("", "inputs=[\"a,b\", \"c\"]", 2, "a,b", "c");
  wm_config_t *c;
  assert_int_equal(wm_config_parse(schema, "inputs = [1, 2];", "t.cfg", NULL, 0, 0, &c, &err),
                   WM_USAGE);
  assert_string_equal(err.message, "t.cfg:1: inputs must be an array of strings");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_defaults),
      cmocka_unit_test(test_every_type),
      cmocka_unit_test(test_one_number_is_an_array),
      cmocka_unit_test(test_wrong_types),
      cmocka_unit_test(test_ranges),
      cmocka_unit_test(test_unknown_keys),
      cmocka_unit_test(test_long_integers),
      cmocka_unit_test(test_refused_syntax),
      cmocka_unit_test(test_accepted_syntax),
      cmocka_unit_test(test_names),
      cmocka_unit_test(test_order_of_names_without_values),
      cmocka_unit_test(test_bad_names),
      cmocka_unit_test(test_given_survives),
      cmocka_unit_test(test_override_strings),
      cmocka_unit_test(test_override_numbers),
      cmocka_unit_test(test_override_failures),
      cmocka_unit_test(test_required),
      cmocka_unit_test(test_all_bytes_survive),
      cmocka_unit_test(test_floats_survive),
      cmocka_unit_test(test_help),
      cmocka_unit_test(test_strings),
      cmocka_unit_test(test_files),
      cmocka_unit_test(test_huge_files),
      cmocka_unit_test(test_deep_nesting),
      cmocka_unit_test(test_mutations),
      cmocka_unit_test(test_mutated_overrides),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
