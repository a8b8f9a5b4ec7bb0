/* What the activations and their derivatives are made of: float32 arithmetic, selects and integer
 * shifts alone (activation.c says why). Each function keeps an element's bits whatever its place.
 */
#ifndef WANAMAKER_SRC_LINALG_ACTIVATION_INLINE_H
#define WANAMAKER_SRC_LINALG_ACTIVATION_INLINE_H

#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* As in transformers. */
#define WM_LAPLACE_MEAN 0.707107
#define WM_LAPLACE_SCALE 0.282095

/* a b + c, fused where the machine can: elsewhere fmaf would be a call of the C library. */
INLINE float fused(float a, float b, float c) {
#ifdef __FMA__
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

INLINE float from_bits(int32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

INLINE int32_t to_bits(float x) {
  int32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* e^x: x = k ln 2 + r, |r| <= ln 2 / 2, e^r = 1 + r + r^2 P(r) (error 3e-9). Comparisons are
 * written so that NaN passes through. */
INLINE float fast_exp(float x) {
  x = x < -104.0f ? -104.0f : x; /* below: 0; above 89: infinity */
  x = x > 89.0f ? 89.0f : x;
  const float round_magic =
      12582912.0f; /* 1.5 * 2^23: adding it leaves an integer in the low bits */
  float shifted = fused(x, 1.44269504f, round_magic);
  float k = shifted - round_magic;
  float r = fused(k, -0.693359375f, x); /* ln 2 in two parts, the first with 9 bits: exact */
  r = fused(k, 2.12194440e-4f, r);
  float p = 0.001395052415318787f;
  p = fused(p, r, 0.008368908427655697f);
  p = fused(p, r, 0.04166620597243309f);
  p = fused(p, r, 0.166665181517601f);
  p = fused(p, r, 0.5f);
  p = fused(p * r, r, r) + 1.0f;
  /* 2^k in two factors: it may over- or underflow where the result does not. */
  int32_t power = to_bits(shifted) - to_bits(round_magic);
  int32_t half = power >> 1;
  uint32_t low = (uint32_t)(half + 127) << 23, high = (uint32_t)(power - half + 127) << 23;
  return p * from_bits((int32_t)low) * from_bits((int32_t)high);
}

INLINE float fast_sigmoid(float x) {
  return 1.0f / (1.0f + fast_exp(-x));
}

/* Phi(-z) for z >= 0 (error 2e-8). */
INLINE float normal_tail(float z) {
  z = z > 15.0f ? 15.0f : z; /* exp(-112) is 0 */
  float d = 1.0f / (z + 3.0f);
  float s = (z - 3.0f) * d;
  float g = 5.451303513837047e-05f;
  g = fused(g, s, -0.0001993910555029288f);
  g = fused(g, s, -0.0009472225210629404f);
  g = fused(g, s, 0.0010135099291801453f);
  g = fused(g, s, 0.006936855148524046f);
  g = fused(g, s, -0.010461518540978432f);
  g = fused(g, s, -0.04725801944732666f);
  g = fused(g, s, 0.23001763224601746f);
  g = fused(g, s, -0.5093321800231934f);
  g = fused(g, s, 0.7290837168693542f);
  return fast_exp(-0.5f * z * z) * (g * d);
}

INLINE float fast_phi(float x) {
  float tail = normal_tail(__builtin_fabsf(x));
  return x > 0.0f ? 1.0f - tail : tail;
}

/* Near 0: x + x^3 P(x^2) (error 4e-9); elsewhere 1 - 2 / (e^2|x| + 1), which would cancel there. */
INLINE float fast_tanh(float x) {
  float u = x * x;
  float p = -0.005720830988138914f;
  p = fused(p, u, 0.020653819665312767f);
  p = fused(p, u, -0.05374443531036377f);
  p = fused(p, u, 0.13331501185894012f);
  p = fused(p, u, -0.3333328366279602f);
  float small = fused(x * u, p, x);
  float a = __builtin_fabsf(x);
  float large = __builtin_copysignf(1.0f - 2.0f / (fast_exp(2.0f * a) + 1.0f), x);
  return a < 0.625f ? small : large;
}

#endif
