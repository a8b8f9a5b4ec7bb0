/* Reference kernels against cases worked out by hand, fast kernels against the reference ones. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/model/kernels.h"
#include "wanamaker/model/reference.h"

#include <omp.h>

static const double eps = 0x1p-24; /* half a unit in the last place of 1.0f */

static void *array(int64_t count, size_t size) {
  void *memory;
  wm_error_t err = {0};
  assert_int_equal(wm_alloc(&memory, count, size, "test", &err), WM_OK);
  return memory;
}

static float *random_floats(int64_t n, uint64_t stream, double scale) {
  float *x = array(n, sizeof *x);
  for (int64_t i = 0; i < n; i++)
    x[i] = (float)(scale * wm_rng_normal((wm_rng_t){7, stream}, (uint64_t)i));
  return x;
}

static double *to_doubles(const float *x, int64_t n) {
  double *y = array(n, sizeof *y);
  for (int64_t i = 0; i < n; i++)
    y[i] = (double)x[i];
  return y;
}

static void reference_norm_by_hand(void **state) {
  (void)state;
  /* mean 2, variance 2/3 */
  const float gamma[] = {1, 2, 1}, beta[] = {0, 0, 5};
  const double x[] = {1, 2, 3};
  double out[3];
  wm_norm_t norm = {gamma, beta, 3, 0};
  wm_reference_norm(&norm, x, 1, out);
  assert_true(fabs(out[0] + sqrt(1.5)) < 1e-15);
  assert_true(fabs(out[1]) < 1e-15);
  assert_true(fabs(out[2] - (5 + sqrt(1.5))) < 1e-14);
  /* eps stands inside the root: variance + 1/3 = 1 */
  norm.eps = 1.0 / 3;
  wm_reference_norm(&norm, x, 1, out);
  assert_true(fabs(out[0] + 1) < 1e-15);
}

static void reference_rotary_by_hand(void **state) {
  (void)state;
  /* One head of 5 dimensions, 4 of them rotary, base 100: frequencies 1 and 1/10. Row 2. */
  wm_qkv_layout_t layout = {1, 5, 15, 15, 5};
  double qkv[3 * 15] = {0};
  double *row = qkv + 2 * 15;
  for (int i = 0; i < 15; i++)
    row[i] = i + 1;
  wm_reference_rotary(4, 100, &layout, 3, qkv);
  assert_true(fabs(row[0] - (1 * cos(2) - 3 * sin(2))) < 1e-14);
  assert_true(fabs(row[2] - (1 * sin(2) + 3 * cos(2))) < 1e-14);
  assert_true(fabs(row[1] - (2 * cos(0.2) - 4 * sin(0.2))) < 1e-14);
  assert_true(fabs(row[8] - (7 * sin(0.2) + 9 * cos(0.2))) < 1e-14); /* of the key */
  assert_true(row[4] == 5 && row[9] == 10 && row[10] == 11 && row[12] == 13);
}

static void reference_attention_by_hand(void **state) {
  (void)state;
  /* d_head 1, queries 1, keys 0 and log 3 (weights 1/4 and 3/4), values 4 and 8. */
  wm_qkv_layout_t layout = {1, 1, 3, 1, 1};
  const double qkv[] = {1, 0, 4, 1, log(3), 8};
  double out[2];
  wm_reference_attention(&layout, qkv, 2, 1, out);
  assert_true(out[0] == 4);
  assert_true(fabs(out[1] - 7) < 1e-14);
  wm_reference_attention(&layout, qkv, 2, 2, out); /* weights 1/10 and 9/10 */
  assert_true(fabs(out[1] - 7.6) < 1e-14);
}

static void reference_nll_by_hand(void **state) {
  (void)state;
  const double logits[] = {1000, 1000 + log(2), 1000 + log(5)};
  assert_true(fabs(wm_reference_nll(logits, 3, 1) - log(4)) < 1e-12);
}

static double ulps(float found, double expected) {
  float above = nextafterf((float)expected, INFINITY);
  return fabs((double)found - expected) / ((double)above - (double)(float)expected);
}

