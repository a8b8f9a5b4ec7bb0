#include "fit_internal.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/measure/statistics.h"

#include <math.h>
#include <string.h>

/* Columns of the table before the path's. */
enum { R2, R2_HELDOUT, NORM, CONDITION, RANK, SCALARS };
/* Then, for each lambda of the path, R^2, held-out R^2 and norm: [3, n_lambdas]. */

int64_t wm_fit_columns(const wm_fit_t *f) {
  return SCALARS + 3 * f->options->n_lambdas;
}

static int64_t width(const wm_fit_t *f) {
  return wm_model_arch(f->model)->d_model;
}

static void make_teams(wm_fit_t *f) {
  int size = f->plan.grid_rows * f->plan.grid_columns;
  f->team_index = f->comm->rank / size < f->plan.teams ? f->comm->rank / size : -1;
  MPI_Comm_split(f->comm->world, f->team_index < 0 ? MPI_UNDEFINED : f->team_index, f->comm->rank,
                 &f->team);
  f->team_root = f->team_index >= 0 && f->comm->rank % size == 0;
}

static wm_status_t allocate(wm_fit_t *f, wm_error_t *err) {
  const int64_t d = width(f), n = f->options->n_layers;
  wm_status_t status = WM_OK;
  void *memory;
  if (f->team_root) {
    WM_TRY(wm_alloc(&memory, d * d, sizeof(double), "a surrogate", err));
    f->weight = memory;
    WM_TRY(wm_alloc(&memory, d, sizeof(double), "a surrogate", err));
    f->bias = memory;
  }
  WM_TRY(wm_alloc(&memory, n * wm_fit_columns(f), sizeof(double), "results of the fit", err));
  f->table = memory;
  WM_TRY(wm_alloc(&memory, n, sizeof(bool), "results of the fit", err));
  f->solved = memory;
  if (f->options->spectrum) {
    WM_TRY(wm_alloc(&memory, n * d, sizeof(double), "spectra", err));
    f->spectra = memory;
  }
cleanup:
  return status;
}

wm_status_t wm_fit_solver_create(wm_fit_t *f, wm_error_t *err) {
  const int64_t n = f->options->n_layers, d = width(f);
  wm_status_t status;
  make_teams(f);
  WM_TRY(wm_agree(f->comm->world, allocate(f, err), err));
  WM_TRY(wm_h5_dataset(f->file, "/weight", H5T_IEEE_F64LE, 3, (int64_t[]){n, d, d},
                       "[layer, in, out] surrogate y = x W + b", err));
  WM_TRY(wm_h5_dataset(f->file, "/bias", H5T_IEEE_F64LE, 2, (int64_t[]){n, d},
                       "[layer, out] intercept b", err));
cleanup:
  return status;
}

void wm_fit_solver_destroy(wm_fit_t *f) {
  if (f->team != MPI_COMM_NULL)
    MPI_Comm_free(&f->team);
  free(f->weight);
  free(f->bias);
  free(f->table);
  free(f->solved);
  free(f->spectra);
}

static double total_squares(const wm_moments_t *m) {
  double total = 0;
  for (int64_t j = 0; j < m->dy; j++)
    total += m->yy[j];
  return total;
}

static double frobenius(const double *a, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += a[i] * a[i];
  return sqrt(sum);
}

