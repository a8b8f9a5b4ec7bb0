/* Variants of a model: "at these layers, use this path". */
#ifndef WANAMAKER_MEASURE_VARIANTS_H
#define WANAMAKER_MEASURE_VARIANTS_H

#include "wanamaker/base/status.h"
#include "wanamaker/measure/gates.h"
#include "wanamaker/model/arch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { WM_PATH_FULL, WM_PATH_SURROGATE, WM_PATH_GATE } wm_path_t;

/* What a variant changes at one layer: the surrogate at every position (gate = -1), or where the
 * gate says so at this threshold (NaN for gates without a score). */
typedef struct {
  int64_t layer, gate;
  double threshold;
} wm_change_t;

/* Variant 0 of a set is always the unmodified model. Variant v > 0 makes the changes
 * changes[offsets[v] .. offsets[v + 1] - 1] (layers ascending, at least one) and takes the full MLP
 * elsewhere. */
typedef struct {
  int64_t n;        /* with the full model */
  int64_t *offsets; /* [n + 1]; offsets[0] = offsets[1] = 0 */
  wm_change_t *changes;
  const wm_gates_t *gates; /* borrowed; NULL: no variant has a gate */
  int64_t capacity, change_capacity;
} wm_variants_t;

/* A set that holds the full model. Not collective. */
wm_status_t wm_variants_create(wm_variants_t *out, wm_error_t *err);
void wm_variants_destroy(wm_variants_t *variants);

/* Adds a variant with surrogates at `layers`, in any order. A repeated layer or one outside [0,
 * n_layers) is WM_USAGE; so is a variant that is already there. */
wm_status_t wm_variants_add(wm_variants_t *variants, const int64_t *layers, int64_t count,
                            int64_t n_layers, wm_error_t *err);
/* The same with changes of any kind; gates are numbers of variants->gates, which the caller sets
 * before. WM_USAGE also for a gate of another layer or a threshold outside [0, 1]; the threshold of
 * a change without a scored gate is not read. */
wm_status_t wm_variants_add_changes(wm_variants_t *variants, const wm_change_t *changes,
                                    int64_t count, int64_t n_layers, wm_error_t *err);

/* What the variant changes, ascending by layer. Borrowed. */
const wm_change_t *wm_variants_changes(const wm_variants_t *variants, int64_t variant,
                                       int64_t *count);
/* First layer that the variant changes; n_layers for the full model. */
int64_t wm_variants_first_layer(const wm_variants_t *variants, int64_t variant, int64_t n_layers);
/* The variant's change at `layer`; NULL: the full MLP. */
const wm_change_t *wm_variants_change(const wm_variants_t *variants, int64_t variant,
                                      int64_t layer);
/* Path that the variant takes at `layer`. */
wm_path_t wm_variants_path(const wm_variants_t *variants, int64_t variant, int64_t layer);
/* Has the variant a gate? One that routes by measured losses (oracle)? */
bool wm_variants_is_routed(const wm_variants_t *variants, int64_t variant);
bool wm_variants_needs_losses(const wm_variants_t *variants, int64_t variant);
/* Is it there for comparison only, one that routes at random or by measured losses? It is no
 * hypothesis that is tested (method.md, section 6). */
bool wm_variants_is_reference(const wm_variants_t *variants, int64_t variant);
/* The variant that takes the surrogate at `layer` alone and everywhere; -1: there is none. */
int64_t wm_variants_linear(const wm_variants_t *variants, int64_t layer);

/* The variant of another set that makes the same changes, none of them by a gate; -1: there is
 * none. */
int64_t wm_variants_same(const wm_variants_t *variants, int64_t variant,
                         const wm_variants_t *other);

/* "full", "3", "10,11,12,13" (or "0-11" for runs of three or more) into `text`. */
void wm_variants_label(const wm_variants_t *variants, int64_t variant, char *text, size_t size);
/* Gate of the variant (wm_gate_label): "none"; "mixed" if its layers have different kinds. */
void wm_variants_gate_label(const wm_variants_t *variants, int64_t variant, char *text,
                            size_t size);
/* Threshold that the variant's gates share, else NaN. */
double wm_variants_threshold(const wm_variants_t *variants, int64_t variant);
/* Chained hash of all that the variants' losses depend on beside model and surrogates. */
uint64_t wm_variants_fingerprint(const wm_variants_t *variants, uint64_t seed);

/* Floating-point operations per position of the variant's MLPs, surrogates and gates, all layers,
 * and of the whole model with attention over `context` positions and the head (method.md, section
 * 5). routed: part of the positions that takes the surrogate, mean of the changed layers; 1 if
 * nothing is routed by a gate. */
double wm_variants_mlp_flops(const wm_variants_t *variants, int64_t variant, const wm_arch_t *arch,
                             double routed);
double wm_variants_flops(const wm_variants_t *variants, int64_t variant, const wm_arch_t *arch,
                         double context, double routed);

#endif
