#include "wanamaker/model/reference.h"

#include "family.h"
#include "wanamaker/base/mem.h"

#include <assert.h>
#include <math.h>
#include <string.h>

void wm_reference_norm(const wm_norm_t *norm, const double *x, int64_t rows, double *out) {
  int64_t d = norm->width;
  for (int64_t i = 0; i < rows; i++) {
    double mean = 0, variance = 0;
    for (int64_t j = 0; j < d; j++)
      mean += x[i * d + j] / (double)d;
    for (int64_t j = 0; j < d; j++)
      variance += (x[i * d + j] - mean) * (x[i * d + j] - mean) / (double)d;
    for (int64_t j = 0; j < d; j++)
      out[i * d + j] = (double)norm->gamma[j] * (x[i * d + j] - mean) / sqrt(variance + norm->eps) +
                       (double)norm->beta[j];
  }
}

void wm_reference_rotary(int64_t dims, double base, const wm_qkv_layout_t *l, int64_t rows,
                         double *qkv) {
  for (int64_t t = 0; t < rows; t++)
    for (int64_t part = 0; part < 2; part++)
      for (int64_t h = 0; h < l->n_heads; h++)
        for (int64_t i = 0; i < dims / 2; i++) {
          double *v = qkv + t * l->row_stride + h * l->head_stride + part * l->part_stride;
          double angle = (double)t / pow(base, (double)(2 * i) / (double)dims);
          double a = v[i], b = v[i + dims / 2];
          v[i] = a * cos(angle) - b * sin(angle);
          v[i + dims / 2] = a * sin(angle) + b * cos(angle);
        }
}

static double dot(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += a[i] * b[i];
  return sum;
}

void wm_reference_attention(const wm_qkv_layout_t *l, const double *qkv, int64_t rows, double scale,
                            double *out) {
  for (int64_t h = 0; h < l->n_heads; h++)
    for (int64_t t = 0; t < rows; t++) {
      const double *base = qkv + h * l->head_stride;
      const double *query = base + t * l->row_stride;
      double *result = out + (t * l->n_heads + h) * l->d_head;
      double max = -INFINITY, sum = 0;
      for (int64_t s = 0; s <= t; s++)
        max = fmax(max, scale * dot(query, base + s * l->row_stride + l->part_stride, l->d_head));
      memset(result, 0, (size_t)l->d_head * sizeof *result);
      for (int64_t s = 0; s <= t; s++) {
        const double *key = base + s * l->row_stride + l->part_stride;
        double weight = exp(scale * dot(query, key, l->d_head) - max);
        sum += weight;
        for (int64_t i = 0; i < l->d_head; i++)
          result[i] += weight * key[l->part_stride + i];
      }
      for (int64_t i = 0; i < l->d_head; i++)
        result[i] /= sum;
    }
}

double wm_reference_nll(const double *logits, int64_t width, int64_t target) {
  assert(target >= 0 && target < width);
  double max = -INFINITY, sum = 0;
  for (int64_t i = 0; i < width; i++)
    max = fmax(max, logits[i]);
  for (int64_t i = 0; i < width; i++)
    sum += exp(logits[i] - max);
  /* The largest logit's own term makes the sum at least 1. */
  /* cppcheck-suppress invalidFunctionArg */
  return log(sum) + max - logits[target];
}

static double weight_at(const wm_weight_t *w, int64_t index) {
  float value;
  if (w->dtype == WM_DTYPE_F32)
    return (double)((const float *)w->data)[index];
  wm_to_f32(w->dtype, (const char *)w->data + index * wm_dtype_size(w->dtype), 1, &value);
  return (double)value;
}

/* out[rows, d.out] = act(x W + b) */
static void dense(const wm_dense_t *d, const double *x, int64_t rows, double *out) {
  bool in_out = d->weight.layout == WM_WEIGHT_IN_OUT;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t o = 0; o < d->out; o++) {
      double sum = d->bias != NULL ? (double)d->bias[o] : 0;
      for (int64_t k = 0; k < d->in; k++)
        sum += x[i * d->in + k] * weight_at(&d->weight, in_out ? k * d->out + o : o * d->in + k);
      out[i * d->out + o] = wm_activation_reference(d->activation, sum);
    }
}

