/* What the printers of tables share. */
#ifndef WANAMAKER_SRC_REPORT_TABLE_INTERNAL_H
#define WANAMAKER_SRC_REPORT_TABLE_INTERNAL_H

#include "wanamaker/report/table.h"

#include <stdbool.h>
#include <utf8proc.h>

typedef enum { WM_CELL_TEXT, WM_CELL_INT, WM_CELL_FLOAT } wm_cell_kind_t;

typedef struct {
  wm_cell_kind_t kind;
  char *text; /* owned */
  int64_t integer;
  double real;
} wm_table_cell_t;

struct wm_table {
  int n_columns;
  wm_column_t *columns;   /* strings owned */
  wm_table_cell_t *cells; /* [n_cells], row-major */
  int64_t n_cells, capacity;
  wm_error_t error; /* first trouble while appending */
};

/* The next character of *text, which advances; U+FFFD for an ill-formed part. */
utf8proc_int32_t wm_next_character(const char **text);
/* C0, DEL and C1. */
bool wm_is_control(utf8proc_int32_t c);
/* A cell as it is shown in `format`; free(). NULL: no memory. */
char *wm_table_cell_string(const wm_table_cell_t *cell, const wm_column_t *column,
                           wm_table_format_t format);
/* As few digits as give the same float64 back; free(). */
char *wm_exact_string(double x);

#endif
