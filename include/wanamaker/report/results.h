/* What a report knows of one result directory: the tables of its files, and what follows from them
 * for each layer. Read on rank 0; not collective.
 *
 * A file that is not there, can't be read, or is of another model than the others is no failure:
 * its state says so, and the sections that need it say what is missing. So with a directory that
 * has nothing to show.
 */
#ifndef WANAMAKER_REPORT_RESULTS_H
#define WANAMAKER_REPORT_RESULTS_H

#include "wanamaker/base/log.h"
#include "wanamaker/report/frame.h"

#include <stdbool.h>

typedef enum {
  WM_FILE_SURROGATES,
  WM_FILE_SWEEP,
  WM_FILE_GATES,
  WM_FILE_ALLOCATION,
  WM_FILE_BENCH,
  WM_FILE_FINETUNE,
  WM_FILE_CONTROL,
  WM_FILE_COMPARE,
  WM_FILE_PROBES,
  WM_FILE_KINDS
} wm_file_kind_t;

typedef enum { WM_FILE_MISSING, WM_FILE_BAD, WM_FILE_READ } wm_file_state_t;

typedef struct {
  const char *name, *job, *shows; /* e.g. "sweep.h5", "sweep", what it is for */
  wm_file_state_t state;
  char *why; /* of WM_FILE_BAD; else NULL */
  wm_attributes_t attributes;
} wm_result_file_t;

/* What a layer's nonlinearity is worth at a tolerance in percent of perplexity. */
typedef enum {
  WM_WASTED,    /* the interval's upper end is at most the tolerance */
  WM_NEEDED,    /* its lower end is above */
  WM_UNDECIDED, /* neither, or there is no cost with an interval from ten units or more */
  WM_UNMEASURED /* no sweep has linearised it alone */
} wm_verdict_t;

const char *wm_verdict_name(wm_verdict_t verdict);

typedef struct {
  int64_t layer;
  int64_t linear;    /* row of `variants`: the surrogate at every position; -1: none */
  int64_t gated;     /* row of `variants`: routed by the selected gate; -1: none */
  int64_t gate;      /* row of `gates`: the selected one; -1: none */
  double threshold;  /* of the selected gate */
  int64_t surrogate; /* row of `layers`; -1: none */
  wm_verdict_t verdict;
} wm_layer_result_t;

/* Numbers of one model that text, tables and ledger share. */
typedef struct {
  int64_t measured, wasted, needed, undecided; /* layers */
  double median_cost;                          /* of the measured layers, percent */
  double median_low, median_high;              /* medians of the intervals' ends */
  int64_t cheapest, dearest;                   /* index of layer_results; -1: none */
} wm_overview_t;

enum { WM_TRAINING_RANGES = 8 };

/* Evaluations along one training, on each range. */
typedef struct {
  int n;
  struct wm_training_range {
    char name[WM_FRAME_NAME];
    wm_frame_t table;
  } ranges[WM_TRAINING_RANGES];
  wm_frame_t phases, gates; /* gates: distribution of g, a row for a gated layer */
  wm_frame_t timing;        /* a row for a step: seconds, exposed */
  int64_t n_units;          /* of the range "evaluation"; 0: not told */
} wm_training_result_t;

/* How fast a training was; NaN: its file does not tell. */
typedef struct {
  double ranks, threads, steps;                              /* threads: of a rank */
  double median, longest;                                    /* seconds of a step */
  double tokens_per_second, exposed, read_tokens_per_second; /* exposed: percent of the time */
} wm_training_speed_t;

/* What a plan is beside its control at equal tokens. */
typedef enum {
  WM_BETTER,
  WM_WORSE,
  WM_SAME,    /* no difference that survives Holm's correction, or fewer than ten units */
  WM_UNJUDGED /* there is no change, no interval, or no confidence to judge by */
} wm_standing_t;

/* "better than its control", ... */
const char *wm_standing_name(wm_standing_t standing);

/* A plan, or with `hard` the same with gates that decide, against its control on one range. */
typedef struct {
  char range[WM_FRAME_NAME];
  bool hard;
  double control_ppl, ppl, delta, low, high, p_two_sided, p_holm, units; /* delta: percent */
  wm_standing_t standing;
} wm_against_t;

