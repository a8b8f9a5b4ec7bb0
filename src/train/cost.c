#include "wanamaker/train/cost.h"

#include <stddef.h>

/* --- modes --------------------------------------------------------------------------------------
 */

static wm_layer_mode_t mode_of(const wm_pass_shape_t *s, int64_t layer) {
  return s->phase != NULL ? s->phase->modes[layer] : WM_MODE_FULL;
}

static bool trains(const wm_pass_shape_t *s, wm_group_t group) {
  return s->phase != NULL && (s->phase->groups & 1u << group) != 0;
}

static bool mlp_trains(const wm_pass_shape_t *s, int64_t layer) {
  const wm_layer_mode_t mode = mode_of(s, layer);
  return trains(s, WM_GROUP_MLP) &&
         (mode == WM_MODE_FULL || (mode == WM_MODE_GATED && !s->study_gradients));
}

static bool line_trains(const wm_pass_shape_t *s, int64_t layer) {
  const wm_layer_mode_t mode = mode_of(s, layer);
  return s->train_surrogates && (mode == WM_MODE_LINEAR || mode == WM_MODE_GATED);
}

static bool reaches_embeddings(const wm_pass_shape_t *s) {
  return trains(s, WM_GROUP_TOKENS) || trains(s, WM_GROUP_POSITIONS);
}

/* The layer that the backward pass goes down to. */
static int64_t lowest_layer(const wm_pass_shape_t *s) {
  const bool all =
      reaches_embeddings(s) || trains(s, WM_GROUP_ATTENTION) || trains(s, WM_GROUP_NORMS);
  for (int64_t l = 0; l < s->arch->n_layers; l++)
    if (all || mlp_trains(s, l) || line_trains(s, l) ||
        (mode_of(s, l) == WM_MODE_GATED && trains(s, WM_GROUP_GATES)))
      return l;
  return s->arch->n_layers;
}

/* --- operations ---------------------------------------------------------------------------------
 */

static double whole_tiles(const wm_pass_shape_t *s, double rows) {
  const double tile = (double)s->tile_rows;
  int64_t tiles = (int64_t)((rows + tile - 1) / tile);
  return (double)tiles * tile;
}

/* Of a row: attention's dense layers, the scores and sums of attention, an MLP, a surrogate, a
 * gate. */
typedef struct {
  double dense, attention, mlp, line, gate;
} row_t;

static row_t row_of(const wm_pass_shape_t *s) {
  const double d = (double)s->arch->d_model;
  return (row_t){.dense = 8 * d * d,
                 .attention = wm_arch_flops_attention(s->arch, ((double)s->length + 1) / 2),
                 .mlp = wm_arch_flops_mlp(s->arch),
                 .line = wm_arch_flops_surrogate(s->arch),
                 .gate = 2 * d * (double)s->gate_hidden};
}

/* rows: of the pass; tiles: with those that fill up the last one. */
static double layer_forward(const wm_pass_shape_t *s, const row_t *r, int64_t layer, double rows,
                            double tiles) {
  const wm_layer_mode_t mode = mode_of(s, layer);
  double dense = r->dense;
  dense += mode == WM_MODE_LINEAR ? r->line : r->mlp;
  dense += mode == WM_MODE_GATED ? r->line + r->gate : 0;
  return tiles * dense + rows * r->attention;
}

/* From a layer's output to its input, or to what of it trains. */
static double layer_backward(const wm_pass_shape_t *s, const row_t *r, int64_t layer, double rows,
                             double tiles, int64_t lowest) {
  const wm_layer_mode_t mode = mode_of(s, layer);
  const bool parallel = s->arch->parallel_residual, norms = trains(s, WM_GROUP_NORMS);
  const bool below = layer > lowest || reaches_embeddings(s);
  const bool attention = below || trains(s, WM_GROUP_ATTENTION) || norms;
  const bool input = norms || (parallel ? below : attention);
  const bool mlp = mode != WM_MODE_LINEAR && !(mode == WM_MODE_GATED && s->study_gradients);
  double flops = 0;
  if (mlp && (mlp_trains(s, layer) || input))
    flops += tiles * r->mlp / 2 + (input ? tiles * r->mlp / 2 : 0) +
             (mlp_trains(s, layer) ? rows * r->mlp : 0);
  if (mode == WM_MODE_LINEAR || mode == WM_MODE_GATED)
    flops += (input ? tiles * r->line : 0) + (line_trains(s, layer) ? rows * r->line : 0);
  if (mode == WM_MODE_GATED)
    flops += rows * r->gate + (input ? tiles * r->gate : 0);
  if (attention) /* the scores anew, and four products of their size against two */
    flops += tiles * r->dense / 4 + (norms || below ? tiles * r->dense * 3 / 4 : 0) +
             (trains(s, WM_GROUP_ATTENTION) ? rows * r->dense : 0) + 2.5 * rows * r->attention;
  return flops;
}

