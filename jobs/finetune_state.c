/* finetune: checkpoints and the finished model (results/README.md, finetune.model.h5). */
#include "finetune.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/io/files.h"
#include "wanamaker/train/state.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { GENERATIONS = 2 };

wm_status_t wm_finetune_path(const wm_finetune_t *f, const char *ending, char *path,
                             wm_error_t *err) {
  char name[64];
  snprintf(name, sizeof name, "%s.%s", f->stem, ending);
  return wm_output_path(f->run, name, path, err);
}

static wm_status_t checkpoint_path(const wm_finetune_t *f, int64_t generation, char *path,
                                   wm_error_t *err) {
  char ending[32];
  snprintf(ending, sizeof ending, "checkpoint.%d.h5", (int)(generation % GENERATIONS));
  return wm_finetune_path(f, ending, path, err);
}

/* --- writing ------------------------------------------------------------------------------------
 */

/* Collective. Rank 0 writes a whole array. */
static wm_status_t write_array(const wm_finetune_t *f, wm_h5_t *file, const char *path,
                               hid_t file_type, hid_t type, int n_dims, const int64_t *dims,
                               const void *data, const char *description, wm_error_t *err) {
  const int64_t zero[2] = {0, 0}, none[2] = {0, 0};
  wm_status_t status = wm_h5_dataset(file, path, file_type, n_dims, dims, description, err);
  if (status == WM_OK)
    status = wm_h5_write(file, path, type, zero, f->run->comm->rank == 0 ? dims : none, data, err);
  return status;
}

static bool has_surrogate(const wm_finetune_t *f, int64_t layer) {
  return f->surrogates != NULL && wm_surrogates_has(f->surrogates, layer);
}

/* Collective. What stands for the MLPs in phase `phase`, and all surrogates that there are. */
static wm_status_t write_paths(const wm_finetune_t *f, int64_t phase, wm_h5_t *file,
                               wm_error_t *err) {
  const int64_t n = f->plan.model_layers, d = wm_model_arch(f->inputs.model)->d_model;
  const int64_t square[2] = {d, d};
  void *kinds = NULL;
  wm_status_t status = wm_alloc(&kinds, n, sizeof(int32_t), "kinds of layers", err);
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  for (int64_t l = 0; l < n; l++) {
    wm_layer_mode_t mode = f->plan.phases[phase].modes[l];
    ((int32_t *)kinds)[l] = mode == WM_MODE_LINEAR ? 1 : mode == WM_MODE_GATED ? 2 : 0;
  }
  WM_TRY(write_array(f, file, "/paths/kind", H5T_STD_I32LE, H5T_NATIVE_INT32, 1, &n, kinds,
                     "what stands for each layer's MLP: 0 itself, 1 its surrogate, 2 a gate", err));
  for (int64_t l = 0; l < n; l++) {
    char path[64];
    if (!has_surrogate(f, l))
      continue;
    snprintf(path, sizeof path, "/surrogates/%" PRId64 "/weight", l);
    WM_TRY(write_array(f, file, path, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, square,
                       wm_surrogates_weight(f->surrogates, l), "W of y = x W + b, [in, out]", err));
    snprintf(path, sizeof path, "/surrogates/%" PRId64 "/bias", l);
    WM_TRY(write_array(f, file, path, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, &d,
                       wm_surrogates_bias(f->surrogates, l), "b", err));
  }
cleanup:
  free(kinds);
  return status;
}

/* Collective. */
static wm_status_t write_text(wm_h5_t *file, const wm_finetune_t *f, wm_error_t *err) {
  const char *model = wm_config_string(f->run->config, "model.path");
  char *path = NULL, *text = NULL;
  int64_t bytes = 0;
  void *memory = NULL;
  wm_status_t status = WM_OK;
  if (f->run->comm->rank == 0) {
    path = wm_arch_path(model);
    status = path == NULL ? wm_fail(err, WM_ENVIRONMENT, "no memory for a path")
                          : wm_read_text(path, 1 << 20, &text, err);
    bytes = status == WM_OK ? (int64_t)strlen(text) + 1 : 0;
  }
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  wm_broadcast(f->run->comm->world, 0, &bytes, sizeof bytes);
  WM_TRY(wm_agree(f->run->comm->world, wm_alloc(&memory, bytes, 1, "config.json", err), err));
  if (f->run->comm->rank == 0)
    memcpy(memory, text, (size_t)bytes);
  wm_broadcast(f->run->comm->world, 0, memory, bytes);
  WM_TRY(wm_h5_set_string(file, "/", "config_json", memory, err));
  WM_TRY(wm_h5_set_string(file, "/", "tokenizer", wm_tokenizer_dir(f->run), err));
cleanup:
  free(path);
  free(text);
  free(memory);
  return status;
}

