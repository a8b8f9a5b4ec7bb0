#include "wanamaker/measure/unit_moments.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/measure/inference.h"
#include "wanamaker/par/comm.h"

#include <float.h>
#include <math.h>

static void add(wm_moments_t *to, const wm_moments_t *m) {
  to->n += m->n;
  to->x += m->x;
  to->y += m->y;
  to->xx += m->xx;
  to->yy += m->yy;
  to->xy += m->xy;
}

double wm_moments_statistic(const wm_moments_t *m, wm_moment_kind_t kind) {
  if (!(m->n > 0))
    return NAN;
  const double xx = m->xx - m->x * m->x / m->n, yy = m->yy - m->y * m->y / m->n;
  const double noise = 64 * DBL_EPSILON;
  if (kind == WM_MOMENT_MEAN)
    return m->y / m->n;
  if (!(yy > noise * m->yy) || m->n < 2)
    return NAN;
  if (kind == WM_MOMENT_R2)
    return 1 - (m->yy - 2 * m->xy + m->xx) / yy;
  if (!(xx > noise * m->xx))
    return NAN;
  return (m->xy - m->x * m->y / m->n) / sqrt(xx * yy);
}

/* Means of the pairs that are used: moments are taken about them, so that little cancels. An R^2
 * needs x and y about the same number. */
static void find_means(wm_moment_kind_t kind, const double *x, const double *y, const uint8_t *used,
                       int64_t n, wm_unit_statistic_t *out) {
  double count = 0, sum_x = 0, sum_y = 0;
  for (int64_t i = 0; i < n; i++)
    if (used == NULL || used[i]) {
      count++;
      sum_x += x[i];
      sum_y += y[i];
    }
  out->mean_x = count > 0 ? sum_x / count : NAN;
  out->mean_y = count > 0 ? sum_y / count : NAN;
  if (kind == WM_MOMENT_R2)
    out->mean_x = out->mean_y;
}

static void add_pair(wm_moments_t *m, double x, double y) {
  const wm_moments_t one = {1, x, y, x * x, y * y, x * y};
  add(m, &one);
}

/* Moments of the units that hold pairs, one behind the other; their number. */
static int64_t sum_units(const double *x, const double *y, const uint8_t *used, const int32_t *unit,
                         int64_t n, int64_t n_units, const wm_unit_statistic_t *at,
                         wm_moments_t *units) {
  int64_t occupied = 0;
  for (int64_t i = 0; i < n; i++)
    if (used == NULL || used[i])
      add_pair(&units[unit[i]], x[i] - at->mean_x, y[i] - at->mean_y);
  for (int64_t u = 0; u < n_units; u++)
    if (units[u].n > 0)
      units[occupied++] = units[u];
  return occupied;
}

static double draw(const wm_moments_t *units, int64_t n, wm_moment_kind_t kind, uint64_t seed,
                   int64_t resample) {
  const wm_rng_t rng = {seed, (uint64_t)resample};
  wm_moments_t sum = {0};
  for (int64_t j = 0; j < n; j++)
    add(&sum, &units[wm_rng_below(rng, (uint64_t)j, (uint64_t)n)]);
  return wm_moments_statistic(&sum, kind);
}

wm_status_t wm_unit_statistic(MPI_Comm comm, wm_moment_kind_t kind, const double *x,
                              const double *y, const uint8_t *used, const int32_t *unit, int64_t n,
                              int64_t n_units, const wm_bootstrap_t *b, wm_unit_statistic_t *out,
                              wm_error_t *err) {
  void *memory = NULL, *resamples = NULL;
  int64_t first, count;
  int rank, size;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  *out = (wm_unit_statistic_t){.low = NAN, .high = NAN};
  wm_status_t status = wm_alloc(&memory, n_units, sizeof(wm_moments_t), "moments of units", err);
  if (status == WM_OK)
    status = wm_alloc(&resamples, b->resamples, sizeof(double), "bootstrap", err);
  WM_TRY(wm_agree(comm, status, err));
  find_means(kind, x, y, used, n, out);
  wm_moments_t *units = memory;
  const int64_t occupied = sum_units(x, y, used, unit, n, n_units, out, units);
  for (int64_t u = 0; u < occupied; u++)
    add(&out->all, &units[u]);
  const double shift = kind == WM_MOMENT_MEAN ? out->mean_y : 0;
  out->value = wm_moments_statistic(&out->all, kind) + shift;
  if (occupied < 2 || b->resamples == 0)
    goto cleanup; /* on every rank */
  wm_partition(b->resamples, size, rank, &first, &count);
  double *value = resamples;
#pragma omp parallel for schedule(static)
  for (int64_t r = first; r < first + count; r++)
    value[r] = draw(units, occupied, kind, b->seed, r) + shift;
  wm_pulse();
  wm_sum_f64(comm, value, b->resamples);
  wm_bootstrap_bounds(b->interval, value, b->resamples, occupied, b->confidence, &out->low,
                      &out->high);
cleanup:
  free(memory);
  free(resamples);
  return status;
}
