/* probe: is it the token or its context (method.md, section 7)?
 *
 *   surrogates.probe-CORPUS.h5   surrogates of the probed layers, refitted on each corpus
 *   probe.parts/CORPUS.KIND/     finished layers, until the result is there
 *   probes.h5                    every table, and what is known of every position
 *
 * A layer that is finished for the same inputs is not computed again. */
#include "probe.h"

#include "stages.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/memory_room.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/io/files.h"
#include "wanamaker/measure/features.h"
#include "wanamaker/measure/inference.h"
#include "wanamaker/measure/plan.h"
#include "wanamaker/measure/probe_pairs.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* --- surrogates and cases -----------------------------------------------------------------------
 */

/* Collective. Every corpus's own surrogates; with shared ones only, the first corpus's. */
static wm_status_t fit_all(wm_probe_job_t *j, bool *complete, wm_error_t *err) {
  const bool shared = strcmp(wm_config_string(j->run->config, "probe.surrogates"), "shared") == 0;
  *complete = true;
  for (int i = 0; i < j->n_corpora && (i == 0 || !shared); i++) {
    wm_probe_corpus_t *c = &j->corpora[i];
    char name[128];
    bool one;
    snprintf(name, sizeof name, "surrogates.probe-%s", c->name);
    wm_status_t status = wm_stage_fit_layers(&c->in, j->layers, j->n_layers, name, &one, err);
    if (status != WM_OK)
      return status;
    *complete &= one;
    snprintf(name, sizeof name, "surrogates.probe-%s.h5", c->name);
    status = wm_output_path(j->run, name, c->surrogates, err);
    if (status != WM_OK)
      return status;
  }
  return WM_OK;
}

static wm_status_t add_case(wm_probe_job_t *j, int corpus, int fitted, const char *kind, bool brief,
                            wm_error_t *err) {
  wm_probe_case_t *c = &j->cases[j->n_cases++];
  char name[160];
  *c = (wm_probe_case_t){.corpus = corpus, .fitted = fitted, .kind = kind, .brief = brief};
  snprintf(name, sizeof name, "probe.parts/%s.%s", j->corpora[corpus].name, kind);
  return wm_output_path(j->run, name, c->parts, err);
}

/* The first corpus's own surrogates are the shared ones. */
static wm_status_t list_cases(wm_probe_job_t *j, wm_error_t *err) {
  const char *kinds = wm_config_string(j->run->config, "probe.surrogates");
  const bool own = strcmp(kinds, "shared") != 0, shared = strcmp(kinds, "own") != 0;
  wm_status_t status = WM_OK;
  for (int i = 0; i < j->n_corpora && status == WM_OK; i++) {
    if (own || i == 0)
      status = add_case(j, i, i, "own", false, err);
    if (status == WM_OK && shared && i > 0)
      status = add_case(j, i, 0, "shared", own, err);
  }
  return status;
}

/* The case of a corpus with one kind of surrogates, NULL: there is none. */
static const wm_probe_case_t *find_case(const wm_probe_job_t *j, int corpus, bool shared) {
  for (int i = 0; i < j->n_cases; i++)
    if (j->cases[i].corpus == corpus && j->cases[i].fitted == (shared ? 0 : corpus))
      return &j->cases[i];
  return NULL;
}

/* Collective. Hash of a file of categories, as rank 0 reads it. */
static wm_status_t words_key(const wm_probe_job_t *j, uint64_t *h, wm_error_t *err) {
  enum { LIMIT = 4 << 20 };
  char *text = NULL;
  wm_status_t status = WM_OK;
  if (j->run->comm->rank == 0) {
    status = wm_read_text(j->words, LIMIT, &text, err);
    if (status == WM_OK)
      *h = wm_hash(text, strlen(text), *h);
  }
  free(text);
  status = wm_agree(j->run->comm->world, status, err);
  wm_broadcast(j->run->comm->world, 0, h, sizeof *h);
  return status;
}

