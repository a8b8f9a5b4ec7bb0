#include "inputs.h"

#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/io/files.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

/* --- paths and settings -------------------------------------------------------------------------
 */

wm_status_t wm_output_path(const wm_run_t *run, const char *name, char *path, wm_error_t *err) {
  const char *dir = wm_config_string(run->config, "output.dir");
  if (snprintf(path, WM_PATH_SIZE, "%s/%s", dir, name) >= WM_PATH_SIZE)
    return wm_fail(err, WM_USAGE, "output.dir is too long");
  return WM_OK;
}

wm_status_t wm_tokens_path(const wm_run_t *run, const char *corpus, char *path, wm_error_t *err) {
  char name[WM_PATH_SIZE];
  snprintf(name, sizeof name, "tokens.%s.%s.h5", corpus, wm_encoding_of(run));
  return wm_output_path(run, name, path, err);
}

/* A setting of a corpus or range: "corpora" + "wikitext" + "path". */
static const char *key_of(char *buffer, size_t size, const char *group, const char *name,
                          const char *member) {
  snprintf(buffer, size, "%s.%s.%s", group, name, member);
  return buffer;
}

wm_corpus_spec_t wm_corpus_spec(const wm_run_t *run, const char *name) {
  static const char *const formats[] = {"auto", "text", "jsonl", "npy"};
  char key[256];
  wm_corpus_spec_t spec = {0};
  spec.path = wm_config_string(run->config, key_of(key, sizeof key, "corpora", name, "path"));
  spec.field = wm_config_string(run->config, key_of(key, sizeof key, "corpora", name, "field"));
  spec.keep_newline =
      wm_config_bool(run->config, key_of(key, sizeof key, "corpora", name, "keep_newline"));
  const char *format =
      wm_config_string(run->config, key_of(key, sizeof key, "corpora", name, "format"));
  for (int i = 0; i < 4; i++)
    if (strcmp(format, formats[i]) == 0)
      spec.format = (wm_corpus_format_t)i;
  return spec;
}

const char *wm_tokenizer_dir(const wm_run_t *run) {
  const char *dir = wm_config_string(run->config, "tokenizer.path");
  if (dir[0] == '\0' && wm_config_given(run->config, "model.path"))
    dir = wm_config_string(run->config, "model.path");
  return dir;
}

wm_status_t wm_protocol_read(const wm_run_t *run, wm_protocol_t *out, wm_error_t *err) {
  *out = wm_protocol_default();
  wm_protocol_parse(wm_config_string(run->config, "protocol.kind"), &out->kind);
  out->window = wm_config_int(run->config, "protocol.window");
  out->stride = wm_config_int(run->config, "protocol.stride");
  out->min_length = wm_config_int(run->config, "protocol.min_tokens");
  if (out->kind == WM_PROTOCOL_SLIDING && out->stride > out->window)
    return wm_fail(err, WM_USAGE,
                   "protocol.stride = %" PRId64 " exceeds protocol.window = %" PRId64, out->stride,
                   out->window);
  if (out->min_length > out->window)
    return wm_fail(err, WM_USAGE,
                   "protocol.min_tokens = %" PRId64 " exceeds protocol.window = %" PRId64,
                   out->min_length, out->window);
  return WM_OK;
}

const char *wm_encoding_of(const wm_run_t *run) {
  const char *kind = wm_config_string(run->config, "protocol.kind");
  return strcmp(kind, "documents") == 0 ? "documents" : "stream";
}

/* --- ranges -------------------------------------------------------------------------------------
 */

