/* Are the tables of result files such that sections can take them at their word? Checksums say that
 * a file is as it was written; these checks, that it was written with the tables, members and kinds
 * of numbers that are read here, and that files in one directory belong together. */
#include "results_internal.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/measure/gates.h"
#include "wanamaker/measure/records.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- members --------------------------------------------------------------------------------- */

static const wm_frame_column_t *column_of(const wm_frame_t *f, const char *name, size_t length) {
  for (int c = 0; c < f->n_columns; c++)
    if (strlen(f->columns[c].name) == length && strncmp(f->columns[c].name, name, length) == 0)
      return &f->columns[c];
  return NULL;
}

/* members: names with a blank between, "#" in front of those that hold numbers. */
static wm_status_t has_members(const wm_frame_t *f, const char *members, const char *what,
                               wm_error_t *err) {
  for (const char *at = members; *at != '\0';) {
    const bool number = *at == '#';
    const char *name = at + number;
    const size_t length = strcspn(name, " ");
    const wm_frame_column_t *c = column_of(f, name, length);
    if (c == NULL)
      return wm_fail(err, WM_INPUT, "%s: there is no \"%.*s\"", what, (int)length, name);
    if ((c->numbers != NULL) != number)
      return wm_fail(err, WM_INPUT, "%s: \"%.*s\" must hold %s", what, (int)length, name,
                     number ? "numbers" : "text");
    at = name + length + (name[length] == ' ');
  }
  return WM_OK;
}

/* Numbers that mean the same in every table. */
static wm_status_t has_sense(const wm_frame_t *f, const char *what, wm_error_t *err) {
  static const char *const probabilities[] = {"p_two_sided", "p_holm", "p_bh"};
  enum { MOST_LAYERS = 1000000 };
  for (int64_t i = 0; i < f->n; i++) {
    const double layer = wm_frame_number(f, i, "layer"),
                 change = wm_frame_number(f, i, "delta_pct");
    if (layer < 0 || layer >= MOST_LAYERS || (!isnan(layer) && layer != floor(layer)))
      return wm_fail(err, WM_INPUT, "%s, row %lld: %.17g is no layer", what, (long long)i, layer);
    if (wm_frame_number(f, i, "low") > wm_frame_number(f, i, "high"))
      return wm_fail(err, WM_INPUT, "%s, row %lld: the interval's ends are exchanged", what,
                     (long long)i);
    if (change <= -100)
      return wm_fail(err, WM_INPUT, "%s, row %lld: a change of perplexity by %.6g %%", what,
                     (long long)i, change);
    for (size_t k = 0; k < sizeof probabilities / sizeof probabilities[0]; k++) {
      const double p = wm_frame_number(f, i, probabilities[k]);
      if (p < 0 || p > 1)
        return wm_fail(err, WM_INPUT, "%s, row %lld: %s of %.6g", what, (long long)i,
                       probabilities[k], p);
    }
  }
  return WM_OK;
}

