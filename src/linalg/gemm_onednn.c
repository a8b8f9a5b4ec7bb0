/* Matrix products by oneDNN (2.x and 3.x: the C interface of the matmul primitive changed).
 *
 * Bfloat16 products and float32 ones with weights stored [out, in] go through a matmul primitive.
 * Float32 weights stored [in, out] go through dnnl_sgemm: the primitive's kernel reads such weights
 * in place and, for widths that are no power of two but a multiple of a page (3072 of GPT-2), loses
 * half its speed to cache-set conflicts, while sgemm copies them into its own panels. Both compute
 * a row of the result from that row of X alone in an order that the shape decides (tested bit for
 * bit).
 *
 * Not so the float32 kernels for CPUs without AVX-512: they take rows by sixes, sum the last two of
 * a share in another order, and cut rows into shares by the number of threads. There threads take
 * columns instead, each by a serial product, and tiles are multiples of 48 rows, of whose shares no
 * two rows are left over. Two threads are left to oneDNN: it cuts 48 rows evenly, and is up to
 * twice as fast where a thread's columns would be few beside the length of the sums.
 *
 * Without AVX-512, dnnl_sgemm reads weights in place where rows are few (1 / rows + 1 / out above
 * 0.0038 or so), and then [in, out] ones of a width like 1024 or 3072 at half speed, for the same
 * reason. Fitted tiles, which may be low, go in panels of the weights' rows instead, each copied
 * into memory whose rows are a cache line apart from such a width; for high ones that costs
 * nothing.
 *
 * Its order of sums does not depend on the height while it copies them. So fixed tiles that are
 * that high are joined: four of them are 3 to 8 % faster than one after the other, which copy the
 * weights four times.
 *
 * Every plan has its own engine and stream: on a CPU an engine holds no resources, oneDNN's cache
 * of compiled primitives is shared between them, and so no global object is needed.
 */
#ifdef WM_GEMM_ONEDNN

#include "wanamaker/base/mem.h"
#include "wanamaker/linalg/gemm.h"
#include "wanamaker/linalg/gemm_backend.h"
#include "wanamaker/par/comm.h"

#include <assert.h>
#include <dnnl.h>
#include <omp.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t memory_desc_t; /* already a pointer */
#else
typedef dnnl_memory_desc_t *memory_desc_t;
#endif

static bool has_avx512(void) {
  return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
}

int64_t wm_gemm_row_block(void) {
  return has_avx512() ? 16 : 48;
}

bool wm_gemm_joins(void) {
  return !has_avx512();
}

/* Sixes of rows for the kernels that read in place, fours for those that copy: no row is left over.
 */
int64_t wm_gemm_fitted_block(void) {
  return has_avx512() ? 16 : 12;
}

/* A matmul primitive Y = X W, or Y += X W, of one shape. */
typedef struct {
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  dnnl_primitive_t primitive;
  dnnl_memory_t x, w, y;
} matmul_t;

struct wm_gemm_plan {
  int64_t rows, in, out;
  wm_weight_layout_t layout;
  bool by_columns; /* threads take columns */
  bool by_panels;  /* and copy their part of the weights, some rows at a time */
  matmul_t matmul; /* zeroed where dnnl_sgemm does it */
};

struct wm_gemm_outer {
  matmul_t matmul;
};

static const char *dnnl_status_name(dnnl_status_t s) {
  switch (s) {
  case dnnl_success:
    return "success";
  case dnnl_out_of_memory:
    return "out of memory";
  case dnnl_invalid_arguments:
    return "invalid arguments";
  case dnnl_unimplemented:
    return "unimplemented";
  case dnnl_runtime_error:
    return "runtime error";
  default:
    return "unknown status";
  }
}

/* The check of this library: leaves for `cleanup` with a message when `call` fails. */
#define DNNL_TRY(call)                                                                             \
  do {                                                                                             \
    dnnl_status_t dnnl_status_ = (call);                                                           \
    if (dnnl_status_ != dnnl_success) {                                                            \
      status = wm_fail(err, WM_ENVIRONMENT, "oneDNN: %s: %s (%d)", #call,                          \
                       dnnl_status_name(dnnl_status_), (int)dnnl_status_);                         \
      goto cleanup;                                                                                \
    }                                                                                              \
  } while (0)

