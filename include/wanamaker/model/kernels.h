/* The network's kernels other than matrix products, float32. reference.h has a plain float64
 * statement of each.
 *
 * A row's result depends on that row (for attention: on its sequence) alone, bit for bit: not on
 * its place in the array, on its neighbours or on which thread takes it. Not collective; all use
 * the process's OpenMP threads unless said otherwise.
 */
#ifndef WANAMAKER_MODEL_KERNELS_H
#define WANAMAKER_MODEL_KERNELS_H

#include "wanamaker/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* out[i] = e^x[i], x[i] <= 88, error at most 2 units in the last place; results below 1.2e-38
 * become 0. out may be x. On the calling thread. */
void wm_exp_rows(const float *x, int64_t count, float *out);

/* Layer norm's parameters: gamma and beta [width], borrowed. */
typedef struct {
  const float *gamma, *beta;
  int64_t width;
  double eps;
} wm_norm_t;

/* out[i, :] = gamma (x - mean) / sqrt(variance + eps) + beta of row x[index[i], :] (x[i, :] when
 * index is NULL), i < rows; mean and then variance by float32 sums in 16 lanes, added in float64.
 */
void wm_norm_apply(const wm_norm_t *norm, const float *x, const int64_t *index, int64_t rows,
                   float *out);

/* Where queries, keys and values lie in a row of a fused buffer: head h's parts begin at
 * h * head_stride and then every part_stride floats, query, key, value.
 *   GPT-2     [3, heads, d_head]   head_stride = d_head      part_stride = D
 *   GPT-NeoX  [heads, 3, d_head]   head_stride = 3 d_head    part_stride = d_head */
typedef struct {
  int64_t n_heads, d_head;
  int64_t row_stride, head_stride, part_stride;
} wm_qkv_layout_t;

/* cos and sin [max_positions, dims / 2] of position * base^(-2 i / dims), computed in float64. */
typedef struct {
  int64_t dims, max_positions;
  float *cos, *sin;
} wm_rotary_t;

wm_status_t wm_rotary_create(int64_t dims, double base, int64_t max_positions, wm_rotary_t *out,
                             wm_error_t *err);
/* Harmless on a zeroed object. */
void wm_rotary_destroy(wm_rotary_t *rotary);

/* Turns the first `dims` dimensions of every query and key in place: dimension i pairs with
 * i + dims / 2. positions[row] is the row's place in its sequence. */
void wm_rotary_apply(const wm_rotary_t *rotary, const wm_qkv_layout_t *layout,
                     const int32_t *positions, int64_t rows, float *qkv);

/* Work of attention: some consecutive queries of one sequence. */
enum { WM_QUERY_BLOCK = 256 };
typedef struct {
  int64_t first_row;      /* of the sequence, in the batch */
  int64_t first_query, n; /* queries, counted in the sequence */
  int64_t sequence;       /* in the batch */
} wm_query_block_t;

/* Cuts sequences starts[0 .. n_sequences] into blocks of WM_QUERY_BLOCK queries (the last one of a
 * sequence may be shorter); returns their number, at most the number of rows. */
int64_t wm_query_blocks(int64_t n_sequences, const int64_t *starts, wm_query_block_t *blocks);

/* Floats of scratch per thread for sequences of at most max_length. */
int64_t wm_attention_scratch(int64_t max_length, int64_t d_head);

/* out[row, h * d_head ..] = softmax(scale q k' over the sequence's positions up to the row's own) v
 * for every head; out: [rows, n_heads * d_head]. Scores exist for a few queries of one head per
 * thread: `scratch` holds wm_attention_scratch(max_length, d_head) floats for each of
 * omp_get_max_threads() threads, 64-byte aligned. */
void wm_attention_apply(const wm_qkv_layout_t *layout, const float *qkv,
                        const wm_query_block_t *blocks, int64_t n_blocks, float scale,
                        int64_t max_length, float *scratch, float *out);

/* a[i] += b[i]. */
void wm_add_rows(float *a, const float *b, int64_t count);

/* Running log-sum-exp of a row whose logits come in tiles. */
typedef struct {
  double max, sum;     /* sum of e^(logit - max) */
  double target_logit; /* of the target, once its tile has come */
} wm_log_sum_t;

void wm_log_sum_init(wm_log_sum_t *state, int64_t rows);
/* Takes in logits[rows, width] of vocabulary entries first .. first + width - 1. */
void wm_log_sum_add(wm_log_sum_t *state, const float *logits, int64_t rows, int64_t first,
                    int64_t width, const int32_t *targets);
/* log(sum) + max - target's logit. */
double wm_log_sum_nll(const wm_log_sum_t *state);

/* How far the distributions of some rows ("followers") are from that of another one (their
 * "leader") at the same position, logits coming in tiles of the vocabulary. With f and g the
 * leader's and a follower's logits, m the leader's maximum and c any number of each tile,
 *     KL(leader || follower) = sum p_f (log p_f - log p_g)
 *                            = (S_f - S_g) / sum e^(f - m) + lse(g) - lse(f),
 *     S_g = sum e^(f - m) (g - c),
 * so that a tile of the leader is kept as its weights e^(f - m) alone; c is the leader's maximum so
 * far, which keeps the terms small. Products are float32, sums float64. */
typedef struct {
  wm_log_sum_t loss; /* the same bits as without comparison */
  double cross;      /* S of the row, at the leader's maximum so far */
  double own;        /* leader: sum of e^(f - m) (f - m) */
  float best;        /* largest logit so far, and its first place */
  int32_t top;       /* -1: none yet */
} wm_compare_t;

/* What a tile of the leader does to sums that were made at its earlier maximum. */
typedef struct {
  double max;    /* now */
  double factor; /* S <- factor S */
} wm_compare_move_t;

void wm_compare_init(wm_compare_t *state, int64_t rows);
/* Takes in a tile logits[width] of the leader; first and target as in wm_log_sum_add. weights
 * [width] <- e^(f - m). On the calling thread, like the next one. */
void wm_compare_lead(wm_compare_t *leader, const float *logits, int64_t first, int64_t width,
                     int32_t target, float *weights, wm_compare_move_t *move);
/* The same tile of a follower, after the leader's. */
void wm_compare_follow(wm_compare_t *follower, const float *logits, int64_t first, int64_t width,
                       int32_t target, const float *weights, const wm_compare_move_t *move);
/* KL(leader || follower) in nats once all tiles have come. */
double wm_compare_divergence(const wm_compare_t *leader, const wm_compare_t *follower);
/* Entropy of the leader's distribution in nats, likewise. */
double wm_compare_entropy(const wm_compare_t *leader);

#endif
