#include "vocabulary.h"

#include "wanamaker/base/hash.h"
#include "wanamaker/base/json.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/io/files.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ID = (1 << 24) - 1 }; /* far above any vocabulary: a wrong id must not cost gigabytes */

void wm_vocabulary_destroy(wm_vocabulary_t *v) {
  for (int64_t i = 0; i < v->n_added; i++)
    free(v->added[i].content);
  free(v->added);
  free(v->offset);
  free(v->length);
  free(v->word_length);
  free(v->bytes.data);
  free(v->merges);
  *v = (wm_vocabulary_t){0};
}

/* Byte-level tokens are spelled with one printable character a byte: bytes that are printable in
 * Latin-1 stand for themselves, the n-th of the others is U+0100 + n. Returns -1 if `c` is none. */
static int byte_of_character(uint32_t c) {
  if ((c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xFF && c != 0xAD))
    return (int)c;
  if (c < 0x100 || c > 0x143)
    return -1;
  uint32_t n = c - 0x100; /* in 00..20, 7F..A0, AD */
  return (int)(n <= 0x20 ? n : n <= 0x42 ? 0x7F + n - 0x21 : 0xAD);
}

/* Appends what the token `spelled` decodes to: its bytes, or itself if a character of it stands for
 * no byte. */
static wm_status_t append_token(wm_string_t *out, const char *spelled, wm_error_t *err) {
  wm_status_t status = WM_OK;
  int64_t begin = out->bytes, bytes = (int64_t)strlen(spelled);
  for (int64_t i = 0; i < bytes;) {
    int length, byte = byte_of_character(wm_utf8_get(spelled + i, &length));
    if (byte < 0) {
      out->bytes = begin;
      return wm_string_append(out, spelled, bytes, err);
    }
    char c = (char)byte;
    WM_TRY(wm_string_append(out, &c, 1, err));
    i += length;
  }
cleanup:
  return status;
}

/* Grows the id tables to `size` ids; new ids have no token. */
static wm_status_t resize(wm_vocabulary_t *v, int64_t size, wm_error_t *err) {
  wm_status_t status = WM_OK;
  int64_t capacity = v->size;
  WM_TRY(wm_grow((void **)&v->offset, &capacity, v->size, size, sizeof *v->offset, "tokens", err));
  capacity = v->size;
  WM_TRY(wm_grow((void **)&v->length, &capacity, v->size, size, sizeof *v->length, "tokens", err));
  capacity = v->size;
  WM_TRY(wm_grow((void **)&v->word_length, &capacity, v->size, size, sizeof *v->word_length,
                 "tokens", err));
  for (int64_t i = v->size; i < size; i++)
    v->length[i] = -1;
  v->size = size;
cleanup:
  return status;
}

/* Gives `id` the token, whose bytes have just been appended from `begin` on. */
static wm_status_t take_id(wm_vocabulary_t *v, const char *file, const char *token, int64_t id,
                           int64_t begin, wm_error_t *err) {
  if (v->length[id] >= 0)
    return wm_fail(err, WM_INPUT, "%s: token \"%s\" has id %lld, as another token has", file, token,
                   (long long)id);
  v->offset[id] = begin;
  v->length[id] = v->bytes.bytes - begin;
  return WM_OK;
}

static wm_status_t largest_id(const char *file, json_t *vocab, int64_t *largest, wm_error_t *err) {
  const char *token;
  json_t *value;
  *largest = -1;
  json_object_foreach(vocab, token, value) {
    if (!json_is_integer(value))
      return wm_fail(err, WM_INPUT, "%s: the id of token \"%s\" must be an integer", file, token);
    int64_t id = (int64_t)json_integer_value(value);
    if (id < 0 || id > MAX_ID)
      return wm_fail(err, WM_INPUT, "%s: token \"%s\" has id %lld, expected 0 to %d", file, token,
                     (long long)id, MAX_ID);
    if (id > *largest)
      *largest = id;
  }
  if (*largest < 0)
    return wm_fail(err, WM_INPUT, "%s: the vocabulary is empty", file);
  return WM_OK;
}

/* Bytes that no UTF-8 text contains need no token. */
static bool occurs_in_utf8(int byte) {
  return byte < 0xC0 || (byte > 0xC1 && byte < 0xF5);
}

/* Fills byte_ids. The reference silently drops a byte without a token (or puts unk_token in its
 * place), which would change what is measured: such a vocabulary is refused. */
static wm_status_t find_byte_tokens(wm_vocabulary_t *v, const char *file, const json_t *vocab,
                                    wm_error_t *err) {
  for (int i = 0; i < 256; i++)
    v->byte_ids[i] = -1;
  for (uint32_t c = 0x21; c <= 0x143; c++) {
    char spelled[5] = {0};
    int byte = byte_of_character(c);
    if (byte < 0)
      continue;
    wm_utf8_put(c, spelled);
    const json_t *id = json_object_get(vocab, spelled);
    if (id != NULL)
      v->byte_ids[byte] = (int32_t)json_integer_value(id);
    else if (occurs_in_utf8(byte))
      return wm_fail(err, WM_INPUT, "%s: the vocabulary has no token \"%s\", of byte 0x%02X", file,
                     spelled, (unsigned)byte);
  }
  return WM_OK;
}

