/* Gates: routed against linear, demand, AUC, threshold curves, and the tokens at their ends. */
#include "page.h"
#include "wanamaker/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void gate_label(const wm_results_t *r, int64_t gate, char *text, size_t size) {
  const char *kind = wm_frame_text(&r->gates, gate, "kind");
  double components = wm_frame_number(&r->gates, gate, "components");
  if (components > 0)
    snprintf(text, size, "%s%g", strcmp(kind, "component") == 0 ? "pc" : kind, components);
  else
    snprintf(text, size, "%s", gate >= 0 ? kind : "none");
}

/* ---- routed against linear ------------------------------------------------------------------- */

static void fill_routed(wm_table_t *t, const wm_results_t *r) {
  for (int64_t i = 0; i < r->n_layers; i++) {
    const wm_layer_result_t *l = &r->layer_results[i];
    char gate[40];
    gate_label(r, l->gate, gate, sizeof gate);
    wm_table_int(t, l->layer);
    wm_table_float(t, wm_frame_number(&r->variants, l->linear, "delta_pct"));
    wm_table_text(t, gate);
    wm_table_float(t, l->threshold);
    wm_table_float(t, wm_frame_number(&r->variants, l->gated, "delta_pct"));
    wm_table_float(t, wm_frame_number(&r->variants, l->gated, "low"));
    wm_table_float(t, wm_frame_number(&r->variants, l->gated, "high"));
    wm_table_float(t, 100 * wm_frame_number(&r->variants, l->gated, "routed_fraction"));
    wm_table_float(t, wm_frame_number(&r->gates, l->gate, "auc_heldout"));
    wm_table_text(t, wm_frame_number(&r->variants, l->gated, "beats_full") > 0 ? "beats full" : "");
  }
}

static void put_pairs(FILE *f, const wm_results_t *r, bool gated) {
  fprintf(f, "$%s << EOD\n", gated ? "gated" : "linear");
  for (int64_t i = 0; i < r->n_layers; i++) {
    const wm_layer_result_t *l = &r->layer_results[i];
    int64_t row = gated ? l->gated : l->linear;
    fprintf(f, "%g", (double)l->layer + (gated ? 0.13 : -0.13));
    wm_figure_number(f, wm_frame_number(&r->variants, row, "delta_pct"));
    wm_figure_number(f, wm_frame_number(&r->variants, row, "low"));
    wm_figure_number(f, wm_frame_number(&r->variants, row, "high"));
    fputc('\n', f);
  }
  fputs("NaN NaN NaN NaN\nEOD\n", f);
}

static void draw_routed(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  char id[64];
  wm_figure_t figure;
  int64_t better = 0, both = 0;
  for (int64_t i = 0; i < r->n_layers; i++) {
    double linear = wm_frame_number(&r->variants, r->layer_results[i].linear, "delta_pct");
    double gated = wm_frame_number(&r->variants, r->layer_results[i].gated, "delta_pct");
    both += !isnan(linear) && !isnan(gated);
    better += gated < linear;
  }
  if (both == 0 || !wm_page_figure(page, &figure, wm_model_id(id, sizeof id, model, "routed"),
                                   "All positions linear against the chosen gate.", 360))
    return;
  wm_page_raw(page, "The gate costs less than replacing the layer everywhere in ");
  wm_page_number(page, "gate_cheaper_layers", (double)better, 0);
  wm_page_raw(page, " of ");
  wm_page_number(page, "gate_compared_layers", (double)both, 0);
  wm_page_raw(page, " layers.");
  put_pairs(figure.script, r, false);
  put_pairs(figure.script, r, true);
  bool published = wm_page_published(figure.script, page, r, "gate:best", "study");
  wm_axis_wide(figure.script, wm_costs_are_wide(page, r));
  fprintf(figure.script,
          "set xrange [-0.6:%g]\nset xtics %d\nset xlabel 'layer'\n"
          "set ylabel 'perplexity, %% above the full model'\nset key top center horizontal "
          "outside\nset xzeroaxis lt 1 lw 1 lc rgb " WM_INK "\n"
          "plot %s$linear using 1:2:3:4 with yerrorbars pt 5 ps 0.8 lw 1.5 lc rgb " WM_SECOND
          " title 'linear at every position',\\\n"
          " $gated using 1:2:3:4 with yerrorbars pt 6 ps 1.0 lw 1.5 lc rgb " WM_FIRST
          " title 'routed by the chosen gate'\n",
          (double)r->layer_results[r->n_layers - 1].layer + 0.6,
          r->n_layers > 40   ? 4
          : r->n_layers > 16 ? 2
                             : 1,
          published ? "$study using 1:2 with linespoints pt 2 ps 0.7 lw 1.2 dt 3 lc rgb " WM_MUTED
                      " title 'the study: best gate',\\\n "
                    : "");
  wm_page_end_figure(page, &figure, id,
                     "Squares: the layer's surrogate everywhere. Rings: only where the gate says "
                     "so, on text that the gate was not chosen on. A ring whose bar lies below "
                     "zero is a routed model that is better than the full one.");
}

