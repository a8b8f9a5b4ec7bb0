/* What the files of the fit share: the pass over the text (fit.c), the solution (fit_solve.c) and
 * what is kept for another run (fit_keep.c). */
#ifndef WANAMAKER_SRC_MEASURE_FIT_INTERNAL_H
#define WANAMAKER_SRC_MEASURE_FIT_INTERNAL_H

#include "wanamaker/measure/fit.h"
#include "wanamaker/measure/gram.h"
#include "wanamaker/measure/surrogates.h"

/* Layers of one pass: numbers first .. first + n - 1 of the options' layers. */
typedef struct {
  int64_t first, n;
  const int64_t *layers;
} wm_fit_group_t;

/* How far a group is: `set` WM_ROWS_FIT or WM_ROWS_HELDOUT in the pass, at block `next`;
 * WM_ROW_SETS when its matrices are centred. */
typedef struct {
  bool valid;
  int64_t group, set, next;
} wm_fit_position_t;

/* What the ranks agree on between steps. */
typedef struct {
  bool stop, due; /* asked to stop; the interval has passed */
} wm_fit_moment_t;

typedef struct {
  const wm_comm_t *comm;
  wm_model_t *model;
  const wm_blocks_t *fit, *heldout;
  const int32_t *fit_ids, *heldout_ids;
  const wm_fit_options_t *options;
  wm_fit_plan_t plan;
  wm_h5_t *file;
  wm_fit_summary_t *summaries; /* [n_layers] */
  const wm_log_t *log;
  wm_surrogates_t *replaced; /* of a sequential fit: the layers solved so far; else NULL */
  /* what is kept */
  double kept;       /* when the sums were kept last, by wm_seconds() */
  bool keeping;      /* the fit is a long one: solved layers are kept */
  int64_t next_part; /* number of the next part with layers */
  int64_t next_gram; /* of the next file with sums */
  bool *solved;      /* [n_layers] */
  /* solver */
  MPI_Comm team;   /* ranks that solve a layer together; MPI_COMM_NULL: left over */
  int team_index;  /* -1: left over */
  bool team_root;  /* holds the team's results */
  double *weight;  /* [D, D] on team roots */
  double *bias;    /* [D] */
  double *table;   /* [n_layers, columns]: what teams found, zero elsewhere; see fit_solve.c */
  double *spectra; /* [n_layers, D] eigenvalues, likewise; NULL without spectrum */
} wm_fit_t;

/* Collective. Teams, and the datasets that do not depend on results. */
wm_status_t wm_fit_solver_create(wm_fit_t *fit, wm_error_t *err);
/* Collective. */
void wm_fit_solver_destroy(wm_fit_t *fit);
/* Collective. Solves those of the group's layers that are not, a layer per team and round, and
 * writes their weights. WM_STOPPED after a stop request unless the last one is done. saved: the
 * centred sums are in a file. */
wm_status_t wm_fit_solve_group(wm_fit_t *fit, const wm_fit_group_t *group, wm_gram_t *gram,
                               bool saved, wm_error_t *err);
/* Collective. Sums up the teams' tables, writes them, and fills the summaries. */
wm_status_t wm_fit_write_tables(wm_fit_t *fit, wm_error_t *err);

/* Width of a row of the table: what there is to know of a layer beside weight, bias and spectrum.
 */
int64_t wm_fit_columns(const wm_fit_t *fit);
/* Is there a layer of the group, or (NULL) of all, that is not solved? */
bool wm_fit_unsolved(const wm_fit_t *fit, const wm_fit_group_t *group);

/* Collective. Is it time to keep something, or to stop? Equal on all ranks. */
wm_fit_moment_t wm_fit_look(const wm_fit_t *fit);
/* Collective. Keeps the sums at a position. Without a folder all of these do nothing. */
wm_status_t wm_fit_keep_sums(wm_fit_t *fit, wm_gram_t *gram, const wm_fit_position_t *at,
                             wm_error_t *err);
/* Collective. Keeps the layers of a round of the solution: number `index` of the options, whose
 * result this rank holds as a team's root (-1: none). */
wm_status_t wm_fit_keep_layers(wm_fit_t *fit, int64_t index, wm_error_t *err);
/* Collective. Takes over the layers that are kept, then the newest sums that can be used. */
wm_status_t wm_fit_resume(wm_fit_t *fit, wm_gram_t *gram, wm_fit_position_t *at, wm_error_t *err);
wm_status_t wm_fit_stopped(const wm_fit_t *fit, wm_error_t *err);

#endif
