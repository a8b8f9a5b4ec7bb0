#include "wanamaker/linalg/gram.h"
#include "gram_internal.h"
#include "wanamaker/base/mem.h"

#include <string.h>

enum { SUM_COLUMNS = 64 }; /* columns a thread sums at a time */

int64_t wm_gram_bytes_per_layer(int64_t d) {
  return (wm_gram_set_size(d) * WM_ROW_SETS + 2 * d) * (int64_t)sizeof(double);
}

static double *rows_of(const wm_gram_t *g, int node_rank) {
  return (double *)g->rows.data + node_rank * (1 + 2 * g->max_rows * g->d);
}

wm_status_t wm_gram_create(const wm_comm_t *comm, int64_t d, int64_t layers, int64_t max_rows,
                           wm_gram_t **out, wm_error_t *err) {
  *out = NULL;
  void *memory = NULL;
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_gram_t), "Gram matrices", err);
  wm_gram_t *g = memory;
  if (status == WM_OK) {
    *g = (wm_gram_t){.comm = comm, .d = d, .layers = layers, .max_rows = max_rows};
    status = wm_alloc(&memory, layers * WM_ROW_SETS * wm_gram_small_size(d), sizeof(double), "sums",
                      err);
    g->sums = memory;
  }
  if (status == WM_OK) {
    status = wm_alloc(&memory, layers, sizeof(bool), "Gram matrices", err);
    g->shifted = memory;
  }
  const int64_t word = sizeof(double);
  WM_TRY(wm_agree(comm->world, status, err));
  status = wm_shared_create(comm, layers * WM_ROW_SETS * wm_gram_set_size(d) * word,
                            "Gram matrices", &g->matrices, err);
  WM_TRY(wm_agree(comm->world, status, err));
  status = wm_shared_create(comm, layers * 2 * d * word, "provisional means", &g->shifts, err);
  WM_TRY(wm_agree(comm->world, status, err));
  status = wm_shared_create(comm, comm->node_size * (1 + 2 * max_rows * d) * word,
                            "rows for the Gram matrices", &g->rows, err);
  WM_TRY(wm_agree(comm->world, status, err));
  *out = g;
cleanup:
  if (status != WM_OK)
    wm_gram_free(g);
  return status;
}

void wm_gram_free(wm_gram_t *gram) {
  if (gram == NULL)
    return;
  wm_shared_destroy(&gram->rows);
  wm_shared_destroy(&gram->shifts);
  wm_shared_destroy(&gram->matrices);
  free(gram->sums);
  free(gram->shifted);
  free(gram);
}

void wm_gram_reset(wm_gram_t *gram) {
  memset(gram->shifted, 0, (size_t)gram->layers * sizeof(bool));
  memset(gram->sums, 0,
         (size_t)(gram->layers * WM_ROW_SETS * wm_gram_small_size(gram->d)) * sizeof(double));
  wm_shared_sync(&gram->matrices);
  int64_t first, length;
  wm_partition(gram->matrices.bytes, gram->comm->node_size, gram->comm->node_rank, &first, &length);
  wm_zero((char *)gram->matrices.data + first, (size_t)length);
  wm_shared_sync(&gram->matrices);
}

/* The mean of rank 0's rows, given to every node. */
static void set_shift(wm_gram_t *g, int64_t layer, const float *x, const float *y,
                      const int64_t *kept, int64_t n_kept) {
  const int64_t d = g->d;
  double *shift = wm_gram_shift(g, layer);
  if (g->comm->rank == 0) {
    memset(shift, 0, (size_t)(2 * d) * sizeof *shift);
    for (int64_t r = 0; r < n_kept; r++)
      for (int64_t j = 0; j < d; j++) {
        shift[j] += (double)x[kept[r] * d + j] / (double)n_kept;
        shift[d + j] += (double)y[kept[r] * d + j] / (double)n_kept;
      }
  }
  if (g->comm->node_rank == 0)
    wm_broadcast(g->comm->leaders, 0, shift, 2 * d * (int64_t)sizeof *shift);
  wm_shared_sync(&g->shifts);
  g->shifted[layer] = true;
}

/* Shifted rows into this rank's published place, and their sums. */
static void publish_rows(wm_gram_t *g, wm_row_set_t set, int64_t layer, const float *x,
                         const float *y, const int64_t *kept, int64_t n_kept) {
  const int64_t d = g->d;
  const double *shift = wm_gram_shift(g, layer);
  double *mine = rows_of(g, g->comm->node_rank);
  double *px = mine + 1, *py = px + g->max_rows * d;
  double *yy = wm_gram_sums(g, set, layer), *x_sum = yy + d, *y_sum = x_sum + d;
  mine[0] = (double)n_kept;
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < n_kept; r++)
    for (int64_t j = 0; j < d; j++) {
      px[r * d + j] = (double)x[kept[r] * d + j] - shift[j];
      py[r * d + j] = (double)y[kept[r] * d + j] - shift[d + j];
    }