static wm_status_t check_table(const wm_results_t *r, wm_file_kind_t kind, const char *name,
                               const wm_frame_t *f, const char *members, wm_error_t *err) {
  char *what = wm_format("%s/%s: %s", r->dir, r->files[kind].name, name);
  if (what == NULL)
    return wm_fail(err, WM_ENVIRONMENT, "cannot allocate a message");
  wm_status_t status = has_members(f, members, what, err);
  if (status == WM_OK)
    status = has_sense(f, what, err);
  free(what);
  return status;
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* A layer may be there once. */
static wm_status_t check_layers(const wm_results_t *r, wm_file_kind_t kind, const wm_frame_t *f,
                                wm_error_t *err) {
  for (int64_t i = 0; i < f->n; i++)
    if (isnan(wm_frame_number(f, i, "layer")) ||
        (i > 0 && wm_frame_number(f, i - 1, "layer") >= wm_frame_number(f, i, "layer")))
      return wm_fail(err, WM_INPUT, "%s/%s: /layers do not ascend", r->dir, r->files[kind].name);
  return WM_OK;
}

/* "3", "0,5", "1-3", "all": not longer than a layer's number is. */
static bool is_layer_text(const char *layers) {
  enum { MOST_DIGITS = 6 };
  while (*layers != '\0') {
    const size_t digits = strspn(layers, "0123456789");
    if (digits > MOST_DIGITS)
      return false;
    layers += digits > 0 ? digits : 1;
  }
  return true;
}

static wm_status_t check_sweep(const wm_results_t *r, wm_error_t *err) {
  const char *dir = r->dir, *name = r->files[WM_FILE_SWEEP].name;
  for (int64_t v = 0; v < r->variants.n; v++) {
    const char *layers = wm_frame_text(&r->variants, v, "layers");
    if (!is_layer_text(layers))
      return wm_fail(err, WM_INPUT, "%s/%s: /variants, row %lld: \"%s\" are no layers", dir, name,
                     (long long)v, layers);
    for (int64_t w = 0; w < v; w++)
      if (wm_variant_layer(&r->variants, v) >= 0 &&
          wm_variant_layer(&r->variants, v) == wm_variant_layer(&r->variants, w))
        return wm_fail(err, WM_INPUT, "%s/%s: /variants: rows %lld and %lld are the same layer's",
                       dir, name, (long long)w, (long long)v);
  }
  for (int64_t c = 0; c < r->changes.n; c++) {
    const double variant = wm_frame_number(&r->changes, c, "variant");
    if (!(variant >= 0 && variant < (double)r->variants.n) ||
        !(wm_frame_number(&r->changes, c, "layer") >= 0))
      return wm_fail(err, WM_INPUT, "%s/%s: /changes, row %lld: no such variant or layer", dir,
                     name, (long long)c);
  }
  if (r->n_tokens < 1 || r->n_units < 1)
    return wm_fail(err, WM_INPUT, "%s/%s: no token, or no unit of tokens, has a loss", dir, name);
  return WM_OK;
}

static wm_status_t check_gates(const wm_results_t *r, wm_error_t *err) {
  for (int64_t i = 0; i < r->gate_layers.n; i++) {
    const double gate = wm_frame_number(&r->gate_layers, i, "gate");
    if (!(gate >= -1 && gate < (double)r->gates.n))
      return wm_fail(err, WM_INPUT, "%s/%s: /selected/gate: there is no gate %.17g", r->dir,
                     r->files[WM_FILE_GATES].name, gate);
  }
  if (r->ends_token != NULL && r->ends_dims[0] != r->gate_layers.n)
    return wm_fail(err, WM_INPUT, "%s/%s: extents of /layers and /ends do not agree", r->dir,
                   r->files[WM_FILE_GATES].name);
  return check_layers(r, WM_FILE_GATES, &r->gate_layers, err);
}

/* ---- trainings ------------------------------------------------------------------------------- */

/* A row for every step, with times that can be. */
static wm_status_t check_timing(const wm_results_t *r, wm_file_kind_t kind,
                                const wm_training_result_t *t, wm_error_t *err) {
  const char *steps = wm_attribute(&r->files[kind].attributes, "steps");
  if (t->timing.n_columns == 0) /* of versions that did not write it */
    return WM_OK;
  wm_status_t status = check_table(r, kind, "/timing", &t->timing, "#seconds #exposed", err);
  if (status == WM_OK && strtoll(steps, NULL, 10) != t->timing.n)
    status = wm_fail(err, WM_INPUT, "%s/%s: /timing has %lld rows for %s steps", r->dir,
                     r->files[kind].name, (long long)t->timing.n, steps[0] != '\0' ? steps : "no");
  for (int64_t i = 0; i < t->timing.n && status == WM_OK; i++) {
    const double seconds = wm_frame_number(&t->timing, i, "seconds");
    const double exposed = wm_frame_number(&t->timing, i, "exposed");
    if (!(seconds >= 0 && isfinite(seconds) && exposed >= 0 && isfinite(exposed)))
      status = wm_fail(err, WM_INPUT, "%s/%s: /timing, row %lld: a step of %.6g s, %.6g s exposed",
                       r->dir, r->files[kind].name, (long long)i, seconds, exposed);
  }
  return status;
}

static wm_status_t check_training(const wm_results_t *r, wm_file_kind_t kind,
                                  const wm_training_result_t *t, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int i = 0; i < t->n && status == WM_OK; i++) {
    char name[WM_FRAME_NAME + 16];
    snprintf(name, sizeof name, "/%s/table", t->ranges[i].name);
    status = check_table(r, kind, name, &t->ranges[i].table,
                         "name #step #hard #mean_nll #ppl #delta_pct #low #high", err);
  }
  return status == WM_OK ? check_timing(r, kind, t, err) : status;
}

