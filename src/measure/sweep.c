#include "wanamaker/measure/sweep.h"

#include "sweep_internal.h"
#include "wanamaker/base/mem.h"

#include <math.h>
#include <string.h>

/* --- statistics ---------------------------------------------------------------------------------
 */

static const float *nll_of(const wm_sweep_t *s, int64_t variant) {
  return (const float *)s->nll.data + variant * s->blocks->windows->n_predicted;
}

static wm_status_t sum_units(wm_sweep_t *s, wm_unit_sums_t *sums, wm_error_t *err) {
  const int64_t n = s->blocks->windows->n_predicted;
  wm_status_t status =
      wm_unit_sums_create(nll_of(s, 0), s->units, n, s->n_units, s->variants->n - 1, sums, err);
  if (status != WM_OK)
    return status;
  for (int64_t v = 1; v < s->variants->n; v++) {
    char label[128];
    wm_variants_label(s->variants, v, label, sizeof label);
    status = wm_unit_sums_add(sums, v - 1, label, nll_of(s, v), nll_of(s, 0), s->units, err);
    if (status != WM_OK && status != WM_NUMERICAL)
      return status;
    s->non_finite += status == WM_NUMERICAL;
  }
  return WM_OK;
}

/* Collective. delta[V, R] of all resamples, which ranks share out. */
static wm_status_t resample(const wm_sweep_t *s, const wm_unit_sums_t *sums, bool paired,
                            const wm_bootstrap_t *bootstrap, double *delta, wm_error_t *err) {
  const int64_t r = bootstrap->resamples, n = sums->n_variants * r;
  int64_t first, count;
  wm_partition(r, s->comm->size, s->comm->rank, &first, &count);
  memset(delta, 0, (size_t)n * sizeof *delta);
  wm_status_t status =
      paired ? wm_bootstrap_run(sums, bootstrap, first, first + count, delta, err)
             : wm_bootstrap_run_unpaired(sums, bootstrap, first, first + count, delta, err);
  status = wm_agree(s->comm->world, status, err);
  if (status == WM_OK)
    wm_sum_f64(s->comm->world, delta, n);
  return status;
}

/* Collective. Effects of the variants behind the full model. */
static wm_status_t compare(wm_sweep_t *s, const wm_unit_sums_t *sums,
                           const wm_bootstrap_t *bootstrap, double *delta, wm_error_t *err) {
  wm_effect_t *effects = s->effects + 1;
  wm_status_t status;
  WM_TRY(resample(s, sums, true, bootstrap, delta, err));
  status = wm_bootstrap_effects(sums, bootstrap, delta, effects, err);
  WM_TRY(wm_agree(s->comm->world, status, err));
  if (!bootstrap->unpaired)
    goto cleanup;
  WM_TRY(resample(s, sums, false, bootstrap, delta, err));
  status = wm_bootstrap_effects_unpaired(sums, bootstrap, delta, effects, err);
  WM_TRY(wm_agree(s->comm->world, status, err));
cleanup:
  return status;
}

static wm_status_t statistics(wm_sweep_t *s, const wm_bootstrap_t *bootstrap, wm_error_t *err) {
  const int64_t v = s->variants->n - 1;
  wm_unit_sums_t sums = {0};
  void *delta = NULL, *effects = NULL, *reference = NULL;
  wm_status_t status = wm_alloc(&effects, v + 1, sizeof(wm_effect_t), "statistics", err);
  s->effects = effects;
  if (status == WM_OK)
    status = wm_alloc(&reference, v, sizeof(bool), "statistics", err);
  if (status == WM_OK)
    status = wm_alloc(&delta, v * bootstrap->resamples, sizeof(double), "bootstrap", err);
  if (status == WM_OK)
    status = sum_units(s, &sums, err);
  WM_TRY(wm_agree(s->comm->world, status, err));
  s->perplexity = wm_unit_sums_perplexity(&sums);
  s->effects[0] = wm_effect_undefined();
  s->effects[0].mean_nll = wm_unit_sums_mean(&sums);
  s->effects[0].perplexity = s->perplexity;
  s->effects[0].delta = 0;
  s->effects[0].units = sums.n_occupied;
  if (v > 0) {
    WM_TRY(compare(s, &sums, bootstrap, delta, err));
    for (int64_t i = 1; i <= v; i++)
      ((bool *)reference)[i - 1] = wm_variants_is_reference(s->variants, i);
    status = wm_bootstrap_adjust(s->effects + 1, v, reference, bootstrap->confidence, err);
    WM_TRY(wm_agree(s->comm->world, status, err));
  }
cleanup:
  free(reference);
  wm_unit_sums_destroy(&sums);
  free(delta);
  return status;
}

