/* The first screen: which layers are wasted, at what cost, how sure; and the figures of it. */
#include "page.h"
#include "wanamaker/base/mem.h"

#include <math.h>
#include <string.h>

static double cost_of(const wm_results_t *r, const wm_layer_result_t *l, const char *member) {
  return wm_frame_number(&r->variants, l->linear, member);
}

/* ---- the answer in words --------------------------------------------------------------------- */

static void put_layers(wm_page_t *page, const wm_results_t *r, wm_verdict_t verdict) {
  int64_t shown = 0;
  for (int64_t i = 0; i < r->n_layers; i++)
    if (r->layer_results[i].verdict == verdict)
      wm_page_raw(page, "%s<data class=\"layer\" value=\"%lld\">%lld</data>",
                  shown++ > 0 ? ", " : "", (long long)r->layer_results[i].layer,
                  (long long)r->layer_results[i].layer);
}

/* What training has changed, if there was any. */
static void answer_training(wm_page_t *page, const wm_results_t *r) {
  const wm_frame_t *plan = wm_training_range(&r->training, "evaluation");
  const wm_frame_t *control = wm_training_range(&r->control, "evaluation");
  const int64_t end = wm_training_end(plan), other = wm_training_end(control);
  if (end < 0 && other >= 0) {
    wm_page_raw(page, " The control alone, with nothing linear, changes its perplexity by ");
    wm_page_number(page, "control_change_pct", wm_frame_number(control, other, "delta_pct"), 2);
    wm_page_raw(page, "&#160;%%.");
  }
  if (end < 0)
    return;
  wm_page_raw(page, " Trained by the plan <code>");
  wm_page_text(page, wm_attribute(&r->files[WM_FILE_FINETUNE].attributes, "plan"));
  wm_page_raw(page, "</code> with ");
  wm_page_number(page, "trained_layers", wm_training_layers(r), 0);
  wm_page_raw(page, " layers linear or gated, its perplexity changes by ");
  wm_page_number(page, "training_change_pct", wm_frame_number(plan, end, "delta_pct"), 2);
  wm_page_raw(page, "&#160;%% (");
  wm_page_number(page, "training_low_pct", wm_frame_number(plan, end, "low"), 2);
  wm_page_raw(page, " to ");
  wm_page_number(page, "training_high_pct", wm_frame_number(plan, end, "high"), 2);
  wm_page_raw(page, "); ");
  if (other < 0) {
    wm_page_raw(page, "without a control, nobody can say what of it is the training's.");
    return;
  }
  wm_page_raw(page, "that of its control, with nothing linear, by ");
  wm_page_number(page, "control_change_pct", wm_frame_number(control, other, "delta_pct"), 2);
  wm_page_raw(page, wm_training_is_fair(r)
                        ? "&#160;%% on the same tokens."
                        : "&#160;%%, on other tokens, so that the two are not to be ranked.");
}

static void answer_layers(wm_page_t *page, const wm_results_t *r) {
  const wm_overview_t *o = &r->overview;
  const char *why = wm_results_unmeasured(r);
  if (why != NULL) {
    wm_page_text(page, why);
    for (int k = 0, shown = 0; k < WM_FILE_KINDS; k++)
      if (r->files[k].state == WM_FILE_READ)
        wm_page_raw(page, "%s<code>%s</code>", shown++ > 0 ? ", " : "; here are ",
                    r->files[k].name);
    wm_page_raw(page, ".");
  }
  if (o->measured == 0)
    return;
  wm_page_raw(page, "<strong>");
  wm_page_number(page, "layers_wasted", (double)o->wasted, 0);
  wm_page_raw(page, " of ");
  wm_page_number(page, "layers_measured", (double)o->measured, 0);
  wm_page_raw(page, " layer%s %s wasted", o->measured == 1 ? "" : "s",
              o->measured == 1 || o->wasted == 1 ? "is" : "are");
  if (o->wasted > 0) {
    wm_page_raw(page, " (");
    put_layers(page, r, WM_WASTED);
    wm_page_raw(page, ")");
  }
  wm_page_raw(page, o->wasted == 0   ? "</strong>: no layer, alone,"
                    : o->wasted == 1 ? "</strong>: alone, it"
                                     : "</strong>: each of them, alone,");
  wm_page_raw(page, " may be replaced by its linear map for at most ");
  wm_page_number(page, "tolerance_pct", r->tolerance, -4);
  wm_page_raw(page, "&#160;%% of perplexity, even at the upper end of its ");
  wm_page_number(page, "confidence_pct", 100 * wm_configured(r, "bootstrap", "confidence"), -4);
  wm_page_raw(page, "&#160;%% interval. ");
  wm_page_number(page, "layers_needed", (double)o->needed, 0);
  wm_page_raw(page, o->needed == 1 ? " is needed" : " are needed");
  if (o->needed > 0) {
    wm_page_raw(page, " (");
    put_layers(page, r, WM_NEEDED);
    wm_page_raw(page, ")");
  }
  wm_page_raw(page, ", ");
  wm_page_number(page, "layers_undecided", (double)o->undecided, 0);
  wm_page_raw(page, " undecided. Median cost of a layer: ");
  wm_page_number(page, "median_cost_pct", o->median_cost, 3);
  wm_page_raw(page, "&#160;%%.");
}

