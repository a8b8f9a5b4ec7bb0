/* Windows against hand-made cases and, on random corpora, against a statement of method.md that
 * marks tokens one by one. */
#include "wanamaker/measure/windows.h"

#include "wanamaker/base/rng.h"
#include "wanamaker/io/tokens.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Rows:      heading blank text text blank heading text blank
 * tokens:        0-2    -  3-12  13    14   15-18 19-24    -
 * With a window of 5 and at least 2 tokens, documents are the rows 0, 2, 5, 6, of 3, 5, 4, 5 kept
 * tokens; the first ones are number 0, 3, 8, 12 of 17. */
static const int64_t row_first[] = {0, 3, 3, 13, 14, 15, 19, 25, 25};
static const uint8_t row_flags[] = {WM_ROW_ARTICLE, WM_ROW_BLANK,   0, 0,
                                    WM_ROW_BLANK,   WM_ROW_ARTICLE, 0, WM_ROW_BLANK};

static wm_token_view_t corpus(const char *encoding) {
  return (wm_token_view_t){.name = "toy",
                           .encoding = encoding,
                           .n_tokens = 25,
                           .n_rows = 8,
                           .row_first = row_first,
                           .row_flags = row_flags};
}

static const wm_protocol_t documents = {WM_PROTOCOL_DOCUMENTS, 5, 0, 2};
static const wm_protocol_t stream = {WM_PROTOCOL_STREAM, 5, 0, 0};
static const wm_protocol_t sliding = {WM_PROTOCOL_SLIDING, 6, 2, 0};

static wm_range_t range(wm_range_kind_t kind, int64_t begin, int64_t end, int64_t max_tokens) {
  return (wm_range_t){"fit", kind, begin, end, max_tokens};
}

static wm_windows_t make(const wm_protocol_t *protocol, wm_range_t r) {
  wm_token_view_t c = corpus(protocol->kind == WM_PROTOCOL_DOCUMENTS ? "documents" : "stream");
  wm_windows_t w;
  wm_error_t err = {0};
  if (wm_windows_create(&c, protocol, &r, &w, &err) != WM_OK)
    fail_msg("%s", err.message);
  return w;
}

/* Compares with rows of {first, length, row, predicted}. */
static void expect(wm_windows_t w, int64_t n, const int64_t (*rows)[4]) {
  assert_int_equal(w.n, n);
  int64_t predicted = 0;
  for (int64_t i = 0; i < n; i++) {
    assert_int_equal(w.first[i], rows[i][0]);
    assert_int_equal(w.length[i], rows[i][1]);
    assert_int_equal(w.row[i], rows[i][2]);
    assert_int_equal(w.predicted_offset[i], predicted);
    predicted += rows[i][3];
    assert_int_equal(w.predicted_offset[i + 1], predicted);
  }
  assert_int_equal(w.n_predicted, predicted);
  wm_windows_destroy(&w);
}

#define EXPECT(windows, ...)                                                                       \
  do {                                                                                             \
    const int64_t rows[][4] = {__VA_ARGS__};                                                       \
    expect(windows, sizeof rows / sizeof rows[0], rows);                                           \
  } while (0)

static void documents_by_tokens(void **state) {
  (void)state;
  EXPECT(make(&documents, range(WM_RANGE_TOKENS, 0, 17, 0)), {0, 3, 0, 2}, {3, 5, 2, 4},
         {15, 4, 5, 3}, {19, 5, 6, 4});
  /* Document 0 begins before the range; document 2 is cut to two tokens, then to one and dropped.
   */
  EXPECT(make(&documents, range(WM_RANGE_TOKENS, 1, 10, 0)), {3, 5, 2, 4}, {15, 2, 5, 1});
  EXPECT(make(&documents, range(WM_RANGE_TOKENS, 1, 9, 0)), {3, 5, 2, 4});
  EXPECT(make(&documents, range(WM_RANGE_TOKENS, 0, 17, 10)), {0, 3, 0, 2}, {3, 5, 2, 4},
         {15, 2, 5, 1});
  EXPECT(make(&documents, range(WM_RANGE_TOKENS, 0, 17, 9)), {0, 3, 0, 2}, {3, 5, 2, 4});
}

