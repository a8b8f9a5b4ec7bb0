/* Finished layers of a probe, kept until its result is published: one file a layer, in a folder a
 * text and set of surrogates. A run that is taken up again, on any number of ranks, goes on with
 * the layers that are not there.
 *
 *   NNNN.h5   /full /entropy /delta /divergence /agreed /factor [N] float64, /used /classes [N]
 *             uint8, /cluster [N] int32, and the tables of probe_tables.h; attribute part_key
 */
#ifndef WANAMAKER_MEASURE_PROBE_PARTS_H
#define WANAMAKER_MEASURE_PROBE_PARTS_H

#include "wanamaker/base/log.h"
#include "wanamaker/measure/probe.h"

/* What is known of every position at one layer: arrays [N], whole on every rank. */
typedef struct {
  int64_t n;
  double *full, *entropy, *delta, *divergence, *agreed, *factor; /* one block, at full */
  uint8_t *used, *classes;                                       /* one block, at used */
  int32_t *cluster;
} wm_probe_positions_t;

wm_status_t wm_probe_positions_create(int64_t n, wm_probe_positions_t *out, wm_error_t *err);
void wm_probe_positions_destroy(wm_probe_positions_t *positions);

/* Collective. Is layer's part there, whole and of this key? What is not is told and left out. */
bool wm_probe_part_is_there(const wm_comm_t *comm, const char *folder, int64_t layer, uint64_t key,
                            const wm_log_t *log);
/* Collective. Writes it. */
wm_status_t wm_probe_part_write(const wm_comm_t *comm, const char *folder, int64_t layer,
                                uint64_t key, const wm_probe_positions_t *positions,
                                const wm_probe_tables_t *tables, wm_error_t *err);
/* Collective. Reads it into `positions` (made for its N) and appends its rows to `tables`. */
wm_status_t wm_probe_part_read(const wm_comm_t *comm, const char *folder, int64_t layer,
                               const wm_probe_positions_t *positions, wm_probe_tables_t *tables,
                               wm_error_t *err);
/* Collective. Removes the folder. */
void wm_probe_parts_remove(const wm_comm_t *comm, const char *folder);

#endif
