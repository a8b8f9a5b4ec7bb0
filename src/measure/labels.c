#include "wanamaker/measure/labels.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/measure/inference.h"

#include <math.h>
#include <string.h>

void wm_labels_delta(const float *linear, const float *full, int64_t n, double *delta) {
  for (int64_t i = 0; i < n; i++)
    delta[i] = (double)linear[i] - (double)full[i];
}

int8_t wm_label_of(double delta, double threshold) {
  return isfinite(delta) ? delta <= threshold : WM_LABEL_NONE;
}

void wm_labels_count(const double *delta, int64_t n, double threshold, wm_labels_t *out) {
  *out = (wm_labels_t){.threshold = threshold};
  for (int64_t i = 0; i < n; i++) {
    out->dropped += !isfinite(delta[i]);
    out->ones += wm_label_of(delta[i], threshold) == 1;
    out->better += isfinite(delta[i]) && delta[i] < 0;
  }
  out->positions = n - out->dropped;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

wm_status_t wm_labels_find(const double *delta, int64_t n, wm_labels_t *out, wm_error_t *err) {
  const double few = 0.05;
  void *memory;
  wm_status_t status = wm_alloc(&memory, n, sizeof *delta, "deltas in order", err);
  if (status != WM_OK)
    return status;
  double *sorted = memory;
  int64_t finite = 0, better = 0;
  for (int64_t i = 0; i < n; i++)
    if (isfinite(delta[i])) {
      better += delta[i] < 0;
      sorted[finite++] = delta[i];
    }
  qsort(sorted, (size_t)finite, sizeof *sorted, ascending);
  bool quartile = (double)better < few * (double)finite;
  wm_labels_count(delta, n, wm_quantile_sorted(sorted, finite, quartile ? 0.25 : 0.5), out);
  out->quartile = quartile;
  free(memory);
  return WM_OK;
}

/* --- separation ---------------------------------------------------------------------------------
 */

typedef struct {
  double score;
  bool one;
} scored_t;

static int by_score(const void *a, const void *b) {
  const scored_t *x = a, *y = b;
  return (x->score > y->score) - (x->score < y->score);
}

/* Sum of the ranks, from 1, of the ones; ties get their mean rank. */
static double rank_sum(const scored_t *sorted, int64_t n) {
  double sum = 0;
  for (int64_t begin = 0, end; begin < n; begin = end) {
    int64_t ones = 0;
    for (end = begin; end < n && sorted[end].score == sorted[begin].score; end++)
      ones += sorted[end].one;
    sum += 0.5 * (double)(begin + 1 + end) * (double)ones;
  }
  return sum;
}

wm_status_t wm_auc(const double *score, const int8_t *label, int64_t n, double *auc,
                   wm_error_t *err) {
  *auc = NAN;
  void *memory;
  wm_status_t status = wm_alloc(&memory, n, sizeof(scored_t), "scores in order", err);
  if (status != WM_OK)
    return status;
  scored_t *sorted = memory;
  int64_t used = 0, ones = 0;
  bool known = true;
  for (int64_t i = 0; i < n; i++)
    if (label[i] != WM_LABEL_NONE) {
      known = known && !isnan(score[i]);
      ones += label[i];
      sorted[used++] = (scored_t){score[i], label[i] == 1};
    }
  const double one = (double)ones, zero = (double)(used - ones);
  if (known && ones > 0 && ones < used) {
    qsort(sorted, (size_t)used, sizeof *sorted, by_score);
    *auc = (rank_sum(sorted, used) - one * (one + 1) / 2) / (one * zero);
  }
  free(memory);
  return WM_OK;
}

double wm_accuracy(const double *score, const int8_t *label, int64_t n, double least) {
  int64_t used = 0, right = 0;
  for (int64_t i = 0; i < n; i++)
    if (label[i] != WM_LABEL_NONE) {
      used++;
      right += (score[i] > least) == (label[i] == 1);
    }
  return used > 0 ? (double)right / (double)used : NAN;
}
