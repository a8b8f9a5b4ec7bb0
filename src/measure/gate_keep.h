/* What a pass of gates keeps so that another run can go on (gate_pass.h): layers whose gates are
 * fitted.
 *
 *   FOLDER/0000.h5, 0001.h5, ...   each with the layers that were fitted since the one before, in
 *                                  the form of gates.h5 (gates.h) with /ends (gate_ends.h) and the
 *                                  attribute parts_key
 *
 * A file counts only when it is whole (checksums) and of the same key; one that isn't is named in
 * the log and left out. Ranks may differ in number from those that wrote it. */
#ifndef WANAMAKER_SRC_MEASURE_GATE_KEEP_H
#define WANAMAKER_SRC_MEASURE_GATE_KEEP_H

#include "wanamaker/measure/gate_pass.h"

#include <stdbool.h>

typedef struct {
  const wm_comm_t *comm; /* borrowed, like the next three */
  const wm_model_t *model;
  const wm_gate_pass_options_t *options;
  const wm_log_t *log;
  int64_t n_sets;
  wm_gates_t **sets; /* [n_sets] what the files hold */
  int64_t *set_of;   /* [layers of the options] the file that has the layer, -1: none */
  bool *fresh;       /* [layers of the options] fitted, and in no file */
  int64_t next;      /* number of the next file */
  double written;    /* when the last one was, by wm_seconds() */
} wm_gate_keep_t;

/* Are the ranks to keep something, or to stop? */
typedef struct {
  bool stop, due;
} wm_gate_moment_t;

/* Collective. Reads what is kept in options->parts (NULL: nothing is, and nothing will be); ends of
 * those layers into ends[layers of the options]. Close also after a failure. */
wm_status_t wm_gate_keep_open(const wm_comm_t *comm, const wm_model_t *model,
                              const wm_gate_pass_options_t *options, const wm_log_t *log,
                              wm_gate_ends_t *ends, wm_gate_keep_t *out, wm_error_t *err);
void wm_gate_keep_close(wm_gate_keep_t *keep);

/* Is layer number `index` of the options kept? */
bool wm_gate_keep_has(const wm_gate_keep_t *keep, int64_t index);
/* Adds such a layer and its gates to `gates`. Not collective. */
wm_status_t wm_gate_keep_take(const wm_gate_keep_t *keep, int64_t index, wm_gates_t *gates,
                              wm_error_t *err);

/* Layer number `index` has been fitted. */
void wm_gate_keep_add(wm_gate_keep_t *keep, int64_t index);
/* Collective. Equal on all ranks: has any been asked to stop, has the interval passed? */
wm_gate_moment_t wm_gate_keep_look(const wm_gate_keep_t *keep);
/* Collective. A file with the fresh layers of `gates` and `ends`; without any it does nothing. */
wm_status_t wm_gate_keep_write(wm_gate_keep_t *keep, const wm_gates_t *gates,
                               const wm_gate_ends_t *ends, wm_error_t *err);
/* WM_STOPPED, in words. */
wm_status_t wm_gate_keep_stopped(const wm_gate_keep_t *keep, wm_error_t *err);

#endif
