#include "wanamaker/model/save.h"

#include "family.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/progress.h"
#include "wanamaker/io/safetensors_write.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PIECE = 1 << 20 };

/* What rank 0 writes, and every rank needs to follow. */
typedef struct {
  const wm_comm_t *comm;
  const wm_save_t *save;
  const wm_model_t *model; /* declared, without weights: names and shapes */
  const char *path;
  wm_tensor_t *tensors;         /* [wants] of the file */
  char (*names)[WM_FILED_NAME]; /* [wants] */
  float *piece;                 /* rows of at most PIECE elements, or one row; rank 0 */
  wm_st_writer_t *writer;
  wm_progress_t progress;
  int64_t written; /* elements */
} job_t;

/* Which part of a layer's MLP a tensor is. */
typedef enum { PART_OTHER, PART_UP, PART_UP_BIAS, PART_DOWN, PART_DOWN_BIAS } part_t;

wm_status_t wm_save_can_be_linear(const wm_arch_t *arch, wm_error_t *err) {
  switch (arch->activation) {
  case WM_ACT_GELU:
  case WM_ACT_GELU_TANH:
  case WM_ACT_QUICK_GELU:
  case WM_ACT_RELU:
  case WM_ACT_SILU:
    break;
  default:
    return wm_fail(err, WM_INPUT,
                   "a linear layer can't be written as an MLP of this model: its activation does "
                   "not satisfy act(t) - act(-t) = t, as gelu, quick_gelu, relu and silu do");
  }
  if (arch->d_mlp < 2 * arch->d_model)
    return wm_fail(err, WM_INPUT,
                   "a linear layer can't be written as an MLP of this model: that needs a hidden "
                   "width of 2 x %lld, but it has %lld",
                   (long long)arch->d_model, (long long)arch->d_mlp);
  return WM_OK;
}

static int64_t width_of(const wm_want_t *want) {
  return want->n_dims > 1 ? want->shape[1] : 1;
}

static part_t part_of(const wm_model_t *m, const wm_want_t *want, int64_t *layer) {
  for (int64_t l = 0; l < m->arch.n_layers; l++) {
    const wm_layer_t *of = &m->layers[l];
    *layer = l;
    if (want->matrix != NULL && want->matrix == &of->up.weight)
      return PART_UP;
    if (want->matrix != NULL && want->matrix == &of->down.weight)
      return PART_DOWN;
    if (want->slot != NULL && want->slot == &of->up.bias)
      return PART_UP_BIAS;
    if (want->slot != NULL && want->slot == &of->down.bias)
      return PART_DOWN_BIAS;
  }
  return PART_OTHER;
}

/* First matrix between input i and hidden unit k. */
static float up_value(int64_t d, int64_t i, int64_t k) {
  return k == i ? 1.0F : k == d + i ? -1.0F : 0.0F;
}

/* Second matrix between hidden unit k and output o. */
static float down_value(const float *w, int64_t d, int64_t k, int64_t o) {
  if (k >= 2 * d)
    return 0.0F;
  return k < d ? w[k * d + o] : -w[(k - d) * d + o];
}

/* Rows of a tensor of a linear layer's MLP. */
static void fill_linear(const job_t *j, const wm_want_t *want, part_t part, int64_t layer,
                        int64_t first, int64_t rows, float *out) {
  const int64_t d = j->model->arch.d_model, width = width_of(want);
  const float *w = j->save->weight[layer], *b = j->save->bias[layer];
  const bool in_rows =
      (part == PART_UP || part == PART_DOWN) && want->matrix->layout == WM_WEIGHT_IN_OUT;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < width; c++) {
      const int64_t in = in_rows ? first + r : c, to = in_rows ? c : first + r;
      float value = 0;
      if (part == PART_UP)
        value = up_value(d, in, to);
      else if (part == PART_DOWN)
        value = down_value(w, d, in, to);
      else if (part == PART_DOWN_BIAS)
        value = b[first + r];
      out[r * width + c] = value;
    }
}

/* Collective. Rows of tensor `index` into j->piece on rank 0. */
static wm_status_t fetch(job_t *j, int64_t index, int64_t first, int64_t rows, wm_error_t *err) {
  const wm_want_t *want = &j->model->weights.wants[index];
  const int64_t width = width_of(want);
  int64_t layer;
  const part_t part = part_of(j->model, want, &layer);
  if (part != PART_OTHER && j->save->linear[layer]) {
    if (j->comm->rank == 0)
      fill_linear(j, want, part, layer, first, rows, j->piece);
    return WM_OK;
  }
  if (j->save->model == NULL)
    return j->save->read(j->save->context, want->name, want->n_dims, want->shape, first, rows,
                         j->piece, err);
  if (j->comm->rank == 0) { /* the same family declares the same tensors in the same order */
    const wm_tensor_t *from = j->save->model->weights.wants[index].tensor;
    wm_to_f32(from->dtype, (const char *)from->data + first * width * wm_dtype_size(from->dtype),
              rows * width, j->piece);
  }
  return WM_OK;
}