static void answer(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  wm_page_raw(page, "<p class=\"answer\" data-m=\"m%lld\"><strong class=\"name\">",
              (long long)model);
  wm_page_text(page, r->label);
  wm_page_raw(page, "</strong>: ");
  answer_layers(page, r);
  answer_training(page, r);
  wm_page_standing(page, r);
  wm_page_raw(page, "</p>\n");
}

static void put_legend(wm_page_t *page) {
  wm_page_raw(
      page,
      "<p class=\"how\"><strong>wasted</strong>: the whole interval of the cost lies at or below "
      "the tolerance. <strong>needed</strong>: all of it lies above. <strong>undecided</strong>: "
      "neither, or fewer than ten units to resample. A verdict is about one layer with all others "
      "untouched; what several cost together is measured as a set, below. Cost is "
      "the perplexity of the model with the layer's MLP replaced, in percent above the full "
      "model's on the same tokens; the interval is a paired bootstrap's.</p>\n");
}

/* ---- the table ------------------------------------------------------------------------------- */

static void fill_layers(wm_table_t *t, const wm_results_t *r) {
  for (int64_t i = 0; i < r->n_layers; i++) {
    const wm_layer_result_t *l = &r->layer_results[i];
    wm_table_int(t, l->layer);
    wm_table_text(t, wm_verdict_name(l->verdict));
    wm_table_float(t, cost_of(r, l, "delta_pct"));
    wm_table_float(t, cost_of(r, l, "low"));
    wm_table_float(t, cost_of(r, l, "high"));
    wm_table_float(t, cost_of(r, l, "p_holm"));
    wm_table_float(t, wm_frame_number(&r->layers, l->surrogate, "r2_heldout"));
  }
}

static void put_layer_table(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  char id[64], confidence[40];
  wm_confidence_text(r, confidence, sizeof confidence);
  const wm_column_t columns[] = {
      {"layer", NULL, WM_ALIGN_RIGHT, 0},    {"verdict", NULL, WM_ALIGN_LEFT, 0},
      {"cost", "%", WM_ALIGN_RIGHT, 3},      {"from", confidence, WM_ALIGN_RIGHT, 3},
      {"to", confidence, WM_ALIGN_RIGHT, 3}, {"p", "Holm", WM_ALIGN_RIGHT, 4},
      {"R2", "held out", WM_ALIGN_RIGHT, 4}};
  wm_table_t *t = wm_page_table(page, columns, sizeof columns / sizeof columns[0]);
  if (t == NULL)
    return;
  fill_layers(t, r);
  wm_page_put_table(page, t, wm_model_id(id, sizeof id, model, "layers"),
                    "Cost of each layer's linear replacement", 1, false);
}

