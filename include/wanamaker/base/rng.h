/* Counter-based random numbers (Random123, Philox4x32-10): element i of stream s of a seed is a
 * pure function of (seed, s, i), so that any rank can draw any element. */
#ifndef WANAMAKER_BASE_RNG_H
#define WANAMAKER_BASE_RNG_H

#include <stdint.h>

typedef struct {
  uint64_t seed;
  uint64_t stream;
} wm_rng_t;

/* 64 random bits: element `index` of the stream. */
uint64_t wm_rng_bits(wm_rng_t rng, uint64_t index);

/* Uniform integer in [0, n), n > 0, by the high part of a 64 x 64 bit product (bias < n / 2^64). */
uint64_t wm_rng_below(wm_rng_t rng, uint64_t index, uint64_t n);

/* Uniform in [0, 1) with 53 bits. */
double wm_rng_uniform(wm_rng_t rng, uint64_t index);

/* out[i] = 32 random bits, word number first + i of the stream, four to an element's bits. */
void wm_rng_words(wm_rng_t rng, uint64_t first, int64_t n, uint32_t *out);

/* Standard normal (Box-Muller on the two halves of one element's bits). */
double wm_rng_normal(wm_rng_t rng, uint64_t index);

/* out[i] = a standard normal in float32, number first + i of the stream; four to an element's bits,
 * so that large arrays are quickly filled and any part can be filled alone. Numbers go to +-6.8. */
void wm_rng_normals(wm_rng_t rng, uint64_t first, int64_t n, float *out);

#endif
