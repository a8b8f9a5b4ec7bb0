/* The whole lambda path from one eigendecomposition xx = Q diag(e) Q' (ridge.h).
 *
 * With G = Q' xy and d_i = 1 / (e_i + lambda), W = Q diag(d) G, so
 *   |W|^2   = sum_i d_i^2 |G_i|^2
 *   sse     = sum_j yy_j - 2 tr(W' xy) + tr(W' xx W) = sum_j yy_j - sum_i |G_i|^2 d_i (2 - e_i d_i)
 * and on held-out rows (their moments marked h; u = Q' (mean_h x - mean x), s = mean y - mean_h y):
 *   sse_h   = sum_j yyh_j - 2 tr(W' xyh) + tr(W' xxh W) + n_h |W' (mean_h x - mean x) + s|^2
 *           = sum_j yyh_j + n_h |s|^2 + sum_i d_i l_i + sum_ik d_i d_k K_ik
 *   l_i     = -2 G_i . (Q' xyh)_i + 2 n_h u_i (G s)_i
 *   K       = (G G') o (Q' xxh Q + n_h u u')          (o: element by element)
 * so that a further lambda costs one pass over K.
 */
#include "wanamaker/linalg/ridge.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/linalg/blockcyclic.h"
#include "wanamaker/linalg/eigen.h"
#include "wanamaker/linalg/grid.h"
#include "wanamaker/par/comm.h"

#include <assert.h>
#include <math.h>
#include <string.h>

typedef struct {
  const wm_moments_t *fit, *heldout; /* heldout may be NULL */
  wm_grid_t grid;
  int block;
  wm_blockcyclic_t q, g; /* Q: [dx, dx], G: [dx, dy] */
  wm_blockcyclic_t k;    /* K: [dx, dx] */
  double *values;        /* e: [dx], borrowed */
  double *g_squares;     /* |G_i|^2: [dx] */
  double *linear;        /* l: [dx] */
  double constant;       /* sum_j yyh_j + n_h |s|^2 */
  double *scales;        /* d for one lambda: [dx] */
} path_t;

static wm_status_t new_matrix(const path_t *p, wm_blockcyclic_t *m, int64_t cols, wm_error_t *err) {
  return wm_blockcyclic_init(m, &p->grid, p->fit->dx, cols, p->block, "a matrix of a ridge path",
                             err);
}

static wm_status_t new_vector(double **out, int64_t n, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, n, sizeof(double), "a vector of a ridge path", err);
  *out = memory;
  return status;
}

static wm_status_t reserve(path_t *p, wm_error_t *err) {
  const int64_t n = p->fit->dx;
  wm_status_t status;
  WM_TRY(new_matrix(p, &p->q, n, err));
  WM_TRY(new_matrix(p, &p->g, p->fit->dy, err));
  WM_TRY(new_vector(&p->g_squares, n, err));
  WM_TRY(new_vector(&p->linear, n, err));
  WM_TRY(new_vector(&p->scales, n, err));
  if (p->heldout != NULL)
    WM_TRY(new_matrix(p, &p->k, n, err));
cleanup:
  return status;
}

static void release(path_t *p) {
  wm_blockcyclic_destroy(&p->q);
  wm_blockcyclic_destroy(&p->g);
  wm_blockcyclic_destroy(&p->k);
  free(p->g_squares);
  free(p->linear);
  free(p->scales);
  wm_grid_destroy(&p->grid);
}

/* G = Q' xy, and its rows' squares. Collective. */
static wm_status_t project(path_t *p, wm_error_t *err) {
  wm_blockcyclic_t xy = {0};
  wm_status_t status = wm_agree(p->grid.comm, new_matrix(p, &xy, p->fit->dy, err), err);
  if (status == WM_OK) {
    wm_blockcyclic_fill(&xy, p->fit->xy);
    wm_blockcyclic_multiply('T', 'N', 1, &p->q, &xy, 0, &p->g);
    wm_blockcyclic_row_dots(&p->g, &p->g, p->g_squares);
  }
  wm_blockcyclic_destroy(&xy);
  return status;
}