/* Path and spectrum of one layer into its row of the table (team root only writes). */
static wm_status_t solve_path(const wm_fit_t *f, const wm_moments_t *m, const wm_moments_t *held,
                              int64_t index, wm_error_t *err) {
  const wm_fit_options_t *o = f->options;
  const int64_t d = width(f), k = o->n_lambdas;
  void *memory;
  wm_status_t status = wm_agree(
      f->team, wm_alloc(&memory, d + 3 * (k > 0 ? k : 1), sizeof(double), "a spectrum", err), err);
  if (status != WM_OK)
    return status;
  double *eigenvalues = memory, *sse = eigenvalues + d, *sse_held = sse + k, *norms = sse_held + k;
  status = wm_ridge_path(f->team, f->plan.grid_rows, f->plan.grid_columns, o->block, m, held,
                         o->lambdas, (int)k, eigenvalues, sse, sse_held, norms, err);
  if (status == WM_OK && f->team_root) {
    double *row = f->table + index * wm_fit_columns(f), *path = row + SCALARS;
    double least = eigenvalues[0] > 0 ? eigenvalues[0] : 0;
    row[CONDITION] = (eigenvalues[d - 1] + o->lambda) / (least + o->lambda);
    row[RANK] = wm_effective_rank(eigenvalues, d);
    memcpy(f->spectra + index * d, eigenvalues, (size_t)d * sizeof(double));
    for (int64_t i = 0; i < k; i++) {
      path[i] = wm_r_squared(sse[i], total_squares(m));
      path[k + i] = held != NULL ? wm_r_squared(sse_held[i], total_squares(held)) : NAN;
      path[2 * k + i] = norms[i];
    }
  }
  free(memory);
  return status;
}

/* One layer by this team; collective over the team. */
static wm_status_t solve_layer(const wm_fit_t *f, const wm_gram_t *gram, int64_t slot,
                               int64_t index, wm_error_t *err) {
  const int64_t d = width(f);
  wm_moments_t m = wm_gram_moments(gram, WM_ROWS_FIT, slot);
  wm_moments_t held = wm_gram_moments(gram, WM_ROWS_HELDOUT, slot);
  const wm_moments_t *h = held.count > 0 ? &held : NULL;
  wm_status_t status =
      wm_ridge_solve(f->team, f->plan.grid_rows, f->plan.grid_columns, f->options->block, &m,
                     f->options->lambda, f->weight, f->bias, err);
  if (status == WM_OK && f->options->spectrum)
    status = solve_path(f, &m, h, index, err);
  if (status == WM_OK && f->team_root) {
    double *row = f->table + index * wm_fit_columns(f), sse;
    if (!f->options->spectrum)
      row[CONDITION] = row[RANK] = NAN;
    status = wm_ridge_sse(&m, f->weight, f->bias, &sse, err);
    row[R2] = wm_r_squared(sse, total_squares(&m));
    row[R2_HELDOUT] = NAN;
    if (status == WM_OK && h != NULL) {
      status = wm_ridge_sse(h, f->weight, f->bias, &sse, err);
      row[R2_HELDOUT] = wm_r_squared(sse, total_squares(h));
    }
    row[NORM] = frobenius(f->weight, d * d);
  }
  if (status != WM_OK)
    wm_error_prefix(err, "layer %lld", (long long)f->options->layers[index]);
  return status;
}

bool wm_fit_unsolved(const wm_fit_t *f, const wm_fit_group_t *group) {
  int64_t first = group != NULL ? group->first : 0;
  int64_t n = group != NULL ? group->n : f->options->n_layers;
  for (int64_t i = first; i < first + n; i++)
    if (!f->solved[i])
      return true;
  return false;
}

/* The next layers to solve: numbers in the options, one for each team. */
static int64_t next_round(const wm_fit_t *f, const wm_fit_group_t *group, int64_t *indices) {
  int64_t n = 0;
  for (int64_t i = group->first; i < group->first + group->n && n < f->plan.teams; i++)
    if (!f->solved[i])
      indices[n++] = i;
  return n;
}

/* A layer per team: solved and written. index: this rank's own, -1: none. Collective. */
static wm_status_t solve_round(const wm_fit_t *f, const wm_fit_group_t *group,
                               const wm_gram_t *gram, int64_t index, wm_error_t *err) {
  const int64_t d = width(f), at = index >= 0 ? index : 0;
  wm_profile_t *profile = wm_model_profile(f->model);
  wm_status_t status = WM_OK;
  double start = wm_profile_start(profile);
  if (index >= 0)
    status = solve_layer(f, gram, index - group->first, index, err);
  wm_profile_stop(profile, WM_KERNEL_SOLVE, start, 0, 0);
  WM_TRY(wm_agree(f->comm->world, status, err));
  int64_t writes = index >= 0 && f->team_root;
  start = wm_profile_start(profile);
  int64_t offset[3] = {at, 0, 0}, count[3] = {writes, d, d};
  WM_TRY(wm_h5_write(f->file, "/weight", H5T_NATIVE_DOUBLE, offset, count, f->weight, err));
  WM_TRY(wm_h5_write(f->file, "/bias", H5T_NATIVE_DOUBLE, offset, count, f->bias, err));
  wm_profile_stop(profile, WM_KERNEL_IO, start, 0, 8.0 * (double)(writes * d * (d + 1)));
  if (f->replaced != NULL) /* a round has one layer, which the first team has solved */
    WM_TRY(wm_surrogates_put(f->replaced, f->comm, group->layers[0], f->weight, f->bias, err));
cleanup:
  return status;
}

