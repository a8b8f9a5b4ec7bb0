#include "wanamaker/io/safetensors.h"

#include "safetensors_file.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/json.h"
#include "wanamaker/base/mem.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct wm_tensors {
  wm_st_file_t *files;
  int64_t n_files;
  wm_tensor_t *tensors; /* of all files, sorted by name */
  int64_t count;
};

static int by_name(const void *a, const void *b) {
  return strcmp(((const wm_tensor_t *)a)->name, ((const wm_tensor_t *)b)->name);
}

static int by_text(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Gathers the files' tensors, sorts them, and refuses a name that two files hold. */
static wm_status_t gather(wm_tensors_t *s, wm_error_t *err) {
  int64_t total = 0;
  for (int64_t i = 0; i < s->n_files; i++)
    total += s->files[i].count;
  void *memory;
  wm_status_t status = wm_alloc(&memory, total, sizeof(wm_tensor_t), "list of tensors", err);
  if (status != WM_OK)
    return status;
  s->tensors = memory;
  for (int64_t i = 0; i < s->n_files; i++) {
    if (s->files[i].count > 0)
      memcpy(s->tensors + s->count, s->files[i].tensors,
             (size_t)s->files[i].count * sizeof(wm_tensor_t));
    s->count += s->files[i].count;
  }
  qsort(s->tensors, (size_t)s->count, sizeof *s->tensors, by_name);
  for (int64_t i = 1; i < s->count; i++)
    if (strcmp(s->tensors[i - 1].name, s->tensors[i].name) == 0)
      return wm_fail(err, WM_INPUT, "%s: tensor \"%s\" is also in %s", s->tensors[i].file,
                     s->tensors[i].name, s->tensors[i - 1].file);
  return WM_OK;
}

/* Opens the files called names[count] in `dir`. */
static wm_status_t open_files(wm_tensors_t *s, const char *dir, const char *const *names,
                              int64_t count, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, count, sizeof(wm_st_file_t), "list of files", err);
  if (status != WM_OK)
    return status;
  s->files = memory;
  for (; s->n_files < count; s->n_files++) {
    char *path = wm_format("%s/%s", dir, names[s->n_files]);
    if (path == NULL)
      return wm_fail(err, WM_ENVIRONMENT, "%s: no memory for a file name", dir);
    status = wm_st_file_open(path, &s->files[s->n_files], err);
    free(path);
    if (status != WM_OK)
      return status;
  }
  return gather(s, err);
}

/* Checks the map's values and lists the different ones, sorted; they are borrowed from the map. */
static wm_status_t list_shards(const char *index, const json_t *map, const char **names,
                               int64_t *count, wm_error_t *err) {
  const char *key;
  json_t *value;
  int64_t n = 0;
  json_object_foreach((json_t *)map, key, value) {
    const char *shard = json_string_value(value);
    if (shard == NULL)
      return wm_fail(err, WM_INPUT, "%s: tensor \"%s\": the name of its file must be a string",
                     index, key);
    if (shard[0] == '\0' || strchr(shard, '/') != NULL)
      return wm_fail(err, WM_INPUT,
                     "%s: tensor \"%s\": \"%s\" must name a file in the same directory", index, key,
                     shard);
    names[n++] = shard;
  }
  qsort(names, (size_t)n, sizeof *names, by_text);
  *count = 0;
  for (int64_t i = 0; i < n; i++)
    if (i == 0 || strcmp(names[i], names[*count - 1]) != 0)
      names[(*count)++] = names[i];
  return WM_OK;
}

/* Every tensor of the map must be in the shard that the map names. */
static wm_status_t check_map(const wm_tensors_t *s, const char *index, const json_t *map,
                             wm_error_t *err) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)map, key, value) {
    const wm_tensor_t *t = wm_tensors_find(s, key);
    const char *shard = json_string_value(value);
    if (t == NULL)
      return wm_fail(err, WM_INPUT, "%s: tensor \"%s\" is not in %s", index, key, shard);
    if (strcmp(strrchr(t->file, '/') + 1, shard) != 0)
      return wm_fail(err, WM_INPUT, "%s: tensor \"%s\" is in %s, not in %s", index, key, t->file,
                     shard);
  }
  return WM_OK;
}

