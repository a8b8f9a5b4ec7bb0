/* gates.h5: a table of columns for gates, another for layers, and matrices. */
#include "wanamaker/base/mem.h"
#include "wanamaker/measure/gates.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* --- columns ------------------------------------------------------------------------------------
 */

typedef enum { COLUMN_INT, COLUMN_SEED, COLUMN_FLOAT, COLUMN_BOOL } column_type_t;

/* A member of wm_gate_t or wm_gate_layer_t as a dataset. */
typedef struct {
  const char *path;
  size_t offset;
  column_type_t type;
  const char *description;
} column_t;

#define GATE(path, member, type, description)                                                      \
  { "/gate/" path, offsetof(wm_gate_t, member), type, "[gate] " description }
#define LAYER(path, member, type, description)                                                     \
  { path, offsetof(wm_gate_layer_t, member), type, "[layer of /layers] " description }

static const column_t gate_columns[] = {
    GATE("layer", layer, COLUMN_INT, "its layer"),
    GATE("components", components, COLUMN_INT,
         "pca: number of principal components; component: which, from 1; else 0"),
    GATE("bias", bias, COLUMN_FLOAT, "score = weight . x + bias, or scale f(x) + bias"),
    GATE("scale", scale, COLUMN_FLOAT, "norm, max_abs, kurtosis: of f(x)"),
    GATE("fraction", fraction, COLUMN_FLOAT, "random: routed fraction"),
    GATE("seed", seed, COLUMN_SEED, "random: seed of its draws"),
    GATE("threshold", threshold, COLUMN_FLOAT, "default: surrogate where p_linear > threshold"),
    GATE("parameters", report.parameters, COLUMN_INT, "fitted numbers"),
    GATE("iterations", report.iterations, COLUMN_INT, "of Newton's method"),
    GATE("loss", report.loss, COLUMN_FLOAT, "mean log-loss on the fit's positions, nats"),
    GATE("auc", report.auc, COLUMN_FLOAT, "area under the ROC curve, fit's positions"),
    GATE("accuracy", report.accuracy, COLUMN_FLOAT,
         "part of right labels at the threshold, fit's positions"),
    GATE("routed", report.routed, COLUMN_FLOAT, "part routed at the threshold, fit's positions"),
    GATE("auc_heldout", report.auc_heldout, COLUMN_FLOAT, "AUC on held-out positions"),
    GATE("auc_low", report.auc_low, COLUMN_FLOAT, "lower end of the interval of auc_heldout"),
    GATE("auc_high", report.auc_high, COLUMN_FLOAT, "upper end of it"),
    GATE("accuracy_heldout", report.accuracy_heldout, COLUMN_FLOAT,
         "part of right labels on held-out positions"),
    GATE("routed_heldout", report.routed_heldout, COLUMN_FLOAT, "part routed of them"),
    GATE("r_delta", report.r_delta, COLUMN_FLOAT,
         "correlation of the score with delta on the fit's positions"),
    GATE("r_delta_heldout", report.r_delta_heldout, COLUMN_FLOAT, "and on held-out ones"),
};

static const column_t layer_columns[] = {
    LAYER("/layers", layer, COLUMN_INT, "the layer"),
    LAYER("/selected/gate", selected, COLUMN_INT, "number of the chosen gate, -1: none"),
    LAYER("/selected/threshold", selected_threshold, COLUMN_FLOAT, "threshold chosen with it"),
    LAYER("/labels/positions", positions, COLUMN_INT, "positions of the fit, with a finite delta"),
    LAYER("/labels/positions_heldout", positions_heldout, COLUMN_INT, "held-out positions"),
    LAYER("/labels/dropped", dropped, COLUMN_INT, "positions whose delta is not finite"),
    LAYER("/labels/dropped_heldout", dropped_heldout, COLUMN_INT, "the same, held out"),
    LAYER("/labels/threshold", label_threshold, COLUMN_FLOAT, "label 1 where delta <= it, nats"),
    LAYER("/labels/share", label_share, COLUMN_FLOAT, "part of the positions with label 1"),
    LAYER("/labels/better", better_share, COLUMN_FLOAT, "part of them with delta < 0"),
    LAYER("/labels/quartile", label_quartile, COLUMN_BOOL,
          "1: the threshold is the 25th percentile of delta, 0: its median"),
};

