/* AdamW with decoupled weight decay, and clipping by the global norm, as torch has them
 * (torch.optim.AdamW, torch.nn.utils.clip_grad_norm_). Functions of flat arrays of any part of the
 * parameters, so that the state can be sharded over ranks. Not collective; all use the process's
 * OpenMP threads. */
#ifndef WANAMAKER_TRAIN_ADAMW_H
#define WANAMAKER_TRAIN_ADAMW_H

#include <stdint.h>

typedef struct {
  double beta1, beta2, epsilon; /* 0.9, 0.999, 1e-8 are torch's */
  double weight_decay;          /* of every parameter, by rate * weight_decay a step */
} wm_adamw_t;

/* One step, number `step` (1, 2, ...), with learning rate `rate` and the gradient factor * g:
 *     m <- beta1 m + (1 - beta1) g        v <- beta2 v + (1 - beta2) g^2
 *     p <- (1 - rate weight_decay) p - rate (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) +
 * epsilon) p, m, v: [n], updated; g: [n]. An element's bits depend on that element alone. */
void wm_adamw_step(const wm_adamw_t *adamw, int64_t step, double rate, double factor,
                   const float *g, int64_t n, float *p, float *m, float *v);

/* Sum of g[i]^2, i < n, in float64, in an order that does not depend on the number of threads. */
double wm_sum_squares(const float *g, int64_t n);

/* What gradients of the given global norm are multiplied by: min(1, limit / (norm + 1e-6)).
 * limit = 0: 1. */
double wm_clip_factor(double norm, double limit);

#endif