static void documents_by_documents_and_rows(void **state) {
  (void)state;
  EXPECT(make(&documents, range(WM_RANGE_DOCUMENTS, 1, 3, 0)), {3, 5, 2, 4}, {15, 4, 5, 3});
  EXPECT(make(&documents, range(WM_RANGE_ROWS, 1, 6, 0)), {3, 5, 2, 4}, {15, 4, 5, 3});
  EXPECT(make(&documents, range(WM_RANGE_ROWS, 0, 8, 7)), {0, 3, 0, 2}, {3, 4, 2, 3});
  wm_windows_t w = make(&documents, range(WM_RANGE_ROWS, 5, 8, 0));
  assert_int_equal(w.document[0], 2);
  assert_int_equal(w.document[1], 3);
  assert_int_equal(w.article[0], 2);
  assert_int_equal(w.n_positions, 9);
  assert_int_equal(w.max_length, 5);
  wm_windows_destroy(&w);
  wm_protocol_t singles = {WM_PROTOCOL_DOCUMENTS, 5, 0, 1}; /* row 3 counts, the blank row 4 not */
  EXPECT(make(&singles, range(WM_RANGE_DOCUMENTS, 1, 4, 0)), {3, 5, 2, 4}, {13, 1, 3, 0},
         {15, 4, 5, 3});
}

static void streams(void **state) {
  (void)state;
  EXPECT(make(&stream, range(WM_RANGE_TOKENS, 2, 15, 0)), {2, 5, 0, 4}, {7, 5, 2, 4},
         {12, 3, 2, 2});
  EXPECT(make(&stream, range(WM_RANGE_ROWS, 2, 6, 0)), {3, 5, 2, 4}, {8, 5, 2, 4}, {13, 5, 3, 4},
         {18, 1, 5, 0});
  EXPECT(make(&stream, range(WM_RANGE_TOKENS, 0, 25, 7)), {0, 5, 0, 4}, {5, 2, 2, 1});
  EXPECT(make(&stream, range(WM_RANGE_TOKENS, 0, 5, 0)), {0, 5, 0, 4});
  wm_windows_t w = make(&stream, range(WM_RANGE_TOKENS, 5, 20, 0));
  assert_int_equal(w.document[0], -1);
  assert_int_equal(w.article[1], 1);
  assert_int_equal(w.article[2], 2);
  wm_windows_destroy(&w);
}

static void sliding_windows(void **state) {
  (void)state;
  EXPECT(make(&sliding, range(WM_RANGE_TOKENS, 0, 10, 0)), {0, 6, 0, 5}, {2, 6, 0, 2},
         {4, 6, 2, 2});
  EXPECT(make(&sliding, range(WM_RANGE_TOKENS, 0, 9, 0)), {0, 6, 0, 5}, {2, 6, 0, 2}, {4, 5, 2, 1});
  EXPECT(make(&sliding, range(WM_RANGE_TOKENS, 0, 4, 0)), {0, 4, 0, 3});
  wm_windows_t w = make(&sliding, range(WM_RANGE_TOKENS, 0, 10, 0));
  assert_int_equal(w.n_positions, 10);
  assert_int_equal(w.first_new[1], 4);
  assert_int_equal(w.first_predicted[1], 3); /* predicts the id at 4 */
  wm_windows_destroy(&w);
  /* A stride of the window's length is a stream. */
  wm_protocol_t apart = {WM_PROTOCOL_SLIDING, 5, 5, 0};
  EXPECT(make(&apart, range(WM_RANGE_TOKENS, 2, 15, 0)), {2, 5, 0, 4}, {7, 5, 2, 4}, {12, 3, 2, 2});
}

static void refuse(const char *encoding, wm_protocol_t protocol, wm_range_t r, wm_status_t expected,
                   const char *words) {
  wm_token_view_t c = corpus(encoding);
  if (strcmp(encoding, "ids") == 0)
    c.n_rows = 0;
  wm_windows_t w;
  wm_error_t err = {0};
  assert_int_equal(wm_windows_create(&c, &protocol, &r, &w, &err), expected);
  assert_int_equal(err.status, expected);
  if (strstr(err.message, words) == NULL)
    fail_msg("\"%s\" lacks \"%s\"", err.message, words);
  assert_null(w.first);
}

