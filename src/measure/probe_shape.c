/* Distribution of delta, positions apart, and token types. */
#include "probe_internal.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/measure/inference.h"
#include "wanamaker/measure/probe_pairs.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* --- distribution -------------------------------------------------------------------------------
 */

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Part of `total` that the largest ceil(share n) of sorted[n] carry; `positive`: their positive
 * parts. */
static double top_share(const double *sorted, int64_t n, double share, double total,
                        bool positive) {
  const int64_t count = (int64_t)ceil(share * (double)n);
  double sum = 0;
  for (int64_t i = n - count; i < n; i++)
    sum += positive && sorted[i] < 0 ? 0 : sorted[i];
  return total > 0 ? sum / total : NAN;
}

/* x: [n] sorted. */
static void add_moments(wm_probe_tables_t *t, const double *x, int64_t n, double mean) {
  const wm_probe_table_id_t id = WM_PROBE_DISTRIBUTION;
  const bool equal = n > 0 && x[0] == x[n - 1]; /* their mean may be off by a rounding */
  double m2 = 0, m3 = 0, m4 = 0;
  for (int64_t i = 0; i < n && !equal; i++) {
    const double v = x[i] - mean;
    m2 += v * v / (double)n;
    m3 += v * v * v / (double)n;
    m4 += v * v * v * v / (double)n;
  }
  wm_probe_number(t, id, n > 0 ? mean : NAN);
  wm_probe_number(t, id, n > 0 ? sqrt(m2) : NAN);
  wm_probe_number(t, id, m2 > 0 ? m3 / pow(m2, 1.5) : NAN);
  wm_probe_number(t, id, m2 > 0 ? m4 / (m2 * m2) - 3 : NAN);
}

static void add_note(wm_probe_tables_t *t, const double *x, int64_t n, double sum,
                     int64_t dropped) {
  char note[96] = "";
  if (dropped > 0)
    snprintf(note, sizeof note, "%" PRId64 " deltas are not finite: left out%s", dropped,
             n == 0 ? "; no others" : "");
  else if (n == 0)
    snprintf(note, sizeof note, "no positions");
  else if (x[0] == x[n - 1])
    snprintf(note, sizeof note, "all deltas are equal");
  else if (!(x[n - 1] > 0))
    snprintf(note, sizeof note, "no delta is above 0: no shares");
  else if (!(sum > 0))
    snprintf(note, sizeof note, "the sum is not above 0: no net share");
  wm_probe_text(t, WM_PROBE_DISTRIBUTION, note);
}

wm_status_t wm_probe_distribution(const wm_probe_layer_t *l, wm_probe_tables_t *t,
                                  wm_error_t *err) {
  static const double quantiles[] = {0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99};
  static const double tops[] = {0.01, 0.05, 0.10};
  const wm_probe_table_id_t id = WM_PROBE_DISTRIBUTION;
  void *memory;
  wm_status_t status = wm_alloc(&memory, l->text->n, sizeof(double), "deltas in order", err);
  if (status != WM_OK)
    return status;
  double *x = memory, sum = 0, costs = 0;
  int64_t n = 0, positive = 0, dropped = 0;
  for (int64_t i = 0; i < l->text->n; i++) {
    dropped += !isfinite(l->delta[i]);
    if (l->used[i])
      x[n++] = l->delta[i];
  }
  qsort(x, (size_t)n, sizeof *x, ascending);
  for (int64_t i = 0; i < n; i++) {
    sum += x[i];
    costs += x[i] > 0 ? x[i] : 0;
    positive += x[i] > 0;
  }
  wm_probe_case(l, t, id);
  wm_probe_number(t, id, (double)n);
  add_moments(t, x, n, n > 0 ? sum / (double)n : 0);
  wm_probe_number(t, id, wm_probe_share((double)positive, (double)n));
  for (int q = 0; q < 7; q++)
    wm_probe_number(t, id, wm_quantile_sorted(x, n, quantiles[q]));
  for (int i = 0; i < 3; i++)
    wm_probe_number(t, id, top_share(x, n, tops[i], costs, true));
  wm_probe_number(t, id, top_share(x, n, 0.10, sum, false));
  wm_probe_number(t, id, (double)dropped);
  add_note(t, x, n, sum, dropped);
  free(memory);
  return wm_probe_tables_status(t, err);
}

/* --- positions apart ----------------------------------------------------------------------------
 */

