/* Derivatives of the activations: the definitions in float64, and loops that a compiler turns into
 * vector code, of the same parts as the activations themselves.
 *
 *   (x Phi(x))' = Phi(x) + x phi(x)
 *   (x s(v))'   = s + x s (1 - s) v',  s the sigmoid: gelu_tanh, quick_gelu, silu
 *   mish:  (x t)' = t + x (1 - t^2) s(x),  t = n / (n + 2), 1 - t^2 = 4 (n + 1) / (n + 2)^2
 * At a corner the derivative is that of torch.
 */
#include "wanamaker/linalg/activation.h"

#include "activation_inline.h"

#include <assert.h>
#include <math.h>

static double density(double x) {
  return exp(-0.5 * x * x) / sqrt(2 * M_PI);
}

static double sigmoid64(double x) {
  return 1 / (1 + exp(-x));
}

/* x s(v(x)) with slope v' of v. */
static double gated(double x, double v, double slope) {
  double s = sigmoid64(v);
  return s + x * s * (1 - s) * slope;
}

double wm_activation_derivative_reference(wm_activation_t act, double x) {
  const double c = 2 * sqrt(M_2_PI);
  double t;
  switch (act) {
  case WM_ACT_NONE:
    return 1;
  case WM_ACT_GELU:
    return 0.5 * erfc(-x * M_SQRT1_2) + x * density(x);
  case WM_ACT_GELU_TANH:
    return gated(x, c * (x + 0.044715 * x * x * x), c * (1 + 3 * 0.044715 * x * x));
  case WM_ACT_GELU_CLIP10:
    return x > 10 ? 0 : 0.5 * erfc(-x * M_SQRT1_2) + x * density(x);
  case WM_ACT_QUICK_GELU:
    return gated(x, 1.702 * x, 1.702);
  case WM_ACT_RELU:
    return x > 0;
  case WM_ACT_RELU2:
    return x > 0 ? 2 * x : 0;
  case WM_ACT_RELU6:
    return x > 0 && x < 6;
  case WM_ACT_LEAKY_RELU:
    return x > 0 ? 1 : 0.01;
  case WM_ACT_SIGMOID:
    return sigmoid64(x) * sigmoid64(-x);
  case WM_ACT_SILU:
    return gated(x, x, 1);
  case WM_ACT_TANH:
    return 1 / (cosh(x) * cosh(x));
  case WM_ACT_MISH:
    t = tanh(x > 40 ? x : log1p(exp(x)));
    return t + x * (1 - t * t) * sigmoid64(x);
  case WM_ACT_LAPLACE:
    return density((x - WM_LAPLACE_MEAN) / WM_LAPLACE_SCALE) / WM_LAPLACE_SCALE;
  case WM_ACT_COUNT:
    break;
  }
  assert(!"unknown activation");
  return NAN;
}

INLINE float none(float x) {
  (void)x;
  return 1.0f;
}

INLINE float gelu(float x) {
  float z = __builtin_fabsf(x);
  z = z > 15.0f ? 15.0f : z; /* exp(-112) is 0 */
  return fused(x, 0.3989422804f * fast_exp(-0.5f * z * z), fast_phi(x));
}

/* x s(v), slope v' */
INLINE float self_gated(float x, float v, float slope) {
  float s = fast_sigmoid(v);
  return fused(x * slope, s * (1.0f - s), s);
}

INLINE float gelu_tanh(float x) {
  const float c = 1.5957691216f; /* 2 sqrt(2 / pi) */
  float y = x < -20.0f ? -20.0f : x;
  y = y > 20.0f ? 20.0f : y; /* there the slope no longer counts, nor may it overflow */
  float square = y * y;
  return self_gated(y, c * y * fused(0.044715f, square, 1.0f),
                    c * fused(3 * 0.044715f, square, 1.0f));
}

INLINE float gelu_clip10(float x) {
  float slope = gelu(x);
  return x > 10.0f ? 0.0f : slope;
}

