#include "checksum.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are read as the machine has them");

static inline uint64_t term(uint64_t word_index, uint64_t word) {
  uint64_t x = (word_index + 1) * 0x9e3779b97f4a7c15u ^ word;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* The common sizes get loops that vectorise: `size` is a constant after inlining. */
static inline __attribute__((always_inline)) uint64_t run_of(const char *data, size_t size,
                                                             uint64_t first, int64_t count) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; i++) {
    uint64_t word = 0;
    memcpy(&word, data + (size_t)i * size, size);
    sum += term(first + (uint64_t)i, word);
  }
  return sum;
}

static uint64_t run_of_any(const char *data, int64_t size, uint64_t first, int64_t count) {
  int64_t words = (size + 7) / 8;
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; i++)
    for (int64_t j = 0; j < words; j++) {
      uint64_t word = 0;
      int64_t rest = size - 8 * j;
      memcpy(&word, data + i * size + 8 * j, (size_t)(rest < 8 ? rest : 8));
      sum += term((first + (uint64_t)i) * (uint64_t)words + (uint64_t)j, word);
    }
  return sum;
}

uint64_t wm_checksum_run(const void *data, int64_t size, int64_t first, int64_t count) {
  switch (size) {
  case 1:
    return run_of(data, 1, (uint64_t)first, count);
  case 2:
    return run_of(data, 2, (uint64_t)first, count);
  case 4:
    return run_of(data, 4, (uint64_t)first, count);
  case 8:
    return run_of(data, 8, (uint64_t)first, count);
  default:
    return run_of_any(data, size, (uint64_t)first, count);
  }
}

uint64_t wm_checksum_slab(const void *data, int64_t size, int n_dims, const int64_t *dims,
                          const int64_t *offset, const int64_t *count) {
  /* Dimensions from `d` on form one run: all behind d are whole. */
  int d = n_dims - 1;
  int64_t inner = 1; /* elements of the array below one step of dimension d */
  for (; d > 0 && count[d] == dims[d]; d--)
    inner *= dims[d];
  int64_t run = count[d] * inner, runs = 1;
  for (int i = 0; i < d; i++)
    runs *= count[i];
  uint64_t sum = 0;
  for (int64_t r = 0; r < runs; r++) {
    int64_t rest = r, stride = dims[d] * inner, first = offset[d] * inner;
    for (int i = d - 1; i >= 0; i--) {
      first += (offset[i] + rest % count[i]) * stride;
      rest /= count[i];
      stride *= dims[i];
    }
    sum += wm_checksum_run((const char *)data + r * run * size, size, first, run);
  }
  return sum;
}
