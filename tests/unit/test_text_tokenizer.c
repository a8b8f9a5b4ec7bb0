/* Ids against the reference's (tests/data/tokenizer, written by tests/oracle/tokenizer_golden.py),
 * places of tokens in the text, cuts, decoding, fingerprints, and the time that long words take. */
#include "test_io_common.h"

#include "wanamaker/base/json.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/text/tokenizer.h"

#include <stdbool.h>
#include <time.h>

static const char *const NAMES[] = {"gpt2", "gpt2_files", "neox", "prefix", "whole"};
enum { N_NAMES = 5 };

static wm_error_t err;

static wm_tokenizer_t *open_tokenizer(const char *name) {
  const char *data = getenv("WM_TEST_DATA");
  char path[2 * PATH];
  wm_tokenizer_t *t;
  assert_non_null(data);
  snprintf(path, sizeof path, "%s/tokenizer/%s", data, name);
  if (wm_tokenizer_open(path, &t, &err) != WM_OK)
    fail_msg("%s", err.message);
  return t;
}

static json_t *load(const char *name) {
  char path[2 * PATH];
  json_t *json;
  snprintf(path, sizeof path, "%s/tokenizer/%s.json", getenv("WM_TEST_DATA"), name);
  if (wm_json_load(path, &json, &err) != WM_OK)
    fail_msg("%s", err.message);
  return json;
}

static void encode(wm_tokenizer_t *t, const char *text, int64_t bytes, int64_t base,
                   wm_token_list_t *list) {
  if (wm_tokenizer_encode(t, text, bytes, base, list, &err) != WM_OK)
    fail_msg("%s", err.message);
}

/* The bytes that `hex` spells; free(). */
static char *unhex(const char *hex, int64_t *bytes) {
  *bytes = (int64_t)strlen(hex) / 2;
  char *text = malloc((size_t)*bytes + 1);
  assert_non_null(text);
  for (int64_t i = 0; i < *bytes; i++) {
    unsigned byte;
    assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
    text[i] = (char)byte;
  }
  return text;
}

static void check_case(wm_tokenizer_t *t, const char *name, const char *hex, const json_t *golden) {
  wm_token_list_t list = {0};
  int64_t bytes;
  char *text = unhex(hex, &bytes);
  const json_t *ids = json_object_get(golden, "ids"), *starts = json_object_get(golden, "starts");
  encode(t, text, bytes, 1000, &list);
  bool same = list.count == (int64_t)json_array_size(ids) &&
              list.replaced == json_integer_value(json_object_get(golden, "replaced"));
  for (int64_t i = 0; same && i < list.count; i++) {
    int64_t lower = i > 0 ? list.starts[i - 1] : 1000;
    same = list.ids[i] == json_integer_value(json_array_get(ids, (size_t)i)) &&
           list.starts[i] >= lower && list.starts[i] < 1000 + bytes &&
           (starts == NULL ||
            list.starts[i] == 1000 + json_integer_value(json_array_get(starts, (size_t)i)));
  }
  if (!same)
    fail_msg("%s: the text %s has other tokens than in the reference", name, hex);
  wm_token_list_destroy(&list);
  free(text);
}

static void test_reference_ids(void **state) {
  (void)state;
  json_t *cases = load("cases");
  for (int n = 0; n < N_NAMES; n++) {
    json_t *golden = load(strcmp(NAMES[n], "gpt2_files") == 0 ? "gpt2" : NAMES[n]);
    wm_tokenizer_t *t = open_tokenizer(NAMES[n]);
    assert_int_equal(json_array_size(cases), json_array_size(golden));
    assert_true(json_array_size(cases) > 200);
    for (size_t i = 0; i < json_array_size(cases); i++)
      check_case(t, NAMES[n], json_string_value(json_array_get(cases, i)),
                 json_array_get(golden, i));
    wm_tokenizer_close(t);
    json_decref(golden);
  }
  json_decref(cases);
}

