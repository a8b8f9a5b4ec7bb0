#include "wanamaker/measure/token_traits.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/io/files.h"
#include "wanamaker/text/tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

enum { LIMIT = 4 << 20, WORD = 64 };

/* Categories that spelling alone tells, behind those of the file. */
enum { NUMBER, PUNCTUATION, SPACE, PART, OTHER, SPELLED };
static const char *const spelled_names[SPELLED] = {"number", "punctuation", "space",
                                                   "part of a word", "other word"};

/* A word of the file. */
typedef struct {
  char text[WORD];
  int8_t category;
} word_t;

typedef struct {
  word_t *words; /* sorted by text, then category */
  int64_t n, capacity;
} words_t;

/* --- file of categories -------------------------------------------------------------------------
 */

static int by_word(const void *a, const void *b) {
  const word_t *x = a, *y = b;
  const int order = strcmp(x->text, y->text);
  return order != 0 ? order : (x->category > y->category) - (x->category < y->category);
}

static bool is_category(const wm_token_traits_t *t, const char *name, size_t length) {
  for (int i = 0; i < t->n_categories; i++)
    if (strlen(t->category[i]) == length && memcmp(t->category[i], name, length) == 0)
      return true;
  for (int i = 0; i < SPELLED; i++)
    if (strlen(spelled_names[i]) == length && memcmp(spelled_names[i], name, length) == 0)
      return true;
  return false;
}

static wm_status_t begin_category(wm_token_traits_t *t, const char *name, size_t length,
                                  const char *file, int line, wm_error_t *err) {
  if (length == 0 || length >= WM_CATEGORY_NAME)
    return wm_fail(err, WM_INPUT, "%s:%d: a category's name has 1 to %d bytes", file, line,
                   WM_CATEGORY_NAME - 1);
  if (is_category(t, name, length))
    return wm_fail(err, WM_INPUT,
                   "%s:%d: there is a category [%.*s] already (some are told by spelling)", file,
                   line, (int)length, name);
  if (t->n_categories == WM_CATEGORIES - SPELLED)
    return wm_fail(err, WM_INPUT, "%s:%d: more than %d categories", file, line,
                   WM_CATEGORIES - SPELLED);
  memcpy(t->category[t->n_categories++], name, length);
  return WM_OK;
}

/* out[WORD] <- the word in lower case; false: it does not fit. The text is well-formed. */
static bool lower_word(const char *text, size_t length, char *out) {
  size_t used = 0;
  for (size_t at = 0; at < length;) {
    int32_t c;
    at += (size_t)utf8proc_iterate((const uint8_t *)text + at, (utf8proc_ssize_t)(length - at), &c);
    if (used + 4 >= WORD)
      return false;
    used += (size_t)utf8proc_encode_char(utf8proc_tolower(c), (uint8_t *)out + used);
  }
  out[used] = '\0';
  return true;
}

static wm_status_t add_word(words_t *w, const char *text, size_t length, int category,
                            const char *file, int line, wm_error_t *err) {
  void *memory = w->words;
  if (category < 0)
    return wm_fail(err, WM_INPUT, "%s:%d: a word before the first [category]", file, line);
  wm_status_t status =
      wm_grow(&memory, &w->capacity, w->n, w->n + 1, sizeof *w->words, "words", err);
  w->words = memory;
  if (status != WM_OK)
    return status;
  if (!lower_word(text, length, w->words[w->n].text))
    return wm_fail(err, WM_INPUT, "%s:%d: a word of %zu bytes, at most %d", file, line, length,
                   WORD - 4);
  w->words[w->n++].category = (int8_t)category;
  return WM_OK;
}

/* Printable UTF-8: names are printed, and words are compared with spellings. */
static wm_status_t check_line(const char *line, size_t length, const char *file, int number,
                              wm_error_t *err) {
  for (size_t at = 0; at < length;) {
    int32_t c;
    const utf8proc_ssize_t bytes =
        utf8proc_iterate((const uint8_t *)line + at, (utf8proc_ssize_t)(length - at), &c);
    if (bytes <= 0)
      return wm_fail(err, WM_INPUT, "%s:%d: byte %zu of the line is no UTF-8", file, number,
                     at + 1);
    if (utf8proc_category(c) == UTF8PROC_CATEGORY_CC && c != '\t' && c != '\r')
      return wm_fail(err, WM_INPUT, "%s:%d: control character U+%04X", file, number, (unsigned)c);
    at += (size_t)bytes;
  }
  return WM_OK;
}

