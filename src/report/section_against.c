/* The plan against its control at equal tokens: the verdict that a training is run for. */
#include "page.h"

#include <string.h>

/* ---- in words -------------------------------------------------------------------------------- */

static const char *in_words(wm_standing_t standing) {
  static const char *const words[] = {[WM_BETTER] = "is better than its control",
                                      [WM_WORSE] = "is worse than its control",
                                      [WM_SAME] = "cannot be told apart from its control",
                                      [WM_UNJUDGED] = "cannot be judged against its control"};
  return words[standing];
}

void wm_page_standing(wm_page_t *page, const wm_results_t *r) {
  wm_against_t a;
  if (!wm_against_evaluation(r, &a))
    return;
  wm_page_raw(page, " <strong>At equal tokens the plan %s</strong>: ", in_words(a.standing));
  wm_page_number(page, "against_change_pct", a.delta, 2);
  wm_page_raw(page, "&#160;%% of perplexity (");
  wm_page_number(page, "against_low_pct", a.low, 2);
  wm_page_raw(page, " to ");
  wm_page_number(page, "against_high_pct", a.high, 2);
  wm_page_raw(page, ").");
}

static void put_verdict(wm_page_t *page, const wm_results_t *r, const wm_against_t *a) {
  const wm_attributes_t *own = &r->files[WM_FILE_COMPARE].attributes;
  wm_page_raw(page, "<p>On the evaluation range the plan <strong>%s</strong>. Both have seen ",
              in_words(a->standing));
  wm_page_number(page, "against_tokens", wm_attribute_number(own, "tokens_seen"), 0);
  wm_page_raw(page, " tokens, the same in one order, and end with a perplexity of ");
  wm_page_number(page, "against_ppl", a->ppl, 3);
  wm_page_raw(page, " (plan) and ");
  wm_page_number(page, "against_control_ppl", a->control_ppl, 3);
  wm_page_raw(page, " (control): a change by ");
  wm_page_number(page, "against_change_pct", a->delta, 3);
  wm_page_raw(page, "&#160;%%, ");
  wm_page_number(page, "against_confidence_pct", 100 * wm_against_confidence(r), -4);
  wm_page_raw(page, "&#160;%% interval ");
  wm_page_number(page, "against_low_pct", a->low, 3);
  wm_page_raw(page, " to ");
  wm_page_number(page, "against_high_pct", a->high, 3);
  wm_page_raw(page, ", p after Holm's correction ");
  wm_page_number(page, "against_p_holm", a->p_holm, 4);
  wm_page_raw(page, ", from ");
  wm_page_number(page, "against_units", a->units, 0);
  wm_page_raw(page, " units.</p>\n");
}

static void put_lack(wm_page_t *page, const wm_results_t *r) {
  const char *state = wm_against_state(r);
  wm_page_raw(page, "<p class=\"missing\">");
  if (strcmp(state, "no control here") == 0)
    wm_page_raw(page,
                "There is no control to rank this plan by: with "
                "<code>finetune.compare=true</code> the job <code>finetune</code> trains it on "
                "the same tokens and compares the two.");
  else if (strcmp(state, "control saw other tokens") == 0)
    wm_page_raw(page, "Plan and control have seen different tokens and are not to be ranked.");
  else {
    wm_page_raw(page, "Plan and control have seen the same tokens, but nothing here compares them "
                      "with an interval. <code>wanamaker finetune CONFIGURATION "
                      "finetune.compare=true</code> does, with the settings of this plan and the "
                      "output directory <code>");
    wm_page_text(page, r->dir);
    wm_page_raw(page, "</code>; it trains nothing that is complete.");
  }
  wm_page_raw(page, "</p>\n");
}

