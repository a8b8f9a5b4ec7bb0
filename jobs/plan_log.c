#include "plan_log.h"

#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/io/files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int32_t *plan_at(const wm_plan_log_t *log, int64_t i) {
  return log->plans + i * log->n_layers;
}

int64_t wm_plan_log_find(const wm_plan_log_t *log, const int32_t *plan) {
  for (int64_t i = 0; i < log->n; i++)
    if (memcmp(plan_at(log, i), plan, (size_t)log->n_layers * sizeof *plan) == 0)
      return i;
  return -1;
}

static wm_status_t make_room(wm_plan_log_t *log, int64_t n, wm_error_t *err) {
  void *plans = log->plans, *cost = log->cost, *saved = log->saved;
  int64_t had[3] = {log->capacity * log->n_layers, log->capacity, log->capacity};
  wm_status_t status;
  if (n <= log->capacity)
    return WM_OK;
  n = n > 2 * log->capacity ? n : 2 * log->capacity;
  WM_TRY(wm_grow(&plans, &had[0], log->n * log->n_layers, n * log->n_layers, sizeof(int32_t),
                 "plans", err));
  log->plans = plans;
  WM_TRY(wm_grow(&cost, &had[1], log->n, n, sizeof(double), "plans", err));
  log->cost = cost;
  WM_TRY(wm_grow(&saved, &had[2], log->n, n, sizeof(double), "plans", err));
  log->saved = saved;
  log->capacity = n;
cleanup:
  return status;
}

wm_status_t wm_plan_log_add(wm_plan_log_t *log, const int32_t *plan, double cost, double saved,
                            wm_error_t *err) {
  wm_status_t status = make_room(log, log->n + 1, err);
  if (status != WM_OK)
    return status;
  memcpy(plan_at(log, log->n), plan, (size_t)log->n_layers * sizeof *plan);
  log->cost[log->n] = cost;
  log->saved[log->n++] = saved;
  log->fresh = true;
  return WM_OK;
}

/* --- file ---------------------------------------------------------------------------------------
 */

/* Collective. A vector of float64 that rank 0 writes. */
static wm_status_t put(const wm_plan_log_t *log, wm_h5_t *file, const char *path,
                       const double *data, const char *description, wm_error_t *err) {
  const int64_t zero[1] = {0}, count[1] = {log->in->run->comm->rank == 0 ? log->n : 0};
  wm_status_t status = wm_h5_dataset(file, path, H5T_IEEE_F64LE, 1, &log->n, description, err);
  return status == WM_OK ? wm_h5_write(file, path, H5T_NATIVE_DOUBLE, zero, count, data, err)
                         : status;
}

static wm_status_t write_file(const wm_plan_log_t *log, wm_error_t *err) {
  const wm_comm_t *comm = log->in->run->comm;
  const int64_t dims[2] = {log->n, log->n_layers}, zero[2] = {0};
  const int64_t count[2] = {comm->rank == 0 ? log->n : 0, log->n_layers};
  char key[WM_HASH_TEXT];
  wm_h5_t *file = NULL;
  wm_status_t status;
  wm_hash_text(log->key, key);
  /* What is kept must be of the model that it says: one that is written to meanwhile is not. */
  WM_TRY(wm_agree(comm->world, wm_model_unchanged(log->in->model, err), err));
  WM_TRY(wm_h5_create(comm->world, log->path, &file, err));
  WM_TRY(wm_h5_dataset(file, "/plans", H5T_STD_I32LE, 2, dims, "[plan, layer] option", err));
  WM_TRY(wm_h5_write(file, "/plans", H5T_NATIVE_INT32, zero, count, log->plans, err));
  WM_TRY(put(log, file, "/delta_pct", log->cost, "[plan] measured joint cost, percent", err));
  WM_TRY(put(log, file, "/saved_pct", log->saved, "[plan] operations saved, percent", err));
  WM_TRY(wm_h5_set_string(file, "/", "parts_key", key, err));
  wm_h5_t *whole = file;
  file = NULL; /* publishing takes it */
  WM_TRY(wm_h5_publish(whole, err));
  wm_log(log->in->run->log, WM_LOG_INFO, "allocate: kept %" PRId64 " measured plans in %s", log->n,
         log->path);
cleanup:
  wm_h5_close(file);
  return status;
}

