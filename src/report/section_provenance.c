/* What is missing, and what another group needs to repeat this. */
#include "page.h"
#include "wanamaker/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void wm_section_missing(wm_page_t *page) {
  wm_page_section(page, "missing", "What is missing");
  static const wm_column_t columns[] = {{"model", NULL, WM_ALIGN_LEFT, 0},
                                        {"file", NULL, WM_ALIGN_LEFT, 0},
                                        {"state", NULL, WM_ALIGN_LEFT, 0},
                                        {"written by the job", NULL, WM_ALIGN_LEFT, 0},
                                        {"would show", NULL, WM_ALIGN_LEFT, 0}};
  int64_t n = 0;
  for (int64_t i = 0; i < page->report->n; i++)
    for (int k = 0; k < WM_FILE_KINDS; k++)
      n += page->report->results[i].files[k].state != WM_FILE_READ;
  page->scope = page->summary;
  wm_page_raw(page, "<p>");
  wm_page_number(page, "files_missing", (double)n, 0);
  wm_page_raw(page, n == 1 ? " result file is" : " result files are");
  wm_page_raw(page, " not there or cannot be read; what they would show is left out above.</p>\n");
  wm_table_t *t = n > 0 ? wm_page_table(page, columns, 5) : NULL;
  for (int64_t i = 0; t != NULL && i < page->report->n; i++)
    for (int k = 0; k < WM_FILE_KINDS; k++) {
      const wm_result_file_t *f = &page->report->results[i].files[k];
      if (f->state == WM_FILE_READ)
        continue;
      wm_table_text(t, page->report->results[i].label);
      wm_table_text(t, f->name);
      wm_table_text(t, f->state == WM_FILE_BAD ? f->why : "not there");
      wm_table_text(t, f->job);
      wm_table_text(t, f->shows);
    }
  wm_page_put_table(page, t, "missing-files", "Result files that are missing", 2, false);
  wm_page_end_section(page);
}

/* ---- in short -------------------------------------------------------------------------------- */

/* "2026-11-30T20:13:26Z" in seconds; NaN. */
static double seconds_of(const char *text) {
  struct tm utc = {0};
  const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return rest != NULL && *rest == '\0' ? (double)timegm(&utc) : NAN;
}

static void put_runs(wm_page_t *page) {
  static const wm_column_t columns[] = {
      {"model", NULL, WM_ALIGN_LEFT, 0},      {"file", NULL, WM_ALIGN_LEFT, 0},
      {"version", NULL, WM_ALIGN_LEFT, 0},    {"commit", NULL, WM_ALIGN_LEFT, 0},
      {"machine", NULL, WM_ALIGN_LEFT, 0},    {"processor", NULL, WM_ALIGN_LEFT, 0},
      {"products", NULL, WM_ALIGN_LEFT, 0},   {"ranks", NULL, WM_ALIGN_RIGHT, 0},
      {"threads", "each", WM_ALIGN_RIGHT, 0}, {"nodes", NULL, WM_ALIGN_RIGHT, 0},
      {"begun", "UTC", WM_ALIGN_LEFT, 0},     {"took", "s", WM_ALIGN_RIGHT, 0}};
  static const char *const texts[] = {"version", "commit", "host", "cpu", "compute"};
  static const char *const numbers[] = {"ranks", "threads", "nodes"};
  const wm_report_t *report = page->report;
  wm_table_t *t = wm_page_table(page, columns, sizeof columns / sizeof columns[0]);
  for (int64_t i = 0; t != NULL && i < report->n; i++)
    for (int k = 0; k < WM_FILE_KINDS; k++) {
      const wm_result_file_t *f = &report->results[i].files[k];
      const wm_attributes_t *a = &f->attributes;
      if (f->state != WM_FILE_READ)
        continue;
      wm_table_text(t, report->results[i].label);
      wm_table_text(t, f->name);
      for (int c = 0; c < 5; c++)
        wm_table_text(t, wm_attribute(a, texts[c]));
      for (int c = 0; c < 3; c++) {
        const char *number = wm_attribute(a, numbers[c]);
        wm_table_float(t, number[0] != '\0' ? strtod(number, NULL) : NAN);
      }
      wm_table_text(t, wm_attribute(a, "start"));
      wm_table_float(t, seconds_of(wm_attribute(a, "end")) - seconds_of(wm_attribute(a, "start")));
    }
  wm_page_put_table(page, t, "provenance-runs", "Where and when each file was made", 2, false);
}

static bool is_input(const char *name) {
  static const char *const beginnings[] = {
      "protocol", "bootstrap_", "model_fingerprint",   "tokenizer_fingerprint",
      "range_",   "train_",     "corpus_fingerprint_", "text_fingerprint_"};
  for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++)
    if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0)
      return true;
  return false;
}

/* Has a file before number k said the same? */
static bool is_told(const wm_results_t *r, int k, const struct wm_attribute *a) {
  for (int before = 0; before < k; before++)
    if (strcmp(wm_attribute(&r->files[before].attributes, a->name), a->value) == 0)
      return true;
  return false;
}

