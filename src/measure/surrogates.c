#include "wanamaker/measure/surrogates.h"

#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/io/hdf5.h"
#include "wanamaker/par/shared.h"

#include <assert.h>
#include <math.h>
#include <string.h>

struct wm_surrogates {
  int64_t n, d, n_layers;
  int64_t *layers;   /* [n] */
  int64_t *index_of; /* [n_layers], -1: none */
  double *r2, *r2_heldout;
  wm_compute_t compute;
  wm_dtype_t stored;  /* type of the weights in memory */
  wm_shared_t memory; /* [n, d] biases in float32, then [n, d, d] weights */
  wm_gemm_scratch_t scratch;
  wm_linear_t **linear;
  int64_t tile;      /* rows that the products work in */
  int64_t tile_rows; /* what was asked for, of objects that are filled later */
  wm_tiles_t tiles;
  float *x_tail; /* [tile, d]: a last tile, padded, for all layers */
  float *y_tail;
  uint64_t fingerprint;
};

static float *bias_at(const wm_surrogates_t *s, int64_t i) {
  return (float *)s->memory.data + i * s->d;
}

static void *weight_at(const wm_surrogates_t *s, int64_t i) {
  return (char *)bias_at(s, s->n) + i * s->d * s->d * wm_dtype_size(s->stored);
}

static wm_status_t check_shape(wm_h5_t *file, int64_t n_layers, int64_t d, int64_t *n,
                               wm_error_t *err) {
  int64_t dims[3];
  wm_status_t status = wm_h5_dims(file, "/weight", 3, dims, err);
  if (status != WM_OK)
    return status;
  if (dims[1] != d || dims[2] != d || dims[0] > n_layers)
    return wm_fail(err, WM_INPUT,
                   "%s: /weight is [%lld, %lld, %lld], but the model has %lld layers of width %lld",
                   wm_h5_path(file), (long long)dims[0], (long long)dims[1], (long long)dims[2],
                   (long long)n_layers, (long long)d);
  *n = dims[0];
  int64_t expected[2] = {dims[0], d};
  status = wm_h5_dims(file, "/bias", 2, dims, err);
  if (status == WM_OK && (dims[0] != expected[0] || dims[1] != expected[1]))
    status = wm_fail(err, WM_INPUT, "%s: /bias does not fit /weight", wm_h5_path(file));
  return status;
}

/* Small arrays, read in whole by every rank. */
static wm_status_t read_table(wm_surrogates_t *s, wm_h5_t *file, wm_error_t *err) {
  int64_t zero[1] = {0}, dims[1];
  wm_status_t status;
  static const char *const names[] = {"/layers", "/fit/r2", "/fit/r2_heldout"};
  for (int i = 0; i < 3; i++) {
    WM_TRY(wm_h5_dims(file, names[i], 1, dims, err));
    if (dims[0] != s->n)
      return wm_fail(err, WM_INPUT, "%s: %s has %lld entries, expected %lld", wm_h5_path(file),
                     names[i], (long long)dims[0], (long long)s->n);
  }
  WM_TRY(wm_h5_read(file, "/layers", H5T_NATIVE_INT64, zero, &s->n, s->layers, err));
  WM_TRY(wm_h5_read(file, "/fit/r2", H5T_NATIVE_DOUBLE, zero, &s->n, s->r2, err));
  WM_TRY(wm_h5_read(file, "/fit/r2_heldout", H5T_NATIVE_DOUBLE, zero, &s->n, s->r2_heldout, err));
  for (int64_t l = 0; l < s->n_layers; l++)
    s->index_of[l] = -1;
  for (int64_t i = 0; i < s->n; i++) {
    if (s->layers[i] < 0 || s->layers[i] >= s->n_layers || s->index_of[s->layers[i]] >= 0)
      return wm_fail(err, WM_INPUT, "%s: /layers[%lld] = %lld is repeated or out of range",
                     wm_h5_path(file), (long long)i, (long long)s->layers[i]);
    s->index_of[s->layers[i]] = i;
  }
cleanup:
  return status;
}

/* Rank r of a node reads surrogates r, r + size, ...; every rank takes part in every read. `buffer`
 * holds a matrix in float32 where that is not the stored type. */
