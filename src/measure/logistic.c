#include "wanamaker/measure/logistic.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/linalg/gram.h"
#include "wanamaker/linalg/spd.h"
#include "wanamaker/par/comm.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

/* Vectors of all m = k + 1 unknowns have the intercept last. */
typedef struct {
  MPI_Comm comm;
  const wm_design_t *design;
  const int8_t *label;
  double C, total; /* total: rows of all ranks */
  int64_t m;
  double *tile;   /* [WM_DESIGN_TILE, m]: [z, 1], later times sqrt(p (1 - p)) */
  double *w;      /* [m] where the sums below were taken */
  double *sums;   /* gradient [m], log-loss, Hessian [m, m] (lower triangle): one allreduce */
  double *step;   /* [m] */
  double *origin; /* [m] from which the step goes */
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

/* Adds a row's share of gradient and loss and scales it for the Hessian's. */
static void add_row(const newton_t *t, double *row, double y, double *gradient, double *loss) {
  const double s = dot(row, t->w, t->m), e = exp(-fabs(s));
  const double p = s >= 0 ? 1 / (1 + e) : e / (1 + e);
  const double root = sqrt(t->C * e) / (1 + e); /* of C p (1 - p) */
  *loss += (s > 0 ? s : 0) + log1p(e) - y * s;
  for (int64_t j = 0; j < t->m; j++) {
    gradient[j] += t->C * (p - y) * row[j];
    row[j] *= root;
  }
}

/* This rank's share. */
static wm_status_t add_rows(newton_t *t, wm_error_t *err) {
  const int64_t n = t->design->n, m = t->m;
  double *gradient = t->sums, *loss = t->sums + m, *hessian = t->sums + m + 1;
  wm_status_t status = WM_OK;
  memset(t->sums, 0, (size_t)(m + 1 + m * m) * sizeof *t->sums);
  for (int64_t first = 0; first < n && status == WM_OK; first += WM_DESIGN_TILE) {
    const int64_t rows = n - first < WM_DESIGN_TILE ? n - first : WM_DESIGN_TILE;
    wm_pulse();
    wm_design_tile(t->design, first, rows, t->tile, m);
    for (int64_t i = 0; i < rows; i++) {
      t->tile[i * m + m - 1] = 1;
      add_row(t, t->tile + i * m, t->label[first + i], gradient, loss);
    }
    status = wm_gram_square(t->tile, rows, m, m, hessian, err);
  }
  return status;
}

/* Gradient, Hessian, log-loss and *objective at t->w, on every rank. Collective. */
static wm_status_t evaluate(newton_t *t, double *objective, wm_error_t *err) {
  const int64_t m = t->m;
  double *hessian = t->sums + m + 1, squares = 0;
  wm_status_t status = wm_agree(t->comm, add_rows(t, err), err);
  if (status != WM_OK)
    return status;
  wm_sum_f64(t->comm, t->sums, m + 1 + m * m);
  wm_broadcast(t->comm, 0, t->sums, (m + 1) * (int64_t)sizeof *t->sums); /* for equal decisions */
  for (int64_t j = 0; j + 1 < m; j++) {
    t->sums[j] += t->w[j];
    hessian[j * m + j] += 1;
    squares += t->w[j] * t->w[j];
  }
  *objective = t->C * t->sums[m] + squares / 2;
  return WM_OK;
}

/* --- Newton's method ----------------------------------------------------------------------------
 */

static double largest(const double *x, int64_t n) {
  double most = 0;
  for (int64_t i = 0; i < n; i++)
    most = fabs(x[i]) > most ? fabs(x[i]) : most;
  return most;
}

/* Log-odds of the labels; b there makes the gradient's last component 0. Collective. */
static double start_intercept(newton_t *t) {
  int64_t counts[2] = {0, t->design->n};
  for (int64_t i = 0; i < t->design->n; i++)
    counts[0] += t->label[i];
  wm_sum_i64(t->comm, counts, 2);
  t->total = (double)counts[1];
  assert(counts[0] > 0 && counts[0] < counts[1]);
  return log((double)counts[0] / (double)(counts[1] - counts[0]));
}

/* From sums at t->w to sums at a point where F is lower. *damped: not by the whole step.
 * Collective.
 */
static wm_status_t take_step(newton_t *t, double *objective, bool *damped, wm_error_t *err) {
  enum { HALVINGS = 40 };
  const double before = *objective, promised = dot(t->sums, t->step, t->m);
  const double rounding = 64 * DBL_EPSILON * fabs(before);
  double length = 1;
  memcpy(t->origin, t->w, (size_t)t->m * sizeof *t->w);
  for (int i = 0; i < HALVINGS; i++, length /= 2) {
    for (int64_t j = 0; j < t->m; j++)
      t->w[j] = t->origin[j] + length * t->step[j];
    wm_status_t status = evaluate(t, objective, err);
    if (status != WM_OK)
      return status;
    *damped = i > 0;
    if (*objective <= before + 1e-4 * length * promised + rounding)
      return WM_OK;
  }
  return wm_fail(err, WM_NUMERICAL,
                 "logistic regression: no step along Newton's direction lowers the objective");
}

static wm_status_t minimise(newton_t *t, int block, wm_logistic_t *out, wm_error_t *err) {
  const double relative = 1e-9, absolute = 1e-12;
  double objective;
  bool damped = false;
  t->w[t->m - 1] = start_intercept(t);
  wm_status_t status = evaluate(t, &objective, err);
  for (int64_t i = 1; i <= WM_LOGISTIC_ITERATIONS && status == WM_OK; i++) {
    for (int64_t j = 0; j < t->m; j++)
      t->step[j] = -t->sums[j];
    out->gradient = largest(t->sums, t->m) / t->total;
    status = wm_spd_solve(t->comm, block, t->m, t->sums + t->m + 1, t->step, t->step, err);
    if (status != WM_OK)
      return wm_error_prefix(err, "Hessian of a logistic regression");
    status = take_step(t, &objective, &damped, err);
    out->iterations = i;
    out->step = largest(t->step, t->m);
    out->loss = t->sums[t->m] / t->total;
    if (!damped && out->step <= fmax(relative * largest(t->w, t->m), absolute))
      return status;
  }
  if (status != WM_OK)
    return status;
  return wm_fail(err, WM_NUMERICAL, "logistic regression: not converged after %d iterations",
                 WM_LOGISTIC_ITERATIONS);
}

int64_t wm_logistic_bytes(int64_t k) {
  const int64_t m = k + 1;
  return (m * m + m + 1 + (WM_DESIGN_TILE + 3) * m) * (int64_t)sizeof(double);
}

wm_status_t wm_logistic_fit(MPI_Comm comm, const wm_design_t *design, const int8_t *label, double C,
                            int block, double *coefficient, double *intercept, wm_logistic_t *out,
                            wm_error_t *err) {
  const int64_t m = design->k + 1;
  void *memory;
  *out = (wm_logistic_t){0};
  wm_status_t status = wm_alloc(&memory, wm_logistic_bytes(design->k) / (int64_t)sizeof(double),
                                sizeof(double), "a logistic regression", err);
  WM_TRY(wm_agree(comm, status, err));
  newton_t t = {.comm = comm, .design = design, .label = label, .C = C, .m = m, .tile = memory};
  t.w = t.tile + WM_DESIGN_TILE * m;
  t.step = t.w + m;
  t.origin = t.step + m;
  t.sums = t.origin + m;
  WM_TRY(minimise(&t, block, out, err));
  memcpy(coefficient, t.w, (size_t)(m - 1) * sizeof *coefficient);
  *intercept = t.w[m - 1];
cleanup:
  free(memory);
  return status;
}