enum {
  GATE_COLUMNS = sizeof gate_columns / sizeof gate_columns[0],
  LAYER_COLUMNS = sizeof layer_columns / sizeof layer_columns[0],
  KIND_SIZE = 16,
  CELL = 8 /* bytes of an entry of any column */
};

static hid_t file_type(column_type_t type) {
  return type == COLUMN_FLOAT  ? H5T_IEEE_F64LE
         : type == COLUMN_SEED ? H5T_STD_U64LE
                               : H5T_STD_I64LE;
}

static hid_t memory_type(column_type_t type) {
  return type == COLUMN_FLOAT  ? H5T_NATIVE_DOUBLE
         : type == COLUMN_SEED ? H5T_NATIVE_UINT64
                               : H5T_NATIVE_INT64;
}

/* One file in work. */
typedef struct {
  wm_h5_t *file;
  const wm_comm_t *comm;
  char *buffer; /* room for the largest dataset */
} access_t;

/* Rank 0 writes it all. */
static wm_status_t put(const access_t *a, const char *path, hid_t stored, hid_t type, int n_dims,
                       const int64_t *dims, const void *data, const char *description,
                       wm_error_t *err) {
  int64_t zero[WM_H5_MAX_DIMS] = {0}, count[WM_H5_MAX_DIMS];
  for (int i = 0; i < n_dims; i++)
    count[i] = a->comm->rank == 0 ? dims[i] : 0;
  wm_status_t status = wm_h5_dataset(a->file, path, stored, n_dims, dims, description, err);
  return status == WM_OK ? wm_h5_write(a->file, path, type, zero, count, data, err) : status;
}

/* Every rank reads it all; its extent must be `dims`. */
static wm_status_t get(const access_t *a, const char *path, hid_t type, int n_dims,
                       const int64_t *dims, void *data, wm_error_t *err) {
  int64_t zero[WM_H5_MAX_DIMS] = {0}, found[WM_H5_MAX_DIMS];
  wm_status_t status = wm_h5_dims(a->file, path, n_dims, found, err);
  for (int i = 0; i < n_dims && status == WM_OK; i++)
    if (found[i] != dims[i])
      status = wm_fail(err, WM_INPUT, "%s: %s: extent %d is %" PRId64 ", expected %" PRId64,
                       wm_h5_path(a->file), path, i, found[i], dims[i]);
  return status == WM_OK ? wm_h5_read(a->file, path, type, zero, dims, data, err) : status;
}

static void take_cell(const column_t *c, const char *object, char *cell) {
  if (c->type == COLUMN_BOOL) {
    int64_t value = *(const bool *)(object + c->offset);
    memcpy(cell, &value, CELL);
  } else {
    memcpy(cell, object + c->offset, CELL);
  }
}

static void give_cell(const column_t *c, char *object, const char *cell) {
  if (c->type == COLUMN_BOOL) {
    int64_t value;
    memcpy(&value, cell, CELL);
    *(bool *)(object + c->offset) = value != 0;
  } else {
    memcpy(object + c->offset, cell, CELL);
  }
}

static wm_status_t put_columns(const access_t *a, const column_t *columns, int n_columns,
                               const void *objects, size_t size, int64_t n, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int k = 0; k < n_columns && status == WM_OK; k++) {
    for (int64_t i = 0; i < n; i++)
      take_cell(&columns[k], (const char *)objects + (size_t)i * size, a->buffer + i * CELL);
    status = put(a, columns[k].path, file_type(columns[k].type), memory_type(columns[k].type), 1,
                 &n, a->buffer, columns[k].description, err);
  }
  return status;
}

