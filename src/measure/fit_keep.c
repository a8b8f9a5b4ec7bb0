/* What a fit keeps so that another run can go on (fit.h): sums of the pass under way, and layers
 * that are solved. */
#include "fit_internal.h"
#include "parts_folder.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/timer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GENERATIONS = 2, FOLDER_SIZE = WM_PART_PATH_SIZE };

/* What sums at a position depend on beside what surrogates do: the cut into blocks and groups. */
static uint64_t sums_key(const wm_fit_t *f) {
  const wm_blocks_t *sets[WM_ROW_SETS] = {f->fit, f->heldout};
  uint64_t h =
      wm_hash(&f->plan.layers_per_pass, sizeof f->plan.layers_per_pass, f->options->parts_key);
  for (int i = 0; i < WM_ROW_SETS; i++)
    if (sets[i] != NULL)
      h = wm_hash(sets[i]->first_window, (size_t)(sets[i]->n + 1) * sizeof *sets[i]->first_window,
                  h);
  return h;
}

static void gram_folder(const char *folder, char out[FOLDER_SIZE]) {
  snprintf(out, FOLDER_SIZE, "%s/gram", folder);
}

wm_fit_moment_t wm_fit_look(const wm_fit_t *f) {
  const double interval = f->options->checkpoint_seconds;
  bool due = f->comm->rank == 0 && interval > 0 && wm_seconds() - f->kept >= interval;
  int flags[2] = {wm_stop_code(), due};
  MPI_Allreduce(MPI_IN_PLACE, flags, 2, MPI_INT, MPI_MAX, f->comm->world);
  wm_stop_adopt(flags[0]);
  return (wm_fit_moment_t){.stop = flags[0] != 0, .due = flags[1] != 0};
}

wm_status_t wm_fit_stopped(const wm_fit_t *f, wm_error_t *err) {
  if (f->options->parts == NULL)
    return wm_fail(err, WM_STOPPED, "fit: stopped by %s", wm_stop_reason());
  return wm_fail(
      err, WM_STOPPED,
      "fit: stopped by %s; what is done is kept in %s, and the same command goes on from "
      "there, on any number of ranks",
      wm_stop_reason(), f->options->parts);
}

/* --- keeping ------------------------------------------------------------------------------------
 */

/* Collective. A file in `folder` (made if need be) with the key, unless the model's files have been
 * written to: then what would be kept is not that model's. */
static wm_status_t begin_file(const wm_fit_t *f, const char *folder, int64_t number, uint64_t key,
                              wm_h5_t **out, wm_error_t *err) {
  char path[WM_PART_PATH_SIZE], text[WM_HASH_TEXT];
  wm_status_t status;
  wm_part_path(folder, number, path);
  wm_hash_text(key, text);
  WM_TRY(wm_agree(f->comm->world, wm_model_unchanged(f->model, err), err));
  WM_TRY(wm_part_folder(f->comm, folder, err));
  WM_TRY(wm_h5_create(f->comm->world, path, out, err));
  WM_TRY(wm_h5_set_string(*out, "/", "parts_key", text, err));
cleanup:
  return status;
}

/* Collective. Publishes a file that has become whole (status WM_OK), else drops it. */
static wm_status_t end_file(wm_h5_t *file, wm_status_t status, wm_error_t *err) {
  if (status == WM_OK)
    return wm_h5_publish(file, err);
  wm_h5_close(file);
  return status;
}

/* Files of sums before the last two. */
static void remove_old(const wm_fit_t *f, const char *folder) {
  char path[WM_PART_PATH_SIZE];
  if (f->comm->rank != 0 || f->next_gram < GENERATIONS + 1)
    return;
  wm_part_path(folder, f->next_gram - GENERATIONS - 1, path);
  unlink(path);
}

