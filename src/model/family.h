/* The inside of a model, and the interface that a family's file implements. */
#ifndef WANAMAKER_SRC_MODEL_FAMILY_H
#define WANAMAKER_SRC_MODEL_FAMILY_H

#include "wanamaker/model/kernels.h"
#include "wanamaker/model/model.h"
#include "weights.h"

/* A dense layer with its weights. */
typedef struct {
  int64_t in, out;
  wm_weight_t weight;
  const float *bias; /* NULL: none */
  wm_activation_t activation;
  wm_linear_t *linear;
} wm_dense_t;

/* A block of the GPT kind. */
typedef struct {
  wm_norm_t attention_norm, mlp_norm;
  wm_dense_t qkv, project, up, down;
} wm_layer_t;

/* What a family's file provides. */
typedef struct {
  wm_weights_rules_t rules;
  /* Lists the wanted tensors (wm_weights_want) and describes the dense layers. */
  wm_status_t (*declare)(wm_model_t *model, wm_error_t *err);
  /* Where attention's inputs lie, and by what scores are multiplied. */
  wm_qkv_layout_t (*qkv_layout)(const wm_arch_t *arch);
  float (*score_scale)(const wm_arch_t *arch, int64_t layer);
  /* wm_model_attend and wm_model_mlp. */
  wm_status_t (*attend)(wm_model_t *model, int64_t layer, const wm_batch_t *batch, float *h,
                        float *x, wm_workspace_t *workspace, wm_error_t *err);
  wm_status_t (*mlp)(wm_model_t *model, int64_t layer, const float *x, int64_t rows, float *y,
                     wm_workspace_t *workspace, wm_error_t *err);
} wm_family_ops_t;

extern const wm_family_ops_t wm_gpt2;
extern const wm_family_ops_t wm_gpt_neox;

struct wm_model {
  const wm_comm_t *comm;
  const wm_log_t *log;
  wm_model_options_t options;
  wm_arch_t arch;
  const wm_family_ops_t *family;
  wm_weights_t weights;
  wm_rows_t tokens;       /* token embedding, in the file's type */
  const float *positions; /* position embedding, NULL: none */
  wm_rotary_t rotary;     /* dims = 0: none */
  wm_layer_t *layers;
  wm_norm_t final_norm;
  wm_weight_t head; /* [vocab_size, D] */
  wm_linear_t **head_tiles;
  int64_t n_head_tiles;
  wm_gemm_scratch_t scratch; /* of all products */
  wm_tiles_t tiles;
  uint64_t fingerprint;
  wm_profile_t *profile; /* borrowed, NULL: none */
};

/* Scratch memory; sizes in workspace.c. max_rows is a multiple of tile_rows; most_rows are those
 * that go through the MLP or the head together (wm_gemm_most_rows of fixed tiles). */
struct wm_workspace {
  int64_t max_rows, max_length;
  float *qkv;               /* [max_rows, 3 D] */
  float *normed;            /* [max_rows, D] */
  float *hidden;            /* [most_rows, d_mlp] */
  float *scores;            /* of attention, per thread */
  float *final;             /* [most_rows, D]: final norm */
  float *logits;            /* [most_rows, tile_vocab] */
  wm_query_block_t *blocks; /* [max_rows] */
  int32_t *positions;       /* [max_rows] */
  wm_log_sum_t *log_sums;   /* [most_rows] */
  int64_t *rows;            /* [most_rows] */
  int32_t *targets;         /* [most_rows] */
  void *memory;
};

/* workspace.c: rows that go through the MLP or the head together, as the model cuts them now. */
int64_t wm_workspace_together(const wm_model_t *model, const wm_workspace_t *workspace);

/* model.c: architecture and list of wanted tensors, from the files in `dir` or, with a seed, from a
 * config.json alone. Collective over m->comm->world; `m` is zeroed but for `comm` and `log`, and
 * wm_model_close destroys it, also after a failure. */
wm_status_t wm_model_declare(wm_model_t *m, const char *dir, const uint64_t *seed, wm_error_t *err);

/* block.c: what the families share. */

/* Zeroes the rows of x[rows, width] up to the height of tiles. */
void wm_block_pad(const wm_model_t *model, float *x, int64_t rows, int64_t width);
/* wm_norm_apply, counted in the profile. */
void wm_block_norm(const wm_model_t *model, const wm_norm_t *norm, const float *x,
                   const int64_t *index, int64_t rows, float *out);
/* workspace->qkv, as [rows, D] <- attention over LN(h), after its projection. */
wm_status_t wm_block_attention(wm_model_t *model, int64_t layer, const wm_batch_t *batch,
                               const float *h, wm_workspace_t *workspace, wm_error_t *err);
wm_status_t wm_block_mlp(wm_model_t *model, int64_t layer, const float *x, int64_t rows, float *y,
                         wm_workspace_t *workspace, wm_error_t *err);
/* Wants the token embedding, and the head unless it is tied. */
wm_status_t wm_block_declare_tokens(wm_model_t *model, const char *embedding, const char *head,
                                    wm_error_t *err);
/* Describes a dense layer and wants NAME.weight in its layout and, if `bias`, NAME.bias. */
wm_status_t wm_block_declare_dense(wm_model_t *model, wm_dense_t *dense, wm_dense_t shape,
                                   bool bias, wm_error_t *err, const char *name, ...)
    __attribute__((format(printf, 6, 7)));
/* Wants NAME.weight and NAME.bias. */
wm_status_t wm_block_declare_norm(wm_model_t *model, wm_norm_t *norm, wm_error_t *err,
                                  const char *name, ...) __attribute__((format(printf, 4, 5)));
/* Makes the products of a layer, once its weights are there. */
wm_status_t wm_block_create_linears(wm_model_t *model, wm_layer_t *layer, wm_error_t *err);
wm_status_t wm_block_set_tiles(wm_layer_t *layer, wm_tiles_t tiles, wm_error_t *err);
void wm_block_free_linears(wm_layer_t *layer);

/* head.c: the head's products, one per tile of the vocabulary. */
wm_status_t wm_head_create(wm_model_t *model, wm_error_t *err);
void wm_head_free(wm_model_t *model);
/* Entries of the vocabulary in tile t. */
int64_t wm_head_width(const wm_model_t *model, int64_t t);
/* WM_INPUT if a target is no token of the model; -1 is none. */
wm_status_t wm_head_check_targets(const wm_model_t *model, const int32_t *targets, int64_t rows,
                                  wm_error_t *err);
/* workspace->logits <- tile t of the vocabulary for one tile of padded, normed rows, of which
 * `rows` are wanted. */
wm_status_t wm_head_logits(wm_model_t *model, int64_t t, const float *x, int64_t rows,
                           wm_workspace_t *workspace, wm_error_t *err);

#endif
