/* What a sweep measures, from settings, surrogates and gates. */
#ifndef WANAMAKER_JOBS_SWEEP_VARIANTS_H
#define WANAMAKER_JOBS_SWEEP_VARIANTS_H

#include "inputs.h"
#include "wanamaker/measure/gates.h"
#include "wanamaker/measure/surrogates.h"
#include "wanamaker/measure/variants.h"

#include <stdbool.h>

/* Layers that have a surrogate, or will have one, and where. */
typedef struct {
  const int64_t *layers;
  int64_t n, n_layers; /* of them, of the model */
  const char *where;
  const wm_gates_t *gates; /* NULL: none. Borrowed, by the variants as well */
  bool before_gates;       /* none yet: sets of sweep.routed are left out */
} wm_available_t;

/* Not collective. Single layers with their gates, and joint sets, in the order of their first
 * changed layer; gates that route by measured losses behind all others. WM_USAGE for what can't be
 * measured. Destroy the variants also after a failure. */
wm_status_t wm_sweep_variants(const wm_config_t *config, const wm_available_t *have,
                              wm_variants_t *variants, wm_error_t *err);

/* Collective. Are gates to be measured (sweep.gates), and is there a gates.h5? */
bool wm_sweep_has_gates(const wm_run_t *run);
/* Collective. Its gates, if it is of these inputs, else NULL and a warning. Free with
 * wm_gates_free. */
wm_status_t wm_sweep_gates(const wm_inputs_t *inputs, const wm_surrogates_t *surrogates,
                           wm_gates_t **out, wm_error_t *err);

#endif
