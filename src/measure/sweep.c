#include "wanamaker/measure/sweep.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/base/progress.h"
#include "wanamaker/measure/evaluate.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* --- units and who does them --------------------------------------------------------------------
 */

typedef struct {
  int64_t block, first, count; /* variants first .. first + count - 1 */
  double cost;
} unit_t;

typedef struct {
  unit_t *units;
  int64_t n;
  int32_t *rank; /* [n] who does it */
} schedule_t;

/* Floating-point operations of a unit. */
static double unit_cost(const wm_arch_t *arch, const wm_variants_t *v, const wm_blocks_t *blocks,
                        const unit_t *u) {
  const wm_windows_t *w = blocks->windows;
  double rows = 0, pairs = 0;
  for (int64_t i = blocks->first_window[u->block]; i < blocks->first_window[u->block + 1]; i++) {
    double n = (double)w->length[i];
    rows += n;
    pairs += n * (n + 1) / 2;
  }
  double context = rows > 0 ? pairs / rows : 0;
  double passes = wm_evaluate_layer_passes(v, u->first, u->count, arch->n_layers);
  return rows * (passes * (wm_arch_flops_layer(arch) + wm_arch_flops_attention(arch, context)) +
                 (double)u->count * wm_arch_flops_surrogate(arch) +
                 (double)(1 + u->count) * wm_arch_flops_head(arch));
}

static int64_t group_count(const wm_variants_t *variants, int64_t max_group) {
  int64_t groups = (variants->n - 1 + max_group - 1) / max_group;
  return groups > 0 ? groups : 1; /* without variants the full model is still measured */
}

static int heaviest_first(const void *a, const void *b) {
  const unit_t *x = a, *y = b;
  if (x->cost != y->cost)
    return x->cost < y->cost ? 1 : -1;
  if (x->block != y->block)
    return x->block < y->block ? -1 : 1;
  return (x->first > y->first) - (x->first < y->first);
}

/* Heaviest unit first, always to the rank with the least to do. */
static void assign(schedule_t *s, int ranks, double *load) {
  qsort(s->units, (size_t)s->n, sizeof *s->units, heaviest_first);
  for (int64_t i = 0; i < s->n; i++) {
    int least = 0;
    for (int r = 1; r < ranks; r++)
      if (load[r] < load[least])
        least = r;
    s->rank[i] = least;
    load[least] += s->units[i].cost;
  }
}

static void schedule_destroy(schedule_t *s) {
  free(s->units);
  free(s->rank);
}

static wm_status_t schedule_create(const wm_arch_t *arch, const wm_variants_t *variants,
                                   const wm_blocks_t *blocks, int64_t max_group, int ranks,
                                   schedule_t *out, wm_error_t *err) {
  memset(out, 0, sizeof *out);
  int64_t groups = group_count(variants, max_group);
  void *memory, *load = NULL;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, blocks->n * groups, sizeof(unit_t), "work units", err));
  out->units = memory;
  WM_TRY(wm_alloc(&memory, blocks->n * groups, sizeof(int32_t), "work units", err));
  out->rank = memory;
  WM_TRY(wm_alloc(&load, ranks, sizeof(double), "work units", err));
  for (int64_t b = 0; b < blocks->n; b++)
    for (int64_t g = 0; g < groups; g++) {
      int64_t first, count;
      wm_partition(variants->n - 1, groups, g, &first, &count);
      unit_t u = {.block = b, .first = 1 + first, .count = count};
      u.cost = unit_cost(arch, variants, blocks, &u);
      out->units[out->n++] = u;
    }
  assign(out, ranks, load);
cleanup:
  free(load);
  return status;
}

void wm_sweep_flops(const wm_arch_t *arch, const wm_variants_t *variants, const wm_blocks_t *blocks,
                    int64_t max_group, double *stacked, double *separate) {
  int64_t groups = group_count(variants, max_group);
  *stacked = *separate = 0;
  for (int64_t b = 0; b < blocks->n; b++) {
    unit_t full = {.block = b, .first = 1, .count = 0};
    *separate += (double)variants->n * unit_cost(arch, variants, blocks, &full);
    for (int64_t g = 0; g < groups; g++) {
      int64_t first, count;
      wm_partition(variants->n - 1, groups, g, &first, &count);
      unit_t u = {.block = b, .first = 1 + first, .count = count};
      *stacked += unit_cost(arch, variants, blocks, &u);
    }
  }
}

/* --- evaluation ---------------------------------------------------------------------------------
 */

/* Copies a unit's losses into the node's array; the full model's row comes from the first group. */
static void store(wm_sweep_t *s, const unit_t *u, const wm_block_t *block, const float *nll) {
  float *all = s->nll.data;
  int64_t n = s->blocks->windows->n_predicted;
  for (int64_t i = u->first > 1 ? 1 : 0; i <= u->count; i++) {
    int64_t variant = i == 0 ? 0 : u->first + i - 1;
    memcpy(all + variant * n + block->first_prediction, nll + i * block->n_predictions,
           (size_t)block->n_predictions * sizeof *all);
  }
}