#pragma omp parallel for schedule(static) /* columns are shared out: sums keep their order */
  for (int64_t first = 0; first < d; first += SUM_COLUMNS) {
    int64_t last = first + SUM_COLUMNS < d ? first + SUM_COLUMNS : d;
    for (int64_t r = 0; r < n_kept; r++)
      for (int64_t j = first; j < last; j++) {
        x_sum[j] += px[r * d + j];
        y_sum[j] += py[r * d + j];
        yy[j] += py[r * d + j] * py[r * d + j];
      }
  }
  y_sum[d] += (double)n_kept;
}

wm_status_t wm_gram_add(wm_gram_t *gram, wm_row_set_t set, int64_t layer, const float *x,
                        const float *y, const int64_t *kept, int64_t n_kept, wm_error_t *err) {
  const wm_comm_t *c = gram->comm;
  const int64_t d = gram->d;
  if (!gram->shifted[layer])
    set_shift(gram, layer, x, y, kept, n_kept);
  publish_rows(gram, set, layer, x, y, kept, n_kept);
  wm_shared_sync(&gram->rows);
  double *xx = wm_gram_set(gram, set, layer), *xy = xx + d * d;
  wm_status_t status = WM_OK;
  for (int r = 0; r < c->node_size && status == WM_OK; r++) {
    const double *rows = rows_of(gram, r);
    status = wm_gram_update(rows + 1, rows + 1 + gram->max_rows * d, (int64_t)rows[0], d,
                            c->node_size, c->node_rank, xx, xy, err);
  }
  wm_shared_sync(&gram->rows); /* nobody publishes anew before all have read */
  return status;
}

/* Adds up the nodes' matrices on their leaders and spreads the small sums to the node. */
static void reduce_layer(wm_gram_t *g, wm_row_set_t set, int64_t layer) {
  const int64_t d = g->d;
  double *xx = wm_gram_set(g, set, layer), *small = xx + 2 * d * d;
  wm_sum_f64(g->comm->world, wm_gram_sums(g, set, layer), wm_gram_small_size(d));
  if (g->comm->node_rank == 0) {
    wm_sum_f64(g->comm->leaders, xx, 2 * d * d);
    memcpy(small, wm_gram_sums(g, set, layer), (size_t)wm_gram_small_size(d) * sizeof *small);
  }
}

void wm_gram_finish(wm_gram_t *gram) {
  const wm_comm_t *c = gram->comm;
  wm_shared_sync(&gram->matrices);
  for (int64_t l = 0; l < gram->layers; l++)
    for (int set = 0; set < WM_ROW_SETS; set++)
      reduce_layer(gram, set, l);
  wm_shared_sync(&gram->matrices);
  for (int64_t l = 0; l < gram->layers; l++)
    for (int set = 0; set < WM_ROW_SETS; set++)
      wm_gram_mirror(gram->d, c->node_size, c->node_rank, wm_gram_set(gram, set, l));
  wm_shared_sync(&gram->matrices);
  for (int64_t l = 0; l < gram->layers; l++)
    for (int set = 0; set < WM_ROW_SETS; set++) {
      wm_moments_t m = wm_gram_moments(gram, set, l);
      if (m.count > 0)
        wm_ridge_centre(&m, c->node_size, c->node_rank);
    }
  wm_shared_sync(&gram->matrices);
  for (int64_t l = 0; l < gram->layers && c->node_rank == 0; l++)
    for (int set = 0; set < WM_ROW_SETS; set++) {
      wm_moments_t m = wm_gram_moments(gram, set, l);
      if (m.count > 0)
        wm_ridge_centre_means(&m);
    }
  wm_shared_sync(&gram->matrices);
}

wm_moments_t wm_gram_moments(const wm_gram_t *gram, wm_row_set_t set, int64_t layer) {
  const int64_t d = gram->d;
  double *xx = wm_gram_set(gram, set, layer), *yy = xx + 2 * d * d;
  const double *shift = wm_gram_shift(gram, layer);
  return (wm_moments_t){.dx = d,
                        .dy = d,
                        .count = yy[3 * d],
                        .xx = xx,
                        .xy = xx + d * d,
                        .yy = yy,
                        .x_sum = yy + d,
                        .y_sum = yy + 2 * d,
                        .x_shift = shift,
                        .y_shift = shift + d};
}
