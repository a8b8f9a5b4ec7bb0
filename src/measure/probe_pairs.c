#include "wanamaker/measure/probe_pairs.h"

#include "probe_internal.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/measure/inference.h"

#include <math.h>
#include <string.h>

/* --- sums of types ------------------------------------------------------------------------------
 */

static wm_status_t new_sums(int64_t n, wm_type_sums_t *s, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, 3 * n, sizeof(double), "sums of token types", err);
  *s = (wm_type_sums_t){.n = n, .count = memory};
  if (status == WM_OK) {
    s->sum = s->count + n;
    s->positive = s->sum + n;
  }
  return status;
}

void wm_type_sums_destroy(wm_type_sums_t *s) {
  free(s->count);
  memset(s, 0, sizeof *s);
}

static void add_position(wm_type_sums_t *s, int32_t type, double delta, double times) {
  s->count[type] += times;
  s->sum[type] += times * delta;
  s->positive[type] += delta > 0 ? times : 0;
}

wm_status_t wm_type_sums_create(const wm_probe_side_t *side, wm_probe_key_t key, wm_type_sums_t *s,
                                wm_error_t *err) {
  const wm_probe_types_t *types = &side->text->type[key];
  wm_status_t status = new_sums(types->n, s, err);
  for (int64_t i = 0; i < side->text->n && status == WM_OK; i++)
    if (side->used[i])
      add_position(s, types->number[i], side->delta[i], 1);
  return status;
}

wm_status_t wm_type_halves(const wm_probe_side_t *side, wm_probe_key_t key, uint64_t seed,
                           int64_t h, wm_type_sums_t sums[2], wm_error_t *err) {
  const wm_probe_types_t *types = &side->text->type[key];
  const wm_rng_t rng = {seed, (uint64_t)(WM_PROBE_HALVES + h)};
  sums[1] = (wm_type_sums_t){0};
  wm_status_t status = new_sums(types->n, &sums[0], err);
  if (status == WM_OK)
    status = new_sums(types->n, &sums[1], err);
  for (int64_t i = 0; i < side->text->n && status == WM_OK; i++)
    if (side->used[i])
      add_position(&sums[wm_rng_bits(rng, (uint64_t)i) & 1], types->number[i], side->delta[i], 1);
  return status;
}

bool wm_type_is_no_fly(const wm_type_sums_t *s, int64_t t, const wm_probe_options_t *o) {
  return s->count[t] > 0 && s->sum[t] / s->count[t] > o->no_fly_delta &&
         s->positive[t] / s->count[t] > o->no_fly_share;
}

/* other[t] <- the type of `to` with the same token, -1: it does not occur there. */
static void match(const wm_probe_types_t *from, const wm_probe_types_t *to, int32_t *other) {
  for (int64_t t = 0, u = 0; t < from->n; t++) {
    while (u < to->n && to->id[u] < from->id[t])
      u++;
    other[t] = u < to->n && to->id[u] == from->id[t] ? (int32_t)u : -1;
  }
}

/* --- the study's construction -------------------------------------------------------------------
 */

/* x and y: [types of `from`] scratch. */
static void follow(const wm_type_sums_t *a, const wm_type_sums_t *b, const int32_t *other,
                   const wm_probe_options_t *o, double *x, double *y, wm_probe_fate_t *out) {
  *out = (wm_probe_fate_t){.r = NAN};
  for (int64_t t = 0; t < a->n; t++) {
    if (a->count[t] < (double)o->least_count)
      continue;
    out->types++;
    if (!wm_type_is_no_fly(a, t, o))
      continue;
    out->listed++;
    const int32_t u = other[t];
    if (u < 0 || b->count[u] < (double)o->least_found)
      continue;
    x[out->found] = a->sum[t] / a->count[t];
    y[out->found] = b->sum[u] / b->count[u];
    out->flipped += y[out->found] < 0;
    out->still += wm_type_is_no_fly(b, u, o);
    out->found++;
  }
  out->r = wm_pearson(x, y, out->found);
}

