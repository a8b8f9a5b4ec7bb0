/* The three ways in which words are merged (cache, array, heap) against the definition: again and
 * again, merge the leftmost of the pairs with the lowest rank. */
#include "test_io_common.h"

#include "../../src/text/bpe.h"
#include "wanamaker/base/rng.h"

#include <stdbool.h>

enum { LETTERS = 4, MAX_MERGES = 60, MAX_WORD = 400 };

static wm_error_t err;

/* Rank of the pair, -1 if it has none; of equal pairs the last counts. */
static int64_t rank_of(const wm_merge_t *merges, int64_t n, int32_t left, int32_t right) {
  while (--n >= 0 && (merges[n].left != left || merges[n].right != right))
    ;
  return n;
}

static int64_t naive(const wm_merge_t *merges, int64_t n_merges, int32_t *ids, int64_t n) {
  while (true) {
    int64_t best = -1, best_rank = 0;
    for (int64_t i = 0; i + 1 < n; i++) {
      int64_t rank = rank_of(merges, n_merges, ids[i], ids[i + 1]);
      if (rank >= 0 && (best < 0 || rank < best_rank)) {
        best = i;
        best_rank = rank;
      }
    }
    if (best < 0)
      return n;
    ids[best] = merges[best_rank].result;
    memmove(ids + best + 1, ids + best + 2, (size_t)(n - best - 2) * sizeof *ids);
    n--;
  }
}

/* Random merges of known tokens, each with a result of its own. */
static int64_t random_merges(uint64_t seed, wm_merge_t merges[MAX_MERGES]) {
  wm_rng_t rng = {seed, 1};
  int64_t n = 1 + (int64_t)wm_rng_below(rng, 0, MAX_MERGES);
  for (int64_t i = 0; i < n; i++) {
    uint64_t known = (uint64_t)(LETTERS + i), draw = (uint64_t)(3 * i + 1);
    merges[i].left = (int32_t)wm_rng_below(rng, draw, known);
    merges[i].right = (int32_t)wm_rng_below(rng, draw + 1, known);
    merges[i].result = (int32_t)(LETTERS + i);
  }
  return n;
}

static void check_word(wm_bpe_t *bpe, const wm_merge_t *merges, int64_t n_merges, wm_rng_t rng,
                       int64_t bytes) {
  char word[MAX_WORD];
  int32_t expected[MAX_WORD];
  const int32_t *ids;
  int64_t count;
  for (int64_t i = 0; i < bytes; i++) {
    expected[i] = (int32_t)wm_rng_below(rng, (uint64_t)i, LETTERS);
    word[i] = (char)('a' + expected[i]);
  }
  int64_t n = naive(merges, n_merges, expected, bytes);
  for (int again = 0; again < 2; again++) { /* the second time from the cache */
    assert_int_equal(wm_bpe_encode(bpe, word, bytes, &ids, &count, &err), WM_OK);
    assert_int_equal(count, n);
    assert_memory_equal(ids, expected, (size_t)n * sizeof *ids);
  }
}

static void test_against_the_definition(void **state) {
  (void)state;
  int32_t byte_ids[256];
  memset(byte_ids, -1, sizeof byte_ids);
  for (int i = 0; i < LETTERS; i++)
    byte_ids['a' + i] = i;
  for (uint64_t seed = 0; seed < 200; seed++) {
    wm_merge_t merges[MAX_MERGES];
    wm_bpe_t *bpe;
    int64_t n = random_merges(seed, merges);
    assert_int_equal(wm_bpe_create(byte_ids, merges, n, &bpe, &err), WM_OK);
    for (int64_t i = 0; i < 40; i++) {
      int64_t bytes = i < 36 ? 1 + 2 * i : i * 10;
      check_word(bpe, merges, n, (wm_rng_t){seed, (uint64_t)(2 + i)}, bytes);
    }
    wm_bpe_free(bpe);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_the_definition)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
