/* Corpora: lines, JSON Lines, blank rows and headings, ranges of bytes; npy arrays. */
#include "test_io_scratch.h"

#include "wanamaker/io/corpus.h"

#include <sys/stat.h>

static wm_corpus_t *open_text(const char *name, const void *data, size_t bytes, bool keep_newline) {
  char path[2 * PATH];
  wm_corpus_t *c;
  wm_error_t err = {0};
  write_file(dir, name, data, bytes);
  wm_corpus_spec_t spec = {.path = join(path, dir, name), .keep_newline = keep_newline};
  if (wm_corpus_open(&spec, &c, &err) != WM_OK)
    fail_msg("%s", err.message);
  return c;
}

typedef struct {
  const char *text;
  int64_t bytes, position;
} expected_t;

/* All rows from the byte 0 on; returns the number of replacements. */
static int64_t check_rows(const wm_corpus_t *c, const expected_t *rows, int n) {
  wm_row_cursor_t cursor;
  wm_row_t row;
  wm_error_t err = {0};
  bool more;
  wm_row_cursor_init(&cursor, c, 0);
  for (int i = 0; i < n; i++) {
    if (wm_row_cursor_next(&cursor, &row, &more, &err) != WM_OK)
      fail_msg("%s", err.message);
    assert_true(more);
    assert_int_equal(row.bytes, rows[i].bytes);
    if (row.bytes > 0)
      assert_memory_equal(row.text, rows[i].text, (size_t)row.bytes);
    if (rows[i].position >= 0)
      assert_int_equal(row.position, rows[i].position);
  }
  assert_int_equal(wm_row_cursor_next(&cursor, &row, &more, &err), WM_OK);
  assert_false(more);
  int64_t replaced = cursor.replaced;
  wm_row_cursor_destroy(&cursor);
  return replaced;
}

#define ROW(text, position)                                                                        \
  { text, sizeof(text) - 1, position }
#define OPEN(name, text, keep) open_text(name, text, sizeof(text) - 1, keep)

static void test_text(void **state) {
  (void)state;
  static const char text[] = "\xef\xbb\xbf"
                             "a\r\nb\rc\n\n \xff\x00\n\xe2\x80\xa8x\r\r\nlast";
  wm_corpus_t *c = OPEN("c.txt", text, false);
  assert_int_equal(wm_corpus_format(c), WM_CORPUS_TEXT);
  assert_int_equal(wm_corpus_bytes(c), sizeof text - 1);
  static const expected_t plain[] = {ROW("\xef\xbb\xbf"
                                         "a",
                                         0),
                                     ROW("b\rc", 6),
                                     ROW("", 10),
                                     ROW(" \xff\x00", 11),
                                     ROW("\xe2\x80\xa8x\r", 15),
                                     ROW("last", 22)};
  check_rows(c, plain, 6);
  wm_corpus_close(c);
  c = OPEN("c.txt", text, true);
  static const expected_t kept[] = {ROW("\xef\xbb\xbf"
                                        "a\n",
                                        0),
                                    ROW("b\rc\n", 6),
                                    ROW("", 10),
                                    ROW(" \xff\x00\n", 11),
                                    ROW("\xe2\x80\xa8x\r\n", 15),
                                    ROW("last\n", 22)};
  check_rows(c, kept, 6);
  wm_corpus_close(c);
  c = OPEN("c.txt", " \n\t\n", true); /* blank rows are empty then */
  static const expected_t blank[] = {ROW("", 0), ROW("", 2)};
  check_rows(c, blank, 2);
  wm_corpus_close(c);
}

