#include "wanamaker/measure/statistics.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <string.h>

/* ---- Sums ------------------------------------------------------------------------------------ */

/* Neumaier's step: *sum + *lost is the sum so far, *lost what rounding took from *sum. */
static void add_compensated(double *sum, double *lost, double x) {
  double t = *sum + x;
  if (fabs(*sum) >= fabs(x))
    *lost += (*sum - t) + x;
  else
    *lost += (x - t) + *sum;
  *sum = t;
}

double wm_sum_nll(const float *x, int64_t n) {
  double sum = 0, lost = 0;
  for (int64_t i = 0; i < n; i++)
    add_compensated(&sum, &lost, (double)x[i]);
  return sum + lost;
}

double wm_perplexity(const float *nll, int64_t n) {
  return n > 0 ? exp(wm_sum_nll(nll, n) / (double)n) : NAN;
}

/* *count: losses that are not finite. */
static wm_status_t check_finite(const char *name, const float *nll, int64_t n, int64_t *count,
                                wm_error_t *err) {
  int64_t bad = 0, first = -1;
  for (int64_t i = 0; i < n; i++) {
    if (!isfinite(nll[i])) {
      if (bad == 0)
        first = i;
      bad++;
    }
  }
  *count = bad;
  if (bad > 0)
    return wm_fail(err, WM_NUMERICAL,
                   "%s: %" PRId64 " of %" PRId64
                   " losses are not finite, the first at prediction %" PRId64,
                   name, bad, n, first);
  return WM_OK;
}

/* sums[units[i] * stride] += value(i), with value(i) = a[i] - b[i], or a[i] without b. */
static wm_status_t sum_by_unit(const float *a, const float *b, const int32_t *units, int64_t n,
                               int64_t n_units, int64_t stride, double *sums, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, n_units, sizeof(double), "sums of units", err);
  if (status != WM_OK)
    return status;
  double *lost = memory;
  for (int64_t i = 0; i < n; i++) {
    double value = (double)a[i] - (b != NULL ? (double)b[i] : 0.0);
    add_compensated(&sums[units[i] * stride], &lost[units[i]], value);
  }
  for (int64_t u = 0; u < n_units; u++)
    sums[u * stride] += lost[u];
  free(lost);
  return WM_OK;
}

static void count_units(wm_unit_sums_t *s, const int32_t *units) {
  for (int64_t i = 0; i < s->n_tokens; i++) {
    assert(units[i] >= 0 && units[i] < s->n_units);
    s->tokens[units[i]]++;
  }
  for (int64_t u = 0; u < s->n_units; u++)
    s->n_occupied += s->tokens[u] > 0;
}

wm_status_t wm_unit_sums_create(const float *full, const int32_t *units, int64_t n_tokens,
                                int64_t n_units, int64_t n_variants, wm_unit_sums_t *out,
                                wm_error_t *err) {
  wm_status_t status;
  void *memory = NULL;
  int64_t bad;
  *out = (wm_unit_sums_t){.n_units = n_units, .n_variants = n_variants, .n_tokens = n_tokens};
  if (n_tokens <= 0)
    WM_TRY(wm_fail(err, WM_INPUT, "no predictions to take statistics of"));
  WM_TRY(check_finite("full model", full, n_tokens, &bad, err));
  WM_TRY(wm_alloc(&memory, n_units * (2 + n_variants), sizeof(double), "sums of units", err));
  out->tokens = memory;
  out->full = out->tokens + n_units;
  out->excess = out->full + n_units;
  WM_TRY(wm_alloc(&memory, n_variants, sizeof(int64_t), "sums of units", err));
  out->bad = memory;
  count_units(out, units);
  WM_TRY(sum_by_unit(full, NULL, units, n_tokens, n_units, 1, out->full, err));
cleanup:
  if (status != WM_OK)
    wm_unit_sums_destroy(out);
  return status;
}

wm_status_t wm_unit_sums_add(wm_unit_sums_t *sums, int64_t variant, const char *name,
                             const float *nll, const float *full, const int32_t *units,
                             wm_error_t *err) {
  assert(variant >= 0 && variant < sums->n_variants);
  wm_status_t status = check_finite(name, nll, sums->n_tokens, &sums->bad[variant], err);
  double *column = sums->excess + variant;
  for (int64_t u = 0; u < sums->n_units; u++)
    column[u * sums->n_variants] = status == WM_OK ? 0 : NAN;
  if (status != WM_OK)
    return status;
  return sum_by_unit(nll, full, units, sums->n_tokens, sums->n_units, sums->n_variants, column,
                     err);
}

void wm_unit_sums_destroy(wm_unit_sums_t *sums) {
  free(sums->tokens); /* start of the one block that all sums share */
  free(sums->bad);
  *sums = (wm_unit_sums_t){0};
}

