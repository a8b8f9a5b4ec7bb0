/* GPT-2: learned positions, sequential residual, Conv1D weights stored [in, out], fused QKV as
 * [3, heads, d_head]. */
#include "family.h"

#include <math.h>
#include <stddef.h>

static wm_status_t declare_layer(wm_model_t *m, int64_t i, wm_error_t *err) {
  wm_layer_t *l = &m->layers[i];
  int64_t d = m->arch.d_model, f = m->arch.d_mlp;
  const wm_weight_layout_t conv1d = WM_WEIGHT_IN_OUT;
  wm_status_t status;
  WM_TRY(wm_block_declare_norm(m, &l->attention_norm, err, "h.%lld.ln_1", (long long)i));
  WM_TRY(wm_block_declare_norm(m, &l->mlp_norm, err, "h.%lld.ln_2", (long long)i));
  WM_TRY(wm_block_declare_dense(m, &l->qkv,
                                (wm_dense_t){.in = d, .out = 3 * d, .weight.layout = conv1d}, true,
                                err, "h.%lld.attn.c_attn", (long long)i));
  WM_TRY(wm_block_declare_dense(m, &l->project,
                                (wm_dense_t){.in = d, .out = d, .weight.layout = conv1d}, true, err,
                                "h.%lld.attn.c_proj", (long long)i));
  WM_TRY(wm_block_declare_dense(
      m, &l->up,
      (wm_dense_t){.in = d, .out = f, .weight.layout = conv1d, .activation = m->arch.activation},
      true, err, "h.%lld.mlp.c_fc", (long long)i));
  WM_TRY(wm_block_declare_dense(m, &l->down,
                                (wm_dense_t){.in = f, .out = d, .weight.layout = conv1d}, true, err,
                                "h.%lld.mlp.c_proj", (long long)i));
cleanup:
  return status;
}

static wm_status_t declare(wm_model_t *m, wm_error_t *err) {
  const wm_arch_t *a = &m->arch;
  wm_status_t status;
  WM_TRY(wm_block_declare_tokens(m, "wte.weight", "lm_head.weight", err));
  WM_TRY(
      wm_weights_want(&m->weights, &m->positions, a->max_positions, a->d_model, err, "wpe.weight"));
  for (int64_t i = 0; i < a->n_layers; i++)
    WM_TRY(declare_layer(m, i, err));
  WM_TRY(wm_block_declare_norm(m, &m->final_norm, err, "ln_f"));
cleanup:
  return status;
}

static wm_qkv_layout_t qkv_layout(const wm_arch_t *a) {
  return (wm_qkv_layout_t){a->n_heads, a->d_head, 3 * a->d_model, a->d_head, a->d_model};
}

static float score_scale(const wm_arch_t *a, int64_t layer) {
  double scale = 1;
  if (a->scale_attn_weights)
    scale /= sqrt((double)a->d_head);
  if (a->scale_attn_by_inverse_layer_idx)
    scale /= (double)(layer + 1);
  return (float)scale;
}

static wm_status_t attend(wm_model_t *m, int64_t layer, const wm_batch_t *batch, float *h, float *x,
                          wm_workspace_t *ws, wm_error_t *err) {
  wm_status_t status = wm_block_attention(m, layer, batch, h, ws, err);
  if (status != WM_OK)
    return status;
  int64_t rows = batch->starts[batch->n_sequences];
  wm_model_add(m, h, ws->qkv, rows * m->arch.d_model);
  wm_block_norm(m, &m->layers[layer].mlp_norm, h, NULL, rows, x);
  return WM_OK;
}

/* The causal mask and its fill value, which older releases stored. */
static const char *const buffers[] = {"h.#.attn.bias", "h.#.attn.masked_bias", NULL};

const wm_family_ops_t wm_gpt2 = {
    .rules = {"GPT-2", "transformer.", buffers, "lm_head.weight", "wte.weight"},
    .declare = declare,
    .qkv_layout = qkv_layout,
    .score_scale = score_scale,
    .attend = attend,
    .mlp = wm_block_mlp,
};
