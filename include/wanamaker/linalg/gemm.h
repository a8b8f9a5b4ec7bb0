/* Matrix products of the network, float32 or bfloat16 with float32 sums.
 *
 * A wm_linear_t is one dense layer, Y = act(X W + b), with X: [N, in], W: [in, out] and
 * Y: [N, out], all row-major. Weights may be stored either way round (below). Products run in
 * tiles of one fixed height, `tile_rows`: a shorter last tile is padded with zeros, so that the
 * shape of the product, and with it the order of its sums, never depends on how many rows are at
 * hand. (Inference may ask for tiles that fit the rows instead: wm_tiles_t.) The backend is oneDNN,
 * or CBLAS when built so (WM_GEMM=cblas); both give the same interface and are tested against
 * wm_linear_apply_reference.
 *
 * Products in bfloat16 have both operands rounded to it (nearest even) and float32 sums; bias,
 * activation and Y stay float32. "bf16" is done by the CPU's own instructions (which read bfloat16
 * numbers below 2^-126 as zero), "bf16_emulated" by float32 products of the rounded operands: the
 * same numbers but for the order and rounding of the sums, on any CPU, in half of float32's memory
 * for the weights, and without the speed.
 */
#ifndef WANAMAKER_LINALG_GEMM_H
#define WANAMAKER_LINALG_GEMM_H

#include "wanamaker/base/dtype.h"
#include "wanamaker/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* How the weights lie in memory. */
typedef enum {
  WM_WEIGHT_IN_OUT, /* [in, out] row-major: GPT-2's Conv1D */
  WM_WEIGHT_OUT_IN  /* [out, in] row-major: torch.nn.Linear */
} wm_weight_layout_t;

/* Activations, defined as in transformers' ACT2FN. */
typedef enum {
  WM_ACT_NONE,      /* linear */
  WM_ACT_GELU,      /* x Phi(x), exact by erf: gelu, gelu_python */
  WM_ACT_GELU_TANH, /* tanh approximation: gelu_new, gelu_pytorch_tanh, gelu_fast, gelu_accurate */
  WM_ACT_GELU_CLIP10, /* gelu clipped to [-10, 10]: gelu_10 */
  WM_ACT_QUICK_GELU,  /* x sigmoid(1.702 x) */
  WM_ACT_RELU,
  WM_ACT_RELU2, /* relu(x)^2 */
  WM_ACT_RELU6,
  WM_ACT_LEAKY_RELU, /* slope 0.01 */
  WM_ACT_SIGMOID,
  WM_ACT_SILU, /* silu, swish */
  WM_ACT_TANH,
  WM_ACT_MISH,
  WM_ACT_LAPLACE, /* 0.5 (1 + erf((x - 0.707107) / (0.282095 sqrt 2))) */
  WM_ACT_COUNT
} wm_activation_t;

/* The height of a tile is a multiple of this, so that the kernels' blocks of rows are full: rows
 * left over would be summed in another order than the rest. It follows from backend and CPU. */
int64_t wm_gemm_row_block(void);
/* `rows`, rounded up to it. */
int64_t wm_gemm_tile_rows(int64_t rows);

/* How rows are cut into tiles.
 *   FIXED   tiles of tile_rows, the last one padded to it. A row's bits depend on that row alone.
 *           Where higher products give the same bits (wm_gemm_joins), tiles are done together: the
 *           weights are read less often.
 *   FITTED  tiles of equal share, at most tile_rows high, padded to wm_gemm_fitted_block() rows:
 *           time follows the number of rows. A row's bits may depend on how many there are, though
 *           not on its place among them: for inference, never for what is compared bit by bit. */
typedef enum { WM_TILES_FIXED, WM_TILES_FITTED } wm_tiles_t;

/* Fitted tiles are multiples of it; it divides wm_gemm_row_block(). */
int64_t wm_gemm_fitted_block(void);
/* Can backend and CPU do several fixed tiles together, and any multiple of wm_gemm_row_block() rows
 * from one tile on, with the bits of the tiles alone? */
bool wm_gemm_joins(void);
/* Most rows, of at most `rows`, that are worth doing together: one tile, or several where tiles are
 * joined. tile: of wm_gemm_tile_rows. */
int64_t wm_gemm_most_rows(wm_tiles_t tiles, int64_t tile, int64_t rows);
/* Rows of each share of `rows` rows that go together; the last share may have fewer. most: the
 * tile, or whole tiles up to wm_gemm_most_rows. */
int64_t wm_gemm_share(wm_tiles_t tiles, int64_t tile, int64_t most, int64_t rows);
/* What `rows` rows are padded to. */
int64_t wm_gemm_padded(wm_tiles_t tiles, int64_t tile, int64_t rows);
/* How many of `rows` rows need no padding: those after them are a last, shorter tile. */
int64_t wm_gemm_whole(wm_tiles_t tiles, int64_t tile, int64_t rows);

typedef enum { WM_COMPUTE_F32, WM_COMPUTE_BF16, WM_COMPUTE_BF16_EMULATED } wm_compute_t;

/* "f32", "bf16", "bf16_emulated" */
const char *wm_compute_name(wm_compute_t compute);
/* Unknown: false. */
bool wm_compute_parse(const char *name, wm_compute_t *out);

/* WM_OK if this process can do such products, found out by making one. WM_ENVIRONMENT if the CPU or
 * the backend lacks them; the message says what is missing and what can be done instead. */
wm_status_t wm_compute_check(wm_compute_t compute, wm_error_t *err);

