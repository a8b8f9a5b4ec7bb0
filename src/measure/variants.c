#include "wanamaker/measure/variants.h"

#include "wanamaker/base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

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
  free(variants->layers);
  memset(variants, 0, sizeof *variants);
}

static int ascending(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static wm_status_t check(const wm_variants_t *v, const int64_t *layers, int64_t count,
                         int64_t n_layers, wm_error_t *err) {
  for (int64_t i = 0; i < count; i++) {
    if (layers[i] < 0 || layers[i] >= n_layers)
      return wm_fail(err, WM_USAGE, "layer %lld does not exist: the model has layers 0 to %lld",
                     (long long)layers[i], (long long)n_layers - 1);
    if (i > 0 && layers[i] == layers[i - 1])
      return wm_fail(err, WM_USAGE, "layer %lld is named twice in one set", (long long)layers[i]);
  }
  for (int64_t w = 1; w < v->n; w++)
    if (v->offsets[w + 1] - v->offsets[w] == count &&
        memcmp(v->layers + v->offsets[w], layers, (size_t)count * sizeof *layers) == 0)
      return wm_fail(err, WM_USAGE, "the same set of layers is asked for twice (first layer %lld)",
                     (long long)layers[0]);
  return WM_OK;
}

wm_status_t wm_variants_add(wm_variants_t *v, const int64_t *layers, int64_t count,
                            int64_t n_layers, wm_error_t *err) {
  assert(count > 0);
  int64_t used = v->offsets[v->n];
  void *memory = v->layers;
  wm_status_t status =
      wm_grow(&memory, &v->layer_capacity, used, used + count, sizeof(int64_t), "variants", err);
  v->layers = memory;
  if (status != WM_OK)
    return status;
  memory = v->offsets;
  status = wm_grow(&memory, &v->capacity, v->n + 1, v->n + 2, sizeof(int64_t), "variants", err);
  v->offsets = memory;
  if (status != WM_OK)
    return status;
  memcpy(v->layers + used, layers, (size_t)count * sizeof *layers);
  qsort(v->layers + used, (size_t)count, sizeof *layers, ascending);
  status = check(v, v->layers + used, count, n_layers, err);
  if (status == WM_OK)
    v->offsets[++v->n] = used + count;
  return status;
}

int64_t wm_variants_first_layer(const wm_variants_t *v, int64_t variant, int64_t n_layers) {
  return variant == 0 ? n_layers : v->layers[v->offsets[variant]];
}

wm_path_t wm_variants_path(const wm_variants_t *v, int64_t variant, int64_t layer) {
  for (int64_t i = v->offsets[variant]; i < v->offsets[variant + 1]; i++)
    if (v->layers[i] == layer)
      return WM_PATH_SURROGATE;
  return WM_PATH_FULL;
}

void wm_variants_label(const wm_variants_t *v, int64_t variant, char *text, size_t size) {
  if (variant == 0) {
    snprintf(text, size, "full");
    return;
  }
  size_t used = 0;
  text[0] = '\0';
  for (int64_t i = v->offsets[variant]; i < v->offsets[variant + 1] && used < size;) {
    int64_t last = i;
    while (last + 1 < v->offsets[variant + 1] && v->layers[last + 1] == v->layers[last] + 1)
      last++;
    bool run = last - i >= 2;
    const char *comma = used > 0 ? "," : "";
    if (run)
      used += (size_t)snprintf(text + used, size - used, "%s%lld-%lld", comma,
                               (long long)v->layers[i], (long long)v->layers[last]);
    else
      used += (size_t)snprintf(text + used, size - used, "%s%lld", comma, (long long)v->layers[i]);
    i = run ? last + 1 : i + 1;
  }
}

double wm_variants_mlp_flops(const wm_variants_t *v, int64_t variant, const wm_arch_t *arch) {
  double replaced = (double)(v->offsets[variant + 1] - v->offsets[variant]);
  return ((double)arch->n_layers - replaced) * wm_arch_flops_mlp(arch) +
         replaced * wm_arch_flops_surrogate(arch);
}

double wm_variants_flops(const wm_variants_t *v, int64_t variant, const wm_arch_t *arch,
                         double context) {
  double layers = (double)arch->n_layers;
  return layers * (wm_arch_flops_layer(arch) - wm_arch_flops_mlp(arch) +
                   wm_arch_flops_attention(arch, context)) +
         wm_variants_mlp_flops(v, variant, arch) + wm_arch_flops_head(arch);
}
