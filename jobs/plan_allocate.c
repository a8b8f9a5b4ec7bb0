/* The plan of the job allocate. What its search measures, the text decides: the options alone are
 * counted, its steps are bounded. */
#include "allocation.h"
#include "plan_stages.h"
#include "wanamaker/base/mem.h"

#include <inttypes.h>
#include <string.h>

/* Variants of the options at a time, each beside every second layer's surrogate (together) or
 * alone. Numbers of options: first, first + stride, ... at most `most` of them. */
static wm_status_t list_plans(const wm_plan_work_t *w, const wm_options_t *o, bool together,
                              int64_t most, wm_variants_t *variants, wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, o->n_layers, sizeof(int32_t), "a plan", err);
  int32_t *plan = memory;
  WM_TRY(status);
  WM_TRY(wm_variants_create(variants, err));
  variants->gates = w->gate.gates;
  for (int64_t l = 0; l < o->n_layers; l++)
    for (int32_t i = 1; i <= o->count[l] && variants->n - 1 < most; i++) {
      if (together && l % 2 == 0)
        continue; /* linear in all of them */
      for (int64_t k = 0; k < o->n_layers; k++)
        plan[k] = together && k % 2 == 0 && o->count[k] > 0;
      plan[l] = i;
      WM_TRY(wm_options_add(o, plan, variants, err));
    }
cleanup:
  free(memory);
  return status;
}

/* Points alone are wanted: no resamples. */
static wm_status_t add_batches(wm_plan_at_t *at, const wm_options_t *o, bool together, int64_t most,
                               double times, wm_error_t *err) {
  wm_variants_t variants = {0};
  wm_cost_t total = {0}, *all = at->total;
  wm_status_t status = list_plans(at->w, o, together, most, &variants, err);
  if (status == WM_OK && variants.n > 1) {
    times *= (double)most / (double)(variants.n - 1); /* fewer can be told apart */
    at->total = &total;
    status = wm_plan_add_losses(at, &variants, WM_ROLE_VALIDATION, false, err);
    at->total = all;
    total.seconds *= times;
    total.flops *= times;
    total.messages *= times;
    total.meetings *= times;
    total.message_bytes *= times;
    total.file_bytes = 0; /* but for parts that an interruption leaves */
    wm_plan_add(all, &total);
  }
  wm_variants_destroy(&variants);
  return status;
}

wm_status_t wm_plan_job_allocate(wm_plan_at_t *at, wm_error_t *err) {
  const wm_plan_work_t *w = at->w;
  const wm_config_t *c = at->run->config;
  const int64_t limit = wm_config_int(c, "allocate.max_plans");
  int64_t step = wm_config_int(c, "allocate.shortlist"), budgets;
  wm_options_t options;
  wm_variants_t chosen = {0};
  wm_config_floats(c, "allocate.budgets", &budgets);
  wm_status_t status =
      wm_options_create(at->run, w->layers, w->n_layers, w->gated ? w->gate.gates : NULL,
                        w->arch.n_layers, &options, err);
  WM_TRY(status);
  if (!w->present[WM_ROLE_VALIDATION]) {
    status = wm_fail(err, WM_USAGE, "the allocator needs the range validation");
    goto cleanup;
  }
  if (step == 0 || step > options.n)
    step = options.n;
  /* A step for each layer; at the end of each budget's descent, all moves that no longer fit. */
  int64_t joint = w->n_layers * step + budgets * options.n;
  if (limit > 0 && options.n + joint > limit)
    joint = limit > options.n ? limit - options.n : 0;
  WM_TRY(add_batches(at, &options, false, options.n, 1, err));
  if (step > 0)
    WM_TRY(add_batches(at, &options, true, step, (double)joint / (double)step, err));
  WM_TRY(list_plans(w, &options, true, budgets, &chosen, err));
  WM_TRY(wm_plan_add_losses(at, &chosen, WM_ROLE_EVALUATION, true, err));
  snprintf(at->note, WM_PLAN_NOTE, "for %" PRId64 " plans; the text decides", options.n + joint);
cleanup:
  wm_options_destroy(&options);
  wm_variants_destroy(&chosen);
  return status;
}
