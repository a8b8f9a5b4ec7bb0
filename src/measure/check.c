#include "wanamaker/measure/check.h"

#include "sweep_internal.h"
#include "wanamaker/base/mem.h"

#include <math.h>
#include <string.h>

/* --- the sample ---------------------------------------------------------------------------------
 */

/* So many blocks that `tokens` predictions are sampled on the average. */
static int64_t sample_blocks(const wm_blocks_t *all, int64_t tokens) {
  double each = (double)all->windows->n_predicted / (double)all->n;
  int64_t count = (int64_t)ceil((double)tokens / each);
  return count < all->n ? count : all->n;
}

/* Number of the i-th of `count` sampled blocks: the middle of the i-th part of all. */
static int64_t sampled(const wm_blocks_t *all, int64_t count, int64_t i) {
  return (2 * i + 1) * all->n / (2 * count);
}

double wm_check_share(const wm_blocks_t *all, int64_t tokens) {
  const int64_t count = sample_blocks(all, tokens), *offset = all->windows->position_offset;
  int64_t sum = 0;
  for (int64_t i = 0; i < count; i++) {
    int64_t b = sampled(all, count, i);
    sum += offset[all->first_window[b + 1]] - offset[all->first_window[b]];
  }
  return (double)sum / (double)all->windows->n_positions;
}

/* The sampled blocks as an evaluation of their own. `window`: room for the numbers of all windows.
 */
static wm_status_t cut_sample(const wm_blocks_t *all, int64_t *window, wm_check_t *c,
                              wm_error_t *err) {
  wm_blocks_t *blocks = &c->blocks;
  int64_t n = 0;
  for (int64_t i = 0; i < blocks->n; i++) {
    int64_t b = sampled(all, blocks->n, i);
    for (int64_t w = all->first_window[b]; w < all->first_window[b + 1]; w++)
      window[n++] = w;
    blocks->first_window[i + 1] = n;
  }
  wm_status_t status = wm_windows_select(all->windows, window, n, &c->windows, err);
  c->n = c->windows.n_predicted;
  void *memory = NULL;
  if (status == WM_OK)
    status = wm_alloc(&memory, c->n, sizeof(int64_t), "sampled tokens", err);
  c->token = memory;
  for (int64_t i = 0, at = 0; status == WM_OK && i < n; i++) {
    int64_t end = all->windows->predicted_offset[window[i] + 1];
    for (int64_t t = all->windows->predicted_offset[window[i]]; t < end; t++)
      c->token[at++] = t;
  }
  return status;
}

static wm_status_t take_sample(const wm_blocks_t *all, int64_t tokens, wm_check_t *c,
                               wm_error_t *err) {
  int64_t count = sample_blocks(all, tokens);
  void *memory, *window = NULL;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, c->n_variants, sizeof(wm_check_effect_t), "effects", err));
  c->effects = memory;
  WM_TRY(wm_alloc(&memory, count + 1, sizeof(int64_t), "sampled blocks", err));
  c->blocks = (wm_blocks_t){.windows = &c->windows,
                            .n = count,
                            .first_window = memory,
                            .max_rows = all->max_rows,
                            .max_sequences = all->max_sequences};
  WM_TRY(wm_alloc(&window, all->windows->n, sizeof(int64_t), "sampled windows", err));
  WM_TRY(cut_sample(all, window, c, err));
cleanup:
  free(window);
  return status;
}

/* --- effects ------------------------------------------------------------------------------------
 */

/* The four losses of a token: of the sweep and in float32, of a variant and of the full model. */
typedef struct {
  const float *b, *b0, *f, *f0;
  const int64_t *token;
} losses_t;

static losses_t losses_of(const wm_sweep_t *s, const wm_check_t *c, int64_t v) {
  const float *sweep = s->nll.data, *check = c->nll.data;
  return (losses_t){.b = sweep + v * s->blocks->windows->n_predicted,
                    .b0 = sweep,
                    .f = check + v * c->n,
                    .f0 = check,
                    .token = c->token};
}

