#include "plan_internal.h"
#include "sweep_internal.h"
#include "wanamaker/base/mem.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_VARIANTS = 64 }; /* as sweep_units.c has it */

/* --- evaluation ---------------------------------------------------------------------------------
 */

/* Workspace of a rank: stacked states, one pass's activations, tiles of logits. */
static double workspace(const wm_work_t *w, int64_t group, int64_t stack_rows) {
  const double d = (double)w->arch->d_model, rows = (double)w->evaluation->max_rows;
  return ((1 + (double)group) * rows * d + (double)stack_rows * (9 * d + (double)w->arch->d_mlp) +
          2 * (double)(w->tile_rows * w->tile_vocab)) *
         4;
}

static wm_status_t fit_memory(const wm_work_t *w, int64_t *group, int64_t *stack_rows,
                              wm_error_t *err) {
  const int64_t least = w->evaluation->max_rows;
  while (w->rank_bytes > 0 && workspace(w, *group, *stack_rows) > w->rank_bytes) {
    if (*stack_rows > least)
      *stack_rows = *stack_rows / 2 > least ? *stack_rows / 2 : least;
    else if (*group > 1)
      *group = (*group + 1) / 2;
    else
      return wm_fail(err, WM_USAGE, "one variant on a block of %lld tokens takes %.3f GiB a rank",
                     (long long)least, workspace(w, 1, least) / 0x1p30);
  }
  return WM_OK;
}

static wm_status_t durations_of(const wm_units_t *units, double rate, double latency, double **out,
                                wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, units->n, sizeof(double), "simulated units", err);
  *out = memory;
  for (int64_t i = 0; i < units->n && status == WM_OK; i++)
    (*out)[i] = units->units[i].cost / rate + 2 * latency;
  return status;
}

/* One phase's units, as the ranks take them from the queue. Adds to *out, in which group is the
 * largest that was chosen. */
static wm_status_t phase_cost(const wm_work_t *w, const wm_machine_t *m, wm_layout_t l,
                              wm_span_t span, int64_t group, double pause, wm_cost_t *out,
                              wm_error_t *err) {
  const int64_t ranks = l.nodes * l.ranks;
  const double rate = m->sweep * wm_plan_speed(m, l.threads);
  const wm_sweep_options_t o = {.checkpoint_seconds = w->checkpoint_seconds};
  wm_units_t units = {0};
  double *durations = NULL, seconds;
  wm_status_t status;
  if (w->max_group == 0 && wm_sweep_cells_are_independent())
    WM_TRY(wm_units_choose(w->arch, w->variants, span, w->evaluation, NULL, group,
                           wm_sweep_unit_flops(&o, rate), (int)ranks, &units, &group, err));
  else
    WM_TRY(wm_units_cut(w->arch, w->variants, span, w->evaluation, NULL, group, &units, err));
  WM_TRY(durations_of(&units, rate, m->latency, &durations, err));
  WM_TRY(wm_plan_queue(durations, units.n, ranks, w->checkpoint_seconds, pause, &seconds, err));
  out->seconds += seconds;
  out->flops += units.total;
  out->units += units.n;
  out->group = group > out->group ? group : out->group;
cleanup:
  free(durations);
  wm_units_destroy(&units);
  return status;
}

/* --- statistics ---------------------------------------------------------------------------------
 */

/* Compensated sums over all losses and sorted resamples on every rank, resamples shared out. */
double wm_plan_statistics(const wm_machine_t *m, wm_layout_t l, double variants, double losses,
                          double resamples, double units) {
  const double sums = 8 * variants * losses;
  const double draws = resamples * units * (8 + variants / 2);
  const double sorts = variants * resamples * 3 * log2(resamples + 2);
  return (sums + sorts) / m->steps +
         draws / ((double)(l.nodes * l.ranks) * wm_plan_speed(m, l.threads) * m->steps);
}

wm_status_t wm_plan_sweep(const wm_work_t *w, const wm_machine_t *m, wm_layout_t l, wm_cost_t *out,
                          wm_error_t *err) {
  const int64_t ranks = l.nodes * l.ranks, wanted = w->max_group > 0 ? w->max_group : MOST_VARIANTS;
  const double d = (double)w->arch->d_model, rate = m->sweep * wm_plan_speed(m, l.threads);
  int64_t group = w->variants->n - 1 < wanted ? w->variants->n - 1 : wanted,
          stack_rows = w->stack_rows;
  double phases = 0;
  wm_status_t status;
  *out = (wm_cost_t){0};
  if (group < 1)
    group = 1;
  WM_TRY(fit_memory(w, &group, &stack_rows, err));
  const double losses = 4 * (double)w->variants->n * (double)w->evaluation->windows->n_predicted;
  for (int phase = 0; phase < WM_SWEEP_PHASES; phase++) {
    if (wm_sweep_phase_is_empty(w->variants, phase))
      continue;
    WM_TRY(phase_cost(w, m, l, wm_sweep_phase(w->variants, phase), group, losses / 4 / m->files,
                      out, err));
    phases++;
  }
  const double surrogates = (double)w->fit_layers * (d * d + d) * 4;
  out->busy = out->flops / rate / ((double)ranks * out->seconds);
  out->file_bytes = 2 * surrogates * (double)l.nodes + 2 * losses;
  wm_plan_sweep_messages(w, l, phases, (double)out->units, losses, out);
  out->seconds += wm_plan_statistics(m, l, (double)(w->variants->n - 1),
                                     (double)w->evaluation->windows->n_predicted,
                                     (double)w->resamples, (double)w->units) +
                  out->file_bytes / m->files + wm_plan_reduce_seconds(m, l, losses) +
                  wm_plan_meet(m, l, out->meetings);
  out->memory = wm_plan_weights(w->arch) + surrogates + losses +
                (double)l.ranks * workspace(w, group, stack_rows);
cleanup:
  return status;
}
