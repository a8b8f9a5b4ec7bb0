#include "wanamaker/measure/fit.h"

#include "fit_internal.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/progress.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/linalg/grid.h"
#include "wanamaker/measure/trunk.h"

#include <string.h>

/* --- plan ---------------------------------------------------------------------------------------
 */

/* Rows that a rank works on at once. */
static int64_t most_rows(const wm_blocks_t *fit, const wm_blocks_t *heldout) {
  return heldout != NULL && heldout->max_rows > fit->max_rows ? heldout->max_rows : fit->max_rows;
}

static int64_t longest(const wm_blocks_t *fit, const wm_blocks_t *heldout) {
  int64_t a = fit->windows->max_length, b = heldout != NULL ? heldout->windows->max_length : 0;
  return a > b ? a : b;
}

/* Bytes of a rank's trunk and published rows, for blocks of `rows`. */
static int64_t scratch(const wm_model_t *model, int64_t rows, int64_t max_length) {
  const int64_t each = (int64_t)(3 * sizeof(float) + 2 * sizeof(double));
  return rows * wm_model_arch(model)->d_model * each + wm_workspace_bytes(model, rows, max_length) +
         wm_model_scratch_bytes(model);
}

wm_status_t wm_fit_scratch(const wm_model_t *model, const wm_blocks_t *fit,
                           const wm_blocks_t *heldout, const wm_fit_options_t *options,
                           int64_t *bytes, wm_error_t *err) {
  const int64_t rows = most_rows(fit, heldout), length = longest(fit, heldout);
  const int64_t limit = options->memory_bytes;
  int64_t fits = rows;
  *bytes = scratch(model, rows, length);
  while (limit > 0 && fits >= length && scratch(model, fits, length) > limit)
    fits--;
  if (fits == rows)
    return WM_OK;
  const double given = (double)limit / 0x1p30, gib = (double)*bytes / 0x1p30;
  if (fits < length)
    return wm_fail(err, WM_USAGE,
                   "compute.memory_gib = %.3f is too little for the fit: a block of %lld tokens "
                   "takes %.3f GiB a rank, and the longest window (%lld tokens) alone does not fit",
                   given, (long long)rows, gib, (long long)length);
  return wm_fail(
      err, WM_USAGE,
      "compute.memory_gib = %.3f is too little for the fit: a block of %lld tokens takes "
      "%.3f GiB a rank; compute.block_tokens = %lld would fit",
      given, (long long)rows, gib, (long long)fits);
}

wm_status_t wm_fit_plan(const wm_comm_t *comm, const wm_arch_t *arch,
                        const wm_fit_options_t *options, wm_fit_plan_t *out, wm_error_t *err) {
  int64_t each = wm_gram_bytes_per_layer(arch->d_model);
  int64_t fitting = options->gram_bytes / each;
  if (fitting < 1)
    return wm_fail(err, WM_USAGE,
                   "fit.memory_gib = %.3f holds no layer's Gram matrices: one layer of width %lld "
                   "needs %.3f GiB",
                   (double)options->gram_bytes / 0x1p30, (long long)arch->d_model,
                   (double)each / 0x1p30);
  out->layers_per_pass = fitting < options->n_layers ? fitting : options->n_layers;
  if (options->sequential && options->n_layers > 0)
    out->layers_per_pass = 1;
  out->passes = (options->n_layers + out->layers_per_pass - 1) / out->layers_per_pass;
  out->gram_bytes = out->layers_per_pass * each;
  if (options->grid_rows > 0) {
    if (options->grid_columns < 1 || options->grid_rows * options->grid_columns > comm->size)
      return wm_fail(err, WM_USAGE, "fit.grid = [%lld, %lld] does not fit %d ranks",
                     (long long)options->grid_rows, (long long)options->grid_columns, comm->size);
    out->grid_rows = (int)options->grid_rows;
    out->grid_columns = (int)options->grid_columns;
  } else {
    wm_grid_choose(comm->world, arch->d_model, &out->grid_rows, &out->grid_columns);
  }
  out->teams = comm->size / (out->grid_rows * out->grid_columns);
  return WM_OK;
}

/* --- pass over the text -------------------------------------------------------------------------
 */

/* One block per rank through the layers up to the group's last; ranks past the end have no rows but
 * take part in each layer's update. A failure is agreed on once a step: until then the rank goes on
 * without rows. */
