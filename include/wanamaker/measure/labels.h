/* Labels of positions for gates, and how well scores separate them (method.md, section 4): plain
 * functions of arrays, not collective.
 *
 *     delta = NLL with the surrogate - NLL of the full model, float64, nats
 *     label 1 ("linear is fine") where delta <= threshold, the threshold being median(delta), or
 * its 25th percentile if fewer than 5 % of the positions have delta < 0
 *
 * Deltas that are not finite are dropped: they have no label and count nowhere but in `dropped`.
 */
#ifndef WANAMAKER_MEASURE_LABELS_H
#define WANAMAKER_MEASURE_LABELS_H

#include "wanamaker/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Label of a position whose delta is not finite. */
enum { WM_LABEL_NONE = -1 };

typedef struct {
  double threshold;  /* NaN without positions */
  bool quartile;     /* it is the 25th percentile, not the median */
  int64_t positions; /* with a finite delta */
  int64_t dropped;   /* the others */
  int64_t ones;      /* positions with label 1 */
  int64_t better;    /* positions with delta < 0 */
} wm_labels_t;

/* delta[n] of losses linear[n] and full[n]. */
void wm_labels_delta(const float *linear, const float *full, int64_t n, double *delta);

/* The threshold from delta[n], and what it makes of them. */
wm_status_t wm_labels_find(const double *delta, int64_t n, wm_labels_t *out, wm_error_t *err);
/* The counts alone for other positions with a threshold that is given. */
void wm_labels_count(const double *delta, int64_t n, double threshold, wm_labels_t *out);
/* 1, 0 or WM_LABEL_NONE. */
int8_t wm_label_of(double delta, double threshold);

/* Area under the ROC curve of score[n] for labels 1 against 0 (others are left out): the
 * Mann-Whitney statistic with mean ranks for ties. NaN if a class is empty or a score is NaN. */
wm_status_t wm_auc(const double *score, const int8_t *label, int64_t n, double *auc,
                   wm_error_t *err);
/* Part of the labelled positions for which (score > least) is the label; NaN if there are none. */
double wm_accuracy(const double *score, const int8_t *label, int64_t n, double least);

#endif
