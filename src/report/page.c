#include "page.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/io/files.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

/* ---- text ------------------------------------------------------------------------------------ */

bool wm_page_ok(const wm_page_t *page) {
  return page->error.status == WM_OK;
}

void wm_page_keep(wm_page_t *page, wm_status_t status, const wm_error_t *err) {
  if (status != WM_OK && wm_page_ok(page))
    page->error = *err;
}

void wm_page_raw(wm_page_t *page, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vfprintf(page->html, format, args);
  va_end(args);
}

void wm_page_text(wm_page_t *page, const char *text) {
  wm_html_text(page->html, text);
}

json_t *wm_json_number(double value) {
  if (isnan(value))
    return json_null();
  if (isinf(value))
    return json_string(value > 0 ? "inf" : "-inf");
  return value == floor(value) && fabs(value) < 1e15 ? json_integer((json_int_t)value)
                                                     : json_real(value);
}

void wm_page_note(wm_page_t *page, const char *name, double value) {
  if (json_object_set_new(page->scope, name, wm_json_number(value)) != 0 && wm_page_ok(page))
    wm_fail(&page->error, WM_ENVIRONMENT, "cannot allocate the summary");
}

void wm_page_number(wm_page_t *page, const char *name, double value, int decimals) {
  wm_html_number(page->html, name, value, decimals);
  wm_page_note(page, name, value);
}

void wm_page_section(wm_page_t *page, const char *id, const char *title) {
  wm_page_raw(page, "<section id=\"%s\" aria-labelledby=\"%s-title\"><h2 id=\"%s-title\">", id, id,
              id);
  wm_page_text(page, title);
  wm_page_raw(page, "</h2>\n");
}

void wm_page_end_section(wm_page_t *page) {
  wm_page_raw(page, "</section>\n");
}

void wm_page_missing(wm_page_t *page, const wm_results_t *r, wm_file_kind_t kind) {
  const wm_result_file_t *f = &r->files[kind];
  wm_page_raw(page, "<p class=\"missing\"><strong>%s</strong> ", f->name);
  if (f->state == WM_FILE_BAD) {
    wm_page_raw(page, "cannot be read: ");
    wm_page_text(page, f->why);
  } else {
    wm_page_raw(page, "is not there");
  }
  wm_page_raw(page, ". The job <code>%s</code> writes it; it would show: %s.</p>\n", f->job,
              f->shows);
}

const char *wm_model_id(char *buffer, size_t size, int64_t i, const char *name) {
  snprintf(buffer, size, "m%lld-%s", (long long)i, name);
  return buffer;
}

/* ---- what results were made with ------------------------------------------------------------- */

double wm_configured(const wm_results_t *r, const char *group, const char *member) {
  return wm_configuration_number(wm_results_attribute(r, "configuration"), group, member);
}

const char *wm_confidence_text(const wm_results_t *r, char *text, size_t size) {
  double confidence = wm_configured(r, "bootstrap", "confidence");
  if (isnan(confidence))
    snprintf(text, size, "interval");
  else
    snprintf(text, size, "%.4g %% interval", 100 * confidence);
  return text;
}

/* ---- tables ---------------------------------------------------------------------------------- */

wm_table_t *wm_page_table(wm_page_t *page, const wm_column_t *columns, int n) {
  wm_table_t *table = NULL;
  wm_error_t err = {0};
  if (wm_page_ok(page))
    wm_page_keep(page, wm_table_create(columns, n, &table, &err), &err);
  return table;
}

/* Under its temporary name: it appears with the page. */
static wm_status_t write_csv(const wm_page_t *page, const wm_table_t *table, const char *id,
                             wm_error_t *err) {
  char *temporary = wm_format("%s/tables/%s.csv.tmp", page->report->dir, id);
  wm_status_t status = WM_OK;
  FILE *f = NULL;
  if (temporary == NULL)
    status = wm_fail(err, WM_ENVIRONMENT, "cannot allocate a path");
  else if ((f = fopen(temporary, "w")) == NULL)
    status = wm_fail(err, WM_ENVIRONMENT, "%s: cannot write: %s", temporary, strerror(errno));
  if (status == WM_OK)
    status = wm_table_print(table, WM_TABLE_CSV, f, err);
  if (f != NULL && fclose(f) != 0 && status == WM_OK)
    status = wm_fail(err, WM_ENVIRONMENT, "%s: cannot write: %s", temporary, strerror(errno));
  free(temporary);
  return status;
}

void wm_page_put_table(wm_page_t *page, wm_table_t *table, const char *id, const char *caption,
                       int heads, bool folded) {
  wm_error_t err = {0};
  if (table == NULL)
    return;
  if (folded) {
    wm_page_raw(page, "<details class=\"data\"><summary>");
    wm_page_text(page, caption);
    wm_page_raw(page, "</summary>\n");
  }
  wm_status_t status = wm_table_html(table, id, folded ? NULL : caption, heads, page->html, &err);
  wm_page_raw(page, "<p class=\"source\"><a href=\"tables/%s.csv\">tables/%s.csv</a></p>\n%s", id,
              id, folded ? "</details>\n" : "");
  if (status == WM_OK)
    status = write_csv(page, table, id, &err);
  wm_page_keep(page, status, &err);
  wm_table_free(table);
  page->tables++;
  json_array_append_new(json_object_get(page->summary, "tables"), json_string(id));
}

/* ---- figures --------------------------------------------------------------------------------- */

bool wm_page_figure(wm_page_t *page, wm_figure_t *figure, const char *id, const char *title,
                    int height) {
  wm_error_t err = {0};
  if (!wm_page_ok(page))
    return false;
  wm_page_keep(page, wm_figure_begin(figure, WM_FIGURE_WIDTH, height, &err), &err);
  if (!wm_page_ok(page))
    return false;
  wm_page_raw(page, "<figure id=\"fig-%s\"><figcaption id=\"cap-%s\"><strong>", id, id);
  wm_page_text(page, title);
  wm_page_raw(page, "</strong> ");
  return true;
}

void wm_page_end_figure(wm_page_t *page, wm_figure_t *figure, const char *id, const char *how) {
  char *svg = NULL, *why = NULL;
  wm_error_t err = {0};
  const double start = wm_seconds();
  if (page->gnuplot_hangs)
    wm_page_keep(page, wm_figure_drop(figure, page->figures_why, &why, &err), &err);
  else
    wm_page_keep(page, wm_figure_end(figure, page->report->dir, id, &svg, &why, &err), &err);
  page->gnuplot_hangs |= svg == NULL && wm_seconds() - start >= WM_FIGURE_SECONDS;
  wm_page_raw(page, "</figcaption>\n");
  if (svg != NULL) {
    fputs(svg, page->html);
    page->figures++;
    json_array_append_new(json_object_get(page->summary, "figures"), json_string(id));
  } else if (why != NULL) {
    wm_page_raw(page, "<p class=\"missing\">This figure is missing: ");
    wm_page_text(page, why);
    wm_page_raw(page, ". Its numbers are in the table.</p>\n");
    page->figures_missing++;
    if (page->figures_why == NULL) {
      page->figures_why = why;
      why = NULL;
    }
  }
  wm_page_raw(page, "<p class=\"how\">%s</p></figure>\n", how);
  free(svg);
  free(why);
}
