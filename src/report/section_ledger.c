/* The claims ledger. */
#include "page.h"
#include "wanamaker/base/mem.h"

#include <math.h>
#include <string.h>

static void add_claim(wm_table_t *t, const wm_report_t *report, const wm_claim_t *c) {
  const wm_csv_t *p = &report->published->claims;
  wm_table_text(t, wm_csv_text(p, c->row, "claim"));
  wm_table_text(t, wm_csv_text(p, c->row, "model"));
  wm_table_text(t, wm_csv_text(p, c->row, "statement"));
  wm_table_textf(t, "%s (%s)", wm_csv_text(p, c->row, "published_value"),
                 wm_csv_text(p, c->row, "unit"));
  wm_table_text(t, wm_claim_verdict_name(c->verdict));
  wm_table_float(t, c->value);
  wm_table_float(t, c->low);
  wm_table_float(t, c->high);
  wm_table_text(t, c->on >= 0 ? report->results[c->on].label : "");
  wm_table_text(t, c->on >= 0 ? c->quantity : "");
}

/* Why the verdict is what it is. */
static void add_why(wm_table_t *t, const wm_claim_t *c) {
  if (c->on < 0)
    wm_table_textf(t, "no results of the job %s that hold it are here", c->needs);
  else if (!c->same_model)
    wm_table_textf(
        t, "the claim is about another model; the same quantity is shown. On its own: %s", c->rule);
  else if (c->reason[0] != '\0')
    wm_table_textf(t, "not tested: %s. The rule: %s", c->reason, c->rule);
  else
    wm_table_text(t, c->rule);
}

static void add_note(wm_table_t *t, const wm_report_t *report, const wm_claim_t *c) {
  const wm_csv_t *p = &report->published->claims;
  wm_table_text(t, wm_csv_text(p, c->row, "claim"));
  add_why(t, c);
  wm_table_text(t, c->interval);
  wm_table_float(t, c->beside);
  wm_table_text(t, isnan(c->beside) ? "" : c->beside_what);
  wm_table_text(t, c->differences);
  wm_table_text(t, wm_csv_text(p, c->row, "where"));
  wm_table_text(t, wm_csv_text(p, c->row, "caveat"));
}

static void put_counts(wm_page_t *page) {
  static const char *const names[] = {"claims_not_tested", "claims_reproduced",
                                      "claims_not_reproduced", "claims_contradicted"};
  static const wm_claim_verdict_t order[] = {WM_REPRODUCED, WM_NOT_REPRODUCED, WM_CONTRADICTED,
                                             WM_NOT_TESTED};
  int count[WM_CLAIM_VERDICTS] = {0};
  for (int c = 0; c < WM_CLAIMS; c++)
    count[page->report->claims[c].verdict]++;
  page->scope = page->summary;
  wm_page_raw(page, "<p class=\"answer\">");
  for (int v = 0; v < WM_CLAIM_VERDICTS; v++) {
    wm_page_raw(page, "%s", v > 0 ? ", " : "");
    wm_page_number(page, names[order[v]], count[order[v]], 0);
    wm_page_raw(page, " %s", wm_claim_verdict_name(order[v]));
  }
  wm_page_raw(page, ".</p>\n");
}

void wm_section_ledger(wm_page_t *page) {
  static const wm_column_t columns[] = {
      {"claim", NULL, WM_ALIGN_LEFT, 0},          {"about", NULL, WM_ALIGN_LEFT, 0},
      {"the study says", NULL, WM_ALIGN_LEFT, 0}, {"published", NULL, WM_ALIGN_LEFT, 0},
      {"verdict", NULL, WM_ALIGN_LEFT, 0},        {"here", NULL, WM_ALIGN_RIGHT, -4},
      {"from", NULL, WM_ALIGN_RIGHT, -4},         {"to", NULL, WM_ALIGN_RIGHT, -4},
      {"measured on", NULL, WM_ALIGN_LEFT, 0},    {"what was measured", NULL, WM_ALIGN_LEFT, 0}};
  static const wm_column_t notes[] = {{"claim", NULL, WM_ALIGN_LEFT, 0},
                                      {"why", NULL, WM_ALIGN_LEFT, 0},
                                      {"from, to", NULL, WM_ALIGN_LEFT, 0},
                                      {"beside it", NULL, WM_ALIGN_RIGHT, -4},
                                      {"which is", NULL, WM_ALIGN_LEFT, 0},
                                      {"differences of protocol", NULL, WM_ALIGN_LEFT, 0},
                                      {"where in the study", NULL, WM_ALIGN_LEFT, 0},
                                      {"the study's own data", NULL, WM_ALIGN_LEFT, 0}};
  wm_page_section(page, "ledger", "The study's claims beside these results");
  put_counts(page);
  wm_page_raw(page,
              "<p class=\"how\"><strong>reproduced</strong>: on the claim's own model, what is "
              "measured agrees with it to the far end of the interval. "
              "<strong>contradicted</strong>: the whole interval lies on the other side. "
              "<strong>not reproduced</strong>: measured, and neither. <strong>not "
              "tested</strong>: the model or the job's results are not here, or they are not what "
              "the claim is about: a part of the layers, other numbers of layers or of training "
              "tokens, undefined intervals, too few units to resample. The table below says which "
              "it is.</p>\n");
  wm_table_t *t = wm_page_table(page, columns, sizeof columns / sizeof columns[0]);
  for (int c = 0; t != NULL && c < WM_CLAIMS; c++)
    add_claim(t, page->report, &page->report->claims[c]);
  wm_page_put_table(page, t, "claims", "Claims ledger", 1, false);
  t = wm_page_table(page, notes, sizeof notes / sizeof notes[0]);
  for (int c = 0; t != NULL && c < WM_CLAIMS; c++)
    add_note(t, page->report, &page->report->claims[c]);
  wm_page_put_table(page, t, "claims-notes", "Why, the intervals, and the differences of protocol",
                    1, true);
  wm_page_end_section(page);
}
