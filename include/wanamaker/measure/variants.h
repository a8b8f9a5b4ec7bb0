/* Variants of a model: "at these layers, use this path". */
#ifndef WANAMAKER_MEASURE_VARIANTS_H
#define WANAMAKER_MEASURE_VARIANTS_H

#include "wanamaker/base/status.h"
#include "wanamaker/model/arch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { WM_PATH_FULL, WM_PATH_SURROGATE } wm_path_t;

/* Variant 0 of a set is always the unmodified model. Variant v > 0 takes the surrogate at layers
 * layers[offsets[v] .. offsets[v + 1] - 1] (ascending, at least one) and the full MLP elsewhere. */
typedef struct {
  int64_t n;        /* with the full model */
  int64_t *offsets; /* [n + 1]; offsets[0] = offsets[1] = 0 */
  int64_t *layers;
  int64_t capacity, layer_capacity;
} wm_variants_t;

/* A set that holds the full model. Not collective. */
wm_status_t wm_variants_create(wm_variants_t *out, wm_error_t *err);
void wm_variants_destroy(wm_variants_t *variants);

/* Adds a variant; `layers` in any order. A repeated layer or one outside [0, n_layers) is WM_USAGE;
 * so is a set of layers that is already there. */
wm_status_t wm_variants_add(wm_variants_t *variants, const int64_t *layers, int64_t count,
                            int64_t n_layers, wm_error_t *err);

/* First layer that the variant changes; n_layers for the full model. */
int64_t wm_variants_first_layer(const wm_variants_t *variants, int64_t variant, int64_t n_layers);
/* Path that the variant takes at `layer`. */
wm_path_t wm_variants_path(const wm_variants_t *variants, int64_t variant, int64_t layer);
/* "full", "3", "10,11,12,13" (or "0-11" for runs of three or more) into `text`. */
void wm_variants_label(const wm_variants_t *variants, int64_t variant, char *text, size_t size);

/* Floating-point operations per position of the variant's MLPs and surrogates, all layers, and of
 * the whole model with attention over `context` positions and the head (method.md, section 5). */
double wm_variants_mlp_flops(const wm_variants_t *variants, int64_t variant, const wm_arch_t *arch);
double wm_variants_flops(const wm_variants_t *variants, int64_t variant, const wm_arch_t *arch,
                         double context);

#endif
