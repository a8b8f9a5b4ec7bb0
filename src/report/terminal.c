/* The report's table for the terminal. */
#include "page.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/measure/effects.h"

#include <math.h>
#include <string.h>

static double cost_of(const wm_results_t *r, int64_t i) {
  return wm_frame_number(&r->variants, r->layer_results[i].linear, "delta_pct");
}

/* Layers by cost, the cheapest first; those without one last. */
static void sort_by_cost(const wm_results_t *r, int64_t *order) {
  for (int64_t i = 0; i < r->n_layers; i++) {
    int64_t at = i;
    for (; at > 0 && (cost_of(r, i) < cost_of(r, order[at - 1]) ||
                      (isnan(cost_of(r, order[at - 1])) && !isnan(cost_of(r, i))));
         at--)
      order[at] = order[at - 1];
    order[at] = i;
  }
}

static void add_row(wm_table_t *t, const wm_results_t *r, const wm_layer_result_t *l) {
  char interval[64];
  double low = wm_frame_number(&r->variants, l->linear, "low");
  wm_interval_text(low, wm_frame_number(&r->variants, l->linear, "high"), interval,
                   sizeof interval);
  wm_table_int(t, l->layer);
  wm_table_text(t, wm_verdict_name(l->verdict));
  wm_table_float(t, wm_frame_number(&r->variants, l->linear, "delta_pct"));
  wm_table_text(t, interval);
  wm_table_float(t, wm_frame_number(&r->variants, l->linear, "p_holm"));
  wm_table_float(t, wm_frame_number(&r->variants, l->gated, "delta_pct"));
  wm_table_float(t, 100 * wm_frame_number(&r->variants, l->gated, "routed_fraction"));
}

static wm_status_t print_model(const wm_results_t *r, FILE *out, wm_error_t *err) {
  char confidence[40];
  const wm_column_t columns[] = {
      {"layer", NULL, WM_ALIGN_RIGHT, 0},
      {"verdict", NULL, WM_ALIGN_LEFT, 0},
      {"cost", "%", WM_ALIGN_RIGHT, 3},
      {"cost", wm_confidence_text(r, confidence, sizeof confidence), WM_ALIGN_RIGHT, 0},
      {"p", "Holm", WM_ALIGN_RIGHT, 4},
      {"gated", "%", WM_ALIGN_RIGHT, 3},
      {"routed", "%", WM_ALIGN_RIGHT, 1}};
  wm_table_t *t = NULL;
  void *memory = NULL;
  wm_status_t status;
  fprintf(out, "\n");
  WM_TRY(wm_table_create(columns, sizeof columns / sizeof columns[0], &t, err));
  WM_TRY(wm_alloc(&memory, r->n_layers, sizeof(int64_t), "layers", err));
  int64_t *order = memory;
  sort_by_cost(r, order);
  for (int64_t i = 0; i < r->n_layers; i++)
    add_row(t, r, &r->layer_results[order[i]]);
  status = wm_table_print(t, WM_TABLE_TEXT, out, err);
cleanup:
  wm_table_free(t);
  free(memory);
  return status;
}

/* Text that a terminal may be given: no control characters. */
static void print_plain(const char *text, FILE *out) {
  for (; *text != '\0'; text++)
    fputc((unsigned char)*text < 0x20 || *text == 0x7f ? ' ' : *text, out);
}

/* "demo_gpt2: 5 of 8 layers are wasted (1, 2, 3, 4, 6) ..." */
static void print_answer(const wm_results_t *r, FILE *out) {
  const wm_overview_t *o = &r->overview;
  const char *why = wm_results_unmeasured(r);
  if (why != NULL) {
    print_plain(why, out);
    for (int k = 0, shown = 0; k < WM_FILE_KINDS; k++)
      if (r->files[k].state == WM_FILE_READ)
        fprintf(out, "%s%s", shown++ > 0 ? ", " : "; here are ", r->files[k].name);
    fputc('\n', out);
  }
  if (o->measured == 0)
    return;
  char median[40] = "-";
  if (isfinite(o->median_cost))
    snprintf(median, sizeof median, "%.3f %%", o->median_cost);
  fprintf(out, "%lld of %lld layer%s %s wasted", (long long)o->wasted, (long long)o->measured,
          o->measured == 1 ? "" : "s", o->measured == 1 || o->wasted == 1 ? "is" : "are");
  int64_t shown = 0;
  for (int64_t i = 0; i < r->n_layers; i++)
    if (r->layer_results[i].verdict == WM_WASTED)
      fprintf(out, "%s%lld", shown++ == 0 ? " (" : ", ", (long long)r->layer_results[i].layer);
  fprintf(out,
          "%s: %s alone may be linear for at most %.4g %% of perplexity\n(upper end of its "
          "interval), %lld needed, %lld undecided; median cost %s\n",
          shown > 0 ? ")" : "",
          shown == 0   ? "none"
          : shown == 1 ? "it"
                       : "each",
          r->tolerance, (long long)o->needed, (long long)o->undecided, median);
}