static wm_status_t get_columns(const access_t *a, const column_t *columns, int n_columns,
                               void *objects, size_t size, int64_t n, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int k = 0; k < n_columns && status == WM_OK; k++) {
    status = get(a, columns[k].path, memory_type(columns[k].type), 1, &n, a->buffer, err);
    for (int64_t i = 0; i < n && status == WM_OK; i++)
      give_cell(&columns[k], (char *)objects + (size_t)i * size, a->buffer + i * CELL);
  }
  return status;
}

static wm_status_t text_type(size_t size, hid_t *out, wm_error_t *err) {
  *out = H5Tcopy(H5T_C_S1);
  if (*out < 0 || H5Tset_size(*out, size) < 0)
    return wm_fail(err, WM_ENVIRONMENT, "cannot make an HDF5 type");
  return WM_OK;
}

/* --- matrices -----------------------------------------------------------------------------------
 */

/* A row of `width` numbers into the buffer, `fill` where `from` ends or is NULL. */
static void set_row(const access_t *a, int64_t row, int64_t width, const double *from, int64_t n,
                    double fill) {
  double *to = (double *)(void *)a->buffer + row * width;
  for (int64_t i = 0; i < width; i++)
    to[i] = from != NULL && i < n ? from[i] : fill;
}

static int64_t coefficients_of(const wm_gate_t *g) {
  return g->kind == WM_GATE_COMPONENT ? 1 : g->components;
}

static wm_status_t put_gate_matrices(const wm_gates_t *s, const access_t *a, wm_error_t *err) {
  const int64_t weight[2] = {s->n, s->d}, coefficient[2] = {s->n, s->k};
  wm_status_t status;
  for (int64_t g = 0; g < s->n; g++)
    set_row(a, g, s->d, s->gates[g].weight, s->d, 0);
  WM_TRY(put(a, "/weight", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 2, weight, a->buffer,
             "[gate, D] in raw x; zeros for kinds without one", err));
  for (int64_t g = 0; g < s->n; g++)
    set_row(a, g, s->k, s->gates[g].coefficient, coefficients_of(&s->gates[g]), NAN);
  WM_TRY(put(a, "/coefficient", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 2, coefficient, a->buffer,
             "[gate, K] of the principal components of the standardised x; NaN: none", err));
cleanup:
  return status;
}

/* A per-layer array that has dims[1] * ... numbers a layer. */
static wm_status_t put_layer_array(const wm_gates_t *s, const access_t *a, const char *path,
                                   size_t member, int n_dims, const int64_t *dims,
                                   const char *description, wm_error_t *err) {
  const int64_t width = n_dims == 3 ? dims[1] * dims[2] : dims[1];
  for (int64_t i = 0; i < s->n_described; i++) {
    const double *from;
    memcpy(&from, (const char *)&s->layers[i] + member, sizeof from);
    set_row(a, i, width, from, width, NAN);
  }
  return put(a, path, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, n_dims, dims, a->buffer, description, err);
}

static wm_status_t put_layer_arrays(const wm_gates_t *s, const access_t *a, wm_error_t *err) {
  const int64_t n = s->n_described, vector[2] = {n, s->d}, matrix[3] = {n, s->k, s->d};
  const int64_t variance[2] = {n, s->k};
  wm_status_t status;
  WM_TRY(put_layer_array(s, a, "/scaler/mean", offsetof(wm_gate_layer_t, mean), 2, vector,
                         "[layer of /layers, D] of x over the fit's positions", err));
  WM_TRY(put_layer_array(s, a, "/scaler/scale", offsetof(wm_gate_layer_t, scale), 2, vector,
                         "[layer of /layers, D] standard deviation of x; 1 for a constant", err));
  WM_TRY(put_layer_array(s, a, "/pca/components", offsetof(wm_gate_layer_t, components), 3, matrix,
                         "[layer of /layers, K, D] principal axes of the standardised x", err));
  WM_TRY(put_layer_array(s, a, "/pca/variance", offsetof(wm_gate_layer_t, variance), 2, variance,
                         "[layer of /layers, K] variance along each axis", err));
cleanup:
  return status;
}

