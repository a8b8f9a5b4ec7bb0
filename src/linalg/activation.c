/* Activations: the definitions in float64, and loops that a compiler turns into vector code.
 *
 * The fast versions use nothing but arithmetic, selects and integer shifts, so that the vector body
 * of a loop and its scalar remainder give the same bits. (Vector libraries such as libmvec do not:
 * their scalar functions round differently, and an element's bits would depend on its place.)
 *
 * Each is written so that nothing cancels:
 *   Phi(-z) = exp(-z^2 / 2) g(s) / (z + 3), s = (z - 3) / (z + 3), g a polynomial
 *   (1 + tanh u) / 2 = sigmoid(2 u)
 *   tanh(log(1 + e^x)) = n / (n + 2), n = e^x (e^x + 2)
 * The coefficients are minimax fits in relative error (least squares, reweighted by Lawson's rule,
 * against 40-digit values); each table states its error before rounding.
 */
#include "wanamaker/linalg/activation.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

static const double LAPLACE_MEAN = 0.707107, LAPLACE_SCALE = 0.282095; /* as in transformers */

static double phi_reference(double x) {
  return 0.5 * erfc(-x * M_SQRT1_2);
}

static double sigmoid_reference(double x) {
  return 1 / (1 + exp(-x));
}

static double clip(double x, double low, double high) {
  return x < low ? low : x > high ? high : x;
}

double wm_activation_reference(wm_activation_t act, double x) {
  switch (act) {
  case WM_ACT_NONE:
    return x;
  case WM_ACT_GELU:
    return x * phi_reference(x);
  case WM_ACT_GELU_TANH: /* x (1 + tanh u) / 2, by the identity above */
    return x * sigmoid_reference(2 * sqrt(M_2_PI) * (x + 0.044715 * x * x * x));
  case WM_ACT_GELU_CLIP10:
    return clip(x * phi_reference(x), -10, 10);
  case WM_ACT_QUICK_GELU:
    return x * sigmoid_reference(1.702 * x);
  case WM_ACT_RELU:
    return x < 0 ? 0 : x;
  case WM_ACT_RELU2:
    return x < 0 ? 0 : x * x;
  case WM_ACT_RELU6:
    return clip(x, 0, 6);
  case WM_ACT_LEAKY_RELU:
    return x < 0 ? 0.01 * x : x;
  case WM_ACT_SIGMOID:
    return sigmoid_reference(x);
  case WM_ACT_SILU:
    return x * sigmoid_reference(x);
  case WM_ACT_TANH:
    return tanh(x);
  case WM_ACT_MISH:
    return x * tanh(x > 40 ? x : log1p(exp(x)));
  case WM_ACT_LAPLACE:
    return phi_reference((x - LAPLACE_MEAN) / LAPLACE_SCALE);
  case WM_ACT_COUNT:
    break;
  }
  assert(!"unknown activation");
  return NAN;
}

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

INLINE float gelu(float x) {
  return x * fast_phi(x);
}

INLINE float gelu_tanh(float x) {
  const float c = 1.5957691216f; /* 2 sqrt(2 / pi) */
  return x * fast_sigmoid(c * x * fused(0.044715f * x, x, 1.0f));
}

INLINE float gelu_clip10(float x) {
  float y = gelu(x);
  return y > 10.0f ? 10.0f : y; /* gelu is never below -0.17 */
}

INLINE float quick_gelu(float x) {
  return x * fast_sigmoid(1.702f * x);
}

INLINE float relu(float x) {
  return x < 0.0f ? 0.0f : x;
}

INLINE float relu2(float x) {
  float y = relu(x);
  return y * y;
}

INLINE float relu6(float x) {
  float y = relu(x);
  return y > 6.0f ? 6.0f : y;
}

INLINE float leaky_relu(float x) {
  return x < 0.0f ? 0.01f * x : x;
}

INLINE float sigmoid(float x) {
  return fast_sigmoid(x);
}

INLINE float silu(float x) {
  return x * fast_sigmoid(x);
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

INLINE float mish(float x) {
  float e = fast_exp(x > 20.0f ? 20.0f : x); /* beyond, the quotient is 1 */
  float n = e * (e + 2.0f);
  return x * (n / (n + 2.0f));
}

INLINE float laplace(float x) {
  return fast_phi((x - (float)LAPLACE_MEAN) * (float)(1 / LAPLACE_SCALE));
}

/* Inlined with a constant `f`, so that each call below becomes its own vector loop. */
INLINE void map(float (*f)(float), float *y, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] = f(y[i]);
}

void wm_activation_apply(wm_activation_t act, float *y, int64_t n) {
  switch (act) {
  case WM_ACT_NONE:
    return;
  case WM_ACT_GELU:
    map(gelu, y, n);
    return;
  case WM_ACT_GELU_TANH:
    map(gelu_tanh, y, n);
    return;
  case WM_ACT_GELU_CLIP10:
    map(gelu_clip10, y, n);
    return;
  case WM_ACT_QUICK_GELU:
    map(quick_gelu, y, n);
    return;
  case WM_ACT_RELU:
    map(relu, y, n);
    return;
  case WM_ACT_RELU2:
    map(relu2, y, n);
    return;
  case WM_ACT_RELU6:
    map(relu6, y, n);
    return;
  case WM_ACT_LEAKY_RELU:
    map(leaky_relu, y, n);
    return;
  case WM_ACT_SIGMOID:
    map(sigmoid, y, n);
    return;
  case WM_ACT_SILU:
    map(silu, y, n);
    return;
  case WM_ACT_TANH:
    map(fast_tanh, y, n);
    return;
  case WM_ACT_MISH:
    map(mish, y, n);
    return;
  case WM_ACT_LAPLACE:
    map(laplace, y, n);
    return;
  case WM_ACT_COUNT:
    break;
  }
  assert(!"unknown activation");
}

void wm_bias_activation(const float *bias, wm_activation_t act, int64_t rows, int64_t cols,
                        float *y) {
  if (bias == NULL && act == WM_ACT_NONE)
    return;
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; r++) {
    float *row = y + r * cols;
    if (bias != NULL)
      for (int64_t c = 0; c < cols; c++)
        row[c] += bias[c];
    wm_activation_apply(act, row, cols);
  }
}