static void errors(void **state) {
  (void)state;
  const wm_range_t all = range(WM_RANGE_TOKENS, 0, 17, 0);
  wm_protocol_t p = documents;
  refuse("documents", p, range(WM_RANGE_TOKENS, 0, 18, 0), WM_INPUT, "17 kept tokens");
  refuse("documents", p, range(WM_RANGE_DOCUMENTS, 0, 5, 0), WM_INPUT, "4 kept documents");
  refuse("documents", p, range(WM_RANGE_ROWS, 0, 9, 0), WM_INPUT, "8 rows");
  refuse("stream", stream, range(WM_RANGE_TOKENS, 0, 26, 0), WM_INPUT, "25 tokens");
  refuse("stream", stream, range(WM_RANGE_ROWS, 7, 9, 0), WM_INPUT, "8 rows");
  refuse("documents", p, range(WM_RANGE_TOKENS, 3, 3, 0), WM_USAGE, "empty range");
  refuse("documents", p, range(WM_RANGE_TOKENS, 5, 3, 0), WM_USAGE, "empty range");
  refuse("documents", p, range(WM_RANGE_TOKENS, -1, 3, 0), WM_USAGE, "fit: tokens [-1, 3)");
  refuse("documents", p, range(WM_RANGE_TOKENS, 0, 3, -1), WM_USAGE, "max_tokens");
  refuse("documents", p, range(WM_RANGE_ABSENT, 0, 0, 0), WM_USAGE, "no such range");
  refuse("documents", p, range(WM_RANGE_ROWS, 3, 5, 0), WM_INPUT, "nothing to predict");
  refuse("stream", stream, range(WM_RANGE_ROWS, 1, 2, 0), WM_INPUT, "nothing to predict");
  refuse("stream", stream, range(WM_RANGE_TOKENS, 4, 5, 0), WM_INPUT, "nothing to predict");
  refuse("stream", stream, range(WM_RANGE_DOCUMENTS, 0, 1, 0), WM_USAGE, "\"documents\"");
  refuse("ids", stream, range(WM_RANGE_ROWS, 0, 1, 0), WM_USAGE, "without rows");
  refuse("stream", p, all, WM_USAGE, "needs \"documents\"");
  refuse("ids", p, all, WM_USAGE, "needs \"documents\"");
  refuse("documents", stream, all, WM_USAGE, "needs \"stream\" or \"ids\"");
  refuse("documents", sliding, all, WM_USAGE, "needs \"stream\" or \"ids\"");
  refuse("stream", (wm_protocol_t){WM_PROTOCOL_SLIDING, 6, 7, 0}, all, WM_USAGE, "stride 7");
  refuse("stream", (wm_protocol_t){WM_PROTOCOL_SLIDING, 6, 0, 0}, all, WM_USAGE, "stride 0");
  refuse("stream", (wm_protocol_t){WM_PROTOCOL_STREAM, 1, 0, 0}, all, WM_USAGE, "window length 1");
  refuse("documents", (wm_protocol_t){WM_PROTOCOL_DOCUMENTS, 5, 0, 6}, all, WM_USAGE, "minimum");
}

static void malformed_rows(void **state) {
  (void)state;
  const int64_t descending[] = {0, 3, 2, 13, 14, 15, 19, 25, 25};
  const int64_t ends_late[] = {0, 3, 3, 13, 14, 15, 19, 25, 26};
  wm_token_view_t c = corpus("stream");
  wm_range_t r = range(WM_RANGE_TOKENS, 0, 5, 0);
  wm_windows_t w;
  wm_error_t err = {0};
  c.row_first = descending;
  assert_int_equal(wm_windows_create(&c, &stream, &r, &w, &err), WM_INPUT);
  c.row_first = ends_late;
  assert_int_equal(wm_windows_create(&c, &stream, &r, &w, &err), WM_INPUT);
}

static void beyond_31_bits(void **state) {
  (void)state;
  wm_token_view_t c = {.name = "big", .encoding = "ids", .n_tokens = INT64_C(5000000000)};
  wm_range_t r = range(WM_RANGE_TOKENS, INT64_C(4000000000), INT64_C(4000000007), 0);
  wm_windows_t w;
  wm_error_t err = {0};
  assert_int_equal(wm_windows_create(&c, &stream, &r, &w, &err), WM_OK);
  assert_true(w.first[1] == INT64_C(4000000005));
  assert_int_equal(w.row[0], -1);
  int32_t units[5];
  int64_t n_units;
  assert_int_equal(wm_windows_units(&w, WM_UNIT_LINE, units, &n_units, &err), WM_USAGE);
  assert_int_equal(wm_windows_units(&w, WM_UNIT_AUTO, units, &n_units, &err), WM_OK);
  assert_int_equal(n_units, 2);
  wm_windows_destroy(&w);
}

