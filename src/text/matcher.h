/* Finds added tokens in text: leftmost, of those the longest, without overlap; a trie. */
#ifndef WM_TEXT_MATCHER_H
#define WM_TEXT_MATCHER_H

#include "wanamaker/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
  int32_t child, sibling; /* 0: none (0 is the root) */
  int32_t id;             /* -1: no pattern ends here */
  unsigned char byte;
} wm_matcher_node_t;

/* Zero-initialise; wm_matcher_destroy. */
typedef struct {
  wm_matcher_node_t *nodes;
  int64_t count, capacity;
  bool first[256];     /* a pattern begins with this byte */
  bool pair[256][256]; /* these bytes follow one another inside a pattern */
  bool follows[256];   /* this byte follows another one inside a pattern */
} wm_matcher_t;

void wm_matcher_destroy(wm_matcher_t *matcher);

/* Adds the pattern text[bytes], bytes > 0. WM_INPUT if it has been added before: the reference
 * would choose one of the two at random. */
wm_status_t wm_matcher_add(wm_matcher_t *matcher, const char *text, int64_t bytes, int32_t id,
                           wm_error_t *err);

typedef struct {
  int64_t at, bytes;
  int32_t id;
} wm_match_t;

/* First match in text[bytes] that begins at or after `from`; false if there is none. */
bool wm_matcher_next(const wm_matcher_t *matcher, const char *text, int64_t bytes, int64_t from,
                     wm_match_t *match);

#endif