/* Replaces *range by what ranges.NAME says, if it says anything. */
static wm_status_t read_range(const wm_run_t *run, const char *name, wm_range_t *range,
                              wm_error_t *err) {
  static const struct {
    const char *member;
    wm_range_kind_t kind;
  } kinds[] = {
      {"tokens", WM_RANGE_TOKENS}, {"documents", WM_RANGE_DOCUMENTS}, {"rows", WM_RANGE_ROWS}};
  bool replaced = false;
  char key[256];
  for (int i = 0; i < 3; i++) {
    key_of(key, sizeof key, "ranges", name, kinds[i].member);
    int64_t count = 0;
    const int64_t *ends =
        wm_config_given(run->config, key) ? wm_config_ints(run->config, key, &count) : NULL;
    if (count == 0)
      continue;
    if (count != 2 || ends[0] >= ends[1])
      return wm_fail(err, WM_USAGE, "%s must be two numbers [a, b] with a < b", key);
    if (replaced)
      return wm_fail(err, WM_USAGE, "ranges.%s has two ranges: give tokens, documents or rows",
                     name);
    replaced = true;
    *range =
        (wm_range_t){.name = range->name, .kind = kinds[i].kind, .begin = ends[0], .end = ends[1]};
  }
  key_of(key, sizeof key, "ranges", name, "max_tokens");
  if (wm_config_given(run->config, key))
    range->max_tokens = wm_config_int(run->config, key);
  return WM_OK;
}

/* The names that may stand for "*" in ranges.*. */
static wm_status_t check_range_names(const wm_run_t *run, wm_error_t *err) {
  const char *name;
  for (int64_t i = 0; (name = wm_config_name(run->config, "ranges.", i)) != NULL; i++) {
    bool known = false;
    for (int r = 0; r < WM_ROLES; r++)
      known |= strcmp(name, wm_role_name((wm_role_t)r)) == 0;
    known |= strncmp(name, "evaluation_", strlen("evaluation_")) == 0;
    if (!known)
      return wm_fail(err, WM_USAGE,
                     "ranges.%s: no such range; there are fit, gates, validation, evaluation, and "
                     "evaluation_NAME for finetune",
                     name);
  }
  return WM_OK;
}

/* Number of the corpus of a range. */
static wm_status_t find_corpus(wm_inputs_t *in, const char *range, int *out, wm_error_t *err) {
  char key[256];
  key_of(key, sizeof key, "ranges", range, "corpus");
  const char *name =
      wm_config_given(in->run->config, key) ? wm_config_string(in->run->config, key) : "";
  *out = 0;
  if (name[0] == '\0')
    return WM_OK;
  for (int i = 0; i < in->n_corpora; i++)
    if (strcmp(in->corpora[i], name) == 0) {
      *out = i;
      return WM_OK;
    }
  return wm_fail(err, WM_USAGE, "%s = \"%s\": no such corpus (there are %d, the first is %s)", key,
                 name, in->n_corpora, in->corpora[0]);
}

static wm_status_t list_corpora(wm_inputs_t *in, wm_error_t *err) {
  const char *name;
  while ((name = wm_config_name(in->run->config, "corpora.", in->n_corpora)) != NULL) {
    if (in->n_corpora == WM_MAX_CORPORA)
      return wm_fail(err, WM_USAGE, "more than %d corpora", WM_MAX_CORPORA);
    in->corpora[in->n_corpora++] = name;
  }
  if (in->n_corpora == 0)
    return wm_fail(err, WM_USAGE, "no corpus is given: corpora.NAME.path is missing");
  return WM_OK;
}

/* --- tokens and windows -------------------------------------------------------------------------
 */

/* Collective. */
static wm_status_t open_tokens(wm_inputs_t *in, int corpus, wm_error_t *err) {
  char path[WM_PATH_SIZE];
  if (in->tokens[corpus] != NULL)
    return WM_OK;
  wm_status_t status = wm_tokens_path(in->run, in->corpora[corpus], path, err);
  if (status == WM_OK && in->run->comm->rank == 0 && !wm_file_exists(path))
    status = wm_fail(err, WM_INPUT, "%s: not there; run the job tokenize (or run) first", path);
  status = wm_agree(in->run->comm->world, status, err);
  return status == WM_OK ? wm_tokens_open(in->run->comm, path, &in->tokens[corpus], err) : status;
}

