#include "wanamaker/measure/parts.h"

#include "parts_folder.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/io/hdf5.h"

#include <inttypes.h>
#include <string.h>

struct wm_parts {
  const wm_comm_t *comm;
  const wm_blocks_t *blocks;
  const char *folder; /* NULL: nothing is kept */
  const wm_log_t *log;
  int64_t n_variants, n_cells;
  char key[17], cut[17];
  uint64_t *done;  /* bits [n_cells], cell = variant * blocks + block */
  uint64_t *fresh; /* the same: finished by this rank since the last part */
  int64_t *used;   /* [n_used] numbers of parts that count, ascending */
  int64_t n_used;
  int64_t next; /* least number that may be free */
};

/* One part while it is read: its cells, and where their losses begin. */
typedef struct {
  wm_h5_t *file;
  int64_t n;
  int64_t (*cells)[2]; /* [n] variant, block */
  int64_t *first;      /* [n + 1] */
} part_t;

enum { PIECE_LOSSES = 1 << 22 }; /* read at a time, more only for a larger cell */

/* --- cells --------------------------------------------------------------------------------------
 */

static bool bit(const uint64_t *bits, int64_t i) {
  return bits[i / 64] >> (i % 64) & 1;
}

static void set_bit(uint64_t *bits, int64_t i) {
  bits[i / 64] |= UINT64_C(1) << (i % 64);
}

static int64_t words(const wm_parts_t *p) {
  return (p->n_cells + 63) / 64;
}

static int64_t cell_of(const wm_parts_t *p, int64_t variant, int64_t block) {
  return variant * p->blocks->n + block;
}

static int64_t first_prediction(const wm_parts_t *p, int64_t block) {
  return p->blocks->windows->predicted_offset[p->blocks->first_window[block]];
}

static int64_t predictions(const wm_parts_t *p, int64_t block) {
  return first_prediction(p, block + 1) - first_prediction(p, block);
}

/* Place of a cell's losses in [V, N]. */
static int64_t place(const wm_parts_t *p, const int64_t cell[2]) {
  return cell[0] * p->blocks->windows->n_predicted + first_prediction(p, cell[1]);
}

bool wm_parts_has(const wm_parts_t *parts, int64_t variant, int64_t block) {
  return bit(parts->done, cell_of(parts, variant, block));
}

void wm_parts_add(wm_parts_t *parts, int64_t variant, int64_t block) {
  int64_t cell = cell_of(parts, variant, block);
  set_bit(parts->done, cell);
  set_bit(parts->fresh, cell);
}

void wm_parts_share(wm_parts_t *parts) {
  const int64_t piece = INT64_C(1) << 24;
  for (int64_t i = 0; i < words(parts); i += piece)
    MPI_Allreduce(MPI_IN_PLACE, parts->done + i,
                  (int)(words(parts) - i < piece ? words(parts) - i : piece), MPI_UINT64_T, MPI_BOR,
                  parts->comm->world);
}

int64_t wm_parts_losses(const wm_parts_t *parts) {
  int64_t sum = 0;
  for (int64_t c = 0; c < parts->n_cells; c++)
    sum += bit(parts->done, c) ? predictions(parts, c % parts->blocks->n) : 0;
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
  WM_TRY(wm_alloc(&memory, words(*out), sizeof(uint64_t), "bitmap of the cells", err));
  (*out)->done = memory;
  WM_TRY(wm_alloc(&memory, words(*out), sizeof(uint64_t), "bitmap of the cells", err));
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
    int64_t first = first_prediction(p, b);
    cut = wm_hash(&first, sizeof first, cut);
  }
  snprintf(p->key, sizeof p->key, "%016" PRIx64, key);
  snprintf(p->cut, sizeof p->cut, "%016" PRIx64, cut);
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

/* --- reading ------------------------------------------------------------------------------------
 */

/* Collective. */
static wm_status_t expect(wm_h5_t *file, const char *name, const char *expected, wm_error_t *err) {
  char *found = NULL;
  wm_status_t status = wm_h5_get_string(file, "/", name, &found, err);
  if (status == WM_OK && strcmp(found, expected) != 0)
    status = wm_fail(err, WM_INPUT, "%s: is of another sweep (%s %s, here %s)", wm_h5_path(file),
                     name, found, expected);
  free(found);
  return status;
}

/* Every rank reads the whole list. Collective. */
static wm_status_t read_cells(const wm_parts_t *p, part_t *part, wm_error_t *err) {
  int64_t dims[2], zero[2] = {0, 0};
  void *memory;
  wm_status_t status;
  WM_TRY(wm_h5_dims(part->file, "/cells", 2, dims, err));
  part->n = dims[0];
  if (dims[1] != 2 || part->n < 1 || part->n > p->n_cells)
    return wm_fail(err, WM_INPUT,
                   "%s: /cells is [%" PRId64 ", %" PRId64 "], expected [1 to %" PRId64 ", 2]",
                   wm_h5_path(part->file), dims[0], dims[1], p->n_cells);
  status = wm_alloc(&memory, part->n, sizeof *part->cells, "cells of a part", err);
  part->cells = memory;
  if (status == WM_OK) {
    status = wm_alloc(&memory, part->n + 1, sizeof *part->first, "cells of a part", err);
    part->first = memory;
  }
  WM_TRY(wm_agree(p->comm->world, status, err));
  WM_TRY(wm_h5_read(part->file, "/cells", H5T_NATIVE_INT64, zero, dims, part->cells, err));
cleanup:
  return status;
}

