/* A page under way, and the sections that it is made of. Trouble is kept in `error` and ends in
 * wm_report_write, so that sections read as text. */
#ifndef WANAMAKER_SRC_REPORT_PAGE_H
#define WANAMAKER_SRC_REPORT_PAGE_H

#include "wanamaker/report/figure.h"
#include "wanamaker/report/html.h"
#include "wanamaker/report/report.h"
#include "wanamaker/report/table.h"

#include <jansson.h>

typedef struct {
  const wm_report_t *report;
  FILE *html;
  json_t *summary; /* owned */
  json_t *scope;   /* borrowed: object that named numbers go into */
  int figures, figures_missing, tables;
  char *figures_why;  /* of the first one that is missing; owned */
  bool gnuplot_hangs; /* the next figures are not tried: a page must not take hours */
  wm_error_t error;
} wm_page_t;

extern const char wm_style_sheet[];

bool wm_page_ok(const wm_page_t *page);
/* Keeps the first failure. */
void wm_page_keep(wm_page_t *page, wm_status_t status, const wm_error_t *err);
/* Markup of this program's own. */
void wm_page_raw(wm_page_t *page, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Text from anywhere. */
void wm_page_text(wm_page_t *page, const char *text);
/* A number of the results in the text, which goes into the summary's scope as `name`, too. */
void wm_page_number(wm_page_t *page, const char *name, double value, int decimals);
/* The number in the summary alone. */
void wm_page_note(wm_page_t *page, const char *name, double value);

/* Starts a section of <main>; its id also serves as anchor. */
void wm_page_section(wm_page_t *page, const char *id, const char *title);
void wm_page_end_section(wm_page_t *page);
/* "<p class=missing>": what a section needs, by which job. */
void wm_page_missing(wm_page_t *page, const wm_results_t *r, wm_file_kind_t kind);

/* Starts a table; NULL after a failure, which the table functions must not be given. */
wm_table_t *wm_page_table(wm_page_t *page, const wm_column_t *columns, int n);
/* Puts it into the page and into tables/ID.csv, and frees it. `folded`: behind a <details>. */
void wm_page_put_table(wm_page_t *page, wm_table_t *table, const char *id, const char *caption,
                       int heads, bool folded);

/* <figure> and its caption, which the caller goes on with; the caption is the alternative text. */
bool wm_page_figure(wm_page_t *page, wm_figure_t *figure, const char *id, const char *title,
                    int height);
/* Draws it; `how`: how to read it, this program's own markup. */
void wm_page_end_figure(wm_page_t *page, wm_figure_t *figure, const char *id, const char *how);

/* Do the layers' costs, or the study's that are shown with them, span decades? */
bool wm_costs_are_wide(const wm_page_t *page, const wm_results_t *r);
/* Settings of a vertical axis for costs: where they span decades (`wide`), linear around 0 and
 * logarithmic beyond. */
void wm_axis_wide(FILE *script, bool wide);

/* The value of `member` in `group` of a configuration's text; NaN. */
double wm_configured(const wm_results_t *r, const char *group, const char *member);
/* "95 %": confidence of the intervals, for titles. */
const char *wm_confidence_text(const wm_results_t *r, char *text, size_t size);

/* As JSON: text with "?" for what is ill-formed. */
json_t *wm_json_text(const char *text);
/* null for NaN, "inf"; integers as such. */
json_t *wm_json_number(double value);

/* Layers that the last phase of a training has linear or gated; NaN. */
double wm_training_layers(const wm_results_t *r);
/* Layer of a row of a training's gates, by the row's name; NaN. */
double wm_gated_layer(const wm_frame_t *gates, int64_t row);
/* The study's curve "LAYER PERCENT" of a variant, for results of its models, as the block $NAME;
 * false: it has none. */
bool wm_page_published(FILE *script, const wm_page_t *page, const wm_results_t *r,
                       const char *variant, const char *name);
/* Are there two or more that have something to compare? */
bool wm_compares_models(const wm_report_t *report);
bool wm_compares_trainings(const wm_report_t *report);

/* Prefix of the ids of model number i: "m0-layers". Borrowed from `buffer`. */
const char *wm_model_id(char *buffer, size_t size, int64_t i, const char *name);

/* --- sections, each a file of its own --- */
void wm_section_answer(wm_page_t *page);
void wm_section_layers(wm_page_t *page, int64_t model);
void wm_section_joint(wm_page_t *page, int64_t model);
void wm_section_gates(wm_page_t *page, int64_t model);
void wm_section_allocation(wm_page_t *page, int64_t model);
void wm_section_fit(wm_page_t *page, int64_t model);
void wm_section_bench(wm_page_t *page, int64_t model);
void wm_section_training(wm_page_t *page, int64_t model);
void wm_section_probes(wm_page_t *page, int64_t model);
/* Parts of the training's section: how the plan stands to its control, in a sentence that goes on
 * in the answer, in a paragraph, and on every range. */
void wm_page_standing(wm_page_t *page, const wm_results_t *r);
void wm_page_against(wm_page_t *page, const wm_results_t *r);
void wm_page_against_table(wm_page_t *page, int64_t model);
/* The same for summary.json; NULL: memory. */
json_t *wm_json_against(const wm_results_t *r);
void wm_section_models(wm_page_t *page);
void wm_section_trainings(wm_page_t *page);
void wm_section_ledger(wm_page_t *page);
void wm_section_published(wm_page_t *page);
void wm_section_missing(wm_page_t *page);
void wm_section_provenance(wm_page_t *page);

#endif