static void exponential_within_two_ulps(void **state) {
  (void)state;
  enum { N = 1 << 16 };
  float *x = array(N, sizeof *x), *y = array(N, sizeof *y);
  double worst = 0;
  for (int pass = 0; pass < 32; pass++) {
    for (int64_t i = 0; i < N; i++)
      x[i] =
          (float)(-87.3 + (87.3 + 88) * wm_rng_uniform((wm_rng_t){1, (uint64_t)pass}, (uint64_t)i));
    if (pass == 0)
      memset(x, 0, 64 * sizeof *x); /* e^0 = 1 */
    wm_exp_rows(x, N, y);
    for (int64_t i = 0; i < N; i++)
      worst = fmax(worst, ulps(y[i], exp((double)x[i])));
    assert_true(pass > 0 || y[0] == 1.0f);
  }
  print_message("exponential: %.2f units in the last place\n", worst);
  assert_true(worst <= 2);
  const float special[] = {-88, -1e30f, -INFINITY, NAN, -0.0f};
  wm_exp_rows(special, 5, y);
  assert_true(y[0] == 0 && y[1] == 0 && y[2] == 0 && isnan(y[3]) && y[4] == 1.0f);
  free(x);
  free(y);
}

/* Widths around the vector length; a mean far from zero is where one-pass formulas fail. */
static void norm_agrees_with_reference(void **state) {
  (void)state;
  static const int64_t widths[] = {1, 2, 5, 15, 16, 17, 36, 64, 777, 2560};
  for (size_t k = 0; k < sizeof widths / sizeof *widths; k++)
    for (int shifted = 0; shifted < 2; shifted++) {
      int64_t d = widths[k], rows = 7;
      float *x = random_floats(rows * d, k, 1), *out = array(rows * d, sizeof *out);
      float *gamma = random_floats(d, 100 + k, 1), *beta = random_floats(d, 200 + k, 1);
      double largest = 0;
      for (int64_t i = 0; i < rows * d; i++) {
        x[i] += shifted ? 100 : 0;
        largest = fmax(largest, fabs((double)x[i]));
      }
      wm_norm_t norm = {gamma, beta, d, 1e-5};
      double *wide = to_doubles(x, rows * d), *expected = array(rows * d, sizeof *expected);
      wm_reference_norm(&norm, wide, rows, expected);
      wm_norm_apply(&norm, x, NULL, rows, out);
      /* Subtracting the rounded mean, its correction, factor, gamma, beta: six roundings of values
       * up to |gamma| max|x - mean| / sigma <= 5 sqrt(d), and the rounding of the mean's
       * correction.
       */
      for (int64_t i = 0; i < rows * d; i++)
        assert_true(fabs((double)out[i] - expected[i]) <=
                    eps * (6 * (fabs(expected[i]) + 2 * fabs((double)beta[i % d])) + 20));
      free(x), free(out), free(gamma), free(beta), free(wide), free(expected);
    }
}

static void norm_takes_rows_by_index(void **state) {
  (void)state;
  const int64_t index[] = {3, 0, 3};
  float *x = random_floats(4 * 20, 1, 1), *gamma = random_floats(20, 2, 1);
  float *all = array(4 * 20, sizeof *all), *some = array(3 * 20, sizeof *some);
  wm_norm_t norm = {gamma, gamma, 20, 1e-5};
  wm_norm_apply(&norm, x, NULL, 4, all);
  wm_norm_apply(&norm, x, index, 3, some);
  for (int i = 0; i < 3; i++)
    assert_memory_equal(some + i * 20, all + index[i] * 20, 20 * sizeof(float));
  free(x), free(gamma), free(all), free(some);
}

static void rotary_agrees_with_reference(void **state) {
  (void)state;
  enum { HEADS = 3, DH = 10, ROWS = 300 };
  const wm_qkv_layout_t layouts[] = {{HEADS, DH, 3 * HEADS * DH, 3 * DH, DH},
                                     {HEADS, DH, 3 * HEADS * DH, DH, HEADS * DH}};
  int32_t positions[ROWS];
  for (int i = 0; i < ROWS; i++)
    positions[i] = i;
  for (int64_t dims = 0; dims <= DH; dims += 2)
    for (int k = 0; k < 2; k++) {
      int64_t n = ROWS * layouts[k].row_stride;
      wm_rotary_t rotary;
      wm_error_t err = {0};
      assert_int_equal(wm_rotary_create(dims, 10000, ROWS, &rotary, &err), WM_OK);
      float *qkv = random_floats(n, 5, 1);
      double *expected = to_doubles(qkv, n);
      wm_reference_rotary(dims, 10000, &layouts[k], ROWS, expected);
      wm_rotary_apply(&rotary, &layouts[k], positions, ROWS, qkv);
      /* Two products of values below 5 with a rounded sine or cosine each, and their sum. */
      for (int64_t i = 0; i < n; i++)
        assert_true(fabs((double)qkv[i] - expected[i]) <= 4 * 5 * eps);
      free(qkv), free(expected);
      wm_rotary_destroy(&rotary);
    }
}

