/* export: where the model comes from. */
#include "export.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/io/files.h"
#include "wanamaker/model/save.h"

#include <inttypes.h>
#include <string.h>

enum { CONFIG_LIMIT = 1 << 20, PATH = 64 };
enum { KIND_MLP, KIND_LINEAR, KIND_GATED };

static const char *setting(const wm_export_t *e, const char *key) {
  return wm_config_string(e->run->config, key);
}

/* Collective. A file of this run's results that must be there. */
static wm_status_t must_exist(const wm_export_t *e, const char *path, const char *key,
                              wm_error_t *err) {
  wm_status_t status = WM_OK;
  if (e->run->comm->rank == 0 && !wm_file_exists(path))
    status = wm_fail(err, WM_INPUT, "%s: not there; see %s", path, key);
  return wm_agree(e->run->comm->world, status, err);
}

/* Collective. Architecture and room for the layers. */
static wm_status_t read_arch(wm_export_t *e, wm_error_t *err) {
  const wm_comm_t *comm = e->run->comm;
  void *memory;
  wm_status_t status = WM_OK;
  if (comm->rank == 0)
    status = wm_arch_read(e->config, &e->arch, err);
  WM_TRY(wm_agree(comm->world, status, err));
  wm_broadcast(comm->world, 0, &e->arch, sizeof e->arch);
  const int64_t n = e->arch.n_layers;
  status = wm_alloc(&memory, n, sizeof *e->linear, "layers", err);
  if (status == WM_OK) {
    e->linear = memory;
    status = wm_alloc(&memory, n, sizeof *e->weight, "layers", err);
  }
  if (status == WM_OK) {
    e->weight = memory;
    status = wm_alloc(&memory, n, sizeof *e->bias, "layers", err);
  }
  if (status == WM_OK)
    e->bias = memory;
  status = wm_agree(comm->world, status, err);
cleanup:
  return status;
}

static void use(wm_export_t *e, const wm_surrogates_t *from, int64_t layer) {
  e->weight[layer] = wm_surrogates_weight(from, layer);
  e->bias[layer] = wm_surrogates_bias(from, layer);
}

/* --- export.state -------------------------------------------------------------------------------
 */

/* Collective. Is the state's model the one that model.path describes? */
static wm_status_t check_config(const wm_export_t *e, wm_error_t *err) {
  char *recorded = NULL, *path = NULL, *text = NULL;
  wm_status_t status;
  WM_TRY(wm_h5_get_string(e->state, "/", "config_json", &recorded, err));
  if (e->run->comm->rank == 0) {
    path = wm_arch_path(e->config);
    status = path != NULL ? wm_read_text(path, CONFIG_LIMIT, &text, err)
                          : wm_fail(err, WM_ENVIRONMENT, "no memory for a path");
    if (status == WM_OK && strcmp(text, recorded) != 0)
      status = wm_fail(err, WM_INPUT,
                       "%s: was made with another config.json than that of model.path = %s",
                       wm_h5_path(e->state), e->config);
  }
  status = wm_agree(e->run->comm->world, status, err);
cleanup:
  free(recorded);
  free(path);
  free(text);
  return status;
}

static bool is_there(const wm_export_t *e, const char *group, int64_t layer) {
  char path[PATH];
  if (H5Lexists(wm_h5_id(e->state), group, H5P_DEFAULT) <= 0)
    return false;
  snprintf(path, sizeof path, "%s/%" PRId64, group, layer);
  return H5Lexists(wm_h5_id(e->state), path, H5P_DEFAULT) > 0;
}

/* Collective. */
static wm_status_t read_surrogate(wm_export_t *e, int64_t layer, double *room, wm_error_t *err) {
  const int64_t d = e->arch.d_model, square[2] = {d, d}, zero[2] = {0, 0};
  char path[PATH];
  wm_status_t status;
  snprintf(path, sizeof path, "/surrogates/%" PRId64 "/weight", layer);
  WM_TRY(wm_h5_read(e->state, path, H5T_NATIVE_DOUBLE, zero, square, room, err));
  snprintf(path, sizeof path, "/surrogates/%" PRId64 "/bias", layer);
  WM_TRY(wm_h5_read(e->state, path, H5T_NATIVE_DOUBLE, zero, &d, room + d * d, err));
  WM_TRY(wm_surrogates_put(e->of_state, e->run->comm, layer, room, room + d * d, err));
  use(e, e->of_state, layer);
cleanup:
  return status;
}

