/* Gates of all layers: passes of the trunk for their features, a layer's fits after another
 * (method.md, section 4).
 *
 * Features are held for groups of layers that fit the memory (features.h); a group takes one pass
 * over the fit's text and one over the held-out one, up to its last layer.
 */
#ifndef WANAMAKER_MEASURE_GATE_PASS_H
#define WANAMAKER_MEASURE_GATE_PASS_H

#include "wanamaker/base/log.h"
#include "wanamaker/base/status.h"
#include "wanamaker/io/hdf5.h"
#include "wanamaker/measure/blocks.h"
#include "wanamaker/measure/gate_fit.h"
#include "wanamaker/measure/gates.h"
#include "wanamaker/model/model.h"
#include "wanamaker/par/comm.h"

#include <stdint.h>

enum { WM_GATE_ENDS = 10 }; /* token types at each end of a direction */

typedef struct {
  const int64_t *layers; /* [n_layers] ascending; borrowed, like the specs of `fit` */
  int64_t n_layers;
  wm_gate_fit_options_t fit;
  int64_t feature_bytes; /* most that a rank holds of features; 0: any */
  int64_t least_count;   /* occurrences of a token type that may be at an end */
  wm_h5_t *keep;         /* features are written into it; NULL: they are not */
} wm_gate_pass_options_t;

/* A text with its losses. All pointers are borrowed. */
typedef struct {
  const wm_blocks_t *blocks;
  const int32_t *ids;  /* of its corpus */
  const float *nll;    /* [1 + n_layers, N] of the full model, then of each layer's surrogate */
  const int32_t *unit; /* [N] bootstrap units; NULL: the AUC gets no interval */
  int64_t n_units;
} wm_gate_source_t;

/* Token types (of the input, method.md, section 7) whose positions have the highest and the lowest
 * mean score of the layer's linear gate on the fit's text. */
typedef struct {
  int32_t token[2][WM_GATE_ENDS];                        /* high, low; outermost first; -1: none */
  double count[2][WM_GATE_ENDS];                         /* positions */
  double score[2][WM_GATE_ENDS], delta[2][WM_GATE_ENDS]; /* means; NaN: none */
} wm_gate_ends_t;

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
 * WM_STOPPED after a stop request. */
wm_status_t wm_gate_pass_run(const wm_comm_t *comm, wm_model_t *model, const wm_gate_source_t *fit,
                             const wm_gate_source_t *heldout, const wm_gate_pass_options_t *options,
                             const wm_log_t *log, wm_gates_t *gates, wm_gate_ends_t *ends,
                             wm_error_t *err);

/* Collective. Adds datasets /ends/token, /ends/count, /ends/score, /ends/delta, each
 * [n_layers, 2, WM_GATE_ENDS], to a file that is being written. */
wm_status_t wm_gate_ends_write(const wm_gate_ends_t *ends, int64_t n_layers, const wm_comm_t *comm,
                               wm_h5_t *file, wm_error_t *err);
/* Collective. Reads them again. */
wm_status_t wm_gate_ends_read(wm_gate_ends_t *ends, int64_t n_layers, wm_h5_t *file,
                              wm_error_t *err);

#endif
