/* GPT-NeoX: rotary positions, parallel residual (or sequential), Linear weights stored [out, in],
 * fused QKV interleaved per head as [heads, 3, d_head], untied head (or tied). */
#include "family.h"

#include <math.h>
#include <stddef.h>

static wm_status_t declare_layer(wm_model_t *m, int64_t i, wm_error_t *err) {
  wm_layer_t *l = &m->layers[i];
  int64_t d = m->arch.d_model, f = m->arch.d_mlp;
  bool bias = m->arch.attention_bias;
  const wm_weight_layout_t linear = WM_WEIGHT_OUT_IN;
  wm_status_t status;
  WM_TRY(wm_block_declare_norm(m, &l->attention_norm, err, "layers.%lld.input_layernorm",
                               (long long)i));
  WM_TRY(wm_block_declare_norm(m, &l->mlp_norm, err, "layers.%lld.post_attention_layernorm",
                               (long long)i));
  WM_TRY(wm_block_declare_dense(m, &l->qkv,
                                (wm_dense_t){.in = d, .out = 3 * d, .weight.layout = linear}, bias,
                                err, "layers.%lld.attention.query_key_value", (long long)i));
  WM_TRY(wm_block_declare_dense(m, &l->project,
                                (wm_dense_t){.in = d, .out = d, .weight.layout = linear}, bias, err,
                                "layers.%lld.attention.dense", (long long)i));
  WM_TRY(wm_block_declare_dense(
      m, &l->up,
      (wm_dense_t){.in = d, .out = f, .weight.layout = linear, .activation = m->arch.activation},
      true, err, "layers.%lld.mlp.dense_h_to_4h", (long long)i));
  WM_TRY(wm_block_declare_dense(m, &l->down,
                                (wm_dense_t){.in = f, .out = d, .weight.layout = linear}, true, err,
                                "layers.%lld.mlp.dense_4h_to_h", (long long)i));
cleanup:
  return status;
}

static wm_status_t declare(wm_model_t *m, wm_error_t *err) {
  const wm_arch_t *a = &m->arch;
  wm_status_t status;
  WM_TRY(wm_block_declare_tokens(m, "embed_in.weight", "embed_out.weight", err));
  for (int64_t i = 0; i < a->n_layers; i++)
    WM_TRY(declare_layer(m, i, err));
  WM_TRY(wm_block_declare_norm(m, &m->final_norm, err, "final_layer_norm"));
  WM_TRY(wm_rotary_create(a->rotary_dims, a->rotary_base, a->max_positions, &m->rotary, err));
cleanup:
  return status;
}

static wm_qkv_layout_t qkv_layout(const wm_arch_t *a) {
  return (wm_qkv_layout_t){a->n_heads, a->d_head, 3 * a->d_model, 3 * a->d_head, a->d_head};
}

static float score_scale(const wm_arch_t *a, int64_t layer) {
  (void)layer;
  return (float)(1 / sqrt((double)a->d_head));
}

static wm_status_t attend(wm_model_t *m, int64_t layer, const wm_batch_t *batch, float *h, float *x,
                          wm_workspace_t *ws, wm_error_t *err) {
  wm_status_t status = wm_block_attention(m, layer, batch, h, ws, err);
  if (status != WM_OK)
    return status;
  int64_t rows = batch->starts[batch->n_sequences];
  const wm_norm_t *norm = &m->layers[layer].mlp_norm;
  if (m->arch.parallel_residual)
    wm_block_norm(m, norm, h, NULL, rows, x);
  wm_model_add(m, h, ws->qkv, rows * m->arch.d_model);
  if (!m->arch.parallel_residual)
    wm_block_norm(m, norm, h, NULL, rows, x);
  return WM_OK;
}

/* The causal mask, its fill value and the rotary frequencies, which older releases stored. */
static const char *const buffers[] = {"layers.#.attention.bias", "layers.#.attention.masked_bias",
                                      "layers.#.attention.rotary_emb.inv_freq",
                                      "rotary_emb.inv_freq", NULL};

const wm_family_ops_t wm_gpt_neox = {
    .rules = {"GPT-NeoX", "gpt_neox.", buffers, "embed_out.weight", "embed_in.weight"},
    .declare = declare,
    .qkv_layout = qkv_layout,
    .score_scale = score_scale,
    .attend = attend,
    .mlp = wm_block_mlp,
};