/* A matrix [rows, cols]; `tag` is dnnl_ab (row-major) or dnnl_ba (column-major). */
static dnnl_status_t describe(memory_desc_t *out, int64_t rows, int64_t cols, dnnl_data_type_t type,
                              dnnl_format_tag_t tag) {
  dnnl_dims_t dims = {rows, cols};
#if DNNL_VERSION_MAJOR >= 3
  return dnnl_memory_desc_create_with_tag(out, 2, dims, type, tag);
#else
  *out = malloc(sizeof **out);
  return *out == NULL ? dnnl_out_of_memory : dnnl_memory_desc_init_by_tag(*out, 2, dims, type, tag);
#endif
}

static void forget(memory_desc_t desc) {
  if (desc == NULL)
    return;
#if DNNL_VERSION_MAJOR >= 3
  dnnl_memory_desc_destroy(desc);
#else
  free(desc);
#endif
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                      memory_desc_t x, memory_desc_t w, memory_desc_t y,
                                      dnnl_primitive_attr_t attributes) {
#if DNNL_VERSION_MAJOR >= 3
  return dnnl_matmul_primitive_desc_create(out, engine, x, w, NULL, y, attributes);
#else
  dnnl_matmul_desc_t operation;
  dnnl_status_t s = dnnl_matmul_desc_init(&operation, x, w, NULL, y);
  return s != dnnl_success ? s
                           : dnnl_primitive_desc_create(out, &operation, attributes, engine, NULL);
#endif
}

/* The result is added to what is there. */
static dnnl_status_t append_sum(dnnl_post_ops_t operations) {
#if DNNL_VERSION_MAJOR >= 3
  return dnnl_post_ops_append_sum(operations, 1.0f, 0, dnnl_data_type_undef);
#else
  return dnnl_post_ops_append_sum(operations, 1.0f);
#endif
}

/* X: [rows, in] and W: [in, out], each row-major (dnnl_ab) or column-major (dnnl_ba). */
typedef struct {
  int64_t rows, in, out;
  wm_dtype_t operands;
  dnnl_format_tag_t x_tag, w_tag;
  bool accumulate;
} product_t;

static wm_status_t matmul_create(const product_t *product, matmul_t *p, wm_error_t *err) {
  wm_status_t status = WM_OK;
  memory_desc_t x = NULL, w = NULL, y = NULL;
  const dnnl_data_type_t type = product->operands == WM_DTYPE_BF16 ? dnnl_bf16 : dnnl_f32;
  dnnl_primitive_desc_t desc = NULL;
  dnnl_post_ops_t operations = NULL;
  dnnl_primitive_attr_t attributes = NULL;
  if (product->accumulate) {
    DNNL_TRY(dnnl_post_ops_create(&operations));
    DNNL_TRY(append_sum(operations));
    DNNL_TRY(dnnl_primitive_attr_create(&attributes));
    DNNL_TRY(dnnl_primitive_attr_set_post_ops(attributes, operations));
  }
  DNNL_TRY(dnnl_engine_create(&p->engine, dnnl_cpu, 0));
  DNNL_TRY(dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags));
  DNNL_TRY(describe(&x, product->rows, product->in, type, product->x_tag));
  DNNL_TRY(describe(&w, product->in, product->out, type, product->w_tag));
  DNNL_TRY(describe(&y, product->rows, product->out, dnnl_f32, dnnl_ab));
  DNNL_TRY(describe_product(&desc, p->engine, x, w, y, attributes));
  DNNL_TRY(dnnl_primitive_create(&p->primitive, desc));
  DNNL_TRY(dnnl_memory_create(&p->x, x, p->engine, DNNL_MEMORY_NONE));
  DNNL_TRY(dnnl_memory_create(&p->w, w, p->engine, DNNL_MEMORY_NONE));
  DNNL_TRY(dnnl_memory_create(&p->y, y, p->engine, DNNL_MEMORY_NONE));
cleanup:
  if (desc != NULL)
    dnnl_primitive_desc_destroy(desc);
  if (attributes != NULL)
    dnnl_primitive_attr_destroy(attributes);
  if (operations != NULL)
    dnnl_post_ops_destroy(operations);
  forget(x);
  forget(w);
  forget(y);
  return status;
}

static void matmul_destroy(matmul_t *p) {
  const dnnl_memory_t memories[] = {p->x, p->w, p->y};
  for (int i = 0; i < 3; i++)
    if (memories[i] != NULL)
      dnnl_memory_destroy(memories[i]);
  if (p->primitive != NULL)
    dnnl_primitive_destroy(p->primitive);
  if (p->stream != NULL)
    dnnl_stream_destroy(p->stream);
  if (p->engine != NULL)
    dnnl_engine_destroy(p->engine);
}