static wm_status_t read_weights(wm_surrogates_t *s, const wm_comm_t *comm, wm_h5_t *file,
                                float *buffer, wm_error_t *err) {
  wm_status_t status = WM_OK;
  int64_t size = comm->node_size, rounds = (s->n + size - 1) / size;
  MPI_Allreduce(MPI_IN_PLACE, &rounds, 1, MPI_INT64_T, MPI_MAX, comm->world);
  for (int64_t round = 0; round < rounds; round++) {
    int64_t i = round * size + comm->node_rank;
    int64_t mine = i < s->n, at = mine ? i : 0;
    int64_t offset[3] = {at, 0, 0}, count[3] = {mine, s->d, s->d};
    float *weight = buffer != NULL ? buffer : weight_at(s, at), *bias = bias_at(s, at);
    WM_TRY(wm_h5_read(file, "/weight", H5T_NATIVE_FLOAT, offset, count, weight, err));
    WM_TRY(wm_h5_read(file, "/bias", H5T_NATIVE_FLOAT, offset, count, bias, err));
    if (buffer != NULL && mine)
      wm_to_bf16(WM_DTYPE_F32, buffer, s->d * s->d, weight_at(s, at));
  }
  wm_shared_sync(&s->memory);
cleanup:
  return status;
}

static wm_status_t load_weights(wm_surrogates_t *s, const wm_comm_t *comm, wm_h5_t *file,
                                wm_error_t *err) {
  void *buffer = NULL;
  wm_status_t status;
  if (s->stored == WM_DTYPE_BF16)
    WM_TRY(wm_agree(comm->world, wm_alloc(&buffer, s->d * s->d, sizeof(float), "a surrogate", err),
                    err));
  WM_TRY(read_weights(s, comm, file, buffer, err));
cleanup:
  free(buffer);
  return status;
}

/* Is element i of the weights finite in the type that they are stored in? */
static bool weight_is_finite(const wm_surrogates_t *s, int64_t i) {
  const void *weights = weight_at(s, 0);
  return s->stored == WM_DTYPE_BF16 ? (((const uint16_t *)weights)[i] & 0x7f80) != 0x7f80
                                    : isfinite(((const float *)weights)[i]);
}

static wm_status_t check_finite(const wm_surrogates_t *s, const char *path, wm_error_t *err) {
  const char *type = s->stored == WM_DTYPE_BF16 ? "bfloat16" : "float32";
  for (int64_t i = 0; i < s->n * s->d * s->d; i++)
    if (!weight_is_finite(s, i))
      return wm_fail(err, WM_INPUT, "%s: a weight is not finite in %s (element %lld)", path, type,
                     (long long)i);
  for (int64_t i = 0; i < s->n * s->d; i++)
    if (!isfinite(bias_at(s, 0)[i]))
      return wm_fail(err, WM_INPUT, "%s: a bias is not finite in float32 (element %lld)", path,
                     (long long)i);
  return WM_OK;
}

static wm_status_t prepare_one(wm_surrogates_t *s, int64_t i, int64_t tile_rows, wm_error_t *err) {
  const wm_weight_t weight = {s->stored, WM_WEIGHT_IN_OUT, weight_at(s, i)};
  return wm_linear_create_typed(&s->linear[i], s->d, s->d, &weight, bias_at(s, i), WM_ACT_NONE,
                                tile_rows, s->compute, &s->scratch, err);
}

/* Room for the last tile of a product of any layer; i: one that is prepared. */
static wm_status_t prepare_tails(wm_surrogates_t *s, int64_t i, wm_error_t *err) {
  void *memory;
  s->tile = wm_linear_tile_rows(s->linear[i]);
  wm_status_t status = wm_alloc(&memory, s->tile * s->d, sizeof(float), "surrogates", err);
  s->x_tail = memory;
  if (status == WM_OK) {
    status = wm_alloc(&memory, s->tile * s->d, sizeof(float), "surrogates", err);
    s->y_tail = memory;
  }
  return status;
}

static wm_status_t prepare(wm_surrogates_t *s, int64_t tile_rows, wm_error_t *err) {
  for (int64_t i = 0; i < s->n; i++) {
    wm_status_t status = prepare_one(s, i, tile_rows, err);
    if (status != WM_OK)
      return status;
  }
  return s->n > 0 ? prepare_tails(s, 0, err) : WM_OK;
}

static wm_status_t allocate(int64_t n, int64_t n_layers, int64_t d, wm_surrogates_t **out,
                            wm_error_t *err) {
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, 1, sizeof(wm_surrogates_t), "surrogates", err));
  wm_surrogates_t *s = *out = memory;
  *s = (wm_surrogates_t){.n = n, .d = d, .n_layers = n_layers};
  WM_TRY(wm_alloc(&memory, n, sizeof(int64_t), "surrogates", err));
  s->layers = memory;
  WM_TRY(wm_alloc(&memory, n_layers, sizeof(int64_t), "surrogates", err));
  s->index_of = memory;
  WM_TRY(wm_alloc(&memory, n, sizeof(double), "surrogates", err));
  s->r2 = memory;
  WM_TRY(wm_alloc(&memory, n, sizeof(double), "surrogates", err));
  s->r2_heldout = memory;
  WM_TRY(wm_alloc(&memory, n, sizeof(wm_linear_t *), "surrogates", err));
  s->linear = memory;
