/* Are the tables of result files such that sections can take them at their word? Checksums say that
 * a file is as it was written; these checks, that it was written with the tables, members and kinds
 * of numbers that are read here, and that files in one directory belong together. */
#include "results_internal.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/measure/gates.h"

#include <assert.h>
#include <math.h>
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

/* ---- files ----------------------------------------------------------------------------------- */

static wm_status_t check_training(const wm_results_t *r, wm_file_kind_t kind,
                                  const wm_training_result_t *t, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int i = 0; i < t->n && status == WM_OK; i++) {
    char name[WM_FRAME_NAME + 16];
    snprintf(name, sizeof name, "/%s/table", t->ranges[i].name);
    status = check_table(r, kind, name, &t->ranges[i].table,
                         "name #step #hard #mean_nll #ppl #delta_pct #low #high", err);
  }
  return status;
}

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
