/* The plan of the job tokenize: bytes to read, encode and write. */
#include "inputs.h"
#include "plan_stages.h"

#include <math.h>
#include <sys/stat.h>

wm_status_t wm_plan_tokenize(wm_plan_at_t *at, wm_error_t *err) {
  (void)err;
  *at->total = (wm_cost_t){.seconds = 300, .busy = NAN, .memory = 0x1p30};
  snprintf(at->note, WM_PLAN_NOTE, "rough");
  return WM_OK;
}

wm_status_t wm_plan_probe(wm_plan_at_t *at, wm_error_t *err) {
  wm_status_t status = wm_plan_add_fit(at, at->w->layers, at->w->n_layers, false, err);
  at->total->seconds *= 8;
  snprintf(at->note, WM_PLAN_NOTE, "rough");
  return status;
}
