/* What the files of probes share. */
#ifndef WANAMAKER_SRC_MEASURE_PROBE_INTERNAL_H
#define WANAMAKER_SRC_MEASURE_PROBE_INTERNAL_H

#include "wanamaker/measure/labels.h"
#include "wanamaker/measure/probe.h"
#include "wanamaker/measure/unit_moments.h"

/* What probes count in the layer's progress that are no single regression. */
enum { WM_PROBE_STEPS_OF_CLUSTERS = 4, WM_PROBE_STEPS_OF_HIDDEN = 10 };

/* Streams of options->seed. */
enum {
  WM_PROBE_SPLIT = 0,
  WM_PROBE_RANDOM = 1,
  WM_PROBE_HALVES = 1 << 10,
  WM_PROBE_KMEANS = 1 << 20,
  WM_PROBE_HIDDEN = 1 << 30
};

/* Collective. WM_STOPPED if any rank has been asked to stop. */
wm_status_t wm_probe_go_on(const wm_probe_layer_t *l, wm_error_t *err);

/* Tells the layer's progress, if there is one, of what is done and of what comes next. */
void wm_probe_next(const wm_probe_layer_t *l, const char *what);
void wm_probe_done(const wm_probe_layer_t *l, int64_t steps);

/* The cells that every table begins with. */
void wm_probe_case(const wm_probe_layer_t *l, wm_probe_tables_t *t, wm_probe_table_id_t id);
double wm_probe_share(double part, double whole); /* NaN of nothing */
/* Why a statistic or its interval does not exist; "" if both do, or none was asked for. */
const char *wm_probe_reason(const wm_probe_layer_t *l, const wm_unit_statistic_t *r);

/* Labels of the used positions by a threshold from the training ones: their median as method.md,
 * section 4, has it, or their 25th percentile. */
typedef struct {
  int8_t *label; /* [N] WM_LABEL_NONE where a position is not used */
  wm_labels_t train;
  int64_t test, test_ones;
} wm_probe_labels_t;
wm_status_t wm_probe_label(const wm_probe_layer_t *l, bool quartile, int8_t *label,
                           wm_probe_labels_t *out, wm_error_t *err);

/* A score of all used positions, judged. */
typedef struct {
  double auc, low, high, accuracy, f1, auc_train;
} wm_probe_judgement_t;
/* Collective. least: a position with a higher score is said to be of class 1. */
wm_status_t wm_probe_judge(const wm_probe_layer_t *l, const double *score, const int8_t *label,
                           double least, wm_probe_judgement_t *out, wm_error_t *err);

/* The same of a judgement; `note`, if there is one, is the reason. */
const char *wm_probe_judgement_note(const wm_probe_layer_t *l, const wm_probe_labels_t *labels,
                                    const wm_probe_judgement_t *j, const char *note);

/* Collective. Logistic regression of the labels on the standardised features f [n, k] of this
 * rank's training rows; score [N] of all used positions, whole on every rank. note: [64], what is
 * degenerate. *fitted: false leaves a score of zeros. */
typedef struct {
  int64_t iterations;
  double loss;
  bool fitted;
} wm_probe_fit_t;
wm_status_t wm_probe_fit_gate(const wm_probe_layer_t *l, const float *f, int64_t k,
                              const int8_t *label, double *score, char note[64],
                              wm_probe_fit_t *out, wm_error_t *err);

/* Rows of this rank that are used and of the training positions; index: [n]. */
int64_t wm_probe_train_rows(const wm_probe_layer_t *l, int64_t *index);

#endif
