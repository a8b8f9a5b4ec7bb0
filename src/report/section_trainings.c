/* Trainings side by side: perplexity along each, and what gates ask for when different sets of
 * layers have them (does demand move to the layers that keep a choice?). */
#include "page.h"
#include "wanamaker/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool has_end(const wm_results_t *r) {
  return wm_training_end(wm_training_range(&r->training, "evaluation")) >= 0;
}

static bool has_gates(const wm_results_t *r) {
  return r->training.gates.n > 0;
}

static int64_t count(const wm_report_t *report, bool (*has)(const wm_results_t *)) {
  int64_t n = 0;
  for (int64_t i = 0; i < report->n; i++)
    n += has(&report->results[i]);
  return n;
}

bool wm_compares_trainings(const wm_report_t *report) {
  return count(report, has_end) > 1;
}

static const char *plan_of(const wm_results_t *r) {
  return wm_attribute(&r->files[WM_FILE_FINETUNE].attributes, "plan");
}

double wm_training_layers(const wm_results_t *r) {
  const wm_frame_t *phases = &r->training.phases;
  return wm_frame_number(phases, phases->n - 1, "linear");
}

double wm_gated_layer(const wm_frame_t *gates, int64_t row) {
  const char *name = wm_frame_text(gates, row, "name"), *digits = strpbrk(name, "0123456789");
  return digits != NULL ? strtod(digits, NULL) : NAN;
}

/* ---- trajectories ---------------------------------------------------------------------------- */

static void put_course(FILE *f, const char *name, int64_t i, const wm_frame_t *t) {
  fprintf(f, "$%s%lld << EOD\n", name, (long long)i);
  for (int64_t row = 0; t != NULL && row < t->n; row++) {
    if (wm_frame_number(t, row, "hard") != 0)
      continue;
    fprintf(f, "%.10g", wm_frame_number(t, row, "step"));
    wm_figure_number(f, wm_frame_number(t, row, "ppl"));
    fputc('\n', f);
  }
  fputs("NaN NaN\nEOD\n", f);
}

static void put_key(FILE *f, const wm_results_t *r) {
  char *name = wm_format("%s, %g layers: %s", plan_of(r), wm_training_layers(r), r->label);
  fputs(" title ", f);
  wm_figure_label(f, name != NULL ? name : r->label);
  free(name);
}

static void draw_courses(wm_page_t *page) {
  static const char *const colours[] = {WM_FIRST, WM_SECOND, WM_THIRD, WM_FOURTH};
  static const int points[] = {7, 4, 8, 12, 5, 10, 6};
  const wm_report_t *report = page->report;
  wm_figure_t figure;
  int64_t shown = 0, controls = 0;
  const int height = 330 + 24 * (int)(count(report, has_end) + 1);
  if (!wm_page_figure(page, &figure, "trainings", "Perplexity along the trainings.", height))
    return;
  FILE *f = figure.script;
  wm_page_raw(page, "On each one's evaluation range; steps on the axis, controls dashed.");
  for (int64_t i = 0; i < report->n; i++) {
    put_course(f, "plan", i, wm_training_range(&report->results[i].training, "evaluation"));
    put_course(f, "control", i, wm_training_range(&report->results[i].control, "evaluation"));
  }
  fputs("set xlabel 'step'\nset ylabel 'perplexity'\n"
        "set key below left vertical maxcols 1 Left reverse noopaque\nplot ",
        f);
  for (int64_t i = 0; i < report->n; i++)
    if (report->results[i].control.n > 0)
      fprintf(f,
              "$control%lld using 1:2 with linespoints pt 2 ps 0.6 dt 2 lw 1.2 lc rgb " WM_MUTED
              " %s,\\\n ",
              (long long)i, controls++ == 0 ? "title 'controls'" : "notitle");
  for (int64_t i = 0; i < report->n; i++) {
    if (!has_end(&report->results[i]))
      continue;
    fprintf(f, "%s$plan%lld using 1:2 with linespoints pt %d ps 0.8 lw 1.5 dt %d lc rgb %s",
            shown > 0 ? ",\\\n " : "", (long long)i, points[shown % 7],
            shown < 4 ? 1 : 1 + (int)(shown % 4), colours[shown % 4]);
    put_key(f, &report->results[i]);
    shown++;
  }
  fputc('\n', f);
  wm_page_end_figure(page, &figure, "trainings",
                     "Compare lines that have seen the same tokens in the same order (equal "
                     "fingerprints in the table), each with its control; others have had more or "
                     "other text and are not to be ranked.");
}