/* Not collective. */
static wm_status_t check_cells(const wm_parts_t *p, part_t *part, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, words(p), sizeof(uint64_t), "bitmap of the cells", err);
  if (status != WM_OK)
    return status;
  uint64_t *seen = memory;
  for (int64_t i = 0; i < part->n && status == WM_OK; i++) {
    int64_t v = part->cells[i][0], b = part->cells[i][1];
    if (v < 0 || v >= p->n_variants || b < 0 || b >= p->blocks->n) {
      status = wm_fail(err, WM_INPUT,
                       "%s: /cells[%" PRId64 "] = (%" PRId64 ", %" PRId64
                       "), but there are %" PRId64 " variants and %" PRId64 " blocks",
                       wm_h5_path(part->file), i, v, b, p->n_variants, p->blocks->n);
    } else if (bit(seen, cell_of(p, v, b))) {
      status = wm_fail(err, WM_INPUT, "%s: /cells[%" PRId64 "] is there twice",
                       wm_h5_path(part->file), i);
    } else {
      set_bit(seen, cell_of(p, v, b));
      part->first[i + 1] = part->first[i] + predictions(p, b);
    }
  }
  free(memory);
  return status;
}

/* Collective. */
static wm_status_t open_part(const wm_parts_t *p, const char *path, part_t *part, wm_error_t *err) {
  int64_t losses;
  wm_status_t status;
  WM_TRY(wm_h5_open(p->comm->world, path, &part->file, err));
  WM_TRY(expect(part->file, "parts_key", p->key, err));
  WM_TRY(expect(part->file, "cut", p->cut, err));
  WM_TRY(read_cells(p, part, err));
  WM_TRY(wm_agree(p->comm->world, check_cells(p, part, err), err));
  WM_TRY(wm_h5_dims(part->file, "/nll", 1, &losses, err));
  if (losses != part->first[part->n])
    return wm_fail(err, WM_INPUT, "%s: /nll has %" PRId64 " losses, its cells take %" PRId64, path,
                   losses, part->first[part->n]);
  WM_TRY(wm_h5_verify(part->file, err));
cleanup:
  return status;
}

static void close_part(part_t *part) {
  wm_h5_close(part->file);
  free(part->cells);
  free(part->first);
}

/* End of the cells from `begin` that are read at once. */
static int64_t piece_end(const part_t *part, int64_t begin, int64_t end) {
  int64_t stop = begin;
  while (stop < end &&
         (stop == begin || part->first[stop + 1] - part->first[begin] <= PIECE_LOSSES))
    stop++;
  return stop;
}

/* Pieces of this rank's share, and the losses of its largest one. */
static int64_t count_pieces(const part_t *part, int64_t begin, int64_t end, int64_t *largest) {
  int64_t pieces = 0;
  *largest = 0;
  for (int64_t stop; begin < end; begin = stop, pieces++) {
    stop = piece_end(part, begin, end);
    int64_t losses = part->first[stop] - part->first[begin];
    *largest = losses > *largest ? losses : *largest;
  }
  return pieces;
}

/* Cells [begin, stop) that no earlier part had: losses from `from`, or zeros (NULL) again. */
static void place_cells(const wm_parts_t *p, const part_t *part, int64_t begin, int64_t stop,
                        const float *from, float *nll) {
  for (int64_t i = begin; i < stop; i++) {
    const int64_t *cell = part->cells[i];
    if (wm_parts_has(p, cell[0], cell[1]))
      continue;
    size_t bytes = (size_t)(part->first[i + 1] - part->first[i]) * sizeof *nll;
    if (from != NULL)
      memcpy(nll + place(p, cell), from + part->first[i] - part->first[begin], bytes);
    else
      memset(nll + place(p, cell), 0, bytes);
  }
}

/* Each rank reads a share of the part's cells. Collective. On failure nll is as before: the cells
 * may be computed on another node, and nodes are merged by union of bits. */
