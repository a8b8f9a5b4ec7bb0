/* Byte-pair encoding of one word (Sennrich, Haddow, Birch 2016; on bytes as in GPT-2): of all
 * neighbouring pairs the one with the lowest rank is merged, the leftmost first, until none is left
 * that has a rank.
 */
#ifndef WM_TEXT_BPE_H
#define WM_TEXT_BPE_H

#include "wanamaker/base/status.h"

#include <stdint.h>

typedef struct {
  int32_t left, right, result;
} wm_merge_t;

typedef struct wm_bpe wm_bpe_t;

/* byte_ids[b]: the token of byte b, -1 if it has none. merges[n_merges]: in order of rank; of equal
 * pairs the last counts, as in the reference. All are copied. Not collective. */
wm_status_t wm_bpe_create(const int32_t byte_ids[256], const wm_merge_t *merges, int64_t n_merges,
                          wm_bpe_t **out, wm_error_t *err);
void wm_bpe_free(wm_bpe_t *bpe);

/* Ids of word[bytes], bytes > 0, none of whose bytes lacks a token. (*ids)[*count] is borrowed
 * until the next call. O(bytes log bytes). */
wm_status_t wm_bpe_encode(wm_bpe_t *bpe, const char *word, int64_t bytes, const int32_t **ids,
                          int64_t *count, wm_error_t *err);

#endif
