/* Input: the bytes of model.safetensors; or 'H', a byte n and the header: then its length is put
 * before it and 4 n zero bytes after it, so that the fuzzer need not keep the length right. */
#include "fuzz.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/io/safetensors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void write_with_header(fuzz_bytes_t input) {
  size_t length = input.bytes - 2, zeros = 4 * (size_t)(uint8_t)input.data[1];
  char *file = calloc(8 + length + zeros, 1);
  assert(file != NULL);
  for (int i = 0; i < 8; i++)
    file[i] = (char)((uint64_t)length >> 8 * i);
  memcpy(file + 8, input.data + 2, length);
  fuzz_write("model.safetensors", (fuzz_bytes_t){file, 8 + length + zeros});
  free(file);
}

/* Reads every byte that was promised. */
static void use(const wm_tensors_t *tensors) {
  for (int64_t i = 0; i < wm_tensors_count(tensors); i++) {
    const wm_tensor_t *t = wm_tensors_at(tensors, i);
    assert(wm_tensors_find(tensors, t->name) == t);
    assert(t->bytes == t->elements * wm_dtype_size(t->dtype));
    if (t->dtype > WM_DTYPE_BF16)
      continue;
    float *values = malloc((size_t)t->elements * sizeof *values + 1);
    assert(values != NULL);
    wm_to_f32(t->dtype, t->data, t->elements, values);
    free(values);
  }
  wm_tensors_fingerprint(tensors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_bytes_t input = {(const char *)data, size};
  if (size >= 2 && data[0] == 'H')
    write_with_header(input);
  else
    fuzz_write("model.safetensors", input);
  wm_error_t err = {0};
  wm_tensors_t *tensors;
  wm_status_t status = wm_tensors_open(fuzz_directory(), &tensors, &err);
  fuzz_check_failure(status, &err, WM_INPUT, "model.safetensors");
  assert((status == WM_OK) == (tensors != NULL));
  if (status == WM_OK)
    use(tensors);
  wm_tensors_close(tensors);
  return 0;
}
