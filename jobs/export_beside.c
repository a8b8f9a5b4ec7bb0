/* export: surrogates and gates as plain safetensors (results/README.md, export/). */
#include "export.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/io/safetensors_write.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum { NAME = 96, PER_GATE = 5, PER_LAYER = 4 };

/* Tensors of a file, in memory. */
typedef struct {
  wm_tensor_t *tensors;
  char (*names)[NAME];
  int64_t n, room;
} list_t;

static wm_status_t open_list(list_t *l, int64_t room, wm_error_t *err) {
  void *memory;
  wm_status_t status;
  *l = (list_t){.room = room};
  WM_TRY(wm_alloc(&memory, room, sizeof *l->tensors, "list of tensors", err));
  l->tensors = memory;
  WM_TRY(wm_alloc(&memory, room, sizeof *l->names, "list of tensors", err));
  l->names = memory;
cleanup:
  return status;
}

static void close_list(list_t *l) {
  free(l->tensors);
  free(l->names);
}

/* A matrix [n0, n1], or a vector [n0] (n1 = 0). `data` is borrowed. */
__attribute__((format(printf, 6, 7))) static void
add(list_t *l, wm_dtype_t dtype, int64_t n0, int64_t n1, const void *data, const char *name, ...) {
  va_list args;
  va_start(args, name);
  vsnprintf(l->names[l->n], NAME, name, args);
  va_end(args);
  l->tensors[l->n] = (wm_tensor_t){.name = l->names[l->n],
                                   .dtype = dtype,
                                   .n_dims = n1 > 0 ? 2 : 1,
                                   .shape = {n0, n1},
                                   .elements = n0 * (n1 > 0 ? n1 : 1),
                                   .data = data};
  l->n++;
}

static wm_status_t write_list(const wm_export_t *e, const list_t *l, const char *name,
                              wm_error_t *err) {
  wm_st_writer_t *writer = NULL;
  wm_status_t status = WM_OK;
  if (l->n == 0)
    return WM_OK;
  char *path = wm_format("%s/%s", e->partial, name);
  if (path == NULL)
    return wm_fail(err, WM_ENVIRONMENT, "no memory for a file name");
  status = wm_st_create(path, l->tensors, l->n, &writer, err);
  for (int64_t i = 0; i < l->n && status == WM_OK; i++)
    status = wm_st_append(writer, l->tensors[i].data,
                          l->tensors[i].elements * wm_dtype_size(l->tensors[i].dtype), err);
  if (status == WM_OK)
    status = wm_st_publish(writer, err);
  else
    wm_st_discard(writer);
  free(path);
  return status;
}

static wm_status_t write_surrogates(const wm_export_t *e, wm_error_t *err) {
  const int64_t d = e->arch.d_model;
  list_t l;
  wm_status_t status = open_list(&l, 2 * e->arch.n_layers, err);
  for (int64_t i = 0; i < e->arch.n_layers && status == WM_OK; i++)
    if (e->weight[i] != NULL) {
      add(&l, WM_DTYPE_F32, d, d, e->weight[i], "surrogate.%" PRId64 ".weight", i);
      add(&l, WM_DTYPE_F32, d, 0, e->bias[i], "surrogate.%" PRId64 ".bias", i);
    }
  if (status == WM_OK)
    status = write_list(e, &l, "surrogates.safetensors", err);
  close_list(&l);
  return status;
}

/* A gate that was trained with the model. */
static void add_trained(list_t *l, const wm_export_gate_t *g, int64_t d) {
  const float *w1 = g->values, *b1 = w1 + g->hidden * d, *w2 = b1 + g->hidden, *b2 = w2 + g->hidden;
  add(l, WM_DTYPE_F32, g->hidden, d, w1, "trained.%" PRId64 ".w1", g->layer);
  add(l, WM_DTYPE_F32, g->hidden, 0, b1, "trained.%" PRId64 ".b1", g->layer);
  add(l, WM_DTYPE_F32, 1, g->hidden, w2, "trained.%" PRId64 ".w2", g->layer);
  add(l, WM_DTYPE_F32, 1, 0, b2, "trained.%" PRId64 ".b2", g->layer);
}

/* Gate number `index` of gates.h5: score = weight . x + bias, or scale f(x) + bias. */
static void add_fitted(list_t *l, const wm_gate_t *g, int64_t index, int64_t d) {
  char label[32], stem[72];
  wm_gate_label(g, label, sizeof label);
  snprintf(stem, sizeof stem, "gate.%" PRId64 ".%" PRId64 ".%s", g->layer, index, label);
  add(l, WM_DTYPE_F64, 1, 0, &g->threshold, "%s.threshold", stem);
  if (wm_gate_has_score(g->kind))
    add(l, WM_DTYPE_F64, 1, 0, &g->bias, "%s.bias", stem);
  if (wm_gate_has_weight(g->kind))
    add(l, WM_DTYPE_F64, d, 0, g->weight, "%s.weight", stem);
  else if (wm_gate_has_score(g->kind))
    add(l, WM_DTYPE_F64, 1, 0, &g->scale, "%s.scale", stem);
}

static wm_status_t write_gates(const wm_export_t *e, wm_error_t *err) {
  const wm_gates_t *g = e->gates;
  const int64_t fitted = g != NULL ? g->n : 0, described = g != NULL ? g->n_described : 0;
  list_t l;
  wm_status_t status =
      open_list(&l, PER_LAYER * e->n_trained + PER_GATE * fitted + PER_LAYER * described, err);
  if (status == WM_OK) {
    for (int64_t i = 0; i < e->n_trained; i++)
      add_trained(&l, &e->trained[i], e->arch.d_model);
    for (int64_t i = 0; i < fitted; i++)
      add_fitted(&l, &g->gates[i], i, e->arch.d_model);
    for (int64_t i = 0; i < described; i++) {
      const wm_gate_layer_t *of = &g->layers[i];
      add(&l, WM_DTYPE_I64, 1, 0, &of->selected, "selected.%" PRId64 ".gate", of->layer);
      add(&l, WM_DTYPE_F64, 1, 0, &of->selected_threshold, "selected.%" PRId64 ".threshold",
          of->layer);
    }
    status = write_list(e, &l, "gates.safetensors", err);
  }
  close_list(&l);
  return status;
}

wm_status_t wm_export_beside(const wm_export_t *e, wm_error_t *err) {
  wm_status_t status = write_surrogates(e, err);
  return status == WM_OK ? write_gates(e, err) : status;
}
