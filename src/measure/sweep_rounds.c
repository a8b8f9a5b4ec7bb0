/* The evaluation of a sweep: rounds of units from a queue, and a part after each. */
#include "sweep_internal.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/progress.h"
#include "wanamaker/measure/evaluate.h"
#include "wanamaker/par/queue.h"

#include <string.h>

/* What a rank works with in all rounds. */
typedef struct {
  wm_sweep_t *sweep;
  const wm_sweep_options_t *options;
  const int32_t *ids;
  wm_sweep_plan_t plan;
  wm_parts_t *parts;
  wm_evaluator_t *evaluator;
  wm_block_t block;
  float *nll;       /* [1 + most variants of a unit, block predictions] */
  wm_cell_t *cells; /* [1 + most variants of a unit] */
  wm_span_t span;   /* of the phase */
  wm_progress_t progress;
  double rate; /* operations per second of a rank; 0: unknown */
} rounds_t;

static wm_status_t prepare(rounds_t *r, wm_model_t *model, const wm_surrogates_t *surrogates,
                           wm_error_t *err) {
  const wm_sweep_t *s = r->sweep;
  void *memory;
  wm_status_t status;
  WM_TRY(wm_block_create(s->blocks, &r->block, err));
  WM_TRY(wm_evaluator_create(model, surrogates, s->variants, s->blocks, r->plan.max_group,
                             r->plan.stack_rows, r->options->divergence, &r->evaluator, err));
  WM_TRY(wm_alloc(&memory, (1 + r->plan.max_group) * s->blocks->max_rows, sizeof(float), "losses",
                  err));
  r->nll = memory;
  WM_TRY(wm_alloc(&memory, 1 + r->plan.max_group, sizeof *r->cells, "losses", err));
  r->cells = memory;
cleanup:
  return status;
}

static void destroy(rounds_t *r) {
  wm_parts_free(r->parts);
  wm_evaluator_free(r->evaluator);
  wm_block_destroy(&r->block);
  free(r->nll);
  free(r->cells);
}

static int64_t all_losses(const rounds_t *r) {
  return r->sweep->variants->n * r->sweep->blocks->windows->n_predicted;
}

/* --- one round ----------------------------------------------------------------------------------
 */

/* A unit's losses into the node's array: those cells that nobody had. */
static void store(rounds_t *r, const wm_unit_t *u) {
  wm_sweep_t *s = r->sweep;
  float *all = s->nll.data;
  wm_cell_t *cells = s->cells.data;
  const int64_t n = s->blocks->windows->n_predicted, own = r->block.n_predictions;
  for (int64_t i = u->trunk ? 0 : 1; i <= u->count; i++) {
    int64_t variant = i == 0 ? 0 : u->first + i - 1;
    if (wm_parts_has(r->parts, variant, u->block))
      continue;
    memcpy(all + variant * n + r->block.first_prediction, r->nll + i * own,
           (size_t)own * sizeof *all);
    if (cells != NULL)
      cells[variant * s->blocks->n + u->block] = r->cells[i];
    wm_parts_add(r->parts, variant, u->block);
  }
  s->units_evaluated++;
}

/* Units from the queue until it has no more for this rank. After a failure the rank takes what is
 * left without doing it: so the round ends for all. Not collective. */
static wm_status_t work(rounds_t *r, const wm_units_t *units, wm_queue_t *queue, wm_error_t *err) {
  const int64_t before = r->progress.done, left = all_losses(r) - before;
  wm_status_t status = WM_OK;
  for (int64_t item; wm_queue_next(queue, &item);) {
    const wm_unit_t *u = &units->units[item];
    if (status != WM_OK)
      continue;
    wm_block_load(r->sweep->blocks, r->ids, u->block, &r->block);
    status = wm_evaluate_block(r->evaluator, &r->block, u->first, u->count, r->nll, r->cells, err);
    if (status == WM_OK)
      store(r, u);
    else if (status == WM_STOPPED)
      wm_queue_return(queue, item);
    if (status == WM_STOPPED)
      status = WM_OK; /* the queue ends the round for all */
    double part = wm_queue_done(queue) / units->total;
    wm_progress_update(&r->progress, before + (int64_t)(part * (double)left));
  }
  return status;
}

/* Collective. */
static wm_status_t make_queue(rounds_t *r, wm_units_t *units, wm_queue_t **out, wm_error_t *err) {
  const wm_sweep_t *s = r->sweep;
  const wm_arch_t *arch = wm_model_arch(s->model);
  int64_t group = r->plan.max_group;
  void *cost = NULL;
  wm_status_t status;
  if (r->options->max_group > 0 || !wm_sweep_cells_are_independent())
    status = wm_units_cut(arch, s->variants, r->span, s->blocks, r->parts, group, units, err);
  else
    status = wm_units_choose(arch, s->variants, r->span, s->blocks, r->parts, group,
                             wm_sweep_unit_flops(r->options, r->rate), s->comm->size, units, &group,
                             err);
  if (status == WM_OK)
    status = wm_alloc(&cost, units->n, sizeof(double), "cost of the units", err);
  WM_TRY(wm_agree(s->comm->world, status, err));
  for (int64_t i = 0; i < units->n; i++)
    ((double *)cost)[i] = units->units[i].cost;
  WM_TRY(wm_queue_create(s->comm, cost, units->n, out, err));
cleanup:
  free(cost);
  return status;
}

