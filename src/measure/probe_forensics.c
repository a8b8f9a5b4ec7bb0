/* Forensics: what features of the token say of delta, one by one and together, and categories. */
#include "probe_internal.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/linalg/spd.h"
#include "wanamaker/measure/inference.h"
#include "wanamaker/measure/unit_moments.h"

#include <math.h>
#include <string.h>

/* Thirteen features. */
typedef enum {
  LOG_FREQUENCY,
  LOG_RANK,
  SUBWORD,
  LENGTH,
  FUNCTION_WORD,
  POSITION,
  SURPRISE,
  ENTROPY,
  ALPHABETIC,
  STARTS_WORD,
  DIVERGENCE,
  AGREEMENT,
  PUNCTUATION,
  FEATURES
} feature_t;

static const char *const feature_names[FEATURES] = {
    "log frequency",    "log rank",  "subword",    "length",     "function word",
    "position",         "surprise",  "entropy",    "alphabetic", "starts a word",
    "KL(full, linear)", "agreement", "punctuation"};

typedef struct {
  const wm_probe_layer_t *l;
  wm_probe_tables_t *tables;
  wm_probe_key_t key;
  double *value;     /* [FEATURES, N] */
  double *predicted; /* [N] */
  uint8_t *side;     /* [N] */
  double mean[FEATURES], scale[FEATURES], coefficient[FEATURES];
  double intercept;
} forensics_t;

/* --- features -----------------------------------------------------------------------------------
 */

static double feature_of(const wm_probe_layer_t *l, const wm_token_trait_t *t, int64_t i,
                         feature_t f) {
  switch (f) {
  case LOG_FREQUENCY:
    return t->log_frequency;
  case LOG_RANK:
    return t->log_rank;
  case SUBWORD:
    return t->subword;
  case LENGTH:
    return t->characters;
  case FUNCTION_WORD:
    return t->function_word;
  case POSITION:
    return l->text->position[i];
  case SURPRISE:
    return t->surprise;
  case ENTROPY:
    return l->entropy[i];
  case ALPHABETIC:
    return t->alphabetic;
  case STARTS_WORD:
    return t->starts_word;
  case DIVERGENCE:
    return l->divergence[i];
  case AGREEMENT:
    return l->agreed[i];
  default:
    return t->punctuation;
  }
}

static void fill(forensics_t *f) {
  const wm_probe_layer_t *l = f->l;
  for (int k = 0; k < FEATURES; k++)
    for (int64_t i = 0; i < l->text->n; i++)
      f->value[k * l->text->n + i] =
          feature_of(l, &l->traits->trait[wm_probe_token(l->text, f->key, i)], i, (feature_t)k);
}

/* A position whose features are all finite. */
static bool complete(const forensics_t *f, int64_t i) {
  bool finite = f->l->used[i] != 0;
  for (int k = 0; k < FEATURES && finite; k++)
    finite = isfinite(f->value[k * f->l->text->n + i]);
  return finite;
}

static int64_t select_side(const forensics_t *f, bool test) {
  int64_t n = 0;
  for (int64_t i = 0; i < f->l->text->n; i++) {
    f->side[i] = (f->l->text->test[i] != 0) == test && complete(f, i);
    n += f->side[i];
  }
  return n;
}

/* --- regression ---------------------------------------------------------------------------------
 */

/* Mean and population standard deviation over the side's positions; a constant keeps scale 1. */
static void standardize(forensics_t *f, int64_t n) {
  for (int k = 0; k < FEATURES; k++) {
    const double *v = f->value + k * f->l->text->n;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < f->l->text->n; i++)
      sum += f->side[i] ? v[i] : 0;
    f->mean[k] = sum / (double)n;
    for (int64_t i = 0; i < f->l->text->n; i++)
      squares += f->side[i] ? (v[i] - f->mean[k]) * (v[i] - f->mean[k]) : 0;
    const double sd = sqrt(squares / (double)n);
    f->scale[k] = sd > 1e-12 * (fabs(f->mean[k]) + 1) ? sd : 1;
  }
}

