#include "wanamaker/model/reference_gradients.h"

#include "training_state.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/linalg/activation.h"
#include "wanamaker/model/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One layer of one sequence of n positions. */
typedef struct {
  double *input, *x1, *qkv, *attended, *middle, *x2;
  double *p, *m; /* [heads, n, n] probabilities, and multipliers of dropout */
  double *projected_m, *mlp_m;
  double *pre, *act, *mlp, *line, *hidden, *g;
} layer_t;

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
  layer_t *layers;
  double *h_last, *x_last, *logits;
  double *memory, *next; /* all arrays */
} sequence_t;

static wm_mlp_path_t path_of(const sequence_t *s, int64_t layer) {
  return s->paths != NULL ? s->paths[layer].path : WM_MLP_FULL;
}

/* Where the gradient of the tensor at `value` goes, NULL: not wanted. */
static double *gradient_of(const sequence_t *s, const void *value) {
  for (int64_t i = 0; s->gradients != NULL && i < s->t->n_parameters; i++)
    if (s->t->parameters[i].value == value)
      return s->gradients[i];
  return NULL;
}

/* --- kernels -----------------------------------------------------------------------------------
 */

/* A dense layer, its weights by strides. */
typedef struct {
  const float *weight, *bias;
  int64_t in, out, in_stride, out_stride;
} dense_t;

static dense_t dense_of(const wm_dense_t *d) {
  bool in_out = d->weight.layout == WM_WEIGHT_IN_OUT;
  return (dense_t){d->weight.data, d->bias, d->in, d->out, in_out ? d->out : 1, in_out ? 1 : d->in};
}

static void dense(dense_t l, const double *x, int64_t n, double *y) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t o = 0; o < l.out; o++) {
      double sum = l.bias != NULL ? (double)l.bias[o] : 0;
      for (int64_t k = 0; k < l.in; k++)
        sum += x[i * l.in + k] * (double)l.weight[k * l.in_stride + o * l.out_stride];
      y[i * l.out + o] = sum;
    }
}

/* dx += dy W'; gradients of weight and bias. */
static void dense_backward(const sequence_t *s, dense_t l, const double *x, const double *dy,
                           int64_t n, double *dx) {
  double *dw = gradient_of(s, l.weight);
  double *db = l.bias != NULL ? gradient_of(s, l.bias) : NULL;
  for (int64_t i = 0; i < n; i++)
    for (int64_t o = 0; o < l.out; o++) {
      double g = dy[i * l.out + o];
      if (db != NULL)
        db[o] += g;
      for (int64_t k = 0; k < l.in; k++) {
        int64_t at = k * l.in_stride + o * l.out_stride;
        dx[i * l.in + k] += g * (double)l.weight[at];
        if (dw != NULL)
          dw[at] += g * x[i * l.in + k];
      }
    }
}

/* By the Jacobian: d xhat_j / d x_k = (delta_jk - 1 / d - xhat_j xhat_k / d) / sigma. */
static void norm_backward(const sequence_t *s, const wm_norm_t *norm, const double *x,
                          const double *dy, double *dx) {
  int64_t d = norm->width;
  double *dgamma = gradient_of(s, norm->gamma), *dbeta = gradient_of(s, norm->beta);
  for (int64_t i = 0; i < s->n; i++, x += d, dy += d, dx += d) {
    double mean = 0, variance = 0;
    for (int64_t j = 0; j < d; j++)
      mean += x[j] / (double)d;
    for (int64_t j = 0; j < d; j++)
      variance += (x[j] - mean) * (x[j] - mean) / (double)d;
    double sigma = sqrt(variance + norm->eps);
    for (int64_t j = 0; j < d; j++) {
      double xhat = (x[j] - mean) / sigma;
      if (dgamma != NULL)
        dgamma[j] += dy[j] * xhat;
      if (dbeta != NULL)
        dbeta[j] += dy[j];
      for (int64_t k = 0; k < d; k++)
        dx[k] += dy[j] * (double)norm->gamma[j] *
                 ((j == k) - 1 / (double)d - xhat * (x[k] - mean) / sigma / (double)d) / sigma;
    }
  }
}

static wm_qkv_layout_t layout_of(const wm_arch_t *a) {
  bool neox = a->family == WM_FAMILY_GPT_NEOX;
  int64_t dh = a->d_head, d = a->d_model;
  return (wm_qkv_layout_t){a->n_heads, dh, 3 * d, neox ? 3 * dh : dh, neox ? dh : d};
}