/* Every variant with all that is known of it. */
static void put_variants(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  char id[64], confidence[40];
  wm_confidence_text(r, confidence, sizeof confidence);
  const wm_column_t columns[] = {{"layers", NULL, WM_ALIGN_LEFT, 0},
                                 {"path", NULL, WM_ALIGN_LEFT, 0},
                                 {"gate", NULL, WM_ALIGN_LEFT, 0},
                                 {"threshold", NULL, WM_ALIGN_RIGHT, 2},
                                 {"PPL", NULL, WM_ALIGN_RIGHT, 3},
                                 {"cost", "%", WM_ALIGN_RIGHT, 3},
                                 {"from", confidence, WM_ALIGN_RIGHT, 3},
                                 {"to", confidence, WM_ALIGN_RIGHT, 3},
                                 {"p", NULL, WM_ALIGN_RIGHT, 4},
                                 {"p", "Holm", WM_ALIGN_RIGHT, 4},
                                 {"p", "BH", WM_ALIGN_RIGHT, 4},
                                 {"routed", "%", WM_ALIGN_RIGHT, 1},
                                 {"FLOPs saved", "%", WM_ALIGN_RIGHT, 2},
                                 {"KL", "nats", WM_ALIGN_RIGHT, 4},
                                 {"same top token", "%", WM_ALIGN_RIGHT, 1}};
  static const struct {
    const char *member;
    double factor;
  } members[] = {{"threshold", 1}, {"ppl", 1},  {"delta_pct", 1},
                 {"low", 1},       {"high", 1}, {"p_two_sided", 1},
                 {"p_holm", 1},    {"p_bh", 1}, {"routed_fraction", 100},
                 {"saved_pct", 1}, {"kl", 1},   {"top1_agreement", 100}};
  wm_table_t *t =
      r->variants.n > 0 ? wm_page_table(page, columns, sizeof columns / sizeof columns[0]) : NULL;
  for (int64_t v = 0; t != NULL && v < r->variants.n; v++) {
    wm_table_text(t, wm_frame_text(&r->variants, v, "layers"));
    wm_table_text(t, wm_frame_text(&r->variants, v, "path"));
    wm_table_text(t, wm_frame_text(&r->variants, v, "gate"));
    for (size_t m = 0; m < sizeof members / sizeof members[0]; m++)
      wm_table_float(t, members[m].factor * wm_frame_number(&r->variants, v, members[m].member));
  }
  wm_page_put_table(page, t, wm_model_id(id, sizeof id, model, "variants"),
                    "Numbers: every variant of the sweep", 1, true);
}

/* ---- the figure ------------------------------------------------------------------------------ */

bool wm_costs_are_wide(const wm_page_t *page, const wm_results_t *r) {
  const wm_published_t *p = page->report->published;
  const char *model = wm_results_study_model(r);
  double most = 0;
  for (int64_t i = 0; i < r->n_layers; i++) {
    const wm_layer_result_t *l = &r->layer_results[i];
    most = fmax(most, fabs(cost_of(r, l, "delta_pct")));
    if (model != NULL)
      most = fmax(
          most, fabs(wm_csv_number(&p->layers, wm_published_layer(p, model, l->layer, "all-linear"),
                                   "delta_pct")));
  }
  return most > 12 * fmax(1, fabs(r->overview.median_cost));
}

void wm_axis_wide(FILE *f, bool wide) {
  if (wide)
    fprintf(f, "set nonlinear y via asinh(2*y) inverse sinh(y)/2\n"
               "set ytics (-100,-30,-10,-3,-1,-0.3,0,0.3,1,3,10,30,100,300,1000,3000,10000,1e5,"
               "1e6)\n");
}

static void put_points(FILE *f, const wm_results_t *r, wm_verdict_t verdict, const char *name) {
  fprintf(f, "$%s << EOD\n", name);
  for (int64_t i = 0; i < r->n_layers; i++) {
    const wm_layer_result_t *l = &r->layer_results[i];
    if (l->verdict != verdict)
      continue;
    fprintf(f, "%lld", (long long)l->layer);
    wm_figure_number(f, cost_of(r, l, "delta_pct"));
    wm_figure_number(f, cost_of(r, l, "low"));
    wm_figure_number(f, cost_of(r, l, "high"));
    fputc('\n', f);
  }
  fputs("NaN NaN NaN NaN\nEOD\n", f);
}