wm_status_t wm_fit_keep_sums(wm_fit_t *f, wm_gram_t *gram, const wm_fit_position_t *at,
                             wm_error_t *err) {
  char folder[FOLDER_SIZE];
  const bool centred = at->set == WM_ROW_SETS;
  const int64_t sets = at->set == WM_ROWS_FIT ? 1 : WM_ROW_SETS;
  wm_h5_t *file = NULL;
  wm_status_t status;
  double start = wm_seconds();
  if (f->options->parts == NULL)
    return WM_OK;
  gram_folder(f->options->parts, folder);
  WM_TRY(wm_part_folder(f->comm, f->options->parts, err));
  WM_TRY(begin_file(f, folder, f->next_gram, sums_key(f), &file, err));
  WM_TRY(wm_h5_set_int(file, "/", "group", at->group, err));
  WM_TRY(wm_h5_set_int(file, "/", "row_set", at->set, err));
  WM_TRY(wm_h5_set_int(file, "/", "next_block", at->next, err));
  WM_TRY(wm_gram_save(gram, centred, sets, file, err));
cleanup:
  status = end_file(file, status, err);
  if (status != WM_OK)
    return status;
  f->next_gram++;
  f->kept = wm_seconds();
  remove_old(f, folder);
  wm_log(f->log, WM_LOG_INFO, "fit: kept the sums in %s in %.2f s", folder, f->kept - start);
  return WM_OK;
}

/* [n, m] of one dataset, of which this rank writes row `row` if it has one. */
static wm_status_t keep_rows(wm_h5_t *file, const char *path, int64_t n, int64_t m, int64_t row,
                             const double *data, const char *description, wm_error_t *err) {
  const int64_t dims[2] = {n, m}, offset[2] = {row < 0 ? 0 : row, 0}, count[2] = {row >= 0, m};
  wm_status_t status = wm_h5_dataset(file, path, H5T_IEEE_F64LE, 2, dims, description, err);
  return status == WM_OK ? wm_h5_write(file, path, H5T_NATIVE_DOUBLE, offset, count, data, err)
                         : status;
}

wm_status_t wm_fit_keep_layers(wm_fit_t *f, int64_t index, wm_error_t *err) {
  const int64_t d = wm_model_arch(f->model)->d_model, columns = wm_fit_columns(f);
  const int64_t at = index < 0 ? 0 : index, has = index >= 0;
  int64_t row = 0, n = has;
  wm_h5_t *file = NULL;
  wm_status_t status;
  if (f->options->parts == NULL)
    return WM_OK;
  MPI_Exscan(&has, &row, 1, MPI_INT64_T, MPI_SUM, f->comm->world);
  MPI_Allreduce(MPI_IN_PLACE, &n, 1, MPI_INT64_T, MPI_SUM, f->comm->world);
  row = !has ? -1 : f->comm->rank == 0 ? 0 : row; /* the scan gives rank 0 nothing */
  const int64_t first = has ? row : 0;
  WM_TRY(begin_file(f, f->options->parts, f->next_part, f->options->parts_key, &file, err));
  WM_TRY(wm_h5_dataset(file, "/layers", H5T_STD_I64LE, 1, &n, "[i] layer", err));
  WM_TRY(
      wm_h5_write(file, "/layers", H5T_NATIVE_INT64, &first, &has, &f->options->layers[at], err));
  WM_TRY(keep_rows(file, "/weight", n, d * d, row, f->weight, "[i, in * D + out] W", err));
  WM_TRY(keep_rows(file, "/bias", n, d, row, f->bias, "[i, out] b", err));
  WM_TRY(keep_rows(file, "/table", n, columns, row, f->table + at * columns,
                   "[i, column] /fit and /path of surrogates.h5", err));
  if (f->spectra != NULL)
    WM_TRY(keep_rows(file, "/spectrum", n, d, row, f->spectra + at * d, "[i, j] eigenvalues", err));
cleanup:
  status = end_file(file, status, err);
  if (status == WM_OK)
    wm_log(f->log, WM_LOG_INFO, "fit: kept %" PRId64 " solved layer(s)", n);
  f->next_part++;
  return status;
}

void wm_fit_remove_parts(const wm_comm_t *comm, const char *folder) {
  char gram[FOLDER_SIZE];
  gram_folder(folder, gram);
  wm_part_remove(comm, gram);
  wm_part_remove(comm, folder);
}

/* --- going on -----------------------------------------------------------------------------------
 */

