/* What the jobs read: corpora, their tokens, ranges of them, the model; and when a stage's result
 * can be kept. */
#ifndef WANAMAKER_JOBS_INPUTS_H
#define WANAMAKER_JOBS_INPUTS_H

#include "jobs.h"
#include "wanamaker/io/corpus.h"
#include "wanamaker/io/hdf5.h"
#include "wanamaker/io/tokens.h"
#include "wanamaker/measure/blocks.h"
#include "wanamaker/measure/ranges.h"
#include "wanamaker/measure/windows.h"
#include "wanamaker/model/model.h"

enum { WM_PATH_SIZE = 4096, WM_STAGE_KEY_SIZE = 17 };

/* output.dir/name into path[WM_PATH_SIZE]. Too long: WM_USAGE. */
wm_status_t wm_output_path(const wm_run_t *run, const char *name, char *path, wm_error_t *err);

/* tokens file of a corpus, e.g. output.dir/tokens.wikitext.documents.h5 */
wm_status_t wm_tokens_path(const wm_run_t *run, const char *corpus, char *path, wm_error_t *err);

/* Collective. Makes output.dir, writable, and locks it against other runs (not in a dry run). */
wm_status_t wm_output_ready(const wm_run_t *run, wm_error_t *err);
/* `status` of printing, or WM_OK if it is standard output that has failed: what was to be printed
 * is in the result files, the work goes on, and main tells of the loss in the end. */
wm_status_t wm_output_shown(const wm_run_t *run, wm_status_t status);

/* Settings of a corpus. Borrowed strings. */
wm_corpus_spec_t wm_corpus_spec(const wm_run_t *run, const char *name);
/* Directory of the tokenizer. Never NULL; empty when neither it nor a model is given. */
const char *wm_tokenizer_dir(const wm_run_t *run);
/* The protocol's settings, checked (stride <= window, min_tokens <= window). */
wm_status_t wm_protocol_read(const wm_run_t *run, wm_protocol_t *out, wm_error_t *err);
/* "documents" or "stream": how the protocol's corpora are encoded. */
const char *wm_encoding_of(const wm_run_t *run);

/* A range of a corpus, cut into windows and blocks. */
typedef struct {
  bool present;
  wm_tokens_t *tokens; /* borrowed from the inputs */
  wm_windows_t windows;
  wm_blocks_t blocks;
} wm_text_t;

enum { WM_MAX_CORPORA = 16 };

typedef struct {
  const wm_run_t *run;
  wm_model_t *model;
  int n_corpora;
  const char *corpora[WM_MAX_CORPORA];
  wm_tokens_t *tokens[WM_MAX_CORPORA];
  wm_text_t text[WM_ROLES];
} wm_inputs_t;

/* Collective. Opens the model and the texts of the roles in `roles` (bits 1 << WM_ROLE_*): roles of
 * the preset that are absent stay so, but a role in `required` must be there. Ranges of one corpus
 * must be disjoint unless ranges.allow_overlap; ids must lie below the model's embedding rows.
 * Close with wm_inputs_close, also after a failure. */
wm_status_t wm_inputs_open(const wm_run_t *run, unsigned roles, unsigned required, wm_inputs_t *out,
                           wm_error_t *err);
/* Collective. The same with a model that is open: it is taken, also on failure. */
wm_status_t wm_inputs_open_on(const wm_run_t *run, wm_model_t *model, unsigned roles,
                              unsigned required, wm_inputs_t *out, wm_error_t *err);
void wm_inputs_close(wm_inputs_t *inputs);
/* Collective. The range ranges.NAME, or `range` where the settings have none, NAME = range.name,
 * cut into blocks of block_tokens. *text (zeroed before) is the caller's to destroy, its tokens are
 * the inputs'. */
wm_status_t wm_inputs_open_range(wm_inputs_t *inputs, wm_range_t range, bool required,
                                 int64_t block_tokens, wm_text_t *text, wm_error_t *err);
/* A writable copy of the model at model.path, float32, for training. Collective. */
wm_status_t wm_inputs_open_writable(const wm_run_t *run, wm_model_t **out, wm_error_t *err);
/* Collective. What wm_inputs_open begins with: the names of the corpora, and the model. */
wm_status_t wm_inputs_begin(const wm_run_t *run, wm_inputs_t *out, wm_error_t *err);
/* Collective. A range of corpus number `corpus`, cut into blocks of block_tokens; *text as above.
 */
wm_status_t wm_inputs_open_text(wm_inputs_t *inputs, int corpus, const wm_range_t *range,
                                int64_t block_tokens, wm_text_t *text, wm_error_t *err);
/* Not collective. What preset and settings say of a role's range; absent if there is none. */
wm_status_t wm_inputs_range(const wm_run_t *run, wm_role_t role, wm_range_t *out, wm_error_t *err);
/* Not collective. What the settings say of ranges.NAME, NAME = range->name; else it stays. */
wm_status_t wm_inputs_named_range(const wm_run_t *run, wm_range_t *range, wm_error_t *err);
/* compute.type. */
wm_compute_t wm_compute_of(const wm_run_t *run);
/* Collective. The model alone. */
wm_status_t wm_inputs_open_model(const wm_run_t *run, wm_model_t **out, wm_error_t *err);
/* Collective. The same with float32 products, whatever compute.type is, without a copy of the
 * weights: they are converted as they are used. */
wm_status_t wm_inputs_open_f32(const wm_run_t *run, wm_model_t **out, wm_error_t *err);
/* Not collective. The settings of corpora, protocol and roles alone, before anything is opened. */
wm_status_t wm_inputs_check(const wm_run_t *run, const wm_arch_t *arch, unsigned roles,
                            wm_error_t *err);

/* Chained fingerprint of a text: tokens' origin and windows. */
uint64_t wm_text_fingerprint(const wm_text_t *text, uint64_t seed);

/* Collective. True if `path` is a result whose root attributes names[n] have the texts values[n]
 * and, if `verify`, whose data agree with their checksums. A damaged file is warned of and is not.
 */
bool wm_result_matches(const wm_run_t *run, const char *path, bool verify, int n,
                       const char *const *names, const char *const *values);
/* Collective. The same, verified, for a stage's result that carries this key. */
bool wm_stage_is_complete(const wm_run_t *run, const char *path, uint64_t key);
/* Collective. Attributes of a stage's result: the key, fingerprints, ranges, provenance. */
wm_status_t wm_stage_describe(const wm_inputs_t *inputs, wm_h5_t *file, const char *stage,
                              uint64_t key, wm_error_t *err);

/* Collective. WM_INPUT unless the surrogates at `path` were made by this version of the program
 * from the inputs' model, windows of fit and validation, type of products and lambda: what a sweep
 * says of them would be wrong. */
wm_status_t wm_stage_same_fit(const wm_inputs_t *inputs, const char *path, wm_error_t *err);

/* Checks a list of layers (each once, below n_layers) and sorts it into `out`; none given: all.
 * out: [n_layers]. `key` is what messages call it. */
wm_status_t wm_layer_list(const char *key, const int64_t *given, int64_t count, int64_t n_layers,
                          int64_t *out, int64_t *n, wm_error_t *err);

#endif
