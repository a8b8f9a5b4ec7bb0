/* Units of work of a sweep: cells that share a trunk, and what they cost. */
#include "sweep_internal.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/linalg/gemm.h"
#include "wanamaker/measure/evaluate.h"

#include <string.h>

enum {
  MOST_VARIANTS = 64, /* of a unit whose group is chosen */
  ENOUGH_UNITS = 32   /* of a rank: smaller ones would save little waiting */
};

/* --- cost ---------------------------------------------------------------------------------------
 */

/* Rows of a block and the mean number of positions that one attends to. */
typedef struct {
  double rows, context;
} extent_t;

static extent_t extent_of(const wm_blocks_t *blocks, int64_t block) {
  const wm_windows_t *w = blocks->windows;
  double rows = 0, pairs = 0;
  for (int64_t i = blocks->first_window[block]; i < blocks->first_window[block + 1]; i++) {
    double n = (double)w->length[i];
    rows += n;
    pairs += n * (n + 1) / 2;
  }
  return (extent_t){.rows = rows, .context = rows > 0 ? pairs / rows : 0};
}

/* Floating-point operations of a unit. */
static double unit_cost(const wm_arch_t *arch, const wm_variants_t *v, const extent_t *e,
                        int64_t first, int64_t count) {
  return e->rows * wm_evaluate_flops(v, first, count, arch, e->context);
}

static int64_t group_count(wm_span_t span, int64_t max_group) {
  int64_t groups = (span.end - span.begin + max_group - 1) / max_group;
  return groups > 0 ? groups : 1; /* without variants the full model is still measured */
}

wm_span_t wm_sweep_phase(const wm_variants_t *variants, int phase) {
  int64_t first = 1;
  while (first < variants->n && !wm_variants_needs_losses(variants, first))
    first++;
  return phase == 0 ? (wm_span_t){1, first} : (wm_span_t){first, variants->n};
}

/* --- the cut ------------------------------------------------------------------------------------
 */

bool wm_sweep_cells_are_independent(void) {
  return strcmp(wm_gemm_backend(), "CBLAS") != 0;
}

static bool missing(const wm_parts_t *parts, int64_t variant, int64_t block) {
  return parts == NULL || !wm_parts_has(parts, variant, block);
}

/* Narrows a unit to its missing variants; false if it lacks nothing. Where bits depend on what is
 * stacked together, a unit is done whole or not at all. with_trunk: the full model's cell belongs
 * to this unit. */
static bool narrow(const wm_parts_t *parts, bool with_trunk, wm_unit_t *u) {
  int64_t begin = u->first, end = u->first + u->count;
  while (begin < end && !missing(parts, begin, u->block))
    begin++;
  while (end > begin && !missing(parts, end - 1, u->block))
    end--;
  u->trunk = with_trunk && missing(parts, 0, u->block);
  if (begin == end && !u->trunk)
    return false;
  if (wm_sweep_cells_are_independent()) {
    u->count = end - begin;
    u->first = u->count > 0 ? begin : 1;
  }
  return true;
}

static int heaviest_first(const void *a, const void *b) {
  const wm_unit_t *x = a, *y = b;
  if (x->cost != y->cost)
    return x->cost < y->cost ? 1 : -1;
  if (x->block != y->block)
    return x->block < y->block ? -1 : 1;
  return (x->first > y->first) - (x->first < y->first);
}

static wm_status_t append(wm_units_t *s, const wm_unit_t *u, wm_error_t *err) {
  void *memory = s->units;
  wm_status_t status =
      wm_grow(&memory, &s->capacity, s->n, s->n + 1, sizeof *u, "units of work", err);
  s->units = memory;
  if (status != WM_OK)
    return status;
  s->units[s->n++] = *u;
  s->total += u->cost;
  s->longest = u->cost > s->longest ? u->cost : s->longest;
  return WM_OK;
}

wm_status_t wm_units_cut(const wm_arch_t *arch, const wm_variants_t *variants, wm_span_t span,
                         const wm_blocks_t *blocks, const wm_parts_t *parts, int64_t group,
                         wm_units_t *out, wm_error_t *err) {
  const int64_t groups = group_count(span, group);
  *out = (wm_units_t){0};
  for (int64_t b = 0; b < blocks->n; b++) {
    extent_t extent = extent_of(blocks, b);
    for (int64_t g = 0; g < groups; g++) {
      wm_unit_t u = {.block = b};
      wm_partition(span.end - span.begin, groups, g, &u.first, &u.count);
      u.first += span.begin;
      if (!narrow(parts, g == 0 && span.begin == 1, &u))
        continue;
      u.cost = unit_cost(arch, variants, &extent, u.first, u.count);
      wm_status_t status = append(out, &u, err);
      if (status != WM_OK)
        return status;
    }
  }
  if (out->n > 0)
    qsort(out->units, (size_t)out->n, sizeof *out->units, heaviest_first);
  return WM_OK;
}

