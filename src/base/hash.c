#include "wanamaker/base/hash.h"

#include <stddef.h>
#include <xxhash.h>

uint64_t wm_hash(const void *data, size_t bytes, uint64_t seed) {
  return (uint64_t)XXH3_64bits_withSeed(data, bytes, seed);
}
