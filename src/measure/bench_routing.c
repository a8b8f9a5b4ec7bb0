/* What linearised and routed models save by the clock, beside the operations that they save: a
 * prefill of some sequences, in tiles that fit the rows of each route (linalg/gemm.h).
 *
 * Each variant takes turns with the full model, so that a clock that moves cancels. The head is the
 * same work for all of them: it is timed by itself, behind the full model, and added. */
#include "bench_internal.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/measure/prefill.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COLUMNS                                                                                    \
  .label = "batch, layers, path",                                                                  \
  .columns = {{"routed", "routed", "%", 1},                                                        \
              {"full", "full", "seconds", 3},                                                      \
              {"best", "best", "seconds", 3},                                                      \
              {"median", "median", "seconds", 3},                                                  \
              {"tokens_per_second", "tokens/s", NULL, 1},                                          \
              {"speedup", "speedup", NULL, 3},                                                     \
              {"flops_saved", "FLOPs", "saved %", 1},                                              \
              {"time_saved", "time", "saved %", 1},                                                \
              {"appears", "appears", "%", 1},                                                      \
              {"appears_median", "appears", "median %", 1}},                                       \
  .n_columns = 10

/* What counts as a pass. */
enum { NO_HEAD, HEAD_LAST, HEAD_ALL, HEADS };
static const wm_record_layout_t layouts[HEADS] = {
    {.path = "/routing/layers", .description = "Prefill without the head, all ranks", COLUMNS},
    {.path = "/routing/last",
     .description = "Prefill with the logits of each sequence's last position, all ranks",
     COLUMNS},
    {.path = "/routing/losses",
     .description = "Prefill with the losses of all positions, all ranks",
     COLUMNS}};
static const wm_record_layout_t full_kernels_layout = {
    .path = "/routing/full_kernels",
    .description = "Kernels of the full model's prefill, largest batch",
    .label = "kernel",
    WM_KERNEL_COLUMNS};
static const wm_record_layout_t kernels_layout = {
    .path = "/routing/kernels",
    .description = "Kernels of the same, all layers routed by a linear gate at the middle fraction",
    .label = "kernel",
    WM_KERNEL_COLUMNS};

static const double BAR = 10; /* % of operations saved from which on the share counts */

typedef struct {
  wm_bench_t *bench;
  wm_surrogates_t *surrogates;
  wm_gates_t *gates; /* of each layer: a linear one and a random one for each fraction */
  wm_records_t *tables[HEADS];
  double least[HEADS]; /* % of savings above the bar that appeared as time; NaN: there were none */
  /* the batch */
  int64_t sequences, rows;
  wm_batch_t batch;
  int64_t *starts, *token; /* [sequences + 1], [rows] */
  int32_t *ids, *targets;  /* [rows] */
  float *logits;           /* [sequences, V] */
  double *nll;             /* [rows] */
  wm_prefill_t *prefill;
} routing_t;

/* A way through the model. */
typedef struct {
  routing_t *r;
  const char *name;
  wm_layer_path_t *paths; /* [L]; NULL: the full model */
  double gate_flops;      /* of a row, all layers */
  int64_t routed;         /* rows that took a surrogate, over layers, in the last pass */
  wm_profile_t profile;
} way_t;

/* Layers first .. first + count - 1 are routed. */
typedef struct {
  int64_t first, count;
  const char *label; /* borrowed */
} layers_t;

/* --- life ---------------------------------------------------------------------------------------
 */

static wm_status_t allocate(void *out, int64_t count, size_t size, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, count, size, "a batch of the bench", err);
  memcpy(out, &memory, sizeof memory);
  return status;
}

/* Number of a gate in the set. which: 0: the linear one; 1 + f: random at fraction f. */
static int64_t gate_number(const routing_t *r, int64_t layer, int64_t which) {
  return layer * (1 + r->bench->options->n_fractions) + which;
}