static void overlap(void **state) {
  (void)state;
  wm_windows_t a = make(&documents, range(WM_RANGE_ROWS, 0, 3, 0)); /* tokens 0-2, 3-7 */
  wm_windows_t b = make(&documents, range(WM_RANGE_DOCUMENTS, 1, 4, 0));
  wm_windows_t c = make(&documents, range(WM_RANGE_TOKENS, 8, 17, 0));
  wm_overlap_t o = wm_windows_overlap(&a, &b);
  assert_int_equal(o.tokens, 5);
  assert_int_equal(o.begin, 3);
  assert_int_equal(o.end, 8);
  wm_error_t err = {0};
  assert_int_equal(wm_windows_disjoint(&a, &c, &err), WM_OK);
  assert_int_equal(wm_windows_disjoint(&c, &a, &err), WM_OK);
  assert_int_equal(wm_windows_disjoint(&a, &b, &err), WM_USAGE);
  assert_non_null(strstr(err.message, "fit: rows [0, 3)"));
  assert_non_null(strstr(err.message, "fit: documents [1, 4)"));
  assert_non_null(strstr(err.message, "5 tokens between tokens 3 and 8"));
  wm_windows_destroy(&a);
  wm_windows_destroy(&b);
  wm_windows_destroy(&c);

  a = make(&sliding, range(WM_RANGE_TOKENS, 0, 12, 0));
  b = make(&stream, range(WM_RANGE_TOKENS, 11, 25, 0));
  c = make(&stream, range(WM_RANGE_TOKENS, 12, 25, 0));
  assert_int_equal(wm_windows_overlap(&a, &b).tokens, 1);
  assert_int_equal(wm_windows_overlap(&b, &c).tokens, 13);
  assert_int_equal(wm_windows_overlap(&a, &c).tokens, 0);
  assert_int_equal(wm_windows_overlap(&a, &a).tokens, 12);
  wm_windows_destroy(&a);
  wm_windows_destroy(&b);
  wm_windows_destroy(&c);
}

static void expect_units(wm_windows_t *w, wm_unit_kind_t kind, int64_t n, const int32_t *expected) {
  int32_t units[64];
  int64_t n_units;
  wm_error_t err = {0};
  assert_true(w->n_predicted <= 64);
  assert_int_equal(wm_windows_units(w, kind, units, &n_units, &err), WM_OK);
  assert_int_equal(n_units, n);
  assert_memory_equal(units, expected, (size_t)w->n_predicted * sizeof *units);
}

static void bootstrap_units(void **state) {
  (void)state;
  const int32_t articles[] = {0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1};
  const int32_t lines[] = {0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3};
  wm_windows_t w = make(&documents, range(WM_RANGE_TOKENS, 0, 17, 0));
  assert_int_equal(wm_unit_resolve(&w, WM_UNIT_AUTO), WM_UNIT_LINE); /* two articles are too few */
  expect_units(&w, WM_UNIT_ARTICLE, 2, articles);
  expect_units(&w, WM_UNIT_LINE, 4, lines);
  expect_units(&w, WM_UNIT_WINDOW, 4, lines);
  wm_windows_destroy(&w);

  w = make(&documents, range(WM_RANGE_ROWS, 0, 3, 0));
  assert_int_equal(wm_unit_resolve(&w, WM_UNIT_AUTO), WM_UNIT_LINE);
  assert_int_equal(wm_unit_resolve(&w, WM_UNIT_ARTICLE), WM_UNIT_ARTICLE);
  wm_windows_destroy(&w);

  /* Windows at 3 and 8 begin in row 2; the one at 13 in row 3; the last one predicts nothing. */
  const int32_t rows[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1};
  w = make(&stream, range(WM_RANGE_ROWS, 2, 6, 0));
  expect_units(&w, WM_UNIT_LINE, 2, rows);
  wm_windows_destroy(&w);
  w = make(&stream, range(WM_RANGE_TOKENS, 0, 15, 0));
  assert_int_equal(wm_unit_resolve(&w, WM_UNIT_AUTO), WM_UNIT_WINDOW);
  wm_windows_destroy(&w);
}

