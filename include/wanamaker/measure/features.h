/* MLP inputs at the predicted positions of a text: what gates see (method.md, section 4). The model
 * is the unmodified one, or one in which some layers are changed already.
 *
 * A rank keeps what it computed, in float32, for a group of layers that fits its memory:
 *
 *     x [layers of the group, rows of this rank, D]
 *
 * Block b of the text is computed by rank b mod P, so that rows need no message. One pass of the
 * trunk, up to the group's last layer, per group.
 */
#ifndef WANAMAKER_MEASURE_FEATURES_H
#define WANAMAKER_MEASURE_FEATURES_H

#include "wanamaker/base/progress.h"
#include "wanamaker/base/status.h"
#include "wanamaker/io/hdf5.h"
#include "wanamaker/measure/blocks.h"
#include "wanamaker/measure/trunk.h"
#include "wanamaker/model/model.h"
#include "wanamaker/par/comm.h"

#include <stdint.h>

typedef struct {
  int64_t d, n;          /* width; rows of this rank */
  int64_t *place;        /* [n] number of the row's prediction among all of the text, ascending */
  int64_t capacity;      /* most layers */
  int64_t n_layers;      /* held now */
  const int64_t *layers; /* [n_layers] borrowed from wm_features_collect */
  float *x;              /* [n_layers, n, D] */
} wm_features_t;

/* Predictions of the blocks that this rank computes, and the most that any rank does. Not
 * collective. */
int64_t wm_features_rows(const wm_comm_t *comm, const wm_blocks_t *blocks, int64_t *most);
/* Bytes of a rank for `rows` rows of `layers` layers. */
int64_t wm_features_bytes(int64_t rows, int64_t layers, int64_t d);

/* Room for `capacity` layers. Not collective: agree afterwards; destroy also after a failure,
 * harmless on a zeroed object. */
wm_status_t wm_features_create(const wm_comm_t *comm, const wm_blocks_t *blocks, int64_t d,
                               int64_t capacity, wm_features_t *out, wm_error_t *err);
void wm_features_destroy(wm_features_t *features);

/* Collective over comm->world. Fills x for layers[n_layers], ascending, from the corpus `ids` in
 * the model `base` (NULL: the unmodified one). The
 * tokens that are through are added to `progress`. WM_STOPPED after a stop request. */
wm_status_t wm_features_collect(wm_features_t *features, const wm_comm_t *comm, wm_model_t *model,
                                const wm_base_t *base, const wm_blocks_t *blocks,
                                const int32_t *ids, const int64_t *layers, int64_t n_layers,
                                wm_progress_t *progress, wm_error_t *err);
/* x of a layer that is held, by its number in the group: [n, D]. */
const float *wm_features_layer(const wm_features_t *features, int64_t index);

/* Collective. Writes the layers that are held into rows first .. of dataset `path` [layers, N, D]
 * float32 of `file`, which exists. */
wm_status_t wm_features_write(const wm_features_t *features, const wm_comm_t *comm,
                              const wm_blocks_t *blocks, const char *path, int64_t first,
                              wm_h5_t *file, wm_error_t *err);

#endif
