/* Byte-level byte-pair encoding, with the ids of the reference implementation (Hugging Face
 * tokenizers) on every input.
 *
 * Read from tokenizer.json (both notations of merges; added tokens; normaliser NFC or none;
 * pre-tokeniser ByteLevel) or from vocab.json + merges.txt. Anything else in the file that would
 * change ids is refused by name: other normalisers, pre-tokenisers and models, dropout,
 * ignore_merges, subword prefixes and suffixes, added tokens with lstrip, rstrip or single_word or
 * with another id than the reference gives them or the same in normal form as another, and
 * vocabularies without a token for every byte. A post-processor is ignored: it only puts tokens
 * around the text, and no BOS or EOS is added here. Truncation and padding are ignored too.
 *
 * Text is UTF-8; each maximal ill-formed part becomes U+FFFD (as Python's errors="replace") and is
 * counted. NUL is a character like others. The time is O(n log n) for any text.
 */
#ifndef WANAMAKER_TEXT_TOKENIZER_H
#define WANAMAKER_TEXT_TOKENIZER_H

#include "wanamaker/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct wm_tokenizer wm_tokenizer_t;

/* Growing array of token ids with the byte offset in the *given* text at which each begins. Offsets
 * never decrease. A token that begins in characters that NFC composed or reordered begins at the
 * first of their source characters, one that begins inside U+FFFD at the ill-formed part.
 * Zero-initialise; wm_token_list_destroy. */
typedef struct {
  int32_t *ids;
  int64_t *starts;
  int64_t count, capacity;
  int64_t replaced; /* ill-formed UTF-8 parts replaced so far */
} wm_token_list_t;

void wm_token_list_destroy(wm_token_list_t *list);

/* `dir` holds tokenizer.json, or vocab.json and merges.txt (then "<|endoftext|>" is an added token
 * if the vocabulary has it). The object is not thread-safe: one per thread. Not collective. */
wm_status_t wm_tokenizer_open(const char *dir, wm_tokenizer_t **out, wm_error_t *err);
/* NULL is allowed. */
void wm_tokenizer_close(wm_tokenizer_t *tokenizer);

/* Appends the ids of text[bytes] to `list`; no BOS or EOS is added; text that spells an added token
 * gives that token, as the reference does. starts are offset by `base`. */
wm_status_t wm_tokenizer_encode(wm_tokenizer_t *tokenizer, const char *text, int64_t bytes,
                                int64_t base, wm_token_list_t *list, wm_error_t *err);

/* Bytes of ids[count] (added tokens spelled out); *out is a heap string of *out_bytes bytes plus a
 * terminator. An id outside the vocabulary is WM_INPUT. */
wm_status_t wm_tokenizer_decode(const wm_tokenizer_t *tokenizer, const int32_t *ids, int64_t count,
                                char **out, int64_t *out_bytes, wm_error_t *err);

/* Largest id + 1. */
int64_t wm_tokenizer_vocab_size(const wm_tokenizer_t *tokenizer);

/* Fingerprint of everything that determines ids: equal for the two ways to store one tokenizer. */
uint64_t wm_tokenizer_fingerprint(const wm_tokenizer_t *tokenizer);

/* True if text may be cut at byte `at` (0 < at < bytes) and the parts encoded apart with the same
 * ids and starts as the whole: before a space, tab, LF or CR that follows a character that is no
 * white space, unless an added token could cross the cut or the tokenizer does not split words.
 * False never harms. It looks at the byte behind the cut and at most four before it, and at none
 * before the beginning of the character there. */
bool wm_tokenizer_can_cut(const wm_tokenizer_t *tokenizer, const char *text, int64_t bytes,
                          int64_t at);

#endif
