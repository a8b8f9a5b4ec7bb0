/* NumPy array files, as far as corpora of token ids need them. Layout:
 *
 *   "\x93NUMPY" | major | minor | H: u16 LE (version 1), u32 LE (2 and 3) | header[H] | elements
 *
 * The header is a Python dictionary of literals:
 *   {'descr': '<u2', 'fortran_order': False, 'shape': (1000,), }
 * Reference: numpy.lib.format. */
#include "corpus_formats.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  const char *path;
  const char *begin, *at, *end; /* of the whole file's map; end is that of the header */
  wm_error_t *err;
} reader_t;

enum { WORD = 32 };

typedef struct {
  char descr[WORD];
  bool fortran;
  int n_dims;
  int64_t count; /* product of the extents */
  bool seen_descr, seen_order, seen_shape;
} header_t;

static wm_status_t expected(const reader_t *r, const char *what) {
  return wm_fail(r->err, WM_INPUT, "%s: byte %lld of the npy header: %s expected", r->path,
                 (long long)(r->at - r->begin), what);
}

static void skip_spaces(reader_t *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t'))
    r->at++;
}

/* Takes `c` if it comes next. */
static bool take(reader_t *r, char c) {
  skip_spaces(r);
  if (r->at >= r->end || *r->at != c)
    return false;
  r->at++;
  return true;
}

static wm_status_t read_string(reader_t *r, char out[WORD]) {
  skip_spaces(r);
  char quote = r->at < r->end ? *r->at : '\0';
  if (quote != '\'' && quote != '"')
    return expected(r, "a string");
  const char *first = ++r->at;
  while (r->at < r->end && *r->at != quote && *r->at != '\0')
    r->at++;
  if (r->at >= r->end || *r->at != quote || r->at - first >= WORD)
    return expected(r, "the end of a short string");
  snprintf(out, WORD, "%.*s", (int)(r->at - first), first);
  r->at++;
  return WM_OK;
}

static wm_status_t read_bool(reader_t *r, bool *out) {
  skip_spaces(r);
  for (int value = 0; value < 2; value++) {
    const char *word = value ? "True" : "False";
    int64_t n = (int64_t)strlen(word);
    if (r->end - r->at >= n && memcmp(r->at, word, (size_t)n) == 0) {
      *out = value;
      r->at += n;
      return WM_OK;
    }
  }
  return expected(r, "True or False");
}

static wm_status_t read_shape(reader_t *r, header_t *h) {
  if (!take(r, '('))
    return expected(r, "a tuple");
  h->n_dims = 0;
  h->count = 1;
  while (!take(r, ')')) {
    skip_spaces(r);
    int64_t extent = 0;
    const char *first = r->at;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
      if (__builtin_mul_overflow(extent, 10, &extent) ||
          __builtin_add_overflow(extent, *r->at - '0', &extent))
        return expected(r, "an extent below 2^63");
    if (r->at == first)
      return expected(r, "an extent");
    take(r, 'L'); /* written by Python 2 */
    if (__builtin_mul_overflow(h->count, extent, &h->count))
      return expected(r, "less than 2^63 elements");
    h->n_dims++;
    if (!take(r, ',') && (r->at >= r->end || *r->at != ')'))
      return expected(r, "',' or ')'");
  }
  return WM_OK;
}

static wm_status_t read_member(reader_t *r, header_t *h) {
  char key[WORD];
  wm_status_t status = read_string(r, key);
  if (status != WM_OK)
    return status;
  bool *seen = strcmp(key, "descr") == 0           ? &h->seen_descr
               : strcmp(key, "fortran_order") == 0 ? &h->seen_order
               : strcmp(key, "shape") == 0         ? &h->seen_shape
                                                   : NULL;
  if (seen == NULL || *seen)
    return wm_fail(r->err, WM_INPUT, "%s: byte %lld of the npy header: %s member '%s'", r->path,
                   (long long)(r->at - r->begin), seen == NULL ? "unknown" : "duplicate", key);
  *seen = true;
  if (!take(r, ':'))
    return expected(r, "':'");
  if (seen == &h->seen_descr)
    return read_string(r, h->descr);
  return seen == &h->seen_order ? read_bool(r, &h->fortran) : read_shape(r, h);
}

static wm_status_t read_header(reader_t *r, header_t *h) {
  if (!take(r, '{'))
    return expected(r, "'{'");
  while (!take(r, '}')) {
    wm_status_t status = read_member(r, h);
    if (status != WM_OK)
      return status;
    if (!take(r, ',') && (r->at >= r->end || *r->at != '}'))
      return expected(r, "',' or '}'");
  }
  skip_spaces(r);
  if (r->at != r->end)
    return expected(r, "the end");
  if (!h->seen_descr || !h->seen_order || !h->seen_shape)
    return wm_fail(r->err, WM_INPUT,
                   "%s: the npy header must hold 'descr', 'fortran_order' and 'shape'", r->path);
  return WM_OK;
}