typedef struct {
  char *dir, *label; /* label: the model's name, made unique among the directories */
  char *why;         /* nothing in the directory can be shown: the reason; else NULL */
  wm_result_file_t files[WM_FILE_KINDS];
  double tolerance;
  /* surrogates.h5 */
  wm_frame_t layers, path_lambda;
  int64_t eigen_dims[2], path_dims[2];
  double *eigenvalues, *path_r2, *path_r2_heldout; /* NULL: not there */
  /* sweep.h5 */
  wm_frame_t variants, changes;
  int64_t n_tokens, n_units;
  /* gates.h5 */
  wm_frame_t gate_layers, gates, curve;
  int64_t ends_dims[3];
  double *ends_token, *ends_score, *ends_delta, *ends_count;
  /* allocation.h5 */
  wm_frame_t options, plans, budgets;
  int64_t plan_dims[2];
  double *plan_options;
  bool search_complete;
  /* bench.h5 */
  wm_frame_t bench_routing, bench_last, bench_losses, bench_rates, bench_sweep, bench_memory;
  /* finetune.h5, control.h5 */
  wm_training_result_t training, control;
  /* finetune.compare.h5 */
  wm_frame_t comparison;
  /* probes.h5 */
  wm_frame_t context, categories, correlations, types, regression, clusterings;
  /* derived */
  int64_t n_layers; /* of layer_results: layers with a surrogate or a measured variant, ascending */
  wm_layer_result_t *layer_results;
  wm_overview_t overview;
} wm_results_t;

/* Reads what `dir` has. All files must be of one model: sweep.h5's, or the first one's without it;
 * others are refused like unreadable ones. WM_ENVIRONMENT. */
wm_status_t wm_results_read(const char *dir, double tolerance, const wm_log_t *log,
                            wm_results_t *out, wm_error_t *err);
void wm_results_destroy(wm_results_t *results);
/* Labels that differ if the directories do, from the models' names and where needed theirs. */
wm_status_t wm_results_label(wm_results_t *all, int64_t n, wm_error_t *err);

/* The evaluations on a range ("evaluation"); NULL: there are none. */
const wm_frame_t *wm_training_range(const wm_training_result_t *t, const char *name);
/* The last evaluation in which gates blend, after row 0, the model at the start; -1: none. */
int64_t wm_training_end(const wm_frame_t *table);
/* Have the plan and its control seen the same tokens in one order? Only then may they be ranked. */
bool wm_training_is_fair(const wm_results_t *r);
/* Has the training of this file a control to be compared with, or is it one itself (false)? */
bool wm_training_has_rival(const wm_results_t *r);
wm_training_speed_t wm_training_speed(const wm_results_t *r, wm_file_kind_t kind);
/* Row `row` of finetune.compare.h5; false: it is a control's, or there is none. */
bool wm_against(const wm_results_t *r, int64_t row, wm_against_t *out);
/* The blending plan on the range "evaluation"; false: nobody has compared it. */
bool wm_against_evaluation(const wm_results_t *r, wm_against_t *out);
/* Of its intervals; NaN. */
double wm_against_confidence(const wm_results_t *r);
/* "compared", or why not: "no control here", "no plan here", "control saw other tokens", "not
 * compared yet", "comparison refused". */
const char *wm_against_state(const wm_results_t *r);

/* Why no layer's cost is known: nothing to show, a sweep.h5 that cannot be read, no sweep where
 * nothing else answers for the model; NULL: costs are known, or training answers. Borrowed. */
const char *wm_results_unmeasured(const wm_results_t *r);
/* An attribute of the first file that has it, sweep.h5 first; "" if none has. */
const char *wm_results_attribute(const wm_results_t *r, const char *name);
/* The value of `member` in `group` of a configuration's text; NaN. */
double wm_configuration_number(const char *configuration, const char *group, const char *member);
/* Fills layer_results and overview. */
wm_status_t wm_results_derive(wm_results_t *r, wm_error_t *err);
/* Number of the one layer that a row of `variants` linearises at every position; -1: none such. */
int64_t wm_variant_layer(const wm_frame_t *variants, int64_t row);

#endif
