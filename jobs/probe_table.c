/* What the job probe prints. */
#include "probe.h"

#include "wanamaker/report/table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* --- token against context ----------------------------------------------------------------------
 */

/* Gates that are columns, in the order in which the probe adds them. */
typedef struct {
  const char *gate, *key, *title, *unit;
  bool view; /* exists for every view */
} gate_column_t;

static const gate_column_t gates[] = {
    {"x", "", "x", "all of it", false},
    {"e", "", "e", "token", true},
    {"c", "", "c", "context", true},
    {"e * c", "", "e * c", NULL, true},
    {"|c|", "", "|c|", NULL, true},
    {"type's mean e", "input", "mean e", "input", true},
    {"type's mean e", "target", "mean e", "target", true},
    {"type's mean delta", "input", "mean delta", "input", false},
    {"type's mean delta", "target", "mean delta", "target", false},
    {"random", "", "random", NULL, false}};
enum { GATES = sizeof gates / sizeof gates[0], NOTE = 128 };

/* The row of a gate that belongs with the row `like`; -1: none. */
static int64_t find_gate(const wm_probe_table_t *t, int64_t like, const gate_column_t *g,
                         const char *view) {
  for (int64_t i = 0; i < t->n; i++) {
    bool same = wm_probe_number_at(t, i, "layer") == wm_probe_number_at(t, like, "layer");
    same = same && strcmp(wm_probe_text_at(t, i, "gate"), g->gate) == 0 &&
           strcmp(wm_probe_text_at(t, i, "key"), g->key) == 0 &&
           strcmp(wm_probe_text_at(t, i, "view"), g->view ? view : "") == 0;
    static const char *const others[] = {"corpus", "surrogates", "label"};
    for (int k = 0; k < 3 && same; k++)
      same = strcmp(wm_probe_text_at(t, i, others[k]), wm_probe_text_at(t, like, others[k])) == 0;
    if (same)
      return i;
  }
  return -1;
}

/* The first note of one gate alone, behind the gate's name, if `text` is empty. */
static void add_note(char text[NOTE], const wm_probe_table_t *t, int64_t row,
                     const gate_column_t *g) {
  const char *note = row >= 0 ? wm_probe_text_at(t, row, "note") : "";
  if (text[0] == '\0' && note[0] != '\0')
    snprintf(text, NOTE, "%s%s%s: %s", g->title, g->unit != NULL ? " " : "",
             g->unit != NULL ? g->unit : "", note);
}

static void add_context_row(wm_table_t *out, const wm_probe_table_t *t, int64_t like,
                            const char *view) {
  double widest = NAN;
  char note[NOTE];
  snprintf(note, sizeof note, "%s", wm_probe_text_at(t, like, "note"));
  wm_table_text(out, wm_probe_text_at(t, like, "corpus"));
  wm_table_int(out, (int64_t)wm_probe_number_at(t, like, "layer"));
  wm_table_text(out, wm_probe_text_at(t, like, "label"));
  wm_table_text(out, view);
  for (int g = 0; g < GATES; g++) {
    const int64_t row = find_gate(t, like, &gates[g], view);
    const double width =
        row < 0 ? NAN : wm_probe_number_at(t, row, "high") - wm_probe_number_at(t, row, "low");
    wm_table_float(out, row < 0 ? NAN : wm_probe_number_at(t, row, "auc"));
    widest = isnan(widest) || width > widest ? width : widest;
    add_note(note, t, row, &gates[g]);
  }
  wm_table_float(out, widest / 2);
  wm_table_text(out, note);
}

