/* Windows are made in two passes over the same generator: the first counts, the second fills, so
 * that arrays have their exact size and both passes take the same decisions. */
#include "wanamaker/measure/windows.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/io/tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int64_t min_i64(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t max_i64(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static const char *kind_name(wm_range_kind_t kind) {
  static const char *const names[] = {"absent", "tokens", "documents", "rows"};
  return names[kind];
}

static void make_label(const wm_range_t *range, char label[WM_LABEL_SIZE]) {
  int used = snprintf(label, WM_LABEL_SIZE, "%s: %s [%" PRId64 ", %" PRId64 ")", range->name,
                      kind_name(range->kind), range->begin, range->end);
  if (range->max_tokens > 0 && used < WM_LABEL_SIZE)
    snprintf(label + used, (size_t)(WM_LABEL_SIZE - used), ", at most %" PRId64 " tokens",
             range->max_tokens);
}

static wm_status_t check_protocol(const wm_protocol_t *p, const wm_token_view_t *corpus,
                                  wm_error_t *err) {
  if (p->window < 2)
    return wm_fail(err, WM_USAGE, "window length %" PRId64 ": at least 2 tokens are needed",
                   p->window);
  if (p->kind == WM_PROTOCOL_SLIDING && (p->stride < 1 || p->stride > p->window))
    return wm_fail(err, WM_USAGE,
                   "stride %" PRId64 " of a sliding window of %" PRId64
                   " tokens: expected 1 to %" PRId64,
                   p->stride, p->window, p->window);
  if (p->kind == WM_PROTOCOL_DOCUMENTS && (p->min_length < 1 || p->min_length > p->window))
    return wm_fail(err, WM_USAGE,
                   "minimum document length %" PRId64 ": expected 1 to the window, %" PRId64,
                   p->min_length, p->window);
  bool by_row = strcmp(corpus->encoding, "documents") == 0;
  if ((p->kind == WM_PROTOCOL_DOCUMENTS) != by_row)
    return wm_fail(err, WM_USAGE, "%s: encoded as \"%s\", but the protocol \"%s\" needs %s",
                   corpus->name, corpus->encoding, wm_protocol_name(p->kind),
                   by_row ? "\"stream\" or \"ids\"" : "\"documents\"");
  return WM_OK;
}

static wm_status_t check_range(const wm_range_t *r, const char *label, const wm_protocol_t *p,
                               const wm_token_view_t *corpus, wm_error_t *err) {
  if (r->kind == WM_RANGE_ABSENT)
    return wm_fail(err, WM_USAGE, "%s: no such range is set", r->name);
  if (r->begin < 0 || r->end <= r->begin)
    return wm_fail(err, WM_USAGE, "%s of %s: empty range; expected 0 <= begin < end", label,
                   corpus->name);
  if (r->max_tokens < 0)
    return wm_fail(err, WM_USAGE, "%s of %s: max_tokens is %" PRId64, label, corpus->name,
                   r->max_tokens);
  if (r->kind == WM_RANGE_DOCUMENTS && p->kind != WM_PROTOCOL_DOCUMENTS)
    return wm_fail(err, WM_USAGE,
                   "%s of %s: a range of documents needs the protocol \"documents\", not \"%s\"",
                   label, corpus->name, wm_protocol_name(p->kind));
  if (r->kind == WM_RANGE_ROWS && corpus->n_rows == 0)
    return wm_fail(err, WM_USAGE, "%s: %s is an array of tokens without rows", label, corpus->name);
  return WM_OK;
}

static wm_status_t check_end(const wm_range_t *r, const char *label, const char *corpus,
                             int64_t available, const char *what, wm_error_t *err) {
  if (r->end > available)
    return wm_fail(err, WM_INPUT, "%s: range ends beyond %s, which has %" PRId64 " %s", label,
                   corpus, available, what);
  return WM_OK;
}

static wm_status_t check_rows(const wm_token_view_t *c, wm_error_t *err) {
  if (c->n_rows == 0)
    return WM_OK;
  bool ordered = c->row_first[0] == 0 && c->row_first[c->n_rows] == c->n_tokens;
  for (int64_t r = 0; r < c->n_rows && ordered; r++)
    ordered = c->row_first[r] <= c->row_first[r + 1];
  if (!ordered)
    return wm_fail(err, WM_INPUT,
                   "%s: malformed row table: first tokens must ascend from 0 to %" PRId64, c->name,
                   c->n_tokens);
  return WM_OK;
}

/* ---- Storage --------------------------------------------------------------------------------- */