static wm_status_t open_index(wm_tensors_t *s, const char *dir, const char *index,
                              wm_error_t *err) {
  json_t *root = NULL;
  void *names = NULL;
  int64_t count = 0;
  wm_status_t status;
  WM_TRY(wm_json_load(index, &root, err));
  const json_t *map = json_object_get(root, "weight_map");
  if (!json_is_object(map) || json_object_size(map) == 0) {
    status = wm_fail(err, WM_INPUT,
                     "%s: \"weight_map\" must be an object that maps tensors to files", index);
    goto cleanup;
  }
  WM_TRY(wm_alloc(&names, (int64_t)json_object_size(map), sizeof(char *), index, err));
  WM_TRY(list_shards(index, map, names, &count, err));
  status = open_files(s, dir, names, count, err);
  if (status != WM_OK) {
    wm_error_prefix(err, "%s", index);
    goto cleanup;
  }
  WM_TRY(check_map(s, index, map, err));
cleanup:
  free(names);
  json_decref(root);
  return status;
}

static wm_status_t nothing_found(const char *dir, const char *pickle, wm_error_t *err) {
  if (wm_file_exists(pickle))
    return wm_fail(err, WM_INPUT,
                   "%s: holds pytorch_model.bin, but only safetensors are read: convert it to "
                   "model.safetensors",
                   dir);
  return wm_fail(err, WM_INPUT,
                 "%s: holds neither model.safetensors nor model.safetensors.index.json%s", dir,
                 wm_file_exists(dir) ? "" : " (there is no such directory)");
}

wm_status_t wm_tensors_open(const char *dir, wm_tensors_t **out, wm_error_t *err) {
  *out = NULL;
  char *single = wm_format("%s/model.safetensors", dir);
  char *index = wm_format("%s/model.safetensors.index.json", dir);
  char *pickle = wm_format("%s/pytorch_model.bin", dir);
  void *memory = NULL;
  wm_status_t status;
  if (single == NULL || index == NULL || pickle == NULL) {
    status = wm_fail(err, WM_ENVIRONMENT, "%s: no memory for a file name", dir);
    goto cleanup;
  }
  WM_TRY(wm_alloc(&memory, 1, sizeof(wm_tensors_t), "tensors", err));
  wm_tensors_t *s = memory;
  if (wm_file_exists(single))
    status = open_files(s, dir, (const char *const[]){"model.safetensors"}, 1, err);
  else if (wm_file_exists(index))
    status = open_index(s, dir, index, err);
  else
    status = nothing_found(dir, pickle, err);
cleanup:
  free(single);
  free(index);
  free(pickle);
  if (status == WM_OK)
    *out = memory;
  else
    wm_tensors_close(memory);
  return status;
}

void wm_tensors_close(wm_tensors_t *tensors) {
  if (tensors == NULL)
    return;
  for (int64_t i = 0; i < tensors->n_files; i++)
    wm_st_file_close(&tensors->files[i]);
  free(tensors->files);
  free(tensors->tensors);
  free(tensors);
}

wm_status_t wm_tensors_unchanged(const wm_tensors_t *tensors, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int64_t i = 0; status == WM_OK && i < tensors->n_files; i++)
    status = wm_map_unchanged(&tensors->files[i].map, err);
  return status;
}

int64_t wm_tensors_count(const wm_tensors_t *tensors) {
  return tensors->count;
}

const wm_tensor_t *wm_tensors_at(const wm_tensors_t *tensors, int64_t index) {
  assert(index >= 0 && index < tensors->count);
  return &tensors->tensors[index];
}

const wm_tensor_t *wm_tensors_find(const wm_tensors_t *tensors, const char *name) {
  wm_tensor_t key = {.name = name};
  return bsearch(&key, tensors->tensors, (size_t)tensors->count, sizeof key, by_name);
}

void wm_tensor_release(const wm_tensor_t *tensor) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)tensor->data;
  uintptr_t end = (begin + (uintptr_t)tensor->bytes) / page * page; /* whole pages of its own */
  begin = (begin + page - 1) / page * page;
  if (begin < end)
    madvise((void *)begin, end - begin, MADV_DONTNEED);
}

uint64_t wm_tensors_fingerprint(const wm_tensors_t *tensors) {
  uint64_t hash = 0;
  for (int64_t i = 0; i < tensors->count; i++) {
    const wm_tensor_t *t = &tensors->tensors[i];
    int64_t head[3] = {(int64_t)strlen(t->name), t->dtype, t->n_dims};
    hash = wm_hash(head, sizeof head, hash);
    hash = wm_hash(t->name, strlen(t->name), hash);
    hash = wm_hash(t->shape, (size_t)t->n_dims * sizeof t->shape[0], hash);
    hash = wm_hash(t->data, (size_t)t->bytes, hash);
  }
  return hash;
}
