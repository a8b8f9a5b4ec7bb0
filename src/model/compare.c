/* Losses of several hidden states of the same positions, and how far they are from the first one's
 * predictions: the head with a tile of the vocabulary as the outer loop, so that the first one's
 * tile serves all others and a tile of the head is read once. */
#include "family.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"

#include <assert.h>
#include <string.h>

struct wm_comparison {
  int64_t max_slots, max_rows;
  wm_compare_t *states;               /* [slots, positions] */
  wm_compare_move_t *moves;           /* [positions] */
  float *weights;                     /* [positions, tile_vocab] of the first slot */
  int64_t *rows;                      /* [positions] rows that predict */
  int32_t *targets;                   /* [positions] */
  const wm_position_detail_t *detail; /* borrowed; NULL: not wanted */
};

/* One comparison in progress. */
typedef struct {
  wm_model_t *model;
  wm_comparison_t *c;
  wm_workspace_t *ws;
  float *h;         /* [slots, rows, D], then normed and packed [slots, n, D] */
  int64_t slots, n; /* n positions */
} call_t;

/* --- life ---------------------------------------------------------------------------------------
 */

int64_t wm_comparison_bytes(const wm_model_t *model, int64_t max_slots, int64_t max_rows) {
  return max_slots * max_rows * (int64_t)sizeof(wm_compare_t) +
         max_rows * (int64_t)(sizeof(wm_compare_move_t) + sizeof(int64_t) + sizeof(int32_t)) +
         max_rows * model->options.tile_vocab * (int64_t)sizeof(float);
}

wm_status_t wm_comparison_create(const wm_model_t *model, int64_t max_slots, int64_t max_rows,
                                 wm_comparison_t **out, wm_error_t *err) {
  void *memory;
  wm_status_t status;
  *out = NULL;
  WM_TRY(wm_alloc(&memory, 1, sizeof(wm_comparison_t), "comparison", err));
  wm_comparison_t *c = *out = memory;
  *c = (wm_comparison_t){.max_slots = max_slots, .max_rows = max_rows};
  WM_TRY(wm_alloc(&memory, max_slots * max_rows, sizeof *c->states, "comparison", err));
  c->states = memory;
  WM_TRY(wm_alloc(&memory, max_rows, sizeof *c->moves, "comparison", err));
  c->moves = memory;
  WM_TRY(wm_alloc(&memory, max_rows * model->options.tile_vocab, sizeof(float),
                  "probabilities of a tile", err));
  c->weights = memory;
  WM_TRY(wm_alloc(&memory, max_rows, sizeof *c->rows, "comparison", err));
  c->rows = memory;
  WM_TRY(wm_alloc(&memory, max_rows, sizeof *c->targets, "comparison", err));
  c->targets = memory;
cleanup:
  if (status != WM_OK) {
    wm_comparison_free(*out);
    *out = NULL;
  }
  return status;
}

void wm_comparison_free(wm_comparison_t *c) {
  if (c == NULL)
    return;
  free(c->states);
  free(c->moves);
  free(c->weights);
  free(c->rows);
  free(c->targets);
  free(c);
}

void wm_comparison_set_detail(wm_comparison_t *comparison, const wm_position_detail_t *detail) {
  comparison->detail = detail;
}

/* --- one call -----------------------------------------------------------------------------------
 */

static int64_t list_positions(wm_comparison_t *c, const int32_t *targets, int64_t rows) {
  int64_t n = 0;
  for (int64_t i = 0; i < rows; i++)
    if (targets[i] >= 0) {
      c->rows[n] = i;
      c->targets[n++] = targets[i];
    }
  return n;
}

/* The final norm of the rows that predict, one behind the other. A row moves to a place that is not
 * behind its own, and a tile is read before it is written. */
static void norm_and_pack(const call_t *k, int64_t rows) {
  const int64_t d = k->model->arch.d_model, most = wm_workspace_together(k->model, k->ws);
  for (int64_t slot = 0; slot < k->slots; slot++)
    for (int64_t first = 0; first < k->n; first += most) {
      int64_t count = k->n - first < most ? k->n - first : most;
      wm_block_norm(k->model, &k->model->final_norm, k->h + slot * rows * d, k->c->rows + first,
                    count, k->ws->final);
      memcpy(k->h + (slot * k->n + first) * d, k->ws->final, (size_t)(count * d) * sizeof *k->h);
    }
}

