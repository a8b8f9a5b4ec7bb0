/* Ridge regression on process grids, against QR of the raw data, LAPACK and a golden file. */
#include "wanamaker/base/rng.h"
#include "wanamaker/linalg/ridge.h"
#include "wanamaker/par/comm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dgels_(const char *trans, const int *m, const int *n, const int *nrhs, double *a,
            const int *lda, double *b, const int *ldb, double *work, const int *lwork, int *info);
void dposv_(const char *uplo, const int *n, const int *nrhs, double *a, const int *lda, double *b,
            const int *ldb, int *info);
void dsyev_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda, double *w,
            double *work, const int *lwork, int *info);

static const int GRIDS[][2] = {{1, 1}, {1, 2}, {2, 1}, {1, 3}, {2, 2}, {4, 1}};
enum { GRID_COUNT = 6 };

/* Grids of all ranks or all but one (which then stands outside); smaller ones have their turn at
 * fewer ranks. */
static bool fits(const int grid[2]) {
  int size;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return grid[0] * grid[1] <= size && grid[0] * grid[1] >= size - 1;
}

/* Sizes that neither block divides, one that both do, and one row; block 64 where there are
 * several. */
static const int SHAPES[][2] = {{1, 8}, {5, 8}, {37, 8}, {64, 8}, {100, 8}, {64, 64}, {100, 64}};
enum { SHAPE_COUNT = 7 };

