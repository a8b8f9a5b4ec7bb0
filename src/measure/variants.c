#include "wanamaker/measure/variants.h"

#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- the set ------------------------------------------------------------------------------------
 */

wm_status_t wm_variants_create(wm_variants_t *out, wm_error_t *err) {
  memset(out, 0, sizeof *out);
  void *memory = NULL;
  wm_status_t status = wm_grow(&memory, &out->capacity, 0, 2, sizeof(int64_t), "variants", err);
  out->offsets = memory; /* zeroed: the full model changes nothing */
  out->n = status == WM_OK;
  return status;
}

void wm_variants_destroy(wm_variants_t *variants) {
  free(variants->offsets);
  free(variants->changes);
  memset(variants, 0, sizeof *variants);
}

static int by_layer(const void *a, const void *b) {
  int64_t x = ((const wm_change_t *)a)->layer, y = ((const wm_change_t *)b)->layer;
  return (x > y) - (x < y);
}

static bool has_score(const wm_variants_t *v, const wm_change_t *c) {
  return c->gate >= 0 && wm_gate_has_score(v->gates->gates[c->gate].kind);
}

static wm_status_t check_gate(const wm_variants_t *v, const wm_change_t *c, wm_error_t *err) {
  if (c->gate == -1)
    return WM_OK;
  if (v->gates == NULL || c->gate < 0 || c->gate >= v->gates->n)
    return wm_fail(err, WM_USAGE, "layer %" PRId64 ": there is no gate %" PRId64, c->layer,
                   c->gate);
  if (v->gates->gates[c->gate].layer != c->layer)
    return wm_fail(err, WM_USAGE, "gate %" PRId64 " is of layer %" PRId64 ", not %" PRId64, c->gate,
                   v->gates->gates[c->gate].layer, c->layer);
  if (has_score(v, c) && !(c->threshold >= 0 && c->threshold <= 1))
    return wm_fail(err, WM_USAGE,
                   "layer %" PRId64 ": threshold %g of a gate is not between 0 and 1", c->layer,
                   c->threshold);
  return WM_OK;
}

static wm_status_t check_changes(const wm_variants_t *v, const wm_change_t *c, int64_t count,
                                 int64_t n_layers, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int64_t i = 0; i < count && status == WM_OK; i++) {
    if (c[i].layer < 0 || c[i].layer >= n_layers)
      return wm_fail(err, WM_USAGE,
                     "layer %" PRId64 " does not exist: the model has layers 0 to %" PRId64,
                     c[i].layer, n_layers - 1);
    if (i > 0 && c[i].layer == c[i - 1].layer)
      return wm_fail(err, WM_USAGE, "layer %" PRId64 " is named twice in one set", c[i].layer);
    status = check_gate(v, &c[i], err);
  }
  return status;
}

/* Thresholds that are not read are NaN. */
static bool same(const wm_change_t *a, const wm_change_t *b) {
  return a->layer == b->layer && a->gate == b->gate &&
         (a->threshold == b->threshold || (isnan(a->threshold) && isnan(b->threshold)));
}

static wm_status_t check_new(const wm_variants_t *v, const wm_change_t *c, int64_t count,
                             wm_error_t *err) {
  for (int64_t w = 1; w < v->n; w++) {
    int64_t n, i = 0;
    const wm_change_t *other = wm_variants_changes(v, w, &n);
    while (n == count && i < n && same(&c[i], &other[i]))
      i++;
    if (n == count && i == n)
      return wm_fail(err, WM_USAGE,
                     "the same set of layers is asked for twice (first layer %" PRId64 ")",
                     c[0].layer);
  }
  return WM_OK;
}

/* Room for a variant of `count` changes. */
static wm_status_t reserve(wm_variants_t *v, int64_t count, wm_error_t *err) {
  const int64_t used = v->offsets[v->n];
  void *memory = v->changes;
  wm_status_t status = wm_grow(&memory, &v->change_capacity, used, used + count, sizeof *v->changes,
                               "variants", err);
  v->changes = memory;
  if (status != WM_OK)
    return status;
  memory = v->offsets;
  status = wm_grow(&memory, &v->capacity, v->n + 1, v->n + 2, sizeof(int64_t), "variants", err);
  v->offsets = memory;
  return status;
}