/* Encodes `text` and compares the starts of tokens. */
static void check_starts(const char *name, const char *text, int n, const int64_t *starts) {
  wm_tokenizer_t *t = open_tokenizer(name);
  wm_token_list_t list = {0};
  encode(t, text, (int64_t)strlen(text), 0, &list);
  assert_int_equal(list.count, n);
  for (int i = 0; i < n; i++)
    assert_int_equal(list.starts[i], starts[i]);
  wm_token_list_destroy(&list);
  wm_tokenizer_close(t);
}

static void test_starts_after_changes(void **state) {
  (void)state;
  /* U+2126 (3 bytes) becomes U+03A9 (2 bytes, 2 tokens): both begin where it does. */
  check_starts("neox",
               "\xE2\x84\xA6"
               "#",
               3, (const int64_t[]){0, 0, 3});
  /* q, 2 marks in the wrong order (4 tokens, all at the first mark), #. */
  check_starts("neox",
               "q\xCC\x95\xCC\x80"
               "#",
               6, (const int64_t[]){0, 1, 1, 1, 1, 5});
  /* An ill-formed byte becomes U+FFFD, 3 tokens; what follows is moved back. */
  check_starts("gpt2", "#\xFF#", 5, (const int64_t[]){0, 1, 1, 1, 2});
  /* A character that is left alone keeps the places of its bytes. */
  check_starts("neox", "\xEA\xB0\x80#", 4, (const int64_t[]){0, 1, 2, 3});
}

static void test_prefix_space_has_no_place(void **state) {
  (void)state;
  wm_tokenizer_t *t = open_tokenizer("prefix");
  wm_token_list_t list = {0};
  const char text[] = "<|endoftext|>%";
  encode(t, text, sizeof text - 1, 0, &list);
  assert_int_equal(list.count, 3); /* the added token, the space put before %, % */
  assert_int_equal(list.starts[1], 13);
  assert_int_equal(list.starts[2], 13);
  wm_token_list_destroy(&list);
  wm_tokenizer_close(t);
}

static const char *const PIECES[] = {"a",
                                     "b",
                                     "the",
                                     "boat",
                                     " ",
                                     "  ",
                                     "\n",
                                     "\r\n",
                                     "\t",
                                     "###",
                                     " End",
                                     "#",
                                     "'s",
                                     "7",
                                     "\xC3\xA9",
                                     "e\xCC\x81",
                                     "\xCC\x81",
                                     "\xFF",
                                     "\xE2\x84",
                                     "\xC2\xA0",
                                     "<|endoftext|>",
                                     "<|",
                                     "!",
                                     "-",
                                     "\xE2\x84\xAB"
                                     "x"};
enum { N_PIECES = sizeof PIECES / sizeof PIECES[0], MAX_TEXT = 512 };

static int64_t random_text(uint64_t seed, char text[MAX_TEXT]) {
  wm_rng_t rng = {seed, 5};
  int64_t bytes = 0;
  int n = 1 + (int)wm_rng_below(rng, 0, 30);
  for (int i = 1; i <= n; i++) {
    const char *piece = PIECES[wm_rng_below(rng, (uint64_t)i, N_PIECES)];
    memcpy(text + bytes, piece, strlen(piece));
    bytes += (int64_t)strlen(piece);
  }
  return bytes;
}

static void compare_lists(const wm_token_list_t *a, const wm_token_list_t *b) {
  assert_int_equal(a->count, b->count);
  if (a->count == 0)
    return;
  assert_memory_equal(a->ids, b->ids, (size_t)a->count * sizeof *a->ids);
  assert_memory_equal(a->starts, b->starts, (size_t)a->count * sizeof *a->starts);
}

