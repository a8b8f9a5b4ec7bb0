/* What the files of the job plan share: the work of a configuration, and a machine. */
#ifndef WANAMAKER_JOBS_PLAN_H
#define WANAMAKER_JOBS_PLAN_H

#include "gate.h"
#include "inputs.h"
#include "wanamaker/measure/plan.h"
#include "wanamaker/measure/typical.h"

enum { WM_PLAN_STAGES = 8 };

/* A machine from plan.machine, plan.bench and plan.*, in that order from the weakest; NaN or 0
 * where nobody says. */
typedef struct {
  wm_machine_t rates;
  char source[160]; /* of the rate of products */
  double night;     /* hours */
  int64_t ranks, threads;
  const int64_t *nodes; /* [n_nodes]; of the configuration or `file` */
  int64_t n_nodes;
  wm_config_t *file; /* plan.machine; NULL: none */
} wm_plan_machine_t;

/* Collective. trial: operations per second of a short product here, for want of
 * better. wm_plan_machine_free also after a failure. */
wm_status_t wm_plan_machine_read(const wm_run_t *run, double trial, wm_plan_machine_t *out,
                                 wm_error_t *err);
void wm_plan_machine_free(wm_plan_machine_t *machine);

/* A configuration's work, from the model's config.json and texts of typical lengths. */
typedef struct {
  wm_arch_t arch;
  wm_typical_t corpus;
  wm_windows_t windows[WM_ROLES];
  wm_blocks_t blocks[WM_ROLES];
  bool present[WM_ROLES];
  int64_t units[WM_ROLES];   /* of the bootstrap */
  int64_t *layers, n_layers; /* that get a surrogate */
  bool gated;                /* are there gates, and are they measured by the sweep? */
  wm_inputs_t in;            /* of `gate`: the run alone */
  wm_gate_job_t gate;        /* with gates that say nothing; empty unless gated */
  wm_variants_t variants;    /* of the sweep */
  wm_work_t work;            /* a sweep of them, a fit of all layers */
} wm_plan_work_t;

/* On rank 0, not collective. wm_plan_work_destroy also after a failure. */
wm_status_t wm_plan_work_create(const wm_run_t *run, wm_plan_work_t *out, wm_error_t *err);
void wm_plan_work_destroy(wm_plan_work_t *work);

/* Windows and blocks of another range of the same corpus. */
wm_status_t wm_plan_cut(const wm_run_t *run, const wm_plan_work_t *work, const wm_range_t *range,
                        int64_t block_tokens, wm_windows_t *windows, wm_blocks_t *blocks,
                        wm_error_t *err);
/* Units that the bootstrap draws from. */
wm_status_t wm_plan_units(const wm_run_t *run, const wm_windows_t *windows, int64_t *n,
                          wm_error_t *err);
/* Number i of the ranges that the settings name, if it is one that a model which is trained is
 * evaluated on beside `evaluation`, else absent. *there: are there so many? */
wm_status_t wm_plan_evaluation(const wm_run_t *run, int64_t i, wm_range_t *range, bool *there,
                               wm_error_t *err);

/* Names of the *n stages that the configuration asks for, in the order in which they run. WM_USAGE:
 * plan.stages names one that there is not. */
enum { WM_STAGE_NAME = 16 };
wm_status_t wm_plan_stages(const wm_run_t *run, char names[WM_PLAN_STAGES][WM_STAGE_NAME], int *n,
                           wm_error_t *err);

/* One stage on a layout. note: in what sense the time is no count of what is done; empty: it is
 * one.
 */
enum { WM_PLAN_NOTE = 64 };
wm_status_t wm_plan_stage(const wm_run_t *run, const wm_plan_work_t *work,
                          const wm_machine_t *machine, const char *stage, wm_layout_t layout,
                          wm_cost_t *out, char note[WM_PLAN_NOTE], wm_error_t *err);

#endif