static void auto_takes_articles_from_ten_on(void **state) {
  (void)state;
  int64_t article[WM_MIN_UNITS], predicted[WM_MIN_UNITS + 1];
  for (int i = 0; i < WM_MIN_UNITS; i++) {
    article[i] = 3 + 2 * i; /* articles between these have no window of their own */
    predicted[i] = 7 * i;
  }
  predicted[WM_MIN_UNITS] = 7 * WM_MIN_UNITS;
  wm_windows_t w = {
      .protocol = stream, .n = WM_MIN_UNITS, .article = article, .predicted_offset = predicted};
  assert_int_equal(wm_unit_resolve(&w, WM_UNIT_AUTO), WM_UNIT_ARTICLE);
  w.n = WM_MIN_UNITS - 1;
  assert_int_equal(wm_unit_resolve(&w, WM_UNIT_AUTO), WM_UNIT_WINDOW);
  w.n = WM_MIN_UNITS;
  predicted[WM_MIN_UNITS] = predicted[WM_MIN_UNITS - 1]; /* the last one predicts nothing */
  assert_int_equal(wm_unit_resolve(&w, WM_UNIT_AUTO), WM_UNIT_WINDOW);
}

/* ---- Random corpora against the statement ---------------------------------------------------- */

enum { MAX_ROWS = 40, MAX_ROW = 13, MAX_TOKENS = MAX_ROWS * MAX_ROW };

typedef struct {
  int64_t first[MAX_ROWS + 1];
  uint8_t flags[MAX_ROWS];
  wm_token_view_t view;
} random_corpus_t;

static void randomise(random_corpus_t *c, uint64_t seed, const char *encoding) {
  wm_rng_t rng = {seed, 0};
  int64_t n = 1 + (int64_t)wm_rng_below(rng, 0, MAX_ROWS);
  c->first[0] = 0;
  for (int64_t r = 0; r < n; r++) {
    uint64_t i = 3 * (uint64_t)r;
    bool blank = wm_rng_below(rng, i + 1, 3) == 0;
    c->flags[r] = blank ? WM_ROW_BLANK : wm_rng_below(rng, i + 2, 5) == 0 ? WM_ROW_ARTICLE : 0;
    c->first[r + 1] = c->first[r] + (int64_t)wm_rng_below(rng, i + 3, blank ? 2 : MAX_ROW);
  }
  c->view = (wm_token_view_t){.name = "random",
                              .encoding = encoding,
                              .n_tokens = c->first[n],
                              .n_rows = n,
                              .row_first = c->first,
                              .row_flags = c->flags};
}

/* Marks with mark[t] = 1 the tokens that tokens = [a, b) of the documents takes. */
static int64_t state_documents(const random_corpus_t *c, const wm_protocol_t *p, int64_t a,
                               int64_t b, char *mark) {
  int64_t number = 0;
  for (int64_t r = 0; r < c->view.n_rows; r++) {
    int64_t begin = number, in = 0;
    int64_t n = c->first[r + 1] - c->first[r];
    if (c->flags[r] == WM_ROW_BLANK || n < p->min_length)
      continue;
    for (int64_t t = 0; t < n && t < p->window; t++, number++) {
      mark[c->first[r] + t] = begin >= a && begin < b && number < b;
      in += mark[c->first[r] + t];
    }
    for (int64_t t = 0; t < n && in < p->min_length; t++)
      mark[c->first[r] + t] = 0;
  }
  return number;
}

static void random_documents(void **state) {
  (void)state;
  int cases = 0;
  for (uint64_t seed = 0; seed < 400; seed++) {
    random_corpus_t c;
    randomise(&c, seed, "documents");
    char all[MAX_TOKENS] = {0}, mark[MAX_TOKENS] = {0}, seen[MAX_TOKENS] = {0};
    wm_rng_t rng = {seed, 1};
    wm_protocol_t p = {WM_PROTOCOL_DOCUMENTS, 3 + (int64_t)wm_rng_below(rng, 0, 8), 0,
                       1 + (int64_t)wm_rng_below(rng, 1, 3)};
    int64_t total = state_documents(&c, &p, 0, INT64_MAX, all);
    if (total < 2)
      continue;
    int64_t a = (int64_t)wm_rng_below(rng, 2, (uint64_t)total - 1);
    int64_t b = a + 1 + (int64_t)wm_rng_below(rng, 3, (uint64_t)(total - a));
    state_documents(&c, &p, a, b, mark);
    wm_range_t r = range(WM_RANGE_TOKENS, a, b, 0);
    wm_windows_t w;
    wm_error_t err = {0};
    if (wm_windows_create(&c.view, &p, &r, &w, &err) != WM_OK)
      continue; /* nothing to predict */
    for (int64_t i = 0; i < w.n; i++)
      for (int64_t t = 0; t < w.length[i]; t++)
        seen[w.first[i] + t]++;
    assert_memory_equal(seen, mark, sizeof mark);
    wm_windows_destroy(&w);
    cases++;
  }
  assert_true(cases > 200);
}

