#include "probe.h"

#include "stages.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/io/files.h"

#include <inttypes.h>
#include <string.h>

/* --- numbers ------------------------------------------------------------------------------------
 */

static wm_probe_options_t read_options(const wm_config_t *c) {
  return (wm_probe_options_t){
      .C = 1,
      .alpha = wm_config_float(c, "probe.alpha"),
      .block = (int)wm_config_int(c, "fit.block"),
      .seed = (uint64_t)wm_config_int(c, "probe.seed"),
      .bootstrap = {.resamples = wm_config_int(c, "probe.resamples"),
                    .seed = (uint64_t)wm_config_int(c, "bootstrap.seed"),
                    .confidence = wm_config_float(c, "bootstrap.confidence")},
      .first_positions = wm_config_int(c, "probe.first_positions"),
      .high_norm = wm_config_float(c, "probe.high_norm"),
      .least_count = wm_config_int(c, "probe.least_count"),
      .least_found = wm_config_int(c, "probe.least_found"),
      .no_fly_delta = wm_config_float(c, "probe.no_fly_delta"),
      .no_fly_share = wm_config_float(c, "probe.no_fly_share"),
      .halvings = wm_config_int(c, "probe.halvings"),
      .components = wm_config_int(c, "probe.components"),
      .k = wm_config_int(c, "probe.clusters"),
      .restarts = wm_config_int(c, "probe.restarts"),
      .iterations = wm_config_int(c, "probe.iterations"),
      .consistent = wm_config_float(c, "probe.consistent"),
      .hidden = wm_config_int(c, "probe.hidden"),
      .hidden_iterations = wm_config_int(c, "probe.hidden_iterations"),
      .hidden_penalty = wm_config_float(c, "probe.hidden_penalty")};
}

/* Calls `take` for every word of a setting; it says whether it knows the word. */
static wm_status_t each_word(const wm_config_t *c, const char *key, const char *known,
                             bool (*take)(wm_probe_options_t *o, const char *word),
                             wm_probe_options_t *o, wm_error_t *err) {
  char word[64];
  int used;
  for (const char *at = wm_config_string(c, key); sscanf(at, " %63s%n", word, &used) == 1;
       at += used)
    if (!take(o, word))
      return wm_fail(err, WM_USAGE, "%s: \"%s\" is unknown; there are %s", key, word, known);
  return WM_OK;
}

static bool take_view(wm_probe_options_t *o, const char *word) {
  bool found = false;
  for (int v = 0; v < WM_VIEWS; v++)
    if (strcmp(word, "all") == 0 || strcmp(word, wm_probe_view_name((wm_probe_view_t)v)) == 0)
      o->views[v] = found = true;
  return found;
}

static bool take_class(wm_probe_options_t *o, const char *word) {
  static const char *const names[] = {"position0", "first", "end_of_text", "high_norm"};
  for (unsigned i = 0; i < 4; i++)
    if (strcmp(word, names[i]) == 0) {
      o->excluded |= 1u << i;
      return true;
    }
  return false;
}

wm_status_t wm_probe_options_read(const wm_config_t *c, wm_probe_options_t *out, wm_error_t *err) {
  wm_status_t status;
  *out = read_options(c);
  WM_TRY(each_word(c, "probe.views", "normalised, study, normed, and all of them by \"all\"",
                   take_view, out, err));
  WM_TRY(each_word(c, "probe.exclude", "position0, first, end_of_text, high_norm", take_class, out,
                   err));
cleanup:
  return status;
}

