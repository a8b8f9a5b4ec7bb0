/* A flat float32 array whose elements are owned by the ranks in parts: gradients are summed into
 * their owners' hands (reduce-scatter) while further ones are computed, and what the owners make of
 * the parameters goes back to everyone (all-gather).
 *
 * The array consists of segments (training.h), which are cut into pieces of bounded size; every
 * piece is shared out among all ranks. A rank's *shard* is its parts of all pieces, one behind the
 * other:
 *
 *   array   | segment 0 | segment 1                   | ...
 *   pieces  | 0         | 1            | 2            | ...
 *   owners  |r0 |r1 |r2 |r0  |r1  |r2  |r0  |r1  |r2  |
 *   shard of r1:  [part of piece 0 | of piece 1 | of piece 2 | ...]
 *
 * Sums are taken in two steps, so that every element leaves a node once: ranks of a node exchange
 * what belongs to the same *column*, then the nodes' sums go to the owners. Rank j of a node is of
 * column j modulo the number of columns, which is that of the ranks of the smallest node; owners of
 * a column are neighbours, in the order of their nodes. A few pieces are on their way at a time,
 * which bounds the memory of messages.
 *
 * On one rank the shard is the array. Sums are taken in an order that depends on the number of
 * ranks and nodes alone: by the ranks' numbers in a node, then by nodes. */
#ifndef WANAMAKER_PAR_SHARDS_H
#define WANAMAKER_PAR_SHARDS_H

#include "wanamaker/base/status.h"
#include "wanamaker/par/comm.h"

#include <stdint.h>

typedef struct wm_shards wm_shards_t;

typedef struct {
  int64_t segment;
  int64_t first, count;         /* of the array */
  int64_t own_first, own_count; /* this rank's part of it, in the array */
  int64_t own_place;            /* where that lies in the shard */
} wm_shards_piece_t;

/* Collective over comm->world (borrowed). counts[n]: elements of the segments, equal on all ranks.
 * piece: most elements of a piece; 0: 2^22. */
wm_status_t wm_shards_create(const wm_comm_t *comm, const int64_t *counts, int64_t n, int64_t piece,
                             wm_shards_t **out, wm_error_t *err);
/* Collective. NULL is allowed. */
void wm_shards_free(wm_shards_t *shards);

/* Bytes at most that a rank's messages need on their way, with pieces of the default size and nodes
 * of equal numbers of ranks. */
int64_t wm_shards_bytes(int64_t elements, int ranks);

/* Elements of this rank's shard, and the pieces in order. */
int64_t wm_shards_own(const wm_shards_t *shards);
int64_t wm_shards_pieces(const wm_shards_t *shards);
const wm_shards_piece_t *wm_shards_piece(const wm_shards_t *shards, int64_t index);

/* Collective, without waiting; segments in the same order on all ranks. Begins to sum `segment` of
 * all ranks' arrays into their owners' shards. array: the whole one; shard: [wm_shards_own]. Both
 * may not be touched until wm_shards_wait. On one rank nothing is done: the sum is the array. */
void wm_shards_reduce(wm_shards_t *shards, int64_t segment, const float *array, float *shard);
/* Not collective. Lets sums that were begun go on; to be called often while other work is done:
 * messages need it to start and to arrive. */
void wm_shards_poke(wm_shards_t *shards);
/* Collective. Waits for all sums that were begun; returns the seconds that this rank has spent in
 * sums: beginning them, letting them go on, adding and waiting. All segments have been begun. */
double wm_shards_wait(wm_shards_t *shards);

/* Copies between elements of the array, wherever they lie, and a buffer. Not collective. */
typedef struct {
  void (*pack)(void *context, int64_t first, int64_t count, float *out);
  void (*unpack)(void *context, int64_t first, int64_t count, const float *in);
  void *context;
} wm_shards_copy_t;

/* Collective over comm->world. The elements exist once per node, and the node's ranks have changed
 * those they own (and synchronised their memory): every node gets those of the others. Called on
 * every rank; rank 0 of each node packs and unpacks. */
void wm_shards_gather(wm_shards_t *shards, const wm_shards_copy_t *copy);

#endif
