/* tokenize: the corpora into tokens.h5 files (method.md, section 3). */
#include "inputs.h"
#include "stages.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/progress.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/io/files.h"
#include "wanamaker/text/encode.h"
#include "wanamaker/text/tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What a tokens.h5 was made from. */
typedef struct {
  uint64_t corpus, tokenizer; /* fingerprints */
  uint64_t stamp;             /* of the corpus, as rank 0 found it */
  int64_t bytes;
  int ids; /* an .npy array: there is no text to encode */
} origin_t;

/* Rank 0 only. */
static wm_status_t look_at_tokenizer(const wm_run_t *run, origin_t *out, wm_error_t *err) {
  wm_tokenizer_t *tokenizer = NULL;
  if (wm_tokenizer_dir(run)[0] == '\0')
    return wm_fail(err, WM_USAGE, "tokenizer.path or model.path must be given");
  wm_status_t status = wm_tokenizer_open(wm_tokenizer_dir(run), &tokenizer, err);
  if (status == WM_OK)
    out->tokenizer = wm_tokenizer_fingerprint(tokenizer);
  wm_tokenizer_close(tokenizer);
  return status;
}

/* Collective. All ranks read the corpus, rank 0 the tokenizer. */
static wm_status_t find_origin(const wm_run_t *run, const wm_corpus_spec_t *spec, origin_t *out,
                               wm_error_t *err) {
  wm_corpus_t *corpus = NULL;
  *out = (origin_t){0};
  wm_status_t status = wm_corpus_open(spec, &corpus, err);
  if (status == WM_OK) {
    out->bytes = wm_corpus_bytes(corpus);
    out->stamp = wm_corpus_stamp(corpus);
    out->ids = wm_corpus_format(corpus) == WM_CORPUS_NPY;
  }
  if (status == WM_OK && !out->ids && run->comm->rank == 0)
    status = look_at_tokenizer(run, out, err);
  WM_TRY(wm_agree(run->comm->world, status, err));
  WM_TRY(wm_corpus_fingerprint(run->comm, corpus, &out->corpus, err));
  wm_broadcast(run->comm->world, 0, out, sizeof *out);
cleanup:
  wm_corpus_close(corpus);
  return status;
}

/* Collective. Is `path` the tokens of this origin, and, if `verify`, undamaged? */
static bool is_complete(const wm_run_t *run, const char *path, const origin_t *origin,
                        bool verify) {
  static const char *const names[] = {"corpus_fingerprint", "tokenizer_fingerprint", "encoding"};
  char corpus[WM_STAGE_KEY_SIZE], tokenizer[WM_STAGE_KEY_SIZE];
  wm_hash_text(origin->corpus, corpus);
  wm_hash_text(origin->tokenizer, tokenizer);
  return wm_result_matches(
      run, path, verify, 3, names,
      (const char *const[]){corpus, tokenizer, origin->ids ? "ids" : wm_encoding_of(run)});
}

/* Encoding, then writing. */
typedef struct {
  const wm_log_t *log;
  wm_progress_t encoding, writing;
} progress_t;

static void show_encoded(void *context, int64_t done, int64_t total) {
  progress_t *p = context;
  p->encoding.total = total;
  wm_progress_update(&p->encoding, done);
}

static void show_written(void *context, int64_t done, int64_t total) {
  progress_t *p = context;
  if (p->writing.stage == NULL) {
    wm_progress_finish(&p->encoding);
    wm_progress_start(&p->writing, p->log, "tokenize: writing", "blocks", total);
  }
  wm_progress_update(&p->writing, done);
}

/* The settings that tokens depend on: not the whole configuration, so that the same tokens are the
 * same file wherever it is written. */
static void settings_text(const wm_run_t *run, const char *name, const wm_corpus_spec_t *spec,
                          char *text, size_t size) {
  snprintf(text, size,
           "corpora: { %s: { path = \"%s\"; field = \"%s\"; keep_newline = %s; }; };\n"
           "protocol: { kind = \"%s\"; };\n",
           name, spec->path, spec->field, spec->keep_newline ? "true" : "false",
           wm_encoding_of(run));
}

static wm_status_t encode(const wm_run_t *run, const char *name, const wm_corpus_spec_t *spec,
                          const origin_t *origin, const char *path, wm_error_t *err) {
  progress_t progress = {.log = run->log};
  wm_encode_stats_t s;
  char settings[2 * WM_PATH_SIZE];
  settings_text(run, name, spec, settings, sizeof settings);
  wm_progress_start(&progress.encoding, run->log, "tokenize", origin->ids ? "ids" : "bytes",
                    origin->bytes);
  bool documents = strcmp(wm_encoding_of(run), "documents") == 0;
  wm_encode_request_t request = {.corpus = *spec,
                                 .mode = documents ? WM_ENCODE_DOCUMENTS : WM_ENCODE_STREAM,
                                 .tokenizer_dir = origin->ids ? NULL : wm_tokenizer_dir(run),
                                 .out_path = path,
                                 .configuration = settings,
                                 .corpus_fingerprint = origin->corpus,
                                 .corpus_stamp = origin->stamp,
                                 .encoded = show_encoded,
                                 .written = show_written,
                                 .context = &progress};
  double start = wm_seconds();
  wm_status_t status = wm_encode_corpus(run->comm, &request, run->log, &s, err);
  if (status != WM_OK)
    return status;
  double seconds = wm_seconds() - start;
  wm_log(run->log, WM_LOG_INFO,
         "tokenize: %s: %" PRId64 " tokens in %" PRId64 " rows (%" PRId64
         " not blank) of %.1f MB in %.2f s; wrote %s",
         name, s.tokens, s.rows, s.documents, (double)s.bytes / 1e6, seconds, path);
  return WM_OK;
}

