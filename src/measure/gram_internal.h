/* What gram.c and gram_file.c share. */
#ifndef WANAMAKER_SRC_MEASURE_GRAM_INTERNAL_H
#define WANAMAKER_SRC_MEASURE_GRAM_INTERNAL_H

#include "wanamaker/measure/gram.h"
#include "wanamaker/par/shared.h"

#include <stdbool.h>

struct wm_gram {
  const wm_comm_t *comm;
  int64_t d, layers, max_rows;
  wm_shared_t matrices; /* [layers, sets]: xx [d, d], xy [d, d], yy, x_sum, y_sum [d], count */
  wm_shared_t shifts;   /* [layers]: x_shift [d], y_shift [d] */
  wm_shared_t rows;     /* [node ranks]: count (as one double), x [max_rows, d], y [max_rows, d] */
  double *sums;         /* [layers, sets]: yy, x_sum, y_sum [d], count: this rank's rows */
  bool *shifted;        /* [layers] */
};

static inline int64_t wm_gram_small_size(int64_t d) {
  return 3 * d + 1;
}

static inline int64_t wm_gram_set_size(int64_t d) {
  return 2 * d * d + wm_gram_small_size(d);
}

static inline double *wm_gram_set(const wm_gram_t *g, wm_row_set_t set, int64_t layer) {
  return (double *)g->matrices.data + (layer * WM_ROW_SETS + set) * wm_gram_set_size(g->d);
}

static inline double *wm_gram_sums(const wm_gram_t *g, wm_row_set_t set, int64_t layer) {
  return g->sums + (layer * WM_ROW_SETS + set) * wm_gram_small_size(g->d);
}

static inline double *wm_gram_shift(const wm_gram_t *g, int64_t layer) {
  return (double *)g->shifts.data + layer * 2 * g->d;
}

#endif