static void put_routed(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  char id[64], confidence[40];
  wm_confidence_text(r, confidence, sizeof confidence);
  const wm_column_t columns[] = {
      {"layer", NULL, WM_ALIGN_RIGHT, 0},      {"all linear", "%", WM_ALIGN_RIGHT, 3},
      {"chosen gate", NULL, WM_ALIGN_LEFT, 0}, {"threshold", NULL, WM_ALIGN_RIGHT, 2},
      {"gated", "%", WM_ALIGN_RIGHT, 3},       {"from", confidence, WM_ALIGN_RIGHT, 3},
      {"to", confidence, WM_ALIGN_RIGHT, 3},   {"routed", "% of positions", WM_ALIGN_RIGHT, 1},
      {"AUC", "held out", WM_ALIGN_RIGHT, 4},  {"", NULL, WM_ALIGN_LEFT, 0}};
  draw_routed(page, model);
  wm_table_t *t = wm_page_table(page, columns, sizeof columns / sizeof columns[0]);
  if (t != NULL)
    fill_routed(t, r);
  wm_page_put_table(page, t, wm_model_id(id, sizeof id, model, "routed"),
                    "Numbers: all linear against the chosen gate", 1, true);
}

/* ---- all gates: AUC and demand --------------------------------------------------------------- */

static void put_gate_table(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  char id[64], confidence[40];
  wm_confidence_text(r, confidence, sizeof confidence);
  const wm_column_t columns[] = {{"layer", NULL, WM_ALIGN_RIGHT, 0},
                                 {"gate", NULL, WM_ALIGN_LEFT, 0},
                                 {"parameters", NULL, WM_ALIGN_RIGHT, 0},
                                 {"AUC", "held out", WM_ALIGN_RIGHT, 4},
                                 {"from", confidence, WM_ALIGN_RIGHT, 4},
                                 {"to", confidence, WM_ALIGN_RIGHT, 4},
                                 {"AUC", "fit", WM_ALIGN_RIGHT, 4},
                                 {"accuracy", "held out", WM_ALIGN_RIGHT, 4},
                                 {"need the MLP", "% of positions, held out", WM_ALIGN_RIGHT, 1},
                                 {"note", NULL, WM_ALIGN_LEFT, 0}};
  wm_table_t *t = wm_page_table(page, columns, sizeof columns / sizeof columns[0]);
  for (int64_t g = 0; t != NULL && g < r->gates.n; g++) {
    char gate[40];
    gate_label(r, g, gate, sizeof gate);
    wm_table_int(t, (int64_t)wm_frame_number(&r->gates, g, "layer"));
    wm_table_text(t, gate);
    wm_table_float(t, wm_frame_number(&r->gates, g, "parameters"));
    wm_table_float(t, wm_frame_number(&r->gates, g, "auc_heldout"));
    wm_table_float(t, wm_frame_number(&r->gates, g, "auc_low"));
    wm_table_float(t, wm_frame_number(&r->gates, g, "auc_high"));
    wm_table_float(t, wm_frame_number(&r->gates, g, "auc"));
    wm_table_float(t, wm_frame_number(&r->gates, g, "accuracy_heldout"));
    wm_table_float(t, 100 * (1 - wm_frame_number(&r->gates, g, "routed_heldout")));
    wm_table_text(t, wm_frame_text(&r->gates, g, "note"));
  }
  wm_page_put_table(page, t, wm_model_id(id, sizeof id, model, "gates"),
                    "Numbers: all gates, AUC and demand", 2, true);
}