/* Differences that the effect is made of: delta = 100 (e^mean(x) - 1), delta_f32 that of y. */
static double x_of(const losses_t *l, int64_t v, int64_t i) {
  int64_t t = l->token[i];
  return v > 0 ? (double)l->b[t] - (double)l->b0[t] : (double)l->b0[t] - (double)l->f0[i];
}

static double y_of(const losses_t *l, int64_t v, int64_t i) {
  return v > 0 ? (double)l->f[i] - (double)l->f0[i] : 0;
}

static wm_check_effect_t effect_of(const wm_sweep_t *s, const wm_check_t *c, int64_t v) {
  const losses_t l = losses_of(s, c, v);
  double x = 0, y = 0, squares = 0, groups = 0, n = (double)c->n;
  for (int64_t i = 0; i < c->n; i++) {
    x += x_of(&l, v, i);
    y += y_of(&l, v, i);
  }
  x /= n;
  y /= n;
  for (int64_t w = 0; w < c->windows.n; w++) {
    int64_t begin = c->windows.predicted_offset[w], end = c->windows.predicted_offset[w + 1];
    double sum = 0;
    for (int64_t i = begin; i < end; i++)
      sum += exp(x) * (x_of(&l, v, i) - x) - exp(y) * (y_of(&l, v, i) - y);
    squares += sum * sum;
    groups += end > begin;
  }
  wm_check_effect_t e = {.delta = 100 * expm1(x), .delta_f32 = 100 * expm1(y)};
  e.difference = e.delta - e.delta_f32;
  e.standard_error = groups > 1 ? 100 * sqrt(squares * groups / (groups - 1)) / n : NAN;
  if (v == 0) /* compared with itself; the difference is that of its perplexity */
    e.delta = e.delta_f32 = 0;
  return e;
}

/* --- the whole ----------------------------------------------------------------------------------
 */

wm_status_t wm_check_run(const wm_sweep_t *sweep, wm_model_t *model,
                         const wm_surrogates_t *surrogates, const int32_t *ids, int64_t tokens,
                         const wm_sweep_options_t *options, const wm_log_t *log, wm_check_t *out,
                         wm_error_t *err) {
  const wm_comm_t *comm = sweep->comm;
  wm_sweep_options_t o = *options;
  o.parts = NULL;
  o.checkpoint_seconds = 0;
  o.divergence = false;
  *out = (wm_check_t){.n_variants = sweep->variants->n};
  wm_status_t status = take_sample(sweep->blocks, tokens, out, err);
  WM_TRY(wm_agree(comm->world, status, err));
  status = wm_shared_create(comm, out->n_variants * out->n * (int64_t)sizeof(float),
                            "losses in float32", &out->nll, err);
  WM_TRY(wm_agree(comm->world, status, err));
  wm_log(log, WM_LOG_INFO, "sweep: %lld tokens again with float32 products", (long long)out->n);
  wm_sweep_t again = {.comm = comm,
                      .model = model,
                      .variants = sweep->variants,
                      .blocks = &out->blocks,
                      .nll = out->nll};
  WM_TRY(wm_sweep_evaluate(&again, model, surrogates, ids, &o, log, err));
  for (int64_t v = 0; v < out->n_variants; v++)
    out->effects[v] = effect_of(sweep, out, v);
cleanup:
  return status;
}

void wm_check_destroy(wm_check_t *check) {
  wm_shared_destroy(&check->nll);
  wm_windows_destroy(&check->windows);
  wm_blocks_destroy(&check->blocks);
  free(check->token);
  free(check->effects);
  *check = (wm_check_t){0};
}

/* --- sweep.h5 -----------------------------------------------------------------------------------
 */