cleanup:
  return status;
}

/* Collective over the node. Room for n surrogates of products of type `compute`. */
static wm_status_t take_memory(wm_surrogates_t *s, const wm_comm_t *comm, wm_compute_t compute,
                               wm_error_t *err) {
  s->compute = compute;
  s->stored = compute == WM_COMPUTE_F32 ? WM_DTYPE_F32 : WM_DTYPE_BF16;
  int64_t bytes = s->n * s->d * (s->d * wm_dtype_size(s->stored) + (int64_t)sizeof(float));
  return wm_shared_create(comm, bytes, "surrogates", &s->memory, err);
}

wm_status_t wm_surrogates_open(const wm_comm_t *comm, const char *path, int64_t n_layers, int64_t d,
                               int64_t tile_rows, wm_compute_t compute, wm_surrogates_t **out,
                               wm_error_t *err) {
  wm_h5_t *file = NULL;
  wm_surrogates_t *s = NULL;
  int64_t n = 0;
  *out = NULL;
  wm_status_t status = wm_h5_open(comm->world, path, &file, err);
  if (status != WM_OK)
    return status;
  WM_TRY(wm_h5_verify(file, err));
  WM_TRY(wm_agree(comm->world, check_shape(file, n_layers, d, &n, err), err));
  WM_TRY(wm_agree(comm->world, allocate(n, n_layers, d, &s, err), err));
  WM_TRY(wm_agree(comm->world, read_table(s, file, err), err));
  WM_TRY(wm_agree(comm->world, take_memory(s, comm, compute, err), err));
  WM_TRY(load_weights(s, comm, file, err));
  WM_TRY(wm_agree(comm->world, check_finite(s, path, err), err));
  WM_TRY(wm_agree(comm->world, prepare(s, tile_rows, err), err));
  s->fingerprint = wm_hash(s->memory.data, (size_t)s->memory.bytes, (uint64_t)n);
  *out = s;
  s = NULL;
cleanup:
  wm_surrogates_close(s);
  wm_h5_close(file);
  return status;
}

/* Rank r of a node draws surrogates r, r + size, ..., row by row into `row` [d]. */
static void draw(wm_surrogates_t *s, const wm_comm_t *comm, uint64_t seed, float *row) {
  for (int64_t i = 0; i < s->n; i++) {
    s->layers[i] = s->index_of[i] = i;
    s->r2[i] = s->r2_heldout[i] = NAN;
    if (i % comm->node_size != comm->node_rank)
      continue;
    for (int64_t r = 0; r < s->d; r++) {
      wm_rng_normals((wm_rng_t){seed, (uint64_t)i}, (uint64_t)(r * s->d), s->d, row);
      for (int64_t k = 0; k < s->d; k++)
        row[k] *= 0.02f;
      void *out = (char *)weight_at(s, i) + r * s->d * wm_dtype_size(s->stored);
      if (s->stored == WM_DTYPE_BF16)
        wm_to_bf16(WM_DTYPE_F32, row, s->d, out);
      else
        memcpy(out, row, (size_t)s->d * sizeof *row);
    }
  }
  s->fingerprint = wm_hash(&seed, sizeof seed, (uint64_t)s->n);
  wm_shared_sync(&s->memory);
}

wm_status_t wm_surrogates_create_random(const wm_comm_t *comm, int64_t n_layers, int64_t d,
                                        int64_t tile_rows, wm_compute_t compute, uint64_t seed,
                                        wm_surrogates_t **out, wm_error_t *err) {
  wm_surrogates_t *s = NULL;
  void *row = NULL;
  wm_status_t status;
  *out = NULL;
  WM_TRY(wm_agree(comm->world, allocate(n_layers, n_layers, d, &s, err), err));
  WM_TRY(wm_agree(comm->world, take_memory(s, comm, compute, err), err));
  WM_TRY(wm_agree(comm->world, wm_alloc(&row, d, sizeof(float), "a row of weights", err), err));
  draw(s, comm, seed, row);
  WM_TRY(wm_agree(comm->world, prepare(s, tile_rows, err), err));
  *out = s;
  s = NULL;
cleanup:
  free(row);
  wm_surrogates_close(s);
  return status;
}

