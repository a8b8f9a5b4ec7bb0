#include "wanamaker/train/state.h"

#include "wanamaker/base/control.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PATH_SIZE = 160 };

/* "gate.3.w1" -> /gates/3/w1 */
static void path_of(const wm_parameter_t *p, char path[PATH_SIZE]) {
  if (p->group == WM_GROUP_GATES)
    snprintf(path, PATH_SIZE, "/gates/%" PRId64 "/%s", p->layer, strrchr(p->name, '.') + 1);
  else
    snprintf(path, PATH_SIZE, "/weights/%s", p->name);
}

static bool is_wanted(const wm_parameter_t *p, bool gates) {
  return gates ? p->group == WM_GROUP_GATES : p->group < WM_GROUP_GATES;
}

/* Rows of a tensor that part `index` of `parts` writes or reads. */
static void rows_of(const wm_parameter_t *p, int parts, int index, int64_t offset[2],
                    int64_t count[2], float **value) {
  int64_t width = p->n_dims > 1 ? p->shape[1] : 1;
  wm_partition(p->shape[0], parts, index, &offset[0], &count[0]);
  offset[1] = 0;
  count[1] = width;
  *value = p->value + offset[0] * width;
}

wm_status_t wm_state_save(const wm_comm_t *comm, const wm_training_t *training, bool gates,
                          wm_h5_t *file, wm_error_t *err) {
  int64_t n;
  const wm_parameter_t *p = wm_training_parameters(training, &n);
  wm_status_t status = WM_OK;
  for (int64_t i = 0; i < n && status == WM_OK; i++) {
    char path[PATH_SIZE];
    if (is_wanted(&p[i], gates)) {
      path_of(&p[i], path);
      status = wm_h5_dataset(file, path, H5T_IEEE_F32LE, p[i].n_dims, p[i].shape,
                             gates ? "a gate's parameters" : "a tensor of the model", err);
    }
  }
  for (int64_t i = 0; i < n && status == WM_OK; i++) {
    char path[PATH_SIZE];
    int64_t offset[2], count[2];
    float *value;
    if (!is_wanted(&p[i], gates))
      continue;
    path_of(&p[i], path);
    rows_of(&p[i], comm->size, comm->rank, offset, count, &value);
    status = wm_h5_write(file, path, H5T_NATIVE_FLOAT, offset, count, value, err);
    wm_pulse();
  }
  return status;
}

/* Collective. */
static wm_status_t check_shape(const wm_parameter_t *p, const char *path, wm_h5_t *file,
                               wm_error_t *err) {
  int64_t dims[2] = {0, 0};
  wm_status_t status = wm_h5_dims(file, path, p->n_dims, dims, err);
  if (status == WM_OK && (dims[0] != p->shape[0] || (p->n_dims > 1 && dims[1] != p->shape[1])))
    status = wm_fail(err, WM_INPUT, "%s: %s is not of the model's shape", wm_h5_path(file), path);
  return status;
}

wm_status_t wm_state_load(const wm_comm_t *comm, wm_training_t *training, bool gates, wm_h5_t *file,
                          wm_error_t *err) {
  int64_t n;
  const wm_parameter_t *p = wm_training_parameters(training, &n);
  wm_status_t status = WM_OK;
  for (int64_t i = 0; i < n; i++) {
    char path[PATH_SIZE];
    int64_t offset[2], count[2];
    float *value;
    if (!is_wanted(&p[i], gates))
      continue;
    path_of(&p[i], path);
    WM_TRY(check_shape(&p[i], path, file, err));
    rows_of(&p[i], comm->node_size, comm->node_rank, offset, count, &value);
    WM_TRY(wm_h5_read(file, path, H5T_NATIVE_FLOAT, offset, count, value, err));
    wm_pulse();
  }
cleanup:
  wm_training_sync(training);
  return status;
}