/* Collective. What a finished model and a checkpoint have in common. */
static wm_status_t write_model(const wm_finetune_t *f, int64_t phase, const char *state,
                               wm_h5_t *file, wm_error_t *err) {
  const int64_t steps = f->trajectory.n;
  char key[WM_HASH_TEXT];
  wm_status_t status;
  wm_hash_text(f->key, key);
  WM_TRY(wm_state_save(f->run->comm, f->table, false, file, err));
  if (f->training != NULL)
    WM_TRY(wm_state_save(f->run->comm, f->training, true, file, err));
  WM_TRY(write_paths(f, phase, file, err));
  WM_TRY(write_text(file, f, err));
  WM_TRY(wm_h5_set_string(file, "/", "state", state, err));
  WM_TRY(wm_h5_set_string(file, "/", "plan", wm_plan_name(f->settings.kind), err));
  WM_TRY(wm_h5_set_string(file, "/", "run_key", key, err));
  WM_TRY(wm_h5_set_int(file, "/", "steps", steps, err));
  WM_TRY(
      wm_h5_set_int(file, "/", "tokens_seen", steps * f->order.sequences * f->order.length, err));
  WM_TRY(wm_stage_describe(&f->inputs, file, "finetune", f->key, err));
cleanup:
  return status;
}

wm_status_t wm_finetune_save_model(wm_finetune_t *f, wm_error_t *err) {
  char path[WM_PATH_SIZE];
  wm_h5_t *file = NULL;
  wm_status_t status;
  WM_TRY(wm_finetune_path(f, "model.h5", path, err));
  WM_TRY(wm_h5_create(f->run->comm->world, path, &file, err));
  WM_TRY(write_model(f, f->plan.n - 1, "final", file, err));
  wm_h5_t *whole = file;
  file = NULL; /* publishing takes it */
  WM_TRY(wm_h5_publish(whole, err));
  wm_log(f->run->log, WM_LOG_INFO, "%s: wrote %s", f->stem, path);
cleanup:
  wm_h5_close(file);
  return status;
}

/* Collective. Steps and evaluations so far. */
static wm_status_t write_history(const wm_finetune_t *f, wm_h5_t *file, wm_error_t *err) {
  const wm_trajectory_t *t = &f->trajectory;
  const int64_t steps[2] = {t->n, WM_STEP_VALUES};
  const int64_t moments[2] = {f->n_moments, (int64_t)sizeof *f->moments};
  wm_status_t status;
  WM_TRY(write_array(f, file, "/history/steps", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 2, steps,
                     t->values, "loss, norm, rate, mean g, seconds and waiting of every step",
                     err));
  WM_TRY(write_array(f, file, "/history/chains", H5T_STD_U64LE, H5T_NATIVE_UINT64, 1, steps,
                     t->chains, "fingerprints of the tokens seen until then", err));
  WM_TRY(write_array(f, file, "/history/moments", H5T_STD_U8LE, H5T_NATIVE_UINT8, 2, moments,
                     f->moments, "when evaluations were done (this program's own layout)", err));
  for (int64_t i = 0; i < f->n_evaluations; i++) {
    const wm_evaluation_t *e = &f->evaluations[i];
    const int64_t dims[2] = {f->n_moments, e->text->windows.n_predicted};
    char path[64];
    snprintf(path, sizeof path, "/history/nll.%" PRId64, i);
    WM_TRY(write_array(f, file, path, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, dims, e->nll,
                       "losses of an evaluation range", err));
  }
  WM_TRY(write_array(f, file, "/history/notes", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 2,
                     (const int64_t[]){f->plan.n, sizeof *f->notes / sizeof(double)}, f->notes,
                     "linear layers and R^2 of the phases' surrogates", err));
cleanup:
  return status;
}