/* Collective. */
static wm_status_t read_surrogates(wm_export_t *e, wm_error_t *err) {
  const int64_t n = e->arch.n_layers, d = e->arch.d_model;
  const wm_comm_t *comm = e->run->comm;
  void *layers = NULL, *room = NULL;
  int64_t count = 0;
  wm_status_t status = wm_alloc(&layers, n, sizeof(int64_t), "layers", err);
  if (status == WM_OK)
    status = wm_alloc(&room, d * (d + 1), sizeof(double), "a surrogate", err);
  WM_TRY(wm_agree(comm->world, status, err));
  for (int64_t l = 0; l < n; l++)
    if (is_there(e, "/surrogates", l))
      ((int64_t *)layers)[count++] = l;
  if (count > 0)
    WM_TRY(wm_surrogates_create_empty(comm, layers, count, n, d,
                                      wm_config_int(e->run->config, "compute.tile_rows"),
                                      WM_COMPUTE_F32, &e->of_state, err));
  for (int64_t i = 0; i < count; i++)
    WM_TRY(read_surrogate(e, ((int64_t *)layers)[i], room, err));
cleanup:
  free(layers);
  free(room);
  return status;
}

/* Collective. */
static wm_status_t read_gate(wm_export_t *e, int64_t layer, wm_error_t *err) {
  static const char *const parts[] = {"w1", "b1", "w2", "b2"};
  const int64_t d = e->arch.d_model, zero[2] = {0, 0};
  wm_export_gate_t *g = &e->trained[e->n_trained];
  char path[PATH];
  int64_t dims[2];
  void *memory = NULL;
  wm_status_t status;
  snprintf(path, sizeof path, "/gates/%" PRId64 "/w1", layer);
  WM_TRY(wm_h5_dims(e->state, path, 2, dims, err));
  const int64_t h = dims[0];
  status = wm_alloc(&memory, h * (d + 2) + 1, sizeof(float), "a gate", err);
  WM_TRY(wm_agree(e->run->comm->world, status, err));
  *g = (wm_export_gate_t){layer, h, memory};
  e->n_trained++;
  const int64_t shapes[4][2] = {{h, d}, {h, 0}, {1, h}, {1, 0}};
  float *to = memory;
  for (int i = 0; i < 4; i++) {
    snprintf(path, sizeof path, "/gates/%" PRId64 "/%s", layer, parts[i]);
    WM_TRY(wm_h5_read(e->state, path, H5T_NATIVE_FLOAT, zero, shapes[i], to, err));
    to += shapes[i][0] * (shapes[i][1] > 0 ? shapes[i][1] : 1);
  }
cleanup:
  return status;
}

/* A layer with a gate, as export.gated says. */
static wm_status_t take_gated(wm_export_t *e, int64_t layer, wm_error_t *err) {
  const char *how = setting(e, "export.gated");
  if (strcmp(how, "refuse") == 0)
    return wm_fail(err, WM_INPUT,
                   "%s: layer %" PRId64
                   " has a gate, which no ordinary checkpoint can express; see export.gated",
                   wm_h5_path(e->state), layer);
  e->linear[layer] = strcmp(how, "linear") == 0;
  wm_log(e->run->log, WM_LOG_WARN,
         "layer %" PRId64 ": its gate is left out, the %s stands for it in the checkpoint", layer,
         e->linear[layer] ? "surrogate" : "MLP");
  return WM_OK;
}

