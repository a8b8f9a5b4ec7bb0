/* Which gate at which threshold a layer gets, from losses of routed variants (method.md, section
 * 4).
 *
 * Candidates are the fitted gates at every threshold that was measured; random and oracle gates are
 * references and never chosen, and neither is one that routes too little to be worth having, or
 * whose losses are not finite. The lowest perplexity wins; of equals the first variant.
 *
 * What is chosen so looks better on the text that it was chosen on than on another.
 */
#ifndef WANAMAKER_MEASURE_GATE_SELECT_H
#define WANAMAKER_MEASURE_GATE_SELECT_H

#include "wanamaker/base/status.h"
#include "wanamaker/io/hdf5.h"
#include "wanamaker/measure/gates.h"
#include "wanamaker/measure/sweep.h"

#include <stdint.h>

/* Sets `selected` and `selected_threshold` of every layer of `gates`, which are those of the
 * sweep's variants. least_routed: part of the positions. selected_variant: [gates->n_described],
 * -1: none. Not collective. */
void wm_gate_select(wm_gates_t *gates, const wm_sweep_t *sweep, double least_routed,
                    int64_t *selected_variant);

/* The same for one layer whose gates were measured on a modified model: the sweep's variant 1 is
 * that model, and every candidate makes its changes and then one at `layer`, behind them all. Not
 * collective. */
void wm_gate_select_last(wm_gates_t *gates, const wm_sweep_t *sweep, int64_t layer,
                         double least_routed);

/* Collective. Adds dataset /curve, a compound [P] with a row for every variant that has one gate:
 * name of the gate (wm_gate_label), layer, number of the gate, threshold, perplexity, its change in
 * percent with interval, and the routed part of the positions. */
wm_status_t wm_gate_curve_write(const wm_sweep_t *sweep, wm_h5_t *file, wm_error_t *err);

#endif