void wm_units_destroy(wm_units_t *units) {
  free(units->units);
  *units = (wm_units_t){0};
}

/* Graham's bound: whoever is free takes the next unit, in any order and on ranks of equal speed,
 * and all are done after this much work of one. Smaller groups compute more trunks but wait less at
 * the end. */
static double list_bound(const wm_units_t *u, int ranks) {
  return u->total / ranks + (1 - 1.0 / ranks) * u->longest;
}

wm_status_t wm_units_choose(const wm_arch_t *arch, const wm_variants_t *variants, wm_span_t span,
                            const wm_blocks_t *blocks, const wm_parts_t *parts, int64_t max_group,
                            double unit_flops, int ranks, wm_units_t *out, int64_t *group,
                            wm_error_t *err) {
  wm_units_t units = {0};
  bool fits = false;
  int64_t most = span.end - span.begin < max_group ? span.end - span.begin : max_group;
  wm_status_t status = WM_OK;
  *out = (wm_units_t){0};
  *group = most > 0 ? most : 1;
  for (int64_t g = *group;; g = (g + 1) / 2) {
    WM_TRY(wm_units_cut(arch, variants, span, blocks, parts, g, &units, err));
    bool short_enough = unit_flops <= 0 || units.longest <= unit_flops;
    bool better = out->units == NULL || (!fits && units.longest < out->longest) ||
                  (fits && short_enough && list_bound(&units, ranks) < list_bound(out, ranks));
    if (better) {
      wm_units_destroy(out);
      *out = units;
      units = (wm_units_t){0};
      *group = g;
      fits = short_enough;
    }
    wm_units_destroy(&units);
    if (g == 1 || (fits && out->n >= (int64_t)ENOUGH_UNITS * ranks))
      break;
  }
cleanup:
  wm_units_destroy(&units);
  return status;
}

/* A quarter would do for the loss of a kill; waiting at the end of a round costs half a unit. */
static const double UNIT_SHARE = 0.125;

double wm_sweep_unit_flops(const wm_sweep_options_t *options, double rate) {
  return UNIT_SHARE * options->checkpoint_seconds * rate;
}

/* Adds a phase's units to the plan. */
static wm_status_t plan_phase(const wm_comm_t *comm, const wm_arch_t *arch,
                              const wm_variants_t *variants, wm_span_t span,
                              const wm_blocks_t *blocks, const wm_sweep_options_t *options,
                              wm_sweep_plan_t *plan, wm_error_t *err) {
  wm_units_t units = {0};
  int64_t group = plan->max_group;
  wm_status_t status;
  if (options->max_group == 0 && wm_sweep_cells_are_independent())
    WM_TRY(wm_units_choose(arch, variants, span, blocks, NULL, group,
                           wm_sweep_unit_flops(options, options->rate), comm->size, &units, &group,
                           err));
  else
    WM_TRY(wm_units_cut(arch, variants, span, blocks, NULL, group, &units, err));
  plan->group = group > plan->group ? group : plan->group;
  plan->units += units.n;
  plan->flops += units.total;
cleanup:
  wm_units_destroy(&units);
  return status;
}

wm_status_t wm_sweep_plan(const wm_comm_t *comm, const wm_model_t *model,
                          const wm_variants_t *variants, const wm_blocks_t *blocks,
                          const wm_sweep_options_t *options, wm_sweep_plan_t *out,
                          wm_error_t *err) {
  const wm_arch_t *arch = wm_model_arch(model);
  int64_t wanted = options->max_group == 0 ? MOST_VARIANTS : options->max_group;
  wm_status_t status;
  *out = (wm_sweep_plan_t){.stack_rows = options->stack_rows};
  out->max_group = variants->n - 1 < wanted ? variants->n - 1 : wanted;
  if (out->max_group < 1)
    out->max_group = 1;
  WM_TRY(wm_evaluator_fit(model, blocks, options->memory_bytes, options->divergence,
                          &out->max_group, &out->stack_rows, err));
  out->bytes =
      wm_evaluator_bytes(model, blocks, out->max_group, out->stack_rows, options->divergence);
  for (int phase = 0; phase < WM_SWEEP_PHASES; phase++) {
    if (!wm_sweep_phase_is_empty(variants, phase))
      WM_TRY(plan_phase(comm, arch, variants, wm_sweep_phase(variants, phase), blocks, options, out,
                        err));
  }
  for (int64_t b = 0; b < blocks->n; b++) {
    extent_t extent = extent_of(blocks, b);
    out->separate += (double)variants->n * unit_cost(arch, variants, &extent, 1, 0);
  }
cleanup:
  return status;
}
