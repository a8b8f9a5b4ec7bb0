/* Training: perplexity along the plan and its control, the study's beside it, and what gates do. */
#include "page.h"
#include "wanamaker/base/mem.h"

#include <math.h>
#include <string.h>

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

/* The study's training that this one is to be held against; NULL: it publishes none like it. */
static const char *published_like(const wm_results_t *r) {
  static const struct {
    const char *plan, *experiment;
    double layers;
  } known[] = {{"linearize", "linearize4-5000", 4},
               {"linearize", "linearize6", 6},
               {"linearize", "linearize8", 8},
               {"two_phase", "two-phase-8", 8},
               {"two_phase", "two-phase-24", 24}};
  const char *plan = wm_attribute(&r->files[WM_FILE_FINETUNE].attributes, "plan");
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (strcmp(plan, known[i].plan) == 0 && wm_training_layers(r) == known[i].layers)
      return known[i].experiment;
  return NULL;
}

/* A published trajectory; the second phase's steps begin at 0 again. */
static void put_published(FILE *f, const wm_csv_t *p, const char *experiment, const char *name) {
  double before = 0, last = 0;
  fprintf(f, "$%s << EOD\n", name);
  for (int64_t i = 0; i < p->n && experiment != NULL; i++) {
    double step = wm_csv_number(p, i, "step");
    if (strcmp(wm_csv_text(p, i, "experiment"), experiment) != 0)
      continue;
    if (step < last)
      before += last;
    last = step;
    fprintf(f, "%g", before + step);
    wm_figure_number(f, wm_csv_number(p, i, "wikitext_ppl"));
    fputc('\n', f);
  }
  fputs("NaN NaN\nEOD\n", f);
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
              r->control.n > 0 && !wm_training_is_fair(r)
                  ? "; plan and control have seen different tokens and are not to be ranked"
                  : "");
  put_course(f, "plan", wm_training_range(&r->training, "evaluation"), 0);
  put_course(f, "hard", wm_training_range(&r->training, "evaluation"), 1);
  put_course(f, "control", wm_training_range(&r->control, "evaluation"), 0);
  const char *theirs = wm_results_study_model(r);
  const bool study = theirs != NULL && strcmp(theirs, "gpt2-medium") == 0;
  const char *like = study ? published_like(r) : NULL;
  put_published(f, &page->report->published->training, study ? "control" : NULL, "study0");
  put_published(f, &page->report->published->training, like, "study1");
  fprintf(
      f,
      "set xlabel 'step'\nset ylabel 'perplexity'\nset key top right\n"
      "plot %s%s$control using 1:2 with linespoints pt 6 ps 0.8 dt 2 lw 1.5 lc rgb " WM_SECOND
      " title 'control',\\\n $plan using 1:2 with linespoints pt 7 ps 0.7 lw 1.5 lc rgb " WM_FIRST
      " title 'plan'%s\n",
      study ? "$study0 using 1:2 with lines dt 3 lw 1.2 lc rgb " WM_MUTED
              " title 'the study: control',\\\n "
            : "",
      like != NULL ? "$study1 using 1:2 with lines dt 4 lw 1.2 lc rgb " WM_MUTED
                     " title 'the study: the same plan',\\\n "
                   : "",
      r->training.gates.n > 0 ? ",\\\n $hard using 1:2 with points pt 9 ps 1.1 lc rgb " WM_THIRD
                                " title 'gates that decide'"
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

/* ---- speed ----------------------------------------------------------------------------------- */

static void add_speed(wm_table_t *t, const char *run, const wm_training_speed_t *s) {
  wm_table_text(t, run);
  wm_table_float(t, s->ranks);
  wm_table_float(t, s->threads);
  wm_table_float(t, s->steps);
  wm_table_float(t, s->median);
  wm_table_float(t, s->longest);
  wm_table_float(t, s->tokens_per_second);
  wm_table_float(t, s->exposed);
  wm_table_float(t, s->read_tokens_per_second);
}

static void put_speed(wm_page_t *page, int64_t model) {
  static const wm_column_t columns[] = {{"run", NULL, WM_ALIGN_LEFT, 0},
                                        {"ranks", NULL, WM_ALIGN_RIGHT, 0},
                                        {"threads", "each", WM_ALIGN_RIGHT, 0},
                                        {"steps", NULL, WM_ALIGN_RIGHT, 0},
                                        {"step", "median, s", WM_ALIGN_RIGHT, -4},
                                        {"step", "longest, s", WM_ALIGN_RIGHT, -4},
                                        {"tokens/s", NULL, WM_ALIGN_RIGHT, 0},
                                        {"exposed messages", "% of time", WM_ALIGN_RIGHT, 2},
                                        {"reading", "tokens/s", WM_ALIGN_RIGHT, 0}};
  const wm_results_t *r = &page->report->results[model];
  char id[64];
  if (r->training.n + r->control.n == 0)
    return;
  wm_table_t *t = wm_page_table(page, columns, sizeof columns / sizeof columns[0]);
  const wm_training_speed_t plan = wm_training_speed(r, WM_FILE_FINETUNE);
  const wm_training_speed_t control = wm_training_speed(r, WM_FILE_CONTROL);
  if (t != NULL && r->files[WM_FILE_FINETUNE].state == WM_FILE_READ)
    add_speed(t, "plan", &plan);
  if (t != NULL && r->files[WM_FILE_CONTROL].state == WM_FILE_READ)
    add_speed(t, "control", &control);
  wm_page_put_table(page, t, wm_model_id(id, sizeof id, model, "speed"), "How fast it trained", 1,
                    false);
  wm_page_raw(page, "<p class=\"how\">Times are the first rank's, of all steps, without "
                    "evaluations. Exposed is time in messages while nothing was computed.</p>\n");
}

/* ---- gates ----------------------------------------------------------------------------------- */

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
    fprintf(f, "%g", wm_gated_layer(g, i));
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
  if (r->training.n + r->control.n + r->comparison.n == 0)
    return;
  wm_page_raw(page, "<h3>Training</h3>\n");
  wm_page_against(page, r);
  if (r->training.n + r->control.n > 0) {
    draw_course(page, model);
    put_runs(page, model);
  }
  wm_page_against_table(page, model);
  put_speed(page, model);
  if (r->training.gates.n > 0)
    put_gates(page, model);
}