static wm_status_t create_gates(routing_t *r, wm_error_t *err) {
  const wm_bench_options_t *o = r->bench->options;
  const int64_t d = r->bench->arch.d_model;
  double *weight = NULL;
  wm_status_t status;
  WM_TRY(allocate(&weight, d, sizeof *weight, err));
  WM_TRY(wm_gates_create(r->bench->arch.n_layers, d, 0, &r->gates, err));
  for (int64_t l = 0; l < r->bench->arch.n_layers; l++) {
    const wm_gate_layer_t layer = {.layer = l, .selected = -1};
    for (int64_t i = 0; i < d; i++)
      weight[i] =
          wm_rng_normal((wm_rng_t){o->seed, 2000 + (uint64_t)l}, (uint64_t)i) / sqrt((double)d);
    WM_TRY(wm_gates_add_layer(r->gates, &layer, err));
    wm_gate_t gate = {.layer = l, .kind = WM_GATE_LINEAR, .weight = weight, .threshold = 0.5};
    WM_TRY(wm_gates_add(r->gates, &gate, err));
    for (int64_t f = 0; f < o->n_fractions; f++) {
      gate = (wm_gate_t){
          .layer = l, .kind = WM_GATE_RANDOM, .fraction = o->fractions[f], .seed = o->seed};
      WM_TRY(wm_gates_add(r->gates, &gate, err));
    }
  }
cleanup:
  free(weight);
  return status;
}

static void destroy_batch(routing_t *r) {
  wm_prefill_free(r->prefill);
  r->prefill = NULL;
  void **const arrays[] = {(void **)&r->starts,  (void **)&r->token,  (void **)&r->ids,
                           (void **)&r->targets, (void **)&r->logits, (void **)&r->nll};
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
    free(*arrays[i]);
    *arrays[i] = NULL;
  }
}

/* This rank's sequences of random tokens. */
static wm_status_t create_batch(routing_t *r, int64_t sequences, wm_error_t *err) {
  const wm_bench_options_t *o = r->bench->options;
  const int64_t v = r->bench->arch.vocab_size, window = o->window;
  wm_status_t status;
  r->sequences = sequences;
  r->rows = sequences * window;
  WM_TRY(allocate(&r->starts, sequences + 1, sizeof *r->starts, err));
  WM_TRY(allocate(&r->token, r->rows, sizeof *r->token, err));
  WM_TRY(allocate(&r->ids, r->rows, sizeof *r->ids, err));
  WM_TRY(allocate(&r->targets, r->rows, sizeof *r->targets, err));
  WM_TRY(allocate(&r->logits, sequences * v, sizeof *r->logits, err));
  WM_TRY(allocate(&r->nll, r->rows, sizeof *r->nll, err));
  for (int64_t s = 0; s <= sequences; s++)
    r->starts[s] = s * window;
  for (int64_t i = 0; i < r->rows; i++) {
    r->token[i] = o->comm->rank * r->rows + i;
    r->ids[i] = (int32_t)wm_rng_below((wm_rng_t){o->seed, 3}, (uint64_t)r->token[i], (uint64_t)v);
    r->targets[i] = -1; /* nothing is predicted at a sequence's end */
    if (i % window != 0)
      r->targets[i - 1] = r->ids[i];
  }
  r->batch = (wm_batch_t){sequences, r->starts};
  WM_TRY(wm_prefill_create(r->bench->model, r->surrogates, r->gates, r->rows, sequences, window,
                           &r->prefill, err));
cleanup:
  return status;
}

/* --- what is timed ------------------------------------------------------------------------------
 */

static wm_status_t call_layers(void *context, wm_error_t *err) {
  way_t *w = context;
  routing_t *r = w->r;
  wm_model_set_profile(r->bench->model, &w->profile);
  wm_status_t status = wm_prefill_run(r->prefill, &r->batch, r->ids, r->token, w->paths, err);
  wm_model_set_profile(r->bench->model, NULL);
  w->routed = wm_prefill_routed(r->prefill);
  return status;
}

static wm_status_t call_last(void *context, wm_error_t *err) {
  routing_t *r = context;
  return wm_prefill_last(r->prefill, r->logits, err);
}

static wm_status_t call_losses(void *context, wm_error_t *err) {
  routing_t *r = context;
  return wm_prefill_losses(r->prefill, r->targets, r->nll, err);
}

/* --- tables -------------------------------------------------------------------------------------
 */

