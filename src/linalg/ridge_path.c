/* The whole lambda path from one eigendecomposition xx = Q diag(e) Q' (ridge.h). With G = Q' xy and
 * d_i = 1 / (e_i + lambda):
 *
 *   |W|^2  = sum_i |G_i|^2 d_i^2
 *   SSE    = yy - sum_i |G_i|^2 (e_i + 2 lambda) d_i^2                            fit rows
 *   SSE'   = yy' - 2 sum_i d_i G_i . H_i + d' P d + count' |G' (d * q) + r|^2     held-out rows
 *            H = Q' xy',  P = (Q' xx' Q) * (G G') element by element,
 *            q = Q' (mean_x' - mean_x),  r = mean_y - mean_y'
 *
 * so that after four distributed products each lambda costs sums over local elements only.
 */
#include "scalapack.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/linalg/grid.h"
#include "wanamaker/linalg/ridge.h"
#include "wanamaker/par/comm.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

/* A residual beyond this many times n * eps * |xx|_F means wrong eigenvectors (rule 11); a backward
 * stable solver stays below 10. */
static const double RESIDUAL_FACTOR = 100;

typedef struct {
  MPI_Comm comm;
  wm_grid_t grid;
  int block;
  const wm_moments_t *m, *held;
  wm_dmatrix_t xx, xy, q, g, work; /* work: [n, n] scratch */
  wm_dmatrix_t h, p;               /* held-out only */
  double *e;                       /* [n] eigenvalues, on every rank */
  double *norms;                   /* [n] |G_i|^2 */
  double *cross;                   /* [n] G_i . H_i */
  double *shift;                   /* [n] q */
} path_t;

/* C = op(A) op(B), whole matrices; members only. */
static void multiply(const char *trans_a, const char *trans_b, const wm_dmatrix_t *a,
                     const wm_dmatrix_t *b, wm_dmatrix_t *c) {
  const int one = 1;
  const double alpha = 1, beta = 0;
  int k = *trans_a == 'N' ? a->n : a->m;
  pdgemm_(trans_a, trans_b, &c->m, &c->n, &k, &alpha, a->data, &one, &one, a->descriptor, b->data,
          &one, &one, b->descriptor, &beta, c->data, &one, &one, c->descriptor);
}

static wm_status_t allocate(path_t *s, wm_error_t *err) {
  const int64_t n = s->m->dx, dy = s->m->dy;
  wm_status_t status;
  void *memory;
  WM_TRY(wm_alloc(&memory, n, sizeof(double), "a spectrum", err));
  s->norms = memory;
  WM_TRY(wm_alloc(&memory, n, sizeof(double), "a spectrum", err));
  s->cross = memory;
  WM_TRY(wm_alloc(&memory, n, sizeof(double), "a spectrum", err));
  s->shift = memory;
  if (!s->grid.member)
    return WM_OK;
  WM_TRY(wm_dmatrix_create(&s->grid, n, n, s->block, &s->xx, err));
  WM_TRY(wm_dmatrix_create(&s->grid, n, n, s->block, &s->q, err));
  WM_TRY(wm_dmatrix_create(&s->grid, n, n, s->block, &s->work, err));
  WM_TRY(wm_dmatrix_create(&s->grid, n, dy, s->block, &s->xy, err));
  WM_TRY(wm_dmatrix_create(&s->grid, n, dy, s->block, &s->g, err));
  if (s->held != NULL) {
    WM_TRY(wm_dmatrix_create(&s->grid, n, dy, s->block, &s->h, err));
    WM_TRY(wm_dmatrix_create(&s->grid, n, n, s->block, &s->p, err));
  }
cleanup:
  return status;
}

static void path_destroy(path_t *s) {
  wm_dmatrix_destroy(&s->xx);
  wm_dmatrix_destroy(&s->xy);
  wm_dmatrix_destroy(&s->q);
  wm_dmatrix_destroy(&s->work);
  wm_dmatrix_destroy(&s->g);
  wm_dmatrix_destroy(&s->h);
  wm_dmatrix_destroy(&s->p);
  free(s->norms);
  free(s->cross);
  free(s->shift);
  wm_grid_destroy(&s->grid);
}