static wm_status_t run_units(wm_sweep_t *s, const schedule_t *schedule, wm_model_t *model,
                             const wm_surrogates_t *surrogates, const int32_t *ids,
                             const wm_sweep_options_t *o, wm_progress_t *progress,
                             wm_error_t *err) {
  wm_evaluator_t *evaluator = NULL;
  wm_block_t block = {0};
  void *nll = NULL;
  double total = 0, done = 0;
  int64_t most = (s->variants->n - 1 + group_count(s->variants, o->max_group) - 1) /
                 group_count(s->variants, o->max_group);
  wm_status_t status;
  WM_TRY(wm_block_create(s->blocks, &block, err));
  WM_TRY(wm_evaluator_create(model, surrogates, s->variants, s->blocks, most, o->stack_rows,
                             &evaluator, err));
  WM_TRY(wm_alloc(&nll, (1 + most) * s->blocks->max_rows, sizeof(float), "losses", err));
  for (int64_t i = 0; i < schedule->n; i++)
    total += schedule->rank[i] == s->comm->rank ? schedule->units[i].cost : 0;
  for (int64_t i = 0; i < schedule->n; i++) {
    const unit_t *u = &schedule->units[i];
    if (schedule->rank[i] != s->comm->rank)
      continue;
    wm_block_load(s->blocks, ids, u->block, &block);
    WM_TRY(wm_evaluate_block(evaluator, &block, u->first, u->count, nll, err));
    store(s, u, &block, nll);
    done += u->cost;
    wm_progress_update(progress, (int64_t)(done / total * (double)progress->total));
  }
cleanup:
  free(nll);
  wm_evaluator_free(evaluator);
  wm_block_destroy(&block);
  return status;
}

/* Every cell was written on one node and is zero on the others: a sum of bits is exact. */
static void merge_nodes(wm_sweep_t *s) {
  wm_shared_sync(&s->nll);
  if (s->comm->node_rank == 0 && s->comm->node_count > 1) {
    const int64_t piece = INT64_C(1) << 26, cells = s->nll.bytes / (int64_t)sizeof(uint32_t);
    uint32_t *bits = s->nll.data;
    for (int64_t i = 0; i < cells; i += piece)
      MPI_Allreduce(MPI_IN_PLACE, bits + i, (int)(cells - i < piece ? cells - i : piece),
                    MPI_UINT32_T, MPI_BOR, s->comm->leaders);
  }
  wm_shared_sync(&s->nll);
}

/* --- statistics ---------------------------------------------------------------------------------
 */

static const float *nll_of(const wm_sweep_t *s, int64_t variant) {
  return (const float *)s->nll.data + variant * s->blocks->windows->n_predicted;
}

static wm_status_t sum_units(wm_sweep_t *s, wm_unit_sums_t *sums, bool *bad, wm_error_t *err) {
  const int64_t n = s->blocks->windows->n_predicted;
  wm_status_t status =
      wm_unit_sums_create(nll_of(s, 0), s->units, n, s->n_units, s->variants->n - 1, sums, err);
  if (status != WM_OK)
    return status;
  for (int64_t v = 1; v < s->variants->n; v++) {
    char label[128];
    wm_variants_label(s->variants, v, label, sizeof label);
    status = wm_unit_sums_add(sums, v - 1, label, nll_of(s, v), nll_of(s, 0), s->units, err);
    bad[v] = status == WM_NUMERICAL;
    if (status != WM_OK && !bad[v])
      return status;
    s->non_finite += bad[v];
  }
  return WM_OK;
}

static void spoil(wm_effect_t *e) {
  e->perplexity = e->delta = e->low = e->high = NAN;
  e->p_better = e->p_worse = e->p_two_sided = e->p_holm = e->p_bh = NAN;
  e->beats_full = false;
}

/* Collective: ranks share out the resamples. */
static wm_status_t statistics(wm_sweep_t *s, const wm_bootstrap_t *bootstrap, wm_error_t *err) {
  const int64_t v = s->variants->n - 1, r = bootstrap->resamples;
  wm_unit_sums_t sums = {0};
  void *delta = NULL, *bad = NULL, *effects = NULL;
  int64_t first, count;
  wm_status_t status = wm_alloc(&bad, v + 1, sizeof(bool), "statistics", err);
  if (status == WM_OK)
    status = wm_alloc(&effects, v + 1, sizeof(wm_effect_t), "statistics", err);
  s->effects = effects;
  if (status == WM_OK)
    status = wm_alloc(&delta, v * r, sizeof(double), "bootstrap", err);
  if (status == WM_OK)
    status = sum_units(s, &sums, bad, err);
  wm_partition(r, s->comm->size, s->comm->rank, &first, &count);
  if (status == WM_OK && v > 0)
    status = wm_bootstrap_run(&sums, bootstrap, first, first + count, delta, err);
  WM_TRY(wm_agree(s->comm->world, status, err));
  s->perplexity = wm_unit_sums_perplexity(&sums);
  spoil(&s->effects[0]);
  s->effects[0].perplexity = s->perplexity;
  s->effects[0].delta = 0;
  if (v > 0) {
    wm_sum_f64(s->comm->world, delta, v * r);
    status = wm_bootstrap_effects(&sums, bootstrap, delta, s->effects + 1, err);
    WM_TRY(wm_agree(s->comm->world, status, err));
  }
  for (int64_t i = 1; i <= v; i++)
    if (((bool *)bad)[i])
      spoil(&s->effects[i]);
cleanup:
  wm_unit_sums_destroy(&sums);
  free(delta);
  free(bad);
  return status;
}

