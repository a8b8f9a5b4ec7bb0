/* A language model, and the pieces of its forward pass that the evaluator strings together.
 *
 * The residual stream of a batch is h: [N, D] row-major float32, N the sum of the batch's sequence
 * lengths, sequence after sequence. One layer is
 *     wm_model_attend   h <- the residual that the MLP's output is added to;  x <- the MLP's input
 *     wm_model_mlp      y <- MLP(x)
 *     h <- h + y
 * for every family: GPT-2 and sequential GPT-NeoX have x = LN2(h + attention), h + attention being
 * the new h; parallel GPT-NeoX has x = LN2(h), h + attention again the new h. So the MLP of a layer
 * can be replaced for some sequences of a batch without the family's code knowing.
 *
 * Weights exist once per node: tensors are used where the file maps them if that holds the type
 * that products take (float32, or bfloat16 for matrices when options say so), others are converted
 * into node-shared memory; embeddings stay in the file's type. Layer norm, softmax, log-sum-exp,
 * rotary angles: float32 or better (sums in float32 pairwise or float64; log-sum-exp in float64).
 * Results of a sequence depend on that sequence alone and the number of threads, bit for bit.
 */
#ifndef WANAMAKER_MODEL_MODEL_H
#define WANAMAKER_MODEL_MODEL_H

#include "wanamaker/base/dtype.h"
#include "wanamaker/base/log.h"
#include "wanamaker/base/profile.h"
#include "wanamaker/base/status.h"
#include "wanamaker/linalg/gemm.h"
#include "wanamaker/model/arch.h"
#include "wanamaker/par/comm.h"

#include <stdint.h>

typedef struct wm_model wm_model_t;

typedef struct {
  int64_t tile_rows;    /* fixed height of the products' tiles, e.g. 512; see wm_gemm_tile_rows */
  int64_t tile_vocab;   /* width of a logits tile, e.g. 4096 */
  wm_compute_t compute; /* type of the dense layers' products; attention's own are float32 */
  bool as_filed; /* float32 products of matrices that stay in the file's type and are converted one
                  * at a time when they are multiplied: slower, but without a copy of the weights */
  bool writable; /* for training (training.h): every tensor is copied to node-shared memory in
                  * float32, which products read in place, so that a change of a weight holds from
                  * the next call on; `compute` must be f32 and `as_filed` false */
} wm_model_options_t;

/* Collective over comm->world. Loads the model in `dir`; `comm` and `log` are borrowed and must
 * outlive it. Missing, surplus (unless a known buffer) or wrongly shaped tensors, weights that are
 * not finite and config.json that contradicts them are WM_INPUT, naming the tensor; a type of
 * products that this machine lacks is WM_ENVIRONMENT. */
wm_status_t wm_model_open(const wm_comm_t *comm, const char *dir, const wm_model_options_t *options,
                          const wm_log_t *log, wm_model_t **out, wm_error_t *err);
/* The same from a config.json alone (wm_arch_read), with weights drawn from `seed` as transformers
 * draws them: matrices normal with config.json's initializer_range (0.02), GPT-2's projections into
 * the residual stream with 1 / sqrt(2 L) of it, layer norms 1 and 0, biases 0; float32 in
 * node-shared memory, which the ranks of a node fill together. Equal bits for any number of ranks;
 * the fingerprint is that of the seed, not of the weights. */
wm_status_t wm_model_create_random(const wm_comm_t *comm, const char *config, uint64_t seed,
                                   const wm_model_options_t *options, const wm_log_t *log,
                                   wm_model_t **out, wm_error_t *err);
/* Collective. Writes such a model into `dir` (made if missing; WM_USAGE if it holds a model
 * already): `shards` files of tensors of type `dtype` (F32, F16 or BF16), rounded to nearest,
 * shared out among the ranks, and config.json, last. Memory is bounded. WM_STOPPED after a stop
 * request: what is there is no model. */
wm_status_t wm_model_save_random(const wm_comm_t *comm, const char *config, uint64_t seed,
                                 wm_dtype_t dtype, int64_t shards, const char *dir,
                                 const wm_log_t *log, wm_error_t *err);
/* Collective. NULL is allowed. */
void wm_model_close(wm_model_t *model);

const wm_arch_t *wm_model_arch(const wm_model_t *model);
/* Fingerprint of architecture and weights. */
uint64_t wm_model_fingerprint(const wm_model_t *model);
/* Not collective. WM_INPUT if a file of weights was written to or shortened since it was opened:
 * what was computed from it may be wrong. */
wm_status_t wm_model_unchanged(const wm_model_t *model, wm_error_t *err);
/* The layer norm whose output is the MLP's input x of `layer`: gamma and beta [D], borrowed. Its
 * input is h as wm_model_attend leaves it, or (arch.parallel_residual) as it finds it. */
void wm_model_mlp_norm(const wm_model_t *model, int64_t layer, const float **gamma,
                       const float **beta, double *eps);
/* Rows of the token embedding: ids must be smaller. */
int64_t wm_model_embedding_rows(const wm_model_t *model);
int64_t wm_model_parameters(const wm_model_t *model);
/* Kernels of the functions below are counted in `profile` from now on (borrowed; NULL: no longer).
 * Who works with the model counts in wm_model_profile what else there is. Not collective. */
void wm_model_set_profile(wm_model_t *model, wm_profile_t *profile);
wm_profile_t *wm_model_profile(const wm_model_t *model);
wm_compute_t wm_model_compute(const wm_model_t *model);
/* Rows of a tile of the products, as wm_gemm_tile_rows made it of the options. */
int64_t wm_model_tile_rows(const wm_model_t *model);
/* How the rows of a batch are cut into tiles (gemm.h): fixed, unless it is set to fitted for
 * inference, which may be changed at any time but not between a workspace's functions of one pass.
 * After a failure the model may only be closed. Not collective. */
