/* Tokenizers that must be refused: each is a good one with one thing changed, and the message names
 * the file and the thing. */
#include "test_io_scratch.h"

#include "wanamaker/base/json.h"
#include "wanamaker/io/files.h"
#include "wanamaker/text/tokenizer.h"

#include <stdbool.h>

static wm_error_t err;

static json_t *good(const char *name) {
  char path[2 * PATH];
  json_t *json;
  snprintf(path, sizeof path, "%s/tokenizer/%s", getenv("WM_TEST_DATA"), name);
  if (wm_json_load(path, &json, &err) != WM_OK)
    fail_msg("%s", err.message);
  return json;
}

static void write_json(const char *name, const json_t *json) {
  char *text = json_dumps(json, JSON_COMPACT);
  assert_non_null(text);
  write_file(dir, name, text, strlen(text));
  free(text);
}

/* The tokenizer in `dir` must be refused with a message that names `file` and `part`. */
static void check_refused(const char *file, const char *part) {
  wm_tokenizer_t *t;
  memset(&err, 0, sizeof err);
  wm_status_t status = wm_tokenizer_open(dir, &t, &err);
  if (status != WM_INPUT)
    fail_msg("status %d, expected a refusal that names \"%s\"", (int)status, part);
  assert_null(t);
  assert_message(err.message, file);
  assert_message(err.message, part);
}

static void check_accepted(void) {
  wm_tokenizer_t *t;
  if (wm_tokenizer_open(dir, &t, &err) != WM_OK)
    fail_msg("%s", err.message);
  wm_tokenizer_close(t);
}

/* What takes the place of the member at `path` ("model.type"); "" removes it. */
typedef struct {
  const char *path, *value, *message; /* NULL: the file must be accepted */
} change_t;

static const change_t CHANGES[] = {
    {"version", "\"2.0\"", "version \"2.0\""},
    {"model", "", "\"model\" is missing"},
    {"model", "[]", "\"model\" must be an object"},
    {"model.type", "\"WordPiece\"", "model \"WordPiece\" is not supported"},
    {"model.type", "3", "\"type\" must be a string"},
    {"model.dropout", "0.1", "\"dropout\" = 0.1"},
    {"model.dropout", "0.0", NULL},
    {"model.ignore_merges", "true", "\"ignore_merges\""},
    {"model.byte_fallback", "true", NULL}, /* every byte has a token */
    {"model.continuing_subword_prefix", "\"##\"", "\"continuing_subword_prefix\" = \"##\""},
    {"model.end_of_word_suffix", "\"</w>\"", "\"end_of_word_suffix\""},
    {"model.vocab", "", "\"vocab\" is missing"},
    {"model.vocab", "{}", "vocabulary is empty"},
    {"model.vocab", "[1]", "\"vocab\" must be an object"},
    {"model.vocab.a", "-1", "token \"a\" has id -1"},
    {"model.vocab.a", "99999999999", "token \"a\" has id 99999999999"},
    {"model.vocab.a", "1.5", "token \"a\" must be an integer"},
    {"model.vocab.a", "66", "has id 66, as another token has"},
    {"model.vocab.a", "", "no token \"a\", of byte 0x61"},
    {"model.merges", "", "\"merges\" is missing"},
    {"model.merges", "{}", "\"merges\" must be an array"},
    {"model.merges", "[\"a\"]", "merge 0: expected"},
    {"model.merges", "[\"a b c\"]", "merge 0: expected"},
    {"model.merges", "[[\"a\"]]", "merge 0: expected"},
    {"model.merges", "[[\"a\", 1]]", "merge 0: expected"},
    {"model.merges", "[17]", "merge 0: expected"},
    {"model.merges", "[\"qqq a\"]", "merge 0: \"qqq\" is not in the vocabulary"},
    {"model.merges", "[\"a qqq\"]", "merge 0: \"qqq\" is not in the vocabulary"},
    {"model.merges", "[\"q x\"]", "merge 0: \"qx\" is not in the vocabulary"},
    {"normalizer", "{\"type\": \"NFKC\"}", "normalizer \"NFKC\" is not supported"},
    {"normalizer", "{\"type\": \"Sequence\", \"normalizers\": []}", "normalizer \"Sequence\""},
    {"normalizer", "null", NULL},
    {"pre_tokenizer", "null", "\"pre_tokenizer\" is missing"},
    {"pre_tokenizer", "{\"type\": \"Whitespace\"}",
     "pre_tokenizer \"Whitespace\" is not supported"},
    {"pre_tokenizer", "{\"type\": \"ByteLevel\"}", "\"add_prefix_space\" is missing"},
    {"pre_tokenizer",
     "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\", \"add_prefix_space\": "
     "false}]}",
     NULL},
    {"pre_tokenizer", "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}]}",
     "pre_tokenizer \"Digits\""},
    {"pre_tokenizer",
     "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}, {\"type\": "
     "\"ByteLevel\"}]}",
     "pre_tokenizer \"Sequence\""},
    {"pre_tokenizer.use_regex", "1", "\"use_regex\" must be true or false"},
    {"added_tokens", "{}", "\"added_tokens\" must be an array"},
    {"added_tokens", "[1]", "\"added_tokens\" must hold objects"},
    {"added_tokens", "[{\"id\": 5}]", "\"content\" is missing"},
    {"added_tokens", "[{\"content\": \"a\"}]", "\"id\" is missing"},
    {"added_tokens", "[{\"content\": \"a\", \"id\": 5}]", "\"a\" has id 5, the reference gives"},
    {"added_tokens", "[{\"content\": \"<new>\", \"id\": 7}]", "\"<new>\" has id 7"},
    {"added_tokens", "[{\"content\": \"<new>\", \"id\": 420, \"lstrip\": true}]", "\"lstrip\""},
    {"added_tokens", "[{\"content\": \"<new>\", \"id\": 420, \"rstrip\": true}]", "\"rstrip\""},
    {"added_tokens", "[{\"content\": \"<new>\", \"id\": 420, \"single_word\": true}]",
     "\"single_word\""},
    {"added_tokens",
     "[{\"content\": \"<new>\", \"id\": 420}, {\"content\": \"<new>\", \"id\": 421}]", "\"<new>\""},
    {"added_tokens",
     "[{\"content\": \"a\\u030a<\", \"id\": 420}, {\"content\": \"\\u00e5<\", \"id\": 421}]",
     "the same in normal form as the one with id 420"},
    {"added_tokens", "[{\"content\": \"<new>\", \"id\": 420}]", NULL},
    {"added_tokens", "[{\"content\": \"\", \"id\": 420}]", NULL},
    {"added_tokens", "[]", NULL},
    {"truncation", "{\"max_length\": 5}", NULL},
    {"post_processor", "{\"type\": \"TemplateProcessing\"}", NULL},
};