/* Collective. Keys of all cases and of the result. */
static wm_status_t find_keys(wm_probe_job_t *j, wm_error_t *err) {
  const wm_arch_t *arch = wm_model_arch(j->in.model);
  uint64_t base = wm_probe_settings_key(j, wm_model_fingerprint(j->in.model));
  wm_compute_t compute = wm_compute_of(j->run);
  wm_status_t status = words_key(j, &base, err);
  if (status != WM_OK)
    return status;
  base = wm_hash(&compute, sizeof compute, base);
  j->key = base;
  for (int i = 0; i < j->n_cases; i++) {
    wm_probe_case_t *c = &j->cases[i];
    const wm_probe_corpus_t *corpus = &j->corpora[c->corpus];
    wm_surrogates_t *s = NULL;
    status = wm_surrogates_open(j->run->comm, j->corpora[c->fitted].surrogates, arch->n_layers,
                                arch->d_model, wm_config_int(j->run->config, "compute.tile_rows"),
                                compute, &s, err);
    if (status != WM_OK)
      return status;
    const uint64_t print = wm_surrogates_fingerprint(s);
    wm_surrogates_close(s);
    c->key = wm_hash(&print, sizeof print, base);
    c->key = wm_text_fingerprint(&corpus->in.text[WM_ROLE_EVALUATION], c->key);
    c->key = wm_hash(corpus->name, strlen(corpus->name), c->key);
    c->key = wm_hash(&c->brief, sizeof c->brief, c->key);
    j->key = wm_hash(&c->key, sizeof c->key, j->key);
  }
  j->key = wm_hash(j->layers, (size_t)j->n_layers * sizeof *j->layers, j->key);
  j->complete = wm_stage_is_complete(j->run, j->path, j->key);
  return WM_OK;
}

/* --- one case -----------------------------------------------------------------------------------
 */

/* How many layers' rows a rank holds at once, at most `missing`. */
static wm_status_t plan_group(const wm_probe_job_t *j, const wm_probe_corpus_t *c, int64_t missing,
                              int64_t *group, int64_t *bytes, wm_error_t *err) {
  const wm_blocks_t *blocks = &c->in.text[WM_ROLE_EVALUATION].blocks;
  const int64_t d = wm_model_arch(j->in.model)->d_model;
  int64_t most;
  wm_features_rows(j->run->comm, blocks, &most);
  const int64_t fixed = 3 * most * d * (int64_t)sizeof(float);
  *group = wm_probe_rows_group(most, c->text.n, missing, d, j->memory_bytes);
  *bytes = wm_probe_rows_bytes(most, c->text.n, *group, d) +
           wm_probe_layer_bytes(&j->options, most, c->text.n, d);
  if (*group > 0 || missing == 0)
    return WM_OK;
  return wm_fail(err, WM_USAGE,
                 "probe.memory_gib = %.3f is too little: the rows of one layer of %s take %.3f GiB "
                 "a rank; more ranks would share them",
                 (double)j->memory_bytes / 0x1p30, c->name,
                 (double)(fixed + wm_probe_rows_bytes(most, c->text.n, 1, d)) / 0x1p30);
}

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Classes of the positions, from their place, their token and what the layer norm divides by.
 * sorted: [N] scratch. */
static void classify(const wm_probe_job_t *j, const wm_probe_corpus_t *c, double *sorted,
                     wm_probe_positions_t *p) {
  const wm_probe_text_t *t = &c->text;
  memcpy(sorted, p->factor, (size_t)p->n * sizeof *sorted);
  qsort(sorted, (size_t)p->n, sizeof *sorted, ascending);
  const double limit = wm_quantile_sorted(sorted, p->n, 0.5) / j->options.high_norm;
  for (int64_t i = 0; i < p->n; i++) {
    const wm_token_trait_t *trait = &c->traits.trait[wm_probe_token(t, WM_KEY_INPUT, i)];
    const bool end = strcmp(trait->spelling, "<|endoftext|>") == 0;
    p->classes[i] = (uint8_t)((t->position[i] == 0 ? WM_CLASS_POSITION0 : 0) |
                              (t->position[i] > 0 && t->position[i] < j->options.first_positions
                                   ? WM_CLASS_FIRST
                                   : 0) |
                              (end ? WM_CLASS_END_OF_TEXT : 0) |
                              (p->factor[i] < limit ? WM_CLASS_HIGH_NORM : 0));
    p->used[i] = isfinite(p->delta[i]) && (p->classes[i] & j->options.excluded) == 0;
  }
}

