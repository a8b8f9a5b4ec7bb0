/* Tables of results, as aligned text, CSV or Markdown.
 *
 *     layer     PPL   delta  beats
 *                         %
 *     -----  ------  ------  -----
 *         0  31.415   2.718  no
 *
 * Cells are appended row by row, left to right. Trouble while appending is kept and told by
 * wm_table_print, so that the code that fills a table reads as one. Not collective: rank 0 prints.
 */
#ifndef WANAMAKER_REPORT_TABLE_H
#define WANAMAKER_REPORT_TABLE_H

#include "wanamaker/base/status.h"

#include <stdint.h>
#include <stdio.h>

typedef enum { WM_TABLE_TEXT, WM_TABLE_CSV, WM_TABLE_MARKDOWN } wm_table_format_t;

typedef enum { WM_ALIGN_RIGHT, WM_ALIGN_LEFT } wm_align_t;

/* `decimals` is for floats in text and Markdown: >= 0 fixed decimals (with an exponent from 1e12
 * on), < 0 that many significant digits. CSV has as many digits as tell float64s apart. */
typedef struct {
  const char *title; /* UTF-8 */
  const char *unit;  /* NULL: none */
  wm_align_t align;  /* of title and cells */
  int decimals;
} wm_column_t;

typedef struct wm_table wm_table_t;

/* An empty table of `n` >= 1 columns; strings are copied. */
wm_status_t wm_table_create(const wm_column_t *columns, int n, wm_table_t **out, wm_error_t *err);
/* NULL is allowed. */
void wm_table_free(wm_table_t *table);

/* Append the next cell. Text is copied; ill-formed UTF-8 prints as U+FFFD. A NaN is "undefined":
 * "-" in text and Markdown, an empty field in CSV. An infinity is a number too large: "overflow",
 * in CSV "inf". */
void wm_table_text(wm_table_t *table, const char *text);
void wm_table_textf(wm_table_t *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void wm_table_int(wm_table_t *table, int64_t value);
void wm_table_float(wm_table_t *table, double value);

/* Writes the table, whose last row must be complete, and flushes. Columns are as wide as their
 * widest cell on a terminal (East Asian wide characters count two); control characters print as
 * spaces, in CSV they are quoted. WM_ENVIRONMENT: memory, or the stream cannot be written (full
 * disk, closed standard output), with the system's reason. */
wm_status_t wm_table_print(const wm_table_t *table, wm_table_format_t format, FILE *stream,
                           wm_error_t *err);

#endif