/* However the bytes are shared out, each row has one owner. */
static void test_shares(void **state) {
  (void)state;
  static const char text[] = "one\n\nthree\r\nfour is long\nfive";
  enum { BYTES = sizeof text - 1 };
  wm_corpus_t *c = OPEN("c.txt", text, false);
  static const int64_t begins[] = {0, 4, 5, 12, 25};
  for (int64_t byte = -1; byte <= BYTES + 1; byte++) {
    int64_t wanted = BYTES;
    for (int i = 4; i >= 0; i--)
      wanted = begins[i] >= byte ? begins[i] : wanted;
    assert_int_equal(wm_corpus_line_at(c, byte), wanted);
  }
  for (int parts = 1; parts <= 8; parts++) {
    int found = 0;
    for (int p = 0; p < parts; p++) {
      int64_t end = wm_corpus_line_at(c, (p + 1) * BYTES / parts);
      wm_row_cursor_t cursor;
      wm_row_cursor_init(&cursor, c, wm_corpus_line_at(c, p * BYTES / parts));
      while (cursor.next < end) {
        wm_row_t row;
        bool more;
        wm_error_t err = {0};
        assert_int_equal(wm_row_cursor_next(&cursor, &row, &more, &err), WM_OK);
        assert_int_equal(row.position, begins[found++]);
      }
      wm_row_cursor_destroy(&cursor);
    }
    assert_int_equal(found, 5);
  }
  wm_corpus_close(c);
  c = OPEN("c.txt", "a\n", false);
  assert_int_equal(wm_corpus_line_at(c, 1), 2);
  wm_corpus_close(c);
}

static wm_row_t only_row(const char *text) {
  static char line[256];
  snprintf(line, sizeof line, "%s\n", text);
  wm_corpus_t *c = open_text("row.txt", line, strlen(line), false);
  wm_row_cursor_t cursor;
  wm_row_t row;
  bool more;
  wm_error_t err = {0};
  wm_row_cursor_init(&cursor, c, 0);
  assert_int_equal(wm_row_cursor_next(&cursor, &row, &more, &err), WM_OK);
  assert_true(more);
  wm_row_cursor_destroy(&cursor);
  wm_corpus_close(c);
  row.text = NULL;
  return row;
}

static void test_kinds(void **state) {
  (void)state;
  static const char *const headings[] = {
      " = Robert Boulter = ", "= x =", " = Kiss You ( One = Direction ) = ", " = \xc3\xa9 =\t"};
  static const char *const others[] = {
      " = = Career = = ", " == x == ", " = = ",  "=x=", " = x",        "x = ",
      " = x = y",         "text",      " =  = ", "= =", "= \xc2\xa0 ="};
  /* Every character that Python's str.strip() removes. */
  static const char *const blanks[] = {
      "",
      " ",
      "\t\v\f\r",
      "\x1c\x1d\x1e\x1f",
      "\xc2\x85\xc2\xa0",
      "\xe1\x9a\x80",
      "\xe2\x80\x80\xe2\x80\x81\xe2\x80\x82\xe2\x80\x83\xe2\x80\x84\xe2\x80\x85",
      "\xe2\x80\x86\xe2\x80\x87\xe2\x80\x88\xe2\x80\x89\xe2\x80\x8a",
      "\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaf\xe2\x81\x9f\xe3\x80\x80"};
  static const char *const not_blank[] = {"x",    " x ",      "\xe2\x80\x8b", "\xef\xbb\xbf",
                                          "\xc2", "\xe2\x80", "\x01",         "\xe1\xa0\x8e",
                                          "\x7f"};
  for (size_t i = 0; i < sizeof headings / sizeof headings[0]; i++)
    assert_true(only_row(headings[i]).heading);
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
    assert_false(only_row(others[i]).heading);
  for (size_t i = 0; i < sizeof blanks / sizeof blanks[0]; i++)
    assert_true(only_row(blanks[i]).blank);
  for (size_t i = 0; i < sizeof not_blank / sizeof not_blank[0]; i++)
    assert_false(only_row(not_blank[i]).blank);
}

