/* Training: perplexity along the plan and its control, the study's beside it, and what gates do. */
#include "page.h"
#include "wanamaker/base/mem.h"

#include <math.h>
#include <string.h>

static const wm_frame_t *range_of(const wm_training_result_t *t, const char *name) {
  for (int i = 0; i < t->n; i++)
    if (strcmp(t->ranges[i].name, name) == 0)
      return &t->ranges[i].table;
  return NULL;
}

/* May the plan and its control be ranked? Only if both have seen the same tokens in one order. */
static bool is_fair(const wm_results_t *r) {
  const wm_attributes_t *a = &r->files[WM_FILE_FINETUNE].attributes;
  const wm_attributes_t *b = &r->files[WM_FILE_CONTROL].attributes;
  return strcmp(wm_attribute(a, "tokens_seen"), wm_attribute(b, "tokens_seen")) == 0 &&
         strcmp(wm_attribute(a, "chain"), wm_attribute(b, "chain")) == 0;
}

/* ---- trajectories ---------------------------------------------------------------------------- */

static void put_course(FILE *f, const char *name, const wm_frame_t *t, double hard) {
  fprintf(f, "$%s << EOD\n", name);
  for (int64_t i = 0; t != NULL && i < t->n; i++) {
    if (wm_frame_number(t, i, "hard") != hard)
      continue;
    fprintf(f, "%.10g", wm_frame_number(t, i, "step"));
    wm_figure_number(f, wm_frame_number(t, i, "ppl"));
    fputc('\n', f);
  }
  fputs("NaN NaN\nEOD\n", f);
}

/* The study's control, for runs of its model. */
static bool put_study(FILE *f, const wm_page_t *page, const wm_results_t *r) {
  const wm_csv_t *p = &page->report->published->training;
  const char *model = wm_results_study_model(r);
  bool any = model != NULL && strcmp(model, "gpt2-medium") == 0;
  static const char *const experiments[] = {"control", "linearize4-5000"};
  for (int e = 0; e < 2; e++) {
    fprintf(f, "$study%d << EOD\n", e);
    for (int64_t i = 0; i < p->n && any; i++) {
      if (strcmp(wm_csv_text(p, i, "experiment"), experiments[e]) != 0)
        continue;
      fprintf(f, "%g", wm_csv_number(p, i, "step"));
      wm_figure_number(f, wm_csv_number(p, i, "wikitext_ppl"));
      fputc('\n', f);
    }
    fputs("NaN NaN\nEOD\n", f);
  }
  return any;
}

static void draw_course(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  char id[64];
  wm_figure_t figure;
  if (!wm_page_figure(page, &figure, wm_model_id(id, sizeof id, model, "training"),
                      "Perplexity along the training.", 360))
    return;
  FILE *f = figure.script;
  wm_page_raw(page, "On the evaluation range; steps on the axis%s.",
              r->control.n > 0 && !is_fair(r)
                  ? "; plan and control have seen different tokens and are not to be ranked"
                  : "");
  put_course(f, "plan", range_of(&r->training, "evaluation"), 0);
  put_course(f, "hard", range_of(&r->training, "evaluation"), 1);
  put_course(f, "control", range_of(&r->control, "evaluation"), 0);
  bool study = put_study(f, page, r);
  fprintf(
      f,
      "set xlabel 'step'\nset ylabel 'perplexity'\nset key top right\n"
      "plot %s$control using 1:2 with linespoints pt 6 ps 0.8 dt 2 lw 1.5 lc rgb " WM_SECOND
      " title 'control',\\\n $plan using 1:2 with linespoints pt 7 ps 0.7 lw 1.5 lc rgb " WM_FIRST
      " title 'plan',\\\n $hard using 1:2 with points pt 9 ps 1.1 lc rgb " WM_THIRD
      " title 'gates that decide'\n",
      study ? "$study0 using 1:2 with lines dt 3 lw 1.2 lc rgb " WM_MUTED
              " title 'the study: control',\\\n $study1 using 1:2 with lines dt 4 lw 1.2 lc "
              "rgb " WM_MUTED " title 'the study: 4 linear layers',\\\n"
            : "");
  wm_page_end_figure(page, &figure, id,
                     "The control trains the same weights on the same tokens with nothing "
                     "linearised: what the plan costs is the distance between the two lines at "
                     "the same step, and not the plan's gain over its own start.");
}

static void add_run(wm_table_t *t, const char *who, const wm_training_result_t *run) {
  for (int k = 0; k < run->n; k++)
    for (int64_t i = 0; i < run->ranges[k].table.n; i++) {
      const wm_frame_t *f = &run->ranges[k].table;
      wm_table_text(t, who);
      wm_table_text(t, run->ranges[k].name);
      wm_table_text(t, wm_frame_text(f, i, "name"));
      wm_table_float(t, wm_frame_number(f, i, "step"));
      wm_table_text(t, wm_frame_number(f, i, "hard") > 0 ? "decide" : "");
      wm_table_float(t, wm_frame_number(f, i, "ppl"));
      wm_table_float(t, wm_frame_number(f, i, "delta_pct"));
      wm_table_float(t, wm_frame_number(f, i, "low"));
      wm_table_float(t, wm_frame_number(f, i, "high"));
      wm_table_float(t, wm_frame_number(f, i, "p_holm"));
    }
}

