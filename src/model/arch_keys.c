#include "arch_keys.h"

#include <string.h>

#define FIELD(name) offsetof(wm_arch_t, name)

const wm_arch_key_t wm_arch_keys[] = {
    {"n_layer", WM_FOR_GPT2, WM_KEY_SIZE, FIELD(n_layers), false},
    {"num_hidden_layers", WM_FOR_ALL, WM_KEY_SIZE, FIELD(n_layers), false},
    {"n_head", WM_FOR_GPT2, WM_KEY_SIZE, FIELD(n_heads), false},
    {"num_attention_heads", WM_FOR_ALL, WM_KEY_SIZE, FIELD(n_heads), false},
    {"n_embd", WM_FOR_GPT2, WM_KEY_SIZE, FIELD(d_model), false},
    {"hidden_size", WM_FOR_ALL, WM_KEY_SIZE, FIELD(d_model), false},
    {"n_inner", WM_FOR_GPT2, WM_KEY_SIZE, FIELD(d_mlp), false},
    {"intermediate_size", WM_FOR_GPT_NEOX, WM_KEY_SIZE, FIELD(d_mlp), false},
    {"intermediate_size", WM_FOR_GPT2, WM_KEY_SIZE, FIELD(d_mlp), true},
    {"n_inner", WM_FOR_GPT_NEOX, WM_KEY_SIZE, FIELD(d_mlp), true},
    {"vocab_size", WM_FOR_ALL, WM_KEY_SIZE, FIELD(vocab_size), false},
    {"n_positions", WM_FOR_GPT2, WM_KEY_SIZE, FIELD(max_positions), false},
    {"max_position_embeddings", WM_FOR_ALL, WM_KEY_SIZE, FIELD(max_positions), false},
    {"layer_norm_epsilon", WM_FOR_GPT2, WM_KEY_FLOAT, FIELD(layer_norm_eps), false},
    {"layer_norm_eps", WM_FOR_GPT_NEOX, WM_KEY_FLOAT, FIELD(layer_norm_eps), false},
    {"layer_norm_eps", WM_FOR_GPT2, WM_KEY_FLOAT, FIELD(layer_norm_eps), true},
    {"layer_norm_epsilon", WM_FOR_GPT_NEOX, WM_KEY_FLOAT, FIELD(layer_norm_eps), true},
    {"activation_function", WM_FOR_GPT2, WM_KEY_ACTIVATION, FIELD(activation), false},
    {"hidden_act", WM_FOR_GPT_NEOX, WM_KEY_ACTIVATION, FIELD(activation), false},
    {"hidden_act", WM_FOR_GPT2, WM_KEY_ACTIVATION, FIELD(activation), true},
    {"activation_function", WM_FOR_GPT_NEOX, WM_KEY_ACTIVATION, FIELD(activation), true},
    {"tie_word_embeddings", WM_FOR_ALL, WM_KEY_BOOL, FIELD(tied_head), false},
    {"scale_attn_weights", WM_FOR_GPT2, WM_KEY_BOOL, FIELD(scale_attn_weights), false},
    {"scale_attn_by_inverse_layer_idx", WM_FOR_GPT2, WM_KEY_BOOL,
     FIELD(scale_attn_by_inverse_layer_idx), false},
    {"embd_pdrop", WM_FOR_GPT2, WM_KEY_FLOAT, FIELD(drop_embedding), false},
    {"attn_pdrop", WM_FOR_GPT2, WM_KEY_FLOAT, FIELD(drop_attention), false},
    {"resid_pdrop", WM_FOR_GPT2, WM_KEY_FLOAT, FIELD(drop_residual), false},
    {"hidden_dropout", WM_FOR_GPT_NEOX, WM_KEY_FLOAT, FIELD(drop_embedding), false},
    {"hidden_dropout", WM_FOR_GPT_NEOX, WM_KEY_FLOAT, FIELD(drop_residual), false},
    {"attention_dropout", WM_FOR_GPT_NEOX, WM_KEY_FLOAT, FIELD(drop_attention), false},
    {"initializer_range", WM_FOR_ALL, WM_KEY_FLOAT, FIELD(initializer_range), false},
    {"use_parallel_residual", WM_FOR_GPT_NEOX, WM_KEY_BOOL, FIELD(parallel_residual), false},
    {"attention_bias", WM_FOR_GPT_NEOX, WM_KEY_BOOL, FIELD(attention_bias), false},
    {NULL, 0, WM_KEY_SIZE, 0, false},
};

