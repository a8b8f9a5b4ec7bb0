/* Causal attention by blocks of queries of one head. A thread copies the keys and values that its
 * block needs into panels, once, and takes some queries at a time: their scores and the weights
 * that come of them stay in the nearest cache. */
#include "attention_tile.h"
#include "softmax.h"
#include "wanamaker/model/gradients.h"
#include "wanamaker/model/kernels.h"

#include <assert.h>
#include <omp.h>
#include <stddef.h>

void wm_exp_rows(const float *x, int64_t count, float *out) {
  int64_t i = 0;
  for (; i + WM_LANES <= count; i += WM_LANES)
    wm_lanes_store(out + i, wm_lanes_exp(wm_lanes_load(x + i)));
  if (i < count) {
    wm_lanes_t rest = wm_lanes_exp(wm_lanes_load_part(x + i, count - i, 0));
    memcpy(out + i, &rest, (size_t)(count - i) * sizeof *out);
  }
}

int64_t wm_query_blocks(int64_t n_sequences, const int64_t *starts, wm_query_block_t *blocks) {
  int64_t count = 0;
  for (int64_t s = 0; s < n_sequences; s++) {
    int64_t length = starts[s + 1] - starts[s];
    for (int64_t q = 0; q < length; q += WM_QUERY_BLOCK)
      blocks[count++] = (wm_query_block_t){
          starts[s], q, length - q < WM_QUERY_BLOCK ? length - q : WM_QUERY_BLOCK, s};
  }
  return count;
}

/* What a thread works in. */
typedef struct {
  float *queries; /* [WM_TILE_ROWS, d_head], scaled */
  float *scores;  /* [WM_TILE_ROWS, score_stride] */
  float *mixed;   /* [WM_TILE_ROWS, panels of d_head] */
  float *keys;    /* panels [d_head, WM_TILE_COLUMNS] of keys side by side */
  float *values;  /* panels [max_length, WM_TILE_COLUMNS] of dimensions side by side */
  int64_t score_stride, mixed_stride, value_panel;
} scratch_t;

enum { N_PARTS = 5 };

/* Floats of every part, in whole cache lines, and all else of s; returns their sum. */
static int64_t scratch_sizes(int64_t max_length, int64_t d_head, int64_t *sizes, scratch_t *s) {
  int64_t keys = wm_tile_panels(max_length) * WM_TILE_COLUMNS;
  s->score_stride = keys + WM_CACHE_LINE; /* rows a power of two apart would share a cache set */
  s->mixed_stride = wm_tile_panels(d_head) * WM_TILE_COLUMNS;
  s->value_panel = max_length * WM_TILE_COLUMNS;
  sizes[0] = WM_TILE_ROWS * d_head;
  sizes[1] = WM_TILE_ROWS * s->score_stride;
  sizes[2] = WM_TILE_ROWS * s->mixed_stride;
  sizes[3] = keys * d_head;
  sizes[4] = max_length * s->mixed_stride;
  return wm_tile_round_sizes(sizes, N_PARTS);
}

int64_t wm_attention_scratch(int64_t max_length, int64_t d_head) {
  int64_t sizes[N_PARTS];
  scratch_t s;
  return scratch_sizes(max_length, d_head, sizes, &s);
}

static scratch_t scratch_place(int64_t max_length, int64_t d_head, float *memory) {
  int64_t sizes[N_PARTS];
  scratch_t s;
  scratch_sizes(max_length, d_head, sizes, &s);
  float **parts[N_PARTS] = {&s.queries, &s.scores, &s.mixed, &s.keys, &s.values};
  wm_tile_place(memory, sizes, N_PARTS, parts);
  return s;
}

/* Drops probabilities of the query at `position`, which are x[0 .. position] but for a factor. */
static void drop(const wm_attention_dropout_t *d, int64_t sequence, int64_t position, int64_t head,
                 float *x) {
  enum { PIECE = 256 };
  float multipliers[PIECE];
  int64_t n = position + 1;
  int64_t unit = wm_dropout_head_unit(d->max_positions, head);
  for (int64_t j = 0; j < n; j += PIECE) {
    int64_t count = n - j < PIECE ? n - j : PIECE;
    wm_dropout_draw(&d->dropout, d->sequences[sequence], position, unit + j, count, multipliers);
    for (int64_t k = 0; k < count; k++)
      x[j + k] *= multipliers[k];
  }
}

