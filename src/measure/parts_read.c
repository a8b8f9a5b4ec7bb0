/* Parts that earlier runs have left: which of them count, and their losses. */
#include "parts_folder.h"
#include "parts_internal.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/io/hdf5.h"

#include <inttypes.h>
#include <string.h>

/* One part while it is read: its cells, and where their losses begin. */
typedef struct {
  wm_h5_t *file;
  bool foreign; /* of another sweep */
  int64_t n;
  int64_t (*cells)[2]; /* [n] variant, block */
  int64_t *first;      /* [n + 1] */
} part_t;

enum { PIECE_LOSSES = 1 << 22 }; /* read at a time, more only for a larger cell */

/* Collective. */
static wm_status_t expect(part_t *part, const char *name, const char *expected, wm_error_t *err) {
  char *found = NULL;
  wm_status_t status = wm_h5_get_string(part->file, "/", name, &found, err);
  part->foreign = status == WM_OK && strcmp(found, expected) != 0;
  if (part->foreign)
    status = wm_fail(err, WM_INPUT,
                     "%s: is of a sweep with other inputs, settings, threads, CPU or program "
                     "(%s %s, here %s)",
                     wm_h5_path(part->file), name, found, expected);
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
  wm_status_t status =
      wm_alloc(&memory, wm_parts_words(p), sizeof(uint64_t), "bitmap of the cells", err);
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
    } else if (wm_parts_bit(seen, wm_parts_cell_of(p, v, b))) {
      status = wm_fail(err, WM_INPUT, "%s: /cells[%" PRId64 "] is there twice",
                       wm_h5_path(part->file), i);
    } else {
      wm_parts_set_bit(seen, wm_parts_cell_of(p, v, b));
      part->first[i + 1] = part->first[i] + wm_parts_predictions(p, b);
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
  WM_TRY(expect(part, "parts_key", p->key, err));
  WM_TRY(expect(part, "cut", p->cut, err));
  WM_TRY(read_cells(p, part, err));
  WM_TRY(wm_agree(p->comm->world, check_cells(p, part, err), err));
  WM_TRY(wm_h5_dims(part->file, "/nll", 1, &losses, err));
  if (losses != part->first[part->n])
    return wm_fail(err, WM_INPUT, "%s: /nll has %" PRId64 " losses, its cells take %" PRId64, path,
                   losses, part->first[part->n]);
  int64_t counts[2];
  WM_TRY(wm_h5_dims(part->file, "/counts", 2, counts, err));
  if (counts[0] != part->n || counts[1] != WM_PART_COUNTS)
    return wm_fail(err, WM_INPUT,
                   "%s: /counts is [%" PRId64 ", %" PRId64 "], expected [%" PRId64 ", %d]", path,
                   counts[0], counts[1], part->n, (int)WM_PART_COUNTS);
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
      memcpy(nll + wm_parts_place(p, cell), from + part->first[i] - part->first[begin], bytes);
    else
      memset(nll + wm_parts_place(p, cell), 0, bytes);
  }
}

/* The counts of cells [begin, begin + count) that no earlier part had, or zeros (NULL) again. */
static void place_counts(const wm_parts_t *p, const part_t *part, int64_t begin, int64_t count,
                         const double (*from)[WM_PART_COUNTS], wm_cell_t *cells) {
  for (int64_t i = 0; i < count && cells != NULL; i++) {
    const int64_t *cell = part->cells[begin + i];
    if (wm_parts_has(p, cell[0], cell[1]))
      continue;
    wm_cell_t counts = {0};
    if (from != NULL)
      counts = (wm_cell_t){from[i][0], from[i][1], from[i][2]};
    cells[wm_parts_cell_of(p, cell[0], cell[1])] = counts;
  }
}

/* Collective. Those of this rank's share. */
static wm_status_t read_counts(const wm_parts_t *p, const part_t *part, int64_t begin,
                               int64_t count, wm_cell_t *cells, wm_error_t *err) {
  void *buffer;
  const int64_t offset[2] = {begin, 0}, extent[2] = {count, WM_PART_COUNTS};
  wm_status_t status =
      wm_alloc(&buffer, count, WM_PART_COUNTS * sizeof(double), "counts of a part", err);
  WM_TRY(wm_agree(p->comm->world, status, err));
  WM_TRY(wm_h5_read(part->file, "/counts", H5T_NATIVE_DOUBLE, offset, extent, buffer, err));
  place_counts(p, part, begin, count, buffer, cells);
cleanup:
  free(buffer);
  return status;
}

/* Each rank reads a share of the part's cells. Collective. On failure nll and counts are as before:
 * the cells may be computed on another node, and nodes are merged by union of bits. */
static wm_status_t read_losses(wm_parts_t *p, const part_t *part, float *nll, wm_cell_t *cells,
                               wm_error_t *err) {
  int64_t begin, count, largest;
  void *buffer;
  wm_partition(part->n, p->comm->size, p->comm->rank, &begin, &count);
  int64_t end = begin + count, rounds = count_pieces(part, begin, end, &largest);
  wm_status_t status = wm_alloc(&buffer, largest, sizeof(float), "losses of a part", err);
  WM_TRY(wm_agree(p->comm->world, status, err));
  WM_TRY(read_counts(p, part, begin, count, cells, err));
  MPI_Allreduce(MPI_IN_PLACE, &rounds, 1, MPI_INT64_T, MPI_MAX, p->comm->world);
  for (int64_t at = begin; rounds > 0; rounds--) {
    int64_t stop = piece_end(part, at, end);
    int64_t offset = part->first[at], losses = part->first[stop] - offset;
    WM_TRY(wm_h5_read(part->file, "/nll", H5T_NATIVE_FLOAT, &offset, &losses, buffer, err));
    place_cells(p, part, at, stop, buffer, nll);
    at = stop;
  }
  for (int64_t i = 0; i < part->n; i++)
    wm_parts_set_bit(p->done, wm_parts_cell_of(p, part->cells[i][0], part->cells[i][1]));
cleanup:
  if (status != WM_OK) {
    place_cells(p, part, begin, end, NULL, nll);
    place_counts(p, part, begin, count, NULL, cells);
  }
  free(buffer);
  return status;
}

wm_status_t wm_parts_read(wm_parts_t *p, float *nll, wm_cell_t *cells, wm_error_t *err) {
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
      status = read_losses(p, &part, nll, cells, &why);
    close_part(&part);
    p->exist |= status == WM_OK;
    if (status == WM_OK || status == WM_ENVIRONMENT || part.foreign)
      p->used[p->n_used++] = p->used[i];
    if (status != WM_OK)
      wm_log(p->log, WM_LOG_WARN, "sweep: a part is left out: %s", why.message);
  }
  return WM_OK;
}