static void test_cuts_change_nothing(void **state) {
  (void)state;
  enum { TEXTS = 4000 };
  for (int n = 0; n < N_NAMES; n++) {
    wm_tokenizer_t *t = open_tokenizer(NAMES[n]);
    wm_token_list_t whole = {0}, parts = {0};
    int64_t cuts = 0;
    for (uint64_t seed = 0; seed < TEXTS; seed++) {
      char text[MAX_TEXT];
      int64_t bytes = random_text(seed, text), begin = 0;
      whole.count = parts.count = 0;
      encode(t, text, bytes, 0, &whole);
      for (int64_t at = 0; at <= bytes; at++)
        if (wm_tokenizer_can_cut(t, text, bytes, at)) {
          encode(t, text + begin, at - begin, begin, &parts);
          begin = at;
          cuts++;
        }
      encode(t, text + begin, bytes - begin, begin, &parts);
      compare_lists(&whole, &parts);
    }
    assert_int_equal(whole.replaced, parts.replaced);
    if (strcmp(NAMES[n], "whole") == 0)
      assert_int_equal(cuts, 0);
    else
      assert_true(cuts > TEXTS / 10);
    wm_token_list_destroy(&whole);
    wm_token_list_destroy(&parts);
    wm_tokenizer_close(t);
  }
}

static void test_where_cuts_are(void **state) {
  (void)state;
  wm_tokenizer_t *gpt2 = open_tokenizer("gpt2"), *prefix = open_tokenizer("prefix");
  assert_true(wm_tokenizer_can_cut(gpt2, "a\nb", 3, 1));
  assert_true(wm_tokenizer_can_cut(gpt2, "# E", 3, 1));
  assert_false(wm_tokenizer_can_cut(gpt2, "a\nb", 3, 2)); /* before b: "\nb" might be "\n", "b" */
  assert_false(wm_tokenizer_can_cut(gpt2, " \nb", 3, 1)); /* white space goes on */
  assert_false(wm_tokenizer_can_cut(gpt2, "a\n", 2, 2));
  assert_false(wm_tokenizer_can_cut(gpt2, "a\n", 2, 0));
  assert_false(wm_tokenizer_can_cut(prefix, "a\nb", 3, 1)); /* "\nb" alone gets a space */
  assert_true(wm_tokenizer_can_cut(prefix, "a b", 3, 1));
  assert_false(wm_tokenizer_can_cut(prefix, "# E", 3, 1)); /* "### End" may cross */
  wm_tokenizer_close(gpt2);
  wm_tokenizer_close(prefix);
}

static void test_decode_returns_the_text(void **state) {
  (void)state;
  wm_tokenizer_t *t = open_tokenizer("gpt2");
  wm_token_list_t list = {0};
  static const char text[] = "caf\xC3\xA9 \0<|endoftext|>  it's 17";
  char *out;
  int64_t bytes;
  encode(t, text, sizeof text - 1, 0, &list);
  assert_int_equal(wm_tokenizer_decode(t, list.ids, list.count, &out, &bytes, &err), WM_OK);
  assert_int_equal(bytes, sizeof text - 1);
  assert_memory_equal(out, text, sizeof text);
  free(out);
  const int32_t bad[] = {0, (int32_t)wm_tokenizer_vocab_size(t), -1};
  assert_int_equal(wm_tokenizer_decode(t, bad, 2, &out, &bytes, &err), WM_INPUT);
  assert_message(err.message, "token 1");
  assert_int_equal(wm_tokenizer_decode(t, bad + 2, 1, &out, &bytes, &err), WM_INPUT);
  assert_null(out);
  wm_token_list_destroy(&list);
  wm_tokenizer_close(t);
}

static void test_fingerprints(void **state) {
  (void)state;
  uint64_t prints[N_NAMES];
  for (int n = 0; n < N_NAMES; n++) {
    wm_tokenizer_t *t = open_tokenizer(NAMES[n]);
    prints[n] = wm_tokenizer_fingerprint(t);
    wm_tokenizer_close(t);
  }
  for (int a = 0; a < N_NAMES; a++)
    for (int b = 0; b < a; b++)
      assert_int_equal(prints[a] == prints[b], a == 1 && b == 0); /* gpt2_files is gpt2 */
}

