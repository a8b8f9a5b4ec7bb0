/* Gates: who decides, position by position, whether a layer's surrogate serves (method.md,
 * section 4), and their file, gates.h5.
 *
 * A scored gate yields per position the log-odds of "the surrogate serves here",
 *     linear, pca, component   score = weight . x + bias      (standardisation and PCA folded in)
 *     norm, max_abs, kurtosis  score = scale f(x) + bias      (f: wm_gate_feature)
 * x being the MLP's input; p_linear = 1 / (1 + e^-score). The surrogate is taken where
 * p_linear > threshold. Two kinds have no score:
 *     random   the surrogate where draw(seed, layer, the token's index in the corpus) < fraction
 *     oracle   the surrogate where the measured delta < 0
 * A score or delta that is NaN takes the MLP.
 *
 * Scores are float64, summed in an order that depends on D alone: a row's score and route have the
 * same bits wherever the row stands, on any rank and thread.
 *
 * Datasets that wm_gates_write adds (n layers, G gates, D width, K most components):
 *   /layers               [n] int64          layers that have gates, ascending
 *   /selected/gate        [n] int64          gate chosen for the layer, -1: none
 *   /selected/threshold   [n] float64        threshold chosen with it
 *   /scaler/mean, /scaler/scale [n, D] float64   standardised x = (x - mean) / scale
 *   /pca/components       [n, K, D] float64  principal axes of the standardised x, as rows
 *   /pca/variance         [n, K] float64     variance along each, descending
 *   /labels/...           [n]                see wm_gate_layer_t
 *   /gate/...             [G]                a dataset per member of wm_gate_t and its report
 *   /weight               [G, D] float64     in raw x; zeros for kinds without one
 *   /coefficient          [G, K] float64     of the principal components; NaN where there are none
 * NaN stands for what does not exist.
 */
#ifndef WANAMAKER_MEASURE_GATES_H
#define WANAMAKER_MEASURE_GATES_H

#include "wanamaker/base/status.h"
#include "wanamaker/io/hdf5.h"
#include "wanamaker/model/arch.h"
#include "wanamaker/par/comm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
  WM_GATE_LINEAR,    /* logistic regression on the standardised x: D + 1 parameters */
  WM_GATE_PCA,       /* on its first `components` principal components */
  WM_GATE_COMPONENT, /* on its principal component number `components` (from 1) alone */
  WM_GATE_NORM,
  WM_GATE_MAX_ABS,
  WM_GATE_KURTOSIS,
  WM_GATE_RANDOM,
  WM_GATE_ORACLE,
  WM_GATE_KINDS
} wm_gate_kind_t;

/* "linear", "pca", "component", "norm", "max_abs", "kurtosis", "random", "oracle" */
const char *wm_gate_kind_name(wm_gate_kind_t kind);
/* Unknown: false. */
bool wm_gate_kind_parse(const char *name, wm_gate_kind_t *out);
/* Has the kind a weight in raw x? A score? */
bool wm_gate_has_weight(wm_gate_kind_t kind);
bool wm_gate_has_score(wm_gate_kind_t kind);

enum { WM_GATE_NOTE_SIZE = 128 };

/* What the fit says of a gate. `heldout`: on held-out positions. NaN: not known. */
typedef struct {
  int64_t parameters;           /* fitted numbers: D + 1, 2b + 1, 2; 0 for random and oracle */
  int64_t iterations;           /* of Newton's method */
  double loss;                  /* mean log-loss on the fit's positions */
  double auc, accuracy, routed; /* fit's positions; routed at `threshold` */
  double auc_heldout, accuracy_heldout, routed_heldout; /* held-out positions */
  double auc_low, auc_high;                             /* interval of auc_heldout */
  double r_delta;               /* correlation of the score with delta on the fit's positions */
  double r_delta_heldout;       /* and on the held-out ones */
  char note[WM_GATE_NOTE_SIZE]; /* in words, what is degenerate: "one class"; "": nothing */
} wm_gate_report_t;

typedef struct {
  int64_t layer;
  wm_gate_kind_t kind;
  int64_t components;   /* pca: 2b; component: its number from 1; else 0 */
  const double *weight; /* [D] in raw x; NULL for kinds without one */
  double bias;          /* of scored kinds */
  double scale;         /* norm, max_abs, kurtosis: of the feature in raw x */
  double fraction;      /* random */
  uint64_t seed;        /* random */
  double threshold;     /* default of p_linear, in [0, 1]; not used by random and oracle */
  const double
      *coefficient; /* [components] pca: of the components; [1] component; NULL: not kept */
  wm_gate_report_t report;
} wm_gate_t;

