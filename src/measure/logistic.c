#include "wanamaker/measure/logistic.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/linalg/gram.h"
#include "wanamaker/linalg/spd.h"
#include "wanamaker/par/comm.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Vectors of all m = k + 1 unknowns have the intercept last. */
typedef struct {
  MPI_Comm comm;
  const wm_design_t *design;
  const int8_t *label;
  double C, total; /* total: rows of all ranks */
  int64_t m;
  int block;
  double *tile;     /* [WM_DESIGN_TILE, m]: [z, 1], later times sqrt(C p (1 - p)) */
  double *w, *step; /* [m] */
  double *margin;   /* [n] s of this rank's rows at w */
  double *change;   /* [n] what the whole step adds to each */
  double *gradient; /* [m], before the Hessian: one allreduce */
  double *hessian;  /* [m, m] (lower triangle) */
} newton_t;

/* --- sums over rows -----------------------------------------------------------------------------
 */

static double dot(const double *a, const double *b, int64_t n) {
  double s[4] = {0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int k = 0; k < 4; k++)
      s[k] += a[i + k] * b[i + k];
  for (; i < n; i++)
    s[0] += a[i] * b[i];
  return (s[0] + s[1]) + (s[2] + s[3]);
}

/* p, and e = exp(-|s|) of which p (1 - p) = e / (1 + e)^2 keeps all digits. */
static double probability(double s, double *e) {
  *e = exp(-fabs(s));
  return s >= 0 ? 1 / (1 + *e) : *e / (1 + *e);
}

/* Rows of [z, 1] from `first` into the tile; how many. */
static int64_t load_tile(const newton_t *t, int64_t first) {
  const int64_t left = t->design->n - first, m = t->m;
  const int64_t rows = left < WM_DESIGN_TILE ? left : WM_DESIGN_TILE;
  wm_pulse();
  wm_design_tile(t->design, first, rows, t->tile, m);
  for (int64_t i = 0; i < rows; i++)
    t->tile[i * m + m - 1] = 1;
  return rows;
}

/* Adds row i's share of the gradient and scales it for the Hessian's, if that is wanted. */
static void add_row(newton_t *t, int64_t i, double *row, bool scaled) {
  double e;
  const double error = t->C * (probability(t->margin[i], &e) - t->label[i]);
  const double root = scaled ? sqrt(t->C * e) / (1 + e) : 1;
  for (int64_t j = 0; j < t->m; j++) {
    t->gradient[j] += error * row[j];
    row[j] *= root;
  }
}

/* This rank's share. */
static wm_status_t add_rows(newton_t *t, bool with_hessian, wm_error_t *err) {
  const int64_t m = t->m;
  wm_status_t status = WM_OK;
  memset(t->gradient, 0, (size_t)(m + (with_hessian ? m * m : 0)) * sizeof *t->gradient);
  for (int64_t first = 0; first < t->design->n && status == WM_OK; first += WM_DESIGN_TILE) {
    const int64_t rows = load_tile(t, first);
    for (int64_t i = 0; i < rows; i++)
      add_row(t, first + i, t->tile + i * m, with_hessian);
    if (with_hessian)
      status = wm_gram_square(t->tile, rows, m, m, t->hessian, err);
  }
  return status;
}

/* Gradient at w and, if it is wanted, the Hessian, on every rank. Collective. */
static wm_status_t differentiate(newton_t *t, bool with_hessian, wm_error_t *err) {
  const int64_t m = t->m;
  wm_status_t status = wm_agree(t->comm, add_rows(t, with_hessian, err), err);
  if (status != WM_OK)
    return status;
  wm_sum_f64(t->comm, t->gradient, m + (with_hessian ? m * m : 0));
  wm_broadcast(t->comm, 0, t->gradient, m * (int64_t)sizeof *t->gradient); /* equal decisions */
  for (int64_t j = 0; j + 1 < m; j++) {
    t->gradient[j] += t->w[j];
    t->hessian[j * m + j] += with_hessian;
  }
  return WM_OK;
}

/* change <- what the step adds to every margin; returns the largest of all ranks. Collective. */
static double follow(newton_t *t) {
  const int64_t m = t->m;
  double most = 0;
  for (int64_t first = 0; first < t->design->n; first += WM_DESIGN_TILE) {
    const int64_t rows = load_tile(t, first);
    for (int64_t i = 0; i < rows; i++) {
      t->change[first + i] = dot(t->tile + i * m, t->step, m);
      most = fmax(most, fabs(t->change[first + i]));
    }
  }
  MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_DOUBLE, MPI_MAX, t->comm);
  return most;
}

/* dF(w + length step) / d length. Collective. */
static double slope(newton_t *t, double length) {
  double sum = 0, e;
  for (int64_t i = 0; i < t->design->n; i++)
    sum += (probability(t->margin[i] + length * t->change[i], &e) - t->label[i]) * t->change[i];
  wm_sum_f64(t->comm, &sum, 1);
  wm_broadcast(t->comm, 0, &sum, sizeof sum);
  return t->C * sum + dot(t->w, t->step, t->m - 1) + length * dot(t->step, t->step, t->m - 1);
}

/* Sum of log-losses / rows. Collective. */
static double mean_loss(const newton_t *t) {
  double sum = 0;
  for (int64_t i = 0; i < t->design->n; i++) {
    const double s = t->margin[i];
    sum += (s > 0 ? s : 0) + log1p(exp(-fabs(s))) - t->label[i] * s;
  }
  wm_sum_f64(t->comm, &sum, 1);
  wm_broadcast(t->comm, 0, &sum, sizeof sum);
  return sum / t->total;
}