static wm_status_t one_corpus(const wm_run_t *run, const char *name, bool *complete,
                              wm_error_t *err) {
  char path[WM_PATH_SIZE];
  wm_corpus_spec_t spec = wm_corpus_spec(run, name);
  origin_t origin;
  wm_status_t status = wm_tokens_path(run, name, path, err);
  if (status == WM_OK)
    status = find_origin(run, &spec, &origin, err);
  if (status != WM_OK)
    return status;
  if (is_complete(run, path, &origin, true)) {
    wm_log(run->log, WM_LOG_INFO, "tokenize: %s is complete for these inputs; skipped", path);
    return WM_OK;
  }
  if (run->dry_run) {
    *complete = false;
    if (run->comm->rank == 0)
      fprintf(run->out, "tokenize: %s (%.1f MB, %s) into %s\n", spec.path,
              (double)origin.bytes / 1e6, origin.ids ? "ids" : wm_encoding_of(run), path);
    return WM_OK;
  }
  return encode(run, name, &spec, &origin, path, err);
}

wm_status_t wm_stage_tokenize(const wm_run_t *run, bool *complete, wm_error_t *err) {
  const char *name;
  int64_t n = 0;
  wm_status_t status = WM_OK;
  *complete = true;
  for (; status == WM_OK && (name = wm_config_name(run->config, "corpora.", n)) != NULL; n++)
    status = one_corpus(run, name, complete, err);
  if (n == 0)
    return wm_fail(err, WM_USAGE, "no corpus is given: corpora.NAME.path is missing");
  return status;
}

/* Collective. True if rank 0 sees the file. */
static bool is_there(const wm_run_t *run, const char *path) {
  int there = run->comm->rank == 0 && wm_file_exists(path);
  MPI_Bcast(&there, 1, MPI_INT, 0, run->comm->world);
  return there != 0;
}

static bool has_tokenizer(const char *dir) {
  static const char *const names[] = {"tokenizer.json", "vocab.json"};
  bool found = false;
  for (int i = 0; i < 2 && !found; i++) {
    char path[WM_PATH_SIZE];
    found = snprintf(path, sizeof path, "%s/%s", dir, names[i]) < (int)sizeof path &&
            wm_file_exists(path);
  }
  return found;
}

/* WM_INPUT unless the tokens at `path`, of fingerprint `found`, are those of the tokenizer in
 * `dir`. */
static wm_status_t compare_tokenizer(const char *path, const char *found, const char *dir,
                                     wm_error_t *err) {
  wm_tokenizer_t *tokenizer;
  char here[WM_STAGE_KEY_SIZE];
  wm_status_t status = wm_tokenizer_open(dir, &tokenizer, err);
  if (status != WM_OK)
    return status;
  wm_hash_text(wm_tokenizer_fingerprint(tokenizer), here);
  wm_tokenizer_close(tokenizer);
  if (strcmp(found, here) != 0)
    return wm_fail(err, WM_INPUT,
                   "%s was made by another tokenizer (fingerprint %s) than the one in %s (%s)",
                   path, found, dir, here);
  return WM_OK;
}

/* Collective. WM_INPUT if the tokens at `path`, whose text is gone, are another tokenizer's than
 * the settings name. Ids that were given have none. */
static wm_status_t same_tokenizer(const wm_run_t *run, const char *path, wm_error_t *err) {
  wm_h5_t *file = NULL;
  char *found = NULL, *encoding = NULL;
  const char *dir = wm_tokenizer_dir(run);
  wm_status_t status;
  WM_TRY(wm_h5_open(run->comm->world, path, &file, err));
  WM_TRY(wm_h5_get_string(file, "/", "tokenizer_fingerprint", &found, err));
  WM_TRY(wm_h5_get_string(file, "/", "encoding", &encoding, err));
  if (run->comm->rank == 0 && strcmp(encoding, "ids") != 0 && has_tokenizer(dir))
    status = compare_tokenizer(path, found, dir, err);
  status = wm_agree(run->comm->world, status, err);
cleanup:
  free(found);
  free(encoding);
  wm_h5_close(file);
  return status;
}

wm_status_t wm_tokens_current(const wm_run_t *run, wm_error_t *err) {
  const char *name;
  char path[WM_PATH_SIZE];
  wm_status_t status = WM_OK;
  for (int64_t i = 0; (name = wm_config_name(run->config, "corpora.", i)) != NULL; i++) {
    wm_corpus_spec_t spec = wm_corpus_spec(run, name);
    origin_t origin;
    WM_TRY(wm_tokens_path(run, name, path, err));
    if (!is_there(run, path))
      continue;
    if (!is_there(run, spec.path)) {
      WM_TRY(same_tokenizer(run, path, err));
      continue;
    }
    WM_TRY(find_origin(run, &spec, &origin, err));
    wm_h5_t *file;
    WM_TRY(wm_h5_open(run->comm->world, path, &file, err));
    wm_h5_close(file);
    if (!is_complete(run, path, &origin, false))
      return wm_fail(err, WM_INPUT,
                     "%s was made from another text or tokenizer than the settings name (text %s); "
                     "run the job tokenize (or run) again",
                     path, spec.path);
  }
cleanup:
  return status;
}

wm_status_t wm_job_tokenize(const wm_run_t *run, wm_error_t *err) {
  bool complete;
  wm_status_t status = wm_output_ready(run, err);
  return status == WM_OK ? wm_stage_tokenize(run, &complete, err) : status;
}
