#include "parts_folder.h"
#include "parts_internal.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/io/hdf5.h"

#include <inttypes.h>
#include <string.h>

/* --- cells --------------------------------------------------------------------------------------
 */

bool wm_parts_has(const wm_parts_t *parts, int64_t variant, int64_t block) {
  return wm_parts_bit(parts->done, wm_parts_cell_of(parts, variant, block));
}

void wm_parts_add(wm_parts_t *parts, int64_t variant, int64_t block) {
  int64_t cell = wm_parts_cell_of(parts, variant, block);
  wm_parts_set_bit(parts->done, cell);
  wm_parts_set_bit(parts->fresh, cell);
}

void wm_parts_share(wm_parts_t *parts) {
  const int64_t piece = INT64_C(1) << 24;
  for (int64_t i = 0; i < wm_parts_words(parts); i += piece)
    MPI_Allreduce(MPI_IN_PLACE, parts->done + i,
                  (int)(wm_parts_words(parts) - i < piece ? wm_parts_words(parts) - i : piece),
                  MPI_UINT64_T, MPI_BOR, parts->comm->world);
}

bool wm_parts_exist(const wm_parts_t *parts) {
  return parts->exist;
}

int64_t wm_parts_losses(const wm_parts_t *parts) {
  int64_t sum = 0;
  for (int64_t c = 0; c < parts->n_cells; c++)
    sum += wm_parts_bit(parts->done, c) ? wm_parts_predictions(parts, c % parts->blocks->n) : 0;
  return sum;
}

/* --- life ---------------------------------------------------------------------------------------
 */

static wm_status_t allocate(wm_parts_t **out, int64_t n_cells, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_parts_t), "parts", err);
  *out = memory;
  if (status != WM_OK)
    return status;
  (*out)->n_cells = n_cells;
  WM_TRY(wm_alloc(&memory, wm_parts_words(*out), sizeof(uint64_t), "bitmap of the cells", err));
  (*out)->done = memory;
  WM_TRY(wm_alloc(&memory, wm_parts_words(*out), sizeof(uint64_t), "bitmap of the cells", err));
  (*out)->fresh = memory;
cleanup:
  return status;
}

wm_status_t wm_parts_create(const wm_comm_t *comm, const wm_blocks_t *blocks, int64_t n_variants,
                            const char *folder, uint64_t key, const wm_log_t *log, wm_parts_t **out,
                            wm_error_t *err) {
  wm_status_t status = wm_agree(comm->world, allocate(out, n_variants * blocks->n, err), err);
  if (status != WM_OK) {
    wm_parts_free(*out);
    *out = NULL;
    return status;
  }
  wm_parts_t *p = *out;
  p->comm = comm;
  p->blocks = blocks;
  p->n_variants = n_variants;
  p->folder = folder;
  p->log = log;
  uint64_t cut =
      wm_hash(blocks->first_window, (size_t)(blocks->n + 1) * sizeof *blocks->first_window, 0);
  for (int64_t b = 0; b <= blocks->n; b++) {
    int64_t first = wm_parts_first_prediction(p, b);
    cut = wm_hash(&first, sizeof first, cut);
  }
  wm_hash_text(key, p->key);
  wm_hash_text(cut, p->cut);
  return WM_OK;
}

void wm_parts_free(wm_parts_t *parts) {
  if (parts == NULL)
    return;
  free(parts->done);
  free(parts->fresh);
  free(parts->used);
  free(parts);
}

/* --- writing ------------------------------------------------------------------------------------
 */

/* This rank's fresh cells, packed. */
typedef struct {
  int64_t n, losses;              /* of this rank */
  int64_t first_cell, first_loss; /* in the part */
  int64_t all_cells, all_losses;
  int64_t (*cells)[2];
  float *nll;
  double (*counts)[WM_PART_COUNTS]; /* [n] */
} packed_t;

static void count_fresh(const wm_parts_t *p, packed_t *k) {
  for (int64_t c = 0; c < p->n_cells; c++)
    if (wm_parts_bit(p->fresh, c)) {
      k->n++;
      k->losses += wm_parts_predictions(p, c % p->blocks->n);
    }
  int64_t mine[2] = {k->n, k->losses}, before[2] = {0, 0}, all[2];
  MPI_Exscan(mine, before, 2, MPI_INT64_T, MPI_SUM, p->comm->world);
  MPI_Allreduce(mine, all, 2, MPI_INT64_T, MPI_SUM, p->comm->world);
  if (p->comm->rank > 0) { /* rank 0's result of the scan is undefined */
    k->first_cell = before[0];
    k->first_loss = before[1];
  }
  k->all_cells = all[0];
  k->all_losses = all[1];
}

