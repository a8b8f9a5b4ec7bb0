/* Errors, memory, JSON, random numbers, hashes, log and progress. */
#include "wanamaker/base/control.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/json.h"
#include "wanamaker/base/log.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/progress.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/base/status.h"
#include "wanamaker/base/timer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Sizes that no machine has must be refused, under the address sanitizer too. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
  return "allocator_may_return_null=1";
}

/* --- status -------------------------------------------------------------------------------------
 */

static void test_fail(void **state) {
  (void)state;
  wm_error_t err = {0};
  assert_int_equal(wm_fail(&err, WM_INPUT, "%s:%d", "file", 3), WM_INPUT);
  assert_int_equal(err.status, WM_INPUT);
  assert_string_equal(err.message, "file:3");
  assert_int_equal(wm_error_prefix(&err, "rank %d", 2), WM_INPUT);
  assert_string_equal(err.message, "rank 2: file:3");
  assert_int_equal(wm_fail(&err, WM_NUMERICAL, "new"), WM_NUMERICAL);
  assert_string_equal(err.message, "new");
}

static void test_messages_are_cut(void **state) {
  (void)state;
  wm_error_t err = {0};
  char text[2 * WM_MESSAGE_SIZE];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  wm_fail(&err, WM_INPUT, "%s", text);
  assert_int_equal(strlen(err.message), WM_MESSAGE_SIZE - 1);
  wm_error_prefix(&err, "prefix");
  assert_int_equal(strlen(err.message), WM_MESSAGE_SIZE - 1);
  assert_memory_equal(err.message, "prefix: xxx", 11);
  for (int length = WM_MESSAGE_SIZE - 5; length < WM_MESSAGE_SIZE + 3; length++) {
    wm_fail(&err, WM_INPUT, "old");
    wm_error_prefix(&err, "%.*s", length, text);
    size_t whole = (size_t)length + strlen(": old");
    assert_int_equal(strlen(err.message),
                     whole < WM_MESSAGE_SIZE ? whole : (size_t)WM_MESSAGE_SIZE - 1);
    assert_int_equal(err.message[WM_MESSAGE_SIZE - 6], 'x');
  }
}

static void test_messages_may_quote_themselves(void **state) {
  (void)state;
  wm_error_t err = {0};
  wm_fail(&err, WM_INPUT, "an old message");
  wm_fail(&err, WM_USAGE, "new, because of %s (%s)", err.message, err.message + 3);
  assert_string_equal(err.message, "new, because of an old message (old message)");
  wm_error_prefix(&err, "%.3s", err.message);
  assert_string_equal(err.message, "new: new, because of an old message (old message)");
}

static void test_status_names(void **state) {
  (void)state;
  const wm_status_t all[] = {WM_OK,        WM_USAGE,   WM_INPUT,  WM_ENVIRONMENT,
                             WM_NUMERICAL, WM_STALLED, WM_STOPPED};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    for (size_t j = 0; j < i; j++)
      assert_string_not_equal(wm_status_name(all[i]), wm_status_name(all[j]));
  assert_string_equal(wm_status_name((wm_status_t)1), "unknown status");
}

/* --- memory -------------------------------------------------------------------------------------
 */

static void test_alloc(void **state) {
  (void)state;
  wm_error_t err = {0};
  for (int64_t n = 0; n < 300; n += 13) {
    void *memory;
    assert_int_equal(wm_alloc(&memory, n, 3, "array", &err), WM_OK);
    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % 64, 0);
    for (int64_t i = 0; i < 3 * n; i++)
      assert_int_equal(((char *)memory)[i], 0);
    memset(memory, 0xff, (size_t)(3 * n)); /* so that the next one has to be cleared */
    free(memory);
  }
}

/* Much memory takes its time: whoever watches sees that it comes. */
static void test_much_memory_pulses(void **state) {
  (void)state;
  void *memory;
  wm_error_t err = {0};
  uint64_t before = wm_pulse_count();
  assert_int_equal(wm_alloc(&memory, 1000, 1000, "array", &err), WM_OK);
  free(memory);
  assert_int_equal(wm_pulse_count(), before);
  assert_int_equal(wm_alloc(&memory, (128 << 20) + 1, 1, "array", &err), WM_OK);
  assert_int_equal(((char *)memory)[128 << 20], 0);
  free(memory);
  assert_int_equal(wm_pulse_count(), before + 3);
}

