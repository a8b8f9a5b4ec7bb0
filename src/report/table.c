#include "wanamaker/report/table.h"

#include "table_internal.h"
#include "wanamaker/base/mem.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- Filling --------------------------------------------------------------------------------- */

static wm_status_t copy_column(const wm_column_t *from, wm_column_t *to, wm_error_t *err) {
  char *title = NULL, *unit = NULL;
  wm_status_t status = wm_strdup(&title, from->title, err);
  if (status == WM_OK && from->unit != NULL)
    status = wm_strdup(&unit, from->unit, err);
  *to = *from;
  to->title = title;
  to->unit = unit;
  return status;
}

wm_status_t wm_table_create(const wm_column_t *columns, int n, wm_table_t **out, wm_error_t *err) {
  assert(n >= 1);
  wm_status_t status;
  void *memory;
  *out = NULL;
  WM_TRY(wm_alloc(&memory, 1, sizeof(wm_table_t), "table", err));
  *out = memory;
  WM_TRY(wm_alloc(&memory, n, sizeof(wm_column_t), "columns of a table", err));
  (*out)->columns = memory;
  (*out)->n_columns = n;
  for (int c = 0; c < n; c++)
    WM_TRY(copy_column(&columns[c], &(*out)->columns[c], err));
cleanup:
  if (status != WM_OK) {
    wm_table_free(*out);
    *out = NULL;
  }
  return status;
}

void wm_table_free(wm_table_t *t) {
  if (t == NULL)
    return;
  for (int c = 0; c < t->n_columns; c++) {
    free((char *)t->columns[c].title);
    free((char *)t->columns[c].unit);
  }
  for (int64_t i = 0; i < t->n_cells; i++)
    free(t->cells[i].text);
  free(t->columns);
  free(t->cells);
  free(t);
}

/* Takes cell.text, also on failure. */
static void append(wm_table_t *t, wm_table_cell_t cell) {
  void *cells = t->cells;
  if (t->error.status == WM_OK)
    wm_grow(&cells, &t->capacity, t->n_cells, t->n_cells + 1, sizeof(wm_table_cell_t),
            "cells of a table", &t->error);
  if (t->error.status != WM_OK) {
    free(cell.text);
    return;
  }
  t->cells = cells;
  t->cells[t->n_cells++] = cell;
}

static void append_text(wm_table_t *t, char *text) {
  if (text == NULL && t->error.status == WM_OK)
    wm_fail(&t->error, WM_ENVIRONMENT, "cannot allocate the text of a cell");
  append(t, (wm_table_cell_t){.kind = WM_CELL_TEXT, .text = text});
}

void wm_table_text(wm_table_t *t, const char *text) {
  append_text(t, strdup(text));
}

void wm_table_textf(wm_table_t *t, const char *format, ...) {
  va_list args;
  char *text;
  va_start(args, format);
  if (vasprintf(&text, format, args) < 0)
    text = NULL;
  va_end(args);
  append_text(t, text);
}

void wm_table_int(wm_table_t *t, int64_t value) {
  append(t, (wm_table_cell_t){.kind = WM_CELL_INT, .integer = value});
}

void wm_table_float(wm_table_t *t, double value) {
  append(t, (wm_table_cell_t){.kind = WM_CELL_FLOAT, .real = value});
}

/* ---- Cells as strings ------------------------------------------------------------------------ */

