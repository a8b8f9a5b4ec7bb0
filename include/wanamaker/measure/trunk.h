/* The model on one block at a time, layer by layer: MLP inputs and outputs. It is the unmodified
 * one, or one in which some MLPs are replaced by surrogates, everywhere or where a gate says so. */
#ifndef WANAMAKER_MEASURE_TRUNK_H
#define WANAMAKER_MEASURE_TRUNK_H

#include "wanamaker/base/status.h"
#include "wanamaker/measure/blocks.h"
#include "wanamaker/measure/routing.h"
#include "wanamaker/measure/surrogates.h"
#include "wanamaker/measure/variants.h"
#include "wanamaker/model/model.h"

#include <stdint.h>

/* A modified model: variant number `variant`, whose gates do not route by losses, with these
 * surrogates. All pointers are borrowed. */
typedef struct {
  const wm_surrogates_t *surrogates;
  const wm_variants_t *variants;
  int64_t variant;
} wm_base_t;

typedef struct {
  wm_model_t *model;         /* borrowed, like blocks */
  const wm_blocks_t *blocks; /* */
  /* Layers that have one here take it at every position. NULL after wm_trunk_create: none; the
   * caller may set it. Borrowed. */
  const wm_surrogates_t *replaced;
  const wm_base_t *base; /* wm_trunk_modify; NULL: none */
  wm_routing_t *routing; /* of base, like the next */
  uint8_t *route;        /* [rows] */
  float *h, *x, *y;      /* [rows, D] residual; input and output of the last layer's MLP */
  wm_block_t block;      /* the one that was begun */
  wm_workspace_t *workspace;
} wm_trunk_t;

/* Room for any block of `blocks`. Not collective. Destroy also after a failure; harmless on a
 * zeroed object. */
wm_status_t wm_trunk_create(wm_model_t *model, const wm_blocks_t *blocks, wm_trunk_t *out,
                            wm_error_t *err);
/* The model is `base` (NULL: nothing changes), which is borrowed. Before the first block. Not
 * collective. */
wm_status_t wm_trunk_modify(wm_trunk_t *trunk, const wm_base_t *base, wm_error_t *err);
void wm_trunk_destroy(wm_trunk_t *trunk);
/* Bytes of such an object for blocks of `rows` rows and windows of at most max_length tokens. */
int64_t wm_trunk_bytes(const wm_model_t *model, int64_t rows, int64_t max_length);

/* Loads block `index` and embeds it; ids: the corpus's ids. Not collective. */
wm_status_t wm_trunk_begin(wm_trunk_t *trunk, const int32_t *ids, int64_t index, wm_error_t *err);
/* x, y <- input and output of the MLP of `layer`, or of what replaces it; h goes on to the next.
 * Layers in order, from 0. Not collective. */
wm_status_t wm_trunk_layer(wm_trunk_t *trunk, int64_t layer, wm_error_t *err);
/* The same for a layer behind which nothing is wanted: its MLP is left out, y and h are not valid
 * afterwards. */
wm_status_t wm_trunk_last_input(wm_trunk_t *trunk, int64_t layer, wm_error_t *err);

#endif