void wm_page_against(wm_page_t *page, const wm_results_t *r) {
  wm_against_t a;
  if (wm_against_evaluation(r, &a))
    put_verdict(page, r, &a);
  else if (r->files[WM_FILE_COMPARE].state == WM_FILE_BAD)
    wm_page_missing(page, r, WM_FILE_COMPARE);
  else if (r->files[WM_FILE_COMPARE].state == WM_FILE_MISSING && r->training.n > 0 &&
           wm_training_has_rival(r))
    put_lack(page, r);
}

/* ---- the table ------------------------------------------------------------------------------- */

void wm_page_against_table(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  static const wm_column_t columns[] = {{"range", NULL, WM_ALIGN_LEFT, 0},
                                        {"model", NULL, WM_ALIGN_LEFT, 0},
                                        {"PPL", "of the control", WM_ALIGN_RIGHT, 3},
                                        {"PPL", "of the plan", WM_ALIGN_RIGHT, 3},
                                        {"change", "%", WM_ALIGN_RIGHT, 3},
                                        {"from", "%", WM_ALIGN_RIGHT, 3},
                                        {"to", "%", WM_ALIGN_RIGHT, 3},
                                        {"p", NULL, WM_ALIGN_RIGHT, 4},
                                        {"p", "Holm", WM_ALIGN_RIGHT, 4},
                                        {"units", NULL, WM_ALIGN_RIGHT, 0},
                                        {"verdict", NULL, WM_ALIGN_LEFT, 0}};
  char id[64];
  wm_against_t a;
  if (r->comparison.n == 0)
    return;
  wm_table_t *t = wm_page_table(page, columns, sizeof columns / sizeof columns[0]);
  for (int64_t row = 0; t != NULL && row < r->comparison.n; row++) {
    if (!wm_against(r, row, &a))
      continue;
    wm_table_text(t, a.range);
    wm_table_text(t, a.hard ? "plan, gates that decide" : "plan");
    wm_table_float(t, a.control_ppl);
    wm_table_float(t, a.ppl);
    wm_table_float(t, a.delta);
    wm_table_float(t, a.low);
    wm_table_float(t, a.high);
    wm_table_float(t, a.p_two_sided);
    wm_table_float(t, a.p_holm);
    wm_table_float(t, a.units);
    wm_table_text(t, wm_standing_name(a.standing));
  }
  wm_page_put_table(page, t, wm_model_id(id, sizeof id, model, "against"),
                    "Plan against its control at equal tokens", 2, false);
  wm_page_raw(
      page, "<p class=\"how\">A plan is better or worse than its control where the p-value after "
            "Holm's correction, over the models compared on a range, is below what the interval's "
            "confidence leaves, from ten units or more; else the two cannot be told apart. "
            "Intervals are the paired bootstrap's of the change.</p>\n");
}

/* ---- for machines ---------------------------------------------------------------------------- */

json_t *wm_json_against(const wm_results_t *r) {
  json_t *rows = json_array();
  wm_against_t a;
  for (int64_t i = 0; i < r->comparison.n; i++) {
    if (!wm_against(r, i, &a))
      continue;
    json_t *row = json_object();
    json_object_set_new(row, "range", wm_json_text(a.range));
    json_object_set_new(row, "model", json_string(a.hard ? "plan, gates that decide" : "plan"));
    json_object_set_new(row, "control_ppl", wm_json_number(a.control_ppl));
    json_object_set_new(row, "ppl", wm_json_number(a.ppl));
    json_object_set_new(row, "change_pct", wm_json_number(a.delta));
    json_object_set_new(row, "low_pct", wm_json_number(a.low));
    json_object_set_new(row, "high_pct", wm_json_number(a.high));
    json_object_set_new(row, "p_two_sided", wm_json_number(a.p_two_sided));
    json_object_set_new(row, "p_holm", wm_json_number(a.p_holm));
    json_object_set_new(row, "units", wm_json_number(a.units));
    json_object_set_new(row, "verdict", json_string(wm_standing_name(a.standing)));
    json_array_append_new(rows, row);
  }
  return rows;
}