static wm_status_t matmul_run(matmul_t *p, const void *x, const void *w, float *y,
                              wm_error_t *err) {
  wm_status_t status = WM_OK;
  DNNL_TRY(dnnl_memory_set_data_handle(p->x, (void *)x)); /* read only, */
  DNNL_TRY(dnnl_memory_set_data_handle(p->w, (void *)w)); /* like this */
  DNNL_TRY(dnnl_memory_set_data_handle(p->y, y));
  const dnnl_exec_arg_t args[] = {
      {DNNL_ARG_SRC, p->x}, {DNNL_ARG_WEIGHTS, p->w}, {DNNL_ARG_DST, p->y}};
  DNNL_TRY(dnnl_primitive_execute(p->primitive, p->stream, 3, args));
  DNNL_TRY(dnnl_stream_wait(p->stream));
cleanup:
  return status;
}

wm_status_t wm_gemm_plan_create(wm_gemm_plan_t **out, int64_t rows, int64_t in, int64_t out_width,
                                wm_dtype_t operands, wm_weight_layout_t layout, wm_tiles_t tiles,
                                wm_error_t *err) {
  assert(operands == WM_DTYPE_F32 || operands == WM_DTYPE_BF16);
  *out = NULL;
  void *memory;
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_gemm_plan_t), "a matrix product", err);
  if (status != WM_OK)
    return status;
  wm_gemm_plan_t *p = memory;
  p->rows = rows;
  p->in = in;
  p->out = out_width;
  p->layout = layout;
  p->by_columns = operands == WM_DTYPE_F32 && !has_avx512();
  p->by_panels = p->by_columns && tiles == WM_TILES_FITTED && layout == WM_WEIGHT_IN_OUT;
  if (!p->by_columns && (layout == WM_WEIGHT_OUT_IN || operands == WM_DTYPE_BF16))
    status = matmul_create(&(product_t){rows, in, out_width, operands, dnnl_ab,
                                        layout == WM_WEIGHT_IN_OUT ? dnnl_ab : dnnl_ba, false},
                           &p->matmul, err);
  if (status != WM_OK) {
    wm_gemm_plan_free(p);
    return status;
  }
  *out = p;
  return WM_OK;
}

void wm_gemm_plan_free(wm_gemm_plan_t *plan) {
  if (plan == NULL)
    return;
  matmul_destroy(&plan->matmul);
  free(plan);
}

enum { LINE = 16, PANEL_ROWS = 256 }; /* floats; rows of a panel of the weights */

/* The smallest rows and columns with which dnnl_sgemm copies the weights, with a margin. */
static bool copies(int64_t rows, int64_t cols) {
  return 1.0 / (double)rows + 1.0 / (double)cols < 0.0036;
}

bool wm_gemm_plan_joins(const wm_gemm_plan_t *p) {
  const int threads = omp_get_max_threads();
  const int64_t cols = threads <= 2 ? p->out : p->out / threads / LINE * LINE;
  return p->by_columns && !p->by_panels && cols > 0 && copies(p->rows, cols);
}

/* Columns first .. first + cols - 1 of Y, on the calling thread if it is one of a team. */
static dnnl_status_t run_columns(const wm_gemm_plan_t *p, const float *x, int64_t rows,
                                 const float *weight, int64_t first, int64_t cols, float *y) {
  bool in_out = p->layout == WM_WEIGHT_IN_OUT;
  return dnnl_sgemm('N', in_out ? 'N' : 'T', rows, cols, p->in, 1.0f, x, p->in,
                    weight + (in_out ? first : first * p->in), in_out ? p->out : p->in, 0.0f,
                    y + first, p->out);
}

int64_t wm_gemm_plan_panel(const wm_gemm_plan_t *p) {
  return p->by_panels ? PANEL_ROWS * (p->out + 2 * LINE * omp_get_max_threads()) : 0;
}

/* Floats from a row of a panel to the next: at most 2 LINE more than a row has. */
static int64_t panel_stride(int64_t cols) {
  const int64_t stride = cols + LINE;
  return stride % 256 == 0 ? stride + LINE : stride;
}

/* The same with the weights' columns copied, a panel at a time, into `panel`: PANEL_ROWS rows of
 * panel_stride(cols) floats. */
static dnnl_status_t run_panels(const wm_gemm_plan_t *p, const float *x, const float *weight,
                                int64_t first, int64_t cols, float *panel, float *y) {
  const int64_t stride = panel_stride(cols);
  dnnl_status_t status = dnnl_success;
  for (int64_t k = 0; k < p->in && status == dnnl_success; k += PANEL_ROWS) {
    const int64_t n = p->in - k < PANEL_ROWS ? p->in - k : PANEL_ROWS;
    for (int64_t i = 0; i < n; i++)
      memcpy(panel + i * stride, weight + (k + i) * p->out + first, (size_t)cols * sizeof *panel);
    status = dnnl_sgemm('N', 'N', p->rows, cols, n, 1.0f, x + k, p->in, panel, stride,
                        k == 0 ? 0.0f : 1.0f, y + first, p->out);
  }
  return status;
}