/* Rows "x value low high" of the gates of one kind. Returns how many. */
static int64_t put_kind(FILE *f, const wm_results_t *r, const char *name, const char *kind,
                        double shift) {
  int64_t n = 0;
  fprintf(f, "$%s << EOD\n", name);
  for (int64_t g = 0; g < r->gates.n; g++) {
    char label[40];
    gate_label(r, g, label, sizeof label);
    if (strcmp(label, kind) != 0 || isnan(wm_frame_number(&r->gates, g, "auc_heldout")))
      continue;
    n++;
    fprintf(f, "%g", wm_frame_number(&r->gates, g, "layer") + shift);
    wm_figure_number(f, wm_frame_number(&r->gates, g, "auc_heldout"));
    wm_figure_number(f, wm_frame_number(&r->gates, g, "auc_low"));
    wm_figure_number(f, wm_frame_number(&r->gates, g, "auc_high"));
    fputc('\n', f);
  }
  fputs("NaN NaN NaN NaN\nEOD\n", f);
  return n;
}

/* The pca gate of most components. */
static void largest_pca(const wm_results_t *r, char *kind, size_t size) {
  double most = 0;
  snprintf(kind, size, "pca");
  for (int64_t g = 0; g < r->gates.n; g++)
    if (strcmp(wm_frame_text(&r->gates, g, "kind"), "pca") == 0 &&
        wm_frame_number(&r->gates, g, "components") > most) {
      most = wm_frame_number(&r->gates, g, "components");
      gate_label(r, g, kind, size);
    }
}

static void draw_auc(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  char id[64], kind[40];
  wm_figure_t figure;
  if (!wm_page_figure(page, &figure, wm_model_id(id, sizeof id, model, "auc"),
                      "How well gates tell positions apart.", 330))
    return;
  largest_pca(r, kind, sizeof kind);
  FILE *f = figure.script;
  put_kind(f, r, "one", "linear", -0.12);
  put_kind(f, r, "two", kind, 0.12);
  put_kind(f, r, "three", "norm", 0);
  wm_page_raw(page, "AUC on held-out positions, by layer.");
  fprintf(
      f,
      "set xlabel 'layer'\nset ylabel 'AUC, held out'\nset xrange [-0.6:%g]\n"
      "set key top center horizontal outside\n"
      "plot 0.5 with lines lw 1.5 dt 2 lc rgb " WM_MUTED " title 'chance',\\\n"
      " $one using 1:2:3:4 with yerrorbars pt 7 ps 0.8 lw 1.5 lc rgb " WM_FIRST
      " title 'linear',\\\n $two using 1:2:3:4 with yerrorbars pt 8 ps 1.0 lw 1.5 lc rgb " WM_SECOND
      " title ",
      (double)r->layer_results[r->n_layers - 1].layer + 0.6);
  wm_figure_label(f, kind);
  fputs(",\\\n $three using 1:2 with points pt 2 ps 0.8 lw 1.5 lc rgb " WM_MUTED
        " title 'norm of x alone'\n",
        f);
  wm_page_end_figure(
      page, &figure, id,
      "At 0.5 a gate knows nothing; at 1 it would sort all positions rightly by "
      "whether the surrogate serves. Bars are intervals over the bootstrap's units. "
      "Triangles: the regression on principal components, which is linear in x, too, "
      "and so can only win where the linear gate (dots) is overfitted; where it lies "
      "lower, the components that it has do not hold what the gate uses.");
}

