/* What a training pass computes, counted by the rules of the pass itself (model/training.h):
 * products whose result only frozen parameters would need are left out, rows are filled up to whole
 * tiles. Plain arithmetic. Not collective. */
#ifndef WANAMAKER_TRAIN_COST_H
#define WANAMAKER_TRAIN_COST_H

#include "wanamaker/model/arch.h"
#include "wanamaker/train/plan.h"

/* A pass of `sequences` of `length` tokens through a phase's model. */
typedef struct {
  const wm_arch_t *arch;
  const wm_phase_t *phase; /* NULL: the full model, of which nothing trains */
  int64_t sequences, length;
  int64_t tile_rows, gate_hidden;
  bool recompute, study_gradients, train_surrogates, dropout;
} wm_pass_shape_t;

typedef struct {
  double forward, backward; /* floating-point operations */
  double draws;             /* random numbers of dropout, in both */
} wm_pass_work_t;

wm_pass_work_t wm_pass_work(const wm_pass_shape_t *shape);
/* Parameters that train in a phase. */
double wm_phase_trained(const wm_arch_t *arch, const wm_phase_t *phase, int64_t gate_hidden,
                        bool train_surrogates);
/* Evaluations of a phase: at its start if that changes the model that `before`, the phase before it
 * (NULL: there is none), ended with, every `every` steps within it (0: none), and at its end; twice
 * as many of a model with gates, which are let decide, too. */
int64_t wm_phase_evaluations(const wm_phase_t *phase, const wm_phase_t *before,
                             int64_t model_layers, int64_t every);

#endif
