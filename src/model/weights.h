/* Finding a model's tensors in its files, checking them, and having them in the type that the
 * forward pass reads, once per node.
 *
 * A family lists the tensors that it wants; wm_weights_resolve then finds them under their names
 * with or without the family's prefix, refuses missing, wrongly shaped, surplus and non-finite
 * ones, and sets the pointers: into the mapped file where that holds the type, aligned, else into
 * one window of node-shared memory that the node's ranks fill together.
 */
#ifndef WANAMAKER_SRC_MODEL_WEIGHTS_H
#define WANAMAKER_SRC_MODEL_WEIGHTS_H

#include "wanamaker/io/safetensors.h"
#include "wanamaker/linalg/gemm.h"
#include "wanamaker/par/comm.h"
#include "wanamaker/par/shared.h"

#include <stdbool.h>
#include <stdint.h>

/* A matrix whose rows are converted when they are looked up, for embeddings. */
typedef struct {
  wm_dtype_t dtype;
  const char *data;
  int64_t width;
} wm_rows_t;

enum { WM_WANT_NAME = 96 };

/* In what type the matrices of products are kept. */
typedef enum {
  WM_MATRICES_F32,
  WM_MATRICES_BF16,
  WM_MATRICES_AS_FILED /* F32, F16 or BF16 in place, without a copy; F64 becomes F32 */
} wm_matrices_t;

typedef struct {
  char name[WM_WANT_NAME]; /* without prefix */
  int n_dims;
  int64_t shape[2];
  const float **slot;  /* where the pointer to float32 goes, or */
  wm_weight_t *matrix; /* a matrix of products, in the type of wm_matrices_t, and, or alone, */
  wm_rows_t *rows;     /* a matrix that stays in the file's type */
  const wm_tensor_t *tensor;
  wm_dtype_t stored;   /* type of slot or matrix */
  int64_t offset;      /* of slot or matrix in the window, in bytes; -1: none, or the file's data */
  int64_t rows_offset; /* of rows that no file holds, float32 (may be `offset`); -1: none */
} wm_want_t;

/* What random weights are drawn from: matrices are normal. */
typedef struct {
  uint64_t seed;
  float deviation, added_deviation; /* the latter of GPT-2's projections into the residual stream */
} wm_random_t;

typedef struct {
  wm_tensors_t *tensors; /* NULL: random weights */
  wm_random_t random;
  wm_tensor_t *drawn; /* [count] what files would hold, without data; NULL for a model in files */
  wm_want_t *wants;
  int64_t count, capacity;
  wm_matrices_t matrices; /* set before wm_weights_resolve, as is: */
  bool writable;          /* all tensors in the window, in float32 */
  wm_shared_t window;
  int64_t window_bytes;
} wm_weights_t;

/* What a family's files are like. */
typedef struct {
  const char *family;         /* for messages */
  const char *prefix;         /* "transformer." */
  const char *const *buffers; /* tensors to be ignored, "#" standing for a number; NULL ends */
  const char *copy, *copy_original; /* `copy` may be there if it equals copy_original; or NULL */
} wm_weights_rules_t;

enum { WM_FILED_NAME = 2 * WM_WANT_NAME };
/* The name of a wanted tensor in a file of the whole language model, as transformers writes it:
 * with the prefix of the base model, outside of which the head lies. */
void wm_weights_filed_name(const wm_weights_rules_t *rules, const wm_want_t *want,
                           char out[WM_FILED_NAME]);

/* Not collective. */
wm_status_t wm_weights_open(wm_weights_t *weights, const char *dir, wm_error_t *err);
/* Random weights instead of files (random.h). */
void wm_weights_open_random(wm_weights_t *weights, wm_random_t random);
/* Collective over the node. Harmless on a zeroed object. */
void wm_weights_close(wm_weights_t *weights);

/* Wants a vector [n0] (n1 = 0) or a matrix [n0, n1] row-major in float32. */
wm_status_t wm_weights_want(wm_weights_t *weights, const float **slot, int64_t n0, int64_t n1,
                            wm_error_t *err, const char *name, ...)
    __attribute__((format(printf, 6, 7)));
/* Wants a matrix of products: sets *matrix but for its layout, which is the caller's. */
wm_status_t wm_weights_want_matrix(wm_weights_t *weights, wm_weight_t *matrix, int64_t n0,
                                   int64_t n1, wm_error_t *err, const char *name);
/* Wants a matrix whose rows are looked up, and as a matrix of products too unless NULL. */
wm_status_t wm_weights_want_rows(wm_weights_t *weights, wm_rows_t *rows, wm_weight_t *matrix,
                                 int64_t n0, int64_t n1, wm_error_t *err, const char *name);

/* Collective over comm->world, after all wants. */
wm_status_t wm_weights_resolve(wm_weights_t *weights, const wm_comm_t *comm,
                               const wm_weights_rules_t *rules, wm_error_t *err);

/* The writable copy of the tensor that was wanted for `slot` (of a vector), `matrix` or `rows`;
 * NULL if there is none. *want is its description. */
float *wm_weights_writable(const wm_weights_t *weights, const void *place, const wm_want_t **want);

/* Lets the pages of the files go whose contents were copied into the window. Not collective. */
void wm_weights_release_files(const wm_weights_t *weights);

/* Not collective. WM_INPUT if a file of weights was written to or shortened since it was opened. */
wm_status_t wm_weights_unchanged(const wm_weights_t *weights, wm_error_t *err);

/* Fingerprint of the files' tensors, or of what they are drawn from. */
uint64_t wm_weights_fingerprint(const wm_weights_t *weights);

/* Elements of all wanted tensors. */
int64_t wm_weights_elements(const wm_weights_t *weights);

/* weights.c, for weights_load.c: finds and checks what is wanted. */
wm_status_t wm_weights_find(wm_weights_t *weights, const wm_weights_rules_t *rules,
                            wm_error_t *err);

#endif