wm_status_t wm_surrogates_create_empty(const wm_comm_t *comm, const int64_t *layers, int64_t n,
                                       int64_t n_layers, int64_t d, int64_t tile_rows,
                                       wm_compute_t compute, wm_surrogates_t **out,
                                       wm_error_t *err) {
  wm_surrogates_t *s = NULL;
  wm_status_t status;
  *out = NULL;
  WM_TRY(wm_agree(comm->world, allocate(n, n_layers, d, &s, err), err));
  WM_TRY(wm_agree(comm->world, take_memory(s, comm, compute, err), err));
  memcpy(s->layers, layers, (size_t)n * sizeof *layers);
  for (int64_t l = 0; l < n_layers; l++)
    s->index_of[l] = -1;
  s->tile_rows = tile_rows;
  *out = s;
  s = NULL;
cleanup:
  wm_surrogates_close(s);
  return status;
}

/* Rank 0's float64 numbers in float32 on every rank: values[d * d + d], weights and then bias. */
static void spread(const wm_comm_t *comm, int64_t d, const double *weight, const double *bias,
                   float *values) {
  for (int64_t k = 0; comm->rank == 0 && k < d * d; k++)
    values[k] = (float)weight[k];
  for (int64_t k = 0; comm->rank == 0 && k < d; k++)
    values[d * d + k] = (float)bias[k];
  wm_broadcast(comm->world, 0, values, d * (d + 1) * (int64_t)sizeof *values);
}

wm_status_t wm_surrogates_put(wm_surrogates_t *s, const wm_comm_t *comm, int64_t layer,
                              const double *weight, const double *bias, wm_error_t *err) {
  const int64_t d = s->d;
  int64_t i = 0;
  void *values;
  wm_status_t status = wm_alloc(&values, d * (d + 1), sizeof(float), "a surrogate", err);
  WM_TRY(wm_agree(comm->world, status, err));
  while (i < s->n && s->layers[i] != layer)
    i++;
  assert(i < s->n && s->linear[i] == NULL);
  spread(comm, d, weight, bias, values);
  if (comm->node_rank == 0 && s->stored == WM_DTYPE_BF16)
    wm_to_bf16(WM_DTYPE_F32, values, d * d, weight_at(s, i));
  else if (comm->node_rank == 0)
    memcpy(weight_at(s, i), values, (size_t)(d * d) * sizeof(float));
  if (comm->node_rank == 0)
    memcpy(bias_at(s, i), (float *)values + d * d, (size_t)d * sizeof(float));
  wm_shared_sync(&s->memory);
  status = prepare_one(s, i, s->tile_rows, err);
  if (status == WM_OK && s->x_tail == NULL)
    status = prepare_tails(s, i, err);
  WM_TRY(wm_agree(comm->world, status, err));
  s->r2[i] = s->r2_heldout[i] = NAN;
  s->index_of[layer] = i;
  s->fingerprint = wm_hash(s->memory.data, (size_t)s->memory.bytes, (uint64_t)s->n);
cleanup:
  free(values);
  return status;
}

/* Number of a layer in the file. */
static wm_status_t find_layer(wm_h5_t *file, int64_t layer, int64_t n, int64_t *index,
                              wm_error_t *err) {
  const int64_t zero = 0;
  void *layers;
  wm_status_t status = wm_alloc(&layers, n, sizeof(int64_t), "surrogates", err);
  if (status == WM_OK)
    status = wm_h5_read(file, "/layers", H5T_NATIVE_INT64, &zero, &n, layers, err);
  *index = -1;
  for (int64_t i = 0; i < n && status == WM_OK; i++)
    if (((int64_t *)layers)[i] == layer)
      *index = i;
  free(layers);
  if (status == WM_OK && *index < 0)
    status = wm_fail(err, WM_INPUT, "%s: layer %lld has no surrogate in it", wm_h5_path(file),
                     (long long)layer);
  return status;
}

wm_status_t wm_surrogates_put_filed(wm_surrogates_t *s, const wm_comm_t *comm, const char *path,
                                    int64_t layer, wm_error_t *err) {
  const int64_t d = s->d;
  wm_h5_t *file = NULL;
  int64_t n, index;
  void *weight = NULL;
  wm_status_t status;
  WM_TRY(wm_h5_open(comm->world, path, &file, err));
  WM_TRY(wm_h5_verify(file, err));
  WM_TRY(wm_agree(comm->world, check_shape(file, s->n_layers, d, &n, err), err));
  WM_TRY(find_layer(file, layer, n, &index, err));
  WM_TRY(wm_agree(comm->world, wm_alloc(&weight, d * (d + 1), sizeof(double), "a surrogate", err),
                  err));
  double *bias = (double *)weight + d * d;
  const int64_t offset[3] = {index, 0, 0}, count[3] = {comm->rank == 0, d, d};
  WM_TRY(wm_h5_read(file, "/weight", H5T_NATIVE_DOUBLE, offset, count, weight, err));
  WM_TRY(wm_h5_read(file, "/bias", H5T_NATIVE_DOUBLE, offset, count, bias, err));
  WM_TRY(wm_surrogates_put(s, comm, layer, weight, bias, err));
cleanup:
  free(weight);
  wm_h5_close(file);
  return status;
}

