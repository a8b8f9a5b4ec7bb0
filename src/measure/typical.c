#include "wanamaker/measure/typical.h"

#include "wanamaker/base/mem.h"

#include <stdlib.h>

enum { QUANTILES = 32 };
static const double lengths[QUANTILES + 1] = {
    3,  6,  7,   8,   8,   9,   10,  10,  11,  13,  15,  19,  31,  47,  61,  72, 82,
    91, 99, 109, 116, 126, 135, 145, 154, 166, 181, 195, 213, 233, 258, 304, 542};

int64_t wm_typical_length(double u) {
  double place = u * QUANTILES;
  int i = place < QUANTILES ? (int)place : QUANTILES - 1;
  return (int64_t)(lengths[i] + (place - i) * (lengths[i + 1] - lengths[i]) + 0.5);
}

/* Number r of a golden-ratio sequence, whose every part has the distribution. */
static int64_t length_of_row(int64_t r) {
  double u = 0.6180339887498949 * (double)(r + 1);
  return wm_typical_length(u - (double)(int64_t)u);
}

wm_status_t wm_typical_create(const char *encoding, int64_t tokens, int64_t rows, wm_typical_t *out,
                              wm_error_t *err) {
  int64_t n = 0, count = 0;
  void *first = NULL, *flags = NULL;
  *out = (wm_typical_t){{.name = "typical documents", .encoding = encoding}};
  while (n < tokens || count < rows)
    n += length_of_row(count++);
  wm_status_t status = wm_alloc(&first, count + 1, sizeof(int64_t), "a typical corpus", err);
  if (status == WM_OK)
    status = wm_alloc(&flags, count, sizeof(uint8_t), "a typical corpus", err);
  if (status != WM_OK) {
    free(first);
    return status;
  }
  int64_t *row_first = first;
  row_first[0] = 0;
  for (int64_t r = 0; r < count; r++)
    row_first[r + 1] = row_first[r] + length_of_row(r);
  out->view.n_tokens = n;
  out->view.n_rows = count;
  out->view.row_first = first;
  out->view.row_flags = flags;
  return WM_OK;
}

void wm_typical_destroy(wm_typical_t *corpus) {
  free((void *)corpus->view.row_first);
  free((void *)corpus->view.row_flags);
  *corpus = (wm_typical_t){0};
}