static wm_status_t check_ids(const wm_model_t *model, const char *corpus, const wm_tokens_t *tokens,
                             wm_error_t *err) {
  const int32_t *ids = wm_tokens_ids(tokens);
  int64_t limit = wm_model_embedding_rows(model), n = wm_tokens_count(tokens);
  if (wm_tokens_info(tokens)->vocab_size <= limit) /* and ids lie below that */
    return WM_OK;
  for (int64_t i = 0; i < n; i++)
    if (ids[i] >= limit)
      return wm_fail(err, WM_INPUT,
                     "corpus %s: token %" PRId64
                     " has id %d, but the model's embedding has %" PRId64
                     " rows: the tokenizer is not this model's",
                     corpus, i, ids[i], limit);
  return WM_OK;
}

static wm_status_t check_window(const wm_protocol_t *protocol, const wm_arch_t *arch,
                                wm_error_t *err) {
  if (protocol->window > arch->max_positions)
    return wm_fail(err, WM_USAGE,
                   "protocol.window = %" PRId64 ", but the model takes at most %" PRId64
                   " positions",
                   protocol->window, arch->max_positions);
  return WM_OK;
}

static wm_status_t make_windows(wm_inputs_t *in, wm_text_t *text, int corpus,
                                const wm_range_t *range, int64_t block_tokens, wm_error_t *err) {
  wm_tokens_t *t = in->tokens[corpus];
  wm_protocol_t protocol;
  wm_status_t status = wm_protocol_read(in->run, &protocol, err);
  if (status != WM_OK)
    return status;
  status = check_window(&protocol, wm_model_arch(in->model), err);
  if (status != WM_OK)
    return status;
  wm_token_view_t view = {.name = in->corpora[corpus],
                          .encoding = wm_tokens_info(t)->encoding,
                          .n_tokens = wm_tokens_count(t),
                          .n_rows = wm_tokens_rows(t),
                          .ids = wm_tokens_ids(t),
                          .row_first = wm_tokens_row_first(t),
                          .row_flags = wm_tokens_row_flags(t)};
  text->tokens = t;
  text->present = true;
  status = wm_windows_create(&view, &protocol, range, &text->windows, err);
  if (status == WM_OK)
    status = wm_blocks_create(&text->windows, block_tokens, &text->blocks, err);
  return status;
}

/* Are they the same tokens? One file may be a corpus under two names. */
static bool same_tokens(const wm_text_t *a, const wm_text_t *b) {
  const wm_tokens_info_t *x = wm_tokens_info(a->tokens), *y = wm_tokens_info(b->tokens);
  return x->corpus_fingerprint == y->corpus_fingerprint &&
         x->tokenizer_fingerprint == y->tokenizer_fingerprint &&
         strcmp(x->encoding, y->encoding) == 0;
}

static wm_status_t check_disjoint(const wm_inputs_t *in, wm_error_t *err) {
  if (wm_config_bool(in->run->config, "ranges.allow_overlap"))
    return WM_OK;
  for (int a = 0; a < WM_ROLES; a++)
    for (int b = a + 1; b < WM_ROLES; b++) {
      const wm_text_t *x = &in->text[a], *y = &in->text[b];
      if (!x->present || !y->present || !same_tokens(x, y))
        continue;
      wm_status_t status = wm_windows_disjoint(&x->windows, &y->windows, err);
      if (status != WM_OK)
        return status;
    }
  return WM_OK;
}

wm_status_t wm_inputs_open_text(wm_inputs_t *in, int corpus, const wm_range_t *range,
                                int64_t block_tokens, wm_text_t *text, wm_error_t *err) {
  const bool fresh = in->tokens[corpus] == NULL;
  wm_status_t status;
  WM_TRY(open_tokens(in, corpus, err));
  if (fresh)
    WM_TRY(wm_agree(in->run->comm->world,
                    check_ids(in->model, in->corpora[corpus], in->tokens[corpus], err), err));
  status = make_windows(in, text, corpus, range, block_tokens, err);
  WM_TRY(wm_agree(in->run->comm->world, status, err));
cleanup:
  return status;
}

wm_status_t wm_inputs_range(const wm_run_t *run, wm_role_t role, wm_range_t *out, wm_error_t *err) {
  *out = wm_preset_find(wm_config_string(run->config, "ranges.preset"))->ranges[role];
  out->name = wm_role_name(role);
  return read_range(run, out->name, out, err);
}

wm_status_t wm_inputs_named_range(const wm_run_t *run, wm_range_t *range, wm_error_t *err) {
  return read_range(run, range->name, range, err);
}