/* Collective. What stands for each MLP. */
static wm_status_t read_kinds(wm_export_t *e, wm_error_t *err) {
  const int64_t n = e->arch.n_layers, zero = 0;
  void *kinds = NULL, *memory = NULL;
  wm_status_t status = wm_alloc(&kinds, n, sizeof(int32_t), "kinds of layers", err);
  if (status == WM_OK)
    status = wm_alloc(&memory, n, sizeof *e->trained, "gates", err);
  e->trained = memory;
  WM_TRY(wm_agree(e->run->comm->world, status, err));
  WM_TRY(wm_h5_read(e->state, "/paths/kind", H5T_NATIVE_INT32, &zero, &n, kinds, err));
  for (int64_t l = 0; l < n; l++) {
    const int32_t kind = ((const int32_t *)kinds)[l];
    if (kind != KIND_MLP && e->weight[l] == NULL)
      WM_TRY(wm_fail(err, WM_INPUT, "%s: layer %" PRId64 " has no surrogate", wm_h5_path(e->state),
                     l));
    e->linear[l] = kind == KIND_LINEAR;
    if (kind == KIND_GATED) {
      WM_TRY(take_gated(e, l, err));
      WM_TRY(read_gate(e, l, err));
    }
  }
cleanup:
  free(kinds);
  return status;
}

/* Collective. */
static wm_status_t hash_attribute(wm_export_t *e, const char *name, wm_error_t *err) {
  char *text = NULL;
  wm_status_t status = wm_h5_get_string(e->state, "/", name, &text, err);
  if (status == WM_OK)
    e->key = wm_hash(text, strlen(text), e->key);
  free(text);
  return status;
}

/* Collective. */
static wm_status_t open_state(wm_export_t *e, const char *path, wm_error_t *err) {
  int64_t steps;
  wm_status_t status;
  WM_TRY(must_exist(e, path, "export.state", err));
  WM_TRY(wm_h5_open(e->run->comm->world, path, &e->state, err));
  WM_TRY(wm_h5_verify(e->state, err));
  if (!wm_h5_has_attribute(e->state, "/", "config_json"))
    WM_TRY(wm_fail(err, WM_INPUT,
                   "%s: is no model; export.state must be a finetune.model.h5 or a checkpoint of "
                   "the job finetune",
                   path));
  WM_TRY(check_config(e, err));
  WM_TRY(hash_attribute(e, "run_key", err));
  WM_TRY(hash_attribute(e, "state", err));
  WM_TRY(hash_attribute(e, "end", err));
  WM_TRY(wm_h5_get_int(e->state, "/", "steps", &steps, err));
  e->key = wm_hash(&steps, sizeof steps, e->key);
  WM_TRY(read_surrogates(e, err));
  WM_TRY(read_kinds(e, err));
cleanup:
  return status;
}

wm_status_t wm_export_read(void *context, const char *name, int n_dims, const int64_t *shape,
                           int64_t first, int64_t rows, float *out, wm_error_t *err) {
  const wm_export_t *e = context;
  const int64_t width = n_dims > 1 ? shape[1] : 1;
  const int64_t offset[2] = {first, 0};
  const int64_t count[2] = {e->run->comm->rank == 0 ? rows : 0, width};
  int64_t dims[2] = {0, 0};
  char path[160];
  wm_status_t status;
  snprintf(path, sizeof path, "/weights/%s", name);
  WM_TRY(wm_h5_dims(e->state, path, n_dims, dims, err));
  if (dims[0] != shape[0] || (n_dims > 1 && dims[1] != shape[1]))
    WM_TRY(
        wm_fail(err, WM_INPUT, "%s: %s is not of the model's shape", wm_h5_path(e->state), path));
  WM_TRY(wm_h5_read(e->state, path, H5T_NATIVE_FLOAT, offset, count, out, err));
cleanup:
  return status;
}

/* --- surrogates.h5, gates.h5 --------------------------------------------------------------------
 */

/* Collective. Are the surrogates of this model? Of a trained one nobody can tell. */
static wm_status_t check_surrogates(const wm_export_t *e, const char *path, wm_error_t *err) {
  char *of = NULL, own[WM_HASH_TEXT];
  wm_h5_t *file = NULL;
  wm_status_t status = WM_OK;
  if (e->model == NULL)
    return WM_OK;
  WM_TRY(wm_h5_open(e->run->comm->world, path, &file, err));
  WM_TRY(wm_h5_get_string(file, "/", "model_fingerprint", &of, err));
  wm_hash_text(wm_model_fingerprint(e->model), own);
  if (strcmp(of, own) != 0)
    status =
        wm_fail(err, WM_INPUT, "%s: its surrogates are of another model than %s", path, e->config);
cleanup:
  free(of);
  wm_h5_close(file);
  return status;
}

