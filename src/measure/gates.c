#include "wanamaker/measure/gates.h"

#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- kinds --------------------------------------------------------------------------------------
 */

static const char *const kind_names[WM_GATE_KINDS] = {"linear",  "pca",      "component", "norm",
                                                      "max_abs", "kurtosis", "random",    "oracle"};

const char *wm_gate_kind_name(wm_gate_kind_t kind) {
  assert(kind < WM_GATE_KINDS);
  return kind_names[kind];
}

bool wm_gate_kind_parse(const char *name, wm_gate_kind_t *out) {
  for (int k = 0; k < WM_GATE_KINDS; k++)
    if (strcmp(name, kind_names[k]) == 0) {
      *out = (wm_gate_kind_t)k;
      return true;
    }
  return false;
}

bool wm_gate_has_weight(wm_gate_kind_t kind) {
  return kind == WM_GATE_LINEAR || kind == WM_GATE_PCA || kind == WM_GATE_COMPONENT;
}

bool wm_gate_has_score(wm_gate_kind_t kind) {
  return kind != WM_GATE_RANDOM && kind != WM_GATE_ORACLE;
}

void wm_gate_label(const wm_gate_t *gate, char *text, size_t size) {
  if (gate->kind == WM_GATE_PCA)
    snprintf(text, size, "pca%" PRId64, gate->components);
  else if (gate->kind == WM_GATE_COMPONENT)
    snprintf(text, size, "pc%" PRId64, gate->components);
  else if (gate->kind == WM_GATE_RANDOM)
    snprintf(text, size, "random%.4g", 100 * gate->fraction);
  else
    snprintf(text, size, "%s", wm_gate_kind_name(gate->kind));
}

double wm_gate_flops(const wm_gate_t *gate, int64_t d) {
  const double width = (double)d, k = (double)gate->components;
  if (!wm_gate_has_score(gate->kind))
    return 0;
  return gate->kind == WM_GATE_PCA ? 2 * width * k + 2 * k : 2 * width;
}

/* --- the set ------------------------------------------------------------------------------------
 */

wm_status_t wm_gates_create(int64_t n_layers, int64_t d, int64_t k, wm_gates_t **out,
                            wm_error_t *err) {
  assert(n_layers > 0 && d > 0 && k >= 0);
  void *memory;
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_gates_t), "gates", err);
  *out = memory;
  if (status == WM_OK)
    **out = (wm_gates_t){.n_layers = n_layers, .d = d, .k = k};
  return status;
}

static void free_gate(wm_gate_t *g) {
  free((void *)g->weight);
  free((void *)g->coefficient);
}

static void free_layer(wm_gate_layer_t *l) {
  free((void *)l->mean);
  free((void *)l->scale);
  free((void *)l->components);
  free((void *)l->variance);
}

void wm_gates_free(wm_gates_t *gates) {
  if (gates == NULL)
    return;
  for (int64_t g = 0; g < gates->n; g++)
    free_gate(&gates->gates[g]);
  for (int64_t i = 0; i < gates->n_described; i++)
    free_layer(&gates->layers[i]);
  free(gates->gates);
  free(gates->layers);
  free(gates);
}

/* NULL stays NULL. */
static wm_status_t copy(const double *from, int64_t n, const double **out, wm_error_t *err) {
  void *memory = NULL;
  *out = NULL;
  if (from == NULL)
    return WM_OK;
  wm_status_t status = wm_alloc(&memory, n, sizeof *from, "gates", err);
  if (status == WM_OK)
    memcpy(memory, from, (size_t)n * sizeof *from);
  *out = memory;
  return status;
}

wm_status_t wm_gates_add_layer(wm_gates_t *s, const wm_gate_layer_t *layer, wm_error_t *err) {
  const int64_t last = s->n_described > 0 ? s->layers[s->n_described - 1].layer : -1;
  wm_status_t status;
  if (layer->layer >= s->n_layers || layer->layer <= last)
    return wm_fail(err, WM_USAGE,
                   "layer %" PRId64 " of a set of gates does not exist or is out of order: the "
                   "model has layers 0 to %" PRId64 ", and the one before is %" PRId64,
                   layer->layer, s->n_layers - 1, last);
  wm_gate_layer_t l = *layer;
  l.mean = l.scale = l.components = l.variance = NULL;
  void *memory = s->layers;
  WM_TRY(wm_grow(&memory, &s->layer_capacity, s->n_described, s->n_described + 1, sizeof l, "gates",
                 err));
  s->layers = memory;
  WM_TRY(copy(layer->mean, s->d, &l.mean, err));
  WM_TRY(copy(layer->scale, s->d, &l.scale, err));
  WM_TRY(copy(layer->components, s->k * s->d, &l.components, err));
  WM_TRY(copy(layer->variance, s->k, &l.variance, err));
  s->layers[s->n_described++] = l;
cleanup:
  if (status != WM_OK)
    free_layer(&l);
  return status;
}