/* Collective. A whole file with the key. */
static wm_status_t open_file(const wm_fit_t *f, const char *path, uint64_t key, wm_h5_t **out,
                             wm_error_t *err) {
  char expected[WM_HASH_TEXT], *found = NULL;
  wm_status_t status;
  wm_hash_text(key, expected);
  WM_TRY(wm_h5_open(f->comm->world, path, out, err));
  WM_TRY(wm_h5_get_string(*out, "/", "parts_key", &found, err));
  if (strcmp(found, expected) != 0)
    status = wm_fail(err, WM_INPUT, "%s: is of another fit (%s, here %s)", path, found, expected);
  else
    status = wm_h5_verify(*out, err);
cleanup:
  free(found);
  return status;
}

/* Number of a layer in the options, -1 if it is not there. */
static int64_t index_of(const wm_fit_t *f, int64_t layer) {
  for (int64_t i = 0; i < f->options->n_layers; i++)
    if (f->options->layers[i] == layer)
      return i;
  return -1;
}

/* Row `row` of a dataset, by rank 0. */
static wm_status_t take_row(const wm_fit_t *f, wm_h5_t *file, const char *path, int64_t m,
                            int64_t row, double *data, wm_error_t *err) {
  int64_t dims[2], offset[2] = {row, 0}, count[2] = {f->comm->rank == 0, m};
  wm_status_t status = wm_h5_dims(file, path, 2, dims, err);
  if (status == WM_OK && dims[1] != m)
    status = wm_fail(err, WM_INPUT, "%s: %s has %" PRId64 " columns, expected %" PRId64,
                     wm_h5_path(file), path, dims[1], m);
  return status == WM_OK ? wm_h5_read(file, path, H5T_NATIVE_DOUBLE, offset, count, data, err)
                         : status;
}

/* A kept layer into the file under way and rank 0's tables. */
static wm_status_t take_layer(wm_fit_t *f, wm_h5_t *file, int64_t row, int64_t index,
                              wm_error_t *err) {
  const int64_t d = wm_model_arch(f->model)->d_model, columns = wm_fit_columns(f);
  int64_t offset[3] = {index, 0, 0}, count[3] = {f->comm->rank == 0, d, d};
  wm_status_t status;
  WM_TRY(take_row(f, file, "/weight", d * d, row, f->weight, err));
  WM_TRY(take_row(f, file, "/bias", d, row, f->bias, err));
  if (f->spectra != NULL)
    WM_TRY(take_row(f, file, "/spectrum", d, row, f->spectra + index * d, err));
  WM_TRY(take_row(f, file, "/table", columns, row, f->table + index * columns, err));
  WM_TRY(wm_h5_write(f->file, "/weight", H5T_NATIVE_DOUBLE, offset, count, f->weight, err));
  WM_TRY(wm_h5_write(f->file, "/bias", H5T_NATIVE_DOUBLE, offset, count, f->bias, err));
  if (f->replaced != NULL)
    WM_TRY(wm_surrogates_put(f->replaced, f->comm, f->options->layers[index], f->weight, f->bias,
                             err));
  f->solved[index] = true;
cleanup:
  if (status != WM_OK) { /* the ranks' tables are added up */
    memset(f->table + index * columns, 0, (size_t)columns * sizeof *f->table);
    if (f->spectra != NULL)
      memset(f->spectra + index * d, 0, (size_t)d * sizeof *f->spectra);
  }
  return status;
}

static wm_status_t take_part(wm_fit_t *f, const char *path, wm_error_t *err) {
  wm_h5_t *file = NULL;
  int64_t n = 0;
  const int64_t one = 1;
  wm_status_t status;
  WM_TRY(open_file(f, path, f->options->parts_key, &file, err));
  WM_TRY(wm_h5_dims(file, "/layers", 1, &n, err));
  for (int64_t i = 0; i < n; i++) {
    int64_t layer = -1;
    WM_TRY(wm_h5_read(file, "/layers", H5T_NATIVE_INT64, &i, &one, &layer, err));
    int64_t index = index_of(f, layer);
    if (index < 0) {
      status = wm_fail(err, WM_INPUT, "%s: layer %" PRId64 " is not fitted here", path, layer);
      goto cleanup;
    }
    if (!f->solved[index])
      WM_TRY(take_layer(f, file, i, index, err));
  }
cleanup:
  wm_h5_close(file);
  return status;
}

