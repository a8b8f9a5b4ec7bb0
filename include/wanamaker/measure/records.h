/* Measurements as rows of a label and some numbers: one object that is printed as a table and
 * written as a dataset. */
#ifndef WANAMAKER_MEASURE_RECORDS_H
#define WANAMAKER_MEASURE_RECORDS_H

#include "wanamaker/base/status.h"
#include "wanamaker/io/hdf5.h"

#include <stdint.h>

enum { WM_RECORD_COLUMNS = 10, WM_RECORD_LABEL = 48, WM_RECORD_NOTE = 512 };

typedef struct {
  const char *member;       /* of the dataset's compound type */
  const char *title, *unit; /* of the printed column; unit NULL: none */
  int decimals;             /* as in report/table.h */
} wm_record_column_t;

typedef struct {
  const char *path;        /* of the dataset */
  const char *description; /* of the dataset, and the table's heading */
  const char *label;       /* title of the label's column; its member is "name" */
  wm_record_column_t columns[WM_RECORD_COLUMNS];
  int n_columns;
} wm_record_layout_t;

typedef struct {
  const wm_record_layout_t *layout; /* borrowed */
  int64_t n, capacity;
  char *labels;   /* [n][WM_RECORD_LABEL] */
  double *values; /* [n, n_columns] */
  int64_t label_capacity;
  char note[WM_RECORD_NOTE]; /* what must be said beside the numbers; printed below, an attribute */
} wm_records_t;

void wm_records_init(wm_records_t *records, const wm_record_layout_t *layout);
/* Harmless on a zeroed object. */
void wm_records_destroy(wm_records_t *records);

/* Adds a row; values: [n_columns], NaN where there is none. */
wm_status_t wm_records_add(wm_records_t *records, const char *label, const double *values,
                           wm_error_t *err);
/* Adds to the note, after a blank. */
void wm_records_note(wm_records_t *records, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Collective. A number that wm_records_write has written: column `member` of the first row of the
 * dataset `path` whose label begins with `label`. WM_INPUT if there is none. */
wm_status_t wm_records_read(wm_h5_t *file, const char *path, const char *label, const char *member,
                            double *out, wm_error_t *err);

/* Collective. Writes the dataset, a compound [n] of "name" and the columns (float64); rank 0's rows
 * count. All ranks must have the same number of rows. */
wm_status_t wm_records_write(const wm_records_t *records, wm_h5_t *file, bool writer,
                             wm_error_t *err);

#endif
