/* The variant evaluator: one trunk, many branches.
 *
 * The unmodified model (the trunk) runs once over a block of windows. A variant branches off at the
 * first layer it changes: there its hidden state is the trunk's residual plus its own path's
 * output. All branches past their branching point are stacked behind the trunk,
 *
 *     h  [ trunk | variant branched at layer 0 | at 1 | ... ]   each [rows, D]
 *
 * and go through the next layers together, so each layer's weights serve all of them in large
 * products. L single-layer variants cost L + L (L - 1) / 2 layer passes instead of L (L + 1).
 *
 * A block's numbers for a variant depend on the block, the variant, the options and the number of
 * threads, and on nothing else; with some kernels of CBLAS also on the group.
 */
#ifndef WANAMAKER_MEASURE_EVALUATE_H
#define WANAMAKER_MEASURE_EVALUATE_H

#include "wanamaker/base/status.h"
#include "wanamaker/measure/blocks.h"
#include "wanamaker/measure/surrogates.h"
#include "wanamaker/measure/variants.h"
#include "wanamaker/model/model.h"

#include <stdint.h>

typedef struct wm_evaluator wm_evaluator_t;

/* For blocks of `blocks` and groups of at most max_variants variants (without the full model).
 * stack_rows bounds the rows that go through a layer at once (scratch memory; at least a block).
 * Everything is borrowed. Not collective. */
wm_status_t wm_evaluator_create(wm_model_t *model, const wm_surrogates_t *surrogates,
                                const wm_variants_t *variants, const wm_blocks_t *blocks,
                                int64_t max_variants, int64_t stack_rows, wm_evaluator_t **out,
                                wm_error_t *err);
void wm_evaluator_free(wm_evaluator_t *evaluator);

/* Bytes that such an evaluator takes. */
int64_t wm_evaluator_bytes(const wm_model_t *model, const wm_blocks_t *blocks, int64_t max_variants,
                           int64_t stack_rows);

/* Makes *stack_rows and then *max_variants smaller until such an evaluator takes at most `bytes`
 * (0: any). WM_USAGE, with what would fit, if one variant on the largest block takes more. Not
 * collective. */
wm_status_t wm_evaluator_fit(const wm_model_t *model, const wm_blocks_t *blocks, int64_t bytes,
                             int64_t *max_variants, int64_t *stack_rows, wm_error_t *err);

/* Evaluates the full model and variants first .. first + count - 1 (first >= 1; they must lie in
 * order of their first changed layer) on a loaded block. nll[(1 + count), n_predictions] row-major
 * float32: row 0 the full model's. WM_STOPPED, between layers, after a stop request
 * (base/control.h). Not collective. */
wm_status_t wm_evaluate_block(wm_evaluator_t *evaluator, const wm_block_t *block, int64_t first,
                              int64_t count, float *nll, wm_error_t *err);

/* Layer passes per row of a group: trunk and branches, for cost estimates. */
double wm_evaluate_layer_passes(const wm_variants_t *variants, int64_t first, int64_t count,
                                int64_t n_layers);

#endif