/* One row for each corpus, layer, label and view, a gate a column. */
static wm_status_t print_context(const wm_probe_job_t *j, wm_error_t *err) {
  const wm_probe_table_t *t = &j->tables.table[WM_PROBE_CONTEXT];
  wm_column_t columns[6 + GATES] = {{"corpus", NULL, WM_ALIGN_LEFT, 0},
                                    {"layer", NULL, WM_ALIGN_RIGHT, 0},
                                    {"label", NULL, WM_ALIGN_LEFT, 0},
                                    {"view", NULL, WM_ALIGN_LEFT, 0}};
  for (int g = 0; g < GATES; g++)
    columns[4 + g] = (wm_column_t){gates[g].title, gates[g].unit, WM_ALIGN_RIGHT, 4};
  columns[4 + GATES] = (wm_column_t){"+-", "widest", WM_ALIGN_RIGHT, 4};
  columns[5 + GATES] = (wm_column_t){"note", NULL, WM_ALIGN_LEFT, 0};
  wm_table_t *out;
  wm_status_t status = wm_table_create(columns, 6 + GATES, &out, err);
  if (status != WM_OK)
    return status;
  for (int64_t i = 0; i < t->n; i++) /* "x" begins every layer */
    if (strcmp(wm_probe_text_at(t, i, "gate"), "x") == 0)
      for (int v = 0; v < WM_VIEWS; v++)
        if (j->options.views[v])
          add_context_row(out, t, i, wm_probe_view_name((wm_probe_view_t)v));
  fprintf(j->run->out, "\n%s\n\n", t->layout->heading);
  status = wm_table_print(out, WM_TABLE_TEXT, j->run->out, err);
  wm_table_free(out);
  return status;
}

/* --- the others ---------------------------------------------------------------------------------
 */

static void add_cell(wm_table_t *out, const wm_probe_table_t *t, int64_t row,
                     const wm_probe_column_t *c) {
  if (c->size > 0)
    wm_table_text(out, wm_probe_text_at(t, row, c->name));
  else if (c->decimals == 0 && !isnan(wm_probe_number_at(t, row, c->name)))
    wm_table_int(out, (int64_t)wm_probe_number_at(t, row, c->name));
  else
    wm_table_float(out, wm_probe_number_at(t, row, c->name));
}

static wm_status_t print_table(const wm_probe_job_t *j, const wm_probe_table_t *t,
                               wm_error_t *err) {
  wm_column_t columns[WM_PROBE_COLUMNS];
  const wm_probe_column_t *shown[WM_PROBE_COLUMNS];
  int n = 0;
  for (int64_t c = 0; c < t->n_columns; c++) {
    const wm_probe_column_t *column = &t->layout->columns[c];
    if (column->title == NULL)
      continue;
    shown[n] = column;
    columns[n++] = (wm_column_t){
        column->title, NULL, column->size > 0 ? WM_ALIGN_LEFT : WM_ALIGN_RIGHT, column->decimals};
  }
  wm_table_t *out;
  wm_status_t status = wm_table_create(columns, n, &out, err);
  if (status != WM_OK)
    return status;
  for (int64_t i = 0; i < t->n; i++)
    for (int c = 0; c < n; c++)
      add_cell(out, t, i, shown[c]);
  fprintf(j->run->out, "\n%s\n\n", t->layout->heading);
  status = wm_table_print(out, WM_TABLE_TEXT, j->run->out, err);
  wm_table_free(out);
  return status;
}

static void print_end(const wm_probe_job_t *j) {
  FILE *out = j->run->out;
  fprintf(out, "\n");
  for (int i = 0; i < j->n_corpora; i++) {
    const wm_probe_corpus_t *c = &j->corpora[i];
    fprintf(out, "%s: %" PRId64 " positions (%s), %" PRId64 " units (%s); own surrogates from %s\n",
            c->name, c->text.n, c->in.text[WM_ROLE_EVALUATION].windows.label, c->text.n_units,
            wm_unit_name(c->text.unit_kind), c->in.text[WM_ROLE_FIT].windows.label);
  }
  fprintf(out,
          "own: surrogates refitted on the corpus; shared: those of %s. Probes are fitted on %.3g "
          "%% of the positions and judged on the others, whole units each; %" PRId64
          " resamples\nEvery number, its interval, token types and clusters: %s\n",
          j->corpora[0].name, 100 * j->train_share, j->options.bootstrap.resamples, j->path);
}

wm_status_t wm_probe_print(const wm_probe_job_t *j, wm_error_t *err) {
  wm_status_t status = print_context(j, err);
  for (int i = 0; i < WM_PROBE_TABLES && status == WM_OK; i++) {
    const wm_probe_table_t *t = &j->tables.table[i];
    if (i != WM_PROBE_CONTEXT && t->layout->heading != NULL && t->n > 0)
      status = print_table(j, t, err);
  }
  if (status == WM_OK)
    print_end(j);
  return status;
}