wm_status_t wm_inputs_open_range(wm_inputs_t *in, wm_range_t range, bool required,
                                 int64_t block_tokens, wm_text_t *text, wm_error_t *err) {
  int corpus = 0;
  wm_status_t status;
  WM_TRY(read_range(in->run, range.name, &range, err));
  if (range.kind == WM_RANGE_ABSENT && !required)
    return WM_OK;
  WM_TRY(find_corpus(in, range.name, &corpus, err));
  WM_TRY(wm_inputs_open_text(in, corpus, &range, block_tokens, text, err));
cleanup:
  return status;
}

/* Collective. */
static wm_status_t open_role(wm_inputs_t *in, const wm_preset_t *preset, wm_role_t role,
                             bool required, wm_error_t *err) {
  wm_range_t range = preset->ranges[role];
  range.name = wm_role_name(role);
  return wm_inputs_open_range(in, range, required,
                              wm_config_int(in->run->config, "compute.block_tokens"),
                              &in->text[role], err);
}

wm_compute_t wm_compute_of(const wm_run_t *run) {
  wm_compute_t compute = WM_COMPUTE_F32;
  wm_compute_parse(wm_config_string(run->config, "compute.type"), &compute);
  return compute;
}

static wm_status_t open_model(const wm_run_t *run, wm_compute_t compute, bool as_filed,
                              wm_model_t **out, wm_error_t *err) {
  wm_model_options_t options = {.tile_rows = wm_config_int(run->config, "compute.tile_rows"),
                                .tile_vocab = wm_config_int(run->config, "compute.tile_vocab"),
                                .compute = compute,
                                .as_filed = as_filed};
  return wm_model_open(run->comm, wm_config_string(run->config, "model.path"), &options, run->log,
                       out, err);
}

wm_status_t wm_inputs_open_model(const wm_run_t *run, wm_model_t **out, wm_error_t *err) {
  return open_model(run, wm_compute_of(run), false, out, err);
}

wm_status_t wm_inputs_open_f32(const wm_run_t *run, wm_model_t **out, wm_error_t *err) {
  return open_model(run, WM_COMPUTE_F32, true, out, err);
}

wm_status_t wm_inputs_open_writable(const wm_run_t *run, wm_model_t **out, wm_error_t *err) {
  wm_model_options_t options = {.tile_rows = wm_config_int(run->config, "compute.tile_rows"),
                                .tile_vocab = wm_config_int(run->config, "compute.tile_vocab"),
                                .compute = WM_COMPUTE_F32,
                                .writable = true};
  return wm_model_open(run->comm, wm_config_string(run->config, "model.path"), &options, run->log,
                       out, err);
}

wm_status_t wm_inputs_open(const wm_run_t *run, unsigned roles, unsigned required, wm_inputs_t *out,
                           wm_error_t *err) {
  return wm_inputs_open_on(run, NULL, roles, required, out, err);
}

/* Collective. out->model, unless it is there. */
static wm_status_t begin(wm_inputs_t *out, wm_error_t *err) {
  wm_status_t status;
  WM_TRY(list_corpora(out, err));
  WM_TRY(check_range_names(out->run, err));
  if (out->model == NULL)
    WM_TRY(wm_inputs_open_model(out->run, &out->model, err));
cleanup:
  return status;
}

wm_status_t wm_inputs_begin(const wm_run_t *run, wm_inputs_t *out, wm_error_t *err) {
  *out = (wm_inputs_t){.run = run};
  return wm_agree(run->comm->world, begin(out, err), err);
}

wm_status_t wm_inputs_open_on(const wm_run_t *run, wm_model_t *model, unsigned roles,
                              unsigned required, wm_inputs_t *out, wm_error_t *err) {
  const wm_preset_t *preset = wm_preset_find(wm_config_string(run->config, "ranges.preset"));
  wm_status_t status;
  *out = (wm_inputs_t){.run = run, .model = model};
  WM_TRY(begin(out, err));
  for (int r = 0; r < WM_ROLES; r++)
    if (roles & (1u << r))
      WM_TRY(open_role(out, preset, (wm_role_t)r, (required & (1u << r)) != 0, err));
  WM_TRY(check_disjoint(out, err));
cleanup:
  return wm_agree(run->comm->world, status, err);
}