/* Positions of layer `index` of the rows. */
static void take_positions(const wm_probe_rows_t *r, int64_t index, wm_probe_positions_t *p) {
  const size_t bytes = (size_t)p->n * sizeof(double);
  memcpy(p->full, r->full, bytes);
  memcpy(p->entropy, r->entropy, bytes);
  memcpy(p->divergence, r->divergence + index * p->n, bytes);
  memcpy(p->agreed, r->agreed + index * p->n, bytes);
  memcpy(p->factor, r->factor + index * p->n, bytes);
  for (int64_t i = 0; i < p->n; i++) {
    p->delta[i] = r->linear[index * p->n + i] - r->full[i];
    p->cluster[i] = -1;
  }
}

/* What a case works with. */
typedef struct {
  wm_probe_rows_t rows;
  wm_probe_positions_t positions;
  double *factor;                         /* [n] of this rank's rows */
  double *score;                          /* [N] */
  int8_t *label;                          /* [N] */
  float *work;                            /* [3, n, D] */
  double passes, seconds[WM_PROBE_TIMES]; /* of this rank */
} room_t;

static wm_status_t open_room(const wm_probe_job_t *j, const wm_probe_corpus_t *c, int64_t group,
                             room_t *room, wm_error_t *err) {
  const int64_t d = wm_model_arch(j->in.model)->d_model, n = c->text.n;
  wm_status_t status;
  void *memory;
  WM_TRY(wm_probe_rows_create(j->run->comm, &c->in.text[WM_ROLE_EVALUATION].blocks, d, group,
                              &room->rows, err));
  WM_TRY(wm_probe_positions_create(n, &room->positions, err));
  WM_TRY(wm_alloc(&memory, room->rows.n, sizeof(double), "probes", err));
  room->factor = memory;
  WM_TRY(wm_alloc(&memory, n, sizeof(double), "probes", err));
  room->score = memory;
  WM_TRY(wm_alloc(&memory, n, sizeof(int8_t), "probes", err));
  room->label = memory;
  WM_TRY(wm_alloc(&memory, 3 * room->rows.n * d, sizeof(float), "parts of MLP inputs", err));
  room->work = memory;
cleanup:
  return status;
}

static void close_room(room_t *room) {
  wm_probe_rows_destroy(&room->rows);
  wm_probe_positions_destroy(&room->positions);
  free(room->factor);
  free(room->score);
  free(room->label);
  free(room->work);
}

/* Collective. Probes of layer number `index` of the rows, into its part. */
static wm_status_t probe_layer(const wm_probe_job_t *j, const wm_probe_case_t *k, room_t *room,
                               int64_t index, wm_progress_t *progress, wm_error_t *err) {
  const wm_probe_corpus_t *c = &j->corpora[k->corpus];
  const wm_probe_rows_t *r = &room->rows;
  wm_probe_positions_t *p = &room->positions;
  wm_probe_tables_t tables;
  wm_probe_layer_t l = {.comm = j->run->comm,
                        .options = &j->options,
                        .text = &c->text,
                        .traits = &c->traits,
                        .corpus = c->name,
                        .surrogates = k->kind,
                        .layer = r->layers[index],
                        .d = r->d,
                        .brief = k->brief,
                        .delta = p->delta,
                        .entropy = p->entropy,
                        .divergence = p->divergence,
                        .agreed = p->agreed,
                        .classes = p->classes,
                        .used = p->used,
                        .n = r->n,
                        .place = r->place,
                        .block = r->block,
                        .x = r->x + index * r->n * r->d,
                        .e = r->e,
                        .factor = room->factor,
                        .work = room->work,
                        .score = room->score,
                        .label = room->label,
                        .cluster = p->cluster,
                        .seconds = room->seconds,
                        .progress = progress};
  wm_model_mlp_norm(j->in.model, l.layer, &l.gamma, &l.beta, &l.eps);
  take_positions(r, index, p);
  classify(j, c, room->score, p);
  for (int64_t i = 0; i < r->n; i++)
    room->factor[i] = p->factor[r->place[i]];
  wm_probe_tables_init(&tables);
  wm_status_t status = wm_probe_layer(&l, &tables, err);
  if (status == WM_OK)
    status = wm_probe_part_write(j->run->comm, k->parts, l.layer, k->key, p, &tables, err);
  wm_probe_tables_destroy(&tables);
  return status;
}

