/* The fit: every layer's ridge surrogate from one pass of the model (method.md, section 1).
 *
 * Blocks of windows are dealt to ranks in turn. At each layer the ranks' MLP inputs and outputs go
 * into node-shared Gram matrices (gram.h); after the last block the nodes' matrices are summed, and
 * teams of ranks solve one layer each on a process grid (linalg/ridge.h). Layers whose matrices
 * exceed the memory setting are done in groups, each with a pass of its own.
 *
 * A sequential fit takes a pass for each layer, in which the layers fitted before it are replaced
 * by their surrogates: each is fitted to the inputs that it will see when all are used together.
 *
 * So that a killed or stopped fit can go on, on any number of ranks, it keeps in a folder
 *
 *   gram/NNNN.h5   The sums of the pass under way, and how far it is (gram.h); when the interval
 *                  has passed, and when stopped. The last two of them, in case one is damaged.
 *   NNNN.h5        Solved layers: when a group takes longer to solve than the interval, when
 *                  there are several passes, and when stopped.
 *
 * A short fit keeps nothing. On as many ranks as before, of one node, the result is that of an
 * undisturbed fit, bit for bit; else sums are taken in another order.
 */
#ifndef WANAMAKER_MEASURE_FIT_H
#define WANAMAKER_MEASURE_FIT_H

#include "wanamaker/base/log.h"
#include "wanamaker/base/status.h"
#include "wanamaker/io/hdf5.h"
#include "wanamaker/measure/blocks.h"
#include "wanamaker/measure/trunk.h"
#include "wanamaker/model/model.h"
#include "wanamaker/par/comm.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
  double lambda;
  const double *lambdas; /* [n_lambdas] the path; borrowed */
  int64_t n_lambdas;
  bool spectrum;
  bool sequential;       /* each layer on the model in which those before it are replaced */
  int64_t tile_rows;     /* of a sequential fit: as for wm_surrogates_open */
  const wm_base_t *base; /* the model that is fitted; NULL: the unmodified one. Borrowed */
  const int64_t *layers; /* [n_layers] ascending, without repetition; borrowed */
  int64_t n_layers;
  int64_t grid_rows, grid_columns; /* 0: chosen */
  int block;
  int64_t gram_bytes;        /* per node */
  int64_t memory_bytes;      /* most scratch of a rank; 0: any */
  const char *parts;         /* folder of what is kept; NULL: nothing. Borrowed */
  uint64_t parts_key;        /* of all that the surrogates depend on */
  double checkpoint_seconds; /* 0: only when stopped */
} wm_fit_options_t;

/* One layer's result, on every rank. */
typedef struct {
  int64_t layer;
  double r2, r2_heldout, weight_norm, condition, effective_rank; /* NaN: not computed */
} wm_fit_summary_t;

/* Bytes of Gram matrices per node, passes over the text, and ranks per layer that a fit of `n`
 * layers takes; for estimates. */
typedef struct {
  int64_t layers_per_pass, passes, gram_bytes;
  int grid_rows, grid_columns, teams;
} wm_fit_plan_t;
wm_status_t wm_fit_plan(const wm_comm_t *comm, const wm_arch_t *arch,
                        const wm_fit_options_t *options, wm_fit_plan_t *out, wm_error_t *err);

/* Not collective. Scratch of a rank, with its share of what the node's ranks publish to each other.
 * heldout may be NULL. WM_USAGE, with what would fit, if that is more than options->memory_bytes.
 */
wm_status_t wm_fit_scratch(const wm_model_t *model, const wm_blocks_t *fit,
                           const wm_blocks_t *heldout, const wm_fit_options_t *options,
                           int64_t *bytes, wm_error_t *err);

/* Collective over comm->world. Fits on the windows of `fit`, checks on those of `heldout` (NULL:
 * none); `ids` are the ids of the corpora the two come from. Writes datasets of surrogates.h
 * into `file` (being written; the caller adds attributes, publishes, and then removes what was
 * kept). summaries: [n_layers]. WM_STOPPED after a stop request, when what is done has been kept.
 */
wm_status_t wm_fit_surrogates(const wm_comm_t *comm, wm_model_t *model, const wm_blocks_t *fit,
                              const int32_t *fit_ids, const wm_blocks_t *heldout,
                              const int32_t *heldout_ids, const wm_fit_options_t *options,
                              wm_h5_t *file, const wm_log_t *log, wm_fit_summary_t *summaries,
                              wm_error_t *err);

/* Collective over comm->world. Removes what a fit has kept. */
void wm_fit_remove_parts(const wm_comm_t *comm, const char *folder);

#endif