static const struct {
  const char *path, *description;
  size_t offset;
} columns[] = {
    {"/check/delta", "[variant] cost in percent on the sample, as in the sweep",
     offsetof(wm_check_effect_t, delta)},
    {"/check/delta_f32", "[variant] the same with float32 products",
     offsetof(wm_check_effect_t, delta_f32)},
    {"/check/difference",
     "[variant] delta - delta_f32; of the full model: what the type of products adds to its "
     "perplexity, in percent",
     offsetof(wm_check_effect_t, difference)},
    {"/check/standard_error", "[variant] of the difference: paired, by window",
     offsetof(wm_check_effect_t, standard_error)},
};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static double *field(wm_check_effect_t *effect, int column) {
  return (void *)((char *)effect + columns[column].offset);
}

/* Collective. Rank 0 writes all of a small array. */
static wm_status_t write_array(const wm_sweep_t *s, wm_h5_t *file, const char *path, hid_t type,
                               hid_t memory, int64_t n, const void *data, const char *description,
                               wm_error_t *err) {
  int64_t zero = 0, count = s->comm->rank == 0 ? n : 0;
  wm_status_t status = wm_h5_dataset(file, path, type, 1, &n, description, err);
  return status == WM_OK ? wm_h5_write(file, path, memory, &zero, &count, data, err) : status;
}

wm_status_t wm_check_write(const wm_sweep_t *s, const wm_check_t *c, wm_h5_t *file,
                           wm_error_t *err) {
  int64_t dims[2] = {c->n_variants, c->n}, first, rows;
  void *buffer = NULL;
  wm_status_t status;
  WM_TRY(wm_agree(s->comm->world, wm_alloc(&buffer, c->n_variants, sizeof(double), "effects", err),
                  err));
  double *values = buffer;
  WM_TRY(write_array(s, file, "/check/token", H5T_STD_I64LE, H5T_NATIVE_INT64, c->n, c->token,
                     "[sampled token] its place in /nll and /tokens", err));
  for (int k = 0; k < COLUMNS; k++) {
    for (int64_t v = 0; v < c->n_variants; v++)
      values[v] = *field(&c->effects[v], k);
    WM_TRY(write_array(s, file, columns[k].path, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, c->n_variants,
                       values, columns[k].description, err));
  }
  WM_TRY(wm_h5_dataset(file, "/check/nll", H5T_IEEE_F32LE, 2, dims,
                       "[variant, sampled token] loss with float32 products in nats", err));
  wm_partition(c->n_variants, s->comm->size, s->comm->rank, &first, &rows);
  int64_t offset[2] = {first, 0}, extent[2] = {rows, c->n};
  WM_TRY(wm_h5_write(file, "/check/nll", H5T_NATIVE_FLOAT, offset, extent,
                     (const float *)c->nll.data + first * c->n, err));
cleanup:
  free(buffer);
  return status;
}

wm_status_t wm_check_read(const wm_comm_t *comm, const char *path, int64_t n_variants,
                          wm_check_t *out, wm_error_t *err) {
  *out = (wm_check_t){.n_variants = n_variants};
  wm_h5_t *file = NULL;
  void *effects = NULL, *values = NULL;
  int64_t zero = 0;
  wm_status_t status = wm_alloc(&effects, n_variants, sizeof(wm_check_effect_t), "effects", err);
  out->effects = effects;
  if (status == WM_OK)
    status = wm_alloc(&values, n_variants, sizeof(double), "effects", err);
  WM_TRY(wm_agree(comm->world, status, err));
  WM_TRY(wm_h5_open(comm->world, path, &file, err));
  WM_TRY(wm_h5_dims(file, "/check/token", 1, &out->n, err));
  for (int k = 0; k < COLUMNS; k++) {
    WM_TRY(wm_h5_read(file, columns[k].path, H5T_NATIVE_DOUBLE, &zero, &n_variants, values, err));
    for (int64_t v = 0; v < n_variants; v++)
      *field(&out->effects[v], k) = ((double *)values)[v];
  }
cleanup:
  wm_h5_close(file);
  free(values);
  return status;
}
