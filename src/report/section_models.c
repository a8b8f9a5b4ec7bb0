/* Models side by side, and the study's figures of the same models. */
#include "page.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/measure/inference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double parameters_of(const wm_results_t *r) {
  const char *text = wm_results_attribute(r, "model_parameters");
  return text[0] != '\0' ? strtod(text, NULL) : NAN;
}

static void put_models(wm_page_t *page) {
  static const wm_column_t columns[] = {{"model", NULL, WM_ALIGN_LEFT, 0},
                                        {"family", NULL, WM_ALIGN_LEFT, 0},
                                        {"parameters", NULL, WM_ALIGN_RIGHT, 0},
                                        {"layers", "measured", WM_ALIGN_RIGHT, 0},
                                        {"wasted", "layers", WM_ALIGN_RIGHT, 0},
                                        {"needed", "layers", WM_ALIGN_RIGHT, 0},
                                        {"undecided", "layers", WM_ALIGN_RIGHT, 0},
                                        {"median cost", "%", WM_ALIGN_RIGHT, 3},
                                        {"from", "median of lower ends, %", WM_ALIGN_RIGHT, 3},
                                        {"to", "median of upper ends, %", WM_ALIGN_RIGHT, 3},
                                        {"PPL", "full model", WM_ALIGN_RIGHT, 3},
                                        {"tokens", NULL, WM_ALIGN_RIGHT, 0},
                                        {"units", NULL, WM_ALIGN_RIGHT, 0}};
  const wm_report_t *report = page->report;
  wm_table_t *t = wm_page_table(page, columns, sizeof columns / sizeof columns[0]);
  for (int64_t i = 0; t != NULL && i < report->n; i++) {
    const wm_results_t *r = &report->results[i];
    if (r->overview.measured == 0)
      continue;
    wm_table_text(t, r->label);
    wm_table_text(t, wm_results_attribute(r, "model_family"));
    wm_table_float(t, parameters_of(r));
    wm_table_int(t, r->overview.measured);
    wm_table_int(t, r->overview.wasted);
    wm_table_int(t, r->overview.needed);
    wm_table_int(t, r->overview.undecided);
    wm_table_float(t, r->overview.median_cost);
    wm_table_float(t, r->overview.median_low);
    wm_table_float(t, r->overview.median_high);
    wm_table_float(t, wm_frame_number(&r->variants, 0, "ppl"));
    wm_table_int(t, r->n_tokens);
    wm_table_int(t, r->n_units);
  }
  wm_page_put_table(page, t, "models", "All models", 1, false);
}

static int64_t put_family(FILE *f, const wm_report_t *report, const char *family,
                          const char *name) {
  int64_t n = 0;
  fprintf(f, "$%s << EOD\n", name);
  for (int64_t i = 0; i < report->n; i++) {
    const wm_results_t *r = &report->results[i];
    if (strcmp(wm_results_attribute(r, "model_family"), family) != 0 ||
        isnan(r->overview.median_cost) || isnan(parameters_of(r)))
      continue;
    n++;
    fprintf(f, "%.10g", parameters_of(r) / 1e6);
    wm_figure_number(f, r->overview.median_cost);
    wm_figure_number(f, r->overview.median_low);
    wm_figure_number(f, r->overview.median_high);
    fputc('\n', f);
  }
  fputs("NaN NaN NaN NaN\nEOD\n", f);
  return n;
}

/* Medians over the layers of the study's own tables. */
static double published_median(const wm_published_t *p, const char *model) {
  double cost[256];
  int64_t n = 0;
  for (int64_t l = 0; l < 256; l++) {
    int64_t row = wm_published_layer(p, model, l, "all-linear");
    if (row >= 0)
      cost[n++] = wm_csv_number(&p->layers, row, "delta_pct");
  }
  return wm_median(cost, n);
}

static const struct {
  const char *name;
  double millions; /* parameters */
} study_models[] = {{"gpt2-medium", 354.8}, {"gpt2-large", 774.0}, {"pythia-160m", 162.3},
                    {"pythia-410m", 405.3}, {"pythia-1b", 1011.8}, {"pythia-2.8b", 2775.2}};
enum { STUDY_MODELS = sizeof study_models / sizeof study_models[0] };

static void put_study(FILE *f, const wm_published_t *p, const char *family) {
  fprintf(f, "$%s << EOD\n", family);
  for (int i = 0; i < STUDY_MODELS; i++) {
    if (strncmp(study_models[i].name, family, strlen(family)) != 0)
      continue;
    fprintf(f, "%g", study_models[i].millions);
    wm_figure_number(f, published_median(p, study_models[i].name));
    fputc('\n', f);
  }
  fputs("EOD\n", f);
}

