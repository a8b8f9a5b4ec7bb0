#include "wanamaker/report/published.h"

#include "wanamaker/base/mem.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* ---- CSV ------------------------------------------------------------------------------------- */

void wm_csv_destroy(wm_csv_t *csv) {
  free(csv->text);
  free(csv->cells);
  *csv = (wm_csv_t){0};
}

/* Ends the cell at `at` in place; *next is where the next begins, *last whether it ends its row. */
static char *take_cell(char *at, char **next, bool *last) {
  char *to = at, *from = at;
  bool quoted = *from == '"';
  from += quoted;
  while (*from != '\0') {
    if (quoted && *from == '"' && from[1] == '"') {
      from++;
    } else if (quoted && *from == '"') {
      quoted = false;
      from++;
      continue;
    } else if (!quoted && (*from == ',' || *from == '\n' || *from == '\r')) {
      break;
    }
    *to++ = *from++;
  }
  *last = *from != ',';
  if (*from == '\r')
    from++;
  *next = *from != '\0' ? from + 1 : from;
  *to = '\0';
  return at;
}

wm_status_t wm_csv_parse(const char *text, const char *name, wm_csv_t *out, wm_error_t *err) {
  void *memory = NULL;
  int64_t n = 0, capacity = 0, row = 0;
  int in_row = 0;
  *out = (wm_csv_t){0};
  wm_status_t status = wm_strdup(&out->text, text, err);
  for (char *at = out->text; status == WM_OK && *at != '\0';) {
    bool last;
    status = wm_grow(&memory, &capacity, n, n + 1, sizeof(char *), name, err);
    out->cells = memory;
    if (status != WM_OK)
      break;
    out->cells[n] = take_cell(at, &at, &last);
    n++;
    in_row++;
    if (!last)
      continue;
    if (row == 0)
      out->n_columns = in_row;
    else if (in_row != out->n_columns)
      status = wm_fail(err, WM_INPUT, "%s: row %lld has %d cells instead of %d", name,
                       (long long)row + 1, in_row, out->n_columns);
    row++;
    in_row = 0;
  }
  out->n = row > 0 ? row - 1 : 0;
  if (status != WM_OK)
    wm_csv_destroy(out);
  return status;
}

const char *wm_csv_text(const wm_csv_t *csv, int64_t row, const char *column) {
  if (row < 0 || row >= csv->n)
    return "";
  for (int c = 0; c < csv->n_columns; c++)
    if (strcmp(csv->cells[c], column) == 0)
      return csv->cells[(1 + row) * csv->n_columns + c];
  return "";
}

double wm_csv_number(const wm_csv_t *csv, int64_t row, const char *column) {
  const char *text = wm_csv_text(csv, row, column);
  char *end;
  double value = strtod(text, &end);
  return end != text && *end == '\0' ? value : NAN;
}

/* ---- the study's tables ---------------------------------------------------------------------- */

wm_status_t wm_published_read(wm_published_t *out, wm_error_t *err) {
  const struct {
    const unsigned char *text;
    const char *name;
    wm_csv_t *to;
  } tables[] = {{wm_published_layers, "published_layers.csv", &out->layers},
                {wm_published_training, "published_training.csv", &out->training},
                {wm_published_probes, "published_probes.csv", &out->probes},
                {wm_published_claims, "published_claims.csv", &out->claims}};
  *out = (wm_published_t){0};
  wm_status_t status = WM_OK;
  for (int i = 0; i < 4 && status == WM_OK; i++)
    status = wm_csv_parse((const char *)tables[i].text, tables[i].name, tables[i].to, err);
  return status;
}

void wm_published_destroy(wm_published_t *p) {
  wm_csv_destroy(&p->layers);
  wm_csv_destroy(&p->training);
  wm_csv_destroy(&p->probes);
  wm_csv_destroy(&p->claims);
}

const char *wm_published_model(const char *family, int64_t layers, int64_t width,
                               double perplexity) {
  static const struct {
    const char *name, *family;
    int64_t layers, width;
  } models[] = {{"gpt2", "GPT-2", 12, 768},
                {"gpt2-medium", "GPT-2", 24, 1024},
                {"gpt2-large", "GPT-2", 36, 1280},
                {"pythia-160m", "GPT-NeoX", 12, 768},
                {"pythia-410m", "GPT-NeoX", 24, 1024},
                {"pythia-1b", "GPT-NeoX", 16, 2048},
                {"pythia-2.8b", "GPT-NeoX", 32, 2560}};
  enum { MOST = 200 };
  for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
    if (strcmp(models[i].family, family) == 0 && models[i].layers == layers &&
        models[i].width == width && perplexity < MOST)
      return models[i].name;
  return NULL;
}

int64_t wm_published_layer(const wm_published_t *p, const char *model, int64_t layer,
                           const char *variant) {
  int64_t found = -1;
  for (int64_t i = 0; i < p->layers.n; i++) {
    if (strcmp(wm_csv_text(&p->layers, i, "model"), model) != 0 ||
        wm_csv_number(&p->layers, i, "layer") != (double)layer ||
        strcmp(wm_csv_text(&p->layers, i, "variant"), variant) != 0)
      continue;
    if (!isnan(wm_csv_number(&p->layers, i, "delta_ci_lo_pct")))
      return i;
    if (found < 0)
      found = i;
  }
  return found;
}
