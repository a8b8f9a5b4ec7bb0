/* The forward pass as inference does it: a batch of sequences goes through the model once, each
 * layer's MLP being computed in full, replaced by its surrogate, or routed token by token
 * (routing.h). It is by the clock what a variant is to the evaluator in perplexity; nothing is
 * shared between variants.
 *
 * The head is a step of its own: the last position of every sequence, which is what a prefill needs
 * to go on from, or the losses of all.
 */
#ifndef WANAMAKER_MEASURE_PREFILL_H
#define WANAMAKER_MEASURE_PREFILL_H

#include "wanamaker/base/status.h"
#include "wanamaker/measure/gates.h"
#include "wanamaker/measure/surrogates.h"
#include "wanamaker/model/model.h"

#include <stdint.h>

/* What a layer's MLP is. */
typedef enum { WM_LAYER_FULL, WM_LAYER_SURROGATE, WM_LAYER_GATED } wm_layer_kind_t;
typedef struct {
  wm_layer_kind_t kind;
  int64_t gate;     /* WM_LAYER_GATED: number in the set, of this layer; no oracle */
  double threshold; /* of the gate, as in wm_gates_route */
} wm_layer_path_t;

typedef struct wm_prefill wm_prefill_t;

/* For batches of at most max_rows rows, max_sequences sequences of at most max_length. surrogates
 * and gates may be NULL if no path needs them; their products must have the model's tiles. All is
 * borrowed. Not collective, like everything here. */
wm_status_t wm_prefill_create(wm_model_t *model, const wm_surrogates_t *surrogates,
                              const wm_gates_t *gates, int64_t max_rows, int64_t max_sequences,
                              int64_t max_length, wm_prefill_t **out, wm_error_t *err);
/* NULL is allowed. */
void wm_prefill_free(wm_prefill_t *prefill);
/* Bytes that such an object takes. */
int64_t wm_prefill_bytes(const wm_model_t *model, int64_t max_rows, int64_t max_sequences,
                         int64_t max_length);

/* All layers: ids[N], and token[N], the index in the corpus of each, for random gates (else NULL).
 * paths: [L]; NULL: the full model. `batch` is borrowed until the head is done. */
wm_status_t wm_prefill_run(wm_prefill_t *prefill, const wm_batch_t *batch, const int32_t *ids,
                           const int64_t *token, const wm_layer_path_t *paths, wm_error_t *err);

/* The same in steps: begin, and for each layer attend, which yields the MLP's input x [N, D] until
 * the next step, and mlp. */
wm_status_t wm_prefill_begin(wm_prefill_t *prefill, const wm_batch_t *batch, const int32_t *ids,
                             const int64_t *token, wm_error_t *err);
wm_status_t wm_prefill_attend(wm_prefill_t *prefill, int64_t layer, const float **x,
                              wm_error_t *err);
wm_status_t wm_prefill_mlp(wm_prefill_t *prefill, int64_t layer, const wm_layer_path_t *path,
                           wm_error_t *err);

/* After all layers. logits[n_sequences, V] of each sequence's last position. */
wm_status_t wm_prefill_last(wm_prefill_t *prefill, float *logits, wm_error_t *err);
/* nll[N], for rows whose targets[N] is not negative; others are left alone. */
wm_status_t wm_prefill_losses(wm_prefill_t *prefill, const int32_t *targets, double *nll,
                              wm_error_t *err);

/* Rows that took a surrogate in the last pass, summed over layers. */
int64_t wm_prefill_routed(const wm_prefill_t *prefill);

#endif
