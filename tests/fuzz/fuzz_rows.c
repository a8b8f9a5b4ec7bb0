/* Input: a byte of options and a corpus, as plain text or JSON Lines. Its rows are read in one go,
 * and again in two parts that begin at lines, as two ranks share out a file. */
#include "fuzz.h"

#include "wanamaker/base/hash.h"
#include "wanamaker/io/corpus.h"

#include <assert.h>
#include <string.h>

typedef struct {
  int64_t rows, replaced, position;
  uint64_t hash;
} summary_t;

/* Adds the rows whose lines begin in [from, to). */
static wm_status_t add_rows(const wm_corpus_t *corpus, int64_t from, int64_t to, summary_t *sum) {
  wm_row_cursor_t cursor;
  wm_error_t err = {0};
  wm_status_t status = WM_OK;
  wm_row_cursor_init(&cursor, corpus, wm_corpus_line_at(corpus, from));
  while (cursor.next < to) {
    wm_row_t row;
    bool more;
    status = wm_row_cursor_next(&cursor, &row, &more, &err);
    fuzz_check_failure(status, &err, WM_INPUT, "rows");
    if (status != WM_OK || !more || row.position >= to)
      break;
    assert(sum->rows == 0 || row.position > sum->position);
    assert(row.bytes >= 0 && row.bytes <= 3 * wm_corpus_bytes(corpus) + 1);
    sum->position = row.position;
    sum->rows++;
    sum->hash = wm_hash(row.text, (size_t)row.bytes, sum->hash);
  }
  sum->replaced += cursor.replaced;
  wm_row_cursor_destroy(&cursor);
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 1)
    return 0;
  uint8_t options = data[0];
  fuzz_write("rows", (fuzz_bytes_t){(const char *)data + 1, size - 1});
  wm_corpus_spec_t spec = {.path = fuzz_path("rows"),
                           .format = options & 1 ? WM_CORPUS_TEXT : WM_CORPUS_JSONL,
                           .keep_newline = (options & 2) != 0};
  wm_corpus_t *corpus;
  wm_error_t err = {0};
  wm_status_t status = wm_corpus_open(&spec, &corpus, &err);
  fuzz_check_failure(status, &err, WM_INPUT, "rows");
  if (status != WM_OK)
    return 0;
  int64_t bytes = wm_corpus_bytes(corpus);
  int64_t middle = wm_corpus_line_at(corpus, bytes * (options >> 2) / 64);
  summary_t whole = {0}, parts = {0};
  status = add_rows(corpus, 0, bytes, &whole);
  if (status == WM_OK) {
    status = add_rows(corpus, 0, middle, &parts);
    assert(status == WM_OK);
    status = add_rows(corpus, middle, bytes, &parts);
    assert(status == WM_OK);
    assert(whole.rows == parts.rows && whole.hash == parts.hash);
  }
  wm_corpus_close(corpus);
  return 0;
}
