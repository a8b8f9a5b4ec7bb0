/* The table of parameters and the array of gradients. */
#include "training_state.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN_FLOATS = 16, GATE_NAME = 40, GATE_TENSORS = 4 };

const char *wm_group_name(wm_group_t group) {
  static const char *const names[] = {"tokens",     "positions", "attention", "mlp",       "norms",
                                      "final_norm", "head",      "gates",     "surrogates"};
  assert(group >= 0 && group <= WM_GROUP_SURROGATES);
  return names[group];
}

static int64_t aligned(int64_t floats) {
  return (floats + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

static bool trains(const wm_training_t *t, wm_group_t group) {
  if (group == WM_GROUP_SURROGATES)
    return t->options.train_surrogates;
  return (t->options.trainable & 1u << group) != 0;
}

/* Appends a parameter; *gradient will point to its gradient if it is trained. */
static wm_status_t append(wm_training_t *t, wm_parameter_t parameter, bool trained,
                          float **gradient, wm_error_t *err) {
  void *memory = t->parameters, *places = t->places;
  wm_status_t status;
  WM_TRY(wm_grow(&memory, &t->capacity, t->n_parameters, t->n_parameters + 1, sizeof *t->parameters,
                 "table of parameters", err));
  t->parameters = memory;
  WM_TRY(wm_grow(&places, &t->places_capacity, t->n_parameters, t->n_parameters + 1,
                 sizeof *t->places, "table of parameters", err));
  t->places = places;
  parameter.elements = parameter.shape[0] * (parameter.n_dims > 1 ? parameter.shape[1] : 1);
  int64_t layers = t->model->arch.n_layers;
  parameter.segment = layers - parameter.layer;
  *gradient = NULL;
  t->places[t->n_parameters] = trained ? gradient : NULL;
  t->parameters[t->n_parameters++] = parameter;
cleanup:
  return status;
}

/* A tensor of the model, wanted for `place`. */
static wm_status_t append_tensor(wm_training_t *t, const void *place, int64_t layer,
                                 wm_group_t group, bool trained, float **gradient,
                                 wm_error_t *err) {
  const wm_want_t *want = NULL;
  float *value = wm_weights_writable(&t->model->weights, place, &want);
  assert(value != NULL);
  return append(t,
                (wm_parameter_t){.name = want->name,
                                 .n_dims = want->n_dims,
                                 .shape = {want->shape[0], want->shape[1]},
                                 .layer = layer,
                                 .group = group,
                                 .value = value},
                trained && trains(t, group), gradient, err);
}

static wm_status_t append_norm(wm_training_t *t, wm_norm_t *norm, wm_norm_pass_t *to, int64_t layer,
                               wm_group_t group, wm_error_t *err) {
  wm_status_t status;
  WM_TRY(append_tensor(t, &norm->gamma, layer, group, true, &to->dgamma, err));
  WM_TRY(append_tensor(t, &norm->beta, layer, group, true, &to->dbeta, err));
cleanup:
  return status;
}

static wm_status_t append_dense(wm_training_t *t, wm_dense_t *dense, wm_dense_pass_t *to,
                                int64_t layer, wm_group_t group, bool trained, wm_error_t *err) {
  wm_status_t status;
  WM_TRY(append_tensor(t, &dense->weight, layer, group, trained, &to->dweight, err));
  if (dense->bias != NULL)
    WM_TRY(append_tensor(t, &dense->bias, layer, group, trained, &to->dbias, err));
cleanup:
  return status;
}

/* The gate of layer `layer`, number `index` among the gates. */
static wm_status_t append_gate(wm_training_t *t, int64_t layer, int64_t index, wm_error_t *err) {
  static const char *const parts[GATE_TENSORS] = {"w1", "b1", "w2", "b2"};
  wm_gate_pass_t *g = &t->layers[layer].gate;
  int64_t h = t->options.gate_hidden, d = t->model->arch.d_model;
  const int64_t shapes[GATE_TENSORS][2] = {{h, d}, {h, 0}, {1, h}, {1, 0}};
  float **values[GATE_TENSORS] = {&g->w1, &g->b1, &g->w2, &g->b2};
  float **gradients[GATE_TENSORS] = {&g->dw1, &g->db1, &g->dw2, &g->db2};
  float *memory = (float *)t->gates.data + index * (aligned(h * d) + 2 * aligned(h) + aligned(1));
  wm_status_t status = WM_OK;
  for (int i = 0; i < GATE_TENSORS; i++) {
    char *name = t->names + (index * GATE_TENSORS + i) * GATE_NAME;
    snprintf(name, GATE_NAME, "gate.%lld.%s", (long long)layer, parts[i]);
    wm_parameter_t p = {.name = name,
                        .n_dims = shapes[i][1] > 0 ? 2 : 1,
                        .shape = {shapes[i][0], shapes[i][1]},
                        .layer = layer,
                        .group = WM_GROUP_GATES,
                        .value = memory};
    *values[i] = memory;
    WM_TRY(append(t, p, trains(t, WM_GROUP_GATES), gradients[i], err));
    memory += aligned(t->parameters[t->n_parameters - 1].elements);
  }
cleanup:
  return status;
}

/* The surrogate of layer `layer`, which trains. */
static wm_status_t append_surrogate(wm_training_t *t, int64_t layer, wm_error_t *err) {
  wm_layer_pass_t *l = &t->layers[layer];
  const int64_t d = t->model->arch.d_model;
  char *name = t->names + (t->n_gated * GATE_TENSORS + 2 * layer) * GATE_NAME;
  wm_parameter_t p = {.name = name,
                      .n_dims = 2,
                      .shape = {d, d},
                      .layer = layer,
                      .group = WM_GROUP_SURROGATES,
                      .value = l->line_weight};
  wm_status_t status;
  snprintf(name, GATE_NAME, "surrogate.%lld.weight", (long long)layer);
  WM_TRY(append(t, p, true, &l->dline_weight, err));
  p.name = name + GATE_NAME;
  p.n_dims = 1;
  p.shape[1] = 0;
  p.value = l->line_bias;
  snprintf(name + GATE_NAME, GATE_NAME, "surrogate.%lld.bias", (long long)layer);
  WM_TRY(append(t, p, true, &l->dline_bias, err));
cleanup:
  return status;
}

static wm_status_t append_layer(wm_training_t *t, int64_t layer, wm_error_t *err) {
  wm_layer_t *of = &t->model->layers[layer];
  wm_layer_pass_t *to = &t->layers[layer];
  bool mlp = !to->frozen &&
             (to->path == WM_MLP_FULL || (to->path == WM_MLP_GATED && !t->options.study_gradients));
  wm_status_t status;
  WM_TRY(append_norm(t, &of->attention_norm, &to->attention_norm, layer, WM_GROUP_NORMS, err));
  WM_TRY(append_norm(t, &of->mlp_norm, &to->mlp_norm, layer, WM_GROUP_NORMS, err));
  WM_TRY(append_dense(t, &of->qkv, &to->qkv, layer, WM_GROUP_ATTENTION, true, err));
  WM_TRY(append_dense(t, &of->project, &to->project, layer, WM_GROUP_ATTENTION, true, err));
  WM_TRY(append_dense(t, &of->up, &to->up, layer, WM_GROUP_MLP, mlp, err));
  WM_TRY(append_dense(t, &of->down, &to->down, layer, WM_GROUP_MLP, mlp, err));
  if (to->path == WM_MLP_GATED)
    WM_TRY(append_gate(t, layer, to->gated, err));
  if (to->line_weight != NULL)
    WM_TRY(append_surrogate(t, layer, err));
cleanup:
  return status;
}

static wm_status_t append_all(wm_training_t *t, wm_error_t *err) {
  wm_model_t *m = t->model;
  int64_t layers = m->arch.n_layers;
  wm_status_t status;
  WM_TRY(append_norm(t, &m->final_norm, &t->final_norm, layers, WM_GROUP_FINAL_NORM, err));
  if (!m->arch.tied_head)
    WM_TRY(append_tensor(t, &m->head, layers, WM_GROUP_HEAD, true, &t->dhead, err));
  for (int64_t i = layers - 1; i >= 0; i--)
    WM_TRY(append_layer(t, i, err));
  WM_TRY(append_tensor(t, &m->tokens, -1, WM_GROUP_TOKENS, true, &t->dtokens, err));
  if (m->positions != NULL)
    WM_TRY(append_tensor(t, &m->positions, -1, WM_GROUP_POSITIONS, true, &t->dpositions, err));
cleanup:
  return status;
}

/* Allocates the gradients and sets the pointers to them. */
static wm_status_t place_gradients(wm_training_t *t, wm_error_t *err) {
  int64_t total = 0, segments = wm_training_segments(t), segment = 0;
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, segments + 1, sizeof *t->segments, "segments of gradients", err));
  t->segments = memory;
  for (int64_t i = 0; i < t->n_parameters; i++) {
    while (segment < t->parameters[i].segment)
      t->segments[++segment] = total;
    if (t->places[i] != NULL)
      total += aligned(t->parameters[i].elements);
  }
  while (segment < segments)
    t->segments[++segment] = total;
  WM_TRY(wm_alloc(&memory, total, sizeof *t->gradients, "gradients", err));
  t->gradients = memory;
  float *next = t->gradients;
  for (int64_t i = 0; i < t->n_parameters; i++)
    if (t->places[i] != NULL) {
      t->parameters[i].gradient = *t->places[i] = next;
      next += aligned(t->parameters[i].elements);
    }
  if (t->model->arch.tied_head)
    t->dhead = t->dtokens;
cleanup:
  return status;
}

