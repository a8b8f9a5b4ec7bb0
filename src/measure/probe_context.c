/* Token against context: gates on parts of the MLP's input, and the parts' geometry. */
#include "probe_internal.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/measure/unit_moments.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- views --------------------------------------------------------------------------------------
 */

/* Mean of a row, and 1 / sqrt(variance + eps). */
static double row_mean(const float *e, int64_t d) {
  double sum = 0;
  for (int64_t j = 0; j < d; j++)
    sum += (double)e[j];
  return sum / (double)d;
}

static double row_factor(const float *e, int64_t d, double mean, double eps) {
  double sum = 0;
  for (int64_t j = 0; j < d; j++)
    sum += ((double)e[j] - mean) * ((double)e[j] - mean);
  return 1 / sqrt(sum / (double)d + eps);
}

static void decompose_row(const wm_probe_layer_t *l, wm_probe_view_t view, int64_t i, float *e,
                          float *c) {
  const float *x = l->x + i * l->d, *raw = l->e + i * l->d;
  const double mean = row_mean(raw, l->d);
  const double factor =
      view == WM_VIEW_NORMALISED ? l->factor[i] : row_factor(raw, l->d, mean, l->eps);
  for (int64_t j = 0; j < l->d; j++) {
    const double offset = (double)l->beta[j];
    double token = (double)raw[j], rest;
    if (view != WM_VIEW_STUDY)
      token = (double)l->gamma[j] * (token - mean) * factor;
    if (view == WM_VIEW_NORMED)
      token += offset;
    rest = (double)x[j] - token;
    if (view == WM_VIEW_NORMALISED)
      rest -= offset;
    e[j] = (float)token;
    c[j] = (float)rest;
  }
}

void wm_probe_decompose(const wm_probe_layer_t *l, wm_probe_view_t view, float *e, float *c) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < l->n; i++)
    decompose_row(l, view, i, e + i * l->d, c + i * l->d);
}

static void multiply(const wm_probe_layer_t *l, const float *a, const float *b, float *out) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < l->n * l->d; i++)
    out[i] = a[i] * b[i];
}

static double norm_of(const float *x, int64_t d) {
  double sum = 0;
  for (int64_t j = 0; j < d; j++)
    sum += (double)x[j] * (double)x[j];
  return sqrt(sum);
}

static double dot_of(const float *x, const float *y, int64_t d) {
  double sum = 0;
  for (int64_t j = 0; j < d; j++)
    sum += (double)x[j] * (double)y[j];
  return sum;
}

/* --- means of types -----------------------------------------------------------------------------
 */

/* out[n, D] <- the mean of e over the used positions of the row's type. Some columns at a time, so
 * that sums of all types fit. Collective. */
static wm_status_t type_means(const wm_probe_layer_t *l, const wm_probe_types_t *types,
                              const float *e, float *out, wm_error_t *err) {
  enum { WIDE = 32 };
  const int64_t d = l->d;
  void *memory, *counts = NULL;
  wm_status_t status =
      wm_alloc(&memory, types->n * WIDE, sizeof(double), "sums of token types", err);
  if (status == WM_OK)
    status = wm_alloc(&counts, types->n, sizeof(double), "sums of token types", err);
  WM_TRY(wm_agree(l->comm->world, status, err));
  double *sums = memory, *count = counts;
  for (int64_t i = 0; i < l->text->n; i++)
    count[types->number[i]] += l->used[i];
  for (int64_t first = 0; first < d; first += WIDE) {
    const int64_t wide = d - first < WIDE ? d - first : WIDE;
    wm_pulse();
    memset(sums, 0, (size_t)(types->n * WIDE) * sizeof *sums);
    for (int64_t i = 0; i < l->n; i++)
      for (int64_t j = 0; l->used[l->place[i]] && j < wide; j++)
        sums[types->number[l->place[i]] * WIDE + j] += (double)e[i * d + first + j];
    wm_sum_f64(l->comm->world, sums, types->n * WIDE);
    for (int64_t i = 0; i < l->n; i++)
      for (int64_t j = 0; j < wide; j++) {
        const int32_t type = types->number[l->place[i]];
        out[i * d + first + j] = count[type] > 0 ? (float)(sums[type * WIDE + j] / count[type]) : 0;
      }
  }
cleanup:
  free(memory);
  free(counts);
  return status;
}

/* --- gates --------------------------------------------------------------------------------------
 */

/* Both labels of the used positions. */
typedef struct {
  const wm_probe_layer_t *l;
  wm_probe_tables_t *tables;
  wm_probe_labels_t labels[2];
} context_t;