/* Random numbers of a layer's dropout, in one of the two passes. */
static double layer_draws(const wm_pass_shape_t *s, int64_t layer, double rows) {
  const wm_arch_t *a = s->arch;
  const double sites = mode_of(s, layer) == WM_MODE_LINEAR ? 1 : 2;
  return rows * ((a->drop_residual > 0 ? sites * (double)a->d_model : 0) +
                 (a->drop_attention > 0 ? (double)a->n_heads * ((double)s->length + 1) / 2 : 0));
}

/* The head takes the rows of one sequence at a time. */
static void head_work(const wm_pass_shape_t *s, double predicted, wm_pass_work_t *w) {
  const double head = wm_arch_flops_head(s->arch), n = (double)s->sequences;
  const double tiles = n * whole_tiles(s, predicted);
  const bool tied = s->arch->tied_head;
  w->forward += tiles * head;
  if (s->phase != NULL)
    w->backward += tiles * head;
  if (trains(s, tied ? WM_GROUP_TOKENS : WM_GROUP_HEAD))
    w->backward += n * predicted * head;
}

wm_pass_work_t wm_pass_work(const wm_pass_shape_t *s) {
  const double rows = (double)(s->sequences * s->length), tiles = whole_tiles(s, rows);
  const int64_t lowest = lowest_layer(s);
  const row_t r = row_of(s);
  wm_pass_work_t w = {0};
  double draws = 0;
  for (int64_t l = 0; l < s->arch->n_layers; l++) {
    const double forward = layer_forward(s, &r, l, rows, tiles);
    w.forward += forward;
    draws += layer_draws(s, l, rows);
    if (s->phase == NULL || l < lowest)
      continue;
    w.backward += layer_backward(s, &r, l, rows, tiles, lowest) + (s->recompute ? forward : 0);
    draws += layer_draws(s, l, rows) * (s->recompute ? 2 : 1);
  }
  if (s->arch->drop_embedding > 0)
    draws += rows * (double)s->arch->d_model * (reaches_embeddings(s) ? 2 : 1);
  w.draws = s->dropout ? draws : 0;
  head_work(s, (double)s->length - 1, &w);
  return w;
}

/* --- parameters ---------------------------------------------------------------------------------
 */

double wm_phase_trained(const wm_arch_t *a, const wm_phase_t *p, int64_t gate_hidden,
                        bool train_surrogates) {
  const double d = (double)a->d_model, f = (double)a->d_mlp, h = (double)gate_hidden;
  const double vocabulary = (double)a->vocab_size * d;
  const wm_pass_shape_t s = {.arch = a, .phase = p, .train_surrogates = train_surrogates};
  double n = trains(&s, WM_GROUP_FINAL_NORM) ? 2 * d : 0;
  n += trains(&s, WM_GROUP_TOKENS) ? vocabulary : 0;
  n += trains(&s, WM_GROUP_HEAD) && !a->tied_head ? vocabulary : 0;
  n += trains(&s, WM_GROUP_POSITIONS) && a->family == WM_FAMILY_GPT2 ? (double)a->max_positions * d
                                                                     : 0;
  for (int64_t l = 0; l < a->n_layers; l++) {
    n += trains(&s, WM_GROUP_ATTENTION) ? 4 * d * (d + 1) : 0;
    n += trains(&s, WM_GROUP_NORMS) ? 4 * d : 0;
    n += mlp_trains(&s, l) ? 2 * d * f + f + d : 0;
    n += line_trains(&s, l) ? d * (d + 1) : 0;
    n += p->modes[l] == WM_MODE_GATED && trains(&s, WM_GROUP_GATES) ? h * (d + 2) + 1 : 0;
  }
  return n;
}

/* --- evaluations --------------------------------------------------------------------------------
 */

int64_t wm_phase_evaluations(const wm_phase_t *p, const wm_phase_t *before, int64_t model_layers,
                             int64_t every) {
  bool changed = false, gated = false;
  for (int64_t l = 0; l < model_layers; l++) {
    const wm_layer_mode_t mode = p->modes[l];
    const bool replaced = mode == WM_MODE_LINEAR || mode == WM_MODE_GATED;
    changed |= replaced && (before == NULL || mode != before->modes[l]);
    gated |= mode == WM_MODE_GATED;
  }
  const int64_t within = every > 0 && p->steps > 0 ? (p->steps - 1) / every : 0;
  return (changed + within + (p->steps > 0)) * (gated ? 2 : 1);
}