static wm_status_t read_losses(wm_parts_t *p, const part_t *part, float *nll, wm_error_t *err) {
  int64_t begin, count, largest;
  void *buffer;
  wm_partition(part->n, p->comm->size, p->comm->rank, &begin, &count);
  int64_t end = begin + count, rounds = count_pieces(part, begin, end, &largest);
  wm_status_t status = wm_alloc(&buffer, largest, sizeof(float), "losses of a part", err);
  WM_TRY(wm_agree(p->comm->world, status, err));
  MPI_Allreduce(MPI_IN_PLACE, &rounds, 1, MPI_INT64_T, MPI_MAX, p->comm->world);
  for (int64_t at = begin; rounds > 0; rounds--) {
    int64_t stop = piece_end(part, at, end);
    int64_t offset = part->first[at], losses = part->first[stop] - offset;
    WM_TRY(wm_h5_read(part->file, "/nll", H5T_NATIVE_FLOAT, &offset, &losses, buffer, err));
    place_cells(p, part, at, stop, buffer, nll);
    at = stop;
  }
  for (int64_t i = 0; i < part->n; i++)
    set_bit(p->done, cell_of(p, part->cells[i][0], part->cells[i][1]));
cleanup:
  if (status != WM_OK)
    place_cells(p, part, begin, end, NULL, nll);
  free(buffer);
  return status;
}

wm_status_t wm_parts_read(wm_parts_t *p, float *nll, wm_error_t *err) {
  if (p->folder == NULL)
    return WM_OK;
  wm_status_t status = wm_part_list(p->comm, p->folder, &p->used, &p->n_used, err);
  if (status != WM_OK)
    return status;
  int64_t found = p->n_used;
  p->n_used = 0;
  for (int64_t i = 0; i < found; i++) {
    char path[WM_PART_PATH_SIZE];
    wm_error_t why = {0};
    part_t part = {0};
    wm_part_path(p->folder, p->used[i], path);
    status = open_part(p, path, &part, &why);
    if (status == WM_OK)
      status = read_losses(p, &part, nll, &why);
    close_part(&part);
    if (status == WM_OK)
      p->used[p->n_used++] = p->used[i];
    else
      wm_log(p->log, WM_LOG_WARN, "sweep: a part is left out: %s", why.message);
  }
  return WM_OK;
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
} packed_t;

static void count_fresh(const wm_parts_t *p, packed_t *k) {
  for (int64_t c = 0; c < p->n_cells; c++)
    if (bit(p->fresh, c)) {
      k->n++;
      k->losses += predictions(p, c % p->blocks->n);
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

static wm_status_t pack(const wm_parts_t *p, const float *nll, packed_t *k, wm_error_t *err) {
  void *memory;
  wm_status_t status;
  int64_t i = 0, at = 0;
  WM_TRY(wm_alloc(&memory, k->n, sizeof *k->cells, "cells of a part", err));
  k->cells = memory;
  WM_TRY(wm_alloc(&memory, k->losses, sizeof *k->nll, "losses of a part", err));
  k->nll = memory;
  for (int64_t c = 0; c < p->n_cells; c++) {
    if (!bit(p->fresh, c))
      continue;
    int64_t cell[2] = {c / p->blocks->n, c % p->blocks->n}, n = predictions(p, cell[1]);
    memcpy(k->nll + at, nll + place(p, cell), (size_t)n * sizeof *nll);
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
  wm_status_t status;
  WM_TRY(wm_part_folder(p->comm, p->folder, err));
  WM_TRY(wm_h5_create(p->comm->world, path, &file, err));
  WM_TRY(wm_h5_dataset(file, "/cells", H5T_STD_I64LE, 2, dims, "[cell] (variant, block)", err));
  WM_TRY(wm_h5_dataset(file, "/nll", H5T_IEEE_F32LE, 1, &k->all_losses,
                       "losses of the cells in nats, one cell behind the other", err));
  WM_TRY(wm_h5_write(file, "/cells", H5T_NATIVE_INT64, offset, count, k->cells, err));
  WM_TRY(wm_h5_write(file, "/nll", H5T_NATIVE_FLOAT, &k->first_loss, &k->losses, k->nll, err));
  WM_TRY(wm_h5_set_string(file, "/", "parts_key", p->key, err));
  WM_TRY(wm_h5_set_string(file, "/", "cut", p->cut, err));
  wm_h5_t *whole = file;
  file = NULL; /* publishing takes it */
  WM_TRY(wm_h5_publish(whole, err));
cleanup:
  wm_h5_close(file);
  return status;
}

/* Least number from p->next on that no part which counts has. */
static int64_t free_number(const wm_parts_t *p) {
  int64_t number = p->next;
  for (int64_t i = 0; i < p->n_used; i++)
    number += p->used[i] == number;
  return number;
}

wm_status_t wm_parts_publish(wm_parts_t *p, const float *nll, wm_error_t *err) {
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
  WM_TRY(wm_agree(p->comm->world, pack(p, nll, &k, err), err));
  WM_TRY(write_part(p, &k, path, err));
  p->next = number + 1;
  memset(p->fresh, 0, (size_t)words(p) * sizeof *p->fresh);
  wm_log(p->log, WM_LOG_INFO, "sweep: kept %.1f %% of the cells in %s in %.2f s",
         100.0 * (double)k.all_cells / (double)p->n_cells, path, wm_seconds() - start);
cleanup:
  free(k.cells);
  free(k.nll);
  return status;
}

void wm_parts_remove(const wm_comm_t *comm, const char *folder) {
  wm_part_remove(comm, folder);
}
