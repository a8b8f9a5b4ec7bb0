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
      if (last != NULL)
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

/* The settings of one file on both sides; none if it is not on both. */
typedef struct {
  lines_t left, right;
} settings_t;

static bool same_text(const char *a, const char *b) {
  return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* Has a file before number k this difference (`any`: a difference in this setting), too? */
static bool is_listed(const settings_t *files, int k, const char *key, bool any) {
  const char *a = value_of(&files[k].left, key), *b = value_of(&files[k].right, key);
  for (int i = 0; i < k; i++) {
    const char *x = value_of(&files[i].left, key), *y = value_of(&files[i].right, key);
    if (!same_text(x, y) && (any || (same_text(a, x) && same_text(b, y))))
      return true;
  }
  return false;
}

/* A setting of file k; with the file's name where another file has it with other values. */
static void add_setting(wm_table_t *t, const settings_t *files, int k, const char *file,
                        const char *key, int64_t *n) {
  char what[256];
  if (is_listed(files, k, key, false))
    return;
  snprintf(what, sizeof what, is_listed(files, k, key, true) ? "%s: %s" : "%.0s%s", file, key);
  add_difference(t, what, value_of(&files[k].left, key), value_of(&files[k].right, key), n);
}

static wm_status_t read_settings(const wm_results_t *a, const wm_results_t *b, settings_t *files,
                                 int64_t *both, wm_error_t *err) {
  wm_status_t status = WM_OK;
  *both = 0;
  for (int k = 0; k < WM_FILE_KINDS && status == WM_OK; k++) {
    const wm_result_file_t *left = &a->files[k], *right = &b->files[k];
    if (left->state != WM_FILE_READ || right->state != WM_FILE_READ)
      continue;
    ++*both;
    status = read_lines(wm_attribute(&left->attributes, "configuration"), &files[k].left, err);
    if (status == WM_OK)
      status = read_lines(wm_attribute(&right->attributes, "configuration"), &files[k].right, err);
  }
  return status;
}

static wm_status_t print_settings(const wm_results_t *a, const wm_results_t *b, FILE *out,
                                  wm_error_t *err) {
  settings_t files[WM_FILE_KINDS] = {0};
  wm_table_t *t = NULL;
  int64_t n = 0, both = 0;
  wm_status_t status;
  WM_TRY(read_settings(a, b, files, &both, err));
  WM_TRY(start_table("setting", a, b, &t, err));
  for (int k = 0; k < WM_FILE_KINDS; k++) {
    const settings_t *f = &files[k];
    for (int64_t i = 0; i < f->left.n; i++)
      add_setting(t, files, k, a->files[k].name, f->left.all[i].key, &n);
    for (int64_t i = 0; i < f->right.n; i++)
      if (value_of(&f->left, f->right.all[i].key) == NULL)
        add_setting(t, files, k, a->files[k].name, f->right.all[i].key, &n);
  }
  fprintf(out, "\nSettings\n");
  status = print_or_say(t, n,
                        both > 0 ? "no setting of the files on both sides differs"
                                 : "no file is on both sides: no settings to compare",
                        out, err);
cleanup:
  for (int k = 0; k < WM_FILE_KINDS; k++) {
    lines_destroy(&files[k].left);
    lines_destroy(&files[k].right);
  }
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
      if (strcmp(name, "configuration") == 0 || strcmp(name, "attributes_checksum") == 0)
        continue; /* the first has a table of its own, the second follows from the others */
      snprintf(what, sizeof what, "%s: %s", left->name, name);
      add_difference(t, what, left->attributes.all[i].value, wm_attribute(&right->attributes, name),
                     &n);
    }
    for (int i = 0; i < right->attributes.n && left->state == WM_FILE_READ; i++) {
      const char *name = right->attributes.all[i].name;
      char what[256];
      snprintf(what, sizeof what, "%s: %s", left->name, name);
      if (wm_attribute(&left->attributes, name)[0] == '\0' &&
          strcmp(name, "attributes_checksum") != 0)
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

static void add_cost(wm_table_t *t, const wm_frame_t *f, int64_t row) {
  char interval[64];
  wm_interval_text(wm_frame_number(f, row, "low"), wm_frame_number(f, row, "high"), interval,
                   sizeof interval);
  wm_table_float(t, wm_frame_number(f, row, "delta_pct"));
  wm_table_text(t, interval);
}

/* b's cost less a's; then whether a side lacks it (-1), the intervals do not touch, or `otherwise`.
 */
static void add_distance(wm_table_t *t, const wm_frame_t *a, int64_t i, const wm_frame_t *b,
                         int64_t j, const char *otherwise) {
  const bool apart = wm_frame_number(a, i, "high") < wm_frame_number(b, j, "low") ||
                     wm_frame_number(b, j, "high") < wm_frame_number(a, i, "low");
  wm_table_float(t, wm_frame_number(b, j, "delta_pct") - wm_frame_number(a, i, "delta_pct"));
  wm_table_text(t, i < 0 || j < 0 ? "in one only" : apart ? "apart" : otherwise);
}

/* `l` may be NULL: the layer is not here. */
static void add_side(wm_table_t *t, const wm_results_t *r, const wm_layer_result_t *l) {
  wm_table_text(t, wm_verdict_name(l != NULL ? l->verdict : WM_UNMEASURED));
  add_cost(t, &r->variants, l != NULL ? l->linear : -1);
}

/* A layer of one side or both. */
static void add_layer(wm_table_t *t, const wm_results_t *a, const wm_results_t *b, int64_t layer) {
  const wm_layer_result_t *left = layer_of(a, layer), *right = layer_of(b, layer);
  const int64_t i = left != NULL ? left->linear : -1, j = right != NULL ? right->linear : -1;
  const bool differ = left != NULL && right != NULL && left->verdict != right->verdict;
  wm_table_int(t, layer);
  add_side(t, a, left);
  add_side(t, b, right);
  add_distance(t, &a->variants, i, &b->variants, j, differ ? "verdict differs" : "");
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
  for (int64_t i = 0, j = 0; i < a->n_layers || j < b->n_layers; n++) { /* both ascend */
    const int64_t left = i < a->n_layers ? a->layer_results[i].layer : INT64_MAX;
    const int64_t right = j < b->n_layers ? b->layer_results[j].layer : INT64_MAX;
    add_layer(t, a, b, left < right ? left : right);
    i += left <= right;
    j += right <= left;
  }
  fprintf(out, "\nResults\n");
  return print_or_say(t, n, "neither has layers", out, err);
}

static bool has_costs(const wm_results_t *r) {
  return r->variants.n > 1 || r->comparison.n > 0 ||
         wm_training_range(&r->training, "evaluation") != NULL ||
         wm_training_range(&r->control, "evaluation") != NULL;
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

/* Row i of a's variants and row j of b's, which are the same one; -1: not there. */
static void add_variant(wm_table_t *t, const wm_results_t *a, int64_t i, const wm_results_t *b,
                        int64_t j) {
  const wm_frame_t *f = i >= 0 ? &a->variants : &b->variants;
  const int64_t row = i >= 0 ? i : j;
  const double threshold = wm_frame_number(f, row, "threshold");
  const char *gate = wm_frame_text(f, row, "gate");
  const bool gated = gate[0] != '\0' && strcmp(gate, "none") != 0;
  char at[32] = "";
  if (!isnan(threshold))
    snprintf(at, sizeof at, " at %.4g", threshold);
  wm_table_textf(t, "%s: %s%s%s%s", wm_frame_text(f, row, "layers"), wm_frame_text(f, row, "path"),
                 gated ? " " : "", gated ? gate : "", at);
  add_cost(t, &a->variants, i);
  add_cost(t, &b->variants, j);
  add_distance(t, &a->variants, i, &b->variants, j, "");
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
  for (int64_t v = 1; v < a->variants.n; v++)
    if (wm_variant_layer(&a->variants, v) < 0) {
      add_variant(t, a, v, b, same_variant(a, v, b));
      n++;
    }
  for (int64_t v = 1; v < b->variants.n; v++)
    if (wm_variant_layer(&b->variants, v) < 0 && same_variant(b, v, a) < 0) {
      add_variant(t, a, -1, b, v);
      n++;
    }
  fprintf(out, "\nGates and sets of layers\n");
  return print_or_say(t, n, "no sweep has gates or sets of layers", out, err);
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
    add_distance(t, left, i, right, j, "");
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

/* The row of b that compares the same model on the same range; -1. */
static int64_t same_against(const wm_against_t *a, const wm_results_t *b) {
  wm_against_t other;
  for (int64_t row = 0; row < b->comparison.n; row++)
    if (wm_against(b, row, &other) && other.hard == a->hard && strcmp(other.range, a->range) == 0)
      return row;
  return -1;
}

/* Row i of a's comparison and row j of b's, which are the same one; -1: not there. */
static void add_against(wm_table_t *t, const wm_results_t *a, int64_t i, const wm_results_t *b,
                        int64_t j) {
  wm_against_t left = {0}, right = {0};
  const bool here = wm_against(a, i, &left), there = wm_against(b, j, &right);
  const wm_against_t *one = here ? &left : &right;
  wm_table_textf(t, "%s%s", one->range, one->hard ? ", gates that decide" : "");
  wm_table_text(t, here ? wm_standing_name(left.standing) : "-");
  add_cost(t, &a->comparison, i);
  wm_table_text(t, there ? wm_standing_name(right.standing) : "-");
  add_cost(t, &b->comparison, j);
  add_distance(t, &a->comparison, i, &b->comparison, j,
               left.standing != right.standing ? "verdict differs" : "");
}

static wm_status_t print_against(const wm_results_t *a, const wm_results_t *b, FILE *out,
                                 wm_error_t *err) {
  const wm_column_t columns[] = {{"range", NULL, WM_ALIGN_LEFT, 0},
                                 {"verdict", a->label, WM_ALIGN_LEFT, 0},
                                 {"change", "%", WM_ALIGN_RIGHT, 3},
                                 {"interval", NULL, WM_ALIGN_RIGHT, 0},
                                 {"verdict", b->label, WM_ALIGN_LEFT, 0},
                                 {"change", "%", WM_ALIGN_RIGHT, 3},
                                 {"interval", NULL, WM_ALIGN_RIGHT, 0},
                                 {"difference", "%", WM_ALIGN_RIGHT, 3},
                                 {"", NULL, WM_ALIGN_LEFT, 0}};
  wm_against_t one;
  wm_table_t *t = NULL;
  wm_status_t status;
  if (a->comparison.n + b->comparison.n == 0)
    return WM_OK;
  status = wm_table_create(columns, sizeof columns / sizeof columns[0], &t, err);
  if (status != WM_OK)
    return status;
  for (int64_t row = 0; row < a->comparison.n; row++)
    if (wm_against(a, row, &one))
      add_against(t, a, row, b, same_against(&one, b));
  for (int64_t row = 0; row < b->comparison.n; row++)
    if (wm_against(b, row, &one) && same_against(&one, a) < 0)
      add_against(t, a, -1, b, row);
  fprintf(out, "\nPlan against its control at equal tokens\n");
  return print_or_say(t, 1, "", out, err);
}

/* ---- all other tables ------------------------------------------------------------------------ */

/* Do two tables name the same things in the same rows? */
static bool same_rows(const wm_frame_t *a, const wm_frame_t *b) {
  static const char *const keys[] = {"layer", "key",  "corpus", "surrogates", "label",
                                     "view",  "gate", "id",     "name",       "kind"};
  if (a->n != b->n)
    return false;
  for (int64_t i = 0; i < a->n; i++)
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
      const double x = wm_frame_number(a, i, keys[k]), y = wm_frame_number(b, i, keys[k]);
      if (strcmp(wm_frame_text(a, i, keys[k]), wm_frame_text(b, i, keys[k])) != 0 ||
          (x != y && !(isnan(x) && isnan(y))))
        return false;
    }
  return true;
}

/* Rows in which a column differs, and the pair that is farthest apart. */
static int64_t column_differs(const wm_frame_t *a, const wm_frame_t *b, const char *name,
                              int64_t *farthest) {
  int64_t n = 0;
  double most = -1;
  for (int64_t i = 0; i < a->n; i++) {
    const double x = wm_frame_number(a, i, name), y = wm_frame_number(b, i, name);
    const double distance = isnan(x) || isnan(y) ? INFINITY : fabs(x - y);
    if (x == y || (isnan(x) && isnan(y)))
      continue;
    n++;
    if (distance > most) {
      most = distance;
      *farthest = i;
    }
  }
  return n;
}

static void add_columns(wm_table_t *t, const char *what, const wm_frame_t *a, const wm_frame_t *b,
                        int64_t *n) {
  for (int c = 0; c < a->n_columns; c++) {
    const char *name = a->columns[c].name;
    int64_t at = 0;
    const int64_t differ = a->columns[c].numbers != NULL && wm_frame_numbers(b, name) != NULL
                               ? column_differs(a, b, name, &at)
                               : 0;
    if (differ == 0)
      continue;
    wm_table_textf(t, "%s: %s", what, name);
    wm_table_textf(t, "%lld of %lld", (long long)differ, (long long)a->n);
    wm_table_textf(t, "%.6g", wm_frame_number(a, at, name));
    wm_table_textf(t, "%.6g", wm_frame_number(b, at, name));
    ++*n;
  }
}

static wm_status_t print_others(const wm_results_t *a, const wm_results_t *b, FILE *out,
                                wm_error_t *err) {
  const struct {
    const char *name;
    const wm_frame_t *left, *right;
  } tables[] = {{"surrogates.h5 /fit", &a->layers, &b->layers},
                {"gates.h5 /labels", &a->gate_layers, &b->gate_layers},
                {"gates.h5 /gate", &a->gates, &b->gates},
                {"gates.h5 /curve", &a->curve, &b->curve},
                {"allocation.h5 /options", &a->options, &b->options},
                {"allocation.h5 /plans", &a->plans, &b->plans},
                {"finetune.compare.h5 /comparison", &a->comparison, &b->comparison},
                {"probes.h5 /context", &a->context, &b->context},
                {"probes.h5 /categories", &a->categories, &b->categories},
                {"probes.h5 /correlations", &a->correlations, &b->correlations},
                {"probes.h5 /types", &a->types, &b->types},
                {"probes.h5 /regression", &a->regression, &b->regression},
                {"probes.h5 /clusterings", &a->clusterings, &b->clusterings},
                {"bench.h5 /forward/rates", &a->bench_rates, &b->bench_rates},
                {"bench.h5 /sweep/times", &a->bench_sweep, &b->bench_sweep},
                {"bench.h5 /routing/layers", &a->bench_routing, &b->bench_routing},
                {"bench.h5 /routing/last", &a->bench_last, &b->bench_last},
                {"bench.h5 /routing/losses", &a->bench_losses, &b->bench_losses},
                {"bench.h5 /memory", &a->bench_memory, &b->bench_memory}};
  const wm_column_t columns[] = {{"table: number", NULL, WM_ALIGN_LEFT, 0},
                                 {"differs", "rows", WM_ALIGN_RIGHT, 0},
                                 {"farthest", a->label, WM_ALIGN_RIGHT, 0},
                                 {"apart", b->label, WM_ALIGN_RIGHT, 0}};
  wm_table_t *t = NULL;
  int64_t n = 0, both = 0;
  wm_status_t status = wm_table_create(columns, 4, &t, err);
  if (status != WM_OK)
    return status;
  for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
    const wm_frame_t *left = tables[i].left, *right = tables[i].right;
    if (left->n_columns == 0 || right->n_columns == 0)
      continue;
    both++;
    if (same_rows(left, right)) {
      add_columns(t, tables[i].name, left, right, &n);
      continue;
    }
    wm_table_textf(t, "%s: other rows", tables[i].name);
    wm_table_text(t, "-");
    wm_table_textf(t, "%lld rows", (long long)left->n);
    wm_table_textf(t, "%lld rows", (long long)right->n);
    n++;
  }
  fprintf(out, "\nNumbers of the other tables\n");
  return print_or_say(
      t, n, both > 0 ? "all that are on both sides are equal" : "none is on both sides", out, err);
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
  if (status == WM_OK)
    status = print_against(a, b, out, err);
  if (status == WM_OK)
    status = print_others(a, b, out, err);
  const char *left = wm_results_attribute(a, "text_fingerprint_evaluation");
  const char *right = wm_results_attribute(b, "text_fingerprint_evaluation");
  if (status == WM_OK && left[0] != '\0' && right[0] != '\0' && strcmp(left, right) != 0)
    fprintf(out, "the two were measured on different texts: costs may differ for that alone\n");
  if (status == WM_OK && has_costs(a) && has_costs(b))
    fprintf(out, "apart: the two intervals do not touch\n");
  return status;
}