/* Layers of a case that have no part yet. Collective. */
static int64_t list_missing(const wm_probe_job_t *j, const wm_probe_case_t *k, int64_t *missing) {
  int64_t n = 0;
  for (int64_t i = 0; i < j->n_layers; i++)
    if (!wm_probe_part_is_there(j->run->comm, k->parts, j->layers[i], k->key, j->run->log))
      missing[n++] = j->layers[i];
  return n;
}

/* Where a case's time went, on rank 0. */
static void log_times(const wm_probe_job_t *j, const char *name, int64_t layers, bool brief,
                      const room_t *room) {
  char text[256];
  int used = snprintf(text, sizeof text, "losses and inputs %.1f s", room->passes);
  for (int i = 0; i < (brief ? 1 : WM_PROBE_TIMES); i++)
    used += snprintf(text + used, sizeof text - (size_t)used, ", %s %.1f s",
                     wm_probe_time_name((wm_probe_time_t)i), room->seconds[i]);
  wm_log(j->run->log, WM_LOG_INFO, "%s: %" PRId64 " layers: %s", name, layers, text);
}

/* Collective. The missing layers of a case, a group after another. */
static wm_status_t run_groups(const wm_probe_job_t *j, const wm_probe_case_t *k,
                              const int64_t *missing, int64_t n, int64_t group, room_t *room,
                              const wm_surrogates_t *surrogates, wm_error_t *err) {
  const wm_probe_corpus_t *c = &j->corpora[k->corpus];
  const wm_text_t *text = &c->in.text[WM_ROLE_EVALUATION];
  const int64_t steps = wm_probe_steps(&j->options, k->brief);
  wm_progress_t passes, probes = {0};
  wm_h5_t *features = NULL;
  char name[96];
  wm_status_t status = WM_OK;
  snprintf(name, sizeof name, "probe %.60s.%s", c->name, k->kind);
  for (int64_t first = 0; first < n; first += group) {
    const int64_t count = n - first < group ? n - first : group;
    const double start = wm_seconds();
    wm_progress_start(&passes, j->run->log, "losses and inputs", "positions", c->text.n);
    WM_TRY(wm_probe_rows_collect(&room->rows, j->run->comm, j->in.model, surrogates, &text->blocks,
                                 wm_tokens_ids(text->tokens), missing + first, count, &j->stack,
                                 &passes, err));
    wm_progress_finish(&passes);
    room->passes += wm_seconds() - start;
    if (first == 0) { /* the pass says nothing of how fast probes are */
      wm_progress_start(&probes, j->run->log, name, "steps", j->n_layers * steps);
      wm_progress_resume(&probes, (j->n_layers - n) * steps);
    }
    if (!k->brief)
      WM_TRY(wm_probe_keep_features(j, c, &room->rows, first, n, &features, err));
    for (int64_t i = 0; i < count; i++) {
      WM_TRY(probe_layer(j, k, room, i, &probes, err));
      wm_progress_update(&probes, (j->n_layers - n + first + i + 1) * steps);
    }
  }
  wm_progress_finish(&probes);
  log_times(j, name, n, k->brief, room);
  if (features != NULL) {
    wm_h5_t *whole = features;
    features = NULL; /* publishing takes it */
    WM_TRY(wm_h5_publish(whole, err));
  }
cleanup:
  wm_h5_close(features);
  return status;
}