wm_status_t wm_inputs_check(const wm_run_t *run, const wm_arch_t *arch, unsigned roles,
                            wm_error_t *err) {
  const wm_preset_t *preset = wm_preset_find(wm_config_string(run->config, "ranges.preset"));
  wm_inputs_t names = {.run = run};
  wm_protocol_t protocol;
  wm_status_t status;
  WM_TRY(list_corpora(&names, err));
  WM_TRY(check_range_names(run, err));
  WM_TRY(wm_protocol_read(run, &protocol, err));
  WM_TRY(check_window(&protocol, arch, err));
  WM_TRY(wm_compute_check(wm_compute_of(run), err));
  for (int r = 0; r < WM_ROLES; r++) {
    wm_range_t range = preset->ranges[r];
    int corpus;
    if ((roles & (1u << r)) == 0)
      continue;
    WM_TRY(read_range(run, wm_role_name((wm_role_t)r), &range, err));
    WM_TRY(find_corpus(&names, wm_role_name((wm_role_t)r), &corpus, err));
  }
cleanup:
  return status;
}

void wm_inputs_close(wm_inputs_t *in) {
  for (int r = 0; r < WM_ROLES; r++) {
    wm_blocks_destroy(&in->text[r].blocks);
    wm_windows_destroy(&in->text[r].windows);
  }
  for (int i = 0; i < in->n_corpora; i++)
    wm_tokens_close(in->tokens[i]);
  wm_model_close(in->model);
  memset(in, 0, sizeof *in);
}

/* --- stages -------------------------------------------------------------------------------------
 */

uint64_t wm_text_fingerprint(const wm_text_t *text, uint64_t seed) {
  const wm_windows_t *w = &text->windows;
  if (!text->present)
    return wm_hash("absent", 6, seed);
  const wm_tokens_info_t *info = wm_tokens_info(text->tokens);
  uint64_t h = wm_hash(&info->corpus_fingerprint, sizeof info->corpus_fingerprint, seed);
  h = wm_hash(&info->tokenizer_fingerprint, sizeof info->tokenizer_fingerprint, h);
  h = wm_hash(info->encoding, strlen(info->encoding), h);
  h = wm_hash(w->first, (size_t)w->n * sizeof *w->first, h);
  h = wm_hash(w->length, (size_t)w->n * sizeof *w->length, h);
  return wm_hash(w->first_predicted, (size_t)w->n * sizeof *w->first_predicted, h);
}

static bool attributes_are(wm_h5_t *file, int n, const char *const *names,
                           const char *const *values) {
  bool equal = true;
  for (int i = 0; i < n && equal; i++) {
    wm_error_t ignored = {0};
    char *found = NULL;
    equal = wm_h5_get_string(file, "/", names[i], &found, &ignored) == WM_OK &&
            strcmp(found, values[i]) == 0;
    free(found);
  }
  return equal;
}

bool wm_result_matches(const wm_run_t *run, const char *path, bool verify, int n,
                       const char *const *names, const char *const *values) {
  wm_error_t err = {0};
  wm_h5_t *file = NULL;
  int there = run->comm->rank == 0 && wm_file_exists(path);
  MPI_Bcast(&there, 1, MPI_INT, 0, run->comm->world);
  if (!there)
    return false;
  wm_status_t status = wm_h5_open(run->comm->world, path, &file, &err);
  bool same = status == WM_OK && attributes_are(file, n, names, values);
  if (same && verify)
    status = wm_h5_verify(file, &err);
  wm_h5_close(file);
  if (status != WM_OK)
    wm_log(run->log, WM_LOG_WARN, "damaged and not used: %s", err.message);
  return same && status == WM_OK;
}

bool wm_stage_is_complete(const wm_run_t *run, const char *path, uint64_t key) {
  char text[WM_STAGE_KEY_SIZE];
  wm_hash_text(key, text);
  return wm_result_matches(run, path, true, 1, (const char *const[]){"stage_key"},
                           (const char *const[]){text});
}

