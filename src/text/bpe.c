/* Three layers: words of up to CACHED_BYTES bytes are looked up in a cache, as text repeats itself;
 * words of up to SHORT_BYTES are merged in an array by repeated search; longer ones in a linked
 * list, with the candidate pairs in a heap. */
#include "bpe.h"

#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#ifndef CACHE_SLOTS /* the fuzz targets make it small, so that words meet in it */
#define CACHE_SLOTS (1 << 16)
#endif
enum { CACHED_BYTES = 29, CACHED_IDS = 8, SHORT_BYTES = 48 };
enum { NO_RANK = INT32_MAX };

typedef struct {
  uint64_t pair; /* left << 32 | right; EMPTY_PAIR */
  int32_t rank, result;
} merge_slot_t;

#define EMPTY_PAIR UINT64_MAX

/* A cache line: bytes = 0 is a free slot. */
typedef struct {
  int32_t ids[CACHED_IDS];
  char word[CACHED_BYTES];
  uint8_t bytes, count;
} cache_slot_t;

/* A symbol of a long word; `rank` and `result` are of the pair that it makes with its right
 * neighbour. */
typedef struct {
  int32_t id, previous, next, rank, result;
} symbol_t;

struct wm_bpe {
  int32_t byte_ids[256];
  merge_slot_t *merges;
  uint64_t mask;
  cache_slot_t *cache;
  int32_t short_ids[SHORT_BYTES];
  /* scratch of long words */
  symbol_t *symbols;
  int32_t *long_ids;
  uint64_t *heap; /* rank << 32 | position */
  int64_t symbols_capacity, long_capacity, heap_capacity, heap_count;
};