/* ---- the comparison -------------------------------------------------------------------------- */

/* Characters of a range's name that a row's name has room for; the plan's row has the most. */
enum {
  ROOM_PLAN = 40,
  ROOM_CONTROL = WM_RECORD_LABEL - sizeof "control: ",
  ROOM_HARD = WM_RECORD_LABEL - sizeof "plan, gates that decide: "
};

/* Are two names one range's, of which one may have been cut short to `room`? */
static bool is_same_range(const char *a, const char *b, size_t room) {
  const size_t n = strlen(a), m = strlen(b), least = n < m ? n : m;
  return strncmp(a, b, least) == 0 && (n == m || least >= room);
}

/* A control, its plan and perhaps the plan with gates that decide, for every range. */
static bool is_in_order(const wm_frame_t *f, int64_t row) {
  const char *range, *before;
  const wm_compared_t what = wm_compared(f, row, &range), last = wm_compared(f, row - 1, &before);
  if (what == WM_COMPARED_NOTHING || range[0] == '\0')
    return false;
  if (what == WM_COMPARED_CONTROL)
    return row + 1 < f->n && last != WM_COMPARED_CONTROL;
  return row > 0 && last == what - 1 &&
         is_same_range(range, before, what == WM_COMPARED_PLAN ? ROOM_CONTROL : ROOM_HARD);
}

static wm_status_t check_compared(const wm_results_t *r, int64_t row, wm_error_t *err) {
  const wm_frame_t *f = &r->comparison;
  const char *range, *other, *name = r->files[WM_FILE_COMPARE].name;
  const wm_compared_t what = wm_compared(f, row, &range);
  const double ppl = wm_frame_number(f, row, "ppl"), units = wm_frame_number(f, row, "units");
  const double change = wm_frame_number(f, row, "delta_pct");
  if (!is_in_order(f, row) || wm_frame_number(f, row, "hard") != (what == WM_COMPARED_HARD))
    return wm_fail(err, WM_INPUT, "%s/%s: /comparison, row %lld: \"%s\" has no place here", r->dir,
                   name, (long long)row, wm_frame_text(f, row, "name"));
  for (int64_t i = 0; i < row && what == WM_COMPARED_PLAN; i++)
    if (wm_compared(f, i, &other) == what && strcmp(range, other) == 0 && strlen(range) < ROOM_PLAN)
      return wm_fail(err, WM_INPUT, "%s/%s: /comparison: rows %lld and %lld are the same range's",
                     r->dir, name, (long long)i, (long long)row);
  if (ppl <= 0 || !(units >= 0 && units <= INT32_MAX))
    return wm_fail(err, WM_INPUT,
                   "%s/%s: /comparison, row %lld: a perplexity of %.6g from %.6g units", r->dir,
                   name, (long long)row, ppl, units);
  const double expected = 100 * (ppl / wm_frame_number(f, row - (int64_t)what, "ppl") - 1);
  if (fabs(change - expected) > 1e-6 * (100 + fabs(expected))) /* false for NaN and overflow */
    return wm_fail(err, WM_INPUT,
                   "%s/%s: /comparison, row %lld: a change by %.6g %% where perplexities differ by "
                   "%.6g %%",
                   r->dir, name, (long long)row, change, expected);
  return WM_OK;
}

static wm_status_t check_comparison(const wm_results_t *r, wm_error_t *err) {
  wm_status_t status = WM_OK;
  if (r->comparison.n == 0)
    return wm_fail(err, WM_INPUT, "%s/%s: /comparison has no rows", r->dir,
                   r->files[WM_FILE_COMPARE].name);
  for (int64_t row = 0; row < r->comparison.n && status == WM_OK; row++)
    status = check_compared(r, row, err);
  return status;
}

/* ---- all files ------------------------------------------------------------------------------- */