/* Operations of a rank's pass through the full model. */
static double full_flops(const routing_t *r, int head) {
  const wm_arch_t *a = &r->bench->arch;
  const double n = (double)r->bench->options->window, rows = (double)r->rows;
  double flops = rows * (double)a->n_layers *
                 (wm_arch_flops_layer(a) + wm_arch_flops_attention(a, (n + 1) / 2));
  if (head == HEAD_LAST)
    flops += (double)r->sequences * wm_arch_flops_head(a);
  if (head == HEAD_ALL)
    flops += (rows - (double)r->sequences) * wm_arch_flops_head(a);
  return flops;
}

static double percent(double part, double whole) {
  return 100 * part / whole;
}

/* The full model's contests, HEADS of them, and the way's own, which has no head. */
typedef struct {
  const wm_contest_t *full, *way;
} turns_t;

/* A row of one table. routed: % of the positions; saved: operations of all ranks. */
static wm_status_t add_row(routing_t *r, int head, const char *name, double routed, double saved,
                           turns_t turns, wm_error_t *err) {
  const double ranks = r->bench->options->comm->size;
  const wm_samples_t *full = &turns.full->samples, *way = &turns.way->samples;
  const wm_samples_t *h = &turns.full[head].samples;
  const double best_head = head == NO_HEAD ? 0 : wm_samples_best(h);
  const double median_head = head == NO_HEAD ? 0 : wm_samples_median(h);
  const double before = wm_samples_best(full) + best_head;
  const double after = wm_samples_best(way) + best_head;
  const double median_before = wm_samples_median(full) + median_head;
  const double median = wm_samples_median(way) + median_head;
  const double flops = percent(saved, full_flops(r, head) * ranks);
  const double time = percent(before - after, before);
  const double appears = percent(time, flops);
  const double row[] = {routed,
                        before,
                        after,
                        median,
                        (double)r->rows * ranks / after,
                        before / after,
                        flops,
                        time,
                        appears,
                        percent(percent(median_before - median, median_before), flops)};
  if (head == NO_HEAD)
    wm_log(r->bench->options->log, WM_LOG_INFO,
           "bench: routing: %s: %.1f %% of the operations saved, %.1f %% of the time", name, flops,
           time);
  if (flops >= BAR && !(appears >= r->least[head]))
    r->least[head] = appears;
  return wm_records_add(r->tables[head], name, row, err);
}

/* Collective. A row in each table: the way's times and the full model's of the same turns. */
static wm_status_t add_rows(routing_t *r, const way_t *way, const layers_t *layers, turns_t turns,
                            wm_error_t *err) {
  const wm_arch_t *a = &r->bench->arch;
  const wm_comm_t *comm = r->bench->options->comm;
  const double rows = (double)(r->rows * comm->size);
  double taken = (double)way->routed;
  wm_sum_f64(comm->world, &taken, 1);
  const double saved =
      taken * (wm_arch_flops_mlp(a) - wm_arch_flops_surrogate(a)) - rows * way->gate_flops;
  wm_status_t status = WM_OK;
  char name[WM_RECORD_LABEL];
  snprintf(name, sizeof name, "%lld x %lld, %s, %s", (long long)r->sequences,
           (long long)r->bench->options->window, layers->label, way->name);
  for (int head = 0; head < HEADS && status == WM_OK; head++)
    status =
        add_row(r, head, name, percent(taken, rows * (double)layers->count), saved, turns, err);
  return wm_agree(comm->world, status, err);
}

/* --- contests -----------------------------------------------------------------------------------
 */

enum { MOST_WAYS = 2 };

/* Collective. The full model with both heads, and `ways`, in turns. kernels: tables of those of the
 * full model and of the last way, too. */
