/* The backward half of the reference pass (reference_objective.c). */
#include "reference_state.h"
#include "wanamaker/linalg/activation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where the gradient of the tensor at `value` goes, NULL: not wanted. */
static double *gradient_of(const wm_reference_sequence_t *s, const void *value) {
  for (int64_t i = 0; s->gradients != NULL && i < s->t->n_parameters; i++)
    if (s->t->parameters[i].value == value)
      return s->gradients[i];
  return NULL;
}

/* dx += dy W'; gradients of weight and bias. */
static void dense_backward(const wm_reference_sequence_t *s, wm_reference_dense_t l,
                           const double *x, const double *dy, int64_t n, double *dx) {
  double *dw = gradient_of(s, l.weight);
  double *db = l.bias != NULL ? gradient_of(s, l.bias) : NULL;
  for (int64_t i = 0; i < n; i++)
    for (int64_t o = 0; o < l.out; o++) {
      double g = dy[i * l.out + o];
      if (db != NULL)
        db[o] += g;
      for (int64_t k = 0; k < l.in; k++) {
        int64_t at = k * l.in_stride + o * l.out_stride;
        dx[i * l.in + k] += operand(s, l, g) * operand(s, l, (double)l.weight[at]);
        if (dw != NULL)
          dw[at] += operand(s, l, g) * operand(s, l, x[i * l.in + k]);
      }
    }
}

/* By the Jacobian: d xhat_j / d x_k = (delta_jk - 1 / d - xhat_j xhat_k / d) / sigma. */
static void norm_backward(const wm_reference_sequence_t *s, const wm_norm_t *norm, const double *x,
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

static void attend_head_backward(const wm_reference_sequence_t *s, int64_t layer, int64_t head,
                                 const double *dout, double *dqkv) {
  const wm_arch_t *a = &s->model->arch;
  const wm_qkv_layout_t l = layout_of(a);
  const wm_reference_layer_t *y = &s->layers[layer];
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

/* From dy, the gradient of MLP's output, to dx +=. */
static wm_status_t mlp_backward(const wm_reference_sequence_t *s, int64_t layer, const double *dy,
                                double *dx, wm_error_t *err) {
  const wm_layer_t *l = &s->model->layers[layer];
  const wm_reference_layer_t *y = &s->layers[layer];
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

static wm_status_t gate_backward(const wm_reference_sequence_t *s, int64_t layer, const double *dh,
                                 double *dx, wm_error_t *err) {
  const wm_gate_pass_t *gate = &s->t->layers[layer].gate;
  const wm_reference_layer_t *y = &s->layers[layer];
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
static wm_status_t path_backward(const wm_reference_sequence_t *s, int64_t layer, const double *dh,
                                 double *dx2, wm_error_t *err) {
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
static wm_status_t attention_backward(const wm_reference_sequence_t *s, int64_t layer,
                                      const double *dmiddle, double *dinput, wm_error_t *err) {
  const wm_arch_t *a = &s->model->arch;
  const wm_layer_t *l = &s->model->layers[layer];
  const wm_reference_layer_t *y = &s->layers[layer];
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
static wm_status_t layer_backward(const wm_reference_sequence_t *s, int64_t layer, double *dh,
                                  wm_error_t *err) {
  const wm_layer_t *l = &s->model->layers[layer];
  const wm_reference_layer_t *y = &s->layers[layer];
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
static void head_backward(const wm_reference_sequence_t *s, double *dx, double *dh) {
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

static void embeddings_backward(const wm_reference_sequence_t *s, const double *dh) {
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

wm_status_t wm_reference_backward(const wm_reference_sequence_t *s, wm_error_t *err) {
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