static double scale_of(const wm_arch_t *a, int64_t layer) {
  double scale = 1;
  if (a->family == WM_FAMILY_GPT_NEOX || a->scale_attn_weights)
    scale /= sqrt((double)a->d_head);
  return a->scale_attn_by_inverse_layer_idx ? scale / (double)(layer + 1) : scale;
}

static double dot(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += a[i] * b[i];
  return sum;
}

/* Probabilities of one head, and its output. */
static void attend_head(const sequence_t *s, int64_t layer, int64_t head) {
  const wm_arch_t *a = &s->model->arch;
  const wm_qkv_layout_t l = layout_of(a);
  const layer_t *y = &s->layers[layer];
  const double *query = y->qkv + head * l.head_stride, *key = query + l.part_stride;
  const double *value = key + l.part_stride;
  for (int64_t i = 0; i < s->n; i++) {
    double *p = y->p + (head * s->n + i) * s->n, *m = y->m + (head * s->n + i) * s->n, sum = 0;
    double *out = y->attended + i * s->d + head * l.d_head;
    for (int64_t j = 0; j <= i; j++) {
      p[j] =
          exp(scale_of(a, layer) * dot(query + i * l.row_stride, key + j * l.row_stride, l.d_head));
      sum += p[j];
    }
    for (int64_t j = 0; j <= i; j++) {
      p[j] /= sum;
      for (int64_t k = 0; k < l.d_head; k++)
        out[k] += p[j] * m[j] * value[j * l.row_stride + k];
    }
  }
}

static void attend_head_backward(const sequence_t *s, int64_t layer, int64_t head,
                                 const double *dout, double *dqkv) {
  const wm_arch_t *a = &s->model->arch;
  const wm_qkv_layout_t l = layout_of(a);
  const layer_t *y = &s->layers[layer];
  int64_t q = head * l.head_stride, k = q + l.part_stride, v = k + l.part_stride;
  double scale = scale_of(a, layer);
  for (int64_t i = 0; i < s->n; i++) {
    const double *p = y->p + (head * s->n + i) * s->n, *m = y->m + (head * s->n + i) * s->n;
    const double *g = dout + i * s->d + head * l.d_head;
    double mean = 0;
    for (int64_t j = 0; j <= i; j++)
      mean += p[j] * m[j] * dot(g, y->qkv + j * l.row_stride + v, l.d_head);
    for (int64_t j = 0; j <= i; j++) {
      double dp = m[j] * dot(g, y->qkv + j * l.row_stride + v, l.d_head);
      double ds = scale * p[j] * (dp - mean);
      for (int64_t c = 0; c < l.d_head; c++) {
        dqkv[j * l.row_stride + v + c] += p[j] * m[j] * g[c];
        dqkv[i * l.row_stride + q + c] += ds * y->qkv[j * l.row_stride + k + c];
        dqkv[j * l.row_stride + k + c] += ds * y->qkv[i * l.row_stride + q + c];
      }
    }
  }
}

static void rotary_backward(const wm_arch_t *a, int64_t n, double *dqkv) {
  const wm_qkv_layout_t l = layout_of(a);
  for (int64_t t = 0; t < n; t++)
    for (int64_t part = 0; part < 2; part++)
      for (int64_t h = 0; h < l.n_heads; h++)
        for (int64_t i = 0; i < a->rotary_dims / 2; i++) {
          double *v = dqkv + t * l.row_stride + h * l.head_stride + part * l.part_stride;
          double angle = (double)t / pow(a->rotary_base, (double)(2 * i) / (double)a->rotary_dims);
          double x = v[i], y = v[i + a->rotary_dims / 2];
          v[i] = x * cos(angle) + y * sin(angle);
          v[i + a->rotary_dims / 2] = y * cos(angle) - x * sin(angle);
        }
}

/* --- forward -----------------------------------------------------------------------------------
 */

static void draw(const sequence_t *s, double rate, int64_t layer, wm_dropout_site_t site,
                 int64_t position, int64_t first, int64_t n, double *out) {
  float some[4];
  const wm_dropout_t d = wm_dropout_make(rate, s->t->options.seed, s->batch->step, layer, site);
  for (int64_t i = 0; i < n; i++) {
    if (i % 4 == 0)
      wm_dropout_draw(&d, s->number, position, first + i, 4, some);
    out[i] = rate > 0 ? (double)some[i % 4] : 1;
  }
}