wm_status_t wm_finetune_keep(wm_finetune_t *f, wm_error_t *err) {
  const int64_t phase = f->phase < f->plan.n ? f->phase : f->plan.n - 1;
  const bool inside = f->step > 0; /* moments and gates exist */
  char path[WM_PATH_SIZE], chain[WM_HASH_TEXT];
  wm_h5_t *file = NULL;
  wm_status_t status;
  wm_hash_text(f->chain, chain);
  WM_TRY(checkpoint_path(f, f->generation, path, err));
  WM_TRY(wm_h5_create(f->run->comm->world, path, &file, err));
  WM_TRY(write_model(f, phase, "checkpoint", file, err));
  if (inside)
    WM_TRY(wm_trainer_save(f->trainer, file, err));
  WM_TRY(write_history(f, file, err));
  WM_TRY(wm_h5_set_string(file, "/", "chain", chain, err));
  WM_TRY(wm_h5_set_int(file, "/", "phase", f->phase, err));
  WM_TRY(wm_h5_set_int(file, "/", "phase_step", f->step, err));
  WM_TRY(wm_h5_set_int(file, "/", "generation", f->generation, err));
  wm_h5_t *whole = file;
  file = NULL; /* publishing takes it */
  WM_TRY(wm_h5_publish(whole, err));
  f->generation++;
  f->kept = wm_seconds();
  f->kept_step = f->trajectory.n;
  wm_log(f->run->log, WM_LOG_DEBUG, "%s: checkpoint after step %" PRId64 ": %s", f->stem,
         f->trajectory.n, path);
cleanup:
  wm_h5_close(file);
  return status;
}

/* --- reading ------------------------------------------------------------------------------------
 */

/* Collective. Opens the file of generation `g` if it is there, of this run and whole; else *file is
 * NULL. *generation: what it says itself, which differs if files were copied or exchanged. */
static wm_status_t open_checkpoint(wm_finetune_t *f, int64_t g, bool verify, wm_h5_t **file,
                                   int64_t *generation, wm_error_t *err) {
  char path[WM_PATH_SIZE], key[WM_HASH_TEXT], *found = NULL;
  wm_error_t why = {0};
  *file = NULL;
  wm_status_t status = checkpoint_path(f, g, path, err);
  int there = status == WM_OK && f->run->comm->rank == 0 && wm_file_exists(path);
  wm_broadcast(f->run->comm->world, 0, &there, sizeof there);
  if (status != WM_OK || !there)
    return status;
  wm_hash_text(f->key, key);
  status = wm_h5_open(f->run->comm->world, path, file, &why);
  if (status == WM_OK)
    status = wm_h5_get_string(*file, "/", "run_key", &found, &why);
  if (status == WM_OK && strcmp(found, key) != 0)
    status = wm_fail(&why, WM_INPUT,
                     "%s: is of a run with other settings or inputs, which a checkpoint of this "
                     "one will replace",
                     path);
  if (status == WM_OK)
    status = wm_h5_get_int(*file, "/", "generation", generation, &why);
  if (status == WM_OK && verify)
    status = wm_h5_verify(*file, &why);
  free(found);
  if (status == WM_OK)
    return WM_OK;
  wm_log(f->run->log, WM_LOG_WARN, "checkpoint not used: %s", why.message);
  wm_h5_close(*file);
  *file = NULL;
  return WM_OK;
}

/* Collective. An array that all ranks read in whole. */
static wm_status_t read_array(wm_h5_t *file, const char *path, hid_t type, const int64_t *dims,
                              void *out, wm_error_t *err) {
  const int64_t zero[2] = {0, 0};
  return wm_h5_read(file, path, type, zero, dims, out, err);
}