static void put_inputs(wm_page_t *page) {
  static const wm_column_t columns[] = {{"model", NULL, WM_ALIGN_LEFT, 0},
                                        {"what", NULL, WM_ALIGN_LEFT, 0},
                                        {"value", NULL, WM_ALIGN_LEFT, 0},
                                        {"first said by", NULL, WM_ALIGN_LEFT, 0}};
  const wm_report_t *report = page->report;
  wm_table_t *t = wm_page_table(page, columns, sizeof columns / sizeof columns[0]);
  for (int64_t i = 0; t != NULL && i < report->n; i++)
    for (int k = 0; k < WM_FILE_KINDS; k++) {
      const wm_results_t *r = &report->results[i];
      const wm_attributes_t *a = &r->files[k].attributes;
      for (int c = 0; c < a->n; c++) {
        if (!is_input(a->all[c].name) || is_told(r, k, &a->all[c]))
          continue;
        wm_table_text(t, r->label);
        wm_table_text(t, a->all[c].name);
        wm_table_text(t, a->all[c].value);
        wm_table_text(t, r->files[k].name);
      }
    }
  wm_page_put_table(page, t, "provenance-inputs", "Protocol, ranges and fingerprints of the inputs",
                    2, false);
}

/* ---- in full --------------------------------------------------------------------------------- */

static void put_file(const wm_result_file_t *f, wm_table_t *t, const wm_results_t *r) {
  for (int i = 0; i < f->attributes.n; i++) {
    const char *name = f->attributes.all[i].name;
    if (strcmp(name, "configuration") == 0)
      continue;
    wm_table_text(t, r->label);
    wm_table_text(t, f->name);
    wm_table_text(t, name);
    wm_table_text(t, f->attributes.all[i].value);
  }
}

static void put_configuration(wm_page_t *page, const wm_results_t *r) {
  const char *seen = NULL;
  for (int k = 0; k < WM_FILE_KINDS; k++) {
    const char *text = wm_attribute(&r->files[k].attributes, "configuration");
    if (text[0] == '\0' || (seen != NULL && strcmp(seen, text) == 0))
      continue;
    seen = text;
    wm_page_raw(page, "<details><summary>Configuration of %s, ", r->files[k].name);
    wm_page_text(page, r->label);
    wm_page_raw(page, "</summary><pre>");
    wm_page_text(page, text);
    wm_page_raw(page, "</pre></details>\n");
  }
}

/* Files of versions that had no checksum of attributes. */
static void put_unchecked(wm_page_t *page) {
  int shown = 0;
  for (int64_t i = 0; i < page->report->n; i++)
    for (int k = 0; k < WM_FILE_KINDS; k++) {
      const wm_results_t *r = &page->report->results[i];
      if (r->files[k].state != WM_FILE_READ ||
          wm_attribute(&r->files[k].attributes, "attributes_checksum")[0] != '\0')
        continue;
      wm_page_raw(page, shown++ > 0 ? ", "
                                    : "<p class=\"missing\">Written by an earlier version, "
                                      "without a checksum of what they say of their "
                                      "making: ");
      wm_page_text(page, r->label);
      wm_page_raw(page, " %s", r->files[k].name);
    }
  if (shown > 0)
    wm_page_raw(page, ".</p>\n");
}

void wm_section_provenance(wm_page_t *page) {
  static const wm_column_t columns[] = {{"model", NULL, WM_ALIGN_LEFT, 0},
                                        {"file", NULL, WM_ALIGN_LEFT, 0},
                                        {"what", NULL, WM_ALIGN_LEFT, 0},
                                        {"value", NULL, WM_ALIGN_LEFT, 0}};
  const wm_report_t *report = page->report;
  wm_page_section(page, "provenance", "Provenance");
  wm_page_raw(page,
              "<p>To repeat these results: the same version of the program, the inputs with "
              "these fingerprints, and the configuration below (save it as a file and run "
              "<code>wanamaker run FILE.cfg</code>). Losses of a sweep are equal bit for "
              "bit for any number of ranks, given the same surrogates and one number of "
              "threads. Fingerprints notice a change; they are no protection from forgery. "
              "This page was written by <code>wanamaker %s, commit %s</code>.</p>\n",
              report->version, report->commit);
  put_unchecked(page);
  put_runs(page);
  put_inputs(page);
  wm_table_t *t = wm_page_table(page, columns, 4);
  for (int64_t i = 0; t != NULL && i < report->n; i++)
    for (int k = 0; k < WM_FILE_KINDS; k++)
      put_file(&report->results[i].files[k], t, &report->results[i]);
  wm_page_put_table(page, t, "provenance-attributes", "What the result files say of their making",
                    3, true);
  for (int64_t i = 0; i < report->n; i++)
    put_configuration(page, &report->results[i]);
  wm_page_raw(page,
              "<h3>How to cite</h3>\n<p>Cite the program by its version and commit above, with "
              "the fingerprints of model and corpus, and the study that it measures after: Balogh, "
              "<cite>Half the Nonlinearity Is Wasted: Measuring and Reallocating the Transformer's "
              "MLP Budget</cite>, <data value=\"2026\">2026</data>.</p>\n");
  wm_page_end_section(page);
}