/* Elements of workspace that pdsyev asks for; members only. */
static int workspace_size(path_t *s) {
  const int one = 1, query = -1;
  double size;
  int info;
  pdsyev_("V", "L", &s->xx.n, s->work.data, &one, &one, s->work.descriptor, s->e, s->q.data, &one,
          &one, s->q.descriptor, &size, &query, &info);
  assert(info == 0 && size < 2e9);
  return (int)size + 1;
}

/* Members: s->q and s->e from s->xx. */
static wm_status_t decompose(path_t *s, double *workspace, int size, wm_error_t *err) {
  const int one = 1;
  int info;
  wm_dmatrix_fill(&s->xx, s->m->xx);
  wm_dmatrix_fill(&s->work, s->m->xx);
  pdsyev_("V", "L", &s->xx.n, s->work.data, &one, &one, s->work.descriptor, s->e, s->q.data, &one,
          &one, s->q.descriptor, workspace, &size, &info);
  if (info != 0)
    return wm_fail(err, WM_NUMERICAL, "pdsyev: %d eigenvalues of a Gram matrix did not converge",
                   info);
  return WM_OK;
}

static double element(const wm_dmatrix_t *a, int i, int j) {
  return a->data[(int64_t)j * a->local_m + i];
}

/* Collective: |xx Q - Q diag(e)|_F against n eps |xx|_F. */
static wm_status_t check_residual(path_t *s, wm_error_t *err) {
  double sums[2] = {0, 0};
  if (s->grid.member) {
    multiply("N", "N", &s->xx, &s->q, &s->work);
    for (int j = 0; j < s->q.local_n; j++)
      for (int i = 0; i < s->q.local_m; i++) {
        double r =
            element(&s->work, i, j) - element(&s->q, i, j) * s->e[wm_dmatrix_column(&s->q, j)];
        sums[0] += r * r;
        sums[1] += element(&s->xx, i, j) * element(&s->xx, i, j);
      }
  }
  wm_sum_f64(s->comm, sums, 2);
  double bound = RESIDUAL_FACTOR * (double)s->m->dx * DBL_EPSILON * sqrt(sums[1]);
  if (!(sqrt(sums[0]) <= bound))
    return wm_fail(
        err, WM_NUMERICAL,
        "pdsyev: the eigenvectors of a Gram matrix are wrong (residual %.3g, bound %.3g)",
        sqrt(sums[0]), bound);
  return WM_OK;
}

/* out[i] = sum over columns j of a_ij b_ij, on every rank. Collective. */
static void row_products(path_t *s, const wm_dmatrix_t *a, const wm_dmatrix_t *b, double *out) {
  memset(out, 0, (size_t)s->m->dx * sizeof *out);
  if (s->grid.member)
    for (int j = 0; j < a->local_n; j++)
      for (int i = 0; i < a->local_m; i++)
        out[wm_dmatrix_row(a, i)] += element(a, i, j) * element(b, i, j);
  wm_sum_f64(s->comm, out, s->m->dx);
}

/* Collective. G, its row norms; for held-out rows H, P and q too. */
static void project(path_t *s) {
  if (s->grid.member) {
    wm_dmatrix_fill(&s->xy, s->m->xy);
    multiply("T", "N", &s->q, &s->xy, &s->g);
  }
  row_products(s, &s->g, &s->g, s->norms);
  if (s->held == NULL)
    return;
  if (s->grid.member) {
    wm_dmatrix_fill(&s->xy, s->held->xy);
    multiply("T", "N", &s->q, &s->xy, &s->h);
    wm_dmatrix_fill(&s->xx, s->held->xx);
    multiply("N", "N", &s->xx, &s->q, &s->work);
    multiply("T", "N", &s->q, &s->work, &s->p);
    multiply("N", "T", &s->g, &s->g, &s->work);
    for (int64_t k = 0; k < (int64_t)s->p.local_m * s->p.local_n; k++)
      s->p.data[k] *= s->work.data[k];
  }
  row_products(s, &s->g, &s->h, s->cross);
  memset(s->shift, 0, (size_t)s->m->dx * sizeof *s->shift);
  if (s->grid.member)
    for (int j = 0; j < s->q.local_n; j++)
      for (int i = 0; i < s->q.local_m; i++) {
        int row = wm_dmatrix_row(&s->q, i);
        s->shift[wm_dmatrix_column(&s->q, j)] +=
            element(&s->q, i, j) * (s->held->x_sum[row] - s->m->x_sum[row]);
      }
  wm_sum_f64(s->comm, s->shift, s->m->dx);
}