static void add_row(const context_t *c, int which, const char *view, const char *gate,
                    const char *key, const wm_probe_judgement_t *j, const char *note) {
  const wm_probe_table_id_t id = WM_PROBE_CONTEXT;
  const wm_probe_labels_t *labels = &c->labels[which];
  char text[64];
  const bool quartile = which == 0 && labels->train.quartile;
  const char *reason = wm_probe_judgement_note(c->l, labels, j, note);
  snprintf(text, sizeof text, "%s%s%s", reason, reason[0] != '\0' && quartile ? "; " : "",
           quartile ? "few better: 25th percentile" : "");
  wm_probe_case(c->l, c->tables, id);
  wm_probe_text(c->tables, id, which == 0 ? "median" : "quartile");
  wm_probe_text(c->tables, id, view);
  wm_probe_text(c->tables, id, gate);
  wm_probe_text(c->tables, id, key);
  wm_probe_number(c->tables, id, (double)labels->train.positions);
  wm_probe_number(c->tables, id, (double)labels->test);
  wm_probe_number(c->tables, id, j->auc);
  wm_probe_number(c->tables, id, j->low);
  wm_probe_number(c->tables, id, j->high);
  wm_probe_number(c->tables, id, j->accuracy);
  wm_probe_text(c->tables, id, text);
}

static void tell(const context_t *c, const char *view, const char *gate, const char *key) {
  char text[64];
  snprintf(text, sizeof text, "gate on %s%s%s%s%s", gate, key[0] != '\0' ? ", " : "", key,
           view[0] != '\0' ? ", " : "", view);
  wm_probe_next(c->l, text);
}

/* Gates on the features f [n, k], for both labels. Collective. */
static wm_status_t fit_both(const context_t *c, const char *view, const char *gate, const char *key,
                            const float *f, int64_t k, wm_error_t *err) {
  const wm_probe_layer_t *l = c->l;
  wm_status_t status = WM_OK;
  for (int which = 0; which < 2 && status == WM_OK; which++) {
    wm_probe_judgement_t judgement;
    WM_TRY(wm_probe_go_on(l, err));
    tell(c, view, gate, key);
    wm_probe_fit_t fit;
    char note[64] = "";
    status = wm_probe_fit_gate(l, f, k, c->labels[which].label, l->score, note, &fit, err);
    if (status == WM_OK)
      status = wm_probe_judge(l, l->score, c->labels[which].label, 0, &judgement, err);
    if (status != WM_OK)
      break;
    if (!fit.fitted)
      judgement = (wm_probe_judgement_t){NAN, NAN, NAN, NAN, NAN, NAN};
    add_row(c, which, view, gate, key, &judgement, note);
    wm_probe_done(l, 1);
  }
cleanup:
  return status;
}

/* l->score, whatever made it, for both labels. Collective. */
static wm_status_t judge_both(const context_t *c, const char *gate, const char *key,
                              wm_error_t *err) {
  for (int which = 0; which < 2; which++) {
    wm_probe_judgement_t judgement;
    wm_status_t status =
        wm_probe_judge(c->l, c->l->score, c->labels[which].label, 0, &judgement, err);
    if (status != WM_OK)
      return status;
    judgement.accuracy = NAN; /* there is no threshold */
    add_row(c, which, "", gate, key, &judgement, "");
  }
  return WM_OK;
}

/* Collective. */
static wm_status_t random_gate(const context_t *c, wm_error_t *err) {
  const wm_rng_t rng = {c->l->options->seed, WM_PROBE_RANDOM};
  for (int64_t i = 0; i < c->l->text->n; i++)
    c->l->score[i] = wm_rng_uniform(rng, (uint64_t)i);
  return judge_both(c, "random", "", err);
}

/* Minus the mean delta of the type's training positions, with one more at the mean of all; types
 * that are not among them get that mean. Collective. */
static wm_status_t type_delta_gate(const context_t *c, wm_probe_key_t key, wm_error_t *err) {
  const wm_probe_layer_t *l = c->l;
  const wm_probe_types_t *types = &l->text->type[key];
  void *memory;
  wm_status_t status = wm_alloc(&memory, 2 * types->n, sizeof(double), "sums of token types", err);
  status = wm_agree(l->comm->world, status, err);
  if (status != WM_OK) {
    free(memory);
    return status;
  }
  double *sum = memory, *count = sum + types->n, all = 0, n = 0;
  for (int64_t i = 0; i < l->text->n; i++)
    if (l->used[i] && !l->text->test[i]) {
      sum[types->number[i]] += l->delta[i];
      count[types->number[i]]++;
      all += l->delta[i];
      n++;
    }
  const double mean = n > 0 ? all / n : 0;
  for (int64_t i = 0; i < l->text->n; i++) {
    const int32_t type = types->number[i];
    l->score[i] = -(sum[type] + mean) / (count[type] + 1);
  }
  free(memory);
  return judge_both(c, "type's mean delta", wm_probe_key_name(key), err);
}

/* --- geometry -----------------------------------------------------------------------------------
 */

typedef enum { NORM_X, NORM_E, NORM_C, RATIO, COSINE, QUANTITIES } quantity_t;

static const char *const quantity_names[QUANTITIES] = {"|x|", "|e|", "|c|", "|c| / |x|",
                                                       "cos(e, c)"};

static double quantity_of(const float *x, const float *e, const float *c, int64_t d, quantity_t q) {
  switch (q) {
  case NORM_X:
    return norm_of(x, d);
  case NORM_E:
    return norm_of(e, d);
  case NORM_C:
    return norm_of(c, d);
  case RATIO:
    return wm_probe_share(norm_of(c, d), norm_of(x, d));
  default:
    return wm_probe_share(dot_of(e, c, d), norm_of(e, d) * norm_of(c, d));
  }
}