/* Collective. */
static wm_status_t read_steps(wm_finetune_t *f, wm_h5_t *file, wm_error_t *err) {
  wm_trajectory_t *t = &f->trajectory;
  int64_t dims[2];
  void *values = NULL, *chains = NULL;
  wm_status_t status;
  WM_TRY(wm_h5_dims(file, "/history/steps", 2, dims, err));
  if (dims[1] != WM_STEP_VALUES)
    return wm_fail(err, WM_INPUT, "%s: is of another version", wm_h5_path(file));
  status = wm_alloc(&values, dims[0] * WM_STEP_VALUES, sizeof *t->values, "steps", err);
  if (status == WM_OK)
    status = wm_alloc(&chains, dims[0], sizeof *t->chains, "steps", err);
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  WM_TRY(read_array(file, "/history/steps", H5T_NATIVE_DOUBLE, dims, values, err));
  WM_TRY(read_array(file, "/history/chains", H5T_NATIVE_UINT64, dims, chains, err));
  free(t->values);
  free(t->chains);
  *t = (wm_trajectory_t){dims[0], dims[0], values, chains, dims[0]};
  return WM_OK;
cleanup:
  free(values);
  free(chains);
  return status;
}

/* Collective. */
static wm_status_t read_moments(wm_finetune_t *f, wm_h5_t *file, wm_error_t *err) {
  int64_t dims[2];
  void *moments = NULL;
  wm_status_t status;
  WM_TRY(wm_h5_dims(file, "/history/moments", 2, dims, err));
  if (dims[1] != (int64_t)sizeof *f->moments)
    return wm_fail(err, WM_INPUT, "%s: is of another version", wm_h5_path(file));
  status = wm_alloc(&moments, dims[0], sizeof *f->moments, "evaluations", err);
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  WM_TRY(read_array(file, "/history/moments", H5T_NATIVE_UINT8, dims, moments, err));
  f->n_moments = 0;
  for (int64_t i = 0; i < dims[0]; i++)
    WM_TRY(wm_finetune_add_moment(f, (wm_moment_t *)moments + i, err));
  for (int64_t i = 0; i < f->n_evaluations; i++) {
    const wm_evaluation_t *e = &f->evaluations[i];
    const int64_t nll[2] = {dims[0], e->text->windows.n_predicted};
    char path[64];
    snprintf(path, sizeof path, "/history/nll.%" PRId64, i);
    WM_TRY(read_array(file, path, H5T_NATIVE_FLOAT, nll, e->nll, err));
  }
cleanup:
  free(moments);
  return status;
}

/* Collective. */
static wm_status_t read_surrogates(wm_finetune_t *f, wm_h5_t *file, wm_error_t *err) {
  const int64_t d = wm_model_arch(f->inputs.model)->d_model, square[2] = {d, d};
  void *memory = NULL;
  wm_status_t status = WM_OK;
  if (f->surrogates == NULL)
    return WM_OK;
  WM_TRY(wm_agree(f->run->comm->world,
                  wm_alloc(&memory, d * (d + 1), sizeof(double), "a surrogate", err), err));
  double *weight = memory, *bias = weight + d * d;
  for (int64_t i = 0; i < f->settings.n_layers; i++) {
    const int64_t layer = f->settings.layers[i];
    char path[64];
    snprintf(path, sizeof path, "/surrogates/%" PRId64, layer);
    if (H5Lexists(wm_h5_id(file), "/surrogates", H5P_DEFAULT) <= 0 ||
        H5Lexists(wm_h5_id(file), path, H5P_DEFAULT) <= 0)
      continue;
    snprintf(path, sizeof path, "/surrogates/%" PRId64 "/weight", layer);
    WM_TRY(read_array(file, path, H5T_NATIVE_DOUBLE, square, weight, err));
    snprintf(path, sizeof path, "/surrogates/%" PRId64 "/bias", layer);
    WM_TRY(read_array(file, path, H5T_NATIVE_DOUBLE, &d, bias, err));
    WM_TRY(wm_surrogates_put(f->surrogates, f->run->comm, layer, weight, bias, err));
  }
cleanup:
  free(memory);
  return status;
}

/* Collective. Everything but gates and moments. */
static wm_status_t read_checkpoint(wm_finetune_t *f, wm_h5_t *file, wm_error_t *err) {
  char *chain = NULL;
  wm_status_t status;
  WM_TRY(wm_h5_get_int(file, "/", "phase", &f->phase, err));
  WM_TRY(wm_h5_get_int(file, "/", "phase_step", &f->step, err));
  WM_TRY(wm_h5_get_string(file, "/", "chain", &chain, err));
  sscanf(chain, "%" SCNx64, &f->chain);
  WM_TRY(read_steps(f, file, err));
  WM_TRY(read_moments(f, file, err));
  WM_TRY(read_array(file, "/history/notes", H5T_NATIVE_DOUBLE,
                    (const int64_t[]){f->plan.n, sizeof *f->notes / sizeof(double)}, f->notes,
                    err));
  WM_TRY(read_surrogates(f, file, err));
  WM_TRY(wm_state_load(f->run->comm, f->table, false, file, err));
cleanup:
  free(chain);
  return status;
}