void wm_windows_destroy(wm_windows_t *w) {
  free(w->first); /* start of the one block that all arrays share */
  *w = (wm_windows_t){0};
}

static wm_status_t allocate(wm_windows_t *w, int64_t n, wm_error_t *err) {
  void *block;
  wm_status_t status = wm_alloc(&block, 9 * n + 2, sizeof(int64_t), w->label, err);
  if (status != WM_OK)
    return status;
  int64_t **parts[] = {&w->first, &w->length,   &w->first_new, &w->first_predicted,
                       &w->row,   &w->document, &w->article};
  int64_t *next = block;
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++, next += n)
    *parts[i] = next;
  w->position_offset = next;
  w->predicted_offset = next + n + 1;
  return WM_OK;
}

/* ---- Documents ------------------------------------------------------------------------------- */

/* A kept document. */
typedef struct {
  int64_t row, article; /* article: headings at or before the row */
  int64_t document;     /* its number among kept documents */
  int64_t token;        /* number of its first kept token */
  int64_t length;       /* kept tokens */
} document_t;

typedef struct {
  const wm_token_view_t *corpus;
  const wm_protocol_t *protocol;
  int64_t next_row, articles, documents, tokens; /* passed so far */
} document_cursor_t;

static bool next_document(document_cursor_t *c, document_t *d) {
  while (c->next_row < c->corpus->n_rows) {
    int64_t row = c->next_row++;
    uint8_t flags = c->corpus->row_flags[row];
    c->articles += (flags & WM_ROW_ARTICLE) != 0;
    int64_t tokens = c->corpus->row_first[row + 1] - c->corpus->row_first[row];
    int64_t kept = min_i64(tokens, c->protocol->window);
    if (flags & WM_ROW_BLANK || kept < c->protocol->min_length)
      continue;
    *d = (document_t){row, c->articles, c->documents, c->tokens, kept};
    c->documents++;
    c->tokens += kept;
    return true;
  }
  return false;
}

/* Tokens of `d` that the range takes, cut where a range of tokens ends; 0 if it is outside. */
static int64_t taken(const wm_range_t *range, const document_t *d) {
  int64_t number = range->kind == WM_RANGE_TOKENS      ? d->token
                   : range->kind == WM_RANGE_DOCUMENTS ? d->document
                                                       : d->row;
  if (number < range->begin || number >= range->end)
    return 0;
  return range->kind == WM_RANGE_TOKENS ? min_i64(d->length, range->end - d->token) : d->length;
}

/* Goes through the documents of the range; returns how many there are. Fills the arrays of `out`
 * unless they are NULL. *cursor ends behind the corpus's last row. */
static int64_t walk_documents(document_cursor_t *cursor, const wm_range_t *range,
                              wm_windows_t *out) {
  int64_t n = 0, left = range->max_tokens > 0 ? range->max_tokens : INT64_MAX;
  document_t d;
  while (next_document(cursor, &d)) {
    int64_t length = min_i64(taken(range, &d), left);
    left -= length;
    if (length < cursor->protocol->min_length)
      continue;
    if (out->first != NULL) {
      out->first[n] = cursor->corpus->row_first[d.row];
      out->length[n] = length;
      out->row[n] = d.row;
      out->document[n] = d.document;
      out->article[n] = d.article;
    }
    n++;
  }
  return n;
}

static wm_status_t make_documents(const wm_token_view_t *corpus, const wm_range_t *range,
                                  wm_windows_t *out, wm_error_t *err) {
  document_cursor_t cursor = {.corpus = corpus, .protocol = &out->protocol};
  out->n = walk_documents(&cursor, range, out);
  int64_t available = range->kind == WM_RANGE_TOKENS      ? cursor.tokens
                      : range->kind == WM_RANGE_DOCUMENTS ? cursor.documents
                                                          : corpus->n_rows;
  const char *what = range->kind == WM_RANGE_TOKENS      ? "kept tokens"
                     : range->kind == WM_RANGE_DOCUMENTS ? "kept documents"
                                                         : "rows";
  wm_status_t status = check_end(range, out->label, corpus->name, available, what, err);
  if (status == WM_OK)
    status = allocate(out, out->n, err);
  if (status != WM_OK)
    return status;
  cursor = (document_cursor_t){.corpus = corpus, .protocol = &out->protocol};
  walk_documents(&cursor, range, out);
  return WM_OK;
}

/* ---- Streams --------------------------------------------------------------------------------- */