/* What the gates of a layer share. */
typedef struct {
  int64_t layer;
  int64_t positions, positions_heldout; /* with a finite delta */
  int64_t dropped, dropped_heldout;     /* with one that is not */
  double label_threshold;               /* label 1 where delta <= it */
  double label_share;                   /* part of the fit's positions with label 1 */
  double better_share;                  /* part of them with delta < 0 */
  bool label_quartile;                  /* the threshold is the 25th percentile, not the median */
  const double *mean, *scale;           /* [D] of the standardisation; NULL: none */
  const double *components;             /* [K, D] NULL: none */
  const double *variance;               /* [K] NULL: none */
  int64_t selected;                     /* number of the chosen gate, -1: none is chosen */
  double selected_threshold;
} wm_gate_layer_t;

/* A set of gates. Members are read directly and changed through the functions below, except for
 * layers[i].selected and selected_threshold and gates[g].report, threshold, which may be set. */
typedef struct {
  int64_t n_layers, d;     /* of the model */
  int64_t k;               /* K */
  int64_t n;               /* G */
  wm_gate_t *gates;        /* [G] */
  int64_t n_described;     /* n */
  wm_gate_layer_t *layers; /* [n] ascending */
  int64_t capacity, layer_capacity;
} wm_gates_t;

/* An empty set for a model of n_layers layers of width d; k: most components of PCA, may be 0. Not
 * collective; free with wm_gates_free (NULL is allowed). */
wm_status_t wm_gates_create(int64_t n_layers, int64_t d, int64_t k, wm_gates_t **out,
                            wm_error_t *err);
void wm_gates_free(wm_gates_t *gates);

/* Describes a layer: in ascending order, before its gates. Arrays are copied (components: [K, D],
 * with rows of zeros if there are fewer). Not collective. WM_USAGE: out of order or range. */
wm_status_t wm_gates_add_layer(wm_gates_t *gates, const wm_gate_layer_t *layer, wm_error_t *err);
/* Adds a gate, whose number is gates->n - 1 afterwards; arrays are copied. Not collective. WM_USAGE
 * names what is wrong: a layer that was not described, a missing weight, a parameter that is not
 * finite, a threshold or fraction outside [0, 1]. */
wm_status_t wm_gates_add(wm_gates_t *gates, const wm_gate_t *gate, wm_error_t *err);
/* Adds a layer of `from`, described there and later than all of `to`, with its gates and its
 * choice. Both sets are of one model and K. Not collective. */
wm_status_t wm_gates_copy(wm_gates_t *to, const wm_gates_t *from, int64_t layer, wm_error_t *err);

/* The layer's description, NULL if there is none. Borrowed. */
const wm_gate_layer_t *wm_gates_layer(const wm_gates_t *gates, int64_t layer);
/* "linear", "pca6", "pc2", "norm", "max_abs", "kurtosis", "random50" (percent), "oracle". */
void wm_gate_label(const wm_gate_t *gate, char *text, size_t size);
/* Hash of all that scores and routes depend on. */
uint64_t wm_gates_fingerprint(const wm_gates_t *gates);

/* Operations per position that a gate costs (method.md, section 5): 2 d, for PCA 2 d k + 2 k,
 * nothing for random and oracle. */
double wm_gate_flops(const wm_gate_t *gate, int64_t d);

/* The feature of norm (Euclidean), max_abs or kurtosis (excess, population; 0 for a constant row)
 * of one row x[d], float64 in a fixed order. */
double wm_gate_feature(wm_gate_kind_t kind, const float *x, int64_t d);
/* a . x in float64 in the order that scores use. */
double wm_gate_dot(const double *a, const float *x, int64_t d);

/* score[rows] of a scored gate for x[rows, D]. OpenMP over rows. Not collective. */
void wm_gates_score(const wm_gates_t *gates, int64_t gate, const float *x, int64_t rows,
                    double *score);
/* log(t / (1 - t)): the surrogate is taken where score > this. -inf for 0 (always), +inf for 1
 * (never). */
double wm_gate_logit(double threshold);

/* route[rows]: 1 where the surrogate is taken, else 0. `threshold` in [0, 1] instead of the gate's
 * own. x: [rows, D] (may be NULL for random and oracle); token: [rows] index in the corpus of the
 * token at the row (random; else may be NULL); delta: [rows] measured delta, NaN where there is
 * none (oracle; else may be NULL). OpenMP over rows. Not collective. */
void wm_gates_route(const wm_gates_t *gates, int64_t gate, double threshold, const float *x,
                    const int64_t *token, const float *delta, int64_t rows, uint8_t *route);

/* Collective over the file's communicator; all ranks hold equal sets. Adds the datasets above;
 * rank 0 writes. The caller may add others, sets attributes and publishes. */
wm_status_t wm_gates_write(const wm_gates_t *gates, const wm_comm_t *comm, wm_h5_t *file,
                           wm_error_t *err);
/* Collective. Reads a published gates.h5 whole, verified, into the memory of each rank. WM_INPUT if
 * it is not of a model of n_layers layers of width d, or anything in it could not have been
 * added. */
wm_status_t wm_gates_open(const wm_comm_t *comm, const char *path, int64_t n_layers, int64_t d,
                          wm_gates_t **out, wm_error_t *err);

#endif
