#include "gate.h"

#include "wanamaker/report/table.h"
#include "wanamaker/text/tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* --- gates --------------------------------------------------------------------------------------
 */

static void add_effect(wm_table_t *t, const wm_sweep_t *s, int64_t v) {
  const wm_effect_t *e = &s->effects[v];
  wm_table_float(t, 100 * s->measures[v].routed);
  wm_table_float(t, e->perplexity);
  wm_table_float(t, e->delta);
  if (isnan(e->low))
    wm_table_text(t, "-");
  else
    wm_table_textf(t, "[%.3f, %.3f]", e->low, e->high);
}

/* The layer's surrogate at every position. */
static void add_linear_row(wm_table_t *t, const wm_sweep_t *heldout, int64_t layer, int64_t v) {
  wm_table_int(t, layer);
  wm_table_text(t, "all linear");
  wm_table_float(t, NAN);
  wm_table_float(t, NAN);
  wm_table_text(t, "-");
  wm_table_float(t, NAN);
  add_effect(t, heldout, v);
  wm_table_text(t, "");
  wm_table_text(t, "");
}

static void add_gate_row(wm_table_t *t, const wm_gate_job_t *j, const wm_sweep_t *routed, int64_t v,
                         bool chosen) {
  int64_t count;
  const wm_change_t *c = wm_variants_changes(&j->routed, v, &count);
  const wm_gate_t *g = &j->gates->gates[c->gate];
  char label[32];
  wm_gate_label(g, label, sizeof label);
  wm_table_int(t, c->layer);
  wm_table_text(t, label);
  wm_table_float(t, wm_gate_has_score(g->kind) ? c->threshold : NAN);
  wm_table_float(t, g->report.auc_heldout);
  if (isnan(g->report.auc_low))
    wm_table_text(t, "-");
  else
    wm_table_textf(t, "[%.3f, %.3f]", g->report.auc_low, g->report.auc_high);
  wm_table_float(t, c->threshold == g->threshold ? g->report.accuracy_heldout : NAN);
  add_effect(t, routed, v);
  wm_table_text(t, chosen ? "chosen" : "");
  wm_table_text(t, g->report.note);
}

static void add_layer(wm_table_t *t, const wm_gate_job_t *j, const wm_sweep_t *heldout,
                      const wm_sweep_t *routed, int64_t i) {
  add_linear_row(t, heldout, j->layers[i], 1 + i);
  for (int64_t v = 1; v < j->routed.n; v++) {
    int64_t count;
    const wm_change_t *c = wm_variants_changes(&j->routed, v, &count);
    if (c->layer == j->layers[i] && c->gate >= 0)
      add_gate_row(t, j, routed, v, v == j->selected[i]);
  }
}

static void print_verdict(const wm_gate_job_t *j, const wm_sweep_t *routed) {
  FILE *out = j->in->run->out;
  int64_t none = 0;
  for (int64_t i = 0; i < j->n_layers; i++)
    none += j->selected[i] < 0;
  fprintf(
      out,
      "\n%" PRId64 " predicted tokens (%s); full model's perplexity %.3f; paired bootstrap over "
      "%" PRId64 " units (%s), %" PRId64 " resamples\n",
      j->heldout->windows.n_predicted, j->heldout->windows.label, routed->perplexity,
      routed->n_units, wm_unit_name(routed->unit), j->routed_losses.options.bootstrap.resamples);
  fprintf(out,
          "chosen on the %s range: the fitted gate and threshold of lowest perplexity that "
          "routes %.3g %% or more",
          wm_role_name(j->choice), 100 * j->least_routed);
  if (none > 0)
    fprintf(out, "; %" PRId64 " layer%s none", none, none == 1 ? " has" : "s have");
  fprintf(out, "%s\n",
          j->choice == WM_ROLE_EVALUATION
              ? "\nselection = \"evaluation\": as in the study, gates are chosen on the text that "
                "they are reported on, so that their costs are biased downward"
              : "; the job sweep reports on the evaluation range");
}

