#include "wanamaker/model/reference_gradients.h"

#include "reference_state.h"
#include "wanamaker/linalg/activation.h"
#include "wanamaker/model/reference.h"

#include <math.h>
#include <stdlib.h>

static void dense(const wm_reference_sequence_t *s, wm_reference_dense_t l, const double *x,
                  int64_t n, double *y) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t o = 0; o < l.out; o++) {
      double sum = l.bias != NULL ? (double)l.bias[o] : 0;
      for (int64_t k = 0; k < l.in; k++)
        sum += operand(s, l, x[i * l.in + k]) *
               operand(s, l, (double)l.weight[k * l.in_stride + o * l.out_stride]);
      y[i * l.out + o] = sum;
    }
}

/* Probabilities of one head, and its output. */
static void attend_head(const wm_reference_sequence_t *s, int64_t layer, int64_t head) {
  const wm_arch_t *a = &s->model->arch;
  const wm_qkv_layout_t l = layout_of(a);
  const wm_reference_layer_t *y = &s->layers[layer];
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

static void draw(const wm_reference_sequence_t *s, double rate, int64_t layer,
                 wm_dropout_site_t site, int64_t position, int64_t first, int64_t n, double *out) {
  float some[4];
  const wm_dropout_t d = wm_dropout_make(rate, s->t->options.seed, s->batch->step, layer, site);
  for (int64_t i = 0; i < n; i++) {
    if (i % 4 == 0)
      wm_dropout_draw(&d, s->number, position, first + i, 4, some);
    out[i] = rate > 0 ? (double)some[i % 4] : 1;
  }
}

static void draw_all(const wm_reference_sequence_t *s, int64_t layer) {
  const wm_training_options_t *o = &s->t->options;
  const wm_arch_t *a = &s->model->arch;
  const wm_reference_layer_t *y = &s->layers[layer];
  for (int64_t i = 0; i < s->n; i++) {
    draw(s, o->drop_residual, layer, WM_DROP_PROJECTED, i, 0, s->d, y->projected_m + i * s->d);
    draw(s, o->drop_residual, layer, WM_DROP_MLP, i, 0, s->d, y->mlp_m + i * s->d);
    for (int64_t h = 0; h < a->n_heads; h++)
      draw(s, o->drop_attention, layer, WM_DROP_ATTENTION, i,
           wm_dropout_head_unit(a->max_positions, h), i + 1, y->m + (h * s->n + i) * s->n);
  }
}

static void embed(const wm_reference_sequence_t *s, double *h) {
  const void *rows = s->model->tokens.data;
  const float *tokens = rows, *positions = s->model->positions;
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

static void run_mlp(const wm_reference_sequence_t *s, int64_t layer) {
  const wm_layer_t *l = &s->model->layers[layer];
  const wm_reference_layer_t *y = &s->layers[layer];
  dense(s, dense_of(&l->up), y->x2, s->n, y->pre);
  for (int64_t i = 0; i < s->n * s->f; i++)
    y->act[i] = wm_activation_reference(l->up.activation, y->pre[i]);
  dense(s, dense_of(&l->down), y->act, s->n, y->mlp);
  for (int64_t i = 0; i < s->n * s->d; i++)
    y->mlp[i] *= y->mlp_m[i];
}

static void run_gate(const wm_reference_sequence_t *s, int64_t layer) {
  const wm_reference_layer_t *y = &s->layers[layer];
  const wm_gate_pass_t *gate = &s->t->layers[layer].gate;
  dense(s, gate_of(s, layer), y->x2, s->n, y->hidden);
  for (int64_t i = 0; i < s->n; i++) {
    double score = (double)gate->b2[0];
    for (int64_t j = 0; j < s->h; j++)
      score += (double)gate->w2[j] * fmax(y->hidden[i * s->h + j], 0);
    y->g[i] = 1 / (1 + exp(-score));
  }
}

static void run_layer(const wm_reference_sequence_t *s, int64_t layer, double *out) {
  const wm_arch_t *a = &s->model->arch;
  const wm_layer_t *l = &s->model->layers[layer];
  const wm_reference_layer_t *y = &s->layers[layer];
  const wm_qkv_layout_t layout = layout_of(a);
  bool parallel = a->family == WM_FAMILY_GPT_NEOX && a->parallel_residual;
  draw_all(s, layer);
  wm_reference_norm(&l->attention_norm, y->input, s->n, y->x1);
  dense(s, dense_of(&l->qkv), y->x1, s->n, y->qkv);
  if (a->family == WM_FAMILY_GPT_NEOX)
    wm_reference_rotary(a->rotary_dims, a->rotary_base, &layout, s->n, y->qkv);
  for (int64_t h = 0; h < a->n_heads; h++)
    attend_head(s, layer, h);
  dense(s, dense_of(&l->project), y->attended, s->n, y->middle);
  for (int64_t i = 0; i < s->n * s->d; i++)
    y->middle[i] = y->input[i] + y->middle[i] * y->projected_m[i];
  wm_reference_norm(&l->mlp_norm, parallel ? y->input : y->middle, s->n, y->x2);
  if (path_of(s, layer) != WM_MLP_SURROGATE)
    run_mlp(s, layer);
  if (path_of(s, layer) != WM_MLP_FULL)
    dense(s, surrogate_of(s, layer), y->x2, s->n, y->line);
  if (path_of(s, layer) == WM_MLP_GATED)
    run_gate(s, layer);
  for (int64_t i = 0; i < s->n * s->d; i++) {
    double g = share(s, layer, i / s->d);
    out[i] = y->middle[i] + g * y->mlp[i] + (1 - g) * y->line[i];
  }
}

static double run_forward(const wm_reference_sequence_t *s) {
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
  dense(s, head_of(s->model), s->x_last, s->n, s->logits);
  for (int64_t i = 0; i < s->n; i++)
    if (s->targets[i] >= 0)
      objective += s->batch->nll_scale * wm_reference_nll(s->logits + i * v, v, s->targets[i]);
  return objective + (gated > 0 ? s->batch->gate_scale * gates / (double)gated : 0);
}

static double *take(wm_reference_sequence_t *s, int64_t n) {
  double *p = s->next;
  s->next += n;
  return p;
}

static wm_status_t reserve(wm_reference_sequence_t *s, wm_error_t *err) {
  const wm_arch_t *a = &s->model->arch;
  int64_t n = s->n, nd = n * s->d, square = a->n_heads * n * n;
  int64_t layer = 12 * nd + 2 * square + 2 * n * s->f + n * (s->h + 1);
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, a->n_layers, sizeof(wm_reference_layer_t), "reference pass", err));
  s->layers = memory;
  WM_TRY(zeros(&s->memory, a->n_layers * layer + 3 * nd + n * a->vocab_size, err));
  s->next = s->memory;
  for (int64_t i = 0; i < a->n_layers; i++) {
    wm_reference_layer_t *l = &s->layers[i];
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
    wm_reference_sequence_t s = {.t = training,
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
      status = wm_reference_backward(&s, err);
    free(s.layers);
    free(s.memory);
  }
  return status;
}
