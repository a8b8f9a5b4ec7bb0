/* What the files of the job probe share: settings (probe_settings.c), stages (probe.c), the result
 * file (probe_file.c), what is printed (probe_table.c). */
#ifndef WANAMAKER_JOBS_PROBE_H
#define WANAMAKER_JOBS_PROBE_H

#include "inputs.h"
#include "wanamaker/measure/probe.h"
#include "wanamaker/measure/probe_parts.h"
#include "wanamaker/measure/probe_rows.h"
#include "wanamaker/measure/surrogates.h"

enum { WM_PROBE_CASES = 2 * WM_MAX_CORPORA };

/* A corpus that is probed. */
typedef struct {
  const char *name;
  wm_inputs_t in; /* the job's model and tokens with this corpus's texts: fit, and evaluation for
                     what is probed */
  wm_probe_text_t text;
  wm_token_traits_t traits;
  bool spelled;
  char surrogates[WM_PATH_SIZE]; /* file of its own surrogates */
} wm_probe_corpus_t;

/* A corpus with surrogates. */
typedef struct {
  int corpus, fitted; /* number of the corpus, and of the one whose surrogates are taken */
  const char *kind;   /* "own" or "shared" */
  bool brief;         /* see wm_probe_layer_t */
  uint64_t key;
  char parts[WM_PATH_SIZE];
  double *delta; /* [layers, N] */
  uint8_t *used; /* [layers, N] */
} wm_probe_case_t;

typedef struct {
  const wm_run_t *run;
  wm_inputs_t in; /* model and tokens */
  int n_corpora;
  wm_probe_corpus_t corpora[WM_MAX_CORPORA];
  int n_cases;
  wm_probe_case_t cases[WM_PROBE_CASES];
  int64_t *layers, n_layers;
  wm_probe_options_t options;
  wm_unit_kind_t unit;
  double train_share;
  wm_probe_stack_t stack;
  int64_t memory_bytes; /* of rows; 0: any */
  const char *words;
  char path[WM_PATH_SIZE]; /* probes.h5 */
  uint64_t key;
  bool complete;
  wm_probe_tables_t tables;
} wm_probe_job_t;

/* Not collective. Is the corpus among the names of probe.corpora? */
bool wm_probe_wants(const char *names, const char *corpus);
/* Not collective. The range of a role, or what corpora.NAME.MEMBER says instead; name "": no corpus
 * is given yet. */
wm_status_t wm_probe_range(const wm_run_t *run, const char *name, const char *member,
                           wm_role_t role, wm_range_t *out, wm_error_t *err);
/* Not collective. Numbers, views and exclusions. */
wm_status_t wm_probe_options_read(const wm_config_t *config, wm_probe_options_t *out,
                                  wm_error_t *err);
/* Not collective. Everything that the settings say, but for the corpora. */
wm_status_t wm_probe_settings(wm_probe_job_t *job, wm_error_t *err);
/* Collective. The corpora's texts, types and traits. */
wm_status_t wm_probe_open_corpora(wm_probe_job_t *job, wm_error_t *err);
/* Not collective. Hash of the settings that results depend on, chained to `seed`. */
uint64_t wm_probe_settings_key(const wm_probe_job_t *job, uint64_t seed);

/* Collective. probes.h5 from the parts and the tables. */
wm_status_t wm_probe_write(wm_probe_job_t *job, wm_error_t *err);
/* Collective. If probe.keep_features asks for it: rows of the layers that are held, numbers first
 * .. of the n that are computed, into *file, which is made (*file NULL) with the first of them. */
wm_status_t wm_probe_keep_features(const wm_probe_job_t *job, const wm_probe_corpus_t *corpus,
                                   const wm_probe_rows_t *rows, int64_t first, int64_t n,
                                   wm_h5_t **file, wm_error_t *err);

/* On rank 0. */
wm_status_t wm_probe_print(const wm_probe_job_t *job, wm_error_t *err);

#endif