static wm_status_t step(const wm_comm_t *comm, wm_model_t *model, const wm_blocks_t *blocks,
                        const int32_t *ids, int64_t index, wm_row_set_t set,
                        const wm_fit_group_t *group, wm_trunk_t *t, wm_gram_t *gram,
                        wm_error_t *err) {
  wm_status_t status = WM_OK;
  bool busy = index < blocks->n;
  if (busy)
    status = wm_trunk_begin(t, ids, index, err);
  int64_t next = 0;
  for (int64_t l = 0; l <= group->layers[group->n - 1]; l++) {
    if (busy && status == WM_OK)
      status = wm_trunk_layer(t, l, err);
    if (group->layers[next] != l)
      continue;
    int64_t rows = busy && status == WM_OK ? t->block.n_kept : 0;
    wm_error_t late = {0};
    double start = wm_profile_start(wm_model_profile(model));
    wm_status_t added = wm_gram_add(gram, set, next++, t->x, t->y, t->block.kept, rows, &late);
    double d = (double)wm_model_arch(model)->d_model;
    wm_profile_stop(wm_model_profile(model), WM_KERNEL_GRAM, start, 3 * d * d * (double)rows, 0);
    if (status == WM_OK && added != WM_OK) {
      status = added;
      *err = late;
    }
  }
  return wm_agree(comm->world, status, err);
}

/* Tokens before block `index`. */
static int64_t tokens_before(const wm_blocks_t *blocks, int64_t index) {
  return blocks->windows->position_offset[blocks->first_window[index]];
}

/* The rows of one set, from at->next on. progress: [group's tokens before the set]. */
static wm_status_t pass(wm_fit_t *fit, const wm_fit_group_t *group, wm_fit_position_t *at,
                        wm_gram_t *gram, wm_progress_t *progress, wm_error_t *err) {
  const wm_comm_t *comm = fit->comm;
  const bool held = at->set == WM_ROWS_HELDOUT;
  const wm_blocks_t *blocks = held ? fit->heldout : fit->fit;
  const int32_t *ids = held ? fit->heldout_ids : fit->fit_ids;
  const int64_t before = progress->done - tokens_before(blocks, at->next);
  wm_trunk_t t = {0};
  wm_status_t status;
  status = wm_trunk_create(fit->model, blocks, &t, err);
  if (status == WM_OK)
    status = wm_trunk_modify(&t, fit->options->base, err);
  WM_TRY(wm_agree(comm->world, status, err));
  t.replaced = fit->replaced;
  while (at->next < blocks->n) {
    WM_TRY(step(comm, fit->model, blocks, ids, at->next + comm->rank, (wm_row_set_t)at->set, group,
                &t, gram, err));
    at->next = at->next + comm->size < blocks->n ? at->next + comm->size : blocks->n;
    wm_progress_update(progress, before + tokens_before(blocks, at->next));
    wm_fit_moment_t now = wm_fit_look(fit);
    if (now.stop || now.due)
      WM_TRY(wm_fit_keep_sums(fit, gram, at, err));
    if (now.stop) {
      status = wm_fit_stopped(fit, err);
      goto cleanup;
    }
  }
cleanup:
  wm_trunk_destroy(&t);
  return status;
}

/* --- the whole fit ------------------------------------------------------------------------------
 */

static wm_fit_group_t group_at(const wm_fit_t *fit, int64_t index) {
  const int64_t each = fit->plan.layers_per_pass, first = index * each;
  const int64_t left = fit->options->n_layers - first;
  return (wm_fit_group_t){
      .first = first, .n = left < each ? left : each, .layers = fit->options->layers + first};
}

/* Tokens of a group that are through at a position. */
static int64_t tokens_at(const wm_fit_t *fit, const wm_fit_position_t *at) {
  const int64_t of_fit = fit->fit->windows->n_positions;
  if (at->set == WM_ROWS_FIT)
    return tokens_before(fit->fit, at->next);
  if (fit->heldout == NULL)
    return of_fit;
  return of_fit + (at->set == WM_ROWS_HELDOUT ? tokens_before(fit->heldout, at->next)
                                              : fit->heldout->windows->n_positions);
}

