/* What the files of the export job share. */
#ifndef WANAMAKER_JOBS_EXPORT_H
#define WANAMAKER_JOBS_EXPORT_H

#include "inputs.h"
#include "wanamaker/io/safetensors.h"
#include "wanamaker/measure/gates.h"
#include "wanamaker/measure/surrogates.h"

/* A trained gate of export.state. */
typedef struct {
  int64_t layer, hidden;
  float *values; /* w1 [H, D], b1 [H], w2 [H], b2 [1], one behind the other */
} wm_export_gate_t;

/* The model that is exported, and where it goes. Equal on all ranks but for what lies in files. */
typedef struct {
  const wm_run_t *run;
  const char *config; /* model.path */
  wm_arch_t arch;
  wm_model_t *model; /* NULL if the weights come from */
  wm_h5_t *state;    /* export.state */
  wm_surrogates_t *of_state, *of_file;
  wm_export_gate_t *trained; /* [n_trained] */
  int64_t n_trained;
  wm_gates_t *gates;    /* export.gates, NULL: none */
  bool *linear;         /* [L] */
  const float **weight; /* [L] of every surrogate at hand, linear or not; NULL: none */
  const float **bias;   /* [L] */
  int64_t n_linear;
  char dir[WM_PATH_SIZE], partial[WM_PATH_SIZE]; /* export.dir, and what it is called meanwhile */
  uint64_t key;                                  /* of all that the result depends on */
} wm_export_t;

/* Collective. Reads all but the weights; wm_export_close always. */
wm_status_t wm_export_open(const wm_run_t *run, wm_export_t *out, wm_error_t *err);
void wm_export_close(wm_export_t *e);

/* wm_save_read_t on a wm_export_t with a state. */
wm_status_t wm_export_read(void *context, const char *name, int n_dims, const int64_t *shape,
                           int64_t first, int64_t rows, float *out, wm_error_t *err);

/* On rank 0. Writes surrogates.safetensors and gates.safetensors into e->partial, if there is
 * anything to put into them. */
wm_status_t wm_export_beside(const wm_export_t *e, wm_error_t *err);

#endif