/* --- texts --------------------------------------------------------------------------------------
 */

static wm_status_t put_texts(const wm_gates_t *s, const access_t *a, wm_error_t *err) {
  hid_t kind = -1, note = -1;
  wm_status_t status = text_type(KIND_SIZE, &kind, err);
  if (status == WM_OK)
    status = text_type(WM_GATE_NOTE_SIZE, &note, err);
  WM_TRY(wm_agree(a->comm->world, status, err));
  memset(a->buffer, 0, (size_t)s->n * KIND_SIZE);
  for (int64_t g = 0; g < s->n; g++)
    strcpy(a->buffer + g * KIND_SIZE, wm_gate_kind_name(s->gates[g].kind));
  WM_TRY(put(a, "/gate/kind", kind, kind, 1, &s->n, a->buffer,
             "[gate] linear, pca, component, norm, max_abs, kurtosis, random or oracle", err));
  for (int64_t g = 0; g < s->n; g++)
    memcpy(a->buffer + g * WM_GATE_NOTE_SIZE, s->gates[g].report.note, WM_GATE_NOTE_SIZE);
  WM_TRY(put(a, "/gate/note", note, note, 1, &s->n, a->buffer,
             "[gate] what is degenerate, in words; empty: nothing", err));
cleanup:
  if (kind >= 0)
    H5Tclose(kind);
  if (note >= 0)
    H5Tclose(note);
  return status;
}

static wm_status_t parse_kinds(const access_t *a, wm_gate_t *gates, int64_t n, wm_error_t *err) {
  for (int64_t g = 0; g < n; g++) {
    char *name = a->buffer + g * KIND_SIZE;
    name[KIND_SIZE - 1] = '\0';
    if (!wm_gate_kind_parse(name, &gates[g].kind))
      return wm_fail(err, WM_INPUT, "%s: /gate/kind[%" PRId64 "] = \"%s\" is no kind of gate",
                     wm_h5_path(a->file), g, name);
  }
  return WM_OK;
}

static wm_status_t get_texts(const access_t *a, wm_gate_t *gates, int64_t n, wm_error_t *err) {
  hid_t kind = -1, note = -1;
  wm_status_t status = text_type(KIND_SIZE, &kind, err);
  if (status == WM_OK)
    status = text_type(WM_GATE_NOTE_SIZE, &note, err);
  WM_TRY(wm_agree(a->comm->world, status, err));
  WM_TRY(get(a, "/gate/kind", kind, 1, &n, a->buffer, err));
  WM_TRY(wm_agree(a->comm->world, parse_kinds(a, gates, n, err), err));
  WM_TRY(get(a, "/gate/note", note, 1, &n, a->buffer, err));
  for (int64_t g = 0; g < n; g++) {
    memcpy(gates[g].report.note, a->buffer + g * WM_GATE_NOTE_SIZE, WM_GATE_NOTE_SIZE);
    gates[g].report.note[WM_GATE_NOTE_SIZE - 1] = '\0';
  }
cleanup:
  if (kind >= 0)
    H5Tclose(kind);
  if (note >= 0)
    H5Tclose(note);
  return status;
}

/* --- the file -----------------------------------------------------------------------------------
 */

/* Bytes of the largest dataset of so many layers and gates. */
static int64_t largest(int64_t layers, int64_t gates, int64_t d, int64_t k) {
  int64_t numbers = layers * (k > 0 ? k : 1) * d;
  if (gates * (d > k ? d : k) > numbers)
    numbers = gates * (d > k ? d : k);
  int64_t bytes = numbers * (int64_t)sizeof(double), notes = gates * WM_GATE_NOTE_SIZE;
  return bytes > notes ? bytes : notes;
}

