/* Sixteen float lanes, in the compiler's vector extension: one AVX-512 register, or as many
 * smaller ones as the machine has. Sums over lanes have one order whatever the alignment of the
 * data, which automatic vectorisation of a reduction does not promise.
 */
#ifndef WANAMAKER_SRC_MODEL_VECTOR_H
#define WANAMAKER_SRC_MODEL_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { WM_LANES = 16 };

typedef float wm_lanes_t __attribute__((vector_size(64)));
typedef double wm_half_lanes_t __attribute__((vector_size(64))); /* eight */

static inline wm_lanes_t wm_lanes_load(const float *p) {
  wm_lanes_t v;
  memcpy(&v, p, sizeof v);
  return v;
}

/* The first `count` < WM_LANES elements, then `fill`. */
static inline wm_lanes_t wm_lanes_load_part(const float *p, int64_t count, float fill) {
  wm_lanes_t v;
  for (int64_t i = 0; i < WM_LANES; i++)
    v[i] = i < count ? p[i] : fill;
  return v;
}

static inline double wm_lanes_sum(wm_lanes_t v) {
  double sum = 0;
  for (int i = 0; i < WM_LANES; i++)
    sum += (double)v[i];
  return sum;
}

/* e^x within 2 units in the last place, for -87.3 <= x <= 88; 0 below, NaN for NaN. x above 88 is
 * not allowed: the callers subtract a maximum first.
 *
 * x = n ln 2 + r, |r| <= ln 2 / 2; e^r by its Taylor polynomial of degree 7 (remainder 5e-9 of the
 * value; the coefficients' rounding is of the same size), 2^n added to the exponent's bits. n is
 * rounded by adding 1.5 * 2^23, which leaves it in the lowest bits of the sum. No branches, so that
 * loops over it vectorise. */
static inline float wm_exp_f32(float x) {
  const float log2e = 0x1.715476p+0f, ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
  const float shift = 0x1.8p23f;
  float clamped = x < -87.3f ? -87.3f : x;
  float t = clamped * log2e + shift;
  float n = t - shift;
  float r = (clamped - n * ln2_high) - n * ln2_low;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  uint32_t bits, power;
  memcpy(&bits, &p, sizeof bits);
  memcpy(&power, &t, sizeof power);
  bits += power << 23;
  memcpy(&p, &bits, sizeof p);
  return x < -87.3f ? 0.0f : p;
}

#endif