const wm_gate_layer_t *wm_gates_layer(const wm_gates_t *s, int64_t layer) {
  for (int64_t i = 0; i < s->n_described; i++)
    if (s->layers[i].layer == layer)
      return &s->layers[i];
  return NULL;
}

static bool all_finite(const double *x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (!isfinite(x[i]))
      return false;
  return true;
}

static bool is_fraction(double x) {
  return x >= 0 && x <= 1;
}

/* What is wrong with a gate, NULL if nothing is. */
static const char *fault_of(const wm_gates_t *s, const wm_gate_t *g) {
  if (wm_gates_layer(s, g->layer) == NULL)
    return "its layer was not described";
  const bool components = g->kind == WM_GATE_PCA || g->kind == WM_GATE_COMPONENT;
  if (components != (g->components > 0) || g->components < 0 || g->components > s->k)
    return "it has a wrong number of components";
  if (wm_gate_has_weight(g->kind) != (g->weight != NULL))
    return "it lacks its weight, or has one without use";
  if (g->weight != NULL && !all_finite(g->weight, s->d))
    return "a weight is not finite";
  if (wm_gate_has_score(g->kind) && !isfinite(g->bias))
    return "its bias is not finite";
  if (wm_gate_has_score(g->kind) && g->weight == NULL && !isfinite(g->scale))
    return "its scale is not finite";
  if (wm_gate_has_score(g->kind) && !is_fraction(g->threshold))
    return "its threshold is not between 0 and 1";
  if (g->kind == WM_GATE_RANDOM && !is_fraction(g->fraction))
    return "its fraction is not between 0 and 1";
  return NULL;
}

static int64_t coefficients_of(const wm_gate_t *g) {
  return g->kind == WM_GATE_COMPONENT ? 1 : g->components;
}

wm_status_t wm_gates_add(wm_gates_t *s, const wm_gate_t *gate, wm_error_t *err) {
  wm_status_t status;
  if ((unsigned)gate->kind >= WM_GATE_KINDS)
    return wm_fail(err, WM_USAGE, "gate %" PRId64 " is of no known kind", s->n);
  const char *fault = fault_of(s, gate);
  if (fault != NULL)
    return wm_fail(err, WM_USAGE, "gate %" PRId64 " (%s, layer %" PRId64 "): %s", s->n,
                   wm_gate_kind_name(gate->kind), gate->layer, fault);
  wm_gate_t g = *gate;
  g.weight = g.coefficient = NULL;
  void *memory = s->gates;
  WM_TRY(wm_grow(&memory, &s->capacity, s->n, s->n + 1, sizeof g, "gates", err));
  s->gates = memory;
  WM_TRY(copy(gate->weight, s->d, &g.weight, err));
  WM_TRY(copy(gate->coefficient, coefficients_of(gate), &g.coefficient, err));
  s->gates[s->n++] = g;
cleanup:
  if (status != WM_OK)
    free_gate(&g);
  return status;
}

wm_status_t wm_gates_copy(wm_gates_t *to, const wm_gates_t *from, int64_t layer, wm_error_t *err) {
  const wm_gate_layer_t *l = wm_gates_layer(from, layer);
  assert(l != NULL && to->d == from->d && to->k == from->k);
  wm_status_t status = wm_gates_add_layer(to, l, err);
  for (int64_t g = 0; g < from->n && status == WM_OK; g++) {
    if (from->gates[g].layer != layer)
      continue;
    if (l->selected == g)
      to->layers[to->n_described - 1].selected = to->n;
    status = wm_gates_add(to, &from->gates[g], err);
  }
  return status;
}

uint64_t wm_gates_fingerprint(const wm_gates_t *s) {
  uint64_t h = wm_hash(&s->n, sizeof s->n, 0);
  for (int64_t i = 0; i < s->n; i++) {
    const wm_gate_t *g = &s->gates[i];
    const int64_t kind[2] = {g->layer, g->kind};
    const double numbers[3] = {g->bias, g->scale, g->fraction};
    h = wm_hash(kind, sizeof kind, h);
    h = wm_hash(numbers, sizeof numbers, h);
    h = wm_hash(&g->seed, sizeof g->seed, h);
    if (g->weight != NULL)
      h = wm_hash(g->weight, (size_t)s->d * sizeof *g->weight, h);
  }
  return h;
}

