/* Gates fitted one after the other (fit.sequential): for each set of sweep.routed, layer by layer
 * in ascending order, on the model in which the layers of the set before it are routed already
 * (method.md, sections 1 and 5).
 *
 *   the first layer    has the surrogate and the gate that were fitted on the untouched model, for
 *                      that is what it sees
 *   every later one    its surrogate is fitted to inputs and outputs of its MLP in that model;
 * delta is what its surrogate adds there; its gates are fitted to that delta and to its inputs
 * there, and chosen, as the job gate does, by the perplexity of that model with the layer routed
 * too. There is no oracle among them.
 *
 *   surrogates.routed-SET-K.h5     the surrogate of the set's layer number K, from 1
 *   losses.routed-SET-K.ROLE.h5    losses of that model, and with the layer linear as well
 *   routed-SET-K.ROLE.h5           losses with the layer routed by each gate at each threshold
 *   gates.routed-SET-K.h5          gates of layers 0 to K of the set with the choice
 *
 * Each is a stage that is skipped when it is complete for the same inputs. */
#ifndef WANAMAKER_JOBS_GATE_SEQUENTIAL_H
#define WANAMAKER_JOBS_GATE_SEQUENTIAL_H

#include "gate.h"
#include "wanamaker/measure/trunk.h"

/* A set of layers with what was fitted for it one after the other. */
typedef struct {
  int64_t n;       /* layers that are done so far, the first ones of the set */
  int64_t *layers; /* [of the set] ascending */
  int64_t n_layers;
  wm_surrogates_t *surrogates;
  wm_gates_t *gates;
  wm_change_t *changes; /* [n] how each is routed */
} wm_sequence_t;

/* Collective. Makes all sets, each step skipped if it is complete; in a dry run says what would be
 * done. job->gates has the gates of the untouched model with the choice. Without fit.sequential or
 * sets it does nothing. */
wm_status_t wm_gate_sequential(const wm_gate_job_t *job, wm_error_t *err);

/* Collective. What the job gate has made for set number `set` of sweep.routed, layers[n]; *out is
 * empty (n = 0), with a warning, if there is nothing of these inputs. Destroy also after a failure.
 */
wm_status_t wm_sequence_read(const wm_inputs_t *in, const wm_surrogates_t *untouched, int64_t set,
                             const int64_t *layers, int64_t n, wm_sequence_t *out, wm_error_t *err);
/* Collective. */
void wm_sequence_destroy(wm_sequence_t *sequence);

#endif