/* Ids of a word beyond the reach of the cache and of the short words' merging, piece by piece. */
static void test_long_words(void **state) {
  (void)state;
  enum { N = 1 << 20 };
  char *text;
  assert_int_equal(wm_alloc((void **)&text, N, 1, "text", &err), WM_OK);
  for (int n = 0; n < N_NAMES; n++) {
    wm_tokenizer_t *t = open_tokenizer(NAMES[n]);
    for (int kind = 0; kind < 4; kind++) {
      wm_token_list_t list = {0};
      char *out;
      int64_t bytes;
      for (int64_t i = 0; i < N; i++)
        text[i] = kind == 0   ? 'o'
                  : kind == 1 ? ' '
                  : kind == 2 ? "counted"[i % 7]
                              : "\xCC\x81"[i % 2];
      clock_t begin = clock();
      encode(t, text, N, 0, &list);
      /* Measured: below 1 s, 5 s with sanitizers; quadratic work would take hours. */
      assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 60);
      assert_int_equal(wm_tokenizer_decode(t, list.ids, list.count, &out, &bytes, &err), WM_OK);
      int64_t prefix = bytes - N;
      assert_true(prefix == 0 || (prefix == 1 && strcmp(NAMES[n], "prefix") == 0));
      assert_memory_equal(out + prefix, text, N);
      free(out);
      wm_token_list_destroy(&list);
    }
    wm_tokenizer_close(t);
  }
  free(text);
}

/* gpt2 with the model's token 260, " t" (spelled with U+0120), as an added token too. */
static wm_tokenizer_t *open_with_word_added(const char *dir) {
  char path[2 * PATH];
  json_t *root;
  snprintf(path, sizeof path, "%s/tokenizer/gpt2/tokenizer.json", getenv("WM_TEST_DATA"));
  assert_int_equal(wm_json_load(path, &root, &err), WM_OK);
  json_t *added = json_pack("[{s:s, s:i}]", "content", "\xC4\xA0t", "id", 260);
  assert_int_equal(json_object_set_new(root, "added_tokens", added), 0);
  assert_int_equal(json_dump_file(root, join(path, dir, "tokenizer.json"), 0), 0);
  json_decref(root);
  wm_tokenizer_t *t;
  if (wm_tokenizer_open(dir, &t, &err) != WM_OK)
    fail_msg("%s", err.message);
  return t;
}

/* Such a token covers two bytes of a word, but three where its spelling stands in the text. */
static void test_word_that_is_added_too(void **state) {
  (void)state;
  static const int32_t ids[] = {'b' - '!', 260, 'q' - '!', 260, 'q' - '!'};
  static const int64_t starts[] = {0, 1, 3, 4, 7};
  char dir[PATH];
  make_directory(dir);
  wm_tokenizer_t *t = open_with_word_added(dir);
  wm_token_list_t list = {0};
  encode(t, "b tq\xC4\xA0tq", 8, 0, &list);
  assert_int_equal(list.count, 5);
  assert_memory_equal(list.ids, ids, sizeof ids);
  assert_memory_equal(list.starts, starts, sizeof starts);
  wm_token_list_destroy(&list);
  wm_tokenizer_close(t);
  remove_directory(dir);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reference_ids),
      cmocka_unit_test(test_starts_after_changes),
      cmocka_unit_test(test_prefix_space_has_no_place),
      cmocka_unit_test(test_cuts_change_nothing),
      cmocka_unit_test(test_where_cuts_are),
      cmocka_unit_test(test_decode_returns_the_text),
      cmocka_unit_test(test_fingerprints),
      cmocka_unit_test(test_long_words),
      cmocka_unit_test(test_word_that_is_added_too),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
