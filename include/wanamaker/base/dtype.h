/* Element types of weights, and conversion between the floating-point ones. */
#ifndef WANAMAKER_BASE_DTYPE_H
#define WANAMAKER_BASE_DTYPE_H

#include <stdint.h>

typedef enum {
  WM_DTYPE_F64,
  WM_DTYPE_F32,
  WM_DTYPE_F16,
  WM_DTYPE_BF16,
  WM_DTYPE_I64,
  WM_DTYPE_I32,
  WM_DTYPE_I16,
  WM_DTYPE_I8,
  WM_DTYPE_U8,
  WM_DTYPE_BOOL
} wm_dtype_t;

const char *wm_dtype_name(wm_dtype_t dtype);
int64_t wm_dtype_size(wm_dtype_t dtype);

/* Converts `count` elements of F16, BF16, F32 or F64 at `data` (any alignment) to float32, with
 * OpenMP threads. Other types: assertion. */
void wm_to_f32(wm_dtype_t dtype, const void *data, int64_t count, float *out);

/* The bfloat16 nearest to x, ties to even; NaN stays NaN (quiet), what rounds beyond the largest
 * finite number becomes infinite. */
uint16_t wm_bf16_of(float x);

/* Converts to bfloat16 by way of float32: exact from BF16, one rounding from F16 and F32, two from
 * F64. As wm_to_f32 otherwise. */
void wm_to_bf16(wm_dtype_t dtype, const void *data, int64_t count, uint16_t *out);

/* out[i] = float32 value of the bfloat16 nearest to in[i]; out may be in. With OpenMP threads. */
void wm_round_to_bf16(const float *in, int64_t count, float *out);

/* Rounds float32 to nearest, ties to even, into F32, F16 or BF16 (other types: assertion); beyond
 * the largest finite number lies infinity. On the calling thread. */
void wm_from_f32(wm_dtype_t dtype, const float *in, int64_t count, void *out);

#endif
