#include "wanamaker/report/comparison.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/measure/effects.h"
#include "wanamaker/report/table.h"

#include <math.h>
#include <string.h>

/* ---- settings -------------------------------------------------------------------------------- */

/* The configuration's text as "group.key = value" lines, in `lines`, which the caller frees with
 * lines_destroy. Groups are nested by indentation of two blanks, as wm_config_text writes them. */
typedef struct {
  int64_t n, capacity;
  struct line {
    char *key, *value;
  } * all;
} lines_t;

static void lines_destroy(lines_t *l) {
  for (int64_t i = 0; i < l->n; i++) {
    free(l->all[i].key);
    free(l->all[i].value);
  }
  free(l->all);
  *l = (lines_t){0};
}

static wm_status_t add_line(lines_t *l, const char *prefix, const char *key, size_t key_length,
                            const char *value, size_t length, wm_error_t *err) {
  void *memory = l->all;
  wm_status_t status =
      wm_grow(&memory, &l->capacity, l->n, l->n + 1, sizeof *l->all, "settings", err);
  l->all = memory;
  if (status != WM_OK)
    return status;
  l->all[l->n].key = wm_format("%s%.*s", prefix, (int)key_length, key);
  l->all[l->n].value = strndup(value, length);
  l->n++;
  return l->all[l->n - 1].key != NULL && l->all[l->n - 1].value != NULL
             ? WM_OK
             : wm_fail(err, WM_ENVIRONMENT, "cannot allocate settings");
}

static wm_status_t read_lines(const char *text, lines_t *out, wm_error_t *err) {
  char prefix[256] = "";
  wm_status_t status = WM_OK;
  while (*text != '\0' && status == WM_OK) {
    size_t length = strcspn(text, "\n"), blanks = strspn(text, " ");
    const char *key = text + blanks;
    size_t name = strcspn(key, " :=;\n"), used = strlen(prefix);
    const char *equals = key + name;
    if (key[0] == '}') { /* back to the group around */
      if (used > 0)
        prefix[used - 1] = '\0';
      char *dot = strrchr(prefix, '.');
      prefix[dot != NULL ? dot - prefix + 1 : 0] = '\0';
    } else if (strncmp(equals, ": {", 3) == 0) {
      if (used + name + 2 < sizeof prefix)
        snprintf(prefix + used, sizeof prefix - used, "%.*s.", (int)name, key);
    } else if (strncmp(equals, " = ", 3) == 0) {
      const char *value = equals + 3, *end = text + length;
      const char *mark = strstr(value, ";"), *last = NULL;
      for (; mark != NULL && mark < end; mark = strstr(mark + 1, ";"))
        last = mark; /* strings may hold one */
      if (last != NULL && strstr(last, "# default") == NULL)
        end = last;
      else if (last != NULL)
        end = last;
      status = add_line(out, prefix, key, name, value, (size_t)(end - value), err);
    }
    text += length + (text[length] == '\n');
  }
  return status;
}

static const char *value_of(const lines_t *l, const char *key) {
  for (int64_t i = 0; i < l->n; i++)
    if (strcmp(l->all[i].key, key) == 0)
      return l->all[i].value;
  return NULL;
}

static void add_difference(wm_table_t *t, const char *what, const char *a, const char *b,
                           int64_t *n) {
  if (strcmp(a != NULL ? a : "", b != NULL ? b : "") == 0)
    return;
  wm_table_text(t, what);
  wm_table_text(t, a != NULL && a[0] != '\0' ? a : "-");
  wm_table_text(t, b != NULL && b[0] != '\0' ? b : "-");
  ++*n;
}

static wm_status_t print_or_say(wm_table_t *t, int64_t n, const char *nothing, FILE *out,
                                wm_error_t *err) {
  wm_status_t status = WM_OK;
  if (n > 0)
    status = wm_table_print(t, WM_TABLE_TEXT, out, err);
  else
    fprintf(out, "%s\n", nothing);
  wm_table_free(t);
  return status;
}

