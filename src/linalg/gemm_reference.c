/* Plain loops that define what the layers compute; for tests. */
#include "wanamaker/linalg/gemm.h"

#include <stddef.h>

void wm_linear_apply_reference(const float *x, int64_t rows, int64_t in, int64_t out,
                               const float *weight, wm_weight_layout_t layout, const float *bias,
                               wm_activation_t act, float *y) {
  int64_t in_stride = layout == WM_WEIGHT_IN_OUT ? out : 1;
  int64_t out_stride = layout == WM_WEIGHT_IN_OUT ? 1 : in;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t o = 0; o < out; o++) {
      double sum = bias != NULL ? bias[o] : 0;
      for (int64_t i = 0; i < in; i++)
        sum += (double)x[r * in + i] * weight[i * in_stride + o * out_stride];
      y[r * out + o] = (float)wm_activation_reference(act, sum);
    }
}

void wm_linear_weight_gradient_reference(int64_t in, int64_t out, wm_weight_layout_t layout,
                                         const float *x, const float *dy, int64_t rows,
                                         float *gradient) {
  int64_t in_stride = layout == WM_WEIGHT_IN_OUT ? out : 1;
  int64_t out_stride = layout == WM_WEIGHT_IN_OUT ? 1 : in;
  for (int64_t i = 0; i < in; i++)
    for (int64_t o = 0; o < out; o++) {
      double sum = gradient[i * in_stride + o * out_stride];
      for (int64_t r = 0; r < rows; r++)
        sum += (double)x[r * in + i] * dy[r * out + o];
      gradient[i * in_stride + o * out_stride] = (float)sum;
    }
}
