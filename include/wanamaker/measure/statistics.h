/* Perplexities, the paired bootstrap and multiple testing (method.md, sections 2 and 6).
 *
 * Everything is derived from per-token negative log-likelihoods (natural logarithm):
 *     PPL = exp(sum of NLL / N)        delta% = 100 (PPL_variant / PPL_full - 1)
 *
 * The bootstrap draws units (articles, lines, windows) with replacement, as many as there are, and
 * computes both perplexities on the same draw, so what full model and variant have in common
 * cancels. Of a unit only its token count and the sums of its NLLs matter; R resamples of U units
 * cost O(R U) draws and O(R U V) multiply-adds for V variants, which share the resamples.
 *
 * Intervals and p-values are those of interval.h: expanded percentile intervals, which allow for
 * few units. Simulated (test_measure_effects: unequal units, 2000 repetitions, so that a standard
 * error is 0.5 %), 95 % intervals cover 93.4 % at 10 units, 94.8 % at 20, 95.1 % at 30 and 94.9 %
 * at 120; plain percentile intervals 88 % at 10.
 *
 * The study draws for each side alone, so that its intervals are some ten times as wide; that is
 * here as well, to show what pairing gains: the full model on resample r, the variants on a
 * resample of their own. These are the study's own, plain percentile intervals by interpolated
 * quantiles (wm_percentile_interval), whatever the paired ones are.
 *
 * Draw j of resample r is a pure function of (seed, r, j), and a resample's sums run over units in
 * ascending order: any split of the resamples over ranks or threads gives the same bits.
 *
 * Sums over tokens are float64, compensated (Neumaier), in index order. Nothing here is collective.
 */
#ifndef WANAMAKER_MEASURE_STATISTICS_H
#define WANAMAKER_MEASURE_STATISTICS_H

#include "wanamaker/base/status.h"
#include "wanamaker/measure/effects.h"
#include "wanamaker/measure/inference.h"
#include "wanamaker/measure/interval.h"

#include <stdbool.h>
#include <stdint.h>

/* Compensated sum of x[n]. */
double wm_sum_nll(const float *x, int64_t n);

/* exp(sum of nll[n] / n); NaN for n = 0. */
double wm_perplexity(const float *nll, int64_t n);

/* Sums over units of what a bootstrap needs. Caller-owned: wm_unit_sums_destroy. */
typedef struct {
  int64_t n_units;    /* U, those without tokens included */
  int64_t n_occupied; /* units that have tokens: only these are drawn */
  int64_t n_variants; /* V */
  int64_t n_tokens;   /* N */
  double *tokens;     /* [U] token counts */
  double *full;       /* [U] sums of the full model's NLL */
  double *excess;     /* [U, V] row-major: sums of NLL_variant - NLL_full */
  int64_t *bad;       /* [V] losses that are not finite */
} wm_unit_sums_t;

/* Starts the sums with the full model's nll[n_tokens] and each token's unit, 0 <= units[i] <
 * n_units (anything else: assertion); room for n_variants, zero so far. n_tokens = 0: WM_INPUT.
 * NLLs that are not finite: WM_NUMERICAL with their number and the first's index; *out is then
 * zeroed. */
wm_status_t wm_unit_sums_create(const float *full, const int32_t *units, int64_t n_tokens,
                                int64_t n_units, int64_t n_variants, wm_unit_sums_t *out,
                                wm_error_t *err);
/* Fills column `variant` of `excess` from nll[n_tokens]; the same arrays as before. A variant at a
 * time, so that the [V, N] array need not be in memory. NLLs that are not finite: WM_NUMERICAL as
 * above, `name` is what the message calls the variant; its column is then NaN and so will be its
 * effect, while the other variants go on without it. */
wm_status_t wm_unit_sums_add(wm_unit_sums_t *sums, int64_t variant, const char *name,
                             const float *nll, const float *full, const int32_t *units,
                             wm_error_t *err);
void wm_unit_sums_destroy(wm_unit_sums_t *sums);

typedef struct {
  int64_t resamples; /* R, 10 000 in the study */
  uint64_t seed;
  double confidence; /* of the interval, in (0, 1): 0.95 */
  bool unpaired;     /* the study's interval is wanted too */
  wm_interval_kind_t interval;
} wm_bootstrap_t;

/* {10000, 1, 0.95, false, WM_INTERVAL_EXPANDED} */
wm_bootstrap_t wm_bootstrap_default(void);

/* Resamples [begin, end) of the R: delta[v * R + r] in percent, for all v; other elements of
 * delta[V, R] are left alone. To share out: zero the array, let each rank do its part
 * (wm_partition), add up with wm_sum_f64. OpenMP inside. Needs two occupied units or more; with
 * fewer the elements are NaN. WM_ENVIRONMENT: memory. */
wm_status_t wm_bootstrap_run(const wm_unit_sums_t *sums, const wm_bootstrap_t *bootstrap,
                             int64_t begin, int64_t end, double *delta, wm_error_t *err);

/* The same with variants on draws of their own: delta of resample r compares them there with the
 * full model on the draws of wm_bootstrap_run. */
wm_status_t wm_bootstrap_run_unpaired(const wm_unit_sums_t *sums, const wm_bootstrap_t *bootstrap,
                                      int64_t begin, int64_t end, double *delta, wm_error_t *err);

/* effects[V] (effects.h) from the whole delta[V, R]. `perplexity` comes from sums.full +
 * sums.excess. */
wm_status_t wm_bootstrap_effects(const wm_unit_sums_t *sums, const wm_bootstrap_t *bootstrap,
                                 const double *delta, wm_effect_t *effects, wm_error_t *err);
/* Adjusts the p-values of effects[n] anew over a family without the variants that are there for
 * comparison: of those with reference[v] the adjusted p-values are NaN, and they beat nothing.
 * reference: NULL if there are none. */
wm_status_t wm_bootstrap_adjust(wm_effect_t *effects, int64_t n, const bool *reference,
                                double confidence, wm_error_t *err);
/* Fills the unpaired intervals of effects[V] from the whole delta[V, R] of
 * wm_bootstrap_run_unpaired. */
wm_status_t wm_bootstrap_effects_unpaired(const wm_unit_sums_t *sums,
                                          const wm_bootstrap_t *bootstrap, const double *delta,
                                          wm_effect_t *effects, wm_error_t *err);

/* The full model's mean loss and perplexity from its sums. */
double wm_unit_sums_mean(const wm_unit_sums_t *sums);
double wm_unit_sums_perplexity(const wm_unit_sums_t *sums);

#endif