/* Weights as they lie in memory. */
typedef struct {
  wm_dtype_t dtype; /* F32, F16 or BF16 */
  wm_weight_layout_t layout;
  const void *data; /* borrowed, aligned to its type */
} wm_weight_t;

/* Room for operands that must be converted for a product, shared by the layers of one caller: the
 * largest matrix that is not stored as it is multiplied, and a tile of rows. Zeroed: empty. */
typedef struct {
  float *weight;
  void *rows;
  float *panel; /* of the weights, for fitted tiles */
  int64_t weight_elements, row_elements, panel_elements;
} wm_gemm_scratch_t;
/* Harmless on a zeroed object. */
void wm_gemm_scratch_destroy(wm_gemm_scratch_t *scratch);
/* Bytes that it takes. */
int64_t wm_gemm_scratch_bytes(const wm_gemm_scratch_t *scratch);

typedef struct wm_linear wm_linear_t;

/* Makes a layer of `weight` (borrowed: it must outlive the object; never copied unless packing is
 * asked for by the backend's own scratch) and `bias` ([out] or NULL, borrowed). tile_rows > 0.
 * On failure *out is NULL. Not collective. */
wm_status_t wm_linear_create(wm_linear_t **out, int64_t in, int64_t out_width, const float *weight,
                             wm_weight_layout_t layout, const float *bias, wm_activation_t act,
                             int64_t tile_rows, wm_error_t *err);
/* The same for weights of any type and products of any type. Bfloat16 products take BF16 weights
 * as they are, and F32 ones (which may change between calls) rounded; float32 products take F32
 * weights as they are, others converted: a matrix at a time, whenever the layer is applied.
 * `scratch` (borrowed; it must outlive the object) grows to what the layer needs;
 * layers that share one are applied one at a time. */
wm_status_t wm_linear_create_typed(wm_linear_t **out, int64_t in, int64_t out_width,
                                   const wm_weight_t *weight, const float *bias,
                                   wm_activation_t act, int64_t tile_rows, wm_compute_t compute,
                                   wm_gemm_scratch_t *scratch, wm_error_t *err);
void wm_linear_free(wm_linear_t *linear);

/* Rows of a tile: tile_rows, rounded up to what the backend needs. */
int64_t wm_linear_tile_rows(const wm_linear_t *linear);

/* How rows are cut from now on; fixed after creation. Fitted tiles need `scratch`, which grows for
 * the present number of threads, here and nowhere else. */
wm_status_t wm_linear_set_tiles(wm_linear_t *linear, wm_tiles_t tiles, wm_error_t *err);

/* y[rows, out] = act(x[rows, in] W + b), with all threads of the process. x and y may not overlap.
 * Not thread-safe: one caller at a time per object. rows = 0 is allowed. */
wm_status_t wm_linear_apply(wm_linear_t *linear, const float *x, int64_t rows, float *y,
                            wm_error_t *err);

/* The same by three plain loops with float64 sums; for tests. */
void wm_linear_apply_reference(const float *x, int64_t rows, int64_t in, int64_t out,
                               const float *weight, wm_weight_layout_t layout, const float *bias,
                               wm_activation_t act, float *y);

/* wm_linear_apply where x and y have room for wm_gemm_padded rows: those of x beyond `rows` are
 * read, those of y overwritten. Nothing is copied. */
wm_status_t wm_linear_apply_padded(wm_linear_t *linear, const float *x, int64_t rows, float *y,
                                   wm_error_t *err);

/* act(x) of one number, in float64. */
double wm_activation_reference(wm_activation_t act, double x);

/* Gradient of a dense layer Y = X W + b with respect to W, added to `gradient` in W's layout:
 * gradient += X' dY for x[rows, in] and dy[rows, out]. With all threads of the process. Equal bits
 * for equal operands, shapes, numbers of threads and previous contents. */
wm_status_t wm_linear_weight_gradient(int64_t in, int64_t out, wm_weight_layout_t layout,
                                      const float *x, const float *dy, int64_t rows,
                                      float *gradient, wm_error_t *err);

/* The same with products of any type, X and dY being rounded for those in bfloat16, and float32
 * sums. An object is for one layer and at most max_rows rows at once; `scratch` as above (NULL is
 * allowed for float32). What its calls return is as deterministic, for the same sequence of calls.
 */
typedef struct wm_weight_gradient wm_weight_gradient_t;
wm_status_t wm_weight_gradient_create(wm_weight_gradient_t **out, int64_t in, int64_t out_width,
                                      wm_weight_layout_t layout, int64_t max_rows,
                                      wm_compute_t compute, wm_gemm_scratch_t *scratch,
                                      wm_error_t *err);
/* NULL is allowed. */
void wm_weight_gradient_free(wm_weight_gradient_t *gradient);
wm_status_t wm_weight_gradient_add(wm_weight_gradient_t *gradient, const float *x, const float *dy,
                                   int64_t rows, float *out, wm_error_t *err);

/* The same by plain loops in float64; for tests. */
void wm_linear_weight_gradient_reference(int64_t in, int64_t out, wm_weight_layout_t layout,
                                         const float *x, const float *dy, int64_t rows,
                                         float *gradient);

/* C[m, n] = alpha op(A) op(B) + beta C, row-major with leading dimensions, as cblas_sgemm
 * (trans: 'N' or 'T'). Runs on the calling thread alone, so it may be called from inside an
 * OpenMP parallel region. */
wm_status_t wm_sgemm_serial(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k,
                            float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                            float beta, float *c, int64_t ldc, wm_error_t *err);

/* Name and version of the backend, e.g. "oneDNN 2.6.3". */
const char *wm_gemm_backend(void);

#endif
