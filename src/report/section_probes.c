/* Probes: token or context, categories by depth, one corpus against another. */
#include "probes_internal.h"
#include "wanamaker/base/mem.h"

#include <math.h>
#include <string.h>

bool wm_probe_is(const wm_frame_t *f, int64_t row, const char *member, const char *value) {
  return strcmp(wm_frame_text(f, row, member), value) == 0;
}

bool wm_probe_is_first(const wm_frame_t *f, int64_t row) {
  return wm_probe_is(f, row, "corpus", wm_frame_text(f, 0, "corpus")) &&
         wm_probe_is(f, row, "surrogates", wm_frame_text(f, 0, "surrogates"));
}

/* Tics at whole layers, not too many. */
static void put_layer_tics(FILE *f, const wm_frame_t *t) {
  double last = 0;
  for (int64_t i = 0; i < t->n; i++)
    last = fmax(last, wm_frame_number(t, i, "layer"));
  fprintf(f, "set xlabel 'layer'\nset xtics %d\n", last > 40 ? 4 : last > 16 ? 2 : 1);
}

void wm_probe_table(wm_page_t *page, int64_t model, const char *name, const char *caption,
                    const wm_frame_t *f, int n, const wm_column_t *columns,
                    const char *const *members, int heads) {
  char id[64];
  wm_table_t *t = f->n > 0 ? wm_page_table(page, columns, n) : NULL;
  for (int64_t i = 0; t != NULL && i < f->n; i++)
    for (int c = 0; c < n; c++)
      if (columns[c].align == WM_ALIGN_LEFT)
        wm_table_text(t, wm_frame_text(f, i, members[c]));
      else
        wm_table_float(t, wm_frame_number(f, i, members[c]));
  wm_page_put_table(page, t, wm_model_id(id, sizeof id, model, name), caption, heads, true);
}

/* ---- token or context ------------------------------------------------------------------------ */

static void put_gate(FILE *f, const wm_frame_t *t, const char *gate, const char *name,
                     double shift) {
  fprintf(f, "$%s << EOD\n", name);
  for (int64_t i = 0; i < t->n; i++) {
    const char *view = wm_frame_text(t, i, "view");
    if (!wm_probe_is_first(t, i) || !wm_probe_is(t, i, "label", "median") ||
        !wm_probe_is(t, i, "gate", gate) || strcmp(view, "study") == 0 ||
        strcmp(view, "normed") == 0)
      continue;
    fprintf(f, "%g", wm_frame_number(t, i, "layer") + shift);
    wm_figure_number(f, wm_frame_number(t, i, "auc"));
    wm_figure_number(f, wm_frame_number(t, i, "low"));
    wm_figure_number(f, wm_frame_number(t, i, "high"));
    fputc('\n', f);
  }
  fputs("NaN NaN NaN NaN\nEOD\n", f);
}

/* The study's AUCs of the same model, of the parts in the figure's order. */
static bool put_published(FILE *f, const wm_page_t *page, const wm_results_t *r) {
  static const char *const parts[] = {"full", "context_only", "token_only"};
  const wm_csv_t *p = &page->report->published->probes;
  const char *model = wm_results_study_model(r);
  bool any = false;
  fputs("$study << EOD\n", f);
  for (int64_t i = 0; i < p->n && model != NULL; i++) {
    if (strcmp(wm_csv_text(p, i, "model"), model) != 0 ||
        strcmp(wm_csv_text(p, i, "probe"), "auc_median") != 0)
      continue;
    for (int k = 0; k < 3; k++)
      if (strcmp(wm_csv_text(p, i, "quantity"), parts[k]) == 0) {
        fprintf(f, "%g", wm_csv_number(p, i, "layer") + 0.15 * (k - 1));
        wm_figure_number(f, wm_csv_number(p, i, "value"));
        fputc('\n', f);
        any = true;
      }
  }
  fputs("NaN NaN\nEOD\n", f);
  return any;
}

