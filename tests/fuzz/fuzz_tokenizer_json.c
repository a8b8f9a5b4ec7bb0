/* Input: tokenizer.json, a separator, and text to encode. */
#include "fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_bytes_t rest = {(const char *)data, size};
  fuzz_write_vocabulary("tokenizer.json", fuzz_part(&rest));
  fuzz_use_tokenizer(rest);
  return 0;
}