static void draw_all(const sequence_t *s, int64_t layer) {
  const wm_training_options_t *o = &s->t->options;
  const wm_arch_t *a = &s->model->arch;
  const layer_t *y = &s->layers[layer];
  for (int64_t i = 0; i < s->n; i++) {
    draw(s, o->drop_residual, layer, WM_DROP_PROJECTED, i, 0, s->d, y->projected_m + i * s->d);
    draw(s, o->drop_residual, layer, WM_DROP_MLP, i, 0, s->d, y->mlp_m + i * s->d);
    for (int64_t h = 0; h < a->n_heads; h++)
      draw(s, o->drop_attention, layer, WM_DROP_ATTENTION, i,
           wm_dropout_head_unit(a->max_positions, h), i + 1, y->m + (h * s->n + i) * s->n);
  }
}

static void embed(const sequence_t *s, double *h) {
  const float *tokens = (const float *)s->model->tokens.data, *positions = s->model->positions;
  for (int64_t i = 0; i < s->n; i++) {
    draw(s, s->t->options.drop_embedding, 0, WM_DROP_EMBEDDING, i, 0, s->d,
         s->embedding_m + i * s->d);
    for (int64_t j = 0; j < s->d; j++) {
      double sum = (double)tokens[s->ids[i] * s->d + j];
      if (positions != NULL)
        sum += (double)positions[i * s->d + j];
      h[i * s->d + j] = sum * s->embedding_m[i * s->d + j];
    }
  }
}

static void run_mlp(const sequence_t *s, int64_t layer) {
  const wm_layer_t *l = &s->model->layers[layer];
  const layer_t *y = &s->layers[layer];
  dense(dense_of(&l->up), y->x2, s->n, y->pre);
  for (int64_t i = 0; i < s->n * s->f; i++)
    y->act[i] = wm_activation_reference(l->up.activation, y->pre[i]);
  dense(dense_of(&l->down), y->act, s->n, y->mlp);
  for (int64_t i = 0; i < s->n * s->d; i++)
    y->mlp[i] *= y->mlp_m[i];
}

static dense_t surrogate_of(const sequence_t *s, int64_t layer) {
  return (dense_t){s->paths[layer].weight, s->paths[layer].bias, s->d, s->d, s->d, 1};
}

static dense_t gate_of(const sequence_t *s, int64_t layer) {
  const wm_gate_pass_t *g = &s->t->layers[layer].gate;
  return (dense_t){g->w1, g->b1, s->d, s->h, 1, s->d};
}

static void run_gate(const sequence_t *s, int64_t layer) {
  const layer_t *y = &s->layers[layer];
  const wm_gate_pass_t *gate = &s->t->layers[layer].gate;
  dense(gate_of(s, layer), y->x2, s->n, y->hidden);
  for (int64_t i = 0; i < s->n; i++) {
    double score = (double)gate->b2[0];
    for (int64_t j = 0; j < s->h; j++)
      score += (double)gate->w2[j] * fmax(y->hidden[i * s->h + j], 0);
    y->g[i] = 1 / (1 + exp(-score));
  }
}

/* What share of the MLP's output counts at position i, the rest being the surrogate's. */
static double share(const sequence_t *s, int64_t layer, int64_t i) {
  wm_mlp_path_t path = path_of(s, layer);
  return path == WM_MLP_FULL ? 1 : path == WM_MLP_SURROGATE ? 0 : s->layers[layer].g[i];
}