wm_status_t wm_vocabulary_set_tokens(wm_vocabulary_t *v, const char *file, const json_t *vocab,
                                     wm_error_t *err) {
  json_t *object = (json_t *)vocab; /* jansson's iterators want it so; it stays unchanged */
  const char *token;
  json_t *value;
  int64_t largest;
  wm_status_t status = WM_OK;
  if (!json_is_object(vocab))
    return wm_fail(err, WM_INPUT, "%s: the vocabulary must be an object of tokens and ids", file);
  WM_TRY(largest_id(file, object, &largest, err));
  WM_TRY(resize(v, largest + 1, err));
  json_object_foreach(object, token, value) {
    int64_t begin = v->bytes.bytes, id = (int64_t)json_integer_value(value);
    WM_TRY(append_token(&v->bytes, token, err));
    WM_TRY(take_id(v, file, token, id, begin, err));
    v->word_length[id] = v->length[id];
  }
  v->model_size = (int64_t)json_object_size(vocab);
  WM_TRY(find_byte_tokens(v, file, vocab, err));
cleanup:
  return status;
}

static wm_status_t id_of(const char *where, const json_t *vocab, const char *token, int32_t *id,
                         wm_error_t *err) {
  const json_t *value = json_object_get(vocab, token);
  if (value == NULL)
    return wm_fail(err, WM_INPUT, "%s: \"%s\" is not in the vocabulary", where, token);
  *id = (int32_t)json_integer_value(value);
  return WM_OK;
}

wm_status_t wm_vocabulary_add_merge(wm_vocabulary_t *v, const char *where, const json_t *vocab,
                                    const char *left, const char *right, wm_error_t *err) {
  wm_status_t status = WM_OK;
  wm_merge_t merge;
  char *joined = wm_format("%s%s", left, right);
  if (joined == NULL)
    return wm_fail(err, WM_ENVIRONMENT, "cannot allocate memory for a merge");
  WM_TRY(id_of(where, vocab, left, &merge.left, err));
  WM_TRY(id_of(where, vocab, right, &merge.right, err));
  WM_TRY(id_of(where, vocab, joined, &merge.result, err));
  WM_TRY(wm_grow((void **)&v->merges, &v->merges_capacity, v->n_merges, v->n_merges + 1,
                 sizeof *v->merges, "merges", err));
  v->merges[v->n_merges++] = merge;
cleanup:
  free(joined);
  return status;
}

/* The reference does not believe the id in the file: an added token has the id that the model's
 * vocabulary gives to its content, else the next free one. */
static int64_t reference_id(const wm_vocabulary_t *v, const json_t *vocab, const char *content) {
  const json_t *value = json_object_get(vocab, content);
  if (value != NULL)
    return (int64_t)json_integer_value(value);
  int64_t next = v->model_size;
  for (int64_t i = 0; i < v->n_added; i++)
    if (v->added[i].id >= next)
      next = v->added[i].id + 1;
  return next;
}

wm_status_t wm_vocabulary_add_token(wm_vocabulary_t *v, const char *file, const json_t *vocab,
                                    const char *content, int64_t id, bool normalized,
                                    wm_error_t *err) {
  wm_status_t status = WM_OK;
  wm_added_token_t token = {.id = (int32_t)id, .normalized = normalized};
  int64_t expected = reference_id(v, vocab, content), begin = v->bytes.bytes;
  if (id != expected)
    return wm_fail(err, WM_INPUT, "%s: added token \"%s\" has id %lld, the reference gives it %lld",
                   file, content, (long long)id, (long long)expected);
  for (int64_t i = 0; i < v->n_added; i++)
    if (strcmp(v->added[i].content, content) == 0)
      return wm_fail(err, WM_INPUT, "%s: token \"%s\" is added twice", file, content);
  if (id > MAX_ID)
    return wm_fail(err, WM_INPUT, "%s: added token \"%s\" has id %lld, expected 0 to %d", file,
                   content, (long long)id, MAX_ID);
  if (id >= v->size)
    WM_TRY(resize(v, id + 1, err));
  WM_TRY(wm_string_append(&v->bytes, content, (int64_t)strlen(content), err));
  if (json_object_get(vocab, content) != NULL)
    v->length[id] = -1; /* the same token: it's decoded as its content from now on */
  WM_TRY(take_id(v, file, content, id, begin, err));
  WM_TRY(wm_grow((void **)&v->added, &v->added_capacity, v->n_added, v->n_added + 1,
                 sizeof *v->added, "added tokens", err));
  WM_TRY(wm_strdup(&token.content, content, err));
  v->added[v->n_added++] = token;
cleanup:
  return status;
}

/* Whether added tokens of both kinds exist: then those that aren't normalised have precedence, even
 * if there's no normaliser. */
static bool mixed_kinds(const wm_vocabulary_t *v) {
  for (int64_t i = 1; i < v->n_added; i++)
    if (v->added[i].normalized != v->added[0].normalized)
      return true;
  return false;
}

uint64_t wm_vocabulary_fingerprint(const wm_vocabulary_t *v) {
  const uint8_t options[3] = {v->nfc, v->add_prefix_space, v->use_regex};
  bool kinds_matter = v->nfc || mixed_kinds(v);
  uint64_t h = wm_hash(options, sizeof options, 0);
  h = wm_hash(v->length, (size_t)v->size * sizeof *v->length, h);
  for (int64_t id = 0; id < v->size; id++)
    if (v->length[id] > 0)
      h = wm_hash(v->bytes.data + v->offset[id], (size_t)v->length[id], h);
  h = wm_hash(v->byte_ids, sizeof v->byte_ids, h);
  h = wm_hash(v->merges, (size_t)v->n_merges * sizeof *v->merges, h);
  for (int64_t i = 0; i < v->n_added; i++) {
    const int32_t kind[2] = {v->added[i].id, kinds_matter && v->added[i].normalized};
    h = wm_hash(v->added[i].content, strlen(v->added[i].content), wm_hash(kind, sizeof kind, h));
  }
  return h;
}
