/* export: a model as an ordinary checkpoint (method.md, section 9; results/README.md, export/).
 *
 * The directory is written as export.dir.partial and renamed when it is whole. One that is there
 * already is left alone: it is either of the same inputs, and nothing is to be done, or an error.
 */
#include "export.h"
#include "stages.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/io/files.h"
#include "wanamaker/model/save.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_LIMIT = 1 << 28, KEY_LIMIT = 1 << 20 };

/* What a tokenizer may consist of, as published on model hubs. */
static const char *const tokenizer_files[] = {
    "tokenizer.json",          "tokenizer_config.json", "vocab.json", "merges.txt",
    "special_tokens_map.json", "added_tokens.json",     NULL};
static const char *const own_files[] = {"model.safetensors", "surrogates.safetensors",
                                        "gates.safetensors", "config.json",
                                        "export.json",       NULL};

/* --- on rank 0: files ---------------------------------------------------------------------------
 */

/* Removes `dir`/NAME and what a killed run leaves of it. */
static void remove_files(const char *dir, const char *const *names) {
  for (; *names != NULL; names++)
    for (int i = 0; i < 2; i++) {
      char *path = wm_format("%s/%s%s", dir, *names, i == 0 ? "" : ".tmp");
      if (path != NULL)
        remove(path);
      free(path);
    }
}

static void remove_partial(const wm_export_t *e) {
  remove_files(e->partial, own_files);
  remove_files(e->partial, tokenizer_files);
  rmdir(e->partial);
}

/* Hashes the tokenizer's files into *key, or writes them into e->partial (key NULL). */
static wm_status_t take_tokenizer(const wm_export_t *e, uint64_t *key, wm_error_t *err) {
  const char *from = wm_tokenizer_dir(e->run);
  bool json = false, vocabulary = false, merges = false;
  wm_status_t status = WM_OK;
  for (const char *const *name = tokenizer_files; *name != NULL && status == WM_OK; name++) {
    char *path = wm_format("%s/%s", from, *name), *to = wm_format("%s/%s", e->partial, *name);
    char *text = NULL;
    if (path == NULL || to == NULL) {
      status = wm_fail(err, WM_ENVIRONMENT, "no memory for a file name");
    } else if (wm_file_exists(path)) {
      json |= strcmp(*name, "tokenizer.json") == 0;
      vocabulary |= strcmp(*name, "vocab.json") == 0;
      merges |= strcmp(*name, "merges.txt") == 0;
      status = wm_read_text(path, TEXT_LIMIT, &text, err);
      if (status == WM_OK && key != NULL)
        *key = wm_hash(text, strlen(text), *key);
      else if (status == WM_OK)
        status = wm_write_text(to, text, err);
    }
    free(path);
    free(to);
    free(text);
  }
  if (status == WM_OK && !json && !(vocabulary && merges))
    status = wm_fail(err, WM_INPUT,
                     "%s: holds neither tokenizer.json nor vocab.json and merges.txt; see "
                     "tokenizer.path",
                     from);
  return status;
}

/* The model's config.json; weights are float32 now. free(). */
static wm_status_t make_config(const wm_export_t *e, char **out, wm_error_t *err) {
  char *path = wm_arch_path(e->config), *text = NULL;
  wm_status_t status = path != NULL ? wm_read_text(path, KEY_LIMIT, &text, err)
                                    : wm_fail(err, WM_ENVIRONMENT, "no memory for a file name");
  *out = NULL;
  if (status == WM_OK) {
    json_t *config = json_loads(text, 0, NULL);
    const bool renamed = json_object_get(config, "dtype") != NULL; /* by later releases */
    json_object_set_new(config, renamed ? "dtype" : "torch_dtype", json_string("float32"));
    *out = json_dumps(config, JSON_INDENT(2));
    json_decref(config);
    if (*out == NULL)
      status = wm_fail(err, WM_ENVIRONMENT, "%s: no memory for its text", path);
  }
  free(path);
  free(text);
  return status;
}