static void test_jsonl(void **state) {
  (void)state;
  static const char text[] =
      "\xef\xbb\xbf{\"text\": \"a\\nb\", \"id\": 123456789012345678901234}\r\n"
      "\n \t\r\n"
      "{\"text\": \"x\xe2\x80\xa8y\\u2028\\u00e9\\ud83d\\ude00\"}\n"
      "{\"text\": \"\"}\n"
      "{\"text\": \"n\\u0000n\"}";
  wm_corpus_t *c = OPEN("c.jsonl", text, false);
  assert_int_equal(wm_corpus_format(c), WM_CORPUS_JSONL);
  static const expected_t plain[] = {ROW("a\nb", 0),
                                     ROW("x\xe2\x80\xa8y\xe2\x80\xa8\xc3\xa9\xf0\x9f\x98\x80", 58),
                                     ROW("", 100), ROW("n\0n", 113)};
  assert_int_equal(check_rows(c, plain, 4), 0);
  wm_corpus_close(c);
  c = OPEN("c.ndjson", "{\"text\":\"a\"}\n{\"text\":\"a\\n\"}\n{\"text\":\" \\n\"}\n", true);
  static const expected_t kept[] = {ROW("a\n", 0), ROW("a\n", 13), ROW("", 28)};
  check_rows(c, kept, 3);
  wm_corpus_close(c);
}

#define FFFD "\xef\xbf\xbd"