static wm_status_t set_hash(wm_h5_t *file, const char *name, uint64_t value, wm_error_t *err) {
  char text[WM_STAGE_KEY_SIZE];
  wm_hash_text(value, text);
  return wm_h5_set_string(file, "/", name, text, err);
}

enum { RANGE_SIZE = 512 };

/* The text of attribute range_ROLE. */
static void range_text(const wm_text_t *text, char value[RANGE_SIZE]) {
  if (text->present)
    snprintf(value, RANGE_SIZE, "%s of %s; %" PRId64 " tokens, %" PRId64 " predicted",
             text->windows.label, wm_tokens_info(text->tokens)->corpus, text->windows.n_positions,
             text->windows.n_predicted);
  else
    snprintf(value, RANGE_SIZE, "none");
}

static wm_status_t describe_role(const wm_inputs_t *in, wm_h5_t *file, wm_role_t role,
                                 wm_error_t *err) {
  const wm_text_t *text = &in->text[role];
  char name[64], value[RANGE_SIZE];
  if (!text->present)
    return WM_OK;
  snprintf(name, sizeof name, "range_%s", wm_role_name(role));
  range_text(text, value);
  wm_status_t status = wm_h5_set_string(file, "/", name, value, err);
  const wm_tokens_info_t *info = wm_tokens_info(text->tokens);
  snprintf(name, sizeof name, "corpus_fingerprint_%s", wm_role_name(role));
  if (status == WM_OK)
    status = set_hash(file, name, info->corpus_fingerprint, err);
  snprintf(name, sizeof name, "text_fingerprint_%s", wm_role_name(role));
  if (status == WM_OK)
    status = set_hash(file, name, wm_text_fingerprint(text, 0), err);
  return status == WM_OK ? set_hash(file, "tokenizer_fingerprint", info->tokenizer_fingerprint, err)
                         : status;
}

static wm_status_t describe_arch(const wm_inputs_t *in, wm_h5_t *file, wm_error_t *err) {
  const wm_arch_t *arch = wm_model_arch(in->model);
  wm_status_t status;
  WM_TRY(wm_h5_set_string(file, "/", "model_family", wm_family_name(arch->family), err));
  WM_TRY(wm_h5_set_int(file, "/", "model_layers", arch->n_layers, err));
  WM_TRY(wm_h5_set_int(file, "/", "model_width", arch->d_model, err));
  WM_TRY(wm_h5_set_int(file, "/", "model_parameters", wm_arch_parameters(arch), err));
cleanup:
  return status;
}

wm_status_t wm_stage_describe(const wm_inputs_t *in, wm_h5_t *file, const char *stage, uint64_t key,
                              wm_error_t *err) {
  const wm_run_t *run = in->run;
  wm_status_t status;
  WM_TRY(wm_h5_set_string(file, "/", "stage", stage, err));
  WM_TRY(set_hash(file, "stage_key", key, err));
  WM_TRY(wm_h5_set_string(file, "/", "model", wm_config_string(run->config, "model.path"), err));
  WM_TRY(set_hash(file, "model_fingerprint", wm_model_fingerprint(in->model), err));
  WM_TRY(describe_arch(in, file, err));
  for (int r = 0; r < WM_ROLES; r++)
    WM_TRY(describe_role(in, file, (wm_role_t)r, err));
  WM_TRY(
      wm_h5_set_string(file, "/", "protocol", wm_config_string(run->config, "protocol.kind"), err));
  wm_provenance_t provenance = run->provenance;
  provenance.compute = wm_compute_name(wm_compute_of(run));
  WM_TRY(wm_provenance_write(file, run->comm, &provenance, err));
  WM_TRY(wm_h5_set_int(file, "/", "peak_memory", wm_node_memory_peak(run->memory), err));
cleanup:
  return status;
}