/* Several sequences at once, on several threads, lengths around the blocks and tiles of queries. */
static void attention_agrees(int64_t dh) {
  enum { HEADS = 3, MAX = 600 };
  static const int64_t lengths[] = {1, 2, 5, 11, 12, 13, 31, 33, 255, 256, 257, 17, MAX};
  enum { SEQUENCES = sizeof lengths / sizeof *lengths };
  const int64_t d = HEADS * dh;
  const wm_qkv_layout_t layouts[] = {{HEADS, dh, 3 * d, 3 * dh, dh}, {HEADS, dh, 3 * d, dh, d}};
  int64_t starts[SEQUENCES + 1] = {0};
  for (int s = 0; s < SEQUENCES; s++)
    starts[s + 1] = starts[s] + lengths[s];
  int64_t rows = starts[SEQUENCES];
  float *qkv = random_floats(rows * 3 * d, 9, 1.5), *out = array(rows * d, sizeof *out);
  float *scratch = array(3 * wm_attention_scratch(MAX, dh), sizeof *scratch);
  wm_query_block_t *blocks = array(rows, sizeof *blocks);
  int64_t n_blocks = wm_query_blocks(SEQUENCES, starts, blocks);
  assert_int_equal(n_blocks, SEQUENCES + 1 + 2);
  double *wide = to_doubles(qkv, rows * 3 * d), *expected = array(rows * d, sizeof *expected);
  /* Scores, up to 40, err by (dh + 2) eps relatively, so weights by 40 (dh + 2) eps; values are
   * below 7. In practice errors are random: a quarter of that. */
  const float scale = 1 / sqrtf((float)dh);
  const double bound = 0.25 * 7 * 40 * (double)(dh + 2) * eps;
  for (int k = 0; k < 2; k++) {
    wm_attention_apply(&layouts[k], qkv, blocks, n_blocks, scale, MAX, scratch, out);
    for (int s = 0; s < SEQUENCES; s++)
      wm_reference_attention(&layouts[k], wide + starts[s] * 3 * d, lengths[s], (double)scale,
                             expected + starts[s] * d);
    for (int64_t i = 0; i < rows * d; i++)
      assert_true(fabs((double)out[i] - expected[i]) <= bound);
  }
  free(qkv), free(out), free(scratch), free(blocks), free(wide), free(expected);
}

static void attention_agrees_with_reference(void **state) {
  (void)state;
  omp_set_num_threads(3);
  static const int64_t widths[] = {1, 12, 64, 80};
  for (int i = 0; i < 4; i++)
    attention_agrees(widths[i]);
  omp_set_num_threads(1);
}

/* Log-sum-exp by tiles whose maxima rise and fall, targets in every tile. */
static void nll_agrees_with_reference(void **state) {
  (void)state;
  enum { ROWS = 9, V = 1003, TILE = 100 };
  float *logits = random_floats(ROWS * V, 11, 6), *tile = array(ROWS * TILE, sizeof *tile);
  int32_t targets[ROWS];
  wm_log_sum_t sums[ROWS];
  for (int i = 0; i < ROWS; i++) {
    targets[i] = i < ROWS - 1 ? 99 * i : V - 1;
    logits[i * V + 110 * i] = i % 2 == 0 ? 80.0f : -90.0f;
  }
  for (int i = 0; i < V; i++)
    logits[4 * V + i] -= 1000; /* a row far below zero */
  wm_log_sum_init(sums, ROWS);
  for (int first = 0; first < V; first += TILE) {
    int width = V - first < TILE ? V - first : TILE;
    for (int i = 0; i < ROWS; i++)
      memcpy(tile + i * width, logits + i * V + first, (size_t)width * sizeof *tile);
    wm_log_sum_add(sums, tile, ROWS, first, width, targets);
  }
  double *wide = to_doubles(logits, ROWS * V);
  for (int i = 0; i < ROWS; i++) {
    double expected = wm_reference_nll(wide + i * V, V, targets[i]);
    /* Terms err by two units, twice eps, of themselves, and by the rounding of their argument. */
    assert_true(fabs(wm_log_sum_nll(&sums[i]) - expected) <= 1e-6);
  }
  free(logits), free(tile), free(wide);
}

