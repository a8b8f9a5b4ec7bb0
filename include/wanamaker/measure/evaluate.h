/* The variant evaluator: one trunk, many branches.
 *
 * The unmodified model (the trunk) runs once over a block of windows. A variant branches off at the
 * first layer it changes: there its hidden state is the trunk's residual plus its own path's
 * output. Where a gate decides there, both outputs of the trunk's input exist once for all and are
 * picked row by row. All branches past their branching point are stacked behind the trunk,
 *
 *     h  [ trunk | variant branched at layer 0 | at 1 | ... ]   each [rows, D]
 *
 * and go through the next layers together, so each layer's weights serve all of them in large
 * products. L single-layer variants cost L + L (L - 1) / 2 layer passes instead of L (L + 1). At
 * the later layers that a variant changes by a gate, its rows are shared out between the two paths
 * (routing.h).
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

#include <stdbool.h>
#include <stdint.h>

typedef struct wm_evaluator wm_evaluator_t;

/* What a block's numbers for a variant are beside the losses. Counts are whole numbers, of
 * predicted positions. */
typedef struct {
  double routed;     /* positions that took the surrogate, summed over the layers it changes */
  double agreed;     /* positions at which its most likely token is the full model's */
  double divergence; /* sum of KL(full || variant) in nats; NaN like agreed if not measured */
} wm_cell_t;

/* For blocks of `blocks` and groups of at most max_variants variants (without the full model).
 * stack_rows bounds the rows that go through a layer at once (scratch memory; at least a block).
 * divergence: measure KL and agreement, too. Everything is borrowed. Not collective. */
wm_status_t wm_evaluator_create(wm_model_t *model, const wm_surrogates_t *surrogates,
                                const wm_variants_t *variants, const wm_blocks_t *blocks,
                                int64_t max_variants, int64_t stack_rows, bool divergence,
                                wm_evaluator_t **out, wm_error_t *err);
void wm_evaluator_free(wm_evaluator_t *evaluator);
/* nll: [V, N] float32, borrowed, where variants that need losses (wm_variants_needs_losses) find
 * those of the full model and of the layer's all-linear variant. Not collective. */
void wm_evaluator_set_losses(wm_evaluator_t *evaluator, const float *nll);

/* An evaluator with divergence also fills `detail` of the block's predictions for the slots [full
 * model, variants of the group] (model.h; borrowed; NULL: no longer). Not collective. */
void wm_evaluator_set_detail(wm_evaluator_t *evaluator, const wm_position_detail_t *detail);

/* Sees the full model as a block goes through it. h: [rows, D] the residual in front of a layer (of
 * layer 0: the embeddings); then, with x [rows, D], the input of the layer's MLP, what attention
 * has made of it. */
typedef struct {
  void *object;
  void (*front)(void *object, int64_t layer, const float *h);
  void (*input)(void *object, int64_t layer, const float *h, const float *x);
} wm_evaluator_watch_t;
/* Borrowed; NULL: nobody. Not collective. */
void wm_evaluator_set_watch(wm_evaluator_t *evaluator, const wm_evaluator_watch_t *watch);

/* Bytes that such an evaluator takes. */
int64_t wm_evaluator_bytes(const wm_model_t *model, const wm_blocks_t *blocks, int64_t max_variants,
                           int64_t stack_rows, bool divergence);

/* Makes *stack_rows and then *max_variants smaller until such an evaluator takes at most `bytes`
 * (0: any). WM_USAGE, with what would fit, if one variant on the largest block takes more. Not
 * collective. */
wm_status_t wm_evaluator_fit(const wm_model_t *model, const wm_blocks_t *blocks, int64_t bytes,
                             bool divergence, int64_t *max_variants, int64_t *stack_rows,
                             wm_error_t *err);

/* Evaluates the full model and variants first .. first + count - 1 (first >= 1; they must lie in
 * order of their first changed layer) on a loaded block. nll[(1 + count), n_predictions] row-major
 * float32: row 0 the full model's. cells[1 + count] likewise; NULL: not wanted. WM_STOPPED, between
 * layers, after a stop request (base/control.h). Not collective. */
wm_status_t wm_evaluate_block(wm_evaluator_t *evaluator, const wm_block_t *block, int64_t first,
                              int64_t count, float *nll, wm_cell_t *cells, wm_error_t *err);

/* Layer passes per row of a group: trunk and branches. */
double wm_evaluate_layer_passes(const wm_variants_t *variants, int64_t first, int64_t count,
                                int64_t n_layers);
/* Floating-point operations per row of a group, for cost estimates: passes, with attention over
 * `context` positions, surrogates, gates and heads. Where a gate decides at a later layer, half of
 * the rows are taken to be routed. */
double wm_evaluate_flops(const wm_variants_t *variants, int64_t first, int64_t count,
                         const wm_arch_t *arch, double context);

#endif