/* Sums over the blocks in their order: the same bits for any number of ranks. */
static wm_sweep_measure_t measure(const wm_sweep_t *s, int64_t v) {
  const wm_cell_t *cells = (const wm_cell_t *)s->cells.data + v * s->blocks->n;
  const double n = (double)s->blocks->windows->n_predicted;
  const int64_t changed = s->variants->offsets[v + 1] - s->variants->offsets[v];
  wm_cell_t sum = {0};
  for (int64_t b = 0; b < s->blocks->n; b++) {
    sum.routed += cells[b].routed;
    sum.agreed += cells[b].agreed;
    sum.divergence += cells[b].divergence;
  }
  return (wm_sweep_measure_t){.routed = changed > 0 ? sum.routed / (n * (double)changed) : 0,
                              .divergence = sum.divergence / n,
                              .agreement = sum.agreed / n};
}

static double mean_context(const wm_windows_t *w) {
  double rows = 0, pairs = 0;
  for (int64_t i = 0; i < w->n; i++) {
    double n = (double)w->length[i];
    rows += n;
    pairs += n * (n + 1) / 2;
  }
  return rows > 0 ? pairs / rows : 0;
}

wm_sweep_flops_t wm_sweep_flops(const wm_sweep_t *s, int64_t variant) {
  const wm_arch_t *arch = wm_model_arch(s->model);
  const double context = mean_context(s->blocks->windows), routed = s->measures[variant].routed;
  const double full = wm_variants_flops(s->variants, 0, arch, context, 0);
  wm_sweep_flops_t f = {.mlp = wm_variants_mlp_flops(s->variants, variant, arch, routed),
                        .model = wm_variants_flops(s->variants, variant, arch, context, routed)};
  f.saved_pct = 100 * (1 - f.model / full);
  f.saved_body_pct = 100 * (full - f.model) / (full - wm_arch_flops_head(arch));
  return f;
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
  status = wm_alloc(&memory, s->variants->n, sizeof *s->measures, "variants", err);
  if (status != WM_OK)
    return status;
  s->measures = memory;
  s->unit = wm_unit_resolve(w, kind);
  return wm_windows_units(w, s->unit, s->units, &s->n_units, err);
}

/* Collective. Node-shared losses and counts. */
static wm_status_t create_results(wm_sweep_t *s, wm_error_t *err) {
  const int64_t n = s->blocks->windows->n_predicted;
  wm_status_t status = wm_shared_create(s->comm, s->variants->n * n * (int64_t)sizeof(float),
                                        "per-token losses", &s->nll, err);
  status = wm_agree(s->comm->world, status, err);
  if (status != WM_OK)
    return status;
  status = wm_shared_create(s->comm, s->variants->n * s->blocks->n * (int64_t)sizeof(wm_cell_t),
                            "counts of the cells", &s->cells, err);
  return wm_agree(s->comm->world, status, err);
}

wm_status_t wm_sweep_run(const wm_comm_t *comm, wm_model_t *model,
                         const wm_surrogates_t *surrogates, const wm_variants_t *variants,
                         const wm_blocks_t *blocks, const int32_t *ids,
                         const wm_sweep_options_t *options, const wm_log_t *log, wm_sweep_t *out,
                         wm_error_t *err) {
  *out = (wm_sweep_t){.comm = comm, .model = model, .variants = variants, .blocks = blocks};
  wm_status_t status;
  WM_TRY(wm_agree(comm->world, prepare_units(out, options->unit, err), err));
  WM_TRY(create_results(out, err));
  WM_TRY(wm_sweep_evaluate(out, model, surrogates, ids, options, log, err));
  for (int64_t v = 0; v < variants->n; v++)
    out->measures[v] = measure(out, v);
  WM_TRY(statistics(out, &options->bootstrap, err));
cleanup:
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
  WM_TRY(create_results(out, err));
  WM_TRY(read_losses(out, file, err));
  WM_TRY(wm_sweep_read_cells(out, file, err));
  for (int64_t v = 0; v < variants->n; v++)
    out->measures[v] = measure(out, v);
  WM_TRY(statistics(out, &options->bootstrap, err));
cleanup:
  wm_h5_close(file);
  return status;
}

void wm_sweep_destroy(wm_sweep_t *sweep) {
  wm_shared_destroy(&sweep->nll);
  wm_shared_destroy(&sweep->cells);
  free(sweep->measures);
  free(sweep->units);
  free(sweep->effects);
  memset(sweep, 0, sizeof *sweep);
}