bool wm_is_control(utf8proc_int32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

/* Bytes of the ill-formed part that begins at t[0]: as much as a well-formed character could begin
 * with (Unicode table 3-7), at least one. The final NUL ends it. */
static int ill_formed(const unsigned char *t) {
  const unsigned char low = t[0] == 0xe0 ? 0xa0 : t[0] == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = t[0] == 0xed ? 0x9f : t[0] == 0xf4 ? 0x8f : 0xbf;
  const int wanted = t[0] < 0xe0 ? 2 : t[0] < 0xf0 ? 3 : 4;
  if (t[0] < 0xc2 || t[0] > 0xf4 || t[1] < low || t[1] > high)
    return 1;
  int n = 2;
  while (n < wanted && t[n] >= 0x80 && t[n] <= 0xbf)
    n++;
  return n;
}

utf8proc_int32_t wm_next_character(const char **text) {
  utf8proc_int32_t c;
  utf8proc_ssize_t used =
      utf8proc_iterate((const utf8proc_uint8_t *)*text, (utf8proc_ssize_t)strlen(*text), &c);
  *text += used > 0 ? used : ill_formed((const unsigned char *)*text);
  return used > 0 ? c : 0xfffd;
}

static int64_t display_width(const char *text) {
  int64_t width = 0;
  while (*text != '\0')
    width += utf8proc_charwidth(wm_next_character(&text));
  return width;
}

/* Well-formed UTF-8 with what `format` needs escaped; free(). NULL: no memory. */
static char *escape(const char *text, wm_table_format_t format) {
  enum { LONGEST = 4 }; /* bytes that one byte can become */
  char *out = malloc(LONGEST * strlen(text) + 3), *end = out;
  if (out == NULL)
    return NULL;
  bool quote = format == WM_TABLE_CSV && strpbrk(text, ",\"\r\n") != NULL;
  if (quote)
    *end++ = '"';
  while (*text != '\0') {
    utf8proc_int32_t c = wm_next_character(&text);
    if (format != WM_TABLE_CSV && wm_is_control(c))
      c = ' ';
    if (format == WM_TABLE_MARKDOWN && (c == '|' || c == '\\'))
      *end++ = '\\';
    if (quote && c == '"')
      *end++ = '"';
    end += utf8proc_encode_char(c, (utf8proc_uint8_t *)end);
  }
  if (quote)
    *end++ = '"';
  *end = '\0';
  return out;
}

char *wm_exact_string(double x) {
  for (int digits = 15;; digits++) {
    char *text = wm_format("%.*g", digits, x);
    if (text == NULL || digits == 17 || strtod(text, NULL) == x)
      return text;
    free(text);
  }
}

static char *float_string(double x, int decimals, wm_table_format_t format) {
  if (isnan(x))
    return wm_format("%s", format == WM_TABLE_CSV ? "" : "-");
  if (format == WM_TABLE_CSV)
    return wm_exact_string(x);
  if (isinf(x))
    return wm_format(x > 0 ? "overflow" : "-overflow");
  if (decimals < 0)
    return wm_format("%.*g", -decimals, x);
  return wm_format(fabs(x) < 1e12 ? "%.*f" : "%.*e", decimals, x);
}

char *wm_table_cell_string(const wm_table_cell_t *cell, const wm_column_t *column,
                           wm_table_format_t format) {
  switch (cell->kind) {
  case WM_CELL_INT:
    return wm_format("%" PRId64, cell->integer);
  case WM_CELL_FLOAT:
    return float_string(cell->real, column->decimals, format);
  case WM_CELL_TEXT:
    break;
  }
  return escape(cell->text, format);
}

/* Text has a line of units of its own; elsewhere they follow the title. */
static char *title_string(const wm_column_t *column, wm_table_format_t format) {
  if (column->unit == NULL || format == WM_TABLE_TEXT)
    return escape(column->title, format);
  char *whole = wm_format("%s (%s)", column->title, column->unit);
  char *out = whole != NULL ? escape(whole, format) : NULL;
  free(whole);
  return out;
}

/* ---- Printing -------------------------------------------------------------------------------- */

/* A table as strings: the head's two lines (titles, units; "" without), then the cells. */
typedef struct {
  const wm_table_t *table;
  wm_table_format_t format;
  int64_t n_lines; /* 2 + rows */
  char **strings;  /* [n_lines, columns], owned */
  int64_t *widths; /* [columns] */
} sheet_t;

static char *sheet_string(const sheet_t *s, int64_t line, int c) {
  const wm_column_t *column = &s->table->columns[c];
  if (line == 0)
    return title_string(column, s->format);
  if (line == 1)
    return escape(s->format == WM_TABLE_TEXT && column->unit != NULL ? column->unit : "",
                  s->format);
  return wm_table_cell_string(&s->table->cells[(line - 2) * s->table->n_columns + c], column,
                              s->format);
}

static wm_status_t sheet_init(sheet_t *s, wm_error_t *err) {
  int n = s->table->n_columns;
  void *memory;
  wm_status_t status = wm_alloc(&memory, s->n_lines * n, sizeof(char *), "table", err);
  if (status != WM_OK)
    return status;
  s->strings = memory;
  status = wm_alloc(&memory, n, sizeof(int64_t), "table", err);
  if (status != WM_OK)
    return status;
  s->widths = memory;
  for (int64_t i = 0; i < s->n_lines * n; i++) {
    s->strings[i] = sheet_string(s, i / n, (int)(i % n));
    if (s->strings[i] == NULL)
      return wm_fail(err, WM_ENVIRONMENT, "cannot allocate the text of a table");
    int64_t width = display_width(s->strings[i]);
    if (width > s->widths[i % n])
      s->widths[i % n] = width;
  }
  return WM_OK;
}

static void sheet_destroy(sheet_t *s) {
  if (s->strings != NULL)
    for (int64_t i = 0; i < s->n_lines * s->table->n_columns; i++)
      free(s->strings[i]);
  free(s->strings);
  free(s->widths);
}

static void put_repeated(char c, int64_t count, FILE *f) {
  for (int64_t i = 0; i < count; i++)
    fputc(c, f);
}

static void put_aligned(const sheet_t *s, int64_t line, int c, bool pad_end, FILE *f) {
  const char *text = s->strings[line * s->table->n_columns + c];
  int64_t room = s->widths[c] - display_width(text);
  bool left = s->table->columns[c].align == WM_ALIGN_LEFT;
  put_repeated(' ', left ? 0 : room, f);
  fputs(text, f);
  put_repeated(' ', left && pad_end ? room : 0, f);
}

static void put_text_line(const sheet_t *s, int64_t line, FILE *f) {
  int n = s->table->n_columns, last = n - 1;
  while (last > 0 && s->strings[line * n + last][0] == '\0') /* no blanks at a line's end */
    last--;
  for (int c = 0; c <= last; c++) {
    fputs(c > 0 ? "  " : "", f);
    put_aligned(s, line, c, c < last, f);
  }
  fputc('\n', f);
}

static void put_csv_line(const sheet_t *s, int64_t line, FILE *f) {
  int n = s->table->n_columns;
  for (int c = 0; c < n; c++)
    fprintf(f, "%s%s", c > 0 ? "," : "", s->strings[line * n + c]);
  fputc('\n', f);
}

static void put_markdown_line(const sheet_t *s, int64_t line, FILE *f) {
  for (int c = 0; c < s->table->n_columns; c++) {
    fputs("| ", f);
    put_aligned(s, line, c, true, f);
    fputc(' ', f);
  }
  fputs("|\n", f);
}

static void put_line(const sheet_t *s, int64_t line, FILE *f) {
  static void (*const put[])(const sheet_t *, int64_t, FILE *) = {put_text_line, put_csv_line,
                                                                  put_markdown_line};
  put[s->format](s, line, f);
}

static void put_rule(const sheet_t *s, FILE *f) {
  bool markdown = s->format == WM_TABLE_MARKDOWN;
  for (int c = 0; c < s->table->n_columns; c++) {
    bool right = s->table->columns[c].align == WM_ALIGN_RIGHT;
    fputs(markdown ? "|" : c > 0 ? "  " : "", f);
    put_repeated('-', s->widths[c] + (markdown ? 2 - right : 0), f);
    fputs(markdown && right ? ":" : "", f);
  }
  fputs(markdown ? "|\n" : "\n", f);
}

static bool has_units(const wm_table_t *t) {
  for (int c = 0; c < t->n_columns; c++)
    if (t->columns[c].unit != NULL)
      return true;
  return false;
}

static wm_status_t put_sheet(const sheet_t *s, FILE *f, wm_error_t *err) {
  errno = 0;
  for (int64_t line = 0; line < s->n_lines && !ferror(f); line++) {
    if (line == 1) {
      if (s->format == WM_TABLE_TEXT && has_units(s->table))
        put_line(s, line, f);
      if (s->format != WM_TABLE_CSV)
        put_rule(s, f);
    } else {
      put_line(s, line, f);
    }
  }
  if (ferror(f) || fflush(f) != 0)
    return wm_fail(err, WM_ENVIRONMENT, "cannot write a table: %s",
                   errno != 0 ? strerror(errno) : "the stream has failed before");
  return WM_OK;
}

wm_status_t wm_table_print(const wm_table_t *t, wm_table_format_t format, FILE *stream,
                           wm_error_t *err) {
  if (t->error.status != WM_OK) {
    *err = t->error;
    return err->status;
  }
  assert(t->n_cells % t->n_columns == 0);
  sheet_t sheet = {.table = t, .format = format, .n_lines = 2 + t->n_cells / t->n_columns};
  wm_status_t status = sheet_init(&sheet, err);
  if (status == WM_OK)
    status = put_sheet(&sheet, stream, err);
  sheet_destroy(&sheet);
  return status;
}