INLINE float quick_gelu(float x) {
  return self_gated(x, 1.702f * x, 1.702f);
}

INLINE float relu(float x) {
  return x > 0.0f ? 1.0f : 0.0f;
}

INLINE float relu2(float x) {
  return x > 0.0f ? 2.0f * x : 0.0f;
}

INLINE float relu6(float x) {
  float slope = x > 0.0f ? 1.0f : 0.0f;
  return x < 6.0f ? slope : 0.0f;
}

INLINE float leaky_relu(float x) {
  return x > 0.0f ? 1.0f : 0.01f;
}

INLINE float sigmoid(float x) {
  float s = fast_sigmoid(x);
  return s * (1.0f - s);
}

INLINE float silu(float x) {
  return self_gated(x, x, 1.0f);
}

INLINE float tanh_slope(float x) {
  float t = fast_tanh(x);
  return (1.0f - t) * (1.0f + t);
}

INLINE float mish(float x) {
  float e = fast_exp(x > 20.0f ? 20.0f : x); /* beyond, the slope is 1 */
  float n = e * (e + 2.0f), inverse = 1.0f / (n + 2.0f);
  float t = n * inverse, rest = 4.0f * (n + 1.0f) * inverse * inverse;
  return fused(x > 20.0f ? 0.0f : x * rest, fast_sigmoid(x), t);
}

INLINE float laplace(float x) {
  float z = (x - (float)WM_LAPLACE_MEAN) * (float)(1 / WM_LAPLACE_SCALE);
  z = z < -15.0f ? -15.0f : z;
  z = z > 15.0f ? 15.0f : z;
  return (float)(0.3989422804 / WM_LAPLACE_SCALE) * fast_exp(-0.5f * z * z);
}

/* Inlined with a constant `f`, so that each case below becomes its own vector loop. */
INLINE void map(float (*f)(float), const float *x, int64_t n, float *dy) {
  for (int64_t i = 0; i < n; i++)
    dy[i] *= f(x[i]);
}

static void backward_row(wm_activation_t act, const float *x, int64_t n, float *dy) {
  switch (act) {
  case WM_ACT_NONE:
    map(none, x, n, dy);
    return;
  case WM_ACT_GELU:
    map(gelu, x, n, dy);
    return;
  case WM_ACT_GELU_TANH:
    map(gelu_tanh, x, n, dy);
    return;
  case WM_ACT_GELU_CLIP10:
    map(gelu_clip10, x, n, dy);
    return;
  case WM_ACT_QUICK_GELU:
    map(quick_gelu, x, n, dy);
    return;
  case WM_ACT_RELU:
    map(relu, x, n, dy);
    return;
  case WM_ACT_RELU2:
    map(relu2, x, n, dy);
    return;
  case WM_ACT_RELU6:
    map(relu6, x, n, dy);
    return;
  case WM_ACT_LEAKY_RELU:
    map(leaky_relu, x, n, dy);
    return;
  case WM_ACT_SIGMOID:
    map(sigmoid, x, n, dy);
    return;
  case WM_ACT_SILU:
    map(silu, x, n, dy);
    return;
  case WM_ACT_TANH:
    map(tanh_slope, x, n, dy);
    return;
  case WM_ACT_MISH:
    map(mish, x, n, dy);
    return;
  case WM_ACT_LAPLACE:
    map(laplace, x, n, dy);
    return;
  case WM_ACT_COUNT:
    break;
  }
  assert(!"unknown activation");
}

void wm_activation_backward(wm_activation_t act, const float *x, int64_t rows, int64_t cols,
                            float *dy) {
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; r++)
    backward_row(act, x + r * cols, cols, dy + r * cols);
}

void wm_activation_forward(wm_activation_t act, const float *x, int64_t rows, int64_t cols,
                           float *y) {
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; r++) {
    memcpy(y + r * cols, x + r * cols, (size_t)cols * sizeof *y);
    wm_activation_apply(act, y + r * cols, cols);
  }
}