static void embed(const wm_model_t *m, const int32_t *ids, int64_t n, double *h) {
  const wm_rows_t *rows = &m->tokens;
  for (int64_t t = 0; t < n; t++)
    for (int64_t j = 0; j < rows->width; j++) {
      int64_t size = wm_dtype_size(rows->dtype);
      float value;
      wm_to_f32(rows->dtype, rows->data + (ids[t] * rows->width + j) * size, 1, &value);
      h[t * rows->width + j] =
          (double)value + (m->positions != NULL ? (double)m->positions[t * rows->width + j] : 0);
    }
}

/* Arrays of one sequence. */
typedef struct {
  double *h, *normed, *qkv, *attended, *projected, *hidden, *x, *y;
} arrays_t;

static void add(double *a, const double *b, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    a[i] += b[i];
}

/* x = LN2(h) before (parallel) or after (sequential) attention's output is added to h. */
static void run_layer(const wm_model_t *m, int64_t layer, int64_t n, arrays_t *a) {
  const wm_arch_t *arch = &m->arch;
  const wm_layer_t *l = &m->layers[layer];
  bool neox = arch->family == WM_FAMILY_GPT_NEOX, parallel = neox && arch->parallel_residual;
  int64_t d = arch->d_model, dh = arch->d_head;
  wm_qkv_layout_t layout = {arch->n_heads, dh, 3 * d, neox ? 3 * dh : dh, neox ? dh : d};
  double scale = 1;
  if (neox || arch->scale_attn_weights)
    scale /= sqrt((double)dh);
  if (arch->scale_attn_by_inverse_layer_idx)
    scale /= (double)(layer + 1);
  wm_reference_norm(&l->attention_norm, a->h, n, a->normed);
  dense(&l->qkv, a->normed, n, a->qkv);
  if (neox)
    wm_reference_rotary(arch->rotary_dims, arch->rotary_base, &layout, n, a->qkv);
  wm_reference_attention(&layout, a->qkv, n, scale, a->attended);
  dense(&l->project, a->attended, n, a->projected);
  if (parallel)
    wm_reference_norm(&l->mlp_norm, a->h, n, a->x);
  add(a->h, a->projected, n * d);
  if (!parallel)
    wm_reference_norm(&l->mlp_norm, a->h, n, a->x);
  dense(&l->up, a->x, n, a->hidden);
  dense(&l->down, a->hidden, n, a->y);
  add(a->h, a->y, n * d);
}

wm_status_t wm_reference_forward(const wm_model_t *model, const int32_t *ids, int64_t n, double *x,
                                 double *y, double *logits, wm_error_t *err) {
  int64_t d = model->arch.d_model, f = model->arch.d_mlp;
  void *memory;
  wm_status_t status =
      wm_alloc(&memory, n * (9 * d + f), sizeof(double), "reference forward pass", err);
  if (status != WM_OK)
    return status;
  double *p = memory;
  arrays_t a = {.h = p,
                .normed = p + n * d,
                .attended = p + 2 * n * d,
                .projected = p + 3 * n * d,
                .x = p + 4 * n * d,
                .y = p + 5 * n * d,
                .qkv = p + 6 * n * d,
                .hidden = p + 9 * n * d};
  embed(model, ids, n, a.h);
  for (int64_t layer = 0; layer < model->arch.n_layers; layer++) {
    run_layer(model, layer, n, &a);
    if (x != NULL)
      memcpy(x + layer * n * d, a.x, (size_t)(n * d) * sizeof *x);
    if (y != NULL)
      memcpy(y + layer * n * d, a.y, (size_t)(n * d) * sizeof *y);
  }
  wm_reference_norm(&model->final_norm, a.h, n, a.normed);
  wm_dense_t head = {
      .in = d, .out = model->arch.vocab_size, .weight = model->head, .activation = WM_ACT_NONE};
  dense(&head, a.normed, n, logits);
  free(memory);
  return WM_OK;
}
