/* The inside of a training pass. */
#ifndef WANAMAKER_SRC_MODEL_TRAINING_STATE_H
#define WANAMAKER_SRC_MODEL_TRAINING_STATE_H

#include "family.h"
#include "wanamaker/model/gradients.h"
#include "wanamaker/model/training.h"
#include "wanamaker/par/shared.h"

/* A dense layer: products of both passes, and where gradients of its parameters go (NULL: frozen).
 * Its activation, if any, is applied apart, because the backward pass needs what comes before it.
 */
typedef struct {
  wm_kernel_t kernel, input_kernel, weight_kernel; /* of the three products, for profiles */
  const wm_dense_t *dense;
  wm_linear_t *forward;           /* borrowed from the model, unless: */
  wm_linear_t *plain;             /* without the activation, in the pass's type; NULL: none */
  wm_linear_t *backward;          /* dX = dY W' */
  wm_weight_gradient_t *gradient; /* dW = X' dY */
  float *dweight, *dbias;
} wm_dense_pass_t;

typedef struct {
  float *dgamma, *dbeta;
} wm_norm_pass_t;

/* A tile of the vocabulary. */
typedef struct {
  wm_linear_t *forward; /* borrowed from the model, unless: */
  wm_linear_t *own;     /* in the pass's type; NULL: none */
  wm_linear_t *backward;
  wm_weight_gradient_t *gradient;
} wm_head_pass_t;

/* g = sigmoid(w2 relu(W1 x + b1) + b2): w1 [H, D], b1 [H], w2 [H], b2 [1]. */
typedef struct {
  float *w1, *b1, *w2, *b2;
  float *dw1, *db1, *dw2, *db2;
  wm_linear_t *hidden, *backward;
} wm_gate_pass_t;

/* What the backward pass of a layer needs, [whole tiles of rows, ...]; NULL where the layer's path
 * has no such thing. */
typedef struct {
  float *input;       /* [D] the residual stream before the layer */
  float *middle;      /* [D] after attention; sequential residual only */
  float *qkv;         /* [3 D] turned */
  float *attended;    /* [D] before the projection */
  float *pre;         /* [F] before the activation */
  float *mlp, *line;  /* [D] outputs of a gated layer's MLP and surrogate */
  float *gate_hidden; /* [H] */
  float *gate;        /* [1] */
} wm_saved_t;

typedef struct {
  wm_mlp_path_t path;
  bool frozen; /* its MLP */
  wm_norm_pass_t attention_norm, mlp_norm;
  wm_dense_pass_t qkv, project, up, down;
  wm_linear_t *surrogate, *surrogate_backward;
  wm_weight_gradient_t *surrogate_gradient;
  float *line_weight, *line_bias; /* the surrogate's, if it trains; else NULL */
  float *dline_weight, *dline_bias;
  wm_gate_pass_t gate;
  int64_t gated;    /* number among the gated layers */
  wm_saved_t saved; /* `input` alone with checkpointing; nothing below the lowest layer */
  void *memory;
} wm_layer_pass_t;

/* Buffers of one call, in `memory`; R: whole tiles of rows. */
typedef struct {
  float *h, *dh;                /* [R, D] residual stream and its gradient */
  float *x, *dx, *y, *dy;       /* [R, D] */
  float *spare;                 /* [R, D] */
  float *dqkv;                  /* [R, 3 D] */
  float *hidden, *dhidden;      /* [R, F] */
  float *dgate;                 /* [R, H] */
  float *dscore;                /* [R] */
  float *attention;             /* scratch per thread */
  float *final, *dfinal, *part; /* [tile, D] */
  float *logits;                /* [tile, tile_vocab], for each tile of the head if they are kept */
  double *nll;                  /* [tile] */
  wm_norm_row_t *norms;         /* [R] */
  wm_query_block_t *blocks;     /* [R] */
  int32_t *positions;           /* [R] */
  wm_log_sum_t *log_sums;       /* [tile] */
  int64_t *rows;                /* [tile] */
  int32_t *targets;             /* [tile] */
  void *memory;
} wm_pass_buffers_t;

struct wm_training {
  wm_model_t *model;
  wm_training_options_t options; /* `paths` and `frozen_mlps` are not kept */
  int64_t whole;                 /* R */
  int64_t n_gated;
  int64_t lowest;      /* the backward pass goes down to this layer; L: to none */
  bool to_embeddings;  /* and on to the embeddings */
  bool attention, mlp; /* trained groups of the layers */
  bool norms;
  wm_parameter_t *parameters;
  float ***places; /* [n_parameters] where the pointer to the gradient is kept */
  int64_t n_parameters, capacity, places_capacity;
  int64_t *segments; /* [L + 3] first gradients */
  float *gradients;
  char *names; /* of gates' and surrogates' parameters */
  wm_shared_t gates;
  wm_layer_pass_t *layers;
  wm_norm_pass_t final_norm;
  float *dhead, *dtokens, *dpositions;
  wm_head_pass_t *head;      /* [n_head_tiles] */
  wm_gemm_scratch_t scratch; /* of products that are not float32 */
  wm_saved_t shared;         /* of layers that keep nothing themselves */
  void *shared_memory;
  wm_pass_buffers_t buffers;
};

/* What a pass is run on. */
typedef struct {
  const wm_training_batch_t *batch;
  bool dropout; /* evaluation has none */
  bool hard;    /* gates decide */
  const wm_training_hook_t *hook;
} wm_pass_t;