static wm_status_t read_line(wm_token_traits_t *t, words_t *w, const char *line, size_t length,
                             const char *file, int number, wm_error_t *err) {
  static const char blanks[] = " \t\r";
  const char *comment = memchr(line, '#', length), *end = comment != NULL ? comment : line + length;
  wm_status_t status = check_line(line, length, file, number, err);
  while (line < end && strchr(blanks, *line) != NULL)
    line++;
  while (end > line && strchr(blanks, end[-1]) != NULL)
    end--;
  if (line < end && *line == '[' && status == WM_OK) {
    if (end[-1] != ']' || memchr(line, ']', (size_t)(end - line)) != end - 1)
      return wm_fail(err, WM_INPUT, "%s:%d: a category is a line [NAME] with nothing behind it",
                     file, number);
    return begin_category(t, line + 1, (size_t)(end - line - 2), file, number, err);
  }
  while (line < end && status == WM_OK) {
    const char *from = line;
    while (line < end && strchr(blanks, *line) == NULL)
      line++;
    status = add_word(w, from, (size_t)(line - from), t->n_categories - 1, file, number, err);
    while (line < end && strchr(blanks, *line) != NULL)
      line++;
  }
  return status;
}

static wm_status_t read_words(wm_token_traits_t *t, words_t *w, const char *text, const char *name,
                              wm_error_t *err) {
  static const char mark[] = "\xef\xbb\xbf"; /* some editors begin a file with it */
  int number = 1;
  if (strncmp(text, mark, sizeof mark - 1) == 0)
    text += sizeof mark - 1;
  for (const char *line = text; *line != '\0'; number++) {
    const size_t length = strcspn(line, "\n");
    wm_status_t status = read_line(t, w, line, length, name, number, err);
    if (status != WM_OK)
      return status;
    line += length + (line[length] == '\n');
  }
  if (w->n > 0) /* qsort takes no NULL */
    qsort(w->words, (size_t)w->n, sizeof *w->words, by_word);
  for (int i = 0; i < SPELLED; i++)
    snprintf(t->category[t->n_categories + i], WM_CATEGORY_NAME, "%s", spelled_names[i]);
  return WM_OK;
}