/* What a rank does in a second, now that a round has been timed. */
static void learn_rate(rounds_t *r, const wm_queue_t *queue) {
  const wm_comm_t *comm = r->sweep->comm;
  double done = wm_queue_done(queue);
  wm_broadcast(comm->world, 0, &done, sizeof done);
  if (done > 0)
    r->rate = done / comm->size / r->options->checkpoint_seconds;
}

/* Collective. One round and the exchange of what is finished. */
static wm_status_t run_round(rounds_t *r, wm_round_t *why, wm_error_t *err) {
  wm_units_t units = {0};
  wm_queue_t *queue = NULL;
  wm_status_t status;
  WM_TRY(make_queue(r, &units, &queue, err));
  wm_queue_open(queue, r->options->checkpoint_seconds);
  status = work(r, &units, queue, err);
  *why = wm_queue_close(queue);
  WM_TRY(wm_agree(r->sweep->comm->world, status, err));
  if (*why == WM_ROUND_TIME)
    learn_rate(r, queue);
  wm_shared_sync(&r->sweep->nll);
  if (r->sweep->cells.data != NULL)
    wm_shared_sync(&r->sweep->cells);
  wm_parts_share(r->parts);
  wm_progress_update(&r->progress, wm_parts_losses(r->parts));
cleanup:
  wm_queue_free(queue);
  wm_units_destroy(&units);
  return status;
}

/* --- all rounds ---------------------------------------------------------------------------------
 */

static double percent(const rounds_t *r) {
  return 100.0 * (double)wm_parts_losses(r->parts) / (double)all_losses(r);
}

/* Losses that a variant needs must be measured in the first phase. */
static wm_status_t check_losses(const wm_variants_t *variants, int64_t v, wm_error_t *err) {
  int64_t n;
  const wm_change_t *c = wm_variants_changes(variants, v, &n);
  for (int64_t i = 0; i < n; i++)
    if (c[i].gate >= 0 && variants->gates->gates[c[i].gate].kind == WM_GATE_ORACLE &&
        wm_variants_linear(variants, c[i].layer) < 0)
      return wm_fail(err, WM_USAGE,
                     "the oracle of layer %lld needs the losses of its surrogate alone, which is "
                     "not among the variants",
                     (long long)c[i].layer);
  return WM_OK;
}

/* What the evaluator and the phases rely on. */
static wm_status_t check_order(const wm_variants_t *variants, wm_error_t *err) {
  const wm_span_t last = wm_sweep_phase(variants, 1);
  wm_status_t status = WM_OK;
  for (int64_t v = 2; v < variants->n; v++)
    if (v != last.begin && variants->changes[variants->offsets[v]].layer <
                               variants->changes[variants->offsets[v - 1]].layer)
      return wm_fail(err, WM_USAGE, "variants must be in the order of their first changed layers");
  for (int64_t v = last.begin; v < last.end && status == WM_OK; v++)
    status = wm_variants_needs_losses(variants, v)
                 ? check_losses(variants, v, err)
                 : wm_fail(err, WM_USAGE, "variants that need losses must come last");
  return status;
}

/* Cells of variants that another sweep has. One rank has them, as if it had computed them.
 * Collective. */
static void take_known(rounds_t *r) {
  wm_sweep_t *s = r->sweep;
  const wm_sweep_t *known = r->options->known;
  const int64_t n = s->blocks->windows->n_predicted, n_blocks = s->blocks->n;
  const int64_t *offset = s->blocks->windows->predicted_offset;
  if (known == NULL || !wm_sweep_cells_are_independent())
    return;
  for (int64_t v = 0; v < s->variants->n && s->comm->rank == 0; v++) {
    const int64_t w = wm_variants_same(s->variants, v, known->variants);
    for (int64_t b = 0; b < n_blocks && w >= 0; b++) {
      const int64_t first = offset[s->blocks->first_window[b]];
      const int64_t end = offset[s->blocks->first_window[b + 1]];
      if (wm_parts_has(r->parts, v, b))
        continue;
      memcpy((float *)s->nll.data + v * n + first, (const float *)known->nll.data + w * n + first,
             (size_t)(end - first) * sizeof(float));
      ((wm_cell_t *)s->cells.data)[v * n_blocks + b] =
          ((const wm_cell_t *)known->cells.data)[w * n_blocks + b];
      wm_parts_add(r->parts, v, b);
    }
  }
  wm_shared_sync(&s->nll);
  wm_shared_sync(&s->cells);
  wm_parts_share(r->parts);
}

