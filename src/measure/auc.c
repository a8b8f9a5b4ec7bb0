#include "wanamaker/measure/auc.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/measure/inference.h"
#include "wanamaker/measure/labels.h"
#include "wanamaker/par/comm.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* A labelled position; sorted by score. */
typedef struct {
  double score;
  int32_t unit; /* number among those that are drawn */
  bool one;
} position_t;

static int by_score(const void *a, const void *b) {
  const position_t *x = a, *y = b;
  return (x->score > y->score) - (x->score < y->score);
}

/* Labelled positions by score, and how many of their units there are. number: [n_units] scratch,
 * zeroed. False: a score is NaN. */
static bool sort_positions(const double *score, const int8_t *label, const int32_t *unit, int64_t n,
                           int64_t n_units, int32_t *number, position_t *out, int64_t *used,
                           int64_t *occupied) {
  bool known = true;
  *used = *occupied = 0;
  for (int64_t i = 0; i < n; i++)
    if (label[i] != WM_LABEL_NONE)
      number[unit[i]] = 1;
  for (int64_t u = 0; u < n_units; u++)
    if (number[u] != 0)
      number[u] = (int32_t)(*occupied)++;
  for (int64_t i = 0; i < n; i++)
    if (label[i] != WM_LABEL_NONE) {
      known = known && !isnan(score[i]);
      out[(*used)++] = (position_t){score[i], number[unit[i]], label[i] == 1};
    }
  if (known)
    qsort(out, (size_t)*used, sizeof *out, by_score);
  return known;
}

/* AUC with position i counted drawn[unit] times: for each one, the zeros below it and half of those
 * that tie with it. Counts are whole numbers: exact. */
static double weighted_auc(const position_t *p, int64_t n, const int32_t *drawn) {
  double below = 0, ones = 0, pairs = 0;
  for (int64_t begin = 0, end; begin < n; begin = end) {
    double one = 0, zero = 0;
    for (end = begin; end < n && p[end].score == p[begin].score; end++) {
      const double times = drawn[p[end].unit];
      one += p[end].one ? times : 0;
      zero += p[end].one ? 0 : times;
    }
    pairs += one * (below + zero / 2);
    below += zero;
    ones += one;
  }
  return ones > 0 && below > 0 ? pairs / (ones * below) : NAN;
}

/* auc[r] for resamples [begin, end). */
static wm_status_t resample(const position_t *p, int64_t n, int64_t occupied,
                            const wm_bootstrap_t *b, int64_t begin, int64_t end, double *auc,
                            wm_error_t *err) {
  void *memory;
  wm_status_t status =
      wm_alloc(&memory, omp_get_max_threads() * occupied, sizeof(int32_t), "bootstrap draws", err);
  if (status != WM_OK)
    return status;
#pragma omp parallel for schedule(static)
  for (int64_t r = begin; r < end; r++) {
    int32_t *drawn = (int32_t *)memory + omp_get_thread_num() * occupied;
    const wm_rng_t rng = {.seed = b->seed, .stream = (uint64_t)r};
    wm_pulse();
    memset(drawn, 0, (size_t)occupied * sizeof *drawn);
    for (int64_t j = 0; j < occupied; j++)
      drawn[wm_rng_below(rng, (uint64_t)j, (uint64_t)occupied)]++;
    auc[r] = weighted_auc(p, n, drawn);
  }
  free(memory);
  return WM_OK;
}

wm_status_t wm_auc_interval(MPI_Comm comm, const double *score, const int8_t *label,
                            const int32_t *unit, int64_t n, int64_t n_units,
                            const wm_bootstrap_t *b, double *low, double *high, wm_error_t *err) {
  void *number = NULL, *positions = NULL, *auc = NULL;
  int64_t used, occupied, first, count;
  int rank, size;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  *low = *high = NAN;
  wm_status_t status = wm_alloc(&number, n_units, sizeof(int32_t), "bootstrap units", err);
  if (status == WM_OK)
    status = wm_alloc(&positions, n, sizeof(position_t), "scores in order", err);
  if (status == WM_OK)
    status = wm_alloc(&auc, b->resamples, sizeof(double), "bootstrap", err);
  WM_TRY(wm_agree(comm, status, err));
  if (!sort_positions(score, label, unit, n, n_units, number, positions, &used, &occupied) ||
      occupied < 2)
    goto cleanup; /* on every rank */
  wm_partition(b->resamples, size, rank, &first, &count);
  WM_TRY(
      wm_agree(comm, resample(positions, used, occupied, b, first, first + count, auc, err), err));
  wm_sum_f64(comm, auc, b->resamples);
  wm_bootstrap_bounds(b->interval, auc, b->resamples, occupied, b->confidence, low, high);
cleanup:
  free(number);
  free(positions);
  free(auc);
  return status;
}