static void draw_sizes(wm_page_t *page) {
  wm_figure_t figure;
  if (!wm_page_figure(page, &figure, "sizes", "Median cost against the model's size.", 360))
    return;
  FILE *f = figure.script;
  int64_t gpt2 = put_family(f, page->report, "GPT-2", "one");
  int64_t neox = put_family(f, page->report, "GPT-NeoX", "two");
  put_study(f, page->report->published, "gpt2");
  put_study(f, page->report->published, "pythia");
  wm_page_raw(page, "Measured here: ");
  wm_page_number(page, "sized_gpt2", (double)gpt2, 0);
  wm_page_raw(page, " of the family <span class=\"name\">GPT-2</span>, ");
  wm_page_number(page, "sized_gpt_neox", (double)neox, 0);
  wm_page_raw(page, " of the family <span class=\"name\">GPT-NeoX</span>.");
  fputs("set logscale x\nset xlabel 'parameters, millions'\n"
        "set ylabel 'median cost of a layer, %'\nset key top center horizontal outside\n"
        "set xzeroaxis lt 1 lw 1 lc rgb " WM_INK "\nset offsets graph 0.05, graph 0.05, 0, 0\n"
        "plot $gpt2 using 1:2 with linespoints pt 2 ps 0.9 lw 1.2 dt 3 lc rgb " WM_MUTED
        " title 'the study: GPT-2',\\\n"
        " $pythia using 1:2 with linespoints pt 1 ps 1.1 lw 1.2 dt 2 lc rgb " WM_MUTED
        " title 'the study: Pythia',\\\n"
        " $one using 1:2:3:4 with yerrorbars pt 7 ps 1 lw 1.5 lc rgb " WM_FIRST
        " title 'GPT-2',\\\n"
        " $two using 1:2:3:4 with yerrorbars pt 8 ps 1.2 lw 1.5 lc rgb " WM_SECOND
        " title 'GPT-NeoX'\n",
        f);
  wm_page_end_figure(page, &figure, "sizes",
                     "A point is a model; its bar joins the medians of the layers' lower and upper "
                     "interval ends. Crosses are the study's models under its protocol, a line "
                     "for a family: its claim is that Pythia's falls.");
}

bool wm_compares_models(const wm_report_t *report) {
  int64_t n = 0;
  for (int64_t i = 0; i < report->n; i++)
    n += report->results[i].overview.measured > 0;
  return n > 1;
}

void wm_section_models(wm_page_t *page) {
  if (!wm_compares_models(page->report))
    return;
  wm_page_section(page, "compared", "Models compared");
  put_models(page);
  draw_sizes(page);
  wm_page_end_section(page);
}

/* ---- the study's layers beside ours ---------------------------------------------------------- */

static void add_published(wm_table_t *t, const wm_page_t *page, const wm_results_t *r,
                          const char *model) {
  const wm_published_t *p = page->report->published;
  for (int64_t i = 0; i < r->n_layers; i++) {
    const wm_layer_result_t *l = &r->layer_results[i];
    int64_t linear = wm_published_layer(p, model, l->layer, "all-linear");
    int64_t best = wm_published_layer(p, model, l->layer, "gate:best");
    wm_table_text(t, r->label);
    wm_table_int(t, l->layer);
    wm_table_float(t, wm_frame_number(&r->variants, l->linear, "delta_pct"));
    wm_table_float(t, wm_frame_number(&r->variants, l->linear, "low"));
    wm_table_float(t, wm_frame_number(&r->variants, l->linear, "high"));
    wm_table_float(t, wm_csv_number(&p->layers, linear, "delta_pct"));
    wm_table_float(t, wm_csv_number(&p->layers, linear, "delta_ci_lo_pct"));
    wm_table_float(t, wm_csv_number(&p->layers, linear, "delta_ci_hi_pct"));
    wm_table_float(t, wm_frame_number(&r->variants, l->gated, "delta_pct"));
    wm_table_float(t, wm_csv_number(&p->layers, best, "delta_pct"));
  }
}

void wm_section_published(wm_page_t *page) {
  static const wm_column_t columns[] = {
      {"model", NULL, WM_ALIGN_LEFT, 0},          {"layer", NULL, WM_ALIGN_RIGHT, 0},
      {"linear", "here, %", WM_ALIGN_RIGHT, 3},   {"from", "paired, %", WM_ALIGN_RIGHT, 3},
      {"to", "paired, %", WM_ALIGN_RIGHT, 3},     {"linear", "the study, %", WM_ALIGN_RIGHT, 3},
      {"from", "unpaired, %", WM_ALIGN_RIGHT, 3}, {"to", "unpaired, %", WM_ALIGN_RIGHT, 3},
      {"gated", "here, %", WM_ALIGN_RIGHT, 3},    {"best gate", "the study, %", WM_ALIGN_RIGHT, 3}};
  const wm_report_t *report = page->report;
  wm_table_t *t = NULL;
  for (int64_t i = 0; i < report->n; i++) {
    const char *model = wm_results_study_model(&report->results[i]);
    if (model == NULL || report->results[i].n_layers == 0)
      continue;
    if (t == NULL) {
      wm_page_section(page, "published", "The study's layers beside these");
      t = wm_page_table(page, columns, sizeof columns / sizeof columns[0]);
    }
    if (t != NULL)
      add_published(t, page, &report->results[i], model);
  }
  if (t == NULL)
    return;
  wm_page_put_table(page, t, "published-layers", "Costs here and in the study", 2, true);
  wm_page_raw(page, "<p class=\"how\">The study's gates were chosen on its evaluation tokens, its "
                    "intervals resample each side alone, and its tokens are not these: equal "
                    "numbers are not to be expected, the order of the layers is.</p>\n");
  wm_page_end_section(page);
}