/* What export.json says: which layers are linear, and where it all comes from. */
static wm_status_t make_record(const wm_export_t *e, char **out, wm_error_t *err) {
  char key[WM_HASH_TEXT];
  const wm_config_t *config = e->run->config;
  json_t *layers = json_array();
  for (int64_t l = 0; l < e->arch.n_layers; l++)
    if (e->linear[l])
      json_array_append_new(layers, json_integer(l));
  wm_hash_text(e->key, key);
  json_t *record =
      json_pack("{s:s, s:o, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "key", key, "linear_layers",
                layers, "model", e->config, "state", wm_config_string(config, "export.state"),
                "surrogates", wm_config_string(config, "export.surrogates"), "gates",
                wm_config_string(config, "export.gates"), "program", "wanamaker", "version",
                e->run->provenance.version, "commit", e->run->provenance.commit);
  *out = record != NULL ? json_dumps(record, JSON_INDENT(2)) : NULL;
  json_decref(record);
  return *out != NULL ? WM_OK
                      : wm_fail(err, WM_ENVIRONMENT,
                                "%s: cannot write its export.json: a path in "
                                "it is no UTF-8, or there is no memory",
                                e->partial);
}

static wm_status_t write_made(const wm_export_t *e, const char *name,
                              wm_status_t (*make)(const wm_export_t *e, char **out,
                                                  wm_error_t *err),
                              wm_error_t *err) {
  char *text = NULL, *path = wm_format("%s/%s", e->partial, name);
  wm_status_t status = path != NULL ? make(e, &text, err)
                                    : wm_fail(err, WM_ENVIRONMENT, "no memory for a file name");
  if (status == WM_OK)
    status = wm_write_text(path, text, err);
  free(text);
  free(path);
  return status;
}

/* Is export.dir of these inputs? *complete; anything else there is an error. */
static wm_status_t check_target(const wm_export_t *e, bool *complete, wm_error_t *err) {
  char key[WM_HASH_TEXT], *text = NULL, *path = wm_format("%s/export.json", e->dir);
  wm_error_t ignored = {0};
  wm_status_t status = WM_OK;
  *complete = false;
  wm_hash_text(e->key, key);
  if (path != NULL && wm_file_exists(path) &&
      wm_read_text(path, KEY_LIMIT, &text, &ignored) == WM_OK) {
    json_t *record = json_loads(text, 0, NULL);
    const char *found = json_string_value(json_object_get(record, "key"));
    *complete = found != NULL && strcmp(found, key) == 0;
    json_decref(record);
  }
  if (!*complete && access(e->dir, F_OK) == 0)
    status = wm_fail(err, WM_USAGE,
                     "%s: is there already, and is no export of these inputs; remove it, or name "
                     "another directory by export.dir",
                     e->dir);
  free(text);
  free(path);
  return status;
}

/* --- collective ---------------------------------------------------------------------------------
 */

static wm_status_t name_target(wm_export_t *e, wm_error_t *err) {
  const char *given = wm_config_string(e->run->config, "export.dir");
  enum { NAMES = 256 };
  size_t length = strlen(given);
  if (length == 0) {
    wm_status_t status = wm_output_path(e->run, "export", e->dir, err);
    return status == WM_OK ? wm_output_path(e->run, "export.partial", e->partial, err) : status;
  }
  while (length > 1 && given[length - 1] == '/')
    length--;
  if (length > WM_PATH_SIZE - NAMES)
    return wm_fail(err, WM_USAGE, "export.dir is too long: %zu bytes, at most %d", length,
                   WM_PATH_SIZE - NAMES);
  snprintf(e->dir, sizeof e->dir, "%.*s", (int)length, given);
  snprintf(e->partial, sizeof e->partial, "%.*s.partial", (int)length, given);
  return WM_OK;
}

