/* HTML text: everything that comes from outside goes through these. Not collective. */
#ifndef WANAMAKER_REPORT_HTML_H
#define WANAMAKER_REPORT_HTML_H

#include "wanamaker/report/table.h"

#include <stdio.h>

/* Writes `text` so that it is text in an element or in a quoted attribute: & < > " ' become
 * references, ill-formed UTF-8 and control characters other than newline and tab U+FFFD. */
void wm_html_text(FILE *f, const char *text);

/* Writes the table as <table id="ID">, its last row complete. Cells with a number carry it exactly
 * in data-v (empty: undefined), those with a word carry it in data-t, so that style and tests
 * find them. `id` and `caption` are escaped; caption NULL: none. The first `heads` cells of each
 * row are its headings. WM_ENVIRONMENT: memory. Stream errors are left to the caller. */
wm_status_t wm_table_html(const wm_table_t *table, const char *id, const char *caption, int heads,
                          FILE *stream, wm_error_t *err);

/* <data class="n" data-n="NAME" value="exact">shown</data>; decimals as in wm_column_t. */
void wm_html_number(FILE *f, const char *name, double value, int decimals);

#endif
