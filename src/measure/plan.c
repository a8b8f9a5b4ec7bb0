#include "wanamaker/measure/plan.h"

#include "plan_internal.h"
#include "sweep_internal.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/linalg/grid.h"
#include "wanamaker/measure/gram.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_VARIANTS = 64 }; /* as sweep_units.c has it */

double wm_plan_weights(const wm_arch_t *a) {
  const double d = (double)a->d_model, f = (double)a->d_mlp;
  double each = 4 * d * d + 2 * d * f + 9 * d + f;
  double embeddings = (double)a->vocab_size * d * (a->tied_head ? 1 : 2);
  if (a->family == WM_FAMILY_GPT2)
    embeddings += (double)a->max_positions * d;
  return 4 * (embeddings + (double)a->n_layers * each + 2 * d);
}

double wm_plan_speed(const wm_machine_t *m, int64_t threads) {
  return (double)threads / (1 + m->thread_loss * (double)(threads - 1));
}

/* Every node reads the model; what the ranks write comes once. */
static double file_seconds(const wm_machine_t *m, double bytes) {
  return bytes / m->files;
}

static double reduce_seconds(const wm_machine_t *m, wm_layout_t l, double bytes) {
  const double nodes = (double)l.nodes;
  return l.nodes > 1 ? 2 * (nodes - 1) / nodes * bytes / m->network + 2 * log2(nodes) * m->latency
                     : 0;
}

/* All ranks meet: there and back through a tree over the nodes. */
static double meeting_seconds(const wm_machine_t *m, wm_layout_t l, double meetings) {
  return l.nodes > 1 ? meetings * 2 * log2((double)l.nodes) * m->latency : 0;
}

/* --- queue --------------------------------------------------------------------------------------
 */

/* Restores the order of a heap whose root has grown. */
static void sink(double *heap, int64_t n) {
  for (int64_t i = 0, child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && heap[child + 1] < heap[child])
      child++;
    if (heap[i] <= heap[child])
      return;
    double t = heap[i];
    heap[i] = heap[child];
    heap[child] = t;
  }
}

static double latest(const double *heap, int64_t n) {
  double last = 0;
  for (int64_t i = 0; i < n; i++)
    last = heap[i] > last ? heap[i] : last;
  return last;
}

wm_status_t wm_plan_queue(const double *durations, int64_t n, int64_t workers, double interval,
                          double pause, double *seconds, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, workers, sizeof(double), "a simulated queue", err);
  if (status != WM_OK)
    return status;
  double *free_at = memory, round = 0;
  for (int64_t i = 0; i < workers; i++)
    free_at[i] = 0;
  for (int64_t i = 0; i < n; i++) {
    if (interval > 0 && free_at[0] - round >= interval) {
      round = latest(free_at, workers) + pause;
      for (int64_t w = 0; w < workers; w++)
        free_at[w] = round;
    }
    free_at[0] += durations[i];
    sink(free_at, workers);
  }
  *seconds = latest(free_at, workers) + pause;
  free(memory);
  return WM_OK;
}

/* --- fit ----------------------------------------------------------------------------------------
 */

/* Longest block of windows, in operations of one layer; and all of them. */
static void block_work(const wm_blocks_t *blocks, const wm_arch_t *arch, double *longest,
                       double *all) {
  *longest = *all = 0;
  for (int64_t b = 0; blocks != NULL && b < blocks->n; b++) {
    double flops = 0;
    for (int64_t i = blocks->first_window[b]; i < blocks->first_window[b + 1]; i++) {
      double n = (double)blocks->windows->length[i];
      flops += n * (wm_arch_flops_layer(arch) + wm_arch_flops_attention(arch, (n + 1) / 2));
    }
    *all += flops;
    *longest = flops > *longest ? flops : *longest;
  }
}

static int64_t steps_of(const wm_blocks_t *blocks, int64_t ranks) {
  return blocks == NULL ? 0 : (blocks->n + ranks - 1) / ranks;
}

/* Seconds of the passes of one set of rows: its blocks are dealt out in turn, a step ends with its
 * longest one, and the ranks of a node share the products of what they have published. */
static double pass_seconds(const wm_work_t *w, const wm_machine_t *m, wm_layout_t l,
                           const wm_blocks_t *blocks, double passes, wm_cost_t *c) {
  const int64_t ranks = l.nodes * l.ranks;
  const double d = (double)w->arch->d_model, layers = (double)w->arch->n_layers,
               speed = wm_plan_speed(m, l.threads);
  double longest, all;
  if (blocks == NULL)
    return 0;
  block_work(blocks, w->arch, &longest, &all);
  const double steps = (double)steps_of(blocks, ranks), rows = (double)blocks->windows->n_positions;
  const double gram = 3 * d * d * rows * (double)w->fit_layers;
  const double mean = all / (double)blocks->n;
  /* Of many steps some have long blocks and some have not. */
  const double step = steps > 1 || blocks->n > 1 ? (longest + mean) / 2 : longest;
  const double nodes_used = (double)(blocks->n < l.nodes ? blocks->n : l.nodes);
  c->flops += passes * all * layers;
  c->flops64 += gram;
  return passes * steps * step * layers / (speed * m->trunk) +
         gram / nodes_used / ((double)l.ranks * speed * m->gram);
}

