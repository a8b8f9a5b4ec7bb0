/* What the tests of the claims ledger share: results made up column by column. */
#ifndef WANAMAKER_TESTS_REPORT_FIXTURE_H
#define WANAMAKER_TESTS_REPORT_FIXTURE_H

#include "wanamaker/report/ledger.h"

#include "wanamaker/base/mem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A column of zeros, added to a frame whose n is set. */
static inline double *column(wm_frame_t *f, const char *name) {
  wm_error_t err = {0};
  void *memory = f->columns;
  assert_int_equal(
      wm_grow(&memory, &f->capacity, f->n_columns, f->n_columns + 1, sizeof *f->columns, "x", &err),
      WM_OK);
  f->columns = memory;
  wm_frame_column_t *c = &f->columns[f->n_columns++];
  snprintf(c->name, sizeof c->name, "%s", name);
  assert_int_equal(wm_alloc(&memory, f->n, sizeof(double), "x", &err), WM_OK);
  c->numbers = memory;
  return c->numbers;
}

/* The same of texts, every `width` bytes; empty. */
static inline char *wide_words(wm_frame_t *f, const char *name, size_t width) {
  column(f, name);
  wm_frame_column_t *c = &f->columns[f->n_columns - 1];
  free(c->numbers);
  c->numbers = NULL;
  c->width = width;
  c->texts = calloc((size_t)f->n, width);
  return c->texts;
}

/* Of at most 15 bytes, every 16 bytes. */
static inline char *words(wm_frame_t *f, const char *name) {
  return wide_words(f, name, 16);
}

static inline void attribute_of(wm_results_t *r, wm_file_kind_t kind, const char *name,
                                const char *value) {
  wm_attributes_t *a = &r->files[kind].attributes;
  a->all = realloc(a->all, sizeof *a->all * (size_t)(a->n + 1));
  a->all[a->n].name = strdup(name);
  a->all[a->n++].value = strdup(value);
}

static inline void attribute(wm_results_t *r, const char *name, const char *value) {
  attribute_of(r, WM_FILE_SWEEP, name, value);
}

/* Of a ledger, by its id. */
static inline const wm_claim_t *claim(const wm_claim_t *claims, const wm_published_t *p,
                                      const char *id) {
  for (int c = 0; c < WM_CLAIMS; c++)
    if (strcmp(wm_csv_text(&p->claims, claims[c].row, "claim"), id) == 0)
      return &claims[c];
  fail_msg("no claim %s", id);
  return NULL;
}

#endif
