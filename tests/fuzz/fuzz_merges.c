/* Input: vocab.json, merges.txt and text to encode, with separators between. */
#include "fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_bytes_t rest = {(const char *)data, size};
  fuzz_write_vocabulary("vocab.json", fuzz_part(&rest));
  fuzz_write("merges.txt", fuzz_part(&rest));
  fuzz_use_tokenizer(rest);
  return 0;
}