wm_status_t wm_gates_write(const wm_gates_t *s, const wm_comm_t *comm, wm_h5_t *file,
                           wm_error_t *err) {
  void *buffer = NULL;
  wm_status_t status =
      wm_alloc(&buffer, largest(s->n_described, s->n, s->d, s->k) + CELL, 1, "gates", err);
  WM_TRY(wm_agree(comm->world, status, err));
  const access_t a = {.file = file, .comm = comm, .buffer = buffer};
  WM_TRY(put_columns(&a, layer_columns, LAYER_COLUMNS, s->layers, sizeof *s->layers, s->n_described,
                     err));
  WM_TRY(put_columns(&a, gate_columns, GATE_COLUMNS, s->gates, sizeof *s->gates, s->n, err));
  WM_TRY(put_texts(s, &a, err));
  WM_TRY(put_gate_matrices(s, &a, err));
  WM_TRY(put_layer_arrays(s, &a, err));
cleanup:
  free(buffer);
  return status;
}

/* What is read before it is added. */
typedef struct {
  int64_t n_layers, n_gates, d, k;
  wm_gate_layer_t *layers;
  wm_gate_t *gates;
  double *mean, *scale, *components, *variance, *weight, *coefficient;
} content_t;

static wm_status_t allocate(content_t *c, wm_error_t *err) {
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, c->n_layers, sizeof *c->layers, "gates", err));
  c->layers = memory;
  WM_TRY(wm_alloc(&memory, c->n_gates, sizeof *c->gates, "gates", err));
  c->gates = memory;
  const struct {
    double **to;
    int64_t n;
  } arrays[] = {{&c->mean, c->n_layers * c->d},     {&c->scale, c->n_layers * c->d},
                {&c->variance, c->n_layers * c->k}, {&c->components, c->n_layers * c->k * c->d},
                {&c->weight, c->n_gates * c->d},    {&c->coefficient, c->n_gates * c->k}};
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
    WM_TRY(wm_alloc(&memory, arrays[i].n, sizeof(double), "gates", err));
    *arrays[i].to = memory;
  }
cleanup:
  return status;
}

static void release(content_t *c) {
  free(c->layers);
  free(c->gates);
  free(c->mean);
  free(c->scale);
  free(c->components);
  free(c->variance);
  free(c->weight);
  free(c->coefficient);
}

static wm_status_t read_arrays(const access_t *a, content_t *c, wm_error_t *err) {
  const int64_t vector[2] = {c->n_layers, c->d}, matrix[3] = {c->n_layers, c->k, c->d};
  const int64_t variance[2] = {c->n_layers, c->k};
  const int64_t weight[2] = {c->n_gates, c->d}, coefficient[2] = {c->n_gates, c->k};
  wm_status_t status;
  WM_TRY(get(a, "/scaler/mean", H5T_NATIVE_DOUBLE, 2, vector, c->mean, err));
  WM_TRY(get(a, "/scaler/scale", H5T_NATIVE_DOUBLE, 2, vector, c->scale, err));
  WM_TRY(get(a, "/pca/components", H5T_NATIVE_DOUBLE, 3, matrix, c->components, err));
  WM_TRY(get(a, "/pca/variance", H5T_NATIVE_DOUBLE, 2, variance, c->variance, err));
  WM_TRY(get(a, "/weight", H5T_NATIVE_DOUBLE, 2, weight, c->weight, err));
  WM_TRY(get(a, "/coefficient", H5T_NATIVE_DOUBLE, 2, coefficient, c->coefficient, err));
cleanup:
  return status;
}

/* `row`, or NULL if it says that there is nothing. */
static const double *unless_nan(const double *row, int64_t n) {
  return n > 0 && !isnan(row[0]) ? row : NULL;
}

