#include "wanamaker/base/rng.h"

#include <Random123/philox.h>
#include <math.h>

static philox4x32_ctr_t draw(wm_rng_t rng, uint64_t index) {
  philox4x32_key_t key = {{(uint32_t)rng.seed, (uint32_t)(rng.seed >> 32)}};
  philox4x32_ctr_t counter = {{(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)rng.stream,
                               (uint32_t)(rng.stream >> 32)}};
  return philox4x32(counter, key);
}

uint64_t wm_rng_bits(wm_rng_t rng, uint64_t index) {
  philox4x32_ctr_t r = draw(rng, index);
  return (uint64_t)r.v[1] << 32 | r.v[0];
}

uint64_t wm_rng_below(wm_rng_t rng, uint64_t index, uint64_t n) {
  return (uint64_t)(((unsigned __int128)wm_rng_bits(rng, index) * n) >> 64);
}

double wm_rng_uniform(wm_rng_t rng, uint64_t index) {
  return (double)(wm_rng_bits(rng, index) >> 11) * 0x1p-53;
}

void wm_rng_words(wm_rng_t rng, uint64_t first, int64_t n, uint32_t *out) {
  for (int64_t i = 0; i < n;) {
    uint64_t at = first + (uint64_t)i;
    philox4x32_ctr_t r = draw(rng, at / 4);
    for (uint64_t j = at % 4; j < 4 && i < n; j++)
      out[i++] = r.v[j];
  }
}

double wm_rng_normal(wm_rng_t rng, uint64_t index) {
  philox4x32_ctr_t r = draw(rng, index);
  double u = ((double)r.v[0] + 0.5) * 0x1p-32;
  double angle = 6.283185307179586 * ((double)r.v[1] * 0x1p-32);
  return sqrt(-2.0 * log(u)) * cos(angle);
}

/* Two pairs of Box-Muller's. */
static void four_normals(wm_rng_t rng, uint64_t index, float out[4]) {
  philox4x32_ctr_t r = draw(rng, index);
  for (int i = 0; i < 4; i += 2) {
    float u = ((float)r.v[i] + 0.5f) * 0x1p-32f;
    float angle = 6.2831853f * ((float)r.v[i + 1] * 0x1p-32f), radius = sqrtf(-2 * logf(u));
    out[i] = radius * cosf(angle);
    out[i + 1] = radius * sinf(angle);
  }
}

void wm_rng_normals(wm_rng_t rng, uint64_t first, int64_t n, float *out) {
  float four[4];
  for (int64_t i = 0; i < n;) {
    uint64_t at = first + (uint64_t)i;
    four_normals(rng, at / 4, four);
    for (uint64_t j = at % 4; j < 4 && i < n; j++)
      out[i++] = four[j];
  }
}