/* Collective. export.layers. */
static wm_status_t open_surrogates(wm_export_t *e, wm_error_t *err) {
  const wm_run_t *run = e->run;
  int64_t count;
  const int64_t *layers = wm_config_ints(run->config, "export.layers", &count);
  const char *given = setting(e, "export.surrogates");
  char path[WM_PATH_SIZE];
  wm_status_t status = WM_OK;
  if (count == 0)
    return WM_OK;
  if (given[0] == '\0')
    WM_TRY(wm_output_path(run, "surrogates.h5", path, err));
  else
    snprintf(path, sizeof path, "%s", given);
  WM_TRY(must_exist(e, path, "export.surrogates", err));
  WM_TRY(check_surrogates(e, path, err));
  WM_TRY(wm_surrogates_open(run->comm, path, e->arch.n_layers, e->arch.d_model,
                            wm_config_int(run->config, "compute.tile_rows"), WM_COMPUTE_F32,
                            &e->of_file, err));
  for (int64_t i = 0; i < count; i++) {
    if (layers[i] >= e->arch.n_layers)
      WM_TRY(wm_fail(err, WM_USAGE,
                     "export.layers: %" PRId64 " is not a layer: the model has %" PRId64, layers[i],
                     e->arch.n_layers));
    if (!wm_surrogates_has(e->of_file, layers[i]))
      WM_TRY(wm_fail(err, WM_INPUT, "%s: has no surrogate of layer %" PRId64, path, layers[i]));
    use(e, e->of_file, layers[i]);
    e->linear[layers[i]] = true;
  }
  const uint64_t print = wm_surrogates_fingerprint(e->of_file);
  e->key = wm_hash(&print, sizeof print, e->key);
cleanup:
  return status;
}

/* Collective. */
static wm_status_t open_gates(wm_export_t *e, wm_error_t *err) {
  const char *path = setting(e, "export.gates");
  wm_status_t status = WM_OK;
  if (path[0] == '\0')
    return WM_OK;
  WM_TRY(must_exist(e, path, "export.gates", err));
  WM_TRY(wm_gates_open(e->run->comm, path, e->arch.n_layers, e->arch.d_model, &e->gates, err));
  const uint64_t print = wm_gates_fingerprint(e->gates);
  e->key = wm_hash(&print, sizeof print, e->key);
cleanup:
  return status;
}

wm_status_t wm_export_open(const wm_run_t *run, wm_export_t *e, wm_error_t *err) {
  *e = (wm_export_t){.run = run, .config = wm_config_string(run->config, "model.path")};
  const char *state = setting(e, "export.state");
  wm_status_t status;
  WM_TRY(read_arch(e, err));
  if (state[0] != '\0') {
    WM_TRY(open_state(e, state, err));
  } else {
    WM_TRY(wm_inputs_open_f32(run, &e->model, err));
    e->key = wm_model_fingerprint(e->model);
    wm_broadcast(run->comm->world, 0, &e->key, sizeof e->key);
  }
  WM_TRY(open_surrogates(e, err));
  WM_TRY(open_gates(e, err));
  for (int64_t l = 0; l < e->arch.n_layers; l++)
    e->n_linear += e->linear[l];
  if (e->n_linear > 0)
    WM_TRY(wm_save_can_be_linear(&e->arch, err));
  e->key = wm_hash(e->linear, (size_t)e->arch.n_layers * sizeof *e->linear, e->key);
cleanup:
  return status;
}

void wm_export_close(wm_export_t *e) {
  for (int64_t i = 0; i < e->n_trained; i++)
    free(e->trained[i].values);
  free(e->trained);
  wm_gates_free(e->gates);
  wm_surrogates_close(e->of_state);
  wm_surrogates_close(e->of_file);
  wm_h5_close(e->state);
  wm_model_close(e->model);
  free(e->linear);
  free(e->weight);
  free(e->bias);
}
