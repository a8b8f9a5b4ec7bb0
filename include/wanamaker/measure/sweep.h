/* The sweep: every variant's loss at every predicted position (method.md, sections 2 and 6).
 *
 * Work units are (block of windows, group of variants). Which units there are depends on the
 * configuration alone; ranks take them by modelled cost, and each writes its own cells of the
 * node-shared [variant, token] array, which the nodes then merge. Given the same surrogates the
 * array is equal, bit for bit, for any number of ranks (at one number of threads).
 *
 * Datasets that wm_sweep_write adds to sweep.h5:
 *   /tokens/id, /tokens/target          [N] int32    token at the position, token predicted there
 *   /tokens/document                    [N] int64    document (stream: row) of the window, -1: none
 *   /tokens/window, /tokens/position    [N] int64, int32   window number, position in it
 *   /tokens/unit                        [N] int32    bootstrap unit
 *   /nll                                [V, N] float32     -log p(target), nats; row 0: full model
 *   /variants                           [V] compound       see sweep_write.c's table
 *   /blocks/first_window                [B + 1] int64      the cut into units
 */
#ifndef WANAMAKER_MEASURE_SWEEP_H
#define WANAMAKER_MEASURE_SWEEP_H

#include "wanamaker/base/log.h"
#include "wanamaker/base/status.h"
#include "wanamaker/io/hdf5.h"
#include "wanamaker/measure/blocks.h"
#include "wanamaker/measure/statistics.h"
#include "wanamaker/measure/surrogates.h"
#include "wanamaker/measure/variants.h"
#include "wanamaker/par/comm.h"
#include "wanamaker/par/shared.h"

#include <stdint.h>

typedef struct {
  int64_t max_group;  /* most variants of a group */
  int64_t stack_rows; /* see evaluate.h */
  wm_unit_kind_t unit;
  wm_bootstrap_t bootstrap;
} wm_sweep_options_t;

typedef struct {
  wm_comm_t const *comm; /* borrowed, like the next three */
  const wm_model_t *model;
  const wm_variants_t *variants;
  const wm_blocks_t *blocks;
  wm_shared_t nll;      /* [V, N] float32 once per node */
  int32_t *units;       /* [N] bootstrap unit */
  int64_t n_units;      /* of them */
  wm_unit_kind_t unit;  /* resolved */
  double perplexity;    /* of the full model */
  wm_effect_t *effects; /* [V]; entry 0 holds the full model's perplexity and a delta of 0 */
  int64_t non_finite;   /* variants with a loss that is not finite: their effects are NaN */
} wm_sweep_t;

/* Collective over comm->world. Evaluates all variants (ordered by first changed layer) on `blocks`
 * of the corpus `ids`, and the statistics. WM_NUMERICAL if a loss of the full model is not finite.
 * Destroy with wm_sweep_destroy (collective), also after a failure. */
wm_status_t wm_sweep_run(const wm_comm_t *comm, wm_model_t *model,
                         const wm_surrogates_t *surrogates, const wm_variants_t *variants,
                         const wm_blocks_t *blocks, const int32_t *ids,
                         const wm_sweep_options_t *options, const wm_log_t *log, wm_sweep_t *out,
                         wm_error_t *err);
void wm_sweep_destroy(wm_sweep_t *sweep);

/* Collective. The same object from a published sweep.h5: losses are read, statistics computed anew.
 * WM_INPUT if the file's losses are not of these variants and blocks. */
wm_status_t wm_sweep_read(const wm_comm_t *comm, const char *path, const wm_model_t *model,
                          const wm_variants_t *variants, const wm_blocks_t *blocks,
                          const wm_sweep_options_t *options, wm_sweep_t *out, wm_error_t *err);

/* Collective. Writes the datasets above; the caller adds attributes and publishes. */
wm_status_t wm_sweep_write(const wm_sweep_t *sweep, const int32_t *ids, wm_h5_t *file,
                           wm_error_t *err);

/* Floating-point operations of the sweep, all ranks together, and what separate evaluations of
 * every variant would take. */
void wm_sweep_flops(const wm_arch_t *arch, const wm_variants_t *variants, const wm_blocks_t *blocks,
                    int64_t max_group, double *stacked, double *separate);

#endif
