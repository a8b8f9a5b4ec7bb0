/* The reference's pipeline, in its order:
 *
 *   text -> repair UTF-8 -> split at added tokens that aren't normalised
 *        -> each piece: NFC -> split at the other added tokens
 *        -> each piece: prefix space -> words -> byte-pair encoding
 *
 * Positions of tokens are mapped back through the two steps that change text (offsets.h).
 */
#include "wanamaker/text/tokenizer.h"

#include "bpe.h"
#include "matcher.h"
#include "nfc.h"
#include "offsets.h"
#include "pretokenize.h"
#include "unicode.h"
#include "utf8.h"
#include "vocabulary.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct wm_tokenizer {
  wm_vocabulary_t vocabulary;
  uint8_t *flags; /* of characters */
  wm_matcher_t raw, normalised;
  wm_bpe_t *bpe;
  uint64_t fingerprint;
  /* scratch of one call */
  wm_nfc_t nfc;
  wm_string_t repaired, normal, prefixed;
  wm_offset_map_t repair_map, normal_map;
};

/* Where tokens go and where the text at hand lies in the given one: byte p of it is byte
 * piece + normal_map(p) of the repaired text, that is base + repair_map(...) of the given one. */
typedef struct {
  wm_token_list_t *list;
  int64_t base, piece;
  int64_t first; /* no token begins before it: a prefix space has no place of its own */
} sink_t;

void wm_token_list_destroy(wm_token_list_t *list) {
  free(list->ids);
  free(list->starts);
  *list = (wm_token_list_t){0};
}

static inline wm_status_t reserve(wm_token_list_t *list, int64_t more, wm_error_t *err) {
  if (list->count + more <= list->capacity)
    return WM_OK;
  int64_t capacity = list->capacity;
  wm_status_t status = wm_grow((void **)&list->ids, &capacity, list->count, list->count + more,
                               sizeof *list->ids, "tokens", err);
  if (status != WM_OK)
    return status;
  return wm_grow((void **)&list->starts, &list->capacity, list->count, list->count + more,
                 sizeof *list->starts, "offsets of tokens", err);
}

/* Appends a token that begins at byte `at` of the text at hand. */
static inline void put(wm_tokenizer_t *t, const sink_t *sink, int32_t id, int64_t at) {
  if (at < sink->first)
    at = sink->first;
  int64_t repaired = sink->piece + wm_offset_map_source(&t->normal_map, at);
  sink->list->ids[sink->list->count] = id;
  sink->list->starts[sink->list->count++] =
      sink->base + wm_offset_map_source(&t->repair_map, repaired);
}

static wm_status_t encode_word(wm_tokenizer_t *t, const char *word, int64_t bytes, int64_t at,
                               const sink_t *sink, wm_error_t *err) {
  const int32_t *ids;
  int64_t count;
  wm_status_t status = wm_bpe_encode(t->bpe, word, bytes, &ids, &count, err);
  if (status == WM_OK)
    status = reserve(sink->list, count, err);
  if (status != WM_OK)
    return status;
  for (int64_t i = 0; i < count; i++) {
    put(t, sink, ids[i], at);
    at += t->vocabulary.word_length[ids[i]];
  }
  return WM_OK;
}

/* Encodes text[bytes] (bytes > 0), which holds no added token and begins at byte `at` of the text
 * at hand. */
static wm_status_t encode_words(wm_tokenizer_t *t, const char *text, int64_t bytes, int64_t at,
                                const sink_t *sink, wm_error_t *err) {
  const sink_t inner = {sink->list, sink->base, sink->piece, at};
  wm_status_t status = WM_OK;
  if (t->vocabulary.add_prefix_space && text[0] != ' ') {
    t->prefixed.bytes = 0;
    WM_TRY(wm_string_append(&t->prefixed, " ", 1, err));
    WM_TRY(wm_string_append(&t->prefixed, text, bytes, err));
    text = t->prefixed.data;
    bytes++;
    at--;
  }
  for (int64_t i = 0, end; i < bytes; i = end) {
    end = t->vocabulary.use_regex ? wm_word_end(t->flags, text, bytes, i) : bytes;
    WM_TRY(encode_word(t, text + i, end - i, at + i, &inner, err));
  }
cleanup:
  return status;
}

typedef wm_status_t (*encode_piece_t)(wm_tokenizer_t *, const char *, int64_t, int64_t,
                                      const sink_t *, wm_error_t *);

