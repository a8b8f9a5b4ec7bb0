/* What the files of the planner share. */
#ifndef WANAMAKER_MEASURE_PLAN_INTERNAL_H
#define WANAMAKER_MEASURE_PLAN_INTERNAL_H

#include "wanamaker/measure/plan.h"

/* Seconds and operations of `passes` of the blocks through the first n_layers layers, which are
 * dealt out to the ranks in turn: a step ends with its longest block. Adds to *flops. */
double wm_plan_trunk(const wm_arch_t *arch, const wm_machine_t *machine, wm_layout_t layout,
                     const wm_blocks_t *blocks, double passes, double n_layers, double *flops);
/* Cores that solve one matrix of the model's width together. */
double wm_plan_team(const wm_arch_t *arch, const wm_machine_t *machine, wm_layout_t layout);
/* What `meetings` collective calls take. */
double wm_plan_meet(const wm_machine_t *machine, wm_layout_t layout, double meetings);

/* Steps (wm_machine_t) of a position whose score is counted and correlated. */
enum { WM_PLAN_OF_POSITION = 60 };
/* Steps of one resample of an AUC. */
double wm_plan_resample_auc(double positions, double units);
/* Steps of a sort. */
double wm_plan_sort(double n);
/* A regression with m unknowns on `rows`, whose inputs are made anew from floats each time or not:
 * adds float64 operations of its products, and steps. */
void wm_plan_regression(double rows, double m, bool from_floats, double *products, double *steps);

/* Set messages, meetings and message_bytes. steps: in which all ranks publish rows, for a layer;
 * rounds: layers that a rank helps to solve, mean; grams: bytes of all layers' Gram matrices. */
void wm_plan_fit_messages(const wm_work_t *work, wm_layout_t layout, double passes, double steps,
                          double rounds, double grams, wm_cost_t *out);
/* units: of all phases; losses: bytes of the losses. */
void wm_plan_sweep_messages(const wm_work_t *work, wm_layout_t layout, double phases, double units,
                            double losses, wm_cost_t *out);
void wm_plan_gates_messages(const wm_plan_gates_t *work, wm_layout_t layout, wm_cost_t *out);
void wm_plan_open_messages(wm_layout_t layout, wm_cost_t *out);

#endif