/* out = m' v for a whole vector v (transposed), or m v. Collective over the grid's communicator. */
static void matrix_vector(const wm_blockcyclic_t *m, bool transposed, const double *v,
                          double *out) {
  const int64_t n = transposed ? m->cols : m->rows;
  memset(out, 0, (size_t)n * sizeof *out);
  for (int c = 0; c < m->local_cols; c++)
    for (int r = 0; r < m->local_rows; r++) {
      int row = wm_blockcyclic_row(m, r), col = wm_blockcyclic_col(m, c);
      out[transposed ? col : row] += *wm_blockcyclic_at(m, r, c) * v[transposed ? row : col];
    }
  wm_sum_f64(m->grid->comm, out, n);
}

/* The terms that the difference of the means adds: to l, K (which holds Q' xxh Q) and the
 * constant. x_step, u, gs: [dx], y_step: [dy], scratch. Collective. */
static void add_means(path_t *p, double *x_step, double *y_step, double *u, double *gs) {
  const wm_moments_t *fit = p->fit, *h = p->heldout;
  const int64_t dx = p->grid.member ? fit->dx : 0, dy = p->grid.member ? fit->dy : 0;
  for (int64_t i = 0; i < dx; i++)
    x_step[i] = h->x_sum[i] - fit->x_sum[i];
  for (int64_t j = 0; j < dy; j++) {
    y_step[j] = fit->y_sum[j] - h->y_sum[j];
    p->constant += h->yy[j] + h->count * y_step[j] * y_step[j];
  }
  matrix_vector(&p->q, true, x_step, u);
  matrix_vector(&p->g, false, y_step, gs);
  for (int64_t i = 0; i < dx; i++)
    p->linear[i] += 2 * h->count * u[i] * gs[i];
  for (int c = 0; c < p->k.local_cols; c++)
    for (int r = 0; r < p->k.local_rows; r++)
      *wm_blockcyclic_at(&p->k, r, c) +=
          h->count * u[wm_blockcyclic_row(&p->k, r)] * u[wm_blockcyclic_col(&p->k, c)];
}

/* k = (G G') o k. `gg` is scratch. */
static void multiply_by_gg(path_t *p, wm_blockcyclic_t *gg) {
  wm_blockcyclic_multiply('N', 'T', 1, &p->g, &p->g, 0, gg);
  for (int c = 0; c < gg->local_cols; c++)
    for (int r = 0; r < gg->local_rows; r++)
      *wm_blockcyclic_at(&p->k, r, c) *= *wm_blockcyclic_at(gg, r, c);
}

/* l, K and the constant from the held-out moments. Collective. */
static wm_status_t prepare_heldout(path_t *p, wm_error_t *err) {
  const int64_t dx = p->fit->dx, dy = p->fit->dy;
  wm_blockcyclic_t square = {0}, product = {0}, xy = {0}, projected = {0};
  double *vectors = NULL;
  wm_status_t status = new_matrix(p, &square, dx, err);
  if (status == WM_OK)
    status = new_matrix(p, &product, dx, err);
  if (status == WM_OK)
    status = new_matrix(p, &xy, dy, err);
  if (status == WM_OK)
    status = new_matrix(p, &projected, dy, err);
  if (status == WM_OK)
    status = new_vector(&vectors, 3 * dx + dy, err);
  WM_TRY(wm_agree(p->grid.comm, status, err));
  wm_blockcyclic_fill(&xy, p->heldout->xy);
  wm_blockcyclic_multiply('T', 'N', -2, &p->q, &xy, 0, &projected);
  wm_blockcyclic_row_dots(&p->g, &projected, p->linear);
  wm_blockcyclic_fill(&square, p->heldout->xx);
  wm_blockcyclic_multiply('N', 'N', 1, &square, &p->q, 0, &product);
  wm_blockcyclic_multiply('T', 'N', 1, &p->q, &product, 0, &p->k);
  add_means(p, vectors, vectors + 3 * dx, vectors + dx, vectors + 2 * dx);
  multiply_by_gg(p, &square);
cleanup:
  wm_blockcyclic_destroy(&square);
  wm_blockcyclic_destroy(&product);
  wm_blockcyclic_destroy(&xy);
  wm_blockcyclic_destroy(&projected);
  free(vectors);
  return status;
}

