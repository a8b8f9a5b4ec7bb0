/* Fits of gates (method.md, section 4).
 *
 *   linear      logistic regression (logistic.h) on the standardised x
 *   pca         the same on the first 2b principal components of the standardised x, as they are
 *   component   the same on one principal component, as it is
 *   norm, max_abs, kurtosis   the same on the standardised feature
 *   random      no fit: the part that the layer's linear gate routes (of held-out positions, if
 *               there are any, else of the fit's); one half without a linear gate
 *   oracle      no fit
 *
 * All that is fitted is folded into one weight or scale in raw x and one bias (gates.h), and what
 * is reported is of that. Nothing degenerate fails: one class, deltas that are all equal or not
 * finite, constant features, fewer positions than features and a fit that fails yield a gate with a
 * note; if nothing can be fitted, a constant one, whose score is log((ones + 1/2) / (zeros + 1/2)).
 */
#ifndef WANAMAKER_MEASURE_GATE_FIT_H
#define WANAMAKER_MEASURE_GATE_FIT_H

#include "wanamaker/base/status.h"
#include "wanamaker/measure/gates.h"
#include "wanamaker/measure/statistics.h"
#include "wanamaker/par/comm.h"

#include <stdint.h>

typedef struct {
  wm_gate_kind_t kind;
  int64_t components; /* as in wm_gate_t */
} wm_gate_spec_t;

typedef struct {
  const wm_gate_spec_t *specs; /* [n_specs] gates of a layer, in this order; random behind linear */
  int64_t n_specs;
  double C;                 /* inverse penalty */
  double threshold;         /* default of p_linear */
  uint64_t seed;            /* random */
  int block;                /* of block-cyclic matrices */
  wm_bootstrap_t bootstrap; /* of the held-out AUC; resamples = 0: no interval */
} wm_gate_fit_options_t;

/* Positions of one text for one layer; all pointers are borrowed. */
typedef struct {
  int64_t n;                  /* rows of this rank */
  const float *x;             /* [n, D] MLP inputs */
  const int64_t *place;       /* [n] numbers of their predictions, each once among all ranks */
  int64_t total;              /* N: predictions of the text */
  const float *full, *linear; /* [N] losses of full model and of the layer's surrogate: whole on
                               * every rank, like unit */
  const int32_t *unit;        /* [N] bootstrap units; NULL: no interval of the AUC */
  int64_t n_units;
} wm_gate_rows_t;

/* Most components of the specs, for wm_gates_create; at most d. */
int64_t wm_gate_fit_components(const wm_gate_fit_options_t *options, int64_t d);
/* Bytes of a rank that fits to `rows` rows of width d. */
int64_t wm_gate_fit_bytes(const wm_gate_fit_options_t *options, int64_t rows, int64_t d);

/* Collective over comm->world. Describes the layer and adds its gates to `gates`, which is the same
 * on all ranks before and after. heldout: NULL if there is none. linear_score: [N of the fit],
 * filled with the scores of the layer's linear gate, NaN without one; may be NULL. */
wm_status_t wm_gate_fit_layer(const wm_comm_t *comm, int64_t layer, const wm_gate_rows_t *fit,
                              const wm_gate_rows_t *heldout, const wm_gate_fit_options_t *options,
                              wm_gates_t *gates, double *linear_score, wm_error_t *err);

#endif