/* Will the rounds that are left, each as long as the last one, take too long to be lost? By rank
 * 0's clock. */
static bool is_long(const wm_fit_t *f, double seconds, int64_t layers_left) {
  static const double patience = 600; /* without an interval */
  const double most =
      f->options->checkpoint_seconds > 0 ? f->options->checkpoint_seconds : patience;
  int long_one = seconds * (1 + (double)layers_left / f->plan.teams) > most;
  MPI_Bcast(&long_one, 1, MPI_INT, 0, f->comm->world);
  return long_one;
}

static int64_t count_unsolved(const wm_fit_t *f, const wm_fit_group_t *group) {
  int64_t n = 0;
  for (int64_t i = group->first; i < group->first + group->n; i++)
    n += !f->solved[i];
  return n;
}

/* After a round: what is to be kept is, and WM_STOPPED is for those who have more to do. */
static wm_status_t keep_round(wm_fit_t *f, const wm_fit_group_t *group, wm_gram_t *gram,
                              int64_t index, double seconds, bool *saved, wm_error_t *err) {
  const int64_t left = count_unsolved(f, group);
  const wm_fit_moment_t now = wm_fit_look(f);
  const wm_fit_position_t at = {true, group->first / f->plan.layers_per_pass, WM_ROW_SETS, 0};
  wm_status_t status = WM_OK;
  f->keeping |= now.stop || now.due || is_long(f, seconds, left);
  if (f->keeping && wm_fit_unsolved(f, NULL))
    WM_TRY(wm_fit_keep_layers(f, f->team_root ? index : -1, err));
  if (left > 0 && !*saved && (now.stop || now.due)) {
    WM_TRY(wm_fit_keep_sums(f, gram, &at, err));
    *saved = true;
  }
  if (now.stop && wm_fit_unsolved(f, NULL))
    status = wm_fit_stopped(f, err);
cleanup:
  return status;
}

wm_status_t wm_fit_solve_group(wm_fit_t *f, const wm_fit_group_t *group, wm_gram_t *gram,
                               bool saved, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, f->plan.teams, sizeof(int64_t), "layers to solve", err);
  int64_t *indices = memory;
  WM_TRY(wm_agree(f->comm->world, status, err));
  for (int64_t n; (n = next_round(f, group, indices)) > 0;) {
    const int64_t index = f->team_index >= 0 && f->team_index < n ? indices[f->team_index] : -1;
    double start = wm_seconds();
    WM_TRY(solve_round(f, group, gram, index, err));
    for (int64_t i = 0; i < n; i++)
      f->solved[indices[i]] = true;
    WM_TRY(keep_round(f, group, gram, index, wm_seconds() - start, &saved, err));
  }
cleanup:
  free(memory);
  return status;
}

/* Writes [n, m] (m = 0: [n]) whole from rank 0. */
static wm_status_t write_all(const wm_fit_t *f, const char *path, hid_t file_type, hid_t type,
                             int64_t n, int64_t m, const char *description, const void *data,
                             wm_error_t *err) {
  int dims = m > 0 ? 2 : 1;
  int64_t zero[2] = {0, 0}, extent[2] = {n, m}, count[2] = {f->comm->rank == 0 ? n : 0, m};
  wm_status_t status = wm_h5_dataset(f->file, path, file_type, dims, extent, description, err);
  return status == WM_OK ? wm_h5_write(f->file, path, type, zero, count, data, err) : status;
}