wm_status_t wm_probe_settings(wm_probe_job_t *j, wm_error_t *err) {
  const wm_config_t *c = j->run->config;
  const int64_t n_layers = wm_model_arch(j->in.model)->n_layers;
  int64_t count;
  const int64_t *given = wm_config_ints(c, "probe.layers", &count);
  void *memory;
  wm_status_t status;
  WM_TRY(wm_probe_options_read(c, &j->options, err));
  WM_TRY(wm_alloc(&memory, n_layers, sizeof(int64_t), "layers", err));
  j->layers = memory;
  WM_TRY(wm_layer_list("probe.layers", given, count, n_layers, j->layers, &j->n_layers, err));
  wm_unit_parse(wm_config_string(c, "bootstrap.unit"), &j->unit);
  wm_interval_parse(wm_config_string(c, "bootstrap.interval"), &j->options.bootstrap.interval);
  j->train_share = wm_config_float(c, "probe.train_share");
  j->memory_bytes = (int64_t)(wm_config_float(c, "probe.memory_gib") * 0x1p30);
  j->stack =
      (wm_probe_stack_t){64, wm_config_int(c, "compute.stack_rows"), wm_memory_bytes(j->run)};
  j->words = wm_config_string(c, "probe.words");
  WM_TRY(wm_output_path(j->run, "probes.h5", j->path, err));
cleanup:
  return status;
}

uint64_t wm_probe_settings_key(const wm_probe_job_t *j, uint64_t seed) {
  const wm_probe_options_t *o = &j->options;
  const double numbers[] = {o->C,
                            o->alpha,
                            (double)o->bootstrap.resamples,
                            o->bootstrap.confidence,
                            (double)o->bootstrap.interval,
                            (double)o->excluded,
                            (double)o->first_positions,
                            o->high_norm,
                            (double)o->least_count,
                            (double)o->least_found,
                            o->no_fly_delta,
                            o->no_fly_share,
                            (double)o->halvings,
                            (double)o->components,
                            (double)o->k,
                            (double)o->restarts,
                            (double)o->iterations,
                            o->consistent,
                            (double)o->hidden,
                            (double)o->hidden_iterations,
                            o->hidden_penalty,
                            j->train_share,
                            (double)j->unit};
  uint64_t h = wm_hash(numbers, sizeof numbers, seed);
  h = wm_hash(&o->seed, sizeof o->seed, h);
  h = wm_hash(&o->bootstrap.seed, sizeof o->bootstrap.seed, h);
  h = wm_hash(o->views, sizeof o->views, h);
  return wm_hash(j->run->provenance.version, strlen(j->run->provenance.version), h);
}

/* --- corpora ------------------------------------------------------------------------------------
 */

bool wm_probe_wants(const char *names, const char *name) {
  char word[128];
  int used;
  for (const char *at = names; sscanf(at, " %127s%n", word, &used) == 1; at += used)
    if (strcmp(word, "all") == 0 || strcmp(word, name) == 0)
      return true;
  return false;
}

static wm_status_t check_names(const wm_probe_job_t *j, const char *names, wm_error_t *err) {
  char word[128];
  int used;
  for (const char *at = names; sscanf(at, " %127s%n", word, &used) == 1; at += used) {
    bool known = strcmp(word, "all") == 0;
    for (int i = 0; i < j->in.n_corpora; i++)
      known |= strcmp(word, j->in.corpora[i]) == 0;
    if (!known)
      return wm_fail(err, WM_USAGE, "probe.corpora: no corpus is called \"%s\"", word);
  }
  return WM_OK;
}

wm_status_t wm_probe_range(const wm_run_t *run, const char *name, const char *member,
                           wm_role_t role, wm_range_t *out, wm_error_t *err) {
  char key[256];
  int64_t count;
  wm_status_t status = wm_inputs_range(run, role, out, err);
  if (status != WM_OK || name[0] == '\0')
    return status;
  snprintf(key, sizeof key, "corpora.%s.%s", name, member);
  const int64_t *ends = wm_config_ints(run->config, key, &count);
  if (count == 0)
    return WM_OK;
  if (count != 2 || ends[0] >= ends[1])
    return wm_fail(err, WM_USAGE, "%s must be two numbers [a, b] with a < b", key);
  *out = (wm_range_t){.name = out->name, .kind = WM_RANGE_TOKENS, .begin = ends[0], .end = ends[1]};
  return WM_OK;
}