/* First category of a word, -1: none. */
static int find_word(const words_t *w, const char *text) {
  int64_t low = 0, high = w->n;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (strcmp(w->words[middle].text, text) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low < w->n && strcmp(w->words[low].text, text) == 0 ? w->words[low].category : -1;
}

/* --- spelling -----------------------------------------------------------------------------------
 */

/* What a spelling is made of, without white space in front. */
typedef struct {
  int64_t spaces;                         /* in front */
  int64_t letters, digits, others, inner; /* inner: white space behind the first character */
  char lower[WORD];
  size_t used;
} shape_t;

static bool is_space(int32_t c) {
  return c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f' ||
         utf8proc_category(c) == UTF8PROC_CATEGORY_ZS;
}

static void take_character(shape_t *s, int32_t c) {
  const utf8proc_category_t kind = utf8proc_category(c);
  if (is_space(c)) {
    const bool front = s->letters + s->digits + s->others == 0;
    s->spaces += front;
    s->inner += !front;
    return;
  }
  s->letters += kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
  s->digits += kind == UTF8PROC_CATEGORY_ND;
  s->others += kind > UTF8PROC_CATEGORY_LO && kind != UTF8PROC_CATEGORY_ND;
  if (s->used + 4 < WORD)
    s->used += (size_t)utf8proc_encode_char(utf8proc_tolower(c), (uint8_t *)s->lower + s->used);
}

/* Bytes of a part that is no UTF-8, which counts as one other character: a first byte with what
 * follows of its character, or a byte alone. */
static int64_t ill_formed(const unsigned char *text, int64_t length) {
  int64_t n = 1;
  while (text[0] >= 0xc2 && n < length && n < 3 && (text[n] & 0xc0) == 0x80)
    n++;
  return n;
}

static shape_t shape_of(const char *text, int64_t length) {
  shape_t s = {0};
  for (int64_t at = 0; at < length;) {
    int32_t c;
    const utf8proc_ssize_t bytes = utf8proc_iterate((const uint8_t *)text + at, length - at, &c);
    if (bytes > 0)
      take_character(&s, c);
    else
      s.others++;
    at += bytes > 0 ? bytes : ill_formed((const unsigned char *)text + at, length - at);
  }
  s.lower[s.used] = '\0';
  return s;
}

static int spelled_category(const shape_t *s) {
  if (s->letters + s->digits + s->others == 0)
    return SPACE;
  if (s->letters == 0)
    return s->digits > 0 ? NUMBER : PUNCTUATION;
  return s->spaces == 0 ? PART : OTHER;
}

static void describe(const wm_token_traits_t *t, const words_t *w, const char *text, int64_t length,
                     wm_token_trait_t *out) {
  const shape_t s = shape_of(text, length);
  const int listed = find_word(w, s.lower);
  size_t used = 0;
  *out = (wm_token_trait_t){.characters = (int32_t)(s.letters + s.digits + s.others + s.inner),
                            .starts_word = s.spaces > 0,
                            .subword = s.letters > 0 && s.spaces == 0,
                            .alphabetic = s.letters > 0 && s.digits + s.others + s.inner == 0,
                            .punctuation = s.letters + s.digits == 0 && s.others > 0,
                            .log_frequency = NAN,
                            .log_rank = NAN,
                            .surprise = NAN};
  out->category = (int8_t)(listed >= 0 ? listed : t->n_categories + spelled_category(&s));
  out->function_word = listed >= 0 && strcmp(t->category[listed], "function") == 0;
  for (int64_t i = 0; i < length && used + 1 < WM_SPELLING; i++)
    out->spelling[used++] = (unsigned char)text[i] < 32 ? ' ' : text[i];
  while (used > 0 && length >= WM_SPELLING && ((unsigned char)text[used] & 0xc0) == 0x80)
    out->spelling[--used] = '\0';
}

wm_status_t wm_token_traits_make(int64_t n, const char *const *text, const int64_t *length,
                                 const char *words, const char *words_name, wm_token_traits_t *t,
                                 wm_error_t *err) {
  words_t w = {0};
  void *memory = NULL;
  *t = (wm_token_traits_t){.n = n};
  wm_status_t status = wm_alloc(&memory, n, sizeof *t->trait, "token types", err);
  t->trait = memory;
  if (status == WM_OK)
    status = read_words(t, &w, words, words_name, err);
  for (int64_t i = 0; i < n && status == WM_OK; i++)
    describe(t, &w, text[i], length[i], &t->trait[i]);
  t->n_categories += status == WM_OK ? SPELLED : 0;
  free(w.words);
  return status;
}

/* --- frequencies --------------------------------------------------------------------------------
 */

typedef struct {
  int64_t count, id;
} ranked_t;

static int by_count(const void *a, const void *b) {
  const ranked_t *x = a, *y = b;
  return x->count != y->count ? (x->count < y->count ? 1 : -1) : (x->id > y->id) - (x->id < y->id);
}

wm_status_t wm_token_traits_count(wm_token_traits_t *t, const int64_t *count, wm_error_t *err) {
  void *memory;
  int64_t all = 0;
  wm_status_t status = wm_alloc(&memory, t->n, sizeof(ranked_t), "token types", err);
  if (status != WM_OK)
    return status;
  ranked_t *ranked = memory;
  for (int64_t i = 0; i < t->n; i++) {
    ranked[i] = (ranked_t){count[i], i};
    all += count[i];
  }
  qsort(ranked, (size_t)t->n, sizeof *ranked, by_count);
  for (int64_t r = 0; r < t->n && ranked[r].count > 0; r++) {
    wm_token_trait_t *trait = &t->trait[ranked[r].id];
    trait->log_frequency = log((double)ranked[r].count / (double)all);
    trait->surprise = -trait->log_frequency;
    trait->log_rank = log((double)(r + 1));
  }
  free(memory);
  return WM_OK;
}

/* --- a tokenizer's types ------------------------------------------------------------------------
 */

/* On rank 0: all types in the tokenizer's spelling, "?" where it has none. */
static wm_status_t spell(int64_t n, const char *dir, const char *words, const char *name,
                         bool *spelled, wm_token_traits_t *t, wm_error_t *err) {
  wm_tokenizer_t *tokenizer = NULL;
  wm_error_t ignored = {0};
  void *texts = NULL, *lengths = NULL;
  wm_status_t status = wm_alloc(&texts, n, sizeof(char *), "spellings", err);
  if (status == WM_OK)
    status = wm_alloc(&lengths, n, sizeof(int64_t), "spellings", err);
  *spelled = wm_tokenizer_open(dir, &tokenizer, &ignored) == WM_OK;
  char **text = texts;
  int64_t *length = lengths;
  for (int64_t i = 0; i < n && status == WM_OK; i++) {
    const int32_t id = (int32_t)i;
    wm_error_t unknown = {0};
    if (*spelled && i < wm_tokenizer_vocab_size(tokenizer) &&
        wm_tokenizer_decode(tokenizer, &id, 1, &text[i], &length[i], &unknown) == WM_OK)
      continue;
    status = wm_strdup(&text[i], "?", err);
    length[i] = 1;
  }
  if (status == WM_OK)
    status = wm_token_traits_make(n, (const char *const *)text, length, words, name, t, err);
  for (int64_t i = 0; text != NULL && i < n; i++)
    free(text[i]);
  free(texts);
  free(lengths);
  if (*spelled)
    wm_tokenizer_close(tokenizer);
  return status;
}

/* Rank 0's object on all ranks. Collective. */
static wm_status_t share(const wm_comm_t *comm, int64_t n, wm_token_traits_t *t, wm_error_t *err) {
  wm_status_t status = WM_OK;
  if (comm->rank != 0) {
    void *memory;
    *t = (wm_token_traits_t){.n = n};
    status = wm_alloc(&memory, n, sizeof *t->trait, "token types", err);
    t->trait = memory;
  }
  status = wm_agree(comm->world, status, err);
  if (status != WM_OK)
    return status;
  wm_broadcast(comm->world, 0, t->trait, n * (int64_t)sizeof *t->trait);
  wm_broadcast(comm->world, 0, t->category, (int64_t)sizeof t->category);
  wm_broadcast(comm->world, 0, &t->n_categories, sizeof t->n_categories);
  return WM_OK;
}

wm_status_t wm_token_traits_read(const wm_comm_t *comm, int64_t n, const char *tokenizer,
                                 const char *words, const int32_t *ids, int64_t n_ids,
                                 bool *spelled, wm_token_traits_t *t, wm_error_t *err) {
  char *text = NULL;
  void *counts = NULL;
  int64_t first, length;
  wm_status_t status = WM_OK;
  *spelled = false;
  memset(t, 0, sizeof *t);
  if (comm->rank == 0) {
    status = wm_read_text(words, LIMIT, &text, err);
    if (status == WM_OK)
      status = spell(n, tokenizer, text, words, spelled, t, err);
  }
  if (status == WM_OK)
    status = wm_alloc(&counts, n, sizeof(int64_t), "counts of token types", err);
  WM_TRY(wm_agree(comm->world, status, err));
  WM_TRY(share(comm, n, t, err));
  wm_broadcast(comm->world, 0, spelled, sizeof *spelled);
  int64_t *count = counts;
  wm_partition(n_ids, comm->size, comm->rank, &first, &length);
  for (int64_t i = first; i < first + length; i++)
    if (ids[i] < n)
      count[ids[i]]++;
  wm_sum_i64(comm->world, count, n);
  WM_TRY(wm_agree(comm->world, wm_token_traits_count(t, count, err), err));
cleanup:
  free(text);
  free(counts);
  return status;
}

void wm_token_traits_destroy(wm_token_traits_t *t) {
  free(t->trait);
  memset(t, 0, sizeof *t);
}
