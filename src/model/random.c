#include "random.h"

#include "wanamaker/base/hash.h"
#include "wanamaker/base/rng.h"

#include <math.h>
#include <string.h>

/* GPT-2 begins with smaller projections into the residual stream, which 2 L of them add up in. */
wm_random_t wm_random_of(const wm_arch_t *arch, uint64_t seed) {
  const double deviation = arch->initializer_range;
  const double additions = arch->family == WM_FAMILY_GPT2 ? 2 * (double)arch->n_layers : 1;
  return (wm_random_t){seed, (float)deviation, (float)(deviation / sqrt(additions))};
}

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

static bool ends_with(const char *name, const char *end) {
  const size_t length = strlen(name), tail = strlen(end);
  return length >= tail && strcmp(name + length - tail, end) == 0;
}

static void fill_normal(wm_rng_t rng, float deviation, int64_t first, int64_t n, float *out) {
  enum { PIECE = 1 << 16 };
#pragma omp parallel for schedule(static)
  for (int64_t begin = 0; begin < n; begin += PIECE) {
    int64_t count = n - begin < PIECE ? n - begin : PIECE;
    wm_rng_normals(rng, (uint64_t)(first + begin), count, out + begin);
    for (int64_t i = begin; i < begin + count; i++)
      out[i] *= deviation;
  }
}

void wm_random_fill(const wm_random_t *random, const wm_want_t *want, int64_t first, int64_t n,
                    float *out) {
  if (want->n_dims == 2) {
    const wm_rng_t rng = {random->seed, wm_hash(want->name, strlen(want->name), 0)};
    const bool added = ends_with(want->name, ".c_proj.weight");
    fill_normal(rng, added ? random->added_deviation : random->deviation, first, n, out);
    return;
  }
  const bool scale = ends_with(want->name, ".weight");
  for (int64_t i = 0; i < n; i++)
    out[i] = scale ? 1 : 0;
}