static void run_layer(const sequence_t *s, int64_t layer, double *out) {
  const wm_arch_t *a = &s->model->arch;
  const wm_layer_t *l = &s->model->layers[layer];
  const layer_t *y = &s->layers[layer];
  const wm_qkv_layout_t layout = layout_of(a);
  bool parallel = a->family == WM_FAMILY_GPT_NEOX && a->parallel_residual;
  draw_all(s, layer);
  wm_reference_norm(&l->attention_norm, y->input, s->n, y->x1);
  dense(dense_of(&l->qkv), y->x1, s->n, y->qkv);
  if (a->family == WM_FAMILY_GPT_NEOX)
    wm_reference_rotary(a->rotary_dims, a->rotary_base, &layout, s->n, y->qkv);
  for (int64_t h = 0; h < a->n_heads; h++)
    attend_head(s, layer, h);
  dense(dense_of(&l->project), y->attended, s->n, y->middle);
  for (int64_t i = 0; i < s->n * s->d; i++)
    y->middle[i] = y->input[i] + y->middle[i] * y->projected_m[i];
  wm_reference_norm(&l->mlp_norm, parallel ? y->input : y->middle, s->n, y->x2);
  if (path_of(s, layer) != WM_MLP_SURROGATE)
    run_mlp(s, layer);
  if (path_of(s, layer) != WM_MLP_FULL)
    dense(surrogate_of(s, layer), y->x2, s->n, y->line);
  if (path_of(s, layer) == WM_MLP_GATED)
    run_gate(s, layer);
  for (int64_t i = 0; i < s->n * s->d; i++) {
    double g = share(s, layer, i / s->d);
    out[i] = y->middle[i] + g * y->mlp[i] + (1 - g) * y->line[i];
  }
}

static dense_t head_of(const wm_model_t *m) {
  return (dense_t){m->head.data, NULL, m->arch.d_model, m->arch.vocab_size, 1, m->arch.d_model};
}

static double run_forward(const sequence_t *s) {
  int64_t layers = s->model->arch.n_layers, v = s->model->arch.vocab_size, gated = 0;
  double objective = 0, gates = 0;
  embed(s, s->layers[0].input);
  for (int64_t l = 0; l < layers; l++) {
    run_layer(s, l, l + 1 < layers ? s->layers[l + 1].input : s->h_last);
    gated += path_of(s, l) == WM_MLP_GATED;
    for (int64_t i = 0; i < s->n && path_of(s, l) == WM_MLP_GATED; i++)
      gates += s->layers[l].g[i];
  }
  wm_reference_norm(&s->model->final_norm, s->h_last, s->n, s->x_last);
  dense(head_of(s->model), s->x_last, s->n, s->logits);
  for (int64_t i = 0; i < s->n; i++)
    if (s->targets[i] >= 0)
      objective += s->batch->nll_scale * wm_reference_nll(s->logits + i * v, v, s->targets[i]);
  return objective + (gated > 0 ? s->batch->gate_scale * gates / (double)gated : 0);
}

/* --- backward ----------------------------------------------------------------------------------
 */

static wm_status_t zeros(double **out, int64_t n, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, n, sizeof(double), "reference gradients", err);
  *out = memory;
  return status;
}

/* From dy, the gradient of MLP's output, to dx +=. */
static wm_status_t mlp_backward(const sequence_t *s, int64_t layer, const double *dy, double *dx,
                                wm_error_t *err) {
  const wm_layer_t *l = &s->model->layers[layer];
  const layer_t *y = &s->layers[layer];
  double *dropped, *dact;
  wm_status_t status = zeros(&dropped, s->n * (s->d + s->f), err);
  if (status != WM_OK)
    return status;
  dact = dropped + s->n * s->d;
  for (int64_t i = 0; i < s->n * s->d; i++)
    dropped[i] = dy[i] * y->mlp_m[i];
  dense_backward(s, dense_of(&l->down), y->act, dropped, s->n, dact);
  for (int64_t i = 0; i < s->n * s->f; i++)
    dact[i] *= wm_activation_derivative_reference(l->up.activation, y->pre[i]);
  dense_backward(s, dense_of(&l->up), y->x2, dact, s->n, dx);
  free(dropped);
  return WM_OK;
}

static wm_status_t gate_backward(const sequence_t *s, int64_t layer, const double *dh, double *dx,
                                 wm_error_t *err) {
  const wm_gate_pass_t *gate = &s->t->layers[layer].gate;
  const layer_t *y = &s->layers[layer];
  double *dw2 = gradient_of(s, gate->w2), *db2 = gradient_of(s, gate->b2), *dhidden;
  wm_status_t status = zeros(&dhidden, s->n * s->h, err);
  if (status != WM_OK)
    return status;
  for (int64_t i = 0; i < s->n; i++) {
    double g = y->g[i], sum = s->batch->gate_scale / (double)s->t->n_gated;
    for (int64_t j = 0; j < s->d; j++)
      sum += dh[i * s->d + j] * (y->mlp[i * s->d + j] - y->line[i * s->d + j]);
    sum *= g * (1 - g);
    if (db2 != NULL)
      db2[0] += sum;
    for (int64_t j = 0; j < s->h; j++) {
      double z = y->hidden[i * s->h + j];
      if (dw2 != NULL)
        dw2[j] += sum * fmax(z, 0);
      dhidden[i * s->h + j] = z > 0 ? sum * (double)gate->w2[j] : 0;
    }
  }
  dense_backward(s, gate_of(s, layer), y->x2, dhidden, s->n, dx);
  free(dhidden);
  return WM_OK;
}

