/* Gram matrices in a file, for a fit that is to go on later. */
#include "gram_internal.h"
#include "wanamaker/base/mem.h"

#include <inttypes.h>

enum { PIECE = 1 << 22 }; /* doubles of a matrix that are summed over the nodes at a time */

static int64_t sums_size(const wm_gram_t *g) {
  return g->layers * WM_ROW_SETS * wm_gram_small_size(g->d);
}

/* --- saving -------------------------------------------------------------------------------------
 */

/* One layer's set, piece by piece, by rank 0. buffer: [PIECE] there. */
static wm_status_t save_set(wm_gram_t *g, bool centred, wm_row_set_t set, int64_t layer,
                            double *buffer, wm_h5_t *file, wm_error_t *err) {
  const int64_t size = wm_gram_set_size(g->d);
  const double *own = wm_gram_set(g, set, layer);
  const bool sum = g->comm->node_count > 1 && !centred;
  wm_status_t status = WM_OK;
  for (int64_t at = 0; at < size && status == WM_OK; at += PIECE) {
    int64_t n = size - at < PIECE ? size - at : PIECE;
    if (sum && g->comm->node_rank == 0)
      MPI_Reduce(own + at, buffer, (int)n, MPI_DOUBLE, MPI_SUM, 0, g->comm->leaders);
    int64_t offset[3] = {layer, set, at}, count[3] = {g->comm->rank == 0, 1, n};
    status = wm_h5_write(file, "/matrices", H5T_NATIVE_DOUBLE, offset, count,
                         sum ? buffer : own + at, err);
  }
  return status;
}

static wm_status_t save_sums(const wm_gram_t *g, wm_h5_t *file, wm_error_t *err) {
  const int64_t small = wm_gram_small_size(g->d);
  const int64_t dims[4] = {g->comm->size, g->layers, WM_ROW_SETS, small};
  const int64_t offset[4] = {g->comm->rank, 0, 0, 0}, count[4] = {1, g->layers, WM_ROW_SETS, small};
  wm_status_t status =
      wm_h5_dataset(file, "/sums", H5T_IEEE_F64LE, 4, dims,
                    "[rank, layer, set, element] y'y, sums of x and y, count", err);
  return status == WM_OK
             ? wm_h5_write(file, "/sums", H5T_NATIVE_DOUBLE, offset, count, g->sums, err)
             : status;
}

wm_status_t wm_gram_save(wm_gram_t *g, bool centred, int64_t sets, wm_h5_t *file, wm_error_t *err) {
  const int64_t first = g->comm->rank == 0;
  const int64_t matrices[3] = {g->layers, sets, wm_gram_set_size(g->d)};
  const int64_t shifts[2] = {g->layers, 2 * g->d}, zero[2] = {0, 0};
  const int64_t count[2] = {first * g->layers, 2 * g->d};
  void *buffer;
  wm_status_t status =
      wm_alloc(&buffer, first * PIECE, sizeof(double), "a piece of a Gram matrix", err);
  WM_TRY(wm_agree(g->comm->world, status, err));
  wm_shared_sync(&g->matrices);
  WM_TRY(wm_h5_dataset(file, "/matrices", H5T_IEEE_F64LE, 3, matrices,
                       "[layer, set, element] x'x, x'y; of a finished fit y'y, sums, count", err));
  WM_TRY(wm_h5_dataset(file, "/shifts", H5T_IEEE_F64LE, 2, shifts,
                       "[layer, element] provisional means of x and of y", err));
  for (int64_t l = 0; l < g->layers; l++)
    for (int64_t set = 0; set < sets; set++)
      WM_TRY(save_set(g, centred, (wm_row_set_t)set, l, buffer, file, err));
  WM_TRY(wm_h5_write(file, "/shifts", H5T_NATIVE_DOUBLE, zero, count, g->shifts.data, err));
  if (!centred)
    WM_TRY(save_sums(g, file, err));
cleanup:
  free(buffer);
  return status;
}

/* --- loading ------------------------------------------------------------------------------------
 */

/* Sums of saved rank s go to rank s modulo the ranks there are now. */
static wm_status_t load_sums(wm_gram_t *g, wm_h5_t *file, wm_error_t *err) {
  const int64_t small = wm_gram_small_size(g->d), n = sums_size(g);
  int64_t dims[4];
  void *memory;
  wm_status_t status = wm_h5_dims(file, "/sums", 4, dims, err);
  if (status != WM_OK)
    return status;
  if (dims[1] != g->layers || dims[2] != WM_ROW_SETS || dims[3] != small)
    return wm_fail(err, WM_INPUT, "%s: /sums does not fit /matrices", wm_h5_path(file));
  status = wm_alloc(&memory, n, sizeof(double), "sums", err);
  double *saved = memory;
  WM_TRY(wm_agree(g->comm->world, status, err));
  for (int64_t first = 0; first < dims[0]; first += g->comm->size) {
    int64_t rank = first + g->comm->rank, there = rank < dims[0];
    int64_t offset[4] = {there ? rank : 0, 0, 0, 0}, count[4] = {there, dims[1], dims[2], small};
    WM_TRY(wm_h5_read(file, "/sums", H5T_NATIVE_DOUBLE, offset, count, saved, err));
    for (int64_t i = 0; i < there * n; i++)
      g->sums[i] += saved[i];
  }
cleanup:
  free(memory);
  return status;
}

wm_status_t wm_gram_load(wm_gram_t *g, bool centred, int64_t sets, wm_h5_t *file, wm_error_t *err) {
  const int64_t size = wm_gram_set_size(g->d);
  /* What is centred is complete on every node; the rest goes into one node's sums. */
  const int64_t reads = centred ? g->comm->node_rank == 0 : g->comm->rank == 0;
  int64_t dims[3];
  wm_status_t status;
  wm_gram_reset(g);
  WM_TRY(wm_h5_dims(file, "/matrices", 3, dims, err));
  if (dims[0] != g->layers || dims[1] != sets || dims[2] != size)
    return wm_fail(err, WM_INPUT,
                   "%s: /matrices is [%" PRId64 ", %" PRId64 ", %" PRId64 "], expected [%" PRId64
                   ", %" PRId64 ", %" PRId64 "]",
                   wm_h5_path(file), dims[0], dims[1], dims[2], g->layers, sets, size);
  for (int64_t l = 0; l < g->layers; l++)
    for (int64_t set = 0; set < sets; set++) {
      int64_t offset[3] = {l, set, 0}, count[3] = {reads, 1, size};
      WM_TRY(wm_h5_read(file, "/matrices", H5T_NATIVE_DOUBLE, offset, count,
                        wm_gram_set(g, (wm_row_set_t)set, l), err));
    }
  int64_t zero[2] = {0, 0}, count[2] = {(g->comm->node_rank == 0) * g->layers, 2 * g->d};
  WM_TRY(wm_h5_read(file, "/shifts", H5T_NATIVE_DOUBLE, zero, count, g->shifts.data, err));
  for (int64_t l = 0; l < g->layers; l++)
    g->shifted[l] = true;
  if (!centred)
    WM_TRY(load_sums(g, file, err));
cleanup:
  wm_shared_sync(&g->shifts);
  wm_shared_sync(&g->matrices);
  return status;
}