static double spread(double n, double sum, double squares) {
  return n > 0 ? sqrt(fmax(0, squares / n - sum * sum / n / n)) : NAN;
}

/* Rows whose quantity is not defined (a part of length 0) are left out. Collective. */
static wm_status_t add_quantity(const context_t *c, const char *view, quantity_t q, const float *e,
                                const float *rest, uint8_t *used, wm_error_t *err) {
  const wm_probe_layer_t *l = c->l;
  const wm_probe_table_id_t id = WM_PROBE_GEOMETRY;
  wm_unit_statistic_t r;
  memset(l->score, 0, (size_t)l->text->n * sizeof *l->score);
  for (int64_t i = 0; i < l->n; i++)
    if (l->used[l->place[i]])
      l->score[l->place[i]] = quantity_of(l->x + i * l->d, e + i * l->d, rest + i * l->d, l->d, q);
  wm_sum_f64(l->comm->world, l->score, l->text->n);
  for (int64_t i = 0; i < l->text->n; i++)
    used[i] = l->used[i] && isfinite(l->score[i]);
  wm_status_t status = wm_unit_statistic(l->comm->world, WM_MOMENT_CORRELATION, l->score, l->delta,
                                         used, l->text->unit, l->text->n, l->text->n_units,
                                         &l->options->bootstrap, &r, err);
  if (status != WM_OK)
    return status;
  wm_probe_case(l, c->tables, id);
  wm_probe_text(c->tables, id, view);
  wm_probe_text(c->tables, id, quantity_names[q]);
  wm_probe_number(c->tables, id, r.all.n);
  wm_probe_number(c->tables, id, r.mean_x);
  wm_probe_number(c->tables, id, spread(r.all.n, r.all.x, r.all.xx));
  wm_probe_number(c->tables, id, r.value);
  wm_probe_number(c->tables, id, r.low);
  wm_probe_number(c->tables, id, r.high);
  wm_probe_text(c->tables, id, wm_probe_reason(l, &r));
  return status;
}

static wm_status_t geometry(const context_t *c, const char *view, const float *e, const float *rest,
                            wm_error_t *err) {
  void *used;
  wm_status_t status =
      wm_agree(c->l->comm->world, wm_alloc(&used, c->l->text->n, 1, "positions", err), err);
  for (int q = 0; q < QUANTITIES && status == WM_OK; q++)
    status = add_quantity(c, view, (quantity_t)q, e, rest, used, err);
  free(used);
  return status;
}

/* --- probe --------------------------------------------------------------------------------------
 */

/* Collective. */
static wm_status_t run_view(const context_t *c, wm_probe_view_t view, wm_error_t *err) {
  const wm_probe_layer_t *l = c->l;
  const char *name = wm_probe_view_name(view);
  float *e = l->work, *rest = e + l->n * l->d, *other = rest + l->n * l->d;
  wm_status_t status;
  wm_probe_decompose(l, view, e, rest);
  WM_TRY(geometry(c, name, e, rest, err));
  WM_TRY(fit_both(c, name, "e", "", e, l->d, err));
  WM_TRY(fit_both(c, name, "c", "", rest, l->d, err));
  multiply(l, e, rest, other);
  WM_TRY(fit_both(c, name, "e * c", "", other, l->d, err));
  for (int64_t i = 0; i < l->n; i++)
    other[i] = (float)norm_of(rest + i * l->d, l->d);
  WM_TRY(fit_both(c, name, "|c|", "", other, 1, err));
  for (int k = 0; k < WM_KEYS; k++) {
    WM_TRY(type_means(l, &l->text->type[k], e, other, err));
    WM_TRY(
        fit_both(c, name, "type's mean e", wm_probe_key_name((wm_probe_key_t)k), other, l->d, err));
  }
cleanup:
  return status;
}

wm_status_t wm_probe_context(const wm_probe_layer_t *l, wm_probe_tables_t *tables,
                             wm_error_t *err) {
  context_t c = {.l = l, .tables = tables};
  void *quartile = NULL;
  wm_status_t status = wm_alloc(&quartile, l->text->n, sizeof(int8_t), "labels", err);
  if (status == WM_OK)
    status = wm_probe_label(l, false, l->label, &c.labels[0], err);
  if (status == WM_OK)
    status = wm_probe_label(l, true, quartile, &c.labels[1], err);
  WM_TRY(wm_agree(l->comm->world, status, err));
  WM_TRY(fit_both(&c, "", "x", "", l->x, l->d, err));
  WM_TRY(random_gate(&c, err));
  for (int k = 0; k < WM_KEYS; k++)
    WM_TRY(type_delta_gate(&c, (wm_probe_key_t)k, err));
  for (int v = 0; v < WM_VIEWS; v++)
    if (l->options->views[v])
      WM_TRY(run_view(&c, (wm_probe_view_t)v, err));
cleanup:
  free(quartile);
  return status;
}