wm_status_t wm_variants_add_changes(wm_variants_t *v, const wm_change_t *changes, int64_t count,
                                    int64_t n_layers, wm_error_t *err) {
  assert(count > 0);
  wm_status_t status = reserve(v, count, err);
  if (status != WM_OK)
    return status;
  wm_change_t *c = v->changes + v->offsets[v->n];
  memcpy(c, changes, (size_t)count * sizeof *c);
  qsort(c, (size_t)count, sizeof *c, by_layer);
  status = check_changes(v, c, count, n_layers, err);
  for (int64_t i = 0; i < count && status == WM_OK; i++)
    if (!has_score(v, &c[i]))
      c[i].threshold = NAN;
  if (status == WM_OK)
    status = check_new(v, c, count, err);
  if (status == WM_OK) {
    v->offsets[v->n + 1] = v->offsets[v->n] + count;
    v->n++;
  }
  return status;
}

wm_status_t wm_variants_add(wm_variants_t *v, const int64_t *layers, int64_t count,
                            int64_t n_layers, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, count, sizeof(wm_change_t), "variants", err);
  if (status != WM_OK)
    return status;
  wm_change_t *changes = memory;
  for (int64_t i = 0; i < count; i++)
    changes[i] = (wm_change_t){.layer = layers[i], .gate = -1, .threshold = NAN};
  status = wm_variants_add_changes(v, changes, count, n_layers, err);
  free(memory);
  return status;
}

/* --- what a variant is --------------------------------------------------------------------------
 */

const wm_change_t *wm_variants_changes(const wm_variants_t *v, int64_t variant, int64_t *count) {
  *count = v->offsets[variant + 1] - v->offsets[variant];
  return v->changes + v->offsets[variant];
}

int64_t wm_variants_first_layer(const wm_variants_t *v, int64_t variant, int64_t n_layers) {
  return variant == 0 ? n_layers : v->changes[v->offsets[variant]].layer;
}

const wm_change_t *wm_variants_change(const wm_variants_t *v, int64_t variant, int64_t layer) {
  for (int64_t i = v->offsets[variant]; i < v->offsets[variant + 1]; i++)
    if (v->changes[i].layer == layer)
      return &v->changes[i];
  return NULL;
}

wm_path_t wm_variants_path(const wm_variants_t *v, int64_t variant, int64_t layer) {
  const wm_change_t *c = wm_variants_change(v, variant, layer);
  return c == NULL ? WM_PATH_FULL : c->gate < 0 ? WM_PATH_SURROGATE : WM_PATH_GATE;
}

bool wm_variants_is_routed(const wm_variants_t *v, int64_t variant) {
  for (int64_t i = v->offsets[variant]; i < v->offsets[variant + 1]; i++)
    if (v->changes[i].gate >= 0)
      return true;
  return false;
}

bool wm_variants_needs_losses(const wm_variants_t *v, int64_t variant) {
  for (int64_t i = v->offsets[variant]; i < v->offsets[variant + 1]; i++)
    if (v->changes[i].gate >= 0 && v->gates->gates[v->changes[i].gate].kind == WM_GATE_ORACLE)
      return true;
  return false;
}

bool wm_variants_is_reference(const wm_variants_t *v, int64_t variant) {
  for (int64_t i = v->offsets[variant]; i < v->offsets[variant + 1]; i++)
    if (v->changes[i].gate >= 0 && !wm_gate_has_score(v->gates->gates[v->changes[i].gate].kind))
      return true;
  return false;
}

int64_t wm_variants_same(const wm_variants_t *v, int64_t variant, const wm_variants_t *other) {
  int64_t n, m;
  const wm_change_t *c = wm_variants_changes(v, variant, &n);
  for (int64_t w = 0; w < other->n; w++) {
    const wm_change_t *d = wm_variants_changes(other, w, &m);
    bool same = n == m;
    for (int64_t i = 0; i < n && same; i++)
      same = c[i].layer == d[i].layer && c[i].gate < 0 && d[i].gate < 0;
    if (same)
      return w;
  }
  return -1;
}