wm_status_t wm_gate_print(const wm_gate_job_t *j, const wm_sweep_t *heldout,
                          const wm_sweep_t *routed, wm_error_t *err) {
  char interval[32];
  snprintf(interval, sizeof interval, "%.4g %% interval",
           100 * j->routed_losses.options.bootstrap.confidence);
  const wm_column_t columns[] = {
      {"layer", NULL, WM_ALIGN_RIGHT, 0},     {"gate", NULL, WM_ALIGN_LEFT, 0},
      {"threshold", NULL, WM_ALIGN_RIGHT, 2}, {"AUC", "held out", WM_ALIGN_RIGHT, 4},
      {"AUC", interval, WM_ALIGN_RIGHT, 0},   {"accuracy", "held out", WM_ALIGN_RIGHT, 4},
      {"routed", "%", WM_ALIGN_RIGHT, 1},     {"PPL", NULL, WM_ALIGN_RIGHT, 3},
      {"delta", "%", WM_ALIGN_RIGHT, 3},      {"delta", interval, WM_ALIGN_RIGHT, 0},
      {"", NULL, WM_ALIGN_LEFT, 0},           {"note", NULL, WM_ALIGN_LEFT, 0}};
  wm_table_t *t;
  wm_status_t status = wm_table_create(columns, sizeof columns / sizeof columns[0], &t, err);
  if (status != WM_OK)
    return status;
  for (int64_t i = 0; i < j->n_layers; i++)
    add_layer(t, j, heldout, routed, i);
  status = wm_table_print(t, WM_TABLE_TEXT, j->in->run->out, err);
  wm_table_free(t);
  if (status == WM_OK)
    print_verdict(j, routed);
  return status;
}

/* --- ends of directions -------------------------------------------------------------------------
 */

/* The first few types of one end, in quotes; their ids without a tokenizer. */
static void add_types(wm_table_t *t, const wm_tokenizer_t *tokenizer, const int32_t *token) {
  enum { SHOWN = 6, SIZE = 512 };
  char text[SIZE] = "";
  size_t used = 0;
  for (int i = 0; i < SHOWN && token[i] >= 0 && used < SIZE; i++) {
    char *spelled = NULL;
    int64_t bytes;
    wm_error_t ignored = {0};
    if (tokenizer != NULL)
      wm_tokenizer_decode(tokenizer, &token[i], 1, &spelled, &bytes, &ignored);
    int written = spelled != NULL
                      ? snprintf(text + used, SIZE - used, "%s\"%s\"", i > 0 ? " " : "", spelled)
                      : snprintf(text + used, SIZE - used, "%s%d", i > 0 ? " " : "", token[i]);
    used += written > 0 ? (size_t)written : 0;
    free(spelled);
  }
  wm_table_text(t, text);
}

wm_status_t wm_gate_print_ends(const wm_gate_job_t *j, wm_error_t *err) {
  static const wm_column_t columns[] = {{"layer", NULL, WM_ALIGN_RIGHT, 0},
                                        {"input tokens at the end", "surrogate", WM_ALIGN_LEFT, 0},
                                        {"input tokens at the end", "MLP", WM_ALIGN_LEFT, 0}};
  wm_tokenizer_t *tokenizer = NULL;
  wm_error_t ignored = {0};
  wm_table_t *t;
  wm_status_t status = wm_table_create(columns, 3, &t, err);
  if (status != WM_OK)
    return status;
  if (wm_tokenizer_open(wm_tokenizer_dir(j->in->run), &tokenizer, &ignored) != WM_OK)
    tokenizer = NULL; /* a corpus of ids has none */
  for (int64_t i = 0; i < j->n_layers; i++) {
    wm_table_int(t, j->layers[i]);
    add_types(t, tokenizer, j->ends[i].token[0]);
    add_types(t, tokenizer, j->ends[i].token[1]);
  }
  fprintf(j->in->run->out, "\n");
  status = wm_table_print(t, WM_TABLE_TEXT, j->in->run->out, err);
  wm_table_free(t);
  wm_tokenizer_close(tokenizer);
  return status;
}