/* The row in which each window begins, and the headings up to it. */
static void find_rows(const wm_token_view_t *corpus, wm_windows_t *w) {
  int64_t row = -1, article = 0;
  for (int64_t i = 0; i < w->n; i++) {
    while (row + 1 < corpus->n_rows && corpus->row_first[row + 1] <= w->first[i]) {
      row++;
      article += (corpus->row_flags[row] & WM_ROW_ARTICLE) != 0;
    }
    w->row[i] = row;
    w->article[i] = article;
    w->document[i] = -1;
  }
}

static wm_status_t make_stream(const wm_token_view_t *corpus, const wm_range_t *range,
                               wm_windows_t *w, wm_error_t *err) {
  bool rows = range->kind == WM_RANGE_ROWS;
  wm_status_t status =
      check_end(range, w->label, corpus->name, rows ? corpus->n_rows : corpus->n_tokens,
                rows ? "rows" : "tokens", err);
  if (status != WM_OK)
    return status;
  int64_t begin = rows ? corpus->row_first[range->begin] : range->begin;
  int64_t end = rows ? corpus->row_first[range->end] : range->end;
  if (range->max_tokens > 0 && range->max_tokens < end - begin)
    end = begin + range->max_tokens;

  int64_t window = w->protocol.window;
  int64_t stride = w->protocol.kind == WM_PROTOCOL_SLIDING ? w->protocol.stride : window;
  int64_t beyond_first = max_i64(0, end - begin - window);
  w->n = end > begin ? 1 + (beyond_first + stride - 1) / stride : 0;
  status = allocate(w, w->n, err);
  if (status != WM_OK)
    return status;
  for (int64_t i = 0; i < w->n; i++) {
    w->first[i] = begin + i * stride;
    w->length[i] = min_i64(window, end - w->first[i]);
    w->first_new[i] = i > 0 ? window - stride : 0;
  }
  find_rows(corpus, w);
  return WM_OK;
}

/* ---- Windows --------------------------------------------------------------------------------- */

static void count_positions(wm_windows_t *w) {
  for (int64_t i = 0; i < w->n; i++) {
    w->first_predicted[i] = max_i64(0, w->first_new[i] - 1);
    int64_t predicted = max_i64(0, w->length[i] - 1 - w->first_predicted[i]);
    w->position_offset[i + 1] = w->position_offset[i] + w->length[i] - w->first_new[i];
    w->predicted_offset[i + 1] = w->predicted_offset[i] + predicted;
    w->max_length = max_i64(w->max_length, w->length[i]);
  }
  w->n_positions = w->position_offset[w->n];
  w->n_predicted = w->predicted_offset[w->n];
}

wm_status_t wm_windows_create(const wm_token_view_t *corpus, const wm_protocol_t *protocol,
                              const wm_range_t *range, wm_windows_t *out, wm_error_t *err) {
  wm_status_t status;
  *out = (wm_windows_t){.protocol = *protocol};
  make_label(range, out->label);
  WM_TRY(check_protocol(protocol, corpus, err));
  WM_TRY(check_range(range, out->label, protocol, corpus, err));
  WM_TRY(check_rows(corpus, err));
  if (protocol->kind == WM_PROTOCOL_DOCUMENTS)
    WM_TRY(make_documents(corpus, range, out, err));
  else
    WM_TRY(make_stream(corpus, range, out, err));
  count_positions(out);
  if (out->n_predicted == 0)
    status = wm_fail(err, WM_INPUT, "%s of %s: nothing to predict in %" PRId64 " windows",
                     out->label, corpus->name, out->n);
cleanup:
  if (status != WM_OK)
    wm_windows_destroy(out);
  return status;
}

wm_status_t wm_windows_select(const wm_windows_t *from, const int64_t *index, int64_t n,
                              wm_windows_t *out, wm_error_t *err) {
  *out = (wm_windows_t){.protocol = from->protocol, .max_length = from->max_length};
  memcpy(out->label, from->label, sizeof out->label);
  wm_status_t status = allocate(out, n, err);
  if (status != WM_OK) {
    *out = (wm_windows_t){0};
    return status;
  }
  int64_t *const to[] = {out->first, out->length,   out->first_new, out->first_predicted,
                         out->row,   out->document, out->article};
  int64_t *const source[] = {from->first, from->length,   from->first_new, from->first_predicted,
                             from->row,   from->document, from->article};
  out->n = n;
  for (int64_t i = 0; i < n; i++) {
    int64_t w = index[i];
    for (int k = 0; k < 7; k++)
      to[k][i] = source[k][w];
    out->n_positions += from->position_offset[w + 1] - from->position_offset[w];
    out->n_predicted += from->predicted_offset[w + 1] - from->predicted_offset[w];
    out->position_offset[i + 1] = out->n_positions;
    out->predicted_offset[i + 1] = out->n_predicted;
  }
  return WM_OK;
}

