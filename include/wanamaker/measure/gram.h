/* Sufficient statistics of (MLP input, MLP output) for a group of layers, once per node.
 *
 * Each rank publishes its rows, shifted and in float64, in node-shared memory; each rank of the
 * node then updates its own row panels of the node's Gram matrices from all published rows. So
 * memory is per node and not per rank, and no two ranks write to one place.
 *
 * Two sets of rows are kept apart: those a surrogate is fitted on and those held out.
 */
#ifndef WANAMAKER_MEASURE_GRAM_H
#define WANAMAKER_MEASURE_GRAM_H

#include "wanamaker/base/status.h"
#include "wanamaker/io/hdf5.h"
#include "wanamaker/linalg/ridge.h"
#include "wanamaker/par/comm.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum { WM_ROWS_FIT, WM_ROWS_HELDOUT, WM_ROW_SETS } wm_row_set_t;

typedef struct wm_gram wm_gram_t;

/* Bytes per node of one layer's statistics at width d. */
int64_t wm_gram_bytes_per_layer(int64_t d);

/* Collective over world. Room for `layers` layers of width d and max_rows published rows a rank. */
wm_status_t wm_gram_create(const wm_comm_t *comm, int64_t d, int64_t layers, int64_t max_rows,
                           wm_gram_t **out, wm_error_t *err);
/* Collective. NULL is allowed. */
void wm_gram_free(wm_gram_t *gram);

/* Collective over world. Forgets all rows. */
void wm_gram_reset(wm_gram_t *gram);

/* Collective over the node, and over world in the first call for a layer after a reset (the
 * provisional mean is that of rank 0's rows, so rank 0 must have some then). Adds rows
 * kept[n_kept] of x, y: [*, d]; a rank without rows passes n_kept = 0. */
wm_status_t wm_gram_add(wm_gram_t *gram, wm_row_set_t set, int64_t layer, const float *x,
                        const float *y, const int64_t *kept, int64_t n_kept, wm_error_t *err);

/* Collective over world. Sums over all ranks and nodes and centres; afterwards every rank may read
 * wm_gram_moments. */
void wm_gram_finish(wm_gram_t *gram);

/* Collective over world. Writes the statistics into `file` (being written): summed over the nodes,
 * and each rank's small sums. centred: after wm_gram_finish. Row sets 0 .. sets - 1; what is not
 * saved must have no rows.
 *
 *   /matrices  [layers, sets, 2 D D + 3 D + 1] float64  x'x, x'y, and from a finished one y'y, sums
 *                                                       of x and of y, count
 *   /shifts    [layers, 2 D] float64                    provisional means of x and of y
 *   /sums      [ranks, layers, 2, 3 D + 1] float64      y'y, sums and count of each rank; if not
 *                                                       centred
 */
wm_status_t wm_gram_save(wm_gram_t *gram, bool centred, int64_t sets, wm_h5_t *file,
                         wm_error_t *err);
/* Collective over world. The inverse, on any number of ranks and nodes; on equally many ranks of
 * one node the same bits. WM_INPUT if the file's shapes are not this object's; then, as after any
 * failure, the object is to be reset. */
wm_status_t wm_gram_load(wm_gram_t *gram, bool centred, int64_t sets, wm_h5_t *file,
                         wm_error_t *err);

/* Centred moments of a layer (count = 0: no rows were added). Borrowed. */
wm_moments_t wm_gram_moments(const wm_gram_t *gram, wm_row_set_t set, int64_t layer);

#endif
