#include "gate_keep.h"

#include "parts_folder.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/timer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool wm_gate_keep_has(const wm_gate_keep_t *k, int64_t index) {
  return k->set_of[index] >= 0;
}

wm_status_t wm_gate_keep_take(const wm_gate_keep_t *k, int64_t index, wm_gates_t *gates,
                              wm_error_t *err) {
  return wm_gates_copy(gates, k->sets[k->set_of[index]], k->options->layers[index], err);
}

void wm_gate_keep_add(wm_gate_keep_t *k, int64_t index) {
  k->fresh[index] = true;
}

wm_gate_moment_t wm_gate_keep_look(const wm_gate_keep_t *k) {
  const double interval = k->options->checkpoint_seconds;
  const bool due = k->comm->rank == 0 && interval > 0 && wm_seconds() - k->written >= interval;
  int flags[2] = {wm_stop_code(), due};
  MPI_Allreduce(MPI_IN_PLACE, flags, 2, MPI_INT, MPI_MAX, k->comm->world);
  wm_stop_adopt(flags[0]);
  return (wm_gate_moment_t){.stop = flags[0] != 0, .due = flags[1] != 0};
}

wm_status_t wm_gate_keep_stopped(const wm_gate_keep_t *k, wm_error_t *err) {
  if (k->options->parts == NULL)
    return wm_fail(err, WM_STOPPED, "gates: stopped by %s", wm_stop_reason());
  return wm_fail(err, WM_STOPPED,
                 "gates: stopped by %s; the layers that are fitted are kept in %s, and the same "
                 "command goes on from there, on any number of ranks",
                 wm_stop_reason(), k->options->parts);
}

/* --- writing ------------------------------------------------------------------------------------
 */

/* The fresh layers as a set of their own; their ends as ends[n]. */
static wm_status_t gather_fresh(const wm_gate_keep_t *k, const wm_gates_t *gates,
                                const wm_gate_ends_t *all, wm_gates_t **out, wm_gate_ends_t *ends,
                                wm_error_t *err) {
  wm_status_t status = wm_gates_create(gates->n_layers, gates->d, gates->k, out, err);
  for (int64_t i = 0; i < k->options->n_layers && status == WM_OK; i++)
    if (k->fresh[i]) {
      ends[(*out)->n_described] = all[i];
      status = wm_gates_copy(*out, gates, k->options->layers[i], err);
    }
  return status;
}

static wm_status_t write_set(const wm_gate_keep_t *k, const wm_gates_t *gates,
                             const wm_gate_ends_t *ends, wm_error_t *err) {
  char path[WM_PART_PATH_SIZE], key[WM_HASH_TEXT];
  wm_h5_t *file = NULL;
  wm_status_t status;
  wm_part_path(k->options->parts, k->next, path);
  wm_hash_text(k->options->parts_key, key);
  WM_TRY(wm_part_folder(k->comm, k->options->parts, err));
  WM_TRY(wm_h5_create(k->comm->world, path, &file, err));
  WM_TRY(wm_gates_write(gates, k->comm, file, err));
  WM_TRY(wm_gate_ends_write(ends, gates->n_described, k->comm, file, err));
  WM_TRY(wm_h5_set_string(file, "/", "parts_key", key, err));
  wm_h5_t *whole = file;
  file = NULL; /* publishing takes it */
  WM_TRY(wm_h5_publish(whole, err));
  wm_log(k->log, WM_LOG_INFO, "gates: kept %" PRId64 " fitted layer(s) in %s", gates->n_described,
         path);
cleanup:
  wm_h5_close(file);
  return status;
}

static int64_t count_fresh(const wm_gate_keep_t *k) {
  int64_t n = 0;
  for (int64_t i = 0; i < k->options->n_layers; i++)
    n += k->fresh[i];
  return n;
}

wm_status_t wm_gate_keep_write(wm_gate_keep_t *k, const wm_gates_t *gates,
                               const wm_gate_ends_t *ends, wm_error_t *err) {
  const int64_t n = count_fresh(k);
  wm_gates_t *set = NULL;
  void *memory = NULL;
  if (k->options->parts == NULL || n == 0)
    return WM_OK;
  wm_status_t status = wm_alloc(&memory, n, sizeof *ends, "ends of directions", err);
  if (status == WM_OK)
    status = gather_fresh(k, gates, ends, &set, memory, err);
  /* What is kept must be of the model that it says: one that is written to meanwhile is not. */
  if (status == WM_OK)
    status = wm_model_unchanged(k->model, err);
  WM_TRY(wm_agree(k->comm->world, status, err));
  WM_TRY(write_set(k, set, memory, err));
  memset(k->fresh, 0, (size_t)k->options->n_layers * sizeof *k->fresh);
  k->next++;
  k->written = wm_seconds();
cleanup:
  wm_gates_free(set);
  free(memory);
  return status;
}

/* --- reading ------------------------------------------------------------------------------------
 */

/* Number of a layer in the options, -1 if it is not there. */
static int64_t index_of(const wm_gate_keep_t *k, int64_t layer) {
  for (int64_t i = 0; i < k->options->n_layers; i++)
    if (k->options->layers[i] == layer)
      return i;
  return -1;
}

