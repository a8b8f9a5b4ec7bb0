/* Backward pass of causal attention, by blocks of queries of one head. With P the probabilities, m
 * the multipliers of dropout (1 without), O = (P m) V:
 *   dV += (P m)' dO     dP = m (dO V')     dS = P (dP - rowsum(P dP))     rowsum(P dP) = dO . O
 *   dQ = scale dS K     dK += scale dS' Q
 * Blocks of a head are taken in order on one thread, so sums over queries have one order. */
#include "attention_tile.h"
#include "softmax.h"
#include "wanamaker/model/gradients.h"

#include <assert.h>
#include <omp.h>
#include <stddef.h>

enum { QUERY_BLOCK = 5 * WM_TILE_ROWS, N_PARTS = 11 };

/* What a thread works in. `width` is d_head in whole panels. */
typedef struct {
  float *keys_across, *values_across; /* panels [d_head, WM_TILE_COLUMNS] of rows side by side */
  float *keys;                        /* panels [max_length, WM_TILE_COLUMNS] */
  float *dkeys, *dvalues;             /* [keys in whole tiles, width] */
  float *queries, *douts;             /* panels [QUERY_BLOCK, WM_TILE_COLUMNS] */
  float *rows;                        /* [WM_TILE_ROWS, d_head or width] */
  float *p, *dp;                      /* [QUERY_BLOCK, stride] */
  float *multipliers;                 /* [stride] */
  int64_t stride, width, key_panel;
} scratch_t;

static int64_t whole(int64_t n, int64_t tile) {
  return (n + tile - 1) / tile * tile;
}

/* Floats of every part, in whole cache lines, and all else of s; returns their sum. */
static int64_t scratch_sizes(int64_t max_length, int64_t d_head, int64_t *sizes, scratch_t *s) {
  /* A row ends with room for the tile of keys and the panel of scores that pass its end. */
  s->stride = whole(max_length + WM_TILE_ROWS, WM_TILE_COLUMNS) + WM_CACHE_LINE;
  s->width = wm_tile_panels(d_head) * WM_TILE_COLUMNS;
  s->key_panel = max_length * WM_TILE_COLUMNS;
  const int64_t across = wm_tile_panels(max_length) * WM_TILE_COLUMNS * d_head;
  const int64_t sums = whole(max_length, WM_TILE_ROWS) * s->width;
  const int64_t list[N_PARTS] = {across,
                                 across,
                                 max_length * s->width,
                                 sums,
                                 sums,
                                 QUERY_BLOCK * s->width,
                                 QUERY_BLOCK * s->width,
                                 WM_TILE_ROWS * s->width,
                                 QUERY_BLOCK * s->stride,
                                 QUERY_BLOCK * s->stride,
                                 s->stride};
  memcpy(sizes, list, sizeof list);
  return wm_tile_round_sizes(sizes, N_PARTS);
}

int64_t wm_attention_backward_scratch(int64_t max_length, int64_t d_head) {
  int64_t sizes[N_PARTS];
  scratch_t s;
  return scratch_sizes(max_length, d_head, sizes, &s);
}

static scratch_t scratch_place(int64_t max_length, int64_t d_head, float *memory) {
  int64_t sizes[N_PARTS];
  scratch_t s;
  scratch_sizes(max_length, d_head, sizes, &s);
  float **parts[N_PARTS] = {&s.keys_across, &s.values_across, &s.keys, &s.dkeys, &s.dvalues,
                            &s.queries,     &s.douts,         &s.rows, &s.p,     &s.dp,
                            &s.multipliers};
  wm_tile_place(memory, sizes, N_PARTS, parts);
  return s;
}

/* Everything that a head of a sequence works with. */
typedef struct {
  const wm_qkv_layout_t *layout;
  const wm_attention_dropout_t *dropout; /* NULL: none */
  int64_t head, sequence;
  float scale;
  const float *query;      /* of the sequence's first row; key and value follow */
  const float *out, *dout; /* of the sequence's first row and the head */
  float *dquery;
} task_t;

static double dot(const float *a, const float *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += (double)a[i] * (double)b[i];
  return sum;
}

/* Row of query `position`: p holds e^(score - max) and becomes P m, dp holds dO V' and becomes
 * scale dS; both end with zeros up to `end`. */
static void differentiate_row(const task_t *t, int64_t position, float factor, int64_t end,
                              float *multipliers, float *p, float *dp) {
  int64_t n = position + 1, width = t->layout->n_heads * t->layout->d_head;
  float along =
      (float)dot(t->dout + position * width, t->out + position * width, t->layout->d_head);
  if (t->dropout != NULL) {
    const wm_attention_dropout_t *d = t->dropout;
    wm_dropout_draw(&d->dropout, d->sequences[t->sequence], position,
                    wm_dropout_head_unit(d->max_positions, t->head), n, multipliers);
    for (int64_t j = 0; j < n; j++) {
      float probability = p[j] * factor;
      dp[j] = t->scale * probability * (dp[j] * multipliers[j] - along);
      p[j] = probability * multipliers[j];
    }
  } else {
    for (int64_t j = 0; j < n; j++) {
      p[j] *= factor;
      dp[j] = t->scale * p[j] * (dp[j] - along);
    }
  }
  memset(dp + n, 0, (size_t)(end - n) * sizeof *dp);
}

/* WM_TILE_ROWS rows of a product with columns that lie side by side; `n` of them are in x. */
static void multiply_across(const task_t *t, const float *x, int64_t x_stride, int64_t n,
                            float factor, const float *panels, int64_t columns, float *rows,
                            float *out, int64_t out_stride) {
  int64_t d = t->layout->d_head;
  wm_tile_scale(x, x_stride, n, d, factor, rows);
  for (int64_t p = 0; p < wm_tile_panels(columns); p++)
    wm_tile_product(d, rows, d, panels + p * WM_TILE_COLUMNS * d, out + p * WM_TILE_COLUMNS,
                    out_stride);
}

