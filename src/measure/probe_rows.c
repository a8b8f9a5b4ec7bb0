#include "wanamaker/measure/probe_rows.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/measure/evaluate.h"
#include "wanamaker/measure/features.h"
#include "wanamaker/measure/variants.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* --- life ---------------------------------------------------------------------------------------
 */

int64_t wm_probe_rows_bytes(int64_t rows, int64_t positions, int64_t layers, int64_t d) {
  return rows * ((1 + layers) * d * (int64_t)sizeof(float) + 2 * (int64_t)sizeof(int64_t)) +
         positions * (2 + 4 * layers) * (int64_t)sizeof(double);
}

int64_t wm_probe_rows_group(int64_t rows, int64_t positions, int64_t layers, int64_t d,
                            int64_t memory_bytes) {
  const int64_t fixed = 3 * rows * d * (int64_t)sizeof(float);
  while (layers > 0 && memory_bytes > 0 &&
         fixed + wm_probe_rows_bytes(rows, positions, layers, d) > memory_bytes)
    --layers;
  return layers;
}

static void list_rows(const wm_comm_t *comm, const wm_blocks_t *blocks, wm_probe_rows_t *r) {
  const wm_windows_t *w = blocks->windows;
  int64_t i = 0;
  for (int64_t b = comm->rank; b < blocks->n; b += comm->size) {
    const int64_t end = w->predicted_offset[blocks->first_window[b + 1]];
    for (int64_t p = w->predicted_offset[blocks->first_window[b]]; p < end; p++) {
      r->block[i] = b;
      r->place[i++] = p;
    }
  }
}

wm_status_t wm_probe_rows_create(const wm_comm_t *comm, const wm_blocks_t *blocks, int64_t d,
                                 int64_t capacity, wm_probe_rows_t *r, wm_error_t *err) {
  wm_status_t status;
  void *memory;
  int64_t most;
  *r = (wm_probe_rows_t){.d = d, .capacity = capacity, .total = blocks->windows->n_predicted};
  r->n = wm_features_rows(comm, blocks, &most);
  WM_TRY(wm_alloc(&memory, 2 * r->n, sizeof(int64_t), "places of rows", err));
  r->place = memory;
  r->block = r->place + r->n;
  WM_TRY(wm_alloc(&memory, r->n * d, sizeof(float), "embeddings", err));
  r->e = memory;
  WM_TRY(wm_alloc(&memory, capacity * r->n * d, sizeof(float), "MLP inputs", err));
  r->x = memory;
  WM_TRY(wm_alloc(&memory, (2 + 4 * capacity) * r->total, sizeof(double), "losses", err));
  r->memory = r->full = memory;
  r->entropy = r->full + r->total;
  r->linear = r->entropy + r->total;
  r->divergence = r->linear + capacity * r->total;
  r->agreed = r->divergence + capacity * r->total;
  r->factor = r->agreed + capacity * r->total;
  list_rows(comm, blocks, r);
cleanup:
  return status;
}

void wm_probe_rows_destroy(wm_probe_rows_t *r) {
  free(r->place);
  free(r->e);
  free(r->x);
  free(r->memory);
  memset(r, 0, sizeof *r);
}

/* --- pass ---------------------------------------------------------------------------------------
 */

/* What a collection works with. */
typedef struct {
  wm_probe_rows_t *r;
  wm_model_t *model;
  const wm_blocks_t *blocks;
  wm_block_t block;
  int64_t row; /* its first among this rank's */
  wm_variants_t variants;
  wm_evaluator_t *evaluator;
  wm_evaluator_watch_t watch;
  int64_t max_variants;
  float *nll; /* [1 + max_variants, rows of a block] */
  wm_cell_t *cells;
  wm_position_detail_t detail;
  void *memory;
} pass_t;

/* Rows of predicted positions of the block. */
static void keep(const pass_t *p, const float *from, float *to) {
  const int64_t d = p->r->d;
  for (int64_t i = 0; i < p->block.rows; i++)
    if (p->block.targets[i] >= 0) {
      memcpy(to, from + i * d, (size_t)d * sizeof *to);
      to += d;
    }
}

/* 1 / sqrt(variance + eps) of a row. */
static double factor_of(const float *h, int64_t d, double eps) {
  double mean = 0, sum = 0;
  for (int64_t j = 0; j < d; j++)
    mean += (double)h[j];
  mean /= (double)d;
  for (int64_t j = 0; j < d; j++)
    sum += ((double)h[j] - mean) * ((double)h[j] - mean);
  return 1 / sqrt(sum / (double)d + eps);
}

/* Of h, the input of the layer norm in front of the MLP of layer number `index`. */
static void keep_factors(const pass_t *p, int64_t index, const float *h) {
  double *to = p->r->factor + index * p->r->total + p->block.first_prediction;
  const float *gamma, *beta;
  double eps;
  wm_model_mlp_norm(p->model, p->r->layers[index], &gamma, &beta, &eps);
  for (int64_t i = 0; i < p->block.rows; i++)
    if (p->block.targets[i] >= 0)
      *to++ = factor_of(h + i * p->r->d, p->r->d, eps);
}

/* Number of a layer among those that are collected, -1: it is not. */
static int64_t index_of(const wm_probe_rows_t *r, int64_t layer) {
  for (int64_t i = 0; i < r->n_layers; i++)
    if (r->layers[i] == layer)
      return i;
  return -1;
}

/* With a parallel residual the MLP's layer norm has this h for its input. */
static void see_front(void *object, int64_t layer, const float *h) {
  const pass_t *p = object;
  const int64_t index = index_of(p->r, layer);
  if (layer == 0)
    keep(p, h, p->r->e + p->row * p->r->d);
  if (index >= 0 && wm_model_arch(p->model)->parallel_residual)
    keep_factors(p, index, h);
}