wm_status_t wm_plan_fit(const wm_work_t *w, const wm_machine_t *m, wm_layout_t l, wm_cost_t *out,
                        wm_error_t *err) {
  const int64_t ranks = l.nodes * l.ranks, each = wm_gram_bytes_per_layer(w->arch->d_model);
  const double d = (double)w->arch->d_model, layers = (double)w->fit_layers, cube = d * d * d;
  *out = (wm_cost_t){.busy = NAN};
  if (w->gram_bytes < each)
    return wm_fail(err, WM_USAGE,
                   "fit.memory_gib = %.3f holds no layer's Gram matrices: one takes %.3f GiB",
                   (double)w->gram_bytes / 0x1p30, (double)each / 0x1p30);
  int64_t at_once = w->gram_bytes / each < w->fit_layers ? w->gram_bytes / each : w->fit_layers;
  const double passes = ceil(layers / (double)at_once);
  int rows, columns;
  wm_grid_shape((int)ranks, w->arch->d_model, &rows, &columns);
  const double team = rows * columns, teams = floor((double)ranks / team);
  double seconds =
      pass_seconds(w, m, l, w->fit, passes, out) + pass_seconds(w, m, l, w->heldout, passes, out);
  const double grams = layers * (double)each, rounds = ceil((double)at_once / teams) * passes;
  seconds += reduce_seconds(m, l, grams);
  double solution = cube / m->solve + (w->spectrum ? cube / m->spectrum : 0);
  seconds += rounds * solution / (team * wm_plan_speed(m, l.threads) / wm_plan_speed(m, 1));
  const double weights = wm_plan_weights(w->arch), result = layers * (d * d + d) * 4;
  out->file_bytes = weights * (double)l.nodes + result;
  wm_plan_fit_messages(w, l,
                       passes * (double)(steps_of(w->fit, ranks) + steps_of(w->heldout, ranks)),
                       layers / teams, grams, out);
  out->seconds =
      m->start + seconds + file_seconds(m, out->file_bytes) + meeting_seconds(m, l, out->meetings);
  out->memory = weights + (double)at_once * (double)each +
                (double)l.ranks * (double)w->fit->max_rows * (12 * d + (double)w->arch->d_mlp) * 4;
  return WM_OK;
}

/* --- sweep --------------------------------------------------------------------------------------
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

/* The units' durations, those of routed variants behind each other: they cost what the linear ones
 * do. */
static wm_status_t durations_of(const wm_units_t *units, double repeats, double rate,
                                double latency, double **out, int64_t *n, wm_error_t *err) {
  const int64_t times = 1 + (int64_t)(repeats + 0.5);
  void *memory;
  wm_status_t status = wm_alloc(&memory, units->n * times, sizeof(double), "simulated units", err);
  if (status != WM_OK)
    return status;
  *out = memory;
  *n = units->n * times;
  for (int64_t i = 0; i < *n; i++)
    (*out)[i] = units->units[i / times].cost / rate + 2 * latency;
  return WM_OK;
}

wm_status_t wm_plan_sweep(const wm_work_t *w, const wm_machine_t *m, wm_layout_t l, wm_cost_t *out,
                          wm_error_t *err) {
  const int64_t ranks = l.nodes * l.ranks, wanted = w->max_group > 0 ? w->max_group : MOST_VARIANTS;
  const double rate = m->sweep * wm_plan_speed(m, l.threads);
  const wm_span_t all = {1, w->variants->n};
  int64_t group = w->variants->n - 1 < wanted ? w->variants->n - 1 : wanted,
          stack_rows = w->stack_rows, n = 0;
  const wm_sweep_options_t o = {.checkpoint_seconds = w->checkpoint_seconds};
  wm_units_t units = {0};
  double *durations = NULL;
  wm_status_t status;
  *out = (wm_cost_t){0};
  if (group < 1)
    group = 1;
  WM_TRY(fit_memory(w, &group, &stack_rows, err));
  const double space = workspace(w, group, stack_rows);
  if (w->max_group == 0 && wm_sweep_cells_are_independent())
    WM_TRY(wm_units_choose(w->arch, w->variants, all, w->evaluation, NULL, group,
                           wm_sweep_unit_flops(&o, rate), (int)ranks, &units, &group, err));
  else
    WM_TRY(wm_units_cut(w->arch, w->variants, all, w->evaluation, NULL, group, &units, err));
  WM_TRY(durations_of(&units, w->repeats, rate, m->latency, &durations, &n, err));
  const double d = (double)w->arch->d_model, times = 1 + floor(w->repeats + 0.5);
  const double losses =
      4 * times * (double)w->variants->n * (double)w->evaluation->windows->n_predicted;
  const double weights = wm_plan_weights(w->arch),
               surrogates = (double)w->fit_layers * (d * d + d) * 4;
  double seconds;
  WM_TRY(wm_plan_queue(durations, n, ranks, w->checkpoint_seconds, file_seconds(m, losses / 4),
                       &seconds, err));
  out->flops = times * units.total;
  out->busy = out->flops / rate / ((double)ranks * seconds);
  out->file_bytes = (weights + surrogates) * (double)l.nodes + 2 * losses;
  wm_plan_sweep_messages(w, l, times * (double)(w->variants->n - 1) + 1, (double)n, losses, out);
  out->seconds = m->start + seconds + file_seconds(m, out->file_bytes) +
                 reduce_seconds(m, l, losses) + meeting_seconds(m, l, out->meetings);
  out->memory = weights + surrogates + losses + (double)l.ranks * space;
  out->units = n;
  out->group = group;
cleanup:
  free(durations);
  wm_units_destroy(&units);
  return status;
}