static inline uint64_t pair_of(int32_t left, int32_t right) {
  return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* The slot that holds `pair`, or the free one where it belongs. */
static inline merge_slot_t *find_slot(const wm_bpe_t *bpe, uint64_t pair) {
  uint64_t i = (pair * 0x9E3779B97F4A7C15u) >> 32 & bpe->mask;
  while (bpe->merges[i].pair != pair && bpe->merges[i].pair != EMPTY_PAIR)
    i = (i + 1) & bpe->mask;
  return &bpe->merges[i];
}

static inline int32_t rank_of(const wm_bpe_t *bpe, int32_t left, int32_t right, int32_t *result) {
  const merge_slot_t *slot = find_slot(bpe, pair_of(left, right));
  *result = slot->result;
  return slot->rank;
}

wm_status_t wm_bpe_create(const int32_t byte_ids[256], const wm_merge_t *merges, int64_t n_merges,
                          wm_bpe_t **out, wm_error_t *err) {
  wm_bpe_t *bpe = NULL;
  wm_status_t status = WM_OK;
  int64_t slots = 1024;
  *out = NULL;
  assert(n_merges < NO_RANK / 4);
  while (slots < 2 * n_merges)
    slots *= 2;
  WM_TRY(wm_alloc((void **)&bpe, 1, sizeof *bpe, "byte-pair encoder", err));
  memcpy(bpe->byte_ids, byte_ids, sizeof bpe->byte_ids);
  bpe->mask = (uint64_t)slots - 1;
  WM_TRY(wm_alloc((void **)&bpe->merges, slots, sizeof *bpe->merges, "merges", err));
  WM_TRY(wm_alloc((void **)&bpe->cache, CACHE_SLOTS, sizeof *bpe->cache, "cache of words", err));
  for (int64_t i = 0; i < slots; i++)
    bpe->merges[i] = (merge_slot_t){EMPTY_PAIR, NO_RANK, -1};
  for (int64_t i = 0; i < n_merges; i++) {
    uint64_t pair = pair_of(merges[i].left, merges[i].right);
    *find_slot(bpe, pair) = (merge_slot_t){pair, (int32_t)i, merges[i].result};
  }
  *out = bpe;
  bpe = NULL;
cleanup:
  wm_bpe_free(bpe);
  return status;
}

void wm_bpe_free(wm_bpe_t *bpe) {
  if (bpe == NULL)
    return;
  free(bpe->merges);
  free(bpe->cache);
  free(bpe->symbols);
  free(bpe->long_ids);
  free(bpe->heap);
  free(bpe);
}

/* Merges a word of at most SHORT_BYTES bytes into bpe->short_ids; returns the number of ids. */
static int64_t encode_short(wm_bpe_t *bpe, const char *word, int64_t bytes) {
  int32_t *ids = bpe->short_ids;
  int32_t ranks[SHORT_BYTES], results[SHORT_BYTES]; /* of the pair i, i + 1 */
  int64_t n = bytes;
  for (int64_t i = 0; i < n; i++)
    ids[i] = bpe->byte_ids[(unsigned char)word[i]];
  for (int64_t i = 0; i + 1 < n; i++)
    ranks[i] = rank_of(bpe, ids[i], ids[i + 1], &results[i]);
  while (n > 1) {
    int64_t best = 0;
    for (int64_t i = 1; i + 1 < n; i++)
      if (ranks[i] < ranks[best])
        best = i;
    if (ranks[best] == NO_RANK)
      break;
    ids[best] = results[best];
    n--;
    for (int64_t i = best + 1; i < n; i++) {
      ids[i] = ids[i + 1];
      ranks[i] = ranks[i + 1];
      results[i] = results[i + 1];
    }
    if (best > 0)
      ranks[best - 1] = rank_of(bpe, ids[best - 1], ids[best], &results[best - 1]);
    if (best + 1 < n)
      ranks[best] = rank_of(bpe, ids[best], ids[best + 1], &results[best]);
  }
  return n;
}

static wm_status_t heap_push(wm_bpe_t *bpe, uint64_t key, wm_error_t *err) {
  wm_status_t status = wm_grow((void **)&bpe->heap, &bpe->heap_capacity, bpe->heap_count,
                               bpe->heap_count + 1, sizeof *bpe->heap, "pairs of a word", err);
  if (status != WM_OK)
    return status;
  int64_t i = bpe->heap_count++;
  for (; i > 0 && bpe->heap[(i - 1) / 2] > key; i = (i - 1) / 2)
    bpe->heap[i] = bpe->heap[(i - 1) / 2];
  bpe->heap[i] = key;
  return WM_OK;
}

static uint64_t heap_pop(wm_bpe_t *bpe) {
  uint64_t *heap = bpe->heap, top = heap[0], last = heap[--bpe->heap_count];
  int64_t n = bpe->heap_count, i = 0;
  for (int64_t child = 1; child < n; child = 2 * i + 1) {
    if (child + 1 < n && heap[child + 1] < heap[child])
      child++;
    if (heap[child] >= last)
      break;
    heap[i] = heap[child];
    i = child;
  }
  heap[i] = last;
  return top;
}

/* Computes the rank of the pair that begins at symbol `i` and enters it in the heap. */
static wm_status_t rank_pair(wm_bpe_t *bpe, int32_t i, wm_error_t *err) {
  symbol_t *s = &bpe->symbols[i];
  s->rank = NO_RANK;
  if (s->next < 0)
    return WM_OK;
  s->rank = rank_of(bpe, s->id, bpe->symbols[s->next].id, &s->result);
  if (s->rank == NO_RANK)
    return WM_OK;
  return heap_push(bpe, (uint64_t)s->rank << 32 | (uint32_t)i, err);
}

/* Merges symbol `i` with its right neighbour. */
static wm_status_t merge_pair(wm_bpe_t *bpe, int32_t i, wm_error_t *err) {
  symbol_t *s = &bpe->symbols[i], *right = &bpe->symbols[s->next];
  s->id = s->result;
  s->next = right->next;
  right->rank = NO_RANK;
  if (s->next >= 0)
    bpe->symbols[s->next].previous = i;
  wm_status_t status = rank_pair(bpe, i, err);
  if (status == WM_OK && s->previous >= 0)
    status = rank_pair(bpe, s->previous, err);
  return status;
}

static wm_status_t encode_long(wm_bpe_t *bpe, const char *word, int64_t bytes, int64_t *count,
                               wm_error_t *err) {
  wm_status_t status = WM_OK;
  if (bytes >= INT32_MAX)
    return wm_fail(err, WM_INPUT, "a word of %lld bytes is too long", (long long)bytes);
  WM_TRY(wm_grow((void **)&bpe->symbols, &bpe->symbols_capacity, 0, bytes, sizeof *bpe->symbols,
                 "symbols of a word", err));
  WM_TRY(wm_grow((void **)&bpe->long_ids, &bpe->long_capacity, 0, bytes, sizeof *bpe->long_ids,
                 "tokens of a word", err));
  int32_t n = (int32_t)bytes;
  bpe->heap_count = 0;
  for (int32_t i = 0; i < n; i++)
    bpe->symbols[i] = (symbol_t){.id = bpe->byte_ids[(unsigned char)word[i]],
                                 .previous = i - 1,
                                 .next = i + 1 < n ? i + 1 : -1};
  for (int32_t i = 0; i < n; i++)
    WM_TRY(rank_pair(bpe, i, err));
  while (bpe->heap_count > 0) {
    uint64_t key = heap_pop(bpe);
    int32_t i = (int32_t)(uint32_t)key;
    /* An entry whose pair has changed since is stale: a rank belongs to one pair. */
    if (bpe->symbols[i].rank == (int32_t)(key >> 32))
      WM_TRY(merge_pair(bpe, i, err));
  }
  *count = 0;
  for (int32_t i = 0; i >= 0; i = bpe->symbols[i].next)
    bpe->long_ids[(*count)++] = bpe->symbols[i].id;
cleanup:
  return status;
}

static inline bool holds(const cache_slot_t *slot, const char *word, int64_t bytes) {
  return slot->bytes == bytes && memcmp(slot->word, word, (size_t)bytes) == 0;
}

/* Encodes a word of at most CACHED_BYTES bytes. A word has two slots; a new one takes the first,
 * what was there moves to the second. */
static void encode_cached(wm_bpe_t *bpe, const char *word, int64_t bytes, const int32_t **ids,
                          int64_t *count) {
  cache_slot_t *slot = &bpe->cache[wm_hash(word, (size_t)bytes, 0) & (CACHE_SLOTS - 2)];
  if (!holds(slot, word, bytes) && !holds(++slot, word, bytes)) {
    slot--;
    *count = encode_short(bpe, word, bytes);
    *ids = bpe->short_ids;
    if (*count > CACHED_IDS)
      return;
    slot[1] = slot[0];
    slot->bytes = (uint8_t)bytes;
    slot->count = (uint8_t)*count;
    memcpy(slot->word, word, (size_t)bytes);
    memcpy(slot->ids, bpe->short_ids, (size_t)*count * sizeof *slot->ids);
  }
  *ids = slot->ids;
  *count = slot->count;
}

wm_status_t wm_bpe_encode(wm_bpe_t *bpe, const char *word, int64_t bytes, const int32_t **ids,
                          int64_t *count, wm_error_t *err) {
  assert(bytes > 0);
  if (bytes <= CACHED_BYTES) {
    encode_cached(bpe, word, bytes, ids, count);
    return WM_OK;
  }
  if (bytes <= SHORT_BYTES) {
    *count = encode_short(bpe, word, bytes);
    *ids = bpe->short_ids;
    return WM_OK;
  }
  wm_status_t status = encode_long(bpe, word, bytes, count, err);
  *ids = bpe->long_ids;
  return status;
}