static void draw_demand(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  static const struct {
    const char *name;
    double from, to;
    int pattern;
  } tiers[] = {{"low", -1, 1.0 / 3, 0}, {"middle", 1.0 / 3, 2.0 / 3, 4}, {"high", 2.0 / 3, 2, 3}};
  char id[64];
  wm_figure_t figure;
  if (!wm_page_figure(page, &figure, wm_model_id(id, sizeof id, model, "demand"),
                      "Demand per layer.", 300))
    return;
  FILE *f = figure.script;
  for (int k = 0; k < 3; k++) {
    fprintf(f, "$%s << EOD\n", tiers[k].name);
    for (int64_t g = 0; g < r->gates.n; g++) {
      double demand = 1 - wm_frame_number(&r->gates, g, "routed_heldout");
      if (strcmp(wm_frame_text(&r->gates, g, "kind"), "linear") != 0 || !(demand > tiers[k].from) ||
          !(demand <= tiers[k].to))
        continue;
      fprintf(f, "%g %.6g\n", wm_frame_number(&r->gates, g, "layer"), 100 * demand);
    }
    fputs("NaN NaN\nEOD\n", f);
  }
  wm_page_raw(page, "Share of held-out positions for which each layer's linear gate asks for the "
                    "full MLP, in three tiers.");
  fprintf(f,
          "set xlabel 'layer'\nset ylabel 'positions that need the MLP, %%'\nset yrange [0:100]\n"
          "set xrange [-0.6:%g]\nset boxwidth 0.7\nset key top center horizontal outside\nplot",
          (double)r->layer_results[r->n_layers - 1].layer + 0.6);
  static const char *const colours[] = {WM_THIRD, WM_FIRST, WM_SECOND};
  for (int k = 0; k < 3; k++)
    fprintf(f, "%s $%s using 1:2 with boxes fs pattern %d lw 1.5 lc rgb %s title '%s'",
            k > 0 ? "," : "", tiers[k].name, tiers[k].pattern, colours[k], tiers[k].name);
  fputc('\n', f);
  wm_page_end_figure(page, &figure, id,
                     "The higher a bar, the more often the gate keeps the MLP: low up to a third "
                     "(empty), high from two thirds on (filled), middle in between (hatched). The "
                     "gate is fitted to labels that split at the "
                     "median of the loss difference, so that a layer's level says how its "
                     "positions fall about that split, and not what the layer is worth.");
}

/* ---- threshold curves ------------------------------------------------------------------------ */

/* Right end of a layer's curve, and where its number stands. */
typedef struct {
  int64_t layer;
  double routed, cost, label;
} curve_end_t;

static int by_cost(const void *a, const void *b) {
  const curve_end_t *x = a, *y = b;
  return (x->cost > y->cost) - (x->cost < y->cost);
}

/* Numbers of layers beside the ends of their curves, moved up where they would overlap. */
static void put_curve_ends(FILE *f, curve_end_t *ends, int64_t n) {
  const double apart = 0.058; /* of the axis: a line of text */
  qsort(ends, (size_t)n, sizeof *ends, by_cost);
  const double range = n > 0 ? ends[n - 1].cost - fmin(0, ends[0].cost) : 0;
  fputs("$ends << EOD\n", f);
  for (int64_t i = 0; i < n; i++) {
    ends[i].label = ends[i].cost;
    if (i > 0)
      ends[i].label = fmax(ends[i].label, ends[i - 1].label + apart * range);
    fprintf(f, "%.6g", ends[i].routed);
    wm_figure_number(f, ends[i].label);
    fprintf(f, " %lld\n", (long long)ends[i].layer);
  }
  fputs("NaN NaN 0\nEOD\n", f);
}