/* Collective. */
static wm_status_t run_case(wm_probe_job_t *j, const wm_probe_case_t *k, int64_t *missing,
                            wm_error_t *err) {
  const wm_probe_corpus_t *c = &j->corpora[k->corpus];
  const wm_arch_t *arch = wm_model_arch(j->in.model);
  const wm_comm_t *comm = j->run->comm;
  wm_surrogates_t *surrogates = NULL;
  room_t room = {0};
  int64_t group = 0, bytes;
  const int64_t n = list_missing(j, k, missing);
  wm_status_t status = WM_OK;
  if (n == 0)
    return WM_OK;
  status = plan_group(j, c, n, &group, &bytes, err);
  if (status == WM_OK && comm->node_rank == 0)
    status = wm_memory_room_check(bytes * comm->node_size, "rows and probes of layers", err);
  WM_TRY(wm_agree(comm->world, status, err));
  WM_TRY(wm_surrogates_open(comm, j->corpora[k->fitted].surrogates, arch->n_layers, arch->d_model,
                            wm_config_int(j->run->config, "compute.tile_rows"),
                            wm_compute_of(j->run), &surrogates, err));
  WM_TRY(wm_agree(comm->world, open_room(j, c, group, &room, err), err));
  WM_TRY(run_groups(j, k, missing, n, group, &room, surrogates, err));
cleanup:
  close_room(&room);
  wm_surrogates_close(surrogates);
  return status;
}

/* --- all cases ----------------------------------------------------------------------------------
 */

static wm_status_t make_deltas(wm_probe_job_t *j, wm_probe_case_t *k, wm_error_t *err) {
  const int64_t n = j->corpora[k->corpus].text.n * j->n_layers;
  void *memory;
  wm_status_t status = wm_alloc(&memory, n, sizeof(double), "deltas", err);
  k->delta = memory;
  if (status == WM_OK)
    status = wm_alloc(&memory, n, 1, "deltas", err);
  if (status == WM_OK)
    k->used = memory;
  return status;
}

/* Collective. Tables and deltas of a case from its parts. */
static wm_status_t read_case(wm_probe_job_t *j, wm_probe_case_t *k, wm_error_t *err) {
  const int64_t n = j->corpora[k->corpus].text.n;
  wm_probe_positions_t p = {0};
  wm_status_t status = make_deltas(j, k, err);
  if (status == WM_OK)
    status = wm_probe_positions_create(n, &p, err);
  WM_TRY(wm_agree(j->run->comm->world, status, err));
  for (int64_t i = 0; i < j->n_layers; i++) {
    WM_TRY(wm_probe_part_read(j->run->comm, k->parts, j->layers[i], &p, &j->tables, err));
    memcpy(k->delta + i * n, p.delta, (size_t)n * sizeof(double));
    memcpy(k->used + i * n, p.used, (size_t)n);
  }
cleanup:
  wm_probe_positions_destroy(&p);
  return status;
}

static wm_probe_side_t side_of(const wm_probe_job_t *j, const wm_probe_case_t *k, int64_t index) {
  const wm_probe_corpus_t *c = &j->corpora[k->corpus];
  return (wm_probe_side_t){c->name, &c->text, k->delta + index * c->text.n,
                           k->used + index * c->text.n};
}