/* Ridge regression of delta on the standardised features of the side. Collective. */
static wm_status_t regress(forensics_t *f, int64_t n, wm_error_t *err) {
  const wm_probe_layer_t *l = f->l;
  double a[FEATURES * FEATURES] = {0}, b[FEATURES] = {0}, z[FEATURES], sum = 0;
  standardize(f, n);
  for (int64_t i = 0; i < l->text->n; i++)
    sum += f->side[i] ? l->delta[i] : 0;
  f->intercept = sum / (double)n;
  for (int64_t i = 0; i < l->text->n; i++) {
    if (!f->side[i])
      continue;
    for (int k = 0; k < FEATURES; k++)
      z[k] = (f->value[k * l->text->n + i] - f->mean[k]) / f->scale[k];
    for (int k = 0; k < FEATURES; k++) {
      b[k] += z[k] * (l->delta[i] - f->intercept);
      for (int j = 0; j <= k; j++)
        a[k * FEATURES + j] += z[k] * z[j];
    }
  }
  for (int k = 0; k < FEATURES; k++)
    a[k * FEATURES + k] += l->options->alpha;
  return wm_spd_solve(l->comm->world, l->options->block, FEATURES, a, b, f->coefficient, err);
}

static void predict(forensics_t *f) {
  for (int64_t i = 0; i < f->l->text->n; i++) {
    double sum = f->intercept;
    for (int k = 0; k < FEATURES; k++)
      sum += f->coefficient[k] * (f->value[k * f->l->text->n + i] - f->mean[k]) / f->scale[k];
    f->predicted[i] = complete(f, i) ? sum : 0;
  }
}

/* Collective. */
static wm_status_t r2_of(const forensics_t *f, wm_unit_statistic_t *out, wm_error_t *err) {
  const wm_probe_text_t *t = f->l->text;
  return wm_unit_statistic(f->l->comm->world, WM_MOMENT_R2, f->predicted, f->l->delta, f->side,
                           t->unit, t->n, t->n_units, &f->l->options->bootstrap, out, err);
}

/* Fitted to training positions; R^2 there and on held-out ones. Collective. */
static wm_status_t add_regression(forensics_t *f, wm_error_t *err) {
  const wm_probe_table_id_t id = WM_PROBE_REGRESSION;
  wm_unit_statistic_t in = {.value = NAN}, out = {.value = NAN, .low = NAN, .high = NAN};
  const int64_t train = select_side(f, false);
  int64_t test = 0;
  wm_status_t status = WM_OK;
  for (int k = 0; k < FEATURES; k++)
    f->coefficient[k] = NAN;
  if (train > 0) {
    WM_TRY(regress(f, train, err));
    predict(f);
    WM_TRY(r2_of(f, &in, err));
    test = select_side(f, true);
    WM_TRY(r2_of(f, &out, err));
  }
  wm_probe_case(f->l, f->tables, id);
  wm_probe_text(f->tables, id, wm_probe_key_name(f->key));
  wm_probe_text(f->tables, id, "all");
  wm_probe_number(f->tables, id, (double)train);
  wm_probe_number(f->tables, id, (double)test);
  wm_probe_number(f->tables, id, in.value);
  wm_probe_number(f->tables, id, out.value);
  wm_probe_number(f->tables, id, out.low);
  wm_probe_number(f->tables, id, out.high);
  wm_probe_text(f->tables, id,
                train == 0         ? "no training positions"
                : test == 0        ? "no held-out positions"
                : isnan(in.value)  ? "delta is constant"
                : isnan(out.value) ? "delta is constant where it is held out"
                                   : wm_probe_reason(f->l, &out));
cleanup:
  return status;
}

/* Each feature by itself, over all used positions. Collective. */
static wm_status_t add_features(const forensics_t *f, wm_error_t *err) {
  const wm_probe_layer_t *l = f->l;
  const wm_probe_table_id_t id = WM_PROBE_FORENSICS;
  for (int64_t i = 0; i < l->text->n; i++)
    f->side[i] = complete(f, i);
  for (int k = 0; k < FEATURES; k++) {
    wm_unit_statistic_t r;
    wm_status_t status = wm_unit_statistic(
        l->comm->world, WM_MOMENT_CORRELATION, f->value + k * l->text->n, l->delta, f->side,
        l->text->unit, l->text->n, l->text->n_units, &l->options->bootstrap, &r, err);
    if (status != WM_OK)
      return status;
    wm_probe_case(l, f->tables, id);
    wm_probe_text(f->tables, id, wm_probe_key_name(f->key));
    wm_probe_text(f->tables, id, feature_names[k]);
    wm_probe_number(f->tables, id, r.mean_x);
    wm_probe_number(f->tables, id, r.all.n > 0 ? sqrt(r.all.xx / r.all.n) : NAN);
    wm_probe_number(f->tables, id, f->coefficient[k]);
    wm_probe_number(f->tables, id, r.value * r.value);
    wm_probe_number(f->tables, id, r.value);
    wm_probe_number(f->tables, id, r.low);
    wm_probe_number(f->tables, id, r.high);
    wm_probe_text(f->tables, id, wm_probe_reason(l, &r));
  }
  return WM_OK;
}

