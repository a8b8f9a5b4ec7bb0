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

bool wm_auc_is_paired(int64_t positions, int64_t units) {
  return units <= positions / units;
}

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

/* The same counts by pairs of units, so that a resample costs units^2 steps instead of positions.
 */
typedef struct {
  int64_t units;
  double *ones, *zeros; /* [units] positions */
  double *pairs; /* [units, units] twice the zeros of the second below the ones of the first */
} pairs_t;

static void pairs_destroy(pairs_t *q) {
  free(q->ones);
  *q = (pairs_t){0};
}

static wm_status_t count_pairs(const position_t *p, int64_t n, int64_t units, pairs_t *q,
                               wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, units * (units + 2), sizeof(double), "pairs", err);
  if (status != WM_OK)
    return status;
  *q = (pairs_t){units, memory, (double *)memory + units, (double *)memory + 2 * units};
  for (int64_t begin = 0, end; begin < n; begin = end) {
    for (end = begin; end < n && p[end].score == p[begin].score; end++)
      q->zeros[p[end].unit] += p[end].one ? 0 : 0.5; /* of the ties, half lie below */
    for (int64_t i = begin; i < end; i++) {
      if (!p[i].one)
        continue;
      q->ones[p[i].unit]++;
      for (int64_t u = 0; u < units; u++)
        q->pairs[p[i].unit * units + u] += 2 * q->zeros[u];
    }
    for (int64_t i = begin; i < end; i++)
      q->zeros[p[i].unit] += p[i].one ? 0 : 0.5;
  }
  return WM_OK;
}

/* weighted_auc of the same positions, to the last bit: the counts are the same whole numbers. */
static double paired_auc(const pairs_t *q, const int32_t *drawn) {
  double ones = 0, zeros = 0, pairs = 0;
  for (int64_t a = 0; a < q->units; a++) {
    const double *row = q->pairs + a * q->units;
    double below = 0;
    ones += drawn[a] * q->ones[a];
    zeros += drawn[a] * q->zeros[a];
    for (int64_t u = 0; u < q->units && drawn[a] > 0; u++)
      below += drawn[u] * row[u];
    pairs += drawn[a] * below;
  }
  return ones > 0 && zeros > 0 ? pairs / 2 / (ones * zeros) : NAN;
}

/* auc[r] for resamples [begin, end). */
static wm_status_t resample(const position_t *p, int64_t n, int64_t occupied,
                            const wm_bootstrap_t *b, int64_t begin, int64_t end, double *auc,
                            wm_error_t *err) {
  const bool paired = wm_auc_is_paired(n, occupied);
  pairs_t q = {0};
  void *memory;
  wm_status_t status;
  WM_TRY(
      wm_alloc(&memory, omp_get_max_threads() * occupied, sizeof(int32_t), "bootstrap draws", err));
  if (paired)
    WM_TRY(count_pairs(p, n, occupied, &q, err));
#pragma omp parallel for schedule(static)
  for (int64_t r = begin; r < end; r++) {
    int32_t *drawn = (int32_t *)memory + omp_get_thread_num() * occupied;
    const wm_rng_t rng = {.seed = b->seed, .stream = (uint64_t)r};
    wm_pulse();
    memset(drawn, 0, (size_t)occupied * sizeof *drawn);
    for (int64_t j = 0; j < occupied; j++)
      drawn[wm_rng_below(rng, (uint64_t)j, (uint64_t)occupied)]++;
    auc[r] = paired ? paired_auc(&q, drawn) : weighted_auc(p, n, drawn);
  }
cleanup:
  pairs_destroy(&q);
  free(memory);
  return status;
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
