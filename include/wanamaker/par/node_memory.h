/* Peak memory of a node: the ranks' proportional set sizes, shared segments counted once, without
 * page cache (base/memory_usage.h), summed over the ranks of the node.
 *
 * A thread of each node's rank 0 looks at all ranks of the node, every 50 ms or so rarely that
 * looking takes at most 2 % of a core. What lives shorter may escape it. */
#ifndef WANAMAKER_PAR_NODE_MEMORY_H
#define WANAMAKER_PAR_NODE_MEMORY_H

#include "wanamaker/base/status.h"
#include "wanamaker/par/comm.h"

#include <stdint.h>

typedef struct wm_node_memory wm_node_memory_t;

/* Collective over comm->world (borrowed). */
wm_status_t wm_node_memory_start(const wm_comm_t *comm, wm_node_memory_t **out, wm_error_t *err);
/* Collective over the node. NULL is allowed. */
void wm_node_memory_stop(wm_node_memory_t *memory);

/* Collective over comm->world; on every rank, bytes of the node that has most, -1 if any node's are
 * unknown. */
int64_t wm_node_memory_now(wm_node_memory_t *memory);
int64_t wm_node_memory_peak(wm_node_memory_t *memory);
/* The same peak, counted from the last call of this function (or the start). */
int64_t wm_node_memory_recent(wm_node_memory_t *memory);

#endif