/* As torch.nn.Linear, but for the last layer. By one rank of the node. */
static void start_gates(wm_training_t *t) {
  double bound = 1 / sqrt((double)t->model->arch.d_model);
  for (int64_t i = 0; i < t->n_parameters; i++) {
    const wm_parameter_t *p = &t->parameters[i];
    if (p->group != WM_GROUP_GATES)
      continue;
    const char *part = strrchr(p->name, '.') + 1;
    const wm_rng_t rng = {t->options.seed, (uint64_t)p->layer << 8 | (uint64_t)part[0]};
    for (int64_t j = 0; j < p->elements; j++) {
      if (strcmp(part, "w1") == 0 || strcmp(part, "b1") == 0)
        p->value[j] = (float)(bound * (2 * wm_rng_uniform(rng, (uint64_t)j) - 1));
      else
        p->value[j] = strcmp(part, "b2") == 0 ? -3 : 0;
    }
  }
}

/* Collective over the node. */
static wm_status_t reserve_gates(wm_training_t *t, const wm_layer_path_t *paths, wm_error_t *err) {
  int64_t h = t->options.gate_hidden, d = t->model->arch.d_model, layers = t->model->arch.n_layers;
  void *memory;
  for (int64_t i = 0; i < layers; i++) {
    t->layers[i].path = paths != NULL ? paths[i].path : WM_MLP_FULL;
    t->layers[i].frozen = t->options.frozen_mlps != NULL && t->options.frozen_mlps[i];
    t->layers[i].gated = t->n_gated;
    t->n_gated += t->layers[i].path == WM_MLP_GATED;
  }
  wm_status_t status =
      wm_alloc(&memory, t->n_gated * GATE_TENSORS + 2 * layers, GATE_NAME, "names", err);
  t->names = status == WM_OK ? memory : NULL;
  status = wm_agree(t->model->comm->world, status, err);
  if (status != WM_OK || t->n_gated == 0)
    return status;
  int64_t floats = aligned(h * d) + 2 * aligned(h) + aligned(1);
  status = wm_shared_create(t->model->comm, t->n_gated * floats * (int64_t)sizeof(float),
                            "the gates' parameters", &t->gates, err);
  return wm_agree(t->model->comm->world, status, err);
}