static wm_status_t add_all(content_t *c, wm_gates_t *s, wm_error_t *err) {
  const int64_t d = c->d, k = c->k;
  wm_status_t status = WM_OK;
  for (int64_t i = 0; i < c->n_layers && status == WM_OK; i++) {
    wm_gate_layer_t *l = &c->layers[i];
    l->mean = unless_nan(c->mean + i * d, d);
    l->scale = unless_nan(c->scale + i * d, d);
    l->components = unless_nan(c->components + i * k * d, k * d);
    l->variance = unless_nan(c->variance + i * k, k);
    status = wm_gates_add_layer(s, l, err);
  }
  for (int64_t g = 0; g < c->n_gates && status == WM_OK; g++) {
    wm_gate_t *gate = &c->gates[g];
    gate->weight = wm_gate_has_weight(gate->kind) ? c->weight + g * d : NULL;
    gate->coefficient = unless_nan(c->coefficient + g * k, k);
    status = wm_gates_add(s, gate, err);
  }
  for (int64_t i = 0; i < c->n_layers && status == WM_OK; i++) {
    int64_t g = c->layers[i].selected;
    if (g < -1 || g >= c->n_gates || (g >= 0 && c->gates[g].layer != c->layers[i].layer))
      status = wm_fail(err, WM_INPUT, "/selected/gate[%" PRId64 "] is no gate of layer %" PRId64, i,
                       c->layers[i].layer);
  }
  return status;
}

static wm_status_t build(const char *path, content_t *c, int64_t n_layers, wm_gates_t **out,
                         wm_error_t *err) {
  wm_status_t status = wm_gates_create(n_layers, c->d, c->k, out, err);
  if (status == WM_OK)
    status = add_all(c, *out, err);
  if (status != WM_USAGE && status != WM_INPUT)
    return status;
  err->status = WM_INPUT;
  return wm_error_prefix(err, "%s", path);
}

/* How many layers and gates the file has, and that its width is the model's. */
static wm_status_t read_extent(wm_h5_t *file, int64_t d, content_t *c, wm_error_t *err) {
  int64_t dims[3];
  wm_status_t status = wm_h5_dims(file, "/pca/components", 3, dims, err);
  if (status != WM_OK)
    return status;
  c->n_layers = dims[0];
  c->k = dims[1];
  c->d = dims[2];
  if (c->d != d)
    return wm_fail(err, WM_INPUT, "%s: gates of width %" PRId64 ", but the model's is %" PRId64,
                   wm_h5_path(file), c->d, d);
  return wm_h5_dims(file, "/gate/layer", 1, &c->n_gates, err);
}

wm_status_t wm_gates_open(const wm_comm_t *comm, const char *path, int64_t n_layers, int64_t d,
                          wm_gates_t **out, wm_error_t *err) {
  content_t c = {0};
  wm_h5_t *file = NULL;
  wm_gates_t *gates = NULL;
  void *buffer = NULL;
  *out = NULL;
  wm_status_t status = wm_h5_open(comm->world, path, &file, err);
  if (status != WM_OK)
    return status;
  WM_TRY(wm_h5_verify(file, err));
  WM_TRY(wm_agree(comm->world, read_extent(file, d, &c, err), err));
  status = allocate(&c, err);
  if (status == WM_OK)
    status = wm_alloc(&buffer, largest(c.n_layers, c.n_gates, d, c.k) + CELL, 1, "gates", err);
  WM_TRY(wm_agree(comm->world, status, err));
  const access_t a = {.file = file, .comm = comm, .buffer = buffer};
  WM_TRY(
      get_columns(&a, layer_columns, LAYER_COLUMNS, c.layers, sizeof *c.layers, c.n_layers, err));
  WM_TRY(get_columns(&a, gate_columns, GATE_COLUMNS, c.gates, sizeof *c.gates, c.n_gates, err));
  WM_TRY(get_texts(&a, c.gates, c.n_gates, err));
  WM_TRY(read_arrays(&a, &c, err));
  WM_TRY(wm_agree(comm->world, build(path, &c, n_layers, &gates, err), err));
  *out = gates;
  gates = NULL;
cleanup:
  wm_gates_free(gates);
  release(&c);
  free(buffer);
  wm_h5_close(file);
  return status;
}