/* On the evaluation range, where there is a comparison at equal tokens; else why not. */
static void add_against(wm_table_t *t, const wm_results_t *r) {
  wm_against_t a;
  const bool compared = wm_against_evaluation(r, &a);
  wm_table_text(t, compared ? wm_standing_name(a.standing) : wm_against_state(r));
  wm_table_float(t, compared ? a.delta : NAN);
  wm_table_float(t, compared ? a.low : NAN);
  wm_table_float(t, compared ? a.high : NAN);
}

static void put_trainings(wm_page_t *page) {
  static const wm_column_t columns[] = {{"training", NULL, WM_ALIGN_LEFT, 0},
                                        {"at equal tokens", NULL, WM_ALIGN_LEFT, 0},
                                        {"against control", "%", WM_ALIGN_RIGHT, 3},
                                        {"from", "%", WM_ALIGN_RIGHT, 3},
                                        {"to", "%", WM_ALIGN_RIGHT, 3},
                                        {"plan", NULL, WM_ALIGN_LEFT, 0},
                                        {"layers", "linear or gated", WM_ALIGN_RIGHT, 0},
                                        {"tokens", "seen", WM_ALIGN_RIGHT, 0},
                                        {"data", "fingerprint", WM_ALIGN_LEFT, 0},
                                        {"PPL", "at the start", WM_ALIGN_RIGHT, 3},
                                        {"PPL", "at the end", WM_ALIGN_RIGHT, 3},
                                        {"change", "since the start, %", WM_ALIGN_RIGHT, 3},
                                        {"from", "%", WM_ALIGN_RIGHT, 3},
                                        {"to", "%", WM_ALIGN_RIGHT, 3},
                                        {"control's change", "%", WM_ALIGN_RIGHT, 3}};
  const wm_report_t *report = page->report;
  wm_table_t *t = wm_page_table(page, columns, sizeof columns / sizeof columns[0]);
  for (int64_t i = 0; t != NULL && i < report->n; i++) {
    const wm_results_t *r = &report->results[i];
    const wm_attributes_t *a = &r->files[WM_FILE_FINETUNE].attributes;
    const wm_frame_t *plan = wm_training_range(&r->training, "evaluation");
    const wm_frame_t *control = wm_training_range(&r->control, "evaluation");
    const int64_t end = wm_training_end(plan), other = wm_training_end(control);
    if (end < 0)
      continue;
    wm_table_text(t, r->label);
    add_against(t, r);
    wm_table_text(t, plan_of(r));
    wm_table_float(t, wm_training_layers(r));
    wm_table_float(t, strtod(wm_attribute(a, "tokens_seen"), NULL));
    wm_table_text(t, wm_attribute(a, "chain"));
    wm_table_float(t, wm_frame_number(plan, 0, "ppl"));
    wm_table_float(t, wm_frame_number(plan, end, "ppl"));
    wm_table_float(t, wm_frame_number(plan, end, "delta_pct"));
    wm_table_float(t, wm_frame_number(plan, end, "low"));
    wm_table_float(t, wm_frame_number(plan, end, "high"));
    wm_table_float(t, other >= 0 ? wm_frame_number(control, other, "delta_pct") : NAN);
  }
  wm_page_put_table(page, t, "trainings", "All trainings, in the order of the directories", 1,
                    false);
}

/* ---- sets of gated layers -------------------------------------------------------------------- */

/* Row of a layer in a run's gates; -1: it has none. */
static int64_t gate_of(const wm_results_t *r, int64_t layer) {
  for (int64_t g = 0; g < r->training.gates.n; g++)
    if (wm_gated_layer(&r->training.gates, g) == (double)layer)
      return g;
  return -1;
}

/* One more than the last layer of all models and gates. */
static int64_t layers_of_all(const wm_report_t *report) {
  int64_t most = 0;
  for (int64_t i = 0; i < report->n; i++) {
    const wm_results_t *r = &report->results[i];
    int64_t layers = strtoll(wm_results_attribute(r, "model_layers"), NULL, 10);
    if (!has_gates(r))
      continue;
    most = layers > most ? layers : most;
    for (int64_t g = 0; g < r->training.gates.n; g++)
      if (wm_gated_layer(&r->training.gates, g) >= (double)most)
        most = 1 + (int64_t)wm_gated_layer(&r->training.gates, g);
  }
  return most;
}

