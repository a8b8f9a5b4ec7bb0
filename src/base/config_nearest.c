/* Which setting may have been meant: the valid key at the least edit distance (Levenshtein). */
#include "config_internal.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

static int edit_distance(const char *a, const char *b) {
  int row[2 * WM_KEY_SIZE];
  int nb = (int)strlen(b);
  assert(nb < 2 * WM_KEY_SIZE);
  for (int j = 0; j <= nb; j++)
    row[j] = j;
  for (int i = 1; a[i - 1] != '\0'; i++) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= nb; j++) {
      int up = row[j];
      int best = diagonal + (a[i - 1] != b[j - 1]);
      if (up + 1 < best)
        best = up + 1;
      if (row[j - 1] + 1 < best)
        best = row[j - 1] + 1;
      row[j] = best;
      diagonal = up;
    }
  }
  return row[nb];
}

/* The schema's key, with the user's name in the place of "*" where `key` begins alike. */
static void spell(const char *pattern, const char *key, char *out, size_t size) {
  size_t prefix = strcspn(pattern, "*");
  size_t name = strncmp(pattern, key, prefix) == 0 ? strcspn(key + prefix, ".") : 0;
  if (pattern[prefix] == '\0' || name == 0)
    snprintf(out, size, "%s", pattern);
  else
    snprintf(out, size, "%.*s%s", (int)(prefix + name), key, pattern + prefix + 1);
}

void wm_config_nearest(const wm_schema_t *schema, const char *key, char *out, size_t size) {
  char candidate[2 * WM_KEY_SIZE];
  int least = INT_MAX;
  out[0] = '\0';
  for (; schema->key != NULL; schema++) {
    spell(schema->key, key, candidate, sizeof candidate);
    int d = edit_distance(key, candidate);
    if (d < least) {
      least = d;
      snprintf(out, size, "%s", candidate);
    }
  }
}