/* d for one lambda. The same on every rank. */
static wm_status_t set_scales(path_t *p, double lambda, wm_error_t *err) {
  for (int64_t i = 0; i < p->fit->dx; i++) {
    double shifted = p->values[i] + lambda;
    if (!(shifted > 0))
      return wm_fail(err, WM_NUMERICAL,
                     "ridge path: lambda %g leaves eigenvalue %lld of xx + lambda I at %g", lambda,
                     (long long)i, shifted);
    p->scales[i] = 1 / shifted;
  }
  return WM_OK;
}

/* Not collective; for members, who see the moments. */
static void fit_figures(const path_t *p, double *sse, double *norm) {
  double error = 0, squares = 0;
  for (int64_t j = 0; j < p->fit->dy; j++)
    error += p->fit->yy[j];
  for (int64_t i = 0; i < p->fit->dx; i++) {
    double d = p->scales[i];
    error -= p->g_squares[i] * d * (2 - p->values[i] * d);
    squares += d * d * p->g_squares[i];
  }
  *sse = error;
  *norm = sqrt(squares);
}

/* Collective over the grid's communicator. */
static double heldout_figure(const path_t *p) {
  double quadratic = 0;
  for (int c = 0; c < p->k.local_cols; c++) {
    double d = p->scales[wm_blockcyclic_col(&p->k, c)];
    for (int r = 0; r < p->k.local_rows; r++)
      quadratic += d * p->scales[wm_blockcyclic_row(&p->k, r)] * *wm_blockcyclic_at(&p->k, r, c);
  }
  wm_sum_f64(p->grid.comm, &quadratic, 1);
  double sum = p->constant + quadratic;
  for (int64_t i = 0; i < p->fit->dx; i++)
    sum += p->scales[i] * p->linear[i];
  return sum;
}

/* Ranks outside the grid need not see the moments: all get the figures of rank 0. */
static void share_figures(MPI_Comm comm, double *figures, int count) {
  wm_broadcast(comm, 0, figures, (int64_t)count * (int64_t)sizeof *figures);
}

wm_status_t wm_ridge_path(MPI_Comm comm, int prows, int pcols, int block, const wm_moments_t *m,
                          const wm_moments_t *heldout, const double *lambdas, int n_lambdas,
                          double *eigenvalues, double *sse_fit, double *sse_heldout, double *norms,
                          wm_error_t *err) {
  assert(heldout == NULL || (heldout->dx == m->dx && heldout->dy == m->dy));
  path_t p = {.fit = m, .heldout = heldout, .block = block, .values = eigenvalues};
  wm_status_t status;
  WM_TRY(wm_grid_init(&p.grid, comm, prows, pcols, err));
  WM_TRY(wm_agree(comm, reserve(&p, err), err));
  WM_TRY(wm_eigen_symmetric(m->xx, &p.q, eigenvalues, err));
  WM_TRY(project(&p, err));
  if (heldout != NULL)
    WM_TRY(prepare_heldout(&p, err));
  for (int i = 0; i < n_lambdas; i++) {
    WM_TRY(set_scales(&p, lambdas[i], err));
    if (p.grid.member)
      fit_figures(&p, &sse_fit[i], &norms[i]);
    if (heldout != NULL)
      sse_heldout[i] = heldout_figure(&p);
  }
  share_figures(comm, sse_fit, n_lambdas);
  share_figures(comm, norms, n_lambdas);
  if (heldout != NULL)
    share_figures(comm, sse_heldout, n_lambdas);
cleanup:
  release(&p);
  return status;
}