static void put_context(wm_page_t *page, int64_t model) {
  static const wm_column_t columns[] = {
      {"corpus", NULL, WM_ALIGN_LEFT, 0}, {"surrogates", NULL, WM_ALIGN_LEFT, 0},
      {"layer", NULL, WM_ALIGN_RIGHT, 0}, {"label", NULL, WM_ALIGN_LEFT, 0},
      {"view", NULL, WM_ALIGN_LEFT, 0},   {"gate on", NULL, WM_ALIGN_LEFT, 0},
      {"AUC", NULL, WM_ALIGN_RIGHT, 4},   {"from", NULL, WM_ALIGN_RIGHT, 4},
      {"to", NULL, WM_ALIGN_RIGHT, 4},    {"accuracy", NULL, WM_ALIGN_RIGHT, 4}};
  static const char *const members[] = {"corpus", "surrogates", "layer", "label", "view",
                                        "gate",   "auc",        "low",   "high",  "accuracy"};
  const wm_frame_t *t = &page->report->results[model].context;
  char id[64];
  wm_figure_t figure;
  if (t->n == 0 || !wm_page_figure(page, &figure, wm_model_id(id, sizeof id, model, "context"),
                                   "Context against token.", 340))
    return;
  wm_page_raw(page, "AUC of gates on the whole input, on its context part and on its token part, "
                    "on held-out positions of the first corpus, by layer.");
  put_gate(figure.script, t, "x", "one", -0.15);
  put_gate(figure.script, t, "c", "two", 0);
  put_gate(figure.script, t, "e", "three", 0.15);
  bool published = put_published(figure.script, page, &page->report->results[model]);
  put_layer_tics(figure.script, t);
  fprintf(figure.script,
          "set ylabel 'AUC, held out'\nset key top center horizontal outside\n"
          "set offsets 0.6, 0.6, 0, 0\n"
          "plot 0.5 with lines lw 1.5 dt 2 lc rgb " WM_MUTED " title 'chance',\\\n"
          " $one using 1:2:3:4 with yerrorbars pt 7 ps 0.8 lw 1.5 lc rgb " WM_FIRST
          " title 'whole input',\\\n"
          " $two using 1:2:3:4 with yerrorbars pt 6 ps 1 lw 1.5 lc rgb " WM_THIRD
          " title 'context part',\\\n"
          " $three using 1:2:3:4 with yerrorbars pt 8 ps 1 lw 1.5 lc rgb " WM_SECOND
          " title 'token part'%s\n",
          published ? ",\\\n $study using 1:2 with points pt 2 ps 0.8 lw 1.5 lc rgb " WM_MUTED
                      " title 'the study, in the same order'"
                    : "");
  wm_page_end_figure(page, &figure, id,
                     "If the rings (context) sit where the dots (whole input) are and the "
                     "triangles (token) lie lower, what the gate uses is the context. The parts "
                     "are exact: both are taken behind the layer norm.");
  wm_probe_table(page, model, "context", "Numbers: gates on parts of the input", t, 10, columns,
                 members, 2);
}

/* ---- corpora compared ------------------------------------------------------------------------ */

/* The row of the same type in another corpus; -1: it is not there. */
static int64_t same_type(const wm_frame_t *t, int64_t row) {
  const double *ids = wm_frame_numbers(t, "id"); /* there are many rows */
  for (int64_t i = row + 1; i < t->n && ids != NULL; i++)
    if (ids[i] == ids[row] && wm_frame_number(t, i, "layer") == wm_frame_number(t, row, "layer") &&
        wm_probe_is(t, i, "key", wm_frame_text(t, row, "key")) &&
        wm_probe_is(t, i, "surrogates", wm_frame_text(t, row, "surrogates")) &&
        !wm_probe_is(t, i, "corpus", wm_frame_text(t, row, "corpus")))
      return i;
  return -1;
}

static void draw_corpora(wm_page_t *page, int64_t model) {
  const wm_frame_t *t = &page->report->results[model].types;
  char id[64];
  wm_figure_t figure;
  int64_t n = 0, shown = 0;
  double layer = wm_frame_number(t, 0, "layer");
  for (int64_t i = 0; i < t->n; i++)
    n += wm_probe_is_first(t, i) && wm_probe_is(t, i, "key", "input") &&
         wm_frame_number(t, i, "layer") == layer && same_type(t, i) >= 0;
  if (n == 0 || !wm_page_figure(page, &figure, wm_model_id(id, sizeof id, model, "corpora"),
                                "Token types on two corpora.", 380))
    return;
  FILE *f = figure.script;
  fputs("$types << EOD\n", f);
  for (int64_t i = 0; i < t->n; i++) {
    int64_t other = -1;
    if (wm_probe_is_first(t, i) && wm_probe_is(t, i, "key", "input") &&
        wm_frame_number(t, i, "layer") == layer)
      other = same_type(t, i);
    if (other < 0)
      continue;
    wm_figure_number(f, wm_frame_number(t, i, "mean"));
    wm_figure_number(f, wm_frame_number(t, other, "mean"));
    fputc('\n', f);
    shown++;
  }
  fputs("EOD\n", f);
  wm_page_number(page, "types_on_both", (double)shown, 0);
  wm_page_raw(page, " types of input tokens with enough observations on both, layer ");
  wm_page_number(page, "types_layer", layer, 0);
  wm_page_raw(page, ".");
  fputs("set xlabel 'mean difference of losses on the first corpus, nats'\n"
        "set ylabel 'on the other corpus, nats'\nunset key\n"
        "set xzeroaxis lt 1 lc rgb " WM_GRID "\nset yzeroaxis lt 1 lc rgb " WM_GRID "\n"
        "plot x with lines dt 2 lc rgb " WM_MUTED
        ", $types using 1:2 with points pt 6 ps 0.5 lw 1 lc rgb " WM_FIRST "\n",
        f);
  wm_page_end_figure(page, &figure, id,
                     "Points along the dashed line: a type that is costly on one corpus is costly "
                     "on the other. A round cloud: what looks costly on one is chance, or the "
                     "corpora differ; the reliabilities in the table tell which.");
}