static void test_alloc_failure(void **state) {
  (void)state;
  static const struct {
    int64_t count;
    size_t size;
  } sizes[] = {{INT64_MAX, 16},    {INT64_MAX, 2},        {INT64_MAX, 1},       {1, SIZE_MAX},
               {1, SIZE_MAX - 63}, {(int64_t)1 << 60, 8}, {(int64_t)1 << 61, 8}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    wm_error_t err = {0};
    void *memory = &err;
    assert_int_equal(wm_alloc(&memory, sizes[i].count, sizes[i].size, "big", &err), WM_ENVIRONMENT);
    assert_null(memory);
    assert_int_equal(strncmp(err.message, "big: ", 5), 0);
  }
}

static void test_grow(void **state) {
  (void)state;
  wm_error_t err = {0};
  void *buffer = NULL;
  int64_t capacity = 0, moves = 0, n = 0;
  for (; n < 10000; n++) {
    int64_t before = capacity;
    assert_int_equal(wm_grow(&buffer, &capacity, n, n + 1, sizeof n, "list", &err), WM_OK);
    assert_true(capacity > n);
    moves += capacity != before;
    assert_int_equal(((int64_t *)buffer)[n], 0);
    ((int64_t *)buffer)[n] = 3 * n;
  }
  for (int64_t i = 0; i < n; i++)
    assert_int_equal(((int64_t *)buffer)[i], 3 * i);
  assert_true(moves < 20); /* geometric */
  int64_t old = capacity;
  assert_int_equal(wm_grow(&buffer, &capacity, n, INT64_MAX / 8, sizeof n, "list", &err),
                   WM_ENVIRONMENT);
  assert_int_equal(capacity, old); /* untouched */
  assert_int_equal(((int64_t *)buffer)[n - 1], 3 * (n - 1));
  free(buffer);
}

static void test_texts(void **state) {
  (void)state;
  wm_error_t err = {0};
  char *copy, *text = wm_format("%s-%05d", "layer", 42);
  assert_string_equal(text, "layer-00042");
  assert_int_equal(wm_strdup(&copy, text, &err), WM_OK);
  assert_string_equal(copy, text);
  assert_ptr_not_equal(copy, text);
  free(copy);
  free(text);
  text = wm_format("%5000d", 7);
  assert_int_equal(strlen(text), 5000);
  free(text);
}

static void test_peak_memory(void **state) {
  (void)state;
  enum { BYTES = 64 << 20 };
  wm_error_t err = {0};
  void *memory;
  assert_int_equal(wm_alloc(&memory, BYTES, 1, "block", &err), WM_OK);
  memset(memory, 1, BYTES);
  int64_t peak = wm_peak_resident_bytes();
  free(memory);
  assert_true(peak == 0 || peak >= BYTES);
}

/* --- JSON ---------------------------------------------------------------------------------------
 */

static json_t *json(const char *text) {
  wm_error_t err = {0};
  json_t *out;
  if (wm_json_parse(text, strlen(text), "t.json", &out, &err) != WM_OK)
    fail_msg("%s", err.message);
  return out;
}

static void test_json_values(void **state) {
  (void)state;
  wm_error_t err = {0};
  int64_t i = 0;
  double x = 0;
  bool b = false;
  const char *s = NULL;
  json_t *o =
      json("{\"i\": -9007199254740993, \"x\": 2.5, \"b\": true, \"s\": \"t\", \"n\": null}");
  assert_int_equal(wm_json_get_int(o, "t.json", "i", true, &i, &err), WM_OK);
  assert_true(i == -9007199254740993);
  assert_int_equal(wm_json_get_float(o, "t.json", "x", true, &x, &err), WM_OK);
  assert_true(x == 2.5);
  assert_int_equal(wm_json_get_float(o, "t.json", "i", true, &x, &err), WM_OK);
  assert_true(x == -9007199254740992.0);
  assert_int_equal(wm_json_get_bool(o, "t.json", "b", true, &b, &err), WM_OK);
  assert_true(b);
  assert_int_equal(wm_json_get_string(o, "t.json", "s", true, &s, &err), WM_OK);
  assert_string_equal(s, "t");
  i = 5;
  s = "kept";
  assert_int_equal(wm_json_get_int(o, "t.json", "absent", false, &i, &err), WM_OK);
  assert_int_equal(wm_json_get_string(o, "t.json", "n", false, &s, &err), WM_OK);
  assert_int_equal(i, 5);
  assert_string_equal(s, "kept");
  json_decref(o);
}

