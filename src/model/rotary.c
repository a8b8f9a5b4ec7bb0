#include "vector.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/model/gradients.h"

#include <stddef.h>

wm_status_t wm_rotary_create(int64_t dims, double base, int64_t max_positions, wm_rotary_t *out,
                             wm_error_t *err) {
  int64_t half = dims / 2;
  void *cosines = NULL, *sines = NULL;
  *out = (wm_rotary_t){.dims = dims, .max_positions = max_positions};
  wm_status_t status;
  WM_TRY(wm_alloc(&cosines, max_positions * half, sizeof(float), "rotary table", err));
  out->cos = cosines;
  WM_TRY(wm_alloc(&sines, max_positions * half, sizeof(float), "rotary table", err));
  out->sin = sines;
  for (int64_t i = 0; i < half; i++) {
    double frequency = pow(base, -2.0 * (double)i / (double)dims);
    for (int64_t t = 0; t < max_positions; t++) {
      out->cos[t * half + i] = (float)cos((double)t * frequency);
      out->sin[t * half + i] = (float)sin((double)t * frequency);
    }
  }
cleanup:
  if (status != WM_OK)
    wm_rotary_destroy(out);
  return status;
}

void wm_rotary_destroy(wm_rotary_t *rotary) {
  free(rotary->cos);
  free(rotary->sin);
  *rotary = (wm_rotary_t){0};
}

/* sign = 1 turns, -1 turns back. */
static void turn(float *v, const float *c, const float *s, float sign, int64_t half) {
#pragma omp simd
  for (int64_t i = 0; i < half; i++) {
    float a = v[i], b = v[i + half], sine = sign * s[i];
    v[i] = a * c[i] - b * sine;
    v[i + half] = b * c[i] + a * sine;
  }
}

static void turn_rows(const wm_rotary_t *rotary, const wm_qkv_layout_t *layout,
                      const int32_t *positions, int64_t rows, float sign, float *qkv) {
  int64_t half = rotary->dims / 2;
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; row++) {
    const float *c = rotary->cos + positions[row] * half;
    const float *s = rotary->sin + positions[row] * half;
    for (int64_t h = 0; h < layout->n_heads; h++) {
      float *query = qkv + row * layout->row_stride + h * layout->head_stride;
      turn(query, c, s, sign, half);
      turn(query + layout->part_stride, c, s, sign, half);
    }
  }
}

void wm_rotary_apply(const wm_rotary_t *rotary, const wm_qkv_layout_t *layout,
                     const int32_t *positions, int64_t rows, float *qkv) {
  turn_rows(rotary, layout, positions, rows, 1, qkv);
}

void wm_rotary_backward(const wm_rotary_t *rotary, const wm_qkv_layout_t *layout,
                        const int32_t *positions, int64_t rows, float *dqkv) {
  turn_rows(rotary, layout, positions, rows, -1, dqkv);
}