wm_tiles_t wm_model_tiles(const wm_model_t *model);
wm_status_t wm_model_set_tiles(wm_model_t *model, wm_tiles_t tiles, wm_error_t *err);
/* Bytes that this process's products take to convert operands. */
int64_t wm_model_scratch_bytes(const wm_model_t *model);
/* Bytes converted into node-shared memory (0 for float32 files and products). */
int64_t wm_model_shared_bytes(const wm_model_t *model);

/* Sequences that lie one after another in the rows of h. Borrowed arrays. */
typedef struct {
  int64_t n_sequences;
  const int64_t *starts; /* [n_sequences + 1]: rows starts[i] .. starts[i + 1] - 1 are sequence i */
} wm_batch_t;

/* Scratch memory of one caller: for at most `max_rows` rows of sequences of at most `max_length`.
 * Not collective. */
typedef struct wm_workspace wm_workspace_t;
wm_status_t wm_workspace_create(const wm_model_t *model, int64_t max_rows, int64_t max_length,
                                wm_workspace_t **out, wm_error_t *err);
void wm_workspace_free(wm_workspace_t *workspace);
/* Bytes that a workspace of that size takes. */
int64_t wm_workspace_bytes(const wm_model_t *model, int64_t max_rows, int64_t max_length);

/* The functions below are not collective and use all OpenMP threads of the process; one caller at a
 * time per model object. */

/* h[N, D] <- token embeddings of ids[N] (+ position embeddings of 0..n-1 in each sequence). An id
 * >= the embedding's rows, or a sequence longer than max_positions, is WM_INPUT. */
wm_status_t wm_model_embed(wm_model_t *model, const wm_batch_t *batch, const int32_t *ids, float *h,
                           wm_error_t *err);

/* See the top: h and x as [N, D]. */
wm_status_t wm_model_attend(wm_model_t *model, int64_t layer, const wm_batch_t *batch, float *h,
                            float *x, wm_workspace_t *workspace, wm_error_t *err);

/* y[rows, D] <- MLP of `layer` applied to x[rows, D]. */
wm_status_t wm_model_mlp(wm_model_t *model, int64_t layer, const float *x, int64_t rows, float *y,
                         wm_workspace_t *workspace, wm_error_t *err);

/* The same without copies: rows is at most wm_gemm_most_rows of the workspace's rows, and x
 * and y have room for wm_gemm_padded rows, which are overwritten. */
wm_status_t wm_model_mlp_padded(wm_model_t *model, int64_t layer, float *x, int64_t rows, float *y,
                                wm_workspace_t *workspace, wm_error_t *err);

/* nll[i] <- -log softmax(logits(LN(h[i])))[targets[i]] for rows i with targets[i] >= 0 (others are
 * left alone and cost nothing), float64 log-sum-exp over tiles of the vocabulary; [N, V] is never
 * stored. h: [rows, D], unchanged. Targets must be below the embedding's rows. */
wm_status_t wm_model_nll(wm_model_t *model, const float *h, int64_t rows, const int32_t *targets,
                         double *nll, wm_workspace_t *workspace, wm_error_t *err);

/* Scratch memory of wm_model_compare for at most max_slots hidden states of at most max_rows rows:
 * 40 bytes for each of them all, and a float for each row and entry of a tile of the vocabulary.
 * Not collective; NULL may be freed. */
typedef struct wm_comparison wm_comparison_t;
wm_status_t wm_comparison_create(const wm_model_t *model, int64_t max_slots, int64_t max_rows,
                                 wm_comparison_t **out, wm_error_t *err);
void wm_comparison_free(wm_comparison_t *comparison);
/* Bytes that it takes. */
int64_t wm_comparison_bytes(const wm_model_t *model, int64_t max_slots, int64_t max_rows);

/* What a comparison can tell of every position beside the sums over them. */
typedef struct {
  float *entropy;    /* [n] of slot 0's distribution, nats */
  float *divergence; /* [slots, n] KL(slot 0 || slot), nats */
  uint8_t *agreed;   /* [slots, n] 1: the slot's most likely token is that of slot 0 */
} wm_position_detail_t;

/* From now on wm_model_compare fills `detail` (borrowed; NULL: no longer). */
void wm_comparison_set_detail(wm_comparison_t *comparison, const wm_position_detail_t *detail);

/* Several hidden states h: [slots, rows, D] of the same positions, n of which have a target:
 *   nll         [slots, n]  (float)(what wm_model_nll yields), same bits, packed
 *   divergence  [slots]     sum over the n positions of KL(slot 0 || slot), nats
 *   agreed      [slots]     positions at which the slot's most likely token is that of slot 0
 * [N, V] is never stored (kernels.h, wm_compare_t). h is overwritten. WM_STOPPED after a stop
 * request. */
wm_status_t wm_model_compare(wm_model_t *model, wm_comparison_t *comparison, float *h,
                             int64_t slots, int64_t rows, const int32_t *targets, float *nll,
                             double *divergence, int64_t *agreed, wm_workspace_t *workspace,
                             wm_error_t *err);

/* h[i] += y[i], i < count: a layer's output on the residual stream. */
void wm_model_add(const wm_model_t *model, float *h, const float *y, int64_t count);

/* logits[rows, V] of h[rows, D], for tests and small models; V = head rows. */
wm_status_t wm_model_logits(wm_model_t *model, const float *h, int64_t rows, float *logits,
                            wm_workspace_t *workspace, wm_error_t *err);

#endif
