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

#include "activation_inline.h"

#include <assert.h>
#include <math.h>

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
    return phi_reference((x - WM_LAPLACE_MEAN) / WM_LAPLACE_SCALE);
  case WM_ACT_COUNT:
    break;
  }
  assert(!"unknown activation");
  return NAN;
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

INLINE float mish(float x) {
  float e = fast_exp(x > 20.0f ? 20.0f : x); /* beyond, the quotient is 1 */
  float n = e * (e + 2.0f);
  return x * (n / (n + 2.0f));
}

INLINE float laplace(float x) {
  return fast_phi((x - (float)WM_LAPLACE_MEAN) * (float)(1 / WM_LAPLACE_SCALE));
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