static void see_input(void *object, int64_t layer, const float *h, const float *x) {
  const pass_t *p = object;
  const int64_t index = index_of(p->r, layer);
  if (index < 0)
    return;
  if (!wm_model_arch(p->model)->parallel_residual)
    keep_factors(p, index, h);
  keep(p, x, p->r->x + (index * p->r->n + p->row) * p->r->d);
}

static void spread(const wm_probe_rows_t *r, const pass_t *p, int64_t first, int64_t count) {
  const wm_block_t *b = &p->block;
  const int64_t n = b->n_predictions, at = b->first_prediction;
  for (int64_t i = 0; i < n; i++) {
    r->full[at + i] = (double)p->nll[i];
    r->entropy[at + i] = (double)p->detail.entropy[i];
  }
  for (int64_t v = 0; v < count; v++)
    for (int64_t i = 0; i < n; i++) {
      const int64_t to = (first + v) * r->total + at + i, from = (1 + v) * n + i;
      r->linear[to] = (double)p->nll[from];
      r->divergence[to] = (double)p->detail.divergence[from];
      r->agreed[to] = p->detail.agreed[from];
    }
}

/* All of the loaded block: its inputs with the first group of variants. */
static wm_status_t take_block(pass_t *p, wm_error_t *err) {
  wm_status_t status = WM_OK;
  wm_evaluator_set_watch(p->evaluator, &p->watch);
  for (int64_t v = 0; v < p->r->n_layers && status == WM_OK; v += p->max_variants) {
    const int64_t left = p->r->n_layers - v;
    const int64_t count = left < p->max_variants ? left : p->max_variants;
    status = wm_evaluate_block(p->evaluator, &p->block, 1 + v, count, p->nll, p->cells, err);
    if (status == WM_OK)
      spread(p->r, p, v, count);
    wm_evaluator_set_watch(p->evaluator, NULL);
  }
  return status;
}

static wm_status_t open_pass(pass_t *p, const wm_surrogates_t *surrogates,
                             const wm_probe_stack_t *stack, wm_error_t *err) {
  const int64_t n_layers = wm_model_arch(p->model)->n_layers, rows = p->blocks->max_rows;
  int64_t stack_rows = stack->stack_rows;
  wm_status_t status;
  p->max_variants = p->r->n_layers < stack->max_variants ? p->r->n_layers : stack->max_variants;
  WM_TRY(wm_evaluator_fit(p->model, p->blocks, stack->memory_bytes, true, &p->max_variants,
                          &stack_rows, err));
  WM_TRY(wm_block_create(p->blocks, &p->block, err));
  WM_TRY(wm_variants_create(&p->variants, err));
  for (int64_t i = 0; i < p->r->n_layers; i++)
    WM_TRY(wm_variants_add(&p->variants, &p->r->layers[i], 1, n_layers, err));
  WM_TRY(wm_evaluator_create(p->model, surrogates, &p->variants, p->blocks, p->max_variants,
                             stack_rows, true, &p->evaluator, err));
  const int64_t slots = 1 + p->max_variants;
  WM_TRY(wm_alloc(&p->memory,
                  slots * (int64_t)sizeof *p->cells +
                      rows * (slots * 2 + 1) * (int64_t)sizeof(float) + slots * rows,
                  1, "losses of a block", err));
  p->cells = p->memory;
  p->nll = (float *)(p->cells + slots);
  p->detail.entropy = p->nll + slots * rows;
  p->detail.divergence = p->detail.entropy + rows;
  p->detail.agreed = (uint8_t *)(p->detail.divergence + slots * rows);
  p->watch = (wm_evaluator_watch_t){p, see_front, see_input};
  wm_evaluator_set_detail(p->evaluator, &p->detail);
cleanup:
  return status;
}

static void close_pass(pass_t *p) {
  wm_block_destroy(&p->block);
  wm_evaluator_free(p->evaluator);
  wm_variants_destroy(&p->variants);
  free(p->memory);
}

static wm_status_t check_full(const wm_probe_rows_t *r, wm_error_t *err) {
  for (int64_t i = 0; i < r->total; i++)
    if (!isfinite(r->full[i]))
      return wm_fail(err, WM_NUMERICAL,
                     "the full model's loss is not finite at prediction %" PRId64, i);
  return WM_OK;
}

wm_status_t wm_probe_rows_collect(wm_probe_rows_t *r, const wm_comm_t *comm, wm_model_t *model,
                                  const wm_surrogates_t *surrogates, const wm_blocks_t *blocks,
                                  const int32_t *ids, const int64_t *layers, int64_t n_layers,
                                  const wm_probe_stack_t *stack, wm_progress_t *progress,
                                  wm_error_t *err) {
  pass_t p = {.r = r, .model = model, .blocks = blocks};
  const int64_t before = progress->done;
  r->layers = layers;
  r->n_layers = n_layers;
  memset(r->memory, 0, (size_t)((2 + 4 * r->capacity) * r->total) * sizeof *r->memory);
  wm_status_t status = open_pass(&p, surrogates, stack, err);
  for (int64_t b = comm->rank; b < blocks->n && status == WM_OK; b += comm->size) {
    wm_block_load(blocks, ids, b, &p.block);
    status = take_block(&p, err);
    p.row += p.block.n_predictions;
    wm_progress_update(progress, before + r->total * (b + 1) / blocks->n);
  }
  close_pass(&p);
  status = wm_agree(comm->world, status, err);
  if (status != WM_OK)
    return status;
  wm_sum_f64(comm->world, r->memory, (2 + 4 * r->capacity) * r->total);
  wm_progress_update(progress, before + r->total);
  return check_full(r, err);
}