/* A block of points for each layer's linear gate, and the ends. */
static void put_curves(wm_page_t *page, const wm_results_t *r, FILE *f) {
  void *memory = NULL;
  wm_error_t err = {0};
  wm_page_keep(page, wm_alloc(&memory, r->n_layers, sizeof(curve_end_t), "curves", &err), &err);
  curve_end_t *ends = memory;
  int64_t n_ends = 0;
  fputs("$curve << EOD\n", f);
  for (int64_t l = 0; l < r->n_layers && ends != NULL; l++) {
    curve_end_t end = {.layer = r->layer_results[l].layer, .routed = -1};
    for (int64_t i = 0; i < r->curve.n; i++)
      if (strcmp(wm_frame_text(&r->curve, i, "name"), "linear") == 0 &&
          wm_frame_number(&r->curve, i, "layer") == (double)r->layer_results[l].layer) {
        fprintf(f, "%.10g", 100 * wm_frame_number(&r->curve, i, "routed"));
        wm_figure_number(f, wm_frame_number(&r->curve, i, "delta_pct"));
        fputc('\n', f);
        if (100 * wm_frame_number(&r->curve, i, "routed") > end.routed) {
          end.routed = 100 * wm_frame_number(&r->curve, i, "routed");
          end.cost = wm_frame_number(&r->curve, i, "delta_pct");
        }
      }
    if (end.routed >= 0 && isfinite(end.cost))
      ends[n_ends++] = end;
    fputs("\n\n", f);
  }
  fputs("EOD\n", f);
  if (ends != NULL)
    put_curve_ends(f, ends, n_ends);
  free(memory);
}

static void draw_curve(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  char id[64];
  wm_figure_t figure;
  int64_t rows = 0;
  for (int64_t i = 0; i < r->curve.n; i++)
    rows += strcmp(wm_frame_text(&r->curve, i, "name"), "linear") == 0;
  if (rows == 0 || !wm_page_figure(page, &figure, wm_model_id(id, sizeof id, model, "curve"),
                                   "Cost against the share of positions that are routed.", 360))
    return;
  FILE *f = figure.script;
  put_curves(page, r, f);
  wm_page_raw(page,
              "Linear gates of all layers at several thresholds, on the range of the choice.");
  fputs("set xlabel 'positions routed to the surrogate, %'\n"
        "set ylabel 'perplexity, % above the full model'\nset xrange [0:104]\nunset key\n"
        "set xzeroaxis lt 1 lw 1 lc rgb " WM_INK "\n"
        "plot for [i=0:*] $curve index i using 1:2 smooth unique with linespoints pt 6 ps 0.7 lw "
        "1.2 lc "
        "rgb " WM_FIRST ",\\\n $ends using 1:2:3 with labels left offset 1,0 textcolor rgb " WM_INK
        "\n",
        f);
  wm_page_end_figure(
      page, &figure, id,
      "A line is a layer (its number at the right end), a point a threshold. Far right "
      "and low is good: many positions linear for little.");
}

static void put_curve(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  char id[64], confidence[40];
  wm_confidence_text(r, confidence, sizeof confidence);
  const wm_column_t columns[] = {
      {"layer", NULL, WM_ALIGN_RIGHT, 0},     {"gate", NULL, WM_ALIGN_LEFT, 0},
      {"threshold", NULL, WM_ALIGN_RIGHT, 2}, {"routed", "% of positions", WM_ALIGN_RIGHT, 1},
      {"cost", "%", WM_ALIGN_RIGHT, 3},       {"from", confidence, WM_ALIGN_RIGHT, 3},
      {"to", confidence, WM_ALIGN_RIGHT, 3}};
  if (r->curve.n == 0)
    return;
  draw_curve(page, model);
  wm_table_t *t = wm_page_table(page, columns, sizeof columns / sizeof columns[0]);
  for (int64_t i = 0; t != NULL && i < r->curve.n; i++) {
    wm_table_int(t, (int64_t)wm_frame_number(&r->curve, i, "layer"));
    wm_table_text(t, wm_frame_text(&r->curve, i, "name"));
    wm_table_float(t, wm_frame_number(&r->curve, i, "threshold"));
    wm_table_float(t, 100 * wm_frame_number(&r->curve, i, "routed"));
    wm_table_float(t, wm_frame_number(&r->curve, i, "delta_pct"));
    wm_table_float(t, wm_frame_number(&r->curve, i, "low"));
    wm_table_float(t, wm_frame_number(&r->curve, i, "high"));
  }
  wm_page_put_table(page, t, wm_model_id(id, sizeof id, model, "curve"),
                    "Numbers: gates at several thresholds", 2, true);
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* A tokenizer that made these results' tokens; NULL: tokens are told by number. */
static wm_tokenizer_t *tokenizer_of(const wm_report_t *report, const wm_results_t *r) {
  const char *dir = report->tokenizer;
  wm_tokenizer_t *tokenizer = NULL;
  wm_error_t ignored = {0};
  char hash[24];
  if (dir[0] == '\0')
    dir = wm_results_attribute(r, "model");
  if (dir[0] == '\0' || wm_tokenizer_open(dir, &tokenizer, &ignored) != WM_OK)
    return NULL;
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)wm_tokenizer_fingerprint(tokenizer));
  if (strcmp(hash, wm_results_attribute(r, "tokenizer_fingerprint")) == 0)
    return tokenizer;
  wm_tokenizer_close(tokenizer);
  return NULL;
}