static void nll_of_not_finite_logits_is_nan(void **state) {
  (void)state;
  float logits[] = {1, NAN, 2, 1, 2, 3};
  const int32_t targets[] = {0, 0};
  wm_log_sum_t sums[2];
  wm_log_sum_init(sums, 2);
  wm_log_sum_add(sums, logits, 2, 0, 3, targets);
  assert_true(isnan(wm_log_sum_nll(&sums[0])));
  assert_true(fabs(wm_log_sum_nll(&sums[1]) - log(exp(0) + exp(1) + exp(2))) < 1e-6);
}

static int32_t first_largest(const float *x, int n) {
  int32_t best = 0;
  for (int i = 1; i < n; i++)
    best = x[i] > x[best] ? i : best;
  return best;
}

/* In long double. */
static double naive_divergence(const float *f, const float *g, int n) {
  long double lf = 0, lg = 0, sum = 0, mf = f[first_largest(f, n)], mg = g[first_largest(g, n)];
  for (int i = 0; i < n; i++) {
    lf += expl((long double)f[i] - mf);
    lg += expl((long double)g[i] - mg);
  }
  lf = logl(lf) + mf;
  lg = logl(lg) + mg;
  for (int i = 0; i < n; i++)
    sum += expl((long double)f[i] - lf) * (((long double)f[i] - lf) - ((long double)g[i] - lg));
  return (double)sum;
}

/* Divergence and most likely token by tiles whose maxima rise and fall: followers that are close to
 * the leader, far from it, equal to it and shifted by a constant. The loss has the bits that it has
 * without a comparison. */
static void comparison_agrees_with_definition(void **state) {
  (void)state;
  enum { ROWS = 6, V = 1003, TILE = 100 };
  float *f = random_floats(V, 12, 6), *g = random_floats(ROWS * V, 13, 6), weights[TILE];
  wm_compare_t leader, followers[ROWS];
  wm_log_sum_t alone[ROWS];
  f[705] = 25; /* beyond the maximum of the tiles before */
  f[911] = 25; /* an equal: the first counts */
  for (int i = 0; i < V; i++) {
    g[V + i] = f[i] + 0.001f * g[V + i];
    g[2 * V + i] = f[i];
    g[3 * V + i] = f[i] + 8;
    g[4 * V + i] = -f[i];
  }
  g[5 * V + 7] = 60;
  wm_compare_init(&leader, 1);
  wm_compare_init(followers, ROWS);
  wm_log_sum_init(alone, ROWS);
  for (int first = 0; first < V; first += TILE) {
    int width = V - first < TILE ? V - first : TILE;
    const int32_t target = 640;
    wm_compare_move_t move;
    wm_compare_lead(&leader, f + first, first, width, target, weights, &move);
    for (int i = 0; i < ROWS; i++) {
      wm_compare_follow(&followers[i], g + i * V + first, first, width, target, weights, &move);
      wm_log_sum_add(&alone[i], g + i * V + first, 1, first, width, &target);
    }
  }
  assert_int_equal(leader.top, 705);
  for (int i = 0; i < ROWS; i++) {
    double expected = naive_divergence(f, g + i * V, V);
    double found = wm_compare_divergence(&leader, &followers[i]);
    /* Weights and products err by a few eps of |g - max| <= 120; sums are float64. */
    assert_true(fabs(found - expected) <= 1e-6 * expected + 2e-7);
    assert_int_equal(followers[i].top, first_largest(g + i * V, V));
    assert_memory_equal(&followers[i].loss, &alone[i], sizeof alone[i]);
  }
  assert_true(wm_compare_divergence(&leader, &followers[2]) == 0);
  free(f), free(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reference_norm_by_hand),
      cmocka_unit_test(reference_rotary_by_hand),
      cmocka_unit_test(reference_attention_by_hand),
      cmocka_unit_test(reference_nll_by_hand),
      cmocka_unit_test(exponential_within_two_ulps),
      cmocka_unit_test(norm_agrees_with_reference),
      cmocka_unit_test(norm_takes_rows_by_index),
      cmocka_unit_test(rotary_agrees_with_reference),
      cmocka_unit_test(attention_agrees_with_reference),
      cmocka_unit_test(nll_agrees_with_reference),
      cmocka_unit_test(nll_of_not_finite_logits_is_nan),
      cmocka_unit_test(comparison_agrees_with_definition),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