bool wm_page_published(FILE *f, const wm_page_t *page, const wm_results_t *r, const char *variant,
                       const char *name) {
  const char *model = wm_results_study_model(r);
  bool any = false;
  fprintf(f, "$%s << EOD\n", name);
  for (int64_t i = 0; i < r->n_layers && model != NULL; i++) {
    int64_t row =
        wm_published_layer(page->report->published, model, r->layer_results[i].layer, variant);
    if (row < 0)
      continue;
    any = true;
    fprintf(f, "%lld", (long long)r->layer_results[i].layer);
    wm_figure_number(f, wm_csv_number(&page->report->published->layers, row, "delta_pct"));
    fputc('\n', f);
  }
  fputs("NaN NaN\nEOD\n", f);
  return any;
}

static void draw_costs(FILE *f, const wm_page_t *page, const wm_results_t *r) {
  put_points(f, r, WM_WASTED, "wasted");
  put_points(f, r, WM_UNDECIDED, "undecided");
  put_points(f, r, WM_NEEDED, "needed");
  bool published = wm_page_published(f, page, r, "all-linear", "study");
  const int64_t last = r->layer_results[r->n_layers - 1].layer;
  wm_axis_wide(f, wm_costs_are_wide(page, r));
  fprintf(
      f,
      "set xrange [-0.6:%g]\nset xtics %d\nset xlabel 'layer'\n"
      "set ylabel 'perplexity, %% above the full model'\nset key top center horizontal outside\n"
      "set xzeroaxis lt 1 lw 1 lc rgb " WM_INK "\n"
      "plot %.10g with lines lw 1.5 dt 2 lc rgb " WM_MUTED " title 'tolerance',\\\n"
      "%s"
      " $wasted using 1:2:3:4 with yerrorbars pt 7 ps 0.9 lw 1.5 lc rgb " WM_THIRD
      " title 'wasted',\\\n"
      " $undecided using 1:2:3:4 with yerrorbars pt 13 ps 1.0 lw 1.5 lc rgb " WM_FIRST
      " title 'undecided',\\\n"
      " $needed using 1:2:3:4 with yerrorbars pt 6 ps 1.0 lw 1.5 lc rgb " WM_SECOND
      " title 'needed'\n",
      (double)last + 0.6,
      last > 40   ? 4
      : last > 16 ? 2
                  : 1,
      r->tolerance,
      published ? " $study with linespoints pt 2 ps 0.7 lw 1.2 dt 3 lc rgb " WM_MUTED
                  " title 'the study',\\\n"
                : "");
}

static void put_cost_figure(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  char id[64];
  wm_figure_t figure;
  if (r->overview.cheapest < 0)
    return; /* no layer has a cost that is a number */
  wm_model_id(id, sizeof id, model, "cost");
  if (!wm_page_figure(page, &figure, id, "Cost of linearising each layer.", 380))
    return;
  const wm_layer_result_t *low = &r->layer_results[r->overview.cheapest];
  const wm_layer_result_t *high = &r->layer_results[r->overview.dearest];
  wm_page_raw(page, "Least: layer ");
  wm_page_number(page, "cheapest_layer", (double)low->layer, 0);
  wm_page_raw(page, ", ");
  wm_page_number(page, "cheapest_cost_pct", cost_of(r, low, "delta_pct"), 3);
  wm_page_raw(page, "&#160;%%. Most: layer ");
  wm_page_number(page, "dearest_layer", (double)high->layer, 0);
  wm_page_raw(page, ", ");
  wm_page_number(page, "dearest_cost_pct", cost_of(r, high, "delta_pct"), 3);
  wm_page_raw(page, "&#160;%%.");
  draw_costs(figure.script, page, r);
  wm_page_end_figure(
      page, &figure, id,
      wm_costs_are_wide(page, r)
          ? "A point is a layer's cost, its bar the interval; points whose bar stays below "
            "the dashed line are wasted. Costs span decades: the axis is linear close to "
            "zero and logarithmic beyond."
          : "A point is a layer's cost, its bar the interval; points whose bar stays below "
            "the dashed line are wasted (filled), those above it needed (open).");
}

/* ---- sections -------------------------------------------------------------------------------- */

void wm_section_answer(wm_page_t *page) {
  const wm_report_t *report = page->report;
  json_t *models = json_object_get(page->summary, "models");
  wm_page_raw(page, "<div class=\"answers\">\n");
  for (int64_t i = 0; i < report->n; i++) {
    page->scope = json_array_get(models, (size_t)i);
    answer(page, i);
  }
  wm_page_raw(page, "</div>\n");
  page->scope = page->summary;
}

