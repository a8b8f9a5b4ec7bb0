/* What probes are made of: k-means, the hidden probe and statistics of units against plain
 * statements. */
#include "test_measure_fixture.h"
#include "wanamaker/measure/hidden_probe.h"
#include "wanamaker/measure/inference.h"
#include "wanamaker/measure/kmeans.h"
#include "wanamaker/measure/unit_moments.h"

#include <math.h>

enum { D = 12 };

static struct { wm_comm_t *world; } S;

static double normal(uint64_t stream, int64_t i) {
  return wm_rng_normal((wm_rng_t){99, stream}, (uint64_t)i);
}

/* --- k-means and the hidden probe ---------------------------------------------------------------
 */

/* Four separated groups: found, with the inertia of their means. */
static void groups_are_found(void **state) {
  (void)state;
  enum { M = 400, G = 4 };
  double points[M * 2], centre[G * 2], mean[G][2] = {{0}}, inertia = 0;
  int64_t number[M], n = 0;
  int32_t cluster[M];
  double own[M * 2];
  for (int i = 0; i < M; i++)
    for (int j = 0; j < 2; j++) {
      points[2 * i + j] = 10 * (j == 0 ? i % G / 2 : i % 2) + normal(50, 2 * i + j);
      mean[i % G][j] += points[2 * i + j] / (M / G);
    }
  for (int i = 0; i < 2 * M; i++)
    inertia += pow(points[i] - mean[i / 2 % G][i % 2], 2);
  for (int i = 0; i < M; i++)
    if (i % S.world->size == S.world->rank) {
      memcpy(own + 2 * n, points + 2 * i, 2 * sizeof(double));
      number[n++] = i;
    }
  const wm_kmeans_options_t o = {G, 3, 50, 1, 0};
  wm_kmeans_t k;
  OK(wm_kmeans(S.world->world, own, number, n, 2, &o, cluster, centre, &k, err));
  assert_int_equal(k.k, G);
  assert_true(k.converged && fabs(k.inertia - inertia) < 1e-9 * inertia);
  for (int64_t i = 1; i < n; i++)
    if (number[i] % G == number[0] % G)
      assert_int_equal(cluster[i], cluster[0]);
}

/* The gradient against differences of the objective, and a fit that lowers it. */
static void hidden_gradient(void **state) {
  (void)state;
  enum { M = 300, H = 3, P = H * (D + 2) + 1 };
  static float x[M * D];
  float mean[D] = {0}, scale[D];
  int64_t index[M], block[M], n = 0;
  int8_t label[M];
  double p[P], g[P], ignored[P], f, up, down;
  for (int i = 0; i < M; i++) {
    for (int j = 0; j < D; j++)
      x[i * D + j] = (float)normal(60, i * D + j);
    if (i / 20 % S.world->size == S.world->rank) {
      index[n] = i;
      block[n] = i / 20;
      label[n++] = (x[i * D] * x[i * D + 1] > 0) != (i % 10 == 0);
    }
  }
  for (int j = 0; j < D; j++)
    scale[j] = 1;
  const wm_hidden_rows_t rows = {n, D, x, index, block, label, mean, scale};
  const wm_hidden_options_t o = {H, 100, 2, 1, 0};
  for (int i = 0; i < P; i++)
    p[i] = 0.5 * normal(61, i);
  OK(wm_hidden_objective(S.world->world, &rows, &o, p, g, &f, err));
  for (int i = 0; i < P; i += 5) {
    const double step = 1e-2, at = p[i];
    p[i] = at + step;
    OK(wm_hidden_objective(S.world->world, &rows, &o, p, ignored, &up, err));
    p[i] = at - step;
    OK(wm_hidden_objective(S.world->world, &rows, &o, p, ignored, &down, err));
    p[i] = at;
    /* float32 products: 1e-7 / step, and the third derivative's step^2 */
    assert_true(fabs((up - down) / (2 * step) - g[i]) < 1e-4);
  }
  wm_hidden_t out;
  OK(wm_hidden_fit(S.world->world, &rows, &o, p, &out, err));
  assert_true(out.objective < f && out.objective < log(2) && out.iterations > 3);
  assert_true(wm_all_equal(S.world->world, p, sizeof p));
}

/* --- statistics of units ------------------------------------------------------------------------
 */

static void moments_are_statistics(void **state) {
  (void)state;
  enum { M = 200 };
  double x[M], y[M], mean = 0, sse = 0, total = 0;
  int32_t unit[M];
  const wm_bootstrap_t b = {.resamples = 100, .seed = 1, .confidence = 0.9};
  wm_unit_statistic_t r, r2, m;
  for (int i = 0; i < M; i++) {
    x[i] = 1e3 + normal(70, i);
    y[i] = 1e3 + normal(71, i) + 0.5 * (x[i] - 1e3);
    unit[i] = i / 10;
    mean += y[i] / M;
  }
  for (int i = 0; i < M; i++) {
    sse += pow(y[i] - x[i], 2);
    total += pow(y[i] - mean, 2);
  }
  const MPI_Comm world = S.world->world;
  OK(wm_unit_statistic(world, WM_MOMENT_CORRELATION, x, y, NULL, unit, M, 20, &b, &r, err));
  OK(wm_unit_statistic(world, WM_MOMENT_R2, x, y, NULL, unit, M, 20, &b, &r2, err));
  OK(wm_unit_statistic(world, WM_MOMENT_MEAN, y, y, NULL, unit, M, 20, &b, &m, err));
  assert_true(fabs(r.value - wm_pearson(x, y, M)) < 1e-12);
  assert_true(fabs(r2.value - (1 - sse / total)) < 1e-10);
  assert_true(fabs(m.value - mean) < 1e-9);
  assert_true(r.low < r.value && r.value < r.high && m.low < mean && mean < m.high);
}

static int open_all(void **state) {
  (void)state;
  OK(wm_comm_create(MPI_COMM_WORLD, &S.world, err));
  return 0;
}

static int close_all(void **state) {
  (void)state;
  wm_comm_free(S.world);
  return 0;
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(groups_are_found),
                                     cmocka_unit_test(hidden_gradient),
                                     cmocka_unit_test(moments_are_statistics)};
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int failed = cmocka_run_group_tests(tests, open_all, close_all);
  MPI_Finalize();
  return failed;
}