/* Applies a change to `root`. */
static void change(json_t *root, const change_t *c) {
  char path[100];
  snprintf(path, sizeof path, "%s", c->path);
  char *key = path, *dot;
  json_t *object = root, *value;
  while ((dot = strchr(key, '.')) != NULL) {
    *dot = '\0';
    object = json_object_get(object, key);
    assert_non_null(object);
    key = dot + 1;
  }
  if (*c->value == '\0') {
    assert_int_equal(json_object_del(object, key), 0);
    return;
  }
  value = json_loads(c->value, JSON_DECODE_ANY, NULL);
  assert_non_null(value);
  assert_int_equal(json_object_set_new(object, key, value), 0);
}

static void test_changed_tokenizer_json(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof CHANGES / sizeof CHANGES[0]; i++) {
    json_t *root = good("neox/tokenizer.json");
    change(root, &CHANGES[i]);
    write_json("tokenizer.json", root);
    if (CHANGES[i].message != NULL)
      check_refused(dir, CHANGES[i].message);
    else
      check_accepted();
    json_decref(root);
  }
}

static void test_broken_json(void **state) {
  (void)state;
  static const char *const texts[] = {"", "{", "[]", "{\"model\": {\"a\": 1, \"a\": 2}}"};
  static const char *const parts[] = {"not valid JSON", "not valid JSON", "expected an object",
                                      "duplicate"};
  for (int i = 0; i < 4; i++) {
    write_file(dir, "tokenizer.json", texts[i], strlen(texts[i]));
    check_refused("tokenizer.json", parts[i]);
  }
}

static void test_missing_files(void **state) {
  (void)state;
  check_refused(dir, "expected tokenizer.json, or vocab.json and merges.txt");
  json_t *vocab = good("gpt2_files/vocab.json");
  write_json("vocab.json", vocab);
  check_refused(dir, "expected tokenizer.json, or vocab.json and merges.txt");
  json_decref(vocab);
}

static void check_merges(const char *merges, const char *part) {
  write_file(dir, "merges.txt", merges, strlen(merges));
  if (part != NULL)
    check_refused("merges.txt", part);
  else
    check_accepted();
}

static void test_merges_txt(void **state) {
  (void)state;
  json_t *vocab = good("gpt2_files/vocab.json");
  write_json("vocab.json", vocab);
  check_merges("#version: 0.2\nt h\n", "merges.txt:2: \"th\" is not in the vocabulary");
  check_merges("#version: 0.2\nh e\n", NULL);
  check_merges("#version: 0.2\r\nh e\r\n\r\n", NULL);
  check_merges("h e", NULL);
  check_merges("", NULL);
  check_merges("h e\n\nh e\n", "merges.txt:2: expected two tokens");
  check_merges("h e x\n", "merges.txt:1: expected two tokens");
  check_merges("he\n", "merges.txt:1: expected two tokens");
  write_file(dir, "merges.txt", "h e\n\0a t\n", 9);
  check_refused("merges.txt", "byte 4 is NUL");
  write_file(dir, "added_tokens.json", "{}", 2);
  check_refused("added_tokens.json", "not supported");
  json_decref(vocab);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_changed_tokenizer_json, setup, teardown),
      cmocka_unit_test_setup_teardown(test_broken_json, setup, teardown),
      cmocka_unit_test_setup_teardown(test_missing_files, setup, teardown),
      cmocka_unit_test_setup_teardown(test_merges_txt, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
