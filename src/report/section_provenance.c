/* What is missing, and what another group needs to repeat this. */
#include "page.h"
#include "wanamaker/base/mem.h"

#include <string.h>

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

static void put_file(wm_page_t *page, const wm_result_file_t *f, wm_table_t *t,
                     const wm_results_t *r) {
  for (int i = 0; i < f->attributes.n; i++) {
    const char *name = f->attributes.all[i].name;
    if (strcmp(name, "configuration") == 0)
      continue;
    wm_table_text(t, r->label);
    wm_table_text(t, f->name);
    wm_table_text(t, name);
    wm_table_text(t, f->attributes.all[i].value);
  }
  (void)page;
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
  wm_table_t *t = wm_page_table(page, columns, 4);
  for (int64_t i = 0; t != NULL && i < report->n; i++)
    for (int k = 0; k < WM_FILE_KINDS; k++)
      put_file(page, &report->results[i].files[k], t, &report->results[i]);
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