/* Splits text[bytes] at the added tokens of `matcher` and gives the pieces between to `encode`. */
static wm_status_t split(wm_tokenizer_t *t, const wm_matcher_t *matcher, const char *text,
                         int64_t bytes, encode_piece_t encode, const sink_t *sink,
                         wm_error_t *err) {
  wm_status_t status = WM_OK;
  wm_match_t match;
  int64_t at = 0;
  while (at < bytes && wm_matcher_next(matcher, text, bytes, at, &match)) {
    if (match.at > at)
      WM_TRY(encode(t, text + at, match.at - at, at, sink, err));
    WM_TRY(reserve(sink->list, 1, err));
    put(t, sink, match.id, match.at);
    at = match.at + match.bytes;
  }
  if (at < bytes)
    WM_TRY(encode(t, text + at, bytes - at, at, sink, err));
cleanup:
  return status;
}

/* Encodes a piece of the repaired text, which begins there at byte `at`. */
static wm_status_t encode_piece(wm_tokenizer_t *t, const char *text, int64_t bytes, int64_t at,
                                const sink_t *sink, wm_error_t *err) {
  wm_status_t status = WM_OK;
  const sink_t inner = {sink->list, sink->base, sink->piece + at, 0};
  bool changed = false;
  if (t->vocabulary.nfc)
    WM_TRY(wm_nfc(&t->nfc, t->flags, text, bytes, &t->normal, &t->normal_map, &changed, err));
  if (changed) {
    text = t->normal.data;
    bytes = t->normal.bytes;
  }
  WM_TRY(split(t, &t->normalised, text, bytes, encode_words, &inner, err));
cleanup:
  wm_offset_map_clear(&t->normal_map);
  return status;
}

wm_status_t wm_tokenizer_encode(wm_tokenizer_t *t, const char *text, int64_t bytes, int64_t base,
                                wm_token_list_t *list, wm_error_t *err) {
  const sink_t sink = {list, base, 0, 0};
  wm_status_t status = WM_OK;
  wm_pulse();
  wm_offset_map_clear(&t->repair_map);
  if (wm_utf8_well_formed(text, bytes) < bytes) {
    WM_TRY(wm_utf8_repair(text, bytes, &t->repaired, &t->repair_map, &list->replaced, err));
    text = t->repaired.data;
    bytes = t->repaired.bytes;
  }
  WM_TRY(split(t, &t->raw, text, bytes, encode_piece, &sink, err));
cleanup:
  return status;
}

/* Enters the added tokens in the two matchers, with the spelling that the text will have there. */
static wm_status_t create_matchers(wm_tokenizer_t *t, const char *dir, wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int64_t i = 0; i < t->vocabulary.n_added; i++) {
    const wm_added_token_t *token = &t->vocabulary.added[i];
    const char *content = token->content;
    int64_t bytes = (int64_t)strlen(content);
    bool changed = false;
    if (token->normalized && t->vocabulary.nfc)
      WM_TRY(wm_nfc(&t->nfc, t->flags, content, bytes, &t->normal, &t->normal_map, &changed, err));
    if (changed) {
      content = t->normal.data;
      bytes = t->normal.bytes;
    }
    status = wm_matcher_add(token->normalized ? &t->normalised : &t->raw, content, bytes, token->id,
                            err);
    if (status != WM_OK) {
      wm_error_prefix(err, "%s: added token \"%s\"", dir, token->content);
      goto cleanup;
    }
  }
cleanup:
  wm_offset_map_clear(&t->normal_map);
  return status;
}

wm_status_t wm_tokenizer_open(const char *dir, wm_tokenizer_t **out, wm_error_t *err) {
  wm_tokenizer_t *t = NULL;
  wm_status_t status = WM_OK;
  *out = NULL;
  WM_TRY(wm_alloc((void **)&t, 1, sizeof *t, "tokenizer", err));
  WM_TRY(wm_vocabulary_read(dir, &t->vocabulary, err));
  WM_TRY(wm_unicode_table(&t->flags, err));
  WM_TRY(wm_bpe_create(t->vocabulary.byte_ids, t->vocabulary.merges, t->vocabulary.n_merges,
                       &t->bpe, err));
  WM_TRY(create_matchers(t, dir, err));
  t->fingerprint = wm_vocabulary_fingerprint(&t->vocabulary);
  *out = t;
  t = NULL;
cleanup:
  wm_tokenizer_close(t);
  return status;
}

