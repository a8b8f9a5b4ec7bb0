/* What the two files of the fit share: the pass over the text (fit.c) and the solution
 * (fit_solve.c). */
#ifndef WANAMAKER_SRC_MEASURE_FIT_INTERNAL_H
#define WANAMAKER_SRC_MEASURE_FIT_INTERNAL_H

#include "wanamaker/measure/fit.h"
#include "wanamaker/measure/gram.h"

/* Layers of one pass: numbers first .. first + n - 1 of the options' layers. */
typedef struct {
  int64_t first, n;
  const int64_t *layers;
} wm_fit_group_t;

typedef struct {
  const wm_comm_t *comm;
  wm_model_t *model;
  const wm_blocks_t *fit, *heldout;
  const int32_t *fit_ids, *heldout_ids;
  const wm_fit_options_t *options;
  wm_fit_plan_t plan;
  wm_h5_t *file;
  wm_fit_summary_t *summaries; /* [n_layers] */
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
/* Collective. Solves the group's layers, a layer per team and round, and writes their weights. */
wm_status_t wm_fit_solve_group(wm_fit_t const *fit, const wm_fit_group_t *group,
                               const wm_gram_t *gram, wm_error_t *err);
/* Collective. Sums up the teams' tables, writes them, and fills the summaries. */
wm_status_t wm_fit_write_tables(wm_fit_t *fit, wm_error_t *err);

#endif
