/* What the job `allocate` finds: options of layers, plans, and their file allocation.h5. */
#ifndef WANAMAKER_JOBS_ALLOCATION_H
#define WANAMAKER_JOBS_ALLOCATION_H

#include "inputs.h"
#include "wanamaker/io/hdf5.h"
#include "wanamaker/measure/allocate.h"
#include "wanamaker/measure/gates.h"
#include "wanamaker/measure/surrogates.h"
#include "wanamaker/measure/variants.h"

/* Options of all layers, beside the full MLP: those of layer l are changes[first[l]] ..
 * changes[first[l + 1] - 1], and option o of it (from 1) is changes[first[l] + o - 1]. */
typedef struct {
  int64_t n_layers, n, capacity;
  int64_t *first;       /* [n_layers + 1] */
  int32_t *count;       /* [n_layers] */
  wm_change_t *changes; /* [n] */
} wm_options_t;

/* The surrogate everywhere and gates at thresholds, as the settings allocate.* say. have: [n_have]
 * layers with a surrogate; gates: NULL if there are none. Not collective. Destroy also after a
 * failure. */
wm_status_t wm_options_create(const wm_run_t *run, const int64_t *have, int64_t n_have,
                              const wm_gates_t *gates, int64_t n_layers, wm_options_t *out,
                              wm_error_t *err);
void wm_options_destroy(wm_options_t *options);

/* Adds plan[n_layers] (not that of the full model) to the variants. */
wm_status_t wm_options_add(const wm_options_t *options, const int32_t *plan,
                           wm_variants_t *variants, wm_error_t *err);
/* First layer that the plan changes; n_layers: none. */
int64_t wm_options_first_layer(const wm_options_t *options, const int32_t *plan);
/* "full", or e.g. "2 7 | 3:linear>0.5": layers with their surrogate everywhere, then routed ones.
 * gates: whose numbers the options name. */
void wm_options_label(const wm_options_t *options, const wm_gates_t *gates, const int32_t *plan,
                      char *text, size_t size);

/* Collective. The datasets of allocation.h5 (results/README.md). */
wm_status_t wm_allocation_write(const wm_allocation_t *allocation, const wm_options_t *options,
                                const double *budgets, int64_t n_budgets, const wm_comm_t *comm,
                                wm_h5_t *file, wm_error_t *err);
/* Collective. Reads them again; WM_INPUT if they are not of n_layers layers and n_budgets budgets.
 */
wm_status_t wm_allocation_read(const wm_comm_t *comm, const char *path, int64_t n_layers,
                               int64_t n_budgets, wm_allocation_t *out, wm_error_t *err);

#endif
