/* Architecture of a model, read from config.json. Everything that changes a number is either
 * understood or refused by name. */
#ifndef WANAMAKER_MODEL_ARCH_H
#define WANAMAKER_MODEL_ARCH_H

#include "wanamaker/base/status.h"
#include "wanamaker/linalg/gemm.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum { WM_FAMILY_GPT2, WM_FAMILY_GPT_NEOX } wm_family_t;

typedef struct {
  wm_family_t family;
  int64_t n_layers, n_heads, d_model, d_head, d_mlp;
  int64_t vocab_size;    /* rows of the embedding as config.json says */
  int64_t max_positions; /* longest sequence */
  double layer_norm_eps;
  wm_activation_t activation;
  bool tied_head;
  /* Rates of dropout while training: embeddings, attention's probabilities, residual stream. */
  double drop_embedding, drop_attention, drop_residual;
  double initializer_range; /* deviation of random matrices, for pretraining */
  /* GPT-2 */
  bool scale_attn_weights;              /* scores / sqrt(d_head) */
  bool scale_attn_by_inverse_layer_idx; /* scores / (layer + 1) */
  /* GPT-NeoX */
  bool parallel_residual;
  bool attention_bias;
  int64_t rotary_dims; /* of each head: even, at most d_head */
  double rotary_base;
} wm_arch_t;

/* Not collective. Reads dir/config.json; a `dir` whose name ends in ".json" is the file itself. */
wm_status_t wm_arch_read(const char *dir, wm_arch_t *out, wm_error_t *err);

/* Path of the file that wm_arch_read reads; free(). NULL when memory is exhausted. */
char *wm_arch_path(const char *dir);

/* Not collective. WM_INPUT, naming file and key, unless every rate of dropout is in [0, 1).
 * wm_arch_read takes any: only training with dropout uses them. */
wm_status_t wm_arch_check_dropout(const char *dir, const wm_arch_t *arch, wm_error_t *err);

/* Not collective. Names, separated by ", ", of the keys of dir/config.json that are neither
 * understood nor known to change no number; *out is a heap string, empty when there are none. */
wm_status_t wm_arch_unknown_keys(const char *dir, char **out, wm_error_t *err);

/* "GPT-2" or "GPT-NeoX". */
const char *wm_family_name(wm_family_t family);

/* Numbers that the weights hold: embeddings, layers with their norms and biases, final norm, and
 * the head where it is not tied. */
int64_t wm_arch_parameters(const wm_arch_t *arch);

/* Floating-point operations (2 per multiply-add) per position, without attention's T-dependent
 * part: one layer, its MLP alone, one surrogate, the head. */
double wm_arch_flops_layer(const wm_arch_t *arch);
double wm_arch_flops_mlp(const wm_arch_t *arch);
double wm_arch_flops_surrogate(const wm_arch_t *arch);
double wm_arch_flops_head(const wm_arch_t *arch);
/* Scores and weighted sum of one position that attends to n positions, one layer. */
double wm_arch_flops_attention(const wm_arch_t *arch, double n);

#endif
