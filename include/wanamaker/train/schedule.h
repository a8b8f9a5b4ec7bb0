/* Learning rates by step. */
#ifndef WANAMAKER_TRAIN_SCHEDULE_H
#define WANAMAKER_TRAIN_SCHEDULE_H

#include <stdint.h>

typedef enum { WM_SCHEDULE_CONSTANT, WM_SCHEDULE_COSINE } wm_schedule_kind_t;

typedef struct {
  wm_schedule_kind_t kind;
  double rate;         /* the highest */
  double final;        /* of a cosine: the rate that it falls to */
  int64_t warm_up;     /* steps of linear rise; 0: none */
  int64_t total_steps; /* of a cosine, with its warm-up */
} wm_schedule_t;

/* Rate of step 0, 1, ...:
 *     step < warm_up   rate (step + 1) / warm_up
 *     constant         rate
 *     cosine           final + (rate - final) (1 + cos(pi x)) / 2,
 *                      x = (step - warm_up) / (total_steps - warm_up), at most 1
 * Without a warm-up the cosine is torch.optim.lr_scheduler.CosineAnnealingLR's with T_max =
 * total_steps and eta_min = final. Not collective. */
double wm_schedule_rate(const wm_schedule_t *schedule, int64_t step);

#endif