static void print_training(const wm_results_t *r, FILE *out) {
  const wm_frame_t *plan = wm_training_range(&r->training, "evaluation");
  const wm_frame_t *control = wm_training_range(&r->control, "evaluation");
  const int64_t end = wm_training_end(plan), other = wm_training_end(control);
  char interval[64];
  if (end < 0 && other >= 0)
    fprintf(out, "the control alone, with nothing linear: perplexity %+.2f %%\n",
            wm_frame_number(control, other, "delta_pct"));
  if (end < 0)
    return;
  wm_interval_text(wm_frame_number(plan, end, "low"), wm_frame_number(plan, end, "high"), interval,
                   sizeof interval);
  fprintf(out, "trained by the plan %s, %g layers linear or gated: perplexity %+.2f %% %s",
          wm_attribute(&r->files[WM_FILE_FINETUNE].attributes, "plan"), wm_training_layers(r),
          wm_frame_number(plan, end, "delta_pct"), interval);
  if (other < 0)
    fprintf(out, "; there is no control\n");
  else
    fprintf(out, "; its control%s %+.2f %%\n", wm_training_is_fair(r) ? "" : ", on other tokens,",
            wm_frame_number(control, other, "delta_pct"));
}

/* What plan and control are beside each other. */
static void print_against(const wm_results_t *r, FILE *out) {
  char interval[64], confidence[40] = "interval";
  wm_against_t a;
  if (!wm_against_evaluation(r, &a)) {
    if (r->training.n > 0 && wm_training_has_rival(r))
      fprintf(out, "plan against control at equal tokens: %s%s\n", wm_against_state(r),
              strcmp(wm_against_state(r), "not compared yet") == 0
                  ? "; finetune.compare=true does it"
                  : "");
    return;
  }
  wm_interval_text(a.low, a.high, interval, sizeof interval);
  if (!isnan(wm_against_confidence(r)))
    snprintf(confidence, sizeof confidence, "%.4g %% interval", 100 * wm_against_confidence(r));
  fprintf(out, "plan against control at equal tokens: %s", wm_standing_name(a.standing));
  if (!isnan(a.delta))
    fprintf(out, ", %+.2f %%, %s %s", a.delta, confidence, interval);
  fputc('\n', out);
}

static void print_ledger(const wm_report_t *report, FILE *out) {
  int count[WM_CLAIM_VERDICTS] = {0};
  for (int c = 0; c < WM_CLAIMS; c++)
    count[report->claims[c].verdict]++;
  fprintf(out, "\nthe study's %d claims:", WM_CLAIMS);
  static const wm_claim_verdict_t order[] = {WM_REPRODUCED, WM_NOT_REPRODUCED, WM_CONTRADICTED,
                                             WM_NOT_TESTED};
  for (int v = 0; v < WM_CLAIM_VERDICTS; v++)
    fprintf(out, "%s %d %s", v > 0 ? "," : "", count[order[v]], wm_claim_verdict_name(order[v]));
  fputc('\n', out);
}

wm_status_t wm_report_print(const wm_report_t *report, FILE *out, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int64_t i = 0; i < report->n && status == WM_OK; i++) {
    const wm_results_t *r = &report->results[i];
    fputs(i > 0 ? "\n" : "", out);
    print_plain(r->label, out);
    fputs(": ", out);
    print_answer(r, out);
    print_training(r, out);
    print_against(r, out);
    if (r->n_layers > 0 && r->overview.measured > 0)
      status = print_model(r, out, err);
  }
  print_ledger(report, out);
  return status;
}