static wm_status_t start_table(const char *what, const wm_results_t *a, const wm_results_t *b,
                               wm_table_t **out, wm_error_t *err) {
  const wm_column_t columns[] = {{what, NULL, WM_ALIGN_LEFT, 0},
                                 {a->label, NULL, WM_ALIGN_LEFT, 0},
                                 {b->label, NULL, WM_ALIGN_LEFT, 0}};
  return wm_table_create(columns, 3, out, err);
}

static wm_status_t print_settings(const wm_results_t *a, const wm_results_t *b, FILE *out,
                                  wm_error_t *err) {
  lines_t left = {0}, right = {0};
  wm_table_t *t = NULL;
  int64_t n = 0;
  wm_status_t status;
  WM_TRY(read_lines(wm_results_attribute(a, "configuration"), &left, err));
  WM_TRY(read_lines(wm_results_attribute(b, "configuration"), &right, err));
  WM_TRY(start_table("setting", a, b, &t, err));
  for (int64_t i = 0; i < left.n; i++)
    add_difference(t, left.all[i].key, left.all[i].value, value_of(&right, left.all[i].key), &n);
  for (int64_t i = 0; i < right.n; i++)
    if (value_of(&left, right.all[i].key) == NULL)
      add_difference(t, right.all[i].key, NULL, right.all[i].value, &n);
  fprintf(out, "\nSettings\n");
  status = print_or_say(t, n, "no setting differs", out, err);
cleanup:
  lines_destroy(&left);
  lines_destroy(&right);
  return status;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static wm_status_t print_inputs(const wm_results_t *a, const wm_results_t *b, FILE *out,
                                wm_error_t *err) {
  static const char *const states[] = {"not there", "cannot be read", "there"};
  wm_table_t *t = NULL;
  int64_t n = 0;
  wm_status_t status = start_table("what", a, b, &t, err);
  if (status != WM_OK)
    return status;
  for (int k = 0; k < WM_FILE_KINDS; k++) {
    const wm_result_file_t *left = &a->files[k], *right = &b->files[k];
    add_difference(t, left->name, states[left->state], states[right->state], &n);
    for (int i = 0; i < left->attributes.n && right->state == WM_FILE_READ; i++) {
      const char *name = left->attributes.all[i].name;
      char what[256];
      if (strcmp(name, "configuration") == 0)
        continue;
      snprintf(what, sizeof what, "%s: %s", left->name, name);
      add_difference(t, what, left->attributes.all[i].value, wm_attribute(&right->attributes, name),
                     &n);
    }
    for (int i = 0; i < right->attributes.n && left->state == WM_FILE_READ; i++) {
      const char *name = right->attributes.all[i].name;
      char what[256];
      snprintf(what, sizeof what, "%s: %s", left->name, name);
      if (wm_attribute(&left->attributes, name)[0] == '\0')
        add_difference(t, what, NULL, right->attributes.all[i].value, &n);
    }
  }
  fprintf(out, "Inputs, versions, machine\n");
  return print_or_say(t, n, "all result files say the same of their making", out, err);
}

/* ---- results --------------------------------------------------------------------------------- */

static const wm_layer_result_t *layer_of(const wm_results_t *r, int64_t layer) {
  for (int64_t i = 0; i < r->n_layers; i++)
    if (r->layer_results[i].layer == layer)
      return &r->layer_results[i];
  return NULL;
}

static void add_side(wm_table_t *t, const wm_results_t *r, const wm_layer_result_t *l) {
  char interval[64];
  wm_interval_text(wm_frame_number(&r->variants, l->linear, "low"),
                   wm_frame_number(&r->variants, l->linear, "high"), interval, sizeof interval);
  wm_table_text(t, wm_verdict_name(l->verdict));
  wm_table_float(t, wm_frame_number(&r->variants, l->linear, "delta_pct"));
  wm_table_text(t, interval);
}

static wm_status_t print_layers(const wm_results_t *a, const wm_results_t *b, FILE *out,
                                wm_error_t *err) {
  const wm_column_t columns[] = {{"layer", NULL, WM_ALIGN_RIGHT, 0},
                                 {"verdict", a->label, WM_ALIGN_LEFT, 0},
                                 {"cost", "%", WM_ALIGN_RIGHT, 3},
                                 {"interval", NULL, WM_ALIGN_RIGHT, 0},
                                 {"verdict", b->label, WM_ALIGN_LEFT, 0},
                                 {"cost", "%", WM_ALIGN_RIGHT, 3},
                                 {"interval", NULL, WM_ALIGN_RIGHT, 0},
                                 {"difference", "%", WM_ALIGN_RIGHT, 3},
                                 {"", NULL, WM_ALIGN_LEFT, 0}};
  wm_table_t *t = NULL;
  int64_t n = 0;
  wm_status_t status = wm_table_create(columns, sizeof columns / sizeof columns[0], &t, err);
  if (status != WM_OK)
    return status;
  for (int64_t i = 0; i < a->n_layers; i++) {
    const wm_layer_result_t *left = &a->layer_results[i], *right = layer_of(b, left->layer);
    if (right == NULL)
      continue;
    n++;
    double low_a = wm_frame_number(&a->variants, left->linear, "low");
    double high_a = wm_frame_number(&a->variants, left->linear, "high");
    double low_b = wm_frame_number(&b->variants, right->linear, "low");
    double high_b = wm_frame_number(&b->variants, right->linear, "high");
    wm_table_int(t, left->layer);
    add_side(t, a, left);
    add_side(t, b, right);
    wm_table_float(t, wm_frame_number(&b->variants, right->linear, "delta_pct") -
                          wm_frame_number(&a->variants, left->linear, "delta_pct"));
    wm_table_text(t, high_a < low_b || high_b < low_a  ? "apart"
                     : left->verdict != right->verdict ? "verdict differs"
                                                       : "");
  }
  fprintf(out, "\nResults\n");
  return print_or_say(t, n, "no layer is in both", out, err);
}

/* The row that changes the same layers in the same way; -1: there is none. */
static int64_t same_variant(const wm_results_t *a, int64_t row, const wm_results_t *b) {
  static const char *const texts[] = {"layers", "path", "gate"};
  double threshold = wm_frame_number(&a->variants, row, "threshold");
  for (int64_t v = 1; v < b->variants.n; v++) {
    double other = wm_frame_number(&b->variants, v, "threshold");
    bool same = other == threshold || (isnan(other) && isnan(threshold));
    for (int i = 0; i < 3; i++)
      same &= strcmp(wm_frame_text(&a->variants, row, texts[i]),
                     wm_frame_text(&b->variants, v, texts[i])) == 0;
    if (same)
      return v;
  }
  return -1;
}

static void add_cost(wm_table_t *t, const wm_frame_t *f, int64_t row) {
  char interval[64];
  wm_interval_text(wm_frame_number(f, row, "low"), wm_frame_number(f, row, "high"), interval,
                   sizeof interval);
  wm_table_float(t, wm_frame_number(f, row, "delta_pct"));
  wm_table_text(t, interval);
}

static void add_distance(wm_table_t *t, const wm_frame_t *a, int64_t i, const wm_frame_t *b,
                         int64_t j) {
  bool apart = wm_frame_number(a, i, "high") < wm_frame_number(b, j, "low") ||
               wm_frame_number(b, j, "high") < wm_frame_number(a, i, "low");
  wm_table_float(t, wm_frame_number(b, j, "delta_pct") - wm_frame_number(a, i, "delta_pct"));
  wm_table_text(t, apart ? "apart" : "");
}

static wm_status_t start_costs(const wm_results_t *a, const wm_results_t *b, wm_table_t **out,
                               wm_error_t *err) {
  const wm_column_t columns[] = {
      {"what", NULL, WM_ALIGN_LEFT, 0},      {"cost, %", a->label, WM_ALIGN_RIGHT, 3},
      {"interval", NULL, WM_ALIGN_RIGHT, 0}, {"cost, %", b->label, WM_ALIGN_RIGHT, 3},
      {"interval", NULL, WM_ALIGN_RIGHT, 0}, {"difference", "%", WM_ALIGN_RIGHT, 3},
      {"", NULL, WM_ALIGN_LEFT, 0}};
  return wm_table_create(columns, sizeof columns / sizeof columns[0], out, err);
}

/* Gates and sets of layers: the variants that are not one linear layer. */
static wm_status_t print_variants(const wm_results_t *a, const wm_results_t *b, FILE *out,
                                  wm_error_t *err) {
  wm_table_t *t = NULL;
  int64_t n = 0;
  wm_status_t status = start_costs(a, b, &t, err);
  if (status != WM_OK)
    return status;
  for (int64_t v = 1; v < a->variants.n; v++) {
    int64_t other = same_variant(a, v, b);
    if (other < 0 || wm_variant_layer(&a->variants, v) >= 0)
      continue;
    n++;
    double threshold = wm_frame_number(&a->variants, v, "threshold");
    char at[32] = "";
    if (!isnan(threshold))
      snprintf(at, sizeof at, " at %.4g", threshold);
    wm_table_textf(t, "%s: %s %s%s", wm_frame_text(&a->variants, v, "layers"),
                   wm_frame_text(&a->variants, v, "path"), wm_frame_text(&a->variants, v, "gate"),
                   at);
    add_cost(t, &a->variants, v);
    add_cost(t, &b->variants, other);
    add_distance(t, &a->variants, v, &b->variants, other);
  }
  fprintf(out, "\nGates and sets of layers\n");
  return print_or_say(t, n, "no gate and no set of layers is in both", out, err);
}

static wm_status_t print_trainings(const wm_results_t *a, const wm_results_t *b, FILE *out,
                                   wm_error_t *err) {
  const struct {
    const char *name;
    const wm_training_result_t *left, *right;
  } runs[] = {{"plan", &a->training, &b->training}, {"control", &a->control, &b->control}};
  wm_table_t *t = NULL;
  int64_t n = 0;
  wm_status_t status = start_costs(a, b, &t, err);
  if (status != WM_OK)
    return status;
  for (int k = 0; k < 2; k++) {
    const wm_frame_t *left = wm_training_range(runs[k].left, "evaluation");
    const wm_frame_t *right = wm_training_range(runs[k].right, "evaluation");
    int64_t i = wm_training_end(left), j = wm_training_end(right);
    if (i < 0 || j < 0)
      continue;
    n++;
    wm_table_textf(t, "%s, end", runs[k].name);
    add_cost(t, left, i);
    add_cost(t, right, j);
    add_distance(t, left, i, right, j);
  }
  if (n == 0) {
    wm_table_free(t);
    return WM_OK;
  }
  fprintf(out, "\nTraining: change of perplexity since its start\n");
  const char *tokens = wm_attribute(&a->files[WM_FILE_FINETUNE].attributes, "tokens_seen");
  status = print_or_say(t, n, "", out, err);
  if (status == WM_OK &&
      strcmp(tokens, wm_attribute(&b->files[WM_FILE_FINETUNE].attributes, "tokens_seen")) != 0)
    fprintf(out, "the two have seen different numbers of tokens and are not to be ranked\n");
  return status;
}

wm_status_t wm_comparison_print(const wm_results_t *a, const wm_results_t *b, FILE *out,
                                wm_error_t *err) {
  wm_status_t status = print_inputs(a, b, out, err);
  if (status == WM_OK)
    status = print_settings(a, b, out, err);
  if (status == WM_OK)
    status = print_layers(a, b, out, err);
  if (status == WM_OK)
    status = print_variants(a, b, out, err);
  if (status == WM_OK)
    status = print_trainings(a, b, out, err);
  const char *left = wm_results_attribute(a, "text_fingerprint_evaluation");
  if (status == WM_OK && strcmp(left, wm_results_attribute(b, "text_fingerprint_evaluation")) != 0)
    fprintf(out, "the two were measured on different texts: costs may differ for that alone\n");
  fprintf(out, "apart: the two intervals do not touch\n");
  return status;
}
