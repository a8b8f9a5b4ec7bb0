/* Fingerprints of inputs (xxHash, 64 bits), to notice that a stage's input has changed. They are
 * no protection against forgery. */
#ifndef WANAMAKER_BASE_HASH_H
#define WANAMAKER_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Hash of `bytes` bytes, chained: `seed` is 0 or the hash of what came before. */
uint64_t wm_hash(const void *data, size_t bytes, uint64_t seed);

/* How a fingerprint is written down: 16 hexadecimal digits. */
enum { WM_HASH_TEXT = 17 };
void wm_hash_text(uint64_t hash, char text[WM_HASH_TEXT]);

#endif