/* --- the whole sweep ----------------------------------------------------------------------------
 */

static wm_status_t prepare_units(wm_sweep_t *s, wm_unit_kind_t kind, wm_error_t *err) {
  const wm_windows_t *w = s->blocks->windows;
  void *memory;
  wm_status_t status = wm_alloc(&memory, w->n_predicted, sizeof(int32_t), "bootstrap units", err);
  if (status != WM_OK)
    return status;
  s->units = memory;
  s->unit = wm_unit_resolve(w, kind);
  return wm_windows_units(w, s->unit, s->units, &s->n_units, err);
}

wm_status_t wm_sweep_run(const wm_comm_t *comm, wm_model_t *model,
                         const wm_surrogates_t *surrogates, const wm_variants_t *variants,
                         const wm_blocks_t *blocks, const int32_t *ids,
                         const wm_sweep_options_t *options, const wm_log_t *log, wm_sweep_t *out,
                         wm_error_t *err) {
  *out = (wm_sweep_t){.comm = comm, .model = model, .variants = variants, .blocks = blocks};
  const int64_t n = blocks->windows->n_predicted;
  schedule_t schedule = {0};
  wm_progress_t progress;
  wm_status_t status = prepare_units(out, options->unit, err);
  if (status == WM_OK)
    status = schedule_create(wm_model_arch(model), variants, blocks, options->max_group, comm->size,
                             &schedule, err);
  WM_TRY(wm_agree(comm->world, status, err));
  status = wm_shared_create(comm, variants->n * n * (int64_t)sizeof(float), "per-token losses",
                            &out->nll, err);
  WM_TRY(wm_agree(comm->world, status, err));
  wm_progress_start(&progress, log, "sweep", "token losses", variants->n * n);
  status = run_units(out, &schedule, model, surrogates, ids, options, &progress, err);
  WM_TRY(wm_agree(comm->world, status, err));
  merge_nodes(out);
  wm_progress_finish(&progress);
  WM_TRY(statistics(out, &options->bootstrap, err));
cleanup:
  schedule_destroy(&schedule);
  return status;
}

/* Rank r of a node reads rows r, r + size, ... of the losses; all take part in every read. */
static wm_status_t read_losses(wm_sweep_t *s, wm_h5_t *file, wm_error_t *err) {
  int64_t dims[2], n = s->blocks->windows->n_predicted, size = s->comm->node_size;
  wm_status_t status = wm_h5_dims(file, "/nll", 2, dims, err);
  if (status == WM_OK && (dims[0] != s->variants->n || dims[1] != n))
    status =
        wm_fail(err, WM_INPUT, "%s: /nll is [%lld, %lld], expected [%lld, %lld]", wm_h5_path(file),
                (long long)dims[0], (long long)dims[1], (long long)s->variants->n, (long long)n);
  int64_t rounds = (s->variants->n + size - 1) / size;
  MPI_Allreduce(MPI_IN_PLACE, &rounds, 1, MPI_INT64_T, MPI_MAX, s->comm->world);
  for (int64_t i = 0; i < rounds && status == WM_OK; i++) {
    int64_t row = i * size + s->comm->node_rank, mine = row < s->variants->n;
    int64_t offset[2] = {mine ? row : 0, 0}, count[2] = {mine, n};
    status = wm_h5_read(file, "/nll", H5T_NATIVE_FLOAT, offset, count,
                        (float *)s->nll.data + offset[0] * n, err);
  }
  wm_shared_sync(&s->nll);
  return status;
}

wm_status_t wm_sweep_read(const wm_comm_t *comm, const char *path, const wm_model_t *model,
                          const wm_variants_t *variants, const wm_blocks_t *blocks,
                          const wm_sweep_options_t *options, wm_sweep_t *out, wm_error_t *err) {
  *out = (wm_sweep_t){.comm = comm, .model = model, .variants = variants, .blocks = blocks};
  wm_h5_t *file;
  wm_status_t status = wm_h5_open(comm->world, path, &file, err);
  if (status != WM_OK)
    return status;
  WM_TRY(wm_agree(comm->world, prepare_units(out, options->unit, err), err));
  status =
      wm_shared_create(comm, variants->n * blocks->windows->n_predicted * (int64_t)sizeof(float),
                       "per-token losses", &out->nll, err);
  WM_TRY(wm_agree(comm->world, status, err));
  WM_TRY(read_losses(out, file, err));
  WM_TRY(statistics(out, &options->bootstrap, err));
cleanup:
  wm_h5_close(file);
  return status;
}

void wm_sweep_destroy(wm_sweep_t *sweep) {
  wm_shared_destroy(&sweep->nll);
  free(sweep->units);
  free(sweep->effects);
  memset(sweep, 0, sizeof *sweep);
}