/* --- Newton's method ----------------------------------------------------------------------------
 */

static double largest(const double *x, int64_t n) {
  double most = 0;
  for (int64_t i = 0; i < n; i++)
    most = fabs(x[i]) > most ? fabs(x[i]) : most;
  return most;
}

/* The intercept alone at the log-odds of the labels. Collective. */
static void begin(newton_t *t) {
  int64_t counts[2] = {0, t->design->n};
  for (int64_t i = 0; i < t->design->n; i++)
    counts[0] += t->label[i];
  wm_sum_i64(t->comm, counts, 2);
  t->total = (double)counts[1];
  assert(counts[0] > 0 && counts[0] < counts[1]);
  t->w[t->m - 1] = log((double)counts[0] / (double)(counts[1] - counts[0]));
  for (int64_t i = 0; i < t->design->n; i++)
    t->margin[i] = t->w[t->m - 1];
}

/* A length at which F still falls, but no more than half as fast as where the step begins. The
 * slope of a convex F grows: such lengths are an interval, between those where it is too low and
 * those where it is above 0. Aims at its far end, in turn by a secant and by halves. No trial looks
 * at the features. Collective. */
static double find_length(newton_t *t, double decrement2) {
  enum { TRIALS = 60 };
  double low = 0, high = INFINITY, at_low = -decrement2, at_high = 0, length = 1;
  for (int i = 0; i < TRIALS; i++) {
    const double s = slope(t, length);
    if (s <= 0 && s >= -decrement2 / 2)
      return length;
    *(s > 0 ? &high : &low) = length;
    *(s > 0 ? &at_high : &at_low) = s;
    const double secant = (-decrement2 / 64 - at_low) / (at_high - at_low);
    if (isinf(high))
      length *= 2;
    else
      length = low + (high - low) * (i % 2 == 0 ? fmin(fmax(secant, 0.05), 0.99) : 0.5);
  }
  return low; /* F falls up to there, too */
}

/* w and its margins, a step of some length further. */
static void move(newton_t *t, double length) {
  for (int64_t j = 0; j < t->m; j++)
    t->w[j] += length * t->step[j];
  for (int64_t i = 0; i < t->design->n; i++)
    t->margin[i] += length * t->change[i];
}

/* t->step; *decrement2: its square in the Hessian's norm. Collective. */
static wm_status_t find_step(newton_t *t, double *decrement2, wm_error_t *err) {
  for (int64_t j = 0; j < t->m; j++)
    t->step[j] = -t->gradient[j];
  wm_status_t status = wm_spd_solve(t->comm, t->block, t->m, t->hessian, t->step, t->step, err);
  *decrement2 = fmax(0, -dot(t->gradient, t->step, t->m));
  return status == WM_OK ? status : wm_error_prefix(err, "Hessian of a logistic regression");
}

static wm_status_t minimise(newton_t *t, wm_logistic_t *out, wm_error_t *err) {
  enum { KEPT_STEPS = 3 };
  const double near = 0.5, relative = 1e-9, absolute = 1e-12;
  double drift = 0, decrement2;
  bool keep = false;
  begin(t);
  for (int64_t i = 1; i <= WM_LOGISTIC_ITERATIONS; i++) {
    wm_status_t status = differentiate(t, !keep, err);
    if (status == WM_OK)
      status = find_step(t, &decrement2, err);
    if (status != WM_OK)
      return status;
    const double most = follow(t), length = most <= near ? 1 : find_length(t, decrement2);
    move(t, length);
    drift = (keep ? drift : 0) + length * most;
    out->iterations = i;
    out->hessians += !keep;
    out->left = expm1(drift) * sqrt(decrement2);
    const double goal = fmax(relative * largest(t->w, t->m), absolute);
    if (most <= near && out->left <= goal) {
      out->loss = mean_loss(t);
      return WM_OK;
    }
    keep = most <= near && out->left * pow(expm1(drift), KEPT_STEPS) <= goal;
  }
  return wm_fail(err, WM_NUMERICAL, "logistic regression: not converged after %d iterations",
                 WM_LOGISTIC_ITERATIONS);
}

int64_t wm_logistic_bytes(int64_t rows, int64_t k) {
  const int64_t m = k + 1;
  return (m * m + (WM_DESIGN_TILE + 3) * m + 2 * rows) * (int64_t)sizeof(double);
}

wm_status_t wm_logistic_fit(MPI_Comm comm, const wm_design_t *design, const int8_t *label, double C,
                            int block, double *coefficient, double *intercept, wm_logistic_t *out,
                            wm_error_t *err) {
  const int64_t n = design->n, m = design->k + 1;
  void *memory;
  *out = (wm_logistic_t){0};
  wm_status_t status = wm_alloc(&memory, wm_logistic_bytes(n, design->k) / (int64_t)sizeof(double),
                                sizeof(double), "a logistic regression", err);
  WM_TRY(wm_agree(comm, status, err));
  newton_t t = {.comm = comm, .design = design, .label = label, .C = C, .m = m, .block = block};
  t.tile = memory;
  t.w = t.tile + WM_DESIGN_TILE * m;
  t.step = t.w + m;
  t.margin = t.step + m;
  t.change = t.margin + n;
  t.gradient = t.change + n;
  t.hessian = t.gradient + m;
  WM_TRY(minimise(&t, out, err));
  memcpy(coefficient, t.w, (size_t)(m - 1) * sizeof *coefficient);
  *intercept = t.w[m - 1];
cleanup:
  free(memory);
  return status;
}
