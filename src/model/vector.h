/* Float lanes in the compiler's vector extension, as many as fill a register of the machine: of
 * wider vectors the compiler keeps every value in memory, which made log-sum-exp on AVX2 3.5 times
 * as slow. Sums over lanes have one order, and elements one rounding, whatever the place and
 * alignment of the data, which automatic vectorisation does not promise.
 */
#ifndef WANAMAKER_SRC_MODEL_VECTOR_H
#define WANAMAKER_SRC_MODEL_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
enum { WM_LANES = 16 };
#elif defined(__AVX__)
enum { WM_LANES = 8 };
#else
enum { WM_LANES = 4 };
#endif

typedef float wm_lanes_t __attribute__((vector_size(4 * WM_LANES)));
typedef int32_t wm_lane_bits_t __attribute__((vector_size(4 * WM_LANES)));
typedef uint32_t wm_lane_words_t __attribute__((vector_size(4 * WM_LANES)));
typedef float wm_half_f32_t __attribute__((vector_size(2 * WM_LANES))); /* half as many */
typedef double wm_half_f64_t __attribute__((vector_size(4 * WM_LANES)));

static inline wm_lanes_t wm_lanes_load(const float *p) {
  wm_lanes_t v;
  memcpy(&v, p, sizeof v);
  return v;
}

static inline void wm_lanes_store(float *p, wm_lanes_t v) {
  memcpy(p, &v, sizeof v);
}

/* The first `count` < WM_LANES elements, then `fill`. */
static inline wm_lanes_t wm_lanes_load_part(const float *p, int64_t count, float fill) {
  wm_lanes_t v = fill - (wm_lanes_t){0};
  memcpy(&v, p, (size_t)count * sizeof *p);
  return v;
}

/* a where the mask is set (all bits of a lane, as comparisons give it), else b. */
static inline wm_lanes_t wm_lanes_select(wm_lane_bits_t mask, wm_lanes_t a, wm_lanes_t b) {
  return (wm_lanes_t)((mask & (wm_lane_bits_t)a) | (~mask & (wm_lane_bits_t)b));
}

/* The larger lanes; b where a is NaN. */
static inline wm_lanes_t wm_lanes_max(wm_lanes_t a, wm_lanes_t b) {
  return wm_lanes_select(a > b, a, b);
}

static inline double wm_lanes_sum(wm_lanes_t v) {
  double sum = 0;
  for (int i = 0; i < WM_LANES; i++)
    sum += (double)v[i];
  return sum;
}

/* Adds the lanes to half as many sums in float64. */
static inline wm_half_f64_t wm_lanes_add_f64(wm_half_f64_t sums, wm_lanes_t v) {
  wm_half_f32_t halves[2];
  memcpy(halves, &v, sizeof v);
  sums += __builtin_convertvector(halves[0], wm_half_f64_t);
  return sums + __builtin_convertvector(halves[1], wm_half_f64_t);
}

/* Largest of x[n], n > 0; NaNs are passed over unless all are. */
static inline float wm_row_max(const float *x, int64_t n) {
  wm_lanes_t first = wm_lanes_load_part(x, n < WM_LANES ? n : WM_LANES, x[0]), second = first;
  int64_t i = 0;
  for (; i + 2 * WM_LANES <= n; i += 2 * WM_LANES) {
    first = wm_lanes_max(wm_lanes_load(x + i), first);
    second = wm_lanes_max(wm_lanes_load(x + i + WM_LANES), second);
  }
  first = wm_lanes_max(second, first);
  for (; i < n; i += WM_LANES) {
    int64_t count = n - i < WM_LANES ? n - i : WM_LANES;
    first = wm_lanes_max(wm_lanes_load_part(x + i, count, x[0]), first);
  }
  float max = first[0];
  for (int k = 1; k < WM_LANES; k++)
    max = first[k] > max || isnan(max) ? first[k] : max;
  return max;
}

/* e^x within 2 units in the last place (1 with fused multiply-adds), for -87.3 <= x <= 88; 0 below,
 * NaN for NaN. x above 88 is not allowed: the callers subtract a maximum first.
 *
 * x = n ln 2 + r, |r| <= ln 2 / 2; e^r by its Taylor polynomial of degree 7 (remainder 5e-9 of the
 * value), 2^n added to the exponent's bits. n is rounded by adding 1.5 * 2^23, which leaves it in
 * the lowest bits of the sum. */
static inline wm_lanes_t wm_lanes_exp(wm_lanes_t x) {
  const float log2e = 0x1.715476p+0f, ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
  const float shift = 0x1.8p23f, lowest = -87.3f;
  const wm_lanes_t zero = {0};
  wm_lane_bits_t below = x < lowest;
  wm_lanes_t clamped = wm_lanes_select(below, lowest - zero, x);
  wm_lanes_t t = clamped * log2e + shift;
  wm_lanes_t n = t - shift;
  wm_lanes_t r = (clamped - n * ln2_high) - n * ln2_low;
  wm_lanes_t p = r * (1.0f / 5040) + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  wm_lane_words_t bits = (wm_lane_words_t)p + ((wm_lane_words_t)t << 23);
  return (wm_lanes_t)(bits & ~(wm_lane_words_t)below);
}

#endif