/* --- scores -------------------------------------------------------------------------------------
 */

enum { LANES = 8 };

static double add_lanes(const double s[LANES]) {
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/* Not inlined, so that all callers run the same instructions. */
__attribute__((noinline)) double wm_gate_dot(const double *a, const float *x, int64_t d) {
  double s[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= d; i += LANES)
    for (int k = 0; k < LANES; k++)
      s[k] += a[i + k] * (double)x[i + k];
  for (int k = 0; i < d; i++, k++)
    s[k] += a[i] * (double)x[i];
  return add_lanes(s);
}

/* Sum of (x - centre)^power, power 1, 2 or 4. */
static double sum_powers(const float *x, int64_t d, double centre, int power) {
  double s[LANES] = {0};
  for (int64_t i = 0; i < d; i++) {
    double t = (double)x[i] - centre, square = t * t;
    s[i % LANES] += power == 1 ? t : power == 2 ? square : square * square;
  }
  return add_lanes(s);
}

/* NaN of any element stays NaN. */
static double max_abs(const float *x, int64_t d) {
  double max = 0;
  for (int64_t i = 0; i < d; i++) {
    double a = fabs((double)x[i]);
    max = a > max || isnan(a) ? a : max;
    if (isnan(max))
      return max;
  }
  return max;
}

static double excess_kurtosis(const float *x, int64_t d) {
  const double n = (double)d, mean = sum_powers(x, d, 0, 1) / n;
  const double variance = sum_powers(x, d, mean, 2) / n;
  if (variance == 0)
    return 0;
  return sum_powers(x, d, mean, 4) / n / (variance * variance) - 3;
}

__attribute__((noinline)) double wm_gate_feature(wm_gate_kind_t kind, const float *x, int64_t d) {
  assert(kind == WM_GATE_NORM || kind == WM_GATE_MAX_ABS || kind == WM_GATE_KURTOSIS);
  if (kind == WM_GATE_NORM)
    return sqrt(sum_powers(x, d, 0, 2));
  return kind == WM_GATE_MAX_ABS ? max_abs(x, d) : excess_kurtosis(x, d);
}

static double score_of(const wm_gate_t *g, const float *x, int64_t d) {
  if (g->weight != NULL)
    return wm_gate_dot(g->weight, x, d) + g->bias;
  return g->scale * wm_gate_feature(g->kind, x, d) + g->bias;
}

void wm_gates_score(const wm_gates_t *s, int64_t gate, const float *x, int64_t rows,
                    double *score) {
  const wm_gate_t *g = &s->gates[gate];
  assert(gate >= 0 && gate < s->n && wm_gate_has_score(g->kind));
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < rows; i++)
    score[i] = score_of(g, x + i * s->d, s->d);
}

double wm_gate_logit(double threshold) {
  return log(threshold) - log1p(-threshold);
}

static bool takes_surrogate(const wm_gate_t *g, double least, const float *x, int64_t d,
                            const int64_t *token, const float *delta) {
  if (g->kind == WM_GATE_ORACLE)
    return *delta < 0;
  if (g->kind == WM_GATE_RANDOM)
    return wm_rng_uniform((wm_rng_t){g->seed, (uint64_t)g->layer}, (uint64_t)*token) < g->fraction;
  return score_of(g, x, d) > least;
}

void wm_gates_route(const wm_gates_t *s, int64_t gate, double threshold, const float *x,
                    const int64_t *token, const float *delta, int64_t rows, uint8_t *route) {
  assert(gate >= 0 && gate < s->n);
  const wm_gate_t *g = &s->gates[gate];
  const bool scored = wm_gate_has_score(g->kind);
  const double least = scored ? wm_gate_logit(threshold) : 0;
  assert(!scored || (x != NULL && is_fraction(threshold)));
  assert(g->kind != WM_GATE_RANDOM || token != NULL);
  assert(g->kind != WM_GATE_ORACLE || delta != NULL);
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < rows; i++)
    route[i] = takes_surrogate(g, least, scored ? x + i * s->d : NULL, s->d,
                               token != NULL ? token + i : NULL, delta != NULL ? delta + i : NULL);
}
