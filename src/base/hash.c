#include "wanamaker/base/hash.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <xxhash.h>

uint64_t wm_hash(const void *data, size_t bytes, uint64_t seed) {
  return (uint64_t)XXH3_64bits_withSeed(data, bytes, seed);
}

void wm_hash_text(uint64_t hash, char text[WM_HASH_TEXT]) {
  snprintf(text, WM_HASH_TEXT, "%016" PRIx64, hash);
}