static void test_json_failures(void **state) {
  (void)state;
  wm_error_t err = {0};
  int64_t i;
  double x;
  bool b;
  const char *s;
  json_t *o = json("{\"x\": 2.5, \"s\": \"t\", \"n\": null, \"one\": 1}");
  assert_int_equal(wm_json_get_int(o, "t.json", "absent", true, &i, &err), WM_INPUT);
  assert_string_equal(err.message, "t.json: \"absent\" is missing");
  assert_int_equal(wm_json_get_int(o, "t.json", "n", true, &i, &err), WM_INPUT);
  assert_int_equal(wm_json_get_int(o, "t.json", "x", false, &i, &err), WM_INPUT);
  assert_string_equal(err.message, "t.json: \"x\" must be an integer, but is a number");
  assert_int_equal(wm_json_get_float(o, "t.json", "s", false, &x, &err), WM_INPUT);
  assert_string_equal(err.message, "t.json: \"s\" must be a number, but is a string");
  assert_int_equal(wm_json_get_bool(o, "t.json", "one", false, &b, &err), WM_INPUT);
  assert_int_equal(wm_json_get_string(o, "t.json", "one", false, &s, &err), WM_INPUT);
  json_decref(o);
  o = json("[1]");
  assert_int_equal(wm_json_get_int(o, "t.json", "k", false, &i, &err), WM_INPUT);
  assert_string_equal(err.message, "t.json: an object with \"k\" is expected");
  json_decref(o);
}

static void test_json_malformed(void **state) {
  (void)state;
  static const char *const texts[] = {"",
                                      "{",
                                      "{\"a\": 1,}",
                                      "{} x",
                                      "{'a':1}",
                                      "{\"a\": 01}",
                                      "{\"a\": 1, \"a\": 2}",
                                      "\"\xff\"",
                                      "[1e999]",
                                      "{\"a\": \"\\u0000\"}"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    wm_error_t err = {0};
    json_t *out;
    assert_int_equal(wm_json_parse(texts[i], strlen(texts[i]), "t.json", &out, &err), WM_INPUT);
    assert_null(out);
    assert_int_equal(strncmp(err.message, "t.json:1:", 9), 0);
  }
  enum { DEPTH = 100000 };
  char *deep = malloc(DEPTH);
  wm_error_t err = {0};
  json_t *out;
  memset(deep, '[', DEPTH);
  assert_int_equal(wm_json_parse(deep, DEPTH, "t.json", &out, &err), WM_INPUT);
  free(deep);
}