/* 1 / (e_i + lambda); 0 where that is not positive: the least-norm solution. */
static double inverse(const path_t *s, int64_t i, double lambda) {
  double sum = s->e[i] + lambda;
  return sum > 0 ? 1 / sum : 0;
}

/* d' P d on every rank. Collective. */
static double quadratic(path_t *s, double lambda) {
  double sum = 0;
  if (s->grid.member)
    for (int j = 0; j < s->p.local_n; j++)
      for (int i = 0; i < s->p.local_m; i++)
        sum += inverse(s, wm_dmatrix_row(&s->p, i), lambda) * element(&s->p, i, j) *
               inverse(s, wm_dmatrix_column(&s->p, j), lambda);
  wm_sum_f64(s->comm, &sum, 1);
  return sum;
}

/* |G' (d * q) + r|^2 on every rank; mean[dy] is scratch. Collective. */
static double mean_error(path_t *s, double lambda, double *mean) {
  double sum = 0;
  memset(mean, 0, (size_t)s->m->dy * sizeof *mean);
  if (s->grid.member)
    for (int j = 0; j < s->g.local_n; j++)
      for (int i = 0; i < s->g.local_m; i++) {
        int row = wm_dmatrix_row(&s->g, i);
        mean[wm_dmatrix_column(&s->g, j)] +=
            element(&s->g, i, j) * inverse(s, row, lambda) * s->shift[row];
      }
  wm_sum_f64(s->comm, mean, s->m->dy);
  for (int64_t j = 0; j < s->m->dy; j++) {
    double r = mean[j] + s->m->y_sum[j] - s->held->y_sum[j];
    sum += r * r;
  }
  return sum;
}

static double total(const wm_moments_t *m) {
  double sum = 0;
  for (int64_t j = 0; j < m->dy; j++)
    sum += m->yy[j];
  return sum;
}

/* Collective. One lambda of the path. */
static void evaluate(path_t *s, double lambda, double *mean, double *sse, double *sse_held,
                     double *norm) {
  double explained = 0, squares = 0, cross = 0;
  for (int64_t i = 0; i < s->m->dx; i++) {
    double d = inverse(s, i, lambda);
    squares += s->norms[i] * d * d;
    explained += s->norms[i] * (s->e[i] + 2 * lambda) * d * d;
    cross += s->held != NULL ? s->cross[i] * d : 0;
  }
  *sse = total(s->m) - explained;
  *norm = sqrt(squares);
  if (s->held != NULL)
    *sse_held = total(s->held) - 2 * cross + quadratic(s, lambda) +
                s->held->count * mean_error(s, lambda, mean);
}

wm_status_t wm_ridge_path(MPI_Comm comm, int prows, int pcols, int block, const wm_moments_t *m,
                          const wm_moments_t *heldout, const double *lambdas, int n_lambdas,
                          double *eigenvalues, double *sse_fit, double *sse_heldout, double *norms,
                          wm_error_t *err) {
  path_t s = {.comm = comm, .block = block, .m = m, .held = heldout, .e = eigenvalues};
  void *workspace = NULL, *mean = NULL;
  int size = 1;
  wm_grid_init(comm, prows, pcols, &s.grid);
  wm_status_t status = wm_agree(comm, allocate(&s, err), err);
  if (status == WM_OK && s.grid.member)
    size = workspace_size(&s);
  if (status == WM_OK)
    status = wm_alloc(&workspace, size, sizeof(double), "workspace of pdsyev", err);
  if (status == WM_OK)
    status = wm_alloc(&mean, m->dy, sizeof(double), "a mean", err);
  WM_TRY(wm_agree(comm, status, err));
  if (s.grid.member)
    status = decompose(&s, workspace, size, err);
  WM_TRY(wm_agree(comm, status, err));
  /* Processes may differ in last bits: rank 0's values count (rule 11). */
  wm_broadcast(comm, 0, eigenvalues, m->dx * (int64_t)sizeof *eigenvalues);
  WM_TRY(check_residual(&s, err));
  project(&s);
  for (int k = 0; k < n_lambdas; k++)
    evaluate(&s, lambdas[k], mean, &sse_fit[k], heldout != NULL ? &sse_heldout[k] : NULL,
             &norms[k]);
cleanup:
  free(mean);
  free(workspace);
  path_destroy(&s);
  return status;
}