static double strided_sum(const double *x, int64_t n, int64_t stride) {
  double sum = 0, lost = 0;
  for (int64_t i = 0; i < n; i++)
    add_compensated(&sum, &lost, x[i * stride]);
  return sum + lost;
}

double wm_unit_sums_mean(const wm_unit_sums_t *s) {
  return strided_sum(s->full, s->n_units, 1) / (double)s->n_tokens;
}

double wm_unit_sums_perplexity(const wm_unit_sums_t *s) {
  return exp(wm_unit_sums_mean(s));
}

/* ---- Bootstrap ------------------------------------------------------------------------------- */

wm_bootstrap_t wm_bootstrap_default(void) {
  return (wm_bootstrap_t){.resamples = 10000, .seed = 1, .confidence = 0.95};
}

/* Percent by which exp(excess / tokens) is above 1; expm1 keeps the digits of small effects. */
static double percent(double excess, double tokens) {
  return 100.0 * expm1(excess / tokens);
}

/* drawn[k] <- how often resample r of a stream of draws takes occupied unit k. */
static void draw_units(uint64_t seed, uint64_t stream, int64_t n, int32_t *drawn) {
  wm_rng_t rng = {.seed = seed, .stream = stream};
  memset(drawn, 0, (size_t)n * sizeof *drawn);
  for (int64_t j = 0; j < n; j++)
    drawn[wm_rng_below(rng, (uint64_t)j, (uint64_t)n)]++;
}

/* Sums over the drawn units: tokens, the full model's losses, and excess[V] of the variants. The
 * inner loop runs over variants, which the compiler may vectorise without touching the order of any
 * one variant's sum. */
typedef struct {
  double tokens, full;
} drawn_sums_t;

static drawn_sums_t add_drawn(const wm_unit_sums_t *s, const int64_t *occupied,
                              const int32_t *drawn, double *excess) {
  const int64_t V = s->n_variants;
  drawn_sums_t sums = {0, 0};
  for (int64_t v = 0; v < V; v++)
    excess[v] = 0;
  for (int64_t k = 0; k < s->n_occupied; k++) {
    if (drawn[k] == 0)
      continue;
    double times = drawn[k];
    const double *row = s->excess + occupied[k] * V;
    sums.tokens += times * s->tokens[occupied[k]];
    sums.full += times * s->full[occupied[k]];
    for (int64_t v = 0; v < V; v++)
      excess[v] += times * row[v];
  }
  return sums;
}

static void list_occupied(const wm_unit_sums_t *s, int64_t *occupied) {
  int64_t n = 0;
  for (int64_t u = 0; u < s->n_units; u++)
    if (s->tokens[u] > 0)
      occupied[n++] = u;
}

static void fill_undefined(const wm_unit_sums_t *s, int64_t resamples, int64_t begin, int64_t end,
                           double *delta) {
  for (int64_t v = 0; v < s->n_variants; v++)
    for (int64_t r = begin; r < end; r++)
      delta[v * resamples + r] = NAN;
}

/* Streams of the variants' own draws begin here, those of the full model's at 0. */
static const uint64_t OWN_DRAWS = UINT64_C(1) << 63;

/* delta[v * resamples + r] for all v. */
static void resample(const wm_unit_sums_t *s, const wm_bootstrap_t *b, bool paired, int64_t r,
                     const int64_t *occupied, int32_t *drawn, double *excess, double *delta) {
  draw_units(b->seed, (uint64_t)r, s->n_occupied, drawn);
  drawn_sums_t base = add_drawn(s, occupied, drawn, excess);
  double shift = 0; /* what the full model loses more, per token, on the variants' draws */
  if (!paired) {
    double before = base.full / base.tokens;
    draw_units(b->seed, OWN_DRAWS | (uint64_t)r, s->n_occupied, drawn);
    base = add_drawn(s, occupied, drawn, excess);
    shift = base.full / base.tokens - before;
  }
  for (int64_t v = 0; v < s->n_variants; v++)
    delta[v * b->resamples + r] = percent(excess[v] + shift * base.tokens, base.tokens);
}

static wm_status_t run(const wm_unit_sums_t *s, const wm_bootstrap_t *b, bool paired, int64_t begin,
                       int64_t end, double *delta, wm_error_t *err) {
  assert(0 <= begin && begin <= end && end <= b->resamples);
  wm_status_t status;
  void *occupied = NULL, *drawn = NULL, *excess = NULL;
  if (s->n_occupied < 2) {
    fill_undefined(s, b->resamples, begin, end, delta);
    return WM_OK;
  }
  int64_t threads = omp_get_max_threads();
  WM_TRY(wm_alloc(&occupied, s->n_occupied, sizeof(int64_t), "bootstrap units", err));
  WM_TRY(wm_alloc(&drawn, threads * s->n_occupied, sizeof(int32_t), "bootstrap draws", err));
  WM_TRY(wm_alloc(&excess, threads * s->n_variants, sizeof(double), "bootstrap sums", err));
  list_occupied(s, occupied);
#pragma omp parallel for schedule(static)
  for (int64_t r = begin; r < end; r++) {
    wm_pulse();
    resample(s, b, paired, r, occupied, (int32_t *)drawn + omp_get_thread_num() * s->n_occupied,
             (double *)excess + omp_get_thread_num() * s->n_variants, delta);
  }
cleanup:
  free(occupied);
  free(drawn);
  free(excess);
  return status;
}

