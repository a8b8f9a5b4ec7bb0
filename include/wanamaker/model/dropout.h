/* Dropout with counter-based masks: whether a unit is dropped is a function of (seed, step, layer,
 * place in the layer, sequence, position, unit) alone, so that any rank draws the same masks
 * however sequences are shared out, and the backward pass draws them again instead of keeping them.
 *
 * A unit is kept when its 32-bit word is at least rate * 2^32, and then multiplied by
 * 1 / (1 - rate). Words are Philox4x32's with the key hash(seed, step, layer, site), the stream
 * `sequence` and the number (position << 34) + unit. Not collective. */
#ifndef WANAMAKER_MODEL_DROPOUT_H
#define WANAMAKER_MODEL_DROPOUT_H

#include "wanamaker/model/model.h"

#include <stdint.h>

typedef enum {
  WM_DROP_EMBEDDING, /* the sum of the embeddings; layer 0 */
  WM_DROP_ATTENTION, /* probabilities; unit = head * padded positions + key */
  WM_DROP_PROJECTED, /* what attention adds to the residual stream */
  WM_DROP_MLP        /* what the MLP adds */
} wm_dropout_site_t;

typedef struct {
  double rate; /* 0: off */
  uint64_t key;
  uint32_t threshold;
  float factor;
} wm_dropout_t;

/* rate in [0, 1). */
wm_dropout_t wm_dropout_make(double rate, uint64_t seed, int64_t step, int64_t layer,
                             wm_dropout_site_t site);

/* out[i] <- 0 or 1 / (1 - rate) for units first + i, i < n. `first` is a multiple of 4; units are
 * below 2^34. On the calling thread. */
void wm_dropout_draw(const wm_dropout_t *dropout, int64_t sequence, int64_t position, int64_t first,
                     int64_t n, float *out);

/* First unit of a head's keys, for models of at most max_positions. */
int64_t wm_dropout_head_unit(int64_t max_positions, int64_t head);

/* x[row, i] *= multiplier of unit i, for x: [N, width] and the rows of batch's sequences, whose
 * numbers are sequences[n_sequences]. With all threads; nothing happens at rate 0. */
void wm_dropout_rows(const wm_dropout_t *dropout, const wm_batch_t *batch, const int64_t *sequences,
                     int64_t width, float *x);

#endif
