#include "wanamaker/train/adamw.h"

#include <math.h>

enum { BLOCK = 4096 };

void wm_adamw_step(const wm_adamw_t *adamw, int64_t step, double rate, double factor,
                   const float *g, int64_t n, float *p, float *m, float *v) {
  const float beta1 = (float)adamw->beta1, beta2 = (float)adamw->beta2;
  const float rest1 = (float)(1 - adamw->beta1), rest2 = (float)(1 - adamw->beta2);
  const float shrink = (float)(1 - rate * adamw->weight_decay), scale = (float)factor;
  const float length = (float)(rate / (1 - pow(adamw->beta1, (double)step)));
  const float root = (float)(1 / sqrt(1 - pow(adamw->beta2, (double)step)));
  const float epsilon = (float)adamw->epsilon;
#pragma omp parallel for schedule(static)
  for (int64_t first = 0; first < n; first += BLOCK) {
    int64_t end = n - first < BLOCK ? n : first + BLOCK;
    for (int64_t i = first; i < end; i++) {
      float gradient = g[i] * scale;
      m[i] = beta1 * m[i] + rest1 * gradient;
      v[i] = beta2 * v[i] + rest2 * gradient * gradient;
      p[i] = p[i] * shrink - length * (m[i] / (sqrtf(v[i]) * root + epsilon));
    }
  }
}

static double block_squares(const float *g, int64_t n) {
  enum { LANES = 8 };
  double sums[LANES] = {0}, sum = 0;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++)
      sums[k] += (double)g[i + k] * (double)g[i + k];
  for (; i < n; i++)
    sums[0] += (double)g[i] * (double)g[i];
  for (int k = 0; k < LANES; k++)
    sum += sums[k];
  return sum;
}

/* Groups of blocks are summed by one thread each and then added in order. */
double wm_sum_squares(const float *g, int64_t n) {
  enum { GROUPS = 256 };
  double sums[GROUPS] = {0}, sum = 0;
  int64_t blocks = (n + BLOCK - 1) / BLOCK, share = (blocks + GROUPS - 1) / GROUPS;
#pragma omp parallel for schedule(static)
  for (int k = 0; k < GROUPS; k++)
    for (int64_t b = k * share; b < (k + 1) * share && b < blocks; b++)
      sums[k] += block_squares(g + b * BLOCK, n - b * BLOCK < BLOCK ? n - b * BLOCK : BLOCK);
  for (int k = 0; k < GROUPS; k++)
    sum += sums[k];
  return sum;
}

double wm_clip_factor(double norm, double limit) {
  double factor = limit > 0 ? limit / (norm + 1e-6) : 1;
  return factor < 1 ? factor : 1;
}
