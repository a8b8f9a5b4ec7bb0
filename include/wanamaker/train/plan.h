/* Plans of fine-tuning, as phases (method.md, section 8).
 *
 * In a phase every layer has one mode, some groups of parameters train, and AdamW starts afresh.
 *
 *   linearize    one phase with all chosen layers linear
 *   progressive  a short phase for each chosen layer in its order, in which it and those before it
 *                are linear, then one of `steps`; each surrogate is fitted at its phase's start
 *   two_phase    linearize, then a phase in which the chosen layers are gated and only gates train,
 *                on the first phase's tokens from their beginning
 *   pretrain     one phase; the chosen layers are linear (and train) or gated from the start
 *   control      what its subject (one of the first three) does with nothing linearised: the same
 *                phases, tokens and learning rates, the same parameters but those of gates, in
 * whose phase it goes on with the first phase's set at that phase's final rate control_study  the
 * same, but everything trains
 */
#ifndef WANAMAKER_TRAIN_PLAN_H
#define WANAMAKER_TRAIN_PLAN_H

#include "wanamaker/base/status.h"
#include "wanamaker/model/training.h"
#include "wanamaker/train/adamw.h"
#include "wanamaker/train/schedule.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum {
  WM_PLAN_LINEARIZE,
  WM_PLAN_PROGRESSIVE,
  WM_PLAN_TWO_PHASE,
  WM_PLAN_PRETRAIN,
  WM_PLAN_CONTROL,
  WM_PLAN_CONTROL_STUDY
} wm_plan_kind_t;

/* What stands for a layer's MLP. */
typedef enum {
  WM_MODE_FULL,
  WM_MODE_FROZEN, /* the MLP, which does not train */
  WM_MODE_LINEAR,
  WM_MODE_GATED
} wm_layer_mode_t;

typedef struct {
  wm_plan_kind_t kind;
  wm_plan_kind_t subject; /* of a control */
  const int64_t *layers;  /* [n_layers] in the order in which they become linear; borrowed */
  int64_t n_layers;
  int64_t model_layers;
  uint32_t groups;       /* that train: bits 1u << wm_group_t; 0: those of the plan */
  bool tied_head, gated; /* gated: pretrain's chosen layers are that, not linear */
  int64_t steps, layer_steps, gate_steps;
  wm_schedule_t schedule; /* of the phases but the gates' (total_steps is set here) */
  wm_schedule_t gate_schedule;
  wm_adamw_t adamw; /* the gates' has no weight decay */
  double penalty;   /* on the mean of g, from the part penalty_after of the steps on */
  double penalty_after;
} wm_plan_settings_t;

typedef struct {
  char name[48];
  wm_layer_mode_t *modes; /* [model_layers] */
  uint32_t groups;
  int64_t steps, first_step; /* first_step: steps of the phases before */
  int64_t first_data;        /* step of the data order that its first step takes */
  wm_schedule_t schedule;
  wm_adamw_t adamw;
  double penalty;
  int64_t penalty_from; /* step of the phase */
} wm_phase_t;

typedef struct {
  int64_t n, model_layers, steps; /* steps: of all phases */
  wm_phase_t *phases;
} wm_plan_t;

/* "linearize", ...; unknown: false. */
bool wm_plan_parse(const char *name, wm_plan_kind_t *out);
const char *wm_plan_name(wm_plan_kind_t kind);

/* WM_USAGE where settings contradict each other. *out is zeroed on failure. Not collective. */
wm_status_t wm_plan_create(const wm_plan_settings_t *settings, wm_plan_t *out, wm_error_t *err);
/* Harmless on a zeroed object. */
void wm_plan_destroy(wm_plan_t *plan);

/* Steps of the data order that the plan goes through: those of two phases on the same tokens count
 * once. */
int64_t wm_plan_data_steps(const wm_plan_t *plan);

/* Layers from the centre outward: L/2, L/2 - 1, L/2 + 1, ... [model_layers]. */
void wm_plan_centre_outward(int64_t model_layers, int64_t *order);

#endif
