/* Data of a result file as columns by name, whatever wrote it: what a report reads.
 *
 * A frame holds the members of a compound dataset [n], or one-dimensional datasets of the same
 * length. Integers and floats become float64 (integers of result files are exact in it), strings
 * stay text. Read on one rank alone: files are opened on MPI_COMM_SELF.
 */
#ifndef WANAMAKER_REPORT_FRAME_H
#define WANAMAKER_REPORT_FRAME_H

#include "wanamaker/base/status.h"
#include "wanamaker/io/hdf5.h"

#include <stdbool.h>
#include <stdint.h>

enum { WM_FRAME_NAME = 48 };

typedef struct {
  char name[WM_FRAME_NAME];
  double *numbers; /* [n], or NULL */
  char *texts;     /* [n][width], each terminated, or NULL */
  size_t width;
} wm_frame_column_t;

/* Zero-initialise; wm_frame_destroy. */
typedef struct {
  int64_t n; /* rows */
  int n_columns;
  int64_t capacity;
  wm_frame_column_t *columns;
} wm_frame_t;

void wm_frame_destroy(wm_frame_t *frame);

/* Is there an object of this path in the file? */
bool wm_h5_has(wm_h5_t *file, const char *path);

/* Adds the members of the compound dataset `path`, or a plain one as the column `name`. Absent, or
 * of another number of rows than the frame has: WM_INPUT. */
wm_status_t wm_frame_read(wm_h5_t *file, const char *path, const char *name, wm_frame_t *frame,
                          wm_error_t *err);
/* The same for `group`/name of each of names[n]; what is absent is left out. */
wm_status_t wm_frame_read_group(wm_h5_t *file, const char *group, int n, const char *const *names,
                                wm_frame_t *frame, wm_error_t *err);

/* NaN, or "", where there is no such column or row. */
double wm_frame_number(const wm_frame_t *frame, int64_t row, const char *name);
const char *wm_frame_text(const wm_frame_t *frame, int64_t row, const char *name);
/* A column [n] of numbers; NULL: there is none. */
const double *wm_frame_numbers(const wm_frame_t *frame, const char *name);
bool wm_frame_has(const wm_frame_t *frame, const char *name);

/* A dataset of up to four dimensions as float64; *out is a heap array of *dims. */
wm_status_t wm_h5_read_array(wm_h5_t *file, const char *path, int n_dims, int64_t *dims,
                             double **out, wm_error_t *err);

/* Root attributes as text, in the order of their names. */
typedef struct {
  int n;
  int64_t capacity;
  struct wm_attribute {
    char *name, *value;
  } * all;
} wm_attributes_t;

wm_status_t wm_attributes_read(wm_h5_t *file, wm_attributes_t *out, wm_error_t *err);
void wm_attributes_destroy(wm_attributes_t *attributes);
/* "" where there is none. */
const char *wm_attribute(const wm_attributes_t *attributes, const char *name);
/* Its text as a number; NaN where there is none. */
double wm_attribute_number(const wm_attributes_t *attributes, const char *name);

#endif