static void put_runs(wm_page_t *page, int64_t model) {
  static const wm_column_t columns[] = {{"run", NULL, WM_ALIGN_LEFT, 0},
                                        {"range", NULL, WM_ALIGN_LEFT, 0},
                                        {"evaluation", NULL, WM_ALIGN_LEFT, 0},
                                        {"step", NULL, WM_ALIGN_RIGHT, 0},
                                        {"gates", NULL, WM_ALIGN_LEFT, 0},
                                        {"PPL", NULL, WM_ALIGN_RIGHT, 3},
                                        {"against the start", "%", WM_ALIGN_RIGHT, 3},
                                        {"from", "%", WM_ALIGN_RIGHT, 3},
                                        {"to", "%", WM_ALIGN_RIGHT, 3},
                                        {"p", "Holm", WM_ALIGN_RIGHT, 4}};
  const wm_results_t *r = &page->report->results[model];
  char id[64];
  wm_table_t *t = wm_page_table(page, columns, sizeof columns / sizeof columns[0]);
  if (t != NULL) {
    add_run(t, "plan", &r->training);
    add_run(t, "control", &r->control);
  }
  wm_page_put_table(page, t, wm_model_id(id, sizeof id, model, "training"),
                    "Numbers: evaluations along the training", 3, true);
}

/* ---- gates ----------------------------------------------------------------------------------- */

/* The last number in a row's name is its layer. */
static double layer_of(const wm_frame_t *f, int64_t row) {
  const char *name = wm_frame_text(f, row, "name"), *digits = strpbrk(name, "0123456789");
  return digits != NULL ? strtod(digits, NULL) : NAN;
}

static void draw_gates(wm_page_t *page, int64_t model) {
  const wm_frame_t *g = &page->report->results[model].training.gates;
  char id[64];
  wm_figure_t figure;
  double sum = 0;
  if (!wm_page_figure(page, &figure, wm_model_id(id, sizeof id, model, "redistribution"),
                      "What the trained gates ask for.", 320))
    return;
  FILE *f = figure.script;
  fputs("$g << EOD\n", f);
  for (int64_t i = 0; i < g->n; i++) {
    fprintf(f, "%g", layer_of(g, i));
    wm_figure_number(f, wm_frame_number(g, i, "mean"));
    wm_figure_number(f, wm_frame_number(g, i, "q05"));
    wm_figure_number(f, wm_frame_number(g, i, "q95"));
    fputc('\n', f);
    sum += wm_frame_number(g, i, "mean");
  }
  fputs("EOD\n", f);
  wm_page_raw(page, "Mean of g over the gated layers: ");
  wm_page_number(page, "mean_gate", sum / (double)g->n, 4);
  wm_page_raw(page, ".");
  fputs("set xlabel 'layer'\nset ylabel 'g (1: the MLP)'\nset yrange [0:1]\n"
        "set offsets 0.6, 0.6, 0, 0\nset xtics 1\nunset key\nset boxwidth 0.6\n"
        "plot 1/3. with lines dt 2 lc rgb " WM_MUTED ", 2/3. with lines dt 2 lc rgb " WM_MUTED
        ", $g using 1:2 with boxes fs pattern 4 lw 1.5 lc rgb " WM_FIRST
        ", $g using 1:2:3:4 with yerrorbars pt 7 ps 0.7 lw 1.2 lc rgb " WM_INK "\n",
        f);
  wm_page_end_figure(page, &figure, id,
                     "A bar is a layer's mean gate, its whisker the range from the 5th to the 95th "
                     "percentile of positions; the dashed lines part the tiers low, middle and "
                     "high. Compare the bars of runs that gate different sets of layers to see "
                     "whether demand moves.");
}

static void put_gates(wm_page_t *page, int64_t model) {
  static const wm_column_t columns[] = {{"layer", NULL, WM_ALIGN_LEFT, 0},
                                        {"mean g", NULL, WM_ALIGN_RIGHT, 4},
                                        {"spread", "std", WM_ALIGN_RIGHT, 4},
                                        {"5 %", NULL, WM_ALIGN_RIGHT, 4},
                                        {"25 %", NULL, WM_ALIGN_RIGHT, 4},
                                        {"median", NULL, WM_ALIGN_RIGHT, 4},
                                        {"75 %", NULL, WM_ALIGN_RIGHT, 4},
                                        {"95 %", NULL, WM_ALIGN_RIGHT, 4},
                                        {"MLP taken", "% (g >= 0.5)", WM_ALIGN_RIGHT, 2}};
  static const char *const members[] = {"mean", "std", "q05", "q25", "median", "q75", "q95", "mlp"};
  const wm_frame_t *g = &page->report->results[model].training.gates;
  char id[64];
  draw_gates(page, model);
  wm_table_t *t = wm_page_table(page, columns, sizeof columns / sizeof columns[0]);
  for (int64_t i = 0; t != NULL && i < g->n; i++) {
    wm_table_text(t, wm_frame_text(g, i, "name"));
    for (int k = 0; k < 8; k++)
      wm_table_float(t, wm_frame_number(g, i, members[k]));
  }
  wm_page_put_table(page, t, wm_model_id(id, sizeof id, model, "redistribution"),
                    "Numbers: the trained gates", 1, true);
}

void wm_section_training(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  if (r->training.n + r->control.n == 0)
    return;
  wm_page_raw(page, "<h3>Training</h3>\n");
  draw_course(page, model);
  put_runs(page, model);
  if (r->training.gates.n > 0)
    put_gates(page, model);
}
