#include "wanamaker/report/html.h"

#include "table_internal.h"
#include "wanamaker/base/mem.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- text ------------------------------------------------------------------------------------ */

static void put_character(FILE *f, utf8proc_int32_t c) {
  static const char *const references[128] = {
      ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;", ['\''] = "&#39;"};
  if (wm_is_control(c) && c != '\n' && c != '\t')
    c = 0xfffd;
  if (c < 128 && references[c] != NULL) {
    fputs(references[c], f);
    return;
  }
  utf8proc_uint8_t bytes[4];
  utf8proc_ssize_t n = utf8proc_encode_char(c, bytes);
  fwrite(bytes, 1, (size_t)n, f);
}

void wm_html_text(FILE *f, const char *text) {
  while (*text != '\0')
    put_character(f, wm_next_character(&text));
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* value and text of a number: "" and "-" for NaN. */
static wm_status_t put_value(FILE *f, const char *attribute, const wm_table_cell_t *cell,
                             const wm_column_t *column, wm_error_t *err) {
  char *exact = wm_table_cell_string(cell, column, WM_TABLE_CSV);
  char *shown = wm_table_cell_string(cell, column, WM_TABLE_TEXT);
  wm_status_t status = WM_OK;
  if (exact == NULL || shown == NULL)
    status = wm_fail(err, WM_ENVIRONMENT, "cannot allocate a number's text");
  else
    fprintf(f, " %s=\"%s\">%s", attribute, exact,
            shown[0] == '-' && shown[1] == '\0' ? "–" : shown);
  free(exact);
  free(shown);
  return status;
}

void wm_html_number(FILE *f, const char *name, double value, int decimals) {
  const wm_table_cell_t cell = {.kind = WM_CELL_FLOAT, .real = value};
  const wm_column_t column = {.decimals = decimals};
  wm_error_t ignored = {0};
  fputs("<data class=\"n\" data-n=\"", f);
  wm_html_text(f, name);
  fputc('"', f);
  if (put_value(f, "value", &cell, &column, &ignored) != WM_OK)
    fputs(">?", f);
  fputs("</data>", f);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void put_heads(const wm_table_t *t, FILE *f) {
  fputs("<thead><tr>", f);
  for (int c = 0; c < t->n_columns; c++) {
    const wm_column_t *column = &t->columns[c];
    fputs(column->align == WM_ALIGN_LEFT ? "<th scope=\"col\" class=\"t\">" : "<th scope=\"col\">",
          f);
    wm_html_text(f, column->title);
    if (column->unit != NULL) {
      fputs(" <span class=\"unit\">", f);
      wm_html_text(f, column->unit);
      fputs("</span>", f);
    }
    fputs("</th>", f);
  }
  fputs("</tr></thead>\n", f);
}

/* A word that style sheets may ask for. */
static bool is_word(const char *text) {
  enum { LONGEST = 24 };
  size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz_ ");
  return n > 0 && n <= LONGEST && text[n] == '\0';
}

static wm_status_t put_cell(const wm_table_t *t, int64_t row, int c, const char *tag, FILE *f,
                            wm_error_t *err) {
  const wm_table_cell_t *cell = &t->cells[row * t->n_columns + c];
  const wm_column_t *column = &t->columns[c];
  wm_status_t status = WM_OK;
  fprintf(f, "<%s%s%s", tag, tag[1] == 'h' ? " scope=\"row\"" : "",
          column->align == WM_ALIGN_LEFT ? " class=\"t\"" : "");
  if (cell->kind == WM_CELL_TEXT) {
    if (is_word(cell->text))
      fprintf(f, " data-t=\"%s\"", cell->text);
    fputc('>', f);
    wm_html_text(f, cell->text);
  } else {
    status = put_value(f, "data-v", cell, column, err);
  }
  fprintf(f, "</%s>", tag);
  return status;
}

wm_status_t wm_table_html(const wm_table_t *t, const char *id, const char *caption, int heads,
                          FILE *f, wm_error_t *err) {
  if (t->error.status != WM_OK) {
    *err = t->error;
    return err->status;
  }
  assert(t->n_cells % t->n_columns == 0);
  wm_status_t status = WM_OK;
  fputs("<div class=\"scroll\" tabindex=\"0\"><table id=\"", f);
  wm_html_text(f, id);
  fputs("\">\n", f);
  if (caption != NULL) {
    fputs("<caption>", f);
    wm_html_text(f, caption);
    fputs("</caption>\n", f);
  }
  put_heads(t, f);
  fputs("<tbody>\n", f);
  for (int64_t r = 0; r < t->n_cells / t->n_columns && status == WM_OK; r++) {
    fputs("<tr>", f);
    for (int c = 0; c < t->n_columns && status == WM_OK; c++)
      status = put_cell(t, r, c, c < heads ? "th" : "td", f, err);
    fputs("</tr>\n", f);
  }
  fputs("</tbody></table></div>\n", f);
  return status;
}