/* Collective. The generation that is newest, whole and of this run, and which of the files has it;
 * *file is NULL if there is none. */
static wm_status_t open_newest(wm_finetune_t *f, wm_h5_t **file, int64_t *generation, int *place,
                               wm_error_t *err) {
  wm_h5_t *files[GENERATIONS] = {NULL};
  int64_t numbers[GENERATIONS] = {-1, -1};
  int best = -1;
  wm_status_t status = WM_OK;
  for (int g = 0; g < GENERATIONS && status == WM_OK; g++) {
    status = open_checkpoint(f, g, true, &files[g], &numbers[g], err);
    if (files[g] != NULL && (best < 0 || numbers[g] > numbers[best]))
      best = g;
  }
  for (int g = 0; g < GENERATIONS; g++)
    if (g != best || status != WM_OK)
      wm_h5_close(files[g]);
  *file = best >= 0 && status == WM_OK ? files[best] : NULL;
  *generation = best >= 0 ? numbers[best] : -1;
  *place = best;
  return status;
}

wm_status_t wm_finetune_resume(wm_finetune_t *f, bool *resumed, wm_error_t *err) {
  wm_h5_t *file;
  int64_t generation;
  int place;
  *resumed = false;
  wm_status_t status = open_newest(f, &file, &generation, &place, err);
  if (status != WM_OK || file == NULL)
    return status;
  status = read_checkpoint(f, file, err);
  wm_h5_close(file);
  if (status != WM_OK)
    return status;
  f->resumed = generation;
  f->generation = generation + 1; /* and not into the file at hand, where files were exchanged */
  f->generation += f->generation % GENERATIONS == place;
  f->kept = wm_seconds();
  f->kept_step = f->trajectory.n;
  *resumed = true;
  wm_log(f->run->log, WM_LOG_INFO, "%s: goes on after step %" PRId64 " of %" PRId64, f->stem,
         f->trajectory.n, f->plan.steps);
  return WM_OK;
}

wm_status_t wm_finetune_resume_phase(wm_finetune_t *f, wm_error_t *err) {
  wm_h5_t *file;
  int64_t generation = -1;
  wm_status_t status = open_checkpoint(f, f->generation - 1, false, &file, &generation, err);
  if (status == WM_OK && (file == NULL || generation != f->resumed))
    status = wm_fail(err, WM_INPUT, "%s: a checkpoint is gone that was just read", f->stem);
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  WM_TRY(wm_state_load(f->run->comm, f->training, true, file, err));
  WM_TRY(wm_trainer_load(f->trainer, file, err));
cleanup:
  wm_h5_close(file);
  return status;
}

/* Collective. Is the file a checkpoint of a run with other settings, which may go on from it? */
static bool is_of_another_run(const wm_finetune_t *f, const char *path) {
  char key[WM_HASH_TEXT], *found = NULL;
  wm_h5_t *file = NULL;
  wm_error_t ignored = {0};
  wm_hash_text(f->key, key);
  bool another = wm_h5_open(f->run->comm->world, path, &file, &ignored) == WM_OK &&
                 wm_h5_get_string(file, "/", "run_key", &found, &ignored) == WM_OK &&
                 strcmp(found, key) != 0;
  free(found);
  wm_h5_close(file);
  return another;
}

void wm_finetune_remove_checkpoints(const wm_finetune_t *f) {
  char path[WM_PATH_SIZE];
  wm_error_t ignored = {0};
  for (int g = 0; g < GENERATIONS; g++) {
    int there = f->run->comm->rank == 0 && checkpoint_path(f, g, path, &ignored) == WM_OK &&
                wm_file_exists(path);
    wm_broadcast(f->run->comm->world, 0, &there, sizeof there);
    if (!there || checkpoint_path(f, g, path, &ignored) != WM_OK || is_of_another_run(f, path))
      continue;
    if (f->run->comm->rank == 0)
      unlink(path);
  }
}
