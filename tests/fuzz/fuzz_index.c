/* Input: model.safetensors.index.json, and the headers of the shards "a" and "b", with separators
 * between. Each shard has 16 bytes of data. */
#include "fuzz.h"

#include "wanamaker/io/safetensors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { DATA_BYTES = 16 };

static void write_shard(const char *name, fuzz_bytes_t header) {
  size_t bytes = 8 + header.bytes + DATA_BYTES;
  char *file = calloc(bytes, 1);
  assert(file != NULL);
  for (int i = 0; i < 8; i++)
    file[i] = (char)((uint64_t)header.bytes >> 8 * i);
  if (header.bytes > 0)
    memcpy(file + 8, header.data, header.bytes);
  fuzz_write(name, (fuzz_bytes_t){file, bytes});
  free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_bytes_t rest = {(const char *)data, size};
  fuzz_write("model.safetensors.index.json", fuzz_part(&rest));
  write_shard("a", fuzz_part(&rest));
  write_shard("b", fuzz_part(&rest));
  wm_error_t err = {0};
  wm_tensors_t *tensors;
  wm_status_t status = wm_tensors_open(fuzz_directory(), &tensors, &err);
  fuzz_check_failure(status, &err, WM_INPUT, "model.safetensors.index.json");
  for (int64_t i = 0; status == WM_OK && i < wm_tensors_count(tensors); i++) {
    const wm_tensor_t *t = wm_tensors_at(tensors, i);
    assert(wm_tensors_find(tensors, t->name) == t);
  }
  if (status == WM_OK)
    wm_tensors_fingerprint(tensors);
  wm_tensors_close(tensors);
  return 0;
}
