#include "wanamaker/measure/effects.h"

#include "wanamaker/measure/inference.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

wm_effect_t wm_effect_undefined(void) {
  return (wm_effect_t){.mean_nll = NAN,
                       .perplexity = NAN,
                       .delta = NAN,
                       .low = NAN,
                       .high = NAN,
                       .unpaired_low = NAN,
                       .unpaired_high = NAN,
                       .p_better = NAN,
                       .p_worse = NAN,
                       .p_two_sided = NAN,
                       .p_holm = NAN,
                       .p_bh = NAN};
}

bool wm_effect_significant(const wm_effect_t *e, double level) {
  return e->units >= WM_MIN_UNITS && e->p_holm < level; /* false for NaN */
}

const char *wm_effect_stars(const wm_effect_t *e) {
  if (wm_effect_significant(e, 0.001))
    return "***";
  if (wm_effect_significant(e, 0.01))
    return "**";
  return wm_effect_significant(e, 0.05) ? "*" : "";
}

static void bound_text(double x, char *text, size_t size) {
  if (isinf(x))
    snprintf(text, size, "overflow");
  else
    snprintf(text, size, fabs(x) < 1e12 ? "%.3f" : "%.3e", x);
}

void wm_interval_text(double low, double high, char *text, size_t size) {
  char a[32], b[32];
  bound_text(low, a, sizeof a);
  bound_text(high, b, sizeof b);
  if (isnan(low) || isnan(high))
    snprintf(text, size, "-");
  else
    snprintf(text, size, "[%s, %s]", a, b);
}

void wm_effect_note(const wm_effect_t *e, int64_t n_tokens, char *text, size_t size) {
  text[0] = '\0';
  if (e->non_finite > 0)
    snprintf(text, size, "%" PRId64 " of %" PRId64 " losses are not finite", e->non_finite,
             n_tokens);
  else if (isinf(e->perplexity) || isinf(e->delta))
    snprintf(text, size, "perplexity overflows: %.4g nats a token", e->mean_nll);
  else if (e->units == 1)
    snprintf(text, size, "one unit: no interval");
  else if (e->low == e->high && e->delta == 0 && e->low == 0)
    snprintf(text, size, "no loss differs from the full model's");
  else if (e->low == e->high)
    snprintf(text, size, "all units agree: no spread to judge by");
  else if (e->unresolved)
    snprintf(text, size, "too few resamples: the interval ends at the extreme ones");
}

double wm_effect_width_ratio(const wm_effect_t *e) {
  double paired = e->high - e->low, unpaired = e->unpaired_high - e->unpaired_low;
  return paired > 0 && isfinite(paired) && isfinite(unpaired) ? unpaired / paired : NAN;
}
