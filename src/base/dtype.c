#include "wanamaker/base/dtype.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are mapped, not byte-swapped");

static const struct {
  const char *name;
  int64_t size;
} dtypes[] = {
    [WM_DTYPE_F64] = {"F64", 8},   [WM_DTYPE_F32] = {"F32", 4}, [WM_DTYPE_F16] = {"F16", 2},
    [WM_DTYPE_BF16] = {"BF16", 2}, [WM_DTYPE_I64] = {"I64", 8}, [WM_DTYPE_I32] = {"I32", 4},
    [WM_DTYPE_I16] = {"I16", 2},   [WM_DTYPE_I8] = {"I8", 1},   [WM_DTYPE_U8] = {"U8", 1},
    [WM_DTYPE_BOOL] = {"BOOL", 1},
};

const char *wm_dtype_name(wm_dtype_t dtype) {
  return dtypes[dtype].name;
}

int64_t wm_dtype_size(wm_dtype_t dtype) {
  return dtypes[dtype].size;
}

/* Elements at any address. */
typedef uint16_t any_u16_t __attribute__((aligned(1), may_alias));
typedef double any_f64_t __attribute__((aligned(1), may_alias));

static float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void from_bf16(const any_u16_t *in, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++)
    out[i] = float_of_bits((uint32_t)in[i] << 16);
}

/* Exponent and fraction, moved to their places in a float32, read as the value times 2^-112, for
 * subnormals too: a multiplication puts that right, exactly. Infinities and NaNs get the largest
 * exponent instead; NaNs become quiet, as the instruction does it. */
static float f16_to_f32(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = half & 0x7fffu;
  uint32_t special = rest << 13 | 0x7f800000u | (rest > 0x7c00u ? 0x00400000u : 0u);
  float scaled = float_of_bits(rest << 13) * 0x1p112f;
  uint32_t bits;
  memcpy(&bits, &scaled, sizeof bits);
  return float_of_bits(sign | (rest >= 0x7c00u ? special : bits));
}

static void from_f16(const any_u16_t *in, int64_t count, float *out) {
  int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)(in + i))));
#endif
  for (; i < count; i++)
    out[i] = f16_to_f32(in[i]);
}

static void from_f64(const any_f64_t *in, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++)
    out[i] = (float)in[i];
}

static void convert(wm_dtype_t dtype, const void *data, int64_t count, float *out) {
  switch (dtype) {
  case WM_DTYPE_F64:
    from_f64(data, count, out);
    break;
  case WM_DTYPE_F32:
    memcpy(out, data, (size_t)count * sizeof *out);
    break;
  case WM_DTYPE_F16:
    from_f16(data, count, out);
    break;
  case WM_DTYPE_BF16:
    from_bf16(data, count, out);
    break;
  default:
    assert(!"a floating-point type");
  }
}

enum { PIECE = 1 << 16 }; /* elements that a thread converts at a time */

void wm_to_f32(wm_dtype_t dtype, const void *data, int64_t count, float *out) {
  int64_t pieces = (count + PIECE - 1) / PIECE, size = wm_dtype_size(dtype);
#pragma omp parallel for schedule(static) if (pieces > 1)
  for (int64_t p = 0; p < pieces; p++) {
    int64_t first = p * PIECE, length = count - first < PIECE ? count - first : PIECE;
    convert(dtype, (const char *)data + first * size, length, out + first);
  }
}

/* Half a unit in the last place is added to the bits, a hair less where the kept part is even: the
 * carry then rounds, and at the top turns the largest exponent into infinity. */
static inline uint16_t round_bits(uint32_t bits) {
  uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  uint32_t nan = bits >> 16 | 0x40u;
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

uint16_t wm_bf16_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return round_bits(bits);
}

static void round_piece(const float *in, int64_t count, uint16_t *out) {
  for (int64_t i = 0; i < count; i++)
    out[i] = wm_bf16_of(in[i]);
}

static void convert_to_bf16(wm_dtype_t dtype, const char *data, int64_t count, uint16_t *out) {
  enum { STEP = 1024 };
  float values[STEP];
  const int64_t size = wm_dtype_size(dtype);
  if (dtype == WM_DTYPE_BF16) {
    memcpy(out, data, (size_t)count * sizeof *out);
    return;
  }
  for (int64_t i = 0; i < count; i += STEP) {
    int64_t n = count - i < STEP ? count - i : STEP;
    convert(dtype, data + i * size, n, values);
    round_piece(values, n, out + i);
  }
}

void wm_to_bf16(wm_dtype_t dtype, const void *data, int64_t count, uint16_t *out) {
  int64_t pieces = (count + PIECE - 1) / PIECE, size = wm_dtype_size(dtype);
#pragma omp parallel for schedule(static) if (pieces > 1)
  for (int64_t p = 0; p < pieces; p++) {
    int64_t first = p * PIECE, length = count - first < PIECE ? count - first : PIECE;
    convert_to_bf16(dtype, (const char *)data + first * size, length, out + first);
  }
}

void wm_round_to_bf16(const float *in, int64_t count, float *out) {
#pragma omp parallel for simd schedule(static) if (count > PIECE)
  for (int64_t i = 0; i < count; i++)
    out[i] = float_of_bits((uint32_t)wm_bf16_of(in[i]) << 16);
}

/* Subnormal halves are multiples of 2^-24: adding 0.5, whose last bit is that, rounds to one. */
static uint16_t f16_of(float x) {
  uint32_t bits, rest;
  memcpy(&bits, &x, sizeof bits);
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
  rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u)
    return (uint16_t)(sign | 0x7e00u);
  if (rest >= 0x477ff000u) /* rounds to 65536 or more */
    return (uint16_t)(sign | 0x7c00u);
  if (rest < 0x38800000u) { /* below 2^-14 */
    float shifted = float_of_bits(rest) + 0.5f;
    memcpy(&rest, &shifted, sizeof rest);
    return (uint16_t)(sign | (rest - 0x3f000000u));
  }
  rest += 0xfffu + (rest >> 13 & 1u);
  return (uint16_t)(sign | ((rest - 0x38000000u) >> 13));
}

void wm_from_f32(wm_dtype_t dtype, const float *in, int64_t count, void *out) {
  uint16_t *half = out;
  assert(dtype == WM_DTYPE_F32 || dtype == WM_DTYPE_F16 || dtype == WM_DTYPE_BF16);
  if (dtype == WM_DTYPE_F32)
    memcpy(out, in, (size_t)count * sizeof *in);
  else
    for (int64_t i = 0; i < count; i++)
      half[i] = dtype == WM_DTYPE_F16 ? f16_of(in[i]) : wm_bf16_of(in[i]);
}