static void test_json_files(void **state) {
  (void)state;
  wm_error_t err = {0};
  json_t *out;
  char path[] = "/tmp/wm_json_XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  static const char text[] = "{\n \"a\": }";
  assert_int_equal(write(fd, text, strlen(text)), strlen(text));
  assert_int_equal(wm_json_load(path, &out, &err), WM_INPUT);
  assert_non_null(strstr(err.message, ":2:"));
  assert_int_equal(pwrite(fd, "{\"a\":1,\"a\":2}", 13, 0), 13);
  assert_int_equal(ftruncate(fd, 13), 0);
  assert_int_equal(wm_json_load(path, &out, &err), WM_INPUT);
  assert_non_null(strstr(err.message, "duplicate"));
  assert_int_equal(ftruncate(fd, 0), 0);
  assert_int_equal(pwrite(fd, "{\"a\": 1}", 8, 0), 8);
  close(fd);
  assert_int_equal(wm_json_load(path, &out, &err), WM_OK);
  assert_int_equal(json_integer_value(json_object_get(out, "a")), 1);
  json_decref(out);
  unlink(path);
  assert_int_equal(wm_json_load(path, &out, &err), WM_INPUT);
  assert_non_null(strstr(err.message, "cannot open"));
  assert_int_equal(wm_json_load("/tmp", &out, &err), WM_INPUT);
}

/* --- random numbers and hashes ------------------------------------------------------------------
 */

/* Known answers of the authors of Philox4x32-10 (kat_vectors of Random123). */
static void test_rng_known_answers(void **state) {
  (void)state;
  assert_true(wm_rng_bits((wm_rng_t){0, 0}, 0) == 0xe169c58d6627e8d5u);
  assert_true(wm_rng_bits((wm_rng_t){UINT64_MAX, UINT64_MAX}, UINT64_MAX) == 0x41c83b0e408f276du);
  /* counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0 */
  wm_rng_t pi = {0x299f31d0a4093822u, 0x0370734413198a2eu};
  assert_true(wm_rng_bits(pi, 0x85a308d3243f6a88u) == 0x94fdccebd16cfe09u);
}

/* Any part of an array can be drawn alone, and a distribution with the right moments comes out. */
static void test_rng_normals(void **state) {
  (void)state;
  enum { N = 40000 };
  static float all[N], part[N];
  wm_rng_t rng = {5, 9};
  wm_rng_normals(rng, 7, N, all);
  for (int first = 0; first < 9; first++)
    for (int n = 0; n < 9; n++) {
      wm_rng_normals(rng, (uint64_t)(7 + first), n, part);
      assert_memory_equal(part, all + first, (size_t)n * sizeof *part);
    }
  double moments[5] = {0};
  for (int i = 0; i < N; i++)
    for (int k = 1; k <= 4; k++)
      moments[k] += pow((double)all[i], k) / N;
  assert_true(fabs(moments[1]) < 5 * sqrt(1.0 / N) && fabs(moments[2] - 1) < 5 * sqrt(2.0 / N));
  assert_true(fabs(moments[3]) < 5 * sqrt(15.0 / N) && fabs(moments[4] - 3) < 5 * sqrt(96.0 / N));
}

static void test_rng_draws(void **state) {
  (void)state;
  enum { N = 200000 };
  wm_rng_t rng = {5, 9};
  double sum = 0, normal = 0, square = 0;
  int64_t counts[7] = {0};
  for (uint64_t i = 0; i < N; i++) {
    double u = wm_rng_uniform(rng, i), z = wm_rng_normal(rng, i);
    assert_true(u >= 0 && u < 1 && isfinite(z));
    sum += u;
    normal += z;
    square += z * z;
    uint64_t k = wm_rng_below(rng, i, 7);
    assert_true(k < 7);
    counts[k]++;
  }
  /* five standard errors */
  assert_true(fabs(sum / N - 0.5) < 5 * sqrt(1.0 / 12 / N));
  assert_true(fabs(normal / N) < 5 / sqrt(N));
  assert_true(fabs(square / N - 1) < 5 * sqrt(2.0 / N));
  for (int k = 0; k < 7; k++)
    assert_true(fabs((double)counts[k] - N / 7.0) < 5 * sqrt(N * 6.0 / 49));
  assert_int_equal(wm_rng_below(rng, 3, 1), 0);
  for (uint64_t i = 0; i < 100; i++) /* the seed and the stream count */
    assert_true(wm_rng_bits(rng, i) != wm_rng_bits((wm_rng_t){5, 10}, i) &&
                wm_rng_bits(rng, i) != wm_rng_bits((wm_rng_t){6, 9}, i));
}

static void test_hash(void **state) {
  (void)state;
  assert_true(wm_hash("", 0, 0) == 0x2d06800538d394c2u); /* XXH3, as its authors publish it */
  uint64_t a = wm_hash("abc", 3, 0);
  assert_true(a == wm_hash("abc", 3, 0));
  assert_true(a != wm_hash("abd", 3, 0));
  assert_true(a != wm_hash("abc", 3, 1));
  assert_true(wm_hash("b", 1, wm_hash("a", 1, 0)) != wm_hash("a", 1, wm_hash("b", 1, 0)));
}

/* --- log and progress ---------------------------------------------------------------------------
 */

static int saved_stderr;
static FILE *captured;

static void capture(void) {
  captured = tmpfile();
  assert_non_null(captured);
  fflush(stderr);
  saved_stderr = dup(STDERR_FILENO);
  dup2(fileno(captured), STDERR_FILENO);
}

/* What was written to standard error since capture(). */
static const char *release(void) {
  static char text[16384];
  fflush(stderr);
  dup2(saved_stderr, STDERR_FILENO);
  close(saved_stderr);
  rewind(captured);
  text[fread(text, 1, sizeof text - 1, captured)] = '\0';
  fclose(captured);
  return text;
}

static void test_log(void **state) {
  (void)state;
  wm_log_t zero = {WM_LOG_INFO, 0, false}, other = {WM_LOG_DEBUG, 3, false},
           all = {WM_LOG_DEBUG, 0, true};
  capture();
  wm_log(NULL, WM_LOG_ERROR, "nobody");
  wm_log(&zero, WM_LOG_DEBUG, "too fine");
  wm_log(&other, WM_LOG_WARN, "silent rank");
  const char *text = release();
  assert_string_equal(text, "");
  capture();
  wm_log(&zero, WM_LOG_INFO, "read %d", 7);
  wm_log(&other, WM_LOG_ERROR, "lost");
  wm_log(&all, WM_LOG_WARN, "all");
  text = release();
  assert_int_equal(strcspn(text, "\n"), strlen("hh:mm:ss read 7"));
  assert_memory_equal(text + 9, "read 7\n", 7);
  assert_non_null(strstr(text, " error: [rank 3] lost\n"));
  assert_non_null(strstr(text, " warning: [rank 0] all\n"));
  capture();
  wm_log(&zero, WM_LOG_INFO, "%9000d", 1); /* cut to a line */
  text = release();
  assert_int_equal(text[strlen(text) - 1], '\n');
  assert_true(strlen(text) < 4100);
}

static void test_progress(void **state) {
  (void)state;
  wm_log_t log = {WM_LOG_INFO, 0, false}, silent = {WM_LOG_INFO, 1, false};
  wm_progress_t p;
  capture();
  wm_progress_start(&p, &log, "fit", "tokens", 20000);
  wm_progress_update(&p, 10); /* a line a minute, so not yet */
  p.start -= 100;
  p.last_shown -= 100;
  wm_progress_update(&p, 5000);
  p.start -= 7100;
  wm_progress_update(&p, 20000);
  wm_progress_finish(&p);
  const char *text = release();
  assert_non_null(strstr(text, "fit: 5000 of 20.0k tokens (25 %), 50/s, 5m00s left\n"));
  assert_non_null(strstr(text, "fit: 20.0k tokens in 2h00m, 2.78/s\n"));
  assert_int_equal(text[strcspn(text, "\n") + 1 + strcspn(strchr(text, '\n') + 1, "\n") + 1], '\0');
  capture();
  wm_progress_start(&p, &silent, "fit", "tokens", 10);
  p.last_shown -= 100;
  wm_progress_update(&p, 5);
  wm_progress_finish(&p);
  wm_progress_start(&p, NULL, "fit", "tokens", 10);
  p.last_shown -= 100;
  wm_progress_update(&p, 5);
  wm_progress_finish(&p);
  text = release();
  assert_string_equal(text, "");
}

static void test_progress_extremes(void **state) {
  (void)state;
  wm_log_t log = {WM_LOG_INFO, 0, false};
  static const int64_t cases[][2] = {{0, 0},   {5, 0},         {0, 10},
                                     {30, 10}, {1, INT64_MAX}, {INT64_MAX, INT64_MAX}};
  capture();
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    wm_progress_t p;
    wm_progress_start(&p, &log, "s", "u", cases[i][1]);
    p.start -= 1e6;
    p.last_shown -= 1e6;
    wm_progress_update(&p, cases[i][0]);
    wm_progress_finish(&p);
  }
  const char *text = release();
  assert_null(strstr(text, "-"));
  assert_null(strstr(text, "nan"));
  assert_non_null(strstr(text, "s: 30 of 10 u (300 %), 0.00/s\n")); /* no time left */
}

static void test_clock(void **state) {
  (void)state;
  double before = wm_seconds();
  usleep(20000);
  double passed = wm_seconds() - before;
  assert_true(passed >= 0.02 && passed < 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fail),
      cmocka_unit_test(test_messages_are_cut),
      cmocka_unit_test(test_messages_may_quote_themselves),
      cmocka_unit_test(test_status_names),
      cmocka_unit_test(test_alloc),
      cmocka_unit_test(test_much_memory_pulses),
      cmocka_unit_test(test_alloc_failure),
      cmocka_unit_test(test_grow),
      cmocka_unit_test(test_texts),
      cmocka_unit_test(test_peak_memory),
      cmocka_unit_test(test_json_values),
      cmocka_unit_test(test_json_failures),
      cmocka_unit_test(test_json_malformed),
      cmocka_unit_test(test_json_files),
      cmocka_unit_test(test_rng_known_answers),
      cmocka_unit_test(test_rng_draws),
      cmocka_unit_test(test_rng_normals),
      cmocka_unit_test(test_hash),
      cmocka_unit_test(test_log),
      cmocka_unit_test(test_progress),
      cmocka_unit_test(test_progress_extremes),
      cmocka_unit_test(test_clock),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
