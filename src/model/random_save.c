/* A random model as files: safetensors, an index where there are several, config.json. */
#include "family.h"
#include "random.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/progress.h"
#include "wanamaker/io/files.h"
#include "wanamaker/io/safetensors_write.h"

#include <jansson.h>
#include <stdio.h>

enum { PIECE = 1 << 20, CONFIG_LIMIT = 1 << 20 };

/* Everything that a rank needs to write its shards. */
typedef struct {
  const wm_model_t *model; /* declared, without weights */
  wm_dtype_t dtype;
  int64_t shards;
  const char *dir;
  wm_tensor_t *tensors; /* [wants] */
  char (*names)[WM_FILED_NAME];
  float *drawn;    /* [PIECE] */
  void *converted; /* [PIECE] of dtype */
  wm_progress_t progress;
  int64_t written; /* bytes, by this rank */
} save_t;

static char *shard_name(const save_t *s, int64_t shard) {
  return s->shards == 1 ? wm_format("model.safetensors")
                        : wm_format("model-%05lld-of-%05lld.safetensors", (long long)shard + 1,
                                    (long long)s->shards);
}

static wm_status_t write_tensor(save_t *s, int64_t index, wm_st_writer_t *writer, wm_error_t *err) {
  wm_status_t status = WM_OK;
  int64_t elements = s->tensors[index].elements;
  for (int64_t first = 0; first < elements && status == WM_OK; first += PIECE) {
    int64_t n = elements - first < PIECE ? elements - first : PIECE;
    if (wm_stop_requested())
      return wm_fail(err, WM_STOPPED, "%s: stopped on request; the model is not whole", s->dir);
    wm_random_fill(&s->model->weights.random, &s->model->weights.wants[index], first, n, s->drawn);
    wm_from_f32(s->dtype, s->drawn, n, s->converted);
    status = wm_st_append(writer, s->converted, n * wm_dtype_size(s->dtype), err);
    s->written += n * wm_dtype_size(s->dtype);
    wm_progress_update(&s->progress, s->written);
  }
  return status;
}

/* Bytes that this rank is to write. */
static int64_t share_of(const save_t *s, const wm_comm_t *comm) {
  int64_t bytes = 0;
  for (int64_t shard = comm->rank; shard < s->shards; shard += comm->size) {
    int64_t first, n;
    wm_partition(s->model->weights.count, s->shards, shard, &first, &n);
    for (int64_t i = first; i < first + n; i++)
      bytes += s->tensors[i].elements * wm_dtype_size(s->dtype);
  }
  return bytes;
}

static wm_status_t write_shard(save_t *s, int64_t shard, wm_error_t *err) {
  int64_t first, n;
  wm_partition(s->model->weights.count, s->shards, shard, &first, &n);
  char *name = shard_name(s, shard), *path = wm_format("%s/%s", s->dir, name);
  wm_st_writer_t *writer = NULL;
  wm_status_t status = WM_OK;
  if (name == NULL || path == NULL)
    status = wm_fail(err, WM_ENVIRONMENT, "no memory for a file name");
  if (status == WM_OK)
    status = wm_st_create(path, s->tensors + first, n, &writer, err);
  for (int64_t i = first; i < first + n && status == WM_OK; i++)
    status = write_tensor(s, i, writer, err);
  if (status == WM_OK)
    status = wm_st_publish(writer, err);
  else
    wm_st_discard(writer);
  free(name);
  free(path);
  return status;
}

static wm_status_t write_text(const char *dir, const char *name, const char *text,
                              wm_error_t *err) {
  char *path = wm_format("%s/%s", dir, name);
  wm_status_t status = path != NULL ? wm_write_text(path, text, err)
                                    : wm_fail(err, WM_ENVIRONMENT, "no memory for a file name");
  free(path);
  return status;
}