/* Collective. Every pair of corpora, with surrogates of either kind. */
static wm_status_t compare_corpora(wm_probe_job_t *j, wm_error_t *err) {
  for (int shared = 0; shared < 2; shared++)
    for (int64_t i = 0; i < j->n_layers; i++)
      for (int a = 0; a < j->n_corpora; a++)
        for (int b = a + 1; b < j->n_corpora; b++) {
          const wm_probe_case_t *x = find_case(j, a, shared), *y = find_case(j, b, shared);
          if (x == NULL || y == NULL)
            continue;
          const wm_probe_side_t one = side_of(j, x, i), other = side_of(j, y, i);
          wm_status_t status =
              wm_probe_pair(j->run->comm, &j->options, j->layers[i], shared ? "shared" : "own",
                            &one, &other, &j->tables, err);
          if (status != WM_OK)
            return status;
        }
  return wm_agree(j->run->comm->world, wm_probe_tables_status(&j->tables, err), err);
}

static void remove_parts(const wm_probe_job_t *j) {
  char path[WM_PATH_SIZE];
  wm_error_t ignored = {0};
  for (int i = 0; i < j->n_cases; i++)
    wm_probe_parts_remove(j->run->comm, j->cases[i].parts);
  if (j->run->comm->rank == 0 && wm_output_path(j->run, "probe.parts", path, &ignored) == WM_OK)
    rmdir(path); /* if nothing else is in it */
}

/* Collective. */
static wm_status_t compute(wm_probe_job_t *j, wm_error_t *err) {
  void *missing = NULL;
  wm_status_t status = wm_alloc(&missing, j->n_layers, sizeof(int64_t), "layers", err);
  WM_TRY(wm_agree(j->run->comm->world, status, err));
  for (int i = 0; i < j->n_cases; i++)
    WM_TRY(run_case(j, &j->cases[i], missing, err));
  for (int i = 0; i < j->n_cases; i++)
    WM_TRY(read_case(j, &j->cases[i], err));
  WM_TRY(compare_corpora(j, err));
  WM_TRY(wm_probe_write(j, err));
  remove_parts(j);
cleanup:
  free(missing);
  return status;
}

/* Collective. The tables of a run that is complete. */
static wm_status_t read_result(wm_probe_job_t *j, wm_error_t *err) {
  wm_h5_t *file = NULL;
  wm_log(j->run->log, WM_LOG_INFO, "probe: %s is complete for these inputs; skipped", j->path);
  wm_status_t status = wm_h5_open(j->run->comm->world, j->path, &file, err);
  if (status == WM_OK)
    status = wm_probe_tables_read(&j->tables, j->run->comm->world, file, err);
  wm_h5_close(file);
  return status;
}

/* --- dry run ------------------------------------------------------------------------------------
 */

static double case_flops(const wm_probe_job_t *j, const wm_probe_corpus_t *c, bool brief,
                         double *algebra) {
  const wm_arch_t *a = wm_model_arch(j->in.model);
  const double n = (double)c->text.n, d = (double)a->d_model, layers = (double)j->n_layers;
  double passes = (double)a->n_layers, views = 0;
  for (int64_t i = 0; i < j->n_layers; i++)
    passes += (double)(a->n_layers - 1 - j->layers[i]);
  for (int v = 0; v < WM_VIEWS; v++)
    views += j->options.views[v];
  /* Wide fits: x thrice and five a view for two labels. */
  const double fits = brief ? 0 : 3 + 10 * views;
  *algebra += layers * fits *
              (WM_PLAN_HESSIANS * j->train_share * n * d * d + WM_PLAN_NEWTON * d * d * d / 3);
  if (!brief)
    *algebra += layers * (n * d * d + 9 * d * d * d);
  return n * (passes * wm_arch_flops_layer(a) + (layers + 1) * wm_arch_flops_head(a)) +
         (brief ? 0 : layers * 6 * n * d * (double)(j->options.hidden * 100));
}

