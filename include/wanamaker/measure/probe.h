/* Probes of a layer: is it the token or its context (method.md, section 7)?
 *
 * What is asked of one layer on one text with one set of surrogates. Positions are known whole on
 * every rank, like delta and what else is one number each; what is D wide lies with the rank that
 * computed it. Everything is added to the tables of probes.h5 (probe_tables.h), in an order that is
 * fixed; nothing degenerate fails: what can't be computed is NaN, with a note.
 *
 * delta = NLL with the surrogate - NLL of the full model, nats. Label 1 where delta <= threshold
 * (labels.h), the threshold being that of the training positions. AUC, r and R^2 have
 * intervals from a bootstrap of units (interval.h); probes are fitted on training positions and
 * judged on held-out ones, and no unit lies on both sides.
 *
 * x = the MLP's input, LN(h) with gain gamma and offset beta; e = the token's embedding, with that
 * of its position where the family adds one. Views of x = token part + context part (+ beta):
 *   normalised  e' = gamma (e - mean e) / sigma(h), c' = x - beta - e': exact
 *   study       e, c = x - e: of different scales
 *   normed      e'' = LN(e), c'' = x - e''
 */
#ifndef WANAMAKER_MEASURE_PROBE_H
#define WANAMAKER_MEASURE_PROBE_H

#include "wanamaker/base/progress.h"
#include "wanamaker/base/status.h"
#include "wanamaker/measure/probe_tables.h"
#include "wanamaker/measure/probe_text.h"
#include "wanamaker/measure/statistics.h"
#include "wanamaker/measure/token_traits.h"
#include "wanamaker/par/comm.h"

#include <stdbool.h>
#include <stdint.h>

/* Classes of positions, as bits: a position may be of several. */
typedef enum {
  WM_CLASS_POSITION0 = 1,   /* the window's first */
  WM_CLASS_FIRST = 2,       /* the next few */
  WM_CLASS_END_OF_TEXT = 4, /* the input is the end-of-text token */
  WM_CLASS_HIGH_NORM = 8    /* sigma(h) exceeds a multiple of the layer's median */
} wm_position_class_t;

typedef enum { WM_VIEW_NORMALISED, WM_VIEW_STUDY, WM_VIEW_NORMED, WM_VIEWS } wm_probe_view_t;

/* "normalised", "study", "normed" */
const char *wm_probe_view_name(wm_probe_view_t view);

typedef struct {
  double C;                 /* inverse penalty of logistic gates */
  double alpha;             /* ridge penalty of the forensics */
  int block;                /* of block-cyclic matrices */
  uint64_t seed;            /* of random gates, splits, clusters and hidden units */
  wm_bootstrap_t bootstrap; /* of intervals */
  bool views[WM_VIEWS];
  unsigned excluded;            /* classes of positions that probes leave out */
  int64_t first_positions;      /* WM_CLASS_FIRST: positions 1 .. this - 1 */
  double high_norm;             /* multiple of the median */
  int64_t least_count;          /* observations of a type, for No-Fly and correlations */
  int64_t least_found;          /* of a No-Fly type on another corpus */
  double no_fly_delta;          /* No-Fly: mean delta above it ... */
  double no_fly_share;          /* ... and more than this part above zero */
  int64_t halvings;             /* random halves whose reliabilities are averaged */
  int64_t components, k;        /* of clusters */
  int64_t restarts, iterations; /* of k-means */
  double consistent;            /* share of one sign that makes a cluster consistent */
  int64_t hidden;               /* units of the one-hidden-layer probe */
  int64_t hidden_iterations;    /* of L-BFGS */
  double hidden_penalty;        /* on |w|^2 / 2, beside the sum of log-losses */
} wm_probe_options_t;

/* What a layer's probes spend their time on. */
typedef enum {
  WM_PROBE_TIME_SHAPE, /* distribution, positions and types */
  WM_PROBE_TIME_CONTEXT,
  WM_PROBE_TIME_FORENSICS,
  WM_PROBE_TIME_CLUSTERS,
  WM_PROBE_TIME_SEPARABILITY,
  WM_PROBE_TIMES
} wm_probe_time_t;

/* "distribution and types", "token against context", ... */
const char *wm_probe_time_name(wm_probe_time_t time);

/* A layer with what is known of its positions. All pointers are borrowed. */
typedef struct {
  const wm_comm_t *comm;
  const wm_probe_options_t *options;
  const wm_probe_text_t *text;
  const wm_token_traits_t *traits; /* NULL: the corpus is of ids without a tokenizer */
  const char *corpus, *surrogates; /* names for the tables */
  int64_t layer, d;
  bool brief; /* distribution, positions and types alone */
  /* [N], whole and equal on every rank */
  const double *delta;
  const double *entropy, *divergence; /* nats */
  const double *agreed;               /* 1: the same most likely token */
  const uint8_t *classes;             /* bits of wm_position_class_t */
  const uint8_t *used; /* 1: delta is finite and no class of the position is excluded */
  /* rows of this rank */
  int64_t n;
  const int64_t *place;      /* [n] position of each, ascending */
  const int64_t *block;      /* [n] block of each (blocks.h): a rank has all rows of a block */
  const float *x, *e;        /* [n, D] */
  const double *factor;      /* [n] 1 / sigma(h) */
  const float *gamma, *beta; /* [D] */
  double eps;                /* of the layer norm */
  float *work;               /* [3, n, D] scratch */
  double *score;             /* [N] scratch */
  int8_t *label;             /* [N] scratch */
  int32_t *cluster;          /* [N] result: cluster of each used position, -1: none; NULL: none */
  double *seconds;           /* [WM_PROBE_TIMES] to which time is added; NULL: none */
  wm_progress_t *progress;   /* counts wm_probe_steps for a layer; NULL: none */
} wm_probe_layer_t;

/* Collective over layer->comm->world. All probes of the layer below, in this order. */
wm_status_t wm_probe_layer(const wm_probe_layer_t *layer, wm_probe_tables_t *tables,
                           wm_error_t *err);
/* What a layer's probes count in its progress: about as many regressions. */
int64_t wm_probe_steps(const wm_probe_options_t *options, bool brief);
/* Bytes of a rank for `rows` rows of width d and `positions` positions, beside x and e. */
int64_t wm_probe_layer_bytes(const wm_probe_options_t *options, int64_t rows, int64_t positions,
                             int64_t d);

/* Each collective over layer->comm->world. */
wm_status_t wm_probe_context(const wm_probe_layer_t *layer, wm_probe_tables_t *tables,
                             wm_error_t *err);
wm_status_t wm_probe_forensics(const wm_probe_layer_t *layer, wm_probe_tables_t *tables,
                               wm_error_t *err);
wm_status_t wm_probe_clusters(const wm_probe_layer_t *layer, wm_probe_tables_t *tables,
                              wm_error_t *err);
wm_status_t wm_probe_separability(const wm_probe_layer_t *layer, wm_probe_tables_t *tables,
                                  wm_error_t *err);
/* Not collective. */
wm_status_t wm_probe_distribution(const wm_probe_layer_t *layer, wm_probe_tables_t *tables,
                                  wm_error_t *err);
wm_status_t wm_probe_positions(const wm_probe_layer_t *layer, wm_probe_tables_t *tables,
                               wm_error_t *err);
wm_status_t wm_probe_types(const wm_probe_layer_t *layer, wm_probe_tables_t *tables,
                           wm_error_t *err);

/* e and c of a view for this rank's rows: [n, D] each. */
void wm_probe_decompose(const wm_probe_layer_t *layer, wm_probe_view_t view, float *e, float *c);

#endif