void wm_section_layers(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  if (r->files[WM_FILE_SWEEP].state != WM_FILE_READ)
    wm_page_missing(page, r, WM_FILE_SWEEP);
  if (r->n_layers == 0)
    return;
  wm_page_raw(page, "<div class=\"pair\"><div>\n");
  put_layer_table(page, model);
  wm_page_raw(page, "</div><div>\n");
  put_cost_figure(page, model);
  if (model == 0)
    put_legend(page);
  wm_page_raw(page, "</div></div>\n");
  put_variants(page, model);
}

/* ---- sets of layers -------------------------------------------------------------------------- */

/* Adds the single costs of the layers that row v of `variants` changes; NaN if one has none. */
static double sum_of_singles(const wm_results_t *r, int64_t v) {
  double sum = 0;
  for (int64_t c = 0; c < r->changes.n; c++) {
    if (wm_frame_number(&r->changes, c, "variant") != (double)v)
      continue;
    double layer = wm_frame_number(&r->changes, c, "layer"), cost = NAN;
    for (int64_t i = 0; i < r->n_layers; i++)
      if ((double)r->layer_results[i].layer == layer)
        cost = cost_of(r, &r->layer_results[i], "delta_pct");
    sum += cost;
  }
  return sum;
}

static int64_t changed_layers(const wm_results_t *r, int64_t v) {
  int64_t n = 0;
  for (int64_t c = 0; c < r->changes.n; c++)
    n += wm_frame_number(&r->changes, c, "variant") == (double)v;
  return n;
}

void wm_section_joint(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  char id[64], confidence[40];
  wm_confidence_text(r, confidence, sizeof confidence);
  const wm_column_t columns[] = {{"layers", NULL, WM_ALIGN_LEFT, 0},
                                 {"path", NULL, WM_ALIGN_LEFT, 0},
                                 {"gate", NULL, WM_ALIGN_LEFT, 0},
                                 {"cost", "%", WM_ALIGN_RIGHT, 3},
                                 {"from", confidence, WM_ALIGN_RIGHT, 3},
                                 {"to", confidence, WM_ALIGN_RIGHT, 3},
                                 {"single costs added up", "linear, %", WM_ALIGN_RIGHT, 3},
                                 {"routed", "% of positions", WM_ALIGN_RIGHT, 1},
                                 {"FLOPs saved", "%", WM_ALIGN_RIGHT, 2},
                                 {"without the head", "%", WM_ALIGN_RIGHT, 2}};
  int64_t n = 0;
  for (int64_t v = 1; v < r->variants.n; v++)
    n += changed_layers(r, v) > 1;
  if (n == 0)
    return;
  wm_page_raw(page, "<h3>Sets of layers, measured as one model</h3>\n");
  wm_table_t *t = wm_page_table(page, columns, sizeof columns / sizeof columns[0]);
  for (int64_t v = 1; t != NULL && v < r->variants.n; v++) {
    if (changed_layers(r, v) < 2)
      continue;
    wm_table_text(t, wm_frame_text(&r->variants, v, "layers"));
    wm_table_text(t, wm_frame_text(&r->variants, v, "path"));
    wm_table_text(t, wm_frame_text(&r->variants, v, "gate"));
    wm_table_float(t, wm_frame_number(&r->variants, v, "delta_pct"));
    wm_table_float(t, wm_frame_number(&r->variants, v, "low"));
    wm_table_float(t, wm_frame_number(&r->variants, v, "high"));
    wm_table_float(t, sum_of_singles(r, v));
    wm_table_float(t, 100 * wm_frame_number(&r->variants, v, "routed_fraction"));
    wm_table_float(t, wm_frame_number(&r->variants, v, "saved_pct"));
    wm_table_float(t, wm_frame_number(&r->variants, v, "saved_body_pct"));
  }
  wm_page_put_table(page, t, wm_model_id(id, sizeof id, model, "sets"),
                    "Several layers changed together", 1, false);
  wm_page_raw(page, "<p class=\"how\">Costs do not add up: where the measured cost exceeds the sum "
                    "of the single costs, layers stand in for each other, and not all that are "
                    "wasted alone are wasted together.</p>\n");
}