/* P m and scale dS of some queries of the block, from number `at` on, and their dQ. */
static void backward_rows(const task_t *t, int64_t first, int64_t at, int64_t n, int64_t end,
                          const scratch_t *s) {
  const wm_qkv_layout_t *l = t->layout;
  int64_t d = l->d_head, width = l->n_heads * d, position = first + at, keys = position + n;
  float *p = s->p + at * s->stride, *dp = s->dp + at * s->stride;
  multiply_across(t, t->query + position * l->row_stride, l->row_stride, n, t->scale,
                  s->keys_across, keys, s->rows, p, s->stride);
  multiply_across(t, t->dout + position * width, width, n, 1, s->values_across, keys, s->rows, dp,
                  s->stride);
  for (int64_t i = 0; i < n; i++) {
    float factor = wm_softmax_row(p + i * s->stride, position + i + 1, end);
    differentiate_row(t, position + i, factor, end, s->multipliers, p + i * s->stride,
                      dp + i * s->stride);
  }
  for (int64_t c = 0; c < wm_tile_panels(d); c++)
    wm_tile_product(keys, dp, s->stride, s->keys + c * s->key_panel, s->rows + c * WM_TILE_COLUMNS,
                    s->width);
  for (int64_t i = 0; i < n; i++)
    memcpy(t->dquery + (position + i) * l->row_stride, s->rows + i * s->width,
           (size_t)d * sizeof(float));
}

/* Adds a block's part of dK and dV of its first `end` keys, whole tiles of them. */
static void backward_keys(const task_t *t, int64_t n, int64_t end, const scratch_t *s) {
  const int64_t panel = QUERY_BLOCK * WM_TILE_COLUMNS;
  for (int64_t j = 0; j < end; j += WM_TILE_ROWS)
    for (int64_t c = 0; c < wm_tile_panels(t->layout->d_head); c++) {
      int64_t place = j * s->width + c * WM_TILE_COLUMNS;
      wm_tile_add_transposed(n, s->p + j, s->stride, s->douts + c * panel, s->dvalues + place,
                             s->width);
      wm_tile_add_transposed(n, s->dp + j, s->stride, s->queries + c * panel, s->dkeys + place,
                             s->width);
    }
}

static void backward_block(const task_t *t, int64_t first, int64_t n, const scratch_t *s) {
  const wm_qkv_layout_t *l = t->layout;
  const int64_t d = l->d_head, width = l->n_heads * d, panel = QUERY_BLOCK * WM_TILE_COLUMNS;
  const int64_t end = whole(first + n, WM_TILE_ROWS);
  wm_tile_copy(t->query + first * l->row_stride, l->row_stride, n, d, panel, s->queries);
  wm_tile_copy(t->dout + first * width, width, n, d, panel, s->douts);
  for (int64_t at = 0; at < n; at += WM_TILE_ROWS)
    backward_rows(t, first, at, n - at < WM_TILE_ROWS ? n - at : WM_TILE_ROWS, end, s);
  backward_keys(t, n, end, s);
}

static void backward_head(const task_t *t, int64_t length, const scratch_t *s) {
  const wm_qkv_layout_t *l = t->layout;
  const int64_t d = l->d_head, row = l->row_stride;
  const float *key = t->query + l->part_stride, *value = key + l->part_stride;
  float *dkey = t->dquery + l->part_stride, *dvalue = dkey + l->part_stride;
  const size_t sums = (size_t)(whole(length, WM_TILE_ROWS) * s->width) * sizeof(float);
  wm_tile_transpose(key, row, length, d, s->keys_across);
  wm_tile_transpose(value, row, length, d, s->values_across);
  wm_tile_copy(key, row, length, d, s->key_panel, s->keys);
  memset(s->dkeys, 0, sums);
  memset(s->dvalues, 0, sums);
  for (int64_t q = 0; q < length; q += QUERY_BLOCK)
    backward_block(t, q, length - q < QUERY_BLOCK ? length - q : QUERY_BLOCK, s);
  for (int64_t j = 0; j < length; j++) {
    memcpy(dkey + j * row, s->dkeys + j * s->width, (size_t)d * sizeof(float));
    memcpy(dvalue + j * row, s->dvalues + j * s->width, (size_t)d * sizeof(float));
  }
}

void wm_attention_backward(const wm_qkv_layout_t *layout, const float *qkv, const wm_batch_t *batch,
                           float scale, int64_t max_length, const wm_attention_dropout_t *dropout,
                           const float *out, const float *dout, float *scratch, float *dqkv) {
  const int64_t d = layout->d_head, width = layout->n_heads * d;
  const int64_t size = wm_attention_backward_scratch(max_length, d);
  if (dropout != NULL && dropout->dropout.rate == 0)
    dropout = NULL;
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int64_t s = 0; s < batch->n_sequences; s++)
    for (int64_t h = 0; h < layout->n_heads; h++) {
      int64_t first = batch->starts[s], length = batch->starts[s + 1] - first;
      assert(length <= max_length);
      const scratch_t own = scratch_place(max_length, d, scratch + omp_get_thread_num() * size);
      int64_t at = first * layout->row_stride + h * layout->head_stride;
      int64_t place = first * width + h * d;
      const task_t task = {.layout = layout,
                           .dropout = dropout,
                           .head = h,
                           .sequence = s,
                           .scale = scale,
                           .query = qkv + at,
                           .out = out + place,
                           .dout = dout + place,
                           .dquery = dqkv + at};
      backward_head(&task, length, &own);
    }
}