/* Collective. */
static wm_status_t begin(rounds_t *r, wm_model_t *model, const wm_surrogates_t *surrogates,
                         const wm_log_t *log, wm_error_t *err) {
  wm_sweep_t *s = r->sweep;
  const wm_sweep_options_t *o = r->options;
  wm_status_t status = check_order(s->variants, err);
  if (status == WM_OK)
    status = wm_sweep_plan(s->comm, model, s->variants, s->blocks, o, &r->plan, err);
  if (status == WM_OK)
    status = prepare(r, model, surrogates, err);
  WM_TRY(wm_agree(s->comm->world, status, err));
  WM_TRY(wm_parts_create(s->comm, s->blocks, s->variants->n, o->parts, o->parts_key, log, &r->parts,
                         err));
  WM_TRY(wm_parts_read(r->parts, s->nll.data, s->cells.data, err));
  if (wm_parts_losses(r->parts) > 0)
    wm_log(log, WM_LOG_INFO, "sweep: resuming: %.0f %% of the losses are there (parts in %s)",
           percent(r), o->parts);
  take_known(r);
  wm_progress_start(&r->progress, log, "sweep", "token losses", all_losses(r));
  wm_progress_resume(&r->progress, wm_parts_losses(r->parts));
cleanup:
  return status;
}

/* Every cell was written on one node and is zero or the same on the others: a union of bits is
 * exact. */
static void merge_nodes(const wm_comm_t *comm, wm_shared_t *shared) {
  wm_shared_sync(shared);
  if (comm->node_rank == 0 && comm->node_count > 1) {
    const int64_t piece = INT64_C(1) << 26, words = shared->bytes / (int64_t)sizeof(uint32_t);
    uint32_t *bits = shared->data;
    for (int64_t i = 0; i < words; i += piece)
      MPI_Allreduce(MPI_IN_PLACE, bits + i, (int)(words - i < piece ? words - i : piece),
                    MPI_UINT32_T, MPI_BOR, comm->leaders);
  }
  wm_shared_sync(shared);
}

/* Are the cells since the last part to be kept? All of them only where there is more to lose than
 * the writing takes: else the result comes at once. */
static bool is_worth_a_part(const rounds_t *r) {
  return wm_parts_losses(r->parts) < all_losses(r) || r->options->keep_whole ||
         wm_parts_exist(r->parts);
}

/* Collective. A part says of what its losses are; a model that is written to meanwhile is not that.
 */
static wm_status_t keep(rounds_t *r, wm_error_t *err) {
  const wm_sweep_t *s = r->sweep;
  wm_status_t status = WM_OK;
  if (r->options->parts != NULL)
    status = wm_agree(s->comm->world, wm_model_unchanged(s->model, err), err);
  return status == WM_OK ? wm_parts_publish(r->parts, s->nll.data, s->cells.data, err) : status;
}

static wm_status_t stopped(const rounds_t *r, wm_error_t *err) {
  if (r->options->parts == NULL)
    return wm_fail(err, WM_STOPPED, "sweep: stopped on request");
  return wm_fail(
      err, WM_STOPPED,
      "sweep: %.1f %% of the losses are kept in %s; the same command goes on from there, "
      "on any number of ranks",
      percent(r), r->options->parts);
}

static bool is_done(const rounds_t *r) {
  for (int64_t v = r->span.begin == 1 ? 0 : r->span.begin; v < r->span.end; v++)
    for (int64_t b = 0; b < r->sweep->blocks->n; b++)
      if (!wm_parts_has(r->parts, v, b))
        return false;
  return true;
}

/* Collective. All cells of one phase, on every node in the end. */
static wm_status_t run_phase(rounds_t *r, wm_error_t *err) {
  wm_status_t status;
  while (!is_done(r)) {
    wm_round_t why;
    WM_TRY(run_round(r, &why, err));
    if (is_worth_a_part(r))
      WM_TRY(keep(r, err));
    if (why == WM_ROUND_STOPPED && wm_parts_losses(r->parts) < all_losses(r))
      return stopped(r, err);
  }
  merge_nodes(r->sweep->comm, &r->sweep->nll);
  if (r->sweep->cells.data != NULL)
    merge_nodes(r->sweep->comm, &r->sweep->cells);
  status = WM_OK;
cleanup:
  return status;
}

wm_status_t wm_sweep_evaluate(wm_sweep_t *s, wm_model_t *model, const wm_surrogates_t *surrogates,
                              const int32_t *ids, const wm_sweep_options_t *options,
                              const wm_log_t *log, wm_error_t *err) {
  rounds_t r = {.sweep = s, .options = options, .ids = ids, .rate = options->rate};
  wm_status_t status;
  WM_TRY(begin(&r, model, surrogates, log, err));
  wm_evaluator_set_losses(r.evaluator, s->nll.data);
  for (int phase = 0; phase < WM_SWEEP_PHASES; phase++) {
    r.span = wm_sweep_phase(s->variants, phase);
    if (!wm_sweep_phase_is_empty(s->variants, phase))
      WM_TRY(run_phase(&r, err));
  }
  wm_progress_finish(&r.progress);
cleanup:
  destroy(&r);
  return status;
}
