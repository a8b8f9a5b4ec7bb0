#include "wanamaker/model/dropout.h"

#include "wanamaker/base/hash.h"
#include "wanamaker/base/rng.h"

#include <assert.h>

wm_dropout_t wm_dropout_make(double rate, uint64_t seed, int64_t step, int64_t layer,
                             wm_dropout_site_t site) {
  assert(rate >= 0 && rate < 1);
  const uint64_t key[] = {seed, (uint64_t)step, (uint64_t)layer, (uint64_t)site};
  return (wm_dropout_t){.rate = rate,
                        .key = wm_hash(key, sizeof key, 0),
                        .threshold = (uint32_t)(rate * 0x1p32),
                        .factor = (float)(1 / (1 - rate))};
}

int64_t wm_dropout_head_unit(int64_t max_positions, int64_t head) {
  return (max_positions + 3) / 4 * 4 * head;
}

void wm_dropout_draw(const wm_dropout_t *d, int64_t sequence, int64_t position, int64_t first,
                     int64_t n, float *out) {
  enum { PIECE = 256, UNIT_BITS = 34 };
  assert(first % 4 == 0 && first + n <= (int64_t)1 << UNIT_BITS);
  const wm_rng_t rng = {d->key, (uint64_t)sequence};
  uint64_t start = ((uint64_t)position << UNIT_BITS) + (uint64_t)first;
  uint32_t words[PIECE];
  for (int64_t i = 0; i < n; i += PIECE) {
    int64_t count = n - i < PIECE ? n - i : PIECE;
    wm_rng_words(rng, start + (uint64_t)i, count, words);
    for (int64_t j = 0; j < count; j++)
      out[i + j] = words[j] >= d->threshold ? d->factor : 0.0f;
  }
}

static void drop_row(const wm_dropout_t *d, int64_t sequence, int64_t position, int64_t width,
                     float *x) {
  enum { PIECE = 256 };
  float multipliers[PIECE];
  for (int64_t i = 0; i < width; i += PIECE) {
    int64_t count = width - i < PIECE ? width - i : PIECE;
    wm_dropout_draw(d, sequence, position, i, count, multipliers);
    for (int64_t j = 0; j < count; j++)
      x[i + j] *= multipliers[j];
  }
}

void wm_dropout_rows(const wm_dropout_t *dropout, const wm_batch_t *batch, const int64_t *sequences,
                     int64_t width, float *x) {
  if (dropout->rate == 0)
    return;
  for (int64_t s = 0; s < batch->n_sequences; s++) {
    int64_t first = batch->starts[s], n = batch->starts[s + 1] - first;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
      drop_row(dropout, sequences[s], i, width, x + (first + i) * width);
  }
}
