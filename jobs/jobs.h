/* The jobs of the command line, and what they share. */
#ifndef WANAMAKER_JOBS_JOBS_H
#define WANAMAKER_JOBS_JOBS_H

#include "wanamaker/base/config.h"
#include "wanamaker/base/log.h"
#include "wanamaker/base/status.h"
#include "wanamaker/io/lock.h"
#include "wanamaker/io/provenance.h"
#include "wanamaker/par/comm.h"
#include "wanamaker/par/node_memory.h"

#include <stdbool.h>
#include <stdio.h>

/* Bits of the jobs in wm_schema_t.jobs. */
enum {
  WM_JOB_TOKENIZE = 1 << 0,
  WM_JOB_FIT = 1 << 1,
  WM_JOB_SWEEP = 1 << 2,
  WM_JOB_GATE = 1 << 4,
  WM_JOB_RUN = WM_JOB_TOKENIZE | WM_JOB_FIT | WM_JOB_SWEEP | WM_JOB_GATE,
  WM_JOB_BENCH = 1 << 3,
  WM_JOB_ALLOCATE = 1 << 5,
  WM_JOB_FINETUNE = 1 << 6,
  WM_JOB_PROBE = 1 << 7,
  WM_JOB_EXPORT = 1 << 8,
  WM_JOB_PLAN = 1 << 9,
  WM_JOB_REPORT = 1 << 10,
  WM_JOB_ALL = WM_JOB_RUN | WM_JOB_BENCH | WM_JOB_ALLOCATE | WM_JOB_FINETUNE | WM_JOB_PROBE |
               WM_JOB_EXPORT | WM_JOB_PLAN | WM_JOB_REPORT
};

/* What main() hands to a job. */
typedef struct {
  const wm_comm_t *comm;
  const wm_config_t *config;
  const wm_log_t *log;
  wm_provenance_t provenance;
  wm_node_memory_t *memory; /* watches the node since the job's start; NULL: not watched */
  wm_lock_t *lock; /* of output.dir: taken by wm_output_ready on rank 0, released by main */
  bool dry_run;    /* -n: check everything, say what would be done, write nothing */
  FILE *out;       /* results for people; rank 0 writes */
} wm_run_t;

/* A job is collective over run->comm->world; all ranks return the same status. */
typedef wm_status_t (*wm_job_function_t)(const wm_run_t *run, wm_error_t *err);

typedef struct {
  const char *name;
  unsigned bits;
  wm_job_function_t function;
  const char *summary;
} wm_job_t;

/* Ends with name = NULL. */
extern const wm_job_t wm_jobs[];
extern const wm_schema_t wm_settings[];

wm_status_t wm_job_tokenize(const wm_run_t *run, wm_error_t *err);
wm_status_t wm_job_fit(const wm_run_t *run, wm_error_t *err);
wm_status_t wm_job_sweep(const wm_run_t *run, wm_error_t *err);
wm_status_t wm_job_gate(const wm_run_t *run, wm_error_t *err);
wm_status_t wm_job_run(const wm_run_t *run, wm_error_t *err);
wm_status_t wm_job_allocate(const wm_run_t *run, wm_error_t *err);
wm_status_t wm_job_finetune(const wm_run_t *run, wm_error_t *err);
wm_status_t wm_job_export(const wm_run_t *run, wm_error_t *err);
wm_status_t wm_job_probe(const wm_run_t *run, wm_error_t *err);
wm_status_t wm_job_report(const wm_run_t *run, wm_error_t *err);
wm_status_t wm_job_bench(const wm_run_t *run, wm_error_t *err);
wm_status_t wm_job_plan(const wm_run_t *run, wm_error_t *err);

#endif