static const struct {
  const char *descr;
  int64_t size;
} types[] = {[WM_NPY_U2] = {"<u2", 2},
             [WM_NPY_I4] = {"<i4", 4},
             [WM_NPY_U4] = {"<u4", 4},
             [WM_NPY_I8] = {"<i8", 8}};

static wm_status_t check_header(const reader_t *r, const header_t *h, int64_t data_bytes,
                                wm_npy_type_t *type) {
  enum { N_TYPES = sizeof types / sizeof types[0] };
  if (h->descr[0] == '>')
    return wm_fail(r->err, WM_INPUT, "%s: holds big-endian elements ('%s'); expected '<%s'",
                   r->path, h->descr, h->descr + 1);
  int t = 0;
  while (t < N_TYPES && strcmp(h->descr, types[t].descr) != 0)
    t++;
  if (t == N_TYPES)
    return wm_fail(r->err, WM_INPUT,
                   "%s: holds elements of type '%s'; expected '<u2', '<i4', '<u4' or '<i8'",
                   r->path, h->descr);
  if (h->fortran)
    return wm_fail(r->err, WM_INPUT, "%s: is in Fortran order; expected C order", r->path);
  if (h->n_dims != 1)
    return wm_fail(r->err, WM_INPUT, "%s: has %d dimensions; expected 1", r->path, h->n_dims);
  int64_t bytes;
  if (__builtin_mul_overflow(h->count, types[t].size, &bytes) || bytes != data_bytes)
    return wm_fail(r->err, WM_INPUT,
                   "%s: %lld elements of type '%s' are announced, but %lld bytes follow the header "
                   "(%s)",
                   r->path, (long long)h->count, h->descr, (long long)data_bytes,
                   h->count > data_bytes / types[t].size ? "truncated" : "trailing bytes");
  *type = (wm_npy_type_t)t;
  return WM_OK;
}

static uint64_t little_endian(const unsigned char *bytes, int n) {
  uint64_t value = 0;
  while (n-- > 0)
    value = value << 8 | bytes[n];
  return value;
}

wm_status_t wm_npy_parse(const char *path, const void *data, int64_t bytes, wm_npy_t *out,
                         wm_error_t *err) {
  const unsigned char *file = data;
  if (bytes < 10 || memcmp(file, "\x93NUMPY", 6) != 0)
    return wm_fail(err, WM_INPUT, "%s: byte 0: is no npy file (\"\\x93NUMPY\" expected)", path);
  if (file[6] < 1 || file[6] > 3)
    return wm_fail(err, WM_INPUT, "%s: byte 6: npy format version %d.%d; expected 1 to 3", path,
                   file[6], file[7]);
  int length_bytes = file[6] == 1 ? 2 : 4;
  int64_t first = 8 + length_bytes;
  if (bytes < first)
    return wm_fail(err, WM_INPUT, "%s: byte %lld: the file ends in the length of its header", path,
                   (long long)bytes);
  int64_t length = (int64_t)little_endian(file + 8, length_bytes);
  if (length > bytes - first)
    return wm_fail(err, WM_INPUT,
                   "%s: byte 8: announces a header of %lld bytes, but the file holds %lld", path,
                   (long long)length, (long long)bytes);
  const char *text = data;
  reader_t r = {path, text, text + first, text + first + length, err};
  header_t h = {0};
  wm_status_t status = read_header(&r, &h);
  if (status == WM_OK)
    status = check_header(&r, &h, bytes - first - length, &out->type);
  out->count = h.count;
  out->data = text + first + length;
  return status;
}

typedef uint16_t any_u2_t __attribute__((aligned(1), may_alias));
typedef int32_t any_i4_t __attribute__((aligned(1), may_alias));
typedef uint32_t any_u4_t __attribute__((aligned(1), may_alias));
typedef int64_t any_i8_t __attribute__((aligned(1), may_alias));

/* Element `i`; a u4 beyond 2^31 - 1 stays recognisable as such. */
static int64_t element(const wm_npy_t *a, int64_t i) {
  switch (a->type) {
  case WM_NPY_U2:
    return ((const any_u2_t *)a->data)[i];
  case WM_NPY_I4:
    return ((const any_i4_t *)a->data)[i];
  case WM_NPY_U4:
    return ((const any_u4_t *)a->data)[i];
  default:
    return ((const any_i8_t *)a->data)[i];
  }
}

wm_status_t wm_npy_ids(const char *path, const wm_npy_t *array, int64_t first, int64_t count,
                       int32_t *out, wm_error_t *err) {
  for (int64_t i = 0; i < count; i++) {
    int64_t id = element(array, first + i);
    if (id < 0 || id > INT32_MAX)
      return wm_fail(err, WM_INPUT,
                     "%s: element %" PRId64 " is %" PRId64 "; token ids lie in [0, 2^31)", path,
                     first + i, id);
    out[i] = (int32_t)id;
  }
  return WM_OK;
}