static wm_status_t pack(const wm_parts_t *p, const float *nll, const wm_cell_t *counted,
                        packed_t *k, wm_error_t *err) {
  void *memory;
  wm_status_t status;
  int64_t i = 0, at = 0;
  WM_TRY(wm_alloc(&memory, k->n, sizeof *k->cells, "cells of a part", err));
  k->cells = memory;
  WM_TRY(wm_alloc(&memory, k->losses, sizeof *k->nll, "losses of a part", err));
  k->nll = memory;
  WM_TRY(wm_alloc(&memory, k->n, sizeof *k->counts, "counts of a part", err));
  k->counts = memory;
  for (int64_t c = 0; c < p->n_cells; c++) {
    if (!wm_parts_bit(p->fresh, c))
      continue;
    int64_t cell[2] = {c / p->blocks->n, c % p->blocks->n}, n = wm_parts_predictions(p, cell[1]);
    memcpy(k->nll + at, nll + wm_parts_place(p, cell), (size_t)n * sizeof *nll);
    if (counted != NULL) {
      const wm_cell_t *own = &counted[c];
      const double counts[WM_PART_COUNTS] = {own->routed, own->agreed, own->divergence};
      memcpy(k->counts[i], counts, sizeof counts);
    }
    memcpy(k->cells[i++], cell, sizeof cell);
    at += n;
  }
cleanup:
  return status;
}

static wm_status_t write_part(const wm_parts_t *p, const packed_t *k, const char *path,
                              wm_error_t *err) {
  wm_h5_t *file = NULL;
  const int64_t dims[2] = {k->all_cells, 2}, offset[2] = {k->first_cell, 0}, count[2] = {k->n, 2};
  const int64_t counts[2] = {k->all_cells, WM_PART_COUNTS}, own[2] = {k->n, WM_PART_COUNTS};
  wm_status_t status;
  WM_TRY(wm_part_folder(p->comm, p->folder, err));
  WM_TRY(wm_h5_create(p->comm->world, path, &file, err));
  WM_TRY(wm_h5_dataset(file, "/cells", H5T_STD_I64LE, 2, dims, "[cell] (variant, block)", err));
  WM_TRY(wm_h5_dataset(file, "/nll", H5T_IEEE_F32LE, 1, &k->all_losses,
                       "losses of the cells in nats, one cell behind the other", err));
  WM_TRY(wm_h5_write(file, "/cells", H5T_NATIVE_INT64, offset, count, k->cells, err));
  WM_TRY(wm_h5_write(file, "/nll", H5T_NATIVE_FLOAT, &k->first_loss, &k->losses, k->nll, err));
  WM_TRY(wm_h5_dataset(file, "/counts", H5T_IEEE_F64LE, 2, counts,
                       "[cell] positions routed, positions whose most likely token is the full "
                       "model's, sum of KL in nats",
                       err));
  WM_TRY(wm_h5_write(file, "/counts", H5T_NATIVE_DOUBLE, offset, own, k->counts, err));
  WM_TRY(wm_h5_set_string(file, "/", "parts_key", p->key, err));
  WM_TRY(wm_h5_set_string(file, "/", "cut", p->cut, err));
  wm_h5_t *whole = file;
  file = NULL; /* publishing takes it */
  WM_TRY(wm_h5_publish(whole, err));
cleanup:
  wm_h5_close(file);
  return status;
}

/* Least number from p->next on that no part has, but damaged ones. */
static int64_t free_number(const wm_parts_t *p) {
  int64_t number = p->next;
  for (int64_t i = 0; i < p->n_used; i++)
    number += p->used[i] == number;
  return number;
}

wm_status_t wm_parts_publish(wm_parts_t *p, const float *nll, const wm_cell_t *cells,
                             wm_error_t *err) {
  packed_t k = {0};
  char path[WM_PART_PATH_SIZE];
  double start = wm_seconds();
  wm_status_t status = WM_OK;
  if (p->folder == NULL)
    return WM_OK;
  count_fresh(p, &k);
  if (k.all_cells == 0)
    return WM_OK;
  int64_t number = free_number(p);
  wm_part_path(p->folder, number, path);
  WM_TRY(wm_agree(p->comm->world, pack(p, nll, cells, &k, err), err));
  WM_TRY(write_part(p, &k, path, err));
  p->next = number + 1;
  p->exist = true;
  memset(p->fresh, 0, (size_t)wm_parts_words(p) * sizeof *p->fresh);
  wm_log(p->log, WM_LOG_INFO, "sweep: kept %.1f %% of the cells in %s in %.2f s",
         100.0 * (double)k.all_cells / (double)p->n_cells, path, wm_seconds() - start);
cleanup:
  free(k.cells);
  free(k.nll);
  free(k.counts);
  return status;
}

void wm_parts_remove(const wm_comm_t *comm, const char *folder) {
  wm_part_remove(comm, folder);
}
