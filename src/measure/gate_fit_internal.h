/* What the files of a layer's gates share: their fits (gate_fit.c) and what is reported of them
 * (gate_report.c). */
#ifndef WANAMAKER_SRC_MEASURE_GATE_FIT_INTERNAL_H
#define WANAMAKER_SRC_MEASURE_GATE_FIT_INTERNAL_H

#include "wanamaker/measure/gate_fit.h"
#include "wanamaker/measure/labels.h"

#include <math.h>

/* Positions with what is derived from their losses. */
typedef struct {
  const wm_gate_rows_t *rows; /* NULL: there are none */
  double *delta;              /* [N] */
  int8_t *label;              /* [N] */
  double *score;              /* [N] of the gate in work */
  wm_labels_t labels;
} wm_gate_text_t;

/* A layer in work. */
typedef struct {
  const wm_comm_t *comm;
  const wm_gate_fit_options_t *options;
  wm_gates_t *gates;
  int64_t layer, d, k; /* k: components that there are, at most gates->k */
  wm_gate_text_t fit, heldout;
  /* the fit's rows of this rank whose delta is finite */
  int64_t n, total;             /* of this rank, of all */
  int64_t *index;               /* [n] rows of fit.rows */
  int8_t *label;                /* [n] */
  int64_t constant;             /* features */
  double *mean, *scale;         /* [d] */
  double *components;           /* [gates->k, d] */
  double *variance;             /* [gates->k] */
  double *projected;            /* [n, k] */
  double *column;               /* [n, k] scratch: inputs of small regressions */
  double *weight, *coefficient; /* [d], [max(d, k)] of the gate in work */
} wm_gate_work_t;

static inline double wm_gate_share(int64_t part, int64_t whole) {
  return whole > 0 ? (double)part / (double)whole : NAN;
}

/* Collective. Fills the report of the last gate of the set, which has a score, from its scores at
 * all positions; w->fit.score is left with those of the fit's. */
wm_status_t wm_gate_report(wm_gate_work_t *w, wm_error_t *err);

#endif
