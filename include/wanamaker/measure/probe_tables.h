/* Tables of probes.h5: rows of texts and numbers that are printed, written as compound datasets,
 * and kept for a run that is taken up again (method.md, section 7).
 *
 * A row is one packed record: a text column takes its size in bytes (UTF-8, filled up with zeros),
 * a number 8 (float64; NaN where there is none). The file's compound type has the same layout.
 * Cells are appended left to right; trouble while appending is kept and told by
 * wm_probe_tables_status, so that code that fills a table reads as one.
 */
#ifndef WANAMAKER_MEASURE_PROBE_TABLES_H
#define WANAMAKER_MEASURE_PROBE_TABLES_H

#include "wanamaker/base/status.h"
#include "wanamaker/io/hdf5.h"

#include <stdbool.h>
#include <stdint.h>

enum { WM_PROBE_COLUMNS = 24 };

typedef enum {
  WM_PROBE_CONTEXT,      /* gates on the token, its context and both */
  WM_PROBE_GEOMETRY,     /* norms and angles of the decomposition, correlations with delta */
  WM_PROBE_FORENSICS,    /* features of the token: coefficients and correlations */
  WM_PROBE_REGRESSION,   /* R^2 of all features together */
  WM_PROBE_CATEGORIES,   /* delta by category of words */
  WM_PROBE_TYPES,        /* token types: mean delta, halves, No-Fly */
  WM_PROBE_FATES,        /* No-Fly lists of one corpus on another */
  WM_PROBE_CORRELATIONS, /* of types' mean deltas between corpora, without selection */
  WM_PROBE_CLUSTERINGS,  /* k-means as a whole */
  WM_PROBE_CLUSTERS,     /* every cluster */
  WM_PROBE_SEPARABILITY, /* linear and one-hidden-layer probes */
  WM_PROBE_DISTRIBUTION, /* of delta */
  WM_PROBE_POSITIONS,    /* classes of positions apart */
  WM_PROBE_TABLES
} wm_probe_table_id_t;

typedef struct {
  const char *name;  /* of the member and the printed column */
  int size;          /* of a text; 0: a number */
  int decimals;      /* printed; as in report/table.h */
  const char *title; /* NULL: not printed */
} wm_probe_column_t;

typedef struct {
  const char *path, *description, *heading;
  wm_probe_column_t columns[WM_PROBE_COLUMNS]; /* ends with name NULL */
} wm_probe_layout_t;

typedef struct {
  const wm_probe_layout_t *layout;
  int64_t n, capacity;
  int64_t row_size, n_columns;
  int64_t column; /* next cell of the last row */
  char *rows;     /* [n, row_size] */
} wm_probe_table_t;

typedef struct {
  wm_probe_table_t table[WM_PROBE_TABLES];
  wm_error_t error; /* what went wrong while appending */
} wm_probe_tables_t;

/* Not collective; destroy is harmless on a zeroed object. */
void wm_probe_tables_init(wm_probe_tables_t *tables);
void wm_probe_tables_destroy(wm_probe_tables_t *tables);
wm_status_t wm_probe_tables_status(const wm_probe_tables_t *tables, wm_error_t *err);

/* Append the next cell; the type must be the column's. A text is cut to its column's size. */
void wm_probe_text(wm_probe_tables_t *tables, wm_probe_table_id_t id, const char *text);
void wm_probe_number(wm_probe_tables_t *tables, wm_probe_table_id_t id, double value);

/* Cell `column` (by name) of a row; a number that is absent is a bug. */
double wm_probe_number_at(const wm_probe_table_t *table, int64_t row, const char *column);
const char *wm_probe_text_at(const wm_probe_table_t *table, int64_t row, const char *column);

/* Collective. Adds every table as a compound dataset; rank 0 writes (`writer`). */
wm_status_t wm_probe_tables_write(const wm_probe_tables_t *tables, bool writer, wm_h5_t *file,
                                  wm_error_t *err);
/* Collective. Appends the rows of all tables of a file, for a run that goes on. */
wm_status_t wm_probe_tables_read(wm_probe_tables_t *tables, MPI_Comm comm, wm_h5_t *file,
                                 wm_error_t *err);

#endif
