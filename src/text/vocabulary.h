/* What a byte-level BPE tokenizer consists of, as read from its files and checked. */
#ifndef WM_TEXT_VOCABULARY_H
#define WM_TEXT_VOCABULARY_H

#include "bpe.h"
#include "utf8.h"
#include "wanamaker/base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* A token that is searched for in the text before anything else. */
typedef struct {
  char *content;
  int32_t id;
  bool normalized; /* searched for in the normalised text, else in the text as given */
} wm_added_token_t;

/* Zero-initialise; wm_vocabulary_destroy. */
typedef struct {
  int64_t size;       /* largest id + 1 */
  int64_t model_size; /* entries of the BPE model alone */
  int64_t *offset;    /* [size] where the bytes of a token begin in `bytes` */
  int64_t *length;    /* [size] their number, -1 for an id that no token has */
  wm_string_t bytes;  /* what tokens decode to */
  /* [size] bytes of the text that a token covers in a word, 0 for one that no word gives. An added
   * token that the model has too decodes to its content, but is its bytes in a word. */
  int64_t *word_length;
  int32_t byte_ids[256]; /* token of each byte, -1 where there is none */
  wm_merge_t *merges;    /* [n_merges] in order of rank */
  int64_t n_merges, merges_capacity;
  wm_added_token_t *added; /* [n_added] in the file's order */
  int64_t n_added, added_capacity;
  bool nfc;              /* normaliser NFC, else none */
  bool add_prefix_space; /* a space is put before text that does not begin with one */
  bool use_regex;        /* words are split by the GPT-2 pattern */
} wm_vocabulary_t;

/* Reads dir/tokenizer.json, or dir/vocab.json and dir/merges.txt. What would change ids and is not
 * supported is WM_INPUT with its name. Not collective. */
wm_status_t wm_vocabulary_read(const char *dir, wm_vocabulary_t *vocabulary, wm_error_t *err);
void wm_vocabulary_destroy(wm_vocabulary_t *vocabulary);

/* Fingerprint of all that determines ids. */
uint64_t wm_vocabulary_fingerprint(const wm_vocabulary_t *vocabulary);

/* For the readers of the two kinds of files. `file` is the name for messages, `vocab` the object
 * token -> id. */
wm_status_t wm_vocabulary_set_tokens(wm_vocabulary_t *vocabulary, const char *file,
                                     const json_t *vocab, wm_error_t *err);
wm_status_t wm_vocabulary_add_merge(wm_vocabulary_t *vocabulary, const char *where,
                                    const json_t *vocab, const char *left, const char *right,
                                    wm_error_t *err);
/* Checks `id` against the id that the reference would give. */
wm_status_t wm_vocabulary_add_token(wm_vocabulary_t *vocabulary, const char *file,
                                    const json_t *vocab, const char *content, int64_t id,
                                    bool normalized, wm_error_t *err);

/* Reads tokenizer.json. */
wm_status_t wm_tokenizer_json_read(const char *path, wm_vocabulary_t *vocabulary, wm_error_t *err);

#endif
