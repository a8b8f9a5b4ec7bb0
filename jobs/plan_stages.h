/* What the files of the plan's stages share. Nothing here is collective. */
#ifndef WANAMAKER_JOBS_PLAN_STAGES_H
#define WANAMAKER_JOBS_PLAN_STAGES_H

#include "plan.h"

/* A stage on a layout, whose cost grows piece by piece. */
typedef struct {
  const wm_run_t *run;
  const wm_plan_work_t *w;
  const wm_machine_t *m;
  wm_layout_t l;
  wm_cost_t *total; /* group and busy: of the longest evaluation */
  double longest;   /* its seconds */
  char note[WM_PLAN_NOTE];
} wm_plan_at_t;

/* A file of surrogates of these layers, ascending; sequential: one after another. */
wm_status_t wm_plan_add_fit(wm_plan_at_t *at, const int64_t *layers, int64_t n, bool sequential,
                            wm_error_t *err);
/* An evaluation of variants on a role's text; statistics: with its bootstrap. */
wm_status_t wm_plan_add_losses(wm_plan_at_t *at, const wm_variants_t *variants, wm_role_t role,
                               bool statistics, wm_error_t *err);

/* Training passes and evaluations of all phases, and the fits between them. */
wm_status_t wm_plan_job_finetune(wm_plan_at_t *at, wm_error_t *err);
/* Every option alone, then steps of the search. */
wm_status_t wm_plan_job_allocate(wm_plan_at_t *at, wm_error_t *err);
/* Bytes of the corpora, as far as they are there. */
wm_status_t wm_plan_job_tokenize(wm_plan_at_t *at, wm_error_t *err);
/* Surrogates and probes of every corpus, and types across them. */
wm_status_t wm_plan_job_probe(wm_plan_at_t *at, wm_error_t *err);

#endif