static void put_corpora(wm_page_t *page, int64_t model) {
  static const wm_column_t columns[] = {{"corpus", NULL, WM_ALIGN_LEFT, 0},
                                        {"other", NULL, WM_ALIGN_LEFT, 0},
                                        {"surrogates", NULL, WM_ALIGN_LEFT, 0},
                                        {"layer", NULL, WM_ALIGN_RIGHT, 0},
                                        {"by", "token", WM_ALIGN_LEFT, 0},
                                        {"types", NULL, WM_ALIGN_RIGHT, 0},
                                        {"r", NULL, WM_ALIGN_RIGHT, 3},
                                        {"from", NULL, WM_ALIGN_RIGHT, 3},
                                        {"to", NULL, WM_ALIGN_RIGHT, 3},
                                        {"reliability", NULL, WM_ALIGN_RIGHT, 3},
                                        {"of the other", NULL, WM_ALIGN_RIGHT, 3},
                                        {"r", "corrected", WM_ALIGN_RIGHT, 3},
                                        {"r", "the study's way", WM_ALIGN_RIGHT, 3}};
  static const char *const members[] = {
      "corpus", "other",       "surrogates",        "layer",     "key",    "types", "r", "low",
      "high",   "reliability", "reliability_other", "corrected", "r_study"};
  const wm_results_t *r = &page->report->results[model];
  draw_corpora(page, model);
  wm_probe_table(page, model, "corpora", "Numbers: token types across corpora", &r->correlations,
                 13, columns, members, 3);
}

/* ---- features and clusters ------------------------------------------------------------------- */

static void put_rest(wm_page_t *page, int64_t model) {
  static const wm_column_t regression[] = {
      {"corpus", NULL, WM_ALIGN_LEFT, 0},    {"surrogates", NULL, WM_ALIGN_LEFT, 0},
      {"layer", NULL, WM_ALIGN_RIGHT, 0},    {"by", "token", WM_ALIGN_LEFT, 0},
      {"features", NULL, WM_ALIGN_LEFT, 0},  {"R2", "training", WM_ALIGN_RIGHT, 4},
      {"R2", "held out", WM_ALIGN_RIGHT, 4}, {"from", NULL, WM_ALIGN_RIGHT, 4},
      {"to", NULL, WM_ALIGN_RIGHT, 4}};
  static const char *const regressed[] = {"corpus", "surrogates", "layer", "key", "features",
                                          "r2",     "r2_heldout", "low",   "high"};
  static const wm_column_t clusters[] = {
      {"corpus", NULL, WM_ALIGN_LEFT, 0},      {"surrogates", NULL, WM_ALIGN_LEFT, 0},
      {"layer", NULL, WM_ALIGN_RIGHT, 0},      {"clusters", NULL, WM_ALIGN_RIGHT, 0},
      {"linear", NULL, WM_ALIGN_RIGHT, 0},     {"nonlinear", NULL, WM_ALIGN_RIGHT, 0},
      {"R2", "by cluster", WM_ALIGN_RIGHT, 4}, {"AUC", "by cluster", WM_ALIGN_RIGHT, 4}};
  static const char *const clustered[] = {"corpus", "surrogates", "layer",   "k",
                                          "linear", "nonlinear",  "between", "auc"};
  const wm_results_t *r = &page->report->results[model];
  wm_probe_table(page, model, "regression", "Numbers: how much token features explain",
                 &r->regression, 9, regression, regressed, 2);
  wm_probe_table(page, model, "clusters", "Numbers: clusters of inputs", &r->clusterings, 8,
                 clusters, clustered, 2);
}

void wm_section_probes(wm_page_t *page, int64_t model) {
  if (page->report->results[model].files[WM_FILE_PROBES].state != WM_FILE_READ)
    return;
  wm_page_raw(page, "<h3>Token or context</h3>\n");
  put_context(page, model);
  wm_probe_categories(page, model);
  put_corpora(page, model);
  put_rest(page, model);
}