wm_status_t wm_training_make_table(wm_training_t *t, const wm_layer_path_t *paths,
                                   wm_error_t *err) {
  const wm_comm_t *comm = t->model->comm;
  wm_status_t status = reserve_gates(t, paths, err);
  if (status != WM_OK)
    return status;
  status = append_all(t, err);
  if (status == WM_OK)
    status = place_gradients(t, err);
  status = wm_agree(comm->world, status, err);
  if (status != WM_OK)
    return status;
  t->attention = trains(t, WM_GROUP_ATTENTION);
  t->norms = trains(t, WM_GROUP_NORMS);
  t->to_embeddings = t->dtokens != NULL || t->dpositions != NULL;
  if (comm->node_rank == 0)
    start_gates(t);
  wm_training_sync(t);
  return WM_OK;
}

void wm_training_free_table(wm_training_t *t) {
  wm_shared_destroy(&t->gates);
  free(t->parameters);
  free(t->places);
  free(t->segments);
  free(t->gradients);
  free(t->names);
}

const wm_parameter_t *wm_training_parameters(const wm_training_t *training, int64_t *count) {
  *count = training->n_parameters;
  return training->parameters;
}

int64_t wm_training_segments(const wm_training_t *training) {
  return training->model->arch.n_layers + 2;
}

void wm_training_segment(const wm_training_t *training, int64_t segment, int64_t *first,
                         int64_t *count) {
  assert(segment >= 0 && segment < wm_training_segments(training));
  *first = training->segments[segment];
  *count = training->segments[segment + 1] - *first;
}

float *wm_training_gradients(wm_training_t *training, int64_t *count) {
  *count = training->segments[wm_training_segments(training)];
  return training->gradients;
}

void wm_training_zero(wm_training_t *training) {
  const size_t bytes =
      (size_t)training->segments[wm_training_segments(training)] * sizeof *training->gradients;
  const double start = wm_profile_start(training->model->profile);
  wm_zero(training->gradients, bytes);
  wm_profile_stop(training->model->profile, WM_KERNEL_COPY, start, 0, (double)bytes);
}

wm_profile_t *wm_training_profile(const wm_training_t *training) {
  return training->model->profile;
}

void wm_training_sync(wm_training_t *training) {
  wm_shared_sync(&training->model->weights.window);
  if (training->n_gated > 0)
    wm_shared_sync(&training->gates);
}
