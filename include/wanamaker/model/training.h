/* The training pass: gradients of the mean negative log-likelihood with respect to parameters.
 *
 * A training pass belongs to a model whose weights are writable (wm_model_options_t). Its
 * parameters are a table of named tensors. Values lie where the model's products read them, in
 * node-shared memory: who changes them (between wm_training_sync calls) changes the model, with
 * nothing to be converted afterwards, and every function of model.h sees the change. Gradients
 * exist for trainable parameters alone, in one array of this process in which the parameters of one
 * *segment* are neighbours. Segments are numbered in the order in which the backward pass finishes
 * them, so that a caller can reduce one while the next is computed:
 *     segment   0              1          ...  L        L + 1
 *     holds     final norm,    layer      ...  layer 0  embeddings
 *               untied head    L - 1                    (a tied head is the token embedding)
 *
 * The objective of a batch, over positions p with a target and all positions q of gated layers l:
 *     nll_scale sum_p NLL(p) + gate_scale sum_q mean_l g_l(q)
 * Gradients of batches add up; with nll_scale = 1 / positions of all batches they sum to the
 * gradient of the mean (method.md, section 8; s = gate_scale * positions).
 *
 * A layer's MLP may be replaced by a frozen surrogate y = x W + b, through which gradients pass, or
 * be gated: y = g MLP(x) + (1 - g) (x W + b), g = sigmoid(w2 relu(W1 x + b1) + b2) per position.
 *
 * Bits: the same for the same number of threads; contributions of sequences are added in their
 * order, one sequence at a time, so that it does not matter how sequences are cut into batches
 * (but for a tied embedding, to which the head's part and the lookups' are added in turn, batch by
 * batch). Without dropout losses of float32 products are bit for bit those of model.h. With
 * checkpointing they and gradients are those without.
 */
#ifndef WANAMAKER_MODEL_TRAINING_H
#define WANAMAKER_MODEL_TRAINING_H

#include "wanamaker/base/status.h"
#include "wanamaker/model/model.h"

#include <stdbool.h>
#include <stdint.h>

/* Parameters that are frozen or trained together. */
typedef enum {
  WM_GROUP_TOKENS, /* token embedding, and with it a tied head */
  WM_GROUP_POSITIONS,
  WM_GROUP_ATTENTION, /* query, key, value and projection */
  WM_GROUP_MLP,       /* of layers that compute one; not of gated ones with `study_gradients` */
  WM_GROUP_NORMS,     /* both norms of the layers */
  WM_GROUP_FINAL_NORM,
  WM_GROUP_HEAD, /* untied */
  WM_GROUP_GATES,
  WM_GROUP_COUNT,
  /* Surrogates that train (wm_training_options_t.train_surrogates); no bit of `trainable`. */
  WM_GROUP_SURROGATES = WM_GROUP_COUNT
} wm_group_t;

const char *wm_group_name(wm_group_t group);

typedef enum { WM_MLP_FULL, WM_MLP_SURROGATE, WM_MLP_GATED } wm_mlp_path_t;

typedef struct {
  wm_mlp_path_t path;
  const float *weight; /* surrogate W: [D, D] as [in, out]; borrowed; NULL with WM_MLP_FULL */
  const float *bias;   /* b: [D] */
} wm_layer_path_t;

typedef struct {
  uint32_t trainable;           /* bits 1u << wm_group_t */
  const wm_layer_path_t *paths; /* [L], read at creation; NULL: WM_MLP_FULL everywhere */
  bool train_surrogates;        /* the paths' W and b train: their memory is written to, by whoever
                                 * changes values; it is the caller's, who shares it among the ranks */
  const bool *frozen_mlps; /* [L] MLPs that do not train, whatever the groups say; read at creation;
                            * NULL: none */
  int64_t gate_hidden;     /* width of a gate's hidden layer, 32 in the study */
  bool study_gradients;    /* none through the MLP of a gated layer, as in the study's code */
  wm_compute_t compute;    /* type of the products of dense layers, surrogates and head, in both
                            * passes, with float32 master weights that are rounded when they are
                            * multiplied; all else is float32: attention's products, gates, norms,
                            * softmax, residual stream, gradients and their sums */
  bool checkpointing;      /* keep a layer's input alone and compute the rest anew */
  /* Dropout as GPT-2 has it: of the embeddings' sum, of attention's probabilities, of what
   * attention and MLP add to the residual stream (never of a surrogate); rates in [0, 1), those of
   * config.json being in wm_arch_t. */
  double drop_embedding, drop_attention, drop_residual;
  int64_t logits_bytes;         /* logits of a tile of rows are kept for the backward pass if they
                                 * take no more, else computed twice; 0: 256 MiB */
  uint64_t seed;                /* of dropout */
  int64_t max_rows, max_length; /* of a batch: positions in all, positions of a sequence */
} wm_training_options_t;

