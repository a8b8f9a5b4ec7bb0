/* What the files of the planner share. */
#ifndef WANAMAKER_MEASURE_PLAN_INTERNAL_H
#define WANAMAKER_MEASURE_PLAN_INTERNAL_H

#include "wanamaker/measure/plan.h"

/* Set messages, meetings and message_bytes. steps: in which all ranks publish rows, for a layer;
 * rounds: layers that a rank helps to solve, mean; grams: bytes of all layers' Gram matrices. */
void wm_plan_fit_messages(const wm_work_t *work, wm_layout_t layout, double steps, double rounds,
                          double grams, wm_cost_t *out);
/* variants, units: the full model and routed ones among them; losses: bytes of their losses. */
void wm_plan_sweep_messages(const wm_work_t *work, wm_layout_t layout, double variants,
                            double units, double losses, wm_cost_t *out);

#endif