/* Collective. Is the file, which is whole, of these gates? Its ends into ends[n_layers]. */
static wm_status_t read_ends(const wm_gate_keep_t *k, const char *path, int64_t n_layers,
                             wm_gate_ends_t *ends, wm_error_t *err) {
  char expected[WM_HASH_TEXT], *found = NULL;
  wm_h5_t *file = NULL;
  wm_status_t status;
  wm_hash_text(k->options->parts_key, expected);
  WM_TRY(wm_h5_open(k->comm->world, path, &file, err));
  WM_TRY(wm_h5_get_string(file, "/", "parts_key", &found, err));
  if (strcmp(found, expected) != 0)
    status = wm_fail(err, WM_INPUT, "%s: is of other gates (%s, here %s)", path, found, expected);
  else
    status = wm_gate_ends_read(ends, n_layers, file, err);
cleanup:
  free(found);
  wm_h5_close(file);
  return status;
}

/* Layers of set number k->n_sets that no other has are taken from it. */
static wm_status_t assign(wm_gate_keep_t *k, const wm_gates_t *set, const wm_gate_ends_t *from,
                          wm_gate_ends_t *ends, wm_error_t *err) {
  for (int64_t i = 0; i < set->n_described; i++)
    if (index_of(k, set->layers[i].layer) < 0)
      return wm_fail(err, WM_INPUT, "layer %" PRId64 " gets no gates here", set->layers[i].layer);
  for (int64_t i = 0; i < set->n_described; i++) {
    const int64_t index = index_of(k, set->layers[i].layer);
    if (k->set_of[index] >= 0)
      continue;
    k->set_of[index] = k->n_sets;
    ends[index] = from[i];
  }
  return WM_OK;
}

/* Collective. */
static wm_status_t read_file(wm_gate_keep_t *k, const char *path, wm_gate_ends_t *ends,
                             wm_error_t *err) {
  const wm_arch_t *arch = wm_model_arch(k->model);
  wm_gates_t *set = NULL;
  void *memory = NULL;
  wm_status_t status;
  WM_TRY(wm_gates_open(k->comm, path, arch->n_layers, arch->d_model, &set, err));
  status = wm_alloc(&memory, set->n_described, sizeof *ends, "ends of directions", err);
  WM_TRY(wm_agree(k->comm->world, status, err));
  WM_TRY(read_ends(k, path, set->n_described, memory, err));
  WM_TRY(wm_agree(k->comm->world, assign(k, set, memory, ends, err), err));
  k->sets[k->n_sets++] = set;
  set = NULL;
cleanup:
  wm_gates_free(set);
  free(memory);
  return status;
}

static wm_status_t allocate(wm_gate_keep_t *k, wm_error_t *err) {
  const int64_t n = k->options->n_layers;
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, n, sizeof(bool), "layers with gates", err));
  k->fresh = memory;
  WM_TRY(wm_alloc(&memory, n, sizeof(int64_t), "layers with gates", err));
  k->set_of = memory;
  for (int64_t i = 0; i < n; i++)
    k->set_of[i] = -1;
cleanup:
  return status;
}

/* Collective. */
static wm_status_t read_all(wm_gate_keep_t *k, wm_gate_ends_t *ends, wm_error_t *err) {
  int64_t *numbers = NULL, n = 0, layers = 0;
  void *memory = NULL;
  wm_status_t status = wm_part_list(k->comm, k->options->parts, &numbers, &n, err);
  if (status == WM_OK) {
    status = wm_alloc(&memory, n, sizeof *k->sets, "files of gates", err);
    status = wm_agree(k->comm->world, status, err);
  }
  k->sets = memory;
  for (int64_t i = 0; i < n && status == WM_OK; i++) {
    char path[WM_PART_PATH_SIZE];
    wm_error_t why = {0};
    wm_part_path(k->options->parts, numbers[i], path);
    if (read_file(k, path, ends, &why) != WM_OK)
      wm_log(k->log, WM_LOG_WARN, "gates: a file is left out: %s", why.message);
    k->next = numbers[i] + 1;
  }
  free(numbers);
  for (int64_t i = 0; i < k->options->n_layers; i++)
    layers += k->set_of[i] >= 0;
  if (layers > 0)
    wm_log(k->log, WM_LOG_INFO, "gates: resuming: %" PRId64 " of %" PRId64 " layers are fitted",
           layers, k->options->n_layers);
  return status;
}

wm_status_t wm_gate_keep_open(const wm_comm_t *comm, const wm_model_t *model,
                              const wm_gate_pass_options_t *options, const wm_log_t *log,
                              wm_gate_ends_t *ends, wm_gate_keep_t *k, wm_error_t *err) {
  *k = (wm_gate_keep_t){
      .comm = comm, .model = model, .options = options, .log = log, .written = wm_seconds()};
  wm_status_t status = wm_agree(comm->world, allocate(k, err), err);
  return status == WM_OK && options->parts != NULL ? read_all(k, ends, err) : status;
}

void wm_gate_keep_close(wm_gate_keep_t *k) {
  for (int64_t i = 0; i < k->n_sets; i++)
    wm_gates_free(k->sets[i]);
  free(k->sets);
  free(k->set_of);
  free(k->fresh);
  memset(k, 0, sizeof *k);
}