/* One head of a block. */
typedef struct {
  const wm_qkv_layout_t *layout;
  const wm_query_block_t *block;
  const wm_attention_dropout_t *dropout; /* NULL: none */
  int64_t head;
  float scale;
  const float *query; /* of the sequence's first row; key and value follow */
  float *out;         /* of the sequence's first row and the head */
} task_t;

/* Queries first .. first + n - 1 of the sequence, n <= WM_TILE_ROWS: rows beyond them are computed,
 * for zeros, and left. */
static void attend_rows(const task_t *t, int64_t first, int64_t n, const scratch_t *s) {
  int64_t d = t->layout->d_head, keys = first + n, width = t->layout->n_heads * d;
  wm_tile_scale(t->query + first * t->layout->row_stride, t->layout->row_stride, n, d, t->scale,
                s->queries);
  for (int64_t p = 0; p < wm_tile_panels(keys); p++)
    wm_tile_product(d, s->queries, d, s->keys + p * WM_TILE_COLUMNS * d,
                    s->scores + p * WM_TILE_COLUMNS, s->score_stride);
  float factors[WM_TILE_ROWS];
  for (int64_t i = 0; i < n; i++) {
    float *row = s->scores + i * s->score_stride;
    factors[i] = wm_softmax_row(row, first + i + 1, keys);
    if (t->dropout != NULL)
      drop(t->dropout, t->block->sequence, first + i, t->head, row);
  }
  for (int64_t p = 0; p < wm_tile_panels(d); p++)
    wm_tile_product(keys, s->scores, s->score_stride, s->values + p * s->value_panel,
                    s->mixed + p * WM_TILE_COLUMNS, s->mixed_stride);
  for (int64_t i = 0; i < n; i++) {
    const float *mixed = s->mixed + i * s->mixed_stride;
    float factor = factors[i], *restrict out = t->out + (first + i) * width;
    for (int64_t j = 0; j < d; j++)
      out[j] = mixed[j] * factor;
  }
}

static void attend_block(const task_t *t, const scratch_t *s) {
  int64_t first = t->block->first_query, end = first + t->block->n;
  const wm_qkv_layout_t *l = t->layout;
  wm_tile_transpose(t->query + l->part_stride, l->row_stride, end, l->d_head, s->keys);
  wm_tile_copy(t->query + 2 * l->part_stride, l->row_stride, end, l->d_head, s->value_panel,
               s->values);
  for (int64_t q = first; q < end; q += WM_TILE_ROWS)
    attend_rows(t, q, end - q < WM_TILE_ROWS ? end - q : WM_TILE_ROWS, s);
}

void wm_attention_apply_dropout(const wm_qkv_layout_t *layout, const float *qkv,
                                const wm_query_block_t *blocks, int64_t n_blocks, float scale,
                                int64_t max_length, const wm_attention_dropout_t *dropout,
                                float *scratch, float *out) {
  const int64_t d = layout->d_head, size = wm_attention_scratch(max_length, d);
  if (dropout != NULL && dropout->dropout.rate == 0)
    dropout = NULL;
    /* Backwards: a sequence's last block has most to do. */
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int64_t b = n_blocks - 1; b >= 0; b--)
    for (int64_t h = 0; h < layout->n_heads; h++) {
      assert(blocks[b].first_query + blocks[b].n <= max_length);
      const scratch_t s = scratch_place(max_length, d, scratch + omp_get_thread_num() * size);
      int64_t row = blocks[b].first_row;
      const task_t task = {.layout = layout,
                           .block = &blocks[b],
                           .dropout = dropout,
                           .head = h,
                           .scale = scale,
                           .query = qkv + row * layout->row_stride + h * layout->head_stride,
                           .out = out + (row * layout->n_heads + h) * d};
      attend_block(&task, &s);
    }
}

void wm_attention_apply(const wm_qkv_layout_t *layout, const float *qkv,
                        const wm_query_block_t *blocks, int64_t n_blocks, float scale,
                        int64_t max_length, float *scratch, float *out) {
  wm_attention_apply_dropout(layout, qkv, blocks, n_blocks, scale, max_length, NULL, scratch, out);
}