/* On every rank; rank 0 prints. */
static wm_status_t explain(const wm_probe_job_t *j, wm_error_t *err) {
  double flops = 0, algebra = 0;
  int64_t most = 0;
  char duration[32];
  for (int i = 0; i < j->n_cases; i++) {
    const wm_probe_corpus_t *c = &j->corpora[j->cases[i].corpus];
    int64_t group, bytes;
    wm_status_t status = plan_group(j, c, j->n_layers, &group, &bytes, err);
    if (status != WM_OK)
      return status;
    most = bytes > most ? bytes : most;
    flops += case_flops(j, c, j->cases[i].brief, &algebra);
    if (j->run->comm->rank == 0)
      fprintf(j->run->out,
              "probe: %s, %s surrogates: %" PRId64 " positions, %" PRId64 " units (%s), %" PRId64
              " layers in %" PRId64 " pass(es)%s\n",
              c->name, j->cases[i].kind, c->text.n, c->text.n_units,
              wm_unit_name(c->text.unit_kind), j->n_layers, (j->n_layers + group - 1) / group,
              j->cases[i].brief ? "; types across corpora alone" : "");
  }
  if (j->run->comm->rank != 0)
    return WM_OK;
  wm_stage_duration(j->run, flops, 3 * algebra, duration, sizeof duration);
  fprintf(j->run->out,
          "probe: %s\n  memory: %.1f MiB a rank beside the network's workspace\n  %.3g operations "
          "in the network, %.3g in float64; about %s\n",
          j->complete ? "complete, would be skipped" : j->path, (double)most / 0x1p20, flops,
          algebra, duration);
  return WM_OK;
}

/* --- job ----------------------------------------------------------------------------------------
 */

static void close_job(wm_probe_job_t *j) {
  for (int i = 0; i < j->n_corpora; i++) {
    wm_probe_corpus_t *c = &j->corpora[i];
    for (int r = 0; r < WM_ROLES; r++) {
      wm_blocks_destroy(&c->in.text[r].blocks);
      wm_windows_destroy(&c->in.text[r].windows);
    }
    wm_probe_text_destroy(&c->text);
    wm_token_traits_destroy(&c->traits);
  }
  for (int i = 0; i < j->n_cases; i++) {
    free(j->cases[i].delta);
    free(j->cases[i].used);
  }
  wm_probe_tables_destroy(&j->tables);
  free(j->layers);
  wm_inputs_close(&j->in);
}

/* Collective. All but the corpora's tokens. */
static wm_status_t run_probe(wm_probe_job_t *j, wm_error_t *err) {
  const wm_comm_t *comm = j->run->comm;
  bool fitted = false;
  wm_status_t status;
  WM_TRY(wm_agree(comm->world, wm_inputs_begin(j->run, &j->in, err), err));
  WM_TRY(wm_agree(comm->world, wm_probe_settings(j, err), err));
  WM_TRY(wm_agree(comm->world, wm_probe_open_corpora(j, err), err));
  WM_TRY(fit_all(j, &fitted, err));
  WM_TRY(wm_agree(comm->world, list_cases(j, err), err));
  if (fitted)
    WM_TRY(find_keys(j, err));
  if (j->run->dry_run)
    return wm_agree(comm->world, explain(j, err), err);
  WM_TRY(j->complete ? read_result(j, err) : compute(j, err));
  if (comm->rank == 0)
    status = wm_output_shown(j->run, wm_probe_print(j, err));
  WM_TRY(wm_agree(comm->world, status, err));
cleanup:
  return status;
}

wm_status_t wm_job_probe(const wm_run_t *run, wm_error_t *err) {
  bool complete = false;
  wm_status_t status = wm_output_ready(run, err);
  if (status == WM_OK)
    status = wm_stage_tokenize(run, &complete, err);
  if (status == WM_OK && !complete && run->comm->rank == 0)
    fprintf(run->out, "probe: can be planned when the corpora are tokenised\n");
  if (status != WM_OK || !complete)
    return status;
  void *memory;
  status =
      wm_agree(run->comm->world, wm_alloc(&memory, 1, sizeof(wm_probe_job_t), "probes", err), err);
  if (status != WM_OK)
    return status;
  wm_probe_job_t *j = memory;
  j->run = run;
  wm_probe_tables_init(&j->tables);
  status = run_probe(j, err);
  close_job(j);
  free(j);
  return status;
}