/* Each thread takes a share of the columns, whole cache lines of them. */
static dnnl_status_t run_by_columns(const wm_gemm_plan_t *p, const float *x, int64_t rows,
                                    const float *weight, float *panel, float *y) {
  int result = dnnl_success;
  if (omp_get_max_threads() <= (p->by_panels ? 1 : 2))
    return p->by_panels ? run_panels(p, x, weight, 0, p->out, panel, y)
                        : run_columns(p, x, rows, weight, 0, p->out, y);
#pragma omp parallel reduction(max : result)
  {
    int threads = omp_get_max_threads();
    int64_t begin, length;
    wm_partition((p->out + LINE - 1) / LINE, omp_get_num_threads(), omp_get_thread_num(), &begin,
                 &length);
    begin *= LINE, length *= LINE;
    length = begin + length < p->out ? length : p->out - begin;
    omp_set_num_threads(1); /* for a team of one, which is no parallel region to oneDNN */
    if (length > 0 && p->by_panels)
      result = (int)run_panels(p, x, weight, begin, length,
                               panel + PANEL_ROWS * (begin + 2 * LINE * omp_get_thread_num()), y);
    else if (length > 0)
      result = (int)run_columns(p, x, rows, weight, begin, length, y);
    omp_set_num_threads(threads);
  }
  return (dnnl_status_t)result;
}

wm_status_t wm_gemm_plan_run(wm_gemm_plan_t *plan, const void *x, int64_t rows, const void *weight,
                             float *panel, float *y, wm_error_t *err) {
  wm_status_t status = WM_OK;
  assert(rows == plan->rows || (rows > plan->rows && wm_gemm_plan_joins(plan)));
  if (plan->by_columns) {
    DNNL_TRY(run_by_columns(plan, x, rows, weight, panel, y));
    return WM_OK;
  }
  if (plan->matmul.primitive != NULL)
    return matmul_run(&plan->matmul, x, weight, y, err);
  DNNL_TRY(run_columns(plan, x, rows, weight, 0, plan->out, y));
cleanup:
  return status;
}

wm_status_t wm_gemm_outer_create(wm_gemm_outer_t **out, int64_t m, int64_t n, int64_t k,
                                 wm_dtype_t operands, wm_error_t *err) {
  assert(operands == WM_DTYPE_F32 || operands == WM_DTYPE_BF16);
  *out = NULL;
  void *memory;
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_gemm_outer_t), "a matrix product", err);
  if (status != WM_OK)
    return status;
  wm_gemm_outer_t *outer = memory;
  status =
      matmul_create(&(product_t){m, k, n, operands, dnnl_ba, dnnl_ab, true}, &outer->matmul, err);
  if (status != WM_OK) {
    wm_gemm_outer_free(outer);
    return status;
  }
  *out = outer;
  return WM_OK;
}

void wm_gemm_outer_free(wm_gemm_outer_t *outer) {
  if (outer == NULL)
    return;
  matmul_destroy(&outer->matmul);
  free(outer);
}

wm_status_t wm_gemm_outer_run(wm_gemm_outer_t *outer, const void *a, const void *b, float *c,
                              wm_error_t *err) {
  return matmul_run(&outer->matmul, a, b, c, err);
}

wm_status_t wm_sgemm_serial(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k,
                            float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                            float beta, float *c, int64_t ldc, wm_error_t *err) {
  wm_status_t status = WM_OK;
  /* oneDNN stays on the calling thread inside a parallel region; outside one it asks for the
   * calling thread's limit, which is not that of any other thread. */
  int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  DNNL_TRY(dnnl_sgemm(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc));
cleanup:
  omp_set_num_threads(threads);
  return status;
}

wm_status_t wm_gemm_add_outer(int64_t m, int64_t n, int64_t k, const float *a, const float *b,
                              float *c, wm_error_t *err) {
  wm_status_t status = WM_OK;
  DNNL_TRY(dnnl_sgemm('T', 'N', m, n, k, 1.0f, a, m, b, n, 1.0f, c, n));
cleanup:
  return status;
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *wm_gemm_backend(void) {
  return "oneDNN " TEXT(DNNL_VERSION_MAJOR) "." TEXT(DNNL_VERSION_MINOR) "." TEXT(
      DNNL_VERSION_PATCH);
}

#endif