/* Collective. e->partial, whole. */
static wm_status_t write_all(const wm_export_t *e, wm_error_t *err) {
  const wm_comm_t *comm = e->run->comm;
  const wm_save_t save = {.config = e->config,
                          .model = e->model,
                          .read = wm_export_read,
                          .context = (void *)e,
                          .linear = e->linear,
                          .weight = e->weight,
                          .bias = e->bias};
  char *path = wm_format("%s/model.safetensors", e->partial);
  wm_status_t status = path != NULL ? WM_OK : wm_fail(err, WM_ENVIRONMENT, "no memory for a path");
  if (status == WM_OK && comm->rank == 0) {
    remove_partial(e);
    status =
        access(e->partial, F_OK) == 0
            ? wm_fail(err, WM_USAGE,
                      "%s: is there already and holds what no export wrote; remove it, or name "
                      "another directory by export.dir",
                      e->partial)
            : wm_directory_ready(e->partial, err);
  }
  WM_TRY(wm_agree(comm->world, status, err));
  WM_TRY(wm_model_save(comm, &save, path, e->run->log, err));
  if (e->model != NULL)
    status = wm_model_unchanged(e->model, err);
  if (status == WM_OK && comm->rank == 0)
    status = wm_export_beside(e, err);
  if (status == WM_OK && comm->rank == 0)
    status = take_tokenizer(e, NULL, err);
  if (status == WM_OK && comm->rank == 0)
    status = write_made(e, "config.json", make_config, err);
  if (status == WM_OK && comm->rank == 0)
    status = write_made(e, "export.json", make_record, err);
  if (status == WM_OK && comm->rank == 0)
    status = wm_publish(e->partial, e->dir, err);
  status = wm_agree(comm->world, status, err);
cleanup:
  if (status != WM_OK && comm->rank == 0)
    remove_partial(e);
  free(path);
  return status;
}

/* On rank 0. */
static void tell_plan(const wm_export_t *e, bool complete) {
  const wm_arch_t *a = &e->arch;
  const double parameters = (double)a->n_layers * (4.0 * (double)a->d_model * (double)a->d_model +
                                                   2.0 * (double)a->d_model * (double)a->d_mlp) +
                            (a->tied_head ? 1.0 : 2.0) * (double)a->vocab_size * (double)a->d_model;
  const double bytes = 4 * parameters, rate = 200e6; /* bytes/s of a plain disk */
  double memory = 4.0 * (1 << 20);                   /* a piece of the weights, and surrogates */
  for (int64_t l = 0; l < a->n_layers; l++)
    if (e->weight[l] != NULL)
      memory += 4.0 * (double)a->d_model * (double)(a->d_model + 1);
  if (complete)
    fprintf(e->run->out, "export: %s is complete for these inputs; skipped\n", e->dir);
  else
    fprintf(
        e->run->out,
        "export: %s: %s of %" PRId64 " layers, %" PRId64 " of them linear\n"
        "export: about %.3f GiB on disk, %.0f s at 200 MB/s; memory: %.3f GiB beside the mapped "
        "source\n",
        e->dir, wm_family_name(a->family), a->n_layers, e->n_linear, bytes / 0x1p30, bytes / rate,
        memory / 0x1p30);
}

/* Collective. */
static wm_status_t export_model(wm_export_t *e, wm_error_t *err) {
  const wm_run_t *run = e->run;
  int complete = 0;
  wm_status_t status = WM_OK;
  if (run->comm->rank == 0)
    status = take_tokenizer(e, &e->key, err);
  if (status == WM_OK)
    status = name_target(e, err);
  if (status == WM_OK && run->comm->rank == 0) {
    bool there;
    status = check_target(e, &there, err);
    complete = there;
  }
  WM_TRY(wm_agree(run->comm->world, status, err));
  wm_broadcast(run->comm->world, 0, &complete, sizeof complete);
  if (run->dry_run) {
    if (run->comm->rank == 0)
      tell_plan(e, complete != 0);
    return WM_OK;
  }
  if (complete) {
    wm_log(run->log, WM_LOG_INFO, "export: %s is complete for these inputs; skipped", e->dir);
    return WM_OK;
  }
  WM_TRY(write_all(e, err));
  wm_log(run->log, WM_LOG_INFO, "export: wrote %s, %" PRId64 " of %" PRId64 " layers linear",
         e->dir, e->n_linear, e->arch.n_layers);
cleanup:
  return status;
}

wm_status_t wm_job_export(const wm_run_t *run, wm_error_t *err) {
  wm_export_t e = {.run = run};
  wm_status_t status = wm_output_ready(run, err);
  if (status != WM_OK)
    return status;
  status = wm_export_open(run, &e, err);
  if (status == WM_OK)
    status = export_model(&e, err);
  wm_export_close(&e);
  return status;
}