static wm_status_t write_doubles(const wm_fit_t *f, const char *path, int64_t n, int64_t m,
                                 const char *description, const double *data, wm_error_t *err) {
  return write_all(f, path, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, n, m, description, data, err);
}

/* Columns first .. first + m - 1 of the table (m = 0: one column as a vector). */
static wm_status_t write_columns(const wm_fit_t *f, const char *path, int64_t first, int64_t m,
                                 const char *description, double *scratch, wm_error_t *err) {
  int64_t n = f->options->n_layers, take = m > 0 ? m : 1;
  for (int64_t i = 0; i < n; i++)
    memcpy(scratch + i * take, f->table + i * wm_fit_columns(f) + first,
           (size_t)take * sizeof(double));
  return write_doubles(f, path, n, m, description, scratch, err);
}

static wm_status_t write_path(const wm_fit_t *f, double *scratch, wm_error_t *err) {
  const int64_t k = f->options->n_lambdas, d = width(f), n = f->options->n_layers;
  wm_status_t status = write_doubles(f, "/spectrum/eigenvalues", n, d,
                                     "[layer, i] eigenvalues of the centred inputs' Gram matrix, "
                                     "ascending",
                                     f->spectra, err);
  if (status != WM_OK || k == 0)
    return status;
  WM_TRY(write_doubles(f, "/path/lambda", k, 0, "[k] ridge penalties", f->options->lambdas, err));
  WM_TRY(write_columns(f, "/path/r2", SCALARS, k, "[layer, k] R^2 on the fit rows", scratch, err));
  WM_TRY(write_columns(f, "/path/r2_heldout", SCALARS + k, k,
                       "[layer, k] R^2 on the held-out rows; NaN: none", scratch, err));
  WM_TRY(write_columns(f, "/path/weight_norm", SCALARS + 2 * k, k, "[layer, k] Frobenius norm of W",
                       scratch, err));
cleanup:
  return status;
}

wm_status_t wm_fit_write_tables(wm_fit_t *f, wm_error_t *err) {
  static const struct {
    const char *path, *description;
  } scalars[SCALARS] = {
      [R2] = {"/fit/r2", "[layer] R^2 on the fit rows"},
      [R2_HELDOUT] = {"/fit/r2_heldout", "[layer] R^2 on the held-out rows; NaN: none"},
      [NORM] = {"/fit/weight_norm", "[layer] Frobenius norm of W"},
      [CONDITION] = {"/fit/condition",
                     "[layer] (largest eigenvalue + lambda) / (smallest + lambda)"},
      [RANK] = {"/fit/effective_rank", "[layer] exp of the entropy of the normalised spectrum"},
  };
  const int64_t n = f->options->n_layers;
  wm_sum_f64(f->comm->world, f->table, n * wm_fit_columns(f));
  if (f->spectra != NULL)
    wm_sum_f64(f->comm->world, f->spectra, n * width(f));
  void *scratch;
  wm_status_t status =
      wm_agree(f->comm->world,
               wm_alloc(&scratch, n * wm_fit_columns(f), sizeof(double), "results", err), err);
  if (status != WM_OK)
    return status;
  WM_TRY(write_all(f, "/layers", H5T_STD_I64LE, H5T_NATIVE_INT64, n, 0, "[layer] layer numbers",
                   f->options->layers, err));
  for (int c = 0; c < SCALARS; c++)
    WM_TRY(write_columns(f, scalars[c].path, c, 0, scalars[c].description, scratch, err));
  if (f->options->spectrum)
    WM_TRY(write_path(f, scratch, err));
  for (int64_t i = 0; i < n; i++) {
    const double *row = f->table + i * wm_fit_columns(f);
    f->summaries[i] = (wm_fit_summary_t){.layer = f->options->layers[i],
                                         .r2 = row[R2],
                                         .r2_heldout = row[R2_HELDOUT],
                                         .weight_norm = row[NORM],
                                         .condition = row[CONDITION],
                                         .effective_rank = row[RANK]};
  }
cleanup:
  free(scratch);
  return status;
}