wm_status_t wm_bootstrap_run(const wm_unit_sums_t *s, const wm_bootstrap_t *b, int64_t begin,
                             int64_t end, double *delta, wm_error_t *err) {
  return run(s, b, true, begin, end, delta, err);
}

wm_status_t wm_bootstrap_run_unpaired(const wm_unit_sums_t *s, const wm_bootstrap_t *b,
                                      int64_t begin, int64_t end, double *delta, wm_error_t *err) {
  return run(s, b, false, begin, end, delta, err);
}

/* Interval and p-values of one variant from its resamples x[R], which are sorted. */
static void judge(double *x, const wm_bootstrap_t *b, wm_effect_t *e) {
  const int64_t n = b->resamples;
  int64_t not_below = 0, not_above = 0;
  for (int64_t r = 0; r < n; r++) {
    not_below += x[r] >= 0;
    not_above += x[r] <= 0;
  }
  e->p_better = wm_bootstrap_p(b->interval, not_below, n, e->units);
  e->p_worse = wm_bootstrap_p(b->interval, not_above, n, e->units);
  e->p_two_sided = fmin(1.0, 2.0 * fmin(e->p_better, e->p_worse));
  e->unresolved =
      !wm_bootstrap_interval(b->interval, x, n, e->units, b->confidence, &e->low, &e->high);
}

wm_status_t wm_bootstrap_adjust(wm_effect_t *effects, int64_t n, const bool *reference,
                                double confidence, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, 3 * n, sizeof(double), "p-values", err);
  if (status != WM_OK)
    return status;
  double *p = memory, *holm = p + n, *bh = holm + n;
  for (int64_t v = 0; v < n; v++)
    p[v] = reference != NULL && reference[v] ? NAN : effects[v].p_two_sided;
  WM_TRY(wm_adjust_holm(p, n, holm, err));
  WM_TRY(wm_adjust_bh(p, n, bh, err));
  for (int64_t v = 0; v < n; v++) {
    effects[v].p_holm = holm[v];
    effects[v].p_bh = bh[v];
    effects[v].beats_full =
        effects[v].delta < 0 && wm_effect_significant(&effects[v], 1.0 - confidence);
  }
cleanup:
  free(memory);
  return status;
}

wm_status_t wm_bootstrap_effects(const wm_unit_sums_t *s, const wm_bootstrap_t *b,
                                 const double *delta, wm_effect_t *effects, wm_error_t *err) {
  assert(b->resamples > 0 && b->confidence > 0 && b->confidence < 1);
  void *memory;
  wm_status_t status = wm_alloc(&memory, b->resamples, sizeof(double), "bootstrap sample", err);
  if (status != WM_OK)
    return status;
  double N = (double)s->n_tokens;
  double full = strided_sum(s->full, s->n_units, 1);
  for (int64_t v = 0; v < s->n_variants; v++) {
    double excess = strided_sum(s->excess + v, s->n_units, s->n_variants);
    wm_effect_t *e = &effects[v];
    *e = wm_effect_undefined();
    e->mean_nll = (full + excess) / N;
    e->perplexity = exp(e->mean_nll);
    e->delta = percent(excess, N);
    e->units = s->n_occupied;
    e->non_finite = s->bad[v];
    if (s->n_occupied < 2 || isnan(e->delta))
      continue;
    memcpy(memory, delta + v * b->resamples, (size_t)b->resamples * sizeof(double));
    judge(memory, b, e);
  }
  free(memory);
  return wm_bootstrap_adjust(effects, s->n_variants, NULL, b->confidence, err);
}

wm_status_t wm_bootstrap_effects_unpaired(const wm_unit_sums_t *s, const wm_bootstrap_t *b,
                                          const double *delta, wm_effect_t *effects,
                                          wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, b->resamples, sizeof(double), "bootstrap sample", err);
  if (status != WM_OK)
    return status;
  for (int64_t v = 0; v < s->n_variants; v++) {
    memcpy(memory, delta + v * b->resamples, (size_t)b->resamples * sizeof(double));
    wm_percentile_interval(memory, b->resamples, b->confidence, &effects[v].unpaired_low,
                           &effects[v].unpaired_high);
  }
  free(memory);
  return WM_OK;
}