/* --- categories ---------------------------------------------------------------------------------
 */

/* Collective. */
static wm_status_t add_category(const forensics_t *f, int category, int64_t all, wm_error_t *err) {
  const wm_probe_layer_t *l = f->l;
  const wm_probe_table_id_t id = WM_PROBE_CATEGORIES;
  wm_unit_statistic_t m;
  int64_t n = 0, positive = 0;
  for (int64_t i = 0; i < l->text->n; i++) {
    const wm_token_trait_t *t = &l->traits->trait[wm_probe_token(l->text, f->key, i)];
    f->side[i] = l->used[i] && t->category == category;
    if (f->side[i]) {
      f->predicted[n++] = l->delta[i];
      positive += l->delta[i] > 0;
    }
  }
  wm_status_t status =
      wm_unit_statistic(l->comm->world, WM_MOMENT_MEAN, l->delta, l->delta, f->side, l->text->unit,
                        l->text->n, l->text->n_units, &l->options->bootstrap, &m, err);
  if (status != WM_OK)
    return status;
  wm_probe_case(l, f->tables, id);
  wm_probe_text(f->tables, id, wm_probe_key_name(f->key));
  wm_probe_text(f->tables, id, l->traits->category[category]);
  wm_probe_number(f->tables, id, (double)n);
  wm_probe_number(f->tables, id, wm_probe_share((double)n, (double)all));
  wm_probe_number(f->tables, id, m.value);
  wm_probe_number(f->tables, id, m.low);
  wm_probe_number(f->tables, id, m.high);
  wm_probe_number(f->tables, id, n > 0 ? sqrt(m.all.yy / m.all.n) : NAN);
  wm_probe_number(f->tables, id, wm_median(f->predicted, n));
  wm_probe_number(f->tables, id, wm_probe_share((double)positive, (double)n));
  wm_probe_text(f->tables, id, wm_probe_reason(l, &m));
  return WM_OK;
}

/* --- probe --------------------------------------------------------------------------------------
 */

static wm_status_t run_key(forensics_t *f, wm_error_t *err) {
  int64_t all = 0;
  wm_status_t status;
  fill(f);
  WM_TRY(add_regression(f, err));
  WM_TRY(add_features(f, err));
  for (int64_t i = 0; i < f->l->text->n; i++)
    all += f->l->used[i];
  for (int c = 0; c < f->l->traits->n_categories; c++)
    WM_TRY(add_category(f, c, all, err));
cleanup:
  return status;
}

wm_status_t wm_probe_forensics(const wm_probe_layer_t *l, wm_probe_tables_t *tables,
                               wm_error_t *err) {
  forensics_t f = {.l = l, .tables = tables};
  void *memory = NULL, *side = NULL;
  if (l->traits == NULL)
    return WM_OK;
  wm_status_t status =
      wm_alloc(&memory, (FEATURES + 1) * l->text->n, sizeof(double), "features of tokens", err);
  if (status == WM_OK)
    status = wm_alloc(&side, l->text->n, 1, "positions", err);
  WM_TRY(wm_agree(l->comm->world, status, err));
  f.value = memory;
  f.predicted = f.value + FEATURES * l->text->n;
  f.side = side;
  for (int k = 0; k < WM_KEYS; k++) {
    f.key = (wm_probe_key_t)k;
    wm_probe_next(l, "features of tokens");
    WM_TRY(run_key(&f, err));
    wm_probe_done(l, 1);
  }
cleanup:
  free(memory);
  free(side);
  return status;
}
