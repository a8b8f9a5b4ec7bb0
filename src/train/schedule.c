#include "wanamaker/train/schedule.h"

#include <math.h>

double wm_schedule_rate(const wm_schedule_t *s, int64_t step) {
  if (step < s->warm_up)
    return s->rate * (double)(step + 1) / (double)s->warm_up;
  if (s->kind == WM_SCHEDULE_CONSTANT)
    return s->rate;
  int64_t length = s->total_steps - s->warm_up, done = step - s->warm_up;
  double x = done < length ? (double)done / (double)length : 1;
  return s->final + (s->rate - s->final) * (1 + cos(M_PI * x)) / 2;
}