static int rank_of_world(void) {
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

static double *zeros(int64_t n) {
  double *x = calloc((size_t)n + 1, sizeof *x);
  assert_non_null(x);
  return x;
}

/* --- data --- */

typedef struct {
  int rows, dx, dy;
  double *x, *y; /* [rows, dx], [rows, dy] */
} data_t;

/* x = reflect(reflect(x)) by two random Householder matrices: mixes the columns, keeps the
 * spectrum. */
static void rotate(data_t *d, uint64_t stream) {
  const wm_rng_t rng = {5, stream};
  double *v = zeros(d->dx);
  for (int pass = 0; pass < 2; pass++) {
    double square = 0;
    for (int i = 0; i < d->dx; i++) {
      v[i] = wm_rng_normal(rng, (uint64_t)(pass * d->dx + i));
      square += v[i] * v[i];
    }
    for (int r = 0; r < d->rows; r++) {
      double dot = 0, *row = d->x + (int64_t)r * d->dx;
      for (int i = 0; i < d->dx; i++)
        dot += v[i] * row[i];
      for (int i = 0; i < d->dx; i++)
        row[i] -= 2 * dot / square * v[i];
    }
  }
  free(v);
}

/* Singular values from 1 to 1 / condition, times sqrt(rows) about; then each column is moved by
 * `offset` of its standard deviations. Equal on every rank. */
static data_t make_data(int rows, int dx, int dy, double condition, double offset,
                        uint64_t stream) {
  data_t d = {rows, dx, dy, zeros((int64_t)rows * dx), zeros((int64_t)rows * dy)};
  const wm_rng_t rng = {6, stream}, noise = {7, stream}, mix = {8, 0};
  for (int r = 0; r < rows; r++)
    for (int i = 0; i < dx; i++)
      d.x[r * dx + i] = wm_rng_normal(rng, (uint64_t)(r * dx + i)) *
                        pow(condition, -(double)i / (dx > 1 ? dx - 1 : 1));
  rotate(&d, 1);
  double *weight = zeros((int64_t)dx * dy);
  for (int i = 0; i < dx * dy; i++)
    weight[i] = wm_rng_normal(mix, (uint64_t)i);
  for (int r = 0; r < rows; r++)
    for (int j = 0; j < dy; j++) {
      double sum = 0.3 * wm_rng_normal(noise, (uint64_t)(r * dy + j)) + j;
      for (int i = 0; i < dx; i++)
        sum += d.x[r * dx + i] * weight[i * dy + j];
      d.y[r * dy + j] = sum;
    }
  free(weight);
  for (int i = 0; i < dx; i++) {
    double square = 0;
    for (int r = 0; r < rows; r++)
      square += d.x[r * dx + i] * d.x[r * dx + i];
    for (int r = 0; r < rows; r++)
      d.x[r * dx + i] += offset * sqrt(square / rows);
  }
  return d;
}

static void free_data(data_t *d) {
  free(d->x);
  free(d->y);
}

/* --- moments --- */

/* The provisional mean is that of the first few rows: near the true one, but not equal to it. */
static double *provisional_mean(const double *a, int rows, int cols) {
  int used = rows < 7 ? rows : 7;
  double *mean = zeros(cols);
  for (int r = 0; r < used; r++)
    for (int c = 0; c < cols; c++)
      mean[c] += a[r * cols + c] / used;
  return mean;
}

static wm_moments_t make_moments(const data_t *d) {
  int dx = d->dx, dy = d->dy;
  double *x_shift = provisional_mean(d->x, d->rows, dx);
  double *y_shift = provisional_mean(d->y, d->rows, dy);
  wm_moments_t m = {dx,
                    dy,
                    d->rows,
                    zeros((int64_t)dx * dx),
                    zeros((int64_t)dx * dy),
                    zeros(dy),
                    zeros(dx),
                    zeros(dy),
                    x_shift,
                    y_shift};
  for (int r = 0; r < d->rows; r++) {
    const double *x = d->x + r * dx, *y = d->y + r * dy;
    for (int i = 0; i < dx; i++) {
      double xi = x[i] - x_shift[i];
      m.x_sum[i] += xi;
      for (int j = 0; j < dx; j++)
        m.xx[i * dx + j] += xi * (x[j] - x_shift[j]);
      for (int j = 0; j < dy; j++)
        m.xy[i * dy + j] += xi * (y[j] - y_shift[j]);
    }
    for (int j = 0; j < dy; j++) {
      m.y_sum[j] += y[j] - y_shift[j];
      m.yy[j] += (y[j] - y_shift[j]) * (y[j] - y_shift[j]);
    }
  }
  const int parts = 3;
  for (int part = 0; part < parts; part++)
    wm_ridge_centre(&m, parts, part);
  wm_ridge_centre_means(&m);
  return m;
}

static void free_moments(wm_moments_t *m) {
  free(m->xx);
  free(m->xy);
  free(m->yy);
  free(m->x_sum);
  free(m->y_sum);
  free((void *)m->x_shift);
  free((void *)m->y_shift);
}

/* --- the plain way --- */

static void true_means(const double *a, int rows, int cols, double *mean) {
  for (int c = 0; c < cols; c++) {
    long double sum = 0;
    for (int r = 0; r < rows; r++)
      sum += a[r * cols + c];
    mean[c] = (double)(sum / rows);
  }
}

/* min |Xc W - Yc|^2 + lambda |W|^2 as one least-squares problem by QR, which never squares the
 * condition number: [Xc; sqrt(lambda) I] W = [Yc; 0]. */
static void qr_ridge(const data_t *d, double lambda, double *weight, double *bias) {
  int dx = d->dx, dy = d->dy, m = d->rows + dx, info, lwork = 64 * (dx + dy + m);
  double *a = zeros((int64_t)m * dx), *b = zeros((int64_t)m * dy), *work = zeros(lwork);
  double *mean_x = zeros(dx), *mean_y = zeros(dy);
  true_means(d->x, d->rows, dx, mean_x);
  true_means(d->y, d->rows, dy, mean_y);
  for (int i = 0; i < dx; i++) {
    for (int r = 0; r < d->rows; r++)
      a[i * m + r] = d->x[r * dx + i] - mean_x[i];
    a[i * m + d->rows + i] = sqrt(lambda);
  }
  for (int j = 0; j < dy; j++)
    for (int r = 0; r < d->rows; r++)
      b[j * m + r] = d->y[r * dy + j] - mean_y[j];
  dgels_("N", &m, &dx, &dy, a, &m, b, &m, work, &lwork, &info);
  assert_int_equal(info, 0);
  for (int j = 0; j < dy; j++) {
    bias[j] = mean_y[j];
    for (int i = 0; i < dx; i++) {
      weight[i * dy + j] = b[j * m + i];
      bias[j] -= b[j * m + i] * mean_x[i];
    }
  }
  free(a);
  free(b);
  free(work);
  free(mean_x);
  free(mean_y);
}

/* Largest difference of two fits' predictions on the data, relative to the largest |y - mean y|. */
static double prediction_gap(const data_t *d, const double *w1, const double *b1, const double *w2,
                             const double *b2) {
  double *mean = zeros(d->dy), gap = 0, size = 0;
  true_means(d->y, d->rows, d->dy, mean);
  for (int r = 0; r < d->rows; r++)
    for (int j = 0; j < d->dy; j++) {
      long double p1 = b1[j], p2 = b2[j];
      for (int i = 0; i < d->dx; i++) {
        p1 += (long double)w1[i * d->dy + j] * d->x[r * d->dx + i];
        p2 += (long double)w2[i * d->dy + j] * d->x[r * d->dx + i];
      }
      gap = fmax(gap, fabs((double)(p1 - p2)));
      size = fmax(size, fabs(d->y[r * d->dy + j] - mean[j]));
    }
  free(mean);
  return gap / size;
}

/* --- tests --- */

static void check_solve(const data_t *d, double lambda, const int grid[2], int block) {
  wm_moments_t m = make_moments(d);
  double *w = zeros((int64_t)d->dx * d->dy), *b = zeros(d->dy);
  double *expected_w = zeros((int64_t)d->dx * d->dy), *expected_b = zeros(d->dy);
  bool root = rank_of_world() == 0;
  wm_error_t err = {0};
  if (wm_ridge_solve(MPI_COMM_WORLD, grid[0], grid[1], block, &m, lambda, root ? w : NULL,
                     root ? b : NULL, &err) != WM_OK)
    fail_msg("%s", err.message);
  if (root) {
    qr_ridge(d, lambda, expected_w, expected_b);
    double gap = prediction_gap(d, w, b, expected_w, expected_b);
    if (!(gap <= 1e-9)) /* method.md, section 1 */
      fail_msg("width %d on %d x %d, block %d: predictions differ by %g", d->dx, grid[0], grid[1],
               block, gap);
  }
  free(w);
  free(b);
  free(expected_w);
  free(expected_b);
  free_moments(&m);
}

static void solve_everywhere(double condition, double offset) {
  for (int i = 0; i < SHAPE_COUNT; i++) {
    int width = SHAPES[i][0];
    data_t d = make_data(3 * width + 50, width, width / 2 + 3, condition, offset, 1);
    for (int g = 0; g < GRID_COUNT; g++)
      if (fits(GRIDS[g]))
        check_solve(&d, 0.01, GRIDS[g], SHAPES[i][1]);
    free_data(&d);
  }
}

static void test_solve(void **state) {
  (void)state;
  solve_everywhere(1e7, 0);
}

static void test_solve_with_offset(void **state) {
  (void)state;
  solve_everywhere(1e7, 1000);
}

/* Element by element against LAPACK's Cholesky of the same matrix, where it is well conditioned. */
static void test_solve_against_dposv(void **state) {
  (void)state;
  const double lambda = 3;
  data_t d = make_data(150, 37, 10, 10, 0, 2);
  wm_moments_t m = make_moments(&d);
  double *a = zeros(37 * 37), *x = zeros(37 * 10), *w = zeros(37 * 10), *b = zeros(10);
  for (int g = 0; g < GRID_COUNT; g++) {
    if (!fits(GRIDS[g]))
      continue;
    wm_error_t err = {0};
    assert_int_equal(
        WM_OK, wm_ridge_solve(MPI_COMM_WORLD, GRIDS[g][0], GRIDS[g][1], 8, &m, lambda, w, b, &err));
    if (rank_of_world() != 0)
      continue;
    for (int i = 0; i < 37; i++) {
      for (int j = 0; j < 37; j++)
        a[i * 37 + j] = m.xx[i * 37 + j] + (i == j ? lambda : 0);
      for (int j = 0; j < 10; j++)
        x[j * 37 + i] = m.xy[i * 10 + j];
    }
    int n = 37, nrhs = 10, info;
    dposv_("L", &n, &nrhs, a, &n, x, &n, &info);
    assert_int_equal(info, 0);
    for (int i = 0; i < 37; i++)
      for (int j = 0; j < 10; j++) /* n eps times the condition number, below 100 here, of xx */
        assert_true(fabs(x[j * 37 + i] - w[i * 10 + j]) < 37 * 100 * DBL_EPSILON * 10);
  }
  free(a);
  free(x);
  free(w);
  free(b);
  free_moments(&m);
  free_data(&d);
}

static void test_failures_reach_every_rank(void **state) {
  (void)state;
  data_t d = make_data(100, 20, 4, 10, 0, 3);
  double *w = zeros(20 * 4), *b = zeros(4);
  for (int g = 0; g < GRID_COUNT; g++) {
    if (!fits(GRIDS[g]))
      continue;
    wm_moments_t m = make_moments(&d);
    wm_error_t err = {0};
    m.xx[13 * 20 + 13] = -1;
    assert_int_equal(WM_NUMERICAL, wm_ridge_solve(MPI_COMM_WORLD, GRIDS[g][0], GRIDS[g][1], 8, &m,
                                                  0.01, w, b, &err));
    assert_non_null(strstr(err.message, "pdpotrf"));
    assert_non_null(strstr(err.message, "not positive definite"));
    double e[20], sse, norm;
    const double lambda = 0.01;
    assert_int_equal(WM_NUMERICAL, wm_ridge_path(MPI_COMM_WORLD, GRIDS[g][0], GRIDS[g][1], 8, &m,
                                                 NULL, &lambda, 1, e, &sse, NULL, &norm, &err));
    m.xx[13 * 20 + 13] = NAN;
    assert_int_equal(WM_NUMERICAL, wm_ridge_solve(MPI_COMM_WORLD, GRIDS[g][0], GRIDS[g][1], 8, &m,
                                                  0.01, w, b, &err));
    free_moments(&m);
  }
  wm_moments_t m = make_moments(&d);
  wm_error_t err = {0};
  assert_int_equal(WM_USAGE, wm_ridge_solve(MPI_COMM_WORLD, 3, 2, 8, &m, 0.01, w, b, &err));
  assert_int_equal(WM_USAGE, wm_ridge_solve(MPI_COMM_WORLD, 1, 1, 0, &m, 0.01, w, b, &err));
  free_moments(&m);
  free(w);
  free(b);
  free_data(&d);
}

/* Pivots that rounding alone keeps positive: the factorisation succeeds, the solve must not. */
static void test_singular_to_rounding(void **state) {
  (void)state;
  data_t d = make_data(100, 20, 4, 10, 0, 3);
  double *w = zeros(20 * 4), *b = zeros(4);
  for (int g = 0; g < GRID_COUNT; g++) {
    if (!fits(GRIDS[g]))
      continue;
    wm_moments_t m = make_moments(&d);
    wm_error_t err = {0};
    for (int i = 0; i < 20; i++) /* the identity, but for rows 16 and 17, all but equal */
      for (int j = 0; j < 20; j++)
        m.xx[i * 20 + j] = i == j;
    m.xx[16 * 20 + 17] = m.xx[17 * 20 + 16] = 1;
    m.xx[17 * 20 + 17] = 1 + DBL_EPSILON;
    assert_int_equal(WM_NUMERICAL, wm_ridge_solve(MPI_COMM_WORLD, GRIDS[g][0], GRIDS[g][1], 8, &m,
                                                  0, w, b, &err));
    assert_non_null(strstr(err.message, "singular to rounding (pivot 17"));
    assert_int_equal(
        WM_OK, wm_ridge_solve(MPI_COMM_WORLD, GRIDS[g][0], GRIDS[g][1], 8, &m, 1e-6, w, b, &err));
    free_moments(&m);
  }
  free(w);
  free(b);
  free_data(&d);
}

static double raw_sse(const data_t *d, const double *w, const double *b) {
  double sum = 0;
  for (int r = 0; r < d->rows; r++)
    for (int j = 0; j < d->dy; j++) {
      long double e = b[j] - d->y[r * d->dy + j];
      for (int i = 0; i < d->dx; i++)
        e += (long double)w[i * d->dy + j] * d->x[r * d->dx + i];
      sum += (double)(e * e);
    }
  return sum;
}

static void check_near(double got, double expected, double relative, const char *what) {
  if (!(fabs(got - expected) <= relative * fabs(expected)))
    fail_msg("%s: %.15g, expected %.15g", what, got, expected);
}

/* One lambda of a path, and wm_ridge_sse, against the sums over the raw rows. */
static void check_figures(const data_t *fit, const data_t *held, const wm_moments_t *m,
                          const wm_moments_t *h, double lambda, double sse, double sse_held,
                          double norm) {
  double *w = zeros((int64_t)fit->dx * fit->dy), *b = zeros(fit->dy), square = 0, direct;
  wm_error_t err = {0};
  qr_ridge(fit, lambda, w, b);
  for (int i = 0; i < fit->dx * fit->dy; i++)
    square += w[i] * w[i];
  check_near(norm, sqrt(square), 1e-7, "norm of W");
  check_near(sse, raw_sse(fit, w, b), 1e-9, "squared error of the fit");
  check_near(sse_held, raw_sse(held, w, b), 1e-7, "squared error on held-out rows");
  assert_int_equal(WM_OK, wm_ridge_sse(m, w, b, &direct, &err));
  check_near(direct, raw_sse(fit, w, b), 1e-9, "wm_ridge_sse on the fit");
  assert_int_equal(WM_OK, wm_ridge_sse(h, w, b, &direct, &err));
  check_near(direct, raw_sse(held, w, b), 1e-9, "wm_ridge_sse on held-out rows");
  free(w);
  free(b);
}

static void check_eigenvalues(const wm_moments_t *m, const double *values) {
  int n = (int)m->dx, lwork = 40 * n + 40, info;
  double *a = zeros((int64_t)n * n), *w = zeros(n), *work = zeros(lwork), square = 0;
  memcpy(a, m->xx, (size_t)n * (size_t)n * sizeof *a);
  for (int i = 0; i < n * n; i++)
    square += a[i] * a[i];
  dsyev_("N", "L", &n, a, &n, w, work, &lwork, &info);
  assert_int_equal(info, 0);
  for (int i = 0; i < n; i++) /* both are backward stable, and eigenvalues move by |E|_2 at most */
    assert_true(fabs(values[i] - w[i]) <= 4 * n * DBL_EPSILON * sqrt(square));
  free(a);
  free(w);
  free(work);
}

static void check_path(int width, const int grid[2], int block) {
  enum { LAMBDAS = 4 };
  const double lambdas[LAMBDAS] = {0.01, 1, 30, 1e4};
  data_t fit = make_data(4 * width + 60, width, width / 2 + 2, 1e3, 10, 4);
  data_t held = make_data(2 * width + 40, width, width / 2 + 2, 1e3, 10.5, 5);
  wm_moments_t m = make_moments(&fit), h = make_moments(&held);
  double *e = zeros(width), sse[LAMBDAS] = {0}, sse_held[LAMBDAS] = {0}, norms[LAMBDAS] = {0};
  wm_error_t err = {0};
  int rank = rank_of_world(), members = grid[0] * grid[1];
  wm_moments_t unseen = {.dx = m.dx, .dy = m.dy, .count = m.count}; /* outside the grid */
  if (wm_ridge_path(MPI_COMM_WORLD, grid[0], grid[1], block, rank < members ? &m : &unseen,
                    rank < members ? &h : &unseen, lambdas, LAMBDAS, e, sse, sse_held, norms,
                    &err) != WM_OK)
    fail_msg("%s", err.message);
  check_eigenvalues(&m, e);
  assert_true(wm_all_equal(MPI_COMM_WORLD, sse_held, sizeof sse_held));
  for (int i = 0; i < LAMBDAS; i++)
    check_figures(&fit, &held, &m, &h, lambdas[i], sse[i], sse_held[i], norms[i]);
  if (width == 5) /* nothing held out */
    assert_int_equal(WM_OK, wm_ridge_path(MPI_COMM_WORLD, grid[0], grid[1], block, &m, NULL,
                                          lambdas, LAMBDAS, e, sse, NULL, norms, &err));
  free(e);
  free_moments(&m);
  free_moments(&h);
  free_data(&fit);
  free_data(&held);
}

static void test_path(void **state) {
  (void)state;
  for (int i = 0; i < SHAPE_COUNT; i++)
    for (int g = 0; g < GRID_COUNT; g++)
      if (fits(GRIDS[g]))
        check_path(SHAPES[i][0], GRIDS[g], SHAPES[i][1]);
}

static double *read_golden(int64_t *count) {
  char path[4096];
  const char *folder = getenv("WM_TEST_DATA");
  snprintf(path, sizeof path, "%s/linalg/ridge_svd.f64", folder != NULL ? folder : "tests/data");
  FILE *f = fopen(path, "rb");
  if (f == NULL)
    fail_msg("%s: cannot open", path);
  double *values = zeros(1 << 16);
  *count = (int64_t)fread(values, sizeof *values, 1 << 16, f);
  fclose(f);
  return values;
}

/* tests/oracle/ridge_svd.py: SVD of data with condition number 1e7 and means of 1000 deviations. */
static void test_golden(void **state) {
  (void)state;
  int64_t count;
  double *golden = read_golden(&count);
  int rows = (int)golden[0], dx = (int)golden[1], dy = (int)golden[2];
  double lambda = golden[3];
  assert_int_equal(count, 4 + rows * dx + 2 * rows * dy + dx * dy + dy);
  data_t d = {rows, dx, dy, golden + 4, golden + 4 + rows * dx};
  const double *w = d.y + rows * dy, *b = w + dx * dy, *predictions = b + dy;
  wm_moments_t m = make_moments(&d);
  double *own_w = zeros(dx * dy), *own_b = zeros(dy);
  for (int g = 0; g < GRID_COUNT; g++) {
    if (!fits(GRIDS[g]))
      continue;
    wm_error_t err = {0};
    assert_int_equal(WM_OK, wm_ridge_solve(MPI_COMM_WORLD, GRIDS[g][0], GRIDS[g][1], 8, &m, lambda,
                                           own_w, own_b, &err));
    if (rank_of_world() != 0)
      continue;
    assert_true(prediction_gap(&d, own_w, own_b, w, b) <= 1e-9);
    for (int r = 0; r < rows; r++)
      for (int j = 0; j < dy; j++) {
        long double p = own_b[j];
        for (int i = 0; i < dx; i++)
          p += (long double)own_w[i * dy + j] * d.x[r * dx + i];
        assert_true(fabs((double)p - predictions[r * dy + j]) <= 1e-9);
      }
  }
  free(own_w);
  free(own_b);
  free_moments(&m);
  free(golden);
}

static void test_effective_rank(void **state) {
  (void)state;
  const double flat[] = {2, 2, 2, 2}, one[] = {-1e-17, 0, 0, 5}, none[] = {0, 0};
  assert_true(fabs(wm_effective_rank(flat, 4) - 4) < 1e-14);
  assert_true(fabs(wm_effective_rank(one, 4) - 1) < 1e-14);
  assert_true(wm_effective_rank(none, 2) == 0);
  const double pair[] = {1, 3}; /* entropy 0.25 log 4 + 0.75 log (4 / 3) */
  assert_true(fabs(wm_effective_rank(pair, 2) - pow(4, 0.25) * pow(4.0 / 3, 0.75)) < 1e-14);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_solve),
      cmocka_unit_test(test_solve_with_offset),
      cmocka_unit_test(test_solve_against_dposv),
      cmocka_unit_test(test_failures_reach_every_rank),
      cmocka_unit_test(test_singular_to_rounding),
      cmocka_unit_test(test_path),
      cmocka_unit_test(test_golden),
      cmocka_unit_test(test_effective_rank),
  };
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  if (failures != 0)
    MPI_Abort(MPI_COMM_WORLD, 1); /* the other ranks may wait in a collective call */
  MPI_Finalize();
  return 0;
}