void wm_surrogates_close(wm_surrogates_t *s) {
  if (s == NULL)
    return;
  for (int64_t i = 0; i < s->n && s->linear != NULL; i++)
    wm_linear_free(s->linear[i]);
  wm_gemm_scratch_destroy(&s->scratch);
  wm_shared_destroy(&s->memory);
  free(s->x_tail);
  free(s->y_tail);
  free(s->linear);
  free(s->r2_heldout);
  free(s->r2);
  free(s->index_of);
  free(s->layers);
  free(s);
}

const int64_t *wm_surrogates_layers(const wm_surrogates_t *s, int64_t *count) {
  *count = s->n;
  return s->layers;
}

bool wm_surrogates_has(const wm_surrogates_t *s, int64_t layer) {
  return layer >= 0 && layer < s->n_layers && s->index_of[layer] >= 0;
}

double wm_surrogates_r2(const wm_surrogates_t *s, int64_t layer) {
  assert(wm_surrogates_has(s, layer));
  return s->r2[s->index_of[layer]];
}

double wm_surrogates_r2_heldout(const wm_surrogates_t *s, int64_t layer) {
  assert(wm_surrogates_has(s, layer));
  return s->r2_heldout[s->index_of[layer]];
}

uint64_t wm_surrogates_fingerprint(const wm_surrogates_t *s) {
  return s->fingerprint;
}

int64_t wm_surrogates_tile_rows(const wm_surrogates_t *s) {
  return s->tile;
}

wm_tiles_t wm_surrogates_tiles(const wm_surrogates_t *s) {
  return s->tiles;
}

wm_status_t wm_surrogates_set_tiles(wm_surrogates_t *s, wm_tiles_t tiles, wm_error_t *err) {
  for (int64_t i = 0; i < s->n; i++) {
    wm_status_t status = wm_linear_set_tiles(s->linear[i], tiles, err);
    if (status != WM_OK)
      return status;
  }
  s->tiles = tiles;
  return WM_OK;
}

wm_status_t wm_surrogates_apply_padded(const wm_surrogates_t *s, int64_t layer, float *x,
                                       int64_t rows, float *y, wm_error_t *err) {
  assert(wm_surrogates_has(s, layer) && rows <= wm_gemm_most_rows(s->tiles, s->tile, rows));
  int64_t height = wm_gemm_padded(s->tiles, s->tile, rows);
  memset(x + rows * s->d, 0, (size_t)((height - rows) * s->d) * sizeof *x);
  return wm_linear_apply_padded(s->linear[s->index_of[layer]], x, rows, y, err);
}

wm_status_t wm_surrogates_apply(const wm_surrogates_t *s, int64_t layer, const float *x,
                                int64_t rows, float *y, wm_error_t *err) {
  assert(wm_surrogates_has(s, layer));
  const int64_t whole = wm_gemm_whole(s->tiles, s->tile, rows), rest = rows - whole;
  wm_status_t status = wm_linear_apply(s->linear[s->index_of[layer]], x, whole, y, err);
  if (status != WM_OK || rest == 0)
    return status;
  /* The products keep a padded tile each if they are left to it; here all layers share one. */
  size_t used = (size_t)(rest * s->d) * sizeof *x;
  memcpy(s->x_tail, x + whole * s->d, used);
  status = wm_surrogates_apply_padded(s, layer, s->x_tail, rest, s->y_tail, err);
  if (status == WM_OK)
    memcpy(y + whole * s->d, s->y_tail, used);
  return status;
}

float *wm_surrogates_weight(const wm_surrogates_t *s, int64_t layer) {
  assert(wm_surrogates_has(s, layer) && s->stored == WM_DTYPE_F32);
  return weight_at(s, s->index_of[layer]);
}

float *wm_surrogates_bias(const wm_surrogates_t *s, int64_t layer) {
  assert(wm_surrogates_has(s, layer));
  return bias_at(s, s->index_of[layer]);
}

void wm_surrogates_sync(wm_surrogates_t *s) {
  wm_shared_sync(&s->memory);
}