const wm_arch_rule_t wm_arch_rules[] = {
    {"add_cross_attention", WM_MUST_BE_FALSE},
    {"is_encoder_decoder", WM_MUST_BE_FALSE},
    {"is_causal", WM_MUST_BE_TRUE},
    {"pruned_heads", WM_MUST_BE_EMPTY},
    {"quantization_config", WM_MUST_BE_EMPTY},
    {"auto_map", WM_MUST_BE_EMPTY}, /* the model is computed by code of its own */
    {NULL, WM_MUST_BE_EMPTY},
};

/* Metadata, settings of training, generation and other heads, and reorder_and_upcast_attn, which
 * only changes rounding. n_ctx has been ignored beside n_positions since transformers 4. */
static const char *const harmless[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "attention_probs_dropout_prob",
    "attn_implementation",
    "attn_pdrop",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "embd_pdrop",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "hidden_dropout",
    "hidden_dropout_prob",
    "id2label",
    "is_decoder",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "model_type",
    "n_ctx",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "pad_token_id",
    "predict_special_tokens",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "reorder_and_upcast_attn",
    "repetition_penalty",
    "resid_pdrop",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "use_bfloat16",
    "use_cache",
};

static const char *const rotary[] = {"partial_rotary_factor", "rope_parameters",
                                     "rope_scaling",          "rope_theta",
                                     "rotary_emb_base",       "rotary_pct"};

int wm_arch_family_mask(wm_family_t family) {
  return family == WM_FAMILY_GPT2 ? WM_FOR_GPT2 : WM_FOR_GPT_NEOX;
}

static bool listed(const char *const *list, size_t count, const char *key) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(list[i], key) == 0)
      return true;
  return false;
}

bool wm_arch_key_known(wm_family_t family, const char *key) {
  for (const wm_arch_key_t *k = wm_arch_keys; k->key != NULL; k++)
    if ((k->families & wm_arch_family_mask(family)) != 0 && strcmp(k->key, key) == 0)
      return true;
  for (const wm_arch_rule_t *r = wm_arch_rules; r->key != NULL; r++)
    if (strcmp(r->key, key) == 0)
      return true;
  if (family == WM_FAMILY_GPT_NEOX && listed(rotary, sizeof rotary / sizeof *rotary, key))
    return true;
  return listed(harmless, sizeof harmless / sizeof *harmless, key);
}

wm_status_t wm_arch_activation(const char *file, const char *key, const char *name,
                               wm_activation_t *out, wm_error_t *err) {
  static const struct {
    const char *name;
    wm_activation_t activation;
  } table[] = {
      {"gelu", WM_ACT_GELU},
      {"gelu_10", WM_ACT_GELU_CLIP10},
      {"gelu_accurate", WM_ACT_GELU_TANH},
      {"gelu_fast", WM_ACT_GELU_TANH},
      {"gelu_new", WM_ACT_GELU_TANH},
      {"gelu_python", WM_ACT_GELU},
      {"gelu_python_tanh", WM_ACT_GELU_TANH},
      {"gelu_pytorch_tanh", WM_ACT_GELU_TANH},
      {"laplace", WM_ACT_LAPLACE},
      {"leaky_relu", WM_ACT_LEAKY_RELU},
      {"linear", WM_ACT_NONE},
      {"mish", WM_ACT_MISH},
      {"quick_gelu", WM_ACT_QUICK_GELU},
      {"relu", WM_ACT_RELU},
      {"relu2", WM_ACT_RELU2},
      {"relu6", WM_ACT_RELU6},
      {"sigmoid", WM_ACT_SIGMOID},
      {"silu", WM_ACT_SILU},
      {"swish", WM_ACT_SILU},
      {"tanh", WM_ACT_TANH},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (strcmp(table[i].name, name) == 0) {
      *out = table[i].activation;
      return WM_OK;
    }
  return wm_fail(
      err, WM_INPUT,
      "%s: \"%s\": activation \"%s\" is not supported (supported: gelu and its variants, "
      "laplace, leaky_relu, linear, mish, relu, relu2, relu6, sigmoid, silu, swish, "
      "tanh)",
      file, key, name);
}