wm_status_t wm_probe_fate(const wm_probe_side_t *from, const wm_probe_side_t *to,
                          wm_probe_key_t key, const wm_probe_options_t *o, wm_probe_fate_t *out,
                          wm_error_t *err) {
  const wm_probe_types_t *types = &from->text->type[key];
  wm_type_sums_t a = {0}, b = {0};
  void *other = NULL, *means = NULL;
  wm_status_t status;
  WM_TRY(wm_type_sums_create(from, key, &a, err));
  WM_TRY(wm_type_sums_create(to, key, &b, err));
  WM_TRY(wm_alloc(&other, types->n, sizeof(int32_t), "token types", err));
  WM_TRY(wm_alloc(&means, 2 * types->n, sizeof(double), "token types", err));
  match(types, &to->text->type[key], other);
  follow(&a, &b, other, o, means, (double *)means + types->n, out);
cleanup:
  wm_type_sums_destroy(&a);
  wm_type_sums_destroy(&b);
  free(other);
  free(means);
  return status;
}

/* --- without selection --------------------------------------------------------------------------
 */

/* Types that occur often enough on both sides. */
typedef struct {
  const wm_probe_side_t *side[2];
  wm_probe_key_t key;
  const wm_probe_options_t *o;
  int64_t n;
  int32_t *type[2]; /* [n] of each side */
  double *x, *y;    /* [n] scratch */
} common_t;

static void find_common(common_t *c, const wm_type_sums_t sums[2], const int32_t *other) {
  const double least = (double)c->o->least_count;
  for (int64_t t = 0; t < sums[0].n; t++)
    if (other[t] >= 0 && sums[0].count[t] >= least && sums[1].count[other[t]] >= least) {
      c->type[0][c->n] = (int32_t)t;
      c->type[1][c->n++] = other[t];
    }
}

/* Correlation of means over the types that have observations in both. */
static double correlate(const common_t *c, const wm_type_sums_t *a, const int32_t *type_a,
                        const wm_type_sums_t *b, const int32_t *type_b, double *x, double *y) {
  int64_t n = 0;
  for (int64_t i = 0; i < c->n; i++) {
    const int32_t s = type_a[i], t = type_b[i];
    if (a->count[s] > 0 && b->count[t] > 0) {
      x[n] = a->sum[s] / a->count[s];
      y[n++] = b->sum[t] / b->count[t];
    }
  }
  return wm_pearson(x, y, n);
}

/* Reliability of a side's means over the common types. */
static wm_status_t halve(const common_t *c, int which, double *out, wm_error_t *err) {
  double sum = 0;
  *out = NAN;
  for (int64_t h = 0; h < c->o->halvings; h++) {
    wm_type_sums_t sums[2] = {{0}, {0}};
    wm_status_t status = wm_type_halves(c->side[which], c->key, c->o->seed, h, sums, err);
    if (status == WM_OK)
      sum += correlate(c, &sums[0], c->type[which], &sums[1], c->type[which], c->x, c->y);
    wm_type_sums_destroy(&sums[0]);
    wm_type_sums_destroy(&sums[1]);
    if (status != WM_OK)
      return status;
    wm_pulse();
  }
  const double r = sum / (double)c->o->halvings;
  *out = 2 * r / (1 + r);
  return WM_OK;
}

/* sums <- the side's positions, each as often as its unit is drawn. */
static void draw_side(const common_t *c, int which, uint64_t stream, double *drawn,
                      wm_type_sums_t *sums) {
  const wm_probe_side_t *side = c->side[which];
  const wm_probe_text_t *t = side->text;
  const wm_rng_t rng = {c->o->bootstrap.seed, stream};
  memset(drawn, 0, (size_t)t->n_units * sizeof *drawn);
  memset(sums->count, 0, (size_t)(3 * sums->n) * sizeof(double));
  for (int64_t j = 0; j < t->n_units; j++)
    drawn[wm_rng_below(rng, (uint64_t)j, (uint64_t)t->n_units)]++;
  for (int64_t i = 0; i < t->n; i++)
    if (side->used[i] && drawn[t->unit[i]] > 0)
      add_position(sums, t->type[c->key].number[i], side->delta[i], drawn[t->unit[i]]);
}

/* r of resamples [first, first + count): units of both sides are drawn. */
static wm_status_t resample(const common_t *c, int64_t first, int64_t count, double *r,
                            wm_error_t *err) {
  const int64_t units = c->side[0]->text->n_units > c->side[1]->text->n_units
                            ? c->side[0]->text->n_units
                            : c->side[1]->text->n_units;
  wm_type_sums_t sums[2] = {{0}, {0}};
  void *drawn = NULL;
  wm_status_t status;
  for (int s = 0; s < 2; s++)
    WM_TRY(new_sums(c->side[s]->text->type[c->key].n, &sums[s], err));
  WM_TRY(wm_alloc(&drawn, units, sizeof(double), "bootstrap draws", err));
  for (int64_t i = first; i < first + count; i++) {
    for (int s = 0; s < 2; s++)
      draw_side(c, s, (uint64_t)(2 * i + s), drawn, &sums[s]);
    r[i] = correlate(c, &sums[0], c->type[0], &sums[1], c->type[1], c->x, c->y);
    wm_pulse();
  }
cleanup:
  wm_type_sums_destroy(&sums[0]);
  wm_type_sums_destroy(&sums[1]);
  free(drawn);
  return status;
}