wm_status_t wm_plan_log_keep(wm_plan_log_t *log, bool now, wm_error_t *err) {
  int due = now || (log->interval > 0 && wm_seconds() - log->written >= log->interval);
  MPI_Bcast(&due, 1, MPI_INT, 0, log->in->run->comm->world);
  if (!due || !log->fresh)
    return WM_OK;
  wm_status_t status = write_file(log, err);
  log->fresh = status != WM_OK;
  log->written = wm_seconds();
  return status;
}

/* Collective. The file's content into the log, which is empty. */
static wm_status_t read_file(wm_plan_log_t *log, wm_error_t *err) {
  const wm_comm_t *comm = log->in->run->comm;
  const int64_t zero[2] = {0};
  char expected[WM_HASH_TEXT], *found = NULL;
  int64_t dims[2], each;
  wm_h5_t *file = NULL;
  wm_status_t status;
  wm_hash_text(log->key, expected);
  WM_TRY(wm_h5_open(comm->world, log->path, &file, err));
  WM_TRY(wm_h5_get_string(file, "/", "parts_key", &found, err));
  if (strcmp(found, expected) != 0)
    status = wm_fail(err, WM_INPUT, "%s: is of another search (%s, here %s)", log->path, found,
                     expected);
  WM_TRY(wm_agree(comm->world, status, err));
  WM_TRY(wm_h5_verify(file, err));
  WM_TRY(wm_h5_dims(file, "/plans", 2, dims, err));
  if (dims[1] != log->n_layers)
    status = wm_fail(err, WM_INPUT, "%s: plans are of %" PRId64 " layers", log->path, dims[1]);
  for (int i = 0; i < 2 && status == WM_OK; i++) {
    status = wm_h5_dims(file, i == 0 ? "/delta_pct" : "/saved_pct", 1, &each, err);
    if (status == WM_OK && each != dims[0])
      status = wm_fail(err, WM_INPUT, "%s: not as many numbers as plans", log->path);
  }
  if (status == WM_OK)
    status = make_room(log, dims[0], err);
  WM_TRY(wm_agree(comm->world, status, err));
  WM_TRY(wm_h5_read(file, "/plans", H5T_NATIVE_INT32, zero, dims, log->plans, err));
  WM_TRY(wm_h5_read(file, "/delta_pct", H5T_NATIVE_DOUBLE, zero, dims, log->cost, err));
  WM_TRY(wm_h5_read(file, "/saved_pct", H5T_NATIVE_DOUBLE, zero, dims, log->saved, err));
  log->n = dims[0];
cleanup:
  free(found);
  wm_h5_close(file);
  return status;
}

wm_status_t wm_plan_log_open(const wm_inputs_t *in, const char *path, uint64_t key, double interval,
                             int64_t n_layers, wm_plan_log_t *log, wm_error_t *err) {
  const wm_run_t *run = in->run;
  *log = (wm_plan_log_t){.in = in,
                         .path = path,
                         .key = key,
                         .interval = interval,
                         .written = wm_seconds(),
                         .n_layers = n_layers};
  int there = run->comm->rank == 0 && wm_file_exists(path);
  MPI_Bcast(&there, 1, MPI_INT, 0, run->comm->world);
  if (!there)
    return WM_OK;
  wm_status_t status = read_file(log, err);
  if (status == WM_OK)
    wm_log(run->log, WM_LOG_INFO, "allocate: resuming: %" PRId64 " plans are measured", log->n);
  else
    wm_log(run->log, WM_LOG_WARN, "allocate: measured plans are left out: %s", err->message);
  return WM_OK; /* without them the search begins anew */
}

void wm_plan_log_destroy(wm_plan_log_t *log) {
  free(log->plans);
  free(log->cost);
  free(log->saved);
  *log = (wm_plan_log_t){0};
}

void wm_plan_log_remove(const wm_plan_log_t *log) {
  if (log->in->run->comm->rank == 0)
    unlink(log->path); /* what can't be removed does no harm */
  MPI_Barrier(log->in->run->comm->world);
}