/* On rank 0. */
static wm_status_t append(job_t *j, const char *name, int64_t elements, wm_error_t *err) {
  if (wm_stop_requested())
    return wm_fail(err, WM_STOPPED, "%s: stopped on request; nothing is written", j->path);
  for (int64_t i = 0; i < elements; i++)
    if (!isfinite(j->piece[i]))
      return wm_fail(err, WM_INPUT, "tensor \"%s\" has a value that is not finite", name);
  wm_status_t status = wm_st_append(j->writer, j->piece, elements * (int64_t)sizeof *j->piece, err);
  j->written += elements;
  wm_progress_update(&j->progress, j->written);
  return status;
}

/* Collective. */
static wm_status_t write_tensor(job_t *j, int64_t index, wm_error_t *err) {
  const wm_want_t *want = &j->model->weights.wants[index];
  const int64_t width = width_of(want), most = width < PIECE ? PIECE / width : 1;
  wm_status_t status = WM_OK;
  for (int64_t first = 0; first < want->shape[0] && status == WM_OK; first += most) {
    const int64_t rows = want->shape[0] - first < most ? want->shape[0] - first : most;
    status = fetch(j, index, first, rows, err);
    if (status == WM_OK && j->comm->rank == 0)
      status = append(j, want->name, rows * width, err);
    status = wm_agree(j->comm->world, status, err);
  }
  if (j->save->model != NULL)
    wm_tensor_release(j->save->model->weights.wants[index].tensor);
  return status;
}

/* Not collective. Names, shapes and memory. */
static wm_status_t prepare(job_t *j, int64_t *elements, wm_error_t *err) {
  const wm_weights_t *w = &j->model->weights;
  const wm_weights_rules_t *rules = &j->model->family->rules;
  int64_t most = PIECE;
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, w->count, sizeof *j->tensors, "list of tensors", err));
  j->tensors = memory;
  WM_TRY(wm_alloc(&memory, w->count, sizeof *j->names, "list of tensors", err));
  j->names = memory;
  *elements = 0;
  for (int64_t i = 0; i < w->count; i++) {
    const wm_want_t *want = &w->wants[i];
    wm_weights_filed_name(rules, want, j->names[i]);
    j->tensors[i] = (wm_tensor_t){.name = j->names[i],
                                  .dtype = WM_DTYPE_F32,
                                  .n_dims = want->n_dims,
                                  .shape = {want->shape[0], want->shape[1]}};
    most = width_of(want) > most ? width_of(want) : most;
    *elements += want->shape[0] * width_of(want);
  }
  if (j->comm->rank == 0) {
    WM_TRY(wm_alloc(&memory, most, sizeof *j->piece, "a piece of weights", err));
    j->piece = memory;
  }
cleanup:
  return status;
}

/* Collective. */
static wm_status_t write_all(job_t *j, const wm_log_t *log, wm_error_t *err) {
  int64_t elements = 0;
  wm_status_t status = prepare(j, &elements, err);
  if (status == WM_OK && j->comm->rank == 0)
    status = wm_st_create(j->path, j->tensors, j->model->weights.count, &j->writer, err);
  WM_TRY(wm_agree(j->comm->world, status, err));
  wm_progress_start(&j->progress, log, "weights", "elements", elements);
  for (int64_t i = 0; i < j->model->weights.count; i++)
    WM_TRY(write_tensor(j, i, err));
  wm_progress_finish(&j->progress);
  if (j->comm->rank == 0) {
    status = wm_st_publish(j->writer, err);
    j->writer = NULL;
  }
  status = wm_agree(j->comm->world, status, err);
cleanup:
  wm_st_discard(j->writer);
  return status;
}

wm_status_t wm_model_save(const wm_comm_t *comm, const wm_save_t *save, const char *path,
                          const wm_log_t *log, wm_error_t *err) {
  const uint64_t seed = 0; /* declared as if to be drawn: no file is opened */
  void *memory;
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_model_t), "model", err);
  status = wm_agree(comm->world, status, err);
  if (status != WM_OK) {
    free(memory);
    return status;
  }
  wm_model_t *model = memory;
  model->comm = comm;
  job_t j = {.comm = comm, .save = save, .model = model, .path = path};
  status = wm_model_declare(model, save->config, &seed, err);
  if (status == WM_OK)
    status = write_all(&j, log, err);
  free(j.tensors);
  free(j.names);
  free(j.piece);
  wm_model_close(model);
  return status;
}