static void add_token(wm_table_t *t, const wm_tokenizer_t *tokenizer, double id) {
  int32_t token = id >= 0 && id < 2147483647.0 ? (int32_t)id : -1;
  char *text = NULL;
  int64_t bytes;
  wm_error_t ignored = {0};
  if (tokenizer != NULL && token >= 0)
    wm_tokenizer_decode(tokenizer, &token, 1, &text, &bytes, &ignored);
  if (text != NULL)
    wm_table_textf(t, "\"%s\"", text);
  else
    wm_table_textf(t, token >= 0 ? "token %d" : "-", token);
  free(text);
}

static void put_ends(wm_page_t *page, int64_t model) {
  static const wm_column_t columns[] = {{"layer", NULL, WM_ALIGN_RIGHT, 0},
                                        {"end", NULL, WM_ALIGN_LEFT, 0},
                                        {"input token", NULL, WM_ALIGN_LEFT, 0},
                                        {"positions", NULL, WM_ALIGN_RIGHT, 0},
                                        {"mean score", "log-odds", WM_ALIGN_RIGHT, 3},
                                        {"mean difference of losses", "nats", WM_ALIGN_RIGHT, 4}};
  enum { SHOWN = 4 };
  const wm_results_t *r = &page->report->results[model];
  const int64_t *d = r->ends_dims;
  char id[64];
  if (r->ends_delta == NULL || d[0] != r->gate_layers.n)
    return;
  wm_tokenizer_t *tokenizer = tokenizer_of(page->report, r);
  wm_table_t *t = wm_page_table(page, columns, sizeof columns / sizeof columns[0]);
  for (int64_t i = 0; t != NULL && i < d[0] * d[1] * d[2]; i++) {
    if (i % d[2] >= SHOWN || r->ends_token[i] < 0)
      continue;
    wm_table_int(t, (int64_t)wm_frame_number(&r->gate_layers, i / (d[1] * d[2]), "layer"));
    wm_table_text(t, i / d[2] % d[1] == 0 ? "surrogate" : "mlp");
    add_token(t, tokenizer, r->ends_token[i]);
    wm_table_float(t, r->ends_count[i]);
    wm_table_float(t, r->ends_score[i]);
    wm_table_float(t, r->ends_delta[i]);
  }
  wm_page_put_table(page, t, wm_model_id(id, sizeof id, model, "ends"),
                    "Input tokens at the ends of each layer's linear gate", 2, true);
  wm_tokenizer_close(tokenizer);
}

void wm_section_gates(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  if (r->files[WM_FILE_GATES].state != WM_FILE_READ || r->gates.n == 0 || r->n_layers == 0)
    return;
  wm_page_raw(page, "<h3>Gates: linear where it serves</h3>\n");
  const char *choice = wm_attribute(&r->files[WM_FILE_GATES].attributes, "range_choice");
  wm_page_raw(page, "<p>Gates were chosen on the range <strong>");
  wm_page_text(page, choice);
  wm_page_raw(page, "</strong>%s.</p>\n",
              strcmp(choice, "evaluation") == 0
                  ? ", as the study has it: costs on that range are biased downward"
                  : " and are reported on the evaluation range");
  put_routed(page, model);
  wm_page_raw(page, "<div class=\"pair\"><div>\n");
  draw_auc(page, model);
  wm_page_raw(page, "</div><div>\n");
  draw_demand(page, model);
  wm_page_raw(page, "</div></div>\n");
  put_gate_table(page, model);
  put_curve(page, model);
  put_ends(page, model);
}