/* Positions with a finite delta: `bits` 0: those of no class, ~0: all, else those of the class. */
static void add_class(const wm_probe_layer_t *l, wm_probe_tables_t *t, const char *name,
                      unsigned bits, double total) {
  const wm_probe_table_id_t id = WM_PROBE_POSITIONS;
  double n = 0, sum = 0, squares = 0, positive = 0;
  for (int64_t i = 0; i < l->text->n; i++) {
    const bool in = bits == 0 ? l->classes[i] == 0 : bits == ~0u || (l->classes[i] & bits) != 0;
    if (!in || !isfinite(l->delta[i]))
      continue;
    n++;
    sum += l->delta[i];
    squares += l->delta[i] * l->delta[i];
    positive += l->delta[i] > 0;
  }
  wm_probe_case(l, t, id);
  wm_probe_text(t, id, name);
  wm_probe_number(t, id, n);
  wm_probe_number(t, id, wm_probe_share(sum, n));
  wm_probe_number(t, id, n > 0 ? sqrt(fmax(0, squares / n - sum * sum / n / n)) : NAN);
  wm_probe_number(t, id, wm_probe_share(positive, n));
  wm_probe_number(t, id, wm_probe_share(sum, total));
  wm_probe_number(t, id, bits != ~0u && (l->options->excluded & bits) != 0);
}

wm_status_t wm_probe_positions(const wm_probe_layer_t *l, wm_probe_tables_t *t, wm_error_t *err) {
  double total = 0;
  for (int64_t i = 0; i < l->text->n; i++)
    total += isfinite(l->delta[i]) ? l->delta[i] : 0;
  add_class(l, t, "all", ~0u, total);
  add_class(l, t, "position 0", WM_CLASS_POSITION0, total);
  add_class(l, t, "first positions", WM_CLASS_FIRST, total);
  add_class(l, t, "end of text", WM_CLASS_END_OF_TEXT, total);
  add_class(l, t, "high norm", WM_CLASS_HIGH_NORM, total);
  add_class(l, t, "none of these", 0, total);
  return wm_probe_tables_status(t, err);
}

/* --- types --------------------------------------------------------------------------------------
 */

static void add_type(const wm_probe_layer_t *l, wm_probe_tables_t *t, wm_probe_key_t key,
                     int64_t type, const wm_type_sums_t *s, const wm_type_sums_t halves[2]) {
  const wm_probe_table_id_t id = WM_PROBE_TYPES;
  const int32_t token = l->text->type[key].id[type];
  wm_probe_case(l, t, id);
  wm_probe_text(t, id, wm_probe_key_name(key));
  wm_probe_number(t, id, token);
  wm_probe_text(t, id, l->traits != NULL ? l->traits->trait[token].spelling : "");
  wm_probe_number(t, id, s->count[type]);
  wm_probe_number(t, id, s->sum[type] / s->count[type]);
  wm_probe_number(t, id, s->positive[type] / s->count[type]);
  for (int h = 0; h < 2; h++)
    wm_probe_number(t, id, wm_probe_share(halves[h].sum[type], halves[h].count[type]));
  wm_probe_number(t, id, wm_type_is_no_fly(s, type, l->options));
}

static wm_status_t types_of_key(const wm_probe_layer_t *l, wm_probe_tables_t *t, wm_probe_key_t key,
                                wm_error_t *err) {
  const wm_probe_side_t side = {l->corpus, l->text, l->delta, l->used};
  wm_type_sums_t sums = {0}, halves[2] = {{0}, {0}};
  wm_status_t status = wm_type_sums_create(&side, key, &sums, err);
  if (status == WM_OK)
    status = wm_type_halves(&side, key, l->options->seed, 0, halves, err);
  for (int64_t i = 0; i < sums.n && status == WM_OK; i++)
    if (sums.count[i] >= (double)l->options->least_count)
      add_type(l, t, key, i, &sums, halves);
  wm_type_sums_destroy(&sums);
  wm_type_sums_destroy(&halves[0]);
  wm_type_sums_destroy(&halves[1]);
  return status == WM_OK ? wm_probe_tables_status(t, err) : status;
}

wm_status_t wm_probe_types(const wm_probe_layer_t *l, wm_probe_tables_t *t, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int k = 0; k < WM_KEYS && status == WM_OK; k++)
    status = types_of_key(l, t, (wm_probe_key_t)k, err);
  return status;
}
