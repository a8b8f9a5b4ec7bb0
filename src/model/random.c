#include "random.h"

#include "wanamaker/base/hash.h"
#include "wanamaker/base/rng.h"

#include <string.h>

#define DEVIATION 0.02f /* initializer_range of the published models */

wm_tensor_t wm_random_tensor(const wm_want_t *want) {
  wm_tensor_t t = {.name = want->name,
                   .file = "random weights",
                   .dtype = WM_DTYPE_F32,
                   .n_dims = want->n_dims,
                   .elements = 1};
  for (int i = 0; i < want->n_dims; i++) {
    t.shape[i] = want->shape[i];
    t.elements *= want->shape[i];
  }
  t.bytes = t.elements * (int64_t)sizeof(float);
  return t;
}

static void fill_normal(wm_rng_t rng, int64_t first, int64_t n, float *out) {
  enum { PIECE = 1 << 16 };
#pragma omp parallel for schedule(static)
  for (int64_t begin = 0; begin < n; begin += PIECE) {
    int64_t count = n - begin < PIECE ? n - begin : PIECE;
    wm_rng_normals(rng, (uint64_t)(first + begin), count, out + begin);
    for (int64_t i = begin; i < begin + count; i++)
      out[i] *= DEVIATION;
  }
}

void wm_random_fill(uint64_t seed, const wm_want_t *want, int64_t first, int64_t n, float *out) {
  size_t length = strlen(want->name);
  if (want->n_dims == 2) {
    fill_normal((wm_rng_t){seed, wm_hash(want->name, length, 0)}, first, n, out);
    return;
  }
  bool scale = length > 7 && strcmp(want->name + length - 7, ".weight") == 0;
  for (int64_t i = 0; i < n; i++)
    out[i] = scale ? 1 : 0;
}