/* Every target of the range but the first is predicted once, every position is new once, and
 * predictions lie inside their window. */
static void random_sliding(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 400; seed++) {
    random_corpus_t c;
    randomise(&c, seed, "stream");
    wm_rng_t rng = {seed, 2};
    int64_t n = c.view.n_tokens;
    if (n < 3)
      continue;
    int64_t window = 2 + (int64_t)wm_rng_below(rng, 0, 9);
    wm_protocol_t p = {WM_PROTOCOL_SLIDING, window,
                       1 + (int64_t)wm_rng_below(rng, 1, (uint64_t)window - 1), 0};
    int64_t a = (int64_t)wm_rng_below(rng, 2, (uint64_t)n - 2);
    wm_range_t r = range(WM_RANGE_TOKENS, a, n, 0);
    wm_windows_t w;
    wm_error_t err = {0};
    assert_int_equal(wm_windows_create(&c.view, &p, &r, &w, &err), WM_OK);
    char targets[MAX_TOKENS] = {0}, positions[MAX_TOKENS] = {0};
    for (int64_t i = 0; i < w.n; i++) {
      assert_true(w.length[i] <= window && w.first[i] + w.length[i] <= n);
      for (int64_t t = w.first_predicted[i]; t < w.length[i] - 1; t++)
        targets[w.first[i] + t + 1]++;
      for (int64_t t = w.first_new[i]; t < w.length[i]; t++)
        positions[w.first[i] + t]++;
      assert_true(c.first[w.row[i]] <= w.first[i] && w.first[i] < c.first[w.row[i] + 1]);
    }
    for (int64_t t = 0; t < n; t++) {
      assert_int_equal(targets[t], t > a);
      assert_int_equal(positions[t], t >= a);
    }
    assert_int_equal(w.n_predicted, n - a - 1);
    assert_int_equal(w.n_positions, n - a);
    wm_windows_destroy(&w);
  }
}

/* ---- Settings -------------------------------------------------------------------------------- */

static void presets(void **state) {
  (void)state;
  const wm_preset_t *p = wm_preset_find("study_scale");
  assert_non_null(p);
  assert_true(p->overlaps);
  assert_int_equal(p->ranges[WM_ROLE_GATES].max_tokens, 25000);
  assert_int_equal(p->ranges[WM_ROLE_VALIDATION].kind, WM_RANGE_ABSENT);
  assert_int_equal(wm_preset_find("study_paper")->ranges[WM_ROLE_EVALUATION].end, 80000);
  assert_null(wm_preset_find("study"));
  int count;
  const wm_preset_t *table = wm_preset_table(&count);
  for (int i = 0; i < count; i++)
    for (int role = 0; role < WM_ROLES; role++)
      assert_string_equal(table[i].ranges[role].name, wm_role_name((wm_role_t)role));
  assert_string_equal(table[0].name, "default");
  for (int i = 0; i < WM_ROLES; i++)
    for (int j = i + 1; j < WM_ROLES; j++)
      assert_true(table[0].ranges[i].end <= table[0].ranges[j].begin);
}

static void names(void **state) {
  (void)state;
  wm_protocol_kind_t protocol;
  wm_unit_kind_t unit;
  for (int i = 0; i <= WM_PROTOCOL_SLIDING; i++) {
    assert_true(wm_protocol_parse(wm_protocol_name((wm_protocol_kind_t)i), &protocol));
    assert_int_equal(protocol, i);
  }
  for (int i = 0; i <= WM_UNIT_WINDOW; i++) {
    assert_true(wm_unit_parse(wm_unit_name((wm_unit_kind_t)i), &unit));
    assert_int_equal(unit, i);
  }
  assert_false(wm_protocol_parse("slide", &protocol));
  assert_false(wm_unit_parse("row", &unit));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(documents_by_tokens),
      cmocka_unit_test(documents_by_documents_and_rows),
      cmocka_unit_test(streams),
      cmocka_unit_test(sliding_windows),
      cmocka_unit_test(errors),
      cmocka_unit_test(malformed_rows),
      cmocka_unit_test(beyond_31_bits),
      cmocka_unit_test(overlap),
      cmocka_unit_test(bootstrap_units),
      cmocka_unit_test(auto_takes_articles_from_ten_on),
      cmocka_unit_test(random_documents),
      cmocka_unit_test(random_sliding),
      cmocka_unit_test(presets),
      cmocka_unit_test(names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
