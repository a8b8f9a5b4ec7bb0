/* Logistic regressions whose data make Newton's method work: is the optimum reached, by a naive
 * Newton step in long double from there, and in how many steps? */
#include "test_measure_fixture.h"

#include "wanamaker/measure/logistic.h"

#include <math.h>

enum { K = 9, M = K + 1, CASES = 10 };

static wm_comm_t *world, *self;

static double normal(uint64_t stream, int64_t i) {
  return wm_rng_normal((wm_rng_t){21, stream}, (uint64_t)i);
}

/* --- data ---------------------------------------------------------------------------------------
 */

typedef struct {
  const char *name;
  int64_t n, most; /* rows; steps */
  double C;
} case_t;

enum { PLAIN, SEPARABLE, NEARLY, OUTLIERS, TYPES, STILL, RARE, REPEATED_A, REPEATED_B, REPEATED_C };

static const case_t cases[CASES] = {
    [PLAIN] = {"plain", 1500, 7, 1},
    [SEPARABLE] = {"separable", 1500, 10, 1},
    [NEARLY] = {"separable but for a few", 1500, 14, 1000},
    [OUTLIERS] = {"a few rows far out", 1500, 10, 1},
    [TYPES] = {"few distinct rows", 1500, 9, 1},
    [STILL] = {"features still to rounding", 1500, 7, 1},
    [RARE] = {"few of one label", 1500, 7, 1},
    /* Types' means: the same few terms over and over are rounded the same way over and over, and
     * F's sum is off by far more than the last steps gain. */
    [REPEATED_A] = {"rows repeated, a", 50000, 6, 1},
    [REPEATED_B] = {"rows repeated, b", 50000, 6, 1},
    [REPEATED_C] = {"rows repeated, c", 50000, 6, 1},
};

/* Some are frequent, as in text. */
static int64_t type_of(int64_t i) {
  const double u = wm_rng_uniform((wm_rng_t){5, 5}, (uint64_t)i);
  return (int64_t)(40 * u * u * u);
}

static void make_row(int which, int64_t i, float *x) {
  const int64_t number = which == TYPES ? i % 7 : which >= REPEATED_A ? type_of(i) : i;
  for (int64_t j = 0; j < K; j++)
    x[j] = (float)normal(1, number * K + j);
  if (which == OUTLIERS) /* the second columns of rare tokens are so */
    for (int64_t j = 0; j < 4; j++)
      x[j] = i % 211 == j ? 300 * (x[j] + 1) : 0.01F * x[j];
  if (which == STILL) {
    x[0] = 3 + 1e-6F * x[0];
    x[1] = 1;
    x[2] = 2 * x[3];
  }
}

static int8_t label_of(int which, int64_t i, const float *x) {
  const double along = (double)x[4] - 2 * (double)x[5] + (double)x[6];
  switch (which) {
  case SEPARABLE:
    return along > 0;
  case NEARLY:
    return (along > 0) != (i % 500 == 3);
  case OUTLIERS:
    return along + (double)x[0] - (double)x[1] + 0.3 * normal(2, i) > 0;
  case RARE:
    return i % 300 == 7;
  case REPEATED_A:
  case REPEATED_B:
  case REPEATED_C:
    return along + 20 * normal((uint64_t)(100 + which), i) > 0;
  default:
    return along + 2 * normal(2, i) > 0;
  }
}

/* Rows of this rank: every rank has some, dealt out unevenly. */
typedef struct {
  int64_t n;
  float *x;
  int8_t *label;
} rows_t;

static rows_t deal(const wm_comm_t *comm, int which) {
  rows_t r = {0, zeroed((cases[which].n + 1) * K, sizeof(float)), zeroed(cases[which].n + 1, 1)};
  for (int64_t i = 0; i < cases[which].n; i++) {
    float *x = r.x + r.n * K;
    make_row(which, i, x);
    r.label[r.n] = label_of(which, i, x);
    r.n += i / 3 % (2 * comm->size - 1) % comm->size == comm->rank;
  }
  return r;
}

typedef struct {
  double mean[K], scale[K], w[M];
  wm_logistic_t report;
} fitted_t;

static void fit(const wm_comm_t *comm, int which, fitted_t *f) {
  rows_t r = deal(comm, which);
  int64_t constant, total;
  wm_design_t design = {.n = r.n, .k = K, .x = r.x, .mean = f->mean, .scale = f->scale};
  wm_design_standardize(comm->world, &design, f->mean, f->scale, &constant, &total);
  assert_int_equal(total, cases[which].n);
  assert_int_equal(constant, which == STILL);
  OK(wm_logistic_fit(comm->world, &design, r.label, cases[which].C, 8, f->w, &f->w[K], &f->report,
                     err));
  free(r.x);
  free(r.label);
}

/* --- reference ----------------------------------------------------------------------------------
 */