static wm_status_t compete(routing_t *r, const layers_t *layers, way_t *ways, int n, bool kernels,
                           wm_error_t *err) {
  wm_bench_t *bench = r->bench;
  const wm_bench_options_t *o = bench->options;
  way_t full = {.r = r, .name = "full"};
  wm_contest_t contests[HEADS + MOST_WAYS] = {{.call = call_layers, .context = &full},
                                              {.call = call_last, .context = r},
                                              {.call = call_losses, .context = r}};
  wm_status_t status;
  for (int i = 0; i < n; i++)
    contests[HEADS + i] = (wm_contest_t){.call = call_layers, .context = &ways[i]};
  for (int i = 0; i < HEADS + n; i++)
    contests[i].ranks = o->comm->size;
  WM_TRY(wm_bench_contest(o, contests, HEADS + n, err));
  for (int i = 0; i < n; i++)
    WM_TRY(add_rows(r, &ways[i], layers, (turns_t){contests, &contests[HEADS + i]}, err));
  if (!kernels)
    return WM_OK;
  const wm_samples_t *before = &contests[0].samples, *after = &contests[HEADS + n - 1].samples;
  const double peak = wm_bench_peak(bench, o->model.compute);
  WM_TRY(wm_bench_kernels(bench, &full_kernels_layout, &full.profile, peak, before->wall, before->n,
                          err));
  WM_TRY(wm_bench_kernels(bench, &kernels_layout, &ways[n - 1].profile, peak, after->wall, after->n,
                          err));
cleanup:
  return status;
}

static int descending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x < y) - (x > y);
}

/* Threshold at which `fraction` of the scores, which are sorted, are above it. */
static double threshold_for(double *scores, int64_t n, double fraction) {
  int64_t k = (int64_t)(fraction * (double)n + 0.5);
  qsort(scores, (size_t)n, sizeof *scores, descending);
  if (k <= 0 || k >= n)
    return k <= 0 ? 1 : 0;
  return 1 / (1 + exp(-(scores[k - 1] + scores[k]) / 2));
}

/* Sets the thresholds of the linear gates, layer by layer, on the text that will be routed. */
static wm_status_t set_thresholds(routing_t *r, const layers_t *layers, double fraction,
                                  wm_layer_path_t *paths, wm_error_t *err) {
  double *scores = NULL;
  const float *x;
  wm_status_t status;
  WM_TRY(allocate(&scores, r->rows, sizeof *scores, err));
  WM_TRY(wm_prefill_begin(r->prefill, &r->batch, r->ids, r->token, err));
  for (int64_t l = 0; l < r->bench->arch.n_layers; l++) {
    WM_TRY(wm_prefill_attend(r->prefill, l, &x, err));
    if (l >= layers->first && l < layers->first + layers->count) {
      wm_gates_score(r->gates, gate_number(r, l, 0), x, r->rows, scores);
      paths[l] = (wm_layer_path_t){WM_LAYER_GATED, gate_number(r, l, 0),
                                   threshold_for(scores, r->rows, fraction)};
    }
    WM_TRY(wm_prefill_mlp(r->prefill, l, &paths[l], err));
  }
cleanup:
  free(scores);
  return status;
}

/* Collective. Surrogates at all of `layers`. */
static wm_status_t compete_linearised(routing_t *r, const layers_t *layers, wm_layer_path_t *paths,
                                      wm_error_t *err) {
  const int64_t n_layers = r->bench->arch.n_layers;
  memset(paths, 0, (size_t)n_layers * sizeof *paths);
  for (int64_t l = layers->first; l < layers->first + layers->count; l++)
    paths[l].kind = WM_LAYER_SURROGATE;
  way_t way = {.r = r, .name = "linear", .paths = paths};
  return compete(r, layers, &way, 1, false, err);
}

/* Collective. A random and a linear gate at fraction number f. paths: [2, L]. */
static wm_status_t compete_routed(routing_t *r, const layers_t *layers, int64_t f,
                                  wm_layer_path_t *paths, bool kernels, wm_error_t *err) {
  const wm_bench_options_t *o = r->bench->options;
  const int64_t n_layers = r->bench->arch.n_layers;
  const double flops = wm_gate_flops(&r->gates->gates[0], r->bench->arch.d_model);
  wm_layer_path_t *random = paths, *gated = paths + n_layers;
  char names[MOST_WAYS][16];
  snprintf(names[0], sizeof names[0], "random %.0f %%", 100 * o->fractions[f]);
  snprintf(names[1], sizeof names[1], "gate %.0f %%", 100 * o->fractions[f]);
  memset(paths, 0, (size_t)(2 * n_layers) * sizeof *paths);
  for (int64_t l = layers->first; l < layers->first + layers->count; l++)
    random[l] = (wm_layer_path_t){WM_LAYER_GATED, gate_number(r, l, 1 + f), 0.5};
  wm_status_t status =
      wm_agree(o->comm->world, set_thresholds(r, layers, o->fractions[f], gated, err), err);
  if (status != WM_OK)
    return status;
  way_t ways[MOST_WAYS] = {
      {.r = r, .name = names[0], .paths = random},
      {.r = r, .name = names[1], .paths = gated, .gate_flops = flops * (double)layers->count}};
  return compete(r, layers, ways, MOST_WAYS, kernels, err);
}

