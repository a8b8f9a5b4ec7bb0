/* Input: an array of token ids in NumPy's format. */
#include "fuzz.h"

#include "wanamaker/io/corpus.h"

#include <assert.h>
#include <stdlib.h>

static void read_ids(const wm_corpus_t *corpus) {
  int64_t count = wm_corpus_token_count(corpus);
  assert(count >= 0 && count <= wm_corpus_bytes(corpus));
  int32_t *ids = malloc((size_t)count * sizeof *ids + 1);
  assert(ids != NULL);
  wm_error_t err = {0};
  wm_status_t status = wm_corpus_tokens(corpus, 0, count, ids, &err);
  fuzz_check_failure(status, &err, WM_INPUT, "ids.npy");
  for (int64_t i = 0; status == WM_OK && i < count; i++)
    assert(ids[i] >= 0);
  free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_write("ids.npy", (fuzz_bytes_t){(const char *)data, size});
  wm_corpus_spec_t spec = {.path = fuzz_path("ids.npy")};
  wm_corpus_t *corpus;
  wm_error_t err = {0};
  wm_status_t status = wm_corpus_open(&spec, &corpus, &err);
  fuzz_check_failure(status, &err, WM_INPUT, "ids.npy");
  if (status == WM_OK)
    read_ids(corpus);
  wm_corpus_close(corpus);
  return 0;
}