static wm_status_t take_layers(wm_fit_t *f, wm_error_t *err) {
  int64_t *numbers = NULL, n;
  wm_status_t status = wm_part_list(f->comm, f->options->parts, &numbers, &n, err);
  for (int64_t i = 0; i < n && status == WM_OK; i++) {
    char path[WM_PART_PATH_SIZE];
    wm_error_t why = {0};
    wm_part_path(f->options->parts, numbers[i], path);
    if (take_part(f, path, &why) != WM_OK)
      wm_log(f->log, WM_LOG_WARN, "fit: a part is left out: %s", why.message);
    f->next_part = numbers[i] + 1;
  }
  free(numbers);
  return status;
}

static wm_status_t check_position(const wm_fit_t *f, const char *path, const wm_fit_position_t *at,
                                  wm_error_t *err) {
  const wm_blocks_t *blocks = at->set == WM_ROWS_HELDOUT ? f->heldout : f->fit;
  if (at->group < 0 || at->group >= f->plan.passes || at->set < 0 || at->set > WM_ROW_SETS ||
      blocks == NULL || at->next < 0 || at->next > blocks->n)
    return wm_fail(err, WM_INPUT,
                   "%s: group %" PRId64 ", row set %" PRId64 ", block %" PRId64 " is no position",
                   path, at->group, at->set, at->next);
  return WM_OK;
}

static wm_status_t take_sums(const wm_fit_t *f, const char *path, wm_gram_t *gram,
                             wm_fit_position_t *at, wm_error_t *err) {
  wm_h5_t *file = NULL;
  wm_status_t status;
  WM_TRY(open_file(f, path, sums_key(f), &file, err));
  WM_TRY(wm_h5_get_int(file, "/", "group", &at->group, err));
  WM_TRY(wm_h5_get_int(file, "/", "row_set", &at->set, err));
  WM_TRY(wm_h5_get_int(file, "/", "next_block", &at->next, err));
  WM_TRY(check_position(f, path, at, err));
  WM_TRY(wm_gram_load(gram, at->set == WM_ROW_SETS, at->set == WM_ROWS_FIT ? 1 : WM_ROW_SETS, file,
                      err));
cleanup:
  wm_h5_close(file);
  return status;
}

/* The newest sums that can be used; at->valid says whether there are any. */
static wm_status_t take_newest(wm_fit_t *f, wm_gram_t *gram, wm_fit_position_t *at,
                               wm_error_t *err) {
  char folder[FOLDER_SIZE];
  int64_t *numbers = NULL, n;
  gram_folder(f->options->parts, folder);
  wm_status_t status = wm_part_list(f->comm, folder, &numbers, &n, err);
  if (status != WM_OK)
    return status;
  f->next_gram = n > 0 ? numbers[n - 1] + 1 : 0;
  while (!at->valid && n-- > 0) {
    char path[WM_PART_PATH_SIZE];
    wm_error_t why = {0};
    wm_part_path(folder, numbers[n], path);
    if (take_sums(f, path, gram, at, &why) == WM_OK)
      at->valid = true;
    else
      wm_log(f->log, WM_LOG_WARN, "fit: sums are left out: %s", why.message);
  }
  free(numbers);
  return WM_OK;
}

wm_status_t wm_fit_resume(wm_fit_t *f, wm_gram_t *gram, wm_fit_position_t *at, wm_error_t *err) {
  wm_status_t status;
  int64_t solved = 0;
  *at = (wm_fit_position_t){0};
  if (f->options->parts == NULL)
    return WM_OK;
  WM_TRY(take_layers(f, err));
  WM_TRY(take_newest(f, gram, at, err));
  for (int64_t i = 0; i < f->options->n_layers; i++)
    solved += f->solved[i];
  f->keeping |= solved > 0;
  if (solved > 0 || at->valid)
    wm_log(f->log, WM_LOG_INFO, "fit: resuming: %" PRId64 " of %" PRId64 " layers are solved%s",
           solved, f->options->n_layers, at->valid ? ", and sums of a pass are there" : "");
cleanup:
  return status;
}