void wm_tokenizer_close(wm_tokenizer_t *t) {
  if (t == NULL)
    return;
  wm_vocabulary_destroy(&t->vocabulary);
  free(t->flags);
  wm_matcher_destroy(&t->raw);
  wm_matcher_destroy(&t->normalised);
  wm_bpe_free(t->bpe);
  wm_nfc_destroy(&t->nfc);
  free(t->repaired.data);
  free(t->normal.data);
  free(t->prefixed.data);
  free(t->repair_map.spans);
  free(t->normal_map.spans);
  free(t);
}

wm_status_t wm_tokenizer_decode(const wm_tokenizer_t *t, const int32_t *ids, int64_t count,
                                char **out, int64_t *out_bytes, wm_error_t *err) {
  const wm_vocabulary_t *v = &t->vocabulary;
  wm_string_t text = {0};
  wm_status_t status = WM_OK;
  *out = NULL;
  *out_bytes = 0;
  for (int64_t i = 0; i < count; i++) {
    if (ids[i] < 0 || ids[i] >= v->size || v->length[ids[i]] < 0) {
      status = wm_fail(err, WM_INPUT, "token %lld: the vocabulary has no id %ld", (long long)i,
                       (long)ids[i]);
      goto cleanup;
    }
    WM_TRY(wm_string_append(&text, v->bytes.data + v->offset[ids[i]], v->length[ids[i]], err));
  }
  WM_TRY(wm_string_append(&text, "", 1, err));
  *out = text.data;
  *out_bytes = text.bytes - 1;
  text.data = NULL;
cleanup:
  free(text.data);
  return status;
}

int64_t wm_tokenizer_vocab_size(const wm_tokenizer_t *t) {
  return t->vocabulary.size;
}

uint64_t wm_tokenizer_fingerprint(const wm_tokenizer_t *t) {
  return t->fingerprint;
}

/* The character that ends before text[at], at > 0; U+FFFD where the text is ill-formed there. A
 * lead byte always begins a new character, so no more than four bytes tell. */
static uint32_t character_before(const char *text, int64_t at) {
  int64_t n = 1;
  while (n < 4 && n < at && ((unsigned char)text[at - n] & 0xC0) == 0x80)
    n++;
  int length;
  if (wm_utf8_well_formed(text + at - n, n) < n)
    return 0xFFFD;
  uint32_t c = wm_utf8_get(text + at - n, &length);
  return length == n ? c : 0xFFFD;
}

/* Why a cut between a character g that is no white space and white space w of ASCII is exact:
 *
 * - UTF-8: w is a whole character, and an ill-formed part ends before it.
 * - Added tokens: no pattern contains the pair g w, in either matcher, so none matches across the
 *   cut; matching goes from left to right without looking back, and what matches at or after the
 *   cut is what matches in the right part alone. What g is after repair and NFC is not looked at
 *   unless g is ASCII and graphic, which both leave alone before w: else no pattern may contain w
 *   behind anything.
 * - NFC: w has combining class 0 and composes with nothing, nor does it decompose, so nothing
 *   composes or is reordered across it; the normal form is the two parts' normal forms joined, w is
 *   still there, and what is no white space has none in its normal form.
 * - Words: no word of the pattern holds white space after another character, so one ends at g.
 *   Only white space looks ahead (is there more after it?), and that before g sees g in both cases.
 *   A word that begins at w looks at nothing before it.
 * - Prefix space: the right part would get one if it didn't begin with a space: w must be one.
 */
bool wm_tokenizer_can_cut(const wm_tokenizer_t *t, const char *text, int64_t bytes, int64_t at) {
  if (at <= 0 || at >= bytes || !t->vocabulary.use_regex)
    return false;
  unsigned char g = (unsigned char)text[at - 1], w = (unsigned char)text[at];
  if (w != ' ' && w != '\t' && w != '\n' && w != '\r')
    return false;
  if (t->vocabulary.add_prefix_space && w != ' ')
    return false;
  if (g >= 0x21 && g <= 0x7E)
    return !t->raw.pair[g][w] && !t->normalised.pair[g][w];
  if ((t->flags[character_before(text, at)] & WM_CLASS_MASK) == WM_CLASS_SPACE)
    return false;
  return !t->raw.follows[w] && !t->normalised.follows[w];
}
