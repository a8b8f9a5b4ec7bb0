/* Gates of all layers: passes of the trunk for their features, a layer's fits after another
 * (method.md, section 4).
 *
 * Features are held for groups of layers that fit the memory (features.h); a group takes one pass
 * over the fit's text and one over the held-out one, up to its last layer.
 *
 * So that a killed or stopped pass can go on, on any number of ranks, it keeps the layers whose
 * gates are fitted in a folder: when the interval has passed, at the end of a group if another
 * follows, and when stopped. Those are not fitted again, nor are their features taken, unless these
 * are to be written. On as many ranks as before the gates are those of an undisturbed pass, bit for
 * bit; else sums are taken in another order.
 */
#ifndef WANAMAKER_MEASURE_GATE_PASS_H
#define WANAMAKER_MEASURE_GATE_PASS_H

#include "wanamaker/base/log.h"
#include "wanamaker/base/status.h"
#include "wanamaker/io/hdf5.h"
#include "wanamaker/measure/blocks.h"
#include "wanamaker/measure/gate_ends.h"
#include "wanamaker/measure/gate_fit.h"
#include "wanamaker/measure/gates.h"
#include "wanamaker/measure/trunk.h"
#include "wanamaker/model/model.h"
#include "wanamaker/par/comm.h"

#include <stdint.h>

typedef struct {
  const int64_t *layers; /* [n_layers] ascending; borrowed, like the specs of `fit` */
  int64_t n_layers;
  wm_gate_fit_options_t fit;
  int64_t feature_bytes; /* most that a rank holds of features; 0: any */
  int64_t least_count;   /* occurrences of a token type that may be at an end */
  wm_h5_t *keep;         /* features are written into it; NULL: they are not */
  const wm_base_t *base; /* the model whose features they are; NULL: the unmodified one. Borrowed */
  const char *parts;     /* folder of what is kept on the way; NULL: nothing. Borrowed */
  uint64_t parts_key;    /* of all that the gates depend on */
  double checkpoint_seconds; /* 0: only when stopped */
} wm_gate_pass_options_t;

/* A text with its losses. All pointers are borrowed. */
typedef struct {
  const wm_blocks_t *blocks;
  const int32_t *ids;  /* of its corpus */
  const float *nll;    /* [1 + n_layers, N] of the model, then with each layer's surrogate */
  const int32_t *unit; /* [N] bootstrap units; NULL: the AUC gets no interval */
  int64_t n_units;
} wm_gate_source_t;

typedef struct {
  int64_t layers_per_pass, passes;
  int64_t feature_bytes;   /* of a rank */
  int64_t bytes;           /* of a rank, with features, fit and trunk */
  double network, algebra; /* operations of all ranks: the trunk's, and in float64 */
} wm_gate_pass_plan_t;

/* Not collective; equal on all ranks. heldout: NULL if there is none. WM_USAGE if not even one
 * layer's features fit. */
wm_status_t wm_gate_pass_plan(const wm_comm_t *comm, const wm_model_t *model,
                              const wm_gate_source_t *fit, const wm_gate_source_t *heldout,
                              const wm_gate_pass_options_t *options, wm_gate_pass_plan_t *out,
                              wm_error_t *err);

/* Collective over comm->world. Adds every layer and its gates to `gates` (made with
 * wm_gate_fit_components); ends: [n_layers]. With options->keep, writes
 *   /features/x           [layers, N, D] float32   MLP inputs at the fit's predicted positions
 *   /features/x_heldout   [layers, M, D] float32   and at the held-out ones
 * WM_STOPPED after a stop request, when what is done has been kept; the caller removes what was
 * kept (wm_gate_pass_remove_parts) when it has published the result. */
wm_status_t wm_gate_pass_run(const wm_comm_t *comm, wm_model_t *model, const wm_gate_source_t *fit,
                             const wm_gate_source_t *heldout, const wm_gate_pass_options_t *options,
                             const wm_log_t *log, wm_gates_t *gates, wm_gate_ends_t *ends,
                             wm_error_t *err);
/* Collective over comm->world. Removes what a pass has kept. */
void wm_gate_pass_remove_parts(const wm_comm_t *comm, const char *folder);

#endif