/* Rows [begin, end) of all slots' positions, whose logits of vocabulary tile t lie in ws->logits
 * from row `base` on. */
static void take_in(const call_t *k, int64_t t, int64_t base, int64_t begin, int64_t end) {
  const int64_t width = wm_head_width(k->model, t), first = t * k->model->options.tile_vocab;
  wm_comparison_t *c = k->c;
#pragma omp parallel for schedule(static)
  for (int64_t r = begin; r < end; r++) {
    const int64_t p = r % k->n;
    const float *logits = k->ws->logits + (r - base) * width;
    float *weights = c->weights + p * width;
    if (r < k->n)
      wm_compare_lead(&c->states[r], logits, first, width, c->targets[p], weights, &c->moves[p]);
    else
      wm_compare_follow(&c->states[r], logits, first, width, c->targets[p], weights, &c->moves[p]);
  }
}

/* All slots' rows, as many as go together at a time. */
static wm_status_t run_tile(const call_t *k, int64_t t, wm_error_t *err) {
  const int64_t d = k->model->arch.d_model, tile = k->model->options.tile_rows;
  const int64_t all = k->slots * k->n, most = wm_workspace_together(k->model, k->ws);
  for (int64_t base = 0; base < all; base += most) {
    const int64_t count = all - base < most ? all - base : most, end = base + count;
    const float *x = k->h + base * d;
    if (count != wm_gemm_padded(k->model->tiles, tile, count)) {
      memcpy(k->ws->final, x, (size_t)(count * d) * sizeof *x);
      wm_block_pad(k->model, k->ws->final, count, d);
      x = k->ws->final;
    }
    wm_pulse();
    wm_status_t status = wm_head_logits(k->model, t, x, count, k->ws, err);
    if (status != WM_OK)
      return status;
    double start = wm_profile_start(k->model->profile);
    int64_t leaders = base < k->n ? (k->n < end ? k->n : end) : base;
    take_in(k, t, base, base, leaders); /* before those that follow them */
    take_in(k, t, base, leaders, end);
    wm_profile_stop(k->model->profile, WM_KERNEL_LOG_SUM, start, 0,
                    8.0 * (double)(count * wm_head_width(k->model, t)));
  }
  return WM_OK;
}

static void give_results(const call_t *k, float *nll, double *divergence, int64_t *agreed) {
  for (int64_t slot = 0; slot < k->slots; slot++) {
    const wm_compare_t *leader = k->c->states, *own = leader + slot * k->n;
    divergence[slot] = 0;
    agreed[slot] = 0;
    for (int64_t p = 0; p < k->n; p++) {
      nll[slot * k->n + p] = (float)wm_log_sum_nll(&own[p].loss);
      divergence[slot] += wm_compare_divergence(&leader[p], &own[p]);
      agreed[slot] += own[p].top == leader[p].top;
    }
  }
}

static void give_detail(const call_t *k) {
  const wm_position_detail_t *to = k->c->detail;
  for (int64_t i = 0; i < k->slots * k->n; i++) {
    const wm_compare_t *leader = &k->c->states[i % k->n], *own = &k->c->states[i];
    if (i < k->n)
      to->entropy[i] = (float)wm_compare_entropy(leader);
    to->divergence[i] = (float)wm_compare_divergence(leader, own);
    to->agreed[i] = own->top == leader->top;
  }
}

wm_status_t wm_model_compare(wm_model_t *model, wm_comparison_t *comparison, float *h,
                             int64_t slots, int64_t rows, const int32_t *targets, float *nll,
                             double *divergence, int64_t *agreed, wm_workspace_t *workspace,
                             wm_error_t *err) {
  assert(slots >= 1 && slots <= comparison->max_slots && rows <= comparison->max_rows);
  call_t k = {.model = model, .c = comparison, .ws = workspace, .h = h, .slots = slots};
  wm_status_t status;
  WM_TRY(wm_head_check_targets(model, targets, rows, err));
  k.n = list_positions(comparison, targets, rows);
  norm_and_pack(&k, rows);
  wm_compare_init(comparison->states, slots * k.n);
  for (int64_t t = 0; t < model->n_head_tiles; t++) {
    if (wm_stop_requested()) {
      status = wm_fail(err, WM_STOPPED, "stopped on request");
      goto cleanup;
    }
    WM_TRY(run_tile(&k, t, err));
  }
  give_results(&k, nll, divergence, agreed);
  if (comparison->detail != NULL)
    give_detail(&k);
cleanup:
  return status;
}