/* dx2 += from the gradient dh of the layer's output. */
static wm_status_t path_backward(const sequence_t *s, int64_t layer, const double *dh, double *dx2,
                                 wm_error_t *err) {
  wm_mlp_path_t path = path_of(s, layer);
  bool cut = path == WM_MLP_GATED && s->t->options.study_gradients;
  double *part;
  wm_status_t status;
  WM_TRY(zeros(&part, s->n * s->d, err));
  for (int64_t i = 0; i < s->n * s->d; i++)
    part[i] = share(s, layer, i / s->d) * dh[i];
  if (path != WM_MLP_SURROGATE && !cut)
    WM_TRY(mlp_backward(s, layer, part, dx2, err));
  for (int64_t i = 0; i < s->n * s->d; i++)
    part[i] = (1 - share(s, layer, i / s->d)) * dh[i];
  if (path != WM_MLP_FULL)
    dense_backward(s, surrogate_of(s, layer), s->layers[layer].x2, part, s->n, dx2);
  if (path == WM_MLP_GATED)
    WM_TRY(gate_backward(s, layer, dh, dx2, err));
cleanup:
  free(part);
  return status;
}

/* dinput += from the gradient dmiddle of what attention's output was added to. */
static wm_status_t attention_backward(const sequence_t *s, int64_t layer, const double *dmiddle,
                                      double *dinput, wm_error_t *err) {
  const wm_arch_t *a = &s->model->arch;
  const wm_layer_t *l = &s->model->layers[layer];
  const layer_t *y = &s->layers[layer];
  int64_t nd = s->n * s->d;
  double *memory;
  wm_status_t status = zeros(&memory, 6 * nd, err);
  if (status != WM_OK)
    return status;
  double *dprojected = memory, *dattended = memory + nd, *dx1 = memory + 2 * nd;
  double *dqkv = memory + 3 * nd;
  for (int64_t i = 0; i < nd; i++)
    dprojected[i] = dmiddle[i] * y->projected_m[i];
  dense_backward(s, dense_of(&l->project), y->attended, dprojected, s->n, dattended);
  for (int64_t h = 0; h < a->n_heads; h++)
    attend_head_backward(s, layer, h, dattended, dqkv);
  if (a->family == WM_FAMILY_GPT_NEOX)
    rotary_backward(a, s->n, dqkv);
  dense_backward(s, dense_of(&l->qkv), y->x1, dqkv, s->n, dx1);
  norm_backward(s, &l->attention_norm, y->input, dx1, dinput);
  free(memory);
  return WM_OK;
}

/* dh: the gradient of the layer's output, which becomes that of its input. */
static wm_status_t layer_backward(const sequence_t *s, int64_t layer, double *dh, wm_error_t *err) {
  const wm_layer_t *l = &s->model->layers[layer];
  const layer_t *y = &s->layers[layer];
  const wm_arch_t *a = &s->model->arch;
  bool parallel = a->family == WM_FAMILY_GPT_NEOX && a->parallel_residual;
  int64_t nd = s->n * s->d;
  double *memory;
  wm_status_t status;
  WM_TRY(zeros(&memory, 3 * nd, err));
  double *dx2 = memory, *dmiddle = memory + nd, *dinput = memory + 2 * nd;
  memcpy(dmiddle, dh, (size_t)nd * sizeof *dh);
  WM_TRY(path_backward(s, layer, dh, dx2, err));
  norm_backward(s, &l->mlp_norm, parallel ? y->input : y->middle, dx2, parallel ? dinput : dmiddle);
  WM_TRY(attention_backward(s, layer, dmiddle, dinput, err));
  for (int64_t i = 0; i < nd; i++)
    dh[i] = dmiddle[i] + dinput[i];
cleanup:
  free(memory);
  return status;
}

