#include "wanamaker/train/plan.h"

#include "wanamaker/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"linearize", "progressive", "two_phase",
                                    "pretrain",  "control",     "control_study"};

bool wm_plan_parse(const char *name, wm_plan_kind_t *out) {
  for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++)
    if (strcmp(name, names[i]) == 0) {
      *out = (wm_plan_kind_t)i;
      return true;
    }
  return false;
}

const char *wm_plan_name(wm_plan_kind_t kind) {
  return names[kind];
}

void wm_plan_centre_outward(int64_t model_layers, int64_t *order) {
  int64_t centre = model_layers / 2, n = 0;
  order[n++] = centre;
  for (int64_t away = 1; n < model_layers; away++) {
    if (centre - away >= 0)
      order[n++] = centre - away;
    if (centre + away < model_layers)
      order[n++] = centre + away;
  }
}

/* Groups that train in a plan (of a control: in its subject), if the user names none. */
static uint32_t groups_of(const wm_plan_settings_t *s, wm_plan_kind_t kind) {
  const uint32_t head = 1u << (s->tied_head ? WM_GROUP_TOKENS : WM_GROUP_HEAD);
  const uint32_t inside = 1u << WM_GROUP_ATTENTION | 1u << WM_GROUP_MLP;
  const uint32_t all = (1u << WM_GROUP_COUNT) - 1;
  if (kind == WM_PLAN_PRETRAIN && s->groups != 0) /* gates begin at random, as all does */
    return s->groups | 1u << WM_GROUP_GATES;
  if (kind == WM_PLAN_CONTROL_STUDY || kind == WM_PLAN_PRETRAIN)
    return all;
  if (s->groups != 0)
    return s->groups;
  if (kind == WM_PLAN_PROGRESSIVE)
    return inside | head;
  return inside | head | 1u << WM_GROUP_NORMS | 1u << WM_GROUP_FINAL_NORM;
}

static bool is_control(const wm_plan_settings_t *s) {
  return s->kind == WM_PLAN_CONTROL || s->kind == WM_PLAN_CONTROL_STUDY;
}

/* Mode of a chosen layer that the subject has made linear. */
static wm_layer_mode_t linear_mode(const wm_plan_settings_t *s) {
  switch (s->kind) {
  case WM_PLAN_CONTROL:
    return WM_MODE_FROZEN;
  case WM_PLAN_CONTROL_STUDY:
    return WM_MODE_FULL;
  default:
    return s->kind == WM_PLAN_PRETRAIN && s->gated ? WM_MODE_GATED : WM_MODE_LINEAR;
  }
}

/* Appends a phase in which the first n_linear chosen layers are in `mode`. */
static wm_phase_t *append(wm_plan_t *plan, const wm_plan_settings_t *s, int64_t n_linear,
                          wm_layer_mode_t mode, int64_t steps, wm_error_t *err) {
  wm_phase_t *p = &plan->phases[plan->n];
  void *memory;
  if (wm_alloc(&memory, plan->model_layers, sizeof *p->modes, "modes of layers", err) != WM_OK)
    return NULL;
  plan->n++;
  *p = (wm_phase_t){.modes = memory,
                    .groups = groups_of(s, is_control(s) ? s->subject : s->kind),
                    .steps = steps,
                    .first_step = plan->steps,
                    .first_data = plan->steps,
                    .schedule = s->schedule,
                    .adamw = s->adamw};
  if (s->kind == WM_PLAN_CONTROL_STUDY)
    p->groups = groups_of(s, s->kind);
  p->schedule.total_steps = steps;
  for (int64_t i = 0; i < n_linear; i++)
    p->modes[s->layers[i]] = mode;
  plan->steps += steps;
  return p;
}

static wm_status_t add_progressive(wm_plan_t *plan, const wm_plan_settings_t *s, wm_error_t *err) {
  for (int64_t i = 0; i < s->n_layers; i++) {
    wm_phase_t *p = append(plan, s, i + 1, linear_mode(s), s->layer_steps, err);
    if (p == NULL)
      return err->status;
    snprintf(p->name, sizeof p->name, "layer %" PRId64, s->layers[i]);
  }
  return WM_OK;
}