wm_status_t wm_results_check(const wm_results_t *r, wm_file_kind_t kind, wm_error_t *err) {
  const struct {
    wm_file_kind_t kind;
    const char *name;
    const wm_frame_t *frame;
    bool may_lack; /* the job has written it only if asked to */
    const char *members;
  } tables[] = {
      {WM_FILE_SURROGATES, "/fit", &r->layers, false,
       "#layer #r2 #r2_heldout #weight_norm #condition #effective_rank"},
      {WM_FILE_SWEEP, "/variants", &r->variants, false,
       "layers path gate #threshold #ppl #delta_pct #low #high #p_two_sided #p_holm #p_bh "
       "#routed_fraction #saved_pct #kl #top1_agreement"},
      {WM_FILE_SWEEP, "/changes", &r->changes, false, "#variant #layer #gate #threshold"},
      {WM_FILE_GATES, "/selected and /labels", &r->gate_layers, false,
       "#layer #gate #selected_threshold #positions #positions_heldout #threshold #share #better "
       "#quartile"},
      {WM_FILE_GATES, "/gate", &r->gates, false,
       "#layer kind #components #threshold #parameters #auc #accuracy #routed #auc_heldout "
       "#auc_low #auc_high #accuracy_heldout #routed_heldout #fraction note"},
      {WM_FILE_GATES, "/curve", &r->curve, true,
       "#layer #gate #threshold #ppl #delta_pct #low #high #routed"},
      {WM_FILE_ALLOCATION, "/options", &r->options, false, "#layer #gate #threshold"},
      {WM_FILE_ALLOCATION, "/plans", &r->plans, false,
       "#delta_pct #sum_of_singles_pct #saved_pct #front"},
      {WM_FILE_ALLOCATION, "/budgets", &r->budgets, false, "#delta_pct #plan"},
      {WM_FILE_COMPARE, "/comparison", &r->comparison, false,
       "name #step #hard #mean_nll #ppl #delta_pct #low #high #p_two_sided #p_holm #units"},
      {WM_FILE_PROBES, "/context", &r->context, true,
       "corpus surrogates #layer label view gate key #auc #low #high"},
      {WM_FILE_PROBES, "/categories", &r->categories, true,
       "corpus surrogates #layer key category #n #share #mean #low #high #sd"},
      {WM_FILE_PROBES, "/correlations", &r->correlations, true,
       "corpus other surrogates #layer key #types #r #low #high"},
      {WM_FILE_PROBES, "/types", &r->types, true, "corpus surrogates #layer key #id #n #mean"},
      {WM_FILE_PROBES, "/regression", &r->regression, true,
       "corpus surrogates #layer key #r2 #r2_heldout #low #high"},
      {WM_FILE_PROBES, "/clusterings", &r->clusterings, true,
       "corpus surrogates #layer #k #auc #low #high #linear #nonlinear"}};
  wm_status_t status = WM_OK;
  for (size_t i = 0; i < sizeof tables / sizeof tables[0] && status == WM_OK; i++)
    if (tables[i].kind == kind && !(tables[i].may_lack && tables[i].frame->n_columns == 0))
      status = check_table(r, kind, tables[i].name, tables[i].frame, tables[i].members, err);
  if (status != WM_OK)
    return status;
  return kind == WM_FILE_SURROGATES ? check_layers(r, kind, &r->layers, err)
         : kind == WM_FILE_SWEEP    ? check_sweep(r, err)
         : kind == WM_FILE_GATES    ? check_gates(r, err)
         : kind == WM_FILE_FINETUNE ? check_training(r, kind, &r->training, err)
         : kind == WM_FILE_CONTROL  ? check_training(r, kind, &r->control, err)
         : kind == WM_FILE_COMPARE  ? check_comparison(r, err)
                                    : WM_OK;
}

/* ---- files that belong together -------------------------------------------------------------- */

/* "pca2": as sweeps call the gate of a row. */
static void label_of(const wm_frame_t *gates, int64_t row, char *text, size_t size) {
  wm_gate_t g = {.components = (int64_t)wm_frame_number(gates, row, "components"),
                 .fraction = wm_frame_number(gates, row, "fraction")};
  if (wm_gate_kind_parse(wm_frame_text(gates, row, "kind"), &g.kind))
    wm_gate_label(&g, text, size);
  else
    snprintf(text, size, "%s", wm_frame_text(gates, row, "kind"));
}