/* Two sides' units are drawn; the interval is expanded as for the fewer, which is wide enough for
 * either's share of the spread. */
static int64_t least_units(const common_t *c) {
  const int64_t a = c->side[0]->text->n_units, b = c->side[1]->text->n_units;
  return a < b ? a : b;
}

/* Means of a resample are noisier than the means, and so its r is nearer to 0. On Fisher's scale,
 * where the spread of r does not depend on r, all of r[n] are moved so that their mean is the
 * estimate's; nothing is done where some r is 1 and so free of noise. */
static void recentre(double *r, int64_t n, double estimate) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += atanh(r[i]);
  const double shift = atanh(estimate) - sum / (double)n;
  for (int64_t i = 0; i < n && isfinite(shift); i++)
    r[i] = tanh(atanh(r[i]) + shift);
}

/* Collective. */
static wm_status_t interval(MPI_Comm comm, const common_t *c, wm_probe_agreement_t *out,
                            wm_error_t *err) {
  const wm_bootstrap_t *b = &c->o->bootstrap;
  const int64_t units = least_units(c);
  int rank, size;
  int64_t first, count;
  void *memory;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  if (units < 2 || b->resamples == 0)
    return WM_OK;
  wm_status_t status = wm_alloc(&memory, b->resamples, sizeof(double), "bootstrap", err);
  WM_TRY(wm_agree(comm, status, err));
  wm_partition(b->resamples, size, rank, &first, &count);
  WM_TRY(wm_agree(comm, resample(c, first, count, memory, err), err));
  wm_sum_f64(comm, memory, b->resamples);
  recentre(memory, b->resamples, out->r);
  wm_bootstrap_bounds(b->interval, memory, b->resamples, units, b->confidence, &out->low,
                      &out->high);
cleanup:
  free(memory);
  return status;
}

static wm_status_t open_common(common_t *c, wm_error_t *err) {
  const wm_probe_types_t *types = &c->side[0]->text->type[c->key];
  wm_type_sums_t sums[2] = {{0}, {0}};
  void *memory = NULL, *other = NULL;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, 2 * types->n, sizeof(int32_t), "token types", err));
  c->type[0] = memory;
  c->type[1] = c->type[0] + types->n;
  WM_TRY(wm_alloc(&memory, 2 * types->n, sizeof(double), "token types", err));
  c->x = memory;
  c->y = c->x + types->n;
  WM_TRY(wm_alloc(&other, types->n, sizeof(int32_t), "token types", err));
  for (int s = 0; s < 2; s++)
    WM_TRY(wm_type_sums_create(c->side[s], c->key, &sums[s], err));
  match(types, &c->side[1]->text->type[c->key], other);
  find_common(c, sums, other);
cleanup:
  wm_type_sums_destroy(&sums[0]);
  wm_type_sums_destroy(&sums[1]);
  free(other);
  return status;
}

wm_status_t wm_probe_agreement(MPI_Comm comm, const wm_probe_side_t *a, const wm_probe_side_t *b,
                               wm_probe_key_t key, const wm_probe_options_t *o,
                               wm_probe_agreement_t *out, wm_error_t *err) {
  common_t c = {.side = {a, b}, .key = key, .o = o};
  wm_type_sums_t sums[2] = {{0}, {0}};
  *out = (wm_probe_agreement_t){.r = NAN, .low = NAN, .high = NAN, .corrected = NAN};
  wm_status_t status = open_common(&c, err);
  for (int s = 0; s < 2 && status == WM_OK; s++)
    status = wm_type_sums_create(c.side[s], key, &sums[s], err);
  for (int s = 0; s < 2 && status == WM_OK; s++)
    status = halve(&c, s, &out->reliability[s], err);
  WM_TRY(wm_agree(comm, status, err));
  out->types = c.n;
  out->r = correlate(&c, &sums[0], c.type[0], &sums[1], c.type[1], c.x, c.y);
  const double product = out->reliability[0] * out->reliability[1];
  if (out->reliability[0] > 0 && out->reliability[1] > 0)
    out->corrected = out->r / sqrt(product);
  WM_TRY(interval(comm, &c, out, err));
cleanup:
  wm_type_sums_destroy(&sums[0]);
  wm_type_sums_destroy(&sums[1]);
  free(c.type[0]);
  free(c.x);
  return status;
}

