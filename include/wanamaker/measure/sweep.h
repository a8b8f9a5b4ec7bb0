/* The sweep: every variant's loss at every predicted position (method.md, sections 2 and 6).
 *
 * The result is made of cells (variant, block of windows). Which cells there are depends on the
 * configuration alone; with whom a cell is computed does not matter to its bits, and so any number
 * of ranks may cut what is left into units (block, group of variants) as suits them, take the units
 * from a queue (par/queue.h), and leave cells that are done for other ranks to go on from
 * (parts.h). Given the same surrogates the losses are equal, bit for bit, for any number of ranks
 * and of interruptions (at one number of threads). Some kernels of CBLAS sum a row by its place in
 * the stack: there the units are those of the configuration, done whole.
 *
 * Variants that route by measured losses (oracle) come last in a set: they are a second phase of
 * the sweep, done when the losses of the first are known.
 *
 * Datasets that wm_sweep_write adds to sweep.h5:
 *   /tokens/id, /tokens/target          [N] int32    token at the position, token predicted there
 *   /tokens/document                    [N] int64    document (stream: row) of the window, -1: none
 *   /tokens/window, /tokens/position    [N] int64, int32   window number, position in it
 *   /tokens/unit                        [N] int32    bootstrap unit
 *   /nll                                [V, N] float32     -log p(target), nats; row 0: full model
 *   /variants                           [V] compound       see sweep_write.c's table
 *   /changes/{variant,layer,gate,threshold} [C]            what each variant changes
 *   /cells/{routed,agreed,divergence}   [V, B] float64     see wm_cell_t
 *   /blocks/first_window                [B + 1] int64      the cut into units
 */
#ifndef WANAMAKER_MEASURE_SWEEP_H
#define WANAMAKER_MEASURE_SWEEP_H

#include "wanamaker/base/log.h"
#include "wanamaker/base/status.h"
#include "wanamaker/io/hdf5.h"
#include "wanamaker/measure/blocks.h"
#include "wanamaker/measure/evaluate.h"
#include "wanamaker/measure/statistics.h"
#include "wanamaker/measure/surrogates.h"
#include "wanamaker/measure/variants.h"
#include "wanamaker/par/comm.h"
#include "wanamaker/par/shared.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct wm_sweep wm_sweep_t;

typedef struct {
  int64_t max_group;         /* most variants of a group; 0: chosen */
  int64_t stack_rows;        /* see evaluate.h */
  int64_t memory_bytes;      /* most workspace of a rank; 0: any */
  double rate;               /* operations per second of a rank, as estimated; 0: unknown */
  const char *parts;         /* folder of the parts; NULL: none are kept. Borrowed */
  uint64_t parts_key;        /* of all that the losses depend on, but the cut into blocks */
  double checkpoint_seconds; /* between parts; 0: only when stopped */
  bool divergence;           /* measure KL and agreement with the full model, too */
  bool keep_whole;           /* a part holds all cells in the end, for work that follows */
  /* A sweep of the same model, surrogates and blocks, with or without divergence as this one: what
   * it has of variants without gates is taken from it where cells are independent. NULL: none. */
  const wm_sweep_t *known;
  wm_unit_kind_t unit;
  wm_bootstrap_t bootstrap;
} wm_sweep_options_t;

/* What the cells of a variant say together. NaN: not measured. */
typedef struct {
  double routed;     /* part of the positions that took the surrogate, mean of the changed layers */
  double divergence; /* mean of KL(full || variant), nats */
  double agreement;  /* part of the positions whose most likely token is the full model's */
} wm_sweep_measure_t;

struct wm_sweep {
  wm_comm_t const *comm; /* borrowed, like the next three */
  const wm_model_t *model;
  const wm_variants_t *variants;
  const wm_blocks_t *blocks;
  wm_shared_t nll;              /* [V, N] float32 once per node */
  wm_shared_t cells;            /* [V, B] wm_cell_t once per node */
  wm_sweep_measure_t *measures; /* [V] */
  int32_t *units;               /* [N] bootstrap unit */
  int64_t n_units;              /* of them */
  wm_unit_kind_t unit;          /* resolved */
  double perplexity;            /* of the full model */
  wm_effect_t *effects;    /* [V]; entry 0 holds the full model's perplexity and a delta of 0 */
  int64_t units_evaluated; /* by this rank */
  int64_t non_finite;      /* variants with a loss that is not finite: their effects are NaN */
};

/* Collective over comm->world. Evaluates all variants (ordered by first changed layer, first those
 * that do not need losses and then those that do; WM_USAGE if the all-linear variant of a layer is
 * missing whose losses one needs) on `blocks` of the corpus `ids`, from the parts on that an
 * earlier run left, and the statistics. WM_NUMERICAL if a loss of the full model is not finite;
 * WM_INPUT if the model's files were written to before a part; WM_STOPPED after a stop request,
 * when a part has been published. The caller removes the parts (wm_parts_remove) when it has
 * published the result. Destroy with wm_sweep_destroy (collective), also after a failure. */
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

/* Operations per token of a variant at its measured routed fraction: of MLPs, surrogates and gates,
 * and of the whole model with its head. Percent saved: of the whole model, and without the head. */
typedef struct {
  double mlp, model, saved_pct, saved_body_pct;
} wm_sweep_flops_t;
wm_sweep_flops_t wm_sweep_flops(const wm_sweep_t *sweep, int64_t variant);

/* Do a cell's bits depend on the cell alone with this build's products? */
bool wm_sweep_cells_are_independent(void);

/* How a sweep from the start is cut, and what it takes. */
typedef struct {
  int64_t max_group, stack_rows; /* what fits memory_bytes */
  int64_t bytes;                 /* workspace of a rank */
  int64_t group, units;          /* variants of a group, units in all */
  double flops, separate; /* operations of all ranks together; of evaluating each variant alone */
} wm_sweep_plan_t;

/* Not collective; equal on all ranks. WM_USAGE, with what would fit, if not even one variant on one
 * block fits memory_bytes. */
wm_status_t wm_sweep_plan(const wm_comm_t *comm, const wm_model_t *model,
                          const wm_variants_t *variants, const wm_blocks_t *blocks,
                          const wm_sweep_options_t *options, wm_sweep_plan_t *out, wm_error_t *err);

#endif