static wm_status_t add_gates(wm_plan_t *plan, const wm_plan_settings_t *s, wm_error_t *err) {
  wm_phase_t *p = append(plan, s, s->n_layers, is_control(s) ? linear_mode(s) : WM_MODE_GATED,
                         s->gate_steps, err);
  if (p == NULL)
    return err->status;
  p->first_data = 0;
  if (is_control(s)) {
    snprintf(p->name, sizeof p->name, "as long as gates");
    p->schedule = (wm_schedule_t){
        .kind = WM_SCHEDULE_CONSTANT,
        .rate = s->schedule.kind == WM_SCHEDULE_COSINE ? s->schedule.final : s->schedule.rate};
    return WM_OK;
  }
  snprintf(p->name, sizeof p->name, "gates");
  p->groups = 1u << WM_GROUP_GATES;
  p->schedule = s->gate_schedule;
  p->schedule.total_steps = s->gate_steps;
  p->adamw.weight_decay = 0;
  p->penalty = s->penalty;
  p->penalty_from = (int64_t)(s->penalty_after * (double)s->gate_steps);
  return WM_OK;
}

static wm_status_t check(const wm_plan_settings_t *s, wm_error_t *err) {
  bool needs_layers = s->kind != WM_PLAN_PRETRAIN && !is_control(s);
  if (needs_layers && s->n_layers == 0)
    return wm_fail(err, WM_USAGE, "the plan %s needs layers: name them in finetune.layers",
                   wm_plan_name(s->kind));
  for (int64_t i = 0; i < s->n_layers; i++)
    for (int64_t j = 0; j <= i; j++) {
      if (s->layers[i] < 0 || s->layers[i] >= s->model_layers)
        return wm_fail(err, WM_USAGE,
                       "finetune.layers: layer %" PRId64
                       " does not exist; the model has layers 0 to %" PRId64,
                       s->layers[i], s->model_layers - 1);
      if (j < i && s->layers[j] == s->layers[i])
        return wm_fail(err, WM_USAGE, "finetune.layers: layer %" PRId64 " is named twice",
                       s->layers[i]);
    }
  if (s->schedule.warm_up > s->steps)
    return wm_fail(err, WM_USAGE,
                   "finetune.warm_up = %" PRId64 " exceeds finetune.steps = %" PRId64,
                   s->schedule.warm_up, s->steps);
  return WM_OK;
}

wm_status_t wm_plan_create(const wm_plan_settings_t *s, wm_plan_t *out, wm_error_t *err) {
  const wm_plan_kind_t shape = is_control(s) ? s->subject : s->kind;
  void *memory;
  wm_status_t status;
  *out = (wm_plan_t){.model_layers = s->model_layers};
  WM_TRY(check(s, err));
  WM_TRY(wm_alloc(&memory, s->n_layers + 2, sizeof *out->phases, "phases", err));
  out->phases = memory;
  if (shape == WM_PLAN_PROGRESSIVE)
    WM_TRY(add_progressive(out, s, err));
  wm_phase_t *p = append(out, s, s->n_layers, linear_mode(s), s->steps, err);
  if (p == NULL) {
    status = err->status;
    goto cleanup;
  }
  snprintf(p->name, sizeof p->name, "%s", shape == WM_PLAN_PROGRESSIVE ? "all" : names[s->kind]);
  if (s->kind == WM_PLAN_PRETRAIN && s->gated) {
    p->penalty = s->penalty;
    p->penalty_from = (int64_t)(s->penalty_after * (double)s->steps);
  }
  if (shape == WM_PLAN_TWO_PHASE)
    WM_TRY(add_gates(out, s, err));
  return WM_OK;
cleanup:
  wm_plan_destroy(out);
  return status;
}

void wm_plan_destroy(wm_plan_t *plan) {
  for (int64_t i = 0; i < plan->n; i++)
    free(plan->phases[i].modes);
  free(plan->phases);
  *plan = (wm_plan_t){0};
}

int64_t wm_plan_data_steps(const wm_plan_t *plan) {
  int64_t most = 0;
  for (int64_t i = 0; i < plan->n; i++) {
    int64_t end = plan->phases[i].first_data + plan->phases[i].steps;
    most = end > most ? end : most;
  }
  return most;
}