int64_t wm_variants_linear(const wm_variants_t *v, int64_t layer) {
  for (int64_t w = 1; w < v->n; w++) {
    int64_t n;
    const wm_change_t *c = wm_variants_changes(v, w, &n);
    if (n == 1 && c->layer == layer && c->gate < 0)
      return w;
  }
  return -1;
}

uint64_t wm_variants_fingerprint(const wm_variants_t *v, uint64_t seed) {
  uint64_t gates = v->gates != NULL ? wm_gates_fingerprint(v->gates) : 0;
  uint64_t h = wm_hash(v->offsets, (size_t)(v->n + 1) * sizeof *v->offsets, seed);
  for (int64_t i = 0; i < v->offsets[v->n]; i++) {
    const wm_change_t *c = &v->changes[i];
    const double threshold = isnan(c->threshold) ? -1 : c->threshold;
    h = wm_hash(&c->layer, sizeof c->layer, h);
    h = wm_hash(&c->gate, sizeof c->gate, h);
    h = wm_hash(&threshold, sizeof threshold, h);
  }
  return wm_hash(&gates, sizeof gates, h);
}

/* --- labels -------------------------------------------------------------------------------------
 */

void wm_variants_label(const wm_variants_t *v, int64_t variant, char *text, size_t size) {
  int64_t n;
  const wm_change_t *c = wm_variants_changes(v, variant, &n);
  size_t used = 0;
  text[0] = '\0';
  if (variant == 0)
    snprintf(text, size, "full");
  for (int64_t i = 0; i < n && used < size;) {
    int64_t last = i;
    while (last + 1 < n && c[last + 1].layer == c[last].layer + 1)
      last++;
    bool run = last - i >= 2;
    const char *comma = used > 0 ? "," : "";
    if (run)
      used += (size_t)snprintf(text + used, size - used, "%s%" PRId64 "-%" PRId64, comma,
                               c[i].layer, c[last].layer);
    else
      used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, comma, c[i].layer);
    i = run ? last + 1 : i + 1;
  }
}

static void label_of(const wm_variants_t *v, const wm_change_t *c, char *text, size_t size) {
  if (c->gate < 0)
    snprintf(text, size, "none");
  else
    wm_gate_label(&v->gates->gates[c->gate], text, size);
}

void wm_variants_gate_label(const wm_variants_t *v, int64_t variant, char *text, size_t size) {
  char other[32];
  int64_t n;
  const wm_change_t *c = wm_variants_changes(v, variant, &n);
  snprintf(text, size, "none");
  for (int64_t i = 0; i < n; i++) {
    label_of(v, &c[i], other, sizeof other);
    if (i == 0)
      snprintf(text, size, "%s", other);
    else if (strncmp(text, other, size - 1) != 0)
      snprintf(text, size, "mixed");
  }
}

double wm_variants_threshold(const wm_variants_t *v, int64_t variant) {
  int64_t n;
  const wm_change_t *c = wm_variants_changes(v, variant, &n);
  for (int64_t i = 1; i < n; i++)
    if (c[i].threshold != c[0].threshold)
      return NAN;
  return n > 0 ? c[0].threshold : NAN;
}

/* --- cost ---------------------------------------------------------------------------------------
 */

double wm_variants_mlp_flops(const wm_variants_t *v, int64_t variant, const wm_arch_t *arch,
                             double routed) {
  int64_t n;
  const wm_change_t *c = wm_variants_changes(v, variant, &n);
  double replaced = (double)n * routed, gates = 0;
  for (int64_t i = 0; i < n; i++)
    if (c[i].gate >= 0)
      gates += wm_gate_flops(&v->gates->gates[c[i].gate], arch->d_model);
  return ((double)arch->n_layers - replaced) * wm_arch_flops_mlp(arch) +
         replaced * wm_arch_flops_surrogate(arch) + gates;
}

double wm_variants_flops(const wm_variants_t *v, int64_t variant, const wm_arch_t *arch,
                         double context, double routed) {
  double layers = (double)arch->n_layers;
  return layers * (wm_arch_flops_layer(arch) - wm_arch_flops_mlp(arch) +
                   wm_arch_flops_attention(arch, context)) +
         wm_variants_mlp_flops(v, variant, arch, routed) + wm_arch_flops_head(arch);
}
