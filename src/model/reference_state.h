/* What the two halves of the reference pass share: a sequence's arrays, and the layers' parts as
 * the plain loops take them. */
#ifndef WANAMAKER_SRC_MODEL_REFERENCE_STATE_H
#define WANAMAKER_SRC_MODEL_REFERENCE_STATE_H

#include "training_state.h"
#include "wanamaker/base/mem.h"

#include <math.h>
#include <string.h>

/* One layer of one sequence of n positions. */
typedef struct {
  double *input, *x1, *qkv, *attended, *middle, *x2;
  double *p, *m; /* [heads, n, n] probabilities, and multipliers of dropout */
  double *projected_m, *mlp_m;
  double *pre, *act, *mlp, *line, *hidden, *g;
} wm_reference_layer_t;

/* A sequence, and what there is to be known for it. */
typedef struct {
  const wm_training_t *t;
  const wm_model_t *model;
  const wm_layer_path_t *paths;
  const wm_training_batch_t *batch;
  double **gradients;
  int64_t n, d, f, h; /* positions, widths */
  int64_t number;     /* of the sequence */
  const int32_t *ids, *targets;
  double *embedding_m; /* multipliers of the embeddings' dropout */
  wm_reference_layer_t *layers;
  double *h_last, *x_last, *logits;
  double *memory, *next; /* all arrays */
} wm_reference_sequence_t;

static inline wm_mlp_path_t path_of(const wm_reference_sequence_t *s, int64_t layer) {
  return s->paths != NULL ? s->paths[layer].path : WM_MLP_FULL;
}

/* A dense layer, its weights by strides. */
typedef struct {
  const float *weight, *bias;
  int64_t in, out, in_stride, out_stride;
  bool plain; /* products are not of the pass's type */
} wm_reference_dense_t;

/* An operand of a layer's products. */
static inline double operand(const wm_reference_sequence_t *s, wm_reference_dense_t l, double x) {
  if (l.plain || s->t->options.compute == WM_COMPUTE_F32)
    return x;
  const uint32_t bits = (uint32_t)wm_bf16_of((float)x) << 16;
  float rounded;
  memcpy(&rounded, &bits, sizeof rounded);
  return (double)rounded;
}

static inline wm_reference_dense_t dense_of(const wm_dense_t *d) {
  bool in_out = d->weight.layout == WM_WEIGHT_IN_OUT;
  return (wm_reference_dense_t){d->weight.data,     d->bias, d->in, d->out, in_out ? d->out : 1,
                                in_out ? 1 : d->in, false};
}

static inline wm_qkv_layout_t layout_of(const wm_arch_t *a) {
  bool neox = a->family == WM_FAMILY_GPT_NEOX;
  int64_t dh = a->d_head, d = a->d_model;
  return (wm_qkv_layout_t){a->n_heads, dh, 3 * d, neox ? 3 * dh : dh, neox ? dh : d};
}

static inline double scale_of(const wm_arch_t *a, int64_t layer) {
  double scale = 1;
  if (a->family == WM_FAMILY_GPT_NEOX || a->scale_attn_weights)
    scale /= sqrt((double)a->d_head);
  return a->scale_attn_by_inverse_layer_idx ? scale / (double)(layer + 1) : scale;
}

static inline double dot(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += a[i] * b[i];
  return sum;
}

static inline wm_reference_dense_t surrogate_of(const wm_reference_sequence_t *s, int64_t layer) {
  return (wm_reference_dense_t){
      s->paths[layer].weight, s->paths[layer].bias, s->d, s->d, s->d, 1, false};
}

static inline wm_reference_dense_t gate_of(const wm_reference_sequence_t *s, int64_t layer) {
  const wm_gate_pass_t *g = &s->t->layers[layer].gate;
  return (wm_reference_dense_t){g->w1, g->b1, s->d, s->h, 1, s->d, true};
}

/* What share of the MLP's output counts at position i, the rest being the surrogate's. */
static inline double share(const wm_reference_sequence_t *s, int64_t layer, int64_t i) {
  wm_mlp_path_t path = path_of(s, layer);
  return path == WM_MLP_FULL ? 1 : path == WM_MLP_SURROGATE ? 0 : s->layers[layer].g[i];
}

static inline wm_reference_dense_t head_of(const wm_model_t *m) {
  return (wm_reference_dense_t){m->head.data,    NULL, m->arch.d_model, m->arch.vocab_size, 1,
                                m->arch.d_model, false};
}

static inline wm_status_t zeros(double **out, int64_t n, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, n, sizeof(double), "reference gradients", err);
  *out = memory;
  return status;
}

/* reference_gradients.c: adds the gradients of a sequence whose forward pass is done; its logits
 * are overwritten. */
wm_status_t wm_reference_backward(const wm_reference_sequence_t *s, wm_error_t *err);

#endif