/* Largest less smallest mean of a layer's gate over the runs; NaN if fewer than two have it. */
static double shift_of(const wm_report_t *report, int64_t layer) {
  double low = INFINITY, high = -INFINITY;
  int64_t n = 0;
  for (int64_t i = 0; i < report->n; i++) {
    int64_t g = gate_of(&report->results[i], layer);
    if (g < 0)
      continue;
    double mean = wm_frame_number(&report->results[i].training.gates, g, "mean");
    low = fmin(low, mean);
    high = fmax(high, mean);
    n++;
  }
  return n > 1 ? high - low : NAN;
}

/* Rows "layer mean low high" of the gates whose mean lies in (from, to]. */
static void put_gates(FILE *f, const wm_frame_t *g, const char *name, double from, double to) {
  fprintf(f, "$%s << EOD\n", name);
  for (int64_t i = 0; i < g->n; i++) {
    double mean = wm_frame_number(g, i, "mean");
    if (!(mean > from) || !(mean <= to))
      continue;
    fprintf(f, "%g", wm_gated_layer(g, i));
    wm_figure_number(f, mean);
    wm_figure_number(f, wm_frame_number(g, i, "q05"));
    wm_figure_number(f, wm_frame_number(g, i, "q95"));
    fputc('\n', f);
  }
  fputs("NaN NaN NaN NaN\nEOD\n", f);
}

static void put_panel(FILE *f, const wm_results_t *r, bool last) {
  const wm_frame_t *g = &r->training.gates;
  put_gates(f, g, "low", -1, 1.0 / 3);
  put_gates(f, g, "middle", 1.0 / 3, 2.0 / 3);
  put_gates(f, g, "high", 2.0 / 3, 2);
  put_gates(f, g, "range", -1, 2);
  char *title = wm_format("%s: %lld gated layers", r->label, (long long)g->n);
  fputs("set label 1 ", f);
  wm_figure_label(f, title != NULL ? title : r->label);
  free(title);
  fprintf(f,
          " at graph 0, graph 1.1 left textcolor rgb " WM_INK "\n%s"
          "plot 1/3. with lines dt 2 lc rgb " WM_MUTED ", 2/3. with lines dt 2 lc rgb " WM_MUTED
          ",\\\n $low using 1:2 with boxes fs pattern 0 lw 1.5 lc rgb " WM_THIRD
          ",\\\n $middle using 1:2 with boxes fs pattern 4 lw 1.5 lc rgb " WM_FIRST
          ",\\\n $high using 1:2 with boxes fs pattern 3 lw 1.5 lc rgb " WM_SECOND
          ",\\\n $range using 1:2:3:4 with yerrorbars pt 7 ps 0.6 lw 1.2 lc rgb " WM_INK "\n",
          last ? "set xlabel 'layer'\n" : "");
}

static void draw_sets(wm_page_t *page) {
  enum { PANEL = 110, GAP = 46, FOOT = 48 };
  const wm_report_t *report = page->report;
  const int64_t n = count(report, has_gates), layers = layers_of_all(report);
  const int height = (int)n * (PANEL + GAP) + FOOT;
  wm_figure_t figure;
  int64_t shared = 0, shown = 0;
  double most = NAN;
  for (int64_t l = 0; l < layers; l++) {
    double shift = shift_of(report, l);
    shared += !isnan(shift);
    most = fmax(most, shift);
  }
  if (!wm_page_figure(page, &figure, "sets", "Where demand goes when other layers have gates.",
                      height))
    return;
  wm_page_number(page, "gated_sets", (double)n, 0);
  wm_page_raw(page, " trainings with gates. ");
  wm_page_number(page, "shared_gated_layers", (double)shared, 0);
  wm_page_raw(page, " layers have a gate in more than one of them; the mean of g of such a layer "
                    "differs between sets by at most ");
  wm_page_number(page, "largest_gate_shift", most, 3);
  wm_page_raw(page, ".");
  FILE *f = figure.script;
  fprintf(f,
          "set multiplot\nset lmargin at screen 0.08\nset rmargin at screen 0.99\n"
          "set xrange [-0.6:%g]\nset yrange [0:1]\nset ytics 0.5\nset ylabel 'g (1: the MLP)'\n"
          "set xtics %d\nunset key\nset boxwidth 0.6\n",
          (double)layers - 0.4,
          layers > 40   ? 4
          : layers > 16 ? 2
                        : 1);
  for (int64_t i = 0; i < report->n; i++) {
    if (!has_gates(&report->results[i]))
      continue;
    double top = (double)(shown * (PANEL + GAP) + GAP - 16);
    fprintf(f, "set tmargin at screen %.6f\nset bmargin at screen %.6f\n", 1 - top / height,
            1 - (top + PANEL) / height);
    shown++;
    put_panel(f, &report->results[i], shown == n);
  }
  fputs("unset multiplot\n", f);
  wm_page_end_figure(page, &figure, "sets",
                     "A panel is a training, a bar a gated layer's mean gate (empty: low, hatched: "
                     "middle, filled: high tier), a whisker the range from the 5th "
                     "to the 95th percentile of positions; layers without a bar have no gate. "
                     "Follow a layer downward: if its bar grows when other layers become linear "
                     "or shrinks when more have gates, demand is redistributed.");
}

