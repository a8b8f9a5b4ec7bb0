#include "fuzz_tokenizer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Entries of the byte tokens, as the byte-level alphabet spells them. */
static void put_byte_tokens(FILE *out) {
  for (unsigned c = 0x21, id = 0; c <= 0x143; c++) {
    bool printable = c <= 0x7e || (c >= 0xa1 && c <= 0xff && c != 0xad);
    if (!printable && c < 0x100)
      continue;
    fprintf(out, "%s\"\\u%04x\":%u", id > 0 ? "," : "", c, id);
    id++;
  }
}

void fuzz_write_vocabulary(const char *name, fuzz_bytes_t bytes) {
  const char *mark = bytes.bytes > 0 ? memchr(bytes.data, FUZZ_BYTE_TOKENS, bytes.bytes) : NULL;
  if (mark == NULL) {
    fuzz_write(name, bytes);
    return;
  }
  size_t before = (size_t)(mark - bytes.data);
  fuzz_bytes_t whole = {0};
  char *text = NULL;
  FILE *out = open_memstream(&text, &whole.bytes);
  assert(out != NULL);
  fwrite(bytes.data, 1, before, out);
  put_byte_tokens(out);
  fwrite(mark + 1, 1, bytes.bytes - before - 1, out);
  fclose(out);
  whole.data = text;
  fuzz_write(name, whole);
  free(text);
}

void fuzz_encode(wm_tokenizer_t *t, const char *text, int64_t bytes, wm_token_list_t *list) {
  wm_error_t err = {0};
  wm_status_t status = wm_tokenizer_encode(t, text, bytes, 0, list, &err);
  assert(status == WM_OK);
  for (int64_t i = 0; i < list->count; i++) {
    assert(list->ids[i] >= 0 && list->ids[i] < wm_tokenizer_vocab_size(t));
    assert(list->starts[i] >= (i > 0 ? list->starts[i - 1] : 0) && list->starts[i] < bytes);
  }
  char *back;
  int64_t back_bytes;
  status = wm_tokenizer_decode(t, list->ids, list->count, &back, &back_bytes, &err);
  assert(status == WM_OK);
  assert(bytes == 0 || back_bytes > 0);
  free(back);
}

void fuzz_use_tokenizer(fuzz_bytes_t text) {
  static const char fixed[] =
      "The  caf\xc3\xa9's 12 \xe2\x82\xac\n\t<|endoftext|> e\xcc\x81 \xff\xe2\x82 ab";
  wm_error_t err = {0};
  wm_tokenizer_t *t;
  wm_status_t status = wm_tokenizer_open(fuzz_directory(), &t, &err);
  fuzz_check_failure(status, &err, WM_INPUT, fuzz_directory());
  assert((status == WM_OK) == (t != NULL));
  if (status == WM_OK) {
    wm_token_list_t list = {0};
    fuzz_encode(t, fixed, sizeof fixed - 1, &list);
    list.count = 0;
    fuzz_encode(t, text.data, (int64_t)text.bytes, &list);
    wm_token_list_destroy(&list);
    wm_tokenizer_fingerprint(t);
  }
  wm_tokenizer_close(t);
}