/* Collective. All layers, and the four in the middle, on batches of that size. */
static wm_status_t measure_batch(routing_t *r, int64_t sequences, bool kernels, wm_error_t *err) {
  enum { MIDDLE = 4 };
  const wm_bench_options_t *o = r->bench->options;
  const int64_t n = r->bench->arch.n_layers, middle = (n - MIDDLE) / 2;
  char label[56];
  const layers_t sets[2] = {{0, n, "all layers"}, {middle, MIDDLE, label}};
  wm_layer_path_t *paths = NULL;
  wm_status_t status = create_batch(r, sequences, err);
  if (status == WM_OK)
    status = allocate(&paths, 2 * n, sizeof *paths, err);
  WM_TRY(wm_agree(o->comm->world, status, err));
  snprintf(label, sizeof label, "layers %lld-%lld", (long long)middle,
           (long long)middle + MIDDLE - 1);
  for (int s = 0; s < (n > MIDDLE ? 2 : 1); s++) {
    for (int64_t f = 0; f < o->n_fractions; f++)
      WM_TRY(
          compete_routed(r, &sets[s], f, paths, kernels && s == 0 && f == o->n_fractions / 2, err));
    WM_TRY(compete_linearised(r, &sets[s], paths, err));
  }
cleanup:
  free(paths);
  destroy_batch(r);
  return status;
}

static wm_status_t measure(routing_t *r, wm_error_t *err) {
  const wm_bench_options_t *o = r->bench->options;
  int64_t largest = 0;
  for (int64_t b = 0; b < o->n_batches; b++)
    largest = o->batches[b] > o->batches[largest] ? b : largest;
  for (int64_t b = 0; b < o->n_batches; b++) {
    wm_status_t status = measure_batch(r, o->batches[b], b == largest, err);
    if (status != WM_OK)
      return status;
  }
  for (int head = 0; head < HEADS; head++) {
    wm_records_note(r->tables[head], "Times are of all ranks, each with a batch of its own; %s.",
                    o->processor_time ? "processor time" : "wall clock");
    if (head != NO_HEAD)
      wm_records_note(r->tables[head], "The head's time is the full model's.");
    if (!isnan(r->least[head]))
      wm_records_note(r->tables[head],
                      "Where at least %.0f %% of the operations are saved, %.0f %% of that or more "
                      "appears as time.",
                      BAR, floor(r->least[head]));
  }
  return WM_OK;
}

wm_status_t wm_bench_routing(wm_bench_t *bench, wm_error_t *err) {
  const wm_bench_options_t *o = bench->options;
  routing_t r = {.bench = bench, .least = {NAN, NAN, NAN}};
  wm_status_t status;
  for (int head = 0; head < HEADS; head++)
    r.tables[head] = wm_bench_table(bench, &layouts[head]);
  WM_TRY(wm_surrogates_create_random(o->comm, bench->arch.n_layers, bench->arch.d_model,
                                     o->model.tile_rows, o->model.compute, o->seed, &r.surrogates,
                                     err));
  status = wm_model_set_tiles(bench->model, WM_TILES_FITTED, err);
  if (status == WM_OK)
    status = wm_surrogates_set_tiles(r.surrogates, WM_TILES_FITTED, err);
  if (status == WM_OK)
    status = create_gates(&r, err);
  WM_TRY(wm_agree(o->comm->world, status, err));
  WM_TRY(measure(&r, err));
  WM_TRY(wm_model_set_tiles(bench->model, WM_TILES_FIXED, err));
cleanup:
  wm_gates_free(r.gates);
  wm_surrogates_close(r.surrogates);
  return status;
}
