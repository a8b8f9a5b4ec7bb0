/* Plans that were measured as one model, and their Pareto front; time beside operations. */
#include "page.h"
#include "wanamaker/base/mem.h"

#include <math.h>
#include <string.h>

/* ---- allocation.h5 --------------------------------------------------------------------------- */

static int64_t changed(const wm_results_t *r, int64_t plan) {
  int64_t n = 0;
  for (int64_t l = 0; l < r->plan_dims[1]; l++)
    n += r->plan_options[plan * r->plan_dims[1] + l] > 0;
  return n;
}

static void draw_front(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  char id[64];
  wm_figure_t figure;
  int64_t front = 0;
  for (int64_t p = 0; p < r->plans.n; p++)
    front += wm_frame_number(&r->plans, p, "front") > 0;
  if (!wm_page_figure(page, &figure, wm_model_id(id, sizeof id, model, "front"),
                      "What can be saved for which cost.", 380))
    return;
  wm_page_number(page, "plans_measured", (double)r->plans.n, 0);
  wm_page_raw(page, " plans were measured, ");
  wm_page_number(page, "plans_on_front", (double)front, 0);
  wm_page_raw(page, " are on the Pareto front.%s",
              r->search_complete ? "" : " The search was ended by its limit of plans.");
  FILE *f = figure.script;
  for (int which = 0; which < 2; which++) {
    fprintf(f, "$%s << EOD\n", which == 0 ? "plans" : "front");
    for (int64_t p = 0; p < r->plans.n; p++) {
      if ((wm_frame_number(&r->plans, p, "front") > 0) != (which == 1))
        continue;
      wm_figure_number(f, wm_frame_number(&r->plans, p, "saved_pct"));
      wm_figure_number(f, wm_frame_number(&r->plans, p, "delta_pct"));
      fputc('\n', f);
    }
    fputs("NaN NaN\nEOD\n", f);
  }
  fputs("set xlabel 'operations saved, % of the whole model'\n"
        "set ylabel 'perplexity, % above the full model'\nset key top left\n"
        "set xzeroaxis lt 1 lw 1 lc rgb " WM_INK "\n"
        "plot $plans using 1:2 with points pt 6 ps 0.6 lw 1 lc rgb " WM_MUTED " title 'plans',\\\n"
        " $front using 1:2 smooth unique with linespoints pt 7 ps 0.8 lw 2 lc rgb " WM_FIRST
        " title 'Pareto front'\n",
        f);
  wm_page_end_figure(page, &figure, id,
                     "A point is a whole model with some layers linear or routed, measured on the "
                     "validation range. On the line nothing that was measured saves as much for "
                     "less. Costs of the chosen plans on the evaluation range are in "
                     "<code>losses.allocation.h5</code>.");
}

/* Layers of a plan in words: "2 3g 5", g: routed by a gate. */
static void add_plan(wm_table_t *t, const wm_results_t *r, int64_t plan) {
  char text[512] = "";
  size_t used = 0;
  for (int64_t l = 0; l < r->plan_dims[1] && used < sizeof text - 16; l++) {
    double option = r->plan_options[plan * r->plan_dims[1] + l];
    if (!(option > 0))
      continue;
    int64_t seen = 0, row = -1; /* option o is the o-th entry of its layer in /options */
    for (int64_t i = 0; i < r->options.n && row < 0; i++)
      if (wm_frame_number(&r->options, i, "layer") == (double)l && (double)++seen == option)
        row = i;
    bool gated = wm_frame_number(&r->options, row, "gate") >= 0;
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld%s", used > 0 ? " " : "",
                             (long long)l, gated ? "g" : "");
  }
  wm_table_text(t, text[0] != '\0' ? text : "none");
}

static void put_plans(wm_page_t *page, int64_t model) {
  static const wm_column_t columns[] = {{"plan", NULL, WM_ALIGN_RIGHT, 0},
                                        {"layers", "g: routed by a gate", WM_ALIGN_LEFT, 0},
                                        {"changed", "layers", WM_ALIGN_RIGHT, 0},
                                        {"cost", "%, validation", WM_ALIGN_RIGHT, 3},
                                        {"single costs added up", "%", WM_ALIGN_RIGHT, 3},
                                        {"FLOPs saved", "%", WM_ALIGN_RIGHT, 2},
                                        {"saves most within", "% of cost", WM_ALIGN_RIGHT, -4}};
  const wm_results_t *r = &page->report->results[model];
  char id[64];
  wm_table_t *t = wm_page_table(page, columns, sizeof columns / sizeof columns[0]);
  for (int64_t p = 0; t != NULL && p < r->plans.n; p++) {
    double budget = NAN;
    for (int64_t b = 0; b < r->budgets.n; b++)
      if (wm_frame_number(&r->budgets, b, "plan") == (double)p)
        budget = wm_frame_number(&r->budgets, b, "delta_pct");
    if (!(wm_frame_number(&r->plans, p, "front") > 0) && isnan(budget))
      continue;
    wm_table_int(t, p);
    add_plan(t, r, p);
    wm_table_int(t, changed(r, p));
    wm_table_float(t, wm_frame_number(&r->plans, p, "delta_pct"));
    wm_table_float(t, wm_frame_number(&r->plans, p, "sum_of_singles_pct"));
    wm_table_float(t, wm_frame_number(&r->plans, p, "saved_pct"));
    wm_table_float(t, budget);
  }
  wm_page_put_table(page, t, wm_model_id(id, sizeof id, model, "front"),
                    "Numbers: plans on the Pareto front and plans chosen for a budget", 1, true);
}