/* dh += from the losses. */
static void head_backward(const sequence_t *s, double *dx, double *dh) {
  int64_t v = s->model->arch.vocab_size;
  for (int64_t i = 0; i < s->n; i++) {
    double *row = s->logits + i * v, max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < v; j++)
      max = fmax(max, row[j]);
    for (int64_t j = 0; j < v; j++)
      sum += exp(row[j] - max);
    for (int64_t j = 0; j < v; j++)
      row[j] = s->targets[i] >= 0
                   ? s->batch->nll_scale * (exp(row[j] - max) / sum - (j == s->targets[i]))
                   : 0;
  }
  dense_backward(s, head_of(s->model), s->x_last, s->logits, s->n, dx);
  norm_backward(s, &s->model->final_norm, s->h_last, dx, dh);
}

static void embeddings_backward(const sequence_t *s, const double *dh) {
  double *tokens = gradient_of(s, s->model->tokens.data);
  double *positions = s->model->positions != NULL ? gradient_of(s, s->model->positions) : NULL;
  for (int64_t i = 0; i < s->n; i++)
    for (int64_t j = 0; j < s->d; j++) {
      double g = dh[i * s->d + j] * s->embedding_m[i * s->d + j];
      if (tokens != NULL)
        tokens[s->ids[i] * s->d + j] += g;
      if (positions != NULL)
        positions[i * s->d + j] += g;
    }
}

static wm_status_t run_backward(const sequence_t *s, wm_error_t *err) {
  double *memory;
  wm_status_t status;
  WM_TRY(zeros(&memory, 2 * s->n * s->d, err));
  double *dh = memory, *dx = memory + s->n * s->d;
  head_backward(s, dx, dh);
  for (int64_t l = s->model->arch.n_layers - 1; l >= 0; l--)
    WM_TRY(layer_backward(s, l, dh, err));
  embeddings_backward(s, dh);
cleanup:
  free(memory);
  return status;
}

/* --- the whole ---------------------------------------------------------------------------------
 */

static double *take(sequence_t *s, int64_t n) {
  double *p = s->next;
  s->next += n;
  return p;
}

static wm_status_t reserve(sequence_t *s, wm_error_t *err) {
  const wm_arch_t *a = &s->model->arch;
  int64_t n = s->n, nd = n * s->d, square = a->n_heads * n * n;
  int64_t layer = 12 * nd + 2 * square + 2 * n * s->f + n * (s->h + 1);
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, a->n_layers, sizeof(layer_t), "reference pass", err));
  s->layers = memory;
  WM_TRY(zeros(&s->memory, a->n_layers * layer + 3 * nd + n * a->vocab_size, err));
  s->next = s->memory;
  for (int64_t i = 0; i < a->n_layers; i++) {
    layer_t *l = &s->layers[i];
    double **wide[] = {&l->input, &l->x1,          &l->attended, &l->middle, &l->x2,
                       &l->mlp,   &l->projected_m, &l->mlp_m,    &l->line};
    for (int k = 0; k < 9; k++)
      *wide[k] = take(s, nd);
    l->qkv = take(s, 3 * nd);
    l->p = take(s, square);
    l->m = take(s, square);
    l->pre = take(s, n * s->f);
    l->act = take(s, n * s->f);
    l->hidden = take(s, n * s->h);
    l->g = take(s, n);
  }
  s->embedding_m = take(s, nd);
  s->h_last = take(s, nd);
  s->x_last = take(s, nd);
  s->logits = take(s, n * a->vocab_size);
cleanup:
  return status;
}

wm_status_t wm_reference_objective(const wm_training_t *training, const wm_layer_path_t *paths,
                                   const wm_training_batch_t *batch, double **gradients,
                                   double *objective, wm_error_t *err) {
  const wm_model_t *model = training->model;
  wm_status_t status = WM_OK;
  *objective = 0;
  for (int64_t i = 0; i < batch->rows.n_sequences && status == WM_OK; i++) {
    int64_t first = batch->rows.starts[i];
    sequence_t s = {.t = training,
                    .model = model,
                    .paths = paths,
                    .batch = batch,
                    .gradients = gradients,
                    .n = batch->rows.starts[i + 1] - first,
                    .d = model->arch.d_model,
                    .f = model->arch.d_mlp,
                    .h = training->options.gate_hidden,
                    .number = batch->sequences[i],
                    .ids = batch->ids + first,
                    .targets = batch->targets + first};
    status = reserve(&s, err);
    if (status == WM_OK)
      *objective += run_forward(&s);
    if (status == WM_OK && gradients != NULL)
      status = run_backward(&s, err);
    free(s.layers);
    free(s.memory);
  }
  return status;
}