/* Borrowed arrays. */
typedef struct {
  wm_batch_t rows;
  const int32_t *ids;     /* [N] */
  const int32_t *targets; /* [N]; negative: none */
  /* Dropout draws are keyed by (seed, step, layer, sequence, position, unit). */
  int64_t step;
  const int64_t *sequences; /* [n_sequences] numbers of the sequences within the step */
  double nll_scale, gate_scale;
} wm_training_batch_t;

/* Sums of the batch's sequences in float64, for callers to add in an order of their own. */
typedef struct {
  double *nll;  /* [n_sequences] sum of NLL over positions with a target; the caller's array */
  double *gate; /* [n_sequences] sum over positions of the gated layers' mean g; or NULL */
} wm_training_result_t;

typedef struct {
  const char *name; /* of the checkpoint, without the family's prefix; gates: "gate.LAYER.w1" ... */
  int n_dims;
  int64_t shape[2];
  int64_t elements;
  int64_t layer;   /* -1: embeddings; L: final norm and untied head */
  int64_t segment; /* see the top */
  wm_group_t group;
  float *value;    /* node-shared, row-major */
  float *gradient; /* in wm_training_gradients; NULL: frozen */
} wm_parameter_t;

/* finished: called when the gradients of a segment will not change any more in this call.
 * `gradients`: the segment's part, `count` floats of it (may be 0).
 * between: called between products of the backward pass, for messages that need it to go on; or
 * NULL. */
typedef struct {
  wm_status_t (*finished)(void *context, int64_t segment, float *gradients, int64_t count,
                          wm_error_t *err);
  void (*between)(void *context);
  void *context;
} wm_training_hook_t;

typedef struct wm_training wm_training_t;

/* Collective over the model's communicator. The model is borrowed and must outlive the object;
 * other functions of model.h may be used between the calls below. Gates start with w2 = 0, b2 = -3
 * and W1, b1 uniform in +-1 / sqrt(D) (as torch.nn.Linear), drawn from `seed`. */
wm_status_t wm_training_create(wm_model_t *model, const wm_training_options_t *options,
                               wm_training_t **out, wm_error_t *err);
/* Collective. NULL is allowed. */
void wm_training_free(wm_training_t *training);
/* Collective over the node. Changes of values that any rank made before it are seen by all ranks
 * after it. */
void wm_training_sync(wm_training_t *training);

/* That of the model (wm_model_set_profile): kernels of both passes are counted there. */
wm_profile_t *wm_training_profile(const wm_training_t *training);

/* Borrowed; sorted by segment. */
const wm_parameter_t *wm_training_parameters(const wm_training_t *training, int64_t *count);
/* All gradients, segment after segment; every tensor begins at a multiple of 16 floats, and gaps
 * are zeros. */
float *wm_training_gradients(wm_training_t *training, int64_t *count);
int64_t wm_training_segments(const wm_training_t *training);
/* First element of a segment in wm_training_gradients, and its elements. */
void wm_training_segment(const wm_training_t *training, int64_t segment, int64_t *first,
                         int64_t *count);

/* Bytes of activations that a pass keeps for the backward pass, and of all its other buffers
 * without gradients. Not collective; `options` need not be those of an object. */
int64_t wm_training_saved_bytes(const wm_model_t *model, const wm_training_options_t *options);
int64_t wm_training_scratch_bytes(const wm_model_t *model, const wm_training_options_t *options);

/* Sets all gradients to 0. Not collective, as is everything below. */
void wm_training_zero(wm_training_t *training);

/* Adds the batch's gradients to what is there. `hook` (NULL: none) is called once per segment, in
 * order. Bad ids or targets, and sequences or batches beyond the options' maxima, are WM_INPUT. A
 * loss that is not finite is no error here. */
wm_status_t wm_training_accumulate(wm_training_t *training, const wm_training_batch_t *batch,
                                   const wm_training_hook_t *hook, wm_training_result_t *result,
                                   wm_error_t *err);

/* Forward pass without dropout: nll[N] of the rows with a target (others are left alone), and
 * g: [gated layers, N] in ascending order of layers (NULL: not wanted). With `hard` a gated layer
 * takes the MLP where g >= 0.5 and the surrogate elsewhere. The scales, step and sequences of
 * the batch are not read. */
wm_status_t wm_training_evaluate(wm_training_t *training, const wm_training_batch_t *batch,
                                 bool hard, double *nll, float *g, wm_error_t *err);

#endif