static void put_layers(wm_page_t *page) {
  const wm_report_t *report = page->report;
  const int n = 2 + (int)count(report, has_gates);
  wm_column_t *columns = NULL;
  wm_error_t err = {0};
  void *memory = NULL;
  int c = 1;
  wm_page_keep(page, wm_alloc(&memory, n, sizeof *columns, "columns", &err), &err);
  columns = memory;
  if (columns == NULL)
    return;
  columns[0] = (wm_column_t){"layer", NULL, WM_ALIGN_RIGHT, 0};
  for (int64_t i = 0; i < report->n; i++)
    if (has_gates(&report->results[i]))
      columns[c++] = (wm_column_t){report->results[i].label, "mean g", WM_ALIGN_RIGHT, 4};
  columns[c] = (wm_column_t){"moves by", "largest less smallest", WM_ALIGN_RIGHT, 4};
  wm_table_t *t = wm_page_table(page, columns, n);
  for (int64_t l = 0; t != NULL && l < layers_of_all(report); l++) {
    wm_table_int(t, l);
    for (int64_t i = 0; i < report->n; i++)
      if (has_gates(&report->results[i]))
        wm_table_float(t, wm_frame_number(&report->results[i].training.gates,
                                          gate_of(&report->results[i], l), "mean"));
    wm_table_float(t, shift_of(report, l));
  }
  wm_page_put_table(page, t, "sets-layers", "Numbers: mean gate of each layer in each set", 1,
                    true);
  free(columns);
}

static void put_sets(wm_page_t *page) {
  static const wm_column_t columns[] = {{"training", NULL, WM_ALIGN_LEFT, 0},
                                        {"gated", "layers", WM_ALIGN_RIGHT, 0},
                                        {"mean g", NULL, WM_ALIGN_RIGHT, 4},
                                        {"sum of g", "MLPs asked for", WM_ALIGN_RIGHT, 3},
                                        {"least", "mean g of a layer", WM_ALIGN_RIGHT, 4},
                                        {"most", "mean g of a layer", WM_ALIGN_RIGHT, 4},
                                        {"MLP taken", "% (g >= 0.5)", WM_ALIGN_RIGHT, 2}};
  const wm_report_t *report = page->report;
  wm_table_t *t = wm_page_table(page, columns, sizeof columns / sizeof columns[0]);
  for (int64_t i = 0; t != NULL && i < report->n; i++) {
    const wm_frame_t *g = &report->results[i].training.gates;
    double sum = 0, least = NAN, most = NAN, taken = 0;
    if (g->n == 0)
      continue;
    for (int64_t k = 0; k < g->n; k++) {
      double mean = wm_frame_number(g, k, "mean");
      sum += mean;
      least = fmin(least, mean);
      most = fmax(most, mean);
      taken += wm_frame_number(g, k, "mlp");
    }
    wm_table_text(t, report->results[i].label);
    wm_table_int(t, g->n);
    wm_table_float(t, sum / (double)g->n);
    wm_table_float(t, sum);
    wm_table_float(t, least);
    wm_table_float(t, most);
    wm_table_float(t, taken / (double)g->n);
  }
  wm_page_put_table(page, t, "sets", "What each set of gated layers asks for", 1, false);
}

void wm_section_trainings(wm_page_t *page) {
  if (!wm_compares_trainings(page->report))
    return;
  page->scope = page->summary;
  wm_page_section(page, "trainings-compared", "Trainings compared");
  put_trainings(page);
  draw_courses(page);
  if (count(page->report, has_gates) > 1) {
    wm_page_raw(page, "<h3>Redistribution between sets of layers</h3>\n");
    put_sets(page);
    draw_sets(page);
    put_layers(page);
  }
  wm_page_end_section(page);
}