/* Collective. Texts of corpus number `index` of the inputs. */
static wm_status_t open_texts(wm_probe_job_t *j, wm_probe_corpus_t *c, int index, wm_error_t *err) {
  const int64_t block = wm_config_int(j->run->config, "compute.block_tokens");
  wm_range_t fit, probe;
  wm_status_t status;
  c->name = j->in.corpora[index];
  c->in = j->in;
  memset(c->in.text, 0, sizeof c->in.text);
  WM_TRY(wm_probe_range(j->run, c->name, "fit", WM_ROLE_FIT, &fit, err));
  WM_TRY(wm_probe_range(j->run, c->name, "probe", WM_ROLE_EVALUATION, &probe, err));
  WM_TRY(wm_inputs_open_text(&c->in, index, &fit, block, &c->in.text[WM_ROLE_FIT], err));
  WM_TRY(wm_inputs_open_text(&c->in, index, &probe, block, &c->in.text[WM_ROLE_EVALUATION], err));
  if (!wm_config_bool(j->run->config, "ranges.allow_overlap"))
    WM_TRY(wm_windows_disjoint(&c->in.text[WM_ROLE_FIT].windows,
                               &c->in.text[WM_ROLE_EVALUATION].windows, err));
cleanup:
  j->in.tokens[index] = c->in.tokens[index]; /* to be closed once */
  return status == WM_OK ? status : wm_error_prefix(err, "corpus %s", c->name);
}

/* Collective. Positions and types of what is probed. */
static wm_status_t open_types(wm_probe_job_t *j, wm_probe_corpus_t *c, wm_error_t *err) {
  const wm_text_t *text = &c->in.text[WM_ROLE_EVALUATION];
  const int32_t *ids = wm_tokens_ids(text->tokens);
  wm_status_t status = wm_probe_text_create(&text->windows, ids, j->unit, j->train_share,
                                            j->options.seed, &c->text, err);
  WM_TRY(wm_agree(j->run->comm->world, status, err));
  WM_TRY(wm_token_traits_read(j->run->comm, wm_model_embedding_rows(j->in.model),
                              wm_tokenizer_dir(j->run), j->words, ids,
                              wm_tokens_count(text->tokens), &c->spelled, &c->traits, err));
  if (!c->spelled)
    wm_log(j->run->log, WM_LOG_WARN,
           "%s: no tokenizer in \"%s\": tokens have no spelling, and features and categories that "
           "need one say nothing",
           c->name, wm_tokenizer_dir(j->run));
  if (c->text.n_units < WM_MIN_UNITS)
    wm_log(j->run->log, WM_LOG_WARN, "%s: %" PRId64 " bootstrap unit%s (%s): %s", c->name,
           c->text.n_units, c->text.n_units == 1 ? "" : "s", wm_unit_name(c->text.unit_kind),
           c->text.n_units == 1 ? "no interval, and no positions are held out"
                                : "intervals say little");
cleanup:
  return status;
}

wm_status_t wm_probe_open_corpora(wm_probe_job_t *j, wm_error_t *err) {
  const char *names = wm_config_string(j->run->config, "probe.corpora");
  wm_status_t status;
  WM_TRY(check_names(j, names, err));
  for (int i = 0; i < j->in.n_corpora; i++) {
    if (!wm_probe_wants(names, j->in.corpora[i]))
      continue;
    wm_probe_corpus_t *c = &j->corpora[j->n_corpora++];
    WM_TRY(open_texts(j, c, i, err));
    WM_TRY(open_types(j, c, err));
  }
  if (j->n_corpora == 0)
    status = wm_fail(err, WM_USAGE, "probe.corpora = \"%s\" names no corpus", names);
cleanup:
  return status;
}
