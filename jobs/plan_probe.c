/* The plan of the job probe: surrogates and probes of every corpus, and types across them. */
#include "plan_stages.h"
#include "probe.h"
#include "wanamaker/base/mem.h"

#include <string.h>

/* Steps (wm_machine_t) of a position in the sums of its type. */
enum { OF_TYPE = 5 };

/* A corpus's texts, of typical lengths. */
typedef struct {
  wm_windows_t fit, probed;
  wm_blocks_t fit_blocks, blocks;
  int64_t units;
} corpus_t;

typedef struct {
  wm_plan_at_t *at;
  wm_probe_options_t options;
  int64_t *layers, n_layers, views;
  corpus_t corpora[WM_MAX_CORPORA];
  int n;
} probes_t;

static void close_corpus(corpus_t *c) {
  wm_blocks_destroy(&c->fit_blocks);
  wm_blocks_destroy(&c->blocks);
  wm_windows_destroy(&c->fit);
  wm_windows_destroy(&c->probed);
}

static wm_status_t cut(const probes_t *p, const char *name, const char *member, wm_role_t role,
                       wm_windows_t *windows, wm_blocks_t *blocks, wm_error_t *err) {
  const wm_run_t *run = p->at->run;
  wm_range_t range;
  wm_status_t status = wm_probe_range(run, name, member, role, &range, err);
  if (status == WM_OK && range.kind == WM_RANGE_ABSENT)
    status = wm_fail(err, WM_USAGE, "probes need the range %s", wm_role_name(role));
  return status == WM_OK
             ? wm_plan_cut(run, p->at->w, &range,
                           wm_config_int(run->config, "compute.block_tokens"), windows, blocks, err)
             : status;
}

/* Those of probe.corpora; one while none is given. */
static wm_status_t open_corpora(probes_t *p, wm_error_t *err) {
  const wm_run_t *run = p->at->run;
  const char *wanted = wm_config_string(run->config, "probe.corpora"), *name;
  wm_status_t status = WM_OK;
  for (int64_t i = 0; (name = wm_config_name(run->config, "corpora.", i)) != NULL || i == 0; i++) {
    if (name != NULL && !wm_probe_wants(wanted, name))
      continue;
    if (p->n == WM_MAX_CORPORA)
      return wm_fail(err, WM_USAGE, "more than %d corpora", WM_MAX_CORPORA);
    corpus_t *c = &p->corpora[p->n++];
    const char *of = name != NULL ? name : "";
    WM_TRY(cut(p, of, "fit", WM_ROLE_FIT, &c->fit, &c->fit_blocks, err));
    WM_TRY(cut(p, of, "probe", WM_ROLE_EVALUATION, &c->probed, &c->blocks, err));
    WM_TRY(wm_plan_units(run, &c->probed, &c->units, err));
  }
cleanup:
  return status;
}

static wm_status_t add_fit(const probes_t *p, const corpus_t *c, wm_error_t *err) {
  wm_work_t work = p->at->w->work;
  wm_cost_t piece;
  work.fit = &c->fit_blocks;
  work.heldout = NULL;
  work.layers = p->layers;
  work.fit_layers = p->n_layers;
  wm_status_t status = wm_plan_fit(&work, p->at->m, p->at->l, &piece, err);
  if (status == WM_OK)
    wm_plan_add(p->at->total, &piece);
  return status;
}

static wm_status_t add_case(const probes_t *p, const corpus_t *c, bool brief, wm_error_t *err) {
  const wm_probe_options_t *o = &p->options;
  const wm_plan_probe_t probe = {
      .arch = &p->at->w->arch,
      .work = &p->at->w->work,
      .blocks = &c->blocks,
      .layers = p->layers,
      .n_layers = p->n_layers,
      .views = p->views,
      .resamples = o->bootstrap.resamples,
      .units = c->units,
      .components = o->components,
      .clusters = o->k,
      .restarts = o->restarts,
      .iterations = o->iterations,
      .hidden = o->hidden,
      .hidden_iterations = o->hidden_iterations,
      .train_share = wm_config_float(p->at->run->config, "probe.train_share"),
      .brief = brief,
      .memory_bytes = (int64_t)(wm_config_float(p->at->run->config, "probe.memory_gib") * 0x1p30),
      .options = o};
  wm_cost_t piece;
  wm_status_t status = wm_plan_probe(&probe, p->at->m, p->at->l, &piece, err);
  if (status == WM_OK)
    wm_plan_add(p->at->total, &piece);
  return status;
}

/* Types of two corpora by both keys: halves on every rank, resamples shared out. */
static void add_pairs(const probes_t *p, bool with_shared, bool with_own) {
  const wm_machine_t *m = p->at->m;
  const double ranks = (double)(p->at->l.nodes * p->at->l.ranks), kinds = with_shared + with_own;
  const double halvings = (double)p->options.halvings,
               resamples = (double)p->options.bootstrap.resamples;
  for (int a = 0; a < p->n; a++)
    for (int b = a + 1; b < p->n; b++) {
      const double n =
          (double)(p->corpora[a].probed.n_predicted + p->corpora[b].probed.n_predicted);
      p->at->total->seconds += kinds * (double)p->n_layers * WM_KEYS * n * OF_TYPE *
                               (halvings + resamples / ranks) / m->steps;
    }
}

static wm_status_t read_settings(probes_t *p, wm_error_t *err) {
  const wm_config_t *c = p->at->run->config;
  const int64_t n_layers = p->at->w->arch.n_layers;
  int64_t count;
  const int64_t *given = wm_config_ints(c, "probe.layers", &count);
  void *memory;
  wm_status_t status;
  WM_TRY(wm_probe_options_read(c, &p->options, err));
  for (int v = 0; v < WM_VIEWS; v++)
    p->views += p->options.views[v];
  WM_TRY(wm_alloc(&memory, n_layers, sizeof(int64_t), "layers", err));
  p->layers = memory;
  WM_TRY(wm_layer_list("probe.layers", given, count, n_layers, p->layers, &p->n_layers, err));
  WM_TRY(open_corpora(p, err));
cleanup:
  return status;
}

wm_status_t wm_plan_job_probe(wm_plan_at_t *at, wm_error_t *err) {
  const char *kinds = wm_config_string(at->run->config, "probe.surrogates");
  const bool own = strcmp(kinds, "shared") != 0, shared = strcmp(kinds, "own") != 0;
  probes_t p = {.at = at};
  wm_status_t status;
  WM_TRY(read_settings(&p, err));
  for (int i = 0; i < p.n; i++) {
    if (i == 0 || own) {
      WM_TRY(add_fit(&p, &p.corpora[i], err));
      WM_TRY(add_case(&p, &p.corpora[i], false, err));
    }
    if (i > 0 && shared)
      WM_TRY(add_case(&p, &p.corpora[i], own, err));
  }
  add_pairs(&p, shared, own);
  snprintf(at->note, WM_PLAN_NOTE, "at most: what iterates may end sooner");
cleanup:
  for (int i = 0; i < p.n; i++)
    close_corpus(&p.corpora[i]);
  free(p.layers);
  return status;
}
