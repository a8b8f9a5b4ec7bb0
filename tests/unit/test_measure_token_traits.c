/* Traits of tokens from their spelling, and files of categories: what is told, and what is refused
 * with file and line. */
#include "wanamaker/measure/token_traits.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TYPES = 9 };
static const char *const spellings[TYPES] = {" The", "the", " walked", "ing",     " 12",
                                             "!",    "\n",  " Grün",   "\xff\xfe"};

static wm_status_t make(const char *words, wm_token_traits_t *t, wm_error_t *err) {
  int64_t length[TYPES];
  for (int i = 0; i < TYPES; i++)
    length[i] = (int64_t)strlen(spellings[i]);
  return wm_token_traits_make(TYPES, spellings, length, words, "words.txt", t, err);
}

static void expect_categories(const char *words, const char *const wanted[TYPES]) {
  wm_token_traits_t t;
  wm_error_t err = {0};
  if (make(words, &t, &err) != WM_OK)
    fail_msg("refused: %s", err.message);
  for (int i = 0; i < TYPES; i++)
    assert_string_equal(t.category[t.trait[i].category], wanted[i]);
  wm_token_traits_destroy(&t);
}

/* Without any word, spelling tells. */
static void lists_may_be_empty(void **state) {
  (void)state;
  static const char *const spelled[TYPES] = {"other word",     "part of a word", "other word",
                                             "part of a word", "number",         "punctuation",
                                             "space",          "other word",     "punctuation"};
  static const char *const empty[] = {"", "\n\n", "# nothing\n", "[function]\n", "[a]\n[b]"};
  for (unsigned i = 0; i < sizeof empty / sizeof empty[0]; i++)
    expect_categories(empty[i], spelled);
}

/* Words of either case, several on a line, behind a byte order mark, with comments; the first
 * category that has a word. */
static void words_are_found(void **state) {
  (void)state;
  static const char *const wanted[TYPES] = {"function",       "function", "verb",
                                            "part of a word", "number",   "mark",
                                            "space",          "colour",   "punctuation"};
  wm_token_traits_t t;
  wm_error_t err = {0};
  expect_categories("\xef\xbb\xbf# of all kinds\r\n[function]\r\nof The # [not]\r\n \t[verb]\r\n"
                    "WALKED the\n[colour]\ngrÜn\n[mark] # and nothing\n!\n",
                    wanted);
  assert_int_equal(make("[verb]\nthe\n[function]\nwalked\n", &t, &err), WM_OK);
  assert_false(t.trait[0].function_word);
  assert_true(t.trait[2].function_word);
  wm_token_traits_destroy(&t);
}

static void hostile_lines_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *words, *message;
  } cases[] = {
      {"the\n[function]\n", "words.txt:1: a word before the first [category]"},
      {"[function]\n[\n", "words.txt:2: a category is a line [NAME]"},
      {"[function\n", "words.txt:1: a category is a line [NAME]"},
      {"[function] the of\n", "words.txt:1: a category is a line [NAME]"},
      {"[a]b]\n", "words.txt:1: a category is a line [NAME]"},
      {"\n\n[]\n", "words.txt:3: a category's name has 1 to 23 bytes"},
      {"[a name that is far too long]\n", "words.txt:1: a category's name has 1 to 23 bytes"},
      {"[a]\n[a]\n", "words.txt:2: there is a category [a] already"},
      {"[number]\n", "words.txt:1: there is a category [number] already"},
      {"[a]\nfine \xc3\x28\n", "words.txt:2: byte 6 of the line is no UTF-8"},
      {"[a\x1b[31m]\n", "words.txt:1: control character U+001B"},
      {"[a]\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n",
       "words.txt:2: a word of 70 bytes"},
      {"[0]\n[1]\n[2]\n[3]\n[4]\n[5]\n[6]\n[7]\n[8]\n[9]\n[10]\n[11]\n[12]\n[13]\n[14]\n[15]\n[16]"
       "\n[17]\n[18]\n[19]\n[20]\n[21]\n[22]\n[23]\n[24]\n[25]\n[26]\n[27]\n",
       "words.txt:28: more than 27 categories"}};
  for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    wm_token_traits_t t;
    wm_error_t err = {0};
    assert_int_equal(make(cases[i].words, &t, &err), WM_INPUT);
    if (strncmp(err.message, cases[i].message, strlen(cases[i].message)) != 0)
      fail_msg("\"%s\", not \"%s\"", err.message, cases[i].message);
    wm_token_traits_destroy(&t);
  }
}

/* Ranks by count, equal counts by id; a type that never occurs has no frequency. */
static void frequencies(void **state) {
  (void)state;
  static const int64_t count[TYPES] = {2, 0, 5, 2, 1, 0, 0, 0, 0};
  wm_token_traits_t t;
  wm_error_t err = {0};
  assert_int_equal(make("", &t, &err), WM_OK);
  assert_int_equal(wm_token_traits_count(&t, count, &err), WM_OK);
  assert_true(fabs(t.trait[2].log_frequency - log(0.5)) < 1e-15 && t.trait[2].log_rank == 0);
  assert_true(t.trait[0].log_rank == log(2) && t.trait[3].log_rank == log(3));
  assert_true(t.trait[4].surprise == -t.trait[4].log_frequency);
  assert_true(isnan(t.trait[1].log_frequency) && isnan(t.trait[1].log_rank));
  wm_token_traits_destroy(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lists_may_be_empty), cmocka_unit_test(words_are_found),
      cmocka_unit_test(hostile_lines_are_refused), cmocka_unit_test(frequencies)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
