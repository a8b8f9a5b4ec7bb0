#include "wanamaker/measure/plan.h"

#include "plan_internal.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/linalg/grid.h"
#include "wanamaker/measure/gram.h"

#include <math.h>
#include <stdlib.h>

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

double wm_plan_reduce_seconds(const wm_machine_t *m, wm_layout_t l, double bytes) {
  const double nodes = (double)l.nodes;
  return l.nodes > 1 ? 2 * (nodes - 1) / nodes * bytes / m->network + 2 * log2(nodes) * m->latency
                     : 0;
}

/* All ranks meet: there and back through a tree over the nodes. */
double wm_plan_meet(const wm_machine_t *m, wm_layout_t l, double meetings) {
  return l.nodes > 1 ? meetings * 2 * log2((double)l.nodes) * m->latency : 0;
}

void wm_plan_add(wm_cost_t *total, const wm_cost_t *piece) {
  total->seconds += piece->seconds;
  total->flops += piece->flops;
  total->flops64 += piece->flops64;
  total->memory = piece->memory > total->memory ? piece->memory : total->memory;
  total->messages += piece->messages;
  total->meetings += piece->meetings;
  total->message_bytes += piece->message_bytes;
  total->file_bytes += piece->file_bytes;
  total->units += piece->units;
}

void wm_plan_open(const wm_work_t *w, const wm_machine_t *m, wm_layout_t l, wm_cost_t *out) {
  const double weights = wm_plan_weights(w->arch);
  *out = (wm_cost_t){.memory = weights, .file_bytes = weights * (double)l.nodes, .busy = NAN};
  wm_plan_open_messages(l, out);
  out->seconds = m->start + out->file_bytes / m->files + wm_plan_meet(m, l, out->meetings);
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
  for (int64_t b = 0; b < blocks->n; b++) {
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

double wm_plan_trunk(const wm_arch_t *arch, const wm_machine_t *m, wm_layout_t l,
                     const wm_blocks_t *blocks, double passes, double n_layers, double *flops) {
  double longest, all;
  if (blocks == NULL)
    return 0;
  block_work(blocks, arch, &longest, &all);
  const double steps = (double)steps_of(blocks, l.nodes * l.ranks);
  const double mean = all / (double)blocks->n;
  /* Of many steps some have long blocks and some have not. */
  const double step = steps > 1 || blocks->n > 1 ? (longest + mean) / 2 : longest;
  *flops += passes * all * n_layers;
  return passes * steps * step * n_layers / (wm_plan_speed(m, l.threads) * m->trunk);
}

/* Passes of the fit, and the mean number of layers that one goes through: to the last layer of its
 * group. */
static void fit_passes(const wm_work_t *w, int64_t at_once, double *passes, double *depth) {
  *passes = *depth = 0;
  for (int64_t first = 0; first < w->fit_layers; first += at_once) {
    const int64_t end = first + at_once < w->fit_layers ? first + at_once : w->fit_layers;
    (*passes)++;
    *depth += (double)(w->layers[end - 1] + 1);
  }
  *depth /= *passes > 0 ? *passes : 1;
}

/* Products of one set of rows, which the ranks of a node share. */
static double gram_seconds(const wm_work_t *w, const wm_machine_t *m, wm_layout_t l,
                           const wm_blocks_t *blocks, wm_cost_t *c) {
  const double d = (double)w->arch->d_model;
  if (blocks == NULL)
    return 0;
  const double gram = 3 * d * d * (double)blocks->windows->n_positions * (double)w->fit_layers;
  const double nodes_used = (double)(blocks->n < l.nodes ? blocks->n : l.nodes);
  c->flops64 += gram;
  return gram / nodes_used / ((double)l.ranks * wm_plan_speed(m, l.threads) * m->gram);
}

double wm_plan_team(const wm_arch_t *arch, const wm_machine_t *m, wm_layout_t l) {
  int rows, columns;
  wm_grid_shape((int)(l.nodes * l.ranks), arch->d_model, &rows, &columns);
  return rows * columns * wm_plan_speed(m, l.threads) / wm_plan_speed(m, 1);
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
  if (w->sequential)
    at_once = 1;
  double passes, depth;
  fit_passes(w, at_once, &passes, &depth);
  int rows, columns;
  wm_grid_shape((int)ranks, w->arch->d_model, &rows, &columns);
  const double team = rows * columns, teams = floor((double)ranks / team);
  double seconds = wm_plan_trunk(w->arch, m, l, w->fit, passes, depth, &out->flops) +
                   wm_plan_trunk(w->arch, m, l, w->heldout, passes, depth, &out->flops) +
                   gram_seconds(w, m, l, w->fit, out) + gram_seconds(w, m, l, w->heldout, out);
  const double grams = layers * (double)each, rounds = ceil((double)at_once / teams) * passes;
  seconds += wm_plan_reduce_seconds(m, l, grams);
  double solution = cube / m->solve + (w->spectrum ? cube / m->spectrum : 0);
  seconds += rounds * solution / (team * wm_plan_speed(m, l.threads) / wm_plan_speed(m, 1));
  out->file_bytes = layers * (d * d + d) * 8;
  wm_plan_fit_messages(w, l, passes,
                       passes * (double)(steps_of(w->fit, ranks) + steps_of(w->heldout, ranks)),
                       layers / teams, grams, out);
  out->seconds = seconds + out->file_bytes / m->files + wm_plan_meet(m, l, out->meetings);
  out->memory = wm_plan_weights(w->arch) + (double)at_once * (double)each +
                (double)l.ranks * (double)w->fit->max_rows * (12 * d + (double)w->arch->d_mlp) * 4;
  return WM_OK;
}
