/* Vectorised activations, float32. The definitions are those of wm_activation_t (gemm.h);
 * wm_activation_reference is what they are tested against. */
#ifndef WANAMAKER_LINALG_ACTIVATION_H
#define WANAMAKER_LINALG_ACTIVATION_H

#include "wanamaker/linalg/gemm.h"

#include <stdint.h>

/* y[i] = act(y[i]) for i < n, on the calling thread. An element's result is a function of its value
 * alone, bit for bit: not of its place in the array nor of n. NaN stays NaN. Relative error below
 * 1e-6 for |x| <= 6; further left, where the result dies away as exp(-x^2 / 2), it grows as
 * x^2 eps. Not collective. */
void wm_activation_apply(wm_activation_t act, float *y, int64_t n);

/* y[r, c] = act(y[r, c] + bias[c]) for y: [rows, cols] row-major, with all threads of the process.
 * bias: [cols] or NULL. The same promise about bits. Not collective. */
void wm_bias_activation(const float *bias, wm_activation_t act, int64_t rows, int64_t cols,
                        float *y);

/* The two functions below run with all threads of the process and work row by row, so that a row's
 * bits do not depend on the rows beside it. x, y, dy: [rows, cols] row-major. Not collective. */

/* y = act(x), the bits of wm_activation_apply. */
void wm_activation_forward(wm_activation_t act, const float *x, int64_t rows, int64_t cols,
                           float *y);

/* dy *= act'(x): the gradient with respect to an activation's output becomes that with respect to
 * its input. At a corner act' is torch's: 0 at both ends of relu and relu6, 0.01 at 0 of
 * leaky_relu. The error of act' is below 2e-6 (1 + |act'|), for laplace 1e-5. */
void wm_activation_backward(wm_activation_t act, const float *x, int64_t rows, int64_t cols,
                            float *dy);

/* act'(x) of one number, in float64. */
double wm_activation_derivative_reference(wm_activation_t act, double x);

#endif