/* Row i, standardised, and 1. */
static void standard_row(int which, int64_t i, const fitted_t *f, long double *z, int8_t *label) {
  float x[K];
  make_row(which, i, x);
  *label = label_of(which, i, x);
  for (int j = 0; j < K; j++)
    z[j] = ((long double)x[j] - f->mean[j]) / f->scale[j];
  z[K] = 1;
}

/* Gradient, Hessian and mean log-loss at f->w. */
static long double naive_sums(int which, const fitted_t *f, long double *g, long double h[M][M]) {
  const long double C = cases[which].C;
  long double loss = 0;
  memset(h, 0, M * sizeof h[0]);
  for (int j = 0; j < M; j++) {
    g[j] = j < K ? f->w[j] : 0;
    h[j][j] = j < K;
  }
  for (int64_t i = 0; i < cases[which].n; i++) {
    long double z[M], s = 0;
    int8_t y;
    standard_row(which, i, f, z, &y);
    for (int j = 0; j < M; j++)
      s += z[j] * f->w[j];
    const long double p = 1 / (1 + expl(-s)), q = 1 / (1 + expl(s));
    loss += y ? log1pl(expl(-s)) : log1pl(expl(s));
    for (int j = 0; j < M; j++) {
      g[j] += C * (y ? -q : p) * z[j];
      for (int k = 0; k < M; k++)
        h[j][k] += C * p * q * z[j] * z[k];
    }
  }
  return loss / cases[which].n;
}

/* g <- h^-1 g, by elimination: h is positive definite. */
static void eliminate(long double h[M][M], long double *g) {
  for (int k = 0; k < M; k++)
    for (int i = 0; i < M; i++) {
      const long double factor = h[i][k] / h[k][k];
      for (int j = k; j < M && i != k; j++)
        h[i][j] -= factor * h[k][j];
      g[i] -= i != k ? factor * g[k] : 0;
    }
  for (int k = 0; k < M; k++)
    g[k] /= h[k][k];
}

static double largest(const double *w) {
  double most = 0;
  for (int j = 0; j < M; j++)
    most = fmax(most, fabs(w[j]));
  return most;
}

/* --- tests --------------------------------------------------------------------------------------
 */

/* The rule for the last step leaves 1e-9 of the largest coefficient. Rounding is far below: sums of
 * N terms, N epsilon, against a Hessian whose least eigenvalue is 1. */
static void optimum_is_reached(void **state) {
  const int which = (int)((const case_t *)*state - cases);
  fitted_t f;
  long double step[M], h[M][M];
  fit(world, which, &f);
  const long double loss = naive_sums(which, &f, step, h);
  eliminate(h, step);
  for (int j = 0; j < M; j++)
    if (!(fabsl(step[j]) <= 1e-9 * largest(f.w)))
      fail_msg("coefficient %d = %g is %Lg away", j, f.w[j], step[j]);
  assert_true(fabsl(loss - f.report.loss) <= 1e-12);
}

static void steps_are_few(void **state) {
  const case_t *c = *state;
  fitted_t f;
  fit(world, (int)(c - cases), &f);
  if (f.report.iterations > c->most)
    fail_msg("%s: %d steps", c->name, (int)f.report.iterations);
  assert_true(f.report.hessians >= 2 && f.report.hessians <= f.report.iterations);
  if (c < &cases[REPEATED_A]) /* these end with what one Hessian is good for */
    assert_true(f.report.hessians < f.report.iterations);
}

static void ranks_agree(void **state) {
  const int which = (int)((const case_t *)*state - cases);
  fitted_t a, b;
  fit(world, which, &a);
  fit(self, which, &b);
  assert_true(wm_all_equal(world->world, a.w, sizeof a.w));
  for (int j = 0; j < M; j++)
    assert_true(fabs(a.w[j] - b.w[j]) <= 2e-9 * largest(b.w));
}

int main(int argc, char **argv) {
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  OK(wm_comm_create(MPI_COMM_WORLD, &world, err));
  OK(wm_comm_create(MPI_COMM_SELF, &self, err));
#define CASE(test, which)                                                                          \
  { #test " " #which, test, NULL, NULL, (void *)&cases[which] }
#define OF_ALL(test)                                                                               \
  CASE(test, PLAIN), CASE(test, SEPARABLE), CASE(test, NEARLY), CASE(test, OUTLIERS),              \
      CASE(test, TYPES), CASE(test, STILL), CASE(test, RARE), CASE(test, REPEATED_A),              \
      CASE(test, REPEATED_B), CASE(test, REPEATED_C)
  const struct CMUnitTest tests[] = {OF_ALL(optimum_is_reached), OF_ALL(steps_are_few),
                                     OF_ALL(ranks_agree)};
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  wm_comm_free(self);
  wm_comm_free(world);
  MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return failures;
}
