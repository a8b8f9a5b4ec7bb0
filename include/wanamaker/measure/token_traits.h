/* What is known of a token type from its spelling and its frequency (method.md, section 7).
 *
 * Categories of words come from a plain text file: a line "[NAME]" begins a category, the lines
 * after it hold its words, separated by blanks, of either case; "#" begins a comment. Words of
 * [function] are function words. What is in no category is told by its spelling: "number" (digits
 * and signs between them), "punctuation" (no letter, no digit), "space" (white space alone),
 * "part of a word" (letters without a white space or the text's beginning in front), "other word".
 * The first category that holds a word is its own.
 */
#ifndef WANAMAKER_MEASURE_TOKEN_TRAITS_H
#define WANAMAKER_MEASURE_TOKEN_TRAITS_H

#include "wanamaker/base/status.h"
#include "wanamaker/par/comm.h"

#include <stdbool.h>
#include <stdint.h>

enum { WM_CATEGORIES = 32, WM_CATEGORY_NAME = 24, WM_SPELLING = 24 };

/* One token type. */
typedef struct {
  char spelling[WM_SPELLING]; /* UTF-8 as far as it is, cut; control characters as blanks */
  int32_t characters;         /* of the spelling, without white space in front */
  uint8_t starts_word;        /* begins with white space */
  uint8_t subword;            /* letters that do not start a word */
  uint8_t alphabetic;         /* letters alone, without white space in front */
  uint8_t punctuation;        /* neither letters nor digits, and not white space alone */
  uint8_t function_word;
  int8_t category;
  double log_frequency; /* log(count / all); NaN for a type that never occurs */
  double log_rank;      /* log of its rank by count, from 1; equal counts by id */
  double surprise;      /* -log frequency, nats */
} wm_token_trait_t;

typedef struct {
  int64_t n;               /* token ids */
  wm_token_trait_t *trait; /* [n] */
  int n_categories;
  char category[WM_CATEGORIES][WM_CATEGORY_NAME];
} wm_token_traits_t;

/* Collective over comm->world. Traits of ids 0 .. n - 1, spelled by the tokenizer in directory
 * `tokenizer`, counted in ids[n_ids] (a whole corpus), with the categories of the file `words`.
 * Without a tokenizer that can be read there are spellings of none ("?"), and *spelled is false.
 * Rank 0 reads both files; all ranks have the same. WM_INPUT names the file and line. */
wm_status_t wm_token_traits_read(const wm_comm_t *comm, int64_t n, const char *tokenizer,
                                 const char *words, const int32_t *ids, int64_t n_ids,
                                 bool *spelled, wm_token_traits_t *out, wm_error_t *err);
/* The same from spellings: text[n] of length[n] bytes, and the text of a file of categories.
 * Frequencies are left at NaN. Not collective. */
wm_status_t wm_token_traits_make(int64_t n, const char *const *text, const int64_t *length,
                                 const char *words, const char *words_name, wm_token_traits_t *out,
                                 wm_error_t *err);
/* Frequencies from count[n]. Not collective. */
wm_status_t wm_token_traits_count(wm_token_traits_t *traits, const int64_t *count, wm_error_t *err);
/* Harmless on a zeroed object. */
void wm_token_traits_destroy(wm_token_traits_t *traits);

#endif
