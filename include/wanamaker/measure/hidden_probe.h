/* A probe with one hidden layer, fitted by L-BFGS (method.md, section 7).
 *
 *     s = v . tanh(W z + b) + c,    z = (x - mean) / scale
 *     F = (1 / N) [ sum_i log(1 + e^s_i) - y_i s_i  +  penalty (|W|^2 + |v|^2) / 2 ]
 *
 * W: [hidden, D], from normal(0, 1 / sqrt(D)), v from normal(0, 1 / sqrt(hidden)), b and c from 0.
 * The problem is not convex, so that rounding would lead ranks to different minima: mean and scale
 * are float32, products are of tiles of rows of one block each (float32), and what tiles contribute
 * is added as whole multiples of 2^-s, s by the number of rows, which has no order. Any number of
 * ranks and threads does the same, bit for bit.
 *
 * Parameters: W [hidden, D], b [hidden], v [hidden], c: hidden (D + 2) + 1 in this order.
 */
#ifndef WANAMAKER_MEASURE_HIDDEN_PROBE_H
#define WANAMAKER_MEASURE_HIDDEN_PROBE_H

#include "wanamaker/base/status.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

/* Rows of this rank; all pointers are borrowed. */
typedef struct {
  int64_t n, d;
  const float *x;            /* [*, D] */
  const int64_t *index;      /* [n] rows of x */
  const int64_t *block;      /* [n] of each: a rank has all rows of a block, ascending */
  const int8_t *label;       /* [n] 0 or 1 */
  const float *mean, *scale; /* [D] */
} wm_hidden_rows_t;

typedef struct {
  int64_t hidden, iterations; /* units; most of L-BFGS's */
  double penalty;
  uint64_t seed, stream;
} wm_hidden_options_t;

typedef struct {
  int64_t iterations;
  double objective; /* F */
  const char *note; /* static; "": converged */
} wm_hidden_t;

int64_t wm_hidden_parameters(int64_t d, int64_t hidden);

/* Collective over `comm`; both labels should occur. parameters: filled on every rank with the same
 * bits. WM_STOPPED after a stop request, WM_NUMERICAL if F is not finite. */
wm_status_t wm_hidden_fit(MPI_Comm comm, const wm_hidden_rows_t *rows,
                          const wm_hidden_options_t *options, double *parameters, wm_hidden_t *out,
                          wm_error_t *err);

/* Collective. F and its gradient [parameters] there; for tests. */
wm_status_t wm_hidden_objective(MPI_Comm comm, const wm_hidden_rows_t *rows,
                                const wm_hidden_options_t *options, const double *parameters,
                                double *gradient, double *objective, wm_error_t *err);

/* score[n] <- s of rows index[n] of x. Not collective. */
wm_status_t wm_hidden_score(const wm_hidden_rows_t *rows, int64_t hidden, const double *parameters,
                            double *score, wm_error_t *err);

#endif