static void test_jsonl_repair(void **state) {
  (void)state;
  static const struct {
    const char *in, *out;
    int replaced;
  } cases[] = {
      {"\\ud800", FFFD, 1},
      {"\\uDFFFx", FFFD "x", 1},
      {"\\ud83d\\ude00", "\xf0\x9f\x98\x80", 0},
      {"\\ude00\\ud83d", FFFD FFFD, 2},
      {"\\ud83d\\ud83d\\ude00", FFFD "\xf0\x9f\x98\x80", 1},
      {"\\ud83dx\\ude00", FFFD "x" FFFD, 2},
      {"\\\\ud800", "\\ud800", 0},   /* an escaped backslash, then text */
      {"\\\\\\ud800", "\\" FFFD, 1}, /* an escaped backslash, then a lone surrogate */
      {"\\ud800\\\\udc00", FFFD "\\udc00", 1},
      {"\\ud800\\n", FFFD "\n", 1},
      {"\\\"\\ud800\\\"", "\"" FFFD "\"", 1},
      {"a\xff"
       "b",
       "a" FFFD "b", 1},
      {"\xe2\x82", FFFD, 1}, /* one truncated sequence: one part */
      {"\xf0\x9f\x98x", FFFD "x", 1},
      {"\xc0\x80", FFFD FFFD, 2},          /* overlong */
      {"\xed\xa0\x80", FFFD FFFD FFFD, 3}, /* an encoded surrogate */
      {"\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD, 4},
      {"\xe0\x80\xaf", FFFD FFFD FFFD, 3},
      {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 0},
      {"\xf0\x80\x80\xc3\xa9", FFFD FFFD FFFD "\xc3\xa9", 3},
      {"\xef\xbf\xbf\xef\xbb\xbf", "\xef\xbf\xbf\xef\xbb\xbf", 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char line[256];
    int n = snprintf(line, sizeof line, "{\"text\": \"%s\"}", cases[i].in);
    wm_corpus_t *c = open_text("c.jsonl", line, (size_t)n, false);
    expected_t row = {cases[i].out, (int64_t)strlen(cases[i].out), 0};
    assert_int_equal(check_rows(c, &row, 1), cases[i].replaced);
    wm_corpus_close(c);
  }
}

static void test_jsonl_malformed(void **state) {
  (void)state;
  static const struct {
    const char *line, *message;
  } cases[] = {
      {"{\"text\": \"a\"", "not valid JSON"},
      {"{\"text\": \"a\"} x", "not valid JSON"},
      {"{\"text\": \"a\\", "not valid JSON"},
      {"{\"text\": \"\\u12\"}", "not valid JSON"},
      {"{\"text\": \"\\ud80\"}", "not valid JSON"},
      {"{\"text\": \"a\tb\"}", "not valid JSON"},
      {"{\"text\": \"a\", \"text\": \"b\"}", "duplicate"},
      {"[\"text\"]", "must be a JSON object"},
      {"\"text\"", "must be a JSON object"},
      {"{\"txt\": \"a\"}", "has no member \"text\""},
      {"{\"text\": null}", "must be a string"},
      {"{\"text\": 1}", "must be a string"},
      {"{\"text\": \"a\", \"n\": 1, \"n\": 2}", "column 25: duplicate object key"},
      {"{\"text\": \"a\", \"m\": {\"n\": 1, \"n\": 2}}", "duplicate object key"},
      {"{\"text\": \"a\", \"n\": 1e999}", "real number overflow"},
      {"{\"text\": \"a\", \"n\": NaN}", "not valid JSON at column"},
      {"{\"text\": \"a\", \"n\": -}", "not valid JSON at column"},
      {"{\"text\": \"a\", \"n\": 01}", "not valid JSON at column"},
      {"{}", "has no member \"text\""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char text[256];
    int n = snprintf(text, sizeof text, "{\"text\": \"ok\"}\n%s\n", cases[i].line);
    wm_corpus_t *c = open_text("bad.jsonl", text, (size_t)n, false);
    wm_row_cursor_t cursor;
    wm_row_t row;
    bool more;
    wm_error_t err = {0};
    wm_row_cursor_init(&cursor, c, 0);
    assert_int_equal(wm_row_cursor_next(&cursor, &row, &more, &err), WM_OK);
    assert_int_equal(wm_row_cursor_next(&cursor, &row, &more, &err), WM_INPUT);
    assert_message(err.message, "bad.jsonl: line at byte 15");
    assert_message(err.message, cases[i].message);
    wm_row_cursor_destroy(&cursor);
    wm_corpus_close(c);
  }
}

/* Whatever else an object holds, it is passed over; but not to any depth. */
static void test_jsonl_other_members(void **state) {
  (void)state;
  static const char fine[] =
      "{\"n\": 99999999999999999999999, \"m\": [-0, 1.5, null], \"text\": \"a\"}";
  wm_corpus_t *c = open_text("c.jsonl", fine, sizeof fine - 1, false);
  expected_t row = {"a", 1, 0};
  assert_int_equal(check_rows(c, &row, 1), 0);
  wm_corpus_close(c);
  enum { DEPTH = 100000 };
  char *deep = malloc(DEPTH);
  assert_non_null(deep);
  memset(deep, '[', DEPTH);
  c = open_text("bad.jsonl", deep, DEPTH, false);
  wm_row_cursor_t cursor;
  wm_row_t next;
  bool more;
  wm_error_t err = {0};
  wm_row_cursor_init(&cursor, c, 0);
  assert_int_equal(wm_row_cursor_next(&cursor, &next, &more, &err), WM_INPUT);
  assert_message(err.message,
                 "line at byte 0: not valid JSON at column 2049: maximum parsing depth");
  wm_row_cursor_destroy(&cursor);
  wm_corpus_close(c);
  free(deep);
}

static void test_open(void **state) {
  (void)state;
  char path[2 * PATH];
  wm_corpus_t *c;
  wm_error_t err = {0};
  wm_corpus_spec_t spec = {.path = join(path, dir, "none.txt")};
  assert_int_equal(wm_corpus_open(&spec, &c, &err), WM_INPUT);
  assert_message(err.message, "none.txt: cannot open");
  write_file(dir, "none.txt", "", 0);
  assert_int_equal(wm_corpus_open(&spec, &c, &err), WM_INPUT);
  assert_message(err.message, "the corpus is empty");
  assert_null(c);
}

/* Ranks read a corpus at once, from any place: a pipe will not do. */
static void test_no_pipes(void **state) {
  (void)state;
  char path[2 * PATH];
  wm_corpus_t *c;
  wm_error_t err = {0};
  wm_corpus_spec_t spec = {.path = join(path, dir, "pipe.txt")};
  assert_int_equal(mkfifo(path, 0600), 0);
  assert_int_equal(wm_corpus_open(&spec, &c, &err), WM_INPUT);
  assert_message(err.message, "pipe.txt: is a device, pipe or socket, not a regular file");
  spec.path = "-";
  assert_int_equal(wm_corpus_open(&spec, &c, &err), WM_INPUT);
  assert_message(err.message, "standard input cannot be a corpus");
  assert_null(c);
}

/* ---- npy ---- */

static wm_status_t open_array(int major, const char *header, const void *data, size_t bytes,
                              wm_corpus_t **c, wm_error_t *err) {
  unsigned char file[1024] = "\x93NUMPY";
  char path[2 * PATH];
  size_t length = strlen(header), at = major == 1 ? 10 : 12;
  file[6] = (unsigned char)major;
  file[8] = (unsigned char)length;
  memcpy(file + at, header, length);
  memcpy(file + at + length, data, bytes);
  write_file(dir, "a.npy", file, at + length + bytes);
  wm_corpus_spec_t spec = {.path = join(path, dir, "a.npy")};
  return wm_corpus_open(&spec, c, err);
}

static void test_npy(void **state) {
  (void)state;
  static const uint16_t u2[] = {0, 1, 65535};
  static const int32_t i4[] = {5, 2147483647, 7};
  static const uint32_t u4[] = {5, 2147483647, 7};
  static const int64_t i8[] = {5, 2147483647, 7};
  static const struct {
    int major;
    const char *header;
    const void *data;
    size_t bytes;
    int32_t last[2];
  } cases[] = {
      {1, "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }   \n", u2, 6, {1, 65535}},
      {2, "{\"shape\": (3L,), 'fortran_order':False,'descr':'<i4'}\n", i4, 12, {2147483647, 7}},
      {3, "{'descr': '<u4', 'fortran_order': False, 'shape': (3,), }", u4, 12, {2147483647, 7}},
      {1, "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }", i8, 24, {2147483647, 7}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    wm_corpus_t *c;
    wm_error_t err = {0};
    int32_t ids[2] = {-1, -1};
    if (open_array(cases[i].major, cases[i].header, cases[i].data, cases[i].bytes, &c, &err) !=
        WM_OK)
      fail_msg("%s", err.message);
    assert_int_equal(wm_corpus_format(c), WM_CORPUS_NPY);
    assert_int_equal(wm_corpus_token_count(c), 3);
    assert_int_equal(wm_corpus_tokens(c, 1, 2, ids, &err), WM_OK);
    assert_memory_equal(ids, cases[i].last, sizeof ids);
    wm_corpus_close(c);
  }
}

static void test_npy_ids(void **state) {
  (void)state;
  static const int32_t negative[] = {3, -1};
  static const uint32_t large[] = {3, 2147483648u};
  static const int64_t larger[] = {3, INT64_C(1) << 40};
  static const struct {
    const char *header;
    const void *data;
    size_t bytes;
    const char *message;
  } cases[] = {
      {"{'descr': '<i4', 'fortran_order': False, 'shape': (2,)}", negative, 8, "1 is -1"},
      {"{'descr': '<u4', 'fortran_order': False, 'shape': (2,)}", large, 8, "1 is 2147483648"},
      {"{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}", larger, 16, "1 is 1099511627776"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    wm_corpus_t *c;
    wm_error_t err = {0};
    int32_t id;
    assert_int_equal(open_array(1, cases[i].header, cases[i].data, cases[i].bytes, &c, &err),
                     WM_OK);
    assert_int_equal(wm_corpus_tokens(c, 0, 1, &id, &err), WM_OK);
    assert_int_equal(wm_corpus_tokens(c, 1, 1, &id, &err), WM_INPUT);
    assert_message(err.message, cases[i].message);
    wm_corpus_close(c);
  }
}

#define HEADER(descr, fortran, shape)                                                              \
  "{'descr': '" descr "', 'fortran_order': " fortran ", 'shape': " shape ", }"

static void test_npy_malformed(void **state) {
  (void)state;
  static const struct {
    int major;
    const char *header;
    size_t bytes;
    const char *message;
  } cases[] = {
      {1, HEADER("<u2", "True", "(2,)"), 4, "Fortran order"},
      {1, HEADER(">u2", "False", "(2,)"), 4, "big-endian elements ('>u2'); expected '<u2'"},
      {1, HEADER("<f4", "False", "(2,)"), 8, "type '<f4'"},
      {1, HEADER("<u2", "False", "(2, 1)"), 4, "2 dimensions; expected 1"},
      {1, HEADER("<u2", "False", "()"), 2, "0 dimensions; expected 1"},
      {1, HEADER("<u2", "False", "(2,)"), 3, "truncated"},
      {1, HEADER("<u2", "False", "(2,)"), 6, "trailing bytes"},
      {1, HEADER("<u2", "False", "(9223372036854775807,)"), 4, "truncated"},
      {1, HEADER("<u2", "False", "(99999999999999999999,)"), 4, "below 2^63"},
      {1, HEADER("<u2", "False", "(-2,)"), 4, "an extent expected"},
      {1, HEADER("<u2", "Maybe", "(2,)"), 4, "True or False expected"},
      {1, HEADER("<u2", "False", "[2]"), 4, "a tuple expected"},
      {1, "{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (2,)}", 4, "a string"},
      {1, "{'descr': '<u2', 'shape': (2,)}", 4, "must hold"},
      {1, "{'descr': '<u2', 'other': 1}", 4, "unknown member 'other'"},
      {1, "{'descr': '<u2', 'descr': '<u2'}", 4,
       "byte 34 of the npy header: duplicate member 'descr'"},
      {1, "{'descr': '<u2}", 4, "the end of a short string expected"},
      {1, "{'descr\": '<u2'}", 4, "unknown member 'descr\": '"},
      {1, "{\"'descr'\": '<u2'}", 4, "unknown member ''descr''"},
      {1, "{'descr': '<u2', 'fortran_order': False, 'shape': (2,)} x", 4, "the end expected"},
      {1, HEADER("<u2", "False", "(4294967296, 4294967296,)"), 4, "less than 2^63 elements"},
      {1, HEADER("<u2", "False", "(1e1,)"), 20, "',' or ')' expected"},
      {1, HEADER("<u2", "False", "(2.5,)"), 4, "',' or ')' expected"},
      {1, HEADER("|u1", "False", "(2,)"), 2, "type '|u1'"},
      {1, HEADER("=u2", "False", "(2,)"), 4, "type '=u2'"},
      {1, HEADER(">i8", "False", "(2,)"), 16, "big-endian elements ('>i8'); expected '<i8'"},
      {2, HEADER("<u2", "True", "(2,)"), 4, "Fortran order"},
      {1, "{'descr': '<u2'", 4, "expected"},
      {1, "", 0, "'{' expected"},
      {4, HEADER("<u2", "False", "(2,)"), 4, "version 4.0"},
      {0, HEADER("<u2", "False", "(2,)"), 4, "version 0.0"},
  };
  static const char data[64]; /* as many as any case has */
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    wm_corpus_t *c;
    wm_error_t err = {0};
    assert_int_equal(open_array(cases[i].major, cases[i].header, data, cases[i].bytes, &c, &err),
                     WM_INPUT);
    assert_message(err.message, cases[i].message);
    assert_message(err.message, "a.npy");
  }
  static const struct {
    const char *bytes;
    size_t n;
    const char *message;
  } files[] = {{"PK\x03\x04 this is a zip file", 22, "is no npy file"},
               {"\x93NUMPY", 6, "is no npy file"},
               {"\x93NUMPY\x01\x00\x10\x00{'descr\0': '<u2'}", 26, "short string expected"},
               {"\x93NUMPY\x02\x00\x02\x00", 10, "byte 10: the file ends in the length"},
               {"\x93NUMPY\x01\x00\xff\xff{}", 12, "a header of 65535 bytes"},
               {"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14, "a header of 4294967295 bytes"}};
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    char path[2 * PATH];
    wm_corpus_t *c;
    wm_error_t err = {0};
    write_file(dir, "a.npy", files[i].bytes, files[i].n);
    wm_corpus_spec_t spec = {.path = join(path, dir, "a.npy")};
    assert_int_equal(wm_corpus_open(&spec, &c, &err), WM_INPUT);
    assert_message(err.message, files[i].message);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_text),
      cmocka_unit_test(test_shares),
      cmocka_unit_test(test_kinds),
      cmocka_unit_test(test_jsonl),
      cmocka_unit_test(test_jsonl_repair),
      cmocka_unit_test(test_jsonl_malformed),
      cmocka_unit_test(test_jsonl_other_members),
      cmocka_unit_test(test_open),
      cmocka_unit_test(test_no_pipes),
      cmocka_unit_test(test_npy),
      cmocka_unit_test(test_npy_ids),
      cmocka_unit_test(test_npy_malformed),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
