/* What the study publishes (results/reference/README.md), as tables in the program. Facts to
 * compare with: nothing in them was computed here. Not collective. */
#ifndef WANAMAKER_REPORT_PUBLISHED_H
#define WANAMAKER_REPORT_PUBLISHED_H

#include "wanamaker/base/status.h"

#include <stdint.h>

/* Texts of results/reference/NAME.csv, each with a zero byte at its end. */
extern const unsigned char wm_published_layers[];
extern const unsigned char wm_published_training[];
extern const unsigned char wm_published_probes[];
extern const unsigned char wm_published_claims[];

/* A table with a head. Zero-initialise; wm_csv_destroy. */
typedef struct {
  int64_t n; /* rows without the head */
  int n_columns;
  char *text;   /* owned; cells point into it */
  char **cells; /* [1 + n, n_columns] */
} wm_csv_t;

/* RFC 4180: commas, quotes doubled inside quotes, newlines inside quotes. Rows of another length
 * than the head's: WM_INPUT with the row; `name` is what messages call the text. */
wm_status_t wm_csv_parse(const char *text, const char *name, wm_csv_t *out, wm_error_t *err);
void wm_csv_destroy(wm_csv_t *csv);
/* "" where there is no such column or row; the number is NaN where the cell is none. */
const char *wm_csv_text(const wm_csv_t *csv, int64_t row, const char *column);
double wm_csv_number(const wm_csv_t *csv, int64_t row, const char *column);

typedef struct {
  wm_csv_t layers, training, probes, claims;
} wm_published_t;

wm_status_t wm_published_read(wm_published_t *out, wm_error_t *err);
void wm_published_destroy(wm_published_t *published);

/* The study's name of a model ("gpt2-medium", "pythia-410m", ...) from its shape, as result files
 * state it, and the model's full-model perplexity; NULL: none of the study's. Shapes alone do not
 * tell a trained model from one with drawn weights: a perplexity above 200 is not a trained one's.
 */
const char *wm_published_model(const char *family, int64_t layers, int64_t width,
                               double perplexity);
/* Row of published_layers for this cell, the run with intervals first; -1: none. */
int64_t wm_published_layer(const wm_published_t *p, const char *model, int64_t layer,
                           const char *variant);

#endif