wm_status_t wm_layer_list(const char *key, const int64_t *given, int64_t count, int64_t n_layers,
                          int64_t *out, int64_t *n, wm_error_t *err) {
  bool all = count == 0;
  *n = 0;
  for (int64_t i = 0; i < count; i++) {
    if (given[i] >= n_layers)
      return wm_fail(err, WM_USAGE,
                     "%s: layer %" PRId64 " does not exist; the model has layers 0 to %" PRId64,
                     key, given[i], n_layers - 1);
    for (int64_t j = 0; j < i; j++)
      if (given[j] == given[i])
        return wm_fail(err, WM_USAGE, "%s: layer %" PRId64 " is named twice", key, given[i]);
  }
  for (int64_t l = 0; l < n_layers; l++) {
    bool wanted = all;
    for (int64_t i = 0; i < count; i++)
      wanted |= given[i] == l;
    if (wanted)
      out[(*n)++] = l;
  }
  return WM_OK;
}

/* --- surrogates of an earlier fit ---------------------------------------------------------------
 */

/* Collective. A text attribute; "none" if there is none, NULL without memory. Caller frees. */
static char *read_or_none(wm_h5_t *file, const char *name) {
  char *found = NULL;
  wm_error_t ignored = {0};
  if (wm_h5_get_string(file, "/", name, &found, &ignored) == WM_OK)
    return found;
  return wm_strdup(&found, "none", &ignored) == WM_OK ? found : NULL;
}

/* Collective. WM_INPUT unless attribute `name` is `expected`. The message shows attribute `shown`
 * beside `here`, what it would be now. */
static wm_status_t expect(const wm_inputs_t *in, wm_h5_t *file, const char *name,
                          const char *expected, const char *shown, const char *here,
                          wm_error_t *err) {
  char *found = read_or_none(file, name), *was = read_or_none(file, shown);
  wm_status_t status = WM_OK;
  if (found == NULL || was == NULL)
    status = wm_fail(err, WM_ENVIRONMENT, "%s: no memory for an attribute", wm_h5_path(file));
  else if (strcmp(found, expected) != 0)
    status = wm_fail(err, WM_INPUT,
                     "%s was made from another %s (\"%s\", here \"%s\"); run the job fit again",
                     wm_h5_path(file), shown, was, here);
  free(found);
  free(was);
  return wm_agree(in->run->comm->world, status, err);
}

static wm_status_t expect_role(const wm_inputs_t *in, wm_h5_t *file, wm_role_t role,
                               wm_error_t *err) {
  const wm_text_t *text = &in->text[role];
  char name[64], shown[64], range[RANGE_SIZE], key[WM_STAGE_KEY_SIZE];
  snprintf(name, sizeof name, "text_fingerprint_%s", wm_role_name(role));
  snprintf(shown, sizeof shown, "range_%s", wm_role_name(role));
  range_text(text, range);
  wm_hash_text(wm_text_fingerprint(text, 0), key);
  return expect(in, file, name, text->present ? key : "none", shown, range, err);
}

wm_status_t wm_stage_same_fit(const wm_inputs_t *in, const char *path, wm_error_t *err) {
  char model[WM_STAGE_KEY_SIZE];
  double lambda, wanted = wm_config_float(in->run->config, "fit.lambda");
  wm_h5_t *file;
  wm_status_t status = wm_h5_open(in->run->comm->world, path, &file, err);
  if (status != WM_OK)
    return status;
  const char *version = in->run->provenance.version;
  WM_TRY(expect(in, file, "version", version, "version", version, err));
  wm_hash_text(wm_model_fingerprint(in->model), model);
  WM_TRY(expect(in, file, "model_fingerprint", model, "model",
                wm_config_string(in->run->config, "model.path"), err));
  const char *compute = wm_compute_name(wm_compute_of(in->run));
  WM_TRY(expect(in, file, "compute", compute, "compute", compute, err));
  WM_TRY(expect_role(in, file, WM_ROLE_FIT, err));
  WM_TRY(expect_role(in, file, WM_ROLE_VALIDATION, err));
  WM_TRY(wm_h5_get_float(file, "/", "lambda", &lambda, err));
  if (lambda != wanted)
    status = wm_fail(err, WM_INPUT,
                     "%s was made from another lambda (%g, here fit.lambda = %g); run the job fit "
                     "again",
                     path, lambda, wanted);
cleanup:
  wm_h5_close(file);
  return status;
}