/* From a position on, to which `gram` belongs. */
static wm_status_t fit_group(wm_fit_t *fit, wm_fit_position_t at, wm_gram_t *gram,
                             wm_progress_t *progress, wm_error_t *err) {
  const wm_fit_group_t group = group_at(fit, at.group);
  const bool centred = at.set == WM_ROW_SETS;
  wm_status_t status;
  for (; at.set < WM_ROW_SETS; at.set++, at.next = 0)
    if (at.set == WM_ROWS_FIT || fit->heldout != NULL)
      WM_TRY(pass(fit, &group, &at, gram, progress, err));
  if (!centred)
    wm_gram_finish(gram);
  WM_TRY(wm_fit_solve_group(fit, &group, gram, centred, err));
cleanup:
  return status;
}

/* The group that an earlier run was in, if its sums were kept, then all that are left. */
static wm_status_t fit_groups(wm_fit_t *fit, wm_gram_t *gram, wm_progress_t *progress,
                              wm_error_t *err) {
  const wm_fit_position_t whole = {.set = WM_ROW_SETS};
  wm_fit_position_t at;
  int64_t resumed = 0;
  wm_status_t status;
  WM_TRY(wm_fit_resume(fit, gram, &at, err));
  for (int64_t g = 0; g < fit->plan.passes; g++) {
    const wm_fit_group_t group = group_at(fit, g);
    if (!wm_fit_unsolved(fit, &group))
      resumed += tokens_at(fit, &whole);
    else if (at.valid && at.group == g)
      resumed += tokens_at(fit, &at);
  }
  wm_progress_resume(progress, resumed);
  const wm_fit_group_t under_way = group_at(fit, at.group);
  if (at.valid && wm_fit_unsolved(fit, &under_way))
    WM_TRY(fit_group(fit, at, gram, progress, err));
  for (int64_t g = 0; g < fit->plan.passes; g++) {
    const wm_fit_group_t group = group_at(fit, g);
    if (!wm_fit_unsolved(fit, &group))
      continue;
    wm_gram_reset(gram);
    WM_TRY(fit_group(fit, (wm_fit_position_t){.group = g}, gram, progress, err));
  }
cleanup:
  return status;
}

wm_status_t wm_fit_surrogates(const wm_comm_t *comm, wm_model_t *model, const wm_blocks_t *fit,
                              const int32_t *fit_ids, const wm_blocks_t *heldout,
                              const int32_t *heldout_ids, const wm_fit_options_t *options,
                              wm_h5_t *file, const wm_log_t *log, wm_fit_summary_t *summaries,
                              wm_error_t *err) {
  wm_fit_t f = {.comm = comm,
                .model = model,
                .fit = fit,
                .fit_ids = fit_ids,
                .heldout = heldout,
                .heldout_ids = heldout_ids,
                .options = options,
                .file = file,
                .summaries = summaries,
                .log = log,
                .team = MPI_COMM_NULL};
  wm_gram_t *gram = NULL;
  wm_status_t status;
  int64_t bytes;
  status = wm_fit_plan(comm, wm_model_arch(model), options, &f.plan, err);
  if (status == WM_OK)
    status = wm_fit_scratch(model, fit, heldout, options, &bytes, err);
  WM_TRY(wm_agree(comm->world, status, err));
  WM_TRY(wm_fit_solver_create(&f, err));
  if (options->sequential)
    WM_TRY(wm_surrogates_create_empty(comm, options->layers, options->n_layers,
                                      wm_model_arch(model)->n_layers, wm_model_arch(model)->d_model,
                                      options->tile_rows, wm_model_compute(model), &f.replaced,
                                      err));
  WM_TRY(wm_gram_create(comm, wm_model_arch(model)->d_model, f.plan.layers_per_pass,
                        most_rows(fit, heldout), &gram, err));
  int64_t tokens = fit->windows->n_positions + (heldout ? heldout->windows->n_positions : 0);
  wm_progress_t progress;
  wm_progress_start(&progress, log, "fit", "tokens", tokens * f.plan.passes);
  f.kept = wm_seconds();
  f.keeping = f.plan.passes > 1; /* a later group takes the place of what its layers came from */
  WM_TRY(fit_groups(&f, gram, &progress, err));
  WM_TRY(wm_fit_write_tables(&f, err));
  wm_progress_finish(&progress);
cleanup:
  wm_surrogates_close(f.replaced);
  wm_gram_free(gram);
  wm_fit_solver_destroy(&f);
  return status;
}