/* training_parameters.c */
wm_status_t wm_training_make_table(wm_training_t *t, const wm_layer_path_t *paths, wm_error_t *err);
void wm_training_free_table(wm_training_t *t);

/* training_memory.c */
/* Are the logits of a tile of rows kept from losses to gradients? */
bool wm_training_keeps_logits(const wm_model_t *model, const wm_training_options_t *options);
wm_status_t wm_training_reserve(wm_training_t *t, wm_error_t *err);
void wm_training_release(wm_training_t *t);

/* training_forward.c: h <- the residual stream after `layer`; fills `saved` (not `input`). */
wm_status_t wm_training_layer_forward(wm_training_t *t, int64_t layer, const wm_pass_t *pass,
                                      const wm_saved_t *saved, wm_error_t *err);
/* The MLP's input from what was saved: x <- LN2. */
void wm_training_mlp_input(wm_training_t *t, int64_t layer, int64_t rows, const float *input,
                           const float *middle);
/* The whole pass up to the head; with `keep`, keeping what the backward pass needs. gates (NULL:
 * not wanted): g as [gated layers, N]; gate_sums (NULL: not wanted): [n_sequences]. */
wm_status_t wm_training_forward(wm_training_t *t, const wm_pass_t *pass, bool keep, float *gates,
                                double *gate_sums, wm_error_t *err);
wm_dropout_t wm_training_dropout(const wm_training_t *t, const wm_pass_t *pass, int64_t layer,
                                 wm_dropout_site_t site);
int64_t wm_training_rows(const wm_pass_t *pass);
/* y <- dense layer of x: [rows, in], whose rows are padded here; out: columns of y. */
wm_status_t wm_training_dense(const wm_training_t *t, wm_kernel_t kernel, wm_linear_t *linear,
                              float *x, int64_t rows, int64_t in, int64_t out, float *y,
                              wm_error_t *err);
/* Dropout of the rows of x: [N, D]. */
void wm_training_drop(const wm_training_t *t, const wm_pass_t *pass, int64_t layer,
                      wm_dropout_site_t site, float *x);
/* Scores and weighted sums of one layer's positions. */
double wm_training_attention_flops(const wm_training_t *t, const wm_batch_t *batch);
/* buffers.hidden <- the activation of pre: [rows, F]. */
void wm_training_activate(const wm_training_t *t, const wm_dense_t *up, const float *pre,
                          int64_t rows);
/* to <- from, counted. */
void wm_training_copy(const wm_training_t *t, float *to, const float *from, int64_t count);
/* h += y, counted. */
void wm_training_add(const wm_training_t *t, float *h, const float *y, int64_t count);

/* training_head.c: losses of the rows with a target, [n_sequences] sums and / or [N]; with
 * `backward` dh <- gradient with respect to h, and gradients of final norm and head. */
wm_status_t wm_training_head(wm_training_t *t, const wm_pass_t *pass, bool backward, double *sums,
                             double *nll, wm_error_t *err);

/* training_backward.c: dh <- gradient with respect to the layer's input, where it is needed. */
wm_status_t wm_training_layer_backward(wm_training_t *t, int64_t layer, const wm_pass_t *pass,
                                       const wm_saved_t *saved, wm_error_t *err);

/* training_dense.c */
/* A product with weights that are float32 and may change. */
wm_status_t wm_training_linear(wm_training_t *t, int64_t in, int64_t out_width, const float *weight,
                               wm_weight_layout_t layout, const float *bias, wm_linear_t **out,
                               wm_error_t *err);
wm_status_t wm_dense_pass_create(wm_training_t *t, const wm_dense_t *dense, wm_kernel_t kernel,
                                 wm_kernel_t input_kernel, wm_dense_pass_t *out, wm_error_t *err);
void wm_dense_pass_destroy(wm_dense_pass_t *pass);
/* Gradients of the parameters, added sequence by sequence, and dx <- dY W' unless NULL. dy is
 * padded with zeros. */
wm_status_t wm_dense_pass_backward(const wm_training_t *t, const wm_dense_pass_t *dense,
                                   const wm_batch_t *batch, const float *x, float *dy, float *dx,
                                   wm_error_t *err);

/* training_gate.c */
wm_status_t wm_gate_pass_create(wm_training_t *t, wm_gate_pass_t *gate, wm_error_t *err);
void wm_gate_pass_destroy(wm_gate_pass_t *gate);
/* Fills saved->gate_hidden and saved->gate from x, and y <- the blend of saved->mlp and
 * saved->line. */
wm_status_t wm_gate_pass_forward(wm_training_t *t, const wm_layer_pass_t *layer,
                                 const wm_pass_t *pass, const wm_saved_t *saved, wm_error_t *err);
/* Gradients of the gate's parameters from dh and the penalty; dx += the gate's part. */
wm_status_t wm_gate_pass_backward(wm_training_t *t, const wm_layer_pass_t *layer,
                                  const wm_pass_t *pass, const wm_saved_t *saved, bool need_dx,
                                  wm_error_t *err);
/* wm_weight_gradient_add, counted as `kernel`; in, out: of the dense layer. */
wm_status_t wm_training_weight_gradient(const wm_training_t *t, wm_kernel_t kernel,
                                        wm_weight_gradient_t *gradient, int64_t in, int64_t out,
                                        const float *x, const float *dy, int64_t rows, float *sum,
                                        wm_error_t *err);
/* y[i, :] <- g x[i, :] or, with `rest`, (1 - g) x[i, :]. */
void wm_gate_scale(const float *gate, bool rest, const float *x, int64_t rows, int64_t d, float *y);

#endif
