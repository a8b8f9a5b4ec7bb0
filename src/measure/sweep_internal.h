/* What the files of the sweep share: units (sweep_units.c), their evaluation in rounds
 * (sweep_rounds.c) and the whole (sweep.c). */
#ifndef WANAMAKER_SRC_MEASURE_SWEEP_INTERNAL_H
#define WANAMAKER_SRC_MEASURE_SWEEP_INTERNAL_H

#include "wanamaker/measure/parts.h"
#include "wanamaker/measure/sweep.h"

#include <stdbool.h>

/* Variants first .. first + count - 1 on one trunk over a block. */
typedef struct {
  int64_t block, first, count;
  bool trunk;  /* the full model's cell is this unit's */
  double cost; /* floating-point operations */
} wm_unit_t;

typedef struct {
  wm_unit_t *units; /* [n] heaviest first */
  int64_t n, capacity;
  double total, longest; /* cost */
} wm_units_t;

/* Variants begin .. end - 1, and if begin is 1 the full model. */
typedef struct {
  int64_t begin, end;
} wm_span_t;

/* A sweep's phases: what needs no losses, and what needs those of the first phase. */
enum { WM_SWEEP_PHASES = 2 };
wm_span_t wm_sweep_phase(const wm_variants_t *variants, int phase);
/* Has the phase anything to do? The first one always has the full model. */
static inline bool wm_sweep_phase_is_empty(const wm_variants_t *variants, int phase) {
  const wm_span_t span = wm_sweep_phase(variants, phase);
  return phase > 0 && span.begin == span.end;
}

/* Cuts those cells of `span` that `parts` (NULL: none) lacks into units of at most `group`
 * variants; equal on all ranks if `parts` is. Not collective. */
wm_status_t wm_units_cut(const wm_arch_t *arch, const wm_variants_t *variants, wm_span_t span,
                         const wm_blocks_t *blocks, const wm_parts_t *parts, int64_t group,
                         wm_units_t *out, wm_error_t *err);
void wm_units_destroy(wm_units_t *units);

/* The same with the group chosen for `ranks`, at most max_group: the one that bounds the time of
 * any order of work best, among those whose units take at most unit_flops (0: any). */
wm_status_t wm_units_choose(const wm_arch_t *arch, const wm_variants_t *variants, wm_span_t span,
                            const wm_blocks_t *blocks, const wm_parts_t *parts, int64_t max_group,
                            double unit_flops, int ranks, wm_units_t *out, int64_t *group,
                            wm_error_t *err);

/* Most operations of a unit at `rate` operations per second: a small part of a round, at whose end
 * ranks wait for those still at work. 0: any. */
double wm_sweep_unit_flops(const wm_sweep_options_t *options, double rate);

/* Collective. All cells into s->nll and, if there is memory for them, s->cells of every node, round
 * by round; see sweep.h. */
wm_status_t wm_sweep_evaluate(wm_sweep_t *s, wm_model_t *model, const wm_surrogates_t *surrogates,
                              const int32_t *ids, const wm_sweep_options_t *options,
                              const wm_log_t *log, wm_error_t *err);

/* Collective. s->cells from a published sweep.h5. */
wm_status_t wm_sweep_read_cells(wm_sweep_t *s, wm_h5_t *file, wm_error_t *err);
/* Collective. /cells and /changes of sweep.h5. */
wm_status_t wm_sweep_write_cells(const wm_sweep_t *s, wm_h5_t *file, wm_error_t *err);

#endif