/* --- rows ---------------------------------------------------------------------------------------
 */

static void begin_row(wm_probe_tables_t *t, wm_probe_table_id_t id, const char *corpus,
                      const char *other, const char *surrogates, int64_t layer,
                      wm_probe_key_t key) {
  wm_probe_text(t, id, corpus);
  wm_probe_text(t, id, other);
  wm_probe_text(t, id, surrogates);
  wm_probe_number(t, id, (double)layer);
  wm_probe_text(t, id, wm_probe_key_name(key));
}

static void add_fate(wm_probe_tables_t *t, const wm_probe_fate_t *f) {
  const wm_probe_table_id_t id = WM_PROBE_FATES;
  wm_probe_number(t, id, (double)f->types);
  wm_probe_number(t, id, (double)f->listed);
  wm_probe_number(t, id, (double)f->found);
  wm_probe_number(t, id, (double)(f->listed - f->found));
  wm_probe_number(t, id, (double)f->still);
  wm_probe_number(t, id, (double)f->flipped);
  wm_probe_number(t, id, wm_probe_share((double)f->still, (double)f->found));
  wm_probe_number(t, id, f->r);
  wm_probe_text(t, id,
                f->types == 0    ? "no type has enough observations"
                : f->listed == 0 ? "no type is No-Fly"
                : f->found < 3   ? "fewer than 3 found: r says nothing"
                                 : "");
}

static void add_agreement(wm_probe_tables_t *t, const wm_probe_agreement_t *g, double study) {
  const wm_probe_table_id_t id = WM_PROBE_CORRELATIONS;
  const bool unreliable = fmin(g->reliability[0], g->reliability[1]) < 0.3;
  const double attenuation =
      isnan(g->corrected) ? NAN : sqrt(g->reliability[0] * g->reliability[1]);
  wm_probe_number(t, id, (double)g->types);
  wm_probe_number(t, id, g->r);
  wm_probe_number(t, id, g->low);
  wm_probe_number(t, id, g->high);
  wm_probe_number(t, id, g->reliability[0]);
  wm_probe_number(t, id, g->reliability[1]);
  wm_probe_number(t, id, g->corrected);
  wm_probe_number(t, id, g->low / attenuation);
  wm_probe_number(t, id, g->high / attenuation);
  wm_probe_number(t, id, study);
  wm_probe_text(t, id,
                g->types < 3          ? "fewer than 3 types are on both sides"
                : isnan(g->r)         ? "mean deltas of one side are constant"
                : isnan(g->corrected) ? "no reliability: nothing to correct by"
                : isnan(g->low)       ? "too few units or resamples for an interval"
                : unreliable          ? "a reliability is below 0.3: corrected r says little"
                : isnan(study)        ? "study's r: too few No-Fly types found"
                                      : "");
}

wm_status_t wm_probe_pair(const wm_comm_t *comm, const wm_probe_options_t *o, int64_t layer,
                          const char *surrogates, const wm_probe_side_t *a,
                          const wm_probe_side_t *b, wm_probe_tables_t *tables, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int k = 0; k < WM_KEYS; k++) {
    const wm_probe_key_t key = (wm_probe_key_t)k;
    wm_probe_fate_t there, back;
    wm_probe_agreement_t agreement;
    status = wm_probe_fate(a, b, key, o, &there, err);
    if (status == WM_OK)
      status = wm_probe_fate(b, a, key, o, &back, err);
    WM_TRY(wm_agree(comm->world, status, err));
    WM_TRY(wm_probe_agreement(comm->world, a, b, key, o, &agreement, err));
    begin_row(tables, WM_PROBE_FATES, a->corpus, b->corpus, surrogates, layer, key);
    add_fate(tables, &there);
    begin_row(tables, WM_PROBE_FATES, b->corpus, a->corpus, surrogates, layer, key);
    add_fate(tables, &back);
    begin_row(tables, WM_PROBE_CORRELATIONS, a->corpus, b->corpus, surrogates, layer, key);
    add_agreement(tables, &agreement, there.r);
  }
cleanup:
  return status;
}