void wm_section_allocation(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  if (r->files[WM_FILE_ALLOCATION].state != WM_FILE_READ || r->plans.n == 0)
    return;
  wm_page_raw(page, "<h3>Allocation</h3>\n");
  draw_front(page, model);
  put_plans(page, model);
}

/* ---- bench.h5 -------------------------------------------------------------------------------- */

/* What each row of /routing counts as: the paths by the last word of its name. */
static bool is_path(const wm_frame_t *frame, int64_t row, const char *path) {
  return strstr(wm_frame_text(frame, row, "name"), path) != NULL;
}

static void put_path(FILE *f, const wm_frame_t *frame, const char *path) {
  fprintf(f, "$%s << EOD\n", path);
  for (int64_t i = 0; i < frame->n; i++) {
    if (!is_path(frame, i, path))
      continue;
    wm_figure_number(f, wm_frame_number(frame, i, "flops_saved"));
    wm_figure_number(f, wm_frame_number(frame, i, "time_saved"));
    fputc('\n', f);
  }
  fputs("NaN NaN\nEOD\n", f);
}

static void draw_time(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  const wm_frame_t *frame = r->bench_losses.n > 0 ? &r->bench_losses : &r->bench_routing;
  char id[64];
  wm_figure_t figure;
  if (!wm_page_figure(page, &figure, wm_model_id(id, sizeof id, model, "time"),
                      "Time saved against operations saved.", 340))
    return;
  wm_page_raw(page, "Measured by the clock, on a model with random weights of the shape that the "
                    "bench names.");
  FILE *f = figure.script;
  put_path(f, frame, "linear");
  put_path(f, frame, "gate");
  put_path(f, frame, "random");
  fputs("set xlabel 'operations saved, %'\nset ylabel 'time saved, %'\nset key top center "
        "horizontal outside\n"
        "plot x with lines lw 1.5 dt 2 lc rgb " WM_MUTED " title 'all of it appears',\\\n"
        " $linear using 1:2 with points pt 5 ps 1 lc rgb " WM_SECOND " title 'linear',\\\n"
        " $gate using 1:2 with points pt 6 ps 1.1 lw 1.5 lc rgb " WM_FIRST " title 'gate',\\\n"
        " $random using 1:2 with points pt 2 ps 1 lw 1.5 lc rgb " WM_THIRD " title 'random'\n",
        f);
  wm_page_end_figure(page, &figure, id,
                     "On the dashed line every operation that is saved is time saved; below it, "
                     "gathering and scattering positions eats the gain.");
}

static void add_rows(wm_table_t *t, const wm_frame_t *frame, const char *what) {
  for (int64_t i = 0; i < frame->n; i++) {
    wm_table_text(t, what);
    wm_table_text(t, wm_frame_text(frame, i, "name"));
    wm_table_float(t, wm_frame_number(frame, i, "routed"));
    wm_table_float(t, wm_frame_number(frame, i, "full"));
    wm_table_float(t, wm_frame_number(frame, i, "best"));
    wm_table_float(t, wm_frame_number(frame, i, "speedup"));
    wm_table_float(t, wm_frame_number(frame, i, "flops_saved"));
    wm_table_float(t, wm_frame_number(frame, i, "time_saved"));
    wm_table_float(t, wm_frame_number(frame, i, "appears"));
  }
}

void wm_section_bench(wm_page_t *page, int64_t model) {
  static const wm_column_t columns[] = {
      {"measured", NULL, WM_ALIGN_LEFT, 0},    {"case", NULL, WM_ALIGN_LEFT, 0},
      {"routed", "%", WM_ALIGN_RIGHT, 1},      {"full", "s", WM_ALIGN_RIGHT, 4},
      {"best", "s", WM_ALIGN_RIGHT, 4},        {"speed-up", NULL, WM_ALIGN_RIGHT, 3},
      {"FLOPs saved", "%", WM_ALIGN_RIGHT, 2}, {"time saved", "%", WM_ALIGN_RIGHT, 2},
      {"appears", "%", WM_ALIGN_RIGHT, 1}};
  const wm_results_t *r = &page->report->results[model];
  char id[64];
  if (r->files[WM_FILE_BENCH].state != WM_FILE_READ ||
      r->bench_routing.n + r->bench_losses.n + r->bench_last.n == 0)
    return;
  wm_page_raw(page, "<h3>Time and FLOPs</h3>\n");
  draw_time(page, model);
  wm_table_t *t = wm_page_table(page, columns, sizeof columns / sizeof columns[0]);
  if (t != NULL) {
    add_rows(t, &r->bench_routing, "layers");
    add_rows(t, &r->bench_last, "last logits");
    add_rows(t, &r->bench_losses, "all losses");
  }
  wm_page_put_table(page, t, wm_model_id(id, sizeof id, model, "time"),
                    "Numbers: time and operations", 2, true);
}
