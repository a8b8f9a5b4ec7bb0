/* What a variant costs, as numbers and in words (method.md, section 6).
 *
 * Numbers that do not exist are NaN and those beyond float64 are infinite; what is printed for
 * people has neither: the functions below say in words what a number can't. Not collective.
 */
#ifndef WANAMAKER_MEASURE_EFFECTS_H
#define WANAMAKER_MEASURE_EFFECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* With fewer than two units the interval is not defined: interval and p-values are NaN and
 * beats_full is false. Of a variant with losses that are not finite, all numbers but `non_finite`
 * are NaN. What is NaN is no member of the family that the p-values are adjusted over;
 * nor are references (wm_bootstrap_adjust), whose adjusted p-values are NaN. */
typedef struct {
  double mean_nll;      /* nats */
  double perplexity;    /* its exponential: infinite from about 709.8 nats on */
  double delta;         /* percent, of the data themselves */
  double low, high;     /* interval of delta at bootstrap.confidence (interval.h) */
  double unpaired_low;  /* the study's: each side on draws of its own, plain percentiles; */
  double unpaired_high; /* NaN unless wm_bootstrap_effects_unpaired has filled them */
  double p_better;      /* one-sided, against "delta >= 0": wm_bootstrap_p of #{delta_r >= 0} */
  double p_worse;       /* one-sided, against "delta <= 0": wm_bootstrap_p of #{delta_r <= 0} */
  double p_two_sided;   /* min(1, 2 min(p_better, p_worse)) */
  double p_holm, p_bh;  /* p_two_sided adjusted over the variants that are tested */
  int64_t units;        /* occupied ones, that the interval comes from */
  int64_t non_finite;   /* losses that are not finite */
  bool unresolved; /* too few resamples for the interval's level: it ends at the extreme ones */
  /* "Beats the full model": delta < 0 and p_holm < 1 - confidence, from WM_MIN_UNITS units or more;
   * that is, its interval would lie below zero at the stricter level that Holm's procedure asks of
   * it. p_two_sided has a least value p0 (interval.h), so with V >= (1 - confidence) / p0 variants
   * nothing can beat: more units, or raise R. Before correction p_two_sided <= 1 - confidence
   * exactly if the interval excludes zero. */
  bool beats_full;
} wm_effect_t;

/* All NaN, nothing claimed. */
wm_effect_t wm_effect_undefined(void);

/* Does the effect survive Holm's correction at `level`, from WM_MIN_UNITS units or more? */
bool wm_effect_significant(const wm_effect_t *effect, double level);
/* "***", "**", "*" where it does at 0.001, 0.01, 0.05; else "". */
const char *wm_effect_stars(const wm_effect_t *effect);

/* "[-0.123, 4.567]"; "overflow" stands for a bound beyond float64; "-" if there is no interval. */
void wm_interval_text(double low, double high, char *text, size_t size);

/* What is degenerate about the effect, in words; "" where nothing is:
 *   "3 of 4096 losses are not finite", "perplexity overflows: 812.3 nats a token",
 *   "no loss differs from the full model's", "all units agree: no spread to judge by",
 *   "one unit: no interval",
 *   "too few resamples: the interval ends at the extreme ones". */
void wm_effect_note(const wm_effect_t *effect, int64_t n_tokens, char *text, size_t size);

/* Width of the unpaired interval over that of the paired one; NaN if either does not exist or the
 * paired one has no width. */
double wm_effect_width_ratio(const wm_effect_t *effect);

#endif
