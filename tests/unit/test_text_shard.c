/* Shares of a corpus: for any number of them and pieces of any size, joined they are the tokens and
 * rows of the whole. */
#include "test_io_common.h"

#include "../../src/text/shard.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/io/tokens.h"

#include <stdbool.h>

enum { MAX_SHARES = 30 };

static char dir[PATH];
static wm_error_t err;
static wm_tokenizer_t *tokenizer;
static bool splits_words;
static bool crosses_space; /* an added token holds a space */

#define OK(call)                                                                                   \
  do {                                                                                             \
    if ((call) != WM_OK)                                                                           \
      fail_msg("%s: %s", #call, err.message);                                                      \
  } while (0)

static wm_tokenizer_t *open_tokenizer(const char *name) {
  char path[2 * PATH];
  wm_tokenizer_t *t;
  snprintf(path, sizeof path, "%s/tokenizer/%s", getenv("WM_TEST_DATA"), name);
  OK(wm_tokenizer_open(path, &t, &err));
  return t;
}

static wm_corpus_t *open_corpus(const char *name, const char *text, size_t bytes, bool keep) {
  char path[2 * PATH];
  wm_corpus_t *corpus;
  write_file(dir, name, text, bytes);
  wm_corpus_spec_t spec = {.path = join(path, dir, name), .keep_newline = keep};
  OK(wm_corpus_open(&spec, &corpus, &err));
  return corpus;
}

/* The stream encoded as its definition says: join all rows, encode, look up each row's first token.
 */
static void whole_stream(const wm_corpus_t *corpus, wm_shard_t *out) {
  static char text[1 << 16];
  static int64_t begins[1 << 12];
  static wm_row_t rows[1 << 12];
  wm_row_cursor_t cursor;
  int64_t bytes = 0, n = 0;
  bool more = true;
  wm_row_cursor_init(&cursor, corpus, 0);
  while (true) {
    OK(wm_row_cursor_next(&cursor, &rows[n], &more, &err));
    if (!more)
      break;
    if (n > 0)
      text[bytes++] = '\n';
    begins[n] = bytes;
    memcpy(text + bytes, rows[n].text, (size_t)rows[n].bytes);
    bytes += rows[n++].bytes;
  }
  out->replaced = cursor.replaced;
  wm_row_cursor_destroy(&cursor);
  OK(wm_tokenizer_encode(tokenizer, text, bytes, 0, &out->tokens, &err));
  out->replaced += out->tokens.replaced;
  for (int64_t r = 0; r < n; r++) {
    int64_t token = 0;
    while (token < out->tokens.count && out->tokens.starts[token] < begins[r])
      token++;
    OK(wm_shard_add_row(out, rows[r].blank, rows[r].heading, token, &err));
  }
}

static void whole_documents(const wm_corpus_t *corpus, wm_shard_t *out) {
  wm_row_cursor_t cursor;
  wm_row_t row;
  bool more = true;
  wm_row_cursor_init(&cursor, corpus, 0);
  while (true) {
    OK(wm_row_cursor_next(&cursor, &row, &more, &err));
    if (!more)
      break;
    OK(wm_shard_add_row(out, row.blank, row.heading, out->tokens.count, &err));
    if (!row.blank)
      OK(wm_tokenizer_encode(tokenizer, row.text, row.bytes, 0, &out->tokens, &err));
  }
  out->replaced = cursor.replaced + out->tokens.replaced;
  wm_row_cursor_destroy(&cursor);
}

/* Compares a piece with the tokens and rows of `whole` from (*token, *row) on, and moves these on.
 */
static void compare_piece(const wm_shard_t *whole, const wm_token_part_t *piece, int64_t *token,
                          int64_t *row) {
  assert_true(*token + piece->n_tokens <= whole->tokens.count);
  assert_true(*row + piece->n_rows <= whole->rows);
  for (int64_t i = 0; i < piece->n_tokens; i++)
    assert_int_equal(piece->ids[i], whole->tokens.ids[*token + i]);
  for (int64_t r = 0; r < piece->n_rows; r++) {
    assert_int_equal(*token + piece->row_first_token[r], whole->first_token[*row + r]);
    assert_int_equal(piece->row_flags[r], whole->flags[*row + r]);
    assert_in_range(piece->row_first_token[r], 0, piece->n_tokens);
  }
  *token += piece->n_tokens;
  *row += piece->n_rows;
}

/* What was seen at most: shares with tokens, pieces with tokens in a share. */
typedef struct {
  int shares, pieces;
} most_t;

/* Goes through all shares in pieces of piece_bytes and compares with `whole`. */
static void check_pieces(const wm_corpus_t *corpus, wm_encode_mode_t mode, const wm_shard_t *whole,
                         int count, int64_t piece_bytes, most_t *most) {
  int64_t token = 0, row = 0, replaced = 0, documents = 0;
  int busy = 0;
  for (int index = 0; index < count; index++) {
    wm_shard_t s;
    wm_token_part_t piece;
    int64_t done = 0, before = token;
    int pieces = 0;
    OK(wm_shard_init(&s, corpus, tokenizer, mode, index, count, piece_bytes, &err));
    while (!s.finished) {
      OK(wm_shard_next(&s, &piece, &err));
      compare_piece(whole, &piece, &token, &row);
      pieces += piece.n_tokens > 0;
      assert_in_range(s.done, done, s.share.end - s.share.begin);
      done = s.done;
    }
    if (token > before)
      assert_int_equal(done, s.share.end - s.share.begin);
    OK(wm_shard_next(&s, &piece, &err)); /* nothing comes behind the last piece */
    assert_true(piece.n_tokens == 0 && piece.n_rows == 0);
    replaced += s.replaced;
    documents += s.documents;
    busy += token > before;
    most->pieces = pieces > most->pieces ? pieces : most->pieces;
    wm_shard_destroy(&s);
  }
  assert_int_equal(token, whole->tokens.count);
  assert_int_equal(row, whole->rows);
  assert_int_equal(replaced, whole->replaced);
  assert_int_equal(documents, whole->documents);
  most->shares = busy > most->shares ? busy : most->shares;
}

static most_t check_shares(const wm_corpus_t *corpus, wm_encode_mode_t mode) {
  wm_shard_t whole = {0};
  most_t most = {0};
  if (mode == WM_ENCODE_STREAM)
    whole_stream(corpus, &whole);
  else
    whole_documents(corpus, &whole);
  for (int count = 1; count <= MAX_SHARES; count++) {
    check_pieces(corpus, mode, &whole, count, 1, &most);
    check_pieces(corpus, mode, &whole, count, 2 + count % 13, &most);
    check_pieces(corpus, mode, &whole, count, 1 << 20, &most);
  }
  wm_shard_destroy(&whole);
  return most;
}

/* What was seen of the stream. */
static most_t check_text(const char *name, const char *text, size_t bytes) {
  most_t most = {0};
  for (int keep = 0; keep < 2; keep++) {
    wm_corpus_t *corpus = open_corpus(name, text, bytes, keep);
    most = check_shares(corpus, WM_ENCODE_STREAM);
    check_shares(corpus, WM_ENCODE_DOCUMENTS);
    wm_corpus_close(corpus);
  }
  return most;
}

#define TEXT(literal) literal, sizeof(literal) - 1

static void test_written_corpora(void **state) {
  (void)state;
  check_text("one.txt", TEXT("a"));
  check_text("blank.txt", TEXT("\n\n\n \n\n"));
  check_text("ends.txt", TEXT("a\n\n\n\nb\n\n\n\n"));
  check_text("crlf.txt", TEXT("a b\r\n\r\nc d\r\n= A =\r\n = Title = \r\n"));
  check_text("words.txt", TEXT("a\nb\nc\nd\ne\nf\ng\nh\ni\nj"));
  check_text("long.txt",
             TEXT("a b\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\nc d e f"));
  /* No cut anywhere: white space follows white space alone. */
  most_t most = check_text("none.txt", TEXT("\xE3\x80\x80\n\xE3\x80\x80 a\xE3\x80\x80\n\n\n"));
  assert_true(most.shares == 1 && most.pieces == 1);
  /* Cuts behind characters beyond ASCII. */
  most = check_text("beyond.txt", TEXT("\xC3\xA9\n\xC3\xA9\n\n\xE4\xB8\xAD \xC3\xA9\n\x80\x80 x"));
  if (splits_words && !crosses_space)
    assert_true(most.shares > 2 && most.pieces > 2);
  check_text("broken.txt", TEXT("a \xFF\n\xE2\x82\n\xCC\x81 b\n \xFF c\n\n\xFF"));
  check_text("rows.jsonl",
             TEXT("\n \n{\"text\": \"a\\nb c\"}\n\n\n{\"text\": \"\"}\n{\"text\": \"x\\ud800 "
                  "y\"}\n{\"text\": \"\\n\\n\"}\n\n{\"text\": \"end of\"}\n\n"));
  check_text("blank.jsonl", TEXT("\n\n\n\n\n\n\n\n\n\n{\"text\": \"a b\"}\n\n\n\n\n\n\n"));
}

static void test_random_corpora(void **state) {
  (void)state;
  static const char *const pieces[] = {
      "a", "the boat", " ", "\n", "\n\n", "\r\n", "###", " End", "\xC3\xA9", "\xCC\x81", "\xFF",
      "  ", "= T =", "!", "\xE4\xB8\xAD", "\x80", "\xE3\x80\x80",
      /* what composes: < and U+0338, two jamo; U+2260, U+212B */
      "<", "\xCC\xB8", "\xE1\x84\x80", "\xE1\x85\xA1", "\xE2\x89\xA0", "\xE2\x84\xAB",
      /* byte order mark, next line, no-break space, \r, \t */
      "\xEF\xBB\xBF", "\xC2\x85", "\xC2\xA0", "\r", "\t"};
  most_t most = {0};
  for (uint64_t seed = 0; seed < 150; seed++) {
    wm_rng_t rng = {seed, 9};
    char text[2048];
    size_t bytes = 0;
    uint64_t n = 1 + wm_rng_below(rng, 0, 120);
    for (uint64_t i = 1; i <= n; i++) {
      const char *piece = pieces[wm_rng_below(rng, i, sizeof pieces / sizeof pieces[0])];
      memcpy(text + bytes, piece, strlen(piece));
      bytes += strlen(piece);
    }
    most_t seen = check_text("random.txt", text, bytes);
    most.shares = seen.shares > most.shares ? seen.shares : most.shares;
    most.pieces = seen.pieces > most.pieces ? seen.pieces : most.pieces;
  }
  if (splits_words)
    assert_true(most.shares > 5 && most.pieces > 20);
  else /* one share takes all */
    assert_true(most.shares == 1 && most.pieces == 1);
}

static int setup(void **state) {
  make_directory(dir);
  tokenizer = open_tokenizer(*state);
  splits_words = strcmp(*state, "whole") != 0;
  crosses_space = strcmp(*state, "prefix") == 0;
  return 0;
}

static int teardown(void **state) {
  (void)state;
  wm_tokenizer_close(tokenizer);
  remove_directory(dir);
  return 0;
}

int main(void) {
  char *names[] = {"gpt2", "neox", "prefix", "whole"};
  int failed = 0;
  for (int i = 0; i < 4; i++) {
    const struct CMUnitTest tests[] = {
        {"test_written_corpora", test_written_corpora, setup, teardown, names[i]},
        {"test_random_corpora", test_random_corpora, setup, teardown, names[i]},
    };
    failed += cmocka_run_group_tests_name(names[i], tests, NULL, NULL);
  }
  return failed;
}
