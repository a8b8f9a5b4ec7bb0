#include "wanamaker/measure/paired.h"

#include "wanamaker/base/mem.h"

#include <stdio.h>
#include <stdlib.h>

static wm_status_t sum_units(const float *losses, int64_t rows, int64_t n, const int32_t *units,
                             int64_t n_units, wm_unit_sums_t *sums, wm_error_t *err) {
  wm_status_t status = wm_unit_sums_create(losses, units, n, n_units, rows - 1, sums, err);
  for (int64_t i = 1; i < rows && status == WM_OK; i++) {
    char name[32];
    wm_error_t told = {0}; /* its effect says it, too */
    snprintf(name, sizeof name, "row %lld", (long long)i);
    status = wm_unit_sums_add(sums, i - 1, name, losses + i * n, losses, units, &told);
    if (status == WM_NUMERICAL)
      status = WM_OK;
    else if (status != WM_OK)
      *err = told;
  }
  return status;
}

/* Collective. */
static wm_status_t resample(const wm_comm_t *comm, const wm_unit_sums_t *sums,
                            const wm_bootstrap_t *bootstrap, bool paired, double *delta,
                            wm_error_t *err) {
  int64_t first, count, n = sums->n_variants * bootstrap->resamples;
  wm_partition(bootstrap->resamples, comm->size, comm->rank, &first, &count);
  for (int64_t i = 0; i < n; i++)
    delta[i] = 0;
  wm_status_t status =
      paired ? wm_bootstrap_run(sums, bootstrap, first, first + count, delta, err)
             : wm_bootstrap_run_unpaired(sums, bootstrap, first, first + count, delta, err);
  WM_TRY(wm_agree(comm->world, status, err));
  wm_sum_f64(comm->world, delta, n);
cleanup:
  return status;
}

wm_status_t wm_paired_effects(const wm_comm_t *comm, const float *losses, int64_t rows, int64_t n,
                              const int32_t *units, int64_t n_units,
                              const wm_bootstrap_t *bootstrap, wm_effect_t *effects,
                              wm_error_t *err) {
  wm_unit_sums_t sums = {0};
  void *delta = NULL;
  wm_status_t status =
      wm_alloc(&delta, (rows - 1) * bootstrap->resamples, sizeof(double), "bootstrap", err);
  if (status == WM_OK)
    status = sum_units(losses, rows, n, units, n_units, &sums, err);
  WM_TRY(wm_agree(comm->world, status, err));
  effects[0] = wm_effect_undefined();
  effects[0].mean_nll = wm_unit_sums_mean(&sums);
  effects[0].perplexity = wm_unit_sums_perplexity(&sums);
  effects[0].delta = 0;
  effects[0].units = sums.n_occupied;
  if (rows > 1) {
    WM_TRY(resample(comm, &sums, bootstrap, true, delta, err));
    WM_TRY(wm_agree(comm->world, wm_bootstrap_effects(&sums, bootstrap, delta, effects + 1, err),
                    err));
  }
  if (rows > 1 && bootstrap->unpaired) {
    WM_TRY(resample(comm, &sums, bootstrap, false, delta, err));
    status = wm_bootstrap_effects_unpaired(&sums, bootstrap, delta, effects + 1, err);
    WM_TRY(wm_agree(comm->world, status, err));
  }
cleanup:
  wm_unit_sums_destroy(&sums);
  free(delta);
  return status;
}
