/* Input: a byte that chooses the tokenizer, a byte that thins out the cuts, and text. The text is
 * encoded whole, and in parts cut where wm_tokenizer_can_cut allows it: both must agree. */
#include "fuzz.h"
#include "fuzz_tokenizer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"demo_gpt2",           "demo_gpt_neox",    "tokenizer/gpt2",
                                    "tokenizer/neox",      "tokenizer/prefix", "tokenizer/whole",
                                    "tokenizer/gpt2_files"};
enum { N_TOKENIZERS = sizeof names / sizeof names[0] };

static wm_tokenizer_t *tokenizer(int which) {
  static wm_tokenizer_t *opened[N_TOKENIZERS];
  if (opened[which] == NULL) {
    char dir[512];
    wm_error_t err = {0};
    snprintf(dir, sizeof dir, "%s/%s", WM_TEST_DATA, names[which]);
    if (wm_tokenizer_open(dir, &opened[which], &err) != WM_OK) {
      fprintf(stderr, "%s\n", err.message);
      exit(1);
    }
  }
  return opened[which];
}

/* Encodes text[0, bytes) in parts: at every `step`-th place where a cut is allowed. */
static void encode_in_parts(wm_tokenizer_t *t, const char *text, int64_t bytes, int step,
                            wm_token_list_t *list) {
  wm_error_t err = {0};
  int64_t begin = 0;
  int seen = 0;
  for (int64_t at = 1; at <= bytes; at++) {
    if (at < bytes && !(wm_tokenizer_can_cut(t, text, bytes, at) && ++seen % step == 0))
      continue;
    wm_status_t status = wm_tokenizer_encode(t, text + begin, at - begin, begin, list, &err);
    assert(status == WM_OK);
    begin = at;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 3)
    return 0;
  wm_tokenizer_t *t = tokenizer(data[0] % N_TOKENIZERS);
  const char *text = (const char *)data + 2;
  int64_t bytes = (int64_t)size - 2;
  wm_token_list_t whole = {0}, parts = {0};
  fuzz_encode(t, text, bytes, &whole);
  encode_in_parts(t, text, bytes, 1 + data[1] % 4, &parts);
  assert(whole.count == parts.count && whole.replaced == parts.replaced);
  size_t n = (size_t)whole.count;
  assert(n == 0 || memcmp(whole.ids, parts.ids, n * sizeof *whole.ids) == 0);
  assert(n == 0 || memcmp(whole.starts, parts.starts, n * sizeof *whole.starts) == 0);
  wm_token_list_destroy(&whole);
  wm_token_list_destroy(&parts);
  return 0;
}