char *wm_results_other_gates(const wm_results_t *r) {
  for (int64_t c = 0; c < r->changes.n; c++) {
    const double gate = wm_frame_number(&r->changes, c, "gate");
    const double layer = wm_frame_number(&r->changes, c, "layer");
    const int64_t variant = (int64_t)wm_frame_number(&r->changes, c, "variant");
    char label[64] = "not there";
    if (!(gate >= 0) || !wm_change_is_alone(&r->changes, c)) /* sets may have gates of their own */
      continue;
    const char *swept = wm_frame_text(&r->variants, variant, "gate");
    if (gate < (double)r->gates.n)
      label_of(&r->gates, (int64_t)gate, label, sizeof label);
    if (strcmp(label, swept) != 0 || wm_frame_number(&r->gates, (int64_t)gate, "layer") != layer)
      return wm_format(
          "%s/gates.h5: of another run of the job gate than sweep.h5, whose gate %g is "
          "%s of layer %g; here it is %s",
          r->dir, gate, swept, layer, label);
  }
  return NULL;
}

/* The last evaluation of a run on a range, with gates that decide or blend; -1: none. */
static int64_t last_of(const wm_frame_t *table, bool hard) {
  int64_t last = -1;
  for (int64_t i = 0; i < table->n; i++)
    if ((wm_frame_number(table, i, "hard") > 0) == hard)
      last = i;
  return last;
}

/* Why row `row` of the comparison is not of this run's end; NULL. */
static char *other_end(const wm_results_t *r, wm_file_kind_t kind, int64_t row) {
  const wm_training_result_t *t = kind == WM_FILE_CONTROL ? &r->control : &r->training;
  const char *file = r->files[kind].name, *range;
  const wm_compared_t what = wm_compared(&r->comparison, row, &range);
  int k = 0;
  wm_compared(&r->comparison, row - (int64_t)what + WM_COMPARED_PLAN, &range);
  while (k < t->n && !is_same_range(t->ranges[k].name, range, ROOM_PLAN))
    k++;
  if (k == t->n) /* more ranges than are read may have it */
    return t->n == WM_TRAINING_RANGES
               ? NULL
               : wm_format("%s/finetune.compare.h5: of other runs than %s, which has no range %s",
                           r->dir, file, range);
  const wm_frame_t *table = &t->ranges[k].table;
  const double ppl = wm_frame_number(&r->comparison, row, "ppl");
  const double own = wm_frame_number(table, last_of(table, what == WM_COMPARED_HARD), "ppl");
  if (ppl == own || (isnan(ppl) && isnan(own)) || fabs(ppl - own) <= 1e-9 * own)
    return NULL;
  return wm_format("%s/finetune.compare.h5: of other runs than %s, which ends with a perplexity of "
                   "%.10g on the range %s; here it is %.10g",
                   r->dir, file, own, range, ppl);
}

static char *other_run(const wm_results_t *r, wm_file_kind_t kind) {
  static const char *const same[] = {"tokens_seen", "chain"};
  const wm_attributes_t *own = &r->files[WM_FILE_COMPARE].attributes;
  const wm_attributes_t *run = &r->files[kind].attributes;
  char *why = NULL;
  for (int k = 0; k < 2; k++)
    if (strcmp(wm_attribute(own, same[k]), wm_attribute(run, same[k])) != 0)
      return wm_format(
          "%s/finetune.compare.h5: of other runs than %s, whose %s is %s; here it is %s", r->dir,
          r->files[kind].name, same[k], wm_attribute(run, same[k]), wm_attribute(own, same[k]));
  for (int64_t row = 0; row < r->comparison.n && why == NULL; row++) {
    const char *range;
    const bool control = wm_compared(&r->comparison, row, &range) == WM_COMPARED_CONTROL;
    if (control == (kind == WM_FILE_CONTROL))
      why = other_end(r, kind, row);
  }
  return why;
}

char *wm_results_other_runs(const wm_results_t *r) {
  char *why = NULL;
  if (r->files[WM_FILE_FINETUNE].state == WM_FILE_READ)
    why = other_run(r, WM_FILE_FINETUNE);
  if (why == NULL && r->files[WM_FILE_CONTROL].state == WM_FILE_READ)
    why = other_run(r, WM_FILE_CONTROL);
  return why;
}
