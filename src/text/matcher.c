#include "matcher.h"

#include "wanamaker/base/mem.h"

#include <stdlib.h>

void wm_matcher_destroy(wm_matcher_t *matcher) {
  free(matcher->nodes);
  *matcher = (wm_matcher_t){0};
}

static wm_status_t new_node(wm_matcher_t *matcher, unsigned char byte, int32_t sibling,
                            int32_t *out, wm_error_t *err) {
  if (matcher->count >= INT32_MAX)
    return wm_fail(err, WM_INPUT, "added tokens of more than %d bytes", INT32_MAX);
  wm_status_t status = wm_grow((void **)&matcher->nodes, &matcher->capacity, matcher->count,
                               matcher->count + 1, sizeof *matcher->nodes, "added tokens", err);
  if (status != WM_OK)
    return status;
  *out = (int32_t)matcher->count++;
  matcher->nodes[*out] = (wm_matcher_node_t){.sibling = sibling, .id = -1, .byte = byte};
  return WM_OK;
}

static int32_t child_of(const wm_matcher_t *matcher, int32_t node, unsigned char byte) {
  int32_t child = matcher->nodes[node].child;
  while (child != 0 && matcher->nodes[child].byte != byte)
    child = matcher->nodes[child].sibling;
  return child;
}

wm_status_t wm_matcher_add(wm_matcher_t *matcher, const char *text, int64_t bytes, int32_t id,
                           wm_error_t *err) {
  const unsigned char *t = (const unsigned char *)text;
  wm_status_t status = WM_OK;
  int32_t node = 0;
  if (matcher->count == 0)
    WM_TRY(new_node(matcher, 0, 0, &node, err));
  for (int64_t i = 0; i < bytes; i++) {
    int32_t child = child_of(matcher, node, t[i]);
    if (child == 0) {
      WM_TRY(new_node(matcher, t[i], matcher->nodes[node].child, &child, err));
      matcher->nodes[node].child = child;
    }
    if (i > 0)
      matcher->pair[t[i - 1]][t[i]] = matcher->follows[t[i]] = true;
    node = child;
  }
  matcher->first[t[0]] = true;
  if (matcher->nodes[node].id >= 0)
    return wm_fail(err, WM_INPUT, "the same in normal form as the one with id %ld",
                   (long)matcher->nodes[node].id);
  matcher->nodes[node].id = id;
cleanup:
  return status;
}

/* Longest pattern that begins at text[at]. */
static bool match_at(const wm_matcher_t *matcher, const char *text, int64_t bytes, int64_t at,
                     wm_match_t *match) {
  int32_t node = 0;
  match->id = -1;
  for (int64_t i = at; i < bytes; i++) {
    node = child_of(matcher, node, (unsigned char)text[i]);
    if (node == 0)
      break;
    if (matcher->nodes[node].id >= 0)
      *match = (wm_match_t){at, i + 1 - at, matcher->nodes[node].id};
  }
  return match->id >= 0;
}

bool wm_matcher_next(const wm_matcher_t *matcher, const char *text, int64_t bytes, int64_t from,
                     wm_match_t *match) {
  if (matcher->count == 0)
    return false;
  for (int64_t i = from; i < bytes; i++)
    if (matcher->first[(unsigned char)text[i]] && match_at(matcher, text, bytes, i, match))
      return true;
  return false;
}