/* {"metadata": {"total_size": ...}, "weight_map": {tensor: file}} */
static wm_status_t write_index(const save_t *s, wm_error_t *err) {
  json_t *map = json_object();
  json_int_t total = 0;
  for (int64_t shard = 0; shard < s->shards; shard++) {
    int64_t first, n;
    wm_partition(s->model->weights.count, s->shards, shard, &first, &n);
    char *name = shard_name(s, shard);
    for (int64_t i = first; i < first + n; i++) {
      json_object_set_new(map, s->tensors[i].name, json_string(name));
      total += s->tensors[i].elements * wm_dtype_size(s->dtype);
    }
    free(name);
  }
  json_t *index = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", total, "weight_map", map);
  char *text = index != NULL ? json_dumps(index, JSON_INDENT(2)) : NULL;
  wm_status_t status = text == NULL
                           ? wm_fail(err, WM_ENVIRONMENT, "no memory for an index of weights")
                           : write_text(s->dir, "model.safetensors.index.json", text, err);
  free(text);
  json_decref(index);
  return status;
}

/* Last: a directory without it is no model. */
static wm_status_t write_config(const save_t *s, const char *config, wm_error_t *err) {
  char *text = NULL, *path = wm_arch_path(config);
  wm_status_t status = path != NULL ? wm_read_text(path, CONFIG_LIMIT, &text, err)
                                    : wm_fail(err, WM_ENVIRONMENT, "no memory for a file name");
  if (status == WM_OK)
    status = write_text(s->dir, "config.json", text, err);
  free(text);
  free(path);
  return status;
}

static wm_status_t check_target(const save_t *s, wm_error_t *err) {
  char *path = wm_format("%s/config.json", s->dir);
  wm_status_t status = wm_directory_ready(s->dir, err);
  if (status == WM_OK && path != NULL && wm_file_exists(path))
    status = wm_fail(err, WM_USAGE, "%s already holds a model", s->dir);
  if (status == WM_OK && s->shards > s->model->weights.count)
    status = wm_fail(err, WM_USAGE, "%lld files for %lld tensors", (long long)s->shards,
                     (long long)s->model->weights.count);
  free(path);
  return status;
}

static wm_status_t prepare(save_t *s, wm_error_t *err) {
  const wm_weights_t *w = &s->model->weights;
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, w->count, sizeof(wm_tensor_t), "list of tensors", err));
  s->tensors = memory;
  WM_TRY(wm_alloc(&memory, w->count, sizeof *s->names, "names of tensors", err));
  s->names = memory;
  WM_TRY(wm_alloc(&memory, PIECE, sizeof(float), "a piece of weights", err));
  s->drawn = memory;
  WM_TRY(wm_alloc(&s->converted, PIECE, sizeof(float), "a piece of weights", err));
  for (int64_t i = 0; i < w->count; i++) {
    s->tensors[i] = wm_random_tensor(&w->wants[i]);
    s->tensors[i].dtype = s->dtype;
    wm_weights_filed_name(&s->model->family->rules, &w->wants[i], s->names[i]);
    s->tensors[i].name = s->names[i];
  }
cleanup:
  return status;
}

wm_status_t wm_model_save_random(const wm_comm_t *comm, const char *config, uint64_t seed,
                                 wm_dtype_t dtype, int64_t shards, const char *dir,
                                 const wm_log_t *log, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_model_t), "model", err);
  status = wm_agree(comm->world, status, err);
  if (status != WM_OK) {
    free(memory);
    return status;
  }
  wm_model_t *model = memory;
  model->comm = comm;
  save_t s = {.model = model, .dtype = dtype, .shards = shards, .dir = dir};
  WM_TRY(wm_model_declare(model, config, &seed, err));
  status = prepare(&s, err);
  if (status == WM_OK && comm->rank == 0)
    status = check_target(&s, err);
  WM_TRY(wm_agree(comm->world, status, err));
  wm_progress_start(&s.progress, log, "weights of rank 0", "bytes", share_of(&s, comm));
  for (int64_t shard = comm->rank; shard < shards && status == WM_OK; shard += comm->size)
    status = write_shard(&s, shard, err);
  if (status == WM_OK)
    wm_progress_finish(&s.progress);
  WM_TRY(wm_agree(comm->world, status, err));
  if (comm->rank == 0 && shards > 1)
    status = write_index(&s, err);
  if (comm->rank == 0 && status == WM_OK)
    status = write_config(&s, config, err);
  WM_TRY(wm_agree(comm->world, status, err));
cleanup:
  free(s.tensors);
  free(s.names);
  free(s.drawn);
  free(s.converted);
  wm_model_close(model);
  return status;
}