/* ---- Overlap --------------------------------------------------------------------------------- */

/* Windows ascend in both their ends, so the part that window i adds to those before it begins at
 * first + first_new. */
static int64_t new_begin(const wm_windows_t *w, int64_t i) {
  return w->first[i] + w->first_new[i];
}

static int64_t window_end(const wm_windows_t *w, int64_t i) {
  return w->first[i] + w->length[i];
}

wm_overlap_t wm_windows_overlap(const wm_windows_t *a, const wm_windows_t *b) {
  wm_overlap_t overlap = {0};
  for (int64_t i = 0, j = 0; i < a->n && j < b->n;) {
    int64_t begin = max_i64(new_begin(a, i), new_begin(b, j));
    int64_t end = min_i64(window_end(a, i), window_end(b, j));
    if (begin < end) {
      if (overlap.tokens == 0)
        overlap.begin = begin;
      overlap.end = end;
      overlap.tokens += end - begin;
    }
    if (window_end(a, i) < window_end(b, j))
      i++;
    else
      j++;
  }
  return overlap;
}

wm_status_t wm_windows_disjoint(const wm_windows_t *a, const wm_windows_t *b, wm_error_t *err) {
  wm_overlap_t o = wm_windows_overlap(a, b);
  if (o.tokens == 0)
    return WM_OK;
  return wm_fail(err, WM_USAGE,
                 "ranges \"%s\" and \"%s\" overlap: %" PRId64 " tokens between tokens %" PRId64
                 " and %" PRId64 " of the corpus are in both (allow_overlap = true permits it)",
                 a->label, b->label, o.tokens, o.begin, o.end);
}

/* ---- Bootstrap units ------------------------------------------------------------------------- */

static const char *const unit_names[] = {"auto", "article", "line", "window"};

bool wm_unit_parse(const char *name, wm_unit_kind_t *out) {
  for (int i = 0; i <= WM_UNIT_WINDOW; i++) {
    if (strcmp(name, unit_names[i]) == 0) {
      *out = (wm_unit_kind_t)i;
      return true;
    }
  }
  return false;
}

const char *wm_unit_name(wm_unit_kind_t kind) {
  return unit_names[kind];
}

static int64_t unit_key(const wm_windows_t *w, wm_unit_kind_t kind, int64_t i) {
  return kind == WM_UNIT_ARTICLE ? w->article[i] : kind == WM_UNIT_LINE ? w->row[i] : i;
}

/* Units that have predictions. */
static int64_t count_units(const wm_windows_t *w, wm_unit_kind_t kind) {
  int64_t n = 0, last_key = -1;
  for (int64_t i = 0; i < w->n; i++) {
    if (w->predicted_offset[i] == w->predicted_offset[i + 1])
      continue;
    if (n == 0 || unit_key(w, kind, i) != last_key)
      n++;
    last_key = unit_key(w, kind, i);
  }
  return n;
}

wm_unit_kind_t wm_unit_resolve(const wm_windows_t *w, wm_unit_kind_t kind) {
  if (kind != WM_UNIT_AUTO)
    return kind;
  if (count_units(w, WM_UNIT_ARTICLE) >= WM_MIN_UNITS)
    return WM_UNIT_ARTICLE;
  return w->protocol.kind == WM_PROTOCOL_DOCUMENTS ? WM_UNIT_LINE : WM_UNIT_WINDOW;
}

wm_status_t wm_windows_units(const wm_windows_t *w, wm_unit_kind_t kind, int32_t *units,
                             int64_t *n_units, wm_error_t *err) {
  kind = wm_unit_resolve(w, kind);
  if (kind == WM_UNIT_LINE && w->n > 0 && w->row[0] < 0)
    return wm_fail(err, WM_USAGE,
                   "%s: lines can't be bootstrap units of a corpus without rows; use \"window\"",
                   w->label);
  int64_t unit = -1, last_key = -1;
  for (int64_t i = 0; i < w->n; i++) {
    int64_t begin = w->predicted_offset[i], end = w->predicted_offset[i + 1];
    if (begin == end)
      continue;
    if (unit < 0 || unit_key(w, kind, i) != last_key)
      unit++;
    last_key = unit_key(w, kind, i);
    if (unit > INT32_MAX)
      return wm_fail(err, WM_INPUT, "%s: more than 2^31 - 1 bootstrap units", w->label);
    for (int64_t p = begin; p < end; p++)
      units[p] = (int32_t)unit;
  }
  *n_units = unit + 1;
  return WM_OK;
}
