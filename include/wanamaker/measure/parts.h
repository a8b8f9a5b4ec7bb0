/* Parts of a sweep: finished cells are kept on disk while the rest is computed.
 *
 * A cell is (variant, block): the variant's losses at the block's predictions, and what was counted
 * there (wm_cell_t). Which cells are there is kept in a bitmap; a loss may be anything, NaN as
 * well. Parts are small files in a folder of their own, each with the cells that were finished
 * since the part before it:
 *
 *   FOLDER/0000.h5, 0001.h5, ...
 *     /cells  [C, 2] int64   (variant, block) of each cell
 *     /nll    [*] float32    the cells' losses, one cell behind the other, in the order of /cells
 *     /counts [C, 3] float64 routed, agreed, divergence of each cell
 *     attributes parts_key (what the losses depend on) and cut (hash of the cut into blocks)
 *
 * A part counts only when it is whole (checksums) and of the same key and cut. One that isn't is
 * named in the log and left out; the number of a damaged one is given to a later part, while one of
 * another sweep stays (its settings may come back). Ranks may differ in number from
 * those that wrote it. A cell that several parts hold is taken from the first.
 */
#ifndef WANAMAKER_MEASURE_PARTS_H
#define WANAMAKER_MEASURE_PARTS_H

#include "wanamaker/base/log.h"
#include "wanamaker/base/status.h"
#include "wanamaker/measure/blocks.h"
#include "wanamaker/measure/evaluate.h"
#include "wanamaker/par/comm.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct wm_parts wm_parts_t;

/* Collective over comm->world. No cell is there yet. folder: where parts are kept, NULL: nowhere;
 * borrowed like comm, blocks and log. */
wm_status_t wm_parts_create(const wm_comm_t *comm, const wm_blocks_t *blocks, int64_t n_variants,
                            const char *folder, uint64_t key, const wm_log_t *log, wm_parts_t **out,
                            wm_error_t *err);
/* Not collective. NULL is allowed. */
void wm_parts_free(wm_parts_t *parts);

/* Collective. Reads all parts that count into nll: [V, N] and cells: [V, blocks] (NULL: not wanted)
 * of the node, zeroed before; each cell is written on one node. Removes what dead runs left
 * half-written. */
wm_status_t wm_parts_read(wm_parts_t *parts, float *nll, wm_cell_t *cells, wm_error_t *err);

/* Is the cell there, as far as this rank knows? */
bool wm_parts_has(const wm_parts_t *parts, int64_t variant, int64_t block);
/* This rank has finished a cell that was not there. Not collective. */
void wm_parts_add(wm_parts_t *parts, int64_t variant, int64_t block);
/* Collective. All ranks know of all cells afterwards. */
void wm_parts_share(wm_parts_t *parts);
/* Do parts hold cells of this sweep? Equal on all ranks. */
bool wm_parts_exist(const wm_parts_t *parts);
/* Losses that are there, of all V * N, as far as this rank knows. */
int64_t wm_parts_losses(const wm_parts_t *parts);

/* Collective. Publishes the cells that were added since the last call; without any, or without a
 * folder, does nothing. nll: [V, N], cells: [V, blocks] (NULL: zeros) of the node, where each
 * rank's own cells are. */
wm_status_t wm_parts_publish(wm_parts_t *parts, const float *nll, const wm_cell_t *cells,
                             wm_error_t *err);

/* Collective over comm->world. Removes a folder of parts, whatever they are of; a folder that holds
 * anything else stays, without it. */
void wm_parts_remove(const wm_comm_t *comm, const char *folder);

#endif
